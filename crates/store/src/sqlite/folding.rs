//! Moves the write-ahead log into the file beside commits. SQLite would do it inside a commit, which then waits for tens of
//! megabytes to be copied, and everybody with it.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use sqlx::{ConnectOptions, Connection, SqliteConnection, sqlite::SqliteConnectOptions};
use tokio::sync::Mutex;

/// Bytes between two foldings. SQLite's own, inside a commit, comes at many times that (`wal_autocheckpoint`), finds little
/// left to do, and lets the log begin from its start again, which a folding beside commits cannot.
const ENOUGH: u64 = 4 << 20;
/// What a row takes beside its texts: its numbers, and its places in indices.
const ROW: u64 = 300;
/// Pages in the log, 128 MiB, from which on commits and readers are made to wait a moment, so that it begins from its start
/// again: readers that follow each other without a gap keep it from that for as long as they come.
const TOO_LONG: i64 = 32_768;
/// How long it is tried, and commits wait.
const MOMENT: Duration = Duration::from_millis(100);

pub(super) struct Folding {
    options: SqliteConnectOptions,
    /// A connection of its own, made at the first folding and held by the one that is under way.
    connection: Arc<Mutex<Option<SqliteConnection>>>,
    /// About so many bytes were written since the last one.
    bytes: AtomicU64,
}

impl Folding {
    pub fn new(options: SqliteConnectOptions) -> Self {
        Self { options: options.busy_timeout(MOMENT), connection: Arc::default(), bytes: AtomicU64::new(0) }
    }

    /// So many rows were written or deleted, with texts of so many bytes. Folds beside the caller once that is enough; what
    /// fails is left to the next one.
    pub fn wrote(&self, rows: usize, texts: usize) {
        let bytes = rows as u64 * ROW + texts as u64;
        if self.bytes.fetch_add(bytes, Ordering::Relaxed) + bytes < ENOUGH {
            return;
        }
        let Ok(mut held) = Arc::clone(&self.connection).try_lock_owned() else { return };
        self.bytes.store(0, Ordering::Relaxed);
        let options = self.options.clone();
        tokio::spawn(async move {
            if held.is_none() {
                *held = options.connect().await.ok();
            }
            if let Some(connection) = held.as_mut()
                && fold(connection).await.is_err()
            {
                *held = None;
            }
        });
    }

    pub async fn close(&self) {
        if let Some(connection) = self.connection.lock().await.take() {
            let _ = connection.close().await;
        }
    }
}

async fn fold(connection: &mut SqliteConnection) -> sqlx::Result<()> {
    let (_, pages, _): (i64, i64, i64) =
        sqlx::query_as("PRAGMA wal_checkpoint(PASSIVE)").fetch_one(&mut *connection).await?;
    if pages > TOO_LONG {
        sqlx::query("PRAGMA wal_checkpoint(RESTART)").execute(connection).await?;
    }
    Ok(())
}
