//! What a job cost, what else it might have cost, and what cannot be promised before it begins.

use crate::api_types::{Bill, Forecast};
use windfall_core::market::foresight::{ForecastTerms, Losses, Model};
use windfall_core::spec::Late;
use windfall_core::view::JobView;
use windfall_core::{JobSpec, NanoUsd, Offer, Span};
use windfall_exec::{PastJob, Recording};

/// A start where the job does not say how long one takes.
const USUAL_START: Span = Span::minutes(3);

/// The bill of a job that is over. Recordings know what it might have cost at least; `forecast` is what was expected.
pub fn bill<'a>(
    job: &JobView,
    forecast: Option<Forecast>,
    recordings: impl IntoIterator<Item = &'a dyn Recording>,
) -> Bill {
    let ended = job.ended_at.unwrap_or(job.at);
    let began = job.began_at.unwrap_or(job.submitted_at);
    // Without a deadline, whoever knows the market may take as long as the job took.
    let until = job.deadline.unwrap_or(ended).max(ended);
    let (work, restart, gang) = (job.useful(), job.restart, job.gang);
    let past = PastJob { began, deadline: until - began, work, restart, gang };
    let least = recordings.into_iter().filter(|_| work.0 > 0).filter_map(|recording| recording.least_cost(&past)).min();
    Bill {
        cost: job.cost,
        spot_cost: job.spot_cost,
        firm_cost: job.firm_cost,
        owned_cost: job.owned_cost,
        spot: job.spot,
        firm: job.firm,
        owned: job.owned,
        on_demand_only: job.on_demand_only(),
        // What was done can be done: the steps of a recording and mean changeovers may ask for a little more.
        omniscient: least.map(|least| least.min(job.cost)),
        forecast,
    }
}

/// What a forecast depends on beside the job.
#[derive(Clone, Copy, Debug)]
pub struct Terms {
    pub deadline_in: Option<Span>,
    /// It buys nothing that can be taken away.
    pub on_demand: bool,
}

/// What the job is expected to cost and to take on what is for sale, by the same model that the brain and the planner
/// use. None where no recording says how often capacity is lost.
pub fn forecast(spec: &JobSpec, terms: Terms, offers: &[Offer], recordings: &[&dyn Recording]) -> Option<Forecast> {
    let firm = cheapest_firm(spec, offers)?;
    let need = on_demand_time(spec, &firm.accelerator)?;
    let spot = offers.iter().filter(|offer| offer.market.can_be_taken() && serves(spec, offer));
    let spot = spot.map(|offer| offer.price_per_hour).min()?;
    let restart = spec.checkpoint.restart.unwrap_or(USUAL_START);
    let on_demand = firm.price_per_hour;
    if terms.on_demand {
        // Nothing is uncertain but the work itself.
        let elapsed = need + restart;
        let cost = NanoUsd(on_demand.for_span(elapsed).0.saturating_mul(i64::from(spec.gang)));
        return Some(Forecast { cost, low: cost, high: cost, elapsed });
    }
    // A deadline that is lost costs nothing where lateness is to be cheap.
    let left = terms.deadline_in.filter(|left| *left >= need + restart || spec.late != Late::Cheapest);
    let lacks = recordings.iter().all(|recording| recording.ever_lacks(spec.gang));
    let terms = ForecastTerms {
        need,
        left,
        restart,
        undone: Span::ZERO,
        tick: recordings.iter().map(|recording| recording.tick()).min()?,
        losses: Losses::Recorded(if lacks { 1.0 } else { 0.0 }).of_gang(spec.gang),
        has_firm: true,
        // The work is what the job file says, and a replayed market refuses no on-demand capacity.
        spread: 0.0,
        refused: 0.0,
    };
    let forecast = Model::embedded().forecast(&terms);
    let instances = f64::from(spec.gang);
    let cost = forecast.expect(|outcome| {
        instances * (spot.for_span(outcome.spot).dollars() + on_demand.for_span(outcome.firm).dollars())
    });
    let takes = forecast.expect(|outcome| outcome.elapsed.0 as f64);
    Some(Forecast {
        cost: NanoUsd::from_dollars(cost.mean),
        low: NanoUsd::from_dollars(cost.low),
        high: NanoUsd::from_dollars(cost.high),
        elapsed: Span(takes.mean as i64),
    })
}

/// The cheapest offer that serves a job and is kept until given back.
fn cheapest_firm<'a>(spec: &JobSpec, offers: &'a [Offer]) -> Option<&'a Offer> {
    let firm = offers.iter().filter(|offer| !offer.market.can_be_taken() && serves(spec, offer));
    firm.min_by_key(|offer| offer.price_per_hour)
}

fn serves(spec: &JobSpec, offer: &Offer) -> bool {
    spec.resources.is_empty() || spec.resources.iter().any(|ask| ask.accelerator == offer.accelerator)
}

/// How long a job may take on on-demand capacity, as a span for promises.
fn on_demand_time(spec: &JobSpec, accelerator: &str) -> Option<Span> {
    let rate = spec.work.rates.get(accelerator).or_else(|| spec.work.rates.values().min()).copied();
    let rate =
        rate.or((spec.work.unit == windfall_core::spec::WorkUnit::Time).then_some(windfall_core::Rate::REAL_TIME))?;
    spec.work.total.map(|total| rate.time_for(total))
}

/// What a user should hear before the job begins: promises that cannot be given. That a deadline cannot be met, the
/// brain says itself.
pub fn promises(spec: &JobSpec, deadline_in: Option<Span>, offers: &[Offer]) -> Vec<String> {
    let mut notes = Vec::new();
    let firm = cheapest_firm(spec, offers);
    let need = on_demand_time(spec, firm.map_or("", |firm| firm.accelerator.as_str()));
    let start = spec.checkpoint.restart.unwrap_or(USUAL_START);
    if deadline_in.is_some() && need.is_none() {
        notes.push(
            "how much work there is was not said, so the deadline is kept on on-demand capacity until the program tells".to_owned(),
        );
    }
    if let (Some(budget), Some(need), Some(firm)) = (spec.budget, need, firm) {
        let cost = NanoUsd(firm.price_per_hour.for_span(need + start).0.saturating_mul(i64::from(spec.gang)));
        if cost > budget {
            notes.push(format!(
                "on-demand alone would cost {cost}, more than the budget of {budget}: the deadline is promised only while the budget allows it"
            ));
        }
    }
    notes
}
