//! A brain and its place in the log. Events and decisions become rows of one commit; until that commit is confirmed the
//! brain is ahead of the log, and a commit that failed is rolled back. It never touches a store and knows no clock.

use std::collections::BTreeSet;
use windfall_core::brain::Config;
use windfall_core::record::Subject;
use windfall_core::view::JobView;
use windfall_core::{Body, Brain, Event, Installation, Record, Time, codec};
use windfall_store::{Commit, JobRow, LedgerRow, Loaded, Row, Snapshot};

/// A brain and its place in the log.
pub(crate) struct Journal {
    brain: Brain,
    installation: Installation,
    next_ledger_seq: u64,
    /// The newest stored snapshot and every committed row after it: a failed commit is undone with them alone, so the
    /// state that people see is right even while nothing can be loaded.
    snapshot: Option<Snapshot>,
    tail: Vec<Row>,
    /// A commit on its way: its log rows, and how many ledger rows go with them.
    unconfirmed: Option<(Vec<Row>, u64)>,
}

/// Rows that are written together.
pub(crate) struct Batch {
    at: Time,
    number: u64,
    commit: Commit,
}

impl Journal {
    /// Rebuilds a brain from what a store gave. Only applies: nothing is decided again.
    pub fn load(loaded: Loaded) -> Result<Journal, codec::CodecError> {
        let installation = Installation(u64::from_str_radix(&loaded.installation, 16).unwrap_or_default());
        let brain = rebuilt(installation, loaded.snapshot.as_ref(), &loaded.tail)?;
        Ok(Journal {
            brain,
            installation,
            next_ledger_seq: loaded.next_ledger_seq,
            snapshot: loaded.snapshot,
            tail: loaded.tail,
            unconfirmed: None,
        })
    }

    pub fn brain(&self) -> &Brain {
        &self.brain
    }

    /// The last ledger row that is durable; none while a commit is on its way, which the brain is ahead by.
    pub fn last_ledger_row(&self) -> Option<u64> {
        self.unconfirmed.is_none().then_some(self.next_ledger_seq.saturating_sub(1))
    }

    /// The last row that a stored snapshot covers.
    pub fn snapshot_seq(&self) -> u64 {
        self.snapshot.as_ref().map_or(0, |snapshot| snapshot.seq)
    }

    pub fn begin(&self, now: Time) -> Batch {
        Batch { at: now.max(self.brain.now()), number: self.brain.last_batch() + 1, commit: Commit::default() }
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
        self.unconfirmed = Some((batch.commit.rows.clone(), batch.commit.ledger.len() as u64));
        Some(batch.commit)
    }

    /// The commit is durable.
    pub fn confirm(&mut self) {
        if let Some((rows, ledger_rows)) = self.unconfirmed.take() {
            self.tail.extend(rows);
            self.next_ledger_seq += ledger_rows;
        }
    }

    /// The commit failed, or nobody knows: the brain is again what was durable for sure.
    pub fn roll_back(&mut self) -> Result<(), codec::CodecError> {
        if self.unconfirmed.take().is_some() {
            self.brain = rebuilt(self.installation, self.snapshot.as_ref(), &self.tail)?;
        }
        Ok(())
    }

    /// A snapshot, when so many rows were written since the last one.
    pub fn snapshot_after(&self, rows: u64) -> Option<Snapshot> {
        (self.tail.len() as u64 >= rows).then(|| Snapshot {
            seq: self.brain.last_seq(),
            at_ms: self.brain.now().0,
            version: codec::VERSION,
            payload: codec::encode(&self.brain).into(),
        })
    }

    /// A snapshot is stored.
    pub fn keep(&mut self, snapshot: Snapshot) {
        self.tail.retain(|row| row.seq > snapshot.seq);
        self.snapshot = Some(snapshot);
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
        self.brain.apply(&Record { seq, batch: batch.number, at: batch.at, body });
        batch.commit.rows.push(row);
        if let Some(id) = new {
            batch.commit.jobs.extend(self.brain.view(id, batch.at).as_ref().map(job_row));
        }
        seq
    }
}

fn rebuilt(installation: Installation, snapshot: Option<&Snapshot>, tail: &[Row]) -> Result<Brain, codec::CodecError> {
    let mut brain = match snapshot {
        Some(snapshot) => codec::decode(snapshot.version, &snapshot.payload)?,
        None => Brain::new(installation, Config::default()),
    };
    for row in tail {
        let body: Body = codec::decode(row.version, &row.payload)?;
        brain.apply(&Record { seq: row.seq, batch: row.batch, at: Time(row.at_ms), body });
    }
    brain.take_ledger();
    brain.take_final_views();
    Ok(brain)
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
            tail: Vec::new(),
            next_seq: 1,
            next_batch: 1,
            next_ledger_seq: 5,
        };
        let mut journal = Journal::load(loaded).expect("an empty log");
        journal.unconfirmed = Some((Vec::new(), 3));
        journal.confirm();
        assert_eq!((journal.next_ledger_seq, journal.last_ledger_row()), (8, Some(7)));
    }
}
