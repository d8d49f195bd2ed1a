//! What is wrong with a job's checkpoints, as classes that the brain can decide on.

use serde::{Deserialize, Serialize};

/// What is wrong with a job's checkpoints: a class to decide on, and words for people.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Trouble {
    /// The class.
    pub kind: TroubleKind,
    /// What happened and what to do, for people. The same trouble has the same words each time it is told.
    pub text: String,
}

/// Classes of trouble with checkpoints.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TroubleKind {
    /// The store does not answer.
    StoreAway,
    /// The store has no space left.
    StoreFull,
    /// The store refuses: credentials, rights.
    StoreDenied,
    /// The program's files never come to rest, so there is no checkpoint.
    NeverSettles,
    /// What was saved could not be made durable, for another reason.
    NotSaved,
    /// What the job leaves behind could not be brought back, or not all of it.
    NotReturned,
    /// Only for people: old checkpoints stay, one was skipped.
    Remark,
}

impl Trouble {
    /// What is wrong once this is told of a stint of which that was known. What some rank could not bring back stays known
    /// whatever the others say, but for something worse.
    pub(crate) fn after<'a>(known: Option<&'a Trouble>, told: Option<&'a Trouble>) -> Option<&'a Trouble> {
        let is_not_returned = |trouble: &&Trouble| trouble.kind == TroubleKind::NotReturned;
        match (known, told) {
            (Some(known), None) if is_not_returned(&known) => Some(known),
            (Some(known), Some(told)) if is_not_returned(&told) && known.kind != TroubleKind::Remark => Some(known),
            (Some(known), Some(told)) if is_not_returned(&known) && told.kind == TroubleKind::Remark => Some(known),
            _ => told,
        }
    }
}

impl TroubleKind {
    /// Whether the store cannot be used now: a stint that needs it to begin waits for it.
    pub fn is_of_the_store(self) -> bool {
        matches!(self, TroubleKind::StoreAway | TroubleKind::StoreFull | TroubleKind::StoreDenied)
    }
}
