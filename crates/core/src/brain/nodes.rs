//! The fold over pools and nodes, and the books of nodes that are paid for whether they are used or not: who has what of
//! such a node at a moment. A step looks at the node that it is about and at the leases on it, never at all of them.

use super::{Brain, Job, Lease};
use crate::ids::{LeaseId, NodeId, WorkloadId};
use crate::ledger::{
    Account, Beneficiary, Charge, Goods, LedgerRow, NodeMeter, Split, at_most_whole, dealt, part_of_node,
};
use crate::pool::{Books, Health, Node, Pool, Shape};
use crate::units::Time;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::sync::Arc;

/// What the ledger needs to know of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct NodeBooks {
    /// Leases on it that are paid for.
    leases: BTreeSet<LeaseId>,
    /// Runs while it is there and its pool's books are whole.
    meter: Option<NodeMeter>,
}

impl NodeBooks {
    fn is_running(&self) -> bool {
        self.meter.as_ref().is_some_and(NodeMeter::is_running)
    }
}

impl Lease {
    /// Its size as far as it is known: as its engine said, or as the offer was.
    fn known_size(&self) -> Shape {
        let sold = self.goods.as_ref().map_or(0, |goods| goods.count);
        match self.terms.size {
            Shape { accelerators: 0, cpu_millis: 0, memory_bytes: 0 } => {
                Shape { accelerators: sold, ..Shape::default() }
            }
            said => said,
        }
    }

    /// Its part of a node, by who has what of the lease.
    fn parts_of(&self, capacity: Shape) -> impl Iterator<Item = Charge> {
        let (lease, part) = (Some(self.id), part_of_node(self.known_size(), capacity));
        self.charged().into_iter().map(move |charge| Charge { lease, share: charge.share.times(part), ..charge })
    }
}

fn spare(health: Health) -> Beneficiary {
    match health {
        Health::Ready => Beneficiary::Idle,
        Health::NotReady => Beneficiary::NotReady,
        Health::Drained => Beneficiary::Drained,
    }
}

impl Brain {
    pub(super) fn on_pool_seen(&mut self, seq: u64, pool: &Pool) {
        let before = self.pools.insert(pool.id.clone(), pool.clone());
        if before.as_ref() != Some(pool) {
            self.on_other_pool(&pool.id);
        }
        if before.is_some_and(|before| (before.books, &before.engine) == (pool.books, &pool.engine)) {
            return;
        }
        // Habits change, what is paid for does not: this is as rare as a new pool, so that all nodes may be looked at.
        let nodes: Vec<NodeId> =
            self.nodes.values().filter(|node| node.pool == pool.id).map(|node| node.id.clone()).collect();
        nodes.iter().for_each(|node| self.split_node(node, self.now, seq));
        let leases: Vec<LeaseId> = self.leases.keys().copied().collect();
        leases.into_iter().for_each(|lease| self.reprice(lease, seq));
    }

    pub(super) fn on_node_seen(&mut self, seq: u64, node: &Node) {
        self.nodes.insert(node.id.clone(), node.clone());
        self.split_node(&node.id, self.now, seq);
    }

    pub(super) fn on_node_gone(&mut self, seq: u64, id: &NodeId) {
        self.nodes.remove(id);
        self.split_node(id, self.now, seq);
    }

    /// A lease is up: from `at` on it has its part of its node.
    pub(super) fn enter_node(&mut self, id: LeaseId, at: Time) {
        let seq = self.last_seq;
        let Some(lease) = self.leases.get(&id) else { return };
        let Some(node) = lease.terms.node.clone() else { return };
        let capacity = self.nodes.get(&node).map(|node| node.capacity);
        let part = capacity.and_then(|capacity| lease.parts_of(capacity).last());
        let jobs = &self.jobs;
        let books = self.node_books.entry(node.clone()).or_default();
        books.leases.insert(id);
        let late = books.meter.as_mut().filter(|meter| at < meter.upto()).zip(part);
        let rows = late
            .map(|(meter, part)| meter.came(at, (seq, &node), part, |id| jobs.get(&id).map(Job::account)))
            .unwrap_or_default();
        self.post(rows, None);
        self.split_node(&node, at, seq);
    }

    /// A lease is gone since `at`: what it had of its node is free from then on.
    pub(super) fn leave_node(&mut self, id: LeaseId, at: Time, seq: u64) {
        let Some(lease) = self.leases.get(&id) else { return };
        let Some(node) = lease.terms.node.clone() else { return };
        // No further back than it is known who had the lease: bills of before that are closed.
        let at = lease.meter.as_ref().map_or(at, |meter| at.max(meter.known_since()));
        let Some(books) = self.node_books.get_mut(&node) else { return };
        books.leases.remove(&id);
        let late = books.meter.as_mut().filter(|meter| at < meter.upto());
        let rows = late.map(|meter| meter.left(at, (seq, &node), id)).unwrap_or_default();
        self.post(rows, None);
        self.split_node(&node, at, seq);
    }

    /// Who has what of a lease has changed just now.
    pub(super) fn split_node_of(&mut self, lease: LeaseId, seq: u64) {
        if let Some(node) = self.leases.get(&lease).and_then(|lease| lease.terms.node.clone()) {
            self.split_node(&node, self.now, seq);
        }
    }

    /// Brings the books of a node up to date: charges until `at` those who had it if somebody else has it now.
    fn split_node(&mut self, id: &NodeId, at: Time, seq: u64) {
        let split = self.split_of(id);
        // What they pay an hour may be another amount, and a budget last longer or shorter.
        let leases = self.node_books.get(id).into_iter().flat_map(|books| &books.leases);
        let has_budget = |id: &WorkloadId| self.jobs.get(id).is_some_and(|job| job.spec.budget.is_some());
        let leases = leases.filter_map(|lease| self.leases.get(lease));
        let workloads = leases.flat_map(Lease::workloads).filter(has_budget);
        workloads.for_each(|workload| self.awake.job(workload));
        let running = self.node_books.get(id).is_some_and(NodeBooks::is_running);
        let rows = match split {
            Some(split) if running => self.charge_node(id, |meter, whose| meter.split(at, (seq, id), split, whose)),
            Some(split) => {
                self.node_books.entry(id.clone()).or_default().meter = Some(NodeMeter::start(at, split));
                self.reprice_on(id, seq);
                Vec::new()
            }
            None if running => {
                let rows = self.charge_node(id, |meter, whose| meter.end(at, (seq, id), whose));
                // Leases of a node that is gone are about to go: they do not begin to cost something by themselves.
                if self.nodes.contains_key(id) {
                    self.reprice_on(id, seq);
                }
                rows
            }
            None => Vec::new(),
        };
        self.post(rows, None);
        if self.node_books.get(id).is_some_and(|books| books.leases.is_empty() && !books.is_running()) {
            self.node_books.remove(id);
        }
    }

    fn charge_node(
        &mut self,
        id: &NodeId,
        charge: impl FnOnce(&mut NodeMeter, &dyn Fn(WorkloadId) -> Option<Account>) -> Vec<LedgerRow>,
    ) -> Vec<LedgerRow> {
        let jobs = &self.jobs;
        let meter = self.node_books.get_mut(id).and_then(|books| books.meter.as_mut());
        meter.map(|meter| charge(meter, &|id| jobs.get(&id).map(Job::account))).unwrap_or_default()
    }

    /// Who has what of a node now: leases by the order in which they were asked for, then what is not ours, and the rest
    /// by its health. None where nobody pays for it as a whole.
    fn split_of(&self, id: &NodeId) -> Option<Split> {
        let node = self.nodes.get(id)?;
        let pool = self.pools.get(&node.pool).filter(|pool| pool.books == Books::Whole)?;
        let leases = self.node_books.get(id).into_iter().flat_map(|books| &books.leases);
        let ours = leases.filter_map(|lease| self.leases.get(lease)).flat_map(|lease| lease.parts_of(node.capacity));
        let foreign = (node.foreign != Shape::default())
            .then(|| Charge::of(Beneficiary::Foreign, part_of_node(node.foreign, node.capacity)));
        Some(Split {
            rate: node.rate,
            goods: Arc::new(Goods::of_node(node, pool)),
            // A machine may have lost what leases were given of it.
            charged: dealt(at_most_whole(ours.collect()).into_iter().chain(foreign)),
            spare: spare(node.health),
        })
    }

    /// The pool that a lease is of: its node's, where that is known, else its offer's, also where that is sold out.
    pub(super) fn pool_of(&self, lease: &Lease) -> Option<&Pool> {
        let node = lease.terms.node.as_ref().and_then(|node| self.nodes.get(node));
        let bought = || lease.goods.as_ref().map(|goods| &goods.pool);
        let shown = || self.offers.get(&lease.offer).map(|offer| &offer.pool);
        self.pools.get(node.map(|node| &node.pool).or_else(shown).or_else(bought)?)
    }

    /// Whether what is paid for is its node, as a whole: by itself it costs nothing then, and has no rows.
    pub(super) fn is_paid_by_node(&self, lease: &Lease) -> bool {
        self.pool_of(lease).is_some_and(|pool| pool.books == Books::Whole)
    }

    /// Charges a lease until now if its node is paid for from now on, or is not any more.
    pub(super) fn reprice(&mut self, id: LeaseId, seq: u64) {
        let Some(lease) = self.leases.get(&id) else { return };
        let free = self.is_paid_by_node(lease);
        if lease.meter.as_ref().is_none_or(|meter| meter.is_free() == free) {
            return;
        }
        self.book(id, self.now, seq);
        self.wake_budgets_on(id);
        if let Some(meter) = self.leases.charge(&id).and_then(|lease| lease.meter.as_mut()) {
            meter.set_free(free);
        }
    }

    /// What those on a lease pay an hour is another amount: their budgets last longer or shorter.
    fn wake_budgets_on(&mut self, id: LeaseId) {
        let has_budget = |id: &WorkloadId| self.jobs.get(id).is_some_and(|job| job.spec.budget.is_some());
        let workloads = self.leases.get(&id).into_iter().flat_map(Lease::workloads);
        workloads.filter(has_budget).for_each(|workload| self.awake.job(workload));
    }

    fn reprice_on(&mut self, node: &NodeId, seq: u64) {
        let leases = self.node_books.get(node).map(|books| books.leases.clone()).unwrap_or_default();
        leases.into_iter().for_each(|lease| self.reprice(lease, seq));
    }

    pub(super) fn node_meter(&self, lease: &Lease) -> Option<&NodeMeter> {
        self.node_books.get(lease.terms.node.as_ref()?)?.meter.as_ref()
    }

    /// The rows that nodes would give rise to if they were charged until `now`.
    pub(super) fn open_of_nodes(&self, now: Time) -> Vec<LedgerRow> {
        let mut rows = Vec::new();
        for (id, books) in &self.node_books {
            let Some(mut meter) = books.meter.clone().filter(|meter| meter.is_running() && meter.upto() < now) else {
                continue;
            };
            rows.extend(meter.close(now, (self.last_seq, id), |id| self.jobs.get(&id).map(Job::account)));
        }
        rows
    }

    /// Leases that are on a node by what is kept for the ledger, with the node: for the laws.
    pub(crate) fn leases_on_nodes(&self) -> impl Iterator<Item = (LeaseId, &NodeId)> {
        self.node_books.iter().flat_map(|(node, books)| books.leases.iter().map(move |lease| (*lease, node)))
    }
}
