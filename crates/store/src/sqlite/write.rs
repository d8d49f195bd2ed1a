//! Everything that writes to the SQLite file, each inside one transaction of the one writing connection.

use std::path::Path;

use sqlx::{
    AssertSqlSafe, Connection, Sqlite, SqliteConnection, error::ErrorKind, query::Query, sqlite::SqliteArguments,
};

use super::{
    fault::{commit_fault, fault},
    insert::{
        BEGIN_AND_LOG, DROP_PARTS, FORGET_SECRETS, JOB_COLUMNS, JOBS, LARGEST, LEDGER, LEDGER_COLUMNS, LOG,
        LOG_COLUMNS, NOTES, NOTES_COLUMNS, PART_COLUMNS, PART_KEY_COLUMNS, PARTS, SIZES, size_index,
    },
    place::Place,
};
use crate::{
    Commit, Part, Result, Row, Snapshot, StoreError,
    error::Problem,
    reads::sqlite::locked_heads,
    sequence::{Heads, bound, newest_of_each, notes_as_kept, signed},
    statements,
};

/// The writing connection. Transactions are begun and ended by hand, because SQLite ends one by itself on some errors,
/// and because a caller may be dropped inside one.
pub(super) struct Writer {
    connection: Option<SqliteConnection>,
    place: Place,
    /// A transaction was begun and its end has not been seen.
    open: bool,
}

impl Writer {
    pub fn new(connection: SqliteConnection, path: &Path) -> Self {
        Self { connection: Some(connection), place: Place::of(path), open: false }
    }

    /// The connection, outside of any transaction.
    pub async fn ready(&mut self) -> Result<&mut SqliteConnection> {
        let closed = || StoreError::Database { doing: "writing to a closed store", source: sqlx::Error::PoolClosed };
        let connection = self.connection.as_mut().ok_or_else(closed)?;
        if std::mem::replace(&mut self.open, true) {
            let _ = sqlx::query("ROLLBACK").execute(&mut *connection).await;
        }
        Ok(connection)
    }

    /// Take the write lock now: a transaction that reads first and writes later can be refused in between.
    pub async fn begin(&mut self) -> Result<&mut SqliteConnection> {
        let path = self.place.path().to_owned();
        let connection = self.ready().await?;
        let begun = sqlx::query("BEGIN IMMEDIATE").execute(&mut *connection).await;
        begun.map_err(|error| fault(&path, "taking the write lock", error))?;
        Ok(connection)
    }

    /// Commit what succeeded; undo what did not.
    pub async fn end<T>(&mut self, doing: &'static str, outcome: Result<T, Problem>) -> Result<T> {
        let path = self.place.path();
        let name = |problem| match problem {
            Problem::Store(error) => error,
            Problem::Sql(error) => fault(path, doing, error),
        };
        let Some(connection) = self.connection.as_mut() else { return outcome.map_err(name) };
        let outcome = match outcome {
            Err(problem) => Err(name(problem)),
            Ok(value) => match sqlx::query("COMMIT").execute(&mut *connection).await {
                Ok(_) => Ok(value),
                Err(error) => Err(commit_fault(path, doing, error)),
            },
        };
        if outcome.is_err() {
            // It fails where SQLite has rolled back by itself, which is as good.
            let _ = sqlx::query("ROLLBACK").execute(connection).await;
        } else if !self.place.is_kept() {
            let rescued = self.place.rescue(connection).await.ok();
            // Nothing more is written where nobody finds it.
            self.close().await;
            return Err(StoreError::Removed { path: self.place.path().to_owned(), rescued });
        }
        self.open = false;
        outcome
    }

    pub async fn close(&mut self) {
        if let Some(connection) = self.connection.take() {
            // Closing moves the write-ahead log into the file; where that fails, the next opening does it.
            let _ = connection.close().await;
        }
    }
}

pub(super) async fn lead(connection: &mut SqliteConnection) -> Result<u64, Problem> {
    let epoch: i64 = sqlx::query_scalar(statements::LEAD).fetch_one(connection).await?;
    Ok(epoch.cast_unsigned())
}

/// Begins the transaction itself: each command to SQLite's thread is a hand-over, and the common commit is two of them,
/// this one and the COMMIT.
pub(super) async fn commit(connection: &mut SqliteConnection, epoch: u64, commit: &Commit) -> Result<(), Problem> {
    let Ok(claimed) = Heads::claimed(epoch, commit).after(epoch, commit) else {
        sqlx::query("BEGIN IMMEDIATE").execute(&mut *connection).await?;
        return Err(refusal(connection, epoch, commit).await);
    };
    let (first, later) = commit.rows.split_at(commit.rows.len().min(LARGEST));
    let statement = BEGIN_AND_LOG[size_index(first.len())].clone();
    let mut query = sqlx::query(AssertSqlSafe(statement))
        .bind(signed("seq", commit.rows.len() as u64)?)
        .bind(signed("ledger seq", commit.ledger.len() as u64)?)
        .bind(signed("batch", claimed.next_batch)?)
        .bind(signed("epoch", epoch)?)
        .bind(commit.rows.first().map(|row| signed("seq", row.seq)).transpose()?)
        .bind(commit.ledger.first().map(|row| signed("ledger seq", row.seq)).transpose()?);
    query = bind_rows(query, first)?;
    if let Err(error) = query.execute(&mut *connection).await {
        let broke_a_rule = error.as_database_error().is_some_and(|said| said.kind() == ErrorKind::NotNullViolation);
        return Err(if broke_a_rule { refusal(connection, epoch, commit).await } else { error.into() });
    }
    for rows in later.chunks(LARGEST) {
        let query = sqlx::query(AssertSqlSafe(LOG[size_index(rows.len())].clone()));
        bind_rows(query, rows)?.execute(&mut *connection).await?;
    }
    write_jobs(connection, commit).await?;
    write_notes(connection, commit).await?;
    write_ledger(connection, commit).await
}

/// Which rule a commit broke, told from where the log really stands.
async fn refusal(connection: &mut SqliteConnection, epoch: u64, commit: &Commit) -> Problem {
    let broken = match locked_heads(connection).await {
        Ok(heads) => heads.after(epoch, commit),
        Err(error) => return error.into(),
    };
    match broken {
        Err(error) => error.into(),
        Ok(_) => sqlx::Error::Protocol("a commit was refused that breaks no rule".into()).into(),
    }
}

type Binding<'q> = Query<'q, Sqlite, SqliteArguments>;

fn bind_rows<'q>(mut query: Binding<'q>, rows: &[Row]) -> Result<Binding<'q>> {
    for row in rows {
        query = query
            .bind(signed("seq", row.seq)?)
            .bind(signed("batch", row.batch)?)
            .bind(row.at_ms)
            .bind(workload(row.workload)?)
            .bind(row.kind.as_ref())
            .bind(i32::from(row.version))
            .bind(row.payload.clone());
    }
    Ok(pad(query, rows.len(), LOG_COLUMNS))
}

/// What is missing to the size of the statement is null, and passed over.
fn pad(mut query: Binding<'_>, rows: usize, columns: usize) -> Binding<'_> {
    for _ in 0..(SIZES[size_index(rows)] - rows) * columns {
        query = query.bind(None::<i64>);
    }
    query
}

async fn write_jobs(connection: &mut SqliteConnection, commit: &Commit) -> Result<(), Problem> {
    for jobs in newest_of_each(&commit.jobs).chunks(LARGEST) {
        let mut query = sqlx::query(AssertSqlSafe(JOBS[size_index(jobs.len())].clone()));
        for job in jobs {
            query = query
                .bind(signed("workload", job.workload)?)
                .bind(job.name.as_str())
                .bind(job.owner.as_str())
                .bind(job.state.as_str())
                .bind(i32::from(job.live))
                .bind(job.submitted_at_ms)
                .bind(job.ended_at_ms)
                .bind(i32::from(job.version))
                .bind(job.summary.clone());
        }
        pad(query, jobs.len(), JOB_COLUMNS).execute(&mut *connection).await?;
    }
    Ok(())
}

async fn write_notes(connection: &mut SqliteConnection, commit: &Commit) -> Result<(), Problem> {
    for notes in notes_as_kept(commit).chunks(LARGEST) {
        let mut query = sqlx::query(AssertSqlSafe(NOTES[size_index(notes.len())].clone()));
        for notes in notes {
            let workload = signed("workload", notes.workload)?;
            query = query.bind(workload).bind(notes.secret.as_deref().map(<[u8]>::to_vec)).bind(notes.text.clone());
        }
        pad(query, notes.len(), NOTES_COLUMNS).execute(&mut *connection).await?;
    }
    for ended in commit.ended.chunks(LARGEST) {
        let mut query = sqlx::query(AssertSqlSafe(FORGET_SECRETS[size_index(ended.len())].clone()));
        for workload in ended {
            query = query.bind(signed("workload", *workload)?);
        }
        pad(query, ended.len(), 1).execute(&mut *connection).await?;
    }
    Ok(())
}

async fn write_ledger(connection: &mut SqliteConnection, commit: &Commit) -> Result<(), Problem> {
    for rows in commit.ledger.chunks(LARGEST) {
        let mut query = sqlx::query(AssertSqlSafe(LEDGER[size_index(rows.len())].clone()));
        for row in rows {
            query = query
                .bind(signed("ledger seq", row.seq)?)
                .bind(row.lease.as_str())
                .bind(workload(row.workload)?)
                .bind(row.from_ms)
                .bind(row.to_ms)
                .bind(row.nanousd)
                .bind(i32::from(row.version))
                .bind(row.payload.clone());
        }
        pad(query, rows.len(), LEDGER_COLUMNS).execute(&mut *connection).await?;
    }
    Ok(())
}

pub(super) async fn snapshot_parts(
    connection: &mut SqliteConnection,
    epoch: u64,
    seq: u64,
    parts: &[Part],
) -> Result<(), Problem> {
    let heads = locked_heads(connection).await?;
    heads.fence(epoch)?;
    heads.covers(seq)?;
    for parts in parts.chunks(LARGEST) {
        let mut query = sqlx::query(AssertSqlSafe(PARTS[size_index(parts.len())].clone()));
        for part in parts {
            query = query.bind(part.name.as_str()).bind(signed("seq", seq)?).bind(part.text.clone());
        }
        pad(query, parts.len(), PART_COLUMNS).execute(&mut *connection).await?;
    }
    Ok(())
}

/// Deletes parts, at most [`LARGEST`]; gives how many.
pub(super) async fn drop_parts(
    connection: &mut SqliteConnection,
    epoch: u64,
    needless: &[(String, i64)],
) -> Result<u64, Problem> {
    locked_heads(connection).await?.fence(epoch)?;
    let mut query = sqlx::query(AssertSqlSafe(DROP_PARTS[size_index(needless.len())].clone()));
    for (name, seq) in needless {
        query = query.bind(name.as_str()).bind(*seq);
    }
    Ok(pad(query, needless.len(), PART_KEY_COLUMNS).execute(connection).await?.rows_affected())
}

pub(super) async fn snapshot(
    connection: &mut SqliteConnection,
    epoch: u64,
    snapshot: &Snapshot,
) -> Result<(), Problem> {
    let heads = locked_heads(connection).await?;
    heads.fence(epoch)?;
    heads.covers(snapshot.seq)?;
    let stray = sqlx::query(statements::DROP_STRAY_PARTS).bind(signed("seq", snapshot.seq)?);
    stray.execute(&mut *connection).await?;
    sqlx::query(statements::SNAPSHOT)
        .bind(signed("seq", snapshot.seq)?)
        .bind(snapshot.at_ms)
        .bind(i32::from(snapshot.version))
        .bind(snapshot.payload.clone())
        .execute(&mut *connection)
        .await?;
    sqlx::query(statements::PRUNE_SNAPSHOTS).execute(connection).await?;
    Ok(())
}

/// How far one step of a cut came.
pub(super) struct CutStep {
    pub end: i64,
    pub deleted: u64,
}

pub(super) async fn cut_step(
    connection: &mut SqliteConnection,
    epoch: u64,
    done_to: i64,
    before_seq: u64,
    older_than_ms: i64,
) -> Result<Option<CutStep>, Problem> {
    locked_heads(connection).await?.fence(epoch)?;
    let covered: Option<i64> = sqlx::query_scalar(statements::COVERED).fetch_one(&mut *connection).await?;
    let Some(covered) = covered else { return Ok(None) };
    let before = bound(before_seq).min(covered + 1);
    let end = sqlx::query_scalar(statements::CUT_END).bind(done_to).bind(before).bind(older_than_ms);
    let end: Option<i64> = end.fetch_one(&mut *connection).await?;
    let Some(end) = end else { return Ok(None) };
    let cut = sqlx::query(statements::CUT).bind(done_to).bind(end).bind(older_than_ms);
    let deleted = cut.execute(connection).await?.rows_affected();
    Ok(Some(CutStep { end, deleted }))
}

fn workload(id: Option<u64>) -> Result<Option<i64>> {
    id.map(|id| signed("workload", id)).transpose()
}
