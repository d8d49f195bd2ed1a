//! Runs worlds, and makes what broke a law as small as it gets: fewer jobs, then fewer faults.

use crate::driver::{Broken, How, WorldRun};
use crate::planted::Bug;
use crate::report::{Found, PlantedResult, Report};
use crate::{LAWS, Options};
use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Instant;

/// Re-runs that a shrink may take.
const TRIES: u32 = 120;
/// Lines of a shrunk story that are kept.
const STORY: usize = 400;

/// Lives a world; a panic is a broken law too.
fn live(how: &How) -> (WorldRun, Option<Broken>) {
    let mut life = WorldRun::new(how.clone());
    let lived = catch_unwind(AssertUnwindSafe(|| life.live()));
    let broken = match lived {
        Ok(()) => life.broken.clone(),
        Err(panic) => {
            let text = panic.downcast_ref::<String>().cloned();
            let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
            Some(Broken { law: 12, what: format!("panic: {}", text.unwrap_or_default()), step: life.steps })
        }
    };
    (life, broken)
}

fn how(options: &Options, seed: u64) -> How {
    How { seed, steps: options.steps_per_world, bug: options.bug, ..How::default() }
}

/// Explores worlds until the seeds or the time are used up, or a law is broken.
pub fn explore(options: &Options) -> Report {
    let began = Instant::now();
    let mut report = Report::default();
    for seed in options.seeds.clone() {
        if options.time.is_some_and(|time| began.elapsed() >= time) {
            break;
        }
        let how = how(options, seed);
        let (life, broken) = live(&how);
        report.count(&life);
        if let Some(broken) = broken {
            report.found = Some(found(&how, broken, options.shrink));
            break;
        }
        if seed % 64 == 0 {
            let again = live(&how).0;
            if again.audit.digest != life.audit.digest {
                let what = "the same seed gave another log".to_owned();
                report.found = Some(found(&how, Broken { law: 11, what, step: life.steps }, false));
                break;
            }
        }
    }
    report.seconds = began.elapsed().as_secs_f64();
    report
}

/// Replays one world and tells its story.
pub fn replay(seed: u64, options: &Options) -> (Report, Vec<String>) {
    let began = Instant::now();
    let how = How { trace: true, ..how(options, seed) };
    let (life, broken) = live(&how);
    let mut report = Report { seconds: began.elapsed().as_secs_f64(), ..Report::default() };
    report.count(&life);
    report.found = broken.map(|broken| found(&how, broken, options.shrink));
    let story = life.shared.world().trace.take().unwrap_or_default();
    (report, story)
}

/// A number that stands for every byte of a world's log.
pub fn log_digest(seed: u64, options: &Options) -> u64 {
    live(&how(options, seed)).0.audit.digest
}

fn found(how: &How, broken: Broken, shrink: bool) -> Found {
    let (mut small, mut last) = (how.clone(), broken.clone());
    if shrink {
        (small, last) = shrunk(how, &broken);
    }
    small.trace = true;
    let (life, _) = live(&small);
    let world = life.shared.world();
    let faults = world.faults.struck.iter();
    let faults = faults.map(|struck| format!("{} at {} (chance {})", struck.kind.name(), struck.at.0, struck.index));
    let story = world.trace.clone().unwrap_or_default();
    let skip = story.len().saturating_sub(STORY);
    let law = LAWS.iter().find(|(number, _)| *number == broken.law).map_or("", |(_, text)| *text);
    Found {
        seed: how.seed,
        law: broken.law,
        law_text: law.to_owned(),
        what: broken.what,
        step: broken.step,
        shrunk_to: last.what,
        shrunk_step: last.step,
        jobs: small.only_jobs.map(|jobs| jobs.into_iter().collect()),
        faults: faults.collect(),
        story: story[skip..].to_vec(),
    }
}

fn shrunk(how: &How, broken: &Broken) -> (How, Broken) {
    let mut best = How { steps: broken.step.min(how.steps), ..how.clone() };
    let mut last = broken.clone();
    let mut tries = TRIES;
    let mut attempt = |candidate: &How| -> Option<Broken> {
        tries = tries.checked_sub(1)?;
        live(candidate).1.filter(|found| found.law == broken.law)
    };
    match attempt(&best) {
        Some(found) => last = found,
        None => best.steps = how.steps,
    }
    let jobs: BTreeSet<usize> = (0..4).collect();
    for job in 0..4 {
        let mut fewer = best.only_jobs.clone().unwrap_or_else(|| jobs.clone());
        fewer.remove(&job);
        let candidate = How { only_jobs: Some(fewer), ..best.clone() };
        if let Some(found) = attempt(&candidate) {
            (best, last) = (candidate, found);
        }
    }
    let (life, _) = live(&best);
    let mut faults: Vec<u64> = life.shared.world().faults.struck.iter().map(|struck| struck.index).collect();
    let mut chunk = faults.len();
    while chunk > 0 {
        let mut start = 0;
        while start < faults.len() {
            let end = (start + chunk).min(faults.len());
            let fewer: Vec<u64> = faults[..start].iter().chain(&faults[end..]).copied().collect();
            let candidate = How { only_faults: Some(fewer.iter().copied().collect()), ..best.clone() };
            match attempt(&candidate) {
                Some(found) => {
                    (best, last) = (candidate, found);
                    faults = fewer;
                }
                None => start = end,
            }
        }
        chunk /= 2;
    }
    (best, last)
}

/// Plants each bug and looks for it in at most `worlds` worlds.
pub fn planted(bugs: &[Bug], worlds: u64, steps_per_world: u64) -> Vec<PlantedResult> {
    let plant = |bug: &Bug| {
        let bug = *bug;
        let options = Options { seeds: 0..worlds, steps_per_world, bug: Some(bug), shrink: false, time: None };
        let report = explore(&options);
        PlantedResult {
            bug,
            caught_by: report.found.as_ref().map(|found| found.law),
            what: report.found.map(|found| found.what).unwrap_or_default(),
            worlds: report.worlds,
            steps: report.steps,
            seconds: report.seconds,
        }
    };
    bugs.iter().map(plant).collect()
}
