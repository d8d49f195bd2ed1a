//! A scripted engine: grants in part, on another alternative, after an hour in its queue, or what never becomes ready.

mod departed;

use super::*;
use crate::GroupPhase;
use crate::pool::{Allocation, Device, DevicePart};
use crate::want::{Address, LeaseTerms};

const OTHER: &str = "test/b/box/spot";

fn group(world: &World) -> DecisionId {
    world.leases()[0].group
}

/// A job of four that waits for what it asked for.
fn asked(least: Option<u32>) -> (World, WorkloadId) {
    let mut world = world();
    let id = world.submit(JobSpec { gang: 4, least_gang: least, ..job(4, None) });
    let decisions = world.decide();
    assert!(
        matches!(decisions.as_slice(), [Decision::Acquire { want }] if want.units == 4 && want.workload == id),
        "one request for all: {decisions:?}"
    );
    (world, id)
}

#[test]
fn three_of_four_are_kept_by_who_can_do_with_three_and_given_back_whole_by_who_cannot() {
    for least in [Some(3), None] {
        let (mut world, id) = asked(least);
        world.event(Event::GroupGranted { group: group(&world), at: world.now, units: 3 });
        assert_eq!(world.leases().len(), 3, "the fourth does not come");
        world.up_all();
        let decisions = world.decide();
        match least {
            Some(_) => {
                let [Decision::Start { allocations, .. }] = decisions.as_slice() else { panic!("{decisions:?}") };
                assert_eq!(allocations.len(), 3);
                assert_eq!(world.view(id).state, crate::view::State::Starting);
            }
            None => {
                assert!(matches!(decisions.as_slice(), [Decision::Release { slots, .. }] if *slots == [0, 1, 2]));
            }
        }
    }
}

#[test]
fn a_lease_that_became_another_alternative_is_shown_and_charged_as_that() {
    let mut world = world();
    world.offer(OTHER, 0.5, Some(8));
    world.offer(SPOT, 0.5, Some(8));
    let id = world.submit(job(2, None));
    let decisions = world.decide();
    let [Decision::Acquire { want }] = decisions.as_slice() else { panic!("{decisions:?}") };
    assert_eq!(want.alternatives.len(), 2, "both are as good: {want:?}");
    let taken = want.alternatives[1].offer.clone();
    let lease = world.leases()[0];
    let reference = "i-0123".to_owned();
    let terms = Box::new(LeaseTerms { reference, offer: Some(taken.clone()), ..LeaseTerms::default() });
    world.event(Event::LeaseUp { lease, at: world.now, terms, ready: Some(Address("10.0.0.1".into())) });
    world.decide();
    world.started(id);
    let known = world.brain.lease(lease).expect("held");
    assert_eq!((known.terms.reference.as_str(), &known.offer), ("i-0123", &taken));
    world.pass(Span::hours(1));
    world.gone(LeaseEnd::Taken);
    let rows = world.brain.take_ledger();
    assert!(rows.iter().all(|row| row.offer.as_ref() == Some(&taken)), "{rows:?}");
    assert_eq!(rows.iter().map(|row| row.amount.0).sum::<i64>(), NanoUsd::from_dollars(0.5).0);
}

#[test]
fn an_hour_in_an_engines_queue_is_neither_paid_nor_boot() {
    let (mut world, id) = asked(None);
    let (asked_at, group) = (world.now, group(&world));
    let queued = |eta| Event::GroupQueued { group, since: asked_at, eta };
    world.event(queued(None));
    assert!(world.brain.outbox().is_empty(), "it was answered, and is not asked for again");
    world.pass(Span::hours(1));
    assert!(world.decide().is_empty(), "a queue is no boot");
    let eta = world.now + Span::hours(1);
    assert!(world.brain.is_news(&queued(Some(eta))));
    world.event(queued(Some(eta)));
    let view = world.view(id);
    assert_eq!(view.state, crate::view::State::Acquiring);
    assert_eq!(view.waits_for.as_deref(), Some("the queue of test, expected in 1h 0m"));
    assert!(!world.brain.is_news(&queued(Some(eta + Span::minutes(1)))), "engines guess anew at every look");
    world.event(Event::GroupGranted { group, at: world.now, units: 4 });
    assert!(matches!(world.brain.groups().next().map(|group| group.phase), Some(GroupPhase::Granted { .. })));
    world.up_all();
    world.decide();
    let stint = world.started(id);
    world.pass(Span::minutes(10));
    world.event(Event::Progress { stint, done: Work(1), total: Some(Work(100)) });
    let view = world.view(id);
    assert_eq!(view.cost, NanoUsd::from_dollars(4.0 * 0.9 / 6.0), "ten minutes of four");
    assert_eq!(world.brain.job(id).expect("known").slowest_restart, Span::minutes(10), "counted from the grant");
}

#[test]
fn a_queue_that_takes_too_long_is_left_in_time_for_the_deadline() {
    let mut world = world();
    let id = world.submit(job(10, Some(12)));
    world.decide();
    assert_eq!(world.market(), Market::Spot);
    let group = group(&world);
    world.event(Event::GroupQueued { group, since: world.now, eta: None });
    for _ in 0..1_000 {
        if world.leases().first().is_some_and(|lease| lease.group != group) {
            break;
        }
        world.now = world.brain.next_wakeup().expect("a wake-up");
        for decision in world.decide() {
            if let Decision::Release { group, slots } = decision {
                for slot in slots {
                    let lease = LeaseId { group, slot };
                    world.event(Event::LeaseGone { lease, at: world.now, end: LeaseEnd::Released });
                }
            }
        }
    }
    assert_eq!(world.market(), Market::OnDemand);
    let sight = world.brain.sight(world.brain.job(id).expect("known"), world.now);
    assert!(sight.slack().is_some_and(|slack| slack >= Span::ZERO), "{:?}", sight.slack());
}

#[test]
fn a_lease_that_is_up_and_never_ready_is_paid_for_and_given_back() {
    let mut world = world();
    let id = world.submit(job(2, None));
    world.decide();
    let lease = world.leases()[0];
    world.event(Event::LeaseUp { lease, at: world.now, terms: Box::default(), ready: None });
    assert!(world.decide().is_empty(), "nothing can run on it");
    let up_at = world.now;
    world.now = world.brain.next_wakeup().expect("a wake-up");
    let decisions = world.decide();
    assert!(matches!(decisions.as_slice(), [Decision::Release { .. }]), "{decisions:?}");
    assert_eq!(world.decided.last().map(|decided| decided.reason.rule.as_str()), Some("boot-timeout"));
    world.event(Event::LeaseGone { lease, at: world.now, end: LeaseEnd::Released });
    assert_eq!(world.view(id).cost, NanoUsd::from_dollars(0.9).for_span(world.now - up_at));
}

#[test]
fn pools_and_nodes_are_known_as_they_were_last_seen() {
    use crate::pool::{Books, Habits, Health, Placing, Shape, Supply};
    let mut world = world();
    let pool = |boot| Pool {
        id: PoolId("test/pool".into()),
        engine: "test".into(),
        placing: Placing::Ours,
        supply: Supply::Fixed,
        books: Books::Leased,
        habits: Habits { boot, ..Habits::USUAL },
        tells_apart: false,
    };
    world.event(Event::PoolSeen { pool: pool(Span::minutes(2)) });
    assert!(!world.brain.is_news(&Event::PoolSeen { pool: pool(Span::minutes(2)) }));
    let offer = world.brain.offer(&OfferId::new(SPOT)).expect("seen").clone();
    world.event(Event::OfferSeen { offer: Offer { pool: PoolId("test/pool".into()), ..offer } });
    world.submit(job(1, None));
    world.decide();
    let asked_at = world.now;
    world.now = world.brain.next_wakeup().expect("a wake-up");
    assert!(matches!(world.decide().as_slice(), [Decision::Release { .. }]));
    assert_eq!(world.now - asked_at, Span::minutes(2), "the pool's own habit");
    let node = Node {
        id: NodeId("test/n1".into()),
        pool: PoolId("test/pool".into()),
        accelerator: "V100".into(),
        capacity: Shape { accelerators: 8, ..Shape::default() },
        foreign: Shape::default(),
        domains: BTreeMap::new(),
        symptoms: Vec::new(),
        mixed: false,
        drained_for: None,
        alone: false,
        health: Health::Ready,
        rate: NanoUsd(0),
    };
    world.event(Event::NodeSeen { node: Box::new(node.clone()) });
    let drained = Event::NodeSeen { node: Box::new(Node { health: Health::Drained, ..node.clone() }) };
    assert!(world.brain.is_news(&drained) && !world.brain.is_news(&Event::NodeSeen { node: Box::new(node) }));
    world.event(drained);
    assert_eq!(world.brain.nodes().map(|node| node.health).collect::<Vec<_>>(), [Health::Drained]);
    world.event(Event::NodeGone { node: NodeId("test/n1".into()) });
    assert_eq!(world.brain.nodes().count(), 0);
}

/// A job that runs on a lease of eight accelerators, and another that was submitted beside it.
fn roomy() -> (World, WorkloadId, WorkloadId, LeaseId) {
    let mut world = world();
    let offer = world.brain.offer(&OfferId::new(SPOT)).expect("seen").clone();
    world.event(Event::OfferSeen { offer: Offer { accelerators: 8, ..offer } });
    let (first, _) = world.running(job(8, None));
    let lease = world.leases()[0];
    world.pass(Span::hours(1));
    let second = world.submit(job(8, None));
    (world, first, second, lease)
}

/// Starts a job on devices of a lease that is another's.
fn start_on(world: &mut World, job: WorkloadId, lease: LeaseId, devices: Vec<Device>) -> StintId {
    let stint = StintId::of_job(job, 1);
    let allocation = Allocation { devices: Some(devices), ..Allocation::whole(lease) };
    let decision = Decision::Start { stint, allocations: vec![allocation], resume: Resume::Newest };
    world.record(Body::Decision(decision, Reason::new("test", "test")));
    world.event(Event::WorkerStarted { stint, rank: 0, restored: None, work: None });
    stint
}

fn whole(number: u32) -> Device {
    Device { number, part: DevicePart::Whole }
}

#[test]
fn two_workloads_on_one_lease_are_each_charged_for_their_part() {
    let (mut world, first, second, lease) = roomy();
    let stint = start_on(&mut world, second, lease, vec![whole(6), whole(7)]);
    assert_eq!(world.view(second).state, crate::view::State::Running);
    assert_eq!(world.view(second).lease.map(|lease| lease.zone), Some("a".to_owned()), "it shows where it runs");
    world.pass(Span::hours(2));
    // One hour alone, two hours with six of eight.
    let dollars = NanoUsd::from_dollars;
    assert_eq!((world.view(first).cost, world.view(second).cost), (dollars(0.9 + 1.35), dollars(0.45)));
    world.offer(SPOT, 0.9, Some(8));
    world.ended(stint, WorkerEnd::Exited { code: 0 });
    world.decide();
    let last = world.brain.take_final_views().pop().expect("it held nothing of its own, and is over");
    assert_eq!((last.id, last.cost, last.spot), (second, dollars(0.45), Span::hours(2)));
    world.pass(Span::hours(1));
    assert_eq!(world.view(first).cost, dollars(0.9 + 1.35 + 0.9), "all of it is the first's again");
    world.gone(LeaseEnd::Taken);
    let rows = world.brain.take_ledger();
    let paid = |workload| -> i64 {
        let of = rows.iter().filter(|row| row.beneficiary.workload() == Some(workload));
        of.map(|row| row.amount.0).sum()
    };
    assert_eq!((paid(first), paid(second)), (dollars(3.15).0, dollars(0.45).0));
    assert_eq!(rows.iter().map(|row| row.amount.0).sum::<i64>(), dollars(3.6).0, "four hours of the machine");
}

#[test]
fn shares_of_one_accelerator_are_fractions_and_a_loss_ends_everybody_on_it() {
    let (mut world, first, second, lease) = roomy();
    let seventh = |slices| DevicePart::Mig { profile: format!("{slices}g.10gb"), slices };
    let third = world.submit(job(8, None));
    start_on(&mut world, second, lease, vec![Device { number: 7, part: seventh(3) }]);
    let half = DevicePart::Share { part: 1, of: 2 };
    start_on(&mut world, third, lease, vec![Device { number: 6, part: half }]);
    world.pass(Span::hours(56));
    let cost = |id| world.view(id).cost.0;
    // Three sevenths and a half of an eighth, for fifty-six hours at $0.90.
    assert_eq!((cost(second), cost(third)), (2_700_000_000, 3_150_000_000));
    assert_eq!(cost(first) + cost(second) + cost(third), NanoUsd::from_dollars(57.0 * 0.9).0);
    world.gone(LeaseEnd::Taken);
    for id in [first, second, third] {
        let job = world.brain.job(id).expect("known");
        assert_eq!((job.interruptions, job.stint.is_none()), (1, true), "job {id}");
    }
    let rows = world.brain.take_ledger();
    assert_eq!(rows.iter().map(|row| row.amount.0).sum::<i64>(), NanoUsd::from_dollars(57.0 * 0.9).0);
    assert!(rows.iter().any(|row| row.share == crate::ledger::Share::new(3, 56)), "{rows:?}");
}

#[test]
fn who_does_not_stop_on_anothers_lease_ends_with_the_machine() {
    let (mut world, first, second, lease) = roomy();
    let stint = start_on(&mut world, second, lease, vec![whole(7)]);
    world.event(Event::CancelRequested { workload: second, by: "ada".to_owned() });
    let stops = |decision: &Decision| matches!(decision, Decision::Stop { stint: stopped, .. } if *stopped == stint);
    assert!(world.decide().iter().any(stops));
    for _ in 0..1_000 {
        world.now = world.brain.next_wakeup().expect("a wake-up");
        if world.decide().iter().any(|decision| matches!(decision, Decision::Release { .. })) {
            break;
        }
    }
    let released = world.decided.iter().find(|decided| matches!(decided.decision, Decision::Release { .. }));
    assert_eq!(released.map(|decided| decided.reason.rule.as_str()), Some("stop-overrun"));
    world.event(Event::LeaseGone { lease, at: world.now, end: LeaseEnd::Released });
    world.decide();
    let last = world.brain.take_final_views().pop().expect("it is over");
    assert_eq!((last.id, last.state), (second, crate::view::State::Cancelled));
    let holder = world.brain.job(first).expect("it goes on");
    let counted = (holder.failures, holder.fruitless, holder.ended.is_none(), holder.stint.is_none());
    assert_eq!(counted, (0, 0, true, true), "it lost a machine, by no fault of its own");
}

#[test]
fn the_end_of_the_holder_stops_nobody_and_the_last_one_off_gives_the_lease_back() {
    let (mut world, first, second, lease) = roomy();
    let stint = start_on(&mut world, second, lease, vec![whole(7)]);
    world.ended(world.stint(first), WorkerEnd::Exited { code: 0 });
    let decisions = world.decide();
    assert!(decisions.iter().any(|decision| matches!(decision, Decision::End { workload, .. } if *workload == first)));
    world.pass(Span::hours(1));
    let later = world.decide();
    let harms = |decision: &&Decision| matches!(decision, Decision::Release { .. } | Decision::Stop { .. });
    assert_eq!(decisions.iter().chain(&later).find(harms), None, "the other one runs on");
    world.ended(stint, WorkerEnd::Exited { code: 0 });
    let decisions = world.decide();
    assert!(decisions.iter().any(|decision| matches!(decision, Decision::Release { .. })), "{decisions:?}");
    world.event(Event::LeaseGone { lease, at: world.now, end: LeaseEnd::Released });
    assert_eq!(world.brain.jobs().count(), 0);
    let rows = world.brain.take_ledger();
    assert_eq!(rows.iter().map(|row| row.amount.0).sum::<i64>(), NanoUsd::from_dollars(2.0 * 0.9).0);
    assert!(rows.iter().any(|row| row.beneficiary.workload() == Some(second)));
}

#[test]
fn a_guest_whose_last_save_is_never_stored_does_not_wait_for_ever() {
    for cancelled in [false, true] {
        let (mut world, _, second, lease) = roomy();
        let stint = start_on(&mut world, second, lease, vec![whole(7)]);
        world.event(Event::WorkerEnded { stint, rank: 0, end: WorkerEnd::Exited { code: 0 }, settled: false });
        world.decide();
        if cancelled {
            world.event(Event::CancelRequested { workload: second, by: "ada".to_owned() });
            assert!(world.decide().is_empty(), "the machine is another's, and its agent has time to settle");
        }
        world.pass(Span::minutes(12));
        let decisions = world.decide();
        assert!(decisions.iter().any(|decision| matches!(decision, Decision::Release { .. })), "{decisions:?}");
        world.event(Event::LeaseGone { lease, at: world.now, end: LeaseEnd::Released });
        assert!(world.brain.job(second).is_none());
    }
}

#[test]
fn a_guest_that_is_over_is_forgotten_once_its_last_save_is_stored() {
    let (mut world, _, second, lease) = roomy();
    let stint = start_on(&mut world, second, lease, vec![whole(7)]);
    let ended = |settled| Event::WorkerEnded { stint, rank: 0, end: WorkerEnd::Exited { code: 0 }, settled };
    world.event(ended(false));
    world.decide();
    assert!(world.brain.job(second).is_some(), "its last save is on its way");
    world.event(ended(true));
    assert!(world.brain.job(second).is_none());
    assert_eq!(world.brain.take_final_views().len(), 1);
}
