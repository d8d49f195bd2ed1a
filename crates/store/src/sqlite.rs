//! The store in one SQLite file: the default. One connection writes, others read; the write-ahead log lets neither wait
//! for the other. Every commit is on the disk (`synchronous=FULL`) before it is acknowledged.

mod fault;
mod folding;
mod insert;
mod place;
mod schema;
mod write;

use std::{
    fs::OpenOptions,
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use async_trait::async_trait;
use sqlx::{
    ConnectOptions, Connection as _, SqliteConnection, SqlitePool,
    sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions, SqliteSynchronous},
};
use tokio::sync::Mutex;

use crate::{
    Commit, JobQuery, JobRow, LedgerQuery, LedgerRow, LedgerTotal, Loaded, Notes, Part, Result, Row, Snapshot, Store,
    StoreError, filesystem, reads::sqlite as reads, statements::NEEDLESS_PARTS,
};
use fault::fault;
use folding::Folding;
use write::Writer;

/// How long to wait for another process to give up a lock.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);

/// About what a row that is deleted held: all of it is overwritten.
const DELETED: usize = 1_000;

/// The bytes of all texts of a commit.
fn texts(commit: &Commit) -> usize {
    let rows = commit.rows.iter().map(|row| row.payload.len());
    let jobs = commit.jobs.iter().map(|job| job.summary.len());
    let ledger = commit.ledger.iter().map(|row| row.payload.len());
    let notes =
        commit.notes.iter().map(|notes| notes.text.len() + notes.secret.as_ref().map_or(0, |secret| secret.len()));
    rows.chain(jobs).chain(ledger).chain(notes).sum()
}

/// A store in a SQLite file.
pub struct SqliteStore {
    path: PathBuf,
    writer: Mutex<Writer>,
    readers: SqlitePool,
    folding: Folding,
}

impl SqliteStore {
    /// Open the file, and make it where there is none. A file that is refused is not changed.
    pub async fn open(path: impl AsRef<Path>) -> Result<Self> {
        Self::open_with(path.as_ref(), |options| options).await
    }

    /// As [`SqliteStore::open`], with room for so many pages of 4 KiB: what a full disk does, without filling one.
    pub async fn open_limited(path: impl AsRef<Path>, pages: u32) -> Result<Self> {
        Self::open_with(path.as_ref(), |options| options.pragma("max_page_count", pages.to_string())).await
    }

    /// How many jobs may still change, without a change to the file.
    pub(crate) async fn live_jobs(path: &Path) -> Result<Option<u64>> {
        if schema::is_absent(path)? {
            return Ok(None);
        }
        // Without a write-ahead log all is in the file itself, and nothing needs to be made beside it.
        let closed = !place::beside(path, "-wal").exists();
        let options = SqliteConnectOptions::new().filename(path).busy_timeout(BUSY_TIMEOUT).read_only(true);
        let options = options.immutable(closed);
        let mut connection = connect(&options.disable_statement_logging(), path).await?;
        let count: i64 = sqlx::query_scalar("SELECT COUNT(*) FROM jobs WHERE live = 1")
            .fetch_one(&mut connection)
            .await
            .map_err(|error| fault(path, "counting jobs", error))?;
        let _ = connection.close().await;
        Ok(Some(count.unsigned_abs()))
    }

    async fn open_with(path: &Path, adjust: impl FnOnce(SqliteConnectOptions) -> SqliteConnectOptions) -> Result<Self> {
        let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        filesystem::check(directory, path)?;
        if schema::is_absent(path)? {
            // Commands, folders and what a job file says of the environment are in the log: for the owner's eyes. SQLite
            // gives its side files the same mode.
            OpenOptions::new()
                .write(true)
                .create(true)
                .truncate(false)
                .mode(0o600)
                .open(path)
                .map_err(|source| fault::open(path, source))?;
        }
        let options = SqliteConnectOptions::new()
            .filename(path)
            .busy_timeout(BUSY_TIMEOUT)
            .journal_mode(SqliteJournalMode::Wal)
            .synchronous(SqliteSynchronous::Full)
            .foreign_keys(true)
            // What is deleted may have been secret: it is overwritten, not only let go.
            .pragma("secure_delete", "ON")
            // After a burst (a reader that slept) the write-ahead log shrinks back to this.
            .pragma("journal_size_limit", "134217728")
            // 64 MiB in the write-ahead log, most of it folded into the file by then. A start after a crash reads that much,
            // some tens of milliseconds.
            .pragma("wal_autocheckpoint", "16384")
            .disable_statement_logging();
        let writing = adjust(options.clone());
        let mut connection = connect(&writing, path).await?;
        if let Err(refused) = schema::bring_up(&mut connection, path).await {
            // A process that ends before its connection is closed leaves side files behind.
            let _ = connection.close().await;
            return Err(refused);
        }
        let folding = Folding::new(options.clone());
        let readers = SqlitePoolOptions::new()
            .max_connections(8)
            .test_before_acquire(false)
            .idle_timeout(Duration::from_secs(60))
            .connect_lazy_with(options.pragma("query_only", "ON"));
        Ok(Self { path: path.to_owned(), writer: Mutex::new(Writer::new(connection, path)), readers, folding })
    }

    fn read<T>(&self, doing: &'static str, outcome: sqlx::Result<T>) -> Result<T> {
        outcome.map_err(|error| fault(&self.path, doing, error))
    }
}

/// While another process turns the write-ahead log on, SQLite says "busy" at once, without its timeout.
async fn connect(options: &SqliteConnectOptions, path: &Path) -> Result<SqliteConnection> {
    let begin = Instant::now();
    loop {
        match options.connect().await.map_err(|error| fault(path, "opening", error)) {
            Err(StoreError::Busy { .. }) if begin.elapsed() < BUSY_TIMEOUT => {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            connected => return connected,
        }
    }
}

#[async_trait]
impl Store for SqliteStore {
    async fn lead(&self) -> Result<u64> {
        let mut writer = self.writer.lock().await;
        let outcome = write::lead(writer.begin().await?).await;
        writer.end("leading", outcome).await
    }

    async fn load_before(&self, seq: u64) -> Result<Loaded> {
        let loaded = reads::load(&self.readers, seq).await;
        let (heads, installation, snapshot, parts, tail) = self.read("loading", loaded)?;
        heads.loaded(installation, snapshot, parts, tail, || self.path.display().to_string())
    }

    async fn load_after(&self, seq: u64) -> Result<Loaded> {
        let (heads, installation, tail) = self.read("loading", reads::load_after(&self.readers, seq).await)?;
        heads.missed(installation, seq, tail, || self.path.display().to_string())
    }

    async fn commit(&self, epoch: u64, commit: &Commit) -> Result<()> {
        let mut writer = self.writer.lock().await;
        let outcome = write::commit(writer.ready().await?, epoch, commit).await;
        let ended = writer.end("committing", outcome).await;
        let rows = commit.rows.len() + commit.jobs.len() + commit.ledger.len() + commit.notes.len();
        self.folding.wrote(rows, texts(commit));
        ended
    }

    async fn snapshot_parts(&self, epoch: u64, seq: u64, parts: &[Part]) -> Result<()> {
        let mut writer = self.writer.lock().await;
        let outcome = write::snapshot_parts(writer.begin().await?, epoch, seq, parts).await;
        let ended = writer.end("keeping parts of a snapshot", outcome).await;
        self.folding.wrote(parts.len(), parts.iter().map(|part| part.text.as_ref().map_or(0, |text| text.len())).sum());
        ended
    }

    async fn snapshot(&self, epoch: u64, snapshot: &Snapshot) -> Result<()> {
        let mut writer = self.writer.lock().await;
        let outcome = write::snapshot(writer.begin().await?, epoch, snapshot).await;
        writer.end("keeping a snapshot", outcome).await
    }

    async fn forget_parts(&self, epoch: u64) -> Result<u64> {
        let oldest = self.read("looking for old parts", reads::covered(&self.readers).await)?;
        let (mut deleted, Some(oldest)) = (0, oldest) else { return Ok(0) };
        for statement in NEEDLESS_PARTS {
            loop {
                let found = reads::needless_parts(&self.readers, statement, oldest).await;
                let needless = self.read("looking for old parts", found)?;
                if needless.is_empty() {
                    break;
                }
                for some in needless.chunks(insert::LARGEST) {
                    let mut writer = self.writer.lock().await;
                    let outcome = write::drop_parts(writer.begin().await?, epoch, some).await;
                    deleted += writer.end("forgetting old parts", outcome).await?;
                    self.folding.wrote(some.len(), some.len() * DELETED);
                }
            }
        }
        Ok(deleted)
    }

    async fn cut(&self, epoch: u64, before_seq: u64, older_than_ms: i64) -> Result<u64> {
        let (mut deleted, mut done_to) = (0, 0);
        loop {
            // The lock is given up between steps: commits go first.
            let mut writer = self.writer.lock().await;
            let outcome = write::cut_step(writer.begin().await?, epoch, done_to, before_seq, older_than_ms).await;
            let Some(step) = writer.end("cutting the log", outcome).await? else { return Ok(deleted) };
            self.folding.wrote(step.deleted as usize, step.deleted as usize * DELETED);
            deleted += step.deleted;
            done_to = step.end;
        }
    }

    async fn jobs(&self, query: &JobQuery) -> Result<Vec<JobRow>> {
        self.read("listing jobs", reads::jobs(&self.readers, query).await)
    }

    async fn notes(&self, workload: u64) -> Result<Option<Notes>> {
        self.read("reading the notes of a job", reads::notes(&self.readers, workload).await)
    }

    async fn job(&self, workload: u64) -> Result<Option<JobRow>> {
        self.read("reading a job", reads::job(&self.readers, workload).await)
    }

    async fn rows_after(&self, after_seq: u64, limit: u32) -> Result<Vec<Row>> {
        self.read("reading the log", reads::rows_after(&self.readers, after_seq, limit).await)
    }

    async fn rows_of(&self, workload: u64, after_seq: u64, limit: u32) -> Result<Vec<Row>> {
        self.read("reading the log of a job", reads::rows_of(&self.readers, workload, after_seq, limit).await)
    }

    async fn ledger(&self, query: &LedgerQuery) -> Result<Vec<LedgerRow>> {
        self.read("reading the ledger", reads::ledger(&self.readers, query).await)
    }

    async fn ledger_total(&self) -> Result<LedgerTotal> {
        self.read("adding up the ledger", reads::ledger_total(&self.readers).await)
    }

    async fn close(&self) {
        // Who writes may fold: with this held nobody does any more.
        let mut writer = self.writer.lock().await;
        self.readers.close().await;
        self.folding.close().await;
        writer.close().await;
    }
}
