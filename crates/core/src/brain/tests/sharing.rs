//! Jobs that run side by side on one machine, as the brain decides it.

mod waiting;

use super::*;
use crate::pool::{Books, DevicePart, Habits, Placing, Pool, Supply};
use crate::spec::Ask;

const LARGE_SPOT: &str = "test/a/large/spot";
const LARGE_FIRM: &str = "test/a/large/on-demand";

/// A market that sells machines of four accelerators only, one of them on spot.
fn world_of_four() -> World {
    let mut world =
        World { brain: Brain::new(Installation(7), Config::default()), now: Time(1_000_000), decided: Vec::new() };
    world.event(Event::PoolSeen { pool: pool(true) });
    four(&mut world, LARGE_SPOT, 2.0, Some(1));
    four(&mut world, LARGE_FIRM, 12.0, None);
    world
}

fn pool(tells_apart: bool) -> Pool {
    Pool {
        id: PoolId::default(),
        engine: "test".to_owned(),
        placing: Placing::Theirs,
        supply: Supply::Elastic,
        books: Books::Leased,
        habits: Habits::USUAL,
        tells_apart,
    }
}

fn four(world: &mut World, id: &str, price: f64, capacity: Option<u32>) {
    world.offer(id, price, capacity);
    let offer = world.brain.offer(&OfferId::new(id)).expect("seen").clone();
    world.event(Event::OfferSeen { offer: Offer { accelerators: 4, ..offer } });
}

fn asks(count: u32, deadline_hours: Option<i64>) -> JobSpec {
    let ask = Ask::of("V100", count);
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
    world.event(Event::LeaseNoticed { lease, ends_at: world.now + Span::minutes(2), why: None });
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

/// A holder and a guest, each on one device of a spot machine of four.
fn side_by_side(holder: JobSpec, guest: JobSpec) -> (World, [(WorkloadId, StintId); 2], LeaseId) {
    let mut world = world_of_four();
    let first = world.running(holder);
    let lease = world.leases()[0];
    let second = world.submit(guest);
    world.decide();
    assert_eq!(devices(&world, second).map(|(lease, _)| lease), Some(lease));
    let guest = world.started(second);
    world.decide();
    (world, [first, (second, guest)], lease)
}

#[test]
fn a_machine_that_is_given_back_in_a_step_takes_nobody_in_and_one_that_took_somebody_in_stays() {
    let retries = || JobSpec { retries: 3, ..asks(1, None) };
    for guest_first in [false, true] {
        let (mut world, [(first, one), (second, other)], lease) = side_by_side(retries(), retries());
        // One is done, the other fails and is tried again, and both are heard of at once.
        let (done, failed) = if guest_first { (other, one) } else { (one, other) };
        let ended = |stint, code| Event::WorkerEnded { stint, rank: 0, end: WorkerEnd::Exited { code }, settled: true };
        world.event(ended(done, 0));
        world.event(ended(failed, 1));
        let decisions = world.decide();
        let released = decisions.iter().position(|decision| matches!(decision, Decision::Release { .. }));
        let stayed = if guest_first { first } else { second };
        let started = devices(&world, stayed).map(|(lease, _)| lease);
        assert!(released.is_none() || started != Some(lease), "{decisions:?}");
        assert!(world.brain.lease(lease).is_none_or(|known| known.is_releasing() || known.workload == Some(stayed)));
    }
}

#[test]
fn who_still_stores_its_last_save_keeps_its_machine_until_then() {
    let (mut world, [(first, stint), (second, _)], lease) = side_by_side(asks(1, None), asks(1, None));
    world.event(Event::WorkerEnded { stint, rank: 0, end: WorkerEnd::Exited { code: 0 }, settled: false });
    world.decide();
    world.event(Event::CancelRequested { workload: first, by: "ada".to_owned() });
    world.decide();
    let handed = Decision::HandOver { lease, to: second };
    world.record(Body::Decision(handed.clone(), Reason::new("test", "test")));
    assert_eq!(world.brain.lease(lease).and_then(|lease| lease.workload), Some(first), "its stint is still there");
    world.gone(LeaseEnd::Taken);
    world.decide();
    assert!(world.brain.job(first).is_none(), "nothing of it can come any more");
    assert!(world.brain.job(second).is_some_and(|job| job.interruptions == 1));
}

#[test]
fn a_guest_hears_of_risk_and_its_hours_are_counted_when_the_machine_is_taken() {
    let (mut world, [_, (second, guest)], lease) = side_by_side(asks(1, None), asks(1, None));
    world.pass(Span::hours(1));
    world.event(Event::LeaseAtRisk { lease });
    assert!(world.decide().contains(&Decision::Checkpoint { stint: guest }));
    world.event(Event::LeaseGone { lease, at: world.now, end: LeaseEnd::Taken });
    let held = world.brain.job(second).expect("it goes on").held.clone();
    assert_eq!(held.values().copied().collect::<Vec<_>>(), [Span::hours(1)]);
}

#[test]
fn a_start_on_a_machine_that_is_there_says_nothing_of_one_that_is_to_be_got() {
    let steps = || JobSpec { work: WorkSpec { unit: WorkUnit::Steps, ..asks(1, None).work }, ..asks(1, None) };
    let (mut world, [(first, one), (second, guest)], _) = side_by_side(steps(), steps());
    world.pass(Span::seconds(10));
    for stint in [one, guest] {
        world.event(Event::Progress { stint, done: Work(1_000), total: None });
    }
    let restarts = |id| world.brain.job(id).expect("known").restarts.0;
    assert_eq!((restarts(first), restarts(second)), (1, 0));
}

#[test]
fn a_guest_with_a_budget_keeps_enough_for_all_of_the_machine() {
    let budget = |dollars| JobSpec { budget: Some(NanoUsd::from_dollars(dollars)), ..asks(1, None) };
    let (mut world, [_, (poor, _)], _) = side_by_side(asks(1, None), budget(1.0));
    // A quarter of $2 an hour; a last save takes a minute and a half, of all of it in the worst case.
    let paused = |decisions: Vec<Decision>| decisions.contains(&Decision::Pause { workload: poor });
    world.pass(Span::minutes(113));
    assert!(!paused(world.decide()));
    world.pass(Span::minutes(2));
    assert!(paused(world.decide()), "{}", world.view(poor).cost);
}

#[test]
fn who_has_no_budget_is_preferred_to_take_a_machine_over() {
    let budget = JobSpec { budget: Some(NanoUsd::from_dollars(50.0)), ..asks(1, None) };
    let (mut world, [(_, stint), _], lease) = side_by_side(asks(1, None), budget);
    let third = world.submit(asks(1, None));
    world.decide();
    world.started(third);
    world.ended(stint, WorkerEnd::Exited { code: 0 });
    assert!(world.decide().contains(&Decision::HandOver { lease, to: third }));
}

#[test]
fn leases_of_a_gang_and_slices_are_not_shared() {
    let mut world = world_of_four();
    four(&mut world, LARGE_SPOT, 2.0, Some(4));
    world.running(JobSpec { gang: 2, ..asks(1, None) });
    let second = world.submit(asks(1, None));
    world.decide();
    assert_eq!(devices(&world, second), None, "an engine may give groups back as a whole only");

    let mut slices = world_of_four();
    slices.offer_of("tpu-v5e", "test/a/slice/spot", 0.1, Some(1));
    let offer = slices.brain.offer(&OfferId::new("test/a/slice/spot")).expect("seen").clone();
    slices.event(Event::OfferSeen { offer: Offer { accelerators: 8, ..offer } });
    let ask = || vec![Ask::of("tpu-v5e", 4)];
    let (first, _) = slices.running(JobSpec { resources: ask(), ..asks(1, None) });
    assert!(slices.brain.job(first).is_some_and(|job| job.stint.is_some()) && devices(&slices, first).is_none());
}

#[test]
fn two_halves_that_come_at_once_share_one_machine() {
    let mut world = world_of_four();
    four(&mut world, LARGE_SPOT, 2.0, Some(8));
    let jobs = [world.submit(asks(2, None)), world.submit(asks(2, None))];
    world.decide();
    let lease = world.brain.leases_of(jobs[0]).next().expect("asked for").id;
    world.event(up(lease, world.now));
    world.decide();
    assert_eq!(jobs.map(|job| devices(&world, job)), [Some((lease, vec![0, 1])), Some((lease, vec![2, 3]))]);
    assert_eq!(world.leases(), [lease], "the second starts in the same step as the first, and buys nothing");
}

#[test]
fn jobs_that_come_at_once_wait_for_one_machine_that_has_room_for_them() {
    let mut world = world_of_four();
    four(&mut world, LARGE_SPOT, 2.0, Some(8));
    let hurried = world.submit(asks(1, Some(30)));
    assert_eq!(world.decide().len(), 1);
    let late = world.submit(asks(1, Some(31)));
    let decisions = world.decide();
    assert!(
        decisions.iter().all(|decision| matches!(decision, Decision::Acquire { .. })),
        "a deadline waits for nobody"
    );
    for job in [hurried, late] {
        world.event(Event::CancelRequested { workload: job, by: "ada".to_owned() });
    }
    world.decide();
    let jobs: Vec<WorkloadId> = (0..6).map(|_| world.submit(asks(1, None))).collect();
    let large = world.submit(asks(4, None));
    let decisions = world.decide();
    let acquired = |decisions: &[Decision]| -> Vec<WorkloadId> {
        let wants = decisions.iter().filter_map(|decision| match decision {
            Decision::Acquire { want } => Some(want.workload),
            _ => None,
        });
        wants.collect()
    };
    assert_eq!(acquired(&decisions), [jobs[0], jobs[4], large], "four fit on each");
    assert_eq!(
        world.view(jobs[1]).waits_for.as_deref(),
        Some(format!("room on the machine that job {} gets, if some is left", jobs[0]).as_str())
    );
    let first = world.brain.leases_of(jobs[0]).next().expect("asked for").id;
    world.event(up(first, world.now));
    let decisions = world.decide();
    assert_eq!(acquired(&decisions), []);
    let on_first = jobs.iter().filter(|job| devices(&world, **job).is_some_and(|(lease, _)| lease == first));
    assert_eq!(on_first.count(), 4);
    // The one that asked for the other machine leaves: who waited for it gets one.
    world.event(Event::CancelRequested { workload: jobs[4], by: "ada".to_owned() });
    let decisions = world.decide();
    assert_eq!(acquired(&decisions), [jobs[5]], "{decisions:?}");
}

#[test]
fn machines_on_which_programs_cannot_be_told_apart_are_not_shared() {
    let mut world = world_of_four();
    world.event(Event::PoolSeen { pool: pool(false) });
    let (first, _) = world.running(asks(1, None));
    let second = world.submit(asks(1, None));
    world.decide();
    assert!(devices(&world, first).is_some(), "it sees what it asked for all the same");
    assert_eq!(devices(&world, second), None);
}

#[test]
fn who_had_not_begun_on_a_machine_that_died_was_not_interrupted() {
    let mut world = world_of_four();
    world.running(asks(1, None));
    let second = world.submit(asks(1, None));
    world.decide();
    assert!(devices(&world, second).is_some());
    world.gone(LeaseEnd::Taken);
    assert_eq!(world.brain.job(second).expect("it goes on").interruptions, 0);
}

fn asks_for_share(part: u32, of: u32) -> JobSpec {
    let ask = Ask { part: DevicePart::Share { part, of }, ..Ask::of("V100", 1) };
    JobSpec { resources: vec![ask], ..asks(1, None) }
}

#[test]
fn shares_of_one_accelerator_are_given_until_it_is_full_and_paid_for_as_given() {
    let mut world = world_of_four();
    let spot = world.brain.offer(&OfferId::new(LARGE_SPOT)).expect("seen").clone();
    world.event(Event::OfferSeen { offer: Offer { accelerators: 1, ..spot } });
    let (first, _) = world.running(asks_for_share(1, 2));
    let lease = world.leases()[0];
    world.pass(Span::hours(1));
    let third = world.submit(asks_for_share(1, 3));
    let quarter = world.submit(asks_for_share(1, 4));
    let seventh = world.submit(asks_for_share(1, 7));
    world.decide();
    assert_eq!(devices(&world, third), Some((lease, vec![0])), "a half and a third of one accelerator");
    assert_eq!(devices(&world, quarter), None, "a sixth is left");
    assert_eq!(devices(&world, seventh), Some((lease, vec![0])));
    for guest in [third, seventh] {
        world.started(guest);
    }
    world.decide();
    world.pass(Span::hours(42));
    let (part, rest) = (|of: i64| NanoUsd(84_000_000_000 / of), |of: i64| NanoUsd(84_000_000_000 * (of - 1) / of));
    let cost = |job| world.view(job).cost;
    assert_eq!((cost(third), cost(seventh)), (part(3), part(7)), "42 hours at $2");
    assert_eq!(cost(first), NanoUsd(2_000_000_000) + rest(3) - part(7), "the holder pays for what nobody else has");
    let rows = world.brain.take_ledger();
    assert!(rows.iter().all(|row| row.amount.0 >= 0));
}

#[test]
fn a_share_goes_where_least_is_left_so_that_whole_devices_stay_whole() {
    let mut world = world_of_four();
    let (first, _) = world.running(asks_for_share(1, 2));
    let lease = world.leases()[0];
    let half = world.submit(asks_for_share(1, 2));
    let more = world.submit(asks_for_share(2, 3));
    let two = world.submit(asks(2, None));
    let quarter = world.submit(asks_for_share(1, 4));
    world.decide();
    let on = |job| devices(&world, job).expect("has devices").1;
    assert_eq!((on(first), on(half), on(more)), (vec![0], vec![0], vec![1]));
    assert_eq!((on(two), on(quarter)), (vec![2, 3], vec![1]));
    assert_eq!(devices(&world, quarter).expect("known").0, lease);
    let odd = world.submit(asks_for_share(1, 11));
    world.decide();
    assert_eq!(devices(&world, odd), None, "a twelfth is left");
}

#[test]
fn a_share_that_cannot_be_given_is_refused() {
    assert_eq!(asks_for_share(1, 2).check(), Ok(()));
    let tpu = Ask { accelerator: "tpu-v5e".to_owned(), ..asks_for_share(1, 2).resources[0].clone() };
    let mig = DevicePart::Mig { profile: "1g.10gb".to_owned(), slices: 1 };
    let of = |ask: Ask| JobSpec { resources: vec![ask], ..asks(1, None) };
    let wrong = [
        asks_for_share(0, 2),
        asks_for_share(2, 2),
        asks_for_share(1, 21),
        JobSpec { gang: 2, ..asks_for_share(1, 2) },
        of(Ask { count: 2, ..asks_for_share(1, 2).resources[0].clone() }),
        of(tpu),
        of(Ask { part: mig, ..Ask::of("V100", 1) }),
    ];
    for spec in wrong {
        let problem = spec.check().expect_err("refused");
        assert_eq!(problem.field, "resources.accelerators", "{problem}");
    }
}
