//! A server of the explorer: the server's own loop and dispatch, with the calls that are on their way.

use crate::driver::BEGIN;
use crate::engine::Shared;
use crate::store::FaultyStore;
use async_trait::async_trait;
use futures::FutureExt;
use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;
use windfall_core::brain::{Config, Open};
use windfall_core::worker::{StartOrder, WorkerView};
use windfall_core::{Brain, DecisionId, Event, LeaseId, Span, StintId, Time, Trouble, TroubleKind, WorkloadId};
use windfall_exec::AgentLink;
use windfall_server::cycle::{Cycle, Habits, Moment, Ticket};
use windfall_server::dispatch::{self, JobFolders, Look, StoreAccess, StoreProbe, Task};
use windfall_store::Store;

/// The memory store and the invented engine are always ready.
pub(crate) fn now<T>(future: impl Future<Output = T>) -> T {
    future.now_or_never().expect("nothing here ever waits")
}

/// A call on its way to the engine.
pub(crate) struct Flight {
    pub at: Time,
    pub open: Open,
    pub task: Task,
}

/// A server that lives.
pub(crate) struct Server {
    pub cycle: Cycle,
    pub flights: Vec<Flight>,
    /// What was seen and has not arrived yet.
    pub inbox: Vec<(Time, Vec<Event>)>,
    /// Looks at engines that are on their way, and what they will show.
    pub looks: Vec<LookOnItsWay>,
    /// What people wait for an answer to, and since when.
    pub wishes: BTreeMap<Ticket, (Wish, Time)>,
    /// Since when jobs are left alone for an engine's sake, and whether they have leases there.
    pub left_alone: BTreeMap<WorkloadId, Time>,
    /// The moment that the loop rests for: by timers of the brain, and otherwise.
    pub rests_until: (Option<Time>, Option<Time>),
    /// Decisions that a planted bug keeps from being carried out.
    pub dropped: BTreeSet<DecisionId>,
    /// What each worker's agent said last, where that has arrived.
    pub heard: BTreeMap<(LeaseId, StintId), WorkerView>,
}

/// A look at an engine that is answered later.
#[derive(Clone)]
pub(crate) struct LookOnItsWay {
    pub at: Time,
    pub engine: String,
    pub number: u64,
    /// What it shows, if that was seen before it got slow.
    pub seen: Option<Result<Look, String>>,
    pub groups: Vec<DecisionId>,
    pub sweep: bool,
}

/// What somebody wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wish {
    Submit(usize),
    Cancel(usize),
    /// It is not given time to save, either.
    GiveUp(usize),
    Raise(WorkloadId),
}

/// A moment by both clocks; the invented world runs as fast as life.
pub(crate) fn moment(now: Time) -> Moment {
    Moment { world: now, real: Duration::from_millis((now - BEGIN).0.unsigned_abs()) }
}

/// The moment of the world at a moment of real time.
pub(crate) fn world_time(real: Duration) -> Time {
    BEGIN + Span(real.as_millis() as i64)
}

impl Server {
    pub fn open(
        store: &Arc<FaultyStore>,
        config: &Config,
        engines: &[String],
        habits: Habits,
        at: Time,
    ) -> Result<Server, String> {
        let epoch = now(store.lead()).map_err(|error| error.to_string())?;
        let loaded = now(store.load()).map_err(|error| error.to_string())?;
        let cycle = Cycle::start(habits, config.clone(), engines, epoch, loaded, moment(at));
        let cycle = cycle.map_err(|error| error.to_string())?;
        Ok(Server {
            cycle,
            flights: Vec::new(),
            inbox: Vec::new(),
            looks: Vec::new(),
            left_alone: BTreeMap::new(),
            wishes: BTreeMap::new(),
            rests_until: (Some(at), None),
            dropped: BTreeSet::new(),
            heard: BTreeMap::new(),
        })
    }

    /// The next call that is due.
    pub fn take_due(&mut self, at: Time) -> Option<Flight> {
        let due = self.flights.iter().position(|flight| flight.at <= at)?;
        Some(self.flights.remove(due))
    }

    /// What agents say that they have not said yet, or what all of them say now.
    pub fn hear(&mut self, shared: &Shared, all: bool) -> Vec<Event> {
        let ready = self.cycle.brain().leases().filter(|lease| lease.ready.is_some()).map(|lease| lease.id);
        let mut workers = shared.workers(&ready.collect::<Vec<_>>());
        if all {
            self.heard.clear();
        }
        workers.retain(|seen| self.heard.get(&(seen.lease, seen.worker.stint)) != Some(&seen.worker));
        let events = workers.iter().flat_map(|seen| dispatch::worker_events(&seen.worker, 1)).collect();
        self.heard.extend(workers.into_iter().map(|seen| ((seen.lease, seen.worker.stint), seen.worker)));
        events
    }
}

/// Checkpoint stores of the invented world are away together.
#[async_trait]
impl StoreProbe for Shared {
    async fn probe(&self, _access: &StoreAccess) -> Option<Trouble> {
        let world = self.world();
        (world.now < world.store_away_until)
            .then(|| Trouble { kind: TroubleKind::StoreAway, text: "the store does not answer".to_owned() })
    }
}

/// Makes start orders for the invented world.
pub(crate) struct Folders;

impl JobFolders for Folders {
    fn store_access(&self, _brain: &Brain, _workload: WorkloadId) -> Option<StoreAccess> {
        Some(StoreAccess::default())
    }

    fn start_order(&self, brain: &Brain, stint: StintId, rank: u32) -> Option<StartOrder> {
        let job = brain.job(stint.workload)?;
        let known = job.stint.as_ref().filter(|known| known.id == stint)?;
        Some(StartOrder {
            checkpoint_key: job.spec.run.environment.clone(),
            keep: job.spec.checkpoint.keep,
            resume: known.resume,
            ..StartOrder::of(stint, rank, known.size())
        })
    }
}
