//! What the server sees of the workers, and what of that outlives the agent.

use super::files::write_whole;
use std::path::{Path, PathBuf};
use tokio::sync::watch;
use windfall_core::StintId;
use windfall_core::worker::{AgentView, WorkerView};

/// The view of the lease's workers, which all of them change.
#[derive(Clone)]
pub(super) struct SharedView {
    /// The lease's folder.
    dir: PathBuf,
    view: watch::Sender<AgentView>,
}

impl SharedView {
    pub fn new(dir: &Path) -> (SharedView, watch::Receiver<AgentView>) {
        let (view, seen) = watch::channel(AgentView { version: 1, pid: std::process::id(), workers: Vec::new() });
        (SharedView { dir: dir.to_owned(), view }, seen)
    }

    /// The last worker of a stint's workload and member, whatever its epoch.
    pub fn last_of(&self, stint: StintId) -> Option<WorkerView> {
        self.view.borrow().last_of(stint).cloned()
    }

    /// Shows a new worker in place of the last of its workload and member.
    pub fn show(&self, worker: WorkerView) {
        self.publish(|workers| match workers.iter_mut().find(|last| last.is_of(worker.stint)) {
            Some(last) => *last = worker,
            None => workers.push(worker),
        });
    }

    /// Changes what is seen of a stint's worker. Nothing happens once another stint is shown.
    pub fn change(&self, stint: StintId, change: impl FnOnce(&mut WorkerView)) {
        self.publish(|workers| {
            if let Some(worker) = workers.iter_mut().find(|worker| worker.stint == stint) {
                change(worker);
            }
        });
    }

    /// Ends and durable saves are written to the folder first, so that they outlive the agent.
    fn publish(&self, change: impl FnOnce(&mut Vec<WorkerView>)) {
        self.view.send_if_modified(|view| {
            let before = view.workers.clone();
            change(&mut view.workers);
            if view.workers == before {
                return false;
            }
            view.version += 1;
            let outlives = |worker: &WorkerView| {
                let known = before.iter().find(|known| known.stint == worker.stint);
                known != Some(worker)
                    && (worker.end.is_some() || known.and_then(|known| known.durable) != worker.durable)
            };
            if view.workers.iter().any(outlives) {
                let text = serde_json::to_vec(view).expect("a view has string keys");
                let _ = write_whole(&self.dir.join("view.json"), &text);
            }
            true
        });
    }
}
