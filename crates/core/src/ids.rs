//! Typed names. Every name that leaves this installation carries the installation in it, so that two
//! installations in one cloud account never touch each other's leases.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

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

/// A lease: named by the decision that asked for its group, and by its place in that group. The engine's own name for it
/// is bound to this one when it is first seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(from = "StoredLeaseId", into = "StoredLeaseId")]
pub struct LeaseId {
    pub group: DecisionId,
    pub slot: u32,
}

/// As it is stored: version 4 knew no slots.
#[derive(Clone, Copy, Serialize, Deserialize)]
struct StoredLeaseId {
    installation: Installation,
    seq: u64,
    #[serde(default)]
    slot: u32,
}

impl From<StoredLeaseId> for LeaseId {
    fn from(StoredLeaseId { installation, seq, slot }: StoredLeaseId) -> LeaseId {
        LeaseId { group: DecisionId { installation, seq }, slot }
    }
}
impl From<LeaseId> for StoredLeaseId {
    fn from(LeaseId { group, slot }: LeaseId) -> StoredLeaseId {
        StoredLeaseId { installation: group.installation, seq: group.seq, slot }
    }
}

/// The machine behind a lease, as its engine names it: `engine/name`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct NodeId(pub Arc<str>);

impl NodeId {
    /// As its owner calls it.
    pub fn name(&self) -> &str {
        self.0.split_once('/').map_or(&*self.0, |(_, name)| name)
    }
}

/// A pool: `engine/name`.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct PoolId(pub Arc<str>);

/// One unbroken run of a workload; the epoch fences older stints off.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct StintId {
    pub workload: WorkloadId,
    /// A replica of a fleet, from 0; a job is one member.
    #[serde(default)]
    pub member: u32,
    /// 1 for the first stint of a member, then counting up.
    pub epoch: u64,
}

impl StintId {
    /// A stint of a job.
    pub fn of_job(workload: WorkloadId, epoch: u64) -> StintId {
        StintId { workload, member: 0, epoch }
    }
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
        // The first of a group is named as leases were before there were groups: machines carry these names.
        match self.slot {
            0 => self.group.fmt(f),
            slot => write!(f, "{}-{slot}", self.group),
        }
    }
}
impl fmt::Display for DecisionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.installation, self.seq)
    }
}
impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}
impl fmt::Display for PoolId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}
impl fmt::Display for StintId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.member {
            0 => write!(f, "{}.{}", self.workload, self.epoch),
            member => write!(f, "{}/{member}.{}", self.workload, self.epoch),
        }
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
        let mut parts = text.split('-');
        let installation = parts.next().and_then(|part| u64::from_str_radix(part, 16).ok()).ok_or_else(bad)?;
        let seq = parts.next().and_then(|part| part.parse().ok()).ok_or_else(bad)?;
        let slot = parts.next().map_or(Ok(0), |part| part.parse().map_err(|_| bad()))?;
        match parts.next() {
            Some(_) => Err(bad()),
            None => Ok(LeaseId { group: DecisionId { installation: Installation(installation), seq }, slot }),
        }
    }
}
