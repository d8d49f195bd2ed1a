//! Who waits for room: who is looked at when some is free, and what is kept for whom.

use super::*;
use crate::ids::NodeId;
use crate::pool::{Health, Node, Shape};
use crate::want::{Address, LeaseTerms};

/// How many jobs the next step would look at.
fn would_look_at(world: &World) -> usize {
    let sources = world.brain.sources(world.now).sources;
    world.brain.step(world.now, &Default::default(), sources).jobs.len()
}

#[test]
fn of_a_thousand_jobs_that_wait_for_one_device_few_are_looked_at_when_one_is_free() {
    let mut world = world_of_four();
    four(&mut world, LARGE_SPOT, 2.0, Some(2));
    let patient =
        || JobSpec { policy: Some("greedy".to_owned()), max_price: Some(NanoUsd::from_dollars(3.0)), ..asks(1, None) };
    world.event(Event::OfferGone { offer: OfferId::new(LARGE_FIRM) });
    let jobs: Vec<WorkloadId> = (0..1_000).map(|_| world.submit(patient())).collect();
    world.decide();
    assert_eq!(world.leases().len(), 2, "two machines of four, and six who wait for them");
    for lease in world.leases() {
        world.event(up(lease, world.now));
        assert!(would_look_at(&world) <= 8, "who has machines and who waits for them: {}", would_look_at(&world));
        world.decide();
    }
    for id in &jobs[..8] {
        world.started(*id);
    }
    world.decide();
    for (ended, next) in (0..8).zip(8..16) {
        let stint = world.brain.job(jobs[ended]).and_then(|job| job.stint.as_ref()).expect("it runs").id;
        world.ended(stint, WorkerEnd::Exited { code: 0 });
        assert!(would_look_at(&world) <= 8, "{}", would_look_at(&world));
        world.decide();
        assert!(devices(&world, jobs[next]).is_some(), "the next one starts in its place");
        assert!(devices(&world, jobs[next + 1]).is_none());
    }
    four(&mut world, LARGE_SPOT, 2.5, Some(2));
    assert!(would_look_at(&world) <= 16, "no room, and a price that all can pay: {}", would_look_at(&world));
}

#[test]
fn what_somebody_waits_for_is_not_given_to_another() {
    let mut world = world_of_four();
    let spec = |count| JobSpec { policy: Some("greedy".to_owned()), ..asks(count, None) };
    let jobs: Vec<WorkloadId> = [1, 1, 1].into_iter().map(|count| world.submit(spec(count))).collect();
    world.decide();
    let first = world.leases()[0];
    // Two of four are spoken for, and one is free: whoever needs two does not count on it.
    let pair = world.submit(spec(2));
    world.decide();
    assert!(world.leases().len() == 1 && world.view(pair).waits_for.is_some());
    four(&mut world, LARGE_SPOT, 2.0, Some(8));
    world.decide();
    assert_eq!(world.brain.leases_of(pair).count(), 1, "it buys its own");
    let single = world.submit(spec(1));
    world.decide();
    assert_eq!(world.brain.leases_of(single).count(), 0, "the last one is for whoever fits");
    world.event(up(first, world.now));
    world.decide();
    let on_first = |id: &WorkloadId| devices(&world, *id).is_some_and(|(lease, _)| lease == first);
    assert!(jobs.iter().all(on_first) && on_first(&single));
}

#[test]
fn a_guest_with_a_budget_keeps_enough_for_all_of_its_part_of_a_node_that_is_paid_for_as_a_whole() {
    let mut world = world_of_four();
    world.event(Event::PoolSeen { pool: Pool { books: Books::Whole, ..pool(true) } });
    let capacity = Shape { accelerators: 4, ..Shape::default() };
    let node = Node {
        id: NodeId("test/n".into()),
        pool: PoolId::default(),
        accelerator: "V100".to_owned(),
        capacity,
        foreign: Shape::default(),
        domains: BTreeMap::new(),
        symptoms: Vec::new(),
        mixed: false,
        drained_for: None,
        alone: false,
        health: Health::Ready,
        rate: NanoUsd::from_dollars(2.0),
    };
    world.event(Event::NodeSeen { node: Box::new(node) });
    let holder = world.submit(asks(1, None));
    world.decide();
    let lease = world.leases()[0];
    let terms = LeaseTerms { node: Some(NodeId("test/n".into())), size: capacity, ..LeaseTerms::default() };
    world.event(Event::LeaseUp { lease, at: world.now, terms: Box::new(terms), ready: Some(Address::default()) });
    world.decide();
    world.started(holder);
    let poor = world.submit(JobSpec { budget: Some(NanoUsd::from_dollars(1.0)), ..asks(1, None) });
    world.decide();
    world.started(poor);
    // A quarter of $2 an hour; a last save takes a minute and a half, of all of it in the worst case.
    let paused = |decisions: Vec<Decision>| decisions.contains(&Decision::Pause { workload: poor });
    world.pass(Span::minutes(113));
    assert!(!paused(world.decide()), "{}", world.view(poor).cost);
    world.pass(Span::minutes(2));
    assert!(paused(world.decide()), "{}", world.view(poor).cost);
}

#[test]
fn parts_of_devices_that_are_waited_for_are_not_dealt_anew() {
    let mut world = world_of_four();
    four(&mut world, LARGE_SPOT, 2.0, None);
    let greedy = |spec| JobSpec { policy: Some("greedy".to_owned()), ..spec };
    let part = |part, of| {
        let ask = Ask { part: DevicePart::Share { part, of }, ..Ask::of("V100", 1) };
        greedy(JobSpec { resources: vec![ask], ..asks(1, None) })
    };
    world.submit(greedy(asks(2, None)));
    let jobs = [part(3, 4), part(1, 4), part(1, 2), part(1, 2)].map(|spec| {
        let id = world.submit(spec);
        world.decide();
        id
    });
    assert!(world.brain.overlooked(world.now, &Default::default()).is_empty());
    let lease = world.leases()[0];
    world.event(up(lease, world.now));
    world.decide();
    assert_eq!(world.leases(), [lease], "all fit on one machine, and nobody buys another");
    assert!(jobs.iter().all(|id| devices(&world, *id).is_some()));
}

#[test]
fn of_many_neighbours_none_is_looked_at_when_a_device_is_free_and_nobody_waits() {
    let mut world = world_of_four();
    four(&mut world, LARGE_SPOT, 2.0, Some(50));
    let jobs: Vec<WorkloadId> = (0..100).map(|_| world.submit(asks(1, None))).collect();
    world.decide();
    world.leases().into_iter().for_each(|lease| _ = world.event(up(lease, world.now)));
    world.decide();
    jobs.iter().for_each(|id| _ = world.started(*id));
    world.decide();
    let stint = world.brain.job(jobs[50]).and_then(|job| job.stint.as_ref()).expect("it runs").id;
    world.ended(stint, WorkerEnd::Exited { code: 0 });
    assert!(would_look_at(&world) <= 8, "{}", would_look_at(&world));
}

#[test]
fn a_newcomer_does_not_count_on_what_sleeping_jobs_wait_for() {
    let mut world = world_of_four();
    four(&mut world, LARGE_SPOT, 2.0, None);
    let greedy = || JobSpec { policy: Some("greedy".to_owned()), ..asks(1, None) };
    (0..4).for_each(|_| _ = world.submit(greedy()));
    world.decide();
    world.decide();
    assert_eq!(world.leases().len(), 1, "one machine for all four");
    let newcomer = world.submit(greedy());
    world.decide();
    assert_eq!(world.brain.leases_of(newcomer).count(), 1, "all of it is spoken for");
}
