//! The loop's heart: apply, decide, apply, commit; only then may anything be dispatched. It knows neither
//! clocks nor engines, so the explorer drives this very code.

use std::sync::Arc;
use windfall_core::brain::{Config, Open};
use windfall_core::record::Subject;
use windfall_core::view::JobView;
use windfall_core::{Body, Brain, Decision, DecisionId, Event, Installation, LeaseId, Record, Time, WorkloadId, codec};
use windfall_store::{Commit, JobRow, LedgerRow, Row, Snapshot, Store, StoreError};

/// Records between two snapshots: a start replays at most about this many.
const SNAPSHOT_EVERY: u64 = 2_000;

/// Why a step did not happen. Nothing of it took effect, and nothing may be dispatched.
#[derive(Debug, thiserror::Error)]
pub enum CycleError {
    /// The store refused.
    #[error("the state could not be written")]
    Store(#[from] StoreError),
    /// A stored payload cannot be read by this binary.
    #[error("the state cannot be read")]
    Codec(#[from] codec::CodecError),
}

/// What a step led to.
#[derive(Clone, Debug, Default)]
pub struct Stepped {
    /// For each event given: the sequence it was logged at, or none when it was not news.
    pub logged: Vec<Option<u64>>,
    /// What is to be dispatched now.
    pub decisions: Vec<Open>,
    /// Jobs that ended and hold nothing any more.
    pub ended: Vec<JobView>,
    /// Leases that are gone: the engine may forget them.
    pub gone: Vec<LeaseId>,
}

/// A brain and its log.
pub struct Cycle {
    brain: Brain,
    config: Config,
    store: Arc<dyn Store>,
    epoch: u64,
    next_ledger_seq: u64,
    snapshot_seq: u64,
}

impl Cycle {
    /// Takes the lead on a store and rebuilds the brain from it. Only applies; nothing is decided again.
    pub async fn open(store: Arc<dyn Store>, config: Config) -> Result<Cycle, CycleError> {
        let epoch = store.lead().await?;
        let mut cycle = Cycle {
            brain: Brain::new(Installation::default(), config.clone()),
            config,
            store,
            epoch,
            next_ledger_seq: 1,
            snapshot_seq: 0,
        };
        cycle.reload().await?;
        Ok(cycle)
    }

    /// The state.
    pub fn brain(&self) -> &Brain {
        &self.brain
    }

    /// When to step again even if nothing happens.
    pub fn next_wakeup(&self) -> Option<Time> {
        self.brain.next_wakeup()
    }

    /// The log and the read models.
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    async fn reload(&mut self) -> Result<(), CycleError> {
        let loaded = self.store.load().await?;
        let installation = Installation(u64::from_str_radix(&loaded.installation, 16).unwrap_or_default());
        let mut brain = match &loaded.snapshot {
            Some(snapshot) => codec::decode(snapshot.version, &snapshot.payload)?,
            None => Brain::new(installation, self.config.clone()),
        };
        for row in &loaded.tail {
            let body: Body = codec::decode(row.version, &row.payload)?;
            brain.apply(&Record { seq: row.seq, batch: row.batch, at: Time(row.at_ms), body });
        }
        brain.take_ledger();
        brain.take_final_views();
        brain.configure(self.config.clone());
        self.brain = brain;
        self.next_ledger_seq = loaded.next_ledger_seq;
        self.snapshot_seq = loaded.snapshot.map_or(0, |snapshot| snapshot.seq);
        Ok(())
    }

    /// One turn: takes what happened, decides once, and makes both durable in one transaction.
    pub async fn step(&mut self, now: Time, events: Vec<Event>) -> Result<Stepped, CycleError> {
        let mut batch =
            Batch { at: now.max(self.brain.now()), number: self.brain.last_batch() + 1, commit: Commit::default() };
        let mut stepped = Stepped::default();
        for event in events {
            let logged = self.brain.is_news(&event).then(|| {
                if let Event::LeaseGone { lease, .. }
                | Event::LeaseFailed { lease, .. }
                | Event::LeaseFound { lease, until: Some(_), .. } = &event
                {
                    stepped.gone.push(*lease);
                }
                batch.take(&mut self.brain, Body::Event(event))
            });
            stepped.logged.push(logged);
        }
        for decided in self.brain.decide(batch.at) {
            let decision = decided.decision.clone();
            let seq = batch.take(&mut self.brain, Body::Decision(decided.decision, decided.reason));
            let id = DecisionId { installation: self.brain.installation(), seq };
            if !matches!(decision, Decision::End { .. } | Decision::Notify { .. }) {
                stepped.decisions.push(Open { id, decision });
            }
        }
        if batch.commit.rows.is_empty() {
            return Ok(stepped);
        }
        stepped.ended = self.brain.take_final_views();
        batch.commit.jobs.extend(stepped.ended.iter().map(job_row));
        for row in self.brain.take_ledger() {
            batch.commit.ledger.push(LedgerRow {
                seq: self.next_ledger_seq + batch.commit.ledger.len() as u64,
                lease: row.lease.to_string(),
                workload: match row.beneficiary {
                    windfall_core::ledger::Beneficiary::Workload(id) => Some(id.0),
                    _ => None,
                },
                from_ms: row.from.0,
                to_ms: row.to.0,
                nanousd: row.amount.0,
                version: codec::VERSION,
                payload: codec::encode(&row).into(),
            });
        }
        if let Err(error) = self.store.commit(self.epoch, &batch.commit).await {
            // The brain is ahead of the log, or the log's end is unknown: the log is the truth.
            self.reload().await?;
            return Err(error.into());
        }
        self.next_ledger_seq += batch.commit.ledger.len() as u64;
        self.snapshot_if_due().await;
        Ok(stepped)
    }

    async fn snapshot_if_due(&mut self) {
        let seq = self.brain.last_seq();
        if seq < self.snapshot_seq + SNAPSHOT_EVERY {
            return;
        }
        let payload = codec::encode(&self.brain).into();
        let snapshot = Snapshot { seq, at_ms: self.brain.now().0, version: codec::VERSION, payload };
        // A snapshot only makes the next start faster; the log alone is enough.
        if self.store.snapshot(self.epoch, &snapshot).await.is_ok() {
            self.snapshot_seq = seq;
        }
    }

    /// Deletes log rows behind the snapshots that are older than `before`; live jobs keep theirs.
    pub async fn cut(&self, before: Time) -> Result<u64, StoreError> {
        self.store.cut(self.epoch, self.snapshot_seq, before.0).await
    }
}

struct Batch {
    at: Time,
    number: u64,
    commit: Commit,
}

impl Batch {
    /// Applies a record and puts its row into the commit.
    fn take(&mut self, brain: &mut Brain, body: Body) -> u64 {
        let seq = brain.last_seq() + 1;
        let workload = match body.subject() {
            Subject::New => Some(WorkloadId(seq)),
            Subject::Workload(id) => Some(id),
            Subject::Lease(id) => brain.lease(id).and_then(|lease| lease.workload),
            Subject::World => None,
        };
        let row = Row {
            seq,
            batch: self.number,
            at_ms: self.at.0,
            workload: workload.map(|id| id.0),
            kind: body.kind().into(),
            version: codec::VERSION,
            payload: codec::encode(&body).into(),
        };
        let is_new = body.subject() == Subject::New;
        brain.apply(&Record { seq, batch: self.number, at: self.at, body });
        self.commit.rows.push(row);
        if is_new {
            self.commit.jobs.extend(brain.view(WorkloadId(seq), self.at).as_ref().map(job_row));
        }
        seq
    }
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
