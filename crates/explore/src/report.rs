//! What an exploration saw, for people and for programs.

use crate::LAWS;
use crate::driver::WorldRun;
use crate::fault::FaultKind;
use crate::nodes::{SCENES, SHARED_DEVICE};
use crate::planted::Bug;
use std::collections::BTreeMap;
use std::fmt;
use windfall_core::{Decision, Event, Outcome};

/// A violated law.
#[derive(Clone, Debug)]
pub struct Found {
    /// The world.
    pub seed: u64,
    /// The law's number.
    pub law: u8,
    /// The law.
    pub law_text: String,
    pub what: String,
    /// At which step.
    pub step: u64,
    /// What is wrong in the smallest world that still shows it.
    pub shrunk_to: String,
    /// At which step there.
    pub shrunk_step: u64,
    /// The jobs that are left in it; none for all.
    pub jobs: Option<Vec<usize>>,
    /// The faults that are left in it.
    pub faults: Vec<String>,
    /// The end of what happened in it.
    pub story: Vec<String>,
}

/// What became of a planted bug.
#[derive(Clone, Debug)]
pub struct PlantedResult {
    /// The bug.
    pub bug: Bug,
    /// The law that caught it.
    pub caught_by: Option<u8>,
    /// What that law said.
    pub what: String,
    /// Worlds that were needed.
    pub worlds: u64,
    /// Steps that were needed.
    pub steps: u64,
    /// Seconds that were needed.
    pub seconds: f64,
}

/// All that an exploration counts.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Worlds lived through.
    pub worlds: u64,
    /// Turns of the server's cycle.
    pub steps: u64,
    /// Log rows written.
    pub rows: u64,
    /// Jobs submitted.
    pub jobs: u64,
    /// Servers started.
    pub servers: u64,
    /// Leases that the market took.
    pub interruptions: u64,
    /// Leases found that the log did not know.
    pub orphans: u64,
    /// Bills of jobs that were over and that late news changed.
    pub corrected: u64,
    /// Seconds it took.
    pub seconds: f64,
    /// How often the precondition of each law was met.
    pub reached: BTreeMap<u8, u64>,
    /// Records by kind.
    pub kinds: BTreeMap<String, u64>,
    /// Faults by kind.
    pub faults: BTreeMap<String, u64>,
    /// Jobs by outcome.
    pub outcomes: BTreeMap<String, u64>,
    /// What nodes came to that are paid for as a whole.
    pub scenes: BTreeMap<String, u64>,
    /// The first violation.
    pub found: Option<Found>,
}

impl Report {
    pub(crate) fn count(&mut self, life: &WorldRun) {
        self.worlds += 1;
        self.steps += life.steps;
        self.rows += life.audit.last_seq;
        self.jobs += life.audit.ids.len() as u64;
        self.servers += life.restarts;
        self.orphans += life.orphans;
        self.corrected += life.store.corrected();
        self.interruptions += life.shared.world().interruptions;
        for (law, count) in &life.reached {
            *self.reached.entry(*law).or_default() += count;
        }
        for (kind, count) in &life.audit.kinds {
            *self.kinds.entry((*kind).to_owned()).or_default() += count;
        }
        for kind in life.faults() {
            *self.faults.entry(kind.name().to_owned()).or_default() += 1;
        }
        let shared = Some((SHARED_DEVICE, life.audit.conduct.sharers_of_devices)).filter(|(_, count)| *count > 0);
        let scenes = life.audit.books.nodes.scenes.iter().map(|(scene, count)| (*scene, *count));
        for (scene, count) in scenes.chain(shared) {
            *self.scenes.entry(scene.to_owned()).or_default() += count;
        }
        for (_, _, outcome) in &life.audit.ends {
            let word = match outcome {
                Outcome::StoppedByRule { rule } => format!("stopped by {rule}"),
                other => other.word().to_owned(),
            };
            *self.outcomes.entry(word).or_default() += 1;
        }
    }

    /// Faults for each job.
    pub fn faults_per_job(&self) -> f64 {
        self.faults.values().sum::<u64>() as f64 / self.jobs.max(1) as f64
    }

    /// Steps in an hour at this speed.
    pub fn steps_per_hour(&self) -> f64 {
        self.steps as f64 / self.seconds.max(1e-9) * 3_600.0
    }

    /// Kinds of events, decisions, faults and laws that were never met.
    pub fn unreached(&self) -> Vec<String> {
        let kinds = Event::KINDS.iter().chain(&Decision::KINDS).copied();
        let missing = kinds.filter(|kind| !self.kinds.contains_key(*kind)).map(|kind| format!("record {kind}"));
        let faults = FaultKind::ALL.iter().map(|kind| kind.name()).filter(|name| !self.faults.contains_key(*name));
        let laws = LAWS.iter().map(|(law, _)| *law).filter(|law| *law != 4);
        let laws = laws.filter(|law| !self.reached.contains_key(law)).map(|law| format!("law {law}"));
        let faults = faults.map(|name| format!("fault {name}"));
        let scenes = SCENES.into_iter().filter(|scene| !self.scenes.contains_key(*scene)).map(str::to_owned);
        missing.chain(faults).chain(laws).chain(scenes).collect()
    }

    /// For programs.
    pub fn json(&self) -> serde_json::Value {
        let found = self.found.as_ref().map(|found| {
            serde_json::json!({
                "seed": found.seed, "law": found.law, "what": found.what, "step": found.step,
                "shrunk_to": found.shrunk_to, "shrunk_step": found.shrunk_step, "jobs": found.jobs,
                "faults": found.faults, "story": found.story,
            })
        });
        serde_json::json!({
            "worlds": self.worlds, "steps": self.steps, "rows": self.rows, "jobs": self.jobs, "servers": self.servers,
            "interruptions": self.interruptions, "orphans": self.orphans, "corrected": self.corrected,
            "seconds": self.seconds,
            "steps_per_hour": self.steps_per_hour(), "faults_per_job": self.faults_per_job(), "reached": self.reached,
            "kinds": self.kinds, "faults": self.faults, "outcomes": self.outcomes,
            "scenes": self.scenes, "unreached": self.unreached(),
            "found": found,
        })
    }
}

impl fmt::Display for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "law {} is broken: {}", self.law, self.law_text)?;
        writeln!(f, "  seed {} step {}: {}", self.seed, self.step, self.what)?;
        writeln!(f, "shrunk to step {}: {}", self.shrunk_step, self.shrunk_to)?;
        if let Some(jobs) = &self.jobs {
            writeln!(f, "  jobs {jobs:?}")?;
        }
        for fault in &self.faults {
            writeln!(f, "  fault: {fault}")?;
        }
        for line in &self.story {
            writeln!(f, "{line}")?;
        }
        Ok(())
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "worlds         {:>12}", self.worlds)?;
        writeln!(f, "jobs           {:>12}", self.jobs)?;
        writeln!(f, "steps          {:>12}", self.steps)?;
        writeln!(f, "log rows       {:>12}", self.rows)?;
        writeln!(f, "servers        {:>12}", self.servers)?;
        writeln!(f, "leases taken   {:>12}", self.interruptions)?;
        writeln!(f, "orphans ended  {:>12}", self.orphans)?;
        writeln!(f, "bills corrected{:>12}", self.corrected)?;
        writeln!(f, "faults per job {:>12.1}", self.faults_per_job())?;
        writeln!(f, "seconds        {:>12.1}", self.seconds)?;
        writeln!(f, "steps a second {:>12.0}", self.steps_per_hour() / 3_600.0)?;
        writeln!(f, "steps an hour  {:>12.0}", self.steps_per_hour())?;
        writeln!(f, "\nlaws, and how often each was put to the test")?;
        for (law, text) in LAWS {
            writeln!(f, "  {law:>2} {:>12}  {text}", self.reached.get(law).copied().unwrap_or(0))?;
        }
        let counts = [&self.kinds, &self.outcomes, &self.faults, &self.scenes];
        for (title, counts) in ["records", "outcomes", "faults", "nodes"].into_iter().zip(counts) {
            writeln!(f, "\n{title}")?;
            for (name, count) in counts {
                writeln!(f, "  {count:>12}  {name}")?;
            }
        }
        let unreached = self.unreached();
        if !unreached.is_empty() {
            writeln!(f, "\nnever reached: {}", unreached.join(", "))?;
        }
        Ok(())
    }
}
