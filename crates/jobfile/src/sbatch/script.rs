//! A batch script: where its `#SBATCH` lines are, what they say, and where its commands begin. What counts is Slurm's own
//! rule: a line counts when it begins with `#SBATCH` and stands above the first command.

use super::given::{Given, Word, options};
use crate::error::{Class, Problem, Quoted};
use std::ops::Range;

pub(super) const MAGIC: &str = "#SBATCH";

/// A script that was read.
#[derive(Debug, Default)]
pub struct Script {
    /// In the order of the file: of two alike the last one counts.
    pub given: Vec<Given>,
    /// Lines with `#SBATCH` below the first command, which nobody reads.
    pub late: Vec<Range<usize>>,
    /// Where the next job of a heterogeneous one begins.
    pub hetjob: Option<Range<usize>>,
    /// Where the first command begins; the end of the file if there is none.
    pub commands: usize,
    pub(crate) problems: Vec<(Range<usize>, Problem)>,
}

impl Script {
    /// The option that counts of all that have this name.
    pub fn last(&self, name: &str) -> Option<&Given> {
        self.given.iter().rfind(|given| given.option.name == name)
    }

    /// Reads a script's lines. What is wrong with them is kept with the places.
    pub fn read(text: &str) -> Script {
        let mut script = Script { commands: text.len(), ..Script::default() };
        let mut at = 0;
        let mut is_above = true;
        for line in text.split_inclusive('\n') {
            let shown = at..at + line.trim_end().len();
            if is_above && !line.trim_start().is_empty() && !line.trim_start().starts_with('#') {
                is_above = false;
                script.commands = at;
            }
            if let Some(said) = directive(line) {
                if is_above {
                    script.line(text, shown.end - said.len()..shown.end);
                } else {
                    script.late.push(shown);
                }
            }
            at += line.len();
        }
        script
    }

    fn line(&mut self, text: &str, span: Range<usize>) {
        let words = match words(text, span) {
            Ok(words) => words,
            Err(open) => {
                let quote = text.get(open.clone()).unwrap_or_default();
                let problem = Problem::new(Class::Syntax, "a quote that is opened here is never closed")
                    .expected(format!("a closing {quote} on the same line"))
                    .hint("close the quote; a line of options ends with its line");
                return self.problems.push((open, problem));
            }
        };
        if let [word] = words.as_slice()
            && matches!(word.text.as_str(), "hetjob" | "packjob")
        {
            self.hetjob.get_or_insert(word.span.clone());
            return;
        }
        let read = options(&words);
        if self.hetjob.is_none() {
            self.given.extend(read.given);
        }
        self.problems.extend(read.problems);
        if let Some(word) = words.get(read.taken) {
            let hint = match word.text.split_once('=') {
                Some((name, _)) => format!("options begin with dashes: --{name}=…"),
                None => "options begin with dashes; a value with spaces goes in quotes".to_owned(),
            };
            let problem = Problem::new(Class::Syntax, format!("{} is not an option", Quoted(&word.text)))
                .expected("options, such as --nodes=2")
                .hint(hint);
            self.problems.push((word.span.clone(), problem));
        }
    }
}

/// What follows `#SBATCH` on a line that begins with it.
fn directive(line: &str) -> Option<&str> {
    let said = line.trim_end().strip_prefix(MAGIC)?;
    (said.is_empty() || said.starts_with([' ', '\t'])).then_some(said)
}

/// Whether a file is a batch script, as its first lines tell. A job file of ours may begin with `#!` as well: it names us.
pub fn is_script(text: &str) -> bool {
    let first = text.lines().next().unwrap_or_default();
    if first.starts_with("#!") {
        return !first.contains("windfall");
    }
    let above = text.lines().take_while(|line| line.trim().is_empty() || line.trim_start().starts_with('#'));
    let is_yaml = |text: &str| text.lines().any(|line| line.starts_with("run:"));
    above.into_iter().any(|line| directive(line).is_some()) && !is_yaml(text)
}

/// The words of a part of a line: quotes keep them together, a backslash takes the next character as it is, and `#` at the
/// beginning of one begins a comment. Fails with the place of a quote that is never closed.
fn words(text: &str, span: Range<usize>) -> Result<Vec<Word>, Range<usize>> {
    let mut words = Vec::new();
    let mut word: Option<Word> = None;
    let mut quote: Option<(char, usize)> = None;
    let mut letters = text[span.clone()].char_indices();
    while let Some((at, letter)) = letters.next() {
        let at = span.start + at;
        let end = at + letter.len_utf8();
        if quote.is_none() && letter.is_whitespace() {
            words.extend(word.take());
            continue;
        }
        if quote.is_none() && letter == '#' && word.is_none() {
            break;
        }
        let word = word.get_or_insert_with(|| Word { text: String::new(), span: at..at });
        word.span.end = end;
        match (quote, letter) {
            (Some((open, _)), letter) if letter == open => quote = None,
            (None, '\'' | '"') => quote = Some((letter, at)),
            (None | Some(('"', _)), '\\') => {
                if let Some((_, next)) = letters.next() {
                    word.text.push(next);
                    word.span.end = end + next.len_utf8();
                }
            }
            (_, letter) => word.text.push(letter),
        }
    }
    if let Some((_, at)) = quote {
        return Err(at..at + 1);
    }
    words.extend(word);
    Ok(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(lines: &str, expected: &[&str]) {
        let script = Script::read(lines);
        let given = script.given.iter().map(Given::long);
        let wrong = script.problems.iter().map(|(span, problem)| format!("{span:?} {}", problem.message));
        let said: Vec<String> = given.chain(wrong).collect();
        assert_eq!(said.iter().map(String::as_str).collect::<Vec<_>>(), expected, "{lines}");
    }

    #[test]
    fn lines_are_read_as_slurm_reads_them() {
        check("#!/bin/sh\n#SBATCH -N 2 # two\n#SBATCH --comment=\"a # b\"\n", &["--nodes=2", "--comment=a # b"]);
        check("#SBATCH\t-J 'my job'   -n4\r\n", &["--job-name=my job", "--ntasks=4"]);
        check("#SBATCH --comment=it\\'s\\ fine\n\n  # an aside\n#SBATCH -H", &["--comment=it's fine", "--hold"]);
        check("##SBATCH -N2\n #SBATCH -N3\n#SBATCHX -N4\n#SBATCH\n", &[]);
        check("#SBATCH -J a#b\n", &["--job-name=a#b"]);
        check("#SBATCH -N2\necho\n#SBATCH -N3\n", &["--nodes=2"]);
        check("#SBATCH -N2\n#SBATCH hetjob\n#SBATCH -N3\n", &["--nodes=2"]);
    }

    #[test]
    fn what_is_no_option_is_said_with_its_place() {
        check("#SBATCH nodes=2\n", &["8..15 `nodes=2` is not an option"]);
        check("#SBATCH -J my job\n", &["--job-name=my", "14..17 `job` is not an option"]);
        check("#SBATCH -J 'my\n", &["11..12 a quote that is opened here is never closed"]);
    }

    #[test]
    fn a_script_is_known_by_what_is_in_it() {
        for (text, expected) in [
            ("#!/bin/bash\n", true),
            ("#!/usr/bin/env -S windfall run\nrun: x\n", false),
            ("# for the cluster\n\n#SBATCH -N2\necho\n", true),
            ("#SBATCH -N2\nrun: train\n", false),
            ("name: x\n#SBATCH -N2\nrun: y\n", false),
            ("", false),
        ] {
            assert_eq!(is_script(text), expected, "{text}");
        }
        let script = Script::read("#!/bin/sh\necho\n#SBATCH -N2\n");
        assert_eq!((script.commands, script.late.len(), script.late.first()), (10, 1, Some(&(15..26))));
    }
}
