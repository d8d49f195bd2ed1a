//! A second reader of the log: every committed row is decoded once, counted, and billed by its own arithmetic,
//! to be compared with the ledger and with what the world charged.

use crate::books::LedgerAudit;
use crate::conduct::Conduct;
use crate::market::Size;
use crate::world::World;
use std::collections::{BTreeMap, BTreeSet};
use windfall_core::{
    Body, Decision, DecisionId, Event, Installation, LeaseId, LeaseTerms, NanoUsd, NodeId, OfferId, Outcome, PoolId,
    Time, WorkloadId, codec,
};
use windfall_store::{LedgerRow, Row};

struct Bill {
    offer: OfferId,
    workload: Option<WorkloadId>,
    asked_at: Time,
    up: Option<Time>,
    /// Price from a moment on.
    prices: Vec<(Time, NanoUsd)>,
    /// The node that is paid for in its place, as a whole, and the rate of the node by its own: a part of it.
    of_node: Option<(NodeId, i64)>,
}

impl Bill {
    fn asked(offer: OfferId, workload: Option<WorkloadId>, asked_at: Time) -> Bill {
        Bill { offer, workload, asked_at, up: None, prices: Vec::new(), of_node: None }
    }
}

/// What the log says so far.
#[derive(Default)]
pub(crate) struct Audit {
    /// Of every node.
    node_accelerators: u32,
    pub last_seq: u64,
    pub last_ledger: u64,
    pub kinds: BTreeMap<&'static str, u64>,
    /// Prices of each offer, and since when.
    prices: BTreeMap<OfferId, Vec<(Time, NanoUsd)>>,
    /// The pool of each offer.
    pools: BTreeMap<OfferId, PoolId>,
    bills: BTreeMap<LeaseId, Bill>,
    ledger: BTreeMap<String, i64>,
    /// Rows in it, each of which may be a nano-dollar off its own part.
    rows: BTreeMap<String, i128>,
    /// What was written for the lives of a lease that were settled.
    settled: BTreeMap<LeaseId, i64>,
    /// Lives that were settled, by when they began.
    lives: BTreeSet<(LeaseId, Time)>,
    /// Charged to nobody.
    pub overhead: i64,
    /// Job number by the key it was submitted with.
    pub ids: BTreeMap<WorkloadId, usize>,
    pub ends: Vec<(Time, WorkloadId, Outcome)>,
    pub epochs: BTreeMap<WorkloadId, u64>,
    /// When leases were asked for, by job.
    pub asks: BTreeMap<WorkloadId, Vec<Time>>,
    pub leases_billed: u64,
    /// Charged for leases that are gone.
    paid: BTreeMap<WorkloadId, i64>,
    /// Workloads that have shared a lease with another, and what was written for each workload.
    sharing: BTreeSet<WorkloadId>,
    written: BTreeMap<WorkloadId, i64>,
    /// Budgets that were set.
    pub budgets: BTreeMap<WorkloadId, Option<NanoUsd>>,
    /// The most that a job was seen to pay an hour.
    pub dearest: BTreeMap<WorkloadId, i128>,
    pub conduct: Conduct,
    pub installation: Installation,
    pub books: LedgerAudit,
    pub digest: u64,
}

/// What an offer cost from a moment on, as far as it was seen; before that, what was seen first.
fn prices_since(all: &BTreeMap<OfferId, Vec<(Time, NanoUsd)>>, offer: &OfferId, since: Time) -> Vec<(Time, NanoUsd)> {
    let Some(prices) = all.get(offer) else { return vec![(since, NanoUsd(0))] };
    let first = prices.partition_point(|(at, _)| *at <= since).saturating_sub(1);
    prices[first..].iter().map(|(at, price)| (since.max(*at), *price)).collect()
}

impl Audit {
    pub fn of(size: Size) -> Audit {
        Audit { node_accelerators: size.node_accelerators, ..Audit::default() }
    }

    pub fn ledger_row(&mut self, row: &LedgerRow) -> Result<(), (u8, String)> {
        self.last_ledger = row.seq;
        *self.ledger.entry(row.lease.clone()).or_default() += row.nanousd;
        *self.rows.entry(row.lease.clone()).or_default() += 1;
        match row.workload {
            Some(workload) => *self.written.entry(WorkloadId(workload)).or_default() += row.nanousd,
            None => self.overhead += row.nanousd,
        }
        self.mix(row.nanousd as u64 ^ row.from_ms as u64 ^ row.to_ms as u64);
        self.books.row(row)
    }

    /// All that the ledger holds for a workload.
    pub fn written_for(&self, workload: WorkloadId) -> i64 {
        self.written.get(&workload).copied().unwrap_or(0)
    }

    fn mix(&mut self, value: u64) {
        self.digest = (self.digest ^ value).wrapping_mul(0x0000_0100_0000_01b3).rotate_left(17);
    }

    /// Takes a row in; a violated law comes back.
    pub fn row(&mut self, row: &Row, world: &World) -> Result<(), (u8, String)> {
        self.last_seq = row.seq;
        for chunk in row.payload.as_bytes().chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.mix(u64::from_le_bytes(word));
        }
        self.mix(row.at_ms as u64 ^ row.batch);
        let body: Body = codec::decode(row.version, &row.payload).map_err(|e| (11, format!("row {}: {e}", row.seq)))?;
        *self.kinds.entry(body.kind()).or_default() += 1;
        let at = Time(row.at_ms);
        let id = DecisionId { installation: self.installation, seq: row.seq };
        self.conduct.row(id, row.batch, at, &body)?;
        match body {
            Body::Event(event) => self.event(row.seq, at, event, world),
            Body::Decision(decision, _) => self.decision(row.seq, at, decision),
        }
    }

    fn event(&mut self, seq: u64, at: Time, event: Event, world: &World) -> Result<(), (u8, String)> {
        match event {
            Event::Submitted { workload, key, id } => {
                let id = id.unwrap_or(WorkloadId(seq));
                let number: usize = workload.job().run.environment.parse().unwrap_or(usize::MAX);
                if self.ids.values().any(|known| *known == number) {
                    return Err((1, format!("one submission became two jobs: {key}")));
                }
                if self.ids.insert(id, number).is_some() {
                    return Err((1, format!("two jobs have the id {id}")));
                }
                self.budgets.insert(id, workload.job().budget);
                self.books.submitted(id, workload.job());
            }
            Event::BudgetSet { workload, budget, .. } => {
                self.budgets.insert(workload, budget);
            }
            Event::OfferSeen { offer } => {
                self.books.shown(&offer);
                self.pools.insert(offer.id.clone(), offer.pool.clone());
                let price = offer.price_per_hour;
                let known = self.prices.entry(offer.id.clone()).or_default();
                let before = known.last().map(|(_, price)| *price);
                known.push((at, price));
                if before.is_some_and(|before| before != price) {
                    let of_offer = |bill: &&mut Bill| bill.offer == offer.id && bill.up.is_some();
                    let whole = self.books.nodes.is_whole(&offer.pool);
                    for bill in self.bills.values_mut().filter(of_offer).filter(|_| !whole) {
                        bill.prices.push((at, price));
                    }
                }
            }
            Event::LeaseUp { lease, at: since, terms, .. } => {
                if let Some(bill) = self.bills.get_mut(&lease) {
                    bill.offer = terms.offer.clone().unwrap_or(bill.offer.clone());
                    self.books.became(lease, &bill.offer);
                    let since = since.clamp(bill.asked_at, at);
                    bill.up = Some(since);
                    bill.prices = prices_since(&self.prices, &bill.offer, since);
                    self.on_node(lease, since, &terms);
                }
            }
            Event::PoolSeen { pool } => {
                for (node, rate) in self.books.nodes.pool(&pool, at) {
                    self.node_costs(&node, at, rate);
                }
            }
            Event::NodeSeen { node } => {
                if let Some(rate) = self.books.nodes.seen(&node, at) {
                    self.node_costs(&node.id, at, rate);
                }
            }
            Event::NodeGone { node } => {
                self.node_costs(&node, at, NanoUsd(0));
                return self.books.nodes.gone(&node, at, seq);
            }
            Event::GroupFailed { group, .. } => self.bills.retain(|lease, _| lease.group != group),
            Event::GroupGranted { group, units, .. } => {
                self.bills.retain(|lease, bill| lease.group != group || lease.slot < units || bill.up.is_some());
            }
            Event::LeaseFound { lease, offer, since, until } => {
                self.books.bought(lease, &offer, true);
                let prices = since.map(|since| prices_since(&self.prices, &offer, since)).unwrap_or_default();
                self.bills.insert(lease, Bill { up: since, prices, ..Bill::asked(offer, None, Time(0)) });
                since.iter().for_each(|since| self.on_node(lease, *since, &LeaseTerms::default()));
                if until.is_some() {
                    return self.settle(lease, world);
                }
            }
            Event::LeaseGone { lease, at: since, .. } => {
                self.books.moved_out(since.min(at), |known, _| known == lease);
                return self.settle(lease, world);
            }
            Event::WorkerEnded { stint, .. } => self.books.moved_out(at, |_, guest| guest == stint.workload),
            _ => {}
        }
        Ok(())
    }

    fn decision(&mut self, seq: u64, at: Time, decision: Decision) -> Result<(), (u8, String)> {
        match decision {
            Decision::Acquire { want } => {
                let group = DecisionId { installation: self.installation, seq };
                let workload = Some(want.workload);
                for slot in 0..want.units {
                    let offer = want.alternatives[0].offer.clone();
                    self.books.bought(LeaseId { group, slot }, &offer, false);
                    self.bills.insert(LeaseId { group, slot }, Bill::asked(offer, workload, at));
                }
                self.asks.entry(want.workload).or_default().push(at);
            }
            Decision::HandOver { lease, to } => {
                self.bills.get_mut(&lease).into_iter().for_each(|bill| bill.workload = Some(to));
                self.books.moved_out(at, |known, guest| known == lease && guest == to);
            }
            Decision::Start { stint, allocations, .. } => {
                for part in &allocations {
                    self.books.started(stint.workload, part);
                    let holder = self.bills.get(&part.lease).and_then(|bill| bill.workload);
                    if let Some(holder) = holder.filter(|holder| *holder != stint.workload) {
                        self.books.moved_in(stint.workload, part.lease, at);
                        self.sharing.extend([holder, stint.workload]);
                    }
                }
                let known = self.epochs.entry(stint.workload).or_default();
                if stint.epoch <= *known {
                    return Err((2, format!("stint {stint} was decided after stint {known}")));
                }
                *known = stint.epoch;
            }
            Decision::End { workload, outcome } => {
                if self.ends.iter().any(|(_, known, _)| *known == workload) {
                    return Err((1, format!("job {workload} ended twice")));
                }
                self.ends.push((at, workload, outcome));
            }
            _ => {}
        }
        Ok(())
    }

    /// A lease whose pool is paid for by the node costs its part of that, and nothing where its node is not known.
    fn on_node(&mut self, lease: LeaseId, since: Time, terms: &LeaseTerms) {
        let Some(bill) = self.bills.get_mut(&lease) else { return };
        if !self.pools.get(&bill.offer).is_some_and(|pool| self.books.nodes.is_whole(pool)) {
            return;
        }
        let part = i64::from(self.node_accelerators / terms.size.accelerators.max(1));
        // One that is heard of when its node is gone costs nothing: its part was paid for as idle, and stays so.
        let there = terms.node.as_ref().is_some_and(|node| self.books.nodes.is_there(node));
        let rates =
            if there { self.books.nodes.rates_of(terms.node.as_ref(), since) } else { vec![(since, NanoUsd(0))] };
        bill.prices = rates.into_iter().map(|(at, rate)| (at, NanoUsd(rate.0 / part))).collect();
        bill.of_node = terms.node.clone().map(|node| (node, part));
    }

    fn node_costs(&mut self, node: &NodeId, at: Time, rate: NanoUsd) {
        for bill in self.bills.values_mut().filter(|bill| bill.up.is_some()) {
            if let Some((_, part)) = bill.of_node.as_ref().filter(|(on, _)| on == node) {
                bill.prices.push((at, NanoUsd(rate.0 / part)));
            }
        }
    }

    /// Law 6 for one lease: ledger rows against the world's own clock at the prices that were published.
    fn settle(&mut self, lease: LeaseId, world: &World) -> Result<(), (u8, String)> {
        let Some(bill) = self.bills.remove(&lease) else { return Ok(()) };
        let all = self.ledger.get(&lease.to_string()).copied().unwrap_or(0);
        let written = all - self.settled.insert(lease, all).unwrap_or(0);
        if let Some(workload) = bill.workload {
            *self.paid.entry(workload).or_default() += written;
        }
        let Some(machine) = world.machines.get(&lease).or_else(|| world.past.get(&lease)) else { return Ok(()) };
        let (Some(since), Some((until, _))) = (machine.since, machine.gone) else {
            return match written {
                0 => Ok(()),
                paid => Err((6, format!("lease {lease} never came up and {paid} n$ are in the ledger"))),
            };
        };
        self.leases_billed += 1;
        self.lives.insert((lease, since));
        let mut charged: i128 = 0;
        for (i, (from, price)) in bill.prices.iter().enumerate() {
            let from = if i == 0 { since } else { (*from).min(until) };
            let to = bill.prices.get(i + 1).map_or(until, |(next, _)| (*next).min(until));
            charged += i128::from((to - from).0) * i128::from(price.0);
        }
        let charged = charged * i128::from(machine.copies) / 3_600_000;
        if bill.up.is_none() {
            let span = until - since;
            return if span.0 == 0 {
                Ok(())
            } else {
                Err((6, format!("lease {lease} was paid for {span}, not shown")))
            };
        }
        // Parts of a node are rounded at both ends of a row.
        let rounded =
            if bill.of_node.is_some() { 2 * self.rows.get(&lease.to_string()).copied().unwrap_or(0) } else { 0 };
        if (charged - i128::from(written)).abs() > rounded {
            return Err((6, format!("lease {lease}: {written} n$ in the ledger, {charged} n$ were charged")));
        }
        Ok(())
    }

    /// What a job has cost by a moment, leases that still run included, and what they cost an hour now.
    pub fn spent(&self, workload: WorkloadId, now: Time) -> (i128, i128) {
        if self.sharing.contains(&workload) {
            // Who has which part for how long is the brain's own count: of what it has written, each row is checked.
            let written = i128::from(self.written.get(&workload).copied().unwrap_or(0));
            let last = self.prices.values().filter_map(|prices| prices.last());
            let dearest = last.map(|(_, price)| i128::from(price.0)).max().unwrap_or(0);
            return (written, dearest);
        }
        let mut spent = i128::from(self.paid.get(&workload).copied().unwrap_or(0));
        let mut rate = 0;
        for bill in self.bills.values().filter(|bill| bill.workload == Some(workload) && bill.up.is_some()) {
            for (i, (from, price)) in bill.prices.iter().enumerate() {
                let to = bill.prices.get(i + 1).map_or(now, |(next, _)| *next);
                spent += i128::from((to - *from).0.max(0)) * i128::from(price.0) / 3_600_000;
            }
            rate += bill.prices.last().map_or(0, |(_, price)| i128::from(price.0));
        }
        (spent, rate)
    }

    /// A machine that was paid for, could be seen, and is not in the ledger.
    pub fn hidden(&self, world: &World) -> Option<LeaseId> {
        world.shown.difference(&self.lives).next().map(|(lease, _)| *lease)
    }

    /// All that the ledger holds.
    pub fn ledger_sum(&self) -> i64 {
        self.ledger.values().sum()
    }
}
