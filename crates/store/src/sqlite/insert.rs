//! Inserts and deletions of few fixed sizes: any number of rows takes the next larger one, the rest of it is null and passed over. So a
//! handful of statements stay prepared, whatever the commits look like.

use std::sync::{Arc, LazyLock};

pub(super) const SIZES: [usize; 6] = [0, 1, 4, 16, 64, 256];
pub(super) const LARGEST: usize = 256;

pub(super) const LOG_COLUMNS: usize = 7;
pub(super) const JOB_COLUMNS: usize = 9;
pub(super) const LEDGER_COLUMNS: usize = 8;
pub(super) const PART_COLUMNS: usize = 3;
pub(super) const PART_KEY_COLUMNS: usize = 2;
pub(super) const NOTES_COLUMNS: usize = 3;

/// The statement that takes so many rows; at most [`LARGEST`].
pub(super) fn size_index(rows: usize) -> usize {
    SIZES.partition_point(|size| *size < rows)
}

/// Takes the write lock and moves the heads, if the writer leads and its numbers continue; otherwise a `NOT NULL` column
/// would become null, which fails. Six parameters: rows, ledger rows, batch, epoch, first number, first ledger number.
const BEGIN_AND_ADVANCE: &str = "BEGIN IMMEDIATE; UPDATE meta SET next_seq = next_seq + ?, \
     next_ledger_seq = next_ledger_seq + ?, next_batch = MAX(next_batch, ?), \
     epoch = CASE WHEN epoch = ? AND next_seq = COALESCE(?, next_seq) \
     AND next_ledger_seq = COALESCE(?, next_ledger_seq) THEN epoch END; ";

pub(super) type Statements = LazyLock<Vec<Arc<str>>>;

pub(super) static BEGIN_AND_LOG: Statements =
    LazyLock::new(|| LOG.iter().map(|insert| format!("{BEGIN_AND_ADVANCE}{insert}").into()).collect());

pub(super) static LOG: Statements =
    LazyLock::new(|| inserts("log (seq, batch, at_ms, workload, kind, version, payload)", LOG_COLUMNS, ""));

pub(super) static JOBS: Statements = LazyLock::new(|| {
    inserts(
        "jobs (workload, name, owner, state, live, submitted_at_ms, ended_at_ms, version, summary)",
        JOB_COLUMNS,
        " ON CONFLICT (workload) DO UPDATE SET name = excluded.name, owner = excluded.owner, \
         state = excluded.state, live = excluded.live, submitted_at_ms = excluded.submitted_at_ms, \
         ended_at_ms = excluded.ended_at_ms, version = excluded.version, summary = excluded.summary",
    )
});

pub(super) static LEDGER: Statements = LazyLock::new(|| {
    let into = "ledger (seq, lease, workload, from_ms, to_ms, nanousd, version, payload)";
    inserts(into, LEDGER_COLUMNS, "")
});

pub(super) static NOTES: Statements = LazyLock::new(|| {
    let replace = " ON CONFLICT (workload) DO UPDATE SET secret = excluded.secret, text = excluded.text";
    inserts("notes (workload, secret, text)", NOTES_COLUMNS, replace)
});

/// Deletes what may be secret in the notes of so many jobs.
pub(super) static FORGET_SECRETS: Statements = LazyLock::new(|| {
    let statement = |size: &usize| {
        let values = vec!["(?)"; (*size).max(1)].join(",");
        format!("UPDATE notes SET secret = NULL WHERE workload IN (VALUES {values})").into()
    };
    SIZES.iter().map(statement).collect()
});

pub(super) static PARTS: Statements = LazyLock::new(|| {
    inserts("parts (name, seq, text)", PART_COLUMNS, " ON CONFLICT (name, seq) DO UPDATE SET text = excluded.text")
});

/// Deletes so many parts. `(name, seq) IN (VALUES …)` would read the whole table.
pub(super) static DROP_PARTS: Statements = LazyLock::new(|| {
    let statement = |size: &usize| {
        let values = vec!["(?,?)"; (*size).max(1)].join(",");
        let places =
            "SELECT parts.rowid FROM needless CROSS JOIN parts ON parts.name = column1 AND parts.seq = column2";
        format!("WITH needless AS (VALUES {values}) DELETE FROM parts WHERE rowid IN ({places})").into()
    };
    SIZES.iter().map(statement).collect()
});

fn inserts(into: &str, columns: usize, conflict: &str) -> Vec<Arc<str>> {
    let marks = format!("({})", vec!["?"; columns].join(","));
    let statement = |size: usize| {
        let values = vec![marks.as_str(); size].join(",");
        format!("INSERT INTO {into} SELECT * FROM (VALUES {values}) WHERE column1 IS NOT NULL{conflict}")
    };
    let text = |size: &usize| if *size == 0 { String::new() } else { statement(*size) };
    SIZES.iter().map(|size| text(size).into()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_of_rows_has_a_statement_that_takes_it() {
        for rows in 0..=LARGEST {
            let size = SIZES[size_index(rows)];
            assert!(size >= rows && size <= rows.max(1) * 4, "{rows} {size}");
        }
    }
}
