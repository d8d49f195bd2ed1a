//! The tables, and how an older file becomes one of today. A file that is not ours, or newer, is recognised from its
//! first hundred bytes (sqlite.org/fileformat.html), before SQLite opens it: opening alone can change it.

use std::{fs::File, io::Read, path::Path};

use sqlx::{Row as _, SqliteConnection};

use super::fault::{self, fault};
use crate::{Result, StoreError, installation};

/// What makes format n+1 of format n. Only ever appended to: each was released.
const MIGRATIONS: &[&str] = &[
    "
CREATE TABLE meta (
    one INTEGER PRIMARY KEY CHECK (one = 1),
    installation TEXT NOT NULL,
    epoch INTEGER NOT NULL DEFAULT 0,
    next_seq INTEGER NOT NULL DEFAULT 1,
    next_batch INTEGER NOT NULL DEFAULT 1,
    next_ledger_seq INTEGER NOT NULL DEFAULT 1
) STRICT;
CREATE TABLE log (
    seq INTEGER PRIMARY KEY,
    batch INTEGER NOT NULL,
    at_ms INTEGER NOT NULL,
    workload INTEGER,
    kind TEXT NOT NULL,
    version INTEGER NOT NULL,
    payload TEXT NOT NULL
) STRICT;
CREATE INDEX log_workload ON log (workload, seq) WHERE workload IS NOT NULL;
CREATE TABLE jobs (
    workload INTEGER PRIMARY KEY,
    name TEXT NOT NULL,
    owner TEXT NOT NULL,
    state TEXT NOT NULL,
    live INTEGER NOT NULL CHECK (live IN (0, 1)),
    submitted_at_ms INTEGER NOT NULL,
    ended_at_ms INTEGER,
    version INTEGER NOT NULL,
    summary TEXT NOT NULL
) STRICT;
CREATE INDEX jobs_live ON jobs (workload) WHERE live = 1;
CREATE INDEX jobs_owner ON jobs (owner, workload);
CREATE INDEX jobs_name ON jobs (name, workload);
CREATE TABLE ledger (
    seq INTEGER PRIMARY KEY,
    lease TEXT NOT NULL,
    workload INTEGER,
    from_ms INTEGER NOT NULL,
    to_ms INTEGER NOT NULL,
    nanousd INTEGER NOT NULL,
    version INTEGER NOT NULL,
    payload TEXT NOT NULL
) STRICT;
CREATE INDEX ledger_workload ON ledger (workload, seq) WHERE workload IS NOT NULL;
CREATE TABLE snapshots (
    seq INTEGER PRIMARY KEY,
    at_ms INTEGER NOT NULL,
    version INTEGER NOT NULL,
    payload TEXT NOT NULL
) STRICT;
PRAGMA application_id = 0x57464c4c;
PRAGMA user_version = 1;
",
    "
CREATE TABLE parts (
    name TEXT NOT NULL,
    seq INTEGER NOT NULL,
    text TEXT,
    PRIMARY KEY (name, seq)
) STRICT;
CREATE INDEX parts_seq ON parts (seq);
PRAGMA user_version = 2;
",
    "
CREATE TABLE notes (
    workload INTEGER PRIMARY KEY,
    secret BLOB,
    text TEXT NOT NULL
) STRICT;
PRAGMA user_version = 3;
",
];

/// `WFLL`, in the header of every store.
const APPLICATION: u32 = 0x5746_4c4c;

fn known() -> u32 {
    MIGRATIONS.len() as u32
}

fn corrupt(path: &Path, detail: impl Into<String>) -> StoreError {
    StoreError::Corrupt { place: path.display().to_string(), detail: detail.into() }
}

/// Whether there is no store yet (no file, or an empty one); an error where there is something else.
pub(super) fn is_absent(path: &Path) -> Result<bool> {
    let mut header = Vec::new();
    match File::open(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(true),
        file => {
            file.and_then(|file| file.take(100).read_to_end(&mut header)).map_err(|source| fault::open(path, source))?
        }
    };
    if header.is_empty() {
        return Ok(true);
    }
    if header.len() < 100 || !header.starts_with(b"SQLite format 3\0") {
        return Err(corrupt(path, "not a SQLite file"));
    }
    let number = |at: usize| u32::from_be_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
    judge(path, number(60), number(68))?;
    Ok(false)
}

/// A format this program must not touch.
fn judge(path: &Path, format: u32, application: u32) -> Result<()> {
    // A store whose making was interrupted has neither number yet.
    if application != APPLICATION && (application, format) != (0, 0) {
        return Err(corrupt(path, "a SQLite file of another program"));
    }
    if format > known() {
        return Err(StoreError::Newer { found: format, known: known() });
    }
    Ok(())
}

/// Make the tables, or bring them to today's format, in one transaction.
pub(super) async fn bring_up(connection: &mut SqliteConnection, path: &Path) -> Result<()> {
    // What the header said can be older than what the write-ahead log says. In a transaction: another process may be
    // making the tables between two of these reads.
    let reading = |error| fault(path, "reading the format of the store", error);
    sqlx::raw_sql("BEGIN").execute(&mut *connection).await.map_err(reading)?;
    let format = format(connection, path).await;
    sqlx::raw_sql("ROLLBACK").execute(&mut *connection).await.map_err(reading)?;
    let format = format?;
    if format == known() {
        return Ok(());
    }
    let migrated = migrate(connection, path).await;
    if migrated.is_err() {
        let _ = sqlx::raw_sql("ROLLBACK").execute(&mut *connection).await;
    }
    migrated
}

/// The format of the store, inside a transaction.
async fn format(connection: &mut SqliteConnection, path: &Path) -> Result<u32> {
    let number = async |connection: &mut SqliteConnection, pragma: &'static str| {
        let row = sqlx::query(pragma).fetch_one(connection).await;
        row.and_then(|row| row.try_get::<i64, _>(0)).map(|number| number as u32)
    };
    let reading = |error| fault(path, "reading the format of the store", error);
    let format = number(connection, "PRAGMA user_version").await.map_err(reading)?;
    let application = number(connection, "PRAGMA application_id").await.map_err(reading)?;
    let tables = number(connection, "SELECT COUNT(*) FROM sqlite_schema").await.map_err(reading)?;
    if format == 0 && tables > 0 {
        return Err(corrupt(path, "a SQLite file of another program"));
    }
    judge(path, format, application)?;
    Ok(format)
}

async fn migrate(connection: &mut SqliteConnection, path: &Path) -> Result<()> {
    let making = |error| fault(path, "making the tables", error);
    sqlx::raw_sql("BEGIN IMMEDIATE").execute(&mut *connection).await.map_err(making)?;
    // Another process may have done it while this one waited for the lock.
    let format = format(connection, path).await?;
    for migration in &MIGRATIONS[format as usize..] {
        sqlx::raw_sql(*migration).execute(&mut *connection).await.map_err(making)?;
    }
    sqlx::query("INSERT INTO meta (one, installation) VALUES (1, $1) ON CONFLICT DO NOTHING")
        .bind(installation::mint())
        .execute(&mut *connection)
        .await
        .map_err(making)?;
    sqlx::raw_sql("COMMIT").execute(&mut *connection).await.map_err(making)?;
    // The new format goes into the header at once, where an older program sees it before it opens the file.
    sqlx::raw_sql("PRAGMA wal_checkpoint(TRUNCATE)").execute(&mut *connection).await.map_err(making)?;
    Ok(())
}
