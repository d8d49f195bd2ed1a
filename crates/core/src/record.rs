//! What is written to the log: what happened, and what was decided.
//!
//! Applying records is all that a restart does, so these types are a stored format: variants are added,
//! never changed, and the codec upgrades older versions.

use crate::ids::{CheckpointId, LeaseId, StintId, WorkloadId};
use crate::offer::{Market, Offer, OfferId};
use crate::reason::Reason;
use crate::spec::Workload;
pub use crate::trouble::{Trouble, TroubleKind};
use crate::units::{NanoUsd, Span, Time, Work};
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

/// What happened. Engines and agents report states again and again; only news is logged.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Event {
    /// A workload was accepted.
    Submitted {
        /// What was asked for.
        workload: Box<Workload>,
        /// The client's own key: the same key twice is the same submission.
        key: String,
        /// Its id, given when it is logged. In older logs there is none, and the sequence of the record is the id.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        id: Option<WorkloadId>,
    },
    /// A person wants it ended.
    CancelRequested {
        /// Which.
        workload: WorkloadId,
        /// Who.
        by: String,
    },
    /// A person gives it another budget; one that was paused for its budget goes on.
    BudgetSet {
        /// Which.
        workload: WorkloadId,
        /// For the whole job; none for no limit.
        budget: Option<NanoUsd>,
        /// Who.
        by: String,
    },
    /// A price or a capacity was seen.
    OfferSeen {
        /// The offer as it is now.
        offer: Offer,
    },
    /// An offer is no longer for sale.
    OfferGone {
        /// Which.
        offer: OfferId,
    },
    /// A lease is there and paid for.
    LeaseUp {
        /// Which.
        lease: LeaseId,
        /// Since when, by the engine's account.
        at: Time,
    },
    /// A lease could not be had.
    LeaseFailed {
        /// Which.
        lease: LeaseId,
        /// Why, as a class that can be decided on.
        refusal: Refusal,
    },
    /// A lease will be taken away.
    LeaseNoticed {
        /// Which.
        lease: LeaseId,
        /// When it ends.
        ends_at: Time,
    },
    /// The market says that a lease may soon be taken away: nothing is sure, but saving now is wise.
    LeaseAtRisk {
        /// Which.
        lease: LeaseId,
    },
    /// A lease is gone and no longer paid for.
    LeaseGone {
        /// Which.
        lease: LeaseId,
        /// Since when, by the engine's account.
        at: Time,
        /// How it ended.
        end: LeaseEnd,
    },
    /// The engine holds a lease of ours that the log does not know: it is taken into the books, and given back.
    LeaseFound {
        /// Which.
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
        /// How.
        end: WorkerEnd,
        /// Its last save is durable or given up: the lease holds nothing more that counts. Said again when it turns true.
        #[serde(default = "settled")]
        settled: bool,
    },
    /// Something about a stint's checkpoints needs a person, or no longer does.
    Troubled {
        /// Which.
        stint: StintId,
        /// What; none when it is over.
        trouble: Option<Trouble>,
    },
    /// The store of a workload's checkpoints was looked at.
    StoreChecked {
        /// Whose.
        workload: WorkloadId,
        /// What is wrong with it; none when it answers.
        trouble: Option<Trouble>,
    },
    /// A stint got further.
    Progress {
        /// Which.
        stint: StintId,
        /// Work done since the job began.
        done: Work,
        /// The total, where the program says it.
        total: Option<Work>,
    },
    /// A checkpoint is complete and durable.
    CheckpointDurable {
        /// Whose.
        stint: StintId,
        /// Which.
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
    Killed {
        /// Which.
        signal: i32,
    },
    /// After we asked it to, whatever code it gave.
    Stopped,
    /// It never ran: its folder, its command or its checkpoint could not be used.
    NeverRan {
        /// What went wrong, for people.
        why: String,
    },
    /// It never ran: the store that holds its checkpoints did not answer.
    StoreAway {
        /// What went wrong, for people.
        why: String,
    },
}

/// What is to be done. A decision takes effect when it is applied as a record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Decision {
    /// Get a lease.
    Acquire {
        /// Its name: this decision's id.
        lease: LeaseId,
        /// For whom.
        workload: WorkloadId,
        /// What to buy.
        offer: OfferId,
        /// How.
        market: Market,
        /// At most this much an hour.
        max_price: Option<NanoUsd>,
    },
    /// Give a lease back, with everything on it.
    Release {
        /// Which.
        lease: LeaseId,
    },
    /// Start a gang, one worker a lease, whole or not at all.
    Start {
        /// Its name.
        stint: StintId,
        /// In order of rank.
        leases: Vec<LeaseId>,
        /// What to resume from.
        resume: Resume,
    },
    /// Ask a running gang to save; programs that listen do so at their next step.
    Checkpoint {
        /// Which.
        stint: StintId,
    },
    /// SIGTERM to every worker, SIGKILL after the grace.
    Stop {
        /// Which.
        stint: StintId,
        /// How long the program may take to save.
        grace: Span,
    },
    /// The workload holds nothing until a person says otherwise.
    Pause {
        /// Which.
        workload: WorkloadId,
    },
    /// The workload is over.
    End {
        /// Which.
        workload: WorkloadId,
        /// How.
        outcome: Outcome,
    },
    /// Look whether the store of a workload's checkpoints answers.
    CheckStore {
        /// Whose.
        workload: WorkloadId,
    },
    /// Tell people something that needs no answer.
    Notify {
        /// About what.
        workload: WorkloadId,
        /// What.
        text: String,
    },
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
    Cancelled {
        /// Who.
        by: String,
    },
    /// Its own `late: stop` ended it.
    StoppedByRule {
        /// `late`; older logs have `budget`, which pauses now.
        rule: String,
    },
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

/// What a record is about: a workload, or a lease that belongs to one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subject {
    /// The workload that this very record creates.
    New,
    /// A workload.
    Workload(WorkloadId),
    /// A lease.
    Lease(LeaseId),
    /// The market at large.
    World,
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

impl Event {
    /// What it is about.
    pub fn subject(&self) -> Subject {
        match self {
            Event::Submitted { .. } => Subject::New,
            Event::CancelRequested { workload, .. }
            | Event::BudgetSet { workload, .. }
            | Event::StoreChecked { workload, .. } => Subject::Workload(*workload),
            Event::OfferSeen { .. } | Event::OfferGone { .. } => Subject::World,
            Event::LeaseUp { lease, .. }
            | Event::LeaseFailed { lease, .. }
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
    pub const KINDS: [&str; 17] = [
        "submitted",
        "cancel-requested",
        "budget-set",
        "offer-seen",
        "offer-gone",
        "lease-up",
        "lease-failed",
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
            Event::Submitted { .. } => "submitted",
            Event::CancelRequested { .. } => "cancel-requested",
            Event::BudgetSet { .. } => "budget-set",
            Event::OfferSeen { .. } => "offer-seen",
            Event::OfferGone { .. } => "offer-gone",
            Event::LeaseUp { .. } => "lease-up",
            Event::LeaseFailed { .. } => "lease-failed",
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

impl Decision {
    /// What it is about.
    pub fn subject(&self) -> Subject {
        match self {
            Decision::Acquire { workload, .. }
            | Decision::Pause { workload }
            | Decision::End { workload, .. }
            | Decision::CheckStore { workload }
            | Decision::Notify { workload, .. } => Subject::Workload(*workload),
            Decision::Release { lease } => Subject::Lease(*lease),
            Decision::Start { stint, .. } | Decision::Checkpoint { stint } | Decision::Stop { stint, .. } => {
                Subject::Workload(stint.workload)
            }
        }
    }

    /// Every kind there is; the explorer checks that it reached all of them.
    pub const KINDS: [&str; 9] =
        ["acquire", "release", "start", "checkpoint", "stop", "pause", "end", "check-store", "notify"];

    /// A short stable name.
    pub fn kind(&self) -> &'static str {
        match self {
            Decision::Acquire { .. } => "acquire",
            Decision::Release { .. } => "release",
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
