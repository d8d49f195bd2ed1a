//! A job's own rules: deadlines that are lost, budgets, fallbacks, and when to save.

use super::*;
use crate::offer::{Place, Way};
use crate::spec::{Ask, Fallback, Smaller};

fn told(world: &World) -> Vec<String> {
    let texts = world.decided.iter().filter_map(|decided| match &decided.decision {
        Decision::Notify { told, .. } => Some(told.to_string()),
        _ => None,
    });
    texts.collect()
}

#[test]
fn a_deadline_that_cannot_be_met_is_said_at_once_with_the_earliest_finish_and_its_price() {
    let mut world = world();
    world.submit(job(10, Some(4)));
    world.decide();
    assert_eq!(world.market(), Market::OnDemand);
    let [text] = &told(&world)[..] else { panic!("{:?}", world.decided) };
    // Ten hours and a changeover of two minutes at three dollars an hour.
    assert!(text.contains("6h 2m after it") && text.contains("$30.10") && text.contains("as fast as it can"), "{text}");
}

#[test]
fn late_stop_stops_at_once_when_the_deadline_is_surely_lost() {
    let mut world = world();
    world.submit(JobSpec { late: Late::Stop, ..job(10, Some(2)) });
    let decisions = world.decide();
    let stopped = |d: &Decision| matches!(d, Decision::End { outcome: Outcome::StoppedByRule { .. }, .. });
    assert!(decisions.iter().any(stopped), "{decisions:?}");
    assert!(world.leases().is_empty(), "nothing was bought for it");
}

#[test]
fn late_stop_ends_at_the_deadline() {
    let mut world = world();
    let (_, stint) = world.running(JobSpec { late: Late::Stop, ..job(2, Some(3)) });
    world.pass(Span::hours(4));
    let decisions = world.decide();
    assert!(decisions.iter().any(|d| matches!(d, Decision::Stop { .. })), "{decisions:?}");
    world.event(Event::WorkerEnded { stint, rank: 0, end: WorkerEnd::Stopped, settled: true });
    let decisions = world.decide();
    let stopped = |d: &Decision| matches!(d, Decision::End { outcome: Outcome::StoppedByRule { .. }, .. });
    assert!(decisions.iter().any(stopped), "{decisions:?}");
}

#[test]
fn late_cheapest_does_not_pay_for_a_deadline_that_is_lost() {
    let mut world = world();
    world.submit(JobSpec { late: Late::Cheapest, ..job(10, Some(4)) });
    world.decide();
    assert_eq!(world.market(), Market::Spot);
    world.gone(LeaseEnd::Taken);
    world.offer(SPOT, 0.9, Some(0));
    world.decide();
    assert!(world.leases().is_empty(), "it waits for spot: {:?}", world.decided.last());
}

#[test]
fn a_price_asks_whoever_has_a_budget_only_where_that_may_end_sooner_than_it_is_looked_at() {
    let mut world = world();
    let budget = NanoUsd::from_dollars(3.0);
    let (policy, resources) = (Some("greedy".to_owned()), vec![crate::spec::Ask::of("V100", 1)]);
    let (id, _) = world.running(JobSpec { budget: Some(budget), policy, resources, ..job(10, None) });
    world.offer(SPOT, 0.9, Some(1));
    world.decide();
    let looks_at = |world: &World| world.brain.awake.moment_of(id).expect("a moment");
    let before = looks_at(&world);
    for price in [1.0, 0.2, 1.1] {
        world.pass(Span::minutes(1));
        world.offer(SPOT, price, Some(1));
        world.decide();
        assert_eq!(looks_at(&world), before, "{price} is no more than it counts on");
    }
    world.pass(Span::minutes(1));
    world.offer(SPOT, 1.2, Some(1));
    world.decide();
    assert_ne!(looks_at(&world), before, "it counts on a quarter more, and was asked");
    // The price rises and rises, by a little each time.
    let (mut price, mut paused) = (1.2, false);
    let mut rises_at = world.now;
    for _ in 0..1_000 {
        let wakes_at = world.brain.next_wakeup().filter(|at| *at < rises_at);
        world.now = wakes_at.unwrap_or(rises_at);
        if wakes_at.is_none() {
            price *= 1.02;
            rises_at = world.now + Span::minutes(3);
            world.offer(SPOT, price, Some(1));
        }
        paused = world.decide().iter().any(|decision| matches!(decision, Decision::Pause { .. }));
        assert!(world.brain.spent(world.brain.job(id).expect("known"), world.now) < budget);
        assert_eq!(world.brain.overlooked(world.now, &BTreeSet::new()), []);
        if paused {
            break;
        }
    }
    assert!(paused);
}

#[test]
fn a_budget_pauses_the_job_before_it_is_exceeded_and_a_higher_one_lets_it_go_on() {
    let mut world = world();
    let budget = NanoUsd::from_dollars(0.45);
    let (id, stint) = world.running(JobSpec { budget: Some(budget), ..job(10, None) });
    world.saved(stint, 1, Span::minutes(5));
    for _ in 0..20 {
        world.now = world.brain.next_wakeup().expect("a wake-up");
        if world.decide().iter().any(|decision| matches!(decision, Decision::Pause { .. })) {
            break;
        }
    }
    assert!(world.brain.job(id).expect("known").stint.as_ref().is_some_and(|stint| stint.stopping.is_some()));
    world.event(Event::WorkerEnded { stint, rank: 0, end: WorkerEnd::Stopped, settled: true });
    world.decide();
    world.gone(LeaseEnd::Released);
    world.pass(Span::hours(1));
    assert!(world.decide().is_empty() && world.view(id).state == crate::view::State::Paused);
    assert!(world.view(id).cost < budget && world.view(id).cost.0 > budget.0 * 8 / 10);
    world.event(Event::BudgetSet { workload: id, budget: Some(NanoUsd::from_dollars(9.0)), by: "me".into() });
    world.decide();
    assert_eq!(world.market(), Market::Spot);
}

#[test]
fn a_fallback_gives_up_on_spot_after_so_many_interruptions() {
    let mut world = world();
    let fallback = Some(Fallback { after: 1, to: vec!["on-demand".into()], smaller: Vec::new() });
    world.running(JobSpec { fallback, ..job(2, None) });
    world.gone(LeaseEnd::Taken);
    world.decide();
    assert_eq!(world.market(), Market::OnDemand);
}

#[test]
fn after_a_fallback_the_spot_that_is_still_held_is_the_only_spot_to_be_seen() {
    let mut world = world();
    let other = "test/b/box/spot";
    world.offer(other, 1.5, Some(8));
    let fallback = Some(Fallback { after: 1, to: vec!["on-demand".into()], smaller: Vec::new() });
    let (id, stint) = world.running(JobSpec { gang: 2, fallback, ..job(2, None) });
    let seen = |world: &World| {
        let sight = world.brain.sight(world.brain.job(id).expect("known"), world.now);
        sight.offers.iter().map(|seen| seen.id.to_string()).collect::<Vec<_>>()
    };
    assert_eq!(seen(&world), [FIRM, SPOT, other]);
    let lease = world.leases()[0];
    world.event(Event::LeaseGone { lease, at: world.now, end: LeaseEnd::Taken });
    world.event(Event::WorkerEnded { stint, rank: 1, end: WorkerEnd::Stopped, settled: true });
    assert_eq!(seen(&world), [FIRM, SPOT]);
}

const SMALL: &str = "test/a/small/on-demand";

/// A job on V100s that may fall back to a T4 at half the speed for a fifth of the price.
fn may_shrink(deadline: i64) -> JobSpec {
    let ask = |accelerator: &str| Ask::of(accelerator, 1);
    let smaller = vec![Smaller { ask: ask("T4"), precision: "bf16".into(), speed_permille: 500 }];
    let to = vec!["on-demand".into(), "smaller+bf16".into()];
    let fallback = Some(Fallback { after: 1, to, smaller });
    JobSpec { fallback, resources: vec![ask("V100")], ..job(4, Some(deadline)) }
}

#[test]
fn a_fallback_takes_the_smaller_type_when_that_makes_the_deadline_more_cheaply() {
    for (deadline, expected) in [(20, "test/a/small/on-demand"), (6, FIRM)] {
        let mut world = world();
        world.offer_of("T4", SMALL, 0.6, None);
        world.running(may_shrink(deadline));
        assert_eq!(world.market(), Market::Spot, "the smaller one is not asked for before");
        world.gone(LeaseEnd::Taken);
        world.decide();
        let lease = world.brain.leases().next().expect("a lease");
        assert_eq!(lease.offer, OfferId::new(expected), "deadline in {deadline} h");
    }
}

#[test]
fn on_demand_that_was_refused_counts_in_the_margin() {
    let mut world = world();
    world.offer(SPOT, 0.9, Some(0));
    let id = world.submit(JobSpec { policy: Some("on-demand".into()), ..job(4, Some(12)) });
    for _ in 0..10 {
        world.decide();
        let lease = world.leases()[0];
        world.event(Event::GroupFailed { group: lease.group, refusal: Refusal::NoCapacity });
        world.pass(Span::minutes(2));
    }
    let job = world.brain.job(id).expect("known");
    let wait = world.brain.sight(job, world.now).firm_wait;
    assert!(wait >= Span::minutes(18) && wait <= Span::minutes(25), "{wait}");
    // A day later it is forgotten.
    assert_eq!(world.brain.sight(job, world.now + Span::hours(25)).firm_wait, Span::ZERO);
}

#[test]
fn critical_jobs_go_to_what_nobody_takes_away() {
    let mut world = world();
    world.submit(JobSpec { priority: Priority::Critical, ..job(4, None) });
    world.decide();
    assert_eq!(world.market(), Market::OnDemand);
}

#[test]
fn a_tier_says_who_yields_and_chooses_no_market() {
    let mut world = world();
    world.submit(JobSpec { tier: 1, ..job(4, None) });
    world.decide();
    assert_eq!(world.market(), Market::Spot);
}

#[test]
fn spot_that_brings_nothing_is_given_up_until_something_is_saved() {
    let mut world = world();
    let (id, _) = world.running(job(4, None));
    for _ in 0..3 {
        world.pass(Span::minutes(5));
        world.gone(LeaseEnd::Taken);
        world.decide();
        world.up_all();
        world.decide();
    }
    assert_eq!(world.market(), Market::OnDemand);
    let stint = world.started(id);
    world.pass(Span::minutes(5));
    world.saved(stint, 1, Span::minutes(5));
    let decisions = world.decide();
    assert!(matches!(decisions.as_slice(), [Decision::Stop { .. }]), "back to spot: {decisions:?}");
}

#[test]
fn a_lease_at_risk_is_saved_from_at_once() {
    let mut world = world();
    let (_, stint) = world.running(job(10, None));
    world.pass(Span::seconds(5));
    world.event(Event::LeaseAtRisk { lease: world.leases()[0] });
    assert_eq!(world.decide(), [Decision::Checkpoint { stint }]);
    assert!(world.brain.outbox().iter().any(|open| open.decision == Decision::Checkpoint { stint }));
    world.saved(stint, 1, Span::minutes(5));
    assert!(world.brain.outbox().is_empty() && world.decide().is_empty());
}

#[test]
fn saves_are_asked_for_more_often_where_leases_are_short_and_not_of_the_deaf() {
    let mut world = world();
    let asks = |world: &World| world.decided.iter().filter(|d| d.decision.kind() == "checkpoint").count();
    world.running(job(1_000, None));
    for _ in 0..100 {
        world.now = world.brain.next_wakeup().unwrap_or(world.now + Span::hours(1));
        world.decide();
    }
    assert_eq!(asks(&world), 3, "it never answers");
    let reason = &world.decided.iter().find(|d| d.decision.kind() == "checkpoint").expect("one").reason;
    assert!(reason.numbers.iter().any(|(name, _)| name == "lease lasts"), "{reason:?}");
}

#[test]
fn a_way_out_of_the_region_where_the_checkpoint_lies_is_counted() {
    let place = |region: &str| Place { cloud: "test".into(), region: region.into() };
    let mut world = world();
    let ways = vec![Way { from: place("here"), to: place("there"), per_gib: NanoUsd::from_dollars(0.02) }];
    world.event(Event::Configured { config: Box::new(Config { ways, ..Config::default() }) });
    for (id, region) in [("test/a/box/spot", "here"), ("test/b/box/spot", "there")] {
        world.offer(id, 0.9, Some(8));
        let offer = world.brain.offer(&OfferId::new(id)).expect("seen").clone();
        world.event(Event::OfferSeen { offer: Offer { region: region.into(), ..offer } });
    }
    let mut spec = job(4, Some(20));
    spec.checkpoint.size_bytes = Some(10 << 30);
    let (id, stint) = world.running(spec);
    world.saved(stint, 1, Span::minutes(5));
    let sight = world.brain.sight(world.brain.job(id).expect("known"), world.now);
    let entry = |id: &str| sight.offers.iter().find(|seen| seen.id == OfferId::new(id)).expect("seen").entry;
    assert_eq!((entry("test/a/box/spot"), entry("test/b/box/spot")), (NanoUsd(0), NanoUsd::from_dollars(0.2)));
}

#[test]
fn a_gang_takes_what_the_market_has_down_to_the_fewest_it_can_do_with() {
    let mut world = world();
    world.offer(SPOT, 0.9, Some(3));
    let id = world.submit(JobSpec { gang: 4, least_gang: Some(2), ..job(4, None) });
    world.decide();
    assert_eq!(world.leases().len(), 3);
    let group = world.leases()[0].group;
    world.event(Event::GroupGranted { group, at: world.now, units: 2 });
    world.up_all();
    world.decide();
    let stint = world.stint(id);
    for rank in 0..2 {
        world.event(Event::WorkerStarted { stint, rank, restored: None, work: None });
    }
    world.pass(Span::hours(1));
    // Two of four do half of the work of an hour.
    assert_eq!(world.view(id).done, Work(30 * 60_000));
    assert_eq!(world.view(id).cost, NanoUsd::from_dollars(1.8));
    world.gone(LeaseEnd::Taken);
    world.offer(SPOT, 0.9, Some(1));
    world.pass(Span::minutes(2));
    assert!(world.decide().is_empty(), "one is too few");
}

#[test]
fn what_is_paid_for_anyway_is_taken_at_once_and_so_is_on_demand_where_there_is_no_spot() {
    let mut world = world();
    world.offer(SPOT, 0.9, Some(0));
    world.offer("test/a/held/reserved", 0.0, Some(1));
    let offer = world.brain.offer(&OfferId::new("test/a/held/reserved")).expect("seen").clone();
    world.event(Event::OfferSeen { offer: Offer { market: Market::Reserved, ..offer } });
    world.submit(job(4, Some(40)));
    world.decide();
    assert_eq!(world.market(), Market::Reserved);

    let mut plain = World { brain: Brain::new(Installation(7), Config::default()), ..super::world() };
    plain.offer(FIRM, 3.0, None);
    plain.submit(job(4, Some(40)));
    plain.decide();
    assert_eq!(plain.market(), Market::OnDemand, "there is nothing to wait for");
}

#[test]
fn spot_above_the_maximum_price_is_waited_for() {
    let mut world = world();
    let max_price = Some(NanoUsd::from_dollars(0.5));
    world.submit(JobSpec { max_price, ..job(4, Some(40)) });
    assert!(world.decide().is_empty() && world.leases().is_empty());
    let waits =
        |world: &World| world.brain.jobs().next().and_then(|job| world.view(job.id).waits_for).expect("it waits");
    assert!(waits(&world).ends_with("and its `max_price` is $0.50)"), "{}", waits(&world));
    world.offer(SPOT, 0.4, Some(8));
    world.decide();
    assert_eq!(world.market(), Market::Spot);
}

#[test]
fn who_needs_more_machines_at_once_than_there_are_is_told_so() {
    let mut world = world();
    world.offer(SPOT, 0.4, Some(3));
    let id = world.submit(JobSpec { gang: 4, ..job(4, Some(40)) });
    assert!(world.decide().is_empty());
    let waits = world.view(id).waits_for.expect("it waits");
    assert!(waits.ends_with("(it needs 4 machines at once, and at most 3 can be had at one place)"), "{waits}");
}
