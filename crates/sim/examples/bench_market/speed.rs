//! How long it takes, each figure beside its limit: the whole table, one scenario, one plan, and one decision of the
//! live brain with one job and with a thousand that share a plan.

use crate::data::{Data, ON_DEMAND, SPOT, hours};
use crate::{everyone, folds};
use std::sync::Arc;
use std::time::Instant;
use windfall_core::brain::Config;
use windfall_core::market::foresight::{Model, Plan, PlanTerms};
use windfall_core::record::{Body, Event, Record};
use windfall_core::spec::{CheckpointSpec, JobSpec, WorkSpec, WorkUnit, Workload};
use windfall_core::{Brain, Installation, Market, NanoUsd, Offer, OfferId, Span, Time, Work};
use windfall_sim::compare;

const TICK: Span = Span::seconds(600);

/// Prints every figure; true when all are within their limits.
pub fn speed(data: &Data) -> bool {
    println!("\n== speed, on one core");
    println!("command: WINDFALL_DATA=… cargo xtask bench market speed");
    let model = Arc::new(folds::without(&folds::folds(data), None, &folds::Settings::default()));
    let mut good = true;
    let mut say = |what: &str, value: f64, limit: f64, unit: &str| {
        let within = value <= limit;
        good &= within;
        println!(
            "{what:58} {value:9.3} {unit:3} limit {limit} {unit}{}",
            if within { "" } else { "  NOT AS PROMISED" }
        );
    };
    let began = Instant::now();
    let plan = Plan::solve(&model, terms());
    say("one plan (T = 70 h) solved", 1e3 * began.elapsed().as_secs_f64(), 250.0, "ms");
    say("one plan, memory", plan.bytes() as f64 / 1e6, 64.0, "MB");
    let scenarios = data.table();
    let began = Instant::now();
    let players = everyone(&model, &scenarios);
    let mut ours = 0.0;
    for player in players {
        let began = Instant::now();
        compare(&scenarios, std::slice::from_ref(&player), 1, &|_| ());
        if player.name == "foresight" {
            ours = 1e3 * began.elapsed().as_secs_f64() / scenarios.len() as f64;
        }
    }
    say("1,080 scenarios under all policies, plans included", began.elapsed().as_secs_f64(), 20.0, "s");
    say("one scenario under foresight, plans shared", ours, 5.0, "ms");
    let plan = Arc::new(plan);
    for (jobs, rounds) in [(1, 2_000), (1_000, 40)] {
        let (median, worst) = decisions(&model, &plan, jobs, rounds);
        println!("a look of the brain at {jobs} jobs: {median:.3} ms in the middle, {worst:.3} ms at P99");
        say(&format!("  of it a decision for one job, {jobs} of them, P99"), worst / f64::from(jobs), 1.0, "ms");
    }
    good
}

fn terms() -> PlanTerms {
    let prices = [SPOT, ON_DEMAND].map(NanoUsd::from_dollars);
    PlanTerms::of(TICK, hours(0.05), prices, hours(70.0), hours(22.0))
}

/// Milliseconds of a look at so many jobs, in the middle and at P99. The market flips now and then, and nothing that
/// is decided is done: so every look weighs every job again.
fn decisions(model: &Arc<Model>, plan: &Arc<Plan>, jobs: u32, rounds: usize) -> (f64, f64) {
    let config = Config { policy: "foresight".to_owned(), restart_prior: hours(0.05), ..Config::default() };
    let mut brain = Brain::new(Installation(1), config);
    brain.foresee(Arc::clone(model), [Arc::clone(plan)]);
    let mut now = Time(0);
    let tell = |brain: &mut Brain, now: Time, event: Event| {
        let seq = brain.last_seq() + 1;
        brain.apply(&Record { seq, batch: seq, at: now, body: Body::Event(event) });
    };
    tell(&mut brain, now, seen("firm", Market::OnDemand, ON_DEMAND, None));
    tell(&mut brain, now, seen("zone", Market::Spot, SPOT, Some(0)));
    for number in 0..jobs {
        let workload = Workload::from(job(number));
        tell(&mut brain, now, Event::Submitted { workload, key: format!("job-{number}"), id: None });
    }
    let mut times = Vec::with_capacity(rounds);
    let (mut decided, mut foreseen) = (0_usize, 0_usize);
    for round in 0..rounds {
        now = now + Span::seconds(30);
        if round % 7 == 0 {
            let capacity = if round % 2 == 0 { jobs } else { 0 };
            tell(&mut brain, now, seen("zone", Market::Spot, SPOT, Some(capacity)));
        }
        let began = Instant::now();
        let choices = brain.decide(now);
        times.push(1e3 * began.elapsed().as_secs_f64());
        decided += choices.len();
        foreseen += choices.iter().filter(|choice| choice.reason.rule == "foresight").count();
    }
    println!("{foreseen} of {decided} decisions were foresight's");
    times.sort_by(f64::total_cmp);
    (times[rounds / 2], times[rounds * 99 / 100])
}

fn seen(id: &str, market: Market, price: f64, capacity: Option<u32>) -> Event {
    let offer = Offer {
        id: OfferId::new(id),
        engine: "recorded".to_owned(),
        pool: Default::default(),
        cloud: "recorded".to_owned(),
        region: "region".to_owned(),
        zone: "zone".to_owned(),
        instance_type: "recorded".to_owned(),
        market,
        accelerator: String::new(),
        accelerators: 0,
        price_per_hour: NanoUsd::from_dollars(price),
        capacity,
        notice: Span::ZERO,
    };
    Event::OfferSeen { offer }
}

fn job(number: u32) -> JobSpec {
    JobSpec {
        work: WorkSpec { total: Some(Work(48 * 3_600_000)), unit: WorkUnit::Time, ..WorkSpec::default() },
        deadline: Some(Time(0) + hours(70.0)),
        checkpoint: CheckpointSpec { restart: Some(hours(0.05)), ..CheckpointSpec::default() },
        ..JobSpec::named(format!("job-{number}"), vec!["true".to_owned()])
    }
}
