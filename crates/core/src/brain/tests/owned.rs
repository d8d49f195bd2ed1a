//! Machines of one's own: given in parts, and waited for.

use super::*;
use crate::spec::Ask;

/// A machine of four accelerators and two processors, as its engine shows it while nobody uses it.
fn lab() -> World {
    let mut world =
        World { brain: Brain::new(Installation(7), Config::default()), now: Time(1_000_000), decided: Vec::new() };
    for count in [0, 1, 2, 3, 4] {
        part(&mut world, count, Some(4_u32.checked_div(count).unwrap_or(2)));
    }
    world
}

fn id(count: u32) -> String {
    format!("lab/node/{count}/owned")
}

fn part(world: &mut World, count: u32, capacity: Option<u32>) {
    world.offer_of(if count == 0 { "" } else { "H200" }, &id(count), 0.0, capacity);
    let offer = world.brain.offer(&OfferId::new(&id(count))).expect("seen").clone();
    let pool = crate::ids::PoolId("lab".into());
    world.event(Event::OfferSeen { offer: Offer { market: Market::Owned, accelerators: count, pool, ..offer } });
}

fn asks(count: u32) -> JobSpec {
    let resources = if count == 0 { Vec::new() } else { vec![Ask::of("H200", count)] };
    JobSpec { resources, ..job(1, None) }
}

fn asked_for(decisions: &[Decision]) -> Vec<String> {
    let offer = |decision: &Decision| match decision {
        Decision::Acquire { want } => Some(want.alternatives[0].offer.to_string()),
        _ => None,
    };
    decisions.iter().filter_map(offer).collect()
}

#[test]
fn nobody_gets_more_of_an_owned_machine_than_is_asked_for() {
    let mut world = lab();
    for count in [3, 0, 1] {
        world.submit(asks(count));
        assert_eq!(asked_for(&world.decide()), [id(count)]);
    }
}

#[test]
fn who_finds_everything_in_use_waits_and_says_so_until_it_is_free() {
    let mut world = lab();
    let first = world.submit(asks(4));
    world.decide();
    world.up_all();
    world.decide();
    world.started(first);
    for count in 1..=3 {
        part(&mut world, count, Some(0));
    }
    let second = world.submit(asks(2));
    assert_eq!(world.decide(), []);
    let waits = world.view(second).waits_for;
    assert_eq!(waits.as_deref(), Some("what it asks for is in use on owned machines"));
    let third = world.submit(asks(4));
    assert_eq!(world.decide(), [], "what is held is not shown as gone");
    assert_eq!(world.view(third).waits_for, waits);
    part(&mut world, 2, Some(1));
    assert_eq!(asked_for(&world.decide()), [id(2)]);
}

#[test]
fn a_gang_that_is_larger_than_all_machines_is_told_so() {
    let mut world = lab();
    let capacity = crate::pool::Shape { accelerators: 4, cpu_millis: 2_000, memory_bytes: 0 };
    let node = crate::pool::Node {
        id: crate::ids::NodeId("lab/node".into()),
        pool: crate::ids::PoolId("lab".into()),
        accelerator: "H200".to_owned(),
        capacity,
        foreign: Default::default(),
        domains: Default::default(),
        health: crate::pool::Health::Ready,
        rate: NanoUsd(0),
        symptoms: Vec::new(),
        mixed: false,
        drained_for: None,
        alone: false,
    };
    let capacity = crate::pool::Shape { cpu_millis: 4_000, ..capacity };
    let other = crate::pool::Node { id: crate::ids::NodeId("lab/other".into()), capacity, ..node.clone() };
    world.event(Event::NodeSeen { node: node.clone().into() });
    for (count, gang, room) in [(2, 3, Some(2)), (0, 3, Some(2)), (2, 2, None)] {
        let id = world.submit(JobSpec { gang, ..asks(count) });
        world.decide();
        let waits = world.view(id).waits_for.unwrap_or_default();
        let told = room
            .map(|room| format!("(it needs {gang} workers at once, and all machines together have room for {room})"));
        assert!(told.as_ref().is_none_or(|told| waits.contains(told)), "{waits}");
        assert!(told.is_some() || !waits.contains("together"), "{waits}");
    }
    let alone = crate::pool::Node { id: crate::ids::NodeId("lab/server".into()), alone: true, ..node.clone() };
    world.event(Event::NodeSeen { node: node.into() });
    for (another, is) in [(other, "of another kind"), (alone, "alike, but never one of several")] {
        world.event(Event::NodeSeen { node: another.into() });
        let id = world.submit(JobSpec { gang: 2, ..asks(4) });
        world.decide();
        let waits = world.view(id).waits_for.unwrap_or_default();
        assert!(waits.contains("machines of one kind have room for 1"), "{is}: {waits}");
    }
}
