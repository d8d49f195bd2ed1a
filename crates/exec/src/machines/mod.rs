//! Owned machines: the computer that the server runs on, where it is told to use it, and the nodes that have joined. A lease
//! is a part of one of them, so many of its accelerators or one of its processors, which nobody else has meanwhile; jobs
//! queue for what is not free.

mod computer;
mod inventory;
pub(crate) mod nvml;
#[cfg(test)]
mod tests;

pub use inventory::{Accelerator, Inventory, Stated};
pub use nvml::{Counters, Measured, NoTelemetry, Program, Telemetry, TelemetryFeed, tell_readings, tell_telemetry};

use crate::accounts::Accounts;
use crate::clock::WorldClock;
use crate::engine::{Capabilities, Engine, EngineError, Interrupt, Owned, SeenGroup, SeenLease};
use crate::limit::Limit;
use crate::local::{Held, LocalLeases, Marks};
use crate::nodes::{Hub, NodeRecord, NodeStanding};
use async_trait::async_trait;
use computer::{Computer, Part, Use};
use nvml::Readings;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use windfall_core::english::counted;
use windfall_core::health::{draining, moving};
use windfall_core::pool::{Books, Habits, Health, Placing, Shape, Supply};
use windfall_core::{
    DecisionId, LeaseId, Market, NanoUsd, Node, NodeId, Offer, OfferId, Place, Pool, PoolId, Refusal, Span, Symptom,
    Want,
};

/// Leases that nobody knows which are ended at once; the rest waits for the next sweep.
const MOST_STRAYS: usize = 256;
/// How often it is looked whether a machine must be emptied.
const LOOK: Duration = Duration::from_millis(500);
/// How long a program may take to save when its machine must be emptied. One that is done earlier moves earlier.
const MOVE_WITHIN: Span = Span::minutes(5);

/// Owned machines.
pub struct Machines {
    name: String,
    hub: Arc<Hub>,
    leases: Arc<LocalLeases>,
}

/// The computer that the server runs on, where it is for jobs too.
#[derive(Clone, Debug)]
pub struct Here {
    pub inventory: Inventory,
    /// What an hour of it costs.
    pub rate: NanoUsd,
    /// It was found, not stated: its accelerators are watched.
    pub is_found: bool,
}

/// The joined node that a machine is; none for the server's own.
fn host_of(node: &NodeRecord) -> Option<String> {
    (!node.is_server).then(|| node.name.clone())
}

/// Which machines the slots of a group get that have none yet: `most` of them, or `least` at the least. All on one where that
/// goes, and there where least is left: what is whole stays whole. Otherwise over as few as can be. The server's own computer
/// is never one of several: the others would not find it. `there` are the machines that the group, or what it joins, has already.
fn spread<'a>(
    rooms: &[(&'a Computer, u32)],
    there: &BTreeSet<Option<String>>,
    most: u32,
    least: u32,
) -> Option<Vec<&'a Computer>> {
    let is_its = |computer: &Computer| there.contains(&computer.host);
    let may_be_one_of = |computer: &Computer| match there.iter().next() {
        Some(None) => computer.host.is_none(),
        Some(Some(_)) | None => computer.host.is_some(),
    };
    let on_one = |units: u32| {
        let alone = rooms.iter().filter(|(computer, room)| *room >= units && (there.is_empty() || is_its(computer)));
        let (computer, room) = alone.min_by_key(|(_, room)| *room)?;
        Some(vec![*computer; most.min(*room) as usize])
    };
    let on_several = |units: u32| {
        let mut of_nodes: Vec<_> = rooms.iter().filter(|(computer, _)| may_be_one_of(computer)).collect();
        of_nodes.sort_by_key(|(computer, room)| (!is_its(computer), std::cmp::Reverse(*room)));
        let slots = of_nodes.into_iter().flat_map(|(computer, room)| std::iter::repeat_n(*computer, *room as usize));
        let slots: Vec<&Computer> = slots.take(most as usize).collect();
        (slots.len() >= units as usize).then_some(slots)
    };
    let fewer = || [on_several(least), on_one(least)].into_iter().flatten().max_by_key(Vec::len);
    on_one(most).or_else(|| on_several(most)).or_else(fewer)
}

impl Machines {
    /// Opens the engine on `root`, and adopts the leases it finds there. `agent_program` is the binary that knows the
    /// `agent` subcommands, `accounts` whom programs here run as, where that is not whoever runs this.
    pub fn open(
        name: &str,
        root: PathBuf,
        here: Option<Here>,
        hub: Arc<Hub>,
        clock: Arc<WorldClock>,
        agent_program: PathBuf,
        accounts: Option<Accounts>,
    ) -> std::io::Result<Arc<Machines>> {
        if let Some(Here { inventory, rate, is_found }) = here {
            hub.take_server_in(&inventory, rate)?;
            // What its owner states is not watched.
            let readings = is_found.then(|| Readings::new(&agent_program));
            let watched = Arc::clone(&hub);
            tokio::spawn(async move { watched.watch_own(readings).await });
        }
        let leases = LocalLeases::of_machines(root, clock, agent_program.clone(), Some(Arc::clone(&hub)), accounts)?;
        let machines = Arc::new(Machines { name: name.to_owned(), hub, leases });
        if let Some(own) = machines.server_is_used().then(|| machines.hub.let_server_leave()).flatten() {
            let is_found = own.inventory.accelerators.iter().any(Accelerator::has_own_name);
            let (hub, readings) = (Arc::clone(&machines.hub), is_found.then(|| Readings::new(&agent_program)));
            tokio::spawn(async move { hub.watch_own(readings).await });
        }
        tokio::spawn(Arc::clone(&machines).empty_sick_nodes());
        Ok(machines)
    }

    /// The accelerators that each lease on a machine has.
    pub fn devices_on(&self, node: &str) -> BTreeMap<LeaseId, Vec<String>> {
        let host = Some(node).filter(|node| self.hub.own_name() != Some(node));
        let held = self.leases.held();
        let on_node = held.iter().filter(|(_, held)| !held.is_gone() && held.marks.host.as_deref() == host);
        on_node.map(|(lease, held)| (*lease, held.marks.devices.clone().unwrap_or_default())).collect()
    }

    /// Gives notice to leases on machines that are not well, for ever: their work saves, and goes on elsewhere.
    async fn empty_sick_nodes(self: Arc<Self>) {
        loop {
            tokio::time::sleep(LOOK).await;
            let now = self.leases.clock.now();
            for (lease, why) in self.doomed() {
                self.leases.mark(lease, |marks| {
                    marks.ends_at = Some(now + MOVE_WITHIN);
                    marks.why = Some(Box::new(why));
                });
            }
            self.leases.carry_notices_out(now);
            if !self.server_is_used() {
                self.hub.server_is_free();
            }
        }
    }

    /// Whether anybody has anything of the server's own computer.
    fn server_is_used(&self) -> bool {
        self.leases.held().values().any(|held| !held.is_gone() && held.marks.host.is_none())
    }

    /// Leases without a notice that are on a machine which must be emptied, or have an accelerator of it which must be.
    fn doomed(&self) -> Vec<(LeaseId, Symptom)> {
        let nodes = self.hub.all_nodes().into_iter().map(|node| node.record);
        let sick: BTreeMap<Option<String>, Vec<Symptom>> =
            nodes.filter(|node| !node.symptoms.is_empty()).map(|node| (host_of(&node), node.symptoms)).collect();
        if sick.is_empty() {
            return Vec::new();
        }
        let held = self.leases.held();
        let live = held
            .iter()
            .filter(|(_, held)| !held.is_gone() && held.marks.up_at.is_some() && held.marks.ends_at.is_none());
        let why = |held: &Held| {
            let symptoms = sick.get(&held.marks.host)?;
            moving(symptoms, held.marks.devices.as_deref().unwrap_or_default()).cloned()
        };
        live.filter_map(|(lease, held)| Some((*lease, why(held)?))).collect()
    }

    fn pool(&self) -> PoolId {
        PoolId(self.name.clone().into())
    }

    fn node_id(&self, computer: &Computer) -> NodeId {
        NodeId(format!("{}/{}", self.name, computer.name).into())
    }

    /// Every machine that there is, whether it can be used now or not.
    fn computers(&self) -> Vec<Computer> {
        let nodes = self.hub.all_nodes().into_iter().filter(|node| !node.record.pilot);
        let computer = |node: NodeStanding| Computer {
            name: node.record.name.clone(),
            inventory: node.record.present(),
            rate: node.record.rate,
            domains: node.record.domains(),
            symptoms: draining(&node.record.symptoms),
            drained_for: node.record.drained.clone(),
            health: match (node.is_connected, &node.record.drained, draining(&node.record.symptoms).is_empty()) {
                (_, Some(_), _) | (_, _, false) => Health::Drained,
                (true, None, true) => Health::Ready,
                (false, None, true) => Health::NotReady,
            },
            host: host_of(&node.record),
        };
        nodes.map(computer).collect()
    }

    /// Machines of one kind at one price, which are one offer a part: which of them it is does not matter to whoever asks.
    fn kinds(&self) -> BTreeMap<String, Vec<Computer>> {
        let mut kinds: BTreeMap<String, Vec<Computer>> = BTreeMap::new();
        for computer in self.computers() {
            kinds.entry(self.kind_of(&computer)).or_default().push(computer);
        }
        kinds
    }

    /// What a machine and its like are called in offers. Beside nodes the server's own computer has no like: it is never one
    /// of several, so a gang that finds no room on nodes must not count it, nor keep others from it.
    fn kind_of(&self, computer: &Computer) -> String {
        let kind = computer.kind();
        if self.is_alone(computer) { format!("{kind}-here") } else { kind }
    }

    fn is_alone(&self, computer: &Computer) -> bool {
        computer.host.is_none() && self.hub.takes_nodes()
    }

    fn offer_id(&self, kind: &str, part: &Part) -> OfferId {
        OfferId::new(&format!("{}/{kind}/{}/owned", self.name, part.name()))
    }

    /// What each part of each kind of machine can be had how often, those that are held included.
    fn on_offer(&self, held: &BTreeMap<LeaseId, Held>) -> Vec<Offer> {
        let used = Use::of(held);
        let of_kind = |(kind, computers): (String, Vec<Computer>)| {
            let parts = computers.first().map(Computer::parts).unwrap_or_default();
            let capacity = |part: &Part| computers.iter().map(|one| used.given(one, part) + used.left(one, part)).sum();
            parts.into_iter().map(|part| self.offer(&kind, &computers[0], &part, capacity(&part))).collect::<Vec<_>>()
        };
        self.kinds().into_iter().flat_map(of_kind).collect()
    }

    fn offer(&self, kind: &str, computer: &Computer, part: &Part, capacity: u32) -> Offer {
        Offer {
            id: self.offer_id(kind, part),
            engine: self.name.clone(),
            pool: self.pool(),
            cloud: "local".to_owned(),
            region: String::new(),
            zone: kind.to_owned(),
            instance_type: part.name(),
            market: Market::Owned,
            accelerator: part.model.clone(),
            accelerators: part.count,
            price_per_hour: computer.price(part),
            capacity: Some(capacity),
            notice: Span::ZERO,
        }
    }

    /// What each slot of a group becomes.
    fn chosen(
        &self,
        want: &Want,
        held: &BTreeMap<LeaseId, Held>,
        known: &BTreeMap<u32, Marks>,
    ) -> Result<Vec<Marks>, EngineError> {
        let kinds = self.kinds();
        // The part that an offer is, and the machines that have it.
        let of_offer = |offer: &OfferId| {
            kinds.iter().find_map(|(kind, computers)| {
                let parts = computers.first().map(Computer::parts).unwrap_or_default();
                let part = parts.into_iter().find(|part| self.offer_id(kind, part) == *offer)?;
                Some((part, computers))
            })
        };
        let shown = want.alternatives.iter().filter_map(|asked| Some((asked.max_price, of_offer(&asked.offer)?)));
        let shown: Vec<_> = shown.collect();
        if want.units == 0 || shown.is_empty() {
            return Err(EngineError::Refused(Refusal::Invalid));
        }
        // What was begun goes on as it was begun, whatever is asked for now.
        let begun = known.values().find(|marks| marks.units > 0);
        let asked: Vec<(Part, &Vec<Computer>)> = match begun {
            Some(begun) => of_offer(&begun.offer).into_iter().collect(),
            None => {
                let affordable = |(most, (part, computers)): &(Option<NanoUsd>, (Part, &Vec<Computer>))| {
                    most.is_none_or(|most| computers[0].price(part) <= most)
                };
                shown.into_iter().filter(affordable).map(|(_, of_offer)| of_offer).collect()
            }
        };
        let units = begun.map_or(want.units, |begun| begun.units);
        let enough = if begun.is_some() { units } else { want.least.max(1) };
        let used = Use::of(held);
        let beside = want.beside.iter().filter_map(|lease| held.get(lease)).map(|held| &held.marks);
        let there: BTreeSet<Option<String>> = known.values().chain(beside).map(|marks| marks.host.clone()).collect();
        let is_good = |computer: &&Computer| !want.rather_not_on.contains(&self.node_id(computer));
        let wanted = |units: u32| units.saturating_sub(known.len() as u32);
        let had = |(part, computers): &(Part, &Vec<Computer>), any: bool| {
            let computers = computers.iter().filter(|computer| any || is_good(computer));
            let rooms: Vec<_> = computers.map(|computer| (computer, used.left(computer, part))).collect();
            let mut machines = spread(&rooms, &there, wanted(units), wanted(enough))?.into_iter();
            let mut used = used.clone();
            let slot = |slot: u32| match known.get(&slot) {
                Some(known) => Some(known.clone()),
                None => Some(self.marks(want, machines.next()?, part, &mut used)),
            };
            Some((0..units).map_while(slot).collect::<Vec<Marks>>())
        };
        // One that it would rather not have is taken where no other will do, of whatever kind.
        let had = [false, true].into_iter().find_map(|any| asked.iter().find_map(|of_kind| had(of_kind, any)));
        let mut had = had.ok_or(EngineError::Refused(Refusal::NoCapacity))?;
        let units = had.len() as u32;
        had.iter_mut().for_each(|marks| marks.units = units);
        Ok(had)
    }

    fn marks(&self, want: &Want, computer: &Computer, part: &Part, used: &mut Use) -> Marks {
        Marks {
            offer: self.offer_id(&self.kind_of(computer), part),
            node: Some(self.node_id(computer)),
            size: part.size(),
            host: computer.host.clone(),
            devices: Some(used.take(computer, part)),
            owner: want.owner.clone(),
            limits: Shape { accelerators: 0, ..want.worker },
            sold_at: Some(self.leases.clock.now()),
            ..Marks::default()
        }
    }

    /// Ends what nodes hold and nobody here knows, or what is given up here, and lets them forget what is over.
    fn end_strays(&self) {
        self.leases.settle_unreadable();
        let is_given_up = |lease| self.leases.held().get(&lease).map(Held::is_gone);
        let shown = self.hub.shown().into_iter().filter(|(_, seen)| !self.leases.is_unreadable(seen.lease));
        let strays = shown.filter_map(|(node, seen)| {
            let known = is_given_up(seen.lease);
            // One that is known to be over is kept until nobody asks for it any more.
            let is_stray = known.is_none_or(|given_up| given_up && seen.is_alive);
            is_stray.then_some((node, seen, known.is_some()))
        });
        for (node, seen, is_known) in strays.take(MOST_STRAYS) {
            match seen.is_alive {
                true => self.hub.end_stray(&node, seen.lease, is_known),
                false => self.hub.forget(&node, seen.lease),
            }
        }
    }
}

#[async_trait]
impl Engine for Arc<Machines> {
    fn describe(&self) -> Capabilities {
        // Wherever they are, nothing is paid for what moves between them.
        let places = vec![Place { cloud: "local".to_owned(), region: String::new() }];
        let own = self.hub.own().map(|own| own.record.inventory.to_string());
        let nodes = self.hub.takes_nodes().then(|| counted(self.hub.nodes().len() as u64, "node"));
        let machines = own.into_iter().chain(nodes).collect();
        Capabilities { name: self.name.clone(), markets: vec![Market::Owned], places, machines }
    }

    async fn changed(&self) {
        tokio::select! { () = self.leases.changed.notified() => {}, () = self.hub.changed.notified() => {} }
    }

    async fn offers(&self) -> Result<Vec<Offer>, EngineError> {
        Ok(self.on_offer(&self.leases.held()))
    }

    async fn pools(&self) -> Result<Vec<Pool>, EngineError> {
        let said = self.hub.takes_nodes().then(|| Span(self.hub.dead_man().as_millis() as i64));
        let dead_man = said.unwrap_or(Span::hours(4));
        Ok(vec![Pool {
            id: self.pool(),
            engine: self.name.clone(),
            placing: Placing::Theirs,
            supply: Supply::Fixed,
            books: Books::Whole,
            habits: Habits { dead_man, notice: Span::ZERO, ..Habits::USUAL },
            // What a lease has is somebody's alone.
            tells_apart: false,
        }])
    }

    async fn nodes(&self) -> Result<Vec<Node>, EngineError> {
        let node = |computer: Computer| Node {
            id: self.node_id(&computer),
            pool: self.pool(),
            mixed: computer.inventory.models().len() > 1,
            accelerator: computer.inventory.accelerators.first().map(|one| one.model.clone()).unwrap_or_default(),
            capacity: computer.inventory.shape(),
            foreign: Shape::default(),
            alone: self.is_alone(&computer),
            domains: computer.domains,
            symptoms: computer.symptoms,
            drained_for: computer.drained_for,
            health: computer.health,
            rate: computer.rate,
        };
        Ok(self.computers().into_iter().map(node).collect())
    }

    async fn acquire(&self, group: DecisionId, want: &Want) -> Result<SeenGroup, EngineError> {
        self.leases.settle_unreadable();
        self.leases.give(group, |held, known| self.chosen(want, held, known))?;
        self.leases.changed.notify_one();
        self.leases.launch_all(group).await
    }

    async fn observe(&self, groups: &[DecisionId]) -> Result<Vec<SeenGroup>, EngineError> {
        self.leases.settle_unreadable();
        self.leases.launch_what_waits(groups);
        Ok(groups.iter().filter_map(|group| self.leases.group_of(*group)).collect())
    }

    async fn list_owned(&self) -> Result<Vec<Owned>, EngineError> {
        self.end_strays();
        Ok(self.leases.owned())
    }

    async fn release(&self, group: DecisionId, slots: &[u32]) -> Result<Vec<SeenLease>, EngineError> {
        self.leases.release(group, slots).await
    }

    async fn forget(&self, leases: &[LeaseId]) -> Result<(), EngineError> {
        self.leases.forget(leases);
        Ok(())
    }

    fn limits(&self) -> Vec<Limit> {
        let computers = self.computers();
        let an_hour: i64 = computers.iter().map(|computer| computer.rate.0).sum();
        let of = counted(computers.len() as u64, "machine");
        vec![Limit::new(&of, "an hour, used or not", &NanoUsd(an_hour).to_string())]
    }

    async fn interrupt(&self, lease: LeaseId, how: Interrupt) -> Result<(), EngineError> {
        let Interrupt::WithNotice(notice) = how else { return Err(EngineError::Refused(Refusal::Invalid)) };
        self.leases.give_notice(lease, notice)
    }

    async fn abandon(&self) {
        self.leases.abandon().await;
    }
}
