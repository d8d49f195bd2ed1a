//! Facts to bytes, always the same bytes for the same facts, and bytes to a file that is whole or not there.

use super::bytes::{put_number, put_price};
use super::{MAGIC, Section, VERSION, says};
use crate::error::BuildError;
use crate::facts::{Facts, PriceFact, TypeFacts, TypeId};
use crate::words::Term;
use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::path::Path;
use windfall_core::NanoUsd;

/// Strings by first use.
#[derive(Default)]
struct Strings<'f> {
    all: Vec<&'f str>,
    numbers: BTreeMap<&'f str, u64>,
}

impl<'f> Strings<'f> {
    fn number(&mut self, text: &'f str) -> u64 {
        *self.numbers.entry(text).or_insert_with(|| {
            self.all.push(text);
            self.all.len() as u64 - 1
        })
    }

    fn optional(&mut self, text: Option<&'f str>) -> u64 {
        text.map_or(0, |text| self.number(text) + 1)
    }

    fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        put_number(&mut bytes, self.all.len() as u64);
        for text in &self.all {
            put_number(&mut bytes, text.len() as u64);
        }
        for text in &self.all {
            bytes.extend_from_slice(text.as_bytes());
        }
        bytes
    }
}

/// Regions and their zones, each region with its number.
type Regions<'f> = BTreeMap<(&'f str, &'f str), (u64, Vec<&'f str>)>;

/// The catalogue as it is stored.
pub fn encode(facts: &Facts) -> Vec<u8> {
    let mut order: Vec<TypeId> = facts.types().filter(|(id, row)| is_kept(facts, *id, row)).map(|(id, _)| id).collect();
    order.sort_by_key(|id| sort_key(facts.type_of(*id)));
    let sources = source_order(facts);
    let regions = regions(facts, &order);
    let mut models: Vec<&crate::Accelerator> = facts.knowledge.accelerators.iter().collect();
    models.sort_by(|a, b| a.model.cmp(&b.model));

    let mut strings = Strings::default();
    let region_bytes = encode_regions(&regions, &mut strings);
    let (mut rows, mut listings, mut history) = (Vec::new(), Vec::new(), Vec::new());
    put_number(&mut rows, order.len() as u64);
    for id in &order {
        let row = facts.type_of(*id);
        let (listed, told) = (listings.len(), history.len());
        encode_listings(facts, *id, &regions, &sources, &mut listings);
        encode_history(facts, *id, &regions, &mut history);
        let model = row.model.as_deref().and_then(|model| models.iter().position(|known| known.model == model));
        for number in [
            strings.number(&row.name),
            strings.number(&row.cloud),
            strings.optional(row.accelerator.as_deref()),
            model.map_or(0, |at| at as u64 + 1),
            u64::from(row.count.0),
            plus_one(row.vcpus_milli),
            plus_one(row.memory_mib),
            plus_one(row.accelerator_memory_mib),
            plus_one(row.network_mbps),
            strings.optional(row.fabric.as_deref()),
            (listings.len() - listed) as u64,
            (history.len() - told) as u64,
        ] {
            put_number(&mut rows, number);
        }
    }
    let mut sorted_sources = facts.sources().to_vec();
    sorted_sources.sort();
    assemble(&[
        (Section::Strings, strings.encode()),
        (Section::Sources, packed(&sorted_sources)),
        (Section::Regions, region_bytes),
        (Section::Types, rows),
        (Section::Listings, listings),
        (Section::History, history),
        (Section::Accelerators, packed(&models)),
        (Section::Throughput, packed(&facts.knowledge.throughput)),
        (Section::Data, packed(&facts.knowledge.data)),
    ])
}

/// A type with neither a price nor an accelerator answers no question.
fn is_kept(facts: &Facts, id: TypeId, row: &TypeFacts) -> bool {
    row.accelerator.is_some() || facts.prices_of(id).next().is_some()
}

fn sort_key(row: &TypeFacts) -> (bool, &Option<String>, &str, &str, u32) {
    (row.accelerator.is_none(), &row.accelerator, &row.cloud, &row.name, row.count.0)
}

/// For each source of the facts, its number in the stored order.
fn source_order(facts: &Facts) -> Vec<u64> {
    let mut sorted: Vec<usize> = (0..facts.sources().len()).collect();
    sorted.sort_by_key(|at| &facts.sources()[*at]);
    let mut order = vec![0; sorted.len()];
    for (number, at) in sorted.into_iter().enumerate() {
        order[at] = number as u64;
    }
    order
}

fn regions<'f>(facts: &'f Facts, order: &[TypeId]) -> Regions<'f> {
    let mut zones: BTreeMap<(&str, &str), BTreeSet<&str>> = BTreeMap::new();
    for id in order {
        let cloud = facts.type_of(*id).cloud.as_str();
        for region in facts.zoned_regions_of(*id) {
            zones.entry((cloud, region)).or_default().extend(facts.zones_of(*id, region));
        }
        for price in facts.prices_of(*id) {
            zones.entry((cloud, price.region)).or_default().extend(price.zone);
        }
        for (region, zone, ..) in facts.history_of(*id) {
            zones.entry((cloud, region)).or_default().extend(zone);
        }
    }
    let numbered = zones.into_iter().enumerate();
    numbered.map(|(at, (region, zones))| (region, (at as u64, zones.into_iter().collect()))).collect()
}

fn encode_regions<'f>(regions: &Regions<'f>, strings: &mut Strings<'f>) -> Vec<u8> {
    let mut bytes = Vec::new();
    put_number(&mut bytes, regions.len() as u64);
    for ((cloud, region), (_, zones)) in regions {
        for number in [strings.number(cloud), strings.number(region), zones.len() as u64] {
            put_number(&mut bytes, number);
        }
        for zone in zones {
            put_number(&mut bytes, strings.number(zone));
        }
    }
    bytes
}

/// A price and the stored number of its source.
type Said = (NanoUsd, u64);

/// The prices of one type in one region.
#[derive(Default)]
struct Listing<'f> {
    wide: BTreeMap<Term, Said>,
    by_zone: BTreeMap<Term, BTreeMap<&'f str, Said>>,
}

fn encode_listings(facts: &Facts, id: TypeId, regions: &Regions<'_>, sources: &[u64], bytes: &mut Vec<u8>) {
    let mut listings: BTreeMap<&str, Listing<'_>> = BTreeMap::new();
    for PriceFact { region, zone, term, price, source, .. } in facts.prices_of(id) {
        let listing = listings.entry(region).or_default();
        let said = (price, sources[facts.index_of_source(source)]);
        match zone {
            Some(zone) => drop(listing.by_zone.entry(term).or_default().insert(zone, said)),
            None => drop(listing.wide.insert(term, said)),
        }
    }
    let cloud = facts.type_of(id).cloud.as_str();
    for (region, listing) in &listings {
        let (number, all_zones) = &regions[&(cloud, *region)];
        let mut sold: BTreeSet<&str> = facts.zones_of(id, region).into_iter().collect();
        sold.extend(listing.by_zone.values().flat_map(|zones| zones.keys().copied()));
        // A mask has 64 bits; no cloud has a region with more zones.
        let masked = &all_zones[..all_zones.len().min(64)];
        sold.retain(|zone| masked.contains(zone));
        let mask = masked.iter().enumerate().filter(|(_, zone)| sold.contains(*zone));
        let mask = mask.fold(0u64, |mask, (at, _)| mask | 1 << at);
        put_number(bytes, *number);
        put_number(bytes, mask);
        let has_spot = listing.wide.contains_key(&Term::Spot) || listing.by_zone.contains_key(&Term::Spot);
        let band = facts.band_of(id, region).filter(|_| has_spot);
        bytes.push(flags(listing) | if band.is_some() { says::BAND } else { 0 });
        for term in Term::ALL {
            encode_term(listing, term, &sold, bytes);
        }
        if let Some((band, source)) = band {
            bytes.push(band.number());
            put_number(bytes, sources[facts.index_of_source(source)]);
        }
    }
}

fn flags(listing: &Listing<'_>) -> u8 {
    let has = |term, wide, zoned| match () {
        () if listing.by_zone.contains_key(&term) => zoned,
        () if listing.wide.contains_key(&term) => wide,
        () => 0,
    };
    has(Term::Spot, says::SPOT, says::SPOT_BY_ZONE)
        | has(Term::OnDemand, says::ON_DEMAND, says::ON_DEMAND_BY_ZONE)
        | has(Term::Reserved1y, says::RESERVED_1Y, says::RESERVED_1Y)
        | has(Term::Reserved3y, says::RESERVED_3Y, says::RESERVED_3Y)
}

fn encode_term(listing: &Listing<'_>, term: Term, sold: &BTreeSet<&str>, bytes: &mut Vec<u8>) {
    let wide = listing.wide.get(&term);
    match listing.by_zone.get(&term) {
        Some(zones) if matches!(term, Term::Spot | Term::OnDemand) => {
            for zone in sold {
                match zones.get(zone).or(wide) {
                    Some((price, source)) => {
                        put_number(bytes, source + 1);
                        put_price(bytes, Some(*price));
                    }
                    None => put_number(bytes, 0),
                }
            }
        }
        // Commitments hold in a region; where a file names zones, the cheapest is what can be had.
        zones => {
            let best = zones.into_iter().flat_map(|zones| zones.values()).chain(wide).min();
            if let Some((price, source)) = best {
                put_number(bytes, *source);
                put_price(bytes, Some(*price));
            }
        }
    }
}

fn encode_history(facts: &Facts, id: TypeId, regions: &Regions<'_>, bytes: &mut Vec<u8>) {
    let cloud = facts.type_of(id).cloud.as_str();
    let mut all: Vec<_> = facts.history_of(id).filter(|(.., changes)| !changes.is_empty()).collect();
    all.sort();
    for (region, zone, term, changes) in all {
        let (number, zones) = &regions[&(cloud, region)];
        let zone = zone.and_then(|zone| zones.iter().position(|known| *known == zone)).map_or(0, |at| at as u64 + 1);
        put_number(bytes, *number);
        put_number(bytes, zone);
        bytes.push(term as u8);
        put_number(bytes, changes.len() as u64);
        let mut day_before = 0;
        for (day, price) in changes {
            put_number(bytes, u64::from(day - day_before));
            put_price(bytes, *price);
            day_before = *day;
        }
    }
}

fn plus_one(quantity: Option<u32>) -> u64 {
    quantity.map_or(0, |quantity| u64::from(quantity) + 1)
}

fn packed<T: serde::Serialize + ?Sized>(value: &T) -> Vec<u8> {
    postcard::to_allocvec(value).expect("plain data always has a postcard form")
}

fn assemble(sections: &[(Section, Vec<u8>)]) -> Vec<u8> {
    let mut bytes = MAGIC.to_vec();
    bytes.extend(VERSION.to_le_bytes());
    bytes.extend((sections.len() as u32).to_le_bytes());
    let mut offset = bytes.len() + sections.len() * 16 + 4;
    for (section, body) in sections {
        for word in [*section as u32, offset as u32, body.len() as u32, crc32fast::hash(body)] {
            bytes.extend(word.to_le_bytes());
        }
        offset += body.len();
    }
    bytes.extend(crc32fast::hash(&bytes).to_le_bytes());
    for (_, body) in sections {
        bytes.extend_from_slice(body);
    }
    bytes
}

/// Writes a file that is complete or absent, whatever happens meanwhile: beside it first, then renamed.
pub fn write_file(path: &Path, bytes: &[u8]) -> Result<(), BuildError> {
    let failed = |source| BuildError::Write { path: path.to_owned(), source };
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    std::fs::create_dir_all(folder).map_err(failed)?;
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}.part", std::process::id()));
    let part = folder.join(name);
    let written = (|| {
        let mut file = std::fs::File::create(&part)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        std::fs::rename(&part, path)?;
        std::fs::File::open(folder)?.sync_all()
    })();
    if written.is_err() {
        let _ = std::fs::remove_file(&part);
    }
    written.map_err(failed)
}
