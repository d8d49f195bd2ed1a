//! Lines of accounting folded into jobs: about a hundred bytes are kept of each, whatever its text. Steps find their job
//! in the end, so that the order of lines does not matter; one that follows its job, as sacct writes it, is folded at once.

use super::fields::{Ended, JobId, job_id};
use std::collections::HashMap;

/// One line, or one object of JSON: a job or a step of one. What is empty or zero was not recorded.
#[derive(Clone, Debug, Default)]
pub struct Row<'t> {
    pub cluster: &'t str,
    pub id: &'t str,
    pub name: &'t str,
    pub user: &'t str,
    pub account: &'t str,
    pub partition: &'t str,
    pub state: Option<Ended>,
    pub submit: u32,
    pub eligible: u32,
    pub start: u32,
    pub end: u32,
    pub elapsed: Option<u32>,
    pub limit: u32,
    pub cpus: u32,
    pub gpus: u32,
    pub gpu_type: &'t str,
    /// Of all its nodes.
    pub memory_mib: f32,
    /// Of all tasks of a step, at most.
    pub used_mib: Option<f32>,
    pub cpu_s: f32,
    /// Utilisation of all GPUs of a step, in percent of one.
    pub gpu_percent: Option<f32>,
}

/// A name that many jobs share.
pub type Name = u32;

/// One run of a job. Times are seconds since 1970; zero is not known, or has not come.
#[derive(Clone, Debug, PartialEq)]
pub struct Job {
    pub id: JobId,
    pub cluster: Name,
    pub user: Name,
    pub account: Name,
    pub partition: Name,
    pub kind: Name,
    pub gpu_type: Name,
    pub submit: u32,
    pub eligible: u32,
    pub start: u32,
    pub end: u32,
    pub elapsed: u32,
    /// Zero: none.
    pub limit: u32,
    pub cpus: u32,
    pub gpus: u32,
    pub memory_mib: f32,
    /// Not a number: not recorded.
    pub used_mib: f32,
    pub cpu_s: f32,
    /// Percent of one GPU times seconds, over all GPUs. Whole numbers add up to the same in any order.
    pub busy_percent_s: Option<u64>,
    pub state: Ended,
    from: u16,
}

impl Job {
    /// Since when it could have started, as far as its own conditions go.
    pub fn ready(&self) -> u32 {
        if self.eligible > 0 { self.eligible } else { self.submit }
    }

    /// How long it waited, if it has started.
    pub fn wait(&self) -> Option<u32> {
        (self.start > 0 && self.ready() > 0).then(|| self.start.saturating_sub(self.ready()))
    }

    /// Seconds that it ran between two times.
    pub fn ran(&self, from: u32, to: u32) -> u32 {
        if self.start == 0 {
            // Without a start there is no telling when it was.
            return if from == 0 && to == u32::MAX { self.elapsed } else { 0 };
        }
        self.start.saturating_add(self.elapsed).min(to).saturating_sub(self.start.max(from))
    }
}

struct Step {
    id: JobId,
    cluster: Name,
    start: u32,
    elapsed: u32,
    used_mib: f32,
    gpu_percent: f32,
    from: u16,
}

/// What was read.
#[derive(Default)]
pub struct Jobs {
    pub jobs: Vec<Job>,
    /// Steps that were read.
    pub steps: u64,
    /// The last moment that a line names: what still runs or waits did so until then.
    pub last: u32,
    names: Vec<Box<str>>,
    by_name: HashMap<Box<str>, Name>,
    loose: Vec<Step>,
    from: u16,
}

impl Jobs {
    /// Nothing yet.
    pub fn new() -> Jobs {
        let mut jobs = Jobs::default();
        jobs.name("");
        jobs
    }

    /// The words of a name.
    pub fn word(&self, name: Name) -> &str {
        self.names.get(name as usize).map_or("", |word| word)
    }

    /// The types of the GPUs that jobs held, as Slurm calls them.
    pub fn gpu_types(&self) -> Vec<&str> {
        let held = self.jobs.iter().filter(|job| job.gpus > 0 && job.elapsed > 0 && job.gpu_type > 0);
        let types: std::collections::BTreeSet<&str> = held.map(|job| self.word(job.gpu_type)).collect();
        types.into_iter().collect()
    }

    fn name(&mut self, word: &str) -> Name {
        if let Some(name) = self.by_name.get(word) {
            return *name;
        }
        let name = self.names.len() as Name;
        // Anybody may name a job, and a terminal obeys control characters.
        self.names.push(word.replace(char::is_control, "?").into());
        self.by_name.insert(word.into(), name);
        name
    }

    /// What follows is another dump: its steps belong to its jobs, and a run that was in an earlier one counts once.
    pub fn next_dump(&mut self) {
        self.from = self.from.saturating_add(1);
    }

    /// Takes a line in, or says what is wrong with it.
    pub fn take(&mut self, row: &Row<'_>) -> Result<(), &'static str> {
        let (id, is_step) = job_id(row.id).ok_or("its job id cannot be read")?;
        self.take_as(id, is_step, row)
    }

    /// Takes a line in whose id is known already.
    pub fn take_as(&mut self, id: JobId, is_step: bool, row: &Row<'_>) -> Result<(), &'static str> {
        let cluster = self.name(row.cluster);
        let elapsed = match row.elapsed {
            Some(elapsed) => elapsed,
            None if row.start > 0 => row.end.saturating_sub(row.start),
            None => 0,
        };
        if is_step {
            self.steps += 1;
            self.step(Step {
                id,
                cluster,
                start: row.start,
                elapsed,
                used_mib: row.used_mib.unwrap_or(f32::NAN),
                gpu_percent: row.gpu_percent.unwrap_or(f32::NAN),
                from: self.from,
            });
            return Ok(());
        }
        let state = match (row.state, row.start, row.end) {
            (Some(state), ..) => state,
            (None, 0, _) => Ended::Waiting,
            (None, _, 0) => Ended::Running,
            (None, ..) => Ended::Completed,
        };
        let ran_until = if row.start > 0 { row.start.saturating_add(elapsed) } else { 0 };
        self.last = self.last.max(row.submit).max(row.end).max(ran_until);
        let job = Job {
            id,
            cluster,
            user: self.name(row.user),
            account: self.name(row.account),
            partition: self.name(row.partition),
            kind: self.name(super::fields::kind(row.name)),
            gpu_type: self.name(row.gpu_type),
            submit: row.submit,
            eligible: row.eligible,
            start: row.start,
            end: row.end,
            elapsed,
            limit: row.limit,
            cpus: row.cpus,
            gpus: row.gpus,
            memory_mib: row.memory_mib,
            used_mib: row.used_mib.unwrap_or(f32::NAN),
            cpu_s: row.cpu_s,
            busy_percent_s: None,
            state,
            from: self.from,
        };
        self.jobs.push(job);
        Ok(())
    }

    fn step(&mut self, step: Step) {
        if step.used_mib.is_nan() && step.gpu_percent.is_nan() {
            return;
        }
        match self.jobs.last_mut() {
            Some(job) if of(job, &step) && within(job, &step) => fold(job, &step),
            _ => self.loose.push(step),
        }
    }

    /// Gives steps that came before or far from their jobs to them, and counts a run once that several dumps have.
    pub fn finish(&mut self) {
        let mut loose = std::mem::take(&mut self.loose);
        self.jobs.sort_by_key(|job| (job.cluster, job.id, job.from, job.start, job.submit));
        if !loose.is_empty() {
            loose.sort_by_key(|step| (step.cluster, step.id, step.from));
            let key = |cluster, id, from| (cluster, id, from);
            let mut at = 0;
            for step in &loose {
                let wanted = key(step.cluster, step.id, step.from);
                while self.jobs.get(at).is_some_and(|job| key(job.cluster, job.id, job.from) < wanted) {
                    at += 1;
                }
                let runs = self.jobs[at..].iter().take_while(|job| of(job, step)).count();
                let runs = &mut self.jobs[at..at + runs];
                let chosen = runs.iter().position(|job| within(job, step));
                let chosen = chosen.or_else(|| runs.iter().rposition(|job| job.start > 0 && job.start <= step.start));
                if let Some(job) = chosen.or(runs.len().checked_sub(1)).and_then(|at| runs.get_mut(at)) {
                    fold(job, step);
                }
            }
        }
        if self.from > 0 {
            self.jobs.sort_by_key(|job| (job.cluster, job.id, job.submit, job.start, job.end, job.from));
            // Of equal runs the last one knows the most; what waited in an earlier dump may have run in a later one.
            self.jobs.reverse();
            self.jobs.dedup_by(|earlier, later| {
                let same = (later.cluster, later.id, later.submit) == (earlier.cluster, earlier.id, earlier.submit);
                same && later.from != earlier.from && (later.start == earlier.start || earlier.start == 0)
            });
            self.jobs.reverse();
        }
    }
}

fn of(job: &Job, step: &Step) -> bool {
    (job.cluster, job.id, job.from) == (step.cluster, step.id, step.from)
}

/// Whether a step began while this run of its job ran. No other run of the job did.
fn within(job: &Job, step: &Step) -> bool {
    job.start > 0 && step.start >= job.start && (job.end == 0 || step.start < job.end)
}

fn fold(job: &mut Job, step: &Step) {
    // `max` of a number and of no number is the number.
    job.used_mib = job.used_mib.max(step.used_mib);
    if !step.gpu_percent.is_nan() {
        let busy = (f64::from(step.gpu_percent) * f64::from(step.elapsed)) as u64;
        let most = 100 * u64::from(job.gpus) * u64::from(job.elapsed);
        job.busy_percent_s = Some((job.busy_percent_s.unwrap_or(0) + busy).min(most));
    }
}
