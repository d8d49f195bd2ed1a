//! What is kept of a job beside the log, in the store: the submitting terminal's environment (secrets stay out of the log,
//! which is kept, and are sealed in the store, which others may read), the user's own files under the checkpoint path, and
//! what was expected of it. The commit that makes a submission durable holds its notes as well, and the one that ends the job
//! deletes what may be secret.

use crate::api_types::{Forecast, OutputsAt};
use crate::seal::Seal;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use windfall_core::{Brain, WorkloadId};
use windfall_store::{Notes, Store, StoreError};

/// What is kept of a job beside the log: in the store, whose commit of the submission holds it as well.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct JobNotes {
    /// The environment of the terminal that submitted it: it may hold secrets, and is gone once the job has ended.
    pub env: BTreeMap<String, String>,
    /// The rest, which its bill needs later.
    pub rest: LastingNotes,
}

/// What is kept of a job for good.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LastingNotes {
    /// Paths under the checkpoint directory that were the user's own.
    pub foreign: Vec<String>,
    /// What was expected then.
    #[serde(default)]
    pub forecast: Option<Forecast>,
    /// Where what it leaves is to be had; none where it names nothing to bring back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outputs: Option<OutputsAt>,
}

impl LastingNotes {
    /// As the store kept them; nothing of them is sealed.
    pub fn of_store(notes: &Notes) -> Result<LastingNotes, NotesError> {
        serde_json::from_str(&notes.text).map_err(|_| NotesError::Unreadable { job: notes.workload })
    }
}

/// Why the notes of a job cannot be had. The texts say what to do, and end up with whoever submitted the job.
#[derive(Debug, thiserror::Error)]
pub enum NotesError {
    /// Later they may be.
    #[error(transparent)]
    StoreAway(#[from] StoreError),
    #[error(
        "the environment of job {job} is not in the store: submit it again, or go on from what it saved: windfall resume {job}"
    )]
    Missing { job: u64 },
    #[error(
        "the environment of job {job} cannot be opened, because `secrets.key` in the server's state directory is another \
         one than when it was submitted: submit it again, or go on from what it saved: windfall resume {job}"
    )]
    OtherKey { job: u64 },
    #[error("the notes of job {job} in the store are damaged: submit it again")]
    Unreadable { job: u64 },
}

impl JobNotes {
    /// As the store keeps them. Which job they are of is filled in when it gets its number; until then its key says so.
    pub fn to_store(&self, seal: &Seal, key: &str) -> Notes {
        let text = |value: Result<String, serde_json::Error>| value.expect("notes have string keys");
        let secret = seal.close(key, &text(serde_json::to_string(&self.env)));
        Notes { workload: 0, secret: Some(secret.into()), text: text(serde_json::to_string(&self.rest)).into() }
    }

    /// As the store kept them.
    pub fn of_store(notes: &Notes, seal: &Seal, key: &str) -> Result<JobNotes, NotesError> {
        let env = match notes.secret.as_deref() {
            Some(secret) => {
                let env = seal.open(key, secret).ok_or(NotesError::OtherKey { job: notes.workload })?;
                serde_json::from_str(&env).map_err(|_| NotesError::Unreadable { job: notes.workload })?
            }
            None => BTreeMap::new(),
        };
        Ok(JobNotes { env, rest: LastingNotes::of_store(notes)? })
    }
}

/// The warning that a server starts with whose key is not the one that live jobs were sealed with: it was lost, and a new one
/// was made, or it was put there from elsewhere. Such a server is of use for every other job, so it serves.
pub async fn other_key(store: &dyn Store, seal: &Seal, brain: &Brain) -> Result<Option<String>, StoreError> {
    let first = brain.jobs().find(|job| job.ended.is_none());
    let last = brain.jobs_below(WorkloadId(u64::MAX)).find(|job| job.ended.is_none());
    for job in first.into_iter().chain(last) {
        let Some(notes) = store.notes(job.id.0).await? else { continue };
        if let Err(NotesError::OtherKey { job }) = JobNotes::of_store(&notes, seal, &job.spec.run.environment) {
            return Ok(Some(format!(
                "WARNING: secrets.key is not the key that the environment of job {job} was sealed with, nor that of other \
                 jobs of its time: they fail when they are next started. If you have the old secrets.key, stop the \
                 server now (windfall down), put it back and start again (windfall up)"
            )));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notes_come_back_from_the_store_with_secrets_and_without() {
        let rest = LastingNotes { foreign: vec!["data".to_owned()], ..LastingNotes::default() };
        let notes = JobNotes { env: [("TOKEN".to_owned(), "secret".to_owned())].into(), rest };
        let folder = tempfile::tempdir().expect("a folder");
        let seal = Seal::of(folder.path()).expect("a key");
        let stored = notes.to_store(&seal, "key");
        assert!(!stored.text.contains("secret"));
        assert_eq!(JobNotes::of_store(&stored, &seal, "key").expect("read"), notes);
        let other = JobNotes::of_store(&stored, &seal, "other");
        assert!(matches!(other, Err(NotesError::OtherKey { .. })), "another job's environment is not given away");
        let ended = Notes { secret: None, ..stored };
        let without = JobNotes::of_store(&ended, &seal, "key").expect("read");
        assert_eq!(without, JobNotes { env: BTreeMap::new(), ..notes });
    }
}
