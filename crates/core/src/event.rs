//! What happened, as engines, agents and people report it.

use crate::config::Config;
use crate::health::Symptom;
use crate::ids::{CheckpointId, DecisionId, LeaseId, NodeId, StintId, WorkloadId};
use crate::offer::{Offer, OfferId};
use crate::pool::{Node, Pool};
use crate::spec::Workload;
use crate::subject::Subject;
use crate::trouble::Trouble;
use crate::units::{NanoUsd, Span, Time, Work};
use crate::want::{Address, LeaseTerms};
use serde::{Deserialize, Serialize};
use std::fmt;

/// What happened. Engines and agents report states again and again; only news is logged.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Event {
    /// The limits and habits of this world are other ones from now on.
    Configured {
        /// All of them.
        config: Box<Config>,
    },
    /// A workload was accepted.
    Submitted {
        /// What was asked for.
        workload: Workload,
        /// The client's own key: the same key twice is the same submission.
        key: String,
        /// Its id, given when it is logged. In older logs there is none, and the sequence of the record is the id.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        id: Option<WorkloadId>,
    },
    /// A person wants it ended. What its program saves then, or has saved last, is waited for.
    CancelRequested { workload: WorkloadId, by: String },
    /// A person waits for nothing more of it: a program that is to stop is killed, and a last save is given up.
    GiveUpRequested { workload: WorkloadId, by: String },
    /// A person gives it another budget; one that was paused for its budget goes on.
    BudgetSet {
        workload: WorkloadId,
        /// For the whole job; none for no limit.
        budget: Option<NanoUsd>,
        by: String,
    },
    /// A price or a capacity was seen.
    OfferSeen {
        /// The offer as it is now.
        offer: Offer,
    },
    /// An offer is no longer for sale.
    OfferGone { offer: OfferId },
    /// An engine has not answered for so long that nothing new is asked of it.
    EngineSilent {
        engine: String,
        /// When it was first asked in vain.
        since: Time,
    },
    /// An engine that was silent answers again.
    EngineAnswers { engine: String },
    /// A pool is there, or has other habits than before.
    PoolSeen { pool: Pool },
    /// A node is there, or has changed.
    NodeSeen { node: Box<Node> },
    /// A node is no longer there.
    NodeGone { node: NodeId },
    /// A group waits in its engine's own queue.
    GroupQueued {
        group: DecisionId,
        since: Time,
        /// When the engine expects to grant it.
        eta: Option<Time>,
    },
    /// A group was granted, whole or in part: the leases of its first slots are there or on their way.
    GroupGranted { group: DecisionId, at: Time, units: u32 },
    /// A group could not be had: none of its leases comes.
    GroupFailed {
        group: DecisionId,
        /// Why, as a class that can be decided on.
        refusal: Refusal,
    },
    /// A lease is there and paid for.
    LeaseUp {
        lease: LeaseId,
        /// Since when, by the engine's account.
        at: Time,
        #[serde(default)]
        terms: Box<LeaseTerms>,
        /// Where it can be reached, when it is usable already.
        #[serde(default)]
        ready: Option<Address>,
    },
    /// A lease that is paid for is usable now.
    LeaseReady { lease: LeaseId, address: Address },
    /// A lease will be taken away.
    LeaseNoticed {
        lease: LeaseId,
        /// When it ends.
        ends_at: Time,
        /// What is wrong with its machine, where that is why.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        why: Option<Box<Symptom>>,
    },
    /// The market says that a lease may soon be taken away: nothing is sure, but saving now is wise.
    LeaseAtRisk { lease: LeaseId },
    /// A lease is gone and no longer paid for.
    LeaseGone {
        lease: LeaseId,
        /// Since when, by the engine's account.
        at: Time,
        /// How it ended.
        end: LeaseEnd,
    },
    /// The engine holds a lease of ours that the log does not know: it is taken into the books, and given back.
    LeaseFound {
        lease: LeaseId,
        /// What was bought.
        offer: OfferId,
        /// Since when it is paid for; none when it never came up.
        since: Option<Time>,
        /// Until when; none while it is there.
        until: Option<Time>,
    },
    /// A worker's program runs.
    WorkerStarted {
        /// Its stint.
        stint: StintId,
        /// Its place in the gang.
        rank: u32,
        /// What it resumed from.
        restored: Option<CheckpointId>,
        /// The work in that checkpoint, where known.
        work: Option<Work>,
    },
    /// A worker's program is over, and nothing of it is left running.
    WorkerEnded {
        /// Its stint.
        stint: StintId,
        /// Its place in the gang.
        rank: u32,
        end: WorkerEnd,
        /// Its last save is durable or given up: the lease holds nothing more that counts. Said again when it turns true.
        #[serde(default = "settled")]
        settled: bool,
    },
    /// Something about a stint's checkpoints needs a person, or no longer does.
    Troubled {
        stint: StintId,
        /// What; none when it is over.
        trouble: Option<Trouble>,
    },
    /// The store of a workload's checkpoints was looked at.
    StoreChecked {
        workload: WorkloadId,
        /// What is wrong with it; none when it answers.
        trouble: Option<Trouble>,
    },
    /// A stint got further.
    Progress {
        stint: StintId,
        /// Work done since the job began.
        done: Work,
        /// The total, where the program says it.
        total: Option<Work>,
    },
    /// A checkpoint is complete and durable.
    CheckpointDurable {
        stint: StintId,
        checkpoint: CheckpointId,
        /// The work in it, where the program said it.
        work: Option<Work>,
        /// How long the program had run when it wrote this, where that is known.
        #[serde(default)]
        ran: Option<Span>,
    },
}

/// Older logs tell of an end only when nothing was left to save.
fn settled() -> bool {
    true
}

/// Why an engine did not give a lease, as classes that the brain can decide on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Refusal {
    /// The market has none now.
    NoCapacity,
    /// The account's limit is reached.
    Quota,
    /// The job's owner may not have it, or no more of it; others may.
    Owner,
    /// A passing fault; may work after this long.
    Retry {
        /// How long to leave it alone.
        after: Span,
    },
    /// Credentials are wrong.
    Auth,
    /// The request can never work.
    Invalid,
    /// The engine itself is at fault.
    Bug,
}

/// How a lease ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LeaseEnd {
    /// We gave it back.
    Released,
    /// The market took it.
    Taken,
    /// The machine is gone for another reason.
    Lost,
    /// The time that was agreed on was over.
    Expired,
    /// Somebody ended it at its engine.
    Revoked,
}

/// How a worker's program ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WorkerEnd {
    /// By itself, with this code.
    Exited {
        /// 0 for success.
        code: i32,
    },
    /// By a signal that we did not send.
    Killed { signal: i32 },
    /// It, or a process of it, was killed by the kernel because they used more memory than it asked for.
    OutOfMemory { limit_bytes: u64 },
    /// After we asked it to, whatever code it gave.
    Stopped,
    /// It never ran: its folder, its command or its checkpoint could not be used.
    NeverRan {
        /// What went wrong, for people.
        why: String,
    },
    /// It never ran: the disk of its machine had no room for what it needs there.
    NoRoom {
        /// What went wrong, for people.
        why: String,
    },
    /// It never ran: the store that holds its checkpoints did not answer.
    StoreAway {
        /// What went wrong, for people.
        why: String,
    },
}

impl WorkerEnd {
    /// Whether somebody else ended it: no program dies of SIGKILL because another one did.
    pub fn is_from_outside(&self) -> bool {
        matches!(self, WorkerEnd::Killed { signal: 9 } | WorkerEnd::OutOfMemory { .. })
    }

    /// The exit code that a shell would give for a program that ended like this.
    pub fn killed_code(&self) -> i32 {
        match self {
            WorkerEnd::Killed { signal } => signal.saturating_add(128),
            // The kernel kills with SIGKILL.
            WorkerEnd::OutOfMemory { .. } => 128 + 9,
            _ => 0,
        }
    }
}

/// What a program did, for people: "the program exited with code 3".
impl fmt::Display for WorkerEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            WorkerEnd::Exited { code } => write!(f, "exited with code {code}"),
            WorkerEnd::Killed { signal } => write!(f, "was killed by signal {signal}"),
            WorkerEnd::OutOfMemory { limit_bytes } => {
                let (gib, mib) = (limit_bytes / GIB, limit_bytes / (GIB >> 10));
                let limit = if limit_bytes % GIB == 0 { format!("{gib} GiB") } else { format!("{mib} MiB") };
                write!(f, "was killed because it used more memory than the {limit} it asked for")
            }
            WorkerEnd::Stopped => f.write_str("ended after it was told to stop"),
            WorkerEnd::NeverRan { why } => write!(f, "never ran: {why}"),
            WorkerEnd::NoRoom { why } => write!(f, "never ran, its machine has no room for it: {why}"),
            WorkerEnd::StoreAway { why } => write!(f, "never ran, what it needs to begin is not there: {why}"),
        }
    }
}

const GIB: u64 = 1 << 30;

impl Event {
    /// What it is about.
    pub fn subject(&self) -> Subject {
        match self {
            Event::Submitted { .. } => Subject::New,
            Event::CancelRequested { workload, .. }
            | Event::GiveUpRequested { workload, .. }
            | Event::BudgetSet { workload, .. }
            | Event::StoreChecked { workload, .. } => Subject::Workload(*workload),
            Event::Configured { .. }
            | Event::PoolSeen { .. }
            | Event::NodeSeen { .. }
            | Event::NodeGone { .. }
            | Event::OfferSeen { .. }
            | Event::OfferGone { .. }
            | Event::EngineSilent { .. }
            | Event::EngineAnswers { .. } => Subject::World,
            Event::GroupQueued { group, .. } | Event::GroupGranted { group, .. } | Event::GroupFailed { group, .. } => {
                Subject::Lease(LeaseId { group: *group, slot: 0 })
            }
            Event::LeaseUp { lease, .. }
            | Event::LeaseReady { lease, .. }
            | Event::LeaseNoticed { lease, .. }
            | Event::LeaseAtRisk { lease }
            | Event::LeaseGone { lease, .. }
            | Event::LeaseFound { lease, .. } => Subject::Lease(*lease),
            Event::WorkerStarted { stint, .. }
            | Event::WorkerEnded { stint, .. }
            | Event::Troubled { stint, .. }
            | Event::Progress { stint, .. }
            | Event::CheckpointDurable { stint, .. } => Subject::Workload(stint.workload),
        }
    }

    /// Every kind there is; the explorer checks that it reached all of them.
    pub const KINDS: [&str; 26] = [
        "configured",
        "submitted",
        "cancel-requested",
        "budget-set",
        "offer-seen",
        "offer-gone",
        "engine-silent",
        "engine-answers",
        "pool-seen",
        "node-seen",
        "node-gone",
        "group-queued",
        "group-granted",
        "group-failed",
        "lease-up",
        "lease-ready",
        "lease-noticed",
        "lease-at-risk",
        "lease-gone",
        "lease-found",
        "worker-started",
        "worker-ended",
        "troubled",
        "store-checked",
        "progress",
        "checkpoint-durable",
    ];

    /// A short stable name.
    pub fn kind(&self) -> &'static str {
        match self {
            Event::Configured { .. } => "configured",
            Event::Submitted { .. } => "submitted",
            Event::CancelRequested { .. } => "cancel-requested",
            Event::GiveUpRequested { .. } => "give-up-requested",
            Event::BudgetSet { .. } => "budget-set",
            Event::OfferSeen { .. } => "offer-seen",
            Event::OfferGone { .. } => "offer-gone",
            Event::EngineSilent { .. } => "engine-silent",
            Event::EngineAnswers { .. } => "engine-answers",
            Event::LeaseUp { .. } => "lease-up",
            Event::PoolSeen { .. } => "pool-seen",
            Event::NodeSeen { .. } => "node-seen",
            Event::NodeGone { .. } => "node-gone",
            Event::GroupQueued { .. } => "group-queued",
            Event::GroupGranted { .. } => "group-granted",
            Event::GroupFailed { .. } => "group-failed",
            Event::LeaseReady { .. } => "lease-ready",
            Event::LeaseNoticed { .. } => "lease-noticed",
            Event::LeaseAtRisk { .. } => "lease-at-risk",
            Event::LeaseGone { .. } => "lease-gone",
            Event::LeaseFound { .. } => "lease-found",
            Event::WorkerStarted { .. } => "worker-started",
            Event::WorkerEnded { .. } => "worker-ended",
            Event::Troubled { .. } => "troubled",
            Event::StoreChecked { .. } => "store-checked",
            Event::Progress { .. } => "progress",
            Event::CheckpointDurable { .. } => "checkpoint-durable",
        }
    }
}
