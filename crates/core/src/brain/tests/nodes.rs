//! Nodes that are paid for whether they are used or not: a scripted pool, and what the ledger makes of it.

mod random;
mod wide;

use super::*;
use crate::ledger::{LedgerRow, Share};
use crate::pool::{Allocation, Books, Device, DevicePart, Habits, Health, Placing, Shape, Supply};
use crate::want::{Address, LeaseTerms};

const HOUR: i64 = 3_600_000;
/// Eight dollars an hour, and a nano-dollar so that something must be rounded.
const RATE: NanoUsd = NanoUsd(8_000_000_001);

fn gpus(accelerators: u32) -> Shape {
    Shape { accelerators, ..Shape::default() }
}

fn pool(books: Books) -> Pool {
    Pool {
        id: PoolId("test/farm".into()),
        engine: "test".into(),
        placing: Placing::Theirs,
        supply: Supply::Fixed,
        books,
        habits: Habits::USUAL,
        tells_apart: false,
    }
}

fn node() -> Node {
    Node {
        id: NodeId("test/n1".into()),
        pool: PoolId("test/farm".into()),
        accelerator: "V100".into(),
        capacity: gpus(8),
        foreign: Shape::default(),
        domains: BTreeMap::from([("zone".to_owned(), "hall-3".to_owned())]),
        symptoms: Vec::new(),
        mixed: false,
        drained_for: None,
        alone: false,
        health: Health::Ready,
        rate: RATE,
    }
}

/// A world at midnight, with a pool whose nodes are paid for as a whole and offers from it.
fn farm() -> World {
    let mut world = world();
    world.now = Time(24 * HOUR);
    world.event(Event::PoolSeen { pool: pool(Books::Whole) });
    for id in [SPOT, FIRM] {
        let offer = world.brain.offer(&OfferId::new(id)).expect("seen").clone();
        world.event(Event::OfferSeen { offer: Offer { pool: PoolId("test/farm".into()), ..offer } });
    }
    world
}

impl World {
    fn see(&mut self, node: Node) {
        self.event(Event::NodeSeen { node: Box::new(node) });
    }

    /// A job that runs on a lease of so much of the node, which came up so long ago.
    fn running_on(&mut self, size: Shape, ago: Span) -> (WorkloadId, LeaseId) {
        let id = self.submit(job(800, None));
        self.decide();
        let lease = self.brain.leases_of(id).next().expect("asked for").id;
        let at = self.now;
        self.pass(ago);
        let terms = LeaseTerms { node: Some(node().id), size, ..LeaseTerms::default() };
        self.event(Event::LeaseUp { lease, at, terms: Box::new(terms), ready: Some(Address::default()) });
        self.decide();
        self.started(id);
        (id, lease)
    }

    fn lease_gone(&mut self, lease: LeaseId, at: Time) {
        self.event(Event::LeaseGone { lease, at, end: LeaseEnd::Taken });
    }

    /// Rows of the node: who, the hours since the world began between which, the share and the amount.
    fn of_node(&mut self) -> Vec<(String, f64, f64, Share, i64)> {
        let rows = self.brain.take_ledger();
        rows.iter().filter(|row| row.node.is_some()).map(told).collect()
    }
}

fn told(row: &LedgerRow) -> (String, f64, f64, Share, i64) {
    let hours = |at: Time| (at.0 - 24 * HOUR) as f64 / HOUR as f64;
    let who = row.beneficiary.workload().map_or(row.beneficiary.word().to_owned(), |id| format!("job {id}"));
    (who, hours(row.from), hours(row.to), row.share, row.amount.0)
}

fn row(who: impl ToString, from: f64, to: f64, share: (u64, u64), amount: i64) -> (String, f64, f64, Share, i64) {
    (who.to_string(), from, to, Share::new(share.0, share.1), amount)
}

#[test]
fn a_node_that_nobody_uses_is_idle_on_every_day_of_it() {
    let mut world = farm();
    world.pass(Span::hours(20));
    world.see(node());
    world.pass(Span::hours(10));
    assert!(!world.brain.is_news(&Event::NodeSeen { node: Box::new(node()) }), "a look that shows nothing new");
    let open: Vec<_> = world.brain.open_ledger(world.now).iter().map(told).collect();
    world.event(Event::NodeGone { node: node().id });
    let rows = world.brain.take_ledger();
    let expected = [row("idle", 20.0, 24.0, (1, 1), 32_000_000_004), row("idle", 24.0, 30.0, (1, 1), 48_000_000_006)];
    assert_eq!(rows.iter().map(told).collect::<Vec<_>>(), expected);
    assert_eq!(open, expected, "what was open is what was written");
    let goods = rows[0].goods.as_ref().expect("what was paid for");
    assert_eq!((goods.engine.as_str(), &*goods.pool.0, goods.zone.as_str()), ("test", "test/farm", "hall-3"));
    assert_eq!((goods.accelerator.as_str(), goods.count, goods.market), ("V100", 8, Market::Owned));
    assert_eq!((rows[0].node.as_ref(), rows[0].lease, rows[0].offer.is_none()), (Some(&node().id), None, true));
    world.pass(Span::hours(1));
    assert_eq!(world.brain.open_ledger(world.now), [], "what is gone costs nothing");
}

#[test]
fn a_lease_has_its_part_of_its_node_and_costs_nothing_by_itself() {
    let mut world = farm();
    world.see(node());
    world.pass(Span::hours(1));
    let (id, lease) = world.running_on(gpus(4), Span::ZERO);
    world.pass(Span::hours(2));
    let half = NanoUsd(8_000_000_001);
    let view = world.view(id);
    assert_eq!((view.cost, world.brain.spent(world.brain.job(id).expect("known"), world.now)), (half, half));
    assert_eq!(view.lease.map(|lease| lease.price_per_hour), Some(NanoUsd(4_000_000_001)), "rounded up");
    world.lease_gone(lease, world.now);
    assert_eq!((world.view(id).cost, world.view(id).spot_cost), (half, half));
    world.pass(Span::hours(1));
    world.event(Event::NodeGone { node: node().id });
    let rows = world.brain.take_ledger();
    let expected = [
        row("idle", 0.0, 1.0, (1, 1), 8_000_000_001),
        row(format!("job {id}"), 1.0, 3.0, (1, 2), 8_000_000_001),
        row("idle", 1.0, 3.0, (1, 2), 8_000_000_001),
        row("idle", 3.0, 4.0, (1, 1), 8_000_000_001),
    ];
    assert_eq!(rows.iter().map(told).collect::<Vec<_>>(), expected, "and no row of the lease by itself");
    let own = &rows[1];
    assert_eq!((own.lease, own.paid_for()), (Some(lease), lease.to_string()));
    assert_eq!(own.account.as_ref().map(|account| account.workload), Some(id));
    assert_eq!(rows[0].paid_for(), "test/n1");
}

#[test]
fn two_workloads_on_shares_of_one_accelerator_pay_for_their_shares_of_the_node() {
    let mut world = farm();
    world.see(node());
    let (first, lease) = world.running_on(gpus(1), Span::ZERO);
    let second = world.submit(job(8, None));
    let stint = StintId::of_job(second, 1);
    let part = DevicePart::Mig { profile: "3g.20gb".to_owned(), slices: 3 };
    let devices = Some(vec![Device { number: 0, part }]);
    let allocations = vec![Allocation { devices, ..Allocation::whole(lease) }];
    let start = Decision::Start { stint, allocations, resume: Resume::Newest };
    world.record(Body::Decision(start, Reason::new("test", "test")));
    world.event(Event::WorkerStarted { stint, rank: 0, restored: None, work: None });
    world.pass(Span::hours(7));
    assert_eq!(world.view(second).cost, NanoUsd(3_000_000_000), "three of 56 slices for seven hours");
    world.ended(stint, WorkerEnd::Exited { code: 0 });
    world.pass(Span::hours(1));
    world.lease_gone(lease, world.now);
    let expected = [
        row(format!("job {second}"), 0.0, 7.0, (3, 56), 3_000_000_000),
        row(format!("job {first}"), 0.0, 7.0, (1, 14), 4_000_000_000),
        row("idle", 0.0, 7.0, (7, 8), 49_000_000_007),
        // Rounded with what was paid before: an eighth of eight hours at one nano-dollar more is one more.
        row(format!("job {first}"), 7.0, 8.0, (1, 8), 1_000_000_001),
        row("idle", 7.0, 8.0, (7, 8), 7_000_000_000),
    ];
    assert_eq!(world.of_node(), expected);
    assert_eq!(world.view(first).cost, NanoUsd(5_000_000_001));
}

#[test]
fn what_is_not_ours_has_what_our_leases_leave_of_its_part() {
    let mut world = farm();
    world.see(node());
    let (id, lease) = world.running_on(gpus(6), Span::ZERO);
    world.pass(Span::hours(1));
    world.see(Node { foreign: gpus(4), ..node() });
    world.pass(Span::hours(1));
    world.lease_gone(lease, world.now);
    world.pass(Span::hours(1));
    world.see(node());
    let job = format!("job {id}");
    let expected = [
        row(&job, 0.0, 1.0, (3, 4), 6_000_000_000),
        row("idle", 0.0, 1.0, (1, 4), 2_000_000_001),
        row(&job, 1.0, 2.0, (3, 4), 6_000_000_001),
        row("foreign", 1.0, 2.0, (1, 4), 2_000_000_000),
        row("foreign", 2.0, 3.0, (1, 2), 4_000_000_000),
        row("idle", 2.0, 3.0, (1, 2), 4_000_000_001),
    ];
    assert_eq!(world.of_node(), expected);
}

#[test]
fn who_runs_on_a_drained_or_broken_node_pays_its_part_and_the_rest_is_drained_or_not_ready() {
    for (health, word) in [(Health::Drained, "drained"), (Health::NotReady, "not-ready")] {
        let mut world = farm();
        world.see(node());
        let (id, lease) = world.running_on(gpus(2), Span::ZERO);
        world.pass(Span::hours(1));
        world.see(Node { health, ..node() });
        world.pass(Span::hours(1));
        world.lease_gone(lease, world.now);
        world.pass(Span::hours(1));
        world.see(node());
        let expected = [
            row(format!("job {id}"), 0.0, 1.0, (1, 4), 2_000_000_000),
            row("idle", 0.0, 1.0, (3, 4), 6_000_000_001),
            row(format!("job {id}"), 1.0, 2.0, (1, 4), 2_000_000_000),
            row(word, 1.0, 2.0, (3, 4), 6_000_000_001),
            row(word, 2.0, 3.0, (1, 1), 8_000_000_001),
        ];
        assert_eq!(world.of_node(), expected);
    }
}

#[test]
fn a_node_that_was_gone_is_not_paid_for_in_between_and_a_rate_holds_from_when_it_is_seen() {
    let mut world = farm();
    world.see(node());
    world.pass(Span::hours(1));
    world.event(Event::NodeGone { node: node().id });
    world.pass(Span::hours(5));
    world.see(node());
    world.pass(Span::hours(1));
    world.see(Node { rate: NanoUsd(1_000_000_000), ..node() });
    world.pass(Span::hours(1));
    world.see(Node { rate: NanoUsd(1_000_000_000), domains: BTreeMap::new(), ..node() });
    world.pass(Span::hours(1));
    world.see(Node { rate: NanoUsd(1_000_000_000), capacity: gpus(4), domains: BTreeMap::new(), ..node() });
    let expected = [
        row("idle", 0.0, 1.0, (1, 1), 8_000_000_001),
        row("idle", 6.0, 7.0, (1, 1), 8_000_000_001),
        row("idle", 7.0, 8.0, (1, 1), 1_000_000_000),
        row("idle", 8.0, 9.0, (1, 1), 1_000_000_000),
    ];
    assert_eq!(world.of_node(), expected);
}

#[test]
fn late_news_of_a_lease_is_charged_for_its_own_time_and_changes_nobody_elses_bill() {
    let mut world = farm();
    world.see(node());
    let (first, lease) = world.running_on(gpus(1), Span::ZERO);
    // The next lease came up an hour before it was told of, and the node was drained in between.
    let second = world.submit(job(800, None));
    world.decide();
    let late = world.brain.leases_of(second).next().expect("asked for").id;
    let at = world.now + Span::hours(1);
    world.pass(Span::hours(1) + Span::minutes(30));
    world.see(Node { health: Health::Drained, ..node() });
    world.pass(Span::minutes(30));
    let terms = Box::new(LeaseTerms { node: Some(node().id), size: gpus(7), ..LeaseTerms::default() });
    world.event(Event::LeaseUp { lease: late, at, terms, ready: None });
    assert_eq!(world.view(second).cost, NanoUsd(7_000_000_001));
    let bill = world.view(first).cost;
    assert_eq!(bill, NanoUsd(2_000_000_000));
    // And the first one was gone when the node was drained, which is told two hours later.
    world.pass(Span::hours(1));
    world.lease_gone(lease, Time(24 * HOUR) + Span::minutes(90));
    assert_eq!(world.view(first).cost, NanoUsd(1_500_000_000));
    assert_eq!(world.view(second).cost, NanoUsd(14_000_000_002));
    world.event(Event::NodeGone { node: node().id });
    let rows = world.of_node();
    let paid = |who: &str| rows.iter().filter(|row| row.0 == who).map(|row| row.4).sum::<i64>();
    assert_eq!(paid(&format!("job {first}")), 1_500_000_000);
    assert_eq!(paid(&format!("job {second}")), 14_000_000_002);
    assert_eq!(paid("drained"), 1_500_000_000, "what the first left of a drained node");
    assert_eq!(rows.iter().map(|row| row.4).sum::<i64>(), 3 * RATE.0);
}

impl World {
    /// A new job has a device of a lease of another for so long, and is over then.
    fn guest_for(&mut self, lease: LeaseId, span: Span) -> WorkloadId {
        let workload = self.submit(job(8, None));
        let stint = StintId::of_job(workload, 1);
        let devices = Some(vec![Device { number: 0, part: DevicePart::Whole }]);
        let allocations = vec![Allocation { devices, ..Allocation::whole(lease) }];
        let start = Decision::Start { stint, allocations, resume: Resume::Newest };
        self.record(Body::Decision(start, Reason::new("test", "test")));
        self.pass(span);
        self.ended(stint, WorkerEnd::Exited { code: 0 });
        let end = Decision::End { workload, outcome: Outcome::Succeeded };
        self.record(Body::Decision(end, Reason::new("test", "test")));
        workload
    }
}

#[test]
fn a_guest_that_left_gets_back_its_part_of_a_node_that_late_news_takes_back() {
    let mut world = farm();
    world.see(node());
    let (_, lease) = world.running_on(gpus(4), Span::ZERO);
    let began = world.now;
    let second = world.guest_for(lease, Span::hours(8));
    let last = world.brain.take_final_views().pop().expect("it is over");
    assert_eq!((last.id, last.cost, last.spot), (second, NanoUsd(8_000_000_001), Span::hours(8)));
    world.pass(Span::minutes(1));
    world.lease_gone(lease, began + Span::hours(2));
    let last = world.brain.take_final_views().pop().expect("its bill is another");
    assert_eq!((last.id, last.spot, last.spot_cost), (second, Span::hours(2), last.cost));
    let rows = world.of_node();
    let paid: i64 = rows.iter().filter(|row| row.0 == format!("job {second}")).map(|row| row.4).sum();
    assert_eq!((paid, last.cost), (2_000_000_000, NanoUsd(2_000_000_000)));
}

#[test]
fn the_books_of_a_node_reach_no_further_back_than_it_is_known_who_had_a_lease_on_it() {
    let mut world = farm();
    world.see(node());
    let whole = world.submit(job(800, None));
    world.decide();
    let whole = world.brain.leases_of(whole).next().expect("asked for").id;
    let (_, lease) = world.running_on(gpus(4), Span::ZERO);
    let began = world.now;
    let first = world.guest_for(lease, Span::hours(1));
    // What was asked for first has all of the node: whoever comes and goes on the other lease is no news to its books.
    let terms = Box::new(LeaseTerms { node: Some(node().id), size: gpus(8), ..LeaseTerms::default() });
    world.event(Event::LeaseUp { lease: whole, at: world.now, terms, ready: None });
    for _ in 0..300 {
        world.guest_for(lease, Span::seconds(1));
        world.pass(Span::seconds(1));
    }
    world.lease_gone(lease, began);
    let mut views = world.brain.take_final_views().into_iter().filter(|view| view.id == first);
    assert_eq!((views.next().map(|view| view.cost), views.next()), (Some(NanoUsd(1_000_000_000)), None));
    let rows = world.of_node();
    let paid: i64 = rows.iter().filter(|row| row.0 == format!("job {first}")).map(|row| row.4).sum();
    assert_eq!(paid, 1_000_000_000, "its bill was closed");
}

#[test]
fn the_end_of_a_lease_that_is_told_after_the_end_of_its_node_is_its_end_all_the_same() {
    let mut world = farm();
    world.see(node());
    let (id, lease) = world.running_on(gpus(8), Span::ZERO);
    world.pass(Span::hours(2));
    world.event(Event::NodeGone { node: node().id });
    world.pass(Span::hours(1));
    assert_eq!(world.view(id).cost, NanoUsd(2 * RATE.0), "nobody pays for what is gone");
    world.lease_gone(lease, Time(24 * HOUR) + Span::hours(1));
    assert_eq!(world.view(id).cost, RATE);
    assert_eq!(world.of_node().iter().map(|row| row.4).sum::<i64>(), 2 * RATE.0);
    assert!(world.brain.leases_on_nodes().next().is_none());
}

#[test]
fn a_budget_counts_the_part_of_a_node() {
    let mut world = farm();
    world.see(node());
    let spec = JobSpec { budget: Some(NanoUsd::from_dollars(4.0)), ..job(800, None) };
    let id = world.submit(spec);
    world.decide();
    let lease = world.leases()[0];
    let terms = Box::new(LeaseTerms { node: Some(node().id), size: gpus(2), ..LeaseTerms::default() });
    world.event(Event::LeaseUp { lease, at: world.now, terms, ready: Some(Address::default()) });
    world.decide();
    world.started(id);
    world.decide();
    for _ in 0..1_000 {
        if world.brain.job(id).is_some_and(|job| job.paused) {
            break;
        }
        world.now = world.brain.next_wakeup().expect("a wake-up");
        world.decide();
    }
    // Two dollars an hour, and a minute and the grace are kept for the last save.
    let paused_at = world.now - Time(24 * HOUR);
    assert!(paused_at > Span::minutes(110) && paused_at < Span::hours(2), "paused after {paused_at}");
}

#[test]
fn a_pool_whose_books_change_is_paid_for_by_its_nodes_or_by_its_leases_and_never_by_both() {
    let mut world = farm();
    world.event(Event::PoolSeen { pool: pool(Books::Leased) });
    world.see(node());
    let (id, _) = world.running_on(gpus(4), Span::ZERO);
    world.pass(Span::hours(1));
    world.event(Event::PoolSeen { pool: pool(Books::Whole) });
    world.pass(Span::hours(1));
    world.offer(SPOT, 0.5, Some(8));
    let offer = world.brain.offer(&OfferId::new(SPOT)).expect("seen").clone();
    world.event(Event::OfferSeen { offer: Offer { pool: PoolId("test/farm".into()), ..offer } });
    world.event(Event::PoolSeen { pool: pool(Books::Leased) });
    world.pass(Span::hours(1));
    assert_eq!(world.view(id).cost, NanoUsd(900_000_000 + 4_000_000_000 + 500_000_000));
    world.gone(LeaseEnd::Taken);
    let rows = world.brain.take_ledger();
    assert_eq!(rows.iter().filter(|row| row.node.is_some()).map(|row| row.amount.0).sum::<i64>(), RATE.0);
    assert_eq!(rows.iter().map(|row| row.amount.0).sum::<i64>(), RATE.0 + 1_400_000_000);
}

#[test]
fn a_node_without_accelerators_is_split_by_cores_and_memory() {
    let gib = 1_u64 << 30;
    let shape = |cpu: u64, gibs: u64| Shape { accelerators: 0, cpu_millis: cpu * 1_000, memory_bytes: gibs * gib };
    let part = |size, capacity| crate::ledger::part_of_node(size, capacity);
    let capacity = shape(64, 256);
    assert_eq!(part(shape(16, 64), capacity), Share::new(1, 4));
    assert_eq!((part(shape(16, 0), capacity), part(shape(0, 64), capacity)), (Share::new(1, 4), Share::new(1, 4)));
    assert_eq!(
        (part(shape(16, 64), shape(64, 0)), part(shape(16, 64), shape(0, 256))),
        (Share::new(1, 4), Share::new(1, 4))
    );
    // All cores and a quarter of the memory: 64 · 0.031611 and 64 · 0.004237 of 64 · 0.031611 and 256 · 0.004237.
    assert_eq!(part(shape(64, 64), capacity), Share::new(31_611 + 4_237, 31_611 + 4 * 4_237));
    assert_eq!((part(shape(90, 900), capacity), part(shape(0, 0), capacity)), (Share::WHOLE, Share::WHOLE));
    assert_eq!(
        part(Shape { accelerators: 1, ..shape(64, 256) }, Shape { accelerators: 4, ..capacity }),
        Share::new(1, 4)
    );
    assert_eq!(part(shape(64, 256), Shape { accelerators: 4, ..capacity }).part, 0, "what is scarce is what counts");
}

#[test]
fn a_thousand_nodes_that_say_nothing_new_change_nothing() {
    let mut world = farm();
    let named = |number: u32| Node { id: NodeId(format!("test/n{number}").into()), ..node() };
    (0..1_000).for_each(|number| world.see(named(number)));
    let before = crate::codec::encode(&world.brain);
    world.pass(Span::hours(1));
    assert!((0..1_000).all(|number| !world.brain.is_news(&Event::NodeSeen { node: Box::new(named(number)) })));
    world.see(Node { health: Health::Drained, ..named(7) });
    assert_eq!(world.of_node().len(), 1, "one node changed, and one is charged");
    let after = crate::codec::encode(&world.brain);
    let read: Brain = crate::codec::decode(crate::codec::VERSION, &after).expect("a snapshot");
    assert_eq!(crate::codec::encode(&read), after);
    assert!(after.len() < before.len() + 2_000, "and only its books grew");
}

#[test]
fn a_lease_that_is_found_of_an_offer_that_is_gone_is_paid_by_its_node_as_well() {
    let mut world = farm();
    let since = world.now;
    world.pass(Span::hours(1));
    world.event(Event::OfferGone { offer: OfferId::new(SPOT) });
    let lease = LeaseId { group: crate::ids::DecisionId { installation: Installation(7), seq: 99 }, slot: 0 };
    // A brain that was stored meanwhile knows it as well.
    world.brain = serde_json::from_str(&serde_json::to_string(&world.brain).expect("written")).expect("read");
    world.event(Event::LeaseFound { lease, offer: OfferId::new(SPOT), since: Some(since), until: None });
    let goods = world.brain.lease(lease).and_then(|lease| lease.goods.clone()).expect("it is known what was sold");
    assert_eq!((&*goods.pool.0, &*goods.accelerator), ("test/farm", "V100"));
    world.event(Event::LeaseGone { lease, at: world.now, end: LeaseEnd::Released });
    assert_eq!(world.brain.take_ledger(), [], "its node is paid for as a whole");
}
