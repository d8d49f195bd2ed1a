//! What runs on the machines of the invented world: workers, their runs, and what they save.

use super::{Machine, Worker, World, climax_at};
use crate::conduct::fit_together;
use crate::planted::Bug;
use crate::program::{OnTerm, Plot, Run, Saved};
use crate::random;
use windfall_core::pool::{Device, DevicePart};
use windfall_core::record::Resume;
use windfall_core::worker::StartOrder;
use windfall_core::{CheckpointId, LeaseId, Span, StintId, Time, WorkerEnd, WorkloadId};

impl World {
    /// Whatever ran there is dead; nobody is told how it ended.
    pub(super) fn bury_workers(&mut self, id: LeaseId) {
        let Some(machine) = self.machines.get_mut(&id) else { return };
        machine.limbo_until = None;
        let mut buried = Vec::new();
        for worker in machine.workers.iter_mut().filter(|worker| worker.end.is_none()) {
            worker.running = false;
            worker.doom = None;
            buried.push((worker.job, worker.stint.epoch));
        }
        buried.into_iter().for_each(|(job, epoch)| self.settle(job, epoch));
    }

    pub(super) fn happen_to_worker(&mut self, id: LeaseId, workload: WorkloadId) {
        let now = self.now;
        let Some(machine) = self.machines.get_mut(&id).filter(|machine| machine.is_alive()) else { return };
        let Some(worker) = machine.worker_mut(workload).filter(|worker| worker.end.is_none()) else { return };
        let (job, stint, rank) = (worker.job, worker.stint, worker.rank);
        let upload = self.jobs.get(job).map_or(Span::ZERO, |truth| truth.program.upload);
        if let Some((_, end)) = worker.doom.clone().filter(|(at, _)| *at <= now) {
            worker.end = Some(end.clone());
            worker.settles_at = if rank == 0 && worker.running && !worker.killed { now + upload } else { now };
            worker.running = false;
            let killed = worker.killed;
            self.worker_ended(id, job, stint, rank, end, killed);
        } else if !worker.running && worker.ready_at <= now && rank == 0 && now < self.store_away_until {
            // Nothing can be restored while the store does not answer; it is tried until it does.
            worker.ready_at = self.store_away_until;
            self.touch();
        } else if !worker.running && worker.ready_at <= now {
            worker.running = true;
            if rank == 0 {
                self.begin(id, job, stint);
            }
            self.settle(job, stint.epoch);
            self.touch();
        }
    }

    /// Rank 0 picks the checkpoint and sets the fence.
    fn begin(&mut self, id: LeaseId, job: usize, StintId { workload, epoch, .. }: StintId) {
        let never_runs = self.jobs[job].program.plot == Plot::NeverRuns;
        let fenced = self.jobs[job].saves.keys().next_back().is_some_and(|newest| newest.epoch >= epoch);
        if fenced || never_runs {
            let why = if fenced { "fenced off" } else { "the folder is gone" };
            if let Some(worker) = self.machines.get_mut(&id).and_then(|machine| machine.worker_mut(workload)) {
                worker.running = false;
                worker.end = Some(WorkerEnd::NeverRan { why: why.to_owned() });
            }
            self.jobs[job].ends.push(WorkerEnd::NeverRan { why: why.to_owned() });
            return;
        }
        let Some(resume) = self.jobs[job].runs.get(&epoch).map(|run| run.resume) else { return };
        let expected = self.jobs[job].choose(resume);
        let chosen = match (self.bug, expected) {
            (Some(Bug::OldCheckpointRestored), Some((newest, _))) => self.jobs[job].choose(Resume::Before(newest)),
            (Some(Bug::StaleSavesCount), Some(_)) => {
                self.jobs[job].saves.iter().filter(|(_, s)| !s.fresh).max_by_key(|(_, s)| s.work).map(|(i, s)| (*i, *s))
            }
            _ => expected,
        };
        self.judge_restore(job, epoch, resume, expected.map(|(id, _)| id), chosen.map(|(id, _)| id));
        let name = CheckpointId { epoch, seq: 0 };
        let began_from = chosen.map(|(_, saved)| saved.origin);
        let fence = match chosen {
            Some((_, saved)) => Saved { began_from, ..saved },
            None => Saved { work: 0, origin: name, fresh: true, began_from: None, bad: false },
        };
        let truth = &mut self.jobs[job];
        truth.saves.insert(name, fence);
        if let Some(run) = truth.runs.get_mut(&epoch) {
            run.fenced = true;
            run.restored = chosen.map(|(id, _)| id);
            run.base = fence.work;
            run.work = fence.work;
        }
        let restored = chosen.map(|(id, _)| id);
        self.say(|| format!("job {job} stint {epoch} resumes from {restored:?} with {}", fence.work));
    }

    /// Law 8 (and 2), at the moment it matters: what a stint goes on from.
    fn judge_restore(
        &mut self,
        job: usize,
        epoch: u64,
        resume: Resume,
        expected: Option<CheckpointId>,
        chosen: Option<CheckpointId>,
    ) {
        if chosen != expected {
            let stale = chosen > expected || self.bug == Some(Bug::StaleSavesCount);
            let what = format!("job {job} stint {epoch} went on from {chosen:?}, the store says {expected:?}");
            self.wrong(if stale { 2 } else { 8 }, what);
        }
        if let Resume::Before(bad) = resume {
            let origin = |id: CheckpointId| self.jobs[job].saves.get(&id).map_or(id, |saved| saved.origin);
            if !self.jobs[job].failed_on.iter().any(|known| origin(*known) == origin(bad)) {
                self.wrong(8, format!("job {job} stint {epoch} avoids {bad}, on which no program failed"));
            }
        }
    }

    fn worker_ended(&mut self, id: LeaseId, job: usize, stint: StintId, rank: u32, end: WorkerEnd, killed: bool) {
        let now = self.now;
        self.say(|| format!("job {job} stint {} rank {rank} on {id} ended: {end:?}", stint.epoch));
        let rate = self.jobs[job].program.rate;
        let saves =
            matches!(self.jobs[job].program.on_term, OnTerm::Saves(_)) && !killed && now >= self.store_away_until;
        if let Some(run) = self.jobs[job].runs.get_mut(&stint.epoch)
            && rank == 0
        {
            let work = run.work_at(rate, now);
            if end == WorkerEnd::Stopped && saves && run.fenced && run.saving.is_none() && work > run.base {
                run.saving = Some((now, work));
                self.save(job, stint.epoch);
            }
            if let Some(run) = self.jobs[job].runs.get_mut(&stint.epoch) {
                run.saving = None;
                run.next_save = None;
            }
        }
        let restored = self.jobs[job].runs.get(&stint.epoch).and_then(|run| run.restored);
        if matches!(end, WorkerEnd::Exited { code } if code != 0)
            && let Some(restored) = restored
        {
            self.jobs[job].failed_on.insert(restored);
        }
        let zero = end == WorkerEnd::Exited { code: 0 };
        self.jobs[job].ends.push(end);
        if let Some(run) = self.jobs[job].runs.get_mut(&stint.epoch)
            && run.climax
            && zero
        {
            run.zeroes += 1;
            self.jobs[job].completed |= run.zeroes == run.size;
        }
        self.settle(job, stint.epoch);
        self.touch();
    }

    fn workers_of(&self, job: usize, epoch: u64) -> impl Iterator<Item = &Worker> {
        let workers = self.machines.values().flat_map(|machine| &machine.workers);
        workers.filter(move |worker| worker.job == job && worker.stint.epoch == epoch)
    }

    /// A run makes progress while every rank of it runs and none was asked to stop.
    fn settle(&mut self, job: usize, epoch: u64) {
        let now = self.now;
        let active = self.workers_of(job, epoch).filter(|w| w.running && w.end.is_none() && !w.asked).count();
        let alive = self.workers_of(job, epoch).filter(|w| w.running && w.end.is_none()).count();
        let rate = self.jobs[job].program.rate;
        let every = self.jobs[job].program.saves_every;
        let Some(run) = self.jobs[job].runs.get_mut(&epoch) else { return };
        let whole = run.size as usize;
        if active == whole && run.fenced && !run.climax {
            if run.since.is_none() {
                run.since = Some(now);
                run.next_save = every.map(|every| now + every);
            }
        } else if run.since.is_some() {
            run.work = run.work_at(rate, now);
            run.since = None;
            run.next_save = None;
        }
        run.half_since = if alive == 0 || alive == whole || run.limbo { None } else { run.half_since.or(Some(now)) };
    }

    pub(super) fn happen_to_runs(&mut self, job: usize) {
        let now = self.now;
        let moving = self.jobs[job].runs.values().filter(|run| run.since.is_some() || run.saving.is_some());
        let epochs: Vec<u64> = moving.map(|run| run.epoch).collect();
        for epoch in epochs {
            let rate = self.jobs[job].program.rate;
            let takes = self.jobs[job].program.save_takes;
            let Some(run) = self.jobs[job].runs.get_mut(&epoch) else { continue };
            if run.saving.is_some_and(|(at, _)| at <= now) {
                match now < self.store_away_until {
                    // An upload is tried until the store answers again.
                    true => run.saving = run.saving.map(|(_, work)| (self.store_away_until, work)),
                    false => self.save(job, epoch),
                }
            }
            let Some(run) = self.jobs[job].runs.get_mut(&epoch) else { continue };
            if run.since.is_some() && run.next_save.is_some_and(|at| at <= now) {
                run.saving.get_or_insert((now + takes, run.work_at(rate, now)));
                run.next_save = None;
            }
            let run = run.clone();
            if climax_at(&self.jobs[job], &run).is_some_and(|at| at <= now) {
                self.climax(job, &run);
            }
        }
    }

    /// A program that listens saves soon; the first rank is the one that writes.
    pub fn ask_to_save(&mut self, lease: LeaseId, stint: StintId) {
        let worker = self.machines.get(&lease).and_then(|machine| machine.worker(stint.workload));
        let Some(job) = worker.filter(|w| w.stint == stint && w.rank == 0 && w.end.is_none()).map(|w| w.job) else {
            return;
        };
        let now = self.now;
        let Some(truth) = self.jobs.get_mut(job).filter(|truth| truth.program.listens) else { return };
        if let Some(run) = truth.runs.get_mut(&stint.epoch).filter(|run| run.since.is_some() && run.saving.is_none()) {
            run.next_save = Some(now);
        }
    }

    fn save(&mut self, job: usize, epoch: u64) {
        let now = self.now;
        let random = random::of(self.seed, &[5, job as u64, epoch]);
        let truth = &mut self.jobs[job];
        let (every, bad_saves) = (truth.program.saves_every, truth.program.bad_saves);
        let Some(run) = truth.runs.get_mut(&epoch) else { return };
        let Some((_, work)) = run.saving.take() else { return };
        run.seq += 1;
        let name = CheckpointId { epoch, seq: run.seq };
        let bad = { random }.permille(bad_saves);
        let base = run.restored.and_then(|id| truth.saves.get(&id)).map(|saved| saved.origin);
        truth.saves.insert(name, Saved { work, origin: name, fresh: false, began_from: base, bad });
        run.durable = Some((name, work));
        run.next_save = every.filter(|_| run.since.is_some()).map(|every| now + every);
        self.say(|| format!("job {job} saved {name} with {work}{}", if bad { " (bad)" } else { "" }));
        self.touch();
    }

    /// The program comes to its end, or to where it fails.
    fn climax(&mut self, job: usize, run: &Run) {
        let now = self.now;
        let truth = &mut self.jobs[job];
        let work = run.work_at(truth.program.rate, now);
        let bad = run.restored.and_then(|id| truth.saves.get(&id)).is_some_and(|saved| saved.bad);
        let strikes = truth.strikes;
        let total = truth.program.total;
        let (first, last) = match truth.program.plot {
            _ if bad && work < total => (WorkerEnd::Exited { code: 9 }, None),
            Plot::Fails { at, code, times } if work >= at && strikes < times => (WorkerEnd::Exited { code }, None),
            Plot::Killed { at, signal, times } if work >= at && strikes < times => (WorkerEnd::Killed { signal }, None),
            Plot::RankFails { code } if run.size > 1 => {
                (WorkerEnd::Exited { code: 0 }, Some(WorkerEnd::Exited { code }))
            }
            _ => (WorkerEnd::Exited { code: 0 }, Some(WorkerEnd::Exited { code: 0 })),
        };
        if !bad && last.is_none() {
            truth.strikes += 1;
        }
        if let Some(run) = truth.runs.get_mut(&run.epoch) {
            run.work = work;
            run.since = None;
            run.next_save = None;
            run.climax = true;
            if last.is_none() {
                run.saving = None;
            }
        }
        let mut random = random::of(self.seed, &[6, job as u64, run.epoch]);
        for worker in self.machines.values_mut().flat_map(|machine| &mut machine.workers) {
            if worker.job != job || worker.stint.epoch != run.epoch || worker.end.is_some() || worker.asked {
                continue;
            }
            let later = now + Span(if worker.rank == 0 { 0 } else { random.between(0, 3_000) });
            let end = if worker.rank == 0 {
                Some(first.clone())
            } else if worker.rank + 1 == run.size {
                last.clone()
            } else {
                last.as_ref().map(|_| WorkerEnd::Exited { code: 0 })
            };
            // The other ranks of a gang that failed hang until they are stopped.
            worker.doom = end.map(|end| (later, end));
        }
    }

    /// A machine tells all that runs on it to stop.
    pub(super) fn ask_all_to_stop(&mut self, id: LeaseId, kill_at: Time) {
        let workloads = self.machines.get(&id).map(Machine::busy_with).unwrap_or_default();
        workloads.into_iter().for_each(|workload| self.ask_to_stop(id, workload, kill_at));
    }

    /// SIGTERM now, SIGKILL at `kill_at`.
    pub fn ask_to_stop(&mut self, id: LeaseId, workload: WorkloadId, kill_at: Time) {
        let now = self.now;
        let Some(machine) = self.machines.get_mut(&id) else { return };
        let Some(worker) = machine.worker_mut(workload).filter(|worker| worker.end.is_none()) else { return };
        let (job, epoch) = (worker.job, worker.stint.epoch);
        let took = match self.jobs[job].program.on_term {
            _ if !worker.running => Span::ZERO,
            OnTerm::Saves(took) | OnTerm::Stops(took) => took,
            OnTerm::Ignores => Span::hours(1_000),
        };
        let known = worker.doom.as_ref().filter(|_| worker.asked).map(|(at, _)| *at);
        let at = (now + took).min(kill_at).max(now);
        worker.killed |= kill_at < now + took;
        let for_want_of_store =
            !worker.running && now < self.store_away_until && worker.ready_at == self.store_away_until;
        let end = match self.bug {
            Some(Bug::StoppedIsDone) => WorkerEnd::Exited { code: 0 },
            _ if for_want_of_store => WorkerEnd::StoreAway { why: "the store does not answer".to_owned() },
            _ => WorkerEnd::Stopped,
        };
        worker.doom = Some((known.map_or(at, |known| known.min(at)), end));
        worker.asked = true;
        self.settle(job, epoch);
        self.touch();
    }

    /// A worker is ordered; the same order twice is the same worker.
    pub fn start_worker(&mut self, id: LeaseId, order: &StartOrder) {
        let now = self.now;
        let Ok(job) = order.checkpoint_key.parse::<usize>() else { return };
        let Some(machine) = self.machines.get_mut(&id) else { return };
        let last = machine.worker(order.stint.workload);
        if last.is_some_and(|last| last.end.is_none() || order.stint.epoch <= last.stint.epoch) {
            return;
        }
        let part = order.share.map_or(DevicePart::Whole, |(part, of)| DevicePart::Share { part, of });
        let device = |number: &u32| Device { number: *number, part: part.clone() };
        let own: Option<Vec<Device>> = order.devices.as_ref().map(|numbers| numbers.iter().map(device).collect());
        let others = machine.workers.iter();
        let others = others.filter(|other| other.stint.workload != order.stint.workload && other.end.is_none());
        let others: Vec<&Worker> = others.collect();
        let taken = others.first().map(|other| other.stint).filter(|_| {
            let all = others.iter().map(|other| other.devices.as_deref()).chain([own.as_deref()]);
            !fit_together(all)
        });
        let restore = self.jobs[job].program.restore;
        let ready_at = now + if order.rank == 0 { restore } else { Span(restore.0 / 2) };
        machine.put(Worker {
            stint: order.stint,
            rank: order.rank,
            job,
            devices: own,
            ready_at,
            running: false,
            asked: false,
            doom: None,
            end: None,
            killed: false,
            settles_at: now,
        });
        let ends_at = machine.ends_at;
        let (size, resume, epoch) = (order.world_size, order.resume, order.stint.epoch);
        self.jobs[job].runs.entry(epoch).or_insert(Run {
            epoch,
            size,
            resume,
            fenced: false,
            restored: None,
            base: 0,
            work: 0,
            since: None,
            seq: 0,
            next_save: None,
            saving: None,
            durable: None,
            limbo: false,
            half_since: None,
            climax: false,
            zeroes: 0,
        });
        self.say(|| format!("job {job} stint {epoch} rank {} starts on {id}", order.rank));
        if let Some(other) = taken {
            self.wrong(19, format!("stint {} got devices of {id} on which stint {other} runs", order.stint));
        }
        // A machine that is about to go tells a late-comer at once.
        if let Some(ends_at) = ends_at {
            self.ask_to_stop(id, order.stint.workload, ends_at);
        }
        self.touch();
    }
}
