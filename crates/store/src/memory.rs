//! A store in memory, for tests and for the fault explorer. Handles are clones of one durable state: what a "crashed"
//! server committed is what the next one loads. Deterministic; no lock is held across an await.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use async_trait::async_trait;

use crate::{
    Commit, JobQuery, JobRow, LedgerQuery, LedgerRow, LedgerTotal, Loaded, Notes, Part, Result, Row, Snapshot, Store,
    StoreError,
    sequence::{Heads, notes_as_kept},
};

/// A handle on a durable state in memory; clones share it.
#[derive(Clone, Debug)]
pub struct MemoryStore {
    shared: Arc<Mutex<Durable>>,
}

#[derive(Debug)]
struct Durable {
    installation: String,
    heads: Heads,
    log: Vec<Row>,
    jobs: BTreeMap<u64, JobRow>,
    ledger: Vec<LedgerRow>,
    notes: BTreeMap<u64, Notes>,
    snapshots: Vec<Snapshot>,
    /// Writings of parts by name and row.
    parts: BTreeMap<(String, u64), Option<Arc<str>>>,
    fault: Option<Fault>,
    /// The writing process is dead: nothing is written until somebody leads again.
    crashed: bool,
}

/// What happens to coming commits; `after` counts those that pass first.
#[derive(Clone, Copy, Debug)]
enum Fault {
    Refuse { times: u64 },
    CrashBefore { after: u64 },
    CrashAfter { after: u64 },
}

impl Default for MemoryStore {
    fn default() -> Self {
        Self::new()
    }
}

impl MemoryStore {
    /// An empty store; its installation id is always the same, so that runs can be compared.
    pub fn new() -> Self {
        Self::with_installation("0000000000000000")
    }

    /// An empty store with an installation id of its own.
    pub fn with_installation(installation: impl Into<String>) -> Self {
        let durable = Durable {
            installation: installation.into(),
            heads: Heads::NEW,
            log: Vec::new(),
            jobs: BTreeMap::new(),
            ledger: Vec::new(),
            notes: BTreeMap::new(),
            snapshots: Vec::new(),
            parts: BTreeMap::new(),
            fault: None,
            crashed: false,
        };
        Self { shared: Arc::new(Mutex::new(durable)) }
    }

    /// Refuse the next `times` commits with [`StoreError::Refused`]: nothing of them is written.
    pub fn fail_next_commits(&self, times: u64) {
        self.durable().fault = (times > 0).then_some(Fault::Refuse { times });
    }

    /// After `after` more commits, crash before the next one: it is lost, and gives [`StoreError::Crashed`].
    pub fn crash_before_commit(&self, after: u64) {
        self.durable().fault = Some(Fault::CrashBefore { after });
    }

    /// After `after` more commits, crash behind the next one: it is durable, and still gives [`StoreError::Crashed`].
    pub fn crash_after_commit(&self, after: u64) {
        self.durable().fault = Some(Fault::CrashAfter { after });
    }

    /// Take back a fault that has not struck.
    pub fn clear_faults(&self) {
        self.durable().fault = None;
    }

    fn durable(&self) -> MutexGuard<'_, Durable> {
        // Every change is checked before it begins and cannot panic half-way, so a poisoned state is still whole.
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn writable(&self, epoch: u64) -> Result<MutexGuard<'_, Durable>> {
        let durable = self.durable();
        durable.heads.fence(epoch)?;
        if durable.crashed { Err(StoreError::Crashed) } else { Ok(durable) }
    }
}

impl Durable {
    /// The fault that strikes this commit, if any, counted down.
    fn strike(&mut self) -> Option<Fault> {
        let fault = self.fault.take()?;
        self.fault = match fault {
            Fault::Refuse { times } => (times > 1).then(|| Fault::Refuse { times: times - 1 }),
            Fault::CrashBefore { after: 0 } | Fault::CrashAfter { after: 0 } => None,
            Fault::CrashBefore { after } => Some(Fault::CrashBefore { after: after - 1 }),
            Fault::CrashAfter { after } => Some(Fault::CrashAfter { after: after - 1 }),
        };
        match fault {
            Fault::CrashBefore { after } | Fault::CrashAfter { after } if after > 0 => None,
            striking => Some(striking),
        }
    }

    fn write(&mut self, heads: Heads, commit: &Commit) {
        self.heads = heads;
        self.log.extend_from_slice(&commit.rows);
        self.ledger.extend_from_slice(&commit.ledger);
        for job in &commit.jobs {
            self.jobs.insert(job.workload, job.clone());
        }
        self.notes.extend(notes_as_kept(commit).into_iter().map(|notes| (notes.workload, notes)));
        for workload in &commit.ended {
            if let Some(notes) = self.notes.get_mut(workload) {
                notes.secret = None;
            }
        }
    }

    /// The parts of the snapshot of a row.
    fn parts_at(&self, seq: u64) -> Vec<Part> {
        let mut newest = BTreeMap::new();
        newest.extend(self.parts.iter().filter(|((_, at), _)| *at <= seq).map(|((name, _), text)| (name, text)));
        let part = |(name, text): (&String, &Option<Arc<str>>)| Part { name: name.clone(), text: text.clone() };
        newest.into_iter().filter(|(_, text)| text.is_some()).map(part).collect()
    }

    fn after(&self, seq: u64) -> &[Row] {
        &self.log[self.log.partition_point(|row| row.seq <= seq)..]
    }
}

#[async_trait]
impl Store for MemoryStore {
    async fn lead(&self) -> Result<u64> {
        let mut durable = self.durable();
        durable.crashed = false;
        durable.heads.epoch += 1;
        Ok(durable.heads.epoch)
    }

    async fn load_before(&self, seq: u64) -> Result<Loaded> {
        let durable = self.durable();
        let snapshot = durable.snapshots.iter().rev().find(|snapshot| snapshot.seq < seq).cloned();
        let tail = durable.after(snapshot.as_ref().map_or(0, |snapshot| snapshot.seq)).to_vec();
        let parts = snapshot.as_ref().map_or_else(Vec::new, |snapshot| durable.parts_at(snapshot.seq));
        durable.heads.loaded(durable.installation.clone(), snapshot, parts, tail, || "memory".into())
    }

    async fn load_after(&self, seq: u64) -> Result<Loaded> {
        let durable = self.durable();
        let tail = durable.after(seq).to_vec();
        durable.heads.missed(durable.installation.clone(), seq, tail, || "memory".into())
    }

    async fn commit(&self, epoch: u64, commit: &Commit) -> Result<()> {
        let mut durable = self.writable(epoch)?;
        let heads = durable.heads.after(epoch, commit)?;
        match durable.strike() {
            None => durable.write(heads, commit),
            Some(Fault::Refuse { .. }) => return Err(StoreError::Refused),
            Some(Fault::CrashBefore { .. }) => {
                durable.crashed = true;
                return Err(StoreError::Crashed);
            }
            Some(Fault::CrashAfter { .. }) => {
                durable.write(heads, commit);
                durable.crashed = true;
                return Err(StoreError::Crashed);
            }
        }
        Ok(())
    }

    async fn snapshot_parts(&self, epoch: u64, seq: u64, parts: &[Part]) -> Result<()> {
        let mut durable = self.writable(epoch)?;
        durable.heads.covers(seq)?;
        durable.parts.extend(parts.iter().map(|part| ((part.name.clone(), seq), part.text.clone())));
        Ok(())
    }

    async fn snapshot(&self, epoch: u64, snapshot: &Snapshot) -> Result<()> {
        let mut durable = self.writable(epoch)?;
        durable.heads.covers(snapshot.seq)?;
        let before = durable.snapshots.iter().map(|kept| kept.seq).filter(|seq| *seq < snapshot.seq).max().unwrap_or(0);
        durable.parts.retain(|(_, at), _| *at <= before || *at >= snapshot.seq);
        durable.snapshots.retain(|kept| kept.seq != snapshot.seq);
        durable.snapshots.push(snapshot.clone());
        durable.snapshots.sort_by_key(|kept| kept.seq);
        let surplus = durable.snapshots.len().saturating_sub(2);
        durable.snapshots.drain(..surplus);
        Ok(())
    }

    async fn forget_parts(&self, epoch: u64) -> Result<u64> {
        let mut durable = self.writable(epoch)?;
        let Some(oldest) = durable.snapshots.first().map(|snapshot| snapshot.seq) else { return Ok(0) };
        let before = durable.parts.len();
        let mut newest: BTreeMap<String, u64> = BTreeMap::new();
        newest.extend(durable.parts.keys().filter(|(_, at)| *at <= oldest).cloned());
        durable.parts.retain(|(name, at), text| match newest.get(name) {
            Some(newest) => at > newest || (at == newest && text.is_some()),
            None => true,
        });
        Ok((before - durable.parts.len()) as u64)
    }

    async fn cut(&self, epoch: u64, before_seq: u64, older_than_ms: i64) -> Result<u64> {
        let mut durable = self.writable(epoch)?;
        let Durable { log, jobs, snapshots, .. } = &mut *durable;
        let Some(covered) = snapshots.first().map(|snapshot| snapshot.seq) else { return Ok(0) };
        let before = log.len();
        log.retain(|row| {
            let behind = row.seq < before_seq && row.seq <= covered && row.at_ms < older_than_ms;
            let live = row.workload.and_then(|workload| jobs.get(&workload)).is_some_and(|job| job.live);
            !behind || live
        });
        Ok((before - log.len()) as u64)
    }

    async fn jobs(&self, query: &JobQuery) -> Result<Vec<JobRow>> {
        let durable = self.durable();
        let older = durable.jobs.range(..query.before.unwrap_or(u64::MAX)).rev().map(|(_, job)| job);
        let matching = older.filter(|job| {
            (job.live || !query.live_only)
                && query.owner.as_ref().is_none_or(|owner| *owner == job.owner)
                && query.name.as_ref().is_none_or(|name| *name == job.name)
        });
        Ok(matching.take(query.limit as usize).cloned().collect())
    }

    async fn notes(&self, workload: u64) -> Result<Option<Notes>> {
        Ok(self.durable().notes.get(&workload).cloned())
    }

    async fn job(&self, workload: u64) -> Result<Option<JobRow>> {
        Ok(self.durable().jobs.get(&workload).cloned())
    }

    async fn rows_after(&self, after_seq: u64, limit: u32) -> Result<Vec<Row>> {
        Ok(self.durable().after(after_seq).iter().take(limit as usize).cloned().collect())
    }

    async fn rows_of(&self, workload: u64, after_seq: u64, limit: u32) -> Result<Vec<Row>> {
        let durable = self.durable();
        let own = durable.after(after_seq).iter().filter(|row| row.workload == Some(workload));
        Ok(own.take(limit as usize).cloned().collect())
    }

    async fn ledger(&self, query: &LedgerQuery) -> Result<Vec<LedgerRow>> {
        let durable = self.durable();
        let later = &durable.ledger[durable.ledger.partition_point(|row| row.seq <= query.after)..];
        let matching = later.iter().take_while(|row| row.seq <= query.upto).filter(|row| {
            let begins = row.from_ms.min(row.to_ms);
            query.from_ms.is_none_or(|from| begins >= from)
                && query.before_ms.is_none_or(|before| begins < before)
                && query.workload.is_none_or(|workload| row.workload == Some(workload))
        });
        Ok(matching.take(query.limit as usize).cloned().collect())
    }

    async fn ledger_total(&self) -> Result<LedgerTotal> {
        let durable = self.durable();
        let nanousd = durable.ledger.iter().map(|row| i128::from(row.nanousd)).sum();
        Ok(LedgerTotal { rows: durable.ledger.len() as u64, nanousd })
    }

    async fn close(&self) {}
}
