//! What is wrong with a job's checkpoints, as classes that the brain can decide on.

use crate::ids::{NodeId, WorkloadId};
use crate::spec::JobSpec;
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
    /// Only for people: old checkpoints stay, one was skipped, or something that only a newer agent knows.
    #[serde(other)]
    Remark,
}

/// Longer than anybody reads.
const MOST_TEXT: usize = 2_000;

impl Trouble {
    /// This and another one, as one: several machines of a gang may each have lost something.
    pub fn and(self, other: &Trouble) -> Trouble {
        let kind = if self.kind == TroubleKind::NotReturned { other.kind } else { self.kind };
        let text = match self.text.contains(&other.text) || self.text.len() > MOST_TEXT {
            true => self.text,
            false => format!("{}; {}", self.text, other.text),
        };
        Trouble { kind, text }
    }
}

impl Trouble {
    /// A machine is gone whose program had ended, and which was still sending what the program left. What is not in the store
    /// lies on that machine, if anywhere.
    pub(crate) fn lost_on_its_way(spec: &JobSpec, job: WorkloadId, node: Option<&NodeId>) -> Trouble {
        let has_outputs = !spec.run.luggage().outputs.is_empty();
        let kind = if has_outputs { TroubleKind::NotReturned } else { TroubleKind::NotSaved };
        let node = node.and_then(|node| node.0.split_once('/'));
        let place = match node {
            Some((_, name)) => {
                format!("; what is missing may lie on {name}, in the folder of job {job} in the state directory there")
            }
            None => String::new(),
        };
        let text = format!("its machine was lost before all that its program left was sent{place}");
        Trouble { kind, text }
    }
}

impl Trouble {
    /// A person gave a job up before its agent said that all that its program left was sent.
    pub(crate) fn given_up(spec: &JobSpec) -> Trouble {
        let has_outputs = !spec.run.luggage().outputs.is_empty();
        let (kind, what) = match has_outputs {
            true => (TroubleKind::NotReturned, "it was cancelled before its last save and its outputs were all sent"),
            false => (TroubleKind::NotSaved, "it was cancelled before its last save was all sent"),
        };
        Trouble { kind, text: what.to_owned() }
    }
}

impl TroubleKind {
    /// Whether the store cannot be used now: a stint that needs it to begin waits for it.
    pub fn is_of_the_store(self) -> bool {
        matches!(self, TroubleKind::StoreAway | TroubleKind::StoreFull | TroubleKind::StoreDenied)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_several_machines_lost_is_all_said_once_and_a_save_counts_more_than_outputs() {
        use TroubleKind::{NotReturned, NotSaved, StoreAway};
        let of = |kind, text: &str| Trouble { kind, text: text.to_owned() };
        let both = of(NotReturned, "a").and(&of(NotSaved, "b"));
        assert_eq!(both, of(NotSaved, "a; b"));
        assert_eq!(both.clone().and(&of(NotReturned, "a")), both, "said already");
        assert_eq!(of(StoreAway, "a").and(&of(NotReturned, "b")).kind, StoreAway);
        let many = (0..1_000).fold(both, |all, n| all.and(&of(NotReturned, &format!("machine {n}"))));
        assert!(many.text.len() < MOST_TEXT + 100, "{}", many.text.len());
    }

    #[test]
    fn a_kind_that_only_a_newer_agent_knows_is_read_all_the_same() {
        let read: Trouble = serde_json::from_str(r#"{"kind":"of-the-future","text":"told"}"#).expect("read");
        assert_eq!((read.kind, read.text.as_str()), (TroubleKind::Remark, "told"));
    }
}
