//! What AWS takes for moving data: a table between regions, and the published tiers out to the internet.

use crate::error::BuildError;
use crate::knowledge::{InternetEgress, RegionEgress, Tier};
use crate::money;
use serde::Deserialize;
use std::collections::BTreeSet;
use std::io::Read;
use windfall_core::NanoUsd;

#[derive(Deserialize)]
struct Row {
    from_region: String,
    to_region: String,
    price_usd_per_gb: String,
}

/// Reads prices between regions.
pub fn aws_regions(file: &str, reader: impl Read) -> Result<RegionEgress, BuildError> {
    let rows = csv::Reader::from_reader(reader).into_deserialize::<Row>();
    let rows: Vec<Row> = rows
        .enumerate()
        .map(|(at, row)| row.map_err(|error| BuildError::bad(file, format!("row {}", at + 1), error)))
        .collect::<Result<_, _>>()?;
    let names: BTreeSet<&str> =
        rows.iter().flat_map(|row| [row.from_region.as_str(), row.to_region.as_str()]).collect();
    let names: Vec<&str> = names.into_iter().collect();
    if names.len() > 256 {
        return Err(BuildError::bad(file, "regions", "there are more than 256"));
    }
    let place = |name: &str| names.binary_search(&name).unwrap_or(0) as u8;
    let mut rates = Vec::new();
    for (at, row) in rows.iter().enumerate() {
        let price = money::price(&row.price_usd_per_gb)
            .map_err(|error| BuildError::bad(file, format!("row {}", at + 1), error))?;
        rates.extend(price.map(|price| (place(&row.from_region), place(&row.to_region), price)));
    }
    rates.sort();
    rates.dedup();
    let regions = names.into_iter().map(str::to_owned).collect();
    Ok(RegionEgress { cloud: "aws".to_owned(), regions, rates })
}

/// Regions of AWS in North America and Europe, which share one price list to the internet. Others cost more; what
/// they cost is in none of our sources, so it stays unknown.
const AWS_STANDARD: [&str; 14] = [
    "ca-central-1",
    "ca-west-1",
    "eu-central-1",
    "eu-central-2",
    "eu-north-1",
    "eu-south-1",
    "eu-south-2",
    "eu-west-1",
    "eu-west-2",
    "eu-west-3",
    "us-east-1",
    "us-east-2",
    "us-west-1",
    "us-west-2",
];

/// AWS's published tiers: the first 10 TiB of a month, the next 40, the next 100, all beyond. The free 100 GB of an
/// account are not a tier: they are used up by whatever comes first.
pub fn aws_internet() -> InternetEgress {
    let tier = |up_to_tib: Option<u64>, cents_tenths: i64| Tier {
        up_to_gib: up_to_tib.map(|tib| tib * 1_024),
        per_gib: NanoUsd(cents_tenths * 1_000_000),
    };
    InternetEgress {
        cloud: "aws".to_owned(),
        regions: AWS_STANDARD.iter().map(|region| (*region).to_owned()).collect(),
        tiers: vec![tier(Some(10), 90), tier(Some(50), 85), tier(Some(150), 70), tier(None, 50)],
    }
}
