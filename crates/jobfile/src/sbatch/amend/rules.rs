//! The rules, each a function of the submission and the facts to a change or none.

use super::super::values::{self, written};
use super::edit::Edit;
use super::{BatchJob, Change, Facts, Partition, evidence};
use crate::sbatch::program::is_run_by_a_shell;
use windfall_core::Span;

/// All of them, in the order in which they are shown.
pub(super) static RULES: &[fn(&BatchJob<'_>, &Facts) -> Option<Change>] =
    &[gpus, cpu_partition, time, signal, cpus_per_task, short_queue];

/// Fewer earlier jobs say nothing.
const FEWEST: u32 = 3;
/// Limits below this are not worth a word.
const SHORTEST_S: u64 = 600;
/// What a script has to save in before its end.
const SAVE_S: u64 = 120;
/// A job up to this limit may use a queue for short jobs.
const SHORT_S: u64 = 4 * 3_600;
/// A queue is clearly faster when it is so much earlier, and when the wait is at most half.
const CLEARLY_S: u64 = 600;
/// What queues for short jobs are called.
const SHORT_NAMES: &[&str] = &["debug", "short", "devel", "dev", "test", "express", "interactive", "quick"];

const GPU_OPTIONS: &[&str] = &[
    "gres",
    "gpus",
    "gpus-per-node",
    "gpus-per-task",
    "gpus-per-socket",
    "ntasks-per-gpu",
    "tres-per-task",
    "tres-per-job",
];
/// Where a person has said which machines it must be.
const PLACE_OPTIONS: &[&str] = &["partition", "clusters", "nodelist", "nodefile", "reservation", "qos"];

fn set(rule: &'static str, option: &'static str, value: String, reason: String) -> Option<Change> {
    Some(Change { rule, reason, edit: Edit::Set { option, value } })
}

fn lasting(seconds: u64) -> String {
    Span::seconds(seconds as i64).to_string()
}

impl BatchJob<'_> {
    fn above(&self) -> usize {
        self.text.get(..self.script.commands).unwrap_or_default().matches('\n').count()
    }

    /// The partition that the job goes to, where it is one.
    fn partition<'f>(&self, facts: &'f Facts) -> Option<&'f Partition> {
        match self.counts("partition") {
            Some(given) => facts.partition(given.value()),
            None => facts.partitions.iter().find(|partition| partition.is_default),
        }
    }

    fn asks_for_gpus(&self) -> bool {
        self.has(GPU_OPTIONS)
    }

    fn number(&self, name: &str) -> Option<u32> {
        self.counts(name).and_then(|given| values::count(given.value()).ok())
    }

    fn limit_s(&self) -> Option<u64> {
        let limit = values::time(self.counts("time")?.value()).ok().flatten()?;
        Some(limit.0.unsigned_abs() / 1_000)
    }

    /// Whether a partition has what the job asks for on each node.
    fn fits(&self, partition: &Partition) -> bool {
        let nodes =
            self.counts("nodes").and_then(|given| values::nodes(given.value()).ok()).map_or(1, |(least, _)| least);
        let tasks =
            self.number("ntasks-per-node").or(self.number("ntasks").map(|all| all.div_ceil(nodes))).unwrap_or(1);
        let cpus = tasks.saturating_mul(self.number("cpus-per-task").unwrap_or(1));
        let mib = |name| self.counts(name).and_then(|given| values::memory(given.value()).ok().flatten()).unwrap_or(0);
        let memory = mib("mem").max(mib("mem-per-cpu").saturating_mul(cpus.into()));
        let open = |list: &[String], name: &str| {
            list.is_empty() || self.counts(name).is_some_and(|given| list.iter().any(|one| one == given.value()))
        };
        !partition.is_restricted
            && partition.nodes >= nodes
            && partition.cpus >= cpus
            && partition.memory_mb >= memory
            && self.limit_s().is_none_or(|limit| partition.limit_s.is_none_or(|most| limit <= most))
            && open(&partition.accounts, "account")
            && open(&partition.qos, "qos")
    }
}

/// A script that uses accelerators and asks for none gets none.
fn gpus(job: &BatchJob<'_>, facts: &Facts) -> Option<Change> {
    if job.asks_for_gpus() {
        return None;
    }
    let seen = evidence::gpus(job.commands(), job.above())?;
    let partition = job.partition(facts).filter(|partition| partition.gpus >= seen.count)?;
    let reason = format!(
        "line {} says {}, and no GPU is asked for; nodes of {} have {}",
        seen.line, seen.what, partition.name, partition.gpus
    );
    set("gpus", "gres", format!("gpu:{}", seen.count), reason)
}

/// A job without accelerators blocks a node that has some.
fn cpu_partition(job: &BatchJob<'_>, facts: &Facts) -> Option<Change> {
    if job.is_chosen(PLACE_OPTIONS)
        || job.asks_for_gpus()
        || job.has(&["nodelist", "reservation", "constraint", "clusters"])
    {
        return None;
    }
    // Whether a program that is not a shell's uses accelerators cannot be seen.
    if !is_run_by_a_shell(job.text) || evidence::may_use_gpus(job.text) {
        return None;
    }
    let present = job.partition(facts).filter(|partition| partition.least_gpus > 0)?;
    let without = facts.partitions.iter().filter(|other| other.gpus == 0 && !is_for_short_jobs(&other.name));
    let other = without.filter(|other| job.fits(other)).max_by_key(|other| (other.is_default, other.nodes))?;
    let reason = format!(
        "the job asks for no GPU and uses none, and every node of {} has {} or more; {} has {} nodes without",
        present.name, present.least_gpus, other.name, other.nodes
    );
    set("cpu-partition", "partition", other.name.clone(), reason)
}

/// A limit far above what is needed keeps a job out of every gap in the queue; one below it ends the job.
fn time(job: &BatchJob<'_>, facts: &Facts) -> Option<Change> {
    if job.is_chosen(&["time", "time-min"]) || job.has(&["time-min"]) {
        return None;
    }
    let past = facts.past.filter(|past| past.jobs >= FEWEST && past.longest_s > 0)?;
    let partition = job.partition(facts);
    let most = partition.and_then(|partition| partition.limit_s).unwrap_or(u64::MAX);
    let needed =
        rounded((past.longest_s.saturating_mul(3) / 2).max(past.p95_s.saturating_mul(2)).max(SHORTEST_S)).min(most);
    // What the partition allows may be less than the margin, never less than what was seen.
    if needed < past.longest_s.saturating_mul(3) / 2 {
        return None;
    }
    let said = job.limit_s();
    let given = said.or(partition.and_then(|partition| partition.default_s.or(partition.limit_s)));
    let is_too_short = said.is_none() && given.is_some_and(|given| given < past.longest_s);
    // How long those would have run that were ended at their limit nobody knows.
    let is_too_long = past.timed_out == 0 && given.is_none_or(|given| given >= needed.saturating_mul(2));
    if !is_too_short && !is_too_long {
        return None;
    }
    let before = match (said, given) {
        (Some(said), _) => lasting(said),
        (None, Some(given)) => format!("no limit, which is {} here", lasting(given)),
        (None, None) => "no limit".to_owned(),
    };
    let reason = format!(
        "the last {} jobs of this name took {} at most, 95 % of them up to {}; the script asks for {before}",
        past.jobs,
        lasting(past.longest_s),
        lasting(past.p95_s)
    );
    set("time", "time", written(needed), reason)
}

/// Up to a number that people would write: five minutes, a quarter of an hour, an hour.
fn rounded(seconds: u64) -> u64 {
    let step = match seconds {
        0..=3_600 => 300,
        3_601..=21_600 => 900,
        _ => 3_600,
    };
    seconds.div_ceil(step).saturating_mul(step)
}

/// A script that saves when it is warned is not warned by itself.
fn signal(job: &BatchJob<'_>, facts: &Facts) -> Option<Change> {
    if job.has(&["signal"]) || !is_run_by_a_shell(job.text) {
        return None;
    }
    let (signal, line) = evidence::trap(job.commands(), job.above())?;
    let seconds = job.limit_s().map_or(SAVE_S, |limit| SAVE_S.min(limit / 10).max(30));
    let grace = match job.partition(facts) {
        Some(partition) if partition.grace_s > 0 => {
            format!("; a preempted job has {} s (GraceTime)", partition.grace_s)
        }
        _ => String::new(),
    };
    let reason = format!(
        "line {line} traps {signal}, and nothing asks Slurm for it: {seconds} s before the time limit leave time to save{grace}"
    );
    set("signal", "signal", format!("B:{signal}@{seconds}"), reason)
}

/// Since 22.05 `srun` does not know how many processors a task of its job has.
fn cpus_per_task(job: &BatchJob<'_>, facts: &Facts) -> Option<Change> {
    let cpus = job.number("cpus-per-task").filter(|cpus| *cpus > 1)?;
    if !is_run_by_a_shell(job.text) || facts.version.is_none_or(|version| version < (22, 5)) {
        return None;
    }
    let line = evidence::step_without_cpus(job.commands(), job.above())?;
    let reason = format!(
        "since Slurm 22.05 srun (line {line}) does not take --cpus-per-task={cpus} from the job: its tasks would have 1"
    );
    let line = "export SRUN_CPUS_PER_TASK=$SLURM_CPUS_PER_TASK".to_owned();
    Some(Change { rule: "cpus-per-task", reason, edit: Edit::Command { line } })
}

fn is_for_short_jobs(name: &str) -> bool {
    name.to_ascii_lowercase().split(['-', '_', '.']).any(|word| SHORT_NAMES.contains(&word))
}

/// Queues for short jobs in which this one fits.
pub(super) fn short_queues(job: &BatchJob<'_>, facts: &Facts) -> Vec<(&'static str, String)> {
    let is_short = job.limit_s().or_else(|| limit_after(job, facts)).is_some_and(|limit| limit <= SHORT_S);
    if !is_short || job.is_chosen(PLACE_OPTIONS) || job.has(&["nodelist", "reservation", "clusters", "qos", "array"]) {
        return Vec::new();
    }
    let present = job.partition(facts).map(|partition| partition.name.as_str());
    let gpus = job.asks_for_gpus() || evidence::may_use_gpus(job.text);
    let short = facts.partitions.iter().filter(|partition| is_for_short_jobs(&partition.name));
    let short = short.filter(|partition| present != Some(partition.name.as_str()) && job.fits(partition));
    let short =
        short.filter(|partition| (partition.gpus > 0) == gpus).map(|partition| ("partition", partition.name.clone()));
    let qos = facts.qos.iter().filter(|qos| is_for_short_jobs(qos)).map(|qos| ("qos", qos.clone()));
    short.chain(qos).take(4).collect()
}

/// The limit that the job will have where the rules give it one.
fn limit_after(job: &BatchJob<'_>, facts: &Facts) -> Option<u64> {
    let Edit::Set { value, .. } = time(job, facts)?.edit else { return None };
    values::time(&value).ok().flatten().map(|limit| limit.0.unsigned_abs() / 1_000)
}

fn short_queue(job: &BatchJob<'_>, facts: &Facts) -> Option<Change> {
    let present = facts.trials.iter().find(|trial| trial.option.is_none())?;
    let worth = short_queues(job, facts);
    let others = facts.trials.iter().filter_map(|trial| Some((trial.option.clone()?, trial.wait_s)));
    let ((option, value), wait) = others.filter(|(other, _)| worth.contains(other)).min_by_key(|(_, wait)| *wait)?;
    let is_clear = present.wait_s >= wait.saturating_add(CLEARLY_S) && wait <= present.wait_s / 2;
    let reason = format!(
        "sbatch --test-only: {option} {value} begins it in {}, in place of {}",
        lasting(wait),
        lasting(present.wait_s)
    );
    is_clear.then(|| set("short-queue", option, value, reason)).flatten()
}
