//! The first job file: a few questions, and a file in which every key is explained. Each answer is checked by
//! reading the file that it would make, so what `template` writes can always be read back.

use super::error::is_format;
use super::keys::{KEYS, Key};
use super::{Class, Context, Problem, parse, quantity};
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// What is asked for, in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Question {
    Name,
    Command,
    /// Accelerators: `A100:8`, or alternatives with commas between them.
    Accelerators,
    /// How much there is to do: `40h` or `40000 steps`.
    Work,
    Deadline,
    /// The folder that the program saves to.
    CheckpointPath,
    /// Where checkpoints are kept.
    Store,
}

impl Question {
    /// All questions, in the order in which they are asked.
    pub const ALL: [Question; 7] = [
        Question::Name,
        Question::Command,
        Question::Accelerators,
        Question::Work,
        Question::Deadline,
        Question::CheckpointPath,
        Question::Store,
    ];

    /// The question as a person reads it.
    pub fn prompt(self) -> &'static str {
        match self {
            Question::Name => "What is the job called?",
            Question::Command => "Which command does it run?",
            Question::Accelerators => "Which accelerators does a worker need?",
            Question::Work => "How much is there to do, in hours or steps?",
            Question::Deadline => "When must it be done?",
            Question::CheckpointPath => "Which folder does the program save its checkpoints to?",
            Question::Store => "Where are checkpoints kept?",
        }
    }

    /// An answer to show beside the question.
    pub fn example(self) -> &'static str {
        match self {
            Question::Name => "bert-finetune",
            Question::Command => "python train.py",
            Question::Accelerators => "A100:8, H100:4",
            Question::Work => "40h",
            Question::Deadline => "36h",
            Question::CheckpointPath => "out/",
            Question::Store => "s3://bucket/ckpt",
        }
    }

    /// What stands behind the question: in brackets what `template` writes without an answer, else an example and what
    /// leaving it out means.
    pub fn aside(self) -> String {
        let left_out = match self {
            Question::Command => return format!("[{}]", self.example()),
            Question::Name => "the file's name",
            Question::Accelerators => "any offer will do",
            Question::Work => "learnt while running",
            Question::Deadline => "none",
            Question::CheckpointPath => "a folder of its own",
            Question::Store => "the state directory",
        };
        format!("(such as {}; empty: {left_out})", self.example())
    }

    /// The long flag of the command line that answers it.
    pub fn flag(self) -> &'static str {
        match self {
            Question::Name => "name",
            Question::Command => "run",
            Question::Accelerators => "accelerators",
            Question::Work => "work",
            Question::Deadline => "deadline",
            Question::CheckpointPath => "checkpoint",
            Question::Store => "store",
        }
    }
}

/// Answers that are known to make a file that can be read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Answers {
    /// YAML by the path of its key.
    values: BTreeMap<String, String>,
    answered: Vec<Question>,
}

impl Answers {
    /// Takes an answer, or says what is wrong with it and changes nothing. An empty one leaves the key out.
    pub fn set(&mut self, question: Question, text: &str, context: &Context) -> Result<(), Problem> {
        let text = text.trim();
        let mut next = self.clone();
        next.answered.push(question);
        if !text.is_empty() {
            let (path, yaml) = as_yaml(question, text)?;
            next.values.insert(path.to_owned(), yaml);
            if let Err(error) = parse(&template(&next), "job.yaml", context) {
                // The position is in a file that nobody has seen.
                return Err(Problem { position: None, ..error.problems()[0].clone() });
            }
        }
        *self = next;
        Ok(())
    }

    /// Asks what is not answered yet, again where an answer was wrong; `ask` is given the question and what was
    /// wrong, and returns none when nobody answers any more.
    pub fn ask(&mut self, context: &Context, mut ask: impl FnMut(Question, Option<&Problem>) -> Option<String>) {
        for question in Question::ALL {
            let mut wrong = None;
            while !self.answered.contains(&question) {
                let Some(text) = ask(question, wrong.as_ref()) else { return };
                wrong = self.set(question, &text, context).err();
            }
        }
    }

    /// Hours of work without the accelerators that they were counted on: nothing can be planned from them.
    pub fn lacks_accelerators(&self) -> bool {
        self.values.contains_key("work.hours") && !self.values.contains_key("resources.accelerators")
    }

    fn get(&self, path: &str) -> Option<String> {
        if path == "work.accelerator" && self.values.contains_key("work.hours") {
            let first = self.values.get("resources.accelerators")?;
            return first.trim_matches(['[', ']']).split(',').next().map(|ask| ask.trim().to_owned());
        }
        self.values.get(path).cloned()
    }
}

fn as_yaml(question: Question, text: &str) -> Result<(&'static str, String), Problem> {
    Ok(match question {
        Question::Name => ("name", quote(text)),
        Question::Command => ("run", quote(text)),
        Question::Accelerators => {
            let asks = text.split(',').map(quantity::accelerators).collect::<Result<Vec<_>, _>>()?;
            let asks: Vec<String> = asks.iter().map(ToString::to_string).collect();
            ("resources.accelerators", if asks.len() == 1 { asks[0].clone() } else { format!("[{}]", asks.join(", ")) })
        }
        Question::Work => work(text)?,
        Question::Deadline => ("deadline", quote(text)),
        Question::CheckpointPath => ("checkpoint.path", quote(text)),
        Question::Store => ("checkpoint.store", quote(text)),
    })
}

fn work(text: &str) -> Result<(&'static str, String), Problem> {
    let unit = ["hours", "hour", "h", "steps", "step"].into_iter().find(|unit| text.ends_with(unit)).unwrap_or("");
    let number = text.strip_suffix(unit).unwrap_or(text).trim();
    match unit {
        "h" | "hour" | "hours" => quantity::hours(number).map(|_| ("work.hours", number.to_owned())),
        "step" | "steps" => quantity::count(number, 1, u64::MAX / 2).map(|_| ("work.steps", number.to_owned())),
        _ => Err(Problem::new(Class::BadValue, "neither hours nor steps")
            .expected("hours or steps, such as 40h or 40000 steps")
            .hint("say the unit, or leave it empty: it is learnt while running")),
    }
}

/// A commented job file: the answers, and every other key explained and commented out.
pub fn template(answers: &Answers) -> String {
    let mut file = String::from(
        "# A windfall job. Submit it with `windfall run` and this file's name.\n\
         # Lines that begin with `#` and no space are settings that are not used: remove the `#` to use them.\n",
    );
    for key in KEYS {
        let _ = write!(file, "\n# {}\n", key.doc);
        let Some(below) = key.kind.group() else {
            // A file without a command could not be read.
            let value = answers.get(key.name).or_else(|| (key.name == "run").then(|| key.example.to_owned()));
            setting(&mut file, "", key, value);
            continue;
        };
        let path = |k: &Key| format!("{}.{}", key.name, k.name);
        let used = below.iter().any(|k| answers.get(&path(k)).is_some());
        let _ = writeln!(file, "{}{}:", if used { "" } else { "#" }, key.name);
        for k in below {
            let indent = if used { "  " } else { "#  " };
            let _ = writeln!(file, "{indent}# {}", k.doc);
            if used {
                setting(&mut file, indent, k, answers.get(&path(k)));
            } else {
                setting(&mut file, indent, k, Some(k.example.to_owned()));
            }
        }
    }
    file
}

fn setting(file: &mut String, indent: &str, key: &Key, value: Option<String>) {
    let _ = match value {
        Some(value) => writeln!(file, "{indent}{}: {value}", key.name),
        None => writeln!(file, "{indent}#{}: {}", key.name, key.example),
    };
}

/// Text as a YAML scalar: plain where every reader agrees, else in double quotes.
fn quote(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, ' ' | '_' | '.' | '/' | '+' | '=' | '@' | '-' | ':');
    let begins = text.starts_with(|c: char| c.is_ascii_alphanumeric() || matches!(c, '/' | '_' | '.'));
    let means_else =
        ["true", "false", "yes", "no", "on", "off", "y", "n", "null"].contains(&text.to_ascii_lowercase().as_str());
    let number = quantity::decimal(text).is_ok()
        || text.starts_with("0x")
        || text.starts_with("0o")
        || text.starts_with('.') && !text.contains('/');
    if begins
        && text.chars().all(plain)
        && !text.contains(": ")
        && !text.ends_with([':', ' '])
        && !means_else
        && !number
    {
        return text.to_owned();
    }
    let mut quoted = String::from("\"");
    for c in text.chars() {
        let _ = match c {
            '"' => write!(quoted, "\\\""),
            '\\' => write!(quoted, "\\\\"),
            '\n' => write!(quoted, "\\n"),
            '\t' => write!(quoted, "\\t"),
            c if c.is_control() || is_format(c) || matches!(u32::from(c) & 0xffff, 0xfffe | 0xffff) => {
                write!(quoted, "\\U{:08X}", u32::from(c))
            }
            c => write!(quoted, "{c}"),
        };
    }
    quoted.push('"');
    quoted
}
