//! AWS's reply to `DescribeSpotPriceHistory`: of each type and zone the newest price counts.

use super::aws_bulk::plain;
use super::rows::Rows;
use super::stream::array_field;
use crate::error::BuildError;
use crate::facts::Facts;
use crate::money;
use crate::words::Term;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::io::Read;
use windfall_core::NanoUsd;

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct SpotPrice {
    availability_zone: String,
    availability_zone_id: Option<String>,
    instance_type: String,
    product_description: String,
    spot_price: String,
    timestamp: String,
}

/// What a reply says: prices, and the day of the newest.
pub struct Reply {
    /// Prices of instance types that are known.
    pub rows: Rows,
    /// The day of the newest.
    pub as_of: Option<String>,
}

/// Reads a reply. Types that no catalogue knows are left out: the reply does not say what is in them.
pub fn read(facts: &mut Facts, file: &str, reader: impl Read) -> Result<Reply, BuildError> {
    let mut newest: BTreeMap<(String, String, String), (String, NanoUsd)> = BTreeMap::new();
    array_field(reader, "SpotPriceHistory", |at, entry: SpotPrice| {
        if entry.product_description != "Linux/UNIX" {
            return Ok(());
        }
        let wrong = |what: String| format!("SpotPriceHistory[{at}]: {what}");
        let Some(price) = money::price(&entry.spot_price).map_err(|error| wrong(error.to_string()))? else {
            return Ok(());
        };
        let region = region_of(&entry.availability_zone)
            .ok_or_else(|| wrong(format!("`{}` is no zone", entry.availability_zone)))?;
        let region = region.to_owned();
        let zone = entry.availability_zone_id.unwrap_or(entry.availability_zone);
        let known = newest.entry((entry.instance_type, region, zone)).or_default();
        if entry.timestamp > known.0 {
            *known = (entry.timestamp, price);
        }
        Ok(())
    })
    .map_err(|error| {
        BuildError::bad(file, format!("line {} column {}", error.line(), error.column()), plain(&error))
    })?;
    let as_of = newest.values().map(|(timestamp, _)| timestamp.chars().take(10).collect::<String>()).max();
    let mut rows = Rows::default();
    for ((name, region, zone), (_, price)) in newest {
        if let Some(kind) = facts.named("aws", &name).next() {
            rows.add(kind, &region, Some(&zone), Term::Spot, price);
        }
    }
    Ok(Reply { rows, as_of })
}

/// `us-east-1a` lies in `us-east-1`.
fn region_of(zone: &str) -> Option<&str> {
    let region = zone.trim_end_matches(|letter: char| letter.is_ascii_lowercase());
    region.ends_with(|digit: char| digit.is_ascii_digit()).then_some(region).filter(|region| region.len() < zone.len())
}
