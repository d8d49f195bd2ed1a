//! The tables, and how an older schema becomes one of today.

use sqlx::{AssertSqlSafe, Connection, PgConnection};

use super::fault::fault;
use crate::{Result, StoreError, installation};

/// What makes format n+1 of format n. Only ever appended to: each was released. Payloads are `TEXT`, not `JSONB`: they
/// come back to the byte.
const MIGRATIONS: &[&str] = &[
    "
CREATE TABLE meta (
    one INTEGER PRIMARY KEY CHECK (one = 1),
    installation TEXT NOT NULL,
    epoch BIGINT NOT NULL DEFAULT 0,
    next_seq BIGINT NOT NULL DEFAULT 1,
    next_batch BIGINT NOT NULL DEFAULT 1,
    next_ledger_seq BIGINT NOT NULL DEFAULT 1
);
CREATE TABLE log (
    seq BIGINT PRIMARY KEY,
    batch BIGINT NOT NULL,
    at_ms BIGINT NOT NULL,
    workload BIGINT,
    kind TEXT NOT NULL,
    version INTEGER NOT NULL,
    payload TEXT NOT NULL
);
CREATE INDEX log_workload ON log (workload, seq) WHERE workload IS NOT NULL;
CREATE TABLE jobs (
    workload BIGINT PRIMARY KEY,
    name TEXT NOT NULL,
    owner TEXT NOT NULL,
    state TEXT NOT NULL,
    live INTEGER NOT NULL CHECK (live IN (0, 1)),
    submitted_at_ms BIGINT NOT NULL,
    ended_at_ms BIGINT,
    version INTEGER NOT NULL,
    summary TEXT NOT NULL
);
CREATE INDEX jobs_live ON jobs (workload) WHERE live = 1;
CREATE INDEX jobs_owner ON jobs (owner, workload);
CREATE INDEX jobs_name ON jobs (name, workload);
CREATE TABLE ledger (
    seq BIGINT PRIMARY KEY,
    lease TEXT NOT NULL,
    workload BIGINT,
    from_ms BIGINT NOT NULL,
    to_ms BIGINT NOT NULL,
    nanousd BIGINT NOT NULL,
    version INTEGER NOT NULL,
    payload TEXT NOT NULL
);
CREATE INDEX ledger_workload ON ledger (workload, seq) WHERE workload IS NOT NULL;
CREATE TABLE snapshots (
    seq BIGINT PRIMARY KEY,
    at_ms BIGINT NOT NULL,
    version INTEGER NOT NULL,
    payload TEXT NOT NULL
);
",
    "
CREATE TABLE parts (
    name TEXT NOT NULL,
    seq BIGINT NOT NULL,
    text TEXT,
    PRIMARY KEY (name, seq)
);
CREATE INDEX parts_seq ON parts (seq);
",
    "
CREATE TABLE notes (
    workload BIGINT PRIMARY KEY,
    secret BYTEA,
    text TEXT NOT NULL
);
",
];

fn known() -> u32 {
    MIGRATIONS.len() as u32
}

/// Make the tables, or bring them to today's format, in one transaction. `schema` is a plain name.
pub(super) async fn bring_up(connection: &mut PgConnection, schema: &str) -> Result<()> {
    let found = format(connection, schema).await.map_err(|error| fault("reading the format of the store", error))?;
    judge(found)?;
    if found == known() {
        return Ok(());
    }
    let migrated = migrate(connection, schema).await.map_err(|error| fault("making the tables", error))?;
    judge(migrated)
}

fn judge(found: u32) -> Result<()> {
    if found > known() { Err(StoreError::Newer { found, known: known() }) } else { Ok(()) }
}

/// The format found there; 0 where there is nothing.
pub(super) async fn format(connection: &mut PgConnection, schema: &str) -> sqlx::Result<u32> {
    // Not to_regclass(): it answers from a cache that a transaction which waited for a lock has not refreshed.
    let tables = "SELECT EXISTS (SELECT 1 FROM pg_catalog.pg_tables WHERE schemaname = $1 AND tablename = 'format')";
    let there: bool = sqlx::query_scalar(tables).bind(schema).fetch_one(&mut *connection).await?;
    if !there {
        return Ok(0);
    }
    let number: i32 = sqlx::query_scalar("SELECT number FROM format").fetch_one(connection).await?;
    Ok(number.cast_unsigned())
}

/// The format it was found in, once the lock was had.
async fn migrate(connection: &mut PgConnection, schema: &str) -> sqlx::Result<u32> {
    let mut transaction = connection.begin().await?;
    // Two servers that start at the same moment: one makes the tables, the other waits and finds them.
    sqlx::query("SELECT pg_advisory_xact_lock(hashtextextended('windfall tables ' || $1, 0))")
        .bind(schema)
        .execute(&mut *transaction)
        .await?;
    let found = format(&mut transaction, schema).await?;
    if found >= known() {
        return Ok(found);
    }
    if found == 0 {
        let begin = format!(
            "CREATE SCHEMA IF NOT EXISTS {schema}; CREATE TABLE {schema}.format (number INTEGER NOT NULL); \
             INSERT INTO {schema}.format VALUES (0)"
        );
        sqlx::raw_sql(AssertSqlSafe(begin)).execute(&mut *transaction).await?;
    }
    for migration in &MIGRATIONS[found as usize..] {
        sqlx::raw_sql(*migration).execute(&mut *transaction).await?;
    }
    sqlx::query("UPDATE format SET number = $1").bind(known().cast_signed()).execute(&mut *transaction).await?;
    sqlx::query("INSERT INTO meta (one, installation) VALUES (1, $1) ON CONFLICT DO NOTHING")
        .bind(installation::mint())
        .execute(&mut *transaction)
        .await?;
    transaction.commit().await?;
    Ok(known())
}
