//! Owned machines: for now the one that the server runs on. A lease is a part of it, so many of its accelerators or one of
//! its processors, which nobody else has meanwhile; jobs queue for what is not free.

mod inventory;
#[cfg(test)]
mod tests;

pub use inventory::{Accelerator, Inventory, Stated};

use crate::clock::WorldClock;
use crate::engine::{Capabilities, Engine, EngineError, Owned, SeenGroup, SeenLease};
use crate::local::{Held, LocalLeases, Marks};
use async_trait::async_trait;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use windfall_core::ledger::part_of_node;
use windfall_core::pool::{Books, Habits, Health, Placing, Shape, Supply};
use windfall_core::{
    DecisionId, LeaseId, Market, NanoUsd, Node, NodeId, Offer, OfferId, Place, Pool, PoolId, Refusal, Span, Want,
};

/// Owned machines.
pub struct Machines {
    name: String,
    inventory: Inventory,
    /// What an hour of the machine costs.
    rate: NanoUsd,
    leases: Arc<LocalLeases>,
}

/// What can be had of a machine: a number of accelerators of one model, or a processor.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Part {
    model: String,
    count: u32,
}

impl Part {
    fn name(&self) -> String {
        if self.count == 0 { "cpu".to_owned() } else { format!("{}x{}", self.model, self.count) }
    }

    fn size(&self) -> Shape {
        match self.count {
            0 => Shape { cpu_millis: 1_000, ..Shape::default() },
            count => Shape { accelerators: count, ..Shape::default() },
        }
    }
}

impl Machines {
    /// Opens the engine on `root`, and adopts the leases it finds there. `agent_program` is the binary that knows the
    /// `agent` subcommands.
    pub fn open(
        name: &str,
        root: PathBuf,
        (inventory, rate): (Inventory, NanoUsd),
        clock: Arc<WorldClock>,
        agent_program: PathBuf,
    ) -> std::io::Result<Arc<Machines>> {
        let leases = LocalLeases::open(root, clock, agent_program)?;
        Ok(Arc::new(Machines { name: name.to_owned(), inventory, rate, leases }))
    }

    fn pool(&self) -> PoolId {
        PoolId(format!("{}/{}", self.name, self.inventory.name).into())
    }

    fn node(&self) -> NodeId {
        NodeId(format!("{}/{}", self.name, self.inventory.name).into())
    }

    /// Every part that the machine can give when nobody has anything of it.
    fn parts(&self) -> Vec<Part> {
        let models = self.inventory.models().into_iter();
        let sizes =
            models.flat_map(|(model, count)| (1..=count).map(move |count| Part { model: model.to_owned(), count }));
        sizes.chain([Part { model: String::new(), count: 0 }]).collect()
    }

    fn offer_id(&self, part: &Part) -> OfferId {
        OfferId::new(&format!("{}/{}/{}/owned", self.name, self.inventory.name, part.name()))
    }

    /// Leases of a part that there are.
    fn given(&self, part: &Part, held: &BTreeMap<LeaseId, Held>) -> u32 {
        let id = self.offer_id(part);
        held.values().filter(|held| !held.is_gone() && held.marks.offer == id).count() as u32
    }

    /// Leases of a part that can still be given.
    fn left(&self, part: &Part, held: &BTreeMap<LeaseId, Held>) -> u32 {
        match part.count {
            0 => self.inventory.cpus.saturating_sub(self.given(part, held)),
            count => self.free(&part.model, held).len() as u32 / count,
        }
    }

    /// Accelerators of a model that no lease has.
    fn free(&self, model: &str, held: &BTreeMap<LeaseId, Held>) -> Vec<String> {
        let live = held.values().filter(|held| !held.is_gone());
        let taken: BTreeSet<&String> = live.flat_map(|held| held.marks.devices.iter().flatten()).collect();
        let of_model = self.inventory.accelerators.iter().filter(|one| one.model == model);
        of_model.map(|one| &one.device).filter(|device| !taken.contains(device)).cloned().collect()
    }

    fn offer(&self, part: &Part, capacity: u32) -> Offer {
        Offer {
            id: self.offer_id(part),
            engine: self.name.clone(),
            pool: self.pool(),
            cloud: "local".to_owned(),
            region: String::new(),
            zone: self.inventory.name.clone(),
            instance_type: part.name(),
            market: Market::Owned,
            accelerator: part.model.clone(),
            accelerators: part.count,
            price_per_hour: self.price(part),
            capacity: Some(capacity),
            notice: Span::ZERO,
        }
    }

    /// Its part of what the machine costs, as the ledger counts it.
    fn price(&self, part: &Part) -> NanoUsd {
        part_of_node(part.size(), self.inventory.shape()).of_rate(self.rate)
    }

    /// What each slot of a group becomes.
    fn chosen(
        &self,
        want: &Want,
        held: &BTreeMap<LeaseId, Held>,
        known: &BTreeMap<u32, Marks>,
    ) -> Result<Vec<Marks>, EngineError> {
        let parts = self.parts();
        let shown = |offer: &OfferId| parts.iter().find(|part| self.offer_id(part) == *offer);
        if want.units == 0 || want.alternatives.iter().all(|asked| shown(&asked.offer).is_none()) {
            return Err(EngineError::Refused(Refusal::Invalid));
        }
        let affordable = want.alternatives.iter().filter_map(|asked| {
            let part = shown(&asked.offer)?;
            asked.max_price.is_none_or(|max| self.price(part) <= max).then_some(part)
        });
        // What was begun goes on as it was begun, whatever is asked for now.
        let asked: Vec<&Part> = match known.values().find(|marks| marks.units > 0) {
            Some(begun) => shown(&begun.offer).into_iter().collect(),
            None => affordable.collect(),
        };
        let begun = known.values().map(|marks| marks.units).max().unwrap_or(0);
        let had = asked.into_iter().find_map(|part| {
            let left = self.left(part, held);
            let units = if begun > 0 { begun } else { left.min(want.units) };
            let missing = units - (known.len() as u32).min(units);
            (left >= missing && units >= want.least.max(1)).then(|| self.marks(part, units, held, known))
        });
        had.ok_or(EngineError::Refused(Refusal::NoCapacity))
    }

    fn marks(
        &self,
        part: &Part,
        units: u32,
        held: &BTreeMap<LeaseId, Held>,
        known: &BTreeMap<u32, Marks>,
    ) -> Vec<Marks> {
        let mut free = self.free(&part.model, held).into_iter();
        let fresh = |free: &mut dyn Iterator<Item = String>| Marks {
            offer: self.offer_id(part),
            node: Some(self.node()),
            size: part.size(),
            devices: Some(free.take(part.count as usize).collect()),
            units,
            sold_at: Some(self.leases.clock.now()),
            ..Marks::default()
        };
        (0..units).map(|slot| known.get(&slot).cloned().unwrap_or_else(|| fresh(&mut free))).collect()
    }
}

#[async_trait]
impl Engine for Arc<Machines> {
    fn describe(&self) -> Capabilities {
        let place = Place { cloud: "local".to_owned(), region: self.inventory.name.clone() };
        let machines = vec![self.inventory.to_string()];
        Capabilities { name: self.name.clone(), markets: vec![Market::Owned], places: vec![place], machines }
    }

    async fn changed(&self) {
        self.leases.changed.notified().await;
    }

    async fn offers(&self) -> Result<Vec<Offer>, EngineError> {
        let held = self.leases.held();
        let capacity = |part: &Part| self.given(part, &held) + self.left(part, &held);
        Ok(self.parts().iter().map(|part| self.offer(part, capacity(part))).collect())
    }

    async fn pools(&self) -> Result<Vec<Pool>, EngineError> {
        Ok(vec![Pool {
            id: self.pool(),
            engine: self.name.clone(),
            placing: Placing::Theirs,
            supply: Supply::Fixed,
            books: Books::Whole,
            habits: Habits { dead_man: Span::hours(4), notice: Span::ZERO, ..Habits::USUAL },
            // What a lease has is somebody's alone.
            tells_apart: false,
        }])
    }

    async fn nodes(&self) -> Result<Vec<Node>, EngineError> {
        Ok(vec![Node {
            id: self.node(),
            pool: self.pool(),
            accelerator: self.inventory.accelerators.first().map(|one| one.model.clone()).unwrap_or_default(),
            capacity: self.inventory.shape(),
            foreign: Shape::default(),
            domains: BTreeMap::new(),
            health: Health::Ready,
            rate: self.rate,
        }])
    }

    async fn acquire(&self, group: DecisionId, want: &Want) -> Result<SeenGroup, EngineError> {
        self.leases.give(group, |held, known| self.chosen(want, held, known))?;
        self.leases.changed.notify_one();
        self.leases.launch_all(group).await
    }

    async fn observe(&self, groups: &[DecisionId]) -> Result<Vec<SeenGroup>, EngineError> {
        Ok(groups.iter().filter_map(|group| self.leases.group_of(*group)).collect())
    }

    async fn list_owned(&self) -> Result<Vec<Owned>, EngineError> {
        Ok(self.leases.owned())
    }

    async fn release(&self, group: DecisionId, slots: &[u32]) -> Result<Vec<SeenLease>, EngineError> {
        self.leases.release(group, slots).await
    }

    async fn forget(&self, leases: &[LeaseId]) -> Result<(), EngineError> {
        self.leases.forget(leases);
        Ok(())
    }

    async fn abandon(&self) {
        self.leases.abandon().await;
    }
}
