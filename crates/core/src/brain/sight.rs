//! What a job's policy sees: the state of the brain in the policy's terms. Offers that are not equally fast are
//! made comparable here: prices are those of an hour's work at one speed, the speed that a deadline is promised on.

use super::lookout::{Beliefs, SeenInStep, fits};
use super::{Brain, Job, Lease, LeasePhase, StintPhase};
use crate::market::{self, Present, Seen, Sight};
use crate::offer::{Market, Offer, OfferId};
use crate::spec::{Ask, Fallback, Late, Smaller};
use crate::units::{NanoUsd, Rate, Span, Time, Work};
use std::sync::Arc;

impl Brain {
    /// What a job's policy sees at `now`.
    pub fn sight(&self, job: &Job, now: Time) -> Sight {
        self.sight_in(&mut Look::default(), job, now)
    }

    /// The same in a step that has looked for others already.
    pub(super) fn sight_in<'a>(&'a self, look: &mut Look<'a>, job: &Job, now: Time) -> Sight {
        let held = self.present_lease(job);
        let watches = market::watches(self.usual_policy(&job.spec));
        let beliefs = if watches { self.beliefs(look, job, now) } else { Arc::default() };
        let done = job.done_at(now);
        let rest = job.total().map(|total| total.minus(done));
        let accepted = self.accepted(look, job, held);
        let own = held.and_then(|lease| self.offers.get(&lease.offer));
        let pace = self.pace(job, &accepted, rest, own, now);
        let offers = accepted.iter().filter(|offer| !pace.too_slow.contains(&&offer.id));
        let offers: Vec<Seen> = offers.map(|offer| self.seen(job, offer, &beliefs, pace.rate)).collect();
        let running = job.stint.as_ref().is_some_and(|stint| stint.phase != StintPhase::Starting);
        let time_for = |work| pace.rate.map(|rate| rate.time_for(work));
        let waits = self.droughts.waits(now);
        let firm = accepted.iter().filter(|offer| !offer.market.can_be_taken());
        let sight = Sight {
            now,
            began: job.submitted_at,
            deadline: deadline(job, now),
            need: rest.and_then(time_for),
            whole: job.total().and_then(time_for),
            restart: job.restart(&self.config),
            grace: job.spec.run.grace,
            at_risk: time_for(done.minus(job.progress.durable)).unwrap_or_default(),
            saves_when_told: job.saves_when_told == Some(true),
            slow_restart: Span((job.slowest_restart - job.restart(&self.config)).0.max(0)),
            silent: job.silent_at(now),
            firm_wait: firm.map(|offer| waits.get(&offer.id).copied().unwrap_or_default()).min().unwrap_or_default(),
            renewals: self.renewals(job, held, &waits, now),
            worth_waiting_permille: job.worth_waiting_permille(),
            margins: self.config.margins,
            present: held.map(|lease| Present {
                offer: lease.offer.clone(),
                market: lease.market,
                running,
                // A program that was stopped starts anew, also on a lease that has long been there.
                since: match (&job.stint, self.on_its_way_since(lease)) {
                    (Some(stint), _) => stint.wanted_at,
                    (None, Some(since)) => job.stint_over_at.map_or(since, |over| over.max(since)),
                    // In an engine's own queue nothing has begun yet.
                    (None, None) => now,
                },
            }),
            offers,
            anywhere: beliefs.anywhere.clone(),
            model: watches.then(|| Arc::clone(&self.model)),
            plan: None,
            plan_is_coming: false,
        };
        let terms = sight.plan_terms().filter(|_| watches);
        let plan = terms.and_then(|terms| self.plan_cache.find(&terms)).cloned();
        let plan_is_coming = plan.is_none() && terms.is_some_and(|terms| self.plan_cache.will_have(&terms));
        Sight { plan, plan_is_coming, ..sight }
    }

    /// The lease that stands for all that a job has: its own, or another's on which it runs.
    fn present_lease(&self, job: &Job) -> Option<&Lease> {
        let held = self.used_by(job.id).map(|(lease, _)| lease).filter(|lease| !lease.is_releasing());
        held.min_by_key(|lease| (lease.workload != Some(job.id), lease.id))
    }

    /// Whether a job runs on what is bought on a market for no more than a price: whether it could have another offer there
    /// from that price on makes no difference. Beliefs may tell the two apart: whoever goes by them looks again within a tick,
    /// or with the next word of its program.
    pub(super) fn has_no_less(&self, job: &Job, market: Market, price: NanoUsd) -> bool {
        if job.spec.resources.len() != 1 || job.fallback().is_some() {
            return false;
        }
        let runs = job.stint.as_ref().is_some_and(|stint| stint.phase != StintPhase::Starting);
        let held = self.present_lease(job).filter(|lease| runs && lease.phase == LeasePhase::Up);
        held.and_then(|lease| self.offers.get(&lease.offer))
            .is_some_and(|held| held.market == market && held.price_per_hour <= price)
    }

    /// What is believed about the markets that a job buys on.
    pub(super) fn beliefs(&self, look: &mut Look, job: &Job, now: Time) -> Arc<Beliefs> {
        let wanted = (job.spec.least(), job.spec.resources.as_slice());
        let believed = || self.lookouts.beliefs(&self.model, self.config.look_every, wanted, now);
        look.beliefs.of(wanted, || Arc::new(believed()))
    }

    fn seen(&self, job: &Job, offer: &Offer, beliefs: &Beliefs, pace: Option<Rate>) -> Seen {
        Seen {
            id: offer.id.clone(),
            market: offer.market,
            price: at_pace(offer.price_per_hour, job.rate_on(offer), pace),
            entry: self.way_to(job, offer),
            available: offer.capacity.is_none_or(|capacity| capacity >= job.spec.least())
                && affordable(job, offer)
                && self.silent_since(&offer.engine).is_none(),
            refused_until: self.refused.get(&offer.id).max(job.refused.get(&offer.id)).copied(),
            belief: beliefs.zones.get(&offer.id).cloned(),
        }
    }

    /// What it costs to bring a job's checkpoint to an offer.
    fn way_to(&self, job: &Job, offer: &Offer) -> NanoUsd {
        let (Some(home), Some(bytes), Some(place)) = (&job.home, job.spec.checkpoint.size_bytes, offer.place()) else {
            return NanoUsd(0);
        };
        let way = self.config.ways.iter().find(|way| way.from == *home && way.to == place);
        way.map_or(NanoUsd(0), |way| way.cost(bytes))
    }

    /// Offers that a job can use. What is held stays acceptable.
    fn accepted<'a>(&'a self, look: &mut Look<'a>, job: &Job, held: Option<&Lease>) -> Arc<Vec<&'a Offer>> {
        let asks = job.spec.resources.as_slice();
        if job.fallback().is_none() {
            let asked = || self.offers.of_asks(asks).into_iter().filter(|offer| fits(asks, offer)).collect();
            return look.offers.of((job.spec.least(), asks), || Arc::new(asked()));
        }
        let is_held = |offer: &Offer| held.is_some_and(|lease| lease.offer == offer.id);
        let accepts = |offer: &&Offer| {
            fits(asks, offer) && (is_held(offer) || !offer.market.can_be_taken()) || job.smaller(offer).is_some()
        };
        Arc::new(self.offers.values().filter(accepts).collect())
    }

    /// The speed that everything is measured at: of the on-demand offer that does the work most cheaply in time, else of
    /// what is held, else of what was asked for.
    fn pace<'a>(
        &self,
        job: &Job,
        offers: &[&'a Offer],
        rest: Option<Work>,
        own: Option<&Offer>,
        now: Time,
    ) -> Pace<'a> {
        let refused = |offer: &Offer| self.refused.get(&offer.id).is_some_and(|until| *until > now);
        let firm = offers.iter().filter(|offer| !offer.market.can_be_taken() && !refused(offer));
        let firm: Vec<(Rate, &Offer)> = firm.filter_map(|offer| Some((job.rate_on(offer)?, *offer))).collect();
        let restart = job.restart(&self.config);
        let spare = |span: Span| span.scaled(self.config.margins.spare_percent, 100) + self.config.margins.always;
        let in_time = |rate: Rate| match (deadline(job, now), rest.map(|rest| rate.time_for(rest))) {
            (Some(deadline), Some(need)) => deadline - now >= need + spare(need) + restart,
            _ => true,
        };
        let per_work =
            |(rate, offer): &&(Rate, &Offer)| (i128::from(offer.price_per_hour.0) << 32) / i128::from(rate.0.max(1));
        let best = firm.iter().filter(|(rate, _)| in_time(*rate)).min_by_key(per_work);
        let chosen = best.or_else(|| firm.iter().max_by_key(|(rate, _)| *rate)).map(|(rate, _)| *rate);
        let slow = firm.iter().filter(|(rate, _)| best.is_some() && !in_time(*rate));
        Pace {
            rate: chosen.or_else(|| job.rate_on(own?)).or_else(|| job.rate(job.usual_accelerator())),
            too_slow: slow.map(|(_, offer)| &offer.id).collect(),
        }
    }
}

/// What jobs that want the same thing see in one step.
#[derive(Default)]
pub(super) struct Look<'a> {
    beliefs: SeenInStep<Arc<Beliefs>>,
    offers: SeenInStep<Arc<Vec<&'a Offer>>>,
}

struct Pace<'a> {
    rate: Option<Rate>,
    /// Firm offers on which the deadline would be missed, while others keep it.
    too_slow: Vec<&'a OfferId>,
}

/// Whether an offer costs no more an hour than the job allows for spot.
pub(super) fn affordable(job: &Job, offer: &Offer) -> bool {
    !offer.market.can_be_taken() || job.spec.max_price.is_none_or(|max| offer.price_per_hour <= max)
}

/// A price of the work of an hour at another speed.
fn at_pace(price: NanoUsd, own: Option<Rate>, pace: Option<Rate>) -> NanoUsd {
    match (own, pace) {
        (Some(own), Some(pace)) if own != pace && own.0 > 0 => {
            let scaled = i128::from(price.0) * i128::from(pace.0) / i128::from(own.0);
            NanoUsd(i64::try_from(scaled).unwrap_or(i64::MAX))
        }
        _ => price,
    }
}

/// The deadline that still binds at `now`: one that has passed does not, unless sooner is still better.
fn deadline(job: &Job, now: Time) -> Option<Time> {
    job.spec.deadline.filter(|deadline| *deadline > now || job.spec.late == Late::Soonest)
}

impl Job {
    /// The fallback, once it applies.
    pub fn fallback(&self) -> Option<&Fallback> {
        let fallback = self.spec.fallback.as_ref().filter(|fallback| self.interruptions >= fallback.after)?;
        (fallback.on_demand() || !fallback.smaller.is_empty()).then_some(fallback)
    }

    /// What an offer stands for in the fallback, once that applies.
    pub fn smaller(&self, offer: &Offer) -> Option<&Smaller> {
        let matches = |ask: &Ask| ask.accelerator == offer.accelerator && ask.count <= offer.accelerators;
        if fits(&self.spec.resources, offer) {
            return None;
        }
        self.fallback()?.smaller.iter().find(|smaller| matches(&smaller.ask))
    }

    /// The job's speed on an offer.
    pub fn rate_on(&self, offer: &Offer) -> Option<Rate> {
        match self.smaller(offer) {
            Some(smaller) => {
                let share = u128::from(smaller.speed_permille);
                let scaled = |rate: Rate| Rate(u64::try_from(u128::from(rate.0) * share / 1_000).unwrap_or(u64::MAX));
                self.measured(&offer.accelerator).or_else(|| self.rate(self.usual_accelerator()).map(scaled))
            }
            None => self.rate(&offer.accelerator),
        }
    }

    /// The accelerator that the job asks for first.
    pub(super) fn usual_accelerator(&self) -> &str {
        self.spec.resources.first().map_or("", |ask| ask.accelerator.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_price_at_another_speed_is_that_of_the_same_work() {
        let price = NanoUsd(1_000);
        assert_eq!(at_pace(price, Some(Rate(50)), Some(Rate(100))), NanoUsd(2_000));
        assert_eq!(at_pace(price, Some(Rate(0)), Some(Rate(100))), price, "of a speed of nothing nothing follows");
        assert_eq!(at_pace(price, None, Some(Rate(100))), price);
    }
}
