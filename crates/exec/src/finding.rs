//! What a look at one thing shows: whether something that is needed is there, and the command that mends it where it is not.

use serde::{Deserialize, Serialize};

/// How it stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FindingState {
    Ok,
    /// It works, but not as well as it could, or nobody can say.
    Warning,
    /// It is needed, and not there.
    Missing,
}

impl FindingState {
    /// The state in one word.
    pub fn word(self) -> &'static str {
        match self {
            FindingState::Ok => "ok",
            FindingState::Warning => "warning",
            FindingState::Missing => "missing",
        }
    }
}

/// One line of a report.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    /// What was looked at.
    pub name: String,
    pub state: FindingState,
    pub says: String,
    /// What mends it: a command, or what to ask of whom.
    pub mend: Option<String>,
}

impl Finding {
    /// It is as it should be.
    pub fn ok(name: &str, says: impl Into<String>) -> Finding {
        Finding { name: name.to_owned(), state: FindingState::Ok, says: says.into(), mend: None }
    }

    /// It could be better, and this would mend it.
    pub fn warning(name: &str, says: impl Into<String>, mend: impl Into<String>) -> Finding {
        let mend = Some(mend.into());
        Finding { name: name.to_owned(), state: FindingState::Warning, says: says.into(), mend }
    }

    /// It is needed, and this would mend it.
    pub fn missing(name: &str, says: impl Into<String>, mend: impl Into<String>) -> Finding {
        let mend = Some(mend.into());
        Finding { name: name.to_owned(), state: FindingState::Missing, says: says.into(), mend }
    }
}
