//! What `windfall agent join` was told about this machine as it joined, kept in the agent's state directory: whoever starts it
//! again, a service or a person, does so without those flags. Flags and the configuration file count more.

use crate::args::JoinArgs;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use windfall_server::client::{Code, Failure};

/// Its name in the state directory.
const FILE: &str = "said.json";

/// Flags of `agent join` that hold until they are said again.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct SaidOnce {
    accelerators: Vec<String>,
    labels: Vec<String>,
    run_as: Option<String>,
    as_root: bool,
}

impl SaidOnce {
    /// What is kept in an agent's state directory. Nobody but its owner can have written it: whoever writes there decides
    /// already which server the agent obeys.
    pub fn of(state: &Path) -> Result<SaidOnce, Failure> {
        let path = state.join(FILE);
        let bytes = match std::fs::read(&path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(SaidOnce::default()),
            Err(error) => return Err(unusable(&path, &error.to_string())),
        };
        serde_json::from_slice(&bytes).map_err(|error| unusable(&path, &error.to_string()))
    }

    /// The same with what flags say now.
    pub fn and(self, args: &JoinArgs) -> SaidOnce {
        let list = |said: &Vec<String>, kept| if said.is_empty() { kept } else { said.clone() };
        SaidOnce {
            accelerators: list(&args.accelerators, self.accelerators),
            labels: list(&args.labels, self.labels),
            run_as: args.run_as.clone().or(self.run_as),
            as_root: args.as_root || self.as_root,
        }
    }

    pub fn write(&self, state: &Path) -> Result<(), Failure> {
        let (path, new) = (state.join(FILE), state.join("said.new"));
        let bytes = serde_json::to_vec_pretty(self).expect("flags have string keys");
        let written = std::fs::write(&new, bytes).and_then(|()| std::fs::rename(&new, &path));
        written.map_err(|error| unusable(&path, &error.to_string()))
    }

    /// Fills in what neither a flag nor the configuration file says; gives the flags that were filled in.
    pub fn fill(self, args: &mut JoinArgs, is_said: impl Fn(&str) -> bool) -> Vec<String> {
        let mut filled = Vec::new();
        if !is_said("accelerators") && !self.accelerators.is_empty() {
            filled.push(format!("--accelerators {}", self.accelerators.join(",")));
            args.accelerators = self.accelerators;
        }
        if !is_said("labels") && !self.labels.is_empty() {
            filled.extend(self.labels.iter().map(|label| format!("--label {label}")));
            args.labels = self.labels;
        }
        if let Some(name) = self.run_as.filter(|_| !is_said("run_as")) {
            filled.push(format!("--run-as {name}"));
            args.run_as = Some(name);
        }
        if !is_said("as_root") && self.as_root {
            filled.push("--as-root".to_owned());
            args.as_root = true;
        }
        filled
    }

    /// Where it is kept.
    pub fn path(state: &Path) -> PathBuf {
        state.join(FILE)
    }
}

fn unusable(path: &Path, why: &str) -> Failure {
    let text = format!("what was said of this machine cannot be kept: {}: {why}", path.display());
    Failure::new(Code::BadInput, text).hint("delete that file, and say it again: windfall agent join --once --label …")
}

#[cfg(test)]
mod tests {
    use super::super::config::settled_join;
    use super::*;

    fn words(words: &[&str]) -> Vec<String> {
        words.iter().map(|word| (*word).to_owned()).collect()
    }

    #[test]
    fn what_was_said_with_once_holds_for_a_later_join_without_flags() {
        let state = tempfile::tempdir().expect("it works");
        let plain = || JoinArgs { state: Some(state.path().to_owned()), ..JoinArgs::default() };
        let first = JoinArgs {
            labels: words(&["rack=r1"]),
            accelerators: words(&["H100:2"]),
            run_as: Some("jobs".to_owned()),
            as_root: true,
            ..plain()
        };
        SaidOnce::of(state.path()).expect("it works").and(&first).write(state.path()).expect("it works");
        let later = settled_join(plain(), false).expect("it works");
        assert_eq!((later.labels, later.accelerators), (first.labels, first.accelerators));
        assert_eq!((later.run_as, later.as_root), (first.run_as, true));
    }

    #[test]
    fn what_is_said_later_counts_more_and_the_rest_stays() {
        let state = tempfile::tempdir().expect("it works");
        let plain = || JoinArgs { state: Some(state.path().to_owned()), ..JoinArgs::default() };
        let first =
            JoinArgs { labels: words(&["rack=r1"]), accelerators: words(&["H100:2"]), as_root: true, ..plain() };
        SaidOnce::default().and(&first).write(state.path()).expect("it works");
        let moved = JoinArgs { labels: words(&["rack=r2"]), ..plain() };
        let now = settled_join(JoinArgs { labels: moved.labels.clone(), ..plain() }, false).expect("it works");
        assert_eq!((now.labels, now.accelerators), (words(&["rack=r2"]), words(&["H100:2"])));
        SaidOnce::of(state.path()).expect("it works").and(&moved).write(state.path()).expect("it works");
        assert_eq!(settled_join(plain(), false).expect("it works").labels, words(&["rack=r2"]));
        std::fs::write(state.path().join("config.toml"), "[agent]\nas_root = false\n").expect("it works");
        assert!(!settled_join(plain(), false).expect("it works").as_root, "a configuration file takes it back");
    }
}
