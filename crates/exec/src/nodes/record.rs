//! What is written down of a node: what it has, what is said of it, what is wrong with it.

use super::labels::{LEVELS, Labels};
use crate::accounts::ProgramsRunAs;
use crate::machines::Accelerator;
use crate::machines::Inventory;
use crate::net::Fingerprint;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use windfall_core::health::merged;
use windfall_core::{NanoUsd, Symptom, SymptomKind};

/// A machine that has joined.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeRecord {
    pub name: String,
    pub key: Fingerprint,
    /// What an hour of it costs.
    pub rate: NanoUsd,
    /// Why it takes nothing new, if it does not.
    pub drained: Option<String>,
    /// What it last said that it has.
    pub inventory: Inventory,
    /// What it was last told of how long it may go on without the server.
    pub dead_man_ms: u64,
    /// What its operator says of it.
    #[serde(default)]
    pub labels: Labels,
    /// What its own configuration says of it; its operator's word counts more.
    #[serde(default)]
    pub own_labels: Labels,
    /// What is known to be wrong with it.
    #[serde(default)]
    pub symptoms: Vec<Symptom>,
    /// Accelerators that it had and did not show when it last came.
    #[serde(default)]
    pub missing: Vec<Accelerator>,
    /// As whom programs run on it, where it says so.
    #[serde(default)]
    pub programs: Option<ProgramsRunAs>,
    /// What tells its machine from a copy of it, where it says so.
    #[serde(default)]
    pub machine: Option<String>,
    /// An engine has begun it for one lease: it is no machine that anybody else may use.
    #[serde(default)]
    pub pilot: bool,
    /// It is the computer that the server runs on.
    #[serde(default)]
    pub is_server: bool,
}

impl NodeRecord {
    pub(super) fn new(name: &str, key: Fingerprint, rate: NanoUsd, inventory: &Inventory) -> NodeRecord {
        NodeRecord {
            name: name.to_owned(),
            key,
            rate,
            drained: None,
            inventory: inventory.clone(),
            dead_man_ms: 0,
            labels: Labels::new(),
            own_labels: Labels::new(),
            symptoms: Vec::new(),
            missing: Vec::new(),
            programs: None,
            machine: None,
            pilot: false,
            is_server: false,
        }
    }

    /// Every label that holds.
    pub fn all_labels(&self) -> Labels {
        let own = self.own_labels.iter().chain(&self.labels);
        own.map(|(key, value)| (key.clone(), value.clone())).collect()
    }

    /// Its place in the topology by level, as far as it is known: by label, and of NVLink also by what its accelerators
    /// show, where all of them are in one fabric with those of other machines.
    pub fn domains(&self) -> BTreeMap<String, String> {
        let labels = self.all_labels();
        let of_label = LEVELS.into_iter().filter_map(|level| Some((level.to_owned(), labels.get(level)?.clone())));
        let mut domains: BTreeMap<String, String> = of_label.collect();
        let mut fabrics = self.inventory.accelerators.iter().map(|one| one.nvlink.as_ref());
        if let Some(Some(first)) = fabrics.next()
            && first.contains('.')
            && fabrics.all(|other| other == Some(first))
        {
            domains.entry("nvlink".to_owned()).or_insert_with(|| first.clone());
        }
        domains
    }

    /// Its accelerators that are there.
    pub fn present(&self) -> Inventory {
        let is_gone = |device: &str| {
            let of_device = |one: &&Symptom| one.device.as_deref() == Some(device);
            self.symptoms.iter().filter(of_device).any(|one| one.kind == SymptomKind::Gone)
        };
        let mut inventory = self.inventory.clone();
        inventory.accelerators.retain(|one| !is_gone(&one.device));
        inventory
    }

    /// It runs on this machine. What was known of another one's accelerators says nothing of this one's.
    pub(super) fn is_on(&mut self, machine: String) {
        if self.machine.as_ref().is_some_and(|before| *before != machine) {
            self.inventory.accelerators.clear();
            self.missing.clear();
            self.symptoms.clear();
        }
        self.machine = Some(machine);
    }

    /// It has come with these: what it had and does not show is missed. Where its driver shows nothing at all nobody knows what
    /// is there; and whoever states what he has begins anew.
    pub(super) fn show(&mut self, inventory: &Inventory, now_ms: u64) {
        let is_shown = |one: &Accelerator| inventory.accelerators.iter().any(|shown| shown.device == one.device);
        let known = self.inventory.accelerators.drain(..).chain(self.missing.drain(..));
        let is_accepted = |one: &Accelerator| {
            let of_device = |symptom: &&Symptom| symptom.device.as_ref() == Some(&one.device);
            self.symptoms.iter().filter(of_device).any(|symptom| symptom.accepted && symptom.kind == SymptomKind::Gone)
        };
        let is_missed = |one: &Accelerator| one.has_own_name() && !is_shown(one) && !is_accepted(one);
        let known: Vec<Accelerator> = known.filter(is_missed).collect();
        let is_stated = inventory.accelerators.iter().any(|one| !one.has_own_name());
        let missing = if is_stated { Vec::new() } else { known };
        if is_stated {
            self.symptoms.retain(|one| one.kind != SymptomKind::Gone);
        }
        let is_silent = inventory.accelerators.is_empty();
        let gone = missing.iter().filter(|_| !is_silent).map(|one| Symptom {
            kind: SymptomKind::Gone,
            device: Some(one.device.clone()),
            seen_unix_ms: now_ms,
            accepted: false,
        });
        let told: Vec<Symptom> = self.symptoms.iter().cloned().chain(gone).collect();
        (self.inventory, self.missing) = (inventory.clone(), missing);
        self.symptoms = self.heard(&told, now_ms);
    }

    /// What is known to be wrong with it after it has told what it sees: also that no driver shows what it had.
    pub(super) fn heard(&self, told: &[Symptom], now_ms: u64) -> Vec<Symptom> {
        let is_silent = self.inventory.accelerators.is_empty() && !self.missing.is_empty();
        let silent = is_silent.then_some(Symptom {
            kind: SymptomKind::Unanswered,
            device: None,
            seen_unix_ms: now_ms,
            accepted: false,
        });
        let told: Vec<Symptom> = told.iter().cloned().chain(silent).collect();
        merged(&self.symptoms, &told)
    }

    /// It takes work again, whatever is known to be wrong with it now. An accelerator that is gone is nobody's until it is there.
    pub(super) fn accept(&mut self) {
        self.drained = None;
        self.missing.clear();
        self.symptoms.iter_mut().for_each(|one| one.accepted = true);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SERVER: Fingerprint = Fingerprint([1; 32]);

    #[test]
    fn an_accelerator_that_is_not_shown_any_more_is_missed_until_somebody_knows_of_it() {
        let shown = |devices: &[&str]| {
            let accelerator = |device: &&str| Accelerator {
                model: "H200".to_owned(),
                device: (*device).to_owned(),
                ..Accelerator::default()
            };
            Inventory { accelerators: devices.iter().map(accelerator).collect(), ..Inventory::default() }
        };
        let [both, one] = [shown(&["GPU-a", "GPU-b"]), shown(&["GPU-a"])];
        let mut node = NodeRecord::new("lab-1", SERVER, NanoUsd(0), &both);
        node.show(&both, 1);
        assert!(node.symptoms.is_empty());
        for at in [2, 3] {
            node.show(&one, at);
            assert_eq!((node.symptoms.len(), node.missing.len(), node.symptoms[0].seen_unix_ms), (1, 1, 2));
        }
        node.accept();
        // It is shown without, beats, and comes again: nothing is missed.
        for at in [4, 5] {
            node.show(&one, at);
            node.symptoms = merged(&node.symptoms, &[]);
            assert!(node.symptoms.is_empty() && node.missing.is_empty(), "{node:?}");
        }
        node.show(&both, 6);
        node.show(&one, 7);
        assert_eq!(windfall_core::health::draining(&node.symptoms).len(), 1, "it was there again");
        // It fell off the bus while its agent ran, was mended, and shows again: with that it is there.
        let told =
            [Symptom { kind: SymptomKind::Gone, device: Some("GPU-b".to_owned()), seen_unix_ms: 8, accepted: false }];
        let mut node = NodeRecord::new("lab-1", SERVER, NanoUsd(0), &both);
        node.symptoms = node.heard(&told, 8);
        assert_eq!(node.present(), one);
        node.show(&both, 9);
        assert_eq!(node.present(), one, "somebody should look at it first");
        node.accept();
        node.symptoms = node.heard(&[], 10);
        assert_eq!((node.present(), node.symptoms.len()), (both.clone(), 0));
        // It was not mended, and is nobody's all the same.
        node.symptoms = node.heard(&told, 11);
        node.accept();
        node.symptoms = node.heard(&told, 12);
        assert_eq!((node.present(), windfall_core::health::draining(&node.symptoms)), (one, vec![]));
        node.symptoms = node.heard(&[], 13);
        assert_eq!(node.present(), both, "a reset brought it back");
        // Numbers are no names: whoever states fewer has fewer.
        let mut stated = NodeRecord::new("lab-2", SERVER, NanoUsd(0), &shown(&["0", "1"]));
        stated.show(&shown(&["0"]), 1);
        assert!(stated.symptoms.is_empty());
        // Whoever states what was found before has changed his mind.
        node.show(&shown(&["GPU-a"]), 14);
        node.show(&shown(&["0"]), 15);
        assert!(node.symptoms.is_empty() && node.missing.is_empty(), "{node:?}");
    }

    #[test]
    fn a_driver_that_shows_nothing_does_not_answer_and_breaks_nothing() {
        let accelerator =
            Accelerator { model: "H200".to_owned(), device: "GPU-a".to_owned(), ..Accelerator::default() };
        let both = Inventory { accelerators: vec![accelerator], ..Inventory::default() };
        let mut node = NodeRecord::new("lab-1", SERVER, NanoUsd(0), &both);
        // The machine was started anew, and its agent was faster than the driver.
        node.show(&Inventory::default(), 1);
        for at in [1, 2] {
            let kinds: Vec<_> = node.symptoms.iter().map(|one| one.kind.clone()).collect();
            assert_eq!((kinds, node.missing.len()), (vec![SymptomKind::Unanswered], 1));
            node.symptoms = node.heard(&[], at);
        }
        node.show(&both, 3);
        node.symptoms = node.heard(&[], 4);
        assert!(node.symptoms.is_empty() && node.missing.is_empty(), "{node:?}");
        // Its accelerators were taken out, and somebody knows of it.
        node.show(&Inventory::default(), 5);
        node.accept();
        node.symptoms = node.heard(&[], 6);
        assert!(node.symptoms.is_empty() && node.missing.is_empty(), "{node:?}");
        // Its state directory is on another machine now.
        node.is_on("one".to_owned());
        node.show(&both, 7);
        node.is_on("two".to_owned());
        node.show(&Inventory { accelerators: vec![Accelerator::default()], ..Inventory::default() }, 8);
        assert!(node.symptoms.is_empty() && node.missing.is_empty(), "{node:?}");
    }

    #[test]
    fn a_place_is_said_by_labels_or_shown_by_a_fabric() {
        let linked = |nvlink: &[&str]| {
            let accelerator =
                |fabric: &&str| Accelerator { nvlink: Some((*fabric).to_owned()), ..Accelerator::default() };
            Inventory { accelerators: nvlink.iter().map(accelerator).collect(), ..Inventory::default() }
        };
        let of = |inventory: &Inventory| NodeRecord::new("lab-1", SERVER, NanoUsd(0), inventory);
        assert_eq!(of(&linked(&["0", "0"])).domains(), BTreeMap::new(), "inside the machine only");
        assert_eq!(of(&linked(&["ab.1", "ab.2"])).domains(), BTreeMap::new());
        let mut node = of(&linked(&["ab.1", "ab.1"]));
        assert_eq!(node.domains(), BTreeMap::from([("nvlink".to_owned(), "ab.1".to_owned())]));
        node.own_labels.insert("rack".to_owned(), "r1".to_owned());
        node.labels.insert("rack".to_owned(), "r2".to_owned());
        node.labels.insert("nvlink".to_owned(), "mine".to_owned());
        let expected = [("nvlink", "mine"), ("rack", "r2")].map(|(level, name)| (level.to_owned(), name.to_owned()));
        assert_eq!(node.domains(), BTreeMap::from(expected), "the operator's word counts more");
    }
}
