//! Before the program starts: its folder, and the checkpoint that it resumes from. A store that does not answer is
//! waited for; it is never taken for an empty one.

use super::files::write_whole;
use super::provision::{KEPT_OUTPUTS, PENDING, Provided};
use super::state::{Moving, WorkerRun, cannot_run, could_not, never_ran};
use crate::checkpoint::{
    Begun, CheckpointError, Checkpoints, Choose, Mover, MoverOptions, Options, Ref, Role, WorkAt, store_identity,
};
use crate::folder;
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
            .map_err(|error| could_not(format!("its folder {} cannot be made", self.dir.display()), &error))?;
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
        // Who is there first makes it.
        let (lock, done) = (fresh.with_extension("lock"), fresh.with_extension("done"));
        let locked = tokio::task::spawn_blocking(move || folder::lock(&lock)).await;
        let locked = locked.map_err(std::io::Error::other).flatten();
        let _lock = locked.map_err(|error| could_not("the folder cannot be copied", &error))?;
        if done.exists() {
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
        if let Err(error) = copied.and_then(|()| std::fs::write(&done, b"")) {
            // A part of it would only take room.
            let _ = tokio::task::spawn_blocking(move || folder::remove_tree(&fresh)).await;
            return Err(could_not("the folder cannot be copied", &error));
        }
        Ok(fresh)
    }

    /// Brings the checkpoint back and sets the stint's fence. Of a gang rank 0 chooses it and sets the fence, and the others
    /// begin from the same. Nothing is given to whoever moves no checkpoints: another rank at its place does.
    pub(super) async fn restore(
        &mut self,
        saves: &Path,
        foreign: &BTreeSet<PathBuf>,
    ) -> Result<Option<Arc<Checkpoints>>, WorkerEnd> {
        std::fs::create_dir_all(saves).map_err(|error| {
            could_not(format!("the checkpoint directory {} cannot be made", saves.display()), &error)
        })?;
        let env = self.order.env.iter().map(|(name, value)| (name.clone(), value.clone()));
        let continues_after = self.order.continues_after;
        let options = Options { saved_before: self.saved_before(), continues_after, ..Options::with_env(env) };
        let checkpoints = Checkpoints::open(&self.order.checkpoint_store, &self.order.checkpoint_key, options);
        let checkpoints = Arc::new(checkpoints.map_err(cannot_run)?);
        let gang = match self.order.world_size {
            0 | 1 => None,
            _ => Some(self.meet(&checkpoints, saves).await?),
        };
        self.gang = gang.clone();
        let begun = match &gang {
            Some(gang) if self.order.rank > 0 => self.follow(gang, &checkpoints, saves, foreign).await?,
            _ => Some(self.begin(&checkpoints, saves, foreign).await?),
        };
        let keeps = begun.is_some();
        if let Some(begun) = begun {
            self.note_begun();
            self.origin = begun.origin.map(|name| CheckpointId { epoch: name.epoch, seq: name.seq });
            self.show_begun(&begun);
        }
        if let Some(gang) = &gang {
            self.agree_to_begin(gang).await?;
        }
        Ok(keeps.then_some(checkpoints))
    }

    fn show_begun(&self, begun: &Begun) {
        let restored = begun.restored.map(|name| CheckpointId { epoch: name.epoch, seq: name.seq });
        self.change(|worker| {
            worker.restored = restored;
            worker.restored_work = begun.work;
            worker.evidence.restore_ms = begun.elapsed.as_millis() as u64;
            worker.evidence.skipped =
                begun.skipped.iter().map(|(name, why)| format!("{}.{}: {why}", name.epoch, name.seq)).collect();
        });
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
                Some(_) = self.told.recv() => return Err(self.stopped()),
            };
            if !error.is_store_away() {
                return Err(cannot_run(error));
            }
            self.say_away(&error);
            tokio::select! {
                () = tokio::time::sleep(wait) => wait = (wait * 2).min(WAIT.1),
                Some(_) = self.told.recv() => return Err(self.stopped()),
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

    /// Begins to move what a program saves, or goes on after a checkpoint of this number.
    pub(super) async fn start_mover(
        &self,
        checkpoints: &Arc<Checkpoints>,
        saves: &Path,
        (foreign, after): (&BTreeSet<PathBuf>, Option<u64>),
        work_at: WorkAt,
    ) -> Result<Moving, WorkerEnd> {
        let mut options = MoverOptions::new(self.order.stint.epoch, saves);
        options.keep = self.order.keep as usize;
        options.after = after;
        options.watch.settle = Duration::from_millis(self.order.settle_ms);
        options.watch.complete.clone_from(&self.order.complete);
        options.watch.marks = self.marks();
        options.watch.foreign = foreign.clone();
        options.watch.streams = checkpoints.streams();
        if let Some(gang) = &self.gang {
            options.role = Role::in_gang(gang, saves).await.map_err(cannot_run)?;
        }
        let (sender, events) = mpsc::unbounded_channel();
        let mover = Mover::start(Arc::clone(checkpoints), options, work_at, sender).await.map_err(cannot_run)?;
        Ok(Moving { mover, events })
    }
}

/// Removes the copies of stints that were killed before they could do so themselves.
fn remove_copies(job_folder: &Path, epoch: u64) {
    for entry in std::fs::read_dir(job_folder).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let name = name.to_str().unwrap_or_default();
        let of = name.strip_prefix("folder-");
        if of.and_then(|of| of.parse::<u64>().ok()).is_some_and(|of| of <= epoch) {
            let _ = folder::remove_tree(&entry.path());
        }
        let of_mark = of.and_then(|of| of.strip_suffix(".lock").or_else(|| of.strip_suffix(".done")));
        if of_mark.and_then(|of| of.parse::<u64>().ok()).is_some_and(|of| of < epoch) {
            let _ = std::fs::remove_file(entry.path());
        }
        if name.starts_with(KEPT_OUTPUTS) && name.ends_with(PENDING) {
            let _ = std::fs::remove_file(entry.path());
        }
    }
}
