//! What an engine and the agent on a lease say to each other: orders down, a view of the worker up.
//!
//! The view is a state, not a stream: the engine may miss any number of changes and still learns the
//! truth from the last one. Times are left out of it, because the agent does not know the world's clock.

use crate::ids::{CheckpointId, StintId};
use crate::record::{Resume, Trouble, TroubleKind, WorkerEnd};
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize};
use std::collections::BTreeMap;

/// Start a worker. The same order twice is the same worker.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StartOrder {
    /// Its stint; the epoch fences its checkpoints.
    pub stint: StintId,
    /// Its place in the gang.
    pub rank: u32,
    /// The gang's size.
    pub world_size: u32,
    /// Host and port of rank 0.
    pub master: (String, u16),
    /// What is executed.
    pub command: Vec<String>,
    /// The folder it runs in.
    pub folder: String,
    /// Whether each stint runs in a fresh copy of that folder, as it would on a new machine.
    pub fresh_folder: bool,
    /// The whole environment, but for what the agent adds.
    pub env: BTreeMap<String, String>,
    /// The file that takes its output.
    pub output: String,
    /// Pattern over the output that says how far it is.
    pub progress: Option<String>,
    /// Where it saves; none gives it a directory on the lease.
    pub checkpoint_dir: Option<String>,
    /// The durable store's address.
    pub checkpoint_store: String,
    /// The job's name inside that store.
    pub checkpoint_key: String,
    /// Complete checkpoints kept.
    pub keep: u32,
    /// See [`crate::spec::CheckpointSpec::settle_ms`].
    pub settle_ms: u64,
    /// See [`crate::spec::CheckpointSpec::complete`].
    #[serde(default)]
    pub complete: Option<String>,
    /// What to resume from.
    pub resume: Resume,
    /// Real milliseconds for which the last upload is tried once the program has ended by itself.
    #[serde(default)]
    pub last_upload_ms: u64,
    /// Paths under the checkpoint directory that were there before the job began.
    pub foreign: Vec<String>,
}

/// A request to an agent; one JSON object a line on its socket, answered by one line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AgentRequest {
    /// Start this worker, unless it was started already.
    Start(Box<StartOrder>),
    /// SIGTERM to the worker now, SIGKILL after the grace in real milliseconds.
    Stop {
        /// Which; one that never started is over at once and will not start later.
        stint: StintId,
        /// Its worker here.
        rank: u32,
        /// Time to save.
        grace_ms: u64,
    },
    /// Tell the worker's program to save, if it listens: the number of the request is written to a file.
    Save {
        stint: StintId,
        /// Grows with every request.
        request: u64,
    },
    /// The machine ends in so many real milliseconds: SIGTERM now, upload what is saved.
    Notice {
        /// Real time left.
        in_ms: u64,
    },
    /// Answer when the view's version is above this one, or after a few seconds.
    Watch {
        /// The last version seen.
        above: u64,
    },
    /// End the worker and everything it left behind, then the agent.
    Quit,
}

/// The answer to every request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentView {
    /// Counts changes.
    pub version: u64,
    /// The agent's process.
    pub pid: u32,
    /// The worker, once one was ordered.
    pub worker: Option<WorkerView>,
}

/// All there is to know about a worker.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkerView {
    /// Its stint.
    pub stint: StintId,
    /// Its place in the gang.
    pub rank: u32,
    /// Its process, once it runs.
    pub pid: Option<u32>,
    /// What it resumed from, once that is known.
    pub restored: Option<CheckpointId>,
    /// The work in that.
    pub restored_work: Option<u64>,
    /// Work done since the job began, as the program says.
    pub done: Option<u64>,
    /// The total, as the program says.
    pub total: Option<u64>,
    /// The newest durable checkpoint of this stint.
    pub durable: Option<CheckpointId>,
    /// The work in that, as the program said it when it wrote the files.
    pub durable_work: Option<u64>,
    /// Real milliseconds that the program had run when it wrote them.
    #[serde(default)]
    pub durable_ran_ms: Option<u64>,
    /// How it ended; set only when nothing of it runs any more. Its last save may still be on its way.
    pub end: Option<WorkerEnd>,
    /// After the end: its last save is durable or given up. Older agents tell of an end only then.
    #[serde(default = "settled")]
    pub settled: bool,
    /// What a rehearsal wants to know.
    pub evidence: Evidence,
    /// What is wrong now: an upload that failed, a store that does not answer.
    #[serde(default, deserialize_with = "trouble")]
    pub trouble: Option<Trouble>,
}

fn settled() -> bool {
    true
}

/// Older agents told of trouble in words alone.
fn trouble<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Trouble>, D::Error> {
    match Option::<serde_json::Value>::deserialize(from)? {
        None => Ok(None),
        Some(serde_json::Value::String(text)) => Ok(Some(Trouble { kind: TroubleKind::NotSaved, text })),
        Some(value) => serde_json::from_value(value).map(Some).map_err(D::Error::custom),
    }
}

impl WorkerView {
    /// A worker of which nothing is known yet.
    pub fn new(stint: StintId, rank: u32) -> WorkerView {
        WorkerView {
            stint,
            rank,
            pid: None,
            restored: None,
            restored_work: None,
            done: None,
            total: None,
            durable: None,
            durable_work: None,
            durable_ran_ms: None,
            end: None,
            settled: false,
            evidence: Evidence::default(),
            trouble: None,
        }
    }
}

/// What was seen of a program's habits; a rehearsal judges by it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Evidence {
    /// Real milliseconds from SIGTERM to the end of the program; none when it was not asked or was killed.
    pub stop_took_ms: Option<u64>,
    /// SIGKILL was needed after SIGTERM.
    pub ignored_sigterm: bool,
    /// Processes that were still there when the program had ended.
    pub left_behind: u32,
    /// Those processes, by number and name.
    #[serde(default)]
    pub left_names: Vec<String>,
    /// Saves that were renamed into place.
    pub renamed_saves: u64,
    /// Saves that overwrote a finished file in place.
    pub in_place_saves: u64,
    /// Saves seen.
    pub saves: u64,
    /// Longest save from first write to last, in real milliseconds.
    pub longest_save_ms: u64,
    /// Real milliseconds from the program's start to its first save.
    pub first_save_ms: Option<u64>,
    /// A file is being written at this moment.
    pub saving_now: bool,
    /// Real milliseconds that restoring took.
    pub restore_ms: u64,
    /// Real milliseconds of the last upload.
    pub upload_ms: u64,
    /// Real milliseconds from the program's start to its first progress.
    pub first_progress_ms: Option<u64>,
    /// Checkpoints that were damaged or torn and were passed over.
    pub skipped: Vec<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_view_of_an_older_agent_is_read() {
        let view = serde_json::to_value(WorkerView::new(StintId::default(), 0)).expect("a view is JSON");
        let mut old = view.as_object().expect("an object").clone();
        old.remove("settled");
        old.remove("durable_ran_ms");
        old.insert("trouble".to_owned(), "old checkpoints stay".into());
        let read: WorkerView = serde_json::from_value(old.into()).expect("read");
        let trouble = read.trouble.expect("told");
        assert_eq!((read.settled, trouble.text.as_str()), (true, "old checkpoints stay"));
        let new: WorkerView = serde_json::from_value(view).expect("read");
        assert!(!new.settled && new.trouble.is_none());
    }
}
