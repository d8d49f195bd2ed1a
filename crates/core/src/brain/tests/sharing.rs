//! Jobs that run side by side on one machine, as the brain decides it.

use super::*;
use crate::spec::Ask;

const LARGE_SPOT: &str = "test/a/large/spot";
const LARGE_FIRM: &str = "test/a/large/on-demand";

/// A market that sells machines of four accelerators only, one of them on spot.
fn world_of_four() -> World {
    let mut world =
        World { brain: Brain::new(Installation(7), Config::default()), now: Time(1_000_000), decided: Vec::new() };
    four(&mut world, LARGE_SPOT, 2.0, Some(1));
    four(&mut world, LARGE_FIRM, 12.0, None);
    world
}

fn four(world: &mut World, id: &str, price: f64, capacity: Option<u32>) {
    world.offer(id, price, capacity);
    let offer = world.brain.offer(&OfferId::new(id)).expect("seen").clone();
    world.event(Event::OfferSeen { offer: Offer { accelerators: 4, ..offer } });
}

fn asks(count: u32, deadline_hours: Option<i64>) -> JobSpec {
    let ask = Ask { accelerator: "V100".to_owned(), count };
    JobSpec { resources: vec![ask], owner: "ada".to_owned(), ..job(8, deadline_hours) }
}

fn devices(world: &World, job: WorkloadId) -> Option<(LeaseId, Vec<u32>)> {
    let stint = world.brain.job(job)?.stint.as_ref()?;
    let part = stint.allocations.first()?;
    Some((part.lease, part.devices.as_ref()?.iter().map(|device| device.number).collect()))
}

#[test]
fn whoever_finds_room_moves_in_and_pays_for_its_devices() {
    let mut world = world_of_four();
    let (first, _) = world.running(asks(1, None));
    let lease = world.leases()[0];
    assert_eq!(devices(&world, first), Some((lease, vec![0])));
    world.pass(Span::hours(1));
    let second = world.submit(asks(2, None));
    let third = world.submit(asks(2, None));
    let decisions = world.decide();
    assert_eq!(devices(&world, second), Some((lease, vec![1, 2])));
    assert_eq!(devices(&world, third), None, "one is free, and it asked for two");
    assert!(!decisions.iter().any(|decision| matches!(decision, Decision::Acquire { .. })), "{decisions:?}");
    world.started(second);
    world.decide();
    world.pass(Span::hours(1));
    let dollars = NanoUsd::from_dollars;
    assert_eq!((world.view(first).cost, world.view(second).cost), (dollars(2.0 + 1.0), dollars(1.0)));
    let hourly = |id| world.view(id).lease.map(|lease| lease.price_per_hour);
    assert_eq!((hourly(first), hourly(second)), (Some(dollars(1.0)), Some(dollars(1.0))));
    let restart = world.brain.sight(world.brain.job(second).expect("known"), world.now).present.expect("held");
    assert_eq!(restart.since, Time(1_000_000) + Span::hours(1), "it was not on its way before it was submitted");
}

#[test]
fn strangers_whole_machines_gangs_and_promises_stay_apart() {
    let firm = |spec: JobSpec| JobSpec { policy: Some("on-demand".to_owned()), ..spec };
    let stranger = JobSpec { owner: "eve".to_owned(), ..asks(1, None) };
    let other_team = JobSpec { team: "other".to_owned(), ..asks(1, None) };
    let apart = [
        ("another person", asks(1, None), stranger),
        ("another team", asks(1, None), other_team),
        ("all of it", asks(1, None), asks(4, None)),
        ("whatever there is", asks(1, None), JobSpec { resources: Vec::new(), ..asks(1, None) }),
        ("a gang", asks(1, None), JobSpec { gang: 2, ..asks(1, None) }),
        ("on the whole of another's", asks(4, None), asks(1, None)),
        ("a promise of its own", firm(asks(1, None)), firm(asks(1, Some(20)))),
        ("a promise of the other", firm(asks(1, Some(20))), firm(asks(1, None))),
    ];
    for (why, holder, guest) in apart {
        let mut world = world_of_four();
        world.running(holder);
        let second = world.submit(guest);
        world.decide();
        assert!(world.brain.job(second).is_some_and(|job| job.stint.is_none()), "{why}");
    }
    let mut world = world_of_four();
    world.running(firm(asks(1, None)));
    let second = world.submit(firm(asks(1, None)));
    world.decide();
    assert!(devices(&world, second).is_some(), "without a deadline firm machines are shared as well");
}

#[test]
fn nobody_moves_in_where_the_machine_goes_or_its_holder_leaves() {
    let mut world = world_of_four();
    let (first, _) = world.running(asks(1, None));
    let lease = world.leases()[0];
    world.event(Event::LeaseNoticed { lease, ends_at: world.now + Span::minutes(2) });
    let second = world.submit(asks(1, None));
    world.decide();
    assert_eq!(devices(&world, second), None);

    let mut cancelled = world_of_four();
    let (holder, _) = cancelled.running(asks(1, None));
    cancelled.event(Event::CancelRequested { workload: holder, by: "ada".to_owned() });
    let second = cancelled.submit(asks(1, None));
    cancelled.decide();
    assert_eq!(devices(&cancelled, second), None);
    assert!(world.brain.job(first).is_some());
}

#[test]
fn between_two_stints_the_devices_of_the_holder_stay_its_own() {
    let mut world = world_of_four();
    let (first, stint) = world.running(JobSpec { retries: 3, ..asks(2, None) });
    world.ended(stint, WorkerEnd::Exited { code: 1 });
    assert!(world.brain.job(first).is_some_and(|job| job.stint.is_none()));
    let second = world.submit(asks(2, None));
    let third = world.submit(asks(1, None));
    world.decide();
    let lease = world.leases()[0];
    assert_eq!(devices(&world, first), Some((lease, vec![0, 1])));
    assert_eq!(devices(&world, second), Some((lease, vec![2, 3])), "in the same step as the other's start");
    assert_eq!(devices(&world, third), None);
}

#[test]
fn a_machine_that_its_holder_leaves_is_the_guests_and_the_holder_is_free() {
    let mut world = world_of_four();
    let (first, _) = world.running(JobSpec { policy: Some("levi-safe".to_owned()), ..asks(1, Some(16)) });
    let lease = world.leases()[0];
    let second = world.submit(asks(1, None));
    world.decide();
    let guest = world.started(second);
    // The holder makes no progress that is known to be safe: its safety net wants a firm machine.
    let mut moved = Vec::new();
    for _ in 0..2_000 {
        world.now = world.brain.next_wakeup().expect("a wake-up");
        moved.extend(world.decide());
        let stopping = world.brain.job(first).and_then(|job| job.stint.as_ref()).filter(|s| s.stopping.is_some());
        if let Some(stint) = stopping.map(|stint| stint.id) {
            world.ended(stint, WorkerEnd::Stopped);
            moved.extend(world.decide());
            break;
        }
    }
    assert!(moved.contains(&Decision::HandOver { lease, to: second }), "{moved:?}");
    assert!(!moved.iter().any(|decision| matches!(decision, Decision::Release { .. })), "{moved:?}");
    assert!(moved.iter().any(|decision| matches!(decision, Decision::Acquire { .. })), "the holder moves: {moved:?}");
    let handed = world.now;
    let before = (world.view(first).cost, world.view(second).cost);
    world.pass(Span::hours(1));
    let after = world.view(second).cost;
    assert_eq!(after.0 - before.1.0, NanoUsd::from_dollars(2.0).0, "all of it is paid by whom it is for");
    assert_eq!(world.view(first).cost, before.0);
    // It is the guest's like any other: its end gives it back, and the ledger balances.
    world.ended(guest, WorkerEnd::Exited { code: 0 });
    let decisions = world.decide();
    assert!(decisions.contains(&Decision::Release { group: lease.group, slots: vec![0] }), "{decisions:?}");
    world.event(Event::LeaseGone { lease, at: world.now, end: LeaseEnd::Released });
    let last = world.brain.take_final_views().pop().expect("it is over");
    assert_eq!((last.id, last.spot), (second, world.now - Time(1_000_000)));
    let rows = world.brain.take_ledger();
    let hours = (world.now - Time(1_000_000)).0 as f64 / 3_600_000.0;
    let sum: i64 = rows.iter().filter(|row| row.lease == Some(lease)).map(|row| row.amount.0).sum();
    assert!((sum - NanoUsd::from_dollars(2.0 * hours).0).abs() <= rows.len() as i64, "{sum} for {hours} h");
    assert!(world.brain.job(first).is_some_and(|job| job.held.values().all(|held| *held == handed - Time(1_000_000))));
}

#[test]
fn a_lease_is_handed_to_nobody_who_is_not_on_it() {
    let mut world = world_of_four();
    let (first, _) = world.running(asks(1, None));
    let lease = world.leases()[0];
    let second = world.submit(asks(4, None));
    let before = world.brain.clone();
    for (lease, to) in [(lease, second), (lease, first), (LeaseId { slot: 7, ..lease }, second)] {
        world.record(Body::Decision(Decision::HandOver { lease, to }, Reason::new("test", "test")));
    }
    assert!(world.brain.leases().eq(before.leases()));
}

#[test]
fn a_machine_that_fits_every_ask_is_not_dealt_out_by_device() {
    let mut world = world_of_four();
    let offer = world.brain.offer(&OfferId::new(LARGE_SPOT)).expect("seen").clone();
    world.event(Event::OfferSeen { offer: Offer { accelerators: u32::MAX, ..offer } });
    let (first, _) = world.running(asks(2, None));
    assert!(world.brain.job(first).is_some_and(|job| job.stint.is_some()) && devices(&world, first).is_none());
    let second = world.submit(asks(2, None));
    world.decide();
    assert!(world.brain.job(second).is_some_and(|job| job.stint.is_none()));
}
