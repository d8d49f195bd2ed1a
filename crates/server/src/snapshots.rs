//! Snapshots in parts, made beside the loop: a copy of the durable state is taken part by part, and only parts whose text is
//! not what the store has are written. Which those are is found by comparing, not by noting changes, so no change can be
//! forgotten. A snapshot counts once its last word is stored; whatever breaks off before changes nothing.

use crate::durable::Durable;
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use tokio::sync::mpsc;
use windfall_core::brain::{HeldJobs, put_together};
use windfall_core::{Brain, codec};
use windfall_store::{Loaded, Part, Snapshot, Store, StoreError};

/// Parts in one transaction, between which commits pass.
const AT_ONCE: usize = 256;

/// The parts that the store has.
#[derive(Clone, Debug, Default)]
pub(crate) struct StoredParts {
    /// By name, each as a hash of its text; none where that is not known.
    hashes: HashMap<String, Option<u128>>,
    /// The jobs among them, where they are known: those that are still the same need not be written down to be compared.
    jobs: HeldJobs,
}

impl StoredParts {
    /// The parts of the snapshot that a start began with. Those of another version are all written anew.
    pub fn of(loaded: &Loaded) -> StoredParts {
        let current = loaded.snapshot.as_ref().is_some_and(|snapshot| snapshot.version == codec::VERSION);
        let stored = |part: &Part| (part.name.clone(), part.text.as_deref().filter(|_| current).map(hash));
        StoredParts { hashes: loaded.parts.iter().map(stored).collect(), jobs: HeldJobs::default() }
    }

    pub fn len(&self) -> usize {
        self.hashes.len()
    }

    /// The store has these parts or those: all of them are written anew.
    fn or(self, other: StoredParts) -> StoredParts {
        let names = self.hashes.into_keys().chain(other.hashes.into_keys());
        StoredParts { hashes: names.map(|name| (name, None)).collect(), jobs: HeldJobs::default() }
    }
}

/// Two texts with one hash would be one change that is lost: 128 bits make that as good as impossible.
fn hash(text: &str) -> u128 {
    let half = |salt: u8| {
        let mut hasher = DefaultHasher::new();
        (salt, text).hash(&mut hasher);
        u128::from(hasher.finish())
    };
    half(0) << 64 | half(1)
}

/// The state of a snapshot, in one piece or in parts.
pub(crate) fn state_of(loaded: &Loaded) -> Result<Option<Brain>, codec::CodecError> {
    let Some(snapshot) = &loaded.snapshot else { return Ok(None) };
    if !snapshot.payload.is_empty() {
        return codec::decode(snapshot.version, &snapshot.payload).map(Some);
    }
    let parts = loaded.parts.iter().filter_map(|part| Some((part.name.as_str(), part.text.as_deref()?)));
    // Without its rest it is no state, and reading nothing says so.
    codec::decode(snapshot.version, &put_together(parts).unwrap_or_default()).map(Some)
}

/// A snapshot to make.
#[derive(Debug)]
pub struct SnapshotTask {
    durable: Arc<Durable>,
    stored: StoredParts,
}

/// What came of it.
pub struct SnapshotEnd {
    /// What the store has now.
    stored: StoredParts,
    /// The row that it covers.
    result: Result<u64, StoreError>,
}

impl SnapshotTask {
    pub(crate) fn new(durable: &Arc<Durable>, stored: StoredParts) -> SnapshotTask {
        SnapshotTask { durable: Arc::clone(durable), stored }
    }

    /// Makes it. Runs by itself for as long as that takes; at most a few parts are in memory as text.
    pub async fn run(self, store: &dyn Store, epoch: u64) -> SnapshotEnd {
        let SnapshotTask { durable, stored } = self;
        let (sender, mut chunks) = mpsc::channel(2);
        let known = stored.clone();
        let compared = tokio::task::spawn_blocking(move || {
            let brain = durable.read(Brain::clone);
            compare(&brain, known, |chunk| sender.blocking_send((brain.last_seq(), chunk)).is_ok())
        });
        let mut failed = None;
        while let Some((seq, chunk)) = chunks.recv().await {
            if let Err(error) = store.snapshot_parts(epoch, seq, &chunk).await {
                failed = Some(error);
                break;
            }
        }
        drop(chunks);
        // A comparison that panicked has found nothing that could be trusted.
        let Ok((header, now_stored)) = compared.await else {
            return SnapshotEnd { stored, result: Err(StoreError::Crashed) };
        };
        finish(store, epoch, stored, header, now_stored, failed).await
    }

    /// The same at once, for a store that never waits.
    pub async fn run_here(self, store: &dyn Store, epoch: u64) -> SnapshotEnd {
        let SnapshotTask { durable, stored } = self;
        let brain = durable.read(Brain::clone);
        let mut chunks = Vec::new();
        let (header, now_stored) = compare(&brain, stored.clone(), |chunk| {
            chunks.push(chunk);
            true
        });
        let mut failed = None;
        for chunk in chunks {
            failed = failed.or(store.snapshot_parts(epoch, header.seq, &chunk).await.err());
        }
        finish(store, epoch, stored, header, now_stored, failed).await
    }
}

async fn finish(
    store: &dyn Store,
    epoch: u64,
    before: StoredParts,
    header: Snapshot,
    now_stored: StoredParts,
    failed: Option<StoreError>,
) -> SnapshotEnd {
    if let Some(error) = failed {
        return SnapshotEnd { stored: before, result: Err(error) };
    }
    match store.snapshot(epoch, &header).await {
        Ok(()) => SnapshotEnd { stored: now_stored, result: Ok(header.seq) },
        // Nobody knows whether its last word was taken.
        Err(error @ (StoreError::Unsure { .. } | StoreError::Crashed)) => {
            SnapshotEnd { stored: before.or(now_stored), result: Err(error) }
        }
        Err(error) => SnapshotEnd { stored: before, result: Err(error) },
    }
}

/// Hands over the parts of a state that are not stored as they are now, in chunks, until nobody wants them any more.
fn compare(
    brain: &Brain,
    mut stored: StoredParts,
    mut hand_over: impl FnMut(Vec<Part>) -> bool,
) -> (Snapshot, StoredParts) {
    let (mut hashes, mut chunk, mut wanted) = (HashMap::with_capacity(stored.hashes.len()), Vec::new(), true);
    let mut add = |part: Part, chunk: &mut Vec<Part>| {
        chunk.push(part);
        if chunk.len() >= AT_ONCE {
            wanted = wanted && hand_over(std::mem::take(chunk));
        }
    };
    brain.each_part_since(&stored.jobs, |name, text| {
        let known = stored.hashes.remove(&name);
        let hash = match text {
            None => known.flatten(),
            Some(text) => {
                let hash = Some(hash(&text));
                if known != Some(hash) {
                    add(Part { name: name.clone(), text: Some(text.into()) }, &mut chunk);
                }
                hash
            }
        };
        hashes.insert(name, hash);
    });
    // What the store has and the state has not is gone.
    for (name, _) in stored.hashes {
        add(Part { name, text: None }, &mut chunk);
    }
    if wanted && !chunk.is_empty() {
        hand_over(chunk);
    }
    let header = Snapshot { seq: brain.last_seq(), at_ms: brain.now().0, version: codec::VERSION, payload: "".into() };
    (header, StoredParts { hashes, jobs: brain.held_jobs() })
}

impl SnapshotEnd {
    pub(crate) fn into_parts(self) -> (StoredParts, Result<u64, StoreError>) {
        (self.stored, self.result)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use windfall_core::brain::Config;
    use windfall_core::{Body, Event, Installation, JobSpec, NanoUsd, Record, Time, Workload, WorkloadId};
    use windfall_store::MemoryStore;

    fn submitted(number: u64) -> Event {
        let spec = JobSpec::named(format!("job-{number}"), vec!["train".to_owned()]);
        Event::Submitted { workload: Workload::from(spec), key: number.to_string(), id: Some(WorkloadId(number)) }
    }

    fn apply(brain: &mut Brain, event: Event) {
        let seq = brain.last_seq() + 1;
        brain.apply(&Record { seq, batch: seq, at: Time(1_000), body: Body::Event(event) });
    }

    fn changed(brain: &Brain, stored: &StoredParts) -> (Vec<(String, bool)>, StoredParts) {
        let mut parts = Vec::new();
        let (_, now_stored) = compare(brain, stored.clone(), |chunk| {
            parts.extend(chunk.into_iter().map(|part: Part| (part.name, part.text.is_some())));
            true
        });
        parts.sort();
        (parts, now_stored)
    }

    #[test]
    fn only_parts_that_have_changed_are_written() {
        let mut brain = Brain::new(Installation(1), Config::default());
        (1..=3).for_each(|number| apply(&mut brain, submitted(number)));
        let (all, stored) = changed(&brain, &StoredParts::default());
        assert_eq!(all.len(), 7, "three jobs, three keys and the rest");
        let event = Event::BudgetSet { workload: WorkloadId(2), budget: Some(NanoUsd(9)), by: "ada".to_owned() };
        apply(&mut brain, event);
        let (parts, stored) = changed(&brain, &stored);
        assert_eq!(parts, [("jobs/2".to_owned(), true), ("rest".to_owned(), true)]);
        assert_eq!(changed(&brain, &stored).0, []);
        let without = Brain::new(Installation(1), Config::default());
        let (gone, _) = changed(&without, &stored);
        assert_eq!(gone.iter().filter(|(_, there)| !there).count(), 6, "{gone:?}");
    }

    #[tokio::test]
    async fn a_start_from_parts_of_several_snapshots_is_the_state_that_was() {
        let store = MemoryStore::new();
        let epoch = store.lead().await.expect("led");
        let mut brain = Brain::new(Installation(0), Config::default());
        let mut stored = StoredParts::default();
        for number in 1..=600 {
            apply(&mut brain, submitted(number));
            let event = Event::CancelRequested { workload: WorkloadId(number.div_ceil(3)), by: "ada".to_owned() };
            apply(&mut brain, event);
            if number % 200 == 0 {
                let rows = store.load().await.expect("loaded").next_seq..=brain.last_seq();
                let row = |seq| windfall_store::Row {
                    seq,
                    batch: seq,
                    at_ms: 0,
                    workload: None,
                    kind: "test".into(),
                    version: codec::VERSION,
                    payload: "{}".into(),
                };
                let commit = windfall_store::Commit { rows: rows.map(row).collect(), ..Default::default() };
                store.commit(epoch, &commit).await.expect("written");
                let durable = Arc::new(Durable::new(brain.clone(), 0));
                let (now_stored, covered) = SnapshotTask::new(&durable, stored).run(&store, epoch).await.into_parts();
                assert_eq!(covered.expect("stored"), brain.last_seq());
                stored = now_stored;
                store.forget_parts(epoch).await.expect("forgotten");
                let loaded = store.load().await.expect("loaded");
                let started = state_of(&loaded).expect("read").expect("a state");
                assert_eq!(codec::encode(&started), codec::encode(&brain));
                assert_eq!(StoredParts::of(&loaded).hashes, stored.hashes, "a start knows what is stored");
            }
        }
        let fenced =
            SnapshotTask::new(&Arc::new(Durable::new(brain.clone(), 0)), stored.clone()).run(&store, epoch + 1).await;
        let (kept, result) = fenced.into_parts();
        assert!(result.is_err() && kept.hashes == stored.hashes);
        // After a lost answer everything is written anew, and what is gone is said to be gone.
        let unsure =
            stored.or(StoredParts { hashes: [("jobs/9999".to_owned(), None)].into(), ..StoredParts::default() });
        let (parts, _) = changed(&brain, &unsure);
        assert_eq!(parts.len(), unsure.len());
        assert!(parts.contains(&("jobs/9999".to_owned(), false)));
    }
}
