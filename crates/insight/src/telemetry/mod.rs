//! What GPUs do, from readings of them: logs of `nvidia-smi --query-gpu` and `dmon`, of `dcgmi dmon`, scrapes of dcgm-exporter, and
//! readings that somebody takes now. Read line by line; memory grows with GPUs and phases. Memory that is held is told as memory,
//! never as utilisation.

mod class;
mod clock;
mod dcgm;
mod dmon;
mod report;
mod sample;
mod smi;
mod stretch;
mod text;

pub use class::{Class, Evidence, Means, class};
pub use dcgm::Dcgm;
pub use report::{GpuClass, GpuLine, GpuPhase, GpuReport};
pub use sample::{Sample, Which};
pub use text::{TopProcess, screen, top};

use crate::read::lines::{Read, lines};
use crate::read::source::{Ending, Source};
use dmon::Dmon;
use report::line_of;
use smi::Smi;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use stretch::Stretch;
use windfall_catalog::Catalog;

/// GPUs that one log may name; a log with more is none.
const GPUS: usize = 4_096;
/// Lines that cannot be read and are named.
const NAMED: u64 = 3;

/// How logs are read.
#[derive(Clone, Debug)]
pub struct GpuOptions {
    /// How long a stretch of time is looked at together, in seconds.
    pub window_s: f64,
    /// How far readings without a time are apart, in seconds.
    pub every_s: f64,
    /// Names of columns of a log without a header.
    pub columns: Vec<String>,
    /// Dollars for an hour of one GPU.
    pub usd_an_hour: Option<f64>,
    /// The model, where the log does not say it.
    pub accelerator: Option<String>,
}

impl Default for GpuOptions {
    fn default() -> GpuOptions {
        GpuOptions { window_s: 2.0, every_s: 1.0, columns: Vec::new(), usd_an_hour: None, accelerator: None }
    }
}

/// Why there is no report.
#[derive(Debug, thiserror::Error)]
pub enum GpuError {
    #[error("{path} cannot be read")]
    Read { path: PathBuf, source: std::io::Error },
    #[error("{path}: line {line} is no reading of a GPU, and there is none before it")]
    NoReading { path: PathBuf, line: u64 },
    #[error("{path} has no readings of a GPU")]
    Empty { path: PathBuf },
    #[error("{path} does not name its columns")]
    NoHeader { path: PathBuf },
    #[error("nvidia-smi has no column `{name}`")]
    NoColumn { name: String },
    #[error("{path} names more than {GPUS} GPUs")]
    TooMany { path: PathBuf },
}

/// Readings of many GPUs while they come.
#[derive(Debug)]
pub struct Watch<'c> {
    options: GpuOptions,
    catalog: &'c Catalog,
    gpus: BTreeMap<String, (Which, Stretch)>,
    /// The last reading of each.
    now: BTreeMap<String, Sample>,
}

impl<'c> Watch<'c> {
    /// Nothing yet. Data sheets say what a GPU may draw where its readings do not.
    pub fn new(options: GpuOptions, catalog: &'c Catalog) -> Watch<'c> {
        Watch { options, catalog, gpus: BTreeMap::new(), now: BTreeMap::new() }
    }

    /// Takes a reading; false where there are too many GPUs.
    pub fn add(&mut self, which: Which, sample: &Sample) -> bool {
        if !self.gpus.contains_key(&which.key) {
            if self.gpus.len() >= GPUS {
                return false;
            }
            let model = which.name.as_deref().or(self.options.accelerator.as_deref());
            let sheet = model.and_then(|model| crate::roofline::sheet(self.catalog, model));
            let limit_w = sheet.and_then(|sheet| sheet.power_w).map(f64::from);
            let stretch = Stretch::new(self.options.window_s, self.options.every_s, limit_w);
            self.gpus.insert(which.key.clone(), (which.clone(), stretch));
        }
        if let Some((known, stretch)) = self.gpus.get_mut(&which.key) {
            known.user = which.user;
            stretch.add(sample);
            self.now.insert(which.key, *sample);
        }
        true
    }

    /// The last reading of each GPU, with what it does by that reading alone.
    pub fn now(&self) -> Vec<(&Which, &Sample, Class)> {
        let known = self.now.iter().filter_map(|(key, sample)| Some((self.gpus.get(key)?, sample)));
        known
            .map(|((which, stretch), sample)| {
                let power = sample.power_w.zip(stretch.limit_w()).map(|(power, limit)| power / limit);
                let means = Means {
                    busy: sample.busy_percent,
                    sm: sample.sm_percent,
                    tensor: sample.tensor_percent,
                    dram: sample.dram_percent,
                    memory_used_bytes: sample.memory_used_bytes,
                    power,
                    empty: 0.0,
                    turns: 0,
                };
                (which, sample, class(&means).0)
            })
            .collect()
    }

    /// What was seen, as a report.
    pub fn report(mut self, notes: Vec<String>) -> GpuReport {
        let price = self.options.usd_an_hour;
        let last = std::mem::take(&mut self.now);
        let gpus = self.gpus.into_iter().map(|(key, (which, mut stretch))| {
            stretch.end();
            line_of(which, &stretch, last.get(&key), price)
        });
        GpuReport::of(gpus.collect(), notes)
    }
}

/// Reads logs, one after the other. Bytes that were read are added to `progress`.
pub fn report(
    paths: &[PathBuf],
    options: &GpuOptions,
    catalog: &Catalog,
    progress: &Arc<AtomicU64>,
) -> Result<GpuReport, GpuError> {
    let mut watch = Watch::new(options.clone(), catalog);
    let mut notes = Vec::new();
    for path in paths {
        read(path, &mut watch, &mut notes, progress)?;
    }
    Ok(watch.report(notes))
}

/// Which program wrote a log, known by its first lines.
enum Log {
    Smi(Smi),
    Dmon(Dmon),
    Dcgm(Dcgm),
}

fn read(
    path: &Path,
    watch: &mut Watch<'_>,
    notes: &mut Vec<String>,
    progress: &Arc<AtomicU64>,
) -> Result<(), GpuError> {
    let path = || path.to_owned();
    let source = Source::open(&path(), progress.clone()).map_err(|source| GpuError::Read { path: path(), source })?;
    let mut log = match watch.options.columns.as_slice() {
        [] => None,
        columns => Some(Log::Smi(Smi::with_columns(columns).map_err(|name| GpuError::NoColumn { name })?)),
    };
    let (mut readings, mut refused, mut number, mut first_refused) = (0u64, 0u64, 0u64, Vec::new());
    let mut failed = None;
    let mut nameless = false;
    let mut several = true;
    let ended = lines(source, |line| {
        number += 1;
        let line = line.trim_start_matches('\u{feff}').trim();
        if line.is_empty() || failed.is_some() {
            return;
        }
        let log = match &mut log {
            Some(log) => log,
            None => match begin(line) {
                Some(begun) => log.insert(begun),
                None => {
                    nameless |= looks_like_values(line);
                    refused += 1;
                    first_refused.push(number);
                    return;
                }
            },
        };
        let mut take = |which: Which, sample: Sample| {
            nameless |= which.index.is_none() && which.uuid.is_none() && which.key == "0";
            readings += 1;
            several &= watch.add(which, &sample);
        };
        let understood = match log {
            Log::Smi(smi) => smi.line(line, &mut take),
            Log::Dmon(dmon) => dmon.line(line, &mut take),
            Log::Dcgm(dcgm) => dcgm.line(line),
        };
        if understood.is_none() {
            refused += 1;
            if first_refused.len() < NAMED as usize {
                first_refused.push(number);
            }
        }
        if !several {
            failed = Some(GpuError::TooMany { path: path() });
        }
    });
    if let Some(error) = failed {
        return Err(error);
    }
    if let Some(Log::Dcgm(dcgm)) = log {
        if dcgm.blanks > 0 {
            notes.push(format!("{}: {} values are blank and not counted", path().display(), dcgm.blanks));
        }
        for (which, sample) in dcgm.samples(None) {
            readings += 1;
            watch.add(which, &sample);
        }
    }
    if readings == 0 {
        return Err(match first_refused.first() {
            Some(_) if nameless => GpuError::NoHeader { path: path() },
            Some(line) => GpuError::NoReading { path: path(), line: *line },
            None => GpuError::Empty { path: path() },
        });
    }
    note(&path(), &ended, refused, &first_refused, nameless, notes);
    Ok(())
}

fn note(path: &Path, ended: &Read, refused: u64, first: &[u64], nameless: bool, notes: &mut Vec<String>) {
    let name = path.display();
    match &ended.ending {
        Ending::Whole => {}
        Ending::Truncated => notes.push(format!("{name} ends early: what came before is counted")),
        Ending::Corrupt(why) => notes.push(format!("{name} cannot be read to its end: {why}")),
    }
    if refused > 0 {
        let first: Vec<String> = first.iter().take(NAMED as usize).map(u64::to_string).collect();
        let lines = if refused == 1 { "line is" } else { "lines are" };
        notes.push(format!("{name}: {refused} {lines} no reading and left out (line {})", first.join(", ")));
    }
    if nameless {
        notes.push(format!("{name} does not say which GPU a line is of: all lines are taken for one GPU's"));
    }
    if ended.too_long > 0 {
        notes.push(format!("{name}: {} lines were too long and are left out", ended.too_long));
    }
}

fn begin(line: &str) -> Option<Log> {
    // An exporter explains its metrics in lines that begin as dmon's headers do.
    if Dcgm::is_line(line) {
        return Some(Log::Dcgm(Dcgm::default()));
    }
    if Dmon::is_header(line) {
        return Some(Log::Dmon(Dmon::default()));
    }
    Smi::is_header(line).then(|| Log::Smi(Smi::default()))
}

/// `52, 100 %, 1632 MiB`: values whose header was left out.
fn looks_like_values(line: &str) -> bool {
    let number = |field: &str| field.split_whitespace().next().is_some_and(|word| word.parse::<f64>().is_ok());
    line.contains(',') && line.split(',').filter(|field| number(field)).count() >= 2
}
