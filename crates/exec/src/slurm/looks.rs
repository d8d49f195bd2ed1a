//! What the cluster said when it was last looked at: however many ask at once, its controller is asked once.

use super::LOOK;
use super::commands::{self, Job, Kind, SlurmError};
use std::collections::BTreeSet;
use std::sync::PoisonError;
use std::time::{Duration, Instant};
use tokio::sync::Mutex;

/// For so long an answer about jobs is news.
const NEWS: Duration = Duration::from_secs(1);

#[derive(Default)]
pub(super) struct Looks {
    kinds: Mutex<Option<(Instant, Vec<Kind>)>>,
    jobs: Mutex<Option<OfQueue>>,
    /// When the cluster last did not answer, and what was said of it: whoever has waited meanwhile need not wait again.
    failed: std::sync::Mutex<Option<(Instant, String)>>,
}

/// What the controller said of jobs.
struct OfQueue {
    at: Instant,
    /// The names that were asked for.
    asked: BTreeSet<String>,
    found: Vec<Job>,
}

impl Looks {
    /// The nodes that the cluster has.
    pub async fn kinds(&self) -> Result<Vec<Kind>, SlurmError> {
        let mut known = self.kinds.lock().await;
        if let Some((_, kinds)) = known.as_ref().filter(|(at, _)| at.elapsed() < LOOK) {
            return Ok(kinds.clone());
        }
        self.has_just_failed()?;
        let kinds = self.noting(commands::kinds().await)?;
        *known = Some((Instant::now(), kinds.clone()));
        Ok(kinds)
    }

    fn has_just_failed(&self) -> Result<(), SlurmError> {
        let failed = self.failed.lock().unwrap_or_else(PoisonError::into_inner);
        let just = failed.as_ref().filter(|(at, _)| at.elapsed() < NEWS);
        just.map_or(Ok(()), |(_, said)| Err(SlurmError::Failed { program: "Slurm", said: said.clone() }))
    }

    fn noting<T>(&self, answer: Result<T, SlurmError>) -> Result<T, SlurmError> {
        let failed = answer.as_ref().err().map(|error| (Instant::now(), error.to_string()));
        *self.failed.lock().unwrap_or_else(PoisonError::into_inner) = failed;
        answer
    }

    /// The jobs of these names that the controller knows. One that was asked for before it was submitted is looked for again.
    pub async fn jobs(&self, names: &[String]) -> Result<Vec<Job>, SlurmError> {
        let mut known = self.jobs.lock().await;
        let is_news = |known: &&OfQueue| {
            let found: BTreeSet<&str> = known.found.iter().map(|job| job.name.as_str()).collect();
            let has = |name: &String| known.asked.contains(name) && found.contains(name.as_str());
            known.at.elapsed() < NEWS && names.iter().all(has)
        };
        if let Some(known) = known.as_ref().filter(is_news) {
            return Ok(known.found.clone());
        }
        self.has_just_failed()?;
        let found = self.noting(commands::jobs(names).await)?;
        *known = Some(OfQueue { at: Instant::now(), asked: names.iter().cloned().collect(), found: found.clone() });
        Ok(found)
    }
}
