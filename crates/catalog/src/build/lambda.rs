//! Lambda's reply to `instance-types`: prices in cents, the same in every region.

use super::aws_bulk::plain;
use super::chips::{self, Claim, filled};
use super::rows::Rows;
use crate::error::BuildError;
use crate::facts::{Facts, TypeId};
use crate::words::{Count, Term};
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufReader, Read};
use windfall_core::NanoUsd;

#[derive(Deserialize)]
struct Reply {
    data: BTreeMap<String, Entry>,
}

#[derive(Deserialize)]
struct Entry {
    instance_type: InstanceType,
    #[serde(default)]
    regions_with_capacity_available: Vec<Region>,
}

#[derive(Deserialize)]
struct InstanceType {
    name: String,
    #[serde(default)]
    gpu_description: String,
    price_cents_per_hour: i64,
    specs: Specs,
}

#[derive(Deserialize)]
struct Specs {
    vcpus: u32,
    memory_gib: u32,
    #[serde(default)]
    gpus: u32,
}

#[derive(Deserialize)]
struct Region {
    name: String,
}

/// Reads a reply. A type is listed in every region that has any: the price is the same, and what has no capacity now
/// may have some tomorrow.
pub fn read(facts: &mut Facts, file: &str, reader: impl Read) -> Result<Rows, BuildError> {
    let reply: Reply = serde_json::from_reader(BufReader::new(reader)).map_err(|error| {
        BuildError::bad(file, format!("line {} column {}", error.line(), error.column()), plain(&error))
    })?;
    let mut regions: BTreeSet<String> = known_regions(facts);
    for entry in reply.data.values() {
        regions.extend(entry.regions_with_capacity_available.iter().map(|region| region.name.clone()));
    }
    let mut rows = Rows::default();
    for entry in reply.data.values() {
        let of = &entry.instance_type;
        let price =
            cents(of.price_cents_per_hour).map_err(|what| BuildError::bad(file, format!("data.{}", of.name), what))?;
        let kind = kind(facts, of);
        for region in &regions {
            rows.add(kind, region, None, Term::OnDemand, price);
        }
    }
    Ok(rows)
}

fn cents(cents: i64) -> Result<NanoUsd, String> {
    match cents {
        1..=100_000_000 => Ok(NanoUsd(cents * 10_000_000)),
        _ => Err(format!("{cents} cents an hour cannot be")),
    }
}

fn known_regions(facts: &Facts) -> BTreeSet<String> {
    let types = facts.types().filter(|(_, row)| row.cloud == "lambda").map(|(id, _)| id);
    types.flat_map(|id| facts.prices_of(id).map(|price| price.region.to_owned()).collect::<Vec<_>>()).collect()
}

fn kind(facts: &mut Facts, of: &InstanceType) -> TypeId {
    if let Some(known) = facts.named("lambda", &of.name).next() {
        return known;
    }
    // `H100 (80 GB SXM5)`
    let (chip, detail) = of.gpu_description.split_once('(').unwrap_or((&of.gpu_description, ""));
    let gigabytes: Option<u32> = detail.split(' ').next().and_then(|number| number.parse().ok());
    let long =
        format!("{} {}", chip.trim(), detail.trim_end_matches(')').split("GB").nth(1).unwrap_or_default().trim());
    let claim = Claim {
        name: if of.specs.gpus > 0 { chip.trim() } else { "" },
        count: (of.specs.gpus > 0).then(|| Count::whole(of.specs.gpus)),
        long_name: Some(&long),
        memory_mib: gigabytes.map(|gigabytes| gigabytes * 1_024),
    };
    let chips = chips::settle("lambda", &of.name, claim);
    facts.instance(filled(
        "lambda",
        &of.name,
        chips,
        Some(of.specs.vcpus * 1_000),
        Some(of.specs.memory_gib * 1_024),
        None,
    ))
}
