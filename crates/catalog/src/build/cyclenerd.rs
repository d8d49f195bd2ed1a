//! Google's prices as the google-cloud-pricing-cost-calculator project lists them: a YAML file of everything, and a
//! table of machine types with commitments.
//!
//! The YAML is machine-made, mappings and scalars only, so it is read line by line: the indentation says the path.
//! A machine's price there is host, accelerators and bundled local SSD together, also in regions that do not have the
//! accelerator (where the spot price then lacks it); so machines are taken only where they are known to be sold.

use crate::error::BuildError;
use crate::facts::{Facts, SourceId};
use crate::knowledge::{InternetEgress, LicencePrices, StoragePrices, Tier};
use crate::money;
use crate::words::Term;
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read};
use windfall_core::NanoUsd;

/// Hours of a month in this project's sums, and in Google's own.
const MONTH_HOURS: i128 = 730;

/// The parts of the YAML file that are used.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Pricing {
    /// Bundled local SSD in GiB, by machine type.
    pub local_ssd_gib: BTreeMap<String, u32>,
    /// Storage classes.
    pub storage: Vec<StoragePrices>,
    /// Out to the internet.
    pub internet: Vec<InternetEgress>,
    /// Licences by machine type.
    pub licences: Vec<LicencePrices>,
    /// Local SSD, spot, for a month, by region.
    local_ssd_spot: BTreeMap<String, NanoUsd>,
}

impl Pricing {
    /// Local SSD on demand and spot for an hour.
    fn local_ssd_hour(&self, gib: u32, region: &str) -> (Option<NanoUsd>, Option<NanoUsd>) {
        let class = self.storage.iter().find(|class| class.class == "local-ssd");
        let month = class.and_then(|class| class.per_gib_month.iter().find(|(known, _)| known == region));
        let hour = |month: NanoUsd| {
            let sum = i128::from(month.0) * i128::from(gib);
            NanoUsd(i64::try_from((sum + MONTH_HOURS / 2) / MONTH_HOURS).unwrap_or(i64::MAX))
        };
        (month.map(|(_, price)| hour(*price)), self.local_ssd_spot.get(region).map(|price| hour(*price)))
    }
}

/// Reads the YAML file.
pub fn read_pricing(file: &str, reader: impl Read) -> Result<Pricing, BuildError> {
    let mut pricing = Pricing::default();
    let mut storage: BTreeMap<String, Vec<(String, NanoUsd)>> = BTreeMap::new();
    let mut tiers: BTreeMap<String, BTreeMap<u64, (Option<u64>, NanoUsd)>> = BTreeMap::new();
    let mut licences: BTreeMap<String, Vec<(String, NanoUsd)>> = BTreeMap::new();
    scalars(file, reader, |line, path, value| {
        let price = || {
            let read = money::price(value).map_err(|error| BuildError::bad(file, format!("line {line}"), error))?;
            read.ok_or_else(|| BuildError::bad(file, format!("line {line}"), "there is no price"))
        };
        match path {
            ["compute", "instance", kind, "local-ssd"] => {
                let gib = value.parse().map_err(|_| BuildError::bad(file, format!("line {line}"), "not a size"))?;
                pricing.local_ssd_gib.insert((*kind).to_owned(), gib);
            }
            ["compute", "storage", class, "cost", region, "month"] => {
                let class = if *class == "local" { "local-ssd".to_owned() } else { format!("disk-{class}") };
                storage.entry(class).or_default().push(((*region).to_owned(), price()?));
            }
            ["compute", "storage", "local", "cost", region, "month_spot"] => {
                pricing.local_ssd_spot.insert((*region).to_owned(), price()?);
            }
            ["storage", "bucket", class, "cost", region, "month"] => {
                storage.entry(format!("object-{class}")).or_default().push(((*region).to_owned(), price()?));
            }
            ["compute", "license", kind, "cost", system, "hour"] => {
                licences.entry((*kind).to_owned()).or_default().push(((*system).to_owned(), price()?));
            }
            ["compute", "network", "traffic", "egress", "internet", "cost", range, region, "month"] => {
                let (from, up_to) = tier_bounds(range)
                    .ok_or_else(|| BuildError::bad(file, format!("line {line}"), format!("`{range}` is no tier")))?;
                tiers.entry((*region).to_owned()).or_default().insert(from, (up_to, price()?));
            }
            _ => {}
        }
        Ok(())
    })?;
    pricing.storage = storage
        .into_iter()
        .map(|(class, per_gib_month)| StoragePrices { cloud: "gcp".into(), class, per_gib_month })
        .collect();
    pricing.licences = licences
        .into_iter()
        .map(|(instance_type, per_hour)| LicencePrices { cloud: "gcp".into(), instance_type, per_hour })
        .collect();
    pricing.internet = by_tiers(tiers);
    Ok(pricing)
}

/// `0-1`, `1-10`, `10n`: from and up to so many TiB, in GiB.
fn tier_bounds(range: &str) -> Option<(u64, Option<u64>)> {
    let tib = |text: &str| text.parse::<u64>().ok()?.checked_mul(1_024);
    match range.split_once('-') {
        Some((from, up_to)) => Some((tib(from)?, Some(tib(up_to)?))),
        None => Some((tib(range.strip_suffix('n')?)?, None)),
    }
}

/// Regions with the same tiers, together.
fn by_tiers(regions: BTreeMap<String, BTreeMap<u64, (Option<u64>, NanoUsd)>>) -> Vec<InternetEgress> {
    let mut all: Vec<InternetEgress> = Vec::new();
    for (region, tiers) in regions {
        let tiers: Vec<Tier> = tiers.into_values().map(|(up_to_gib, per_gib)| Tier { up_to_gib, per_gib }).collect();
        match all.iter_mut().find(|known| known.tiers == tiers) {
            Some(known) => known.regions.push(region),
            None => all.push(InternetEgress { cloud: "gcp".into(), regions: vec![region], tiers }),
        }
    }
    all
}

/// Hands every scalar of a machine-made YAML file to `visit`, with its line and path.
fn scalars(
    file: &str,
    reader: impl Read,
    mut visit: impl FnMut(usize, &[&str], &str) -> Result<(), BuildError>,
) -> Result<(), BuildError> {
    let mut path: Vec<(usize, String)> = Vec::new();
    for (at, line) in BufReader::new(reader).lines().enumerate() {
        let line = line.map_err(|error| BuildError::bad(file, format!("line {}", at + 1), error))?;
        let text = line.trim();
        if text.is_empty() || text == "---" || text.starts_with('#') {
            continue;
        }
        let depth = line.len() - line.trim_start().len();
        while path.last().is_some_and(|(known, _)| *known >= depth) {
            path.pop();
        }
        let Some((key, value)) = text.split_once(':') else { continue };
        let value = value.trim();
        path.push((depth, key.trim_matches(['\'', '"']).to_owned()));
        if !value.is_empty() && value != "{}" {
            let keys: Vec<&str> = path.iter().map(|(_, key)| key.as_str()).collect();
            visit(at + 1, &keys, value.trim_matches(['\'', '"']))?;
        }
    }
    Ok(())
}

/// A row of the commitments table.
#[derive(Clone, Debug, serde::Deserialize)]
pub struct CommittedPrices {
    pub machine_type: String,
    pub region: String,
    /// On demand, an hour.
    pub hour: String,
    /// Spot, an hour.
    pub hour_spot: String,
    /// Committed for a year, a month of it.
    pub month_1y: String,
    /// Committed for three years.
    pub month_3y: String,
}

/// Reads the commitments table.
pub fn read_commitments(file: &str, reader: impl Read) -> Result<Vec<CommittedPrices>, BuildError> {
    let rows = csv::Reader::from_reader(reader).into_deserialize();
    rows.enumerate()
        .map(|(at, row)| row.map_err(|error| BuildError::bad(file, format!("row {}", at + 1), error)))
        .collect()
}

/// Adds commitments to machines that are known to be sold in the region.
pub fn add_commitments(
    facts: &mut Facts,
    rows: &[CommittedPrices],
    source: SourceId,
    file: &str,
) -> Result<(), BuildError> {
    for (at, row) in rows.iter().enumerate() {
        let month = |text: &str| -> Result<Option<NanoUsd>, BuildError> {
            let month = money::price(text).map_err(|error| BuildError::bad(file, format!("row {}", at + 1), error))?;
            Ok(month.map(|month| NanoUsd(((i128::from(month.0) + MONTH_HOURS / 2) / MONTH_HOURS) as i64)))
        };
        let (one, three) = (month(&row.month_1y)?, month(&row.month_3y)?);
        // N1 hosts with accelerators attached are other things than the bare host that the table prices.
        let built_in = super::chips::gcp(&row.machine_type).is_some();
        let priced = |kind: &_| built_in || facts.type_of(*kind).accelerator.is_none();
        let kinds: Vec<_> = facts.named("gcp", &row.machine_type).filter(priced).collect();
        for kind in kinds {
            let sold = [Term::OnDemand, Term::Spot]
                .iter()
                .any(|term| facts.price_of(kind, &row.region, None, *term).is_some());
            for (term, price) in [(Term::Reserved1y, one), (Term::Reserved3y, three)] {
                if let Some(price) = price.filter(|_| sold) {
                    facts.price(kind, &row.region, None, term, price, source);
                }
            }
        }
    }
    Ok(())
}

/// Machines whose price SkyPilot has wrong: it leaves out local SSD that comes with them, and counts the shared cores
/// of small machines as whole ones.
pub fn is_wrong_at_skypilot(pricing: &Pricing, machine_type: &str) -> bool {
    let shared_cores = matches!(machine_type, "e2-micro" | "e2-small" | "e2-medium");
    let plain = super::chips::gcp(machine_type).is_none();
    shared_cores || (plain && pricing.local_ssd_gib.contains_key(machine_type))
}

/// Puts the table's prices in the place of those that SkyPilot has wrong.
pub fn correct(
    facts: &mut Facts,
    rows: &[CommittedPrices],
    pricing: &Pricing,
    source: SourceId,
    file: &str,
) -> Result<(), BuildError> {
    for (at, row) in rows.iter().enumerate().filter(|(_, row)| is_wrong_at_skypilot(pricing, &row.machine_type)) {
        let Some(kind) = facts.named("gcp", &row.machine_type).next() else { continue };
        for (term, text) in [(Term::OnDemand, &row.hour), (Term::Spot, &row.hour_spot)] {
            let price = money::price(text).map_err(|error| BuildError::bad(file, format!("row {}", at + 1), error))?;
            let sold = facts.price_of(kind, &row.region, None, term).is_some();
            if let Some(price) = price.filter(|_| sold) {
                facts.correct(kind, &row.region, term, price, source);
            }
        }
    }
    Ok(())
}

/// Adds the local SSD that comes with a machine, and is charged with it, to prices that lack it.
pub fn add_local_ssd(facts: &mut Facts, pricing: &Pricing) {
    // The edge variant of a machine has the same disks, but is not in the list.
    let edge = pricing.local_ssd_gib.get("a3-highgpu-8g").map(|gib| ("a3-edgegpu-8g", gib));
    let listed = pricing.local_ssd_gib.iter().map(|(kind, gib)| (kind.as_str(), gib));
    for (kind, gib) in listed.chain(edge).filter(|(kind, _)| super::chips::gcp(kind).is_some()) {
        let kinds: Vec<_> = facts.named("gcp", kind).collect();
        for kind in kinds {
            let priced: Vec<_> = facts
                .prices_of(kind)
                .map(|price| {
                    (price.region.to_owned(), price.zone.map(str::to_owned), price.term, price.price, price.source)
                })
                .collect();
            for (region, zone, term, price, source) in priced {
                let (on_demand, spot) = pricing.local_ssd_hour(*gib, &region);
                let more = if term == Term::Spot { spot } else { on_demand };
                if let Some(more) = more {
                    facts.price(kind, &region, zone.as_deref(), term, price + more, source);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_come_from_indentation() {
        let text = "---\nstorage:\n  bucket:\n    standard:\n      cost:\n        us-east1:\n          month: 0.02\n        x: {}\ncompute:\n  instance:\n    a3-highgpu-8g:\n      local-ssd: 6000\n";
        let pricing = read_pricing("t.yml", text.as_bytes()).expect("good");
        assert_eq!(pricing.local_ssd_gib.get("a3-highgpu-8g"), Some(&6000));
        assert_eq!(pricing.storage[0].class, "object-standard");
        assert_eq!(pricing.storage[0].per_gib_month, [("us-east1".to_owned(), NanoUsd(20_000_000))]);
    }

    #[test]
    fn tiers_are_in_tebibytes() {
        assert_eq!(tier_bounds("1-10"), Some((1_024, Some(10_240))));
        assert_eq!(tier_bounds("10n"), Some((10_240, None)));
        assert_eq!(tier_bounds("ten"), None);
    }
}
