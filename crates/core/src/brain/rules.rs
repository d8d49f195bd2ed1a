//! A job's own rules: its policy and what replaces it, its deadline when that is lost, its budget, and when it saves.

use super::decide::Round;
use super::lookout::fits;
use super::{Brain, Job, Stint, StintPhase, Verdict};
use crate::Offer;
use crate::market::{self, Choice, Sight};
use crate::reason::Reason;
use crate::record::{Decision, Outcome};
use crate::spec::{JobSpec, Late, Priority};
use crate::told::Told;
use crate::units::{NanoUsd, Span};

/// Interruptions in a row without anything saved after which spot brings nothing here.
const GIVE_UP: u32 = 3;
/// Hundredths of the work left by which a deadline must be missed before `late: stop` acts on an estimate.
const SURE: i64 = 10;
/// Saves that were asked for and did not come; then the program does not listen.
const UNANSWERED: u32 = 3;

impl Brain {
    /// The policy of a job as long as nothing else rules.
    pub fn usual_policy<'a>(&'a self, spec: &'a JobSpec) -> &'a str {
        match (&spec.policy, spec.priority) {
            (Some(name), _) => name,
            // What nobody takes away, from the start. Priority chooses the market; who yields to whom is the tier.
            (None, Priority::Critical) => "on-demand",
            (None, Priority::Normal | Priority::Low) => &self.config.policy,
        }
    }

    /// What a job is to do now by its policy, or by what rules in its place.
    pub(crate) fn choose(&self, job: &Job, sight: &Sight) -> (Choice, Reason) {
        if sight.offers.is_empty() && sight.present.is_none() {
            return (Choice::Wait { until: None }, self.nothing_fits(&job.spec));
        }
        let lost = sight.late_by().is_some() || job.spec.deadline.is_some_and(|deadline| sight.now >= deadline);
        if lost && job.spec.late == Late::Cheapest {
            let (choice, reason) = market::choose(market::greedy, &Sight { deadline: None, ..sight.clone() });
            return (choice, Reason { text: format!("the deadline is lost: {}", reason.text), ..reason });
        }
        let tired = job.interruptions_in_row >= GIVE_UP && job.spec.policy.is_none();
        if (tired || lost) && sight.firm().is_some() {
            let (choice, reason) = market::choose(market::on_demand, sight);
            let why = match lost {
                true => "the deadline is lost: as soon as possible",
                false => "spot brings nothing here: on-demand until something is saved",
            };
            let reason = Reason { text: why.to_owned(), ..reason };
            return (choice, reason.count("interruptions", job.interruptions.into()));
        }
        let name = self.usual_policy(&job.spec);
        market::choose(market::policy(name).unwrap_or(market::levi_safe), sight)
    }
}

impl Brain {
    /// Whether nothing that is on offer could ever serve a job, and why: said before it is accepted, and while it waits.
    pub fn nothing_fits(&self, spec: &JobSpec) -> Reason {
        let wanted: Vec<String> = spec.resources.iter().map(ToString::to_string).collect();
        let mut sold: Vec<String> =
            self.offers.values().filter(|offer| offer.accelerators > 0).map(Offer::what).collect();
        sold.sort();
        sold.dedup();
        let sold = match (sold.is_empty(), self.offers.is_empty()) {
            (true, true) => "nothing".to_owned(),
            (true, false) => "processors without accelerators".to_owned(),
            (false, _) => sold.join(", "),
        };
        Reason::new("nothing-fits", format!("nothing on offer has {}: what is sold is {sold}", wanted.join(" or ")))
    }

    /// Whether any offer has what a job asks for.
    pub fn can_serve(&self, spec: &JobSpec) -> bool {
        self.offers.values().any(|offer| fits(&spec.resources, offer))
    }
}

impl Job {
    /// The share of its cost that a wait must be expected to save while spot can be had, in thousandths.
    pub(super) fn worth_waiting_permille(&self) -> u32 {
        match (self.spec.worth_waiting_permille, self.spec.priority) {
            (Some(permille), _) => permille,
            // It runs when it is cheapest, however long that takes.
            (None, Priority::Low) => 0,
            (None, Priority::Critical | Priority::Normal) => market::WORTH_WAITING_PERMILLE,
        }
    }
}

/// By how much a price may rise before whoever has a budget is asked. Less, and prices that waver wake everybody; more, and
/// budgets are looked at long before they end.
fn quarter(price: NanoUsd) -> NanoUsd {
    NanoUsd(price.0.max(0) / 4)
}

impl Round<'_> {
    /// What a job is to do, and a plan for it to follow, if its policy follows plans.
    pub(super) fn choose(&mut self, job: &Job, sight: &Sight) -> (Choice, Reason) {
        if market::plans(self.brain.usual_policy(&job.spec)) {
            self.wanted = sight.plan_terms();
        }
        self.brain.choose(job, sight)
    }

    /// Whether the job is to end, and how.
    pub(super) fn ending(&mut self, job: &Job, sight: &Sight) -> Option<(Outcome, Reason)> {
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
            let reason = Reason::new("cancelled", format!("cancelled by {by}"));
            return Some((Outcome::Cancelled { by: by.clone() }, reason));
        }
        self.stopped_late(job, sight)
    }

    /// `late: stop`, at the deadline, or before it once it is surely lost.
    fn stopped_late(&mut self, job: &Job, sight: &Sight) -> Option<(Outcome, Reason)> {
        let deadline = job.spec.deadline.filter(|_| job.spec.late == Late::Stop)?;
        let stop = |reason| Some((Outcome::StoppedByRule { rule: "late".to_owned() }, reason));
        if self.now >= deadline {
            return stop(Reason::new("late", "the deadline has passed and `late: stop` says to stop"));
        }
        self.wake_at(deadline);
        let surely = sight.need.unwrap_or_default().scaled(SURE, 100);
        sight.lost_at(surely).into_iter().for_each(|at| self.wake_at(at));
        let late = sight.late_by()?;
        if late <= surely {
            return None;
        }
        let text = "the deadline cannot be met and `late: stop` says to stop";
        stop(Reason::new("late", text).span("late by", late).span("work left", sight.need.unwrap_or_default()))
    }

    /// Whether going on would exceed the budget, with enough kept for a last save.
    pub(super) fn over_budget(&mut self, job: &Job) -> Option<Reason> {
        let budget = job.spec.budget?;
        let spent = self.brain.spent(job, self.now);
        let leases = || self.brain.used_by(job.id).map(|(lease, _)| lease);
        let rate = leases().fold(NanoUsd(0), |sum, lease| sum + self.brain.hourly(lease, job.id));
        // Whoever shares a machine may have to pay for all of it from one moment to the next.
        let dearest = leases().fold(NanoUsd(0), |sum, lease| sum + self.brain.hourly_of_all(lease));
        let reserve = rate.max(dearest).for_span(job.spec.run.grace + Span::minutes(1));
        let left = budget - spent - reserve;
        if left.0 <= 0 {
            let reason = Reason::new("budget", "going on would exceed the budget: paused");
            return Some(reason.money("budget", budget).money("spent", spent));
        }
        // Looks again while it would last if everything rose by a quarter; near its end, it hears of every rise.
        let dearer = left - quarter(reserve);
        let (left, rate, rise) = if dearer.0 > 0 { (dearer, rate + quarter(rate), true) } else { (left, rate, false) };
        if rate.0 > 0 {
            let lasts = i128::from(left.0) * 3_600_000 / i128::from(rate.0);
            self.wake_at(self.now + Span(i64::try_from(lasts).unwrap_or(Span::FOREVER.0).max(1_000)));
        }
        let ceiling = |price: NanoUsd| if rise { price + quarter(price) } else { price };
        // What is not paid for yet, or paid for by its node, is no matter of the offer's price.
        let paid = leases().filter(|lease| lease.meter.as_ref().is_some_and(|meter| !meter.is_free()));
        self.heeds = paid.map(|lease| (lease.offer.clone(), ceiling(self.brain.rate_of(lease)))).collect();
        None
    }

    /// Says what people should hear once.
    pub(super) fn tell(&mut self, job: &Job, sight: &Sight) {
        let Some(deadline) = job.spec.deadline else { return };
        // A program that has ended well is not late any more, however long the rest takes.
        if job.told_late || job.verdict == Some(Verdict::Done) {
            return;
        }
        if self.now >= deadline {
            let reason = Reason::new("late", "the deadline has passed").span("by", self.now - deadline);
            return self.say(Decision::Notify { workload: job.id, told: Told::Late }, reason);
        }
        self.wake_at(deadline);
        sight.lost_at(Span::ZERO).into_iter().for_each(|at| self.wake_at(at));
        if let Some(late) = sight.late_by().filter(|_| !job.told_infeasible) {
            self.tell_infeasible(job, sight, late);
        }
    }

    fn tell_infeasible(&mut self, job: &Job, sight: &Sight, late: Span) {
        let takes = sight.need.unwrap_or_default() + sight.starting();
        let reason = Reason::new("infeasible", "not even on-demand makes it").span("late by", late);
        let price = sight.firm().map(|firm| firm.price.for_span(takes));
        let price = price.map(|price| NanoUsd(price.0.saturating_mul(i64::from(job.spec.gang))));
        let reason = price.iter().fold(reason, |reason, price| reason.money("price of that", *price));
        let told = Told::Infeasible { late, price, then: job.spec.late };
        self.say(Decision::Notify { workload: job.id, told }, reason);
    }

    /// Asks a running gang to save when that is due, or at once when a lease of it is at risk.
    pub(super) fn keep_saved(&mut self, job: &Job, stint: &Stint) {
        let StintPhase::Running { since } = stint.phase else { return };
        let last = stint.save_asked.map_or(since, |asked| asked.at).max(stint.saved_at.unwrap_or(since));
        let leases = stint.leases().filter_map(|id| self.brain.leases.get(&id));
        let risky = leases.filter_map(|lease| lease.at_risk_since).max();
        if risky.is_some_and(|risky| risky > last) {
            let reason =
                Reason::new("at-risk", "the market says that a lease may be taken soon: the program saves now");
            return self.say(Decision::Checkpoint { stint: stint.id }, reason);
        }
        if stint.unanswered >= UNANSWERED {
            return;
        }
        let (every, lasts) = self.save_every(job, stint);
        let due = last + every;
        if self.now < due {
            return self.wake_at(due);
        }
        let reason = Reason::new("interval", "a save is due by what a save costs and how long the lease will last");
        let reason = reason.span("since the last", self.now - last).span("every", every);
        let reason = lasts.iter().fold(reason, |reason, lasts| reason.span("lease lasts", *lasts));
        self.say(Decision::Checkpoint { stint: stint.id }, reason);
    }

    /// How often to save, from the live hazard; and how long the lease is expected to last, where that is believed.
    fn save_every(&mut self, job: &Job, stint: &Stint) -> (Span, Option<Span>) {
        if let Some(every) = job.spec.checkpoint.every {
            return (every, None);
        }
        let brain = self.brain;
        let held = stint.leases().filter_map(|id| brain.leases.get(&id)).find(|lease| lease.market.can_be_taken());
        let beliefs = held.map(|_| brain.beliefs(&mut self.look, job, self.now));
        let belief = held.zip(beliefs.as_ref()).and_then(|(lease, beliefs)| beliefs.zones.get(&lease.offer));
        let lasts = belief.map(|belief| brain.model.expected_lifetime(belief));
        let takes = market::save_takes(job.spec.checkpoint.size_bytes);
        (market::save_every(takes, lasts.unwrap_or(Self::FIRM_LASTS)), lasts)
    }

    /// Machines that nobody takes away fail as well.
    const FIRM_LASTS: Span = Span::hours(24 * 30);
}
