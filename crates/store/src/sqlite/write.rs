//! Everything that writes to the SQLite file, each inside one transaction of the one writing connection.

use std::{
    path::{Path, PathBuf},
    sync::{Arc, LazyLock},
};

use sqlx::{AssertSqlSafe, Connection, Sqlite, SqliteConnection, query::Query, sqlite::SqliteArguments};

use super::fault::{commit_fault, fault};
use crate::{
    Commit, Result, Snapshot, StoreError,
    error::Problem,
    reads::sqlite::locked_heads,
    sequence::{bound, newest_of_each, signed},
    statements,
};

/// The writing connection. Transactions are begun and ended by hand, because SQLite ends one by itself on some errors,
/// and because a caller may be dropped inside one.
pub(super) struct Writer {
    connection: Option<SqliteConnection>,
    path: PathBuf,
    /// A transaction was begun and its end has not been seen.
    open: bool,
}

impl Writer {
    pub fn new(connection: SqliteConnection, path: &Path) -> Self {
        Self { connection: Some(connection), path: path.to_owned(), open: false }
    }

    /// Take the write lock now: a transaction that reads first and writes later can be refused in between.
    pub async fn begin(&mut self) -> Result<&mut SqliteConnection> {
        let closed = || StoreError::Database { doing: "writing to a closed store", source: sqlx::Error::PoolClosed };
        let connection = self.connection.as_mut().ok_or_else(closed)?;
        if std::mem::replace(&mut self.open, true) {
            let _ = sqlx::query("ROLLBACK").execute(&mut *connection).await;
        }
        sqlx::query("BEGIN IMMEDIATE")
            .execute(&mut *connection)
            .await
            .map_err(|error| fault(&self.path, "taking the write lock", error))?;
        Ok(connection)
    }

    /// Commit what succeeded; undo what did not.
    pub async fn end<T>(&mut self, doing: &'static str, outcome: Result<T, Problem>) -> Result<T> {
        let Some(connection) = self.connection.as_mut() else { return outcome.map_err(|problem| self.name(doing, problem)) };
        let outcome = match outcome {
            Err(problem) => Err(self.name(doing, problem)),
            Ok(value) => match sqlx::query("COMMIT").execute(&mut *connection).await {
                Ok(_) => Ok(value),
                Err(error) => Err(commit_fault(&self.path, doing, error)),
            },
        };
        if outcome.is_err() {
            // It fails where SQLite has rolled back by itself, which is as good.
            let _ = sqlx::query("ROLLBACK").execute(connection).await;
        }
        self.open = false;
        outcome
    }

    fn name(&self, doing: &'static str, problem: Problem) -> StoreError {
        match problem {
            Problem::Store(error) => error,
            Problem::Sql(error) => fault(&self.path, doing, error),
        }
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

pub(super) async fn commit(connection: &mut SqliteConnection, epoch: u64, commit: &Commit) -> Result<(), Problem> {
    let next = locked_heads(connection).await?.after(epoch, commit)?;
    if !commit.rows.is_empty() || !commit.ledger.is_empty() {
        sqlx::query(statements::ADVANCE)
            .bind(signed("seq", next.next_seq)?)
            .bind(signed("batch", next.next_batch)?)
            .bind(signed("ledger seq", next.next_ledger_seq)?)
            .execute(&mut *connection)
            .await?;
    }
    for (statement, rows) in LOG.chunks(&commit.rows) {
        let mut query = sqlx::query(AssertSqlSafe(statement));
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
        query.execute(&mut *connection).await?;
    }
    for (statement, jobs) in JOBS.chunks(&newest_of_each(&commit.jobs)) {
        let mut query: Query<'_, Sqlite, SqliteArguments> = sqlx::query(AssertSqlSafe(statement));
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
        query.execute(&mut *connection).await?;
    }
    for (statement, rows) in LEDGER.chunks(&commit.ledger) {
        let mut query = sqlx::query(AssertSqlSafe(statement));
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
        query.execute(&mut *connection).await?;
    }
    Ok(())
}

pub(super) async fn snapshot(
    connection: &mut SqliteConnection,
    epoch: u64,
    snapshot: &Snapshot,
) -> Result<(), Problem> {
    let heads = locked_heads(connection).await?;
    heads.fence(epoch)?;
    heads.covers(snapshot)?;
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
    let end: Option<i64> =
        sqlx::query_scalar(statements::CUT_END).bind(done_to).bind(before).fetch_one(&mut *connection).await?;
    let Some(end) = end else { return Ok(None) };
    let cut = sqlx::query(statements::CUT).bind(done_to).bind(end).bind(older_than_ms);
    let deleted = cut.execute(connection).await?.rows_affected();
    Ok(Some(CutStep { end, deleted }))
}

fn workload(id: Option<u64>) -> Result<Option<i64>> {
    id.map(|id| signed("workload", id)).transpose()
}

/// Inserts of 1, 2, 4 … 256 rows: any number of rows is a few of them, and each stays prepared.
struct Insert {
    by_size: Vec<Arc<str>>,
}

const LARGEST_POWER: u32 = 8;

static LOG: LazyLock<Insert> =
    LazyLock::new(|| Insert::new("log (seq, batch, at_ms, workload, kind, version, payload)", 7, ""));
static JOBS: LazyLock<Insert> = LazyLock::new(|| {
    Insert::new(
        "jobs (workload, name, owner, state, live, submitted_at_ms, ended_at_ms, version, summary)",
        9,
        " ON CONFLICT (workload) DO UPDATE SET name = excluded.name, owner = excluded.owner, \
         state = excluded.state, live = excluded.live, submitted_at_ms = excluded.submitted_at_ms, \
         ended_at_ms = excluded.ended_at_ms, version = excluded.version, summary = excluded.summary",
    )
});
static LEDGER: LazyLock<Insert> = LazyLock::new(|| {
    Insert::new("ledger (seq, lease, workload, from_ms, to_ms, nanousd, version, payload)", 8, "")
});

impl Insert {
    fn new(into: &str, columns: usize, conflict: &str) -> Self {
        let marks = format!("({})", vec!["?"; columns].join(","));
        let values = |power: u32| vec![marks.as_str(); 1 << power].join(",");
        let statement = |power| format!("INSERT INTO {into} VALUES {}{conflict}", values(power)).into();
        Self { by_size: (0..=LARGEST_POWER).map(statement).collect() }
    }

    fn chunks<'r, T>(&'static self, mut rows: &'r [T]) -> impl Iterator<Item = (Arc<str>, &'r [T])> {
        std::iter::from_fn(move || {
            let power = rows.len().checked_ilog2()?.min(LARGEST_POWER);
            let (chunk, rest) = rows.split_at(1 << power);
            rows = rest;
            Some((self.by_size[power as usize].clone(), chunk))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_number_of_rows_is_a_few_statements() {
        let rows: Vec<u32> = (0..839).collect();
        let chunks: Vec<usize> = LOG.chunks(&rows).map(|(_, chunk)| chunk.len()).collect();
        assert_eq!(chunks, [256, 256, 256, 64, 4, 2, 1]);
        let back: Vec<u32> = LOG.chunks(&rows).flat_map(|(_, chunk)| chunk.to_vec()).collect();
        assert_eq!(back, rows);
    }
}
