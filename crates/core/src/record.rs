//! What is written to the log: what happened, and what was decided.
//!
//! Applying records is all that a restart does, so these types are a stored format: variants are added,
//! never changed, and the codec upgrades older versions.

pub use crate::decision::{Decision, Outcome, Resume};
pub use crate::event::{Event, LeaseEnd, Refusal, WorkerEnd};
use crate::reason::Reason;
pub use crate::subject::Subject;
pub use crate::trouble::{Trouble, TroubleKind};
use crate::units::Time;
use serde::{Deserialize, Serialize};

/// One line of the log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// Place in the log, from 1, without gaps.
    pub seq: u64,
    /// The batch it belongs to: `decide` ran once after the events of a batch.
    pub batch: u64,
    /// The world's clock when it was written; never goes back.
    pub at: Time,
    /// What it says.
    pub body: Body,
}

/// An event or a decision.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Body {
    /// What happened.
    Event(Event),
    /// What was decided, and why.
    Decision(Decision, Reason),
}

impl Body {
    /// A short stable name of what the record says.
    pub fn kind(&self) -> &'static str {
        match self {
            Body::Event(event) => event.kind(),
            Body::Decision(decision, _) => decision.kind(),
        }
    }
}

impl Body {
    /// What it is about.
    pub fn subject(&self) -> Subject {
        match self {
            Body::Event(event) => event.subject(),
            Body::Decision(decision, _) => decision.subject(),
        }
    }
}
