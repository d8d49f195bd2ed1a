//! What an invented market sells and when that changes: spells of capacity, moving prices, or a recorded tape.

use crate::random;
use std::sync::OnceLock;
use windfall_core::pool::{Books, Habits, Health, Placing, Shape, Supply};
use windfall_core::{LeaseId, LeaseTerms, Market, NanoUsd, Node, NodeId, Offer, OfferId, Pool, PoolId, Span, Time};
use windfall_sim::{Tape, embedded};

/// One offer, its capacity and its next change.
#[derive(Clone, Debug)]
pub(crate) struct InventedOffer {
    pub offer: Offer,
    /// Instances in all, held ones included; none is without end.
    pub capacity: Option<u32>,
    pub next_change: Option<Time>,
    /// Whether it may refuse although it is on-demand.
    pub moody: bool,
    number: u64,
    changes: u64,
    base: NanoUsd,
    tape: Option<(Time, Span)>,
}

fn tape() -> Option<&'static Tape> {
    static TAPE: OnceLock<Option<Tape>> = OnceLock::new();
    TAPE.get_or_init(|| embedded("aws-v100-us-west-2-2023").ok()).as_ref()
}

/// The engine that every world has; nodes are its.
pub(crate) const FIRST: &str = "invented";

/// The engines of a world: one, or several that sell side by side.
pub(crate) fn engines(seed: u64) -> Vec<String> {
    let count = 1 + random::of(seed, &[19]).below(3) as usize;
    [FIRST, "second", "third"][..count].iter().map(|name| (*name).to_owned()).collect()
}

fn pool_of(engine: &str) -> PoolId {
    PoolId(format!("{engine}/pool").into())
}

/// How many there are in a world: few, so that much happens to each of them, but in a crowded one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Size {
    pub jobs: u64,
    pub nodes: u64,
    /// Spot instances of an offer at most.
    spots: i64,
    /// So many that all leases of a world fit on one node.
    pub node_accelerators: u32,
}

impl Size {
    /// Indices, and whom a change wakes, are put to the test where many wait and hold. One world in five hundred is such a
    /// crowd: a step of it takes ten times as long, and most faults need no crowd to be found.
    pub fn of(seed: u64) -> Size {
        let mut random = random::of(seed, &[23]);
        if seed % 500 != 450 {
            let jobs = random::of(seed, &[24]).between(1, 4) as u64;
            return Size { jobs, nodes: 2, spots: 6, node_accelerators: 128 };
        }
        let jobs = random.between(20, 300) as u64;
        Size { jobs, nodes: random.between(3, 50) as u64, spots: jobs as i64 / 2, node_accelerators: 8_192 }
    }

    /// How much longer a world takes than one with a few jobs.
    pub fn scale(self) -> u64 {
        1 + self.jobs / 20
    }
}

/// Accelerators of every machine of a world.
pub(crate) fn accelerators(seed: u64) -> u32 {
    if random::of(seed, &[21]).permille(450) { 4 } else { 1 }
}

/// Whether jobs of a world are one person's and ask for parts of machines.
pub(crate) fn is_shared(seed: u64) -> bool {
    accelerators(seed) > 1 || random::of(seed, &[22]).permille(250)
}

fn offer(seed: u64, engine: &str, zone: &str, market: Market, price: NanoUsd, notice: Span) -> Offer {
    Offer {
        id: OfferId::new(&format!("{engine}/{zone}/p3/{market}")),
        engine: engine.to_owned(),
        pool: pool_of(engine),
        cloud: "aws".to_owned(),
        region: String::new(),
        zone: zone.to_owned(),
        instance_type: "p3".to_owned(),
        market,
        accelerator: "V100".to_owned(),
        accelerators: accelerators(seed),
        price_per_hour: price,
        capacity: None,
        notice,
    }
}

/// The machines of the engine, with our leases on them or beside them: every few hours one of them is drained, fails, or is gone.
pub(crate) fn nodes(seed: u64, now: Time) -> Vec<Node> {
    let size = Size::of(seed);
    let shown = (0..size.nodes).filter_map(|number| {
        let spell = now.0.div_euclid(Span::hours(2).0).unsigned_abs();
        let health = match random::of(seed, &[15, number, spell]).below(8) {
            0 => return None,
            1 => Health::NotReady,
            2 => Health::Drained,
            _ => Health::Ready,
        };
        // Others come and go, and a contract may be about another price from then on.
        let mut random = random::of(seed, &[17, number, spell]);
        let terms = (random.pick(&[0, 0, 1, 8]), random.between(10_000_000, 100_000_000));
        let (foreign, price) = if is_cluster(seed) { terms } else { (0, 0) };
        Some(Node {
            id: node_id(number),
            pool: pool_of(FIRST),
            accelerator: "V100".to_owned(),
            capacity: Shape { accelerators: size.node_accelerators, ..Shape::default() },
            foreign: Shape { accelerators: foreign, ..Shape::default() },
            domains: Default::default(),
            symptoms: Vec::new(),
            mixed: false,
            drained_for: None,
            alone: false,
            health,
            rate: NanoUsd(price * i64::from(size.node_accelerators)),
        })
    });
    shown.collect()
}

fn node_id(number: u64) -> NodeId {
    NodeId(format!("{FIRST}/node-{number}").into())
}

/// Whether a world's machines are parts of nodes that are paid for whether they are used or not.
fn is_cluster(seed: u64) -> bool {
    random::of(seed, &[16]).permille(250)
}

/// Where a lease is: in a cluster each is a part of a node, beside those of other groups.
pub(crate) fn place_of(seed: u64, engine: &str, lease: LeaseId) -> LeaseTerms {
    if !is_cluster(seed) || engine != FIRST {
        return LeaseTerms::default();
    }
    let number = random::of(seed, &[18, lease.group.seq]).below(Size::of(seed).nodes);
    let size = Shape { accelerators: accelerators(seed), ..Shape::default() };
    LeaseTerms { node: Some(node_id(number)), size, ..LeaseTerms::default() }
}

/// The pool of an engine, whose habits are as different as those of real ones.
pub(crate) fn pool(seed: u64, engine: &str) -> Pool {
    let mut random = random::of(seed, &[14, engine.len() as u64]);
    Pool {
        id: pool_of(engine),
        engine: engine.to_owned(),
        placing: Placing::Theirs,
        supply: Supply::Elastic,
        books: if is_cluster(seed) && engine == FIRST { Books::Whole } else { Books::Leased },
        habits: Habits {
            boot: Span::minutes(random.pick(&[5, 15, 15, 40])),
            settle: Span::seconds(random.pick(&[120, 300])),
            refusal_pause: Span::seconds(random.pick(&[30, 60, 60, 300])),
            ..Habits::USUAL
        },
        tells_apart: true,
    }
}

/// The offers of a world.
pub(crate) fn offers(seed: u64, now: Time, moody: bool) -> Vec<InventedOffer> {
    let mut random = random::of(seed, &[1]);
    let on_demand = NanoUsd(random.between(500_000_000, 5_000_000_000));
    let notice = Span::seconds(random.pick(&[30, 120, 120]));
    let taped = random.permille(250);
    let on_demand = tape().filter(|_| taped).map_or(on_demand, |tape| tape.on_demand);
    let mut offers = Vec::new();
    let engines = engines(seed);
    for number in 0..random.between(1, 3) as u64 {
        let engine = &engines[number as usize % engines.len()];
        let zone = ["us-west-2a", "us-west-2b", "us-west-2c"][number as usize];
        let base = NanoUsd(on_demand.0 * random.between(15, 60) / 100);
        let start = Span(random.between(0, 3_000) * 600_000);
        offers.push(InventedOffer {
            offer: offer(seed, engine, zone, Market::Spot, base, notice),
            capacity: Some(0),
            next_change: Some(now),
            moody: false,
            number,
            changes: 0,
            base,
            tape: taped.then_some((now, start)),
        });
    }
    for (engine, number) in engines.iter().zip(9..) {
        offers.push(InventedOffer {
            offer: offer(seed, engine, "us-west-2a", Market::OnDemand, on_demand, notice),
            capacity: None,
            next_change: None,
            moody,
            number,
            changes: 0,
            base: on_demand,
            tape: None,
        });
    }
    offers
}

impl InventedOffer {
    /// Goes through the change that is due.
    pub fn change(&mut self, seed: u64, at: Time, calm: bool) {
        self.changes += 1;
        let mut random = random::of(seed, &[2, self.number, self.changes]);
        if calm {
            self.next_change = None;
            self.capacity = self.capacity.map(|_| 64 * Size::of(seed).scale() as u32);
            self.offer.price_per_hour = self.base.min(NanoUsd(100_000_000));
            return;
        }
        if let (Some((began, start)), Some(tape)) = (self.tape, tape()) {
            let offset = start + (at - began);
            if let Some(quote) = tape.quote(&self.offer.zone, offset) {
                self.capacity = Some(quote.capacity);
                self.offer.price_per_hour = quote.price;
            }
            let tick = Span((offset.0.div_euclid(tape.tick.0) + 1) * tape.tick.0) - offset;
            self.next_change = Some(at + tick);
            return;
        }
        self.capacity = Some(if random.permille(350) { 0 } else { random.between(1, Size::of(seed).spots) as u32 });
        if random.permille(500) {
            self.offer.price_per_hour = NanoUsd(self.base.0 * random.between(60, 160) / 100);
        }
        let lasts = if random.permille(300) { random.between(60, 600) } else { random.between(900, 9_000) };
        self.next_change = Some(at + Span::seconds(lasts));
    }
}
