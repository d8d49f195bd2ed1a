//! SkyPilot's catalogue files: one row for each instance type and zone.
//!
//! Known traps: Google's accelerators stand in rows of their own without an instance type (`gcp.rs` adds host and
//! accelerator, once); a spot price of zero, or one that repeats the on-demand price outside AWS, means that none is
//! known; some accelerators are miscounted (`chips.rs`).

use super::chips::{self, Claim};
use super::gcp::Google;
use super::rows::Rows;
use super::skypilot_row::{Collected, Row, spot};
use crate::error::BuildError;
use crate::facts::{Facts, TypeFacts};
use crate::money;
use crate::words::{Count, Term};
use std::io::Read;

/// Where each column is.
struct Columns {
    kind: usize,
    accelerator: usize,
    count: usize,
    vcpus: usize,
    memory: usize,
    gpu: usize,
    price: usize,
    spot: usize,
    region: usize,
    zone: Option<usize>,
}

impl Columns {
    fn find(header: &csv::StringRecord, file: &str) -> Result<Columns, BuildError> {
        let optional = |name: &str| header.iter().position(|column| column == name);
        let column = |name: &str| {
            optional(name).ok_or_else(|| BuildError::bad(file, "line 1", format!("there is no column `{name}`")))
        };
        Ok(Columns {
            kind: column("InstanceType")?,
            accelerator: column("AcceleratorName")?,
            count: column("AcceleratorCount")?,
            vcpus: column("vCPUs")?,
            memory: column("MemoryGiB")?,
            gpu: column("GpuInfo")?,
            price: column("Price")?,
            spot: column("SpotPrice")?,
            region: column("Region")?,
            zone: optional("AvailabilityZone"),
        })
    }

    fn row<'r>(&self, record: &'r csv::StringRecord) -> Result<Row<'r>, String> {
        let text = |at: usize| record.get(at).unwrap_or_default().trim();
        let price = |at: usize| money::price(text(at)).map_err(|error| error.to_string());
        let count = Some(text(self.count)).filter(|count| !count.is_empty() && count.parse() != Ok(0.0));
        let count =
            count.map(|count| Count::parse(count).ok_or_else(|| format!("`{count}` is not a number of accelerators")));
        Ok(Row {
            kind: text(self.kind),
            accelerator: text(self.accelerator),
            count: count.transpose()?,
            vcpus_milli: scaled(text(self.vcpus), 1_000.0)?,
            memory_mib: scaled(text(self.memory), 1_024.0)?,
            gpu: text(self.gpu),
            price: price(self.price)?,
            spot: price(self.spot)?,
            // Vast's regions may lack the city: `, CA, NA`.
            region: text(self.region).trim_start_matches([',', ' ']),
            zone: self.zone.map(text).filter(|zone| !zone.is_empty()),
        })
    }
}

fn scaled(text: &str, by: f64) -> Result<Option<u32>, String> {
    if text.is_empty() {
        return Ok(None);
    }
    let value: f64 = text.parse().map_err(|_| format!("`{text}` is not a number"))?;
    if !(0.0..=4e6).contains(&value) {
        return Err(format!("`{text}` is out of all bounds"));
    }
    Ok(Some((value * by).round() as u32).filter(|value| *value > 0))
}

/// Reads a `vms.csv` of a cloud.
pub fn read(facts: &mut Facts, cloud: &str, file: &str, reader: impl Read) -> Result<Rows, BuildError> {
    let mut lines = csv::Reader::from_reader(reader);
    let broken = |error: csv::Error| {
        let place = error.position().map_or("start".to_owned(), |position| format!("line {}", position.line()));
        BuildError::bad(file, place, format!("cannot be read as CSV: {error}"))
    };
    let columns = Columns::find(lines.headers().map_err(broken)?, file)?;
    let mut collected = Collected::default();
    let mut google = Google::default();
    let mut record = csv::StringRecord::new();
    while lines.read_record(&mut record).map_err(broken)? {
        let line = record.position().map_or(0, csv::Position::line);
        let row = columns.row(&record).map_err(|what| BuildError::bad(file, format!("line {line}"), what))?;
        if row.region.is_empty() {
            return Err(BuildError::bad(file, format!("line {line}"), "there is no region"));
        }
        if row.kind.ends_with("_Promo") {
            // Azure's promotions of K80 and M60 sizes have ended.
            continue;
        }
        if cloud == "gcp" {
            google.add(&row);
        } else {
            let kind = facts.instance(type_facts(cloud, &row));
            collected.add(kind, row.region, row.zone, [(Term::OnDemand, row.price), (Term::Spot, spot(cloud, &row))]);
        }
    }
    google.compose(facts, &mut collected);
    Ok(collected.settle())
}

fn type_facts(cloud: &str, row: &Row<'_>) -> TypeFacts {
    let told = gpu_memory_mib(row.gpu).map(|mib| match row.count {
        // Vast lists the memory of all accelerators together where the others list that of one.
        Some(count) if cloud == "vast" && count.0 > 1_000 => (u64::from(mib) * 1_000 / u64::from(count.0)) as u32,
        _ => mib,
    });
    let claim = Claim { name: row.accelerator, count: row.count, long_name: gpu_name(row.gpu), memory_mib: told };
    chips::filled(cloud, row.kind, chips::settle(cloud, row.kind, claim), row.vcpus_milli, row.memory_mib, told)
}

/// The memory of one accelerator in a Python dictionary such as `{'Gpus': [{'MemoryInfo': {'SizeInMiB': 40960}}]}`.
/// RunPod's rows have gigabytes there; nothing so small is sold, so they are not believed.
fn gpu_memory_mib(info: &str) -> Option<u32> {
    let (_, after) = info.split_once("'SizeInMiB': ")?;
    let digits: String = after.chars().take_while(char::is_ascii_digit).collect();
    digits.parse().ok().filter(|mib| *mib >= 1_024)
}

fn gpu_name(info: &str) -> Option<&str> {
    let (_, after) = info.split_once("'Name': '")?;
    after.split('\'').next()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::words::Source;

    const HEAD: &str = "InstanceType,AcceleratorName,AcceleratorCount,vCPUs,MemoryGiB,GpuInfo,Price,SpotPrice,Region,AvailabilityZone\n";

    fn read_rows(cloud: &str, rows: &str) -> Result<Facts, BuildError> {
        let mut facts = Facts::default();
        let source =
            facts.source(Source { name: "t".into(), what: "".into(), licence: "".into(), as_of: "2026".into() });
        let rows = read(&mut facts, cloud, "vms.csv", format!("{HEAD}{rows}").as_bytes())?;
        rows.tell(&mut facts, source);
        Ok(facts)
    }

    #[test]
    fn a_price_shared_by_all_zones_is_the_region_s() {
        let rows = "p5.48xlarge,H100,8.0,192,2048,,55.04,20.1,us-east-1,a\np5.48xlarge,H100,8.0,192,2048,,55.04,21.5,us-east-1,b\n";
        let facts = read_rows("aws", rows).expect("good rows");
        let kind = facts.named("aws", "p5.48xlarge").next().expect("the type");
        let price = |zone, term| facts.price_of(kind, "us-east-1", zone, term).map(|(price, _)| price.0 / 10_000_000);
        assert_eq!(price(None, Term::OnDemand), Some(5_504));
        assert_eq!(price(Some("a"), Term::Spot), Some(2_010));
        assert_eq!(price(None, Term::Spot), None);
        assert_eq!(facts.zones_of(kind, "us-east-1"), ["a", "b"]);
    }

    #[test]
    fn a_spot_price_that_repeats_the_other_is_unknown_outside_aws() {
        let row = "x,T4,1,4,16,,0.5,0.5,r,z\n";
        for (cloud, known) in [("aws", true), ("azure", false), ("runpod", false)] {
            let facts = read_rows(cloud, row).expect("a good row");
            let kind = facts.named(cloud, "x").next().expect("the type");
            assert_eq!(facts.price_of(kind, "r", None, Term::Spot).is_some(), known, "{cloud}");
        }
    }

    #[test]
    fn vast_says_the_memory_of_all_cards_and_leaves_the_end_of_their_name_out() {
        let row = |kind: &str, name: &str, count: u32, mib: u32| {
            let info = format!("\"{{'Gpus': [{{'Name': '{name}', 'MemoryInfo': {{'SizeInMiB': {mib}}}}}]}}\"");
            let facts =
                read_rows("vast", &format!("{kind},{name},{count},32,64,{info},1,0,r,z\n")).expect("a good row");
            let id = facts.named("vast", kind).next().expect("the type");
            (facts.type_of(id).accelerator.clone().unwrap_or_default(), facts.type_of(id).accelerator_memory_mib)
        };
        let is = |family: &str, mib: u32| (family.to_owned(), Some(mib));
        assert_eq!(row("2x-A100_PCIE", "A100", 2, 81_920), is("A100", 40_960));
        assert_eq!(row("2x-A100_SXM4", "A100", 2, 163_840), is("A100-80GB", 81_920));
        assert_eq!(row("4x-Tesla_V100", "V100", 4, 65_536), is("V100", 16_384));
        assert_eq!(row("4x-RTX_4060_Ti", "RTX4060", 4, 65_520), is("RTX4060-Ti", 16_380));
        assert_eq!(row("1x-RTX_3060_Ti", "RTX3060", 1, 8_192), is("RTX3060-Ti", 8_192));
        assert_eq!(row("4x-RTX_3060", "RTX3060", 4, 49_152), is("RTX3060", 12_288));
    }

    #[test]
    fn bad_rows_are_named_by_file_and_line() {
        let error = read_rows("aws", "x,T4,1,4,16,,0.5,0.1,r,z\ny,T4,1,4,16,,-3,0.1,r,z\n").expect_err("an error");
        assert_eq!(error.to_string(), "vms.csv: line 3: `-3` is a negative price");
        let error = read_rows("aws", "x,T4,1,4,16,,NaN,0.1,r,z\n").expect_err("an error");
        assert_eq!(error.to_string(), "vms.csv: line 2: `NaN` is not a price");
        assert!(read_rows("aws", "x,T4,1\n").is_err(), "a row that breaks off");
    }
}
