//! What the engine sees of a worker, and what of that outlives the agent.

use super::files::write_whole;
use std::path::Path;
use tokio::sync::watch;
use windfall_core::worker::{AgentView, WorkerView};

/// Changes the view; an end is written to the folder first, so that it outlives the agent.
pub(super) fn publish(dir: &Path, view: &watch::Sender<AgentView>, change: impl FnOnce(&mut Option<WorkerView>)) {
    view.send_if_modified(|view| {
        let before = view.worker.clone();
        change(&mut view.worker);
        if view.worker == before {
            return false;
        }
        view.version += 1;
        let durable = |worker: &Option<WorkerView>| worker.as_ref().and_then(|worker| worker.durable);
        if view.worker.as_ref().is_some_and(|worker| worker.end.is_some()) || durable(&before) != durable(&view.worker)
        {
            let text = serde_json::to_vec(view).expect("a view has string keys");
            let _ = write_whole(&dir.join("view.json"), &text);
        }
        true
    });
}
