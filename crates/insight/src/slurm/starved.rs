//! Who waited longest in relation to what they asked for, and who had the partition meanwhile.

use super::fields::Ended;
use super::jobs::{Job, Jobs, Name};
use serde::Serialize;
use std::collections::BTreeMap;

/// Below this a wait troubles nobody, and a shorter job is taken to ask for this much: as in bounded slowdown, or the
/// shortest jobs would lead every list.
pub const BOUND_S: u32 = 600;

/// What is taken of a job that names no limit and never ran.
const UNKNOWN_S: u32 = 3_600;

/// Users that are named as those who had the partition.
const NAMED: usize = 3;

/// A user of a partition while somebody waited for it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Holder {
    pub user: String,
    /// Of what was used in the partition meanwhile.
    pub percent: f64,
}

/// A job that waited long, for all jobs of its user, partition and kind.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Starved {
    pub job: String,
    pub user: String,
    pub account: String,
    pub partition: String,
    pub kind: String,
    pub gpus: u32,
    pub asked_s: u32,
    pub waited_s: u32,
    /// Waited over asked.
    pub ratio: f64,
    /// `started`, `waiting` or `gave-up`.
    pub outcome: &'static str,
    /// Jobs of the same user, partition and kind that waited longer than they asked to run.
    pub alike: u64,
    pub behind: Vec<Holder>,
}

struct Waited<'j> {
    job: &'j Job,
    until: u32,
    asked: u32,
    ratio: f64,
    outcome: &'static str,
}

fn waited<'j>(job: &'j Job, jobs: &Jobs, eligible_known: bool) -> Option<Waited<'j>> {
    let (until, outcome) = match job.state {
        _ if job.start > 0 => (job.start, "started"),
        // It was never in the queue: it waited for another job, or was held.
        _ if eligible_known && job.eligible == 0 => return None,
        Ended::Waiting => (jobs.last, "waiting"),
        Ended::Cancelled => (job.end, "gave-up"),
        _ => return None,
    };
    let since = job.ready();
    if since == 0 || until.saturating_sub(since) < BOUND_S {
        return None;
    }
    let asked = [job.limit, job.elapsed, UNKNOWN_S].into_iter().find(|asked| *asked > 0)?;
    let ratio = f64::from(until - since) / f64::from(asked.max(BOUND_S));
    Some(Waited { job, until, asked, ratio, outcome })
}

/// The worst of every user, partition and kind, at most `most`; and how many jobs waited longer than they asked to run.
pub fn starved(jobs: &Jobs, most: usize) -> (Vec<Starved>, u64) {
    let eligible_known = jobs.jobs.iter().any(|job| job.eligible > 0);
    let mut worst: BTreeMap<(Name, Name, Name), (Waited<'_>, u64)> = BTreeMap::new();
    let mut longer = 0;
    for seen in jobs.jobs.iter().filter_map(|job| waited(job, jobs, eligible_known)) {
        let more = u64::from(seen.ratio >= 1.0);
        longer += more;
        let key = (seen.job.user, seen.job.partition, seen.job.kind);
        match worst.get_mut(&key) {
            None => {
                worst.insert(key, (seen, more));
            }
            Some((before, alike)) => {
                *alike += more;
                if (seen.ratio, before.job.id) > (before.ratio, seen.job.id) {
                    *before = seen;
                }
            }
        }
    }
    let mut all: Vec<(Waited<'_>, u64)> = worst.into_values().collect();
    all.sort_by(|(one, _), (other, _)| other.ratio.total_cmp(&one.ratio).then(one.job.id.cmp(&other.job.id)));
    all.truncate(most);
    (all.iter().map(|(waited, alike)| tell(jobs, waited, *alike)).collect(), longer)
}

fn tell(jobs: &Jobs, waited: &Waited<'_>, alike: u64) -> Starved {
    let job = waited.job;
    let word = |name| jobs.word(name).to_owned();
    Starved {
        job: job.id.to_string(),
        user: word(job.user),
        account: word(job.account),
        partition: word(job.partition),
        kind: word(job.kind),
        gpus: job.gpus,
        asked_s: waited.asked,
        waited_s: waited.until - job.ready(),
        ratio: waited.ratio,
        outcome: waited.outcome,
        alike,
        behind: behind(jobs, job, waited.until),
    }
}

/// The users with the most use of the partition (or any of a list of them) while a job waited.
fn behind(jobs: &Jobs, job: &Job, until: u32) -> Vec<Holder> {
    let words = jobs.word(job.partition);
    let mut held: BTreeMap<Name, (u64, u64)> = BTreeMap::new();
    let alike = |other: &Job| {
        let same = other.partition == job.partition;
        other.cluster == job.cluster
            && (same || (words.contains(',') && words.split(',').any(|word| word == jobs.word(other.partition))))
    };
    for other in jobs.jobs.iter().filter(|other| other.start > 0 && other.start < until) {
        let ran = u64::from(other.ran(job.ready(), until));
        if ran > 0 && alike(other) {
            let (gpus, cpus) = held.entry(other.user).or_default();
            *gpus += ran * u64::from(other.gpus);
            *cpus += ran * u64::from(other.cpus);
        }
    }
    // A partition without GPUs is counted in cores.
    let in_gpus = held.values().any(|(gpus, _)| *gpus > 0);
    let amount = |(gpus, cpus): &(u64, u64)| if in_gpus { *gpus } else { *cpus };
    let all: u64 = held.values().map(amount).sum();
    let mut users: Vec<(Name, u64)> = held.iter().map(|(user, held)| (*user, amount(held))).collect();
    users.sort_by(|one, other| other.1.cmp(&one.1).then_with(|| jobs.word(one.0).cmp(jobs.word(other.0))));
    let named = users.into_iter().filter(|(_, amount)| *amount > 0).take(NAMED);
    named
        .map(|(user, amount)| Holder { user: jobs.word(user).to_owned(), percent: 100.0 * amount as f64 / all as f64 })
        .collect()
}
