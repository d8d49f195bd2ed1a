//! What to do next, job by job. Everything here reads the state; only the wake-up cache changes.

use super::lookout::{Beliefs, fits};
use super::{Brain, Decided, Job, Lease, LeasePhase, Stint, StintPhase, Verdict};
use crate::ids::{DecisionId, LeaseId, StintId, WorkloadId};
use crate::market::foresight::PlanTerms;
use crate::market::{self, Choice, Present, Seen, Sight};
use crate::offer::{Offer, OfferId};
use crate::reason::Reason;
use crate::record::{Decision, Outcome, Resume};
use crate::spec::Late;
use crate::units::{NanoUsd, Span, Time};
use std::sync::Arc;

/// How a notification about a missed deadline begins; the fold knows it by that.
pub(super) const LATE: &str = "late:";
/// How a notification about a deadline that cannot be met begins.
pub(super) const INFEASIBLE: &str = "cannot make the deadline:";
/// A stop that is not over this long after its grace is ended by giving the leases back.
const STOP_OVERRUN: Span = Span::minutes(2);

/// Between two slices of a plan that is being solved.
const THINK_AGAIN: Span = Span(20);

/// Collects decisions and knows the sequence that each will have in the log.
struct Plan<'a> {
    brain: &'a Brain,
    now: Time,
    decided: Vec<Decided>,
    wake: Option<Time>,
    /// Plans that jobs would follow if they were solved.
    wanted: Vec<PlanTerms>,
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

    /// What a job's policy sees at `now`.
    pub fn sight(&self, job: &Job, now: Time) -> Sight {
        let held = self.leases.values().find(|lease| lease.workload == Some(job.id) && !lease.is_releasing());
        let watches = market::watches(&self.policy_of(job));
        let beliefs = watches.then(|| {
            let wanted = (job.spec.gang, job.spec.resources.as_slice());
            self.lookouts.beliefs(&self.model, self.config.look_every, wanted, now)
        });
        let beliefs = beliefs.unwrap_or_default();
        let accepted = self.offers.values().filter(|offer| accepts(job, offer));
        let offers: Vec<Seen> = accepted.map(|offer| self.seen(job, offer, &beliefs)).collect();
        let accelerator = held.and_then(|lease| self.offers.get(&lease.offer)).map_or("", |o| o.accelerator.as_str());
        let (rate, done) = (job.rate(accelerator), job.done_at(now));
        let running = job.stint.as_ref().is_some_and(|stint| stint.phase != StintPhase::Starting);
        let time_for = |work| rate.map(|rate| rate.time_for(work));
        let sight = Sight {
            now,
            began: job.submitted_at,
            deadline: deadline(job, now),
            need: job.total().and_then(|total| time_for(total.minus(done))),
            whole: job.total().and_then(time_for),
            restart: job.restart(&self.config),
            grace: job.spec.run.grace,
            at_risk: time_for(done.minus(job.progress.durable)).unwrap_or_default(),
            margins: self.config.margins,
            present: held.map(|lease| Present {
                offer: lease.offer.clone(),
                market: lease.market,
                running,
                // A program that was stopped starts anew, also on a lease that has long been there.
                since: match &job.stint {
                    Some(stint) => stint.wanted_at,
                    None => job.stint_over_at.map_or(lease.asked_at, |over| over.max(lease.asked_at)),
                },
            }),
            offers,
            anywhere: beliefs.anywhere,
            model: watches.then(|| Arc::clone(&self.model)),
            plan: None,
        };
        let plan = sight.plan_terms().filter(|_| watches).and_then(|terms| self.shelf.find(&terms)).cloned();
        Sight { plan, ..sight }
    }

    fn seen(&self, job: &Job, offer: &Offer, beliefs: &Beliefs) -> Seen {
        Seen {
            id: offer.id.clone(),
            market: offer.market,
            price: offer.price_per_hour,
            entry: NanoUsd(0),
            available: offer.capacity.is_none_or(|capacity| capacity >= job.spec.gang),
            refused_until: self.refused.get(&offer.id).copied(),
            belief: beliefs.zones.get(&offer.id).cloned(),
        }
    }
}

/// The deadline that still binds at `now`: one that has passed does not, unless sooner is still better.
fn deadline(job: &Job, now: Time) -> Option<Time> {
    job.spec.deadline.filter(|deadline| *deadline > now || job.spec.late == Late::Soonest)
}

/// Whether a job can use an offer at its price.
fn accepts(job: &Job, offer: &Offer) -> bool {
    let cheap = !offer.market.can_be_taken() || job.spec.max_price.is_none_or(|max| offer.price_per_hour <= max);
    fits(&job.spec.resources, offer) && cheap
}

impl Plan<'_> {
    fn say(&mut self, decision: Decision, reason: Reason) {
        self.decided.push(Decided { decision, reason });
    }

    fn wake_at(&mut self, at: Time) {
        self.wake = Some(self.wake.map_or(at, |wake| wake.min(at)));
    }

    fn leases(&self, job: &Job) -> Vec<&Lease> {
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
        match &job.stint {
            Some(stint) => self.for_stint(job, stint),
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

    /// Whether the job is to end, and how.
    fn ending(&mut self, job: &Job) -> Option<(Outcome, Reason)> {
        match &job.verdict {
            Some(Verdict::Done) => {
                return Some((Outcome::Succeeded, Reason::new("done", "the program exited with code 0")));
            }
            Some(Verdict::Failed { code, why }) => {
                let reason =
                    Reason::new("failed", why.clone()).count("failures", job.failures.max(job.fruitless).into());
                return Some((Outcome::Failed { code: *code, why: why.clone() }, reason));
            }
            None => {}
        }
        if let Some(by) = &job.cancelled_by {
            return Some((
                Outcome::Cancelled { by: by.clone() },
                Reason::new("cancelled", format!("cancelled by {by}")),
            ));
        }
        if let Some(deadline) = job.spec.deadline.filter(|_| job.spec.late == Late::Stop) {
            if self.now >= deadline {
                let reason = Reason::new("late", "the deadline has passed and `late: stop` says to stop");
                return Some((Outcome::StoppedByRule { rule: "late".to_owned() }, reason));
            }
            self.wake_at(deadline);
        }
        self.over_budget(job)
    }

    /// Ends a job before its budget would be exceeded, with enough kept for a last save.
    fn over_budget(&mut self, job: &Job) -> Option<(Outcome, Reason)> {
        let budget = job.spec.budget?;
        let spent = self.brain.spent(job, self.now);
        let leases = self.leases(job);
        let rate = leases.iter().filter_map(|l| l.meter.as_ref()).fold(NanoUsd(0), |sum, meter| sum + meter.rate);
        let reserve = rate.for_span(job.spec.run.grace + Span::minutes(1));
        let left = budget - spent - reserve;
        if left.0 <= 0 {
            let reason =
                Reason::new("budget", "going on would exceed the budget").money("budget", budget).money("spent", spent);
            return Some((Outcome::StoppedByRule { rule: "budget".to_owned() }, reason));
        }
        if rate.0 > 0 {
            let lasts = i128::from(left.0) * 3_600_000 / i128::from(rate.0);
            self.wake_at(self.now + Span(i64::try_from(lasts).unwrap_or(Span::FOREVER.0).max(1_000)));
        }
        None
    }

    /// Says what people should hear once.
    fn tell(&mut self, job: &Job) {
        let Some(deadline) = job.spec.deadline else { return };
        if job.told_late {
            return;
        }
        if self.now >= deadline {
            let text = format!("{LATE} the deadline has passed");
            let reason = Reason::new("late", "the deadline has passed").span("by", self.now - deadline);
            return self.say(Decision::Notify { workload: job.id, text }, reason);
        }
        self.wake_at(deadline);
        let sight = self.brain.sight(job, self.now);
        if let Some(slack) = sight.slack().filter(|slack| slack.0 < 0 && !job.told_infeasible) {
            let text = format!("{INFEASIBLE} the earliest finish is {} after it", Span(-slack.0));
            let reason = Reason::new("infeasible", "not even on-demand makes it").span("slack", slack);
            self.say(Decision::Notify { workload: job.id, text }, reason);
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
            Choice::Stay { until } => self.wake_maybe(until),
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
        let gang = job.spec.gang as usize;
        if held.is_empty() {
            // One gang at a time: what is on its way back may still run something.
            return if leases.is_empty() { self.take(job) } else { Default::default() };
        }
        let doomed = held.len() != gang || held.iter().any(|lease| ends_at(lease).is_some());
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
                .span("work safe", job.rate("").map(|rate| rate.time_for(job.progress.durable)).unwrap_or_default());
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
        for _ in 0..job.spec.gang {
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

    fn choose(&mut self, job: &Job, sight: &Sight) -> (Choice, Reason) {
        let late = job.spec.deadline.is_some_and(|deadline| self.now >= deadline);
        let worn_out = job.spec.fallback.as_ref().is_some_and(|fallback| {
            job.interruptions >= fallback.after && fallback.to.iter().any(|to| to == "on-demand")
        });
        let name = match (&job.spec.policy, job.spec.late) {
            _ if worn_out => "on-demand",
            (_, Late::Soonest) if late => "on-demand",
            (_, Late::Cheapest) if late => "greedy",
            (Some(name), _) => name.as_str(),
            (None, _) => self.brain.config.policy.as_str(),
        };
        if market::plans(name) {
            self.wanted.extend(sight.plan_terms());
        }
        market::choose(market::policy(name).unwrap_or(market::levi_safe), sight)
    }

    fn wake_maybe(&mut self, at: Option<Time>) {
        if let Some(at) = at {
            // At least a millisecond on, so that a rule which is true only after its moment is reached.
            self.wake_at(at.max(self.now + Span(1)));
        }
    }
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
