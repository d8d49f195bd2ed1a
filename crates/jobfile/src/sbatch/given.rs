//! Words to options, as `sbatch` takes them: long and short forms, values in the same word or in the next one, beginnings of
//! long names.

use super::options::{OPTIONS, SlurmOption, Takes, named, of_letter};
use crate::error::{Class, Problem, Quoted};
use std::ops::Range;
use windfall_core::nearest::nearest;

/// A word, and the bytes of the file that it stands in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Word {
    pub text: String,
    pub span: Range<usize>,
}

/// An option as it was given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Given {
    pub option: &'static SlurmOption,
    pub value: Option<String>,
    /// The bytes of the file that say it; of a command line, the numbers of its words.
    pub span: Range<usize>,
}

impl Given {
    /// The value; empty where there is none.
    pub fn value(&self) -> &str {
        self.value.as_deref().unwrap_or_default()
    }

    /// As it is written in the long form: `--nodes=2`.
    pub fn long(&self) -> String {
        match &self.value {
            Some(value) => format!("--{}={value}", self.option.name),
            None => format!("--{}", self.option.name),
        }
    }
}

/// What some words say.
#[derive(Debug, Default)]
pub(super) struct Options {
    pub given: Vec<Given>,
    pub problems: Vec<(Range<usize>, Problem)>,
    /// How many of the words were options; what follows is not.
    pub taken: usize,
}

/// Reads options up to the first word that is none.
pub(super) fn options(words: &[Word]) -> Options {
    let mut read = Options::default();
    while let Some(word) = words.get(read.taken) {
        if word.text == "--" {
            read.taken += 1;
            break;
        }
        if !word.text.starts_with('-') || word.text == "-" {
            break;
        }
        read.taken += 1;
        let next = words.get(read.taken);
        let took_next = match word.text.strip_prefix("--") {
            Some(long) => read.long(long, word, next),
            None => read.short(&word.text[1..], word, next),
        };
        read.taken += usize::from(took_next);
    }
    read
}

impl Options {
    fn wrong(&mut self, span: &Range<usize>, problem: Problem) -> bool {
        self.problems.push((span.clone(), problem));
        false
    }

    /// Takes `--name`, `--name=value` or `--name value`; true where the next word was its value.
    fn long(&mut self, text: &str, word: &Word, next: Option<&Word>) -> bool {
        let (name, value) = match text.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (text, None),
        };
        let Some(option) = named(name) else { return self.wrong(&word.span, unknown(name)) };
        match (option.takes, value) {
            (Takes::Nothing, Some(_)) => {
                let problem = Problem::new(Class::BadValue, format!("--{} takes no value", option.name))
                    .expected(format!("--{} alone", option.name));
                self.wrong(&word.span, problem.hint("remove the `=` and what follows"))
            }
            (Takes::Value, None) => self.with_next(option, word, next),
            (_, value) => self.add(option, value.map(str::to_owned), word.span.clone()),
        }
    }

    /// Takes `-N2`, `-N 2`, or several letters that take nothing; true where the next word was the value of the last.
    fn short(&mut self, letters: &str, word: &Word, next: Option<&Word>) -> bool {
        for (at, letter) in letters.char_indices() {
            let Some(option) = of_letter(letter) else {
                let problem = Problem::new(Class::UnknownKey, format!("unknown option: {}", Quoted(&word.text)));
                let hint = match named(letters) {
                    Some(option) => format!("long names have two dashes: --{}", option.name),
                    None => "remove it; `man sbatch` lists what there is".to_owned(),
                };
                return self.wrong(&word.span, problem.expected("an option of sbatch").hint(hint));
            };
            let rest = &letters[at + letter.len_utf8()..];
            if option.takes == Takes::Nothing {
                self.add(option, None, word.span.clone());
                continue;
            }
            if let Some(value) = rest.strip_prefix('=') {
                let problem = Problem::new(Class::BadValue, format!("-{letter} is written without `=`"));
                let hint = format!("write -{letter} {value}, or --{}={value}", option.name);
                return self.wrong(&word.span, problem.expected(format!("--{}", option.name)).hint(hint));
            }
            return match (option.takes, rest) {
                (Takes::Value, "") => self.with_next(option, word, next),
                (_, "") => self.add(option, None, word.span.clone()),
                (_, rest) => self.add(option, Some(rest.to_owned()), word.span.clone()),
            };
        }
        false
    }

    fn add(&mut self, option: &'static SlurmOption, value: Option<String>, span: Range<usize>) -> bool {
        self.given.push(Given { option, value, span });
        false
    }

    fn with_next(&mut self, option: &'static SlurmOption, word: &Word, next: Option<&Word>) -> bool {
        let Some(next) = next else {
            let problem = Problem::new(Class::BadValue, format!("--{} has no value", option.name))
                .expected(format!("--{}=…", option.name));
            return self.wrong(&word.span, problem.hint("add the value, or remove the option"));
        };
        self.add(option, Some(next.text.clone()), word.span.start..next.span.end);
        true
    }
}

fn unknown(name: &str) -> Problem {
    let begin: Vec<&str> =
        OPTIONS.iter().map(|option| option.name).filter(|known| !name.is_empty() && known.starts_with(name)).collect();
    let hint = match nearest(name, OPTIONS.iter().map(|option| option.name)) {
        _ if begin.len() > 1 => format!("which of --{}?", begin.join(", --")),
        Some(near) => format!("did you mean --{near}?"),
        None => "remove it; `man sbatch` lists what there is".to_owned(),
    };
    Problem::new(Class::UnknownKey, format!("unknown option: {}", Quoted(&format!("--{name}"))))
        .expected("an option of sbatch")
        .hint(hint)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(line: &str, expected: &[&str], taken: usize) {
        let words = line.split(' ').enumerate();
        let words: Vec<Word> = words.map(|(at, text)| Word { text: text.to_owned(), span: at..at + 1 }).collect();
        let read = options(&words);
        let given = read.given.iter().map(Given::long);
        let wrong = read.problems.iter().map(|(span, problem)| format!("{}: {}", span.start, problem.message));
        let said: Vec<String> = given.chain(wrong).collect();
        assert_eq!(
            (said.iter().map(String::as_str).collect::<Vec<_>>(), read.taken),
            (expected.to_vec(), taken),
            "{line}"
        );
    }

    #[test]
    fn every_way_to_write_an_option_is_read() {
        check("-N 2 -N2 --nodes=2 --nodes 2", &["--nodes=2"; 4], 6);
        check("-HQ -Hn4", &["--hold", "--quiet", "--hold", "--ntasks=4"], 2);
        check("--exclusive train.sh", &["--exclusive"], 1);
        check("--exclusive=user --nice -k", &["--exclusive=user", "--nice", "--no-kill"], 3);
        check("--job a --cpus-per-t=4", &["--job-name=a", "--cpus-per-task=4"], 3);
        check("--export=A=1,B=2", &["--export=A=1,B=2"], 1);
        check("-p gpu -- -x", &["--partition=gpu"], 3);
        check("-p gpu train.sh --epochs 3", &["--partition=gpu"], 2);
        check("-", &[], 0);
    }

    #[test]
    fn what_cannot_be_read_is_named() {
        check("--ntask=4", &["0: unknown option: `--ntask`"], 1);
        check("--nodez=4 -Z", &["0: unknown option: `--nodez`", "1: unknown option: `-Z`"], 2);
        check("--nodes", &["0: --nodes has no value"], 1);
        check("--hold=yes", &["0: --hold takes no value"], 1);
        check("-N=2", &["0: -N is written without `=`"], 1);
        check("-nodes=2", &["--ntasks=odes=2"], 1);
    }
}
