//! What a crowd is made of: 200 offers of three engines, and jobs of 200 fit classes with deadlines, prices, budgets and
//! policies of their own.

use std::collections::BTreeMap;
use windfall_core::pool::{Books, Habits, Health, Placing, Shape, Supply};
use windfall_core::spec::{Ask, CheckpointSpec, RunSpec, WorkSpec, WorkUnit};
use windfall_core::{JobSpec, Market, NanoUsd, Node, NodeId, Offer, OfferId, Pool, PoolId, Rate, Span, Time};

const ACCELERATORS: [&str; 10] = ["A10", "A100", "B200", "H100", "H200", "L4", "L40S", "MI300X", "T4", "V100"];
/// Dollars an hour of one accelerator on demand.
const DOLLARS: [u64; 10] = [1, 4, 12, 8, 10, 1, 2, 6, 1, 3];
const COUNTS: [u32; 4] = [1, 2, 4, 8];
const GANGS: [u32; 5] = [1, 2, 3, 4, 6];
/// Most jobs are alone: of ten, so many are of each size of a gang.
const OF_TEN: [usize; 10] = [0, 0, 0, 0, 0, 0, 1, 2, 3, 4];
const ENGINES: [&str; 3] = ["farm", "east", "west"];
/// Hundredths of the price on demand.
const SPOT: u64 = 30;
const OWNED: u64 = 20;
/// What nobody pays for spot.
const DEAR: u64 = 90;
/// Policies of ten jobs; none is what the installation is configured with.
const POLICIES: [Option<&str>; 10] = [
    None,
    None,
    None,
    None,
    None,
    Some("levi-safe"),
    Some("uniform-progress"),
    Some("uniform-progress"),
    Some("greedy"),
    Some("on-demand"),
];

/// Numbers that look random and are the same each time.
pub struct Dice(u64);

impl Dice {
    pub fn new(seed: u64) -> Dice {
        Dice(seed)
    }

    /// SplitMix64.
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// One of so many, from 0.
    pub fn below(&mut self, count: u64) -> u64 {
        self.next() % count.max(1)
    }

    /// From `low` to `high`, both included.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high - low + 1)
    }
}

/// Devices of a node that no lease has.
pub struct NodeRoom {
    pub node: NodeId,
    pub free: u32,
}

/// The offers, in the order in which prices of them move.
pub struct Mix {
    /// Spot offers that are too dear for everybody until their price falls.
    pub dear: Vec<OfferId>,
    /// All other offers on spot markets.
    pub spot: Vec<OfferId>,
}

pub fn pools() -> Vec<Pool> {
    let pool = |engine: &str| Pool {
        id: PoolId(format!("{engine}/main").into()),
        engine: engine.to_owned(),
        placing: if engine == "farm" { Placing::Ours } else { Placing::Theirs },
        supply: if engine == "farm" { Supply::Fixed } else { Supply::Elastic },
        books: if engine == "farm" { Books::Whole } else { Books::Leased },
        habits: Habits::USUAL,
        tells_apart: engine != "east",
    };
    ENGINES.iter().map(|engine| pool(engine)).collect()
}

pub fn node(number: u64) -> Node {
    let engine = ENGINES[number as usize % ENGINES.len()];
    let kind = number as usize / ENGINES.len() % ACCELERATORS.len();
    let capacity = Shape { accelerators: 8, cpu_millis: 96_000, memory_bytes: 1 << 40 };
    Node {
        id: NodeId(format!("{engine}/node-{number:05}").into()),
        pool: PoolId(format!("{engine}/main").into()),
        accelerator: ACCELERATORS[kind].to_owned(),
        capacity,
        foreign: Shape::default(),
        domains: BTreeMap::from([("rack".to_owned(), format!("rack-{}", number / 32))]),
        symptoms: Vec::new(),
        mixed: false,
        drained_for: None,
        alone: false,
        health: Health::Ready,
        rate: dollars(kind, 8, OWNED),
    }
}

/// The engine and the accelerator of a node.
pub fn kind_of_node(node: &Node) -> (String, String) {
    let engine = node.id.0.split_once('/').map_or("", |(engine, _)| engine);
    (engine.to_owned(), node.accelerator.clone())
}

fn dollars(kind: usize, count: u32, percent: u64) -> NanoUsd {
    NanoUsd((DOLLARS[kind] * u64::from(count) * percent * 10_000_000) as i64)
}

fn kind_of(accelerator: &str) -> usize {
    ACCELERATORS.iter().position(|known| *known == accelerator).unwrap_or(0)
}

impl Mix {
    pub fn new() -> Mix {
        let is_dear = |offer: &Offer| offer.engine == "west" && offer.accelerators == 8;
        let spot = offers().into_iter().filter(|offer| offer.market == Market::Spot);
        let (dear, spot): (Vec<Offer>, Vec<Offer>) = spot.partition(is_dear);
        let names = |offers: Vec<Offer>| offers.into_iter().map(|offer| offer.id).collect();
        Mix { dear: names(dear), spot: names(spot) }
    }

    /// All of them, at their first prices; nothing of them can be had.
    pub fn offers(&self) -> Vec<Offer> {
        let price = |offer: &Offer, percent| dollars(kind_of(&offer.accelerator), offer.accelerators, percent);
        let dear = |offer: Offer| match self.dear.contains(&offer.id) {
            true => Offer { price_per_hour: price(&offer, DEAR), ..offer },
            false => offer,
        };
        offers().into_iter().map(dear).collect()
    }

    /// The offer at a price that so many hundredths of its price on demand are.
    pub fn at_percent(&self, offer: &Offer, percent: u64) -> Offer {
        let price = dollars(kind_of(&offer.accelerator), offer.accelerators, percent);
        Offer { price_per_hour: price, ..offer.clone() }
    }

    /// A dear offer as nobody buys it.
    pub fn dear_again(&self, offer: &Offer) -> Offer {
        self.at_percent(offer, DEAR)
    }

    /// A job of one of 200 fit classes.
    pub fn job(&self, dice: &mut Dice, number: u64, teams: u64, now: Time) -> JobSpec {
        // 10 accelerators, 4 sizes and 5 gangs.
        let (kind, count) = (dice.below(10) as usize, COUNTS[dice.below(4) as usize]);
        let gang = GANGS[OF_TEN[dice.below(10) as usize]];
        let accelerator = ACCELERATORS[kind].to_owned();
        let rate = Rate(dice.between(1, 50) * 1_000_000_000);
        let need = Span::minutes(dice.between(60, 6_000) as i64);
        let team = dice.below(teams);
        let policy = POLICIES[dice.below(10) as usize];
        let has_deadline = dice.below(10) < 8;
        let deadline = now + need + Span::minutes(dice.between(3_000, 60_000) as i64);
        JobSpec {
            owner: format!("user-{team}"),
            team: format!("team-{team}"),
            gang,
            resources: vec![Ask::of(accelerator.clone(), count)],
            work: WorkSpec {
                total: Some(rate.work_in(need)),
                unit: WorkUnit::Steps,
                rates: BTreeMap::from([(accelerator, rate)]),
            },
            deadline: has_deadline.then_some(deadline),
            max_price: Some(dollars(kind, count, dice.between(25, 60))),
            budget: (dice.below(10) == 0).then(|| NanoUsd(dice.between(2_000, 90_000) as i64 * 1_000_000_000)),
            checkpoint: CheckpointSpec {
                store: "s3://checkpoints/crowd".to_owned(),
                restart: Some(Span::seconds(dice.between(60, 600) as i64)),
                every: (dice.below(2) == 0).then(|| Span::minutes(dice.between(10, 60) as i64)),
                ..CheckpointSpec::default()
            },
            policy: policy.map(str::to_owned),
            run: RunSpec {
                folder: "/home/user/experiment".to_owned(),
                environment: format!("key-{number}"),
                ..RunSpec::of(vec!["python".to_owned(), "train.py".to_owned(), format!("--seed={number}")])
            },
            ..JobSpec::named(format!("train-{number}"), Vec::new())
        }
    }

    /// What a job that runs was bought on: of the size that it asks for, or of the next one up, on a market where its
    /// policy stays.
    pub fn bought(&self, dice: &mut Dice, spec: &JobSpec, offers: &BTreeMap<OfferId, Offer>) -> Option<OfferId> {
        let ask = spec.resources.first()?;
        let roomy = dice.below(10) == 0;
        let size = if roomy { (ask.count * 2).min(8) } else { ask.count };
        let firm_only = spec.policy.as_deref() == Some("on-demand");
        let owned = dice.below(5) == 0;
        let market = match (firm_only, owned) {
            (_, true) => Market::Owned,
            (true, false) => Market::OnDemand,
            (false, false) => Market::Spot,
        };
        let fits = |offer: &&Offer| {
            (offer.market, offer.accelerators) == (market, size) && offer.accelerator == ask.accelerator
        };
        let fitting: Vec<&Offer> =
            offers.values().filter(fits).filter(|offer| !self.dear.contains(&offer.id)).collect();
        fitting.get(dice.below(fitting.len() as u64) as usize).map(|offer| offer.id.clone())
    }
}

fn offers() -> Vec<Offer> {
    let mut offers = Vec::new();
    for (kind, accelerator) in ACCELERATORS.iter().enumerate() {
        for size in COUNTS {
            let mut sell = |engine: &str, market: Market, percent: u64| {
                let instance_type = format!("{}-{size}", accelerator.to_lowercase());
                offers.push(Offer {
                    id: OfferId::new(&format!("{engine}/{engine}-1a/{instance_type}/{market}")),
                    engine: engine.to_owned(),
                    pool: PoolId(format!("{engine}/main").into()),
                    cloud: engine.to_owned(),
                    region: format!("{engine}-1"),
                    zone: format!("{engine}-1a"),
                    instance_type,
                    market,
                    accelerator: (*accelerator).to_owned(),
                    accelerators: size,
                    price_per_hour: dollars(kind, size, percent),
                    capacity: Some(0),
                    notice: Span::minutes(2),
                });
            };
            sell("farm", Market::Owned, OWNED);
            for engine in ["east", "west"] {
                sell(engine, Market::OnDemand, 100);
                sell(engine, Market::Spot, SPOT);
            }
        }
    }
    offers
}
