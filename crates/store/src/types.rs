//! What is stored. Payloads are JSON text with a version number: who writes them reads them, the store never looks
//! inside. Texts that travel often are shared (`Arc<str>`), so a row can be copied for the price of two counters.

use std::{borrow::Cow, sync::Arc};

/// One line of the append-only log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// Place in the log: the first row has 1, each next row one more.
    pub seq: u64,
    /// The batch that this row was decided in; a replay keeps its boundaries.
    pub batch: u64,
    /// When it was written, milliseconds since 1970.
    pub at_ms: i64,
    /// The job or fleet it belongs to.
    pub workload: Option<u64>,
    /// What the payload is, such as `job-submitted`.
    pub kind: Cow<'static, str>,
    /// Version of the payload's format.
    pub version: u16,
    /// JSON.
    pub payload: Arc<str>,
}

/// What lists and pages show of a job or fleet; the newest writing counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobRow {
    /// The job's id; a later job has a higher one.
    pub workload: u64,
    /// Its name, not unique.
    pub name: String,
    pub owner: String,
    /// Its state, in words.
    pub state: String,
    /// Whether it still may change; the log of a live job is never cut.
    pub live: bool,
    /// When it was submitted, milliseconds since 1970.
    pub submitted_at_ms: i64,
    pub ended_at_ms: Option<i64>,
    /// Version of the summary's format.
    pub version: u16,
    /// JSON.
    pub summary: Arc<str>,
}

/// Money for one lease over one interval. Ledger rows outlive the log; a correction is another row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LedgerRow {
    /// Place in the ledger: the first row has 1, each next row one more (its own count, apart from the log's).
    pub seq: u64,
    /// The lease that was paid for, or the node, where a node is and no lease had that part of it.
    pub lease: String,
    /// Who it is charged to; `None` is idle, foreign, not ready, drained or overhead.
    pub workload: Option<u64>,
    pub from_ms: i64,
    pub to_ms: i64,
    /// Amount in nano-dollars (an `i64` holds 9.2 thousand million dollars); negative where a correction gives back.
    pub nanousd: i64,
    /// Version of the payload's format.
    pub version: u16,
    /// JSON.
    pub payload: Arc<str>,
}

/// What is written together: all of it, or nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Commit {
    /// Log rows; their numbers continue the log.
    pub rows: Vec<Row>,
    /// Jobs to insert or replace; of two with one id the later counts.
    pub jobs: Vec<JobRow>,
    /// Ledger rows; their numbers continue the ledger.
    pub ledger: Vec<LedgerRow>,
    /// Notes of new jobs.
    pub notes: Vec<Notes>,
    /// Jobs that have ended: what may be secret in their notes is deleted, also in those of this commit.
    pub ended: Vec<u64>,
}

/// What a job needs beside the log and what must not be in the log, which is kept: written with the job's submission, and
/// without what may be secret once the job has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notes {
    pub workload: u64,
    /// What may hold secrets, sealed by who writes it; none once the job has ended.
    pub secret: Option<Arc<[u8]>>,
    /// The rest, JSON.
    pub text: Arc<str>,
}

/// A part of the state: what snapshots are made of. One that has not changed is not written again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// Its name: the newest writing of a name counts.
    pub name: String,
    /// JSON; none where there is no such part any more.
    pub text: Option<Arc<str>>,
}

/// The whole state after a row, so that a start does not replay the log from its beginning. Its parts are written first,
/// and it counts once it is there itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// It covers every row up to and including this one.
    pub seq: u64,
    /// When it was taken.
    pub at_ms: i64,
    /// Version of the format of its payload and of all its parts.
    pub version: u16,
    /// JSON; empty where the state is in parts.
    pub payload: Arc<str>,
}

/// What a start needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loaded {
    /// Random id minted when the store was made: 16 hexadecimal digits.
    pub installation: String,
    pub snapshot: Option<Snapshot>,
    /// The parts of that snapshot, in any order.
    pub parts: Vec<Part>,
    /// Every row after the snapshot, in order and without a hole.
    pub tail: Vec<Row>,
    /// The number the next log row must have.
    pub next_seq: u64,
    /// A batch number above every one used so far.
    pub next_batch: u64,
    /// The number the next ledger row must have.
    pub next_ledger_seq: u64,
}

/// Which jobs to list, newest first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobQuery {
    /// Only jobs that have not ended.
    pub live_only: bool,
    /// Only this owner's.
    pub owner: Option<String>,
    /// Only those of this name.
    pub name: Option<String>,
    /// Only jobs older than this one: the last id of the page before.
    pub before: Option<u64>,
    /// At most so many.
    pub limit: u32,
}

impl Default for JobQuery {
    fn default() -> Self {
        Self { live_only: false, owner: None, name: None, before: None, limit: 100 }
    }
}

/// Which ledger rows to read, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LedgerQuery {
    /// Only rows after this number: the last of the page before.
    pub after: u64,
    /// Only rows up to this number.
    pub upto: u64,
    /// Only rows of stretches that begin at this moment or later. A correction, whose end lies before its start,
    /// begins at that end.
    pub from_ms: Option<i64>,
    /// Only rows of stretches that begin before this moment.
    pub before_ms: Option<i64>,
    /// Only what is charged to this job or fleet.
    pub workload: Option<u64>,
    /// At most so many.
    pub limit: u32,
}

impl Default for LedgerQuery {
    fn default() -> Self {
        Self { after: 0, upto: u64::MAX, from_ms: None, before_ms: None, workload: None, limit: u32::MAX }
    }
}

/// The ledger, added up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LedgerTotal {
    pub rows: u64,
    /// Their sum in nano-dollars.
    pub nanousd: i128,
}
