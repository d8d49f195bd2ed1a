//! The report: figures of the whole time, of the time before and after a date, and what follows from them.

use super::advice::{Advice, advice};
use super::fields::date;
use super::figures::{Prices, Window};
use super::part::{Part, part};
use super::read::{Reading, Refused};
use super::shares::Shares;
use super::starved::{Starved, starved};
use serde::Serialize;

/// The version of the report's JSON: it changes when a key goes away or means something else.
pub const SCHEMA: &str = "windfall.slurm-report.v1";

/// What is asked of a report.
#[derive(Clone, Debug, Default)]
pub struct Options {
    pub prices: Prices,
    /// Seconds since 1970; only what ran, waited or ended between them counts.
    pub since: Option<u32>,
    pub until: Option<u32>,
    /// Before and after this moment.
    pub split: Option<u32>,
    pub shares: Option<Shares>,
    /// Rows of the list of those who waited longest.
    pub starved: usize,
}

/// What was read.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Read {
    pub lines: u64,
    pub runs: u64,
    pub steps: u64,
    pub refused: u64,
    pub examples: Vec<Refused>,
    /// Fields that some dump does not have.
    pub missing: Vec<&'static str>,
}

/// Before and after a date. Hours are cut at it; a job counts where it was submitted.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Split {
    pub at: String,
    pub before: Part,
    pub after: Part,
}

/// All of it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    pub schema: &'static str,
    pub read: Read,
    pub whole: Part,
    pub split: Option<Split>,
    pub starved: Vec<Starved>,
    /// Jobs that waited longer than they asked to run, and longer than ten minutes.
    pub waited_longer_than_asked: u64,
    pub advice: Vec<Advice>,
    pub notes: Vec<String>,
}

/// Makes the report of what was read.
pub fn report(mut reading: Reading, options: &Options) -> Report {
    reading.finish();
    let read = Read {
        lines: reading.lines,
        runs: reading.jobs.jobs.len() as u64,
        steps: reading.jobs.steps,
        refused: reading.refused,
        examples: reading.examples,
        missing: reading.missing,
    };
    let mut jobs = reading.jobs;
    let (since, until) = (options.since.unwrap_or(0), options.until.unwrap_or(u32::MAX));
    let last = jobs.last.min(until);
    jobs.last = last;
    jobs.jobs.retain(|job| {
        let first = if job.submit > 0 { job.submit } else { job.start };
        let end = if job.end > 0 { job.end } else { last };
        first < until && end >= since
    });
    let first = jobs.jobs.iter().filter_map(|job| [job.submit, job.start].into_iter().filter(|at| *at > 0).min()).min();
    let first = options.since.or(first).unwrap_or(last);
    let whole = Window { from: since, to: until, ..Window::ALL };
    let part_of = |window: &Window, from, to| part(&jobs, window, &options.prices, options.shares.as_ref(), (from, to));
    let split = options.split.map(|at| Split {
        at: date(at),
        before: part_of(&Window { to: at.min(until), submitted_before: at, ..whole }, first, at),
        after: part_of(&Window { from: at.max(since), submitted_from: at, ..whole }, at, last),
    });
    let (starved, longer) = starved(&jobs, options.starved);
    let whole = part_of(&whole, first, last);
    Report {
        schema: SCHEMA,
        advice: advice(&whole, &starved, longer),
        read,
        whole,
        split,
        starved,
        waited_longer_than_asked: longer,
        notes: Vec::new(),
    }
}
