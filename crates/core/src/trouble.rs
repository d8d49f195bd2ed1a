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
    /// A person ended a job before its agent said that all that its program left was sent.
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

    fn trouble(kind: TroubleKind) -> Trouble {
        Trouble { kind, text: format!("{kind:?}") }
    }

    #[test]
    fn what_could_not_be_brought_back_stays_known_but_for_something_worse() {
        use TroubleKind::{NotReturned, NotSaved, Remark, StoreAway};
        for (known, told, then) in [
            (None, Some(NotReturned), Some(NotReturned)),
            (Some(NotReturned), None, Some(NotReturned)),
            (Some(NotReturned), Some(Remark), Some(NotReturned)),
            (Some(NotReturned), Some(StoreAway), Some(StoreAway)),
            (Some(StoreAway), Some(NotReturned), Some(StoreAway)),
            (Some(Remark), Some(NotReturned), Some(NotReturned)),
            (Some(NotSaved), None, None),
            (Some(NotSaved), Some(Remark), Some(Remark)),
            (None, None, None),
        ] {
            let [known_trouble, told_trouble] = [known, told].map(|kind| kind.map(trouble));
            let after = Trouble::after(known_trouble.as_ref(), told_trouble.as_ref());
            assert_eq!(after.map(|trouble| trouble.kind), then, "{known:?}, then {told:?}");
        }
    }

    #[test]
    fn a_kind_that_only_a_newer_agent_knows_is_read_all_the_same() {
        let read: Trouble = serde_json::from_str(r#"{"kind":"of-the-future","text":"told"}"#).expect("read");
        assert_eq!((read.kind, read.text.as_str()), (TroubleKind::Remark, "told"));
    }
}
