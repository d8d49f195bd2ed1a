//! Measurements of single kernels by Nsight Compute (`ncu --csv`, details or raw page): what limits each kernel, and how far it
//! is from what the accelerator can do. Runs of a kernel are added up as they are read; memory grows with distinct kernels.

mod csv;
mod limit;
mod metrics;
mod roof;
mod text;

pub use limit::Limit;
pub use roof::roofline;
pub use text::screen;

use crate::read::lines::{Read, lines};
use crate::read::source::{Ending, Source};
use crate::trace::kernel::short;
use csv::{Records, number};
use limit::Throughputs;
use metrics::{Page, Run};
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

/// What the measurements say.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct NcuReport {
    /// What limits most of the time: a word of [`Limit`], or `unknown`.
    pub verdict: String,
    pub because: String,
    /// What would pay, most first.
    pub fixes: Vec<String>,
    pub accelerator: Option<String>,
    pub total_us: f64,
    /// By time, most first.
    pub kernels: Vec<NcuKernel>,
    pub notes: Vec<String>,
}

/// All runs of one kernel. Shares are percent of what the hardware can do, weighted by time.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct NcuKernel {
    pub name: String,
    pub short: String,
    pub runs: u64,
    pub total_us: f64,
    /// Share of the time of all kernels.
    pub percent: f64,
    pub limit: Limit,
    pub says: String,
    pub sm_percent: Option<f64>,
    pub memory_percent: Option<f64>,
    pub dram_percent: Option<f64>,
    pub tensor_percent: Option<f64>,
    pub occupancy_percent: Option<f64>,
    /// What registers, shared memory and blocks allow.
    pub occupancy_limit_percent: Option<f64>,
    /// How often the grid fills the accelerator.
    pub waves: Option<f64>,
    pub registers: Option<f64>,
    pub tflops: Option<f64>,
    /// Arithmetic for each byte of the accelerator's memory that moved.
    pub flop_per_byte: Option<f64>,
    pub bandwidth_gb_s: Option<f64>,
    /// What Nsight Compute itself advises, and the percent that it promises.
    pub advice: Option<String>,
    pub advice_percent: Option<f64>,
}

/// Why there is no report.
#[derive(Debug, thiserror::Error)]
pub enum NcuError {
    #[error("{path} cannot be read")]
    Read { path: PathBuf, source: std::io::Error },
    #[error("{path} is no table of Nsight Compute: write one with `ncu --csv --page raw` or `--page details`")]
    NoTable { path: PathBuf },
}

/// Reads tables. Bytes that were read are added to `progress`.
pub fn report(paths: &[PathBuf], progress: &Arc<AtomicU64>) -> Result<NcuReport, NcuError> {
    let mut sums = Sums::default();
    let mut notes = Vec::new();
    for path in paths {
        let read = read(path, &mut sums, progress)?;
        let name = path.display();
        match read.ending {
            Ending::Whole => {}
            Ending::Truncated => notes.push(format!("{name} ends early: what came before is counted")),
            Ending::Corrupt(why) => notes.push(format!("{name} cannot be read to its end: {why}")),
        }
        if read.too_long > 0 {
            notes.push(format!("{name}: {} lines were too long and are left out", read.too_long));
        }
    }
    Ok(sums.report(notes))
}

fn read(path: &Path, sums: &mut Sums, progress: &Arc<AtomicU64>) -> Result<Read, NcuError> {
    let unreadable = |source| NcuError::Read { path: path.to_owned(), source };
    let source = Source::open(path, progress.clone()).map_err(unreadable)?;
    let mut table = Table::default();
    let mut records = Records::default();
    let read = lines(source, |line| records.line(line, |fields| table.record(fields, sums)));
    table.close(sums);
    if table.page.is_none() {
        return Err(NcuError::NoTable { path: path.to_owned() });
    }
    Ok(read)
}

/// A table while it is read.
#[derive(Default)]
struct Table {
    page: Option<Page>,
    /// The run whose rows come now, by its number and process.
    open: Option<((String, String), Run)>,
}

impl Table {
    fn record(&mut self, fields: &[String], sums: &mut Sums) {
        if let Some(page) = Page::of(fields) {
            self.close(sums);
            self.page = Some(page);
            return;
        }
        match &mut self.page {
            None => {}
            Some(Page::Raw { units, .. }) if units.is_empty() => *units = fields.to_vec(),
            Some(Page::Raw { kernel, names, units }) => sums.add(Run::raw(*kernel, names, units, fields)),
            Some(Page::Details { kernel, id, process, section, metric, unit, value, rule }) => {
                let get = |at: usize| fields.get(at).map_or("", String::as_str);
                let key = (get(*id).to_owned(), get(*process).to_owned());
                if self.open.as_ref().is_none_or(|(open, _)| *open != key) {
                    let next = (key, Run { kernel: get(*kernel).to_owned(), ..Run::default() });
                    if let Some((_, run)) = self.open.replace(next) {
                        sums.add(run);
                    }
                }
                let Some((_, run)) = &mut self.open else { return };
                if get(*metric).is_empty() {
                    let Some((name, kind, gain)) = rule else { return };
                    let gain = number(get(*gain)).filter(|_| get(*kind) == "global");
                    if let Some(gain) = gain.filter(|gain| run.advice.as_ref().is_none_or(|(_, most)| gain > most)) {
                        run.advice = Some((format!("{} ({})", get(*name), get(*section)), gain));
                    }
                } else {
                    run.detail(get(*metric), get(*unit), get(*value));
                }
            }
        }
    }

    fn close(&mut self, sums: &mut Sums) {
        if let Some((_, run)) = self.open.take() {
            sums.add(run);
        }
    }
}

/// A value weighted by time.
#[derive(Clone, Copy, Debug, Default)]
struct Mean {
    sum: f64,
    weight: f64,
}

impl Mean {
    fn add(&mut self, value: Option<f64>, weight: f64) {
        if let Some(value) = value {
            self.sum += value * weight;
            self.weight += weight;
        }
    }

    fn get(self) -> Option<f64> {
        (self.weight > 0.0).then(|| self.sum / self.weight)
    }
}

/// All runs of one kernel so far.
#[derive(Clone, Debug, Default)]
struct Sum {
    runs: u64,
    total_ns: f64,
    means: [Mean; 8],
    flops: Option<f64>,
    bytes: Option<f64>,
    /// The advice that would save most, with the time.
    advice: Option<(String, f64)>,
}

/// All kernels so far.
#[derive(Default)]
struct Sums {
    /// By name and limit: the same kernel is limited by other things where it has little to do.
    kernels: BTreeMap<(String, Limit), Sum>,
    device: Option<String>,
    without_duration: u64,
}

impl Sums {
    fn add(&mut self, mut run: Run) {
        self.device = self.device.take().or(run.device.take());
        let Some(duration) = run.duration_ns.filter(|ns| *ns > 0.0 && *ns < 1e18) else {
            self.without_duration += 1;
            return;
        };
        let (limit, _) = limit::limit(&run.throughputs());
        let sum = self.kernels.entry((run.kernel, limit)).or_default();
        sum.runs += 1;
        sum.total_ns += duration;
        let values =
            [run.sm, run.memory, run.dram, run.tensor, run.occupancy, run.occupancy_limit, run.waves, run.registers];
        sum.means.iter_mut().zip(values).for_each(|(mean, value)| mean.add(value, duration));
        let plus = |sum: Option<f64>, more: Option<f64>| more.map(|more| sum.unwrap_or(0.0) + more).or(sum);
        sum.flops = plus(sum.flops, run.flops);
        sum.bytes = plus(sum.bytes, run.dram_bytes);
        let saving = run.advice.map(|(name, percent)| (name, percent / 100.0 * duration));
        let better = saving.filter(|(_, saved)| sum.advice.as_ref().is_none_or(|(_, most)| saved > most));
        sum.advice = better.or(sum.advice.take());
    }

    fn report(self, mut notes: Vec<String>) -> NcuReport {
        let total_ns: f64 = self.kernels.values().map(|sum| sum.total_ns).sum();
        let mut kernels: Vec<NcuKernel> =
            self.kernels.into_iter().map(|((name, _), sum)| kernel(name, &sum, total_ns)).collect();
        kernels.sort_by(|one, other| other.total_us.total_cmp(&one.total_us).then_with(|| one.name.cmp(&other.name)));
        if self.without_duration > 0 {
            notes.push(format!(
                "{} runs have no duration and are left out: record the section SpeedOfLight",
                self.without_duration
            ));
        }
        if kernels.iter().any(|kernel| kernel.limit == Limit::Unknown) {
            notes.push("some kernels have no throughputs: record them with `--set full`".to_owned());
        }
        if !kernels.is_empty() && kernels.iter().all(|kernel| kernel.tensor_percent.is_none()) {
            notes.push("use of tensor cores is on the raw page (`--page raw`) only".to_owned());
        }
        let (verdict, because, fixes) = limit::overall(&kernels);
        NcuReport { verdict, because, fixes, accelerator: self.device, total_us: total_ns / 1e3, kernels, notes }
    }
}

fn kernel(name: String, sum: &Sum, total_ns: f64) -> NcuKernel {
    let [sm, memory, dram, tensor, occupancy, occupancy_limit, waves, registers] = sum.means.map(Mean::get);
    let mut kernel = NcuKernel {
        short: short(&name),
        name,
        runs: sum.runs,
        total_us: sum.total_ns / 1e3,
        percent: 100.0 * sum.total_ns / total_ns,
        limit: Limit::Unknown,
        says: String::new(),
        sm_percent: sm,
        memory_percent: memory,
        dram_percent: dram,
        tensor_percent: tensor,
        occupancy_percent: occupancy,
        occupancy_limit_percent: occupancy_limit,
        waves,
        registers,
        tflops: sum.flops.map(|flops| flops / sum.total_ns / 1e3),
        flop_per_byte: sum.flops.zip(sum.bytes).filter(|(_, bytes)| *bytes > 0.0).map(|(flops, bytes)| flops / bytes),
        bandwidth_gb_s: sum.bytes.map(|bytes| bytes / sum.total_ns),
        advice: sum.advice.as_ref().map(|(name, _)| name.clone()),
        advice_percent: sum.advice.as_ref().map(|(_, saved)| 100.0 * saved / sum.total_ns),
    };
    (kernel.limit, kernel.says) =
        limit::limit(&Throughputs { sm, memory, dram, tensor, occupancy, occupancy_limit, waves });
    kernel
}
