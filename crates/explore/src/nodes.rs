//! Law 6 over nodes that are paid for whether they are used or not: what the log says that a node cost, counted by its own
//! arithmetic, against all rows of it.

use crate::random::Random;
use std::collections::{BTreeMap, BTreeSet};
use windfall_core::ledger::{Beneficiary, Goods, Share};
use windfall_core::pool::{Books, Shape};
use windfall_core::{Event, LedgerRow, NanoUsd, Node, NodeId, Pool, PoolId, Time};

/// Things that worlds with nodes must come to, as reports name them.
pub(crate) const SCENES: [&str; 6] = [
    "two workloads on one node",
    "foreign work on a node",
    "a job on a drained node",
    "a job on a node that is not ready",
    "late news of a lease on a node",
    SHARED_DEVICE,
];
/// A scene that the log shows, not the ledger.
pub(crate) const SHARED_DEVICE: &str = "two workloads on shares of one accelerator";

/// A node that is paid for.
struct Life {
    since: Time,
    rate: NanoUsd,
    /// Rate by time, in nano-dollar-milliseconds an hour.
    product: i128,
}

impl Life {
    fn cost_at(&self, at: Time) -> i128 {
        (self.product + i128::from(self.rate.0) * i128::from((at - self.since).0)).div_euclid(3_600_000)
    }
}

/// What the log says of nodes, and what the ledger does.
#[derive(Default)]
pub(crate) struct NodeAudit {
    pools: BTreeMap<PoolId, Pool>,
    /// Nodes as they were last seen.
    nodes: BTreeMap<NodeId, Node>,
    goods: BTreeMap<NodeId, Goods>,
    /// What an hour of a node costs from a moment on: nothing while it is not there.
    rates: BTreeMap<NodeId, Vec<(Time, NanoUsd)>>,
    lives: BTreeMap<NodeId, Life>,
    /// What nodes cost in lives that are over.
    over: BTreeMap<NodeId, i128>,
    /// Amounts in the ledger, and the record that each is of.
    written: BTreeMap<NodeId, Vec<(u64, i64)>>,
    pub scenes: BTreeMap<&'static str, u64>,
}

impl NodeAudit {
    /// A pool is told of: gives nodes of it that were seen before and are paid for from now on, and their rates.
    pub fn pool(&mut self, pool: &Pool, at: Time) -> Vec<(NodeId, NanoUsd)> {
        self.pools.insert(pool.id.clone(), pool.clone());
        let unpaid = self.nodes.values().filter(|node| node.pool == pool.id && !self.lives.contains_key(&node.id));
        let unpaid: Vec<Node> = unpaid.cloned().collect();
        unpaid.into_iter().filter_map(|node| Some((node.id.clone(), self.seen(&node, at)?))).collect()
    }

    fn whole(&self, pool: &PoolId) -> Option<&Pool> {
        self.pools.get(pool).filter(|pool| pool.books == Books::Whole)
    }

    /// Whether leases of a pool cost nothing by themselves.
    pub fn is_whole(&self, pool: &PoolId) -> bool {
        self.whole(pool).is_some()
    }

    /// A node as it is seen at a moment; gives its rate where it is paid for.
    pub fn seen(&mut self, node: &Node, at: Time) -> Option<NanoUsd> {
        self.nodes.insert(node.id.clone(), node.clone());
        let goods = Goods::of_node(node, self.whole(&node.pool)?);
        self.goods.insert(node.id.clone(), goods);
        let life = self.lives.entry(node.id.clone()).or_insert(Life { since: at, rate: node.rate, product: 0 });
        life.product += i128::from(life.rate.0) * i128::from((at - life.since).0);
        (life.since, life.rate) = (at, node.rate);
        self.rates.entry(node.id.clone()).or_default().push((at, node.rate));
        Some(node.rate)
    }

    /// A node is gone: all its rows must add up to what it cost.
    pub fn gone(&mut self, node: &NodeId, at: Time, seq: u64) -> Result<(), (u8, String)> {
        self.nodes.remove(node);
        let Some(life) = self.lives.remove(node) else { return Ok(()) };
        self.rates.entry(node.clone()).or_default().push((at, NanoUsd(0)));
        let over = self.over.entry(node.clone()).or_default();
        *over += life.cost_at(at);
        let cost = *over;
        let rows = self.written.get(node).into_iter().flatten().filter(|(by, _)| *by <= seq);
        balanced(node, rows.map(|(_, amount)| i128::from(*amount)).sum(), cost)
    }

    /// All rows of every node, and those that would be written now, add up to what it cost until now. Gives how many nodes.
    pub fn balance(&self, open: &[LedgerRow], now: Time) -> Result<u64, (u8, String)> {
        let known: BTreeSet<&NodeId> = self.over.keys().chain(self.lives.keys()).collect();
        for node in &known {
            let cost =
                self.over.get(*node).copied().unwrap_or(0) + self.lives.get(*node).map_or(0, |life| life.cost_at(now));
            let written = self.written.get(*node).into_iter().flatten().map(|(_, amount)| i128::from(*amount));
            let open = open.iter().filter(|row| row.node.as_ref() == Some(*node)).map(|row| i128::from(row.amount.0));
            balanced(node, written.chain(open).sum(), cost)?;
        }
        Ok(known.len() as u64)
    }

    /// Whether a node is there, and paid for as a whole.
    pub fn is_there(&self, node: &NodeId) -> bool {
        self.lives.contains_key(node)
    }

    /// What an hour of a node costs from `since` on.
    pub fn rates_of(&self, node: Option<&NodeId>, since: Time) -> Vec<(Time, NanoUsd)> {
        let all = node.and_then(|node| self.rates.get(node)).map(Vec::as_slice).unwrap_or_default();
        let before = all.iter().rev().find(|(at, _)| *at <= since).map_or(NanoUsd(0), |(_, rate)| *rate);
        let after = all.iter().filter(|(at, _)| *at > since).copied();
        [(since, before)].into_iter().chain(after).collect()
    }

    /// Takes a row of the ledger in.
    pub fn row(&mut self, row: &LedgerRow) {
        if let Some(node) = &row.node {
            self.written.entry(node.clone()).or_default().push((row.seq, row.amount.0));
        }
    }

    /// Whether what a row says of its node is what the log says.
    pub fn is_true(&self, row: &LedgerRow, node: &NodeId) -> Result<(), String> {
        if row.goods.as_deref() != self.goods.get(node) || row.offer.is_some() {
            return Err("a ledger row names other goods than the node that was paid for".to_owned());
        }
        // What is taken back at once may have had several: the row says their mean.
        let rates = || self.rates.get(node).into_iter().flatten().map(|(_, rate)| *rate);
        let published = rates().any(|rate| rate <= row.rate) && rates().any(|rate| rate >= row.rate);
        let of_lease = matches!(row.beneficiary, Beneficiary::Workload(_) | Beneficiary::Overhead);
        if !published || row.lease.is_some() != of_lease {
            return Err("a ledger row of a node has another rate, or another lease, than there was".to_owned());
        }
        Ok(())
    }

    /// Rows that one record gave rise to for one stretch of a node: all of it is charged to somebody; or, in a correction,
    /// what is taken back from some is charged to others.
    pub fn stretch(&mut self, rows: &[&LedgerRow]) -> Result<(), String> {
        let (charged, taken_back): (Vec<&LedgerRow>, Vec<&LedgerRow>) = rows.iter().partition(|row| row.from <= row.to);
        let part = |rows: &[&LedgerRow]| Share::sum(rows.iter().map(|row| row.share));
        if part(&charged) != if taken_back.is_empty() { Share::WHOLE } else { part(&taken_back) } {
            return Err("parts of a node are charged to nobody".to_owned());
        }
        let who: BTreeSet<_> = rows.iter().map(|row| (row.beneficiary, row.lease)).collect();
        let work: BTreeSet<_> = rows.iter().filter_map(|row| row.beneficiary.workload()).collect();
        let spare = |wanted| who.iter().any(|(beneficiary, _)| *beneficiary == wanted);
        let seen = [
            work.len() > 1,
            spare(Beneficiary::Foreign),
            !work.is_empty() && spare(Beneficiary::Drained),
            !work.is_empty() && spare(Beneficiary::NotReady),
            rows.iter().any(|row| row.to < row.from),
        ];
        for (scene, _) in SCENES.into_iter().zip(seen).filter(|(_, seen)| *seen) {
            *self.scenes.entry(scene).or_default() += 1;
        }
        Ok(())
    }
}

/// Nonsense about nodes.
pub(crate) fn junk(random: &mut Random) -> Event {
    let nodes = crate::market::nodes(random.next(), Time(0));
    let Some(mut node) = nodes.into_iter().next() else { return Event::NodeGone { node: NodeId("nowhere".into()) } };
    if random.permille(200) {
        return Event::NodeGone { node: node.id };
    }
    node.rate = NanoUsd(random.pick(&[i64::MAX, i64::MIN, -1, 0]));
    let size = |random: &mut Random| Shape {
        accelerators: random.pick(&[0, 1, u32::MAX]),
        cpu_millis: random.pick(&[0, 1, u64::MAX]),
        memory_bytes: random.pick(&[0, 1 << 20, u64::MAX]),
    };
    (node.capacity, node.foreign) = (size(random), size(random));
    Event::NodeSeen { node: Box::new(node) }
}

fn balanced(node: &NodeId, written: i128, cost: i128) -> Result<(), (u8, String)> {
    if written == cost {
        return Ok(());
    }
    Err((6, format!("node {node}: {written} n$ in the ledger, {cost} n$ were paid")))
}
