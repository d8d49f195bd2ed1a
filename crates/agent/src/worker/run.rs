//! One worker's run, step by step: restore, start, watch, warn, end, last save. Its end is published only when nothing
//! of it runs any more, and before the last save, which may take long.

use super::gang::name_of_folder;
use super::program::ProgramEnd;
use super::provision::Provided;
use super::restore::Folders;
use super::state::{Asked, Moving, WorkerRun};
use crate::progress::{Reader, now_ms};
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Instant;
use windfall_core::WorkerEnd;

/// A program that has ended, with what it left.
struct EndedProgram {
    end: WorkerEnd,
    /// Whether it was asked to stop, and by when.
    asked: Option<Asked>,
    /// The program, or one of its processes near the end, died of a signal.
    died: bool,
    cwd: PathBuf,
    saves: PathBuf,
    mover: Option<Moving>,
    /// Held until the end: what it was copied from stays as long.
    provided: Option<Provided>,
}

impl WorkerRun {
    pub(super) async fn run(mut self) {
        let ended = match self.run_program().await {
            Ok(ended) => ended,
            Err(end) => {
                self.change(|worker| (worker.end, worker.settled) = (Some(end), true));
                return;
            }
        };
        let EndedProgram { end, asked, died, cwd, saves, mover, provided } = ended;
        self.tell_end(died);
        let more = mover.is_some() || self.order.outputs.is_some() || provided.is_some() || self.gang.is_some();
        if (self.order.outputs.is_some() || mover.is_some()) && self.is_first_in_folder() {
            // Without it they are sent all the same.
            let _ = std::fs::write(self.owes(), b"");
        }
        self.change(|worker| (worker.end, worker.settled) = (Some(end), !more));
        let mut is_saved = true;
        if let Some(mover) = mover {
            is_saved = self.last_save(mover, &saves, asked).await;
        }
        let asked = self.until_quiet(asked).await;
        is_saved &= self.bring_back(&cwd, asked).await;
        let _ = std::fs::remove_file(self.owes());
        if provided.is_some() && is_saved && self.is_first_in_folder() && self.is_quiet_in_folder() {
            // A copy for this stint alone; what of it was to stay is in a store.
            let _ = tokio::task::spawn_blocking(move || crate::folder::remove_tree(&cwd)).await;
        }
        self.be_heard().await;
        if more {
            self.change(|worker| worker.settled = true);
        }
    }

    /// Prepares, runs and ends the program, with everything below it. Fails with the end of a worker whose program never ran.
    async fn run_program(&mut self) -> Result<EndedProgram, WorkerEnd> {
        let Folders { cwd, saves, provided } = self.prepare_folder().await?;
        self.folder_name = name_of_folder(&cwd);
        // A fresh copy holds nothing of the user's under the checkpoint directory.
        let foreign: BTreeSet<PathBuf> = match self.order.fresh_folder || provided.is_some() {
            true => BTreeSet::new(),
            false => self.order.foreign.iter().map(PathBuf::from).collect(),
        };
        let checkpoints = self.restore(&saves, &foreign).await?;
        // A stop that came during the restore: nothing ran, so nothing is to be saved.
        if self.told.try_recv().is_ok() {
            return Err(WorkerEnd::Stopped);
        }
        let helper = self.dir.join(format!("progress-{}", self.order.stint.epoch));
        let mut reader = Reader::new(helper.clone(), PathBuf::from(&self.order.output), self.order.progress.as_deref());
        let mut mover = match &checkpoints {
            Some(checkpoints) => Some(self.start_mover(checkpoints, &saves, &foreign, &reader).await?),
            None => None,
        };
        self.began_ms = now_ms();
        let mut program = self.spawn(&cwd, &saves, &helper)?;
        let began = Instant::now();
        self.change(|worker| worker.pid = Some(program.main as u32));
        let ProgramEnd { end, asked, mut died } = self.watch(&mut program, &mut reader, mover.as_mut(), began).await;
        if died && let Some(moving) = &mover {
            moving.mover.on_death(Instant::now()).await;
        }
        died |= self.wait_for_the_rest(&program, asked, mover.as_ref()).await;
        died |= self.end_the_rest(&program, mover.as_ref()).await;
        if !died && let Some(moving) = &mover {
            moving.mover.on_clean_end().await;
        }
        self.report_progress(&mut reader, began);
        Ok(EndedProgram { end, asked, died, cwd, saves, mover, provided })
    }
}
