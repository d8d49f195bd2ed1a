//! The durable memory of the control plane: an append-only log, snapshots of the state it folds to, the jobs as lists
//! show them, and the ledger. Three backends keep one contract, the comments of [`Store`], and one suite checks all three.
//!
//! The store decides nothing and never looks into a payload. There is one writer, the leader; each of its writes shows
//! the fencing epoch that [`Store::lead`] gave it. Readers need no epoch and never wait for the writer.

mod error;
mod filesystem;
mod installation;
mod memory;
mod postgres;
mod reads;
mod sequence;
mod sqlite;
mod statements;
mod types;

use async_trait::async_trait;

pub use error::StoreError;
pub use filesystem::{network_filesystem, network_kind};
pub use memory::MemoryStore;
pub use postgres::PostgresStore;
pub use sqlite::SqliteStore;
pub use types::{Commit, JobQuery, JobRow, LedgerQuery, LedgerRow, LedgerTotal, Loaded, Notes, Part, Row, Snapshot};

/// What every operation of a store gives.
pub type Result<T, E = StoreError> = std::result::Result<T, E>;

/// The contract of a store. Operations that write are not to be dropped half-way: let them end, or load again.
#[async_trait]
pub trait Store: Send + Sync {
    /// Become the one writer. Gives an epoch above every earlier one, and every write that shows an earlier one is
    /// refused from then on ([`StoreError::Fenced`]). With PostgreSQL it fails with [`StoreError::Led`] as long as
    /// another leader is connected.
    async fn lead(&self) -> Result<u64>;

    /// The newest snapshot and all rows after it, as they were at one moment.
    async fn load(&self) -> Result<Loaded> {
        self.load_before(u64::MAX).await
    }

    /// As [`Store::load`], from the newest snapshot of a row before `seq`: for when the newest cannot be understood.
    async fn load_before(&self, seq: u64) -> Result<Loaded>;

    /// Every row after one that the caller knows, as it was at one moment and without a snapshot: what a writer missed
    /// whose commit failed.
    async fn load_after(&self, seq: u64) -> Result<Loaded>;

    /// Write everything in one transaction, and return when it is durable. Rows must continue the log exactly and
    /// ledger rows the ledger ([`StoreError::Gap`]). After [`StoreError::Unsure`] or [`StoreError::Crashed`] the
    /// commit is whole or absent; after any other error it is absent.
    async fn commit(&self, epoch: u64, commit: &Commit) -> Result<()>;

    /// Write parts of a coming snapshot after row `seq`: those that are not as the last snapshot has them, a few at a time,
    /// so that commits pass between them. They count for nothing until [`Store::snapshot`] is called with that row.
    async fn snapshot_parts(&self, epoch: u64, seq: u64, parts: &[Part]) -> Result<()>;

    /// Keep a snapshot, and of all snapshots the newest two. Its parts are those that were written for its row, and for
    /// names without one those of the snapshot before it; parts that were written for a snapshot in between, which was
    /// never kept, are gone with this.
    async fn snapshot(&self, epoch: u64, snapshot: &Snapshot) -> Result<()>;

    /// Delete parts that no snapshot has any more; gives how many. Many short transactions, as with [`Store::cut`].
    async fn forget_parts(&self, epoch: u64) -> Result<u64>;

    /// Delete log rows that are before `before_seq`, covered by every snapshot kept, written before `older_than_ms`, and
    /// not of a live job; gives how many. Jobs and the ledger stay. A long cut is many short transactions, so that
    /// commits pass between them.
    async fn cut(&self, epoch: u64, before_seq: u64, older_than_ms: i64) -> Result<u64>;

    /// Jobs, newest first.
    async fn jobs(&self, query: &JobQuery) -> Result<Vec<JobRow>>;

    /// The notes of a job, live or ended.
    async fn notes(&self, workload: u64) -> Result<Option<Notes>>;

    /// One job.
    async fn job(&self, workload: u64) -> Result<Option<JobRow>>;

    /// Log rows after a number, in order.
    async fn rows_after(&self, after_seq: u64, limit: u32) -> Result<Vec<Row>>;

    /// Log rows of one job or fleet after a number, in order.
    async fn rows_of(&self, workload: u64, after_seq: u64, limit: u32) -> Result<Vec<Row>>;

    /// Ledger rows in the order of their numbers, which is the order in which they were written.
    async fn ledger(&self, query: &LedgerQuery) -> Result<Vec<LedgerRow>>;

    /// The whole ledger, added up.
    async fn ledger_total(&self) -> Result<LedgerTotal>;

    /// Give back connections and files (and leadership, with PostgreSQL). Everything acknowledged is durable already.
    async fn close(&self);
}

/// What an address names.
enum Address<'u> {
    Memory,
    Postgres(&'u str),
    Sqlite(&'u str),
}

impl<'u> Address<'u> {
    fn of(url: &'u str) -> Result<Address<'u>> {
        if url == "memory:" {
            return Ok(Address::Memory);
        }
        if url.starts_with("postgres://") || url.starts_with("postgresql://") {
            return Ok(Address::Postgres(url));
        }
        let path = url.strip_prefix("sqlite:").map_or(url, |rest| rest.strip_prefix("//").unwrap_or(rest));
        if path.is_empty() {
            return Err(StoreError::Address { detail: "it is empty".into() });
        }
        if let Some((scheme, _)) = path.split_once("://") {
            return Err(StoreError::Address { detail: format!("nothing is known as {scheme}") });
        }
        Ok(Address::Sqlite(path))
    }
}

/// Open a store, and make it where there is none: a path or `sqlite:PATH`, `postgres://…` (with `?schema=NAME` for
/// another schema than `windfall`), or `memory:`.
pub async fn open(url: &str) -> Result<Box<dyn Store>> {
    Ok(match Address::of(url)? {
        Address::Memory => Box::new(MemoryStore::with_installation(installation::mint())),
        Address::Postgres(url) => Box::new(PostgresStore::open(url).await?),
        Address::Sqlite(path) => Box::new(SqliteStore::open(path).await?),
    })
}

/// How many jobs of a store may still change; none where there is no store. Only looks: nothing is made, and nothing is
/// brought to a newer format.
pub async fn live_jobs(url: &str) -> Result<Option<u64>> {
    match Address::of(url)? {
        Address::Memory => Ok(None),
        Address::Postgres(url) => PostgresStore::live_jobs(url).await,
        Address::Sqlite(path) => SqliteStore::live_jobs(path.as_ref()).await,
    }
}
