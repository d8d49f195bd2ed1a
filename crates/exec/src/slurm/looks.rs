//! What the cluster said when it was last looked at: however many ask at once, its controller is asked once.

use super::LOOK;
use super::commands::{self, Job, Kind, SlurmError};
use std::collections::BTreeSet;
use std::time::{Duration, Instant};
use tokio::sync::Mutex;

/// For so long an answer about jobs is news.
const NEWS: Duration = Duration::from_secs(1);

#[derive(Default)]
pub(super) struct Looks {
    kinds: Mutex<Option<(Instant, Vec<Kind>)>>,
    jobs: Mutex<Option<(Instant, BTreeSet<String>, Vec<Job>)>>,
}

impl Looks {
    /// The nodes that the cluster has.
    pub async fn kinds(&self) -> Result<Vec<Kind>, SlurmError> {
        let mut known = self.kinds.lock().await;
        if let Some((_, kinds)) = known.as_ref().filter(|(at, _)| at.elapsed() < LOOK) {
            return Ok(kinds.clone());
        }
        let kinds = commands::kinds().await?;
        *known = Some((Instant::now(), kinds.clone()));
        Ok(kinds)
    }

    /// The jobs of these names that the controller knows. One that was asked for before it was submitted is looked for again.
    pub async fn jobs(&self, names: &[String]) -> Result<Vec<Job>, SlurmError> {
        let mut known = self.jobs.lock().await;
        let has = |found: &[Job], name: &String| found.iter().any(|job| job.name == *name);
        let is_news = |(at, asked, found): &&(Instant, BTreeSet<String>, Vec<Job>)| {
            at.elapsed() < NEWS && names.iter().all(|name| asked.contains(name) && has(found, name))
        };
        if let Some((_, _, jobs)) = known.as_ref().filter(is_news) {
            return Ok(jobs.clone());
        }
        let jobs = commands::jobs(names).await?;
        *known = Some((Instant::now(), names.iter().cloned().collect(), jobs.clone()));
        Ok(jobs)
    }
}
