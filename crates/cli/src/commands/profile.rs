//! `windfall profile`: where a step's time goes. Answered here, from files.

use crate::args::{LikeHta, ProfileArgs};
use crate::commands::{facts, priced};
use crate::here::Here;
use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use windfall_catalog::Catalog;
use windfall_insight::kind::{Kind, kind};
use windfall_insight::{Options, Profile, ProfileError, Rounding, diff, nccl, ncu, picture, text};
use windfall_server::client::{Code, Failure};

/// Profiles traces, or compares two.
pub fn profile(here: &Here, args: &ProfileArgs) -> Result<Code, Failure> {
    let catalog = facts::catalog(here)?;
    let (usd_an_hour, said) = priced::each(&catalog, args.price, args.instance.as_deref())?;
    let accelerator = accelerator(&catalog, args)?;
    let options = Options {
        like_hta: args.like_hta.map(|how| match how {
            LikeHta::Exact => Rounding::Exact,
            LikeHta::Rounded => Rounding::Rounded,
        }),
        usd_an_hour,
        accelerator,
        pictures: args.html.is_some(),
        threads: None,
    };
    if let [before, after] = args.diff.as_slice() {
        let before = run(&traces(std::slice::from_ref(before))?, &options, &catalog)?;
        let after = run(&traces(std::slice::from_ref(after))?, &options, &catalog)?;
        let changes = diff::diff(before.report, after.report);
        match here.json {
            true => println!("{}", json(&changes)?),
            false => print!("{}", diff::screen(&changes)),
        }
        return Ok(Code::Done);
    }
    let files = traces(&args.traces)?;
    if let Some(other) = other_kind(here, args, &files, &options, &catalog)? {
        print!("{other}");
        return Ok(Code::Done);
    }
    let mut profile = run(&files, &options, &catalog)?;
    profile.report.notes.extend(said);
    if let Some(path) = &args.html {
        write(path, &picture::page(&profile.report, &profile.timelines))?;
    }
    if let Some(path) = &args.svg {
        let drawn = profile.report.ranks.iter().find_map(|rank| picture::roof(&rank.roofline)).ok_or_else(|| {
            Failure::new(Code::BadInput, "the trace has no operators with known shapes: there is no roofline to draw")
                .hint("record the trace with `record_shapes=True`")
        })?;
        write(path, &drawn)?;
    }
    match here.json {
        true => println!("{}", json(&profile.report)?),
        false => print!("{}", text::screen(&profile.report, crate::live::size().0.clamp(72, 110))),
    }
    Ok(Code::Done)
}

/// The report on files that are no traces: logs of NCCL, or tables of Nsight Compute.
fn other_kind(
    here: &Here,
    args: &ProfileArgs,
    files: &[PathBuf],
    options: &Options,
    catalog: &Catalog,
) -> Result<Option<String>, Failure> {
    let kinds: Vec<Kind> = files.iter().map(|file| kind(file)).collect();
    let Some(first) = kinds.first().copied() else { return Ok(None) };
    if kinds.iter().any(|kind| *kind != first) {
        return Err(Failure::new(Code::BadInput, "the files are of several kinds")
            .hint("ask for traces, logs of NCCL and tables of Nsight Compute one after the other"));
    }
    let bad = |error: &dyn std::error::Error, hint: &str| {
        let source = error.source().map_or(String::new(), |source| format!(": {source}"));
        Failure::new(Code::BadInput, format!("{error}{source}")).hint(hint)
    };
    let draws = [(args.html.is_some(), "--html"), (args.svg.is_some() && first == Kind::Nccl, "--svg")];
    if let Some((_, what)) = draws.iter().find(|(asked, _)| *asked && first != Kind::Trace) {
        return Err(Failure::new(Code::BadInput, format!("{what} draws traces, and {} is none", files[0].display())));
    }
    let width = crate::live::size().0.clamp(72, 110);
    match first {
        Kind::Trace => Ok(None),
        Kind::Nccl => {
            let report = nccl::report(files, &Default::default())
                .map_err(|error| bad(&error, "write logs with NCCL_DEBUG=INFO, and NCCL_DEBUG_FILE=nccl.%h.%p.log"))?;
            Ok(Some(if here.json { format!("{}\n", json(&report)?) } else { nccl::screen(&report, width) }))
        }
        Kind::Ncu => {
            let report = ncu::report(files, &Default::default())
                .map_err(|error| bad(&error, "write a table with `ncu --import FILE --csv --page raw`"))?;
            if let Some(path) = &args.svg {
                let roofline = ncu::roofline(&report, catalog, options.accelerator.as_deref());
                let drawn = picture::roof(&roofline).ok_or_else(|| {
                    Failure::new(Code::BadInput, "the table does not count operations: there is no roofline to draw")
                        .hint("write it with `--set full` and `--page raw`, and say --accelerator")
                })?;
                write(path, &drawn)?;
            }
            Ok(Some(if here.json { format!("{}\n", json(&report)?) } else { ncu::screen(&report, width) }))
        }
    }
}

fn json(value: &impl serde::Serialize) -> Result<String, Failure> {
    serde_json::to_string(value).map_err(|error| Failure::new(Code::Bug, error.to_string()))
}

fn write(path: &Path, what: &str) -> Result<(), Failure> {
    std::fs::write(path, what)
        .map_err(|error| Failure::new(Code::BadInput, format!("{} cannot be written: {error}", path.display())))
}

/// Files to read: those that were named, and all traces of folders.
fn traces(named: &[PathBuf]) -> Result<Vec<PathBuf>, Failure> {
    let mut files = Vec::new();
    for path in named {
        if !path.is_dir() {
            files.push(path.clone());
            continue;
        }
        let unreadable = |error| Failure::new(Code::BadInput, format!("{} cannot be read: {error}", path.display()));
        let entries = std::fs::read_dir(path).map_err(unreadable)?;
        let mut found: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
        found.retain(|file| [".json", ".json.gz", ".sqlite"].iter().any(|end| file.to_string_lossy().ends_with(end)));
        found.sort();
        if found.is_empty() {
            return Err(Failure::new(Code::BadInput, format!("{} has no traces", path.display()))
                .hint("traces are files that end in .json, .json.gz or .sqlite; name logs and tables one by one"));
        }
        files.extend(found);
    }
    Ok(files)
}

/// Profiles with a line of progress on a terminal where it takes long.
fn run(paths: &[PathBuf], options: &Options, catalog: &Catalog) -> Result<Profile, Failure> {
    let progress = Arc::new(AtomicU64::new(0));
    let done = Arc::new(AtomicBool::new(false));
    let all: u64 = paths.iter().filter_map(|path| std::fs::metadata(path).ok()).map(|file| file.len()).sum();
    let teller = std::io::stderr().is_terminal().then(|| {
        let (progress, done) = (progress.clone(), done.clone());
        std::thread::spawn(move || tell(&progress, &done, all))
    });
    let profile = windfall_insight::profile(paths, options, catalog, &progress);
    done.store(true, Ordering::Relaxed);
    if let Some(teller) = teller {
        teller.thread().unpark();
        let _ = teller.join();
    }
    profile.map_err(failure)
}

/// Shows how much is read, once a second has passed.
fn tell(progress: &AtomicU64, done: &AtomicBool, all: u64) {
    let began = std::time::Instant::now();
    let mut told = false;
    while !done.load(Ordering::Relaxed) {
        std::thread::park_timeout(Duration::from_millis(250));
        let (read, passed) = (progress.load(Ordering::Relaxed), began.elapsed().as_secs_f64());
        if passed < 1.0 || read == 0 || done.load(Ordering::Relaxed) {
            continue;
        }
        let left = passed * (all.saturating_sub(read)) as f64 / read as f64;
        let share = 100.0 * read as f64 / all.max(1) as f64;
        let _ = write!(std::io::stderr(), "\rreading: {share:.0} % of {:.0} MB, {left:.0} s still  ", all as f64 / 1e6);
        told = true;
    }
    if told {
        let _ = write!(std::io::stderr(), "\r{:60}\r", "");
    }
}

fn failure(error: ProfileError) -> Failure {
    let message = match &error {
        ProfileError::Read { source, .. } | ProfileError::Spill { source, .. } => format!("{error}: {source}"),
        ProfileError::NotATrace { .. } => error.to_string(),
    };
    let hint = match &error {
        ProfileError::Read { .. } => {
            "name a trace that torch.profiler, JAX or Nsight Systems exported, or a folder of them"
        }
        ProfileError::NotATrace { .. } => {
            "a trace is what torch.profiler or jax.profiler writes (JSON with `traceEvents`, plain or gzip), or what `nsys export --type sqlite` does"
        }
        ProfileError::Spill { .. } => "TMPDIR names a folder with more room",
    };
    Failure::new(Code::BadInput, message).hint(hint)
}

/// The accelerator that was named.
fn accelerator(catalog: &Catalog, args: &ProfileArgs) -> Result<Option<String>, Failure> {
    let Some(named) = &args.accelerator else { return Ok(None) };
    priced::known(catalog, named)?;
    Ok(Some(named.clone()))
}
