//! One step: who is looked at, in which order, and what is noted of it.

use super::awake::{Looked, LookedJob, Sources};
use super::decide::Round;
use super::queue::{Queue, Source, Stir};
use super::rooms::RoomKey;
use super::{Brain, Decided, Job};
use crate::ids::WorkloadId;
use crate::record::Decision;
use crate::units::{Span, Time};
use std::collections::BTreeSet;

/// Between two slices of a plan that is being solved.
const THINK_AGAIN: Span = Span(40);

/// What a step came to.
pub(super) struct Stepped {
    decided: Vec<Decided>,
    pub jobs: Vec<LookedJob>,
    left_alone: BTreeSet<WorkloadId>,
    /// Machines of which something was given away.
    taken_of: BTreeSet<RoomKey>,
}

impl Brain {
    /// The next decisions at `now`, with every engine just seen. Asked once for a batch of events.
    pub fn decide(&mut self, now: Time) -> Vec<Decided> {
        self.decide_but_for(now, &BTreeSet::new())
    }

    /// The next decisions at `now`, while it is not known what some engines show by now. Who has leases there is left
    /// alone; who has none waits for every engine that is not known to be silent, because its offers may be the best.
    pub fn decide_but_for(&mut self, now: Time, unseen: &BTreeSet<String>) -> Vec<Decided> {
        let now = self.now.max(now);
        // What was just loaded has not been settled.
        self.settle();
        self.awake.remember(&self.refused);
        let Sources { sources, offers, rooms } = self.sources(now);
        let Stepped { decided, jobs, left_alone, taken_of } = self.step(now, unseen, sources);
        jobs.iter().for_each(|job| self.following.set(job.id, job.wanted, &self.plan_cache));
        self.awake.looked(Looked { now, jobs, offers, rooms, taken_of }, &self.jobs);
        left_alone.iter().for_each(|id| self.awake.job(*id));
        self.left_alone = left_alone;
        self.undecided = !decided.is_empty();
        self.think(now);
        decided
    }

    /// What would be decided at `now` if everybody were looked at, and is not for lack of a look: nothing, unless whoever
    /// it is about looks again by itself in time. Asked when the brain has just had nothing to say.
    pub fn overlooked(&self, now: Time, unseen: &BTreeSet<String>) -> Vec<Decided> {
        let now = self.now.max(now);
        let everyone = Source { ids: Box::new(self.jobs.keys().copied()), stir: Stir::Any };
        let decided = self.step(now, unseen, vec![everyone]).decided;
        decided.into_iter().filter(|decided| !self.looks_again_in_time(now, &decided.decision)).collect()
    }

    /// Whether a decision moves with the time alone, and the job that it is about looks again in time: within a tick; at
    /// every word of its program, for what runs under a deadline; or when a save is due, by what was believed of its lease.
    fn looks_again_in_time(&self, now: Time, decision: &Decision) -> bool {
        let Some(job) = self.workload_of(decision).and_then(|workload| self.jobs.get(&workload)) else { return false };
        let moment = self.awake.moment_of(job.id);
        let soon = moment.is_some_and(|moment| moment <= now + self.config.margins.tick);
        let runs = job.stint.is_some() && job.spec.deadline.is_some() && !matches!(decision, Decision::Pause { .. });
        // Whoever was left alone is asked once it is known what engines show.
        let waits = self.left_alone.contains(&job.id);
        soon || runs || waits || matches!(decision, Decision::Checkpoint { .. }) && moment.is_some()
    }

    /// The workload that a decision is about.
    fn workload_of(&self, decision: &Decision) -> Option<WorkloadId> {
        match decision {
            Decision::Acquire { want } => Some(want.workload),
            Decision::Release { group, .. } => self.groups.get(group).map(|group| group.want.workload),
            Decision::HandOver { lease, .. } => self.leases.get(lease)?.workload,
            Decision::Start { stint, .. } | Decision::Stop { stint, .. } | Decision::Checkpoint { stint } => {
                Some(stint.workload)
            }
            Decision::CheckStore { workload }
            | Decision::Pause { workload }
            | Decision::End { workload, .. }
            | Decision::Notify { workload, .. } => Some(*workload),
        }
    }

    /// Asks those who are to be looked at, in their order: what one takes, the next no longer sees.
    pub(super) fn step(&self, now: Time, unseen: &BTreeSet<String>, sources: Vec<Source>) -> Stepped {
        let (mut jobs, mut left_alone) = (Vec::new(), BTreeSet::new());
        let mut round = Round::at(self, now);
        let mut queue = Queue::of(sources);
        while let Some(id) = queue.next(|job, stir| round.is_stirred(job, stir)) {
            let Some(job) = self.jobs.get(&id) else { continue };
            if self.is_left_alone(job, unseen) {
                left_alone.insert(id);
                round.keep_within_budget(job);
            } else {
                jobs.push(round.look_at(job));
            }
        }
        let given = round.rooms.changed().filter_map(|id| self.leases.get(&id));
        let taken_of = given.filter_map(|lease| Some((self.leases.dealt_to(lease.id)?.clone(), lease.offer.clone())));
        let taken_of = taken_of.collect();
        Stepped { decided: round.end(), jobs, left_alone, taken_of }
    }

    /// Solves a slice of a plan that somebody lacks, if the last one is long enough ago: steps that come thick and fast are
    /// not slower for it. Who follows another plan then is asked with the next slice.
    fn think(&mut self, now: Time) {
        if self.think_at.is_some_and(|at| now < at) {
            return;
        }
        let (more, moved) = self.following.think(&mut self.plan_cache, &self.model);
        self.think_at = more.then_some(now + THINK_AGAIN);
        moved.into_iter().for_each(|id| self.awake.job(id));
    }

    /// Whether a job is not decided about while it is not known what some engines show.
    fn is_left_alone(&self, job: &Job, unseen: &BTreeSet<String>) -> bool {
        // Whoever is to stop, or is over, does so whatever anybody shows.
        let over = job.ended.is_some() || job.verdict.is_some();
        if unseen.is_empty() || over || job.cancelled_by.is_some() || job.paused {
            return false;
        }
        let mut held = self.leases.used_by(job.id).peekable();
        if held.peek().is_none() {
            return unseen.iter().any(|engine| self.silent_since(engine).is_none());
        }
        held.any(|lease| {
            let engine = lease.offer.engine();
            let asked_in_vain = lease.up_at.is_none() && self.silent_since(engine).is_some();
            unseen.contains(engine) && !asked_in_vain
        })
    }
}
