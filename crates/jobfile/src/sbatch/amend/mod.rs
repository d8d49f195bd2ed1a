//! What users of a cluster get wrong in a batch script, put right: a pure function of the script, of what was said on the
//! command line, and of what Slurm said about itself and about earlier jobs. Nothing here asks or submits anything.
//!
//! Every rule is a small function in one list (`rules`). What a person chose on the command line or in the environment is
//! never changed. A change is an edit of the script with its reason in numbers (`edit`), and is shown as a diff (`diff`).

mod diff;
mod edit;
mod evidence;
mod facts;
mod rules;
#[cfg(test)]
mod tests;

pub use facts::{Facts, Partition, Past, Trial};

use super::given::{Given, Word, options};
use super::options::{OPTIONS, SlurmOption};
use super::script::Script;
use edit::Edit;

/// A script that is about to be submitted, and what else was said.
#[derive(Debug)]
pub struct BatchJob<'t> {
    pub text: &'t str,
    pub script: Script,
    /// Options of the command line, and those that variables of the environment say.
    pub chosen: Vec<Given>,
}

/// One thing that is put right.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// The rule: `gpus`, `cpu-partition`, `time`, `signal`, `cpus-per-task`, `short-queue`.
    pub rule: &'static str,
    /// One line, with its numbers.
    pub reason: String,
    pub(super) edit: Edit,
}

impl Change {
    /// What the script says after it: `--gres=gpu:4`, or a line of commands.
    pub fn says(&self) -> String {
        self.edit.says()
    }
}

/// The words of a command line of `sbatch`.
#[derive(Debug, Default)]
pub struct CommandLine {
    pub given: Vec<Given>,
    /// How many of the words are options; the script and its arguments follow.
    pub options: usize,
    /// What was not understood, if anything: `sbatch` may know better.
    pub unclear: Option<String>,
}

/// Reads the words that follow `sbatch`.
pub fn command_line(words: &[String]) -> CommandLine {
    let words = words.iter().enumerate().map(|(at, text)| Word { text: text.clone(), span: at..at + 1 });
    let read = options(&words.collect::<Vec<Word>>());
    let unclear = read.problems.first().map(|(_, problem)| problem.message.clone());
    CommandLine { given: read.given, options: read.taken, unclear }
}

/// The options that variables of the environment say, as `sbatch` reads them.
pub fn of_environment(value: impl Fn(&str) -> Option<String>) -> Vec<Given> {
    let named = OPTIONS.iter().filter(|option| !option.variable.is_empty());
    let given = |option: &'static SlurmOption| Some(Given { option, value: Some(value(option.variable)?), span: 0..0 });
    named.filter_map(given).collect()
}

impl<'t> BatchJob<'t> {
    /// A script with what was said beside it; what stands later counts.
    pub fn of(text: &'t str, chosen: Vec<Given>) -> BatchJob<'t> {
        BatchJob { text, script: Script::read(text), chosen }
    }

    /// What counts of an option: the command line before the environment, and both before the script.
    pub fn counts(&self, name: &str) -> Option<&Given> {
        self.chosen.iter().rfind(|given| given.option.name == name).or_else(|| self.script.last(name))
    }

    /// Whether a person chose one of these outside the script.
    fn is_chosen(&self, names: &[&str]) -> bool {
        self.chosen.iter().any(|given| names.contains(&given.option.name))
    }

    fn has(&self, names: &[&str]) -> bool {
        names.iter().any(|name| self.counts(name).is_some())
    }

    /// The commands, without the lines above them.
    fn commands(&self) -> &str {
        self.text.get(self.script.commands..).unwrap_or_default()
    }

    /// Why nothing of it is changed, if that is so.
    pub fn untouched(&self) -> Option<&'static str> {
        match () {
            () if self.script.hetjob.is_some() => Some("a heterogeneous job is submitted as it is"),
            () if !self.script.problems.is_empty() => Some("an option in it cannot be read: it is submitted as it is"),
            () if !self.text.starts_with("#!") => Some("it does not begin with #!: it is submitted as it is"),
            () if self.text.contains('\r') => Some("it has Windows line ends: it is submitted as it is"),
            () => None,
        }
    }

    /// All that is put right, in the order of the rules.
    pub fn changes(&self, facts: &Facts) -> Vec<Change> {
        if self.untouched().is_some() {
            return Vec::new();
        }
        rules::RULES.iter().filter_map(|rule| rule(self, facts)).collect()
    }

    /// Queues for short jobs that are worth to be asked about: each an option and its value.
    pub fn worth_a_trial(&self, facts: &Facts) -> Vec<(&'static str, String)> {
        if self.untouched().is_some() { Vec::new() } else { rules::short_queues(self, facts) }
    }

    /// The script with all changes.
    pub fn changed(&self, changes: &[Change]) -> String {
        edit::changed(self, changes)
    }

    /// The changes as a unified diff; empty where there are none.
    pub fn diff(&self, changes: &[Change], name: &str) -> String {
        diff::unified(&edit::lines(self, changes), name)
    }
}
