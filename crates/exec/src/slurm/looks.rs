//! What the cluster says: however many ask at once, its controller and its accounts are asked once, and nobody gets an answer about
//! jobs that is older than the question.

use super::LOOK;
use super::commands::{self, Job, Kind, SlurmError};
use crate::shared::Shared;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Looks at jobs begin no closer to each other: whoever asks in between shares the next one.
const APART: Duration = Duration::from_millis(250);
/// For so long a failure counts for those who waited meanwhile.
const JUST_FAILED: Duration = Duration::from_secs(1);
/// Accounts that did not answer are left alone for so long.
const ACCOUNTS_REST: Duration = Duration::from_secs(30);

type Found = Result<Arc<Vec<Job>>, String>;

pub(super) struct Looks {
    kinds: tokio::sync::Mutex<Option<(Instant, Vec<Kind>)>>,
    jobs: Shared<Found>,
    past: Shared<Arc<Vec<Job>>>,
    /// When the cluster last did not answer, and what was said of it: whoever has waited meanwhile need not wait again.
    failed: Mutex<Option<(Instant, String)>>,
    /// When the accounts last did not answer.
    accounts_failed: Mutex<Option<Instant>>,
}

impl Default for Looks {
    fn default() -> Looks {
        Looks {
            kinds: tokio::sync::Mutex::default(),
            jobs: Shared::new(APART),
            past: Shared::new(APART),
            failed: Mutex::default(),
            accounts_failed: Mutex::default(),
        }
    }
}

impl Looks {
    /// The nodes that the cluster has, as they were within the last seconds.
    pub async fn kinds(&self) -> Result<Vec<Kind>, SlurmError> {
        let mut known = self.kinds.lock().await;
        if let Some((_, kinds)) = known.as_ref().filter(|(at, _)| at.elapsed() < LOOK) {
            return Ok(kinds.clone());
        }
        self.has_just_failed().map_or(Ok(()), |said| Err(failed(said)))?;
        let kinds = self.noting(commands::kinds().await).map_err(failed)?;
        *known = Some((Instant::now(), kinds.clone()));
        Ok(kinds)
    }

    /// The jobs of these names that the controller knows, perhaps among others.
    pub async fn jobs(&self, names: &[String]) -> Result<Arc<Vec<Job>>, SlurmError> {
        let look = |names: Vec<String>| async move {
            match self.has_just_failed() {
                Some(said) => Err(said),
                None => self.noting(commands::jobs(&names).await).map(Arc::new),
            }
        };
        self.jobs.ask(names, look).await.map_err(failed)
    }

    /// What the accounts say of jobs of these names that are over. Nothing is said where nothing is accounted or the accounts do not
    /// answer; and what they take to be alive, while the controller does not know it, they have not heard the end of yet.
    pub async fn past(&self, names: &[String]) -> Arc<Vec<Job>> {
        let look = |names: Vec<String>| async move {
            if self.accounts_failed().is_some_and(|at| at.elapsed() < ACCOUNTS_REST) {
                return Arc::default();
            }
            let said = commands::past(&names).await;
            *self.accounts_failed() = said.is_err().then(Instant::now);
            let over = said.unwrap_or_default().into_iter().filter(|job| job.state.is_over());
            Arc::new(over.collect())
        };
        self.past.ask(names, look).await
    }

    fn accounts_failed(&self) -> MutexGuard<'_, Option<Instant>> {
        self.accounts_failed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn has_just_failed(&self) -> Option<String> {
        let failed = self.failed.lock().unwrap_or_else(PoisonError::into_inner);
        failed.as_ref().filter(|(at, _)| at.elapsed() < JUST_FAILED).map(|(_, said)| said.clone())
    }

    fn noting<T>(&self, answer: Result<T, SlurmError>) -> Result<T, String> {
        let answer = answer.map_err(|error| error.to_string());
        let failed = answer.as_ref().err().map(|said| (Instant::now(), said.clone()));
        *self.failed.lock().unwrap_or_else(PoisonError::into_inner) = failed;
        answer
    }
}

fn failed(said: String) -> SlurmError {
    SlurmError::Failed { program: "Slurm", said }
}
