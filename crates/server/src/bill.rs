//! What a job cost, what else it might have cost, and what cannot be promised before it begins.

use crate::api_types::{Bill, Forecast};
use crate::folders::JobNotes;
use windfall_core::market::foresight::{ForecastTerms, Losses, Model};
use windfall_core::spec::Late;
use windfall_core::view::JobView;
use windfall_core::{JobSpec, NanoUsd, Span};
use windfall_sim::{Tape, TapeJob, omniscient};

/// A start where the job does not say how long one takes.
const USUAL_START: Span = Span::minutes(3);

/// The bill of a job that is over.
pub fn bill(job: &JobView, kept: Option<&JobNotes>, tape: &Tape) -> Bill {
    let ended = job.ended_at.unwrap_or(job.at);
    let began = job.began_at.unwrap_or(job.submitted_at);
    // Without a deadline, whoever knows the market may take as long as the job took.
    let until = job.deadline.unwrap_or(ended).max(ended);
    let tape_job = kept.map(|kept| TapeJob {
        from: kept.tape_offset + (began - job.submitted_at),
        deadline: until - began,
        work: job.useful(),
        restart: job.restart,
        gang: job.gang,
    });
    let useful = job.useful().0 > 0;
    Bill {
        cost: job.cost,
        spot_cost: job.spot_cost,
        firm_cost: job.firm_cost,
        spot: job.spot,
        firm: job.firm,
        on_demand_only: job.on_demand_only(),
        // What was done can be done: the tape's ticks and mean changeovers may ask for a little more.
        omniscient: tape_job
            .filter(|_| useful)
            .and_then(|tape_job| omniscient(tape, &tape_job))
            .map(|least| least.min(job.cost)),
        forecast: kept.and_then(|kept| kept.forecast.clone()),
    }
}

/// What the job is expected to cost and to take on this market, by the same model that the brain and the planner use.
pub fn forecast(
    spec: &JobSpec,
    deadline_in: Option<Span>,
    tape: &Tape,
    offset: Span,
    on_demand: bool,
) -> Option<Forecast> {
    let need = on_demand_time(spec, &tape.accelerator)?;
    let spot = tape.zones().filter_map(|zone| tape.quote(zone, offset)).map(|quote| quote.price).min()?;
    let restart = spec.checkpoint.restart.unwrap_or(USUAL_START);
    if on_demand {
        // It buys nothing that can be taken away, so nothing is uncertain but the work itself.
        let elapsed = need + restart;
        let cost = NanoUsd(tape.on_demand.for_span(elapsed).0.saturating_mul(i64::from(spec.gang)));
        return Some(Forecast { cost, low: cost, high: cost, elapsed });
    }
    // A deadline that is lost costs nothing where lateness is to be cheap.
    let left = deadline_in.filter(|left| *left >= need + restart || spec.late != Late::Cheapest);
    let terms = ForecastTerms {
        need,
        left,
        restart,
        undone: Span::ZERO,
        tick: tape.tick,
        losses: Losses::Recorded(if tape.ever_lacks(spec.gang) { 1.0 } else { 0.0 }).of_gang(spec.gang),
        has_firm: true,
        // The work is what the job file says, and a replayed market refuses no on-demand capacity.
        spread: 0.0,
        refused: 0.0,
    };
    let model = Model::embedded();
    let forecast = model.forecast(&terms);
    let instances = f64::from(spec.gang);
    let cost = forecast.expect(|outcome| {
        instances * (spot.for_span(outcome.spot).dollars() + tape.on_demand.for_span(outcome.firm).dollars())
    });
    let takes = forecast.expect(|outcome| outcome.elapsed.0 as f64);
    Some(Forecast {
        cost: NanoUsd::from_dollars(cost.mean),
        low: NanoUsd::from_dollars(cost.low),
        high: NanoUsd::from_dollars(cost.high),
        elapsed: Span(takes.mean as i64),
    })
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
pub fn promises(spec: &JobSpec, deadline_in: Option<Span>, tape: &Tape) -> Vec<String> {
    let mut notes = Vec::new();
    let need = on_demand_time(spec, &tape.accelerator);
    let start = spec.checkpoint.restart.unwrap_or(USUAL_START);
    if deadline_in.is_some() && need.is_none() {
        notes.push(
            "how much work there is was not said, so the deadline is kept on on-demand capacity until the program tells".to_owned(),
        );
    }
    if let (Some(budget), Some(need)) = (spec.budget, need) {
        let cost = NanoUsd(tape.on_demand.for_span(need + start).0.saturating_mul(i64::from(spec.gang)));
        if cost > budget {
            notes.push(format!(
                "on-demand alone would cost {cost}, more than the budget of {budget}: the deadline is promised only while the budget allows it"
            ));
        }
    }
    notes
}
