//! What a fact needs of an engine's world.

use std::collections::BTreeMap;
use std::future::Future;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use windfall_core::record::Resume;
use windfall_core::worker::{StartOrder, WorkerView};
use windfall_core::{DecisionId, Installation, LeaseId, Span, StintId, WorkloadId};
use windfall_exec::{Engine, LeaseState, Observed, Want};

pub trait Stage: Sized {
    /// An engine on new ground.
    fn open() -> Self;
    /// The same ground, a new engine: the old one died without a word.
    fn reopen(&mut self);
    /// The engine.
    fn engine(&self) -> &dyn Engine;
    /// Runs something on the engine's runtime.
    fn wait_for<T>(&self, work: impl Future<Output = T>) -> T;
    /// Something that can be had.
    fn want(&self) -> Want;
    /// An empty folder for programs.
    fn folder(&self) -> &Path;
    /// Processes that stand on a lease.
    fn running(&self, lease: LeaseId) -> Vec<i32>;
    /// The machine of a lease dies.
    fn break_machine(&self, lease: LeaseId);
    /// Everybody on the lease who knows of the others is killed at once: guard, agent and worker.
    fn kill_keepers(&self, lease: LeaseId);
    /// Whether the lease has a control group.
    fn is_grouped(&self, lease: LeaseId) -> bool;
    /// The market takes a lease away, with or without a notice.
    fn take(&self, lease: LeaseId, notice: Option<Span>);

    /// A lease that is up.
    fn up(&self, seq: u64) -> LeaseId {
        let state = self.wait_for(self.engine().acquire(lease(seq), &self.want())).unwrap();
        assert!(matches!(state, LeaseState::Up { .. }), "{state:?}");
        lease(seq)
    }

    /// What the engine shows of a lease.
    fn see(&self, lease: LeaseId) -> Option<Observed> {
        self.wait_for(self.engine().observe(&[lease])).unwrap().into_iter().next()
    }

    /// Waits until the engine shows something.
    #[track_caller]
    fn until(&self, what: &str, lease: LeaseId, seen: impl Fn(&Observed) -> bool) -> Observed {
        let until = Instant::now() + Duration::from_secs(60);
        loop {
            let observed = self.see(lease);
            match observed {
                Some(observed) if seen(&observed) => return observed,
                other => assert!(Instant::now() < until, "never {what}: {other:?}"),
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Waits until the lease's worker shows something.
    #[track_caller]
    fn until_worker(&self, what: &str, lease: LeaseId, seen: impl Fn(&WorkerView) -> bool) -> WorkerView {
        self.until(what, lease, |observed| observed.worker.as_ref().is_some_and(&seen)).worker.unwrap()
    }

    /// Starts a shell line as a stint.
    fn start(&self, lease: LeaseId, epoch: u64, line: &str) {
        self.wait_for(self.engine().start(lease, &self.order(epoch, line))).unwrap();
    }

    fn order(&self, epoch: u64, line: &str) -> StartOrder {
        let folder = self.folder().display().to_string();
        StartOrder {
            stint: stint(epoch),
            rank: 0,
            world_size: 1,
            master: ("127.0.0.1".to_owned(), 20_000),
            command: ["/bin/sh", "-c", line].map(str::to_owned).to_vec(),
            folder: folder.clone(),
            fresh_folder: false,
            env: BTreeMap::from([("PATH".to_owned(), "/usr/bin:/bin".to_owned())]),
            output: format!("{folder}/output-{epoch}"),
            progress: None,
            checkpoint_dir: None,
            checkpoint_store: format!("{folder}/store"),
            checkpoint_key: "job".to_owned(),
            keep: 2,
            settle_ms: 100,
            complete: None,
            last_upload_ms: 60_000,
            resume: Resume::Newest,
            foreign: Vec::new(),
        }
    }
}

/// A lease of this test: two installations never touch each other's, and neither may two tests.
pub fn lease(seq: u64) -> LeaseId {
    static TESTS: AtomicU64 = AtomicU64::new(1);
    thread_local!(static TEST: u64 = TESTS.fetch_add(1, Ordering::Relaxed));
    let installation = Installation((u64::from(std::process::id()) << 32) + TEST.with(|test| *test));
    LeaseId(DecisionId { installation, seq })
}

pub fn stint(epoch: u64) -> StintId {
    StintId { workload: WorkloadId(1), epoch }
}
