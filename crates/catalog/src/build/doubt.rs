//! Prices and types that nobody can believe, whatever file they come from: they are left out, and said to be.
//!
//! Every rule stands for a mistake that was found in a source. A rule that leaves out too much is noticed by a
//! reader of the list; a wrong price that heads a ranking is not.

use crate::facts::{Facts, PriceFact, TypeId};
use crate::names;
use crate::words::{Count, Term};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use windfall_core::NanoUsd;

/// Why something was left out.
#[derive(Clone, Debug, PartialEq, PartialOrd)]
pub enum Doubt {
    /// Instances with unlike numbers of one accelerator cost the same.
    OnePrice {
        /// The price they share.
        price: NanoUsd,
        /// The least and the most accelerators that it is asked for.
        counts: (Count, Count),
    },
    /// The price is far from that of the same type in other regions.
    Jump {
        price: NanoUsd,
        /// The median of all regions.
        usual: NanoUsd,
    },
    /// The accelerator has another memory than the type is said to have.
    Memory {
        /// Memory of one accelerator, as the file says.
        said_gb: f64,
        /// Memory of the accelerator.
        chip_gb: f64,
    },
    /// The licence of Windows is in the price.
    Windows,
    /// A newer list of everything in the region does not have it.
    Gone,
}

impl fmt::Display for Doubt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Doubt::OnePrice { price, counts: (least, most) } => {
                write!(f, "{price} an hour for {least} accelerators as for {most}: a placeholder")
            }
            Doubt::Jump { price, usual } => write!(f, "{price} an hour where {usual} is usual"),
            Doubt::Memory { said_gb, chip_gb } => {
                write!(f, "said to have {said_gb:.0} GB on each accelerator, which has {chip_gb:.0} GB")
            }
            Doubt::Windows => f.write_str("the licence of Windows is in the price"),
            Doubt::Gone => f.write_str("a newer list of the region does not have it"),
        }
    }
}

/// What was left out for one reason in one place, or everywhere.
#[derive(Clone, Debug, PartialEq)]
pub struct Dropped {
    pub cloud: String,
    pub types: Vec<String>,
    /// Where; several where the reason is the same.
    pub regions: BTreeSet<String>,
    pub prices: usize,
    pub why: Doubt,
}

impl fmt::Display for Dropped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let regions: Vec<&str> = self.regions.iter().map(String::as_str).collect();
        write!(f, "{} {} in {}: {}", self.cloud, self.types.join(", "), regions.join(", "), self.why)
    }
}

/// A price that differs from the usual one by this factor is a mistake. Between the dearest and the cheapest region
/// of a type there is less than a factor of two on every cloud.
const JUMP: f64 = 3.0;
/// With fewer regions than this nothing is known to be usual.
const USUAL_REGIONS: usize = 4;
/// This many different sizes at one price mean a placeholder. Two may be an old machine and a new one.
const UNLIKE_SIZES: usize = 3;
/// Memory is named in GB and GiB, with and without what the driver keeps.
const MEMORY_SLACK: f64 = 0.12;
/// What Windows costs a core and an hour on Azure.
const WINDOWS_PER_CORE: f64 = 0.046;
/// The same on sizes that burst, whose names begin so.
const WINDOWS_PER_BURSTING_CORE: (&str, f64) = ("Standard_B", 0.0046);

/// Leaves out what cannot be believed, and says what that was.
pub fn sift(facts: &mut Facts) -> Vec<Dropped> {
    let rules: [fn(&Facts) -> Vec<Suspect>; 3] = [one_price_for_unlike_sizes, jumps, foreign_memory];
    let mut dropped = Vec::new();
    for rule in rules {
        let suspects = rule(facts);
        dropped.extend(drop_all(facts, suspects));
    }
    dropped
}

/// Something to leave out: prices of a type in a region.
#[derive(Clone, Debug)]
struct Suspect {
    kind: TypeId,
    region: String,
    /// None for every term.
    term: Option<Term>,
    /// None for any price. Otherwise only this price goes, and zones of the region with another one stay.
    price: Option<NanoUsd>,
    why: Doubt,
}

/// Takes suspects out of the facts. Those of a cloud with the same reason are one line.
fn drop_all(facts: &mut Facts, suspects: Vec<Suspect>) -> Vec<Dropped> {
    let mut dropped: Vec<Dropped> = Vec::new();
    for suspect in suspects {
        let prices = facts.remove_prices(suspect.kind, &suspect.region, suspect.term, suspect.price);
        if prices == 0 {
            continue;
        }
        let row = facts.type_of(suspect.kind);
        let alike = |known: &&mut Dropped| known.cloud == row.cloud && known.why == suspect.why;
        let known = match dropped.iter_mut().find(alike) {
            Some(known) => known,
            None => {
                dropped.push(Dropped {
                    cloud: row.cloud.clone(),
                    types: Vec::new(),
                    regions: BTreeSet::new(),
                    prices: 0,
                    why: suspect.why,
                });
                let last = dropped.len() - 1;
                &mut dropped[last]
            }
        };
        if !known.types.contains(&row.name) {
            known.types.push(row.name.clone());
        }
        known.regions.insert(suspect.region);
        known.prices += prices;
    }
    dropped
}

/// TPU-v6e slices of 1 to 256 chips at $700 in three regions.
fn one_price_for_unlike_sizes(facts: &Facts) -> Vec<Suspect> {
    type Key<'f> = (&'f str, &'f str, &'f str, Term, NanoUsd);
    let mut alike: BTreeMap<Key<'_>, BTreeMap<Count, Vec<TypeId>>> = BTreeMap::new();
    for (kind, row) in facts.types() {
        let Some(accelerator) = &row.accelerator else { continue };
        for PriceFact { region, term, price, .. } in facts.prices_of(kind) {
            let key = (row.cloud.as_str(), accelerator.as_str(), region, term, price);
            alike.entry(key).or_default().entry(row.count).or_default().push(kind);
        }
    }
    let mut suspects = Vec::new();
    for ((_, _, region, term, price), sizes) in alike {
        let (Some(least), Some(most)) = (sizes.keys().next(), sizes.keys().last()) else { continue };
        let why = Doubt::OnePrice { price, counts: (*least, *most) };
        if sizes.len() >= UNLIKE_SIZES {
            let kinds = sizes.values().flatten();
            suspects.extend(kinds.map(|kind| suspect(*kind, region, Some((term, price)), why.clone())));
        }
    }
    suspects
}

/// On demand only: spot prices of one type may well differ by a factor of ten.
fn jumps(facts: &Facts) -> Vec<Suspect> {
    let mut suspects = Vec::new();
    for (kind, _) in facts.types() {
        let prices: Vec<(&str, NanoUsd)> = facts
            .prices_of(kind)
            .filter(|fact| fact.term == Term::OnDemand)
            .map(|fact| (fact.region, fact.price))
            .collect();
        let regions: BTreeSet<&str> = prices.iter().map(|(region, _)| *region).collect();
        if regions.len() < USUAL_REGIONS {
            continue;
        }
        let mut sorted: Vec<NanoUsd> = prices.iter().map(|(_, price)| *price).collect();
        sorted.sort_unstable();
        let usual = sorted[(sorted.len() - 1) / 2];
        for (region, price) in prices {
            let ratio = price.0 as f64 / usual.0 as f64;
            if !(1.0 / JUMP..=JUMP).contains(&ratio) {
                suspects.push(suspect(kind, region, Some((Term::OnDemand, price)), Doubt::Jump { price, usual }));
            }
        }
    }
    suspects
}

/// Vast's file says the memory of all accelerators together; so two of 40 GB were one product of 80.
fn foreign_memory(facts: &Facts) -> Vec<Suspect> {
    let mut suspects = Vec::new();
    for (kind, row) in facts.types() {
        let (Some(said), Some(accelerator)) = (row.accelerator_memory_mib, &row.accelerator) else { continue };
        let sheet = facts.knowledge.accelerators.iter().find(|sheet| Some(&sheet.model) == row.model.as_ref());
        let chip =
            sheet.map(|sheet| f64::from(sheet.memory_gb)).or_else(|| names::memory_gb(accelerator).map(f64::from));
        let Some(chip_gb) = chip else { continue };
        let said_gb = f64::from(said) / 1_024.0;
        let part = row.count.as_f64().min(1.0);
        let fits = |expected: f64| (said_gb / expected - 1.0).abs() <= MEMORY_SLACK;
        if !fits(chip_gb) && !fits(chip_gb * part) {
            let regions: BTreeSet<&str> = facts.prices_of(kind).map(|fact| fact.region).collect();
            let why = Doubt::Memory { said_gb, chip_gb };
            suspects.extend(regions.into_iter().map(|region| suspect(kind, region, None, why.clone())));
        }
    }
    suspects
}

/// Leaves out what a newer list of a cloud's regions no longer has: types with accelerators, on every term.
/// `listed` are the types and regions of that list, by name.
pub fn drop_unlisted(facts: &mut Facts, cloud: &str, listed: &BTreeSet<(String, String)>) -> Vec<Dropped> {
    let regions: BTreeSet<&str> = listed.iter().map(|(_, region)| region.as_str()).collect();
    let mut suspects = Vec::new();
    for (kind, row) in facts.types().filter(|(_, row)| row.cloud == cloud && row.accelerator.is_some()) {
        let sold: BTreeSet<&str> = facts.prices_of(kind).map(|fact| fact.region).collect();
        for region in sold.intersection(&regions) {
            if !listed.contains(&(row.name.clone(), (*region).to_owned())) {
                suspects.push(suspect(kind, region, None, Doubt::Gone));
            }
        }
    }
    drop_all(facts, suspects)
}

/// Sizes that a list prices with Windows: somewhere its price is dearer than the known one by the licence of their
/// cores, and then it is so everywhere.
pub fn with_windows<'r>(
    facts: &Facts,
    prices: impl IntoIterator<Item = (TypeId, &'r str, NanoUsd)>,
) -> BTreeSet<TypeId> {
    let dearer = |(kind, region, price): &(TypeId, &str, NanoUsd)| {
        let known = facts.price_of(*kind, region, None, Term::OnDemand);
        let row = facts.type_of(*kind);
        let cores = row.vcpus_milli.map(|milli| f64::from(milli) / 1_000.0);
        let more = known.zip(cores).map(|((known, _), cores)| (price.dollars() - known.dollars()) / cores);
        more.is_some_and(|more| is_licence(&row.name, more))
    };
    prices.into_iter().filter(dearer).map(|(kind, ..)| kind).collect()
}

/// Whether a difference a core and an hour is what Windows costs on a size.
pub fn is_licence(size: &str, more_per_core: f64) -> bool {
    let (bursting, less) = WINDOWS_PER_BURSTING_CORE;
    let licence = if size.starts_with(bursting) { less } else { WINDOWS_PER_CORE };
    (more_per_core / licence - 1.0).abs() < 0.05
}

/// The line about prices that were not taken because Windows is in them.
pub fn windows_line(facts: &Facts, prices: &[(TypeId, String)]) -> Option<Dropped> {
    let cloud = facts.type_of(prices.first()?.0).cloud.clone();
    let mut types: Vec<String> = prices.iter().map(|(kind, _)| facts.type_of(*kind).name.clone()).collect();
    types.sort();
    types.dedup();
    let regions = prices.iter().map(|(_, region)| region.clone()).collect();
    Some(Dropped { cloud, types, regions, prices: prices.len(), why: Doubt::Windows })
}

fn suspect(kind: TypeId, region: &str, only: Option<(Term, NanoUsd)>, why: Doubt) -> Suspect {
    let (term, price) = only.unzip();
    Suspect { kind, region: region.to_owned(), term, price, why }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::TypeFacts;
    use crate::words::Source;

    /// A world of types, each with its prices on demand by region.
    fn world(types: &[(TypeFacts, &[(&str, f64)])]) -> Facts {
        let mut facts = Facts::default();
        let source = facts.source(Source { as_of: "2026-01-01".into(), ..Source::default() });
        for (row, prices) in types {
            let kind = facts.instance(row.clone());
            for (region, price) in *prices {
                facts.price(kind, region, None, Term::OnDemand, NanoUsd::from_dollars(*price), source);
            }
        }
        facts
    }

    fn of(name: &str, accelerator: &str, count: u32) -> TypeFacts {
        TypeFacts {
            cloud: "gcp".into(),
            name: name.into(),
            accelerator: Some(accelerator.into()),
            count: Count::whole(count),
            vcpus_milli: Some(40_000),
            ..TypeFacts::default()
        }
    }

    #[test]
    fn one_price_for_three_sizes_is_a_placeholder_and_for_two_is_not() {
        let sizes = |sizes: &[u32]| {
            let rows: Vec<(TypeFacts, &[(&str, f64)])> = sizes
                .iter()
                .map(|size| (of(&format!("v6e-{size}"), "TPU-v6e", *size), &[("here", 700.0)] as &[_]))
                .collect();
            sift(&mut world(&rows))
        };
        let told: Vec<String> = sizes(&[1, 4, 8]).iter().map(Dropped::to_string).collect();
        let line = "gcp v6e-1, v6e-4, v6e-8 in here: $700.00 an hour for 1 accelerators as for 8: a placeholder";
        assert_eq!(told, [line]);
        assert!(sizes(&[1, 4]).is_empty());
    }

    #[test]
    fn a_price_far_from_that_of_the_other_regions_is_left_out() {
        let regions = |odd: f64| [("a", 2.0), ("b", 2.2), ("c", 3.9), ("d", odd)];
        for (odd, left) in [(6.8, 3), (0.6, 3), (5.0, 4)] {
            let mut facts = world(&[(of("x", "T4", 1), &regions(odd))]);
            sift(&mut facts);
            assert_eq!(facts.price_count(), left, "{odd}");
        }
        let mut facts = world(&[(of("x", "T4", 1), &regions(2.1))]);
        let kind = facts.types().next().expect("one").0;
        let source = facts.source(Source { as_of: "2026-01-01".into(), ..Source::default() });
        for (zone, price) in [("d-1", 2.1), ("d-2", 700.0)] {
            facts.price(kind, "d", Some(zone), Term::OnDemand, NanoUsd::from_dollars(price), source);
        }
        assert_eq!(sift(&mut facts).len(), 1);
        assert_eq!(facts.price_count(), 5, "the other zone and the region stay");
        let mut few = world(&[(of("x", "T4", 1), &[("a", 2.0), ("b", 90.0)])]);
        assert!(sift(&mut few).is_empty(), "two regions do not say which is wrong");
    }

    #[test]
    fn a_type_with_memory_that_its_chip_does_not_have_is_left_out() {
        let with = |count: u32, milli: u32, mib: u32| {
            let row = TypeFacts { accelerator_memory_mib: Some(mib), count: Count(milli), ..of("x", "RTX4090", count) };
            sift(&mut world(&[(row, &[("a", 1.0)])])).len()
        };
        assert_eq!(with(2, 2_000, 49_128), 1, "the memory of both");
        assert_eq!(with(2, 2_000, 24_564), 0);
        assert_eq!(with(1, 500, 12_282), 0, "half a card with half its memory");
    }

    #[test]
    fn a_size_dearer_by_the_licence_is_the_windows_one_everywhere() {
        let facts = world(&[(of("x", "H100", 1), &[("a", 6.98)]), (of("y", "H100", 1), &[("a", 6.98)])]);
        let kinds: Vec<TypeId> = facts.types().map(|(kind, _)| kind).collect();
        let dollars = NanoUsd::from_dollars;
        let list = [(kinds[0], "a", dollars(8.82)), (kinds[0], "b", dollars(9.73)), (kinds[1], "a", dollars(9.3))];
        assert_eq!(with_windows(&facts, list), BTreeSet::from([kinds[0]]));
    }

    #[test]
    fn what_a_newer_list_of_its_region_lacks_is_gone() {
        let mut facts =
            world(&[(of("old", "K80", 1), &[("a", 1.0), ("elsewhere", 1.0)]), (of("new", "T4", 1), &[("a", 1.0)])]);
        let listed = BTreeSet::from([("new".to_owned(), "a".to_owned())]);
        let told: Vec<String> = drop_unlisted(&mut facts, "gcp", &listed).iter().map(Dropped::to_string).collect();
        assert_eq!(told, ["gcp old in a: a newer list of the region does not have it"]);
        assert_eq!(facts.price_count(), 2, "of a region that the list does not speak about nothing is gone");
    }
}
