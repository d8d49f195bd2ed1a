//! Gangs whose number of workers may change: only what is lost is replaced, and the others go on meanwhile.

use super::*;
use crate::view::State;

/// A gang of two to four that runs with four.
fn four() -> (World, WorkloadId, StintId) {
    let mut world = world();
    let (id, stint) = world.running(JobSpec { gang: 4, least_gang: Some(2), ..job(8, None) });
    world.pass(Span::hours(1));
    world.saved(stint, 1, Span::hours(1));
    assert!(world.decide().is_empty());
    (world, id, stint)
}

impl World {
    /// All workers of a gang have stopped, and what they saved last is stored.
    fn all_stopped(&mut self, id: WorkloadId) {
        let stint = self.stint(id);
        let size = self.brain.job(id).and_then(|job| job.stint.as_ref()).expect("a stint").size();
        for rank in 0..size {
            self.event(Event::WorkerEnded { stint, rank, end: WorkerEnd::Stopped, settled: true });
        }
    }

    fn lose(&mut self, lease: LeaseId) {
        self.event(Event::LeaseGone { lease, at: self.now, end: LeaseEnd::Lost });
    }

    fn last_rule(&self) -> &str {
        &self.decided.last().expect("something was decided").reason.rule
    }

    /// The leases that a gang starts on, which is all that is decided.
    fn starts_on(&mut self) -> Vec<LeaseId> {
        let decisions = self.decide();
        let [Decision::Start { allocations, .. }] = decisions.as_slice() else { panic!("{decisions:?}") };
        allocations.iter().map(|part| part.lease).collect()
    }

    /// One of its machines is lost, and the others have begun anew without it.
    fn goes_on_without(&mut self, id: WorkloadId, lost: LeaseId) -> Vec<LeaseId> {
        self.lose(lost);
        let decisions = self.decide();
        assert!(matches!(decisions.as_slice(), [Decision::Stop { .. }]), "{decisions:?}");
        self.all_stopped(id);
        let on = self.starts_on();
        self.started(id);
        on
    }
}

#[test]
fn only_the_machine_that_is_lost_is_replaced_and_the_others_work_meanwhile() {
    let (mut world, id, _) = four();
    let all = world.leases();
    let three = world.goes_on_without(id, all[1]);
    assert_eq!(three, [all[0], all[2], all[3]]);
    let decisions = world.decide();
    let [Decision::Acquire { want }] = decisions.as_slice() else { panic!("{decisions:?}") };
    assert_eq!((want.units, want.least, &want.beside), (1, 1, &three));
    assert_eq!(world.view(id).state, State::Running);
    world.pass(Span::minutes(5));
    assert!(world.decide().is_empty(), "it is asked for once");

    let new = *world.leases().last().expect("asked for");
    world.event(up(new, world.now));
    let decisions = world.decide();
    assert!(matches!(decisions.as_slice(), [Decision::Stop { .. }]), "{decisions:?}");
    assert_eq!(world.last_rule(), "fill-up");
    world.all_stopped(id);
    assert_eq!(world.starts_on(), [all[0], all[2], all[3], new]);
    let job = world.brain.job(id).expect("known");
    assert_eq!((job.interruptions, job.failures), (1, 0), "that it was stopped to go on with four is none");
}

#[test]
fn a_machine_under_notice_is_given_back_and_the_others_are_kept() {
    let (mut world, id, _) = four();
    let all = world.leases();
    world.event(Event::LeaseNoticed { lease: all[3], ends_at: world.now + Span::minutes(2), why: None });
    assert!(matches!(world.decide().as_slice(), [Decision::Stop { .. }]), "all of it saves");
    world.all_stopped(id);
    let decisions = world.decide();
    let [Decision::Release { slots, .. }, Decision::Start { allocations, .. }] = decisions.as_slice() else {
        panic!("{decisions:?}")
    };
    assert_eq!((slots.as_slice(), allocations.len()), ([3].as_slice(), 3));
}

#[test]
fn with_fewer_than_it_can_do_with_a_gang_keeps_nothing() {
    let (mut world, id, _) = four();
    let all = world.leases();
    all[..3].iter().for_each(|lease| world.lose(*lease));
    world.decide();
    world.all_stopped(id);
    let decisions = world.decide();
    assert!(matches!(decisions.as_slice(), [Decision::Release { slots, .. }] if *slots == [3]), "{decisions:?}");
}

#[test]
fn what_is_not_on_sale_is_taken_as_soon_as_it_is() {
    let (mut world, id, _) = four();
    world.offer(SPOT, 0.9, Some(3));
    let lost = world.leases()[0];
    world.goes_on_without(id, lost);
    assert!(world.decide().is_empty(), "there are three, and it has them");
    let wake = world.brain.next_wakeup();
    world.pass(Span::minutes(3));
    assert!(world.decide().iter().all(|decision| matches!(decision, Decision::Checkpoint { .. })), "{wake:?}");
    world.offer(SPOT, 0.9, Some(4));
    let decisions = world.decide();
    assert!(matches!(decisions.as_slice(), [Decision::Acquire { want }] if want.units == 1), "{decisions:?}");
    // What was refused is asked for again when that may be.
    let group = world.leases().last().expect("asked for").group;
    world.event(Event::GroupFailed { group, refusal: Refusal::NoCapacity });
    assert!(world.decide().is_empty());
    let again = (0..100).any(|_| {
        world.now = world.brain.next_wakeup().expect("a wake-up");
        world.decide().iter().any(|decision| matches!(decision, Decision::Acquire { .. }))
    });
    assert!(again);
}

#[test]
fn a_machine_that_never_gets_ready_stops_nobody() {
    let (mut world, id, _) = four();
    let lost = world.leases()[0];
    let three = world.goes_on_without(id, lost);
    world.decide();
    let given_back = (0..100).find_map(|_| {
        world.now = world.brain.next_wakeup().expect("a wake-up");
        let decisions = world.decide();
        assert!(!decisions.iter().any(|decision| matches!(decision, Decision::Stop { .. })), "{decisions:?}");
        decisions.into_iter().find_map(|decision| match decision {
            Decision::Release { group, .. } => Some(group),
            _ => None,
        })
    });
    assert!(given_back.is_some_and(|group| group != three[0].group));
    assert_eq!(world.view(id).state, State::Running);
}

#[test]
fn survivors_do_not_wait_for_a_machine_that_is_still_on_its_way() {
    let (mut world, id, _) = four();
    let all = world.leases();
    world.goes_on_without(id, all[0]);
    world.decide();
    assert_eq!(world.leases().len(), 4, "one is on its way");
    let two = world.goes_on_without(id, all[1]);
    assert_eq!(two, [all[2], all[3]]);
}

#[test]
fn near_its_end_a_gang_is_left_as_it_is() {
    let (mut world, id, stint) = four();
    world.pass(Span::minutes(6 * 60 + 55));
    world.saved(stint, 2, Span::minutes(7 * 60 + 55));
    world.decide();
    let lost = world.leases()[0];
    world.goes_on_without(id, lost);
    let decisions = world.decide();
    assert!(decisions.is_empty(), "five minutes of work are left: {decisions:?}");
}

/// A gang of three to four whose hours since the last save are not saved when a fourth machine is there at last.
fn with_hours_unsaved() -> (World, WorkloadId, LeaseId) {
    let (mut world, id, _) = four();
    // A minute is lost with the stop: it does not save when it is told to.
    world.pass(Span::minutes(1));
    let lost = world.leases()[0];
    world.goes_on_without(id, lost);
    world.decide();
    world.pass(Span::hours(2));
    let new = *world.leases().last().expect("asked for");
    world.event(up(new, world.now));
    let decisions = world.decide();
    assert!(matches!(decisions.as_slice(), [Decision::Checkpoint { .. }]), "it is asked to save: {decisions:?}");
    (world, id, new)
}

#[test]
fn what_is_done_and_not_saved_is_not_done_again_for_more_workers() {
    let (mut world, id, new) = with_hours_unsaved();
    let stint = world.stint(id);
    world.pass(Span::minutes(5));
    world.saved(stint, 1, Span::minutes(125));
    let decisions = world.decide();
    assert!(matches!(decisions.as_slice(), [Decision::Stop { .. }]), "now little is lost: {decisions:?}");
    world.all_stopped(id);
    assert!(world.starts_on().contains(&new));
}

#[test]
fn machines_do_not_wait_for_ever_for_a_program_that_never_saves() {
    let (mut world, id, new) = with_hours_unsaved();
    let (began, mut asked) = (world.now, 0);
    for _ in 0..2_000 {
        let Some(next) = world.brain.next_wakeup().filter(|next| *next < began + Span::hours(4)) else { break };
        world.now = next;
        for decision in world.decide() {
            match decision {
                Decision::Release { group, slots } => {
                    assert!(world.now - began >= Span::minutes(20));
                    for slot in slots {
                        world.lose(LeaseId { group, slot });
                    }
                }
                Decision::Acquire { .. } => asked += 1,
                Decision::Stop { .. } => panic!("it loses hours"),
                _ => {}
            }
        }
    }
    assert!(!world.leases().contains(&new), "it was given back");
    assert!(asked <= 4, "{asked} requests in four hours");
    assert_eq!(world.view(id).state, State::Running);
}

#[test]
fn a_gang_of_which_one_is_done_is_left_to_end() {
    let (mut world, id, _) = four();
    let lost = world.leases()[0];
    world.goes_on_without(id, lost);
    world.decide();
    let (stint, new) = (world.stint(id), *world.leases().last().expect("asked for"));
    let end = WorkerEnd::Exited { code: 0 };
    world.event(Event::WorkerEnded { stint, rank: 1, end, settled: true });
    world.event(up(new, world.now));
    let decisions = world.decide();
    assert!(matches!(decisions.as_slice(), [Decision::Release { .. }]), "{decisions:?}");
    world.lose(new);
    world.pass(Span::hours(1));
    assert!(!world.decide().iter().any(|one| matches!(one, Decision::Stop { .. } | Decision::Acquire { .. })));
}

#[test]
fn nobody_knows_how_much_there_is_to_do_and_only_what_is_saved_is_left_behind() {
    let mut world = world();
    let work = WorkSpec { unit: WorkUnit::Steps, ..WorkSpec::default() };
    world.offer(SPOT, 0.9, Some(3));
    let (id, stint) = world.running(JobSpec { gang: 4, least_gang: Some(2), work, ..job(8, None) });
    world.offer(SPOT, 0.9, Some(4));
    assert!(world.decide().is_empty(), "it has never saved");
    world.pass(Span::hours(1));
    world.saved(stint, 1, Span::hours(1));
    assert!(matches!(world.decide().as_slice(), [Decision::Acquire { .. }]));
    world.pass(Span::minutes(10));
    let new = *world.leases().last().expect("asked for");
    world.event(up(new, world.now));
    let stops = |decisions: &[Decision]| decisions.iter().any(|one| matches!(one, Decision::Stop { .. }));
    assert!(!stops(&world.decide()), "ten minutes are not saved");
    world.pass(Span::minutes(5));
    world.saved(stint, 2, Span::minutes(75));
    assert!(stops(&world.decide()));
    assert_eq!(world.brain.job(id).expect("known").stint.as_ref().map(|stint| stint.size()), Some(3));
}

/// Two of five, where one more can be had: what is asked for is worth it, or is not asked for.
#[test]
fn what_is_asked_for_is_kept() {
    let mut both = [0, 0];
    for left in 1..=24 {
        let mut world = world();
        world.offer(SPOT, 0.9, Some(2));
        let (_, stint) = world.running(JobSpec { gang: 5, least_gang: Some(2), ..job(8, None) });
        // So many minutes of work of five are left.
        let ran = Span::minutes(8 * 60 - left).scaled(5, 2);
        world.pass(ran);
        world.saved(stint, 1, ran);
        world.offer(SPOT, 0.9, Some(3));
        let asked = world.decide().iter().any(|one| matches!(one, Decision::Acquire { .. }));
        both[usize::from(asked)] += 1;
        if asked {
            let new = *world.leases().last().expect("asked for");
            world.event(up(new, world.now));
            let decisions = world.decide();
            assert!(!decisions.iter().any(|one| matches!(one, Decision::Release { .. })), "{left}: {decisions:?}");
        }
    }
    assert!(both.iter().all(|times| *times > 0), "{both:?}");
}

#[test]
fn a_machine_that_a_gang_is_to_go_on_with_takes_nobody_in() {
    use crate::pool::{Books, Habits, Placing, Supply};
    let mut world = world();
    let pool = Pool {
        id: PoolId::default(),
        engine: "test".into(),
        placing: Placing::Theirs,
        supply: Supply::Elastic,
        books: Books::Leased,
        habits: Habits::USUAL,
        tells_apart: true,
    };
    world.event(Event::PoolSeen { pool });
    let offer = world.brain.offer(&OfferId::new(SPOT)).expect("seen").clone();
    let eight = |capacity| Offer { accelerators: 8, capacity: Some(capacity), ..offer.clone() };
    world.event(Event::OfferSeen { offer: eight(2) });
    let spec = JobSpec { resources: vec![crate::spec::Ask::of("V100", 4)], ..job(8, None) };
    let (id, stint) = world.running(JobSpec { gang: 3, least_gang: Some(2), ..spec.clone() });
    world.saved(stint, 1, Span::ZERO);
    world.event(Event::OfferSeen { offer: eight(3) });
    world.decide();
    let new = *world.leases().last().expect("asked for");
    world.event(up(new, world.now));
    assert!(world.decide().iter().any(|one| matches!(one, Decision::Stop { .. })));
    for _ in 0..2 {
        world.submit(spec.clone());
    }
    let decisions = world.decide();
    assert!(!decisions.iter().any(|one| matches!(one, Decision::Start { .. })), "{decisions:?}");
    world.all_stopped(id);
    let decisions = world.decide();
    let starts = |one: &Decision| matches!(one, Decision::Start { allocations, .. } if allocations.len() == 3);
    assert!(decisions.iter().any(starts), "{decisions:?}");
}

#[test]
fn a_machine_that_begins_nothing_is_left_alone_and_the_others_go_on() {
    let (mut world, id, _) = four();
    let all = world.leases();
    let three = world.goes_on_without(id, all[1]);
    for round in 1..=4_u32 {
        assert!(matches!(world.decide().as_slice(), [Decision::Acquire { .. }]), "round {round}");
        let bad = *world.leases().last().expect("asked for");
        let node = NodeId("test/bad".into());
        let terms = Box::new(crate::want::LeaseTerms { node: Some(node), ..Default::default() });
        world.event(Event::LeaseUp { lease: bad, at: world.now, terms, ready: Some(crate::Address::default()) });
        assert!(matches!(world.decide().as_slice(), [Decision::Stop { .. }]), "round {round}");
        world.all_stopped(id);
        assert_eq!(world.starts_on().len(), 4);
        let stint = world.stint(id);
        for rank in 0..4 {
            let why = "the setup failed".to_owned();
            let end = if rank == 3 { WorkerEnd::NeverRan { why } } else { WorkerEnd::Stopped };
            world.event(Event::WorkerEnded { stint, rank, end, settled: true });
        }
        let decisions = world.decide();
        let [Decision::Release { group, .. }, ..] = decisions.as_slice() else { panic!("{decisions:?}") };
        assert_eq!(*group, bad.group, "only the one that begins nothing");
        let mut started = decisions.len() == 2;
        world.lose(bad);
        started |= matches!(world.decide().as_slice(), [Decision::Start { .. }]);
        assert!(started, "round {round}: the others go on");
        world.started(id);
        let job = world.brain.job(id).expect("known");
        assert_eq!((job.fruitless, job.failures), (0, 0), "nothing is wrong with the job");
        let on: Vec<LeaseId> = job.stint.as_ref().expect("a stint").leases().collect();
        assert_eq!(on, three);
        assert!(world.decide().is_empty(), "what begins nothing is not asked for again at once");
        // The pause doubles each time.
        world.pass(Span::minutes((15 << (round - 1)) - 1));
        let early = world.decide();
        assert!(!early.iter().any(|early| matches!(early, Decision::Acquire { .. })), "round {round}: {early:?}");
        world.pass(Span::minutes(2));
        world.saved(world.stint(id), u64::from(round) + 1, Span::hours(1) + Span::minutes(30 * i64::from(round)));
    }
}
