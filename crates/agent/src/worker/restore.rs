//! Before the program starts: its folder, and the checkpoint that it resumes from. A store that does not answer is
//! waited for; it is never taken for an empty one.

use super::files::write_whole;
use super::provision::{KEPT_OUTPUTS, PENDING, Provided};
use super::state::{Moving, Tell, WorkerRun, cannot_run, never_ran};
use crate::checkpoint::{
    Begun, CheckpointError, Checkpoints, Choose, Mover, MoverOptions, Options, Ref, store_identity,
};
use crate::folder;
use crate::progress::Reader;
use futures::FutureExt;
use futures::future::BoxFuture;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use windfall_core::record::Resume;
use windfall_core::{CheckpointId, WorkerEnd};

/// The first wait for a store that does not answer, and the longest.
const WAIT: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(5));

/// Where a program runs and where it saves.
pub(super) struct Folders {
    pub cwd: PathBuf,
    pub saves: PathBuf,
    /// What its machine has for it; none where it runs in the user's own folder.
    pub provided: Option<Provided>,
}

impl WorkerRun {
    /// Where the program runs and where it saves.
    pub(super) async fn prepare_folder(&mut self) -> Result<Folders, WorkerEnd> {
        std::fs::create_dir_all(&self.dir)
            .map_err(|error| never_ran(format!("its folder {} cannot be made: {error}", self.dir.display())))?;
        let provided = self.provide().await?;
        let has_parcel = provided.is_some();
        let folder = match &provided {
            Some(provided) => provided.folder.clone(),
            None => PathBuf::from(&self.order.folder),
        };
        if !folder.is_dir() {
            let hint = "add `workdir: .` to the job file, and it is sent to the machines that the job runs on";
            return Err(never_ran(format!("the folder is not on this machine: {}; {hint}", folder.display())));
        }
        let (epoch, saves) = (self.order.stint.epoch, self.order.checkpoint_dir.as_ref().map(PathBuf::from));
        let inside = self.order.checkpoint_inside.clone();
        let is_copied = self.order.fresh_folder || has_parcel;
        let cwd = match is_copied {
            true => self.fresh_copy(&folder, saves.as_deref(), inside.as_deref(), provided.as_ref()).await?,
            false => folder.clone(),
        };
        let saves = match (saves, inside) {
            (_, Some(inside)) => cwd.join(inside),
            // What the job file places inside its folder is inside the copy as well.
            (Some(saves), None) if is_copied => {
                saves.strip_prefix(&folder).map(|inside| cwd.join(inside)).unwrap_or(saves)
            }
            (Some(saves), None) => saves,
            (None, None) if is_copied => self.job_folder().join(format!("saves-{epoch}")),
            (None, None) => self.dir.join(format!("saves-{epoch}")),
        };
        Ok(Folders { cwd, saves, provided })
    }

    /// A copy of a folder for this stint alone, which the ranks of a gang on one machine share.
    async fn fresh_copy(
        &mut self,
        folder: &Path,
        saves: Option<&Path>,
        inside: Option<&str>,
        provided: Option<&Provided>,
    ) -> Result<PathBuf, WorkerEnd> {
        // Beside the output, so that a rehearsal can still look at it when the lease is gone.
        let fresh = self.job_folder().join(format!("folder-{}", self.order.stint.epoch));
        if self.order.rank > 0 {
            return Ok(fresh);
        }
        if self.order.provision.is_some() {
            let (job_folder, epoch) = (self.job_folder().to_owned(), self.order.stint.epoch);
            let _ = tokio::task::spawn_blocking(move || remove_copies(&job_folder, epoch)).await;
        }
        let skip = match inside {
            Some(inside) => folder.join(inside),
            None => saves.map(Path::to_owned).unwrap_or_default(),
        };
        let (from, to) = (folder.to_owned(), fresh.clone());
        let own = provided.map(|provided| provided.own.clone()).unwrap_or_default();
        let copied = tokio::task::spawn_blocking(move || folder::copy_with_own(&from, &to, &skip, &own)).await;
        let copied = copied.map_err(std::io::Error::other).flatten();
        copied.map_err(|error| never_ran(format!("the folder cannot be copied: {error}")))?;
        Ok(fresh)
    }

    /// Where rank 0 says what the gang resumes from, once that is in the directory which all of them share.
    fn restored_file(&self) -> PathBuf {
        self.job_folder().join(format!("restored-{}.json", self.order.stint.epoch))
    }

    /// Waits until rank 0 has restored, or until this worker is told to stop. A rank that starts earlier would
    /// find an empty directory and begin anew beside others that resume.
    pub(super) async fn wait_for_rank_0(&mut self) {
        let file = self.restored_file();
        // A word to stop stays in the queue: it is heard right after the restore.
        while self.told.is_empty() {
            if let Some(restored) = std::fs::read(&file).ok().and_then(|text| serde_json::from_slice(&text).ok()) {
                self.change(|worker| worker.restored = restored);
                return;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Lets the other ranks start.
    fn tell_ranks(&self, restored: Option<CheckpointId>) -> Result<(), WorkerEnd> {
        if self.order.world_size < 2 {
            return Ok(());
        }
        let text = serde_json::to_vec(&restored).expect("a name has string keys");
        let told = write_whole(&self.restored_file(), &text);
        told.map_err(|error| never_ran(format!("the gang cannot be told what it resumes from: {error}")))
    }

    /// Brings the checkpoint back and sets the stint's fence. Only rank 0 moves the gang's checkpoints:
    /// the ranks of a gang on one machine share its directory.
    pub(super) async fn restore(
        &mut self,
        saves: &Path,
        foreign: &BTreeSet<PathBuf>,
    ) -> Result<Option<Arc<Checkpoints>>, WorkerEnd> {
        std::fs::create_dir_all(saves).map_err(|error| {
            never_ran(format!("the checkpoint directory {} cannot be made: {error}", saves.display()))
        })?;
        if self.order.rank > 0 {
            return Ok(None);
        }
        let env = self.order.env.iter().map(|(name, value)| (name.clone(), value.clone()));
        let options = Options { saved_before: self.saved_before(), ..Options::with_env(env) };
        let checkpoints = Checkpoints::open(&self.order.checkpoint_store, &self.order.checkpoint_key, options);
        let checkpoints = Arc::new(checkpoints.map_err(cannot_run)?);
        let begun = self.begin(&checkpoints, saves, foreign).await?;
        self.note_begun();
        let restored = begun.restored.map(|name| CheckpointId { epoch: name.epoch, seq: name.seq });
        self.tell_ranks(restored)?;
        self.change(|worker| {
            worker.restored = restored;
            worker.restored_work = begun.work;
            worker.evidence.restore_ms = begun.elapsed.as_millis() as u64;
            worker.evidence.skipped =
                begun.skipped.iter().map(|(name, why)| format!("{}.{}: {why}", name.epoch, name.seq)).collect();
        });
        Ok(Some(checkpoints))
    }

    /// Begins the stint on the store.
    async fn begin(
        &mut self,
        checkpoints: &Checkpoints,
        saves: &Path,
        foreign: &BTreeSet<PathBuf>,
    ) -> Result<Begun, WorkerEnd> {
        let choose = match self.order.resume {
            Resume::Newest => Choose::Newest,
            Resume::Before(id) => Choose::Before(Ref { epoch: id.epoch, seq: id.seq }),
        };
        let epoch = self.order.stint.epoch;
        let attempt = move || {
            let begin = async move {
                checkpoints.answers().await?;
                checkpoints.begin(epoch, saves, choose, foreign).await
            };
            begin.boxed()
        };
        self.patiently(attempt).await
    }

    /// Tries something with a store. Where that cannot be used now, says so at once and goes on trying until it can, or
    /// until this worker is told to stop.
    pub(super) async fn patiently<'a, T>(
        &mut self,
        attempt: impl Fn() -> BoxFuture<'a, Result<T, CheckpointError>>,
    ) -> Result<T, WorkerEnd> {
        let mut wait = WAIT.0;
        loop {
            let error = tokio::select! {
                tried = attempt() => match tried {
                    Ok(done) => {
                        self.change(|worker| worker.trouble = None);
                        return Ok(done);
                    }
                    Err(error) => error,
                },
                Some(Tell::Stop(_) | Tell::Quit) = self.told.recv() => return Err(self.stopped()),
            };
            if !error.is_store_away() {
                return Err(cannot_run(error));
            }
            self.say_away(&error);
            tokio::select! {
                () = tokio::time::sleep(wait) => wait = (wait * 2).min(WAIT.1),
                Some(Tell::Stop(_) | Tell::Quit) = self.told.recv() => return Err(self.stopped()),
            }
        }
    }

    fn say_away(&self, error: &CheckpointError) {
        let trouble = error.trouble();
        self.change(|worker| worker.trouble = Some(trouble));
    }

    /// The end of a worker that is stopped before its program ran. If the store did not answer, that is the reason.
    fn stopped(&self) -> WorkerEnd {
        match self.shown().and_then(|worker| worker.trouble) {
            Some(trouble) => WorkerEnd::StoreAway { why: trouble.text },
            None => WorkerEnd::Stopped,
        }
    }

    /// Says, in the job's folder, which store has its checkpoints.
    fn begun_file(&self) -> PathBuf {
        self.job_folder().join("checkpoints-begun")
    }

    fn store_name(&self) -> String {
        format!("{}\n{}\n", store_identity(&self.order.checkpoint_store), self.order.checkpoint_key)
    }

    fn saved_before(&self) -> bool {
        std::fs::read_to_string(self.begun_file()).is_ok_and(|name| name == self.store_name())
    }

    fn note_begun(&self) {
        // Without this file a store that was emptied looks like a new one.
        let _ = write_whole(&self.begun_file(), self.store_name().as_bytes());
    }

    /// Where the program leaves a mark when all it saves is whole. A rank of a gang cannot say that for the others.
    pub(super) fn marks(&self) -> Option<PathBuf> {
        let marks = self.dir.join(format!("marks-{}", self.order.stint.epoch));
        (self.order.world_size == 1 && std::fs::create_dir_all(&marks).is_ok()).then_some(marks)
    }

    pub(super) async fn start_mover(
        &self,
        checkpoints: &Arc<Checkpoints>,
        saves: &Path,
        foreign: &BTreeSet<PathBuf>,
        reader: &Reader,
    ) -> Result<Moving, WorkerEnd> {
        let mut options = MoverOptions::new(self.order.stint.epoch, saves);
        options.keep = self.order.keep as usize;
        options.watch.settle = Duration::from_millis(self.order.settle_ms);
        options.watch.complete.clone_from(&self.order.complete);
        options.watch.marks = self.marks();
        options.watch.foreign = foreign.clone();
        options.watch.streams = checkpoints.streams();
        let history = reader.history.clone();
        let (sender, events) = mpsc::unbounded_channel();
        let work_at = Arc::new(move |ms| history.at(ms));
        let mover = Mover::start(Arc::clone(checkpoints), options, work_at, sender).await.map_err(cannot_run)?;
        Ok(Moving { mover, events })
    }
}

/// Removes the copies of stints that were killed before they could do so themselves.
fn remove_copies(job_folder: &Path, epoch: u64) {
    for entry in std::fs::read_dir(job_folder).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let name = name.to_str().unwrap_or_default();
        if name.strip_prefix("folder-").and_then(|of| of.parse::<u64>().ok()).is_some_and(|of| of <= epoch) {
            let _ = folder::remove_tree(&entry.path());
        }
        if name.starts_with(KEPT_OUTPUTS) && name.ends_with(PENDING) {
            let _ = std::fs::remove_file(entry.path());
        }
    }
}
