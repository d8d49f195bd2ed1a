//! Leases that are refused, never come up, or were never asked for.

use super::*;

#[test]
fn a_lease_that_never_comes_up_is_given_back() {
    let mut world = world();
    world.submit(job(1, None));
    world.decide();
    world.now = world.brain.next_wakeup().expect("a wake-up");
    assert!(matches!(world.decide().as_slice(), [Decision::Release { .. }]));
}

/// A lease of this installation that the log does not know, found by its engine.
fn orphan(offer: &str, since: Time, until: Option<Time>) -> (LeaseId, Event) {
    let lease = LeaseId { group: crate::ids::DecisionId { installation: Installation(7), seq: 99 }, slot: 0 };
    (lease, Event::LeaseFound { lease, offer: OfferId::new(offer), since: Some(since), until })
}

#[test]
fn an_orphan_enters_the_books_as_overhead_and_is_given_back() {
    let mut world = world();
    let (since, later) = (world.now, world.now + Span::hours(1));
    let (lease, found) = orphan(FIRM, since, None);
    world.event(found);
    assert_eq!(world.decide(), [Decision::Release { group: lease.group, slots: vec![0] }]);
    world.pass(Span::hours(1));
    world.event(Event::LeaseGone { lease, at: later, end: LeaseEnd::Released });
    assert_eq!(world.leases(), []);
    let rows = world.brain.take_ledger();
    assert_eq!(rows.iter().map(|row| row.amount.0).sum::<i64>(), NanoUsd::from_dollars(3.0).0);
    assert!(rows.iter().all(|row| row.beneficiary == crate::ledger::Beneficiary::Overhead));
    assert!(
        !world.brain.is_news(&orphan(FIRM, since, Some(later)).1),
        "an engine that still shows it says nothing new"
    );
}

#[test]
fn an_orphan_that_came_and_went_unseen_is_booked_once() {
    let mut world = world();
    let since = world.now;
    world.pass(Span::hours(2));
    let (_, found) = orphan(SPOT, since, Some(since + Span::hours(1)));
    world.event(found.clone());
    assert_eq!(world.decide(), []);
    world.event(found);
    let paid: i64 = world.brain.take_ledger().iter().map(|row| row.amount.0).sum();
    assert_eq!(paid, NanoUsd::from_dollars(0.9).0);
    let foreign = LeaseId { group: crate::ids::DecisionId { installation: Installation(8), seq: 99 }, slot: 0 };
    let other = Event::LeaseFound { lease: foreign, offer: OfferId::new(SPOT), since: Some(since), until: None };
    assert!(!world.brain.is_news(&other), "another installation's lease is none of ours");
}

/// A world whose spot capacity was just refused.
fn refused() -> World {
    let mut world = world();
    world.submit(job(1, None));
    world.decide();
    let group = world.leases()[0].group;
    world.event(Event::GroupFailed { group, refusal: Refusal::NoCapacity });
    assert!(world.decide().is_empty());
    world
}

#[test]
fn a_refused_offer_is_left_alone_for_a_while() {
    let mut world = refused();
    world.now = world.brain.next_wakeup().expect("a wake-up");
    world.decide();
    assert_eq!(world.market(), Market::Spot);
}

#[test]
fn who_was_loaded_asks_a_refused_offer_again_as_well() {
    let mut world = refused();
    let stored = serde_json::to_string(&world.brain).expect("stored");
    world.brain = serde_json::from_str(&stored).expect("loaded");
    assert!(world.decide().is_empty());
    world.now = world.brain.next_wakeup().expect("a wake-up");
    world.decide();
    assert_eq!(world.market(), Market::Spot);
}

#[test]
fn capacity_that_is_seen_again_ends_the_pause() {
    let mut world = refused();
    world.offer(SPOT, 0.9, Some(9));
    world.decide();
    assert_eq!(world.leases().len(), 1);
}
