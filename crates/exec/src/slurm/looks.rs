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
    jobs: Mutex<Option<OfQueue>>,
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
        let kinds = commands::kinds().await?;
        *known = Some((Instant::now(), kinds.clone()));
        Ok(kinds)
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
        let found = commands::jobs(names).await?;
        *known = Some(OfQueue { at: Instant::now(), asked: names.iter().cloned().collect(), found: found.clone() });
        Ok(found)
    }
}
