//! A pattern over file names: `*` stands for any characters, none and `/` included, so that `*/done` is a file of
//! that name in any folder. It must match the whole path below the checkpoint directory.

use std::path::Path;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Pattern(Vec<String>);

impl Pattern {
    pub fn new(text: &str) -> Self {
        Self(text.split('*').map(str::to_owned).collect())
    }

    pub fn matches(&self, path: &Path) -> bool {
        let path = path.to_string_lossy();
        let [first, between @ .., last] = self.0.as_slice() else {
            return self.0.first().is_some_and(|only| *only == path);
        };
        let Some(mut rest) = path.strip_prefix(first.as_str()) else { return false };
        for part in between {
            match rest.find(part.as_str()) {
                Some(at) => rest = &rest[at + part.len()..],
                None => return false,
            }
        }
        rest.ends_with(last.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_stands_for_any_characters() {
        let is = |pattern: &str, path: &str| Pattern::new(pattern).matches(Path::new(path));
        assert!(is("done", "done") && !is("done", "a/done") && !is("done", "done.tmp"));
        assert!(is("*/trainer_state.json", "checkpoint-500/trainer_state.json"));
        assert!(is("step-*.done", "step-1200.done") && !is("step-*.done", "step-1200.done.tmp"));
        assert!(is("*", "a/b/c") && is("a*b*c", "a-b-b/c") && !is("a*b*c", "ab"));
        assert!(!is("ab*ba", "aba"), "no letter is used twice");
    }
}
