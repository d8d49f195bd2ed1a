//! What the server sees of the workers, and what of that outlives the agent.

use super::files::write_whole;
use std::path::{Path, PathBuf};
use tokio::sync::watch;
use windfall_core::worker::{AgentView, WorkerView};
use windfall_core::{StintId, WorkerEnd};

/// What outlives the agent, in the lease's folder.
const VIEW: &str = "view.json";
/// Workers that are shown: a lease that many jobs share one after the other has a view that is always short enough to be told.
const MOST_WORKERS: usize = 500;
/// Bytes of each text that is for people: paths and what stores say have any length.
const MOST_TEXT: usize = 2_000;
/// Names in a list of such texts.
const MOST_NAMES: usize = 20;

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

    /// Shows what an agent before this one did: what it wrote down, and these workers, of which it may have been killed before
    /// it did so. It is written down again as this agent's, so that whoever reads both takes the later one.
    pub fn take_over(&self, workers: impl Iterator<Item = WorkerView>) {
        let written = std::fs::read(self.dir.join(VIEW)).ok();
        let written = written.and_then(|text| windfall_core::codec::from_json::<AgentView>(&text).ok());
        // One without an end was not written down when it ended: nothing runs any more.
        let mut known = written.map(|view| view.workers).unwrap_or_default();
        known.retain(|worker| worker.end.is_some());
        let missing: Vec<WorkerView> =
            workers.filter(|worker| !known.iter().any(|known| known.stint == worker.stint)).collect();
        let of_others = known.into_iter().filter(|known| !missing.iter().any(|worker| worker.is_of(known.stint)));
        let all: Vec<WorkerView> = of_others.chain(missing.clone()).collect();
        self.publish(|workers| *workers = all);
    }

    /// The last worker of a stint's workload and member, whatever its epoch.
    pub fn last_of(&self, stint: StintId) -> Option<WorkerView> {
        self.view.borrow().last_of(stint).cloned()
    }

    /// Shows a new worker in place of the last of its workload and member.
    pub fn show(&self, worker: WorkerView) {
        self.publish(|workers| match workers.iter_mut().find(|last| last.is_of(worker.stint)) {
            Some(last) => *last = worker,
            None => {
                forget_one(workers);
                workers.push(worker);
            }
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
            view.workers.iter_mut().filter(|worker| !before.contains(worker)).for_each(shorten);
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
                let _ = write_whole(&self.dir.join(VIEW), &text);
            }
            true
        });
    }
}

/// Makes room for one more worker: the one that was shown first of those that are over, as the server has heard long ago.
fn forget_one(workers: &mut Vec<WorkerView>) {
    if workers.len() >= MOST_WORKERS
        && let Some(oldest) = workers.iter().position(|worker| worker.end.is_some() && worker.settled)
    {
        workers.remove(oldest);
    }
}

/// Cuts what is for people to a length that people read.
fn shorten(worker: &mut WorkerView) {
    let lists = [&mut worker.evidence.left_names, &mut worker.evidence.skipped];
    lists.into_iter().for_each(|list| {
        list.truncate(MOST_NAMES);
        list.iter_mut().for_each(cut);
    });
    worker.trouble.iter_mut().for_each(|trouble| cut(&mut trouble.text));
    if let Some(WorkerEnd::NeverRan { why } | WorkerEnd::NoRoom { why } | WorkerEnd::StoreAway { why }) =
        &mut worker.end
    {
        cut(why);
    }
}

fn cut(text: &mut String) {
    if text.len() > MOST_TEXT {
        text.truncate(text.floor_char_boundary(MOST_TEXT));
        text.push_str("...");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use windfall_core::{Trouble, TroubleKind, WorkloadId};

    #[test]
    fn a_view_stays_short_whatever_its_workers_say_and_however_many_there_were() {
        let dir = tempfile::tempdir().expect("a folder");
        let (shared, seen) = SharedView::new(dir.path());
        let stint = |job: u64| StintId::of_job(WorkloadId(job), 1);
        let ended = |job: u64, why: String| {
            let end = Some(WorkerEnd::NeverRan { why });
            WorkerView { end, settled: true, ..WorkerView::new(stint(job), 0) }
        };
        shared.show(WorkerView::new(stint(1), 0));
        (2..=MOST_WORKERS as u64 + 10).for_each(|job| shared.show(ended(job, String::new())));
        assert_eq!(seen.borrow().workers.len(), MOST_WORKERS);
        assert!(shared.last_of(stint(1)).is_some(), "it still runs");
        assert!(shared.last_of(stint(2)).is_none() && shared.last_of(stint(MOST_WORKERS as u64)).is_some());
        let long = "\u{e4}".repeat(1 << 20);
        shared.change(stint(1), |worker| {
            worker.trouble = Some(Trouble { kind: TroubleKind::Remark, text: long.clone() });
            worker.evidence.skipped = vec![long.clone(); 100];
            worker.evidence.left_names = vec![long.clone(); 100];
        });
        shared.show(ended(9_999, long));
        let written = std::fs::metadata(dir.path().join("view.json")).expect("written").len();
        assert!(written < 1 << 20, "{written} bytes");
        let trouble = shared.last_of(stint(1)).and_then(|worker| worker.trouble).expect("said");
        assert!(trouble.text.len() <= MOST_TEXT + 3 && trouble.text.ends_with("..."));
    }
}
