//! The project's own collection of files, named by `WINDFALL_DATA`, to the embedded catalogue. Only facts are taken,
//! each with its source; the files themselves are never part of the project.

use super::doubt::{self, Dropped};
use super::read::{Watcher, open};
use super::rows::Rows;
use super::{advisor, chips, cyclenerd, history, perf, skypilot, transfer};
use crate::error::BuildError;
use crate::facts::{Facts, SourceId};
use crate::money;
use crate::words::{Source, Term};
use serde::Deserialize;
use std::collections::BTreeSet;
use std::io::Read;
use std::path::{Path, PathBuf};

const SKYPILOT_TERMS: &str = "no licence file; facts only";
const APACHE: &str = "Apache-2.0";

/// Of facts that hardly change and whose file does not say when they were true.
const UNDATED: &str = "undated";

/// SkyPilot's files: cloud, name, day.
const SKYPILOT: [(&str, &str, &str); 8] = [
    ("aws", "vms.csv.gz", "2026-08-22"),
    ("azure", "vms.csv", "2025-09"),
    ("gcp", "vms.csv.gz", "2026-08-22"),
    ("lambda", "vms.csv", "2026-08-22"),
    ("nebius", "vms.csv", "2026-08-22"),
    ("oci", "vms.csv", "2026-08-22"),
    ("runpod", "vms.csv.gz", "2026-08-22"),
    ("vast", "vms.csv", "2026-08-22"),
];

/// Paths of the second sources, which the cross-check reads too.
pub mod second {
    /// AWS on-demand prices of us-east-1.
    pub const AWS: &str = "prices/aws_ondemand_us-east-1_2026-07-20.csv";
    /// Azure on-demand prices.
    pub const AZURE: &str = "prices/azure_ondemand_2026-06-18.csv.gz";
    /// Google's machines with commitments.
    pub const GCP: &str = "prices/gcp_commitments_2026-07-30.csv.gz";
    /// TPU prices.
    pub const TPU: &str = "prices/gcp_tpu_prices.json";
    /// SkyPilot's Azure file.
    pub const AZURE_FIRST: &str = "prices/skypilot-catalog/azure/vms.csv";
}

/// The folder with the collection, and who watches it being read.
pub struct Collection<'w, 'f> {
    folder: PathBuf,
    /// What was not believed, filled by `facts`.
    pub dropped: Vec<Dropped>,
    watcher: &'w mut (dyn FnMut(&str, u64, u64) + 'f),
}

impl<'w, 'f> Collection<'w, 'f> {
    /// A collection in a folder.
    pub fn new(folder: &Path, watcher: &'w mut (dyn FnMut(&str, u64, u64) + 'f)) -> Collection<'w, 'f> {
        Collection { folder: folder.to_owned(), dropped: Vec::new(), watcher }
    }

    /// Reads one file with `read`.
    pub fn with<T>(
        &mut self,
        file: &str,
        read: impl FnOnce(&str, &mut dyn Read) -> Result<T, BuildError>,
    ) -> Result<T, BuildError> {
        let watcher: Watcher<'_> = &mut *self.watcher;
        let mut reader = open(&self.folder.join(file), file, watcher)?;
        read(file, &mut reader)
    }

    /// Every fact of the collection.
    pub fn facts(&mut self) -> Result<Facts, BuildError> {
        let mut facts = Facts::default();
        self.dropped.clear();
        self.prices(&mut facts)?;
        self.google(&mut facts)?;
        self.networks(&mut facts)?;
        self.with("prices/aws_spot_advisor_2025-06-28.json.gz", |file, reader| {
            let what = "how often AWS takes spot capacity back";
            let source = tell(&mut facts, "aws-spot-advisor", what, APACHE, "2025-06-28");
            advisor::read(&mut facts, source, file, reader)
        })?;
        self.histories(&mut facts)?;
        self.performance(&mut facts)?;
        self.dropped.extend(doubt::sift(&mut facts));
        Ok(facts)
    }

    fn prices(&mut self, facts: &mut Facts) -> Result<(), BuildError> {
        for (cloud, name, as_of) in SKYPILOT {
            let what = "on-demand and spot prices by zone";
            let source = tell(facts, &format!("skypilot-catalog/{cloud}"), what, SKYPILOT_TERMS, as_of);
            let path = format!("prices/skypilot-catalog/{cloud}/{name}");
            let rows = self.with(&path, |file, reader| skypilot::read(facts, cloud, file, reader))?;
            rows.tell(facts, source);
        }
        let what = "on-demand prices of sizes with accelerators, all regions";
        let source = tell(facts, "karpenter-provider-azure", what, APACHE, "2026-06-18");
        let mut list = self.with(second::AZURE, |file, reader| azure_accelerators(facts, file, reader))?;
        let on_demand = list.prices().map(|(kind, region, _, price)| (kind, region, price));
        let windows = doubt::with_windows(facts, on_demand);
        let listed: BTreeSet<(String, String)> =
            list.prices().map(|(kind, region, ..)| (facts.type_of(kind).name.clone(), region.to_owned())).collect();
        let withheld = list.withhold(&windows);
        self.dropped.extend(doubt::windows_line(facts, &withheld));
        list.tell(facts, source);
        self.dropped.extend(doubt::drop_unlisted(facts, "azure", &listed));
        Ok(())
    }

    fn google(&mut self, facts: &mut Facts) -> Result<(), BuildError> {
        let what = "commitments of one and three years; storage, egress, licences, local SSD";
        let source = tell(facts, "google-cloud-pricing-cost-calculator", what, APACHE, "2026-07-30");
        let pricing =
            self.with("prices/gcp_pricing_2026-07-30.yml.gz", |file, reader| cyclenerd::read_pricing(file, reader))?;
        cyclenerd::add_local_ssd(facts, &pricing);
        let rows = self.with(second::GCP, |file, reader| cyclenerd::read_commitments(file, reader))?;
        cyclenerd::correct(facts, &rows, &pricing, source, second::GCP)?;
        cyclenerd::add_commitments(facts, &rows, source, second::GCP)?;
        facts.knowledge.data.storage = pricing.storage;
        facts.knowledge.data.licences = pricing.licences;
        facts.knowledge.data.internet = pricing.internet;
        Ok(())
    }

    fn networks(&mut self, facts: &mut Facts) -> Result<(), BuildError> {
        let what = "chips in instance types, networks of GCP and Azure, memory of chips without a data sheet here";
        tell(facts, "providers-documentation", what, "published documentation", UNDATED);
        tell(facts, "karpenter-provider-aws", "network bandwidth by instance type", APACHE, "2026-07-20");
        self.with("prices/aws_bandwidth_mbps.csv", |file, reader| aws_bandwidth(facts, file, reader))?;
        tell(facts, "skynomad-artifact", "egress between AWS regions", APACHE, UNDATED);
        tell(facts, "aws-published-tiers", "egress from AWS to the internet", "published price list", UNDATED);
        let regions = self.with("prices/aws_egress_pricing.csv", |file, reader| transfer::aws_regions(file, reader))?;
        facts.knowledge.data.regions = vec![regions];
        facts.knowledge.data.internet.insert(0, transfer::aws_internet());
        Ok(())
    }

    fn histories(&mut self, facts: &mut Facts) -> Result<(), BuildError> {
        tell(facts, "skypilot-catalog/history", "prices over time", SKYPILOT_TERMS, "2026-08-22");
        for (cloud, path) in [
            ("aws", "prices/history/aws_20types_6regions_2022-12_2026-08.csv.zst"),
            ("gcp", "prices/history/gcp_v8.csv.gz"),
            ("lambda", "prices/history/lambda_v8.csv.gz"),
            ("vast", "prices/history/vast_v8.csv.gz"),
        ] {
            self.with(path, |file, reader| history::read(facts, cloud, file, reader))?;
        }
        Ok(())
    }

    fn performance(&mut self, facts: &mut Facts) -> Result<(), BuildError> {
        tell(facts, "accelerator-data-sheets", "memory, peaks, bandwidth, links", "makers' data sheets", UNDATED);
        tell(facts, "llm-foundry", "shares of peak reached in training", APACHE, UNDATED);
        tell(facts, "mlcommons-training", "times to quality, rounds 2.1 to 5.1", APACHE, "2025-11");
        tell(
            facts,
            "lambdal/deeplearning-benchmark",
            "scaling inside a node, half precision",
            "no licence file; facts only",
            UNDATED,
        );
        tell(facts, "NVIDIA/DeepLearningExamples", "mixed precision", "Apache-2.0, BSD-3-Clause", UNDATED);
        tell(facts, "windfall/h200", "precision, measured on one H200", APACHE, "2026-11");
        let known = &mut facts.knowledge;
        known.accelerators = self.with("perf/accelerators.csv", |file, reader| perf::accelerators(file, reader))?;
        known.throughput.mfu = self.with("perf/mfu_table.csv", |file, reader| perf::mfu(file, reader))?;
        known.throughput.training_times =
            self.with("perf/mlperf_training.csv", |file, reader| perf::training_times(file, reader))?;
        let table = |collection: &mut Self, name: &str| {
            let path = format!("perf/lambda/pytorch-train-throughput-{name}.csv");
            collection.with(&path, |file, reader| perf::lambda_table(file, reader))
        };
        let (fp32, fp16) = (table(self, "fp32")?, table(self, "fp16")?);
        known.throughput.node_scaling = perf::node_scaling(&fp16);
        let precision = &mut known.throughput.precision;
        *precision = self.with("h200/results.json", |file, reader| perf::measured_precision(file, reader))?;
        precision.extend(self.with("perf/mixed_precision/nvidia_dle_mixed_precision.csv", |file, reader| {
            perf::nvidia_precision(file, reader)
        })?);
        precision.extend(perf::lambda_precision(&fp32, &fp16));
        Ok(())
    }
}

fn tell(facts: &mut Facts, name: &str, what: &str, licence: &str, as_of: &str) -> SourceId {
    let own = |text: &str| text.to_owned();
    facts.source(Source { name: own(name), what: own(what), licence: own(licence), as_of: own(as_of) })
}

/// A row of the second Azure source.
#[derive(Clone, Debug, Deserialize)]
pub struct AzureRow {
    pub region: String,
    /// The size.
    pub sku: String,
    /// On demand, an hour.
    pub usd_hour: String,
}

/// Rows of the second Azure source.
pub fn azure_rows(file: &str, reader: impl Read) -> impl Iterator<Item = Result<AzureRow, BuildError>> {
    let rows = csv::Reader::from_reader(reader).into_deserialize();
    let file = file.to_owned();
    rows.enumerate().map(move |(at, row)| row.map_err(|error| BuildError::bad(&file, format!("row {}", at + 1), error)))
}

/// Sizes with accelerators only: for one size in fifteen without, this source has the Windows price.
fn azure_accelerators(facts: &mut Facts, file: &str, reader: impl Read) -> Result<Rows, BuildError> {
    let mut rows = Rows::default();
    for (at, row) in azure_rows(file, reader).enumerate() {
        let row = row?;
        let Some(chips) = chips::settle("azure", &row.sku, chips::Claim::default()) else { continue };
        let price =
            money::price(&row.usd_hour).map_err(|error| BuildError::bad(file, format!("row {}", at + 1), error))?;
        let kind = facts.instance(chips::filled("azure", &row.sku, Some(chips), azure_cores(&row.sku), None, None));
        if let Some(price) = price {
            rows.add(kind, &row.region, None, Term::OnDemand, price);
        }
    }
    Ok(rows)
}

/// Azure's size names start with their virtual cores: `Standard_ND96isr_H200_v5`.
fn azure_cores(size: &str) -> Option<u32> {
    let digits = size.strip_prefix("Standard_")?.trim_start_matches(|letter: char| letter.is_ascii_uppercase());
    let digits: String = digits.chars().take_while(char::is_ascii_digit).collect();
    digits.parse::<u32>().ok().map(|cores| cores * 1_000)
}

fn aws_bandwidth(facts: &mut Facts, file: &str, reader: impl Read) -> Result<(), BuildError> {
    #[derive(Deserialize)]
    struct Row {
        instance: String,
        mbps: u32,
    }
    for (at, row) in csv::Reader::from_reader(reader).into_deserialize::<Row>().enumerate() {
        let row = row.map_err(|error| BuildError::bad(file, format!("row {}", at + 1), error))?;
        let kinds: Vec<_> = facts.named("aws", &row.instance).collect();
        for kind in kinds {
            facts.type_mut(kind).network_mbps = Some(row.mbps);
        }
    }
    Ok(())
}
