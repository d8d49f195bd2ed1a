//! Checks that all backends share: a commit continues the log and the ledger, a loaded tail has no hole.

use std::collections::{BTreeMap, BTreeSet};

use crate::{Commit, JobRow, Loaded, Notes, Part, Result, Row, Snapshot, StoreError};

/// Where the log and the ledger stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Heads {
    pub epoch: u64,
    pub next_seq: u64,
    pub next_batch: u64,
    pub next_ledger_seq: u64,
}

impl Heads {
    /// The store before its first commit.
    pub const NEW: Self = Self { epoch: 0, next_seq: 1, next_batch: 1, next_ledger_seq: 1 };

    /// Where the writer of a commit takes them to stand.
    pub fn claimed(epoch: u64, commit: &Commit) -> Self {
        let next_seq = commit.rows.first().map_or(1, |row| row.seq);
        let next_ledger_seq = commit.ledger.first().map_or(1, |row| row.seq);
        Self { epoch, next_seq, next_batch: 1, next_ledger_seq }
    }

    /// Refuse who does not lead.
    pub fn fence(&self, held: u64) -> Result<()> {
        if held == self.epoch { Ok(()) } else { Err(StoreError::Fenced { held, current: self.epoch }) }
    }

    /// Where they stand after this commit, if the commit may be written.
    pub fn after(&self, held: u64, commit: &Commit) -> Result<Self> {
        self.fence(held)?;
        // Here, and not only where SQL has no such number: what one backend refuses, all refuse.
        let batches = commit.rows.iter().map(|row| ("batch", row.batch));
        let rows = commit.rows.iter().filter_map(|row| row.workload);
        let charged = commit.ledger.iter().filter_map(|row| row.workload);
        let noted = commit.notes.iter().map(|notes| notes.workload).chain(commit.ended.iter().copied());
        let workloads = rows.chain(charged).chain(commit.jobs.iter().map(|job| job.workload)).chain(noted);
        for (field, value) in batches.chain(workloads.map(|workload| ("workload", workload))) {
            signed(field, value)?;
        }
        let next_seq = continued("log", self.next_seq, commit.rows.iter().map(|row| row.seq))?;
        let next_ledger_seq = continued("ledger", self.next_ledger_seq, commit.ledger.iter().map(|row| row.seq))?;
        let batch_above = commit.rows.iter().map(|row| row.batch.saturating_add(1)).max().unwrap_or(0);
        Ok(Self { epoch: held, next_seq, next_batch: self.next_batch.max(batch_above), next_ledger_seq })
    }

    /// A snapshot may cover only what is in the log.
    pub fn covers(&self, seq: u64) -> Result<()> {
        if seq < self.next_seq { Ok(()) } else { Err(StoreError::Ahead { seq, next_seq: self.next_seq }) }
    }

    /// What a start needs, if the tail has no hole.
    pub fn loaded(
        &self,
        installation: String,
        snapshot: Option<Snapshot>,
        parts: Vec<Part>,
        tail: Vec<Row>,
        place: impl FnOnce() -> String,
    ) -> Result<Loaded> {
        let covered = snapshot.as_ref().map_or(0, |snapshot| snapshot.seq);
        Ok(Loaded { snapshot, parts, ..self.missed(installation, covered, tail, place)? })
    }

    /// What who knows every row up to one has missed, if there is no hole in it.
    pub fn missed(
        &self,
        installation: String,
        known: u64,
        tail: Vec<Row>,
        place: impl FnOnce() -> String,
    ) -> Result<Loaded> {
        let first = known + 1;
        let whole = tail.len() as u64 == self.next_seq.saturating_sub(first)
            && tail.iter().zip(first..).all(|(row, seq)| row.seq == seq);
        if !whole {
            let detail = format!("the log has a hole between rows {first} and {}", self.next_seq);
            return Err(StoreError::Corrupt { place: place(), detail });
        }
        Ok(Loaded {
            installation,
            snapshot: None,
            parts: Vec::new(),
            tail,
            next_seq: self.next_seq,
            next_batch: self.next_batch,
            next_ledger_seq: self.next_ledger_seq,
        })
    }
}

fn continued(sequence: &'static str, next: u64, seqs: impl Iterator<Item = u64>) -> Result<u64> {
    let mut expected = next;
    for found in seqs {
        if found != expected {
            return Err(StoreError::Gap { sequence, expected, found });
        }
        expected += 1;
    }
    Ok(expected)
}

/// The notes of a commit as they are written: without secrets where the same commit ends the job.
pub(crate) fn notes_as_kept(commit: &Commit) -> Vec<Notes> {
    let ended: BTreeSet<u64> = commit.ended.iter().copied().collect();
    let kept = |notes: &Notes| {
        let secret = notes.secret.clone().filter(|_| !ended.contains(&notes.workload));
        Notes { secret, ..notes.clone() }
    };
    commit.notes.iter().map(kept).collect()
}

/// Each job once, as written last: PostgreSQL refuses to upsert a row twice in one statement.
pub(crate) fn newest_of_each(jobs: &[JobRow]) -> Vec<&JobRow> {
    let newest: BTreeMap<u64, &JobRow> = jobs.iter().map(|job| (job.workload, job)).collect();
    newest.into_values().collect()
}

/// SQL has no unsigned numbers.
pub(crate) fn signed(field: &'static str, value: u64) -> Result<i64> {
    i64::try_from(value).map_err(|_| StoreError::TooLarge { field, value })
}

/// The same for a bound that a reader gave, where the largest number means "no bound".
pub(crate) fn bound(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}
