//! A job's folder beside the log: the submitting terminal's environment (secrets stay out of the log),
//! the user's own files under the checkpoint path, what was expected of it, and the programs' output.

use crate::dispatch::{JobFolders, StoreAccess};
use crate::home::Home;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use windfall_core::worker::StartOrder;
use windfall_core::{Brain, JobSpec, Span, StintId, WorkloadId};

/// What is kept of a job beside the log.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct JobNotes {
    /// The environment of the terminal that submitted it.
    pub env: BTreeMap<String, String>,
    /// Paths under the checkpoint directory that were the user's own.
    pub foreign: Vec<String>,
    /// What was expected then.
    #[serde(default)]
    pub forecast: Option<crate::api_types::Forecast>,
}

impl JobNotes {
    /// Writes it durably, readable by the owner alone.
    pub fn write(&self, folder: &Path) -> io::Result<()> {
        let file = folder.join("kept.json");
        let synced = |path: &Path| {
            let mut new = std::fs::File::create(path)?;
            new.write_all(&serde_json::to_vec(self)?)?;
            new.sync_all()
        };
        if is_new(folder)? {
            // Nobody reads it before the job is accepted, and that waits for this.
            synced(&file).inspect_err(|_| {
                let _ = std::fs::remove_dir_all(folder);
            })?;
        } else {
            // The same submission may come twice at the same time.
            static WRITTEN: AtomicU64 = AtomicU64::new(0);
            let new = folder.join(format!("kept.json.{}.new", WRITTEN.fetch_add(1, Ordering::Relaxed)));
            synced(&new)?;
            std::fs::rename(&new, &file)?;
        }
        std::fs::File::open(folder)?.sync_all()
    }

    /// Reads it back.
    pub fn read(folder: &Path) -> io::Result<JobNotes> {
        Ok(serde_json::from_slice(&std::fs::read(folder.join("kept.json"))?)?)
    }

    /// Deletes the environment, which may hold secrets: a job that has ended needs it no more. The rest is for its
    /// bill.
    pub fn forget_environment(folder: &Path) -> io::Result<()> {
        let notes = match JobNotes::read(folder) {
            Ok(notes) => notes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(error),
        };
        if notes.env.is_empty() {
            return Ok(());
        }
        JobNotes { env: BTreeMap::new(), ..notes }.write(folder)
    }

    /// What a new job has under its checkpoint path.
    pub fn foreign(spec: &JobSpec) -> Vec<String> {
        let Some(path) = &spec.checkpoint.path else { return Vec::new() };
        let found = windfall_agent::foreign_paths(Path::new(path)).unwrap_or_default();
        found.into_iter().map(|path| path.to_string_lossy().into_owned()).collect()
    }
}

/// Makes a folder; false where it was there already.
fn is_new(folder: &Path) -> io::Result<bool> {
    let made = std::fs::create_dir(folder).or_else(|error| match error.kind() {
        io::ErrorKind::NotFound => {
            folder.parent().map_or(Ok(()), std::fs::create_dir_all)?;
            std::fs::create_dir(folder)
        }
        _ => Err(error),
    });
    match made {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(false),
        Err(error) => Err(error),
    }
}

/// The job folders of a state directory.
pub struct Folders {
    /// Where the folders are.
    pub home: Arc<Home>,
    /// How many times faster than life the world runs.
    pub speed: u32,
    /// See [`crate::home::WorldSettings::fresh_folder`].
    pub fresh_folder: bool,
    /// The jobs whose environment is still there, as far as this server knows.
    pub environments: Mutex<BTreeSet<String>>,
}

impl Folders {
    /// Remembers that the environment of an accepted job has to go when the job ends.
    pub fn remember(&self, key: &str) {
        self.environments.lock().unwrap_or_else(PoisonError::into_inner).insert(key.to_owned());
    }

    /// Remembers every job that has a folder: an earlier server may have ended before their environments went.
    pub fn remember_all(&self) {
        let folder = self.home.job("any");
        let entries = folder.parent().and_then(|jobs| std::fs::read_dir(jobs).ok()).into_iter().flatten().flatten();
        entries.filter_map(|entry| entry.file_name().into_string().ok()).for_each(|key| self.remember(&key));
    }

    /// Deletes the environments of jobs that have ended: they may hold secrets. `live_jobs` is how many have not: where
    /// as many environments are known, each is one of theirs.
    pub fn forget_ended(&self, brain: &Brain, live_jobs: usize) {
        if self.environments.lock().unwrap_or_else(PoisonError::into_inner).len() == live_jobs {
            return;
        }
        let live: BTreeSet<&str> =
            brain.jobs().filter(|job| job.ended.is_none()).map(|job| job.spec.run.environment.as_str()).collect();
        let mut known = self.environments.lock().unwrap_or_else(PoisonError::into_inner);
        for key in known.extract_if(.., |key| !live.contains(key.as_str())) {
            // Tried again by the next server; the folder is the owner's alone meanwhile.
            let _ = JobNotes::forget_environment(&self.home.job(&key));
        }
    }
}

/// The file that takes the output of one worker.
pub fn output_file(folder: &Path, epoch: u64, rank: u32) -> PathBuf {
    folder.join(format!("stint-{epoch:05}-{rank}.log"))
}

impl Folders {
    fn checkpoint_store(&self, spec: &JobSpec) -> String {
        let named = &spec.checkpoint.store;
        if named.is_empty() { self.home.checkpoints().to_string_lossy().into_owned() } else { named.clone() }
    }
}

/// How long the last upload of an ended program is tried, in the world's time.
const LAST_UPLOAD: Span = Span::minutes(10);
/// The least real time for it: stores and networks do not run faster because a world does.
const LAST_UPLOAD_LEAST_MS: u64 = 10_000;

impl JobFolders for Folders {
    fn store_access(&self, brain: &Brain, workload: WorkloadId) -> Option<StoreAccess> {
        let job = brain.job(workload)?;
        let spec = &job.spec;
        let mut env = JobNotes::read(&self.home.job(&spec.run.environment)).ok()?.env;
        env.extend(spec.run.env.clone());
        Some(StoreAccess {
            address: self.checkpoint_store(spec),
            key: spec.checkpoint_key().to_owned(),
            env,
            saved_before: job.progress.checkpoint.is_some()
                || spec.continues.as_ref().is_some_and(|from| from.durable.0 > 0),
        })
    }

    fn start_order(&self, brain: &Brain, stint: StintId, rank: u32) -> Option<StartOrder> {
        let job = brain.job(stint.workload)?;
        let known = job.stint.as_ref().filter(|known| known.id == stint)?;
        let folder = self.home.job(&job.spec.run.environment);
        let notes = JobNotes::read(&folder).ok()?;
        let mut env = notes.env;
        env.extend(job.spec.run.env.clone());
        let offer = known.leases().next().and_then(|lease| brain.offer(&brain.lease(lease)?.offer));
        let smaller = offer.and_then(|offer| job.smaller(offer)).map(|smaller| &smaller.precision);
        if let Some(precision) = smaller.or(job.spec.precision.as_ref()) {
            env.insert("WINDFALL_PRECISION".to_owned(), precision.clone());
        }
        let checkpoint = &job.spec.checkpoint;
        Some(StartOrder {
            stint,
            rank,
            world_size: known.size(),
            master: ("127.0.0.1".to_owned(), 0),
            command: job.spec.run.command.clone(),
            folder: job.spec.run.folder.clone(),
            fresh_folder: self.fresh_folder,
            env,
            devices: None,
            share: None,
            output: output_file(&folder, stint.epoch, rank).to_string_lossy().into_owned(),
            progress: job.spec.run.progress.clone(),
            checkpoint_dir: checkpoint.path.clone().or_else(|| shared_saves(&folder, stint, known.size() as usize)),
            checkpoint_store: self.checkpoint_store(&job.spec),
            checkpoint_key: job.spec.checkpoint_key().to_owned(),
            keep: checkpoint.keep,
            settle_ms: checkpoint.settle_ms,
            complete: checkpoint.complete.clone(),
            last_upload_ms: (LAST_UPLOAD.0.unsigned_abs() / u64::from(self.speed.max(1))).max(LAST_UPLOAD_LEAST_MS),
            resume: known.resume,
            foreign: notes.foreign,
        })
    }
}

/// The ranks of a gang on one machine save into one directory, which rank 0 moves.
fn shared_saves(folder: &Path, stint: StintId, gang: usize) -> Option<String> {
    (gang > 1).then(|| folder.join(format!("saves-{}", stint.epoch)).to_string_lossy().into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_that_cannot_be_deleted_are_said() {
        let dir = tempfile::tempdir().expect("a folder");
        assert!(JobNotes::forget_environment(dir.path()).is_ok(), "there are none");
        std::fs::write(dir.path().join("kept.json"), "torn").expect("written");
        assert!(JobNotes::forget_environment(dir.path()).is_err());
    }

    #[test]
    fn notes_are_written_whole_again_and_again() {
        let dir = tempfile::tempdir().expect("a folder");
        let folder = dir.path().join("jobs").join("key");
        let notes = JobNotes { env: [("TOKEN".to_owned(), "secret".to_owned())].into(), ..JobNotes::default() };
        notes.write(&folder).expect("written");
        notes.write(&folder).expect("the same submission again");
        assert_eq!(JobNotes::read(&folder).expect("read").env, notes.env);
        assert_eq!(std::fs::read_dir(&folder).expect("a folder").count(), 1, "nothing beside it");
        // A file where the folder of all jobs should be.
        std::fs::write(dir.path().join("file"), "").expect("written");
        assert!(notes.write(&dir.path().join("file").join("key")).is_err());
    }

    #[test]
    fn only_the_ranks_of_a_gang_share_a_directory() {
        let stint = StintId::of_job(windfall_core::WorkloadId(1), 3);
        assert_eq!(shared_saves(Path::new("/job"), stint, 1), None);
        assert_eq!(shared_saves(Path::new("/job"), stint, 2).as_deref(), Some("/job/saves-3"));
    }
}
