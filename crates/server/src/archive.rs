//! What is remembered of jobs beside the brain: in the store, and in their folders.

use crate::api_types::{Bill, JobAnswer, Problem};
use crate::engines::Engines;
use crate::home::Home;
use crate::notes::{JobNotes, LastingNotes, NotesError};
use crate::seal::Seal;
use crate::{bill, logs, old_notes, problem};
use std::collections::BTreeMap;
use std::sync::Arc;
use windfall_core::WorkloadId;
use windfall_core::english::with_causes;
use windfall_core::view::{JobView, State};
use windfall_core::worker::WorkerView;
use windfall_store::Store;

/// What is remembered of jobs beside the brain.
#[derive(Clone)]
pub(crate) struct Archive {
    pub store: Arc<dyn Store>,
    pub home: Arc<Home>,
    pub engines: Engines,
    pub seal: Arc<Seal>,
}

impl Archive {
    /// A job that the brain does not know any more.
    pub async fn find(&self, id: WorkloadId) -> Result<JobView, Problem> {
        let row = self.store.job(id.0).await.map_err(|error| problem(503, "store-refused", &with_causes(&error)))?;
        let row = row.ok_or_else(|| Problem {
            hint: Some("`windfall jobs --all` lists the jobs that there were".to_owned()),
            ..problem(404, "no-such-job", &format!("no job has the number {id}"))
        })?;
        windfall_core::codec::decode(row.version, &row.summary)
            .map_err(|error| problem(500, "unreadable-job", &error.to_string()))
    }

    /// The notes of a live job.
    pub async fn notes(&self, id: WorkloadId, key: &str) -> Result<JobNotes, NotesError> {
        let notes = self.store.notes(id.0).await?.ok_or(NotesError::Missing { job: id.0 })?;
        JobNotes::of_store(&notes, &self.seal, key)
    }

    /// What is kept of a job for good, also where an earlier server left it in the job's folder.
    pub async fn lasting_notes(&self, id: WorkloadId, key: &str) -> Result<LastingNotes, Problem> {
        let stored = self.store.notes(id.0).await;
        let stored = stored.map_err(|error| problem(503, "store-refused", &with_causes(&error)))?;
        match stored {
            Some(notes) => {
                LastingNotes::of_store(&notes).map_err(|error| problem(500, "unreadable-notes", &error.to_string()))
            }
            None => {
                let left = old_notes::left_in_folder(&self.home, key).map(|notes| notes.rest);
                left.ok_or_else(|| problem(404, "no-such-job", &format!("there are no notes of job {id}")))
            }
        }
    }

    pub async fn bill(&self, job: &JobView) -> Bill {
        let forecast = self.lasting_notes(job.id, &job.key).await.ok().and_then(|notes| notes.forecast);
        bill::bill(job, forecast, self.engines.recordings().map(|(_, recording)| recording))
    }

    pub async fn ended_job(&self, job: JobView) -> JobAnswer {
        let failed = job.state == State::Failed;
        JobAnswer {
            bill: Some(self.bill(&job).await),
            pids: Vec::new(),
            last_words: if failed { logs::last_words(&self.home.job(&job.key)) } else { Vec::new() },
            trouble: None,
            evidence: None,
            job,
        }
    }

    /// Workers of ended stints as they were last seen.
    pub fn ended_workers(&self, job: &JobView) -> Vec<WorkerView> {
        let ended = std::fs::read_to_string(self.home.job(&job.key).join("stints.jsonl")).unwrap_or_default();
        let views = ended.lines().filter_map(|line| serde_json::from_str::<WorkerView>(line).ok());
        // One may have been written down several times: the last look counts.
        let last: BTreeMap<(u64, u32), WorkerView> = views.map(|view| ((view.stint.epoch, view.rank), view)).collect();
        last.into_values().collect()
    }
}
