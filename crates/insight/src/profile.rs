//! From trace files to a report: every rank on a thread of its own, then the verdict over all of them.

use crate::across;
use crate::analysis::hta::Rounding;
use crate::analysis::{Figures, figures};
use crate::rank::{like_hta, notes, rank};
use crate::read::source::Source;
use crate::read::sqlite::{Database, MAGIC};
use crate::read::{Walk, nsight, walk};
use crate::report::{Fix, Rank, Report};
use crate::roofline::{Times, roofline, sheet};
use crate::timeline::{Timeline, timeline};
use crate::trace::collect::{Budget, Collector};
use crate::trace::{Header, Program, Trace, Whose};
use crate::verdict::{Totals, Verdict, advice, savings, verdict};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use windfall_catalog::{Accelerator, Catalog};

/// Bytes of rows that all ranks together keep in memory before they go to disk.
const BUDGET: usize = 192 << 20;

/// How a profile is wanted.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Figures by HTA's definitions.
    pub like_hta: Option<Rounding>,
    /// Dollars for an hour of one accelerator.
    pub usd_an_hour: Option<f64>,
    /// The accelerator, where the trace does not say it or says it wrong.
    pub accelerator: Option<String>,
    /// Keep what pictures need.
    pub pictures: bool,
    /// Ranks at a time; as many as there are cores if none.
    pub threads: Option<usize>,
}

/// Why there is no report.
#[derive(Debug, thiserror::Error)]
pub enum ProfileError {
    #[error("{path} cannot be read")]
    Read { path: PathBuf, source: std::io::Error },
    #[error("{path} is not a profiler trace: {what}")]
    NotATrace { path: PathBuf, what: String },
    #[error("rows of {path} cannot be kept in the temporary folder")]
    Spill { path: PathBuf, source: std::io::Error },
}

/// A report and, where they were wanted, its pictures' data.
pub struct Profile {
    pub report: Report,
    /// One for each rank.
    pub timelines: Vec<Timeline>,
}

struct Analysed {
    header: Header,
    figures: Figures,
    rank: Rank,
    timeline: Option<Timeline>,
}

/// Analyses traces. Bytes that were read are added to `progress`.
pub fn profile(
    paths: &[PathBuf],
    options: &Options,
    catalog: &Catalog,
    progress: &Arc<AtomicU64>,
) -> Result<Profile, ProfileError> {
    let (mut ranks, mut failures) = (Vec::new(), Vec::new());
    for result in analyse_all(paths, options, catalog, progress) {
        match result {
            Ok(analysed) => ranks.push(analysed),
            Err(error) => failures.push(error),
        }
    }
    if ranks.is_empty()
        && let Some(error) = failures.pop()
    {
        return Err(failures.into_iter().next().unwrap_or(error));
    }
    let failures = failures.iter().map(|error| format!("left out: {error}")).collect();
    number(&mut ranks);
    let (report, timelines) = report(ranks, options, catalog, failures);
    Ok(Profile { report, timelines })
}

fn analyse_all(
    paths: &[PathBuf],
    options: &Options,
    catalog: &Catalog,
    progress: &Arc<AtomicU64>,
) -> Vec<Result<Analysed, ProfileError>> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let threads = options.threads.unwrap_or(cores).clamp(1, paths.len().max(1));
    let next = AtomicUsize::new(0);
    let work = || {
        let mut done = Vec::new();
        loop {
            let at = next.fetch_add(1, Ordering::Relaxed);
            let Some(path) = paths.get(at) else { break };
            match analyse(path, at, options, catalog, progress, Budget { bytes: BUDGET / threads }) {
                Ok(ranks) => done.extend(ranks.into_iter().map(|rank| (at, Ok(rank)))),
                Err(error) => done.push((at, Err(error))),
            }
        }
        done
    };
    let mut done = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        let joined =
            workers.into_iter().map(|worker| worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        joined.flatten().collect::<Vec<_>>()
    });
    done.sort_by_key(|(at, _)| *at);
    done.into_iter().map(|(_, result)| result).collect()
}

fn analyse(
    path: &Path,
    at: usize,
    options: &Options,
    catalog: &Catalog,
    progress: &Arc<AtomicU64>,
    budget: Budget,
) -> Result<Vec<Analysed>, ProfileError> {
    let (trace, walked) = read(path, progress, budget)?;
    if !walked.is_trace {
        let what = match walked.ending {
            crate::read::source::Ending::Corrupt(why) => why,
            crate::read::source::Ending::Truncated => "it ends before its events begin".to_owned(),
            crate::read::source::Ending::Whole => "it has no list of `traceEvents`".to_owned(),
        };
        return Err(ProfileError::NotATrace { path: path.to_owned(), what });
    }
    let file = path.display().to_string();
    let devices = trace.worked();
    // HTA takes all accelerators of a file for one.
    if devices.len() < 2 || options.like_hta.is_some() {
        return Ok(vec![analysed(&trace, Whose::All, &walked, (file, at), options, catalog)]);
    }
    let of = |device: &u16| {
        let number = trace.devices.get(usize::from(*device)).map_or(0, |device| device.number);
        let file = format!("{file} (accelerator {number})");
        analysed(&trace, Whose::One(*device), &walked, (file, at), options, catalog)
    };
    Ok(devices.iter().map(of).collect())
}

/// Reads a file into rows, whichever kind it is.
fn read(path: &Path, progress: &Arc<AtomicU64>, budget: Budget) -> Result<(Trace, Walk), ProfileError> {
    let unreadable = |source| ProfileError::Read { path: path.to_owned(), source };
    let full = |source| ProfileError::Spill { path: path.to_owned(), source };
    if !is_database(path) {
        return load(Source::open(path, progress.clone()).map_err(unreadable)?, budget).map_err(full);
    }
    let database = Database::open(path, progress.clone()).map_err(|error| match error.kind() {
        std::io::ErrorKind::InvalidData => ProfileError::NotATrace { path: path.to_owned(), what: error.to_string() },
        _ => unreadable(error),
    })?;
    let mut collector = Collector::new(budget);
    let (walked, about) = nsight::walk(database, &mut collector);
    collector.about(if about.torch { Program::Torch } else { Program::Cuda }, about.device);
    if !walked.is_trace {
        let what = "the database has no tables of Nsight Systems: export with `nsys export --type sqlite`".to_owned();
        return Err(ProfileError::NotATrace { path: path.to_owned(), what });
    }
    Ok((collector.finish().map_err(full)?, walked))
}

/// Whether a file begins as every SQLite file does.
fn is_database(path: &Path) -> bool {
    let mut begin = [0; MAGIC.len()];
    std::fs::File::open(path).is_ok_and(|mut file| std::io::Read::read_exact(&mut file, &mut begin).is_ok())
        && begin == *MAGIC
}

/// Reads a trace into rows.
pub fn load(source: Source, budget: Budget) -> std::io::Result<(Trace, Walk)> {
    let mut collector = Collector::new(budget);
    let walked = walk(source, &mut collector);
    Ok((collector.finish()?, walked))
}

fn analysed(
    trace: &Trace,
    whose: Whose,
    walked: &Walk,
    (file, at): (String, usize),
    options: &Options,
    catalog: &Catalog,
) -> Analysed {
    let figures = figures(trace, whose, options.like_hta.unwrap_or(Rounding::Exact));
    let device = options.accelerator.as_deref().or(trace.header.device.as_deref());
    let sheet = device.and_then(|device| sheet(catalog, device));
    let span_ns = match figures.steps.span_us {
        steps if steps > 0.0 => (steps * 1e3) as i64,
        _ => figures.unions.span(),
    };
    let times = Times { kernels_ns: figures.kernel_ns, products_ns: figures.product_ns, span_ns };
    let roofline = roofline(&trace.operators(whose), sheet, times);
    let notes = notes(trace, whose, walked, &figures);
    let number = trace.header.rank.unwrap_or(at as u64);
    let mut rank = rank(number, file, trace, &figures, roofline, notes);
    if options.like_hta.is_some() {
        like_hta(&mut rank, &figures.hta);
    }
    let timeline = options.pictures.then(|| timeline(trace, whose, &figures));
    Analysed { header: trace.header.clone(), figures, rank, timeline }
}

/// Ranks have numbers of their own: files that say the same one (copies, or traces of single processes) are numbered.
fn number(ranks: &mut [Analysed]) {
    let mut seen = std::collections::BTreeSet::new();
    if !ranks.iter().all(|analysed| seen.insert(analysed.rank.rank)) {
        ranks.iter_mut().enumerate().for_each(|(at, analysed)| analysed.rank.rank = at as u64);
    }
    ranks.sort_by_key(|analysed| analysed.rank.rank);
}

fn report(ranks: Vec<Analysed>, options: &Options, catalog: &Catalog, notes: Vec<String>) -> (Report, Vec<Timeline>) {
    let first = ranks.first().map(|analysed| &analysed.header);
    let device = options.accelerator.clone().or_else(|| first.and_then(|header| header.device.clone()));
    let sheet = device.as_deref().and_then(|device| sheet(catalog, device));
    let world = first.and_then(|header| header.world_size).unwrap_or(1).max(ranks.len() as u64);
    let program = first.map(|header| header.program).unwrap_or_default();
    let mut totals = Totals::of(program);
    for analysed in &ranks {
        let roofline = &analysed.rank.roofline;
        let known = roofline.known_percent / 100.0 * analysed.figures.kernel_ns as f64;
        totals.add(&analysed.figures, (known, known * roofline.memory_bound_percent.unwrap_or(0.0) / 100.0));
    }
    let reports: Vec<Rank> = ranks.iter().map(|analysed| analysed.rank.clone()).collect();
    let between_ranks = across::between(&reports);
    if let Some(between) = &between_ranks {
        totals.between(between);
    }
    let verdict = verdict(&totals, sheet);
    let steps: Vec<f64> = ranks.iter().filter_map(|analysed| analysed.rank.step_us).collect();
    let step_us = (!steps.is_empty()).then(|| steps.iter().sum::<f64>() / steps.len() as f64);
    let usd = step_us.zip(options.usd_an_hour).map(|(step, usd)| step / 1e6 / 3600.0 * 1000.0 * usd * world as f64);
    let report = Report {
        fixes: fixes(&totals, sheet, usd),
        stragglers: across::stragglers(&reports),
        between_ranks,
        notes: all_notes(&verdict, &totals, notes, device.as_deref(), sheet),
        verdict: verdict.word.to_owned(),
        because: verdict.because,
        accelerator: sheet.map(|sheet| sheet.model.clone()).or(device),
        accelerators: world,
        step_us,
        usd_per_1000_steps: usd,
        ranks: reports,
    };
    (report, ranks.into_iter().filter_map(|analysed| analysed.timeline).collect())
}

fn all_notes(
    verdict: &Verdict,
    totals: &Totals,
    mut notes: Vec<String>,
    device: Option<&str>,
    sheet: Option<&Accelerator>,
) -> Vec<String> {
    notes.extend(advice(verdict, totals));
    match device {
        Some(device) if sheet.is_none() => {
            notes.push(format!("no data sheet of `{device}` is known: say --accelerator for ceilings and MFU"));
        }
        None if totals.program == Program::Jax => {
            notes.push("traces of JAX do not name the accelerator: say --accelerator for its peaks".to_owned());
        }
        _ => {}
    }
    notes
}

fn fixes(totals: &Totals, sheet: Option<&Accelerator>, usd: Option<f64>) -> Vec<Fix> {
    let fix = |saving: crate::verdict::Saving| Fix {
        what: saving.what,
        saves_percent: 100.0 * saving.share,
        usd_per_1000_steps: usd.map(|usd| usd * saving.share),
        basis: saving.basis,
    };
    savings(totals, sheet).into_iter().map(fix).collect()
}
