//! The catalogue against second sources: every disagreement over one percent is either explained by a rule that can be
//! checked, or listed. The result is `docs/catalog-report.md`, which a test keeps fresh.

use super::collection::{Collection, azure_rows, second};
use super::doubt::Dropped;
use super::{chips, cyclenerd};
use crate::catalog::Catalog;
use crate::error::BuildError;
use crate::facts::{Facts, TypeId};
use crate::money;
use crate::words::Term;
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use windfall_core::NanoUsd;

/// Beyond this two prices disagree.
const TOLERANCE: f64 = 0.01;

/// A disagreement.
#[derive(Clone, Debug)]
struct Differs {
    what: String,
    ours: f64,
    theirs: f64,
    /// Why, if a rule explains it.
    because: Option<&'static str>,
}

/// One comparison.
#[derive(Clone, Debug, Default)]
struct Compared {
    title: &'static str,
    count: usize,
    differs: Vec<Differs>,
    remarks: Vec<String>,
}

impl Compared {
    fn new(title: &'static str) -> Compared {
        Compared { title, ..Compared::default() }
    }

    fn pair(&mut self, what: impl Into<String>, ours: NanoUsd, theirs: NanoUsd, because: Option<&'static str>) {
        self.count += 1;
        let (ours, theirs) = (ours.dollars(), theirs.dollars());
        if (ours / theirs - 1.0).abs() > TOLERANCE {
            self.differs.push(Differs { what: what.into(), ours, theirs, because });
        }
    }
}

/// The report on a catalogue made from a collection.
pub fn report(collection: &mut Collection<'_, '_>, facts: &Facts, catalog: &Catalog) -> Result<String, BuildError> {
    let all =
        [aws(collection, facts)?, azure(collection, facts)?, google(collection, facts)?, tpus(collection, facts)?];
    let mut text = String::from(HEAD);
    let _ = writeln!(text, "Catalogue digest: `{}`\n", catalog.digest());
    text.push_str("| comparison | compared | agree within 1 % | explained | open |\n|---|---:|---:|---:|---:|\n");
    for compared in &all {
        let explained = compared.differs.iter().filter(|differs| differs.because.is_some()).count();
        let open = compared.differs.len() - explained;
        let agree = compared.count - compared.differs.len();
        let _ = writeln!(text, "| {} | {} | {agree} | {explained} | {open} |", compared.title, compared.count);
    }
    for compared in &all {
        section(&mut text, compared);
    }
    left_out(&mut text, &collection.dropped);
    text.push_str(TAIL);
    Ok(text)
}

fn left_out(text: &mut String, dropped: &[Dropped]) {
    text.push_str(LEFT_OUT);
    for line in dropped {
        let regions: Vec<&str> = line.regions.iter().map(String::as_str).collect();
        let Dropped { cloud, types, prices, why, .. } = line;
        let _ = writeln!(text, "| {cloud} | {} | {} | {prices} | {why} |", types.join(", "), regions.join(", "));
    }
}

fn section(text: &mut String, compared: &Compared) {
    let _ = writeln!(text, "\n## {}\n", compared.title);
    let mut reasons: BTreeMap<&str, Vec<&Differs>> = BTreeMap::new();
    for differs in &compared.differs {
        if let Some(because) = differs.because {
            reasons.entry(because).or_default().push(differs);
        }
    }
    for (because, all) in reasons {
        let first = all[0];
        let _ = writeln!(
            text,
            "- {} explained: {because} (such as {}: {} here, {} there).",
            all.len(),
            first.what,
            usd(first.ours),
            usd(first.theirs)
        );
    }
    for remark in &compared.remarks {
        let _ = writeln!(text, "- {remark}");
    }
    let open: Vec<&Differs> = compared.differs.iter().filter(|differs| differs.because.is_none()).collect();
    if open.is_empty() {
        text.push_str("- Nothing is left open.\n");
        return;
    }
    text.push_str("\nOpen, those of one kind of machine together:\n\n");
    text.push_str(
        "| what | how many | such as | here | there | ratio, least and most |\n|---|---:|---|---:|---:|---:|\n",
    );
    let mut kinds: BTreeMap<&str, Vec<&Differs>> = BTreeMap::new();
    for differs in open {
        let (_, machine) = differs.what.rsplit_once(' ').unwrap_or_default();
        let kind = machine.rsplit_once('-').map_or(machine, |(kind, _)| kind);
        kinds.entry(kind).or_default().push(differs);
    }
    for (kind, all) in kinds {
        let ratios = || all.iter().map(|differs| differs.ours / differs.theirs);
        let (least, most) = (ratios().fold(f64::MAX, f64::min), ratios().fold(0.0, f64::max));
        let Differs { what, ours, theirs, .. } = all[0];
        let (ours, theirs, count) = (usd(*ours), usd(*theirs), all.len());
        let _ = writeln!(text, "| {kind} | {count} | {what} | {ours} | {theirs} | {least:.3}, {most:.3} |");
    }
}

fn usd(dollars: f64) -> String {
    format!("${dollars:.5}").trim_end_matches('0').trim_end_matches('.').to_owned()
}

fn price(file: &str, at: usize, text: &str) -> Result<Option<NanoUsd>, BuildError> {
    money::price(text).map_err(|error| BuildError::bad(file, format!("row {}", at + 1), error))
}

fn aws(collection: &mut Collection<'_, '_>, facts: &Facts) -> Result<Compared, BuildError> {
    #[derive(Deserialize)]
    struct Row {
        region: String,
        instance: String,
        usd_hour: String,
    }
    let mut compared = Compared::new("AWS us-east-1, on demand: SkyPilot against Karpenter");
    let mut unsold = BTreeSet::new();
    collection.with(second::AWS, |file, reader| {
        for (at, row) in csv::Reader::from_reader(reader).into_deserialize::<Row>().enumerate() {
            let row = row.map_err(|error| BuildError::bad(file, format!("row {}", at + 1), error))?;
            let Some(theirs) = price(file, at, &row.usd_hour)? else { continue };
            let ours = facts.named("aws", &row.instance).next();
            let ours = ours.and_then(|kind| facts.price_of(kind, &row.region, None, Term::OnDemand));
            match ours {
                Some((ours, _)) => {
                    let ratio = theirs.dollars() / ours.dollars();
                    let dedicated = row.instance.contains(".metal") && (1.05..=1.11).contains(&ratio);
                    compared.pair(row.instance, ours, theirs, dedicated.then_some(DEDICATED));
                }
                None => drop(unsold.insert(row.instance)),
            }
        }
        Ok(())
    })?;
    let names: Vec<String> = unsold.into_iter().collect();
    compared.remarks.push(format!(
        "{} types have a price there but are sold in no zone of us-east-1 here, so they are not offered: {}.",
        names.len(),
        names.join(", ")
    ));
    Ok(compared)
}

const DEDICATED: &str = "the second source has the price of dedicated tenancy for bare metal, 6 or 10 % above the \
plain one";

fn azure(collection: &mut Collection<'_, '_>, facts: &Facts) -> Result<Compared, BuildError> {
    let mut compared = Compared::new("Azure, on demand: SkyPilot (2025-09) against Karpenter (2026-06-18)");
    let mut first = Facts::default();
    let rows = collection
        .with(second::AZURE_FIRST, |file, reader| super::skypilot::read(&mut first, "azure", file, reader))?;
    let source = first.source(crate::words::Source::default());
    rows.tell(&mut first, source);
    let mut unknown = BTreeSet::new();
    collection.with(second::AZURE, |file, reader| {
        for (at, row) in azure_rows(file, reader).enumerate() {
            let row = row?;
            let Some(theirs) = price(file, at, &row.usd_hour)? else { continue };
            if row.sku.starts_with("Standard_N") && facts.named("azure", &row.sku).next().is_none() {
                unknown.insert(row.sku.clone());
            }
            let Some(kind) = first.named("azure", &row.sku).next() else { continue };
            let Some((ours, _)) = first.price_of(kind, &row.region, None, Term::OnDemand) else { continue };
            let because = azure_reason(&first, kind, &row.sku, ours, theirs);
            compared.pair(format!("{} {}", row.region, row.sku), ours, theirs, because);
        }
        Ok(())
    })?;
    compared.remarks.push(
        "So sizes without accelerators have SkyPilot's prices here; of the second source only sizes with accelerators \
         are taken, unless Windows is in their price."
            .to_owned(),
    );
    let names: Vec<String> = unknown.into_iter().collect();
    compared.remarks.push(format!(
        "{} sizes are left out, because nothing says how many accelerators they have: {}.",
        names.len(),
        names.join(", ")
    ));
    Ok(compared)
}

fn azure_reason(facts: &Facts, kind: TypeId, size: &str, ours: NanoUsd, theirs: NanoUsd) -> Option<&'static str> {
    let cores = f64::from(facts.type_of(kind).vcpus_milli?) / 1_000.0;
    let more = (theirs.dollars() - ours.dollars()) / cores;
    match () {
        () if super::doubt::is_licence(size, more) => {
            Some("the second source has the Windows price: $0.046 more a core, or $0.0046 on burstable sizes")
        }
        () if size.contains("V620") => Some("the price fell between the two dates; the newer one is used"),
        () => None,
    }
}

fn google(collection: &mut Collection<'_, '_>, facts: &Facts) -> Result<Compared, BuildError> {
    let mut compared =
        Compared::new("Google, on demand: host + accelerators + local SSD against the commitments table");
    let rows = collection.with(second::GCP, |file, reader| cyclenerd::read_commitments(file, reader))?;
    for (at, row) in rows.iter().enumerate() {
        let Some(theirs) = price(second::GCP, at, &row.hour)? else { continue };
        let built_in = chips::gcp(&row.machine_type);
        let kinds = facts.named("gcp", &row.machine_type);
        let kind = kinds.into_iter().find(|kind| built_in.is_some() == facts.type_of(*kind).accelerator.is_some());
        let ours = kind.and_then(|kind| facts.price_of(kind, &row.region, None, Term::OnDemand));
        if let Some((ours, _)) = ours {
            compared.pair(format!("{} {}", row.region, row.machine_type), ours, theirs, None);
        }
    }
    compared.remarks.push(
        "Machines with local SSD but without accelerators (z3, -lssd) and machines with shared cores (e2-micro, e2-small, \
         e2-medium) have the table's price: SkyPilot leaves out the SSD and counts shared cores as whole ones."
            .to_owned(),
    );
    compared.remarks.push(
        "What is open of c4d is a difference in the price of memory, the same in all regions; SkyPilot's, three weeks \
         newer, is used."
            .to_owned(),
    );
    Ok(compared)
}

fn tpus(collection: &mut Collection<'_, '_>, facts: &Facts) -> Result<Compared, BuildError> {
    #[derive(Deserialize)]
    struct Prices {
        #[serde(rename = "On Demand (USD)")]
        on_demand: f64,
        #[serde(rename = "Spot (USD)")]
        spot: f64,
    }
    let mut compared = Compared::new("TPUs, a chip: SkyPilot against gpuhunt");
    let theirs: BTreeMap<String, BTreeMap<String, Prices>> = collection.with(second::TPU, |file, reader| {
        serde_json::from_reader(reader).map_err(|error| BuildError::bad(file, format!("line {}", error.line()), error))
    })?;
    for (name, regions) in &theirs {
        let Some((slice, chips)) = tpu_slice(name) else { continue };
        let Some(kind) = facts.named("gcp", slice).next() else { continue };
        for (region, prices) in regions {
            for (term, theirs) in [(Term::OnDemand, prices.on_demand), (Term::Spot, prices.spot)] {
                let Some((ours, _)) = facts.price_of(kind, region, None, term) else { continue };
                let ours = NanoUsd(ours.0 / chips);
                let because = tpu_reason(term, ours.dollars() / theirs);
                compared.pair(format!("{name} {region} {term}"), ours, NanoUsd::from_dollars(theirs), because);
            }
        }
    }
    Ok(compared)
}

/// A slice of each generation, and its chips.
fn tpu_slice(name: &str) -> Option<(&'static str, i64)> {
    match name {
        "TPU v6e" => Some(("v6e-8", 8)),
        "TPU v5p" => Some(("v5p-8", 4)),
        "TPU v5e" => Some(("v5litepod-8", 8)),
        "TPU v4 pod" => Some(("v4-8", 4)),
        "TPU v3 pod" => Some(("v3-32", 16)),
        "TPU v3 device" => Some(("v3-8", 4)),
        "TPU v2 pod" => Some(("v2-32", 16)),
        "TPU v2 device" => Some(("v2-8", 4)),
        _ => None,
    }
}

fn tpu_reason(term: Term, ratio: f64) -> Option<&'static str> {
    match term {
        Term::Spot if (ratio * 4.0 - 1.0).abs() < TOLERANCE => {
            Some("the second source has the spot price of a host of four chips in a column of chips")
        }
        Term::Spot => Some("spot prices move; SkyPilot's is dated 2026-08-22, the other has no date"),
        _ => None,
    }
}

const HEAD: &str = "\
# The catalogue against second sources

Made by `cargo xtask catalog`; a test keeps it fresh. A disagreement is a difference of more than one percent; it is
explained by a rule that the check applies, or it is listed as open.

";

const LEFT_OUT: &str = "
## Prices that are left out

Rules of `catalog build` (`crates/catalog/src/build/doubt.rs`) leave out what cannot be believed: one price for unlike
sizes, a price far from that of the other regions, memory that is not the chip's, a price with the licence of Windows,
and what a newer list of its region does not have.

| cloud | what | where | prices | why |
|---|---|---|---:|---|
";

const TAIL: &str = "
## Wrong facts that are not repeated

| source | says | here |
|---|---|---|
| SkyPilot, Google | accelerators and hosts in separate rows, accelerators without an instance type | host + accelerators, once; g2-standard-4 in us-central1 is $0.70683 |
| SkyPilot, Google | A4 hosts cost $0 | the row of their accelerators, a SKU of slices of the machine, is taken as the whole price |
| SkyPilot, Google | no local SSD in a2-ultragpu and a3 | added, as Google charges it |
| SkyPilot, Azure | 12 accelerators in ND96isr_H100_v5 | 8 |
| SkyPilot, Azure | a whole MI25 in NV4as_v4, NV8as_v4, NV16as_v4 | an eighth, a quarter, a half |
| SkyPilot, Azure | 80 GB on NC*_H100_v5 | H100 NVL with 94 GB |
| SkyPilot, AWS | FPGAs as accelerators; Trainium2 without | no accelerator; Trainium2, 16 of them |
| SkyPilot, Azure and RunPod | a spot price equal to the on-demand price | unknown |
| SkyPilot, Vast | spot prices of zero | unknown |
| SkyPilot, Vast | the memory of all accelerators where that of one should be | divided by their number: 2 × A100 with 80 GB are A100 of 40 GB |
| SkyPilot, Vast | RTX3060, RTX4060, RTX4070 for cards with a Ti in their name | RTX3060-Ti, RTX4060-Ti, RTX4070-Ti-Super |
| SkyPilot, Nebius | RTX6000 for the Blackwell card | RTXPRO6000 |
| SkyPilot, memory table | B200 and H200 with 80 GB | 180 and 141 GB, from the data sheets |
| SkyPilot, RunPod | gigabytes where MiB should be | not believed |
| SkyPilot, egress | 12 TiB out of AWS for $358; between regions free | $1,095.68; $0.01 to $0.15 a GiB |
| commitments table | prices of accelerator machines in regions without the accelerator | only where they are sold |

## Known gaps

- AWS commitments: the only prices at hand are of 2021 and do not say their term, so they are unknown here.
- Azure egress and storage, AWS storage, and egress between Google's regions: in no source at hand, so unknown.
- Prices of A4 and A3 Ultra machines are in one source only.
- Local SSD of a3-ultragpu: its size is in no source at hand, so it is not in the price.
- SkyPilot lists every RunPod and OCI type in every zone; whether it can be had there is not known.
- Spot prices of Azure are of 2025-09; interruption bands of AWS are of 2025-06-28. Tables mark both as old.
- Google's internet egress from Seoul (asia-northeast3) costs more between 1 and 10 TiB than before, as the source says.
";
