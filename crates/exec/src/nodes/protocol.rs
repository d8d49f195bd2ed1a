//! What a server and a node say to each other. A node speaks first; after its welcome both ask and answer.

use super::labels::Labels;
use crate::accounts::ProgramsRunAs;
use crate::machines::Inventory;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;
use windfall_core::pool::Shape;
use windfall_core::worker::{AgentRequest, AgentView};
use windfall_core::{LeaseId, StintId, Symptom, WorkloadId};

/// Raised when what is said changes in a way that the other side must know of. What is only added, with a usual value for whoever
/// does not say it, changes nothing (`said_before.rs`).
pub(crate) const PROTOCOL: u32 = 2;
/// The oldest that a server still understands: its agents are upgraded after it, one by one.
pub(crate) const OLDEST_PROTOCOL: u32 = 1;
/// The longest first message: whoever sends it may be anybody.
pub(crate) const MOST_HELLO: usize = 64 << 10;

/// The first thing that a node says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Hello {
    pub protocol: u32,
    /// The version of its program.
    pub build: String,
    /// The process that speaks: another one with the same key is another machine.
    pub instance: String,
    /// What tells its machine from others, also after that was started anew. Earlier agents say nothing.
    #[serde(default)]
    pub machine: Option<String>,
    pub purpose: Purpose,
}

/// What a connection is for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Purpose {
    /// Orders down and beats up: one of these a node.
    Serve {
        /// What it is joining by, if it has not joined yet.
        joins: Option<Joins>,
        inventory: Inventory,
        /// What its own configuration says of it. Earlier agents say nothing.
        #[serde(default)]
        labels: Labels,
        /// As whom programs run on it. Earlier agents say nothing.
        #[serde(default)]
        programs: Option<ProgramsRunAs>,
    },
    /// What the server's store has of a job that runs there: after the welcome the stream is the store's.
    Store(InStore),
}

/// What a node may have of the server's store. Written as `7`, `7/folder` or `7/outputs`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InStore {
    pub workload: WorkloadId,
    #[serde(default)]
    pub part: StorePart,
}

/// Which part of what a store has of a job.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum StorePart {
    #[default]
    Checkpoints,
    /// The folder that it was submitted from. Other jobs have the same one.
    Folder,
    /// What it brings back.
    Outputs,
}

impl StorePart {
    const ALL: [StorePart; 3] = [StorePart::Checkpoints, StorePart::Folder, StorePart::Outputs];

    fn suffix(self) -> &'static str {
        match self {
            StorePart::Checkpoints => "",
            StorePart::Folder => "/folder",
            StorePart::Outputs => "/outputs",
        }
    }
}

impl fmt::Display for InStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.workload.0, self.part.suffix())
    }
}

impl FromStr for InStore {
    type Err = String;

    fn from_str(text: &str) -> Result<InStore, String> {
        let (number, suffix) = text.split_at(text.find('/').unwrap_or(text.len()));
        let part = StorePart::ALL.into_iter().find(|part| part.suffix() == suffix);
        let read = number.parse().ok().zip(part).map(|(number, part)| InStore { workload: WorkloadId(number), part });
        read.ok_or_else(|| format!("not what a store has of a job: {text}"))
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Joins {
    /// A token, as a person carried it here.
    pub token: String,
    /// What it wants to be called; a token that was made for another name is refused.
    pub name: Option<String>,
}

/// What a server answers to it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Welcome {
    Welcome {
        name: String,
        /// Without a word from the server for this long, everything that runs here is ended.
        dead_man_ms: u64,
        /// The server's wall clock, for whoever looks why logs disagree. Earlier servers do not say it.
        #[serde(default)]
        now_unix_ms: Option<u64>,
    },
    Refused(NotWelcome),
}

/// Why a node is not welcome.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "kebab-case")]
pub enum NotWelcome {
    #[error("the token was used before, has expired, or is of another server")]
    Token,
    #[error("the token was made for a node of another name: {name}")]
    OtherName { name: String },
    #[error("a node called {name} has joined already, with another key")]
    NameTaken { name: String },
    #[error("its key is not known here: it has not joined, or was removed")]
    Unknown,
    #[error("job {job} does not run on this node")]
    NotItsJob { job: u64 },
    #[error("another machine with the same key is connected")]
    Twice,
    #[error("it speaks another version of the protocol: {theirs}, not {ours}")]
    Protocol { ours: u32, theirs: u32 },
    #[error("the server cannot take it: {why}")]
    Trouble { why: String },
}

impl NotWelcome {
    /// Whether asking again may help.
    pub fn may_pass(&self) -> bool {
        matches!(self, NotWelcome::Twice | NotWelcome::Trouble { .. } | NotWelcome::Protocol { .. })
    }

    /// What a person can do about it.
    pub fn hint(&self) -> &'static str {
        match self {
            NotWelcome::Token | NotWelcome::Unknown => "`windfall nodes token NAME` on the server makes a new token",
            NotWelcome::NotItsJob { .. } => "see `windfall explain` of the job",
            NotWelcome::OtherName { .. } => "leave --name out, or make a token for this name",
            NotWelcome::NameTaken { .. } => "choose another name, or `windfall nodes remove NAME` on the server first",
            NotWelcome::Twice => "a copied disk has copied the key: delete the agent's state directory on one of them",
            NotWelcome::Protocol { ours, theirs } if theirs > ours => {
                "this agent is newer than its server: upgrade the server first; what runs here goes on meanwhile"
            }
            NotWelcome::Protocol { .. } => "install the server's version of windfall here",
            NotWelcome::Trouble { .. } => "see the server's log",
        }
    }
}

/// What a server asks of a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum ToNode {
    /// Start the agent of a lease, whose programs see these accelerators. Answered with the number of the last [`Beat`]
    /// in which it was not.
    Launch {
        lease: LeaseId,
        devices: Vec<String>,
        /// Who it is for. Earlier servers do not say it.
        #[serde(default)]
        owner: String,
        /// The most that it has of the machine's cores and memory.
        #[serde(default)]
        limits: Shape,
    },
    /// End a lease and everything on it; it can never be launched afterwards. Answered when nothing of it runs.
    End { lease: LeaseId, gently: bool },
    /// A request to the agent of a lease. Answered with a [`Heard`].
    Ask { lease: LeaseId, request: AgentRequest },
    /// These have ended, and nobody will ask for them again.
    Forget { leases: Vec<LeaseId> },
}

/// What a lease is to be on its machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct LeaseOrder {
    pub devices: Vec<String>,
    pub owner: String,
    pub limits: Shape,
}

/// What a node tells its server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum ToServer {
    /// Answered with nothing.
    Beat(Beat),
    /// The body is what a worker's program has printed from this place of its output on. Answered with how long the
    /// server's copy is now, or with a [`NotKept`]; one without a body only asks that. Refused where the server knows no such
    /// worker on this node. Earlier servers refuse as well what they could not write down.
    Output { stint: StintId, rank: u32, offset: u64 },
}

/// The server knows the worker, and could not write down what it printed: that is to be sent again later. Earlier agents look
/// for a length, do not find one, and send it again too.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) struct NotKept {
    /// Why, for people.
    pub not_kept: String,
}

/// What came of a request to an agent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Heard {
    Said(AgentView),
    /// Nobody listens: the agent has ended, or has not begun.
    Nobody(Option<AgentView>),
}

/// What a node tells of itself every few seconds, and whenever something of it changes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Beat {
    /// Grows with every one of a connection, from 1.
    pub number: u64,
    /// Every lease that is known here.
    pub leases: Vec<OnNode>,
    /// How the machine is; none before it has looked. Earlier agents do not say.
    #[serde(default)]
    pub health: Option<HealthReport>,
}

/// How a machine is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HealthReport {
    /// What is wrong with it now, and what its accelerators' driver reported since its agent began.
    pub symptoms: Vec<Symptom>,
    /// What its accelerators show.
    #[serde(default)]
    pub devices: Vec<DeviceReading>,
    /// The disk that jobs are written to.
    #[serde(default)]
    pub disk: Option<DiskReading>,
    /// How far the server's clock was ahead of its own when they met, in milliseconds.
    #[serde(default)]
    pub server_ahead_ms: Option<i64>,
}

/// What an accelerator shows.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceReading {
    pub device: String,
    #[serde(default)]
    pub celsius: Option<u32>,
}

/// How full a disk is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiskReading {
    pub free_bytes: u64,
    pub of_bytes: u64,
    #[serde(default)]
    pub is_read_only: bool,
}

/// A lease as its node sees it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct OnNode {
    pub lease: LeaseId,
    pub is_alive: bool,
    /// What its agent wrote down before it ended.
    pub last: Option<AgentView>,
}
