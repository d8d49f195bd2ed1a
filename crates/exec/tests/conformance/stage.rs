//! What a fact needs of an engine's world.

use std::collections::BTreeMap;
use std::future::Future;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use windfall_core::worker::{StartOrder, WorkerView};
use windfall_core::{DecisionId, Installation, LeaseId, OfferId, Span, StintId, Want, WorkloadId};
use windfall_exec::{AgentLink, Engine, EngineError, LeaseState};

/// Longer than anything here takes, also on a busy machine, and shorter than programs sleep that must be ended.
pub const LIMIT: Duration = Duration::from_secs(300);

/// A lease and its workers as they are seen at one moment.
#[derive(Clone, Debug)]
pub struct Observed {
    pub state: LeaseState,
    pub workers: Vec<WorkerView>,
}

pub trait Stage: Sized {
    /// An engine on new ground.
    fn open() -> Self;
    /// An engine on new ground, where a few leases can be had of one offer, and there is another.
    fn scarce() -> Self;
    /// The same ground, a new engine: the old one died without a word.
    fn reopen(&mut self);
    /// The engine.
    fn engine(&self) -> &dyn Engine;
    /// What speaks to the agents on its leases.
    fn link(&self) -> &dyn AgentLink;
    /// Runs something on the engine's runtime.
    fn wait_for<T>(&self, work: impl Future<Output = T>) -> T;
    /// One lease that can be had.
    fn want(&self) -> Want;
    /// The offer with the most leases, and how many of it can be had.
    fn other(&self) -> (OfferId, u32);
    /// An empty folder for programs.
    fn folder(&self) -> &Path;
    /// Where what a job could not save is kept, whose output is in this folder.
    fn kept(&self, workload: u64, folder: &Path) -> PathBuf;
    /// Processes that stand on a lease.
    fn running(&self, lease: LeaseId) -> Vec<i32>;
    /// The machine of a lease dies.
    fn break_machine(&self, lease: LeaseId);
    /// Everybody on the lease who knows of the others is killed at once: guard, agent and worker.
    fn kill_keepers(&self, lease: LeaseId);
    /// Whether the lease has a control group.
    fn is_grouped(&self, lease: LeaseId) -> bool;
    /// What a program sees of the accelerators of a lease that nobody else is on.
    fn all_devices(&self) -> &str;
    /// The market takes a lease away, with or without a notice.
    fn take(&self, lease: LeaseId, notice: Option<Span>);

    /// A lease that is up.
    fn up(&self, seq: u64) -> LeaseId {
        let state = self.acquire(seq).unwrap();
        assert!(matches!(state, LeaseState::Up { .. }), "{state:?}");
        lease(seq)
    }

    /// Asks for a group of one lease.
    fn acquire(&self, seq: u64) -> Result<LeaseState, EngineError> {
        let seen = self.wait_for(self.engine().acquire(lease(seq).group, &self.want()))?;
        assert_eq!(seen.leases.len(), 1, "{seen:?}");
        self.listen(lease(seq), &seen.leases[0].state);
        Ok(seen.leases[0].state.clone())
    }

    /// Gives a lease back.
    fn release(&self, lease: LeaseId) -> Result<LeaseState, EngineError> {
        let seen = self.wait_for(self.engine().release(lease.group, &[lease.slot]))?;
        assert_eq!(seen.iter().map(|seen| seen.lease).collect::<Vec<_>>(), [lease]);
        Ok(seen[0].state.clone())
    }

    /// What the engine shows of a lease, and the link of its workers.
    fn see(&self, lease: LeaseId) -> Option<Observed> {
        let groups = self.wait_for(self.engine().observe(&[lease.group])).unwrap();
        let state = groups.into_iter().flat_map(|seen| seen.leases).find(|seen| seen.lease == lease)?.state;
        self.listen(lease, &state);
        let workers = self.link().workers(&[lease]).into_iter().map(|seen| seen.worker).collect();
        Some(Observed { state, workers })
    }

    /// Listens to the agent of a lease, as a server does: from usable until gone, its last words included.
    fn listen(&self, lease: LeaseId, state: &LeaseState) {
        match state {
            LeaseState::Up { ready: Some(address), .. } => self.wait_for(async { self.link().follow(lease, address) }),
            LeaseState::Gone { .. } => {
                let owned = self.wait_for(self.engine().list_owned()).unwrap();
                let address = owned.into_iter().find(|owned| owned.lease == lease).and_then(|owned| owned.address);
                address.iter().for_each(|address| self.link().last_words(lease, address));
            }
            _ => {}
        }
    }

    /// Waits until the engine shows something.
    #[track_caller]
    fn until(&self, what: &str, lease: LeaseId, seen: impl Fn(&Observed) -> bool) -> Observed {
        let until = Instant::now() + LIMIT;
        loop {
            let observed = self.see(lease);
            match observed {
                Some(observed) if seen(&observed) => return observed,
                other => assert!(Instant::now() < until, "never {what}: {other:?}"),
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Waits until a worker on the lease shows something.
    #[track_caller]
    fn until_worker(&self, what: &str, lease: LeaseId, seen: impl Fn(&WorkerView) -> bool) -> WorkerView {
        let observed = self.until(what, lease, |observed| observed.workers.iter().any(&seen));
        observed.workers.into_iter().find(seen).unwrap()
    }

    /// Starts a shell line as a stint.
    fn start(&self, lease: LeaseId, epoch: u64, line: &str) {
        self.wait_for(self.link().start(lease, &self.order(epoch, line))).unwrap();
    }

    fn order(&self, epoch: u64, line: &str) -> StartOrder {
        let folder = self.folder().display().to_string();
        StartOrder {
            owner: "root".to_owned(),
            master: ("127.0.0.1".to_owned(), 20_000),
            command: ["/bin/sh", "-c", line].map(str::to_owned).to_vec(),
            folder: folder.clone(),
            env: BTreeMap::from([("PATH".to_owned(), "/usr/bin:/bin".to_owned())]),
            output: format!("{folder}/output-{epoch}"),
            checkpoint_store: format!("{folder}/store"),
            checkpoint_key: "job".to_owned(),
            keep: 2,
            settle_ms: 250,
            last_upload_ms: 60_000,
            ..StartOrder::of(stint(epoch), 0, 1)
        }
    }
}

/// A lease of this test: two installations never touch each other's, and neither may two tests.
pub fn lease(seq: u64) -> LeaseId {
    static TESTS: AtomicU64 = AtomicU64::new(1);
    thread_local!(static TEST: u64 = TESTS.fetch_add(1, Ordering::Relaxed));
    let installation = Installation((u64::from(std::process::id()) << 32) + TEST.with(|test| *test));
    LeaseId { group: DecisionId { installation, seq }, slot: 0 }
}

pub fn stint(epoch: u64) -> StintId {
    StintId::of_job(WorkloadId(1), epoch)
}
