//! What a server and the agent on a lease say to each other: orders down, a view of the workers up.
//!
//! The view is a state, not a stream: the engine may miss any number of changes and still learns the
//! truth from the last one. Times are left out of it, because the agent does not know the world's clock.

use crate::ids::{CheckpointId, StintId};
use crate::record::{Resume, Trouble, TroubleKind, WorkerEnd};
use crate::spec::SecretFrom;
use serde::de::value::MapAccessDeserializer;
use serde::de::{Error, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::num::ParseIntError;
use std::str::FromStr;
use std::time::Duration;

/// The variable that tells an agent which accelerators of its machine its lease has, as `CUDA_VISIBLE_DEVICES` names them.
/// Without it the lease has all of them.
pub const DEVICES: &str = "WINDFALL_DEVICES";

/// The variable that names the file in which an agent on a node finds when the server was last heard there, a [`Contact`].
/// Without it the agent goes on whatever becomes of the server.
pub const CONTACT: &str = "WINDFALL_CONTACT";

/// The variable that tells an agent how many bytes of memory everything on its lease may have together. Without it, or
/// where the machine could not be told, nothing is kept to any.
pub const MEMORY: &str = "WINDFALL_MEMORY";

/// When a node last knew that the server had heard it, and how long work may go on without that. A file of two numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Contact {
    /// Milliseconds since the machine began.
    pub at_ms: u64,
    pub dead_man_ms: u64,
}

impl Contact {
    /// Whether nothing may run any more, so long after the machine began. One that is yet to come is of a machine that
    /// has begun anew since, or was not written by us.
    pub fn is_over(&self, since_boot: Duration) -> bool {
        let (now, at) = (since_boot.as_millis(), u128::from(self.at_ms));
        now > at + u128::from(self.dead_man_ms) || now < at
    }
}

impl fmt::Display for Contact {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.at_ms, self.dead_man_ms)
    }
}

impl FromStr for Contact {
    type Err = ParseIntError;

    fn from_str(text: &str) -> Result<Contact, ParseIntError> {
        let (at, dead_man) = text.trim().split_once(' ').unwrap_or_default();
        Ok(Contact { at_ms: at.parse()?, dead_man_ms: dead_man.parse()? })
    }
}

/// What is to be on a machine before a program starts there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Provision {
    /// Where this machine keeps what it has unpacked and set up, for all jobs.
    pub place: String,
    pub parcel: ParcelOrder,
    /// See [`crate::spec::Luggage::setup`].
    pub setup: Option<String>,
    /// A digest of the variables that the job itself names: a setup may make something else with others.
    #[serde(default)]
    pub variant: String,
}

/// A parcel to unpack.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ParcelOrder {
    /// The address of its store, and the folder's name in that.
    pub store: String,
    pub key: String,
    pub name: CheckpointId,
    /// See [`crate::spec::Parcel::content`].
    pub content: String,
}

/// What to bring back, and where to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutputsOrder {
    pub store: String,
    pub key: String,
    /// See [`crate::spec::Luggage::outputs`].
    pub paths: Vec<String>,
}

/// Start a worker. The same order twice is the same worker.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StartOrder {
    /// Its stint; the epoch fences its checkpoints.
    pub stint: StintId,
    /// Its place in the gang.
    pub rank: u32,
    /// Who submitted it. A lease is one person's: a machine refuses what somebody else submitted.
    #[serde(default)]
    pub owner: String,
    /// Why it must not run here, where its machine says so: its worker ends with that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
    /// What its machine is called by whoever uses it; empty where nobody has named it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub machine: String,
    /// The gang's size.
    pub world_size: u32,
    /// Where others reach its machine. The port is 0: rank 0, or who runs alone, takes one that is free there.
    pub master: (String, u16),
    /// What is executed.
    pub command: Vec<String>,
    /// The folder it runs in, unless it has a parcel.
    pub folder: String,
    /// What is to be on its machine before it starts; none where it runs in a folder that is there.
    #[serde(default)]
    pub provision: Option<Provision>,
    /// Its secrets by name: their values are filled in when it is carried out.
    #[serde(default, skip_serializing)]
    pub secrets: BTreeMap<String, SecretFrom>,
    /// What is brought back from its folder.
    #[serde(default)]
    pub outputs: Option<OutputsOrder>,
    /// Whether each stint runs in a fresh copy of that folder, as it would on a new machine.
    pub fresh_folder: bool,
    /// The whole environment, but for what the agent adds.
    pub env: BTreeMap<String, String>,
    /// The accelerators of the lease that the program may see, by number; none for all of them.
    #[serde(default)]
    pub devices: Option<Vec<u32>>,
    /// How much of its one accelerator the program has, as so many of so many; none for all of it.
    #[serde(default)]
    pub share: Option<(u32, u32)>,
    /// The file that takes its output.
    pub output: String,
    /// Pattern over the output that says how far it is.
    pub progress: Option<String>,
    /// Where it saves; none gives it a directory on the lease.
    pub checkpoint_dir: Option<String>,
    /// Where it saves inside its folder; instead of `checkpoint_dir`.
    #[serde(default)]
    pub checkpoint_inside: Option<String>,
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
    /// The last stint of the job that its job goes on from; 0 where there is none.
    #[serde(default)]
    pub continues_after: u64,
    /// Real milliseconds for which the last upload is tried once the program has ended, unless the machine goes before.
    #[serde(default)]
    pub last_upload_ms: u64,
    /// Paths under the checkpoint directory that were there before the job began.
    pub foreign: Vec<String>,
}

impl StartOrder {
    /// One worker of a stint that runs nothing yet and keeps nothing.
    pub fn of(stint: StintId, rank: u32, world_size: u32) -> StartOrder {
        StartOrder {
            stint,
            rank,
            owner: String::new(),
            refused: None,
            machine: String::new(),
            world_size,
            master: (String::new(), 0),
            command: Vec::new(),
            folder: String::new(),
            provision: None,
            secrets: BTreeMap::new(),
            outputs: None,
            fresh_folder: false,
            env: BTreeMap::new(),
            devices: None,
            share: None,
            output: String::new(),
            progress: None,
            checkpoint_dir: None,
            checkpoint_inside: None,
            checkpoint_store: String::new(),
            checkpoint_key: String::new(),
            keep: 1,
            settle_ms: 0,
            complete: None,
            resume: Resume::Newest,
            continues_after: 0,
            last_upload_ms: 0,
            foreign: Vec::new(),
        }
    }
}

/// A request to an agent; one JSON object a line on its socket, answered by one line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AgentRequest {
    /// Start this worker, unless it was started already. Others on the lease go on.
    Start(Box<StartOrder>),
    /// SIGTERM to the worker now, SIGKILL after the grace in real milliseconds.
    Stop {
        /// Which; one that never started is over at once and will not start later.
        stint: StintId,
        /// Its worker here.
        rank: u32,
        /// Time to save.
        grace_ms: u64,
        /// Ranks of its gang whose machines are gone, and with them what a checkpoint of all of them would need: nobody waits
        /// for them.
        #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
        gone: BTreeSet<u32>,
        /// There are such ranks. Older servers do not name them, and older agents know no more than this.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        is_torn: bool,
        /// Nobody waits for what is saved: it is killed at once, and a last save that is on its way is given up.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        gives_up: bool,
    },
    /// Tell the program of this stint to save, if it listens: the number of the request is written to a file.
    Save {
        stint: StintId,
        /// Grows with every request.
        request: u64,
    },
    /// The machine ends in so many real milliseconds: SIGTERM to every worker now, upload what is saved.
    Notice {
        /// Real time left.
        in_ms: u64,
    },
    /// Answer when the view's version is above this one, or after a few seconds.
    Watch {
        /// The last version seen.
        above: u64,
    },
    /// End the workers and everything they left behind, then the agent.
    Quit,
}

/// The answer to every request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentView {
    /// Counts changes.
    pub version: u64,
    /// The agent's process.
    pub pid: u32,
    /// The last worker of every workload and member that was ordered here. Agents from before leases were shared told
    /// of one as `worker`, or of `null`.
    #[serde(alias = "worker", deserialize_with = "workers")]
    pub workers: Vec<WorkerView>,
}

impl AgentView {
    /// The last worker of a stint's workload and member.
    pub fn last_of(&self, stint: StintId) -> Option<&WorkerView> {
        self.workers.iter().find(|worker| worker.is_of(stint))
    }
}

/// All of them, or the one of an older agent.
fn workers<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<WorkerView>, D::Error> {
    struct Workers;
    impl<'de> Visitor<'de> for Workers {
        type Value = Vec<WorkerView>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("workers")
        }

        fn visit_unit<E: Error>(self) -> Result<Vec<WorkerView>, E> {
            Ok(Vec::new())
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut all: A) -> Result<Vec<WorkerView>, A::Error> {
            let mut workers = Vec::new();
            while let Some(worker) = all.next_element()? {
                workers.push(worker);
            }
            Ok(workers)
        }

        fn visit_map<A: MapAccess<'de>>(self, one: A) -> Result<Vec<WorkerView>, A::Error> {
            WorkerView::deserialize(MapAccessDeserializer::new(one)).map(|worker| vec![worker])
        }
    }
    from.deserialize_any(Workers)
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
    struct MaybeTrouble;
    impl<'de> Visitor<'de> for MaybeTrouble {
        type Value = Option<Trouble>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("trouble")
        }

        fn visit_unit<E: Error>(self) -> Result<Option<Trouble>, E> {
            Ok(None)
        }

        fn visit_str<E: Error>(self, text: &str) -> Result<Option<Trouble>, E> {
            Ok(Some(Trouble { kind: TroubleKind::NotSaved, text: text.to_owned() }))
        }

        fn visit_map<A: MapAccess<'de>>(self, told: A) -> Result<Option<Trouble>, A::Error> {
            Trouble::deserialize(MapAccessDeserializer::new(told)).map(Some)
        }
    }
    from.deserialize_any(MaybeTrouble)
}

impl WorkerView {
    /// Whether it is of the same workload and member as a stint, whatever the epoch.
    pub fn is_of(&self, stint: StintId) -> bool {
        (self.stint.workload, self.stint.member) == (stint.workload, stint.member)
    }

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
    use crate::ids::WorkloadId;

    /// As an agent of the binary before leases were shared answers, and writes it down in its lease's folder.
    const WITH_ONE: &str = r#"{"version":7,"pid":4711,"worker":{"stint":{"workload":3,"member":0,"epoch":2},"rank":1,
        "pid":4712,"restored":{"epoch":1,"seq":4},"restored_work":10,"done":12,"total":40,"durable":{"epoch":2,"seq":1},
        "durable_work":11,"durable_ran_ms":900,"end":null,"settled":false,"evidence":{"stop_took_ms":null,
        "ignored_sigterm":false,"left_behind":0,"left_names":[],"renamed_saves":0,"in_place_saves":1,"saves":1,
        "longest_save_ms":3,"first_save_ms":200,"saving_now":false,"restore_ms":5,"upload_ms":6,
        "first_progress_ms":100,"skipped":[]},"trouble":null}}"#;
    const WITH_NONE: &str = r#"{"version":1,"pid":4711,"worker":null}"#;

    #[test]
    fn an_agent_that_knows_of_one_worker_is_understood() {
        let read = |text| serde_json::from_str::<AgentView>(text).expect("read");
        assert_eq!(read(WITH_NONE), AgentView { version: 1, pid: 4711, workers: Vec::new() });
        let one = read(WITH_ONE);
        let stint = StintId::of_job(WorkloadId(3), 2);
        let seen: Vec<_> = one.workers.iter().map(|worker| (worker.stint, worker.pid, worker.done)).collect();
        assert_eq!(seen, [(stint, Some(4712), Some(12))]);
    }

    #[test]
    fn a_contact_is_over_after_its_dead_man_time_and_not_before() {
        let contact = Contact { at_ms: 1_000, dead_man_ms: 500 };
        assert_eq!(contact.to_string().parse(), Ok(contact));
        assert!(["", "1", "1 x", "-1 5"].iter().all(|text| text.parse::<Contact>().is_err()));
        assert!(!contact.is_over(Duration::from_millis(1_500)) && contact.is_over(Duration::from_millis(1_501)));
        assert!(contact.is_over(Duration::ZERO), "a file from before the machine began anew");
    }

    #[test]
    fn several_workers_are_read_as_they_were_written() {
        let of = |workload| WorkerView::new(StintId::of_job(WorkloadId(workload), 1), 0);
        let view = AgentView { version: 2, pid: 1, workers: vec![of(1), of(2)] };
        let text = serde_json::to_string(&view).expect("a view is JSON");
        assert_eq!(serde_json::from_str::<AgentView>(&text).expect("read"), view);
        assert_eq!(view.last_of(StintId::of_job(WorkloadId(2), 9)), Some(&of(2)), "whatever the epoch");
        assert_eq!(view.last_of(StintId::of_job(WorkloadId(3), 1)), None);
    }

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
