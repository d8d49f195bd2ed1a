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

#[test]
fn what_is_done_and_not_saved_is_not_done_again_for_more_workers() {
    let (mut world, id, _) = four();
    // A minute is lost with the stop: it does not save when it is told to.
    world.pass(Span::minutes(1));
    let lost = world.leases()[0];
    world.goes_on_without(id, lost);
    world.decide();
    // Two hours are not saved when the machine is there at last.
    world.pass(Span::hours(2));
    let new = *world.leases().last().expect("asked for");
    world.event(up(new, world.now));
    let decisions = world.decide();
    let stops = |decision: &Decision| matches!(decision, Decision::Stop { .. });
    let given_back = |decision: &Decision| matches!(decision, Decision::Release { .. });
    assert!(!decisions.iter().any(stops) && decisions.iter().any(given_back), "{decisions:?}");
    world.lose(new);
    assert!(world.decide().is_empty());
    let stint = world.stint(id);
    world.saved(stint, 1, Span::hours(2));
    let decisions = world.decide();
    assert!(matches!(decisions.as_slice(), [Decision::Acquire { .. }]), "now it is worth it: {decisions:?}");
}
