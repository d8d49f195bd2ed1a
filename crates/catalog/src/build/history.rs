//! Price changes over years to what a sparkline and a planner need: the price at the end of each week in which it
//! changed. A week is seven days from a Thursday, the day of the epoch.

use crate::error::BuildError;
use crate::facts::{Facts, History, TypeId};
use crate::money;
use crate::words::Term;
use std::collections::BTreeMap;
use std::io::Read;
use windfall_core::NanoUsd;

const DAY_SECONDS: i64 = 86_400;

/// Type, region, zone and term.
type Key = (TypeId, String, Option<String>, Term);

/// Which columns a history has: with accelerators (GCP, Lambda, Vast) or without (AWS).
struct Columns {
    ts: usize,
    instance: usize,
    accelerator: Option<usize>,
    region: usize,
    zone: usize,
    on_demand: usize,
    spot: usize,
}

/// Reads a history of a cloud's prices; offers that are no longer sold are left out.
pub fn read(facts: &mut Facts, cloud: &str, file: &str, reader: impl Read) -> Result<(), BuildError> {
    let mut lines = csv::Reader::from_reader(reader);
    let broken = |error: csv::Error| BuildError::bad(file, "CSV", error);
    let header = lines.headers().map_err(broken)?.clone();
    let optional = |name: &str| header.iter().position(|column| column == name);
    let column = |name: &str| {
        optional(name).ok_or_else(|| BuildError::bad(file, "line 1", format!("there is no column `{name}`")))
    };
    let columns = Columns {
        ts: column("ts")?,
        instance: column("instance")?,
        accelerator: optional("accel"),
        region: column("region")?,
        zone: column("zone")?,
        on_demand: optional("ondemand").map_or_else(|| column("price"), Ok)?,
        spot: column("spot")?,
    };
    let mut weeks: BTreeMap<Key, BTreeMap<u32, Option<NanoUsd>>> = BTreeMap::new();
    let mut record = csv::StringRecord::new();
    while lines.read_record(&mut record).map_err(broken)? {
        let line = record.position().map_or(0, csv::Position::line);
        let wrong = |what: String| BuildError::bad(file, format!("line {line}"), what);
        let text = |at: usize| record.get(at).unwrap_or_default();
        let seconds: i64 = text(columns.ts).parse().map_err(|_| wrong("the time is not a number".into()))?;
        let day = u32::try_from(seconds / DAY_SECONDS).map_err(|_| wrong("the time is before 1970".into()))?;
        let Some(kind) = kind(facts, cloud, &columns, &record) else { continue };
        let region = text(columns.region).trim_start_matches([',', ' ']).to_owned();
        let zone = Some(text(columns.zone)).filter(|zone| !zone.is_empty()).map(str::to_owned);
        let gone = text(columns.spot) == "GONE";
        let week = day / 7 * 7;
        for (at, term) in [(columns.on_demand, Term::OnDemand), (columns.spot, Term::Spot)] {
            let price = if gone { None } else { money::price(text(at)).map_err(|error| wrong(error.to_string()))? };
            // On-demand prices hold in a region: one zone that goes out of stock ends nothing.
            let zone = if term == Term::OnDemand { None } else { zone.clone() };
            if term == Term::OnDemand && gone && columns.accelerator.is_none() {
                continue;
            }
            weeks.entry((kind, region.clone(), zone, term)).or_default().insert(week, price);
        }
    }
    for ((kind, region, zone, term), changes) in weeks {
        let changes = changed(changes);
        if changes.iter().any(|(_, price)| price.is_some()) {
            facts.set_history(kind, &region, zone.as_deref(), term, changes);
        }
    }
    Ok(())
}

fn kind(facts: &Facts, cloud: &str, columns: &Columns, record: &csv::StringRecord) -> Option<TypeId> {
    let name = record.get(columns.instance).unwrap_or_default();
    // Google's accelerators without a host have no price of their own; TPU slices do.
    let slice = columns.accelerator.and_then(|at| record.get(at)?.strip_prefix("tpu-"));
    let name = if name.is_empty() { slice? } else { name };
    facts.named(cloud, name).next()
}

/// Only what differs from the week before.
fn changed(weeks: BTreeMap<u32, Option<NanoUsd>>) -> History {
    let mut kept: History = Vec::new();
    for (day, price) in weeks {
        if kept.last().map_or(price.is_some(), |(_, before)| *before != price) {
            kept.push((day, price));
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::TypeFacts;

    #[test]
    fn a_week_keeps_its_last_price_and_a_loss() {
        let mut facts = Facts::default();
        let kind = facts.instance(TypeFacts { cloud: "aws".into(), name: "x".into(), ..TypeFacts::default() });
        let text = "ts,instance,region,zone,ondemand,spot\n604800,x,r,a,3,1\n605000,x,r,a,3,2\n1209600,x,r,a,3,2\n1814400,x,r,a,,GONE\n604800,y,r,a,3,1\n";
        read(&mut facts, "aws", "h.csv", text.as_bytes()).expect("good");
        let told: Vec<_> =
            facts.history_of(kind).map(|(_, zone, term, changes)| (zone, term, changes.clone())).collect();
        let spot = vec![(7, Some(NanoUsd(2_000_000_000))), (21, None)];
        let on_demand = vec![(7, Some(NanoUsd(3_000_000_000)))];
        assert_eq!(told, [(None, Term::OnDemand, on_demand), (Some("a"), Term::Spot, spot)]);
    }
}
