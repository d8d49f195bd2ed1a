//! Everything that writes to PostgreSQL, each in one transaction on the leader's connection. Rows go as arrays, so one
//! prepared statement takes any number of them.

use sqlx::{Connection, PgConnection};

use super::fault::{fault, is_disconnect};
use crate::{
    Commit, Part, Snapshot, StoreError,
    error::Problem,
    reads::postgres::locked_heads,
    sequence::{Heads, bound, newest_of_each, notes_as_kept, signed},
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

/// A session of the server: its number, and when it began, since numbers are given again.
pub(super) struct Session {
    number: i32,
    since: String,
}

/// Which session a connection is.
pub(super) async fn session(connection: &mut PgConnection) -> sqlx::Result<Session> {
    let own = "SELECT pid, backend_start::TEXT FROM pg_stat_activity WHERE pid = pg_backend_pid()";
    let (number, since) = sqlx::query_as(own).fetch_one(connection).await?;
    Ok(Session { number, since })
}

/// Ends another session of this process, if it is still there.
pub(super) async fn end_session(connection: &mut PgConnection, former: &Session) -> sqlx::Result<()> {
    let end = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid = $1 AND backend_start::TEXT = $2";
    sqlx::query(end).bind(former.number).bind(&former.since).execute(connection).await?;
    Ok(())
}

pub(super) async fn lead(connection: &mut PgConnection) -> Result<u64, Failure> {
    let epoch: i64 = sqlx::query_scalar(statements::LEAD).fetch_one(connection).await?;
    Ok(epoch.cast_unsigned())
}

/// One statement is one transaction and one round trip to the server. Where the writer does not lead or its numbers do not
/// continue, no row of `meta` matches and nothing is inserted.
const COMMIT: &str = "
WITH guard AS (
    UPDATE meta SET next_seq = next_seq + $4, next_ledger_seq = next_ledger_seq + $5,
        next_batch = GREATEST(next_batch, $6)
    WHERE epoch = $1 AND next_seq = COALESCE($2, next_seq) AND next_ledger_seq = COALESCE($3, next_ledger_seq)
    RETURNING 1
), new_rows AS (
    INSERT INTO log (seq, batch, at_ms, workload, kind, version, payload)
    SELECT new.* FROM UNNEST ($7::BIGINT[], $8::BIGINT[], $9::BIGINT[], $10::BIGINT[], $11::TEXT[], $12::INTEGER[],
        $13::TEXT[]) AS new, guard
), new_jobs AS (
    INSERT INTO jobs (workload, name, owner, state, live, submitted_at_ms, ended_at_ms, version, summary)
    SELECT new.* FROM UNNEST ($14::BIGINT[], $15::TEXT[], $16::TEXT[], $17::TEXT[], $18::INTEGER[], $19::BIGINT[],
        $20::BIGINT[], $21::INTEGER[], $22::TEXT[]) AS new, guard
    ON CONFLICT (workload) DO UPDATE SET name = excluded.name, owner = excluded.owner, state = excluded.state,
        live = excluded.live, submitted_at_ms = excluded.submitted_at_ms, ended_at_ms = excluded.ended_at_ms,
        version = excluded.version, summary = excluded.summary
), new_ledger AS (
    INSERT INTO ledger (seq, lease, workload, from_ms, to_ms, nanousd, version, payload)
    SELECT new.* FROM UNNEST ($23::BIGINT[], $24::TEXT[], $25::BIGINT[], $26::BIGINT[], $27::BIGINT[], $28::BIGINT[],
        $29::INTEGER[], $30::TEXT[]) AS new, guard
), new_notes AS (
    INSERT INTO notes (workload, secret, text)
    SELECT new.* FROM UNNEST ($31::BIGINT[], $32::BYTEA[], $33::TEXT[]) AS new, guard
    ON CONFLICT (workload) DO UPDATE SET secret = excluded.secret, text = excluded.text
), forgotten AS (
    UPDATE notes SET secret = NULL FROM guard WHERE workload = ANY ($34::BIGINT[])
)
SELECT COUNT(*) FROM guard";

pub(super) async fn commit(connection: &mut PgConnection, epoch: u64, commit: &Commit) -> Result<(), Failure> {
    let Ok(claimed) = Heads::claimed(epoch, commit).after(epoch, commit) else {
        return Err(refusal(connection, epoch, commit).await);
    };
    let (rows, jobs, ledger) = (&commit.rows, &newest_of_each(&commit.jobs), &commit.ledger);
    let notes = &notes_as_kept(commit);
    let (seqs, ledger_seqs) = (numbers("seq", rows, |row| row.seq)?, numbers("ledger seq", ledger, |row| row.seq)?);
    let written: i64 = sqlx::query_scalar(COMMIT)
        .bind(signed("epoch", epoch)?)
        .bind(seqs.first().copied())
        .bind(ledger_seqs.first().copied())
        .bind(rows.len() as i64)
        .bind(ledger.len() as i64)
        .bind(signed("batch", claimed.next_batch)?)
        .bind(seqs)
        .bind(numbers("batch", rows, |row| row.batch)?)
        .bind(column(rows, |row| row.at_ms))
        .bind(workloads(rows, |row| row.workload)?)
        .bind(column(rows, |row| row.kind.as_ref()))
        .bind(column(rows, |row| i32::from(row.version)))
        .bind(column(rows, |row| row.payload.as_ref()))
        .bind(numbers("workload", jobs, |job| job.workload)?)
        .bind(column(jobs, |job| job.name.as_str()))
        .bind(column(jobs, |job| job.owner.as_str()))
        .bind(column(jobs, |job| job.state.as_str()))
        .bind(column(jobs, |job| i32::from(job.live)))
        .bind(column(jobs, |job| job.submitted_at_ms))
        .bind(column(jobs, |job| job.ended_at_ms))
        .bind(column(jobs, |job| i32::from(job.version)))
        .bind(column(jobs, |job| job.summary.as_ref()))
        .bind(ledger_seqs)
        .bind(column(ledger, |row| row.lease.as_str()))
        .bind(workloads(ledger, |row| row.workload)?)
        .bind(column(ledger, |row| row.from_ms))
        .bind(column(ledger, |row| row.to_ms))
        .bind(column(ledger, |row| row.nanousd))
        .bind(column(ledger, |row| i32::from(row.version)))
        .bind(column(ledger, |row| row.payload.as_ref()))
        .bind(numbers("workload", notes, |notes| notes.workload)?)
        .bind(column(notes, |notes| notes.secret.as_deref()))
        .bind(column(notes, |notes| notes.text.as_ref()))
        .bind(numbers("workload", &commit.ended, |workload| *workload)?)
        .fetch_one(&mut *connection)
        .await
        .map_err(Failure::AtCommit)?;
    if written == 1 { Ok(()) } else { Err(refusal(connection, epoch, commit).await) }
}

/// Which rule a commit broke, told from where the log really stands.
async fn refusal(connection: &mut PgConnection, epoch: u64, commit: &Commit) -> Failure {
    let broken = match locked_heads(connection).await {
        Ok(heads) => heads.after(epoch, commit),
        Err(error) => return error.into(),
    };
    match broken {
        Err(error) => error.into(),
        Ok(_) => sqlx::Error::Protocol("a commit was refused that breaks no rule".into()).into(),
    }
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

const PARTS: &str = "INSERT INTO parts (name, seq, text) SELECT new.name, $1, new.text FROM UNNEST ($2::TEXT[], $3::TEXT[]) \
     AS new (name, text) ON CONFLICT (name, seq) DO UPDATE SET text = excluded.text";

pub(super) async fn snapshot_parts(
    connection: &mut PgConnection,
    epoch: u64,
    seq: u64,
    parts: &[Part],
) -> Result<(), Failure> {
    let mut transaction = connection.begin().await?;
    let heads = locked_heads(&mut transaction).await?;
    heads.fence(epoch)?;
    heads.covers(seq)?;
    sqlx::query(PARTS)
        .bind(signed("seq", seq)?)
        .bind(column(parts, |part| part.name.as_str()))
        .bind(column(parts, |part| part.text.as_deref()))
        .execute(&mut *transaction)
        .await?;
    transaction.commit().await.map_err(Failure::AtCommit)
}

const DROP_PARTS: &str = "DELETE FROM parts USING UNNEST ($1::TEXT[], $2::BIGINT[]) AS needless (name, seq) \
     WHERE parts.name = needless.name AND parts.seq = needless.seq";

/// Deletes parts; gives how many.
pub(super) async fn drop_parts(
    connection: &mut PgConnection,
    epoch: u64,
    needless: &[(String, i64)],
) -> Result<u64, Failure> {
    let mut transaction = connection.begin().await?;
    locked_heads(&mut transaction).await?.fence(epoch)?;
    let dropped = sqlx::query(DROP_PARTS)
        .bind(column(needless, |(name, _)| name.as_str()))
        .bind(column(needless, |(_, seq)| *seq))
        .execute(&mut *transaction)
        .await?;
    transaction.commit().await.map_err(Failure::AtCommit)?;
    Ok(dropped.rows_affected())
}

pub(super) async fn snapshot(connection: &mut PgConnection, epoch: u64, snapshot: &Snapshot) -> Result<(), Failure> {
    let mut transaction = connection.begin().await?;
    let heads = locked_heads(&mut transaction).await?;
    heads.fence(epoch)?;
    heads.covers(snapshot.seq)?;
    let stray = sqlx::query(statements::DROP_STRAY_PARTS).bind(signed("seq", snapshot.seq)?);
    stray.execute(&mut *transaction).await?;
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
    let end = sqlx::query_scalar(statements::CUT_END).bind(done_to).bind(before).bind(older_than_ms);
    let end: Option<i64> = end.fetch_one(&mut *transaction).await?;
    let Some(end) = end else { return Ok(None) };
    let cut = sqlx::query(statements::CUT).bind(done_to).bind(end).bind(older_than_ms);
    let deleted = cut.execute(&mut *transaction).await?.rows_affected();
    transaction.commit().await.map_err(Failure::AtCommit)?;
    Ok(Some((end, deleted)))
}
