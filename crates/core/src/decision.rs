//! What is to be done, and how a workload can end.

use crate::ids::{CheckpointId, DecisionId, LeaseId, StintId, WorkloadId};
use crate::pool::Allocation;
use crate::subject::Subject;
use crate::told::Told;
use crate::units::Span;
use crate::want::Want;
use serde::{Deserialize, Serialize};

/// What is to be done. A decision takes effect when it is applied as a record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Decision {
    /// Get a group of leases. The group is named by this decision's own id.
    Acquire { want: Want },
    /// Give leases of a group back, with everything on them.
    Release { group: DecisionId, slots: Vec<u32> },
    /// A lease is another workload's from now on, one that runs on it already.
    HandOver { lease: LeaseId, to: WorkloadId },
    /// Start a gang, whole or not at all.
    Start {
        stint: StintId,
        /// Where each worker runs, in order of rank.
        allocations: Vec<Allocation>,
        /// What to resume from.
        resume: Resume,
    },
    /// Ask a running gang to save; programs that listen do so at their next step.
    Checkpoint { stint: StintId },
    /// SIGTERM to every worker, SIGKILL after the grace.
    Stop {
        stint: StintId,
        /// How long the program may take to save.
        grace: Span,
    },
    /// The workload holds nothing until a person says otherwise.
    Pause { workload: WorkloadId },
    /// The workload is over.
    End { workload: WorkloadId, outcome: Outcome },
    /// Look whether the store of a workload's checkpoints answers.
    CheckStore { workload: WorkloadId },
    /// Tell people something that needs no answer.
    Notify { workload: WorkloadId, told: Told },
}

/// What a stint resumes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Resume {
    /// The newest complete checkpoint of an earlier stint.
    Newest,
    /// The one before this: the program failed on it.
    Before(CheckpointId),
}

/// How a workload ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// Done.
    Succeeded,
    /// The program failed.
    Failed {
        /// Its own exit code (128 + signal when killed).
        code: i32,
        /// What happened, for people.
        why: String,
    },
    /// A person ended it.
    Cancelled { by: String },
    /// Its own `late: stop` ended it.
    StoppedByRule {
        /// `late`; older logs have `budget`, which pauses now.
        rule: String,
    },
}

impl Decision {
    /// What it is about.
    pub fn subject(&self) -> Subject {
        match self {
            Decision::Acquire { want } => Subject::Workload(want.workload),
            Decision::Pause { workload }
            | Decision::End { workload, .. }
            | Decision::CheckStore { workload }
            | Decision::Notify { workload, .. } => Subject::Workload(*workload),
            Decision::Release { group, slots } => {
                Subject::Lease(LeaseId { group: *group, slot: slots.first().copied().unwrap_or(0) })
            }
            Decision::HandOver { to, .. } => Subject::Workload(*to),
            Decision::Start { stint, .. } | Decision::Checkpoint { stint } | Decision::Stop { stint, .. } => {
                Subject::Workload(stint.workload)
            }
        }
    }

    /// Every kind there is; the explorer checks that it reached all of them.
    pub const KINDS: [&str; 10] =
        ["acquire", "release", "hand-over", "start", "checkpoint", "stop", "pause", "end", "check-store", "notify"];

    /// A short stable name.
    pub fn kind(&self) -> &'static str {
        match self {
            Decision::Acquire { .. } => "acquire",
            Decision::Release { .. } => "release",
            Decision::HandOver { .. } => "hand-over",
            Decision::Start { .. } => "start",
            Decision::Checkpoint { .. } => "checkpoint",
            Decision::Stop { .. } => "stop",
            Decision::Pause { .. } => "pause",
            Decision::End { .. } => "end",
            Decision::CheckStore { .. } => "check-store",
            Decision::Notify { .. } => "notify",
        }
    }
}

impl Outcome {
    /// One word for tables and scripts.
    pub fn word(&self) -> &'static str {
        match self {
            Outcome::Succeeded => "succeeded",
            Outcome::Failed { .. } => "failed",
            Outcome::Cancelled { .. } => "cancelled",
            Outcome::StoppedByRule { .. } => "stopped",
        }
    }
}
