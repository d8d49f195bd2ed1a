//! Moves the write-ahead log into the file beside commits. SQLite would do it inside a commit, which then waits for tens of
//! megabytes to be copied, and everybody with it.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use sqlx::{ConnectOptions, Connection, SqliteConnection, sqlite::SqliteConnectOptions};
use tokio::sync::Mutex;

/// Rows between two foldings: a few megabytes. SQLite's own, inside a commit, comes at many times that
/// (`wal_autocheckpoint`), finds little left to do, and lets the log begin from its start again, which a folding beside
/// commits cannot.
const ROWS: u64 = 3_000;

pub(super) struct Folding {
    options: SqliteConnectOptions,
    /// A connection of its own, made at the first folding and held by the one that is under way.
    connection: Arc<Mutex<Option<SqliteConnection>>>,
    /// Rows written since the last one.
    rows: AtomicU64,
}

impl Folding {
    pub fn new(options: SqliteConnectOptions) -> Self {
        Self { options, connection: Arc::default(), rows: AtomicU64::new(0) }
    }

    /// So many rows were written. Folds beside the caller once that is enough; what fails is left to the next one.
    pub fn wrote(&self, rows: usize) {
        if self.rows.fetch_add(rows as u64, Ordering::Relaxed) + (rows as u64) < ROWS {
            return;
        }
        let Ok(mut held) = Arc::clone(&self.connection).try_lock_owned() else { return };
        self.rows.store(0, Ordering::Relaxed);
        let options = self.options.clone();
        tokio::spawn(async move {
            if held.is_none() {
                *held = options.connect().await.ok();
            }
            if let Some(connection) = held.as_mut() {
                let _ = sqlx::query("PRAGMA wal_checkpoint(PASSIVE)").execute(connection).await;
            }
        });
    }

    pub async fn close(&self) {
        if let Some(connection) = self.connection.lock().await.take() {
            let _ = connection.close().await;
        }
    }
}
