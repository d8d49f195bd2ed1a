//! A catalogue that is open: its sources, instance types, offers and histories, all borrowed from the stored bytes.

use crate::error::CatalogError;
use crate::facts::{History, TypeFacts};
use crate::format::{Cursor, Section, StoredCatalog, TypeRow, says};
use crate::knowledge::{Accelerator, DataCosts, Throughput};
use crate::names;
use crate::offer::{InstanceType, Offer};
use crate::words::{Band, Count, Source, Term};
use std::borrow::Cow;
use std::path::Path;
use std::sync::OnceLock;
use windfall_core::NanoUsd;

/// The catalogue inside the program, made by `cargo xtask catalog`.
static EMBEDDED: &[u8] = include_bytes!("../data/catalog.bin");

/// Facts to search.
#[derive(Debug)]
pub struct Catalog {
    stored: StoredCatalog,
    sources: Vec<Source>,
    accelerators: Vec<Accelerator>,
    throughput: OnceLock<Throughput>,
    data: OnceLock<DataCosts>,
}

/// A price as it is stored.
#[derive(Clone, Copy)]
struct Listed {
    region: u32,
    /// Zones of the region where the type is sold, one bit each.
    mask: u64,
    /// The zone that the price holds in; none for all of them.
    zone: Option<u32>,
    term: Term,
    price: NanoUsd,
    source: u32,
}

impl Catalog {
    /// The catalogue inside the program.
    pub fn embedded() -> Catalog {
        Catalog::from_bytes(Cow::Borrowed(EMBEDDED), "embedded", false).expect("a test opens what is embedded")
    }

    /// Opens a file and checks every byte of it.
    pub fn open(path: &Path) -> Result<Catalog, CatalogError> {
        let bytes = std::fs::read(path).map_err(|source| CatalogError::Read { path: path.to_owned(), source })?;
        Catalog::from_bytes(Cow::Owned(bytes), &path.display().to_string(), true)
    }

    /// Opens stored bytes; with `check`, every one of them is looked at.
    pub fn from_bytes(bytes: Cow<'static, [u8]>, name: &str, check: bool) -> Result<Catalog, CatalogError> {
        let corrupt = |what: &str| CatalogError::Corrupt { name: name.to_owned(), what: what.to_owned() };
        let stored = StoredCatalog::open(bytes, name, check)?;
        let sources = stored.unpack(Section::Sources).ok_or_else(|| corrupt("the sources do not fit"))?;
        let accelerators = stored.unpack(Section::Accelerators).ok_or_else(|| corrupt("the data sheets do not fit"))?;
        let catalog = Catalog { stored, sources, accelerators, throughput: OnceLock::new(), data: OnceLock::new() };
        if check {
            catalog.check().ok_or_else(|| corrupt("the facts do not fit together"))?;
        }
        Ok(catalog)
    }

    /// Walks everything that is otherwise read on demand.
    fn check(&self) -> Option<()> {
        for row in &self.stored.types {
            if row.model.is_some_and(|model| model as usize >= self.accelerators.len()) {
                return None;
            }
            let mut sound = true;
            self.walk(row, |listed, band| {
                let named = [Some(listed.source), band.map(|(_, source)| source)];
                sound &= named.into_iter().flatten().all(|source| (source as usize) < self.sources.len());
            })?;
            self.walk_history(row, |_, _, _, _| {})?;
            if !sound {
                return None;
            }
        }
        self.stored.unpack::<Throughput>(Section::Throughput)?;
        self.stored.unpack::<DataCosts>(Section::Data).map(drop)
    }

    /// Whose facts these are.
    pub fn sources(&self) -> &[Source] {
        &self.sources
    }

    /// Data sheets, by model.
    pub fn accelerators(&self) -> &[Accelerator] {
        &self.accelerators
    }

    /// The data sheet that a family's name stands for.
    pub fn accelerator(&self, name: &str) -> Option<&Accelerator> {
        let named = names::lookup(name)?;
        self.accelerators.iter().find(|sheet| Some(sheet.model.as_str()) == named.model)
    }

    /// How well programs use accelerators.
    pub fn throughput(&self) -> &Throughput {
        self.throughput.get_or_init(|| self.stored.unpack(Section::Throughput).unwrap_or_default())
    }

    /// What data costs to keep and to move.
    pub fn data_costs(&self) -> &DataCosts {
        self.data.get_or_init(|| self.stored.unpack(Section::Data).unwrap_or_default())
    }

    /// Eight hexadecimal digits that change with any fact.
    pub fn digest(&self) -> String {
        format!("{:08x}", self.stored.digest)
    }

    /// Stored size in bytes.
    pub fn size(&self) -> usize {
        self.stored.size()
    }

    /// Every instance type, those with accelerators first.
    pub fn instance_types(&self) -> impl Iterator<Item = InstanceType<'_>> {
        (0..self.stored.types.len()).map(|at| self.instance_type(at))
    }

    fn instance_type(&self, at: usize) -> InstanceType<'_> {
        let row = &self.stored.types[at];
        let accelerator = row.accelerator.map(|name| self.stored.string(name));
        let sheet = row.model.and_then(|model| self.accelerators.get(model as usize));
        let told = row.accelerator_memory_mib.map(|mib| f64::from(mib) * 1_048_576.0 / 1e9);
        let whole = Count(row.count_milli.max(1)).as_f64();
        // A shared accelerator's instance sees its own part of the memory; sources name that part, sheets the whole.
        let memory = sheet.map(|sheet| f64::from(sheet.memory_gb) * whole.min(1.0));
        let named = accelerator.and_then(names::memory_gb).map(|gb| f64::from(gb) * whole.min(1.0));
        InstanceType {
            at: at as u32,
            cloud: self.stored.string(row.cloud),
            name: self.stored.string(row.name),
            accelerator,
            sheet,
            count: Count(row.count_milli),
            vcpus: row.vcpus_milli.map(|milli| f64::from(milli) / 1_000.0),
            memory_gib: row.memory_mib.map(|mib| f64::from(mib) / 1_024.0),
            accelerator_memory_gb: memory.or(named).or(told),
            network_gbps: row.network_mbps.map(|mbps| f64::from(mbps) / 1_000.0),
            fabric: row.fabric.map(|name| self.stored.string(name)),
        }
    }

    /// An instance type as it was when the catalogue was made.
    pub(crate) fn type_facts(&self, kind: InstanceType<'_>) -> TypeFacts {
        let row = &self.stored.types[kind.at as usize];
        TypeFacts {
            cloud: kind.cloud.to_owned(),
            name: kind.name.to_owned(),
            accelerator: kind.accelerator.map(str::to_owned),
            model: kind.sheet.map(|sheet| sheet.model.clone()),
            count: kind.count,
            vcpus_milli: row.vcpus_milli,
            memory_mib: row.memory_mib,
            accelerator_memory_mib: row.accelerator_memory_mib,
            network_mbps: row.network_mbps,
            fabric: kind.fabric.map(str::to_owned),
        }
    }

    /// Hands every offer of an instance type to `visit`. With `by_zone`, a price that holds in a whole region is
    /// handed out once for each zone where the type is sold, where these are known.
    pub fn offers_of<'c>(&'c self, kind: InstanceType<'c>, by_zone: bool, mut visit: impl FnMut(Offer<'c>)) {
        let row = &self.stored.types[kind.at as usize];
        let _ = self.walk(row, |listed, band| {
            // A source can be missing only in bytes that were opened without a check.
            let Some(source) = self.sources.get(listed.source as usize) else { return };
            let region = &self.stored.regions[listed.region as usize];
            let offer = |zone: Option<u32>| Offer {
                kind,
                region: self.stored.string(region.region),
                zone: zone.map(|zone| self.stored.string(zone)),
                zone_mask: listed.mask,
                region_at: listed.region,
                term: listed.term,
                price: listed.price,
                source,
                band: band.filter(|_| listed.term == Term::Spot).map(|(band, _)| band),
                band_source: band
                    .filter(|_| listed.term == Term::Spot)
                    .and_then(|(_, source)| self.sources.get(source as usize)),
            };
            if listed.zone.is_some() || !by_zone || listed.mask == 0 {
                visit(offer(listed.zone));
            } else {
                set_bits(listed.mask)
                    .filter_map(|bit| region.zones.get(bit))
                    .for_each(|zone| visit(offer(Some(*zone))));
            }
        });
    }

    /// The zones where an offer can be had; its own zone, or all zones of its region that are known to sell it.
    pub fn zones<'c>(&'c self, offer: &Offer<'c>) -> Vec<&'c str> {
        let region = &self.stored.regions[offer.region_at as usize];
        match offer.zone {
            Some(zone) => vec![zone],
            None => set_bits(offer.zone_mask)
                .filter_map(|bit| region.zones.get(bit))
                .map(|zone| self.stored.string(*zone))
                .collect(),
        }
    }

    /// The zones of an offer's region that are known to sell its type, whatever zone the offer itself is of.
    pub(crate) fn all_zones<'c>(&'c self, offer: &Offer<'c>) -> Vec<&'c str> {
        self.zones(&Offer { zone: None, ..*offer })
    }

    /// Every cloud and its regions.
    pub fn regions(&self) -> impl Iterator<Item = (&str, &str)> {
        self.stored.regions.iter().map(|region| (self.stored.string(region.cloud), self.stored.string(region.region)))
    }

    pub(crate) fn places_with_zones(&self) -> impl Iterator<Item = (&str, &str, Vec<&str>)> {
        let string = |number: &u32| self.stored.string(*number);
        self.stored.regions.iter().map(move |region| {
            (string(&region.cloud), string(&region.region), region.zones.iter().map(string).collect())
        })
    }

    /// What an offer cost over time, as far as it is recorded.
    pub fn history(&self, offer: &Offer<'_>) -> Option<History> {
        self.histories(offer.kind).into_iter().find_map(|(region, zone, term, history)| {
            // A price of the whole region has the history of any of its zones, and the other way round.
            let here = region == offer.region && (zone.is_none() || offer.zone.is_none() || zone == offer.zone);
            (here && term == offer.term).then_some(history)
        })
    }

    /// What a type's offers cost over time: region, zone, term and changes.
    pub fn histories(&self, kind: InstanceType<'_>) -> Vec<(&str, Option<&str>, Term, History)> {
        let mut all = Vec::new();
        let row = &self.stored.types[kind.at as usize];
        let _ = self.walk_history(row, |region, zone, term, history| {
            let region = &self.stored.regions[region as usize];
            let zone = zone.map(|zone| self.stored.string(region.zones[zone as usize]));
            all.push((self.stored.string(region.region), zone, term, history));
        });
        all
    }

    fn walk(&self, row: &TypeRow, mut visit: impl FnMut(Listed, Option<(Band, u32)>)) -> Option<()> {
        let body = self.stored.body(Section::Listings);
        let mut cursor = Cursor::new(body.get(row.listings.start as usize..row.listings.end as usize)?);
        let mut found: Vec<Listed> = Vec::with_capacity(16);
        while !cursor.is_done() {
            found.clear();
            let region = cursor.small()?;
            let zones = &self.stored.regions.get(region as usize)?.zones;
            let mask = cursor.number()?;
            let flags = cursor.byte()?;
            let listed = |term, zone, price, source| Listed { region, mask, zone, term, price, source };
            for (term, wide, zoned) in [
                (Term::Spot, says::SPOT, says::SPOT_BY_ZONE),
                (Term::OnDemand, says::ON_DEMAND, says::ON_DEMAND_BY_ZONE),
                (Term::Reserved1y, says::RESERVED_1Y, 0),
                (Term::Reserved3y, says::RESERVED_3Y, 0),
            ] {
                if flags & wide != 0 {
                    let source = cursor.small()?;
                    found.push(listed(term, None, cursor.price()??, source));
                }
                if flags & zoned != 0 {
                    for bit in set_bits(mask) {
                        let zone = *zones.get(bit)?;
                        if let Some(source) = cursor.optional()? {
                            found.push(listed(term, Some(zone), cursor.price()??, source));
                        }
                    }
                }
            }
            let band = if flags & says::BAND != 0 { Some((Band::new(cursor.byte()?)?, cursor.small()?)) } else { None };
            found.iter().for_each(|listed| visit(*listed, band));
        }
        Some(())
    }

    fn walk_history(&self, row: &TypeRow, mut visit: impl FnMut(u32, Option<u32>, Term, History)) -> Option<()> {
        let body = self.stored.body(Section::History);
        let mut cursor = Cursor::new(body.get(row.history.start as usize..row.history.end as usize)?);
        while !cursor.is_done() {
            let region = cursor.small()?;
            let zones = self.stored.regions.get(region as usize)?.zones.len();
            let zone = cursor.optional()?;
            if zone.is_some_and(|zone| zone as usize >= zones) {
                return None;
            }
            let term = *Term::ALL.get(usize::from(cursor.byte()?))?;
            let count = cursor.small()?;
            let mut day = 0u32;
            let mut history = History::new();
            for _ in 0..count {
                day = day.checked_add(cursor.small()?)?;
                history.push((day, cursor.price()?));
            }
            visit(region, zone, term, history);
        }
        Some(())
    }
}

fn set_bits(mask: u64) -> impl Iterator<Item = usize> {
    (0..64).filter(move |bit| mask >> bit & 1 == 1)
}
