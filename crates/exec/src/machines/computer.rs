//! One machine, the parts that it can give, and which of them are in use.

use super::inventory::Inventory;
use crate::local::Held;
use std::collections::{BTreeMap, BTreeSet};
use windfall_core::ledger::part_of_node;
use windfall_core::pool::{Health, Shape};
use windfall_core::{LeaseId, NanoUsd, Symptom};

/// What can be had of a machine: a number of accelerators of one model, or a processor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Part {
    pub model: String,
    pub count: u32,
}

impl Part {
    pub fn name(&self) -> String {
        if self.count == 0 { "cpu".to_owned() } else { format!("{}x{}", self.model, self.count) }
    }

    pub fn size(&self) -> Shape {
        match self.count {
            0 => Shape { cpu_millis: 1_000, ..Shape::default() },
            count => Shape { accelerators: count, ..Shape::default() },
        }
    }
}

/// A machine.
#[derive(Clone, Debug)]
pub(super) struct Computer {
    pub name: String,
    /// The joined node that it is; none for the computer that the server runs on.
    pub host: Option<String>,
    pub inventory: Inventory,
    /// What an hour of it costs.
    pub rate: NanoUsd,
    pub health: Health,
    /// Its place in the topology by level.
    pub domains: BTreeMap<String, String>,
    /// Why it takes nothing new, where it is not well.
    pub symptoms: Vec<Symptom>,
    /// What whoever drained it says of that.
    pub drained_for: Option<String>,
}

impl Computer {
    /// What it and its like are called in offers: two that cost differently are not alike.
    pub fn kind(&self) -> String {
        let kind = self.inventory.kind();
        if self.rate == NanoUsd(0) { kind } else { format!("{kind}-{}usd", self.rate.0 as f64 / 1e9) }
    }

    /// Every part that the machine can give when nobody has anything of it.
    pub fn parts(&self) -> Vec<Part> {
        let models = self.inventory.models().into_iter();
        let sizes =
            models.flat_map(|(model, count)| (1..=count).map(move |count| Part { model: model.to_owned(), count }));
        sizes.chain([Part { model: String::new(), count: 0 }]).collect()
    }

    /// A part's part of what the machine costs, as the ledger counts it.
    pub fn price(&self, part: &Part) -> NanoUsd {
        part_of_node(part.size(), self.inventory.shape()).of_rate(self.rate)
    }
}

/// What of each machine is in use.
#[derive(Clone, Default)]
pub(super) struct Use {
    of_hosts: BTreeMap<Option<String>, UseOfHost>,
}

#[derive(Clone, Default)]
struct UseOfHost {
    devices: BTreeSet<String>,
    /// Leases by the accelerators that each has.
    leases: Vec<Vec<String>>,
}

impl Use {
    pub fn of(held: &BTreeMap<LeaseId, Held>) -> Use {
        let mut used = Use::default();
        for held in held.values().filter(|held| !held.is_gone()) {
            let devices = held.marks.devices.clone().unwrap_or_default();
            used.of_hosts.entry(held.marks.host.clone()).or_default().add(devices);
        }
        used
    }

    /// Leases of a part of a machine that there are.
    pub fn given(&self, computer: &Computer, part: &Part) -> u32 {
        let Some(used) = self.of_hosts.get(&computer.host) else { return 0 };
        let of_model = |device: &String| {
            computer.inventory.accelerators.iter().any(|one| one.device == *device && one.model == part.model)
        };
        let is_of = |devices: &&Vec<String>| devices.len() == part.count as usize && devices.iter().all(of_model);
        used.leases.iter().filter(is_of).count() as u32
    }

    /// Leases of a part of a machine that can still be given.
    pub fn left(&self, computer: &Computer, part: &Part) -> u32 {
        if computer.health != Health::Ready {
            return 0;
        }
        match part.count {
            0 => computer.inventory.cpus.saturating_sub(self.given(computer, part)),
            count => self.free(computer, &part.model).count() as u32 / count,
        }
    }

    /// Accelerators of a model that no lease has.
    fn free<'a>(&'a self, computer: &'a Computer, model: &'a str) -> impl Iterator<Item = &'a String> {
        let used = self.of_hosts.get(&computer.host);
        let of_model = computer.inventory.accelerators.iter().filter(move |one| one.model == model);
        let is_free = move |device: &&String| used.is_none_or(|used| !used.devices.contains(*device));
        of_model.map(|one| &one.device).filter(is_free)
    }

    /// Takes a part of a machine, and gives the accelerators that it is.
    pub fn take(&mut self, computer: &Computer, part: &Part) -> Vec<String> {
        let devices: Vec<String> = self.free(computer, &part.model).take(part.count as usize).cloned().collect();
        self.of_hosts.entry(computer.host.clone()).or_default().add(devices.clone());
        devices
    }
}

impl UseOfHost {
    fn add(&mut self, devices: Vec<String>) {
        self.devices.extend(devices.iter().cloned());
        self.leases.push(devices);
    }
}
