//! Labels of nodes: words that people give machines. Some name a machine's place in the topology.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

/// What is said of a machine: `rack` is `r7`.
pub type Labels = BTreeMap<String, String>;

/// Labels that say where a machine is, the widest first: machines with the same one are near each other.
pub const LEVELS: [&str; 4] = ["zone", "block", "rack", "nvlink"];

/// The most labels that a machine has.
pub(super) const MOST: usize = 64;

/// A change of a label, written as `key=value`, or `key-` to remove it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LabelChange {
    Set { key: String, value: String },
    Remove { key: String },
}

/// Why a text is no label.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a label: {text}")]
pub struct NotALabel {
    pub text: String,
}

impl NotALabel {
    /// What a person can do about it.
    pub const HINT: &str =
        "KEY=VALUE, or KEY- to remove one; letters, digits, dots, dashes, underscores and slashes, at most 63 each";
}

/// Whether this can be the key or the value of a label.
pub(super) fn is_label_word(word: &str) -> bool {
    let ends = |letter: Option<char>| letter.is_some_and(|letter| letter.is_ascii_alphanumeric());
    let inside = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '.' | '-' | '_' | '/');
    (1..=63).contains(&word.len()) && word.chars().all(inside) && ends(word.chars().next()) && ends(word.chars().last())
}

impl FromStr for LabelChange {
    type Err = NotALabel;

    fn from_str(text: &str) -> Result<LabelChange, NotALabel> {
        let change = match text.split_once('=') {
            Some((key, value)) => {
                let is_good = is_label_word(key) && is_label_word(value);
                is_good.then(|| LabelChange::Set { key: key.to_owned(), value: value.to_owned() })
            }
            None => {
                let key = text.strip_suffix('-').filter(|key| is_label_word(key));
                key.map(|key| LabelChange::Remove { key: key.to_owned() })
            }
        };
        change.ok_or_else(|| NotALabel { text: text.to_owned() })
    }
}

impl fmt::Display for LabelChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LabelChange::Set { key, value } => write!(f, "{key}={value}"),
            LabelChange::Remove { key } => write!(f, "{key}-"),
        }
    }
}

impl LabelChange {
    /// Whether it was made of words that labels are made of: who asks may be anybody's program.
    pub(super) fn is_good(&self) -> bool {
        match self {
            LabelChange::Set { key, value } => is_label_word(key) && is_label_word(value),
            LabelChange::Remove { key } => is_label_word(key),
        }
    }

    /// The label that it is about.
    pub(super) fn key(&self) -> &str {
        match self {
            LabelChange::Set { key, .. } | LabelChange::Remove { key } => key,
        }
    }

    pub(super) fn apply(&self, labels: &mut Labels) {
        match self {
            LabelChange::Set { key, value } => _ = labels.insert(key.clone(), value.clone()),
            LabelChange::Remove { key } => _ = labels.remove(key),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_label_is_a_key_and_a_value_or_a_key_to_remove() {
        for text in ["rack=r7", "topology.example.org/block=b-1", "rack-", "a-b-"] {
            let change: LabelChange = text.parse().expect("a label");
            assert!(change.is_good() && change.to_string() == text, "{text}");
        }
        for text in ["", "rack", "=r7", "rack=", "-", "=", "a b=c", "rack=r 7", "rack=é", "a=b=c", "-rack-"] {
            assert!(text.parse::<LabelChange>().is_err(), "{text}");
        }
        assert!(format!("{}=x", "k".repeat(64)).parse::<LabelChange>().is_err());
    }
}
