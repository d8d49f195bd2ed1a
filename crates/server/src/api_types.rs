//! What clients and server say to each other: JSON over HTTP on the state directory's socket.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use windfall_core::health::Remedy;
use windfall_core::view::JobView;
use windfall_core::{JobSpec, LedgerRow, Market, NanoUsd, Reason, Span, Symptom, Time};
use windfall_exec::{Accelerator, DiskReading, Finding, Interrupt, LabelChange, Limit, ProgramsRunAs};

/// Who answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// The server's version.
    pub version: String,
    /// Its process.
    pub pid: u32,
    /// This installation.
    pub installation: String,
    /// How many times faster than life its world runs.
    pub speed: u32,
    pub engines: Vec<EngineView>,
    /// The world's clock.
    pub now: Time,
    /// Jobs that are not over.
    pub live_jobs: usize,
    /// Leases that are not known to be gone.
    pub leases: usize,
    /// The database does not take anything now: nothing is decided until it is back.
    #[serde(default)]
    pub database_away: Option<DatabaseAway>,
    /// It was started in the foreground, as services are: whoever keeps it also replaces it.
    #[serde(default)]
    pub is_service: bool,
    /// Where it takes nodes in, if it does.
    #[serde(default)]
    pub listens: Option<SocketAddr>,
}

impl Hello {
    /// The world in a few words: what it replays and how fast, or the engines that it has.
    pub fn world(&self) -> String {
        match self.replays() {
            Some(market) => format!("{}× replay of {market}", self.speed),
            None => {
                let machines = self.engines.iter().flat_map(|engine| match engine.machines.as_slice() {
                    [] => vec![engine.name.as_str()],
                    machines => machines.iter().map(String::as_str).collect(),
                });
                machines.collect::<Vec<_>>().join(", ")
            }
        }
    }

    /// The recording that it replays.
    pub fn replays(&self) -> Option<&str> {
        self.engines.iter().find_map(|engine| engine.replays.as_deref())
    }
}

/// A machine that has joined.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeView {
    pub name: String,
    pub state: NodeState,
    /// Why it takes nothing new: what its operator said, or what is wrong with it.
    pub drained: Option<String>,
    /// How long ago it was heard; none where it was not since the server began.
    pub heard_ms: Option<u64>,
    /// How many of each model it has.
    pub accelerators: BTreeMap<String, u32>,
    /// How many of them jobs have.
    pub accelerators_used: u32,
    /// The jobs on it.
    pub jobs: Vec<u64>,
    pub cpus: u32,
    pub memory_bytes: u64,
    /// The server runs on it.
    #[serde(default)]
    pub is_server: bool,
    /// What an hour of it costs.
    #[serde(rename = "rate_nanousd")]
    pub rate: NanoUsd,
    /// The version of its program.
    pub version: Option<String>,
    /// How long it goes on without the server.
    pub dead_man_ms: u64,
    /// What is said of it.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    /// Its place in the topology by level: zone, block, rack, nvlink.
    #[serde(default)]
    pub domains: BTreeMap<String, String>,
    /// What is known to be wrong with it.
    #[serde(default)]
    pub symptoms: Vec<SymptomView>,
    /// As whom programs run on it, where it says so.
    #[serde(default)]
    pub programs: Option<ProgramsRunAs>,
}

/// Something that is wrong with a node, with its words.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SymptomView {
    pub symptom: Symptom,
    /// What is done about it.
    pub remedy: Remedy,
    pub text: String,
    pub hint: String,
}

impl From<Symptom> for SymptomView {
    fn from(symptom: Symptom) -> SymptomView {
        let (remedy, text, hint) = (symptom.kind.remedy(), symptom.to_string(), symptom.kind.hint().to_owned());
        SymptomView { symptom, remedy, text, hint }
    }
}

/// A node with all that is known of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeDetail {
    pub node: NodeView,
    pub devices: Vec<DeviceView>,
    /// Jobs on it that have no accelerator.
    pub others: Vec<UserView>,
    /// The disk that jobs are written to, where the node has said so.
    pub disk: Option<DiskReading>,
    /// How far the server's clock was ahead of its own when they met.
    pub server_ahead_ms: Option<i64>,
}

/// An accelerator of a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceView {
    pub accelerator: Accelerator,
    /// It was there and is not any more.
    pub is_gone: bool,
    pub celsius: Option<u32>,
    /// Who uses it.
    pub users: Vec<UserView>,
}

/// A job that uses something of a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UserView {
    pub job: u64,
    pub name: String,
    pub owner: String,
}

/// Labels of nodes are to change: of all of these, or of none.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LabelsRequest {
    pub nodes: BTreeMap<String, Vec<LabelChange>>,
}

/// What can be done with a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NodeState {
    Ready,
    /// It takes nothing new.
    Drained,
    /// It is not connected: what it runs goes on for its dead-man time.
    Away,
}

impl NodeState {
    /// For people.
    pub fn word(self) -> &'static str {
        match self {
            NodeState::Ready => "ready",
            NodeState::Drained => "drained",
            NodeState::Away => "away",
        }
    }
}

/// A token is asked for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TokenRequest {
    /// What an hour of the node will cost.
    #[serde(rename = "rate_nanousd", default)]
    pub rate: NanoUsd,
}

/// A token to join by.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TokenAnswer {
    pub token: String,
    /// For how many seconds it can be used.
    pub lives_s: u64,
}

/// A node is to take nothing new.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DrainRequest {
    pub why: String,
}

/// A node is to be forgotten.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RemoveRequest {
    /// The machine is off for good: nothing of it runs.
    #[serde(default)]
    pub lost: bool,
}

/// An engine of a server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EngineView {
    pub name: String,
    /// The zones that it sells in, where they are known.
    pub zones: Vec<String>,
    /// The recording that it replays; none for a real one.
    pub replays: Option<String>,
    /// The machines that it has, and what each has.
    #[serde(default)]
    pub machines: Vec<String>,
    /// Since when it does not answer, by the world's clock.
    pub silent_since: Option<Time>,
}

/// What an engine sells and holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EngineReport {
    pub name: String,
    /// The markets that it sells on now.
    pub markets: Vec<Market>,
    /// How many offers it has now.
    pub offers: u64,
    /// Our leases on it that are up.
    pub leases: u64,
    /// What these cost an hour.
    #[serde(rename = "hourly_nanousd")]
    pub hourly: NanoUsd,
    /// Since when it does not answer, by the world's clock.
    pub silent_since: Option<Time>,
    /// What may be used of it at most, as far as that is known.
    #[serde(default)]
    pub limits: Vec<Limit>,
}

/// What was found out about an engine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EngineChecks {
    pub name: String,
    pub checks: Vec<Finding>,
}

/// What an engine was asked once.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EngineCall {
    /// `offers`, `acquire`, `observe`, `list-owned`, `release`, `forget` or `interrupt`.
    pub what: String,
    /// The groups that it was about; none where it was about all of them.
    pub groups: Vec<String>,
    /// The workload that a group was asked for.
    pub workload: Option<u64>,
    /// When it began.
    pub at_unix_ms: u64,
    pub took_us: u64,
    /// What the engine said where it did not do it.
    pub error: Option<String>,
}

/// Calls of an engine, oldest first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EngineCalls {
    pub calls: Vec<EngineCall>,
    /// Ask for those after this number next.
    pub next: u64,
}

/// Something of ours at an engine that no log knows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stray {
    pub engine: String,
    pub lease: String,
    pub offer: String,
    /// Since when it is paid for; none where it never came up.
    pub since: Option<Time>,
}

/// Since when and why a database is away.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DatabaseAway {
    /// Since when, in milliseconds since 1970.
    pub since_unix_ms: u64,
    /// How long that is.
    pub for_ms: u64,
    /// What it said last.
    pub why: String,
}

/// A job to accept.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Submission {
    /// The client's own key: the same twice is the same job.
    pub key: String,
    /// What to do. Its deadline is ignored: see `deadline_in`.
    pub spec: JobSpec,
    /// Time from now to the deadline, in the world's time.
    pub deadline_in: Option<Span>,
    /// The terminal's environment.
    pub env: BTreeMap<String, String>,
    /// Accept it also when nothing on offer could ever serve it: it waits until something does.
    #[serde(default)]
    pub wait: bool,
    /// Accept it also where its checkpoint path holds files that it did not write: it begins with them.
    #[serde(default)]
    pub with_files: bool,
    /// What lies in its checkpoint path was left by the job that it goes on from.
    #[serde(skip)]
    pub own_files: bool,
    /// The ended job whose checkpoints it goes on from.
    #[serde(default)]
    pub continues: Option<u64>,
}

/// Where what a job left is to be had.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutputsAt {
    /// The store's address.
    pub store: String,
    /// The job's name inside it.
    pub key: String,
    /// What it names to bring back: nothing else counts.
    pub paths: Vec<String>,
}

/// A job was accepted.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Accepted {
    pub id: u64,
    /// What the user should know: promises that cannot be given, for example.
    pub notes: Vec<String>,
}

/// A job, with its bill once it is over.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobAnswer {
    pub job: JobView,
    /// What it cost and what else it might have cost.
    pub bill: Option<Bill>,
    /// Processes of its workers, for those who look.
    pub pids: Vec<u32>,
    /// What went wrong last in moving its checkpoints.
    pub trouble: Option<String>,
    /// The last lines that a failed program printed.
    #[serde(default)]
    pub last_words: Vec<String>,
    /// What was seen of its program's habits.
    pub evidence: Option<windfall_core::worker::Evidence>,
}

/// What a job cost, and what else it might have cost.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bill {
    /// Paid.
    pub cost: NanoUsd,
    /// Of that, for spot.
    pub spot_cost: NanoUsd,
    /// Of that, for everything else that is bought.
    pub firm_cost: NanoUsd,
    /// Of that, for owned machines.
    #[serde(default)]
    pub owned_cost: NanoUsd,
    /// Spot time.
    pub spot: Span,
    /// Time on everything else that is bought.
    pub firm: Span,
    /// Time on owned machines.
    #[serde(default)]
    pub owned: Span,
    /// On-demand alone.
    pub on_demand_only: Option<NanoUsd>,
    /// The least that one who knew the market beforehand would have paid.
    pub omniscient: Option<NanoUsd>,
    /// What was expected when it was submitted.
    #[serde(default)]
    pub forecast: Option<Forecast>,
}

/// What is expected of a job before it runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Forecast {
    /// Mean cost.
    pub cost: NanoUsd,
    /// One in ten costs less.
    pub low: NanoUsd,
    /// One in ten costs more.
    pub high: NanoUsd,
    /// Mean time from the beginning to the end.
    pub elapsed: Span,
}

/// One line of a job's history.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Line {
    /// Its place in the log.
    pub seq: u64,
    /// The world's clock.
    pub at: Time,
    /// What kind of record.
    pub kind: String,
    /// What happened or was decided, in words.
    pub text: String,
    /// Why, for decisions.
    pub reason: Option<Reason>,
}

/// Everything about a job's decisions.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ExplainAnswer {
    pub job: JobView,
    /// What happened and was decided, in order.
    pub lines: Vec<Line>,
    /// The policy that decides.
    pub policy: Option<String>,
    /// Why it stands where it stands.
    pub present: Option<Reason>,
    /// When it will be thought about again at the latest.
    pub next_wakeup: Option<Time>,
}

/// A part of the ledger, in the order in which it was written; the last one ends with what is not written yet.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct LedgerPage {
    /// Its rows.
    pub rows: Vec<LedgerEntry>,
    /// Ask for rows after this number next; none when this was the last page.
    pub next: Option<u64>,
    /// The world's clock.
    pub now: Time,
    /// The recording that this world replays, if it does: its days are not those of the calendar on the wall.
    pub replays: Option<String>,
}

/// A row of the ledger.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LedgerEntry {
    /// Its number in the ledger; none while it is open.
    pub number: Option<u64>,
    /// The lease or the node still runs: the row was worked out until now, and is not written yet.
    pub open: bool,
    /// What it says.
    pub row: LedgerRow,
}

/// Takes a job's lease away (rehearsals).
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct InterruptRequest {
    pub job: u64,
    pub how: Interrupt,
}

/// RFC 9457 problem details.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Problem {
    /// Stable code, such as `no-such-job`.
    #[serde(rename = "type")]
    pub code: String,
    /// One line.
    pub title: String,
    /// HTTP status.
    pub status: u16,
    /// More.
    pub detail: Option<String>,
    /// What to do.
    pub hint: Option<String>,
}
