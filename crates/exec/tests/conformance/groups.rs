//! Facts about groups: several leases in one request, in part or whole, of one alternative or of another.

use crate::stage::{Stage, lease};
use windfall_core::want::Alternative;
use windfall_core::{DecisionId, GroupPhase, LeaseId, Refusal, Want};
use windfall_exec::{EngineError, LeaseState, SeenGroup};

fn group(seq: u64) -> DecisionId {
    lease(seq).group
}

/// So many leases of the stage's other offer, or at least so many of them.
fn want(stage: &impl Stage, units: u32, least: u32) -> Want {
    let (offer, _) = stage.other();
    Want { units, least, alternatives: vec![Alternative { offer, max_price: None }], ..stage.want() }
}

/// The same kind of engine, where things are scarce.
fn again<S: Stage>(_stage: &mut S) -> S {
    S::scarce()
}

fn acquire(stage: &impl Stage, seq: u64, want: &Want) -> Result<SeenGroup, EngineError> {
    stage.wait_for(stage.engine().acquire(group(seq), want))
}

fn units(seen: &SeenGroup) -> u32 {
    let GroupPhase::Granted { units, .. } = seen.phase else { panic!("{seen:?}") };
    let slots: Vec<u32> = seen.leases.iter().map(|seen| seen.lease.slot).collect();
    assert_eq!(slots, (0..units).collect::<Vec<_>>(), "slots are counted from 0");
    units
}

fn give_back(stage: &impl Stage, seen: &SeenGroup) {
    let slots: Vec<u32> = seen.leases.iter().map(|seen| seen.lease.slot).collect();
    let gone = stage.wait_for(stage.engine().release(seen.group, &slots)).unwrap();
    assert_eq!(gone.len(), slots.len());
    assert!(gone.iter().all(|seen| matches!(seen.state, LeaseState::Gone { .. })), "{gone:?}");
}

pub fn a_group_comes_whole_and_asked_twice_it_is_one(stage: &mut impl Stage) {
    let wanted = want(stage, 3, 3);
    let both =
        async { tokio::join!(stage.engine().acquire(group(1), &wanted), stage.engine().acquire(group(1), &wanted)) };
    let (first, second) = stage.wait_for(both);
    let (first, second) = (first.unwrap(), second.unwrap());
    assert_eq!((units(&first), &first), (3, &second));
    for seen in &first.leases {
        assert!(matches!(&seen.state, LeaseState::Up { ready: Some(_), .. }), "{seen:?}");
        assert!(!stage.running(seen.lease).is_empty(), "each has a machine of its own");
    }
    // Asked again with other words, it is still the group that was made.
    assert_eq!(acquire(stage, 1, &stage.want()).unwrap(), first);
    stage.reopen();
    let again = acquire(stage, 1, &wanted).unwrap();
    assert_eq!((units(&again), &again.leases), (3, &first.leases));
    assert_eq!(stage.wait_for(stage.engine().list_owned()).unwrap().len(), 3);
    give_back(stage, &again);
    for slot in 0..3 {
        assert!(stage.running(LeaseId { group: group(1), slot }).is_empty());
    }
}

pub fn a_group_is_granted_in_part_down_to_the_least_and_never_below(stage: &mut impl Stage) {
    let stage = &mut again(stage);
    let (_, capacity) = stage.other();
    let refused = acquire(stage, 1, &want(stage, capacity + 1, capacity + 1));
    assert!(matches!(refused, Err(EngineError::Refused(Refusal::NoCapacity))), "{refused:?}");
    assert!(stage.wait_for(stage.engine().list_owned()).unwrap().is_empty(), "nothing is left of a refusal");
    let part = acquire(stage, 2, &want(stage, capacity + 1, capacity)).unwrap();
    assert_eq!(units(&part), capacity);
    let none = acquire(stage, 3, &want(stage, 1, 1));
    assert!(matches!(none, Err(EngineError::Refused(Refusal::NoCapacity))), "{none:?}");
    give_back(stage, &part);
    let after = acquire(stage, 4, &want(stage, 1, 1)).unwrap();
    give_back(stage, &after);
}

pub fn an_alternative_is_taken_when_the_first_cannot_be_had_and_the_lease_says_which(stage: &mut impl Stage) {
    let stage = &mut again(stage);
    let (offer, _) = stage.other();
    let offers = stage.wait_for(stage.engine().offers()).unwrap();
    let first = offers.into_iter().find(|shown| shown.id != offer).unwrap().id;
    let mut wanted = stage.want();
    wanted.alternatives = vec![Alternative { offer: first, max_price: Some(windfall_core::NanoUsd(1)) }];
    wanted.alternatives.push(Alternative { offer: offer.clone(), max_price: None });
    let seen = acquire(stage, 1, &wanted).unwrap();
    assert!(
        matches!(&seen.leases[0].state, LeaseState::Up { terms, .. } if terms.offer == Some(offer.clone())),
        "{seen:?}"
    );
    let owned = stage.wait_for(stage.engine().list_owned()).unwrap();
    assert_eq!(owned.iter().map(|owned| &owned.offer).collect::<Vec<_>>(), [&offer]);
    give_back(stage, &seen);
}

pub fn one_of_a_group_can_go_and_the_others_stay(stage: &mut impl Stage) {
    let seen = acquire(stage, 1, &want(stage, 2, 2)).unwrap();
    let [first, second] = [seen.leases[0].lease, seen.leases[1].lease];
    stage.break_machine(second);
    stage.until("is gone", second, |observed| matches!(observed.state, LeaseState::Gone { .. }));
    assert!(matches!(stage.see(first).unwrap().state, LeaseState::Up { .. }));
    stage.wait_for(stage.engine().forget(&[second])).unwrap();
    assert!(stage.see(second).is_none() && stage.see(first).is_some());
    stage.release(first).unwrap();
}
