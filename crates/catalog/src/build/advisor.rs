//! AWS Spot Advisor's reply: for each region, system and type the interruption band and the usual saving.

use crate::error::BuildError;
use crate::facts::{Facts, SourceId};
use crate::words::Band;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::io::Read;

#[derive(Deserialize)]
struct Reply {
    spot_advisor: BTreeMap<String, BTreeMap<String, BTreeMap<String, Advice>>>,
}

#[derive(Deserialize)]
struct Advice {
    r: u8,
}

/// Reads the bands of Linux instances.
pub fn read(facts: &mut Facts, source: SourceId, file: &str, reader: impl Read) -> Result<(), BuildError> {
    let reply: Reply = serde_json::from_reader(std::io::BufReader::new(reader))
        .map_err(|error| BuildError::bad(file, format!("line {}", error.line()), error))?;
    for (region, systems) in &reply.spot_advisor {
        for (name, advice) in systems.get("Linux").into_iter().flatten() {
            let band = Band::new(advice.r).ok_or_else(|| {
                BuildError::bad(file, format!("{region} {name}"), format!("there is no band {}", advice.r))
            })?;
            let kinds: Vec<_> = facts.named("aws", name).collect();
            for kind in kinds {
                facts.band(kind, region, band, source);
            }
        }
    }
    Ok(())
}
