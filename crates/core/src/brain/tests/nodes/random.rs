//! Random histories of nodes: whatever happens, what was paid is charged, once and to the nano-dollar.

use super::*;
use crate::ledger::MOST_DAYS;
use proptest::prelude::*;
use std::collections::BTreeMap;

/// What happens next, and after how long.
#[derive(Clone, Debug)]
enum Step {
    Seen {
        node: u8,
        foreign: u32,
        health: u8,
        rate: i64,
        accelerators: u32,
    },
    Gone {
        node: u8,
    },
    Books {
        whole: bool,
    },
    /// A lease of a new job comes up on a node, some time ago.
    Up {
        node: u8,
        size: u32,
        ago: i64,
    },
    /// One of the leases is gone, since some time ago.
    Down {
        which: usize,
        ago: i64,
    },
    /// A job moves in on a part of somebody's lease.
    Share {
        which: usize,
        part: u32,
    },
    /// A job that moved in leaves.
    Leave {
        which: usize,
    },
}

fn any_step() -> impl Strategy<Value = (i64, Step)> {
    let after = prop_oneof![0..1_000_i64, 0..HOUR, 0..60 * HOUR];
    let ago = || prop_oneof![Just(0), 0..HOUR, 0..50 * HOUR];
    let step = prop_oneof![
        4 => (0..2_u8, 0..5_u32, 0..3_u8, 0..9_000_000_000_i64, 1..9_u32).prop_map(
            |(node, foreign, health, rate, accelerators)| Step::Seen { node, foreign, health, rate, accelerators }
        ),
        1 => (0..2_u8).prop_map(|node| Step::Gone { node }),
        1 => any::<bool>().prop_map(|whole| Step::Books { whole }),
        4 => (0..2_u8, 0..5_u32, ago()).prop_map(|(node, size, ago)| Step::Up { node, size, ago }),
        3 => (any::<usize>(), ago()).prop_map(|(which, ago)| Step::Down { which, ago }),
        1 => (any::<usize>(), 1..8_u32).prop_map(|(which, part)| Step::Share { which, part }),
        1 => any::<usize>().prop_map(|which| Step::Leave { which }),
    ];
    (after, step)
}

fn named(number: u8) -> NodeId {
    NodeId(format!("test/n{number}").into())
}

/// What a node must have cost, counted by its own arithmetic: rate by time, rounded once for each life.
#[derive(Default)]
struct Life {
    rate: Option<i64>,
    since: i64,
    product: i128,
    cost: i128,
}

impl Life {
    fn now(&mut self, now: i64, rate: Option<i64>) {
        self.product += i128::from(self.rate.unwrap_or(0)) * i128::from(now - self.since);
        self.since = now;
        if self.rate.is_some() && rate.is_none() {
            self.cost += self.product.div_euclid(i128::from(HOUR));
            self.product = 0;
        }
        self.rate = rate;
    }
}

fn act(world: &mut World, step: Step, whole: &mut bool) {
    let now = world.now;
    let leases = world.leases();
    let one = |which: usize| leases.get(which % leases.len().max(1)).copied();
    match step {
        Step::Seen { node: number, foreign, health, rate, accelerators } => world.see(Node {
            id: named(number),
            foreign: gpus(foreign),
            health: [Health::Ready, Health::NotReady, Health::Drained][usize::from(health)],
            rate: NanoUsd(rate),
            capacity: gpus(accelerators),
            ..node()
        }),
        Step::Gone { node } => {
            world.event(Event::NodeGone { node: named(node) });
        }
        Step::Books { whole: are } => {
            *whole = are;
            world.event(Event::PoolSeen { pool: pool(if are { Books::Whole } else { Books::Leased }) });
        }
        Step::Up { node, size, ago } => {
            let id = world.submit(job(800, None));
            let want = crate::Want::of(id, OfferId::new(SPOT), 1);
            let seq = world.record(Body::Decision(Decision::Acquire { want }, Reason::new("test", "test")));
            let lease = LeaseId { group: DecisionId { installation: Installation(7), seq }, slot: 0 };
            world.pass(Span(ago));
            let terms = LeaseTerms { node: Some(named(node)), size: gpus(size), ..LeaseTerms::default() };
            world.event(Event::LeaseUp { lease, at: now, terms: Box::new(terms), ready: None });
        }
        Step::Down { which, ago } => {
            if let Some(lease) = one(which) {
                world.lease_gone(lease, now - Span(ago));
            }
        }
        Step::Share { which, part } => {
            if let Some(lease) = one(which) {
                let stint = StintId::of_job(world.submit(job(8, None)), 1);
                let devices = Some(vec![Device { number: 0, part: DevicePart::Share { part, of: 7 } }]);
                let allocations = vec![Allocation { devices, ..Allocation::whole(lease) }];
                let start = Decision::Start { stint, allocations, resume: Resume::Newest };
                world.record(Body::Decision(start, Reason::new("test", "test")));
            }
        }
        Step::Leave { which } => {
            let held = |job: &&Job| job.stint.is_some();
            let stints: Vec<StintId> =
                world.brain.jobs().filter(held).filter_map(|job| Some(job.stint.as_ref()?.id)).collect();
            if let Some(stint) = stints.get(which % stints.len().max(1)) {
                world.ended(*stint, WorkerEnd::Stopped);
            }
        }
    }
}

proptest! {
    #[test]
    fn all_rows_of_a_node_add_up_to_its_rate_by_time(
        start in 0..30 * HOUR,
        steps in proptest::collection::vec(any_step(), 1..40),
    ) {
        let mut world = farm();
        world.pass(Span(start));
        let (mut whole, mut rows) = (true, Vec::new());
        let mut lives = [Life::default(), Life::default()];
        for (after, step) in steps {
            world.pass(Span(after));
            act(&mut world, step, &mut whole);
            for (number, life) in lives.iter_mut().enumerate() {
                let seen = world.brain.nodes().find(|node| node.id == named(number as u8));
                life.now(world.now.0, seen.filter(|_| whole).map(|node| node.rate.0));
            }
            rows.extend(world.brain.take_ledger());
            prop_assert_eq!(crate::laws::check(&world.brain, &mut Default::default()), []);
        }
        // What is open now, and what would be written if everything ended now, is the same.
        let mut all = rows.clone();
        all.extend(world.brain.open_ledger(world.now));
        for job in world.brain.jobs() {
            let of = |rows: &[LedgerRow]| {
                let own = rows.iter().filter(|row| row.beneficiary.workload() == Some(job.id));
                own.map(|row| row.amount.0).sum::<i64>()
            };
            prop_assert_eq!(job.paid.0, of(&rows), "job {}", job.id);
            // Rows are rounded by the day, and what is open for days is not yet.
            let apart = world.brain.spent(job, world.now).0 - of(&all);
            prop_assert!(apart.abs() <= (all.len() - rows.len()) as i64, "job {}: {apart} n$", job.id);
        }
        for (number, life) in lives.iter_mut().enumerate() {
            life.now(world.now.0, None);
            let own: Vec<&LedgerRow> = all.iter().filter(|row| row.node == Some(named(number as u8))).collect();
            prop_assert_eq!(own.iter().map(|row| i128::from(row.amount.0)).sum::<i128>(), life.cost);
            whole_and_of_one_day(&own)?;
        }
    }
}

fn whole_and_of_one_day(rows: &[&LedgerRow]) -> Result<(), TestCaseError> {
    const DAY: i64 = 24 * HOUR;
    let mut changes: BTreeMap<Time, f64> = BTreeMap::new();
    for row in rows {
        let (from, to) = (row.from, row.to);
        let (first, last) = (from.min(to), from.max(to));
        let part = row.share.part as f64 / row.share.of as f64 * if to < from { -1.0 } else { 1.0 };
        *changes.entry(first).or_default() += part;
        *changes.entry(last).or_default() -= part;
        let (first, last) = (first.0, last.0);
        prop_assert!(last - first <= DAY || last - first > (MOST_DAYS as i64 - 2) * DAY);
        prop_assert_eq!(first.div_euclid(DAY), (last - 1).div_euclid(DAY), "a row crosses midnight");
        prop_assert!(row.share.part > 0, "a beneficiary without a part: {:?}", row);
        prop_assert_eq!(row.lease.is_some(), row.beneficiary.workload().is_some());
        prop_assert_eq!(row.account.as_ref().map(|account| account.workload), row.beneficiary.workload());
        prop_assert_eq!(row.parts.map(|parts| parts.total()), Some(row.amount));
        let exact = i128::from(row.rate.0) * i128::from((to - from).0) * i128::from(row.share.part)
            / (i128::from(HOUR) * i128::from(row.share.of));
        // What is taken back at once may have had several prices: their mean is rounded, by up to a nano-dollar an hour.
        let hours = i128::from((last - first) / HOUR);
        prop_assert!((i128::from(row.amount.0) - exact).abs() <= 2 + hours, "{:?} is not {}", row, exact);
    }
    // What is charged of the node at each moment, less what was taken back: all of it, or nothing when it is not there.
    let mut whole = 0.0_f64;
    for (at, change) in changes {
        whole += change;
        prop_assert!(whole.abs() < 1e-6 || (whole - 1.0).abs() < 1e-6, "{} of the node is charged at {:?}", whole, at);
    }
    Ok(())
}
