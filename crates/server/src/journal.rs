//! A brain and its place in the log. Events and decisions become rows of one commit; until that commit is confirmed the
//! brain is ahead of the log, and a commit that failed is rolled back. It never touches a store and knows no clock.

use crate::durable::Durable;
use crate::save_paths::SavePaths;
use crate::snapshots::{SnapshotEnd, SnapshotTask, StoredParts, state_of};
use std::collections::BTreeSet;
use std::sync::Arc;
use windfall_core::brain::{Config, OpenAbout};
use windfall_core::record::Subject;
use windfall_core::view::JobView;
use windfall_core::{Body, Brain, Decision, DecisionId, Event, Installation, Record, Time, WorkloadId, codec};
use windfall_store::{Commit, JobRow, LedgerRow, Loaded, Notes, Row, StoreError};

/// A brain and its place in the log.
pub(crate) struct Journal {
    brain: Brain,
    /// The state that is durable for sure: a failed commit is undone with it, so the state that people see is right even
    /// while nothing can be loaded.
    durable: Arc<Durable>,
    /// Where the brain's jobs save.
    save_paths: SavePaths,
    next_ledger_seq: u64,
    /// The last row that a stored snapshot covers.
    snapshot_seq: u64,
    /// The parts of that snapshot; none while the next one is being made.
    stored: Option<StoredParts>,
    /// A commit on its way: its records, and how many ledger rows go with them.
    unconfirmed: Option<(Vec<Record>, u64)>,
}

/// Rows that are written together.
pub(crate) struct Batch {
    at: Time,
    number: u64,
    commit: Commit,
    records: Vec<Record>,
}

impl Batch {
    /// Keeps notes beside the log of a job that is submitted in this batch.
    pub fn note(&mut self, id: WorkloadId, notes: Option<&Notes>) {
        self.commit.notes.extend(notes.map(|notes| Notes { workload: id.0, ..notes.clone() }));
    }
}

impl Journal {
    /// Rebuilds a brain from what a store gave. Only applies: nothing is decided again.
    pub fn load(loaded: Loaded) -> Result<Journal, codec::CodecError> {
        let installation = Installation(u64::from_str_radix(&loaded.installation, 16).unwrap_or_default());
        let mut brain = state_of(&loaded)?.unwrap_or_else(|| Brain::new(installation, Config::default()));
        let stored = Some(StoredParts::of(&loaded));
        let snapshot_seq = loaded.snapshot.map_or(0, |snapshot| snapshot.seq);
        for row in &loaded.tail {
            brain.apply(&record_of(row)?);
        }
        brain.take_ledger();
        brain.take_final_views();
        let durable = Arc::new(Durable::new(brain.clone(), loaded.next_ledger_seq.saturating_sub(1)));
        let next_ledger_seq = loaded.next_ledger_seq;
        let save_paths = SavePaths::of(&brain);
        Ok(Journal { brain, durable, save_paths, next_ledger_seq, snapshot_seq, stored, unconfirmed: None })
    }

    /// Takes in what the log holds beyond what is known: after a failed commit that is the commit, or nothing.
    pub fn catch_up(&mut self, missed: Loaded) -> Result<(), codec::CodecError> {
        let news: Vec<Record> = missed.tail.iter().map(record_of).collect::<Result<_, codec::CodecError>>()?;
        self.durable.catch_up(&news, missed.next_ledger_seq.saturating_sub(1));
        self.next_ledger_seq = missed.next_ledger_seq;
        self.unconfirmed = None;
        self.brain = self.durable.read(Brain::clone);
        self.save_paths = SavePaths::of(&self.brain);
        Ok(())
    }

    /// The last row that is durable for sure.
    pub fn known_seq(&self) -> u64 {
        self.durable.read(Brain::last_seq)
    }

    pub fn into_brain(self) -> Brain {
        self.brain
    }

    pub fn brain(&self) -> &Brain {
        &self.brain
    }

    /// Where the brain's jobs save their checkpoints.
    pub fn save_paths(&self) -> &SavePaths {
        &self.save_paths
    }

    /// The state that is durable.
    pub fn durable(&self) -> &Arc<Durable> {
        &self.durable
    }

    /// The last row that a stored snapshot covers.
    pub fn snapshot_seq(&self) -> u64 {
        self.snapshot_seq
    }

    pub fn begin(&self, now: Time) -> Batch {
        let number = self.brain.last_batch() + 1;
        Batch { at: now.max(self.brain.now()), number, commit: Commit::default(), records: Vec::new() }
    }

    /// Takes an event in, if it is news; gives its place in the log.
    pub fn take(&mut self, batch: &mut Batch, event: Event) -> Option<u64> {
        self.brain.is_news(&event).then(|| self.record(batch, Body::Event(event)))
    }

    /// Asks the brain once what is to be done, and takes its decisions in.
    pub fn decide(&mut self, batch: &mut Batch, unseen: &BTreeSet<String>) {
        for decided in self.brain.decide_but_for(batch.at, unseen) {
            self.record(batch, Body::Decision(decided.decision, decided.reason));
        }
    }

    /// The commit that makes a batch durable; none when there is nothing to write.
    pub fn finish(&mut self, mut batch: Batch) -> Option<Commit> {
        if batch.commit.rows.is_empty() {
            return None;
        }
        batch.commit.jobs.extend(self.brain.take_final_views().iter().map(job_row));
        for row in self.brain.take_ledger() {
            batch.commit.ledger.push(LedgerRow {
                seq: self.next_ledger_seq + batch.commit.ledger.len() as u64,
                lease: row.paid_for(),
                workload: row.beneficiary.workload().map(|id| id.0),
                from_ms: row.from.0,
                to_ms: row.to.0,
                nanousd: row.amount.0,
                version: codec::VERSION,
                payload: codec::encode(&row).into(),
            });
        }
        self.unconfirmed = Some((batch.records, batch.commit.ledger.len() as u64));
        Some(batch.commit)
    }

    /// The commit is durable; gives the decisions in it that are to be carried out.
    pub fn confirm(&mut self) -> Vec<(DecisionId, OpenAbout)> {
        let Some((records, ledger_rows)) = self.unconfirmed.take() else { return Vec::new() };
        self.durable.advance(&records, ledger_rows, &self.brain);
        self.next_ledger_seq += ledger_rows;
        let installation = self.brain.installation();
        let decided = |record: &Record| {
            let Body::Decision(decision, _) = &record.body else { return None };
            let id = DecisionId { installation, seq: record.seq };
            Some((id, OpenAbout::of(id, decision)?))
        };
        records.iter().filter_map(decided).collect()
    }

    /// The commit failed, or nobody knows: the brain is again what was durable for sure.
    pub fn roll_back(&mut self) {
        if self.unconfirmed.take().is_some() {
            self.brain = self.durable.read(Brain::clone);
        }
    }

    /// A snapshot to make, when so many rows were written since the last one and none is being made. Comparing looks at
    /// every part of the state, so as many rows as there are parts are awaited: for each row it looks at one.
    pub fn snapshot_after(&mut self, rows: u64) -> Option<SnapshotTask> {
        let parts = self.stored.as_ref()?.len() as u64;
        let due = self.brain.last_seq() >= self.snapshot_seq + rows.max(parts);
        due.then(|| SnapshotTask::new(&self.durable, self.stored.take().unwrap_or_default()))
    }

    /// A snapshot was made, or not; gives why not.
    pub fn snapshot_ended(&mut self, end: SnapshotEnd) -> Result<(), StoreError> {
        let (stored, result) = end.into_parts();
        self.stored = Some(stored);
        self.snapshot_seq = result?;
        Ok(())
    }

    /// Applies a record and puts its row into the commit.
    fn record(&mut self, batch: &mut Batch, mut body: Body) -> u64 {
        let seq = self.brain.last_seq() + 1;
        if let Body::Event(Event::Submitted { id, .. }) = &mut body {
            *id = Some(self.brain.next_workload());
        }
        let workload = match body.subject() {
            Subject::New => Some(self.brain.next_workload()),
            Subject::Workload(id) => Some(id),
            Subject::Lease(id) => self.brain.lease(id).and_then(|lease| lease.workload),
            Subject::World => None,
        };
        let row = Row {
            seq,
            batch: batch.number,
            at_ms: batch.at.0,
            workload: workload.map(|id| id.0),
            kind: body.kind().into(),
            version: codec::VERSION,
            payload: codec::encode(&body).into(),
        };
        let new = workload.filter(|_| body.subject() == Subject::New);
        if let Body::Decision(Decision::End { workload, .. }, _) = &body {
            batch.commit.ended.push(workload.0);
        }
        let record = Record { seq, batch: batch.number, at: batch.at, body };
        self.brain.apply(&record);
        batch.commit.rows.push(row);
        batch.records.push(record);
        if let Some(id) = new {
            self.save_paths.add(&self.brain, id);
            batch.commit.jobs.extend(self.brain.view(id, batch.at).as_ref().map(job_row));
        }
        seq
    }
}

fn record_of(row: &Row) -> Result<Record, codec::CodecError> {
    let body: Body = codec::decode(row.version, &row.payload)?;
    Ok(Record { seq: row.seq, batch: row.batch, at: Time(row.at_ms), body })
}

fn job_row(view: &JobView) -> JobRow {
    JobRow {
        workload: view.id.0,
        name: view.name.clone(),
        owner: view.owner.clone(),
        state: view.state.word().to_owned(),
        live: !view.state.is_over(),
        submitted_at_ms: view.submitted_at.0,
        ended_at_ms: view.ended_at.map(|at| at.0),
        version: codec::VERSION,
        summary: codec::encode(view).into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ledger_rows_are_counted_on_from_commit_to_commit() {
        let loaded = Loaded {
            installation: "1".to_owned(),
            snapshot: None,
            parts: Vec::new(),
            tail: Vec::new(),
            next_seq: 1,
            next_batch: 1,
            next_ledger_seq: 5,
        };
        let mut journal = Journal::load(loaded).expect("an empty log");
        journal.unconfirmed = Some((Vec::new(), 3));
        journal.confirm();
        let durable = journal.durable.read_books(|_, last_row| last_row);
        assert_eq!((journal.next_ledger_seq, durable), (8, 7));
    }
}
