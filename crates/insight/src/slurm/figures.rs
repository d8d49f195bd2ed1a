//! Figures of a set of jobs: use, waits, failures, and how much of what was asked for was used. Sums are whole numbers, so
//! that the order of jobs never shows.

use super::fields::Ended;
use super::jobs::{Job, Jobs, Name};
use serde::Serialize;
use std::collections::BTreeMap;

/// What is counted: hours between two times, and jobs that were submitted between two others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    pub from: u32,
    pub to: u32,
    pub submitted_from: u32,
    pub submitted_before: u32,
}

impl Window {
    /// Everything.
    pub const ALL: Window = Window { from: 0, to: u32::MAX, submitted_from: 0, submitted_before: u32::MAX };

    fn counts(&self, job: &Job) -> bool {
        let submitted = if job.submit > 0 { job.submit } else { job.start };
        (self.submitted_from..self.submitted_before).contains(&submitted)
    }
}

/// Dollars for an hour of one GPU, by the names that Slurm has for types.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Prices {
    /// Of every GPU whatever its type.
    pub each: Option<f64>,
    pub by_type: BTreeMap<String, f64>,
}

impl Prices {
    fn of(&self, kind: &str) -> Option<f64> {
        self.each.or_else(|| self.by_type.get(kind).copied())
    }
}

/// How values are spread, by nearest rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Spread {
    pub median_s: u32,
    pub p90_s: u32,
    pub p99_s: u32,
}

/// What was asked for and what was used, at the median of jobs.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Asked {
    /// Jobs of which both are known.
    pub jobs: u64,
    pub asked_median: f64,
    pub used_median: f64,
    /// Of everything that was asked for.
    pub used_percent: f64,
}

/// The figures of some jobs.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Figures {
    pub jobs: u64,
    pub gpu_hours: f64,
    pub cpu_hours: f64,
    /// Of all GPU-hours; of CPU-hours where nobody used a GPU.
    pub share_percent: f64,
    /// None where no price is known.
    pub usd: Option<f64>,
    /// GPU-hours without a price, which `usd` leaves out.
    pub unpriced_gpu_hours: f64,
    /// Of jobs that started: from when they could have, to when they did.
    pub wait: Option<Spread>,
    /// Jobs that had not started at the end.
    pub waiting: u64,
    /// Jobs that were cancelled before they started.
    pub gave_up: u64,
    pub completed: u64,
    pub failed: u64,
    pub timed_out: u64,
    pub preempted: u64,
    /// Failed or timed out, of all that ended.
    pub failed_percent: Option<f64>,
    pub failed_gpu_hours: f64,
    pub timed_out_gpu_hours: f64,
    /// Time limits of completed jobs, in seconds.
    pub time: Option<Asked>,
    /// GPU-hours that limits held and completed jobs did not use.
    pub unused_gpu_hours: f64,
    /// Memory in GiB; use is the largest resident size that was recorded, for every task.
    pub memory: Option<Asked>,
    /// Processor time, of what cores were held.
    pub cpu_used_percent: Option<f64>,
    /// Of GPU-hours whose utilisation was recorded; none where none was.
    pub gpu_idle_percent: Option<f64>,
    pub gpu_idle_hours: Option<f64>,
    pub gpu_recorded_hours: f64,
}

/// Sums of some jobs, from which figures are made.
#[derive(Default)]
struct Sum {
    figures: Figures,
    gpu_s: BTreeMap<Name, u64>,
    cpu_s: u64,
    waits: Vec<u32>,
    limits: Vec<(u32, u32)>,
    memory: Vec<(f32, f32)>,
    memory_asked: u64,
    memory_used: u64,
    unused_gpu_s: u64,
    failed_gpu_s: u64,
    timed_out_gpu_s: u64,
    recorded_gpu_s: u64,
    busy_percent_s: u64,
    held_cpu_s: u64,
    used_cpu_ms: u64,
}

impl Sum {
    fn add(&mut self, job: &Job, window: &Window) {
        let ran = u64::from(job.ran(window.from, window.to));
        let gpu_s = ran * u64::from(job.gpus);
        if gpu_s > 0 {
            *self.gpu_s.entry(job.gpu_type).or_default() += gpu_s;
        }
        self.cpu_s += ran * u64::from(job.cpus);
        if let Some(busy) = job.busy_percent_s.filter(|_| gpu_s > 0) {
            self.recorded_gpu_s += gpu_s;
            self.busy_percent_s += busy * ran / u64::from(job.elapsed).max(1);
        }
        if window.counts(job) {
            self.count(job);
        }
    }

    fn count(&mut self, job: &Job) {
        let figures = &mut self.figures;
        figures.jobs += 1;
        let whole_gpu_s = u64::from(job.elapsed) * u64::from(job.gpus);
        match job.state {
            Ended::Waiting => figures.waiting += 1,
            Ended::Running => {}
            Ended::Completed => figures.completed += 1,
            Ended::Failed => {
                figures.failed += 1;
                self.failed_gpu_s += whole_gpu_s;
            }
            Ended::TimedOut => {
                figures.timed_out += 1;
                self.timed_out_gpu_s += whole_gpu_s;
            }
            Ended::Cancelled if job.start == 0 => figures.gave_up += 1,
            Ended::Cancelled => {}
            Ended::Preempted => figures.preempted += 1,
        }
        self.waits.extend(job.wait());
        if job.state == Ended::Completed && job.limit > 0 && job.start > 0 {
            self.limits.push((job.limit, job.elapsed));
            self.unused_gpu_s += u64::from(job.limit.saturating_sub(job.elapsed)) * u64::from(job.gpus);
        }
        if job.elapsed > 0 {
            self.held_cpu_s += u64::from(job.elapsed) * u64::from(job.cpus);
            self.used_cpu_ms += (job.cpu_s * 1000.0) as u64;
        }
        if job.used_mib > 0.0 && job.memory_mib > 0.0 && job.elapsed > 0 {
            self.memory.push((job.memory_mib / 1024.0, job.used_mib / 1024.0));
            self.memory_asked += (f64::from(job.memory_mib) * f64::from(job.elapsed)) as u64;
            self.memory_used += (f64::from(job.used_mib.min(job.memory_mib)) * f64::from(job.elapsed)) as u64;
        }
    }

    fn figures(mut self, jobs: &Jobs, prices: &Prices) -> Figures {
        let mut figures = self.figures;
        let hours = |seconds: u64| seconds as f64 / 3600.0;
        figures.gpu_hours = hours(self.gpu_s.values().sum());
        figures.cpu_hours = hours(self.cpu_s);
        for (kind, seconds) in &self.gpu_s {
            match prices.of(jobs.word(*kind)) {
                Some(price) => *figures.usd.get_or_insert(0.0) += price * hours(*seconds),
                None => figures.unpriced_gpu_hours += hours(*seconds),
            }
        }
        figures.wait = spread(&mut self.waits);
        let ended = figures.completed + figures.failed + figures.timed_out;
        figures.failed_percent = percent((figures.failed + figures.timed_out) as f64, ended as f64);
        figures.failed_gpu_hours = hours(self.failed_gpu_s);
        figures.timed_out_gpu_hours = hours(self.timed_out_gpu_s);
        figures.unused_gpu_hours = hours(self.unused_gpu_s);
        let total = |of: fn(&(u32, u32)) -> u32| self.limits.iter().map(|pair| u64::from(of(pair))).sum::<u64>() as f64;
        let used = percent(total(|pair| pair.1), total(|pair| pair.0));
        let pairs = self.limits.iter().map(|(limit, elapsed)| (f64::from(*limit), f64::from(*elapsed)));
        figures.time = asked(pairs.collect(), used);
        let used = percent(self.memory_used as f64, self.memory_asked as f64);
        let pairs = self.memory.iter().map(|(asked, used)| (f64::from(*asked), f64::from(*used)));
        figures.memory = asked(pairs.collect(), used);
        // Without the field every job has none.
        figures.cpu_used_percent =
            percent(self.used_cpu_ms as f64 / 1000.0, self.held_cpu_s as f64).filter(|_| self.used_cpu_ms > 0);
        figures.gpu_recorded_hours = hours(self.recorded_gpu_s);
        if self.recorded_gpu_s > 0 {
            let busy = (self.busy_percent_s as f64 / 100.0).min(self.recorded_gpu_s as f64);
            let idle = self.recorded_gpu_s as f64 - busy;
            figures.gpu_idle_hours = Some(idle / 3600.0);
            figures.gpu_idle_percent = percent(idle, self.recorded_gpu_s as f64);
        }
        figures
    }
}

fn percent(part: f64, of: f64) -> Option<f64> {
    (of > 0.0).then(|| 100.0 * part / of)
}

/// The value at a rank of sorted ones: the least that so many percent of all do not exceed.
pub(super) fn at<T: Copy>(sorted: &[T], percent: usize) -> Option<T> {
    let rank = (sorted.len() * percent).div_ceil(100).max(1);
    sorted.get(rank - 1).copied()
}

fn spread(values: &mut [u32]) -> Option<Spread> {
    values.sort_unstable();
    Some(Spread { median_s: at(values, 50)?, p90_s: at(values, 90)?, p99_s: at(values, 99)? })
}

fn asked(mut pairs: Vec<(f64, f64)>, used_percent: Option<f64>) -> Option<Asked> {
    let jobs = pairs.len() as u64;
    pairs.sort_by(|one, other| one.0.total_cmp(&other.0));
    let asked_median = at(&pairs, 50)?.0;
    pairs.sort_by(|one, other| one.1.total_cmp(&other.1));
    Some(Asked { jobs, asked_median, used_median: at(&pairs, 50)?.1, used_percent: used_percent? })
}

/// The figures of all jobs.
pub fn total(jobs: &Jobs, window: &Window, prices: &Prices) -> Figures {
    let mut sum = Sum::default();
    jobs.jobs.iter().for_each(|job| sum.add(job, window));
    let mut figures = sum.figures(jobs, prices);
    figures.share_percent = 100.0;
    figures
}

/// A user, account, partition or kind of job, and its figures.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Group {
    pub name: String,
    pub figures: Figures,
}

/// The figures of every group, those with the most use first.
pub fn groups(
    jobs: &Jobs,
    window: &Window,
    prices: &Prices,
    total: &Figures,
    name: impl Fn(&Job) -> Name,
) -> Vec<Group> {
    let mut sums: BTreeMap<Name, Sum> = BTreeMap::new();
    for job in &jobs.jobs {
        sums.entry(name(job)).or_default().add(job, window);
    }
    let share = |figures: &Figures| match total.gpu_hours > 0.0 {
        true => percent(figures.gpu_hours, total.gpu_hours),
        false => percent(figures.cpu_hours, total.cpu_hours),
    };
    let mut groups: Vec<Group> = sums
        .into_iter()
        .map(|(name, sum)| {
            let mut figures = sum.figures(jobs, prices);
            figures.share_percent = share(&figures).unwrap_or(0.0);
            let word = jobs.word(name);
            Group { name: if word.is_empty() { "(none)".to_owned() } else { word.to_owned() }, figures }
        })
        .filter(|group| group.figures.jobs > 0 || group.figures.cpu_hours > 0.0 || group.figures.gpu_hours > 0.0)
        .collect();
    groups.sort_by(|one, other| {
        let use_of = |group: &Group| (group.figures.gpu_hours, group.figures.cpu_hours, group.figures.jobs as f64);
        let (one_use, other_use) = (use_of(one), use_of(other));
        let by_use = other_use.0.total_cmp(&one_use.0).then(other_use.1.total_cmp(&one_use.1));
        by_use.then(other_use.2.total_cmp(&one_use.2)).then_with(|| one.name.cmp(&other.name))
    });
    groups
}
