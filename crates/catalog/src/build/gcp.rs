//! Google sells accelerators and hosts apart; an offer costs host plus accelerators, each exactly once.
//!
//! Accelerator-optimised machines (a2, a3, a4, g2, g4) have a fixed number built in; T4, V100, P100 and P4 are
//! attached to N1 hosts, up to so many cores for each number of them. TPU slices have no separate host.

use super::chips::{self, filled};
use super::skypilot_row::{Collected, Row, spot};
use crate::facts::{Facts, TypeFacts};
use crate::names;
use crate::words::{Count, Term};
use std::collections::BTreeMap;
use windfall_core::NanoUsd;

/// On-demand and spot.
type Prices = (Option<NanoUsd>, Option<NanoUsd>);

#[derive(Clone, Debug)]
struct Host {
    vcpus_milli: Option<u32>,
    memory_mib: Option<u32>,
    prices: Prices,
}

/// Region and zone.
type Zone = (String, Option<String>);

/// Rows of hosts and of accelerators, until they can be added.
#[derive(Default)]
pub(super) struct Google {
    hosts: BTreeMap<(Zone, String), Host>,
    /// By accelerator as the source names it, and number.
    accelerators: BTreeMap<(Zone, String, Count), Prices>,
}

impl Google {
    pub fn add(&mut self, row: &Row<'_>) {
        let zone = (row.region.to_owned(), row.zone.map(str::to_owned));
        let prices = (row.price, spot("gcp", row));
        if row.kind.is_empty() {
            let count = row.count.unwrap_or(Count::whole(1));
            self.accelerators.insert((zone, row.accelerator.to_owned(), count), prices);
        } else {
            let host = Host { vcpus_milli: row.vcpus_milli, memory_mib: row.memory_mib, prices };
            self.hosts.insert((zone, row.kind.to_owned()), host);
        }
    }

    pub fn compose(&self, facts: &mut Facts, into: &mut Collected) {
        for ((zone, name), host) in &self.hosts {
            let built_in = chips::gcp(name);
            let prices = match &built_in {
                Some(chips) => {
                    let Some(prices) = self.chips_price(zone, name, &chips.family, chips.count) else { continue };
                    if is_priced_with_its_chips(name) { prices } else { both(host.prices, prices) }
                }
                None => host.prices,
            };
            let row = filled("gcp", name, built_in, host.vcpus_milli, host.memory_mib, None);
            put(facts, into, zone, row, prices);
        }
        for ((zone, name, count), prices) in &self.accelerators {
            if let Some((family, chips)) = names::tpu_slice(name) {
                let slice = name.strip_prefix("tpu-").unwrap_or(name);
                let model = names::lookup(family).and_then(|named| named.model).map(str::to_owned);
                let row = TypeFacts {
                    cloud: "gcp".to_owned(),
                    name: slice.to_owned(),
                    accelerator: Some(family.to_owned()),
                    model,
                    count: Count::whole(chips),
                    ..TypeFacts::default()
                };
                put(facts, into, zone, row, *prices);
            }
            self.attach(facts, into, zone, name, *count, *prices);
        }
    }

    /// What a machine's built-in accelerators cost; a share of one costs its share.
    fn chips_price(&self, zone: &Zone, host: &str, family: &str, count: Count) -> Option<Prices> {
        let listed = if host.starts_with("a3-megagpu") { "H100-MEGA" } else { family };
        let of = |count: Count| self.accelerators.get(&(zone.clone(), listed.to_owned(), count)).copied();
        of(count).or_else(|| {
            let (on_demand, spot) = of(Count::whole(1))?;
            let share = |price: NanoUsd| NanoUsd((i128::from(price.0) * i128::from(count.0) / 1_000) as i64);
            Some((on_demand.map(share), spot.map(share)))
        })
    }

    fn attach(&self, facts: &mut Facts, into: &mut Collected, zone: &Zone, name: &str, count: Count, prices: Prices) {
        let Some(most_cores) = most_cores(name, count) else { return };
        for shape in ["n1-standard", "n1-highmem"] {
            for cores in [4, 8, 16, 32, 64, 96].into_iter().filter(|cores| *cores <= most_cores) {
                let host_name = format!("{shape}-{cores}");
                let Some(host) = self.hosts.get(&(zone.clone(), host_name.clone())) else { continue };
                let named = names::adopt(name);
                let chips = chips::Chips { family: named.family, model: named.model.map(str::to_owned), count };
                let row = filled("gcp", &host_name, Some(chips), host.vcpus_milli, host.memory_mib, None);
                put(facts, into, zone, row, both(host.prices, prices));
            }
        }
    }
}

fn put(facts: &mut Facts, into: &mut Collected, zone: &Zone, row: TypeFacts, prices: Prices) {
    let kind = facts.instance(row);
    into.add(kind, &zone.0, zone.1.as_deref(), [(Term::OnDemand, prices.0), (Term::Spot, prices.1)]);
}

/// A4's accelerator SKU is of a slice of the machine, cores and memory in it; its host row says zero.
fn is_priced_with_its_chips(host: &str) -> bool {
    host.starts_with("a4-")
}

/// A sum with an unknown part is unknown.
fn both(host: Prices, chips: Prices) -> Prices {
    let sum = |a: Option<NanoUsd>, b: Option<NanoUsd>| Some(a? + b?);
    (sum(host.0, chips.0), sum(host.1, chips.1))
}

/// Most cores of an N1 host for a number of attached accelerators (Google's documentation of GPU machine types).
fn most_cores(accelerator: &str, count: Count) -> Option<u32> {
    match (accelerator, count.0 / 1_000) {
        ("T4", 1 | 2) => Some(48),
        ("T4" | "P100" | "P4", 4) => Some(96),
        ("P4", 1) => Some(24),
        ("P4", 2) => Some(48),
        ("P100", 1) => Some(16),
        ("P100", 2) => Some(32),
        ("V100", 1) => Some(12),
        ("V100", 2) => Some(24),
        ("V100", 4) => Some(48),
        ("V100", 8) => Some(96),
        _ => None,
    }
}
