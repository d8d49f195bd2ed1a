//! A job as the brain knows it: what was asked, how far it is, the stint it is in, what it has cost.

use super::{Open, Progress};
use crate::ids::{CheckpointId, DecisionId, Installation, LeaseId, NodeId, StintId, WorkloadId};
use crate::offer::{Market, OfferId, Place};
use crate::pool::Allocation;
use crate::record::{Decision, Outcome, Resume, Trouble, WorkerEnd};
use crate::spec::{JobSpec, WorkUnit};
use crate::told::Told;
use crate::units::{NanoUsd, Rate, Span, Time, Work};
use serde::{Deserialize, Deserializer, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Where a stint stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum StintPhase {
    /// Ordered; not every worker runs yet.
    Starting,
    /// Every worker runs.
    Running {
        /// Since when.
        since: Time,
    },
}

/// One worker of a stint.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Worker {
    /// It was seen running.
    pub started: bool,
    /// How it ended.
    pub end: Option<WorkerEnd>,
    /// After the end: its last save is durable or given up.
    #[serde(default = "settled")]
    pub settled: bool,
}

/// Earlier states know one lease, or none, where there are several now.
fn one_or_several<'de, D: Deserializer<'de>>(deserializer: D) -> Result<BTreeSet<LeaseId>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Known {
        Several(BTreeSet<LeaseId>),
        One(Option<LeaseId>),
    }
    Ok(match Known::deserialize(deserializer)? {
        Known::Several(leases) => leases,
        Known::One(lease) => lease.into_iter().collect(),
    })
}

/// Snapshots of older versions know only workers whose end came after their last save.
fn settled() -> bool {
    true
}

/// A stop that was ordered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stopping {
    pub by: DecisionId,
    /// Time to save.
    pub grace: Span,
    /// When it was ordered.
    pub at: Time,
    /// The work done by then.
    #[serde(default)]
    pub done: Work,
}

/// One unbroken run of a job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stint {
    pub id: StintId,
    /// The decision that ordered it.
    pub by: DecisionId,
    /// Where each worker runs, in order of rank; one whose lease is gone stays in the list.
    pub allocations: Vec<Allocation>,
    /// What it was told to resume from.
    pub resume: Resume,
    pub phase: StintPhase,
    /// Since when the job waits for it: its leases were asked for, or the stint before was over.
    pub wanted_at: Time,
    /// It began on a machine of another workload.
    #[serde(default)]
    pub moved_in: bool,
    /// Its workers in order of rank.
    pub workers: Vec<Worker>,
    /// What rank 0 resumed from.
    pub restored: Option<CheckpointId>,
    /// The work that it began with.
    pub base: Work,
    /// The same as it was believed at first: a first report may say less.
    #[serde(default)]
    pub resumed_with: Work,
    /// The last report: when, and how far.
    pub reported: Option<(Time, Work)>,
    /// It saved or got further than what it resumed from.
    pub fruitful: bool,
    /// What it saved holds more than what it resumed from.
    pub saved: bool,
    /// A machine is gone that had not sent all of what its program saved last.
    #[serde(default)]
    pub torn: bool,
    /// A lease of it was noticed, taken or lost.
    pub interrupted: bool,
    /// It was told to stop.
    pub stopping: Option<Stopping>,
    /// The last save that was asked for.
    #[serde(default)]
    pub save_asked: Option<SaveAsked>,
    /// Saves that were asked for since the last one that came.
    #[serde(default)]
    pub unanswered: u32,
    /// When the last save was durable.
    #[serde(default)]
    pub saved_at: Option<Time>,
    /// When the last of its workers ended.
    #[serde(default)]
    pub ended_at: Option<Time>,
    /// What is wrong with its checkpoints now.
    #[serde(default)]
    pub trouble: Option<Trouble>,
    /// What its machines have lost for good.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lost: Option<Trouble>,
    /// Since when the trouble of now lasts, by its kind.
    #[serde(default)]
    pub troubled_at: Option<Time>,
}

impl Stint {
    /// Nothing of it runs any more; what it saved last may still be on its way.
    pub fn is_ended(&self) -> bool {
        self.workers.iter().all(|worker| worker.end.is_some())
    }

    /// Every worker exited with 0 by itself.
    pub(super) fn is_done(&self) -> bool {
        self.workers.iter().all(|worker| worker.end == Some(WorkerEnd::Exited { code: 0 }))
    }

    /// Running time as that of the whole gang: a part of it does a part of the work.
    pub(crate) fn as_whole(&self, span: Span, gang: u32) -> Span {
        span.scaled(i64::from(self.size()), i64::from(gang))
    }

    /// Workers in it.
    pub fn size(&self) -> u32 {
        self.allocations.len() as u32
    }

    /// Its leases, in order of rank.
    pub fn leases(&self) -> impl Iterator<Item = LeaseId> {
        self.allocations.iter().map(|allocation| allocation.lease)
    }

    /// Whether a worker of it runs on a lease.
    pub fn is_on(&self, lease: LeaseId) -> bool {
        self.leases().any(|known| known == lease)
    }

    /// Whether a worker on a lease has ended by itself or as it was told, and still sends what its program left.
    pub(super) fn is_sending_from(&self, lease: LeaseId) -> bool {
        let has_left = |end: &WorkerEnd| matches!(end, WorkerEnd::Exited { .. } | WorkerEnd::Stopped);
        let is_sending =
            |worker: &Worker| worker.started && worker.end.as_ref().is_some_and(has_left) && !worker.settled;
        self.leases().zip(&self.workers).any(|(known, worker)| known == lease && is_sending(worker))
    }

    /// The ranks of its workers on a lease.
    pub(super) fn ranks_on(&self, lease: LeaseId) -> Vec<usize> {
        self.leases().enumerate().filter(|(_, known)| *known == lease).map(|(rank, _)| rank).collect()
    }
}

/// A save that was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SaveAsked {
    pub by: DecisionId,
    pub at: Time,
}

/// The store of a job's checkpoints does not answer: the job holds nothing until it does.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoreAway {
    /// Since when.
    pub since: Time,
    /// What is wrong, as it was last said.
    pub trouble: Trouble,
    /// When that was.
    pub checked_at: Time,
    /// Looks at it so far.
    pub checks: u32,
    /// The look that is under way.
    pub asked: Option<DecisionId>,
}

/// The machines of a job's last stints had no room for it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NoRoom {
    /// Stints in a row.
    pub times: u32,
    /// What was missing at last, and on which machine.
    pub why: String,
    /// It is tried again then.
    pub until: Time,
}

/// What the end of a stint means for its job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// The work is done.
    Done,
    /// The program failed for good.
    Failed {
        /// Its code.
        code: i32,
        why: String,
    },
}

/// A job and all that the brain remembers of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Job {
    /// Its name in the log.
    pub id: WorkloadId,
    /// What was asked.
    pub spec: Arc<JobSpec>,
    pub submitted_at: Time,
    /// Who wants it ended.
    pub cancelled_by: Option<String>,
    /// Nobody waits for what it saves at its end.
    #[serde(default)]
    pub given_up: bool,
    /// How and when it ended.
    pub ended: Option<(Time, Outcome)>,
    /// The last stint's epoch.
    pub epoch: u64,
    /// The present stint.
    pub stint: Option<Box<Stint>>,
    /// What the last stint's end means, when it means the end.
    pub verdict: Option<Verdict>,
    /// How far it is.
    pub progress: Progress,
    /// The program failed on this checkpoint: resume before it.
    pub avoid: Option<CheckpointId>,
    /// Stints ended by the market or by a lost machine.
    pub interruptions: u32,
    /// Interruptions since the last durable progress.
    pub interruptions_in_row: u32,
    /// Failures with a code of the program's own.
    pub failures: u32,
    /// Deaths in a row that brought nothing.
    pub fruitless: u32,
    /// After several: when it is tried again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub again_at: Option<Time>,
    /// The machines of its last stints had no room for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub no_room: Option<NoRoom>,
    /// Stints in a row that saved nothing until their machines ended by agreement.
    #[serde(default)]
    pub terms_in_vain: u32,
    /// Running time whose work was lost.
    pub lost: Span,
    /// Work that was lost.
    pub lost_work: Work,
    /// When the last stint was over.
    pub stint_over_at: Option<Time>,
    /// Time in which all workers ran, as that of the whole gang.
    pub ran: Span,
    /// Paid time by market, of leases that are gone or that it left.
    pub held: BTreeMap<Market, Span>,
    /// How often it had a lease that is still there, and left it: late news can still change its bill.
    #[serde(default)]
    pub tenures: u32,
    /// Charged in ledger rows.
    pub paid: NanoUsd,
    /// The same by market.
    pub paid_by: BTreeMap<Market, NanoUsd>,
    /// Measured from asking to progress: how often, and in total.
    pub restarts: (u32, Span),
    /// People were told that the deadline is missed.
    pub told_late: bool,
    /// People were told that the deadline cannot be met.
    pub told_infeasible: bool,
    /// When its first lease was asked for.
    pub began_at: Option<Time>,
    /// Offers that refused its owner, and until when they are left alone.
    #[serde(default)]
    pub refused: BTreeMap<OfferId, Time>,
    /// What people were last told.
    #[serde(default)]
    pub told: Option<Told>,
    /// What its last stint said of files that are in no store; told if the job ends so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub left_behind: Option<Told>,
    /// It holds nothing until its budget is raised.
    #[serde(default)]
    pub paused: bool,
    /// Where its newest checkpoint lies.
    #[serde(default)]
    pub home: Option<Place>,
    /// The longest time from asking to progress.
    #[serde(default)]
    pub slowest_restart: Span,
    /// Whether its program saved when it was last told to stop with work unsaved; none while that was not seen.
    #[serde(default)]
    pub saves_when_told: Option<bool>,
    /// The lease on which a stop to save brought nothing.
    #[serde(default)]
    pub stopped_in_vain_on: Option<LeaseId>,
    /// The leases on which its program could not even be begun when that was last tried.
    #[serde(default, deserialize_with = "one_or_several")]
    pub not_begun_on: BTreeSet<LeaseId>,
    /// The nodes of such leases, until it begins there.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub not_begun_at: BTreeSet<NodeId>,
    /// Machines that a gang with too few was to go on with were of no use: how often, and when last. Over once it has all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub filled_in_vain: Option<(u32, Time)>,
    /// Its store does not answer.
    #[serde(default)]
    pub store_away: Option<StoreAway>,
}

impl Job {
    pub(super) fn new(id: WorkloadId, spec: Arc<JobSpec>, at: Time) -> Job {
        // A job that goes on from another counts its stints from there: their checkpoints are its own past.
        let (epoch, durable) = spec.continues.as_ref().map_or((0, Work(0)), |from| (from.epoch, from.durable));
        let progress = Progress { done: durable, durable, ..Progress::default() };
        Job {
            id,
            spec,
            submitted_at: at,
            cancelled_by: None,
            given_up: false,
            ended: None,
            epoch,
            stint: None,
            verdict: None,
            progress,
            avoid: None,
            interruptions: 0,
            interruptions_in_row: 0,
            failures: 0,
            fruitless: 0,
            again_at: None,
            no_room: None,
            terms_in_vain: 0,
            refused: BTreeMap::new(),
            lost: Span::ZERO,
            lost_work: Work(0),
            stint_over_at: None,
            ran: Span::ZERO,
            held: BTreeMap::new(),
            tenures: 0,
            paid: NanoUsd(0),
            paid_by: BTreeMap::new(),
            restarts: (0, Span::ZERO),
            told_late: false,
            told_infeasible: false,
            began_at: None,
            told: None,
            left_behind: None,
            paused: false,
            home: None,
            slowest_restart: Span::ZERO,
            saves_when_told: None,
            stopped_in_vain_on: None,
            not_begun_on: BTreeSet::new(),
            not_begun_at: BTreeSet::new(),
            filled_in_vain: None,
            store_away: None,
        }
    }

    /// What a checkpoint of the present stint holds: as the program said, else its running time where that stands in for
    /// progress, else what the stint began with.
    pub(super) fn work_saved(&self, work: Option<Work>, ran: Option<Span>, now: Time) -> Work {
        let base = self.stint.as_ref().map_or(self.progress.durable, |stint| stint.base);
        let by_time = || {
            let (stint, ran) = (self.stint.as_ref()?, ran.filter(|_| self.counts_time())?);
            let ran = Rate::REAL_TIME.work_in(stint.as_whole(ran, self.spec.gang));
            // It cannot have run for longer than it has.
            Some(Work(base.0.saturating_add(ran.0)).min(self.done_at(now)))
        };
        let said = work.and_then(|work| self.in_own_unit(work, self.progress.total)).or_else(by_time);
        // A later save of the same run holds no less than an earlier one whose work was known.
        said.unwrap_or_else(|| base.max(self.progress.durable))
    }

    /// All there is to do, where it is known.
    pub fn total(&self) -> Option<Work> {
        self.spec.work.total.or(self.progress.total)
    }

    /// Speed: measured when there is enough of it, else what the user said.
    pub fn rate(&self, accelerator: &str) -> Option<Rate> {
        let said = self.spec.work.rates.get(accelerator).or_else(|| self.spec.work.rates.values().min()).copied();
        // Steps of which only the program knows how many there are say nothing about time.
        let is_time = self.spec.work.unit == WorkUnit::Time && (self.spec.work.total.is_some() || self.counts_time());
        let prior = || said.or(is_time.then_some(Rate::REAL_TIME));
        let speed = |(work, span): &(Work, Span)| Rate::of(*work, *span).filter(|rate| rate.0 > 0);
        // What was measured elsewhere, or for a moment only, is better than nothing.
        let hint = || {
            let here = self.progress.measured.get(accelerator).and_then(speed);
            here.or_else(|| self.progress.measured.values().filter_map(speed).min())
        };
        self.measured(accelerator).or_else(prior).or_else(hint)
    }

    /// Speed on an accelerator, once it has been measured for long enough.
    pub(super) fn measured(&self, accelerator: &str) -> Option<Rate> {
        const ENOUGH: Span = Span::minutes(3);
        let (work, span) = self.progress.measured.get(accelerator).filter(|(_, span)| *span >= ENOUGH)?;
        Rate::of(*work, *span).filter(|rate| rate.0 > 0)
    }

    /// A report in the job's own unit: programs count steps, the user may have counted hours.
    pub(super) fn in_own_unit(&self, done: Work, total: Option<Work>) -> Option<Work> {
        match (self.spec.work.unit, self.spec.work.total, total) {
            (WorkUnit::Steps, _, _) => Some(done),
            (WorkUnit::Time, Some(hours), Some(total)) if total.0 > 0 => {
                let scaled = u128::from(hours.0) * u128::from(done.0.min(total.0)) / u128::from(total.0);
                u64::try_from(scaled).ok().map(Work)
            }
            (WorkUnit::Time, None, Some(_)) => Some(done),
            // Steps of an unknown total say nothing about hours: running time stands in.
            (WorkUnit::Time, _, _) => None,
        }
    }

    /// Work done by `now`, counting time where the program says nothing.
    pub fn done_at(&self, now: Time) -> Work {
        let Some(stint) = &self.stint else { return self.progress.done };
        match (stint.phase, stint.reported) {
            (StintPhase::Running { since }, None) if self.counts_time() => {
                let ran = Rate::REAL_TIME.work_in(stint.as_whole(now - since, self.spec.gang));
                Work(stint.base.0.saturating_add(ran.0)).min(self.total().unwrap_or(Work(u64::MAX)))
            }
            _ => self.progress.done,
        }
    }

    /// How long a running program has said nothing by `now`.
    pub(super) fn silent_at(&self, now: Time) -> Span {
        let Some(stint) = self.stint.as_ref().filter(|_| !self.counts_time()) else { return Span::ZERO };
        match (stint.phase, stint.reported) {
            (StintPhase::Starting, _) => Span::ZERO,
            (StintPhase::Running { .. }, Some((at, _))) => now - at,
            (StintPhase::Running { since }, None) => now - since,
        }
    }

    /// Whether running time stands in for progress that is not reported.
    pub(super) fn counts_time(&self) -> bool {
        self.spec.work.unit == WorkUnit::Time && self.progress.measured.values().all(|(work, _)| work.0 == 0)
    }

    /// Whether a decision about it waits for its effect.
    pub(super) fn has_open(&self) -> bool {
        let asks = |stint: &Stint| {
            let waits = stint.phase == StintPhase::Starting || stint.save_asked.is_some() && stint.unanswered > 0;
            stint.stopping.is_some() || waits
        };
        self.stint.as_deref().is_some_and(asks) || self.store_away.as_ref().is_some_and(|away| away.asked.is_some())
    }

    pub(super) fn open(&self, installation: Installation) -> Vec<Open> {
        let mut open = Vec::new();
        if let Some(id) = self.store_away.as_ref().and_then(|away| away.asked) {
            open.push(Open { id, decision: Decision::CheckStore { workload: self.id } });
        }
        let Some(stint) = &self.stint else { return open };
        debug_assert_eq!(stint.by.installation, installation);
        if stint.phase == StintPhase::Starting && stint.stopping.is_none() {
            open.push(Open {
                id: stint.by,
                decision: Decision::Start {
                    stint: stint.id,
                    allocations: stint.allocations.clone(),
                    resume: stint.resume,
                },
            });
        }
        if let Some(asked) = stint.save_asked.filter(|_| stint.unanswered > 0 && stint.stopping.is_none()) {
            open.push(Open { id: asked.by, decision: Decision::Checkpoint { stint: stint.id } });
        }
        if let Some(stopping) = stint.stopping {
            open.push(Open { id: stopping.by, decision: Decision::Stop { stint: stint.id, grace: stopping.grace } });
        }
        open
    }
}
