//! A catalogue from a folder of files in the providers' own formats and in SkyPilot's.
//!
//! Files are told apart by what is in them. Full lists (offer files, price pages, SKU lists, instance types, SkyPilot's
//! files) replace what was known of their cloud in the regions and markets they name; spot price histories and the
//! Spot Advisor's bands are added. What no file speaks about is kept.

use super::doubt::{self, Dropped};
use super::gcp_skus::Parts;
use super::read::{Watcher, open};
use super::rows::Rows;
use super::{advisor, aws_bulk, aws_spot, azure_retail, lambda, skypilot};
use crate::catalog::Catalog;
use crate::error::BuildError;
use crate::facts::{Facts, SourceId, TypeId};
use crate::words::{Source, Term};
use std::collections::BTreeSet;
use std::io::Read;
use std::path::{Path, PathBuf};
use windfall_core::NanoUsd;

/// A file that was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileRead {
    pub name: String,
    /// What it is.
    pub format: &'static str,
    /// How many prices it gave.
    pub prices: usize,
    /// The day they were true.
    pub as_of: String,
}

/// A catalogue, not yet written.
#[derive(Debug)]
pub struct Built {
    /// As it is stored.
    pub bytes: Vec<u8>,
    /// Files that were read.
    pub files: Vec<FileRead>,
    /// Files in no known format.
    pub skipped: Vec<String>,
    /// Prices that were not believed.
    pub dropped: Vec<Dropped>,
}

/// What a file is, by its first bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    SkyPilot,
    AwsBulk,
    AwsSpot,
    SpotAdvisor,
    GcpSkus,
    AzureRetail,
    Lambda,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Kind::SkyPilot => "SkyPilot catalogue",
            Kind::AwsBulk => "AWS bulk offer file",
            Kind::AwsSpot => "AWS spot price history",
            Kind::SpotAdvisor => "AWS Spot Advisor",
            Kind::GcpSkus => "Google Cloud SKU list",
            Kind::AzureRetail => "Azure retail prices",
            Kind::Lambda => "Lambda instance types",
        }
    }

    fn cloud(self) -> Option<&'static str> {
        match self {
            Kind::SkyPilot => None,
            Kind::AwsBulk | Kind::AwsSpot | Kind::SpotAdvisor => Some("aws"),
            Kind::GcpSkus => Some("gcp"),
            Kind::AzureRetail => Some("azure"),
            Kind::Lambda => Some("lambda"),
        }
    }

    /// Whether a file lists all there is, so that what it does not list is gone.
    fn is_complete(self) -> bool {
        !matches!(self, Kind::AwsSpot | Kind::SpotAdvisor)
    }
}

/// Prices that a file gave.
struct Batch {
    cloud: String,
    kind: Kind,
    rows: Rows,
    file: FileRead,
}

/// Builds a catalogue on top of `start` from the files of a folder.
pub fn build(start: Catalog, folder: &Path, watcher: Watcher<'_>) -> Result<Built, BuildError> {
    let mut facts = Facts::from_catalog(&start);
    let mut batches = Vec::new();
    let mut skipped = Vec::new();
    let mut google: Option<(Parts, FileRead)> = None;
    for path in files(folder)? {
        let name = path.strip_prefix(folder).unwrap_or(&path).display().to_string();
        let Some(kind) = sniff(&path, &name)? else {
            skipped.push(name);
            continue;
        };
        let mut reader = open(&path, &name, &mut *watcher)?;
        if kind == Kind::GcpSkus {
            let page = (
                Parts::default(),
                FileRead { name: name.clone(), format: kind.name(), prices: 0, as_of: String::new() },
            );
            let (parts, _) = google.get_or_insert(page);
            parts.read(&name, &mut reader)?;
            continue;
        }
        let (cloud, rows, told) = read_one(&mut facts, kind, &path, &name, &mut reader)?;
        let as_of = match told {
            Some(day) => day,
            None => date_in(&name).map_or_else(|| modified(&path), Ok)?,
        };
        drop(reader);
        let file = FileRead { name, format: kind.name(), prices: rows.len(), as_of };
        batches.push(Batch { cloud, kind, rows, file });
    }
    if let Some((parts, mut file)) = google {
        let rows = parts.compose(&facts);
        file.prices = rows.len();
        file.as_of = parts.as_of.unwrap_or_else(|| "unknown".to_owned());
        batches.push(Batch { cloud: "gcp".to_owned(), kind: Kind::GcpSkus, rows, file });
    }
    if batches.is_empty() {
        return Err(BuildError::Empty { path: folder.to_owned() });
    }
    let mut dropped = settle(&mut facts, &mut batches);
    dropped.extend(doubt::sift(&mut facts));
    let files = batches.into_iter().map(|batch| batch.file).collect();
    Ok(Built { bytes: crate::format::encode(&facts), files, skipped, dropped })
}

/// Full lists replace what was there, and end what they do not have; prices with Windows in them are not taken.
fn settle(facts: &mut Facts, batches: &mut [Batch]) -> Vec<Dropped> {
    let mut dropped = Vec::new();
    let mut withheld = Vec::new();
    for batch in batches.iter_mut().filter(|batch| batch.kind == Kind::AzureRetail) {
        let on_demand = batch.rows.prices().filter(|(_, _, term, _)| *term == Term::OnDemand);
        let windows = doubt::with_windows(facts, on_demand.map(|(kind, region, _, price)| (kind, region, price)));
        let rows = batch.rows.withhold(&windows);
        dropped.extend(doubt::windows_line(facts, &rows));
        withheld.extend(rows);
    }
    // Such a size is sold, at the price that was known before.
    let kept: Vec<(TypeId, String, NanoUsd, SourceId)> = withheld
        .into_iter()
        .filter_map(|(kind, region)| {
            let (price, source) = facts.price_of(kind, &region, None, Term::OnDemand)?;
            Some((kind, region, price, source))
        })
        .collect();
    let complete = batches.iter().filter(|batch| batch.kind.is_complete());
    let replaced: BTreeSet<(String, String, Term)> = complete
        .flat_map(|batch| batch.rows.regions().map(|(region, term)| (batch.cloud.clone(), region.to_owned(), term)))
        .collect();
    facts.forget(&replaced);
    for (kind, region, price, source) in &kept {
        facts.price(*kind, region, None, Term::OnDemand, *price, *source);
    }
    for cloud in batches.iter().map(|batch| batch.cloud.clone()).collect::<BTreeSet<_>>() {
        let lists = batches.iter().filter(|batch| batch.kind.is_complete() && batch.cloud == cloud);
        let on_demand = lists.flat_map(|batch| batch.rows.prices()).filter(|(_, _, term, _)| *term == Term::OnDemand);
        let priced = on_demand.map(|(kind, region, ..)| (kind, region));
        let sold = priced.chain(kept.iter().map(|(kind, region, ..)| (*kind, region.as_str())));
        let sold = sold.filter(|(kind, _)| facts.type_of(*kind).cloud == cloud);
        let listed: BTreeSet<(String, String)> =
            sold.map(|(kind, region)| (facts.type_of(kind).name.clone(), region.to_owned())).collect();
        dropped.extend(doubt::drop_unlisted(facts, &cloud, &listed));
    }
    for batch in batches.iter() {
        let source = facts.source(own_source(&batch.file.name, batch.kind, &batch.file.as_of));
        batch.rows.tell(facts, source);
    }
    dropped
}

fn own_source(name: &str, kind: Kind, as_of: &str) -> Source {
    let own = str::to_owned;
    Source { name: own(name), what: own(kind.name()), licence: own("your file"), as_of: own(as_of) }
}

fn read_one(
    facts: &mut Facts,
    kind: Kind,
    path: &Path,
    name: &str,
    reader: &mut dyn Read,
) -> Result<(String, Rows, Option<String>), BuildError> {
    let (rows, told) = match kind {
        Kind::SkyPilot => {
            let cloud = skypilot_cloud(path).ok_or_else(|| {
                BuildError::bad(name, "path", "the cloud is not known: SkyPilot's files lie in a folder with its name")
            })?;
            let rows = skypilot::read(facts, &cloud, name, reader)?;
            return Ok((cloud, rows, None));
        }
        Kind::AwsBulk => {
            let offers = aws_bulk::read(facts, name, reader)?;
            (offers.rows, offers.as_of)
        }
        Kind::AwsSpot => {
            let reply = aws_spot::read(facts, name, reader)?;
            (reply.rows, reply.as_of)
        }
        Kind::AzureRetail => {
            let page = azure_retail::read(facts, name, reader)?;
            (page.rows, page.as_of)
        }
        Kind::Lambda => (lambda::read(facts, name, reader)?, None),
        Kind::SpotAdvisor => {
            let as_of = date_in(name).map_or_else(|| modified(path), Ok)?;
            let source = facts.source(own_source(name, kind, &as_of));
            advisor::read(facts, source, name, reader)?;
            (Rows::default(), Some(as_of))
        }
        // Pages of SKUs are put together once all are read.
        Kind::GcpSkus => (Rows::default(), None),
    };
    Ok((kind.cloud().unwrap_or_default().to_owned(), rows, told))
}

/// SkyPilot keeps `vms.csv` in a folder for each cloud; a file may also be called after its cloud.
fn skypilot_cloud(path: &Path) -> Option<String> {
    let stem = path.file_name()?.to_str()?.split('.').next()?.to_owned();
    if stem != "vms" {
        return Some(stem);
    }
    path.parent()?.file_name()?.to_str().map(str::to_owned)
}

/// Every file below a folder, sorted; links that lead in circles are not followed.
fn files(folder: &Path) -> Result<Vec<PathBuf>, BuildError> {
    let failed = |path: &Path| {
        let path = path.to_owned();
        move |source| BuildError::Read { path, source }
    };
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).map_err(failed(&folder))? {
            let entry = entry.map_err(failed(&folder))?;
            let hidden = entry.file_name().to_string_lossy().starts_with('.');
            match entry.file_type().map_err(failed(&folder))? {
                _ if hidden => {}
                kind if kind.is_dir() => folders.push(entry.path()),
                _ if entry.path().is_file() => found.push(entry.path()),
                _ => {}
            }
        }
    }
    found.sort();
    Ok(found)
}

/// Tells a format by the first kilobytes.
fn sniff(path: &Path, name: &str) -> Result<Option<Kind>, BuildError> {
    let mut quiet = super::read::nobody();
    let mut head = Vec::new();
    let reader = open(path, name, &mut quiet)?;
    // A file that cannot be unpacked is reported as broken, not skipped.
    reader.take(16 << 10).read_to_end(&mut head).map_err(|error| BuildError::bad(name, "start", error))?;
    let text = String::from_utf8_lossy(&head);
    let first_line = text.lines().next().unwrap_or_default();
    let has = |key: &str| text.contains(&format!("\"{key}\""));
    Ok(match () {
        () if first_line.contains("InstanceType") && first_line.contains("SpotPrice") => Some(Kind::SkyPilot),
        () if !text.trim_start().starts_with('{') => None,
        () if has("offerCode") => Some(Kind::AwsBulk),
        () if has("SpotPriceHistory") => Some(Kind::AwsSpot),
        () if has("instance_types") || has("spot_advisor") => Some(Kind::SpotAdvisor),
        () if has("skus") => Some(Kind::GcpSkus),
        () if has("BillingCurrency") || has("Items") => Some(Kind::AzureRetail),
        () if has("price_cents_per_hour") => Some(Kind::Lambda),
        () => None,
    })
}

/// A date in a file's name: `prices-2026-08-22.json`.
fn date_in(name: &str) -> Option<String> {
    let bytes = name.as_bytes();
    let is_date = |window: &[u8]| {
        window
            .iter()
            .enumerate()
            .all(|(at, byte)| if matches!(at, 4 | 7) { *byte == b'-' } else { byte.is_ascii_digit() })
    };
    let at = bytes.windows(10).rposition(is_date)?;
    Some(name[at..at + 10].to_owned())
}

/// The day a file was last changed.
fn modified(path: &Path) -> Result<String, BuildError> {
    let failed = |source| BuildError::Read { path: path.to_owned(), source };
    let time = std::fs::metadata(path).and_then(|meta| meta.modified()).map_err(failed)?;
    let seconds = time.duration_since(std::time::UNIX_EPOCH).map_or(0, |since| since.as_secs());
    Ok(crate::words::date_of_day((seconds / 86_400) as u32))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_found_in_names() {
        assert_eq!(date_in("aws/prices_2026-07-20.csv").as_deref(), Some("2026-07-20"));
        assert_eq!(date_in("vms.csv"), None);
    }

    #[test]
    fn a_skypilot_file_lies_in_its_cloud_s_folder() {
        assert_eq!(skypilot_cloud(Path::new("v8/aws/vms.csv.gz")).as_deref(), Some("aws"));
        assert_eq!(skypilot_cloud(Path::new("lambda.csv")).as_deref(), Some("lambda"));
    }
}
