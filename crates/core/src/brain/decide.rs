//! What to do next, job by job. Everything here reads the state; only the wake-up cache changes.

use super::{Brain, Decided, Job, Lease, LeasePhase, Stint};
use crate::ids::{DecisionId, LeaseId, StintId, WorkloadId};
use crate::market::Choice;
use crate::market::foresight::PlanTerms;
use crate::offer::OfferId;
use crate::reason::Reason;
use crate::record::{Decision, Resume};
use crate::units::{NanoUsd, Span, Time};

/// A stop that is not over this long after its grace is ended by giving the leases back.
const STOP_OVERRUN: Span = Span::minutes(2);

/// Between two slices of a plan that is being solved.
const THINK_AGAIN: Span = Span(40);

/// Collects decisions and knows the sequence that each will have in the log.
pub(super) struct Plan<'a> {
    pub brain: &'a Brain,
    pub now: Time,
    decided: Vec<Decided>,
    wake: Option<Time>,
    /// Plans that jobs would follow if they were solved.
    pub wanted: Vec<PlanTerms>,
}

impl Brain {
    /// The next decisions at `now`. Asked once for a batch of events.
    pub fn decide(&mut self, now: Time) -> Vec<Decided> {
        let now = self.now.max(now);
        let mut wakes = std::collections::BTreeMap::new();
        let mut plan = Plan { brain: self, now, decided: Vec::new(), wake: None, wanted: Vec::new() };
        for job in self.jobs.values() {
            plan.wake = None;
            plan.for_job(job);
            if let Some(wake) = plan.wake {
                wakes.insert(job.id, wake);
            }
        }
        plan.for_orphans();
        let (decided, wanted) = (plan.decided, plan.wanted);
        self.think_at = self.shelf.think(&self.model, &wanted).then_some(now + THINK_AGAIN);
        self.wake_at = wakes;
        self.undecided = !decided.is_empty();
        decided
    }
}

impl Plan<'_> {
    pub(super) fn say(&mut self, decision: Decision, reason: Reason) {
        self.decided.push(Decided { decision, reason });
    }

    pub(super) fn wake_at(&mut self, at: Time) {
        self.wake = Some(self.wake.map_or(at, |wake| wake.min(at)));
    }

    pub(super) fn leases(&self, job: &Job) -> Vec<&Lease> {
        self.brain.leases.values().filter(|lease| lease.workload == Some(job.id)).collect()
    }

    fn for_job(&mut self, job: &Job) {
        if job.ended.is_some() {
            return self.release_all(job, &Reason::new("ended", "the job is over"));
        }
        self.tell(job);
        if let Some((outcome, reason)) = self.ending(job) {
            return match &job.stint {
                Some(stint) => self.stop(job, stint, &reason),
                None => {
                    self.say(Decision::End { workload: job.id, outcome }, reason.clone());
                    self.release_all(job, &reason);
                }
            };
        }
        if !job.paused
            && let Some(reason) = self.over_budget(job)
        {
            return self.say(Decision::Pause { workload: job.id }, reason);
        }
        match &job.stint {
            Some(stint) if job.paused => self.stop(job, stint, &paused()),
            Some(stint) => self.for_stint(job, stint),
            None if job.paused => self.release_all(job, &paused()),
            None => self.for_leases(job),
        }
    }

    /// Gives back what the log did not know.
    fn for_orphans(&mut self) {
        let brain = self.brain;
        for lease in brain.leases.values().filter(|lease| lease.workload.is_none() && !lease.is_releasing()) {
            let reason = Reason::new("orphan", "the engine holds it and the log did not know it");
            self.say(Decision::Release { lease: lease.id }, reason);
        }
    }

    fn release_all(&mut self, job: &Job, reason: &Reason) {
        let ids: Vec<LeaseId> = self.leases(job).iter().filter(|lease| !lease.is_releasing()).map(|l| l.id).collect();
        for lease in ids {
            self.say(Decision::Release { lease }, reason.clone());
        }
    }

    /// Asks a stint to stop; when it does not, its machines are given back under it.
    fn stop(&mut self, job: &Job, stint: &Stint, reason: &Reason) {
        match stint.stopping {
            None => self.say(Decision::Stop { stint: stint.id, grace: job.spec.run.grace }, reason.clone()),
            Some(stopping) => {
                let overdue = stopping.at + stopping.grace + STOP_OVERRUN;
                if self.now >= overdue {
                    self.release_all(job, &Reason::new("stop-overrun", "the program did not stop in time"));
                } else {
                    self.wake_at(overdue);
                }
            }
        }
    }

    fn for_stint(&mut self, job: &Job, stint: &Stint) {
        if stint.stopping.is_some() {
            return self.stop(job, stint, &Reason::new("stop-overrun", "stopping"));
        }
        let ended = stint.workers.iter().any(|worker| worker.end.is_some());
        let clean =
            stint.workers.iter().all(|w| matches!(w.end, None | Some(crate::record::WorkerEnd::Exited { code: 0 })));
        if ended && !clean {
            return self.stop(job, stint, &Reason::new("gang", "a worker of the gang is gone, so the gang stops"));
        }
        let noticed: Vec<Time> = self.leases(job).iter().filter_map(|lease| ends_at(lease)).collect();
        if let Some(first) = noticed.into_iter().min() {
            return self.drain(job, stint, first);
        }
        let sight = self.brain.sight(job, self.now);
        let (choice, reason) = self.choose(job, &sight);
        match choice {
            Choice::Stay { until } => {
                self.wake_maybe(until);
                self.keep_saved(job, stint);
            }
            Choice::Take(_) | Choice::Wait { .. } => self.stop(job, stint, &reason),
        }
    }

    /// Lets a noticed gang save until the earliest of its notices; the agents have told the programs.
    fn drain(&mut self, job: &Job, stint: &Stint, first: Time) {
        if stint.leases.len() > 1 {
            // The survivors of a gang hear nothing from their own machines.
            let left = Span((first - self.now).0.max(0));
            let reason =
                Reason::new("notice", "a lease of the gang will be taken: all of it saves now").span("left", left);
            return self.stop(job, stint, &reason);
        }
        let overrun = first + self.brain.config.notice_overrun;
        if self.now >= overrun {
            let reason = Reason::new("notice-overrun", "the lease outlived its notice: giving it back");
            return self.release_all(job, &reason);
        }
        self.wake_at(overrun);
    }

    fn for_leases(&mut self, job: &Job) {
        let leases = self.leases(job);
        let held: Vec<&Lease> = leases.iter().copied().filter(|lease| !lease.is_releasing()).collect();
        let least = job.spec.least() as usize;
        if held.is_empty() {
            // One gang at a time: what is on its way back may still run something.
            return if leases.is_empty() { self.take(job) } else { Default::default() };
        }
        let doomed = held.len() < least || held.iter().any(|lease| ends_at(lease).is_some());
        if doomed {
            return self
                .release_all(job, &Reason::new("gang", "a lease is missing or will be taken: none of them is kept"));
        }
        let asked_at = held.iter().map(|lease| lease.asked_at).min().unwrap_or(self.now);
        let all_up = held.iter().all(|lease| lease.is_usable());
        let overdue = asked_at + self.brain.config.boot_timeout;
        if !all_up && self.now >= overdue {
            let reason =
                Reason::new("boot-timeout", "a lease did not come up in time").span("waited", self.now - asked_at);
            return self.release_all(job, &reason);
        }
        let ids: Vec<LeaseId> = held.iter().map(|lease| lease.id).collect();
        let sight = self.brain.sight(job, self.now);
        let (choice, reason) = self.choose(job, &sight);
        match choice {
            Choice::Take(_) | Choice::Wait { .. } => self.release_all(job, &reason),
            Choice::Stay { until } if !all_up => {
                self.wake_at(overdue);
                self.wake_maybe(until);
            }
            Choice::Stay { .. } => self.start(job, ids),
        }
    }

    fn start(&mut self, job: &Job, leases: Vec<LeaseId>) {
        let stint = StintId { workload: job.id, epoch: job.epoch + 1 };
        let resume = job.avoid.map_or(Resume::Newest, Resume::Before);
        let reason =
            Reason::new("start", if job.epoch == 0 { "every lease is up" } else { "every lease is up: resuming" })
                .count("leases", leases.len() as u64)
                .span(
                    "work safe",
                    job.rate(job.usual_accelerator())
                        .map(|rate| rate.time_for(job.progress.durable))
                        .unwrap_or_default(),
                );
        self.say(Decision::Start { stint, leases, resume }, reason);
    }

    fn take(&mut self, job: &Job) {
        let sight = self.brain.sight(job, self.now);
        let (choice, reason) = self.choose(job, &sight);
        match choice {
            Choice::Take(offer) => self.acquire(job, &offer, &reason),
            Choice::Stay { until } | Choice::Wait { until } => {
                self.wake_maybe(until);
                self.wake_maybe(sight.retry_at());
            }
        }
    }

    fn acquire(&mut self, job: &Job, offer: &OfferId, reason: &Reason) {
        let Some(offer) = self.brain.offers.get(offer) else { return };
        // As many as the market has, where that is known: speed and price go with the number.
        let most = offer.capacity.unwrap_or(job.spec.gang).clamp(job.spec.least(), job.spec.gang);
        for _ in 0..most {
            let seq = self.brain.last_seq + 1 + self.decided.len() as u64;
            let lease = LeaseId(DecisionId { installation: self.brain.installation, seq });
            let decision = Decision::Acquire {
                lease,
                workload: job.id,
                offer: offer.id.clone(),
                market: offer.market,
                max_price: job.spec.max_price.filter(|_| offer.market.can_be_taken()),
            };
            self.say(decision, reason.clone());
        }
    }

    fn wake_maybe(&mut self, at: Option<Time>) {
        if let Some(at) = at {
            // At least a millisecond on, so that a rule which is true only after its moment is reached.
            self.wake_at(at.max(self.now + Span(1)));
        }
    }
}

fn paused() -> Reason {
    Reason::new("paused", "paused: it holds nothing until its budget is raised")
}

fn ends_at(lease: &Lease) -> Option<Time> {
    match lease.phase {
        LeasePhase::Noticed { ends_at } => Some(ends_at),
        _ => None,
    }
}

impl Brain {
    /// What a job has cost up to `now`, leases that still run included.
    pub fn spent(&self, job: &Job, now: Time) -> NanoUsd {
        self.leases_of(job.id).fold(job.paid, |sum, lease| sum + lease.cost_at(now))
    }

    /// A job's leases that are not known to be gone.
    pub fn leases_of(&self, id: WorkloadId) -> impl Iterator<Item = &Lease> {
        self.leases.values().filter(move |lease| lease.workload == Some(id))
    }
}
