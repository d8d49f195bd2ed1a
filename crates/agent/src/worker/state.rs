//! What every step of a worker's run knows: its order, what it is told meanwhile, and the view that it publishes.

use super::view::publish;
use crate::checkpoint::{CheckpointError, Mover, MoverEvent};
use std::path::{Path, PathBuf};
use std::time::Instant;
use tokio::sync::{mpsc, watch};
use windfall_core::WorkerEnd;
use windfall_core::worker::{AgentView, StartOrder, WorkerView};

/// One run of a worker, from its order to its last save.
pub(super) struct WorkerRun {
    /// The lease's folder.
    pub dir: PathBuf,
    pub order: StartOrder,
    pub view: watch::Sender<AgentView>,
    pub told: mpsc::UnboundedReceiver<Tell>,
    /// When the program was started, in milliseconds since 1970.
    pub began_ms: u64,
}

/// What a worker is told while it runs.
#[derive(Clone, Copy, Debug)]
pub(super) enum Tell {
    /// Save and stop; killed at that time.
    Stop(Instant),
    /// The agent ends now: a last save that is still on its way is given up.
    Quit,
}

/// The mover of a stint's checkpoints, and what it reports.
pub(super) struct Moving {
    pub mover: Mover,
    pub events: mpsc::UnboundedReceiver<MoverEvent>,
}

/// The end of a worker whose program could not be started, with the reason for people.
pub(super) fn never_ran(why: impl Into<String>) -> WorkerEnd {
    WorkerEnd::NeverRan { why: why.into() }
}

pub(super) fn cannot_run(error: CheckpointError) -> WorkerEnd {
    never_ran(error.trouble().text)
}

impl WorkerRun {
    pub fn new(dir: PathBuf, order: StartOrder, view: watch::Sender<AgentView>) -> (Self, mpsc::UnboundedSender<Tell>) {
        let (tell, told) = mpsc::unbounded_channel();
        (WorkerRun { dir, order, view, told, began_ms: 0 }, tell)
    }

    /// Changes what is seen of this worker. Nothing happens once another stint is shown.
    pub fn change(&self, change: impl FnOnce(&mut WorkerView)) {
        publish(&self.dir, &self.view, |view| {
            if let Some(worker) = view.as_mut().filter(|worker| worker.stint == self.order.stint) {
                change(worker);
            }
        });
    }

    /// The job's folder: what is there outlives the lease, and the ranks of a gang share it.
    pub fn job_folder(&self) -> &Path {
        Path::new(&self.order.output).parent().unwrap_or(&self.dir)
    }
}
