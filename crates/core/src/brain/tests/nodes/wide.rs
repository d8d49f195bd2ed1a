//! What is said of machines that cannot be used, and of gangs that are wider than all of them.

use super::*;

#[test]
fn who_waits_hears_of_a_node_that_was_drained_because_it_is_not_well() {
    let mut world = world();
    for id in [SPOT, FIRM] {
        world.event(Event::OfferGone { offer: OfferId::new(id) });
    }
    let kind = crate::SymptomKind::Xid { number: 79 };
    let gone = crate::Symptom { kind, device: Some("GPU-a".to_owned()), seen_unix_ms: 1, accepted: false };
    world.event(Event::NodeSeen { node: Box::new(Node { health: Health::Drained, symptoms: vec![gone], ..node() }) });
    let waiting = world.submit(job(8, None));
    world.decide();
    let waits = world.view(waiting).waits_for.expect("it waits");
    assert!(waits.ends_with("; n1 is drained: GPU-a: it has fallen off the bus (XID 79)"), "{waits}");
    world.event(Event::NodeSeen { node: Box::new(node()) });
    assert!(!world.view(waiting).waits_for.expect("it waits").contains("drained"));
    world.event(Event::NodeSeen { node: Box::new(Node { health: Health::Drained, ..node() }) });
    let waits = world.view(waiting).waits_for.expect("it waits");
    assert!(waits.ends_with("; n1 is drained: by its operator"), "{waits}");
    let moved = Node { health: Health::Drained, drained_for: Some("it moves to hall 4".to_owned()), ..node() };
    world.event(Event::NodeSeen { node: Box::new(moved) });
    let waits = world.view(waiting).waits_for.expect("it waits");
    assert!(waits.ends_with("; n1 is drained: it moves to hall 4"), "{waits}");
}

#[test]
fn a_gang_is_as_wide_as_what_there_is_on_machines_that_stay_what_they_are() {
    let mut world = farm();
    for id in [SPOT, FIRM] {
        let offer = world.brain.offer(&OfferId::new(id)).expect("seen").clone();
        world.event(Event::OfferSeen { offer: Offer { market: Market::Owned, ..offer } });
    }
    let of = |gang: u32| JobSpec { gang, resources: vec![crate::spec::Ask::of("V100", 1)], ..job(1, None) };
    assert_eq!(world.brain.too_wide(&of(100)), None, "no machine was seen yet");
    let second = Node { id: NodeId("test/n2".into()), health: Health::Drained, ..node() };
    let other = Node { id: NodeId("test/n3".into()), accelerator: "H200".into(), ..node() };
    for node in [node(), second.clone(), other] {
        world.see(node);
    }
    assert_eq!(world.brain.too_wide(&of(16)), None, "a drained one comes back");
    let wide = world.brain.too_wide(&of(17)).expect("too wide");
    assert!(wide.contains("all machines together have room for 16"), "{wide}");
    assert_eq!(world.brain.too_wide(&JobSpec { least_gang: Some(16), ..of(17) }), None, "it can do with fewer");
    // One that stands alone is not one of several.
    world.see(Node { alone: true, ..second });
    let wide = world.brain.too_wide(&of(16)).expect("too wide");
    assert!(wide.contains("machines of one kind have room for 8"), "{wide}");
    // What else a machine of several models has is not known by name.
    world.see(Node { mixed: true, ..node() });
    assert_eq!(world.brain.too_wide(&of(100)), None);
    world.see(node());
    assert!(world.brain.too_wide(&of(100)).is_some() && world.brain.too_wide(&of(1)).is_none());
    // More can be bought one day.
    world.offer("sold", 1.0, Some(1));
    assert_eq!(world.brain.too_wide(&of(100)), None);
}
