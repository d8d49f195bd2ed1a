//! All facts of a catalogue while it is being made: what the readers of files fill and the writer stores.
//!
//! Prices are kept by instance type, region, zone and term. Where two files price the same thing the newer one wins,
//! whatever the order they are read in.

use crate::knowledge::Knowledge;
use crate::words::{Band, Count, Source, Term};
use std::collections::{BTreeMap, BTreeSet};
use windfall_core::NanoUsd;

/// Facts of an instance type; what nobody said is none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TypeFacts {
    /// `aws`, `gcp`, `azure`, …
    pub cloud: String,
    /// As the cloud names it; TPU slices by their slice name.
    pub name: String,
    /// The accelerator's family.
    pub accelerator: Option<String>,
    /// The accelerator's model.
    pub model: Option<String>,
    /// Accelerators in it; zero without any.
    pub count: Count,
    /// Virtual cores, in thousandths.
    pub vcpus_milli: Option<u32>,
    /// Main memory.
    pub memory_mib: Option<u32>,
    /// Memory of one accelerator, where only the provider says it.
    pub accelerator_memory_mib: Option<u32>,
    pub network_mbps: Option<u32>,
    /// What the network is: `EFA`, `InfiniBand`, …
    pub fabric: Option<String>,
}

/// An instance type's place in `Facts`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct TypeId(u32);

/// A source's place in `Facts`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SourceId(u32);

/// A name's place in the pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct NameId(u32);

/// What is priced.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    kind: TypeId,
    region: NameId,
    /// None: the price holds in the whole region.
    zone: Option<NameId>,
    term: Term,
}

/// One price, as it is handed to the writer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PriceFact<'f> {
    pub kind: TypeId,
    pub region: &'f str,
    /// Where exactly; none for the whole region.
    pub zone: Option<&'f str>,
    pub term: Term,
    /// An hour.
    pub price: NanoUsd,
    pub source: SourceId,
}

/// Prices over time of one offer: the day from which on, and the price; none once it was no longer listed.
pub type History = Vec<(u32, Option<NanoUsd>)>;

/// Every fact.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    pub(crate) sources: Vec<Source>,
    types: Vec<TypeFacts>,
    type_index: BTreeMap<(String, String, Option<String>, Count), TypeId>,
    names: Vec<String>,
    name_index: BTreeMap<String, NameId>,
    prices: BTreeMap<Key, (NanoUsd, SourceId)>,
    zones: BTreeMap<(TypeId, NameId), BTreeSet<NameId>>,
    bands: BTreeMap<(TypeId, NameId), (Band, SourceId)>,
    history: BTreeMap<Key, History>,
    /// What is known beyond prices.
    pub knowledge: Knowledge,
}

impl Facts {
    /// Adds a source, or finds it.
    pub fn source(&mut self, source: Source) -> SourceId {
        let at = self.sources.iter().position(|known| *known == source).unwrap_or_else(|| {
            self.sources.push(source);
            self.sources.len() - 1
        });
        SourceId(at as u32)
    }

    /// All sources.
    pub fn sources(&self) -> &[Source] {
        &self.sources
    }

    /// A source.
    pub fn source_of(&self, id: SourceId) -> &Source {
        &self.sources[id.0 as usize]
    }

    /// A source's place.
    pub fn index_of_source(&self, id: SourceId) -> usize {
        id.0 as usize
    }

    /// Adds an instance type, or fills in what was not known of it.
    pub fn instance(&mut self, facts: TypeFacts) -> TypeId {
        let key = (facts.cloud.clone(), facts.name.clone(), facts.accelerator.clone(), facts.count);
        if let Some(id) = self.type_index.get(&key) {
            let known = &mut self.types[id.0 as usize];
            known.model = known.model.take().or(facts.model);
            known.vcpus_milli = known.vcpus_milli.or(facts.vcpus_milli);
            known.memory_mib = known.memory_mib.or(facts.memory_mib);
            known.accelerator_memory_mib = known.accelerator_memory_mib.or(facts.accelerator_memory_mib);
            known.network_mbps = known.network_mbps.or(facts.network_mbps);
            known.fabric = known.fabric.take().or(facts.fabric);
            return *id;
        }
        let id = TypeId(self.types.len() as u32);
        self.types.push(facts);
        self.type_index.insert(key, id);
        id
    }

    /// All instance types with their ids.
    pub fn types(&self) -> impl Iterator<Item = (TypeId, &TypeFacts)> {
        self.types.iter().enumerate().map(|(at, facts)| (TypeId(at as u32), facts))
    }

    /// An instance type.
    pub fn type_of(&self, id: TypeId) -> &TypeFacts {
        &self.types[id.0 as usize]
    }

    /// An instance type, to fill in.
    pub fn type_mut(&mut self, id: TypeId) -> &mut TypeFacts {
        &mut self.types[id.0 as usize]
    }

    /// Types of a cloud with a name; several where accelerators are attached to a host.
    pub fn named<'f>(&'f self, cloud: &'f str, name: &'f str) -> impl Iterator<Item = TypeId> + 'f {
        let from = (cloud.to_owned(), name.to_owned(), None, Count(0));
        let range = self.type_index.range(from..);
        range.take_while(move |((c, n, ..), _)| c == cloud && n == name).map(|(_, id)| *id)
    }

    /// Records that a type is sold in a zone.
    pub fn sold_in(&mut self, kind: TypeId, region: &str, zone: &str) {
        let (region, zone) = (self.name(region), self.name(zone));
        self.zones.entry((kind, region)).or_default().insert(zone);
    }

    /// Records a price. It replaces an older price of the same thing.
    pub fn price(
        &mut self,
        kind: TypeId,
        region: &str,
        zone: Option<&str>,
        term: Term,
        price: NanoUsd,
        source: SourceId,
    ) {
        let key = self.key(kind, region, zone, term);
        if let Some((_, known)) = self.prices.get(&key)
            && self.sources[known.0 as usize].as_of > self.sources[source.0 as usize].as_of
        {
            return;
        }
        self.prices.insert(key, (price, source));
    }

    /// Records a price that replaces any other, whatever its date: for sources that are known to be wrong.
    pub fn correct(&mut self, kind: TypeId, region: &str, term: Term, price: NanoUsd, source: SourceId) {
        let key = self.key(kind, region, None, term);
        self.prices.insert(key, (price, source));
    }

    /// Forgets what a cloud's offers cost in a region on given terms: full lists replace what was there.
    pub fn forget(&mut self, replaced: &BTreeSet<(String, String, Term)>) {
        let (types, names) = (&self.types, &self.names);
        let mut last: Option<(TypeId, NameId, Term, bool)> = None;
        self.prices.retain(|key, _| {
            let known =
                last.filter(|(kind, region, term, _)| (*kind, *region, *term) == (key.kind, key.region, key.term));
            let gone = known.map(|(.., gone)| gone).unwrap_or_else(|| {
                let (cloud, region) = (&types[key.kind.0 as usize].cloud, &names[key.region.0 as usize]);
                replaced.contains(&(cloud.clone(), region.clone(), key.term))
            });
            last = Some((key.kind, key.region, key.term, gone));
            !gone
        });
    }

    /// Forgets what a type costs in a region, now and over time: on one term or on all, one price or any. Returns how
    /// many prices were forgotten.
    pub fn remove_prices(&mut self, kind: TypeId, region: &str, term: Option<Term>, price: Option<NanoUsd>) -> usize {
        let Some(region) = self.name_index.get(region).copied() else { return 0 };
        let meant = |key: &Key| (key.kind, key.region) == (kind, region) && term.is_none_or(|term| term == key.term);
        let found =
            self.prices.iter().filter(|(key, (known, _))| meant(key) && price.is_none_or(|price| price == *known));
        let gone: Vec<Key> = found.map(|(key, _)| *key).collect();
        for key in &gone {
            self.prices.remove(key);
            self.history.remove(key);
        }
        if price.is_none() {
            self.history.retain(|key, _| !meant(key));
        }
        gone.len()
    }

    /// A price, if it is known.
    pub fn price_of(&self, kind: TypeId, region: &str, zone: Option<&str>, term: Term) -> Option<(NanoUsd, SourceId)> {
        let region = *self.name_index.get(region)?;
        let zone = zone.map(|zone| self.name_index.get(zone).copied().ok_or(())).transpose().ok()?;
        self.prices.get(&Key { kind, region, zone, term }).copied()
    }

    /// All prices of a type, by region, zone and term.
    pub fn prices_of(&self, kind: TypeId) -> impl Iterator<Item = PriceFact<'_>> {
        let from = Key { kind, region: NameId(0), zone: None, term: Term::Spot };
        self.prices.range(from..).take_while(move |(key, _)| key.kind == kind).map(move |(key, (price, source))| {
            PriceFact {
                kind,
                region: self.text(key.region),
                zone: key.zone.map(|zone| self.text(zone)),
                term: key.term,
                price: *price,
                source: *source,
            }
        })
    }

    /// How many prices there are.
    pub fn price_count(&self) -> usize {
        self.prices.len()
    }

    /// The zones of a region where a type is sold.
    pub fn zones_of(&self, kind: TypeId, region: &str) -> Vec<&str> {
        let zones = self.name_index.get(region).and_then(|region| self.zones.get(&(kind, *region)));
        let mut zones: Vec<&str> = zones.into_iter().flatten().map(|zone| self.text(*zone)).collect();
        zones.sort_unstable();
        zones
    }

    /// The regions where zones of a type are known.
    pub fn zoned_regions_of(&self, kind: TypeId) -> Vec<&str> {
        let all = self.zones.range((kind, NameId(0))..).take_while(|((id, _), _)| *id == kind);
        all.map(|((_, region), _)| self.text(*region)).collect()
    }

    /// Records how often a type is taken back in a region. It replaces an older figure.
    pub fn band(&mut self, kind: TypeId, region: &str, band: Band, source: SourceId) {
        let region = self.name(region);
        let newer = |(_, known): &(Band, SourceId)| self.source_of(*known).as_of > self.source_of(source).as_of;
        if !self.bands.get(&(kind, region)).is_some_and(newer) {
            self.bands.insert((kind, region), (band, source));
        }
    }

    /// How often a type is taken back in a region, and who says so.
    pub fn band_of(&self, kind: TypeId, region: &str) -> Option<(Band, SourceId)> {
        self.bands.get(&(kind, *self.name_index.get(region)?)).copied()
    }

    /// Records what an offer cost over time.
    pub fn set_history(&mut self, kind: TypeId, region: &str, zone: Option<&str>, term: Term, history: History) {
        let key = self.key(kind, region, zone, term);
        self.history.insert(key, history);
    }

    /// What a type's offers cost over time.
    pub fn history_of(&self, kind: TypeId) -> impl Iterator<Item = (&str, Option<&str>, Term, &History)> {
        let from = Key { kind, region: NameId(0), zone: None, term: Term::Spot };
        self.history
            .range(from..)
            .take_while(move |(key, _)| key.kind == kind)
            .map(|(key, history)| (self.text(key.region), key.zone.map(|zone| self.text(zone)), key.term, history))
    }

    fn key(&mut self, kind: TypeId, region: &str, zone: Option<&str>, term: Term) -> Key {
        let region = self.name(region);
        Key { kind, region, zone: zone.map(|zone| self.name(zone)), term }
    }

    fn name(&mut self, name: &str) -> NameId {
        if let Some(id) = self.name_index.get(name) {
            return *id;
        }
        let id = NameId(self.names.len() as u32);
        self.names.push(name.to_owned());
        self.name_index.insert(name.to_owned(), id);
        id
    }

    fn text(&self, id: NameId) -> &str {
        &self.names[id.0 as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(facts: &mut Facts, as_of: &str) -> SourceId {
        facts.source(Source { name: "s".into(), what: "w".into(), licence: "l".into(), as_of: as_of.into() })
    }

    #[test]
    fn the_newer_word_on_a_price_wins_in_either_order() {
        for order in [["2026-01-01", "2026-02-01"], ["2026-02-01", "2026-01-01"]] {
            let mut facts = Facts::default();
            let kind = facts.instance(TypeFacts { cloud: "aws".into(), name: "x".into(), ..TypeFacts::default() });
            for date in order {
                let said = source(&mut facts, date);
                let price = NanoUsd(if date == "2026-02-01" { 2 } else { 1 });
                facts.price(kind, "r", None, Term::Spot, price, said);
            }
            assert_eq!(facts.price_of(kind, "r", None, Term::Spot).map(|(price, _)| price), Some(NanoUsd(2)));
        }
    }

    #[test]
    fn a_type_is_filled_in_not_overwritten() {
        let mut facts = Facts::default();
        let of =
            |memory| TypeFacts { cloud: "aws".into(), name: "x".into(), memory_mib: memory, ..TypeFacts::default() };
        let first = facts.instance(of(None));
        assert_eq!(facts.instance(of(Some(5))), first);
        assert_eq!(facts.instance(of(Some(6))), first);
        assert_eq!(facts.type_of(first).memory_mib, Some(5));
    }
}
