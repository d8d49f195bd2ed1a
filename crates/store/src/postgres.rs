//! The store in PostgreSQL, for several servers: one leads, all read. The leader writes through the very connection that
//! holds the advisory lock, so who has lost the lock cannot write; the epoch fences what was already under way.

mod fault;
mod schema;
mod write;

use std::time::Duration;

use async_trait::async_trait;
use sqlx::{
    ConnectOptions, Connection, PgConnection, PgPool,
    postgres::{PgConnectOptions, PgPoolOptions},
};
use tokio::{sync::Mutex, time::timeout};

use crate::{
    Commit, JobQuery, JobRow, LedgerQuery, LedgerRow, LedgerTotal, Loaded, Notes, Part, Result, Row, Snapshot, Store,
    StoreError, reads::postgres as reads, statements::NEEDLESS_PARTS,
};
use fault::fault;
use write::{Failure, Session};

/// A server that does not answer for so long is taken for gone.
const PATIENCE: Duration = Duration::from_secs(30);

/// Old parts that are deleted in one transaction, between which commits pass.
const PARTS_AT_ONCE: usize = 256;

/// A store in a schema of a PostgreSQL database.
pub struct PostgresStore {
    schema: String,
    options: PgConnectOptions,
    /// The connection that holds the lock, where this process leads.
    leader: Mutex<Option<PgConnection>>,
    /// The last session of this process that had the lock.
    own_session: Mutex<Option<Session>>,
    readers: PgPool,
    patience: Duration,
}

impl PostgresStore {
    /// Connect, and make the tables where there are none.
    pub async fn open(url: &str) -> Result<Self> {
        Self::open_patient(url, PATIENCE).await
    }

    /// As [`PostgresStore::open`], and taken for gone is what does not answer for this long.
    pub async fn open_patient(url: &str, patience: Duration) -> Result<Self> {
        let (options, schema) = options(url)?;
        let mut connection = connect(&options).await?;
        schema::bring_up(&mut connection, &schema).await?;
        let _ = connection.close().await;
        let readers = PgPoolOptions::new()
            .max_connections(8)
            .acquire_timeout(PATIENCE)
            .idle_timeout(Duration::from_secs(300))
            .connect_lazy_with(options.clone());
        Ok(Self { schema, options, leader: Mutex::new(None), own_session: Mutex::new(None), readers, patience })
    }

    /// How many jobs may still change, without a change to the database.
    pub(crate) async fn live_jobs(url: &str) -> Result<Option<u64>> {
        let (options, schema) = options(url)?;
        let mut connection = connect(&options).await?;
        let there = schema::format(&mut connection, &schema).await;
        if there.map_err(|error| fault("reading the format of the store", error))? == 0 {
            return Ok(None);
        }
        let count: i64 = sqlx::query_scalar("SELECT COUNT(*) FROM jobs WHERE live = 1")
            .fetch_one(&mut connection)
            .await
            .map_err(|error| fault("counting jobs", error))?;
        let _ = connection.close().await;
        Ok(Some(count.unsigned_abs()))
    }

    fn read<T>(&self, doing: &'static str, outcome: sqlx::Result<T>) -> Result<T> {
        outcome.map_err(|error| fault(doing, error))
    }

    /// What to say to who writes without leading.
    async fn not_leading<T>(&self, held: u64) -> Result<T> {
        let mut connection = self.readers.acquire().await.map_err(|error| fault("writing", error))?;
        let epoch: i64 = sqlx::query_scalar("SELECT epoch FROM meta")
            .fetch_one(&mut *connection)
            .await
            .map_err(|error| fault("writing", error))?;
        Err(StoreError::Fenced { held, current: epoch.cast_unsigned() })
    }

    /// Judge how a write ended. A connection that failed is let go, and its lock with it: there is no way to know
    /// what the server still does for it.
    fn ended<T>(
        leader: &mut Option<PgConnection>,
        doing: &'static str,
        outcome: Result<Result<T, Failure>, tokio::time::error::Elapsed>,
    ) -> Result<T> {
        let failure = match outcome {
            Ok(Ok(value)) => return Ok(value),
            Ok(Err(failure)) => failure,
            Err(_) => {
                *leader = None;
                return Err(StoreError::Unsure { source: None });
            }
        };
        if failure.is_disconnect() {
            *leader = None;
        }
        Err(failure.name(doing))
    }
}

/// How to connect, and to which schema.
fn options(url: &str) -> Result<(PgConnectOptions, String)> {
    let (url, schema) = split_schema(url)?;
    let parsed: Result<PgConnectOptions, sqlx::Error> = url.parse();
    let options = parsed
        .map_err(|error| StoreError::Address { detail: error.to_string() })?
        .application_name("windfall")
        // The lock of a leader whose machine vanished is free again after half a minute.
        .options([
            ("search_path", schema.as_str()),
            ("tcp_keepalives_idle", "15"),
            ("tcp_keepalives_interval", "5"),
            ("tcp_keepalives_count", "3"),
        ])
        .disable_statement_logging();
    Ok((options, schema))
}

async fn connect(options: &PgConnectOptions) -> Result<PgConnection> {
    match timeout(PATIENCE, options.connect()).await {
        Ok(connected) => connected.map_err(|error| fault("connecting", error)),
        Err(_) => Err(StoreError::Unreachable { doing: "connecting", source: sqlx::Error::PoolTimedOut }),
    }
}

/// Take our own `schema=NAME` out of the address; the driver does not know it.
fn split_schema(url: &str) -> Result<(String, String)> {
    let Some((base, query)) = url.split_once('?') else { return Ok((url.into(), "windfall".into())) };
    let (own, rest): (Vec<&str>, Vec<&str>) = query.split('&').partition(|pair| pair.starts_with("schema="));
    let schema = own.last().map_or("windfall", |pair| &pair["schema=".len()..]);
    // It becomes part of statements: a plain lower-case name needs no quoting.
    let plain = schema.len() <= 63
        && schema.starts_with(|first: char| first.is_ascii_lowercase())
        && schema.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_');
    if !plain {
        return Err(StoreError::Address { detail: format!("not a plain schema name: {schema}") });
    }
    let base = if rest.is_empty() { base.to_owned() } else { format!("{base}?{}", rest.join("&")) };
    Ok((base, schema.to_owned()))
}

#[async_trait]
impl Store for PostgresStore {
    async fn lead(&self) -> Result<u64> {
        let mut leader = self.leader.lock().await;
        if let Some(connection) = leader.as_mut() {
            match Self::ended(&mut None, "leading", timeout(self.patience, write::lead(connection)).await) {
                Err(StoreError::Unreachable { .. }) => *leader = None,
                // It may have raised the epoch. Whoever asked counts that; one call never raises it twice.
                Err(error @ StoreError::Unsure { .. }) => {
                    *leader = None;
                    return Err(error);
                }
                epoch => return epoch,
            }
        }
        let mut connection = connect(&self.options).await?;
        let mut own_session = self.own_session.lock().await;
        // A session whose network went away may hold the lock for as long as the server does not notice: nobody but its owner
        // knows that it is over.
        if let Some(former) = own_session.as_ref() {
            write::end_session(&mut connection, former).await.map_err(|error| fault("leading", error))?;
        }
        // The server takes a moment to end it.
        let mut tries = if own_session.is_some() { 20 } else { 1 };
        while !write::take_lock(&mut connection, &self.schema).await.map_err(|error| fault("leading", error))? {
            tries -= 1;
            if tries == 0 {
                let epoch: i64 = sqlx::query_scalar("SELECT epoch FROM meta")
                    .fetch_one(&mut connection)
                    .await
                    .map_err(|error| fault("leading", error))?;
                let _ = connection.close().await;
                return Err(StoreError::Led { current: epoch.cast_unsigned() });
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        let session = write::session(&mut connection).await.map_err(|error| fault("leading", error))?;
        *own_session = Some(session);
        let connection = leader.insert(connection);
        let outcome = timeout(self.patience, write::lead(connection)).await;
        Self::ended(&mut leader, "leading", outcome)
    }

    async fn load_before(&self, seq: u64) -> Result<Loaded> {
        let loaded = reads::load(&self.readers, seq).await;
        let (heads, installation, snapshot, parts, tail) = self.read("loading", loaded)?;
        heads.loaded(installation, snapshot, parts, tail, || format!("schema {}", self.schema))
    }

    async fn load_after(&self, seq: u64) -> Result<Loaded> {
        let (heads, installation, tail) = self.read("loading", reads::load_after(&self.readers, seq).await)?;
        heads.missed(installation, seq, tail, || format!("schema {}", self.schema))
    }

    async fn commit(&self, epoch: u64, commit: &Commit) -> Result<()> {
        let mut leader = self.leader.lock().await;
        let Some(connection) = leader.as_mut() else { return self.not_leading(epoch).await };
        let outcome = timeout(self.patience, write::commit(connection, epoch, commit)).await;
        Self::ended(&mut leader, "committing", outcome)
    }

    async fn snapshot_parts(&self, epoch: u64, seq: u64, parts: &[Part]) -> Result<()> {
        let mut leader = self.leader.lock().await;
        let Some(connection) = leader.as_mut() else { return self.not_leading(epoch).await };
        let outcome = timeout(self.patience, write::snapshot_parts(connection, epoch, seq, parts)).await;
        Self::ended(&mut leader, "keeping parts of a snapshot", outcome)
    }

    async fn snapshot(&self, epoch: u64, snapshot: &Snapshot) -> Result<()> {
        let mut leader = self.leader.lock().await;
        let Some(connection) = leader.as_mut() else { return self.not_leading(epoch).await };
        let outcome = timeout(self.patience, write::snapshot(connection, epoch, snapshot)).await;
        Self::ended(&mut leader, "keeping a snapshot", outcome)
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
                for some in needless.chunks(PARTS_AT_ONCE) {
                    let mut leader = self.leader.lock().await;
                    let Some(connection) = leader.as_mut() else { return self.not_leading(epoch).await };
                    let outcome = timeout(self.patience, write::drop_parts(connection, epoch, some)).await;
                    deleted += Self::ended(&mut leader, "forgetting old parts", outcome)?;
                }
            }
        }
        Ok(deleted)
    }

    async fn cut(&self, epoch: u64, before_seq: u64, older_than_ms: i64) -> Result<u64> {
        let (mut deleted, mut done_to) = (0, 0);
        loop {
            // The connection is given up between steps: commits go first.
            let mut leader = self.leader.lock().await;
            let Some(connection) = leader.as_mut() else { return self.not_leading(epoch).await };
            let step = write::cut_step(connection, epoch, done_to, before_seq, older_than_ms);
            let outcome = timeout(self.patience, step).await;
            let Some((end, gone)) = Self::ended(&mut leader, "cutting the log", outcome)? else { return Ok(deleted) };
            deleted += gone;
            done_to = end;
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
        self.readers.close().await;
        if let Some(mut connection) = self.leader.lock().await.take() {
            // The server ends a closed connection in its own time; the next leader must not wait for that.
            let _ =
                timeout(self.patience, sqlx::query("SELECT pg_advisory_unlock_all()").execute(&mut connection)).await;
            let _ = connection.close().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::split_schema;

    #[test]
    fn the_schema_is_taken_out_of_the_address() {
        let split = |url| split_schema(url).expect("an address");
        assert_eq!(split("postgres://h/d"), ("postgres://h/d".into(), "windfall".into()));
        assert_eq!(split("postgres://h/d?schema=a_1"), ("postgres://h/d".into(), "a_1".into()));
        let both = split("postgres://h/d?sslmode=disable&schema=b");
        assert_eq!(both, ("postgres://h/d?sslmode=disable".into(), "b".into()));
    }

    #[test]
    fn a_schema_name_that_would_need_quotes_is_refused() {
        for name in ["", "1a", "a-b", "a;drop", "A"] {
            assert!(split_schema(&format!("postgres://h/d?schema={name}")).is_err(), "{name}");
        }
    }
}
