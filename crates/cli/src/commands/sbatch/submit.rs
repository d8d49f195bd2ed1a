//! The real `sbatch`: what it is given, and how this program ends with it.

use serde_json::json;
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use windfall_jobfile::sbatch::Change;
use windfall_server::client::{Code, Failure};

/// The version of the JSON: it changes when a key goes away or means something else.
const SCHEMA: &str = "windfall.sbatch.v1";

/// A script, and where it came from.
pub struct Source {
    pub name: String,
    /// None for standard input.
    pub path: Option<String>,
    pub text: String,
}

/// What `sbatch` is called with. A changed script is a file of the same name, because `sbatch` calls a job by it, in a folder of
/// our own that goes when this does.
pub struct Handed {
    words: Vec<String>,
    /// How many of the words are options.
    options: usize,
    stdin: Option<String>,
    _folder: Option<Folder>,
}

/// A folder that goes when this does.
struct Folder(PathBuf);

impl Handed {
    /// The words as they were typed.
    pub fn verbatim(words: &[String]) -> Handed {
        Handed { words: words.to_vec(), options: 0, stdin: None, _folder: None }
    }

    /// A script that stays as it is.
    pub fn unchanged(words: &[String], source: &Source) -> Handed {
        let stdin = source.path.is_none().then(|| source.text.clone());
        Handed { stdin, ..Handed::verbatim(words) }
    }

    /// A script with changes.
    pub fn changed(words: &[String], options: usize, source: &Source, text: &str) -> Result<Handed, Failure> {
        if source.path.is_none() {
            return Ok(Handed { words: words.to_vec(), options, stdin: Some(text.to_owned()), _folder: None });
        }
        let unwritten = |error: std::io::Error| {
            Failure::new(Code::BadInput, format!("the changed script cannot be written: {error}"))
                .hint("set TMPDIR to a folder that can be written, or submit it with --as-is")
        };
        let now = jiff::Timestamp::now().as_nanosecond();
        let folder = std::env::temp_dir().join(format!("windfall-sbatch-{}-{now}", std::process::id()));
        // Nobody else can have put anything there: it must not be there yet.
        std::fs::DirBuilder::new().mode(0o700).create(&folder).map_err(unwritten)?;
        let mut handed = Handed { words: words.to_vec(), options, stdin: None, _folder: Some(Folder(folder.clone())) };
        let path = folder.join(&source.name);
        let mut file = std::fs::OpenOptions::new();
        let mut file = file.write(true).create_new(true).mode(0o700).open(&path).map_err(unwritten)?;
        file.write_all(text.as_bytes()).map_err(unwritten)?;
        if let Some(word) = handed.words.get_mut(options) {
            *word = path.to_string_lossy().into_owned();
        }
        Ok(handed)
    }

    /// The words with one more option, which counts more than any before it.
    pub fn with(&self, option: Option<&(&'static str, String)>) -> Vec<String> {
        let (options, rest) = self.words.split_at(self.options.min(self.words.len()));
        let more = option.map(|(name, value)| format!("--{name}={value}"));
        // `--` ends the options.
        let (options, end) = match options.split_last() {
            Some((last, before)) if last == "--" => (before, Some(last.clone())),
            _ => (options, None),
        };
        options.iter().cloned().chain(more).chain(end).chain(rest.iter().cloned()).collect()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // It is among temporary files in any case.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// The error where there is no Slurm.
pub fn no_slurm() -> Failure {
    Failure::new(Code::BadInput, "sbatch is not on this machine")
        .hint("run it on a login node of the cluster; `windfall submit SCRIPT` runs the script without Slurm")
}

/// Calls `sbatch`, and ends as it does.
pub fn end(handed: Handed, json: bool, changes: &[Change], diff: &str) -> Result<Code, Failure> {
    let mut command = Command::new("sbatch");
    command.args(&handed.words);
    if handed.stdin.is_some() {
        command.stdin(Stdio::piped());
    }
    if json {
        command.stdout(Stdio::piped());
    }
    let mut child = command.spawn().map_err(|error| match error.kind() {
        ErrorKind::NotFound => no_slurm(),
        _ => Failure::new(Code::BadInput, format!("sbatch cannot be run: {error}")),
    })?;
    if let (Some(mut stdin), Some(text)) = (child.stdin.take(), &handed.stdin) {
        // One that reads nothing says why.
        let _ = stdin.write_all(text.as_bytes());
    }
    let output = child.wait_with_output().map_err(|error| Failure::new(Code::Bug, error.to_string()))?;
    if json {
        println!("{}", record(changes, diff, Some(&String::from_utf8_lossy(&output.stdout))));
    }
    match output.status.code() {
        Some(0) => Ok(Code::Done),
        code => {
            drop(handed);
            // Scripts go by the exit code of sbatch, which is none of ours.
            std::process::exit(code.unwrap_or(1))
        }
    }
}

/// For programs: what was changed, and the number of the job once there is one.
pub fn record(changes: &[Change], diff: &str, said: Option<&str>) -> serde_json::Value {
    let changes: Vec<serde_json::Value> = changes
        .iter()
        .map(|change| json!({ "rule": change.rule, "says": change.says(), "reason": change.reason }))
        .collect();
    json!({ "schema": SCHEMA, "job": said.and_then(job), "changes": changes, "diff": diff })
}

/// The number in `Submitted batch job 7`, `7` or `7;cluster`.
fn job(said: &str) -> Option<u64> {
    let line = said.lines().last()?;
    let word = line.strip_prefix("Submitted batch job ").unwrap_or(line);
    word.split([';', ' ']).next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_of_a_job_is_read_however_sbatch_says_it() {
        for (said, expected) in [
            ("Submitted batch job 7\n", Some(7)),
            ("8\n", Some(8)),
            ("9;lab\n", Some(9)),
            ("Submitted batch job 10 on cluster lab\n", Some(10)),
            ("", None),
            ("sbatch: error\n", None),
        ] {
            assert_eq!(job(said), expected, "{said}");
        }
    }

    #[test]
    fn one_more_option_stands_behind_the_others_and_before_the_script() {
        let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<String>>();
        let debug = ("partition", "debug".to_owned());
        for (line, options, expected) in [
            ("-N2 x.sh -p y", 1, "-N2 --partition=debug x.sh -p y"),
            ("x.sh", 0, "--partition=debug x.sh"),
            ("-H -- x.sh", 2, "-H --partition=debug -- x.sh"),
        ] {
            let handed = Handed { options, ..Handed::verbatim(&words(line)) };
            assert_eq!(handed.with(Some(&debug)), words(expected));
            assert_eq!(handed.with(None), words(line));
        }
    }
}
