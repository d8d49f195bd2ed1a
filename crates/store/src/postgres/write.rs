//! Everything that writes to PostgreSQL, each inside one transaction on the leader's connection. Rows go as arrays, so one
//! prepared statement takes any number of them.

use sqlx::{Connection, PgConnection};

use super::fault::{fault, is_disconnect};
use crate::{
    Commit, Snapshot, StoreError,
    error::Problem,
    reads::postgres::locked_heads,
    sequence::{bound, newest_of_each, signed},
    statements,
};

/// Why a write failed, and whether that was known before the COMMIT was sent.
pub(super) enum Failure {
    Before(Problem),
    AtCommit(sqlx::Error),
}

impl<E: Into<Problem>> From<E> for Failure {
    fn from(error: E) -> Self {
        Self::Before(error.into())
    }
}

impl Failure {
    pub fn is_disconnect(&self) -> bool {
        match self {
            Self::Before(Problem::Store(_)) => false,
            Self::Before(Problem::Sql(error)) | Self::AtCommit(error) => is_disconnect(error),
        }
    }

    pub fn name(self, doing: &'static str) -> StoreError {
        match self {
            Self::Before(Problem::Store(error)) => error,
            Self::Before(Problem::Sql(error)) => fault(doing, error),
            Self::AtCommit(error) if is_disconnect(&error) => StoreError::Unsure { source: Some(error) },
            Self::AtCommit(error) => fault(doing, error),
        }
    }
}

/// Try for the lock of this schema; it is this connection's until it ends. Also makes sure that a commit means durable,
/// whatever the server's default is.
pub(super) async fn take_lock(connection: &mut PgConnection, schema: &str) -> sqlx::Result<bool> {
    sqlx::query(
        "SELECT set_config('synchronous_commit', 'on', false) \
         WHERE current_setting('synchronous_commit') IN ('off', 'local', 'remote_write')",
    )
    .execute(&mut *connection)
    .await?;
    sqlx::query_scalar("SELECT pg_try_advisory_lock(hashtextextended('windfall leader ' || $1, 0))")
        .bind(schema)
        .fetch_one(connection)
        .await
}

pub(super) async fn lead(connection: &mut PgConnection) -> Result<u64, Failure> {
    let epoch: i64 = sqlx::query_scalar(statements::LEAD).fetch_one(connection).await?;
    Ok(epoch.cast_unsigned())
}

pub(super) async fn commit(connection: &mut PgConnection, epoch: u64, commit: &Commit) -> Result<(), Failure> {
    let mut transaction = connection.begin().await?;
    let next = locked_heads(&mut transaction).await?.after(epoch, commit)?;
    if !commit.rows.is_empty() || !commit.ledger.is_empty() {
        sqlx::query(statements::ADVANCE)
            .bind(signed("seq", next.next_seq)?)
            .bind(signed("batch", next.next_batch)?)
            .bind(signed("ledger seq", next.next_ledger_seq)?)
            .execute(&mut *transaction)
            .await?;
    }
    if !commit.rows.is_empty() {
        insert_rows(&mut transaction, commit).await?;
    }
    if !commit.jobs.is_empty() {
        upsert_jobs(&mut transaction, commit).await?;
    }
    if !commit.ledger.is_empty() {
        insert_ledger(&mut transaction, commit).await?;
    }
    transaction.commit().await.map_err(Failure::AtCommit)
}

fn column<'r, R, T>(rows: &'r [R], value: impl Fn(&'r R) -> T) -> Vec<T> {
    rows.iter().map(value).collect()
}

fn numbers<R>(field: &'static str, rows: &[R], value: impl Fn(&R) -> u64) -> crate::Result<Vec<i64>> {
    rows.iter().map(|row| signed(field, value(row))).collect()
}

fn workloads<R>(rows: &[R], value: impl Fn(&R) -> Option<u64>) -> crate::Result<Vec<Option<i64>>> {
    rows.iter().map(|row| value(row).map(|id| signed("workload", id)).transpose()).collect()
}

async fn insert_rows(connection: &mut PgConnection, commit: &Commit) -> Result<(), Failure> {
    let rows = &commit.rows;
    sqlx::query(
        "INSERT INTO log (seq, batch, at_ms, workload, kind, version, payload) SELECT * FROM UNNEST \
         ($1::BIGINT[], $2::BIGINT[], $3::BIGINT[], $4::BIGINT[], $5::TEXT[], $6::INTEGER[], $7::TEXT[])",
    )
    .bind(numbers("seq", rows, |row| row.seq)?)
    .bind(numbers("batch", rows, |row| row.batch)?)
    .bind(column(rows, |row| row.at_ms))
    .bind(workloads(rows, |row| row.workload)?)
    .bind(column(rows, |row| row.kind.as_ref()))
    .bind(column(rows, |row| i32::from(row.version)))
    .bind(column(rows, |row| row.payload.as_ref()))
    .execute(connection)
    .await?;
    Ok(())
}

async fn upsert_jobs(connection: &mut PgConnection, commit: &Commit) -> Result<(), Failure> {
    let jobs = &newest_of_each(&commit.jobs);
    sqlx::query(
        "INSERT INTO jobs (workload, name, owner, state, live, submitted_at_ms, ended_at_ms, version, summary) \
         SELECT * FROM UNNEST ($1::BIGINT[], $2::TEXT[], $3::TEXT[], $4::TEXT[], $5::INTEGER[], $6::BIGINT[], \
         $7::BIGINT[], $8::INTEGER[], $9::TEXT[]) \
         ON CONFLICT (workload) DO UPDATE SET name = excluded.name, owner = excluded.owner, \
         state = excluded.state, live = excluded.live, submitted_at_ms = excluded.submitted_at_ms, \
         ended_at_ms = excluded.ended_at_ms, version = excluded.version, summary = excluded.summary",
    )
    .bind(numbers("workload", jobs, |job| job.workload)?)
    .bind(column(jobs, |job| job.name.as_str()))
    .bind(column(jobs, |job| job.owner.as_str()))
    .bind(column(jobs, |job| job.state.as_str()))
    .bind(column(jobs, |job| i32::from(job.live)))
    .bind(column(jobs, |job| job.submitted_at_ms))
    .bind(column(jobs, |job| job.ended_at_ms))
    .bind(column(jobs, |job| i32::from(job.version)))
    .bind(column(jobs, |job| job.summary.as_ref()))
    .execute(connection)
    .await?;
    Ok(())
}

async fn insert_ledger(connection: &mut PgConnection, commit: &Commit) -> Result<(), Failure> {
    let rows = &commit.ledger;
    sqlx::query(
        "INSERT INTO ledger (seq, lease, workload, from_ms, to_ms, nanousd, version, payload) SELECT * FROM UNNEST \
         ($1::BIGINT[], $2::TEXT[], $3::BIGINT[], $4::BIGINT[], $5::BIGINT[], $6::BIGINT[], $7::INTEGER[], $8::TEXT[])",
    )
    .bind(numbers("ledger seq", rows, |row| row.seq)?)
    .bind(column(rows, |row| row.lease.as_str()))
    .bind(workloads(rows, |row| row.workload)?)
    .bind(column(rows, |row| row.from_ms))
    .bind(column(rows, |row| row.to_ms))
    .bind(column(rows, |row| row.nanousd))
    .bind(column(rows, |row| i32::from(row.version)))
    .bind(column(rows, |row| row.payload.as_ref()))
    .execute(connection)
    .await?;
    Ok(())
}

pub(super) async fn snapshot(connection: &mut PgConnection, epoch: u64, snapshot: &Snapshot) -> Result<(), Failure> {
    let mut transaction = connection.begin().await?;
    let heads = locked_heads(&mut transaction).await?;
    heads.fence(epoch)?;
    heads.covers(snapshot)?;
    sqlx::query(statements::SNAPSHOT)
        .bind(signed("seq", snapshot.seq)?)
        .bind(snapshot.at_ms)
        .bind(i32::from(snapshot.version))
        .bind(snapshot.payload.as_ref())
        .execute(&mut *transaction)
        .await?;
    sqlx::query(statements::PRUNE_SNAPSHOTS).execute(&mut *transaction).await?;
    transaction.commit().await.map_err(Failure::AtCommit)
}

/// Where the step ended and how many rows it deleted; `None` when there is nothing left to look at.
pub(super) async fn cut_step(
    connection: &mut PgConnection,
    epoch: u64,
    done_to: i64,
    before_seq: u64,
    older_than_ms: i64,
) -> Result<Option<(i64, u64)>, Failure> {
    let mut transaction = connection.begin().await?;
    locked_heads(&mut transaction).await?.fence(epoch)?;
    let covered: Option<i64> = sqlx::query_scalar(statements::COVERED).fetch_one(&mut *transaction).await?;
    let Some(covered) = covered else { return Ok(None) };
    let before = bound(before_seq).min(covered + 1);
    let end: Option<i64> =
        sqlx::query_scalar(statements::CUT_END).bind(done_to).bind(before).fetch_one(&mut *transaction).await?;
    let Some(end) = end else { return Ok(None) };
    let cut = sqlx::query(statements::CUT).bind(done_to).bind(end).bind(older_than_ms);
    let deleted = cut.execute(&mut *transaction).await?.rows_affected();
    transaction.commit().await.map_err(Failure::AtCommit)?;
    Ok(Some((end, deleted)))
}
