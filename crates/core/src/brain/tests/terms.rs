//! Leases that end by agreement: what runs on them saves and leaves in time, and goes on elsewhere.

use super::*;
use crate::GroupPhase;
use crate::want::{Address, LeaseTerms};

/// A job of so many hours that runs on a lease which ends by agreement after so long.
fn running_for(hours: i64, term: Span, deadline_hours: Option<i64>) -> (World, WorkloadId, StintId) {
    let mut world = world();
    let id = world.submit(job(hours, deadline_hours));
    world.decide();
    up_for(&mut world, term);
    world.decide();
    let stint = world.started(id);
    assert!(world.decide().is_empty());
    (world, id, stint)
}

fn up_for(world: &mut World, term: Span) {
    let terms = LeaseTerms { ends_by: Some(world.now + term), ..LeaseTerms::default() };
    for lease in world.leases() {
        let ready = Some(Address::default());
        world.event(Event::LeaseUp { lease, at: world.now, terms: Box::new(terms.clone()), ready });
    }
}

/// Sleeps until the brain decides something, by its own wake-ups alone.
fn until_decided(world: &mut World) -> Vec<Decision> {
    for _ in 0..1_000 {
        world.now = world.brain.next_wakeup().expect("a wake-up");
        // It may be asked to save meanwhile.
        let mut decided = world.decide();
        decided.retain(|decision| !matches!(decision, Decision::Checkpoint { .. }));
        if !decided.is_empty() {
            return decided;
        }
    }
    panic!("nothing is decided");
}

#[test]
fn a_program_saves_and_leaves_before_its_machine_ends_by_agreement_and_goes_on_on_another() {
    let (mut world, id, stint) = running_for(10, Span::hours(4), None);
    let began = world.now;
    let decided = until_decided(&mut world);
    assert!(matches!(decided.as_slice(), [Decision::Stop { .. }]), "{decided:?}");
    let left = began + Span::hours(4) - world.now;
    let grace = world.brain.job(id).expect("known").spec.run.grace;
    assert!(
        left >= grace + Span::seconds(60) && left < Span::minutes(10),
        "time for a save, and not much more: {left}"
    );
    assert_eq!(world.decided.last().expect("decided").reason.rule, "term");
    world.saved(stint, 1, world.now - began);
    world.ended(stint, WorkerEnd::Stopped);
    let decided = world.decide();
    assert!(matches!(decided.as_slice(), [Decision::Release { .. }]), "it is not begun there again: {decided:?}");
    world.gone(LeaseEnd::Released);
    let decided = world.decide();
    assert!(matches!(decided.as_slice(), [Decision::Acquire { .. }]), "{decided:?}");
    let view = world.view(id);
    assert_eq!((view.interruptions, view.lost), (0, Span::ZERO), "what was agreed on is no interruption");
}

#[test]
fn work_that_is_done_before_its_machine_ends_is_not_stopped() {
    let (mut world, _, stint) = running_for(3, Span::hours(3) + Span::minutes(6), None);
    let end = world.now + Span::hours(3);
    while world.now < end {
        world.now = world.brain.next_wakeup().filter(|at| *at < end).unwrap_or(end);
        let decided = world.decide();
        assert!(!decided.iter().any(|decision| matches!(decision, Decision::Stop { .. })), "{decided:?}");
    }
    world.ended(stint, WorkerEnd::Exited { code: 0 });
    assert!(world.decide().iter().any(|decision| matches!(decision, Decision::End { .. })));
}

#[test]
fn half_of_a_short_time_is_used_however_little_that_is() {
    let (mut world, _, stint) = running_for(1, Span::seconds(60), None);
    let began = world.now;
    let decided = until_decided(&mut world);
    assert!(matches!(decided.as_slice(), [Decision::Stop { .. }]), "{decided:?}");
    assert_eq!(world.now - began, Span::seconds(30));
    world.ended(stint, WorkerEnd::Stopped);
    world.decide();
    world.gone(LeaseEnd::Released);
    world.decide();
    up_for(&mut world, Span::seconds(60));
    assert!(matches!(world.decide().as_slice(), [Decision::Start { .. }]), "a new one is begun on");
}

/// What the last request for machines said of how long they are needed.
fn asked_for(decided: &[Decision]) -> Option<Span> {
    let mut wants = decided.iter().filter_map(|decision| match decision {
        Decision::Acquire { want } => Some(want),
        _ => None,
    });
    wants.next_back().expect("a request").lasts
}

#[test]
fn a_program_that_saves_nothing_before_its_machines_end_is_told_of_and_gets_all_the_time_that_can_be_had() {
    let (mut world, id, mut stint) = running_for(10, Span::hours(4), None);
    for times in 1..=3_u32 {
        let decided = until_decided(&mut world);
        assert!(matches!(decided.as_slice(), [Decision::Stop { .. }]), "{decided:?}");
        world.ended(stint, WorkerEnd::Stopped);
        let told = world.view(id).told.expect("it is told").to_string();
        assert!(told.contains("after 4h 0m, and nothing had been saved"), "{told}");
        assert_eq!(told.contains(&format!("{times} times in a row")), times > 1, "{told}");
        world.decide();
        world.gone(LeaseEnd::Released);
        let decided = world.decide();
        assert_eq!(asked_for(&decided), None, "for as long as can be had");
        up_for(&mut world, Span::hours(4));
        world.decide();
        stint = world.started(id);
        world.decide();
    }
}

#[test]
fn a_deadline_is_not_called_lost_because_machines_that_follow_may_be_waited_for() {
    let late = |deadline_hours: i64| {
        let (world, id, _) = running_for(10, Span::hours(1), Some(deadline_hours));
        let job = world.brain.job(id).expect("known");
        let sight = world.brain.sight(job, world.now);
        assert!(sight.renewals > Span::minutes(15), "{}", sight.renewals);
        sight.late_by()
    };
    assert_eq!(late(11), None, "what follows is a guess");
    assert!(late(9).is_some(), "what is left to do is not");
}

#[test]
fn what_it_costs_that_machines_end_is_kept_room_for() {
    let slack = |term: Span| {
        let (world, id, _) = running_for(10, term, Some(24));
        world.view(id).slack.expect("a deadline")
    };
    let (long, short) = (slack(Span::hours(20)), slack(Span::hours(4)));
    let restarts = (long - short).0 / Span::minutes(2).0;
    assert_eq!((long - short, restarts), (Span::minutes(4), 2), "two more machines, two more starts");
}

#[test]
fn what_is_refused_to_one_owner_is_left_alone_by_that_job_and_by_nobody_else() {
    let mut world = world();
    let (one, other) = (world.submit(job(1, None)), world.submit(job(1, None)));
    world.decide();
    let group = world.brain.leases_of(one).next().expect("asked for").id.group;
    world.event(Event::GroupFailed { group, refusal: Refusal::Owner });
    assert!(world.decide().is_empty(), "it waits, without a deadline");
    assert!(world.brain.leases_of(other).next().is_some());
    let third = world.submit(job(1, None));
    world.decide();
    assert!(world.brain.leases_of(third).next().is_some(), "others get it as before");
    while world.brain.leases_of(one).next().is_none() {
        world.now =
            world.brain.next_wakeup().filter(|at| *at < Time(1_000_000) + Span::minutes(11)).expect("it asks again");
        world.decide();
    }
}

#[test]
fn how_long_groups_waited_in_a_queue_is_kept_room_for() {
    let mut world = world();
    let id = world.submit(job(1, Some(20)));
    world.decide();
    let lease = world.leases()[0];
    world.event(Event::GroupQueued { group: lease.group, since: world.now, eta: None });
    world.pass(Span::minutes(50));
    let offer = world.brain.lease(lease).expect("asked for").offer.clone();
    assert_eq!(world.brain.droughts.wait(&offer, world.now), Span::ZERO);
    world.event(Event::GroupGranted { group: lease.group, at: world.now, units: 1 });
    let wait = world.brain.droughts.wait(&offer, world.now);
    assert!((Span::minutes(50)..Span::minutes(57)).contains(&wait), "{wait}");
    let group = world.brain.groups.get(&lease.group).expect("granted");
    assert!(matches!(group.phase, GroupPhase::Granted { .. }));
    assert_eq!(world.view(id).state, crate::view::State::Acquiring);
}
