//! The store that a world's servers share: the memory store, which drops what was not committed, behind a
//! thin layer that can be made to lie.

use crate::planted::Bug;
use async_trait::async_trait;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use windfall_core::ledger::{Beneficiary, Parts};
use windfall_core::{NanoUsd, Span, codec};
use windfall_store::{
    Commit, JobQuery, JobRow, LedgerQuery, LedgerRow, LedgerTotal, Loaded, MemoryStore, Notes, Part, Result, Row,
    Snapshot, Store, StoreError,
};

/// How the next commit is lost from sight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Unsure {
    /// It is not.
    No,
    Written,
    Lost,
}

/// A memory store that knows its leader's epoch.
pub(crate) struct FaultyStore {
    pub memory: MemoryStore,
    bug: Option<Bug>,
    epoch: AtomicU64,
    commits: AtomicU64,
    unsure: AtomicU8,
    corrected: AtomicU64,
}

impl FaultyStore {
    pub fn new(bug: Option<Bug>) -> Arc<FaultyStore> {
        let memory = MemoryStore::with_installation("00000000000000ab");
        Arc::new(FaultyStore {
            memory,
            bug,
            epoch: AtomicU64::new(0),
            commits: AtomicU64::new(0),
            unsure: AtomicU8::new(0),
            corrected: AtomicU64::new(0),
        })
    }

    /// The epoch of whoever leads now.
    pub fn epoch(&self) -> u64 {
        self.epoch.load(Ordering::Relaxed)
    }

    /// How often the last view of a job that is over was written again.
    pub fn corrected(&self) -> u64 {
        self.corrected.load(Ordering::Relaxed)
    }

    /// Arms the next commit.
    pub fn lose_sight(&self, how: Unsure) {
        self.unsure.store(how as u8, Ordering::Relaxed);
    }

    fn lie(&self, commit: &Commit) -> Option<Commit> {
        let count = self.commits.fetch_add(1, Ordering::Relaxed);
        let mut changed = commit.clone();
        match self.bug? {
            Bug::LedgerRowLost => {
                for row in changed.ledger.iter_mut().filter(|row| row.seq % 10 == 0) {
                    row.nanousd = 0;
                }
            }
            Bug::IdleHalved => changed.ledger.iter_mut().for_each(halve_if_idle),
            Bug::LogAltered => {
                for row in changed.rows.iter_mut().filter(|row| row.seq % 50 == 0) {
                    row.at_ms += 1;
                }
            }
            Bug::AckWithoutWriting if count % 40 == 30 => changed = Commit::default(),
            _ => return None,
        }
        Some(changed)
    }
}

/// A row that agrees with itself in everything, and is of half the time.
fn halve_if_idle(stored: &mut LedgerRow) {
    let Ok(mut row) = codec::decode::<windfall_core::LedgerRow>(stored.version, &stored.payload) else { return };
    if row.node.is_none() || row.beneficiary != Beneficiary::Idle {
        return;
    }
    row.to = row.from + Span((row.to - row.from).0 / 2);
    let time = i128::from((row.to - row.from).0) * i128::from(row.share.part);
    let amount = i128::from(row.rate.0) * time / (3_600_000 * i128::from(row.share.of));
    row.amount = NanoUsd(amount as i64);
    row.parts = row.goods.as_ref().map(|goods| Parts::of(row.amount, goods));
    (stored.to_ms, stored.nanousd) = (row.to.0, row.amount.0);
    stored.payload = codec::encode(&row).into();
}

#[async_trait]
impl Store for FaultyStore {
    async fn lead(&self) -> Result<u64> {
        let epoch = self.memory.lead().await?;
        self.epoch.store(epoch, Ordering::Relaxed);
        Ok(epoch)
    }
    async fn load_before(&self, seq: u64) -> Result<Loaded> {
        self.memory.load_before(seq).await
    }
    async fn load_after(&self, seq: u64) -> Result<Loaded> {
        self.memory.load_after(seq).await
    }
    async fn commit(&self, epoch: u64, commit: &Commit) -> Result<()> {
        let epoch = if self.bug == Some(Bug::FencedCommit) { self.epoch() } else { epoch };
        let unsure = self.unsure.swap(Unsure::No as u8, Ordering::Relaxed);
        if unsure == Unsure::Lost as u8 {
            return Err(StoreError::Unsure { source: None });
        }
        let lie = self.lie(commit);
        let mut corrected = 0;
        for job in commit.jobs.iter().filter(|job| !job.live) {
            corrected += u64::from(self.memory.job(job.workload).await?.is_some_and(|known| !known.live));
        }
        self.memory.commit(epoch, lie.as_ref().unwrap_or(commit)).await?;
        self.corrected.fetch_add(corrected, Ordering::Relaxed);
        if unsure == Unsure::Written as u8 { Err(StoreError::Unsure { source: None }) } else { Ok(()) }
    }
    async fn snapshot_parts(&self, epoch: u64, seq: u64, parts: &[Part]) -> Result<()> {
        self.memory.snapshot_parts(epoch, seq, parts).await
    }
    async fn forget_parts(&self, epoch: u64) -> Result<u64> {
        self.memory.forget_parts(epoch).await
    }
    async fn snapshot(&self, epoch: u64, snapshot: &Snapshot) -> Result<()> {
        self.memory.snapshot(epoch, snapshot).await
    }
    async fn cut(&self, epoch: u64, before_seq: u64, older_than_ms: i64) -> Result<u64> {
        self.memory.cut(epoch, before_seq, older_than_ms).await
    }
    async fn jobs(&self, query: &JobQuery) -> Result<Vec<JobRow>> {
        self.memory.jobs(query).await
    }
    async fn notes(&self, workload: u64) -> Result<Option<Notes>> {
        self.memory.notes(workload).await
    }
    async fn job(&self, workload: u64) -> Result<Option<JobRow>> {
        self.memory.job(workload).await
    }
    async fn rows_after(&self, after_seq: u64, limit: u32) -> Result<Vec<Row>> {
        self.memory.rows_after(after_seq, limit).await
    }
    async fn rows_of(&self, workload: u64, after_seq: u64, limit: u32) -> Result<Vec<Row>> {
        self.memory.rows_of(workload, after_seq, limit).await
    }
    async fn ledger(&self, query: &LedgerQuery) -> Result<Vec<LedgerRow>> {
        self.memory.ledger(query).await
    }
    async fn ledger_total(&self) -> Result<LedgerTotal> {
        self.memory.ledger_total().await
    }
    async fn close(&self) {}
}
