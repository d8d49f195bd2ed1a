//! The fold over what stints do: their workers, their progress, what they save, their trouble and their end.

use super::job::{StoreAway, Worker};
use super::{Brain, Group, Job, Lease, Stint, StintPhase, Verdict};
use crate::config::Config;
use crate::ids::{CheckpointId, DecisionId, LeaseId, StintId, WorkloadId};
use crate::offer::Offer;
use crate::pool::Allocation;
use crate::record::{Resume, Trouble, TroubleKind, WorkerEnd};
use crate::told::Told;
use crate::units::{Rate, Span, Time, Work};
use std::collections::BTreeSet;

impl Brain {
    pub(super) fn on_start(&mut self, by: DecisionId, id: StintId, allocations: &[Allocation], resume: Resume) {
        let startable = |job: &Job| job.stint.is_none() && id.epoch > job.epoch && !allocations.is_empty();
        if !self.jobs.get(&id.workload).is_some_and(startable) {
            return;
        }
        self.share_leases(id, allocations, by.seq);
        let (now, Some(job)) = (self.now, self.jobs.get_mut(&id.workload)) else { return };
        job.epoch = id.epoch;
        job.began_at.get_or_insert(now);
        let leases = allocations.iter().filter_map(|part| self.leases.get(&part.lease));
        let moved_in = leases.clone().any(|lease| lease.workload != Some(id.workload));
        // Time in an engine's own queue is no part of a start, and a machine of another was not got for it.
        let granted = |lease: &Lease| self.groups.get(&lease.id.group).and_then(Group::on_its_way_since);
        let wanted = leases.map(|lease| match lease.workload == Some(id.workload) {
            true => granted(lease).unwrap_or(lease.asked_at).max(lease.handed_over_at.unwrap_or(Time(i64::MIN))),
            false => now,
        });
        let wanted = wanted.min();
        job.stint = Some(Box::new(Stint {
            id,
            by,
            allocations: allocations.to_vec(),
            resume,
            phase: StintPhase::Starting,
            wanted_at: wanted.max(job.stint_over_at).unwrap_or(now),
            moved_in,
            workers: vec![Worker::default(); allocations.len()],
            restored: None,
            base: job.progress.durable,
            resumed_with: job.progress.durable,
            reported: None,
            fruitful: false,
            saved: false,
            interrupted: false,
            stopping: None,
            save_asked: None,
            unanswered: 0,
            saved_at: None,
            torn: false,
            ended_at: None,
            trouble: None,
            lost: None,
            troubled_at: None,
        }));
    }

    pub(super) fn on_worker_started(
        &mut self,
        id: StintId,
        rank: u32,
        restored: Option<CheckpointId>,
        work: Option<Work>,
    ) {
        let now = self.now;
        let Some(job) = self.jobs.get_mut(&id.workload) else { return };
        let own = work.and_then(|work| job.in_own_unit(work, job.progress.total));
        let Some(stint) = job.stint.as_mut().filter(|stint| stint.id == id) else { return };
        stint.workers[rank as usize].started = true;
        if rank == 0 {
            stint.restored = restored;
            // What was really restored is the truth, also when it is older than what was last durable.
            job.progress.durable = match restored {
                None => Work(0),
                Some(checkpoint) => own.unwrap_or_else(|| job.progress.held_by(checkpoint)),
            };
            job.progress.note_held(CheckpointId { epoch: id.epoch, seq: 0 }, job.progress.durable);
            job.progress.done = job.progress.durable;
            stint.base = job.progress.durable;
            stint.resumed_with = job.progress.durable;
        }
        if stint.phase == StintPhase::Starting && stint.workers.iter().all(|worker| worker.started) {
            stint.phase = StintPhase::Running { since: now };
            job.no_room = None;
            let nodes = stint.leases().filter_map(|lease| self.leases.get(&lease)?.terms.node.as_ref());
            nodes.for_each(|node| {
                job.not_begun_at.remove(node);
            });
            if stint.size() >= job.spec.gang {
                job.filled_in_vain = None;
            }
        }
    }

    pub(super) fn on_worker_ended(&mut self, id: StintId, rank: u32, end: &WorkerEnd, settled: bool) {
        let now = self.now;
        let Some(job) = self.jobs.get_mut(&id.workload) else { return };
        if let Some(stint) = job.stint.as_mut().filter(|stint| stint.id == id) {
            let worker = &mut stint.workers[rank as usize];
            worker.end.get_or_insert(end.clone());
            worker.settled |= settled;
            if stint.ended_at.is_none() && stint.is_ended() {
                stint.ended_at = Some(now);
                // Whatever becomes of its last save: the work is done, and the program is never run again.
                if stint.is_done() {
                    job.verdict = Some(Verdict::Done);
                }
            }
        }
        self.close_stint_if_over(id.workload);
        // Who ran on another's machine holds nothing that could still go.
        self.forget_if_over(id.workload);
    }

    pub(super) fn on_troubled(&mut self, id: StintId, trouble: Option<&Trouble>) {
        let now = self.now;
        let job = self.jobs.get_mut(&id.workload);
        if let Some(stint) = job.and_then(|job| job.stint.as_mut()).filter(|stint| stint.id == id) {
            if let Some(lost) = trouble.filter(|trouble| trouble.kind == TroubleKind::NotReturned) {
                return stint.lose(lost);
            }
            // Earlier versions kept it with the rest.
            if let Some(lost) = stint.trouble.take_if(|known| known.kind == TroubleKind::NotReturned) {
                stint.lose(&lost);
            }
            let same_kind = stint.trouble.as_ref().map(|known| known.kind) == trouble.map(|trouble| trouble.kind);
            if !same_kind {
                stint.troubled_at = trouble.map(|_| now);
            }
            stint.trouble = trouble.cloned();
        }
    }

    pub(super) fn on_store_checked(&mut self, workload: WorkloadId, trouble: Option<&Trouble>) {
        let now = self.now;
        let Some(job) = self.jobs.get_mut(&workload) else { return };
        match (&mut job.store_away, trouble) {
            (Some(away), Some(trouble)) => {
                away.asked = None;
                away.trouble = trouble.clone();
                away.checked_at = now;
            }
            (_, None) => job.store_away = None,
            (None, Some(_)) => {}
        }
    }

    pub(super) fn on_progress(&mut self, id: StintId, done: Work, total: Option<Work>) {
        let now = self.now;
        let offer = self.offer_of(id).map(|offer| offer.accelerator.clone());
        let Some(job) = self.jobs.get_mut(&id.workload) else { return };
        if total.is_some() {
            job.progress.total = total;
        }
        let Some(work) = job.in_own_unit(done, total) else { return };
        let Some(stint) = job.stint.as_mut().filter(|stint| stint.id == id) else { return };
        // A late report may bring another total; it does not undo what was done since.
        if stint.reported.is_some_and(|(_, known)| work < known) {
            return;
        }
        // The program knows best what it went on from: what was taken for safe and is not there was never safe.
        if stint.reported.is_none() && work < stint.base && job.progress.durable <= stint.base {
            stint.base = work;
            job.progress.durable = work;
            job.progress.note_held(CheckpointId { epoch: id.epoch, seq: 0 }, work);
        }
        if let Some((before, known)) = stint.reported {
            // The speed of the whole gang, also where fewer run.
            let whole = work.minus(known).times(job.spec.gang, stint.size());
            // A program that was told to save and stop is not slow: it does something else.
            let steady = stint.stopping.is_none() && !stint.interrupted;
            // Progress bars say nothing done until the checkpoint is loaded: then it was there after all.
            let loaded = known == stint.base && known < stint.resumed_with && work >= stint.resumed_with;
            if loaded {
                stint.base = stint.resumed_with;
                job.progress.durable = job.progress.durable.max(stint.resumed_with);
                job.progress.note_held(CheckpointId { epoch: id.epoch, seq: 0 }, stint.resumed_with);
            } else if steady && known >= stint.resumed_with {
                // Until it is where the checkpoint stands a program may be skipping what was done.
                job.progress.learn_speed(&offer.unwrap_or_default(), whole, now - before);
            }
        } else {
            // A start on a machine that was there already says little of one that has to be got.
            if !stint.moved_in {
                let took = now - stint.wanted_at;
                job.restarts = (job.restarts.0.saturating_add(1), job.restarts.1 + took);
                job.slowest_restart = job.slowest_restart.max(took);
            }
        }
        stint.reported = Some((now, work));
        stint.fruitful |= work > job.progress.durable;
        job.progress.done = work;
    }

    /// What a stint runs on.
    fn offer_of(&self, id: StintId) -> Option<&Offer> {
        let stint = self.jobs.get(&id.workload)?.stint.as_ref().filter(|stint| stint.id == id)?;
        self.offers.get(&self.leases.get(&stint.allocations.first()?.lease)?.offer)
    }

    /// What is safe is what was in the files when they were written, not what was done by the time they were stored.
    pub(super) fn on_checkpoint(
        &mut self,
        id: StintId,
        checkpoint: CheckpointId,
        work: Option<Work>,
        ran: Option<Span>,
    ) {
        let now = self.now;
        let place = self.offer_of(id).and_then(Offer::place);
        let Some(job) = self.jobs.get_mut(&id.workload) else { return };
        let before = job.progress.durable;
        let counted = job.work_saved(work, ran, now).min(job.total().unwrap_or(Work(u64::MAX)));
        job.progress.checkpoint = Some(checkpoint);
        job.progress.durable = counted;
        job.progress.note_held(checkpoint, counted);
        job.home = place.or(job.home.take());
        job.progress.done = job.progress.done.max(counted);
        // The fence of a stint is a copy, not something that the program saved.
        if checkpoint.seq > 0 {
            job.avoid = None;
            if let Some(stint) = &mut job.stint {
                stint.unanswered = 0;
                stint.saved_at = Some(now);
            }
        }
        // A save that holds no more than the one before brings nothing: a program may save first and die then. Where
        // nobody can tell, files that changed are taken for progress.
        let told = work.is_some() || job.counts_time();
        if checkpoint.seq > 0 && (!told || counted > before) {
            (job.fruitless, job.again_at) = (0, None);
            job.interruptions_in_row = 0;
            if let Some(stint) = &mut job.stint {
                stint.fruitful = true;
                stint.saved = true;
            }
        }
    }

    /// Folds the end of a stint into its job once nothing of it can run any more.
    pub(super) fn close_stint_if_over(&mut self, workload: WorkloadId) {
        let (now, patience) = (self.now, self.config.patience);
        let over = self.jobs.get(&workload).filter(|job| job.is_stint_over()).and_then(|job| job.stint.as_ref());
        let Some(over) = over.map(|stint| stint.id) else { return };
        self.give_shares_back(over);
        let stint = self.jobs.get(&workload).and_then(|job| job.stint.as_ref());
        let full = stint.and_then(|stint| self.full_disks(stint));
        let Some(job) = self.jobs.get_mut(&workload) else { return };
        let done = job.done_at(now);
        let Some(stint) = job.stint.take() else { return };
        job.stint_over_at = Some(now);
        job.note_term(&stint, &self.leases);
        if let StintPhase::Running { since } = stint.phase {
            job.ran += stint.as_whole(now - since, job.spec.gang);
        }
        let ends: Vec<&WorkerEnd> = stint.workers.iter().filter_map(|worker| worker.end.as_ref()).collect();
        if stint.is_done() {
            // Said once more at the end: whoever only reads the bill must know where the last files are.
            if let Some(told) = stint.all_trouble().as_ref().and_then(Told::at_the_end) {
                job.told = Some(told);
            }
            job.progress.done = job.total().unwrap_or(done).max(done);
            job.verdict = Some(Verdict::Done);
            return;
        }
        let left_behind = stint.left_behind().as_ref().and_then(Told::at_the_end);
        match job.ended.is_some() {
            true => job.told = left_behind.or(job.told.take()),
            false => job.left_behind = left_behind,
        }
        job.learn_from_stop(&stint, done);
        let not_begun = stint.workers.iter().zip(stint.leases()).filter(|(worker, _)| worker.never_ran());
        let not_begun: BTreeSet<LeaseId> = not_begun.map(|(_, lease)| lease).collect();
        if !not_begun.is_empty() {
            let nodes = not_begun.iter().filter_map(|lease| self.leases.get(lease)?.terms.node.clone());
            job.not_begun_at.extend(nodes);
            job.not_begun_on = not_begun;
            job.fill_up_later(now);
        }
        if let Some((offers, why)) = full {
            job.note_full_disks(offers, why, now - stint.wanted_at, now);
        }
        let away = ends.iter().find_map(|end| match end {
            WorkerEnd::StoreAway { why } => Some(why.clone()),
            _ => None,
        });
        if let Some(why) = away {
            let said = stint.trouble.clone().filter(|trouble| trouble.kind.is_of_the_store());
            let trouble = said.unwrap_or(Trouble { kind: TroubleKind::StoreAway, text: why });
            let since = stint.troubled_at.unwrap_or(now);
            job.store_away = Some(StoreAway { since, trouble, checked_at: now, checks: 0, asked: None });
        }
        let lost = done.minus(job.progress.durable);
        job.lost_work = Work(job.lost_work.0.saturating_add(lost.0));
        job.lost += job.rate(job.usual_accelerator()).unwrap_or(Rate::REAL_TIME).time_for(lost);
        job.progress.done = job.progress.durable;
        if stint.interrupted {
            // Who had not begun on a machine of another yet has lost nothing with it.
            if !stint.moved_in || stint.phase != StintPhase::Starting {
                job.interruptions += 1;
                job.interruptions_in_row += 1;
            }
            return;
        }
        job.judge(&stint, now, patience);
    }
}

impl Job {
    /// From asking for a lease to progress: measured, else said, else assumed.
    pub fn restart(&self, config: &Config) -> Span {
        let said = self.spec.checkpoint.restart.unwrap_or(config.restart_prior);
        match self.restarts {
            (0, _) => said,
            // The user's figure weighs like two measurements, so one slow start does not rule.
            (n, total) => Span((said.0 * 2 + total.0) / (i64::from(n) + 2)),
        }
    }

    /// The mean of those that were measured, for people; what is assumed where none was.
    pub fn seen_restart(&self, config: &Config) -> Span {
        match self.restarts {
            (0, _) => self.restart(config),
            (n, total) => Span(total.0 / i64::from(n)),
        }
    }
}
