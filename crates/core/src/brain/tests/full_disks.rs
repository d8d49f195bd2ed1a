//! Jobs that find no room on the disks of machines.

use super::*;
use crate::ids::PoolId;
use crate::pool::{Books, Habits, Health, Node, Placing, Pool, Shape, Supply};
use crate::spec::Ask;
use crate::want::{Address, LeaseTerms};

const OWNED: &str = "lab/n1/0/owned";

/// A machine that stays, beside what is sold.
fn lab() -> World {
    let mut world = world();
    let pool = Pool {
        id: PoolId("lab".into()),
        engine: "lab".into(),
        placing: Placing::Theirs,
        supply: Supply::Fixed,
        books: Books::Whole,
        habits: Habits::USUAL,
        tells_apart: false,
    };
    world.event(Event::PoolSeen { pool });
    let node = Node {
        id: node(),
        pool: PoolId("lab".into()),
        accelerator: "K80".into(),
        capacity: Shape { accelerators: 2, ..Shape::default() },
        foreign: Shape::default(),
        domains: BTreeMap::new(),
        symptoms: Vec::new(),
        mixed: false,
        drained_for: None,
        alone: false,
        health: Health::Ready,
        rate: NanoUsd(0),
    };
    world.event(Event::NodeSeen { node: Box::new(node) });
    world.offer_of("K80", OWNED, 0.0, Some(1));
    let offer = world.brain.offer(&OfferId::new(OWNED)).expect("seen").clone();
    world.event(Event::OfferSeen { offer: Offer { market: Market::Owned, pool: PoolId("lab".into()), ..offer } });
    world
}

fn node() -> NodeId {
    NodeId("lab/n1".into())
}

/// The machines that were asked for are there; the job's program is begun on them.
fn begin(world: &mut World, id: WorkloadId) -> StintId {
    for lease in world.leases() {
        let is_up = world.brain.lease(lease).is_some_and(|lease| lease.up_at.is_some());
        let is_owned = world.brain.lease(lease).is_some_and(|lease| lease.market == Market::Owned);
        if !is_up {
            let terms = LeaseTerms { node: is_owned.then(node), ..LeaseTerms::default() };
            let ready = Some(Address::default());
            world.event(Event::LeaseUp { lease, at: world.now, terms: Box::new(terms), ready });
        }
    }
    assert!(matches!(world.decide().as_slice(), [Decision::Start { .. }]), "{:?}", world.decided.last());
    world.stint(id)
}

fn no_room() -> WorkerEnd {
    WorkerEnd::NoRoom { why: "the folder cannot be copied: no space left".to_owned() }
}

fn on_the_lab(deadline: Option<i64>) -> JobSpec {
    JobSpec { resources: vec![Ask::of("K80", 1)], ..job(1, deadline) }
}

#[test]
fn a_job_waits_for_room_on_machines_that_stay_and_holds_nothing() {
    let mut world = lab();
    let id = world.submit(on_the_lab(None));
    assert!(matches!(world.decide().as_slice(), [Decision::Acquire { .. }]));
    let mut waits = Vec::new();
    for _ in 0..14 {
        let stint = begin(&mut world, id);
        world.ended(stint, no_room());
        assert!(matches!(world.decide().as_slice(), [Decision::Release { .. }]), "{:?}", world.decided.last());
        world.gone(LeaseEnd::Released);
        assert_eq!(world.decide(), [], "it waits");
        let waits_for = world.view(id).waits_for.expect("said");
        assert!(waits_for.contains("n1 has no room for it") && waits_for.contains("no space left"), "{waits_for}");
        let before = world.now;
        world.now = world.brain.next_wakeup().expect("it is tried again");
        waits.push((world.now - before).0 / 1_000);
        assert!(matches!(world.decide().as_slice(), [Decision::Acquire { .. }]), "{:?}", world.decided.last());
    }
    assert_eq!(waits, [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300, 300, 300, 300]);
    assert_eq!(world.brain.job(id).expect("known").fruitless, 0);
    let stint = begin(&mut world, id);
    world.event(Event::WorkerStarted { stint, rank: 0, restored: None, work: None });
    assert_eq!(world.brain.job(id).expect("known").no_room, None, "it has begun");
}

#[test]
fn what_took_long_to_find_out_is_not_tried_again_soon() {
    let mut world = lab();
    let id = world.submit(on_the_lab(None));
    world.decide();
    let stint = begin(&mut world, id);
    world.pass(Span::minutes(40));
    world.ended(stint, no_room());
    world.decide();
    world.gone(LeaseEnd::Released);
    let no_room = world.brain.job(id).and_then(|job| job.no_room.clone()).expect("it waits");
    assert!(no_room.until >= world.now + Span::minutes(40), "{no_room:?}");
}

#[test]
fn others_have_the_machine_while_it_waits() {
    let mut world = lab();
    let id = world.submit(on_the_lab(None));
    world.decide();
    let stint = begin(&mut world, id);
    world.ended(stint, no_room());
    world.decide();
    world.gone(LeaseEnd::Released);
    assert_eq!(world.decide(), []);
    world.submit(on_the_lab(None));
    assert!(matches!(world.decide().as_slice(), [Decision::Acquire { .. }]));
}

#[test]
fn a_machine_that_is_bought_is_tried_three_times() {
    let mut world = world();
    let (id, mut stint) = world.running(job(1, Some(9)));
    for last in [false, false, true] {
        world.ended(stint, no_room());
        world.decide();
        if last {
            break;
        }
        world.gone(LeaseEnd::Released);
        world.now = world.now + Span::seconds(20);
        world.decide();
        world.up_all();
        world.decide();
        stint = world.stint(id);
    }
    let outcome = world.brain.job(id).and_then(|job| job.ended.clone()).map(|(_, outcome)| outcome);
    assert!(matches!(outcome, Some(Outcome::Failed { code: 127, .. })), "{outcome:?}");
}
