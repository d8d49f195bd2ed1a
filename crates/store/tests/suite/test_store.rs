//! A store for one test: it can be opened again and again, and is empty at first.

use std::{
    path::{Path, PathBuf},
    sync::atomic::{AtomicU32, Ordering},
    time::{SystemTime, UNIX_EPOCH},
};

use sqlx::Connection;
use windfall_store::{Commit, JobRow, LedgerRow, MemoryStore, Row, Store};

pub enum TestStore {
    Memory(MemoryStore),
    Sqlite(Scratch),
    Postgres { server: String, schema: String },
}

pub fn memory() -> Option<TestStore> {
    Some(TestStore::Memory(MemoryStore::new()))
}

pub fn sqlite() -> Option<TestStore> {
    Some(TestStore::Sqlite(Scratch::new()))
}

pub fn postgres() -> Option<TestStore> {
    let Ok(server) = std::env::var("WINDFALL_TEST_POSTGRES") else {
        println!("skipped: postgres (WINDFALL_TEST_POSTGRES is not set)");
        return None;
    };
    Some(TestStore::Postgres { server, schema: format!("test_{}", unique()) })
}

impl TestStore {
    pub async fn open(&self) -> Box<dyn Store> {
        match self {
            Self::Memory(store) => Box::new(store.clone()),
            Self::Sqlite(scratch) => {
                windfall_store::open(&format!("sqlite:{}", scratch.file().display())).await.unwrap()
            }
            Self::Postgres { .. } => windfall_store::open(&self.url()).await.unwrap(),
        }
    }

    /// Where another process finds it; memory is nowhere.
    pub fn address(&self) -> Option<String> {
        match self {
            Self::Memory(_) => None,
            Self::Sqlite(scratch) => Some(format!("sqlite:{}", scratch.file().display())),
            Self::Postgres { .. } => Some(self.url()),
        }
    }

    pub fn url(&self) -> String {
        let Self::Postgres { server, schema } = self else { panic!("not a server") };
        let mark = if server.contains('?') { '&' } else { '?' };
        format!("{server}{mark}schema={schema}")
    }

    /// Run statements on the server as an outsider, inside the schema of this store.
    pub async fn sql(&self, statements: &str) {
        let Self::Postgres { server, schema } = self else { panic!("not a server") };
        let mut connection = sqlx::PgConnection::connect(server).await.unwrap();
        let statements = format!("SET search_path = {schema}; {statements}");
        sqlx::raw_sql(sqlx::AssertSqlSafe(statements)).execute(&mut connection).await.unwrap();
        connection.close().await.unwrap();
    }

    pub async fn remove(&self) {
        if let Self::Postgres { schema, .. } = self {
            self.sql(&format!("DROP SCHEMA {schema} CASCADE")).await;
        }
    }
}

/// A directory that is removed at the end.
pub struct Scratch(PathBuf);

impl Scratch {
    pub fn new() -> Self {
        let directory = std::env::temp_dir().join(format!("windfall-store-{}", unique()));
        std::fs::create_dir(&directory).unwrap();
        Self(directory)
    }

    pub fn path(&self) -> &Path {
        &self.0
    }

    pub fn file(&self) -> PathBuf {
        self.0.join("windfall.db")
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn unique() -> String {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos();
    format!("{}_{now}_{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed))
}

pub fn row(seq: u64) -> Row {
    Row {
        seq,
        batch: seq,
        at_ms: 1_000 * seq as i64,
        workload: None,
        kind: "price-seen".into(),
        version: 1,
        payload: format!("{{\"seq\":{seq}}}").into(),
    }
}

pub fn row_of(seq: u64, workload: u64) -> Row {
    Row { workload: Some(workload), ..row(seq) }
}

pub fn rows(seqs: impl IntoIterator<Item = u64>) -> Commit {
    Commit { rows: seqs.into_iter().map(row).collect(), ..Commit::default() }
}

pub fn job(workload: u64) -> JobRow {
    JobRow {
        workload,
        name: format!("job-{}", workload % 3),
        owner: if workload.is_multiple_of(2) { "ada" } else { "grace" }.into(),
        state: "running".into(),
        live: true,
        submitted_at_ms: workload as i64,
        ended_at_ms: None,
        version: 1,
        summary: "{}".into(),
    }
}

pub fn ended(workload: u64) -> JobRow {
    JobRow { live: false, state: "succeeded".into(), ended_at_ms: Some(9), ..job(workload) }
}

pub fn charge(seq: u64, workload: Option<u64>, nanousd: i64) -> LedgerRow {
    LedgerRow {
        seq,
        lease: format!("lease-{seq}"),
        workload,
        from_ms: 0,
        to_ms: 60_000,
        nanousd,
        version: 1,
        payload: "{}".into(),
    }
}

pub fn seqs(rows: &[Row]) -> Vec<u64> {
    rows.iter().map(|row| row.seq).collect()
}
