//! Typed names. Every name that leaves this installation carries the installation in it, so that two
//! installations in one cloud account never touch each other's leases.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// A Windfall installation: minted once when its store is created.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Installation(pub u64);

/// A job or a fleet: they are counted from 1, in the order of their submission.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct WorkloadId(pub u64);

/// A decision: the installation and the log sequence that it was written at.
///
/// The sequence is unique for every decision of a batch, so no ordinal is needed beside it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct DecisionId {
    /// Who decided.
    pub installation: Installation,
    /// Where in that installation's log.
    pub seq: u64,
}

/// A lease: named by the decision that asked for it, which is the idempotency key at the engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct LeaseId(pub DecisionId);

/// One unbroken run of a job; the epoch fences older stints off.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct StintId {
    /// Whose stint.
    pub workload: WorkloadId,
    /// 1 for the first stint of a job, then counting up.
    pub epoch: u64,
}

/// A checkpoint of a job: the stint that saved it and a number within that stint. The highest wins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct CheckpointId {
    /// The stint's epoch.
    pub epoch: u64,
    /// Zero is the fence that a stint writes before it starts: a copy of what it resumed from.
    pub seq: u64,
}

impl fmt::Display for Installation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}
impl fmt::Display for WorkloadId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0.to_string())
    }
}
impl fmt::Display for LeaseId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.0.installation, self.0.seq)
    }
}
impl fmt::Display for StintId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.workload, self.epoch)
    }
}
impl fmt::Display for CheckpointId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.epoch, self.seq)
    }
}

/// A name that cannot be read back.
#[derive(Debug, thiserror::Error)]
#[error("not a lease id: {0}")]
pub struct NotALeaseId(String);

impl FromStr for LeaseId {
    type Err = NotALeaseId;
    fn from_str(text: &str) -> Result<LeaseId, NotALeaseId> {
        let bad = || NotALeaseId(text.to_owned());
        let (installation, seq) = text.split_once('-').ok_or_else(bad)?;
        Ok(LeaseId(DecisionId {
            installation: Installation(u64::from_str_radix(installation, 16).map_err(|_| bad())?),
            seq: seq.parse().map_err(|_| bad())?,
        }))
    }
}
