//! The engine of the invented world: keeps the contract of `Engine`, with answers that get lost on the way.

use crate::fault::FaultKind;
use crate::market;
use crate::planted::Bug;
use crate::world::{Machine, Worker, World};
use async_trait::async_trait;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use windfall_core::worker::{StartOrder, WorkerView};
use windfall_core::{
    Address, DecisionId, LeaseId, Market, Node, Offer, Pool, Span, StintId, Trouble, TroubleKind, Want, Work, WorkerEnd,
};
use windfall_exec::{AgentLink, Capabilities, Engine, EngineError, Owned, SeenGroup, SeenLease, SeenWorker, StopOrder};

/// A world that engine and explorer share.
#[derive(Clone)]
pub(crate) struct Shared(Arc<Mutex<World>>);

impl Shared {
    pub fn new(world: World) -> Shared {
        Shared(Arc::new(Mutex::new(world)))
    }
    pub fn world(&self) -> MutexGuard<'_, World> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
    /// One of its engines.
    pub fn engine(&self, name: &str) -> InventedEngine {
        InventedEngine { shared: self.clone(), name: name.to_owned() }
    }
}

/// One engine of the world.
pub(crate) struct InventedEngine {
    shared: Shared,
    name: String,
}

fn lost() -> EngineError {
    EngineError::Unreachable { why: "the answer was lost".to_owned() }
}

impl World {
    /// Whether a call to an engine is lost on its way there, and whether its answer is.
    fn call_to(&mut self, engine: &str) -> (bool, bool) {
        if self.is_silent(engine) {
            return (true, false);
        }
        self.call()
    }

    /// Whether a call is lost on its way there, and whether its answer is.
    fn call(&mut self) -> (bool, bool) {
        let before = self.strike(FaultKind::CallLostBefore);
        let after = !before && self.strike(FaultKind::CallLostAfter);
        if before || after {
            self.delay += crate::driver::RETRY;
        }
        (before, after)
    }

    /// Whether an engine answers nothing now.
    pub fn is_silent(&mut self, engine: &str) -> bool {
        let until = [&self.silent_until, &self.hangs_until].map(|until| until.get(engine).copied());
        let silent = until.into_iter().flatten().any(|until| self.now < until);
        if silent {
            self.trouble_at = self.now;
        }
        silent
    }

    /// Whether an offer is not shown, and cannot be had, now.
    pub fn is_hidden(&self, offer: usize) -> bool {
        self.hidden.is_some_and(|(hidden, until)| hidden == offer && self.now < until)
    }

    fn view(&self, machine: &Machine, worker: &Worker) -> WorkerView {
        let known = self.jobs.get(worker.job).and_then(|truth| Some((truth, truth.runs.get(&worker.stint.epoch)?)));
        let blank = WorkerView::new(worker.stint, worker.rank);
        let Some((truth, run)) = known else {
            // It was stopped before it was ordered.
            return WorkerView { end: worker.end.clone(), settled: worker.is_settled(self.now), ..blank };
        };
        let began = run.fenced && (worker.running || worker.end.is_some() || machine.gone.is_some());
        let ran = worker.rank > 0 && (worker.running || machine.gone.is_some()) || worker.rank == 0 && began;
        let program = &truth.program;
        // A machine that was reported gone says nothing any more, whatever its processes still do.
        let now = machine.gone.map_or(self.now, |(at, _)| at);
        let done = run.work_at(program.rate, now);
        let total = program.total + if program.wavers { done.is_multiple_of(2).into() } else { 0 };
        let first_rank = worker.rank == 0;
        let first = first_rank && run.fenced;
        let reports = first && program.reports && done > run.base;
        let ghost = self.bug == Some(Bug::StopNotAwaited) && worker.asked && worker.end.is_none();
        WorkerView {
            pid: ran.then_some(1),
            restored: run.restored.filter(|_| first),
            restored_work: run.restored.filter(|_| first && program.reports).map(|_| run.base),
            done: reports.then_some(done),
            total: (reports && program.says_total).then_some(total),
            durable: run.durable.filter(|_| first).map(|(id, _)| id),
            durable_work: run.durable.filter(|_| first && program.reports).map(|(_, work)| work),
            durable_ran_ms: run
                .durable
                .filter(|_| first)
                .map(|(_, work)| program.rate.time_for(Work(work.saturating_sub(run.base))).0.unsigned_abs()),
            settled: worker.is_settled(self.now) || ghost,
            trouble: (first_rank && self.waits_for_store(worker))
                .then(|| Trouble { kind: TroubleKind::StoreAway, text: "the store does not answer".to_owned() }),
            end: worker.end.clone().or(ghost.then_some(WorkerEnd::Stopped)),
            ..blank
        }
    }
}

impl World {
    /// Whether a worker cannot restore because the store does not answer.
    fn waits_for_store(&self, worker: &Worker) -> bool {
        let restoring = !worker.running && worker.end.is_none();
        restoring && self.now < self.store_away_until && worker.ready_at == self.store_away_until
    }
}

#[async_trait]
impl Engine for InventedEngine {
    fn describe(&self) -> Capabilities {
        let markets = vec![Market::Spot, Market::OnDemand];
        Capabilities { name: self.name.clone(), markets, ..Capabilities::default() }
    }

    async fn offers(&self) -> Result<Vec<Offer>, EngineError> {
        let mut world = self.shared.world();
        if world.is_silent(&self.name) {
            return Err(lost());
        }
        let ours = world.offers.iter().enumerate().filter(|(_, invented)| invented.offer.engine == self.name);
        let shown = ours.filter(|(number, _)| !world.is_hidden(*number));
        let offers = shown.map(|(_, invented)| Offer { capacity: invented.capacity, ..invented.offer.clone() });
        Ok(offers.collect())
    }

    async fn pools(&self) -> Result<Vec<Pool>, EngineError> {
        let mut world = self.shared.world();
        if world.is_silent(&self.name) {
            return Err(lost());
        }
        Ok(vec![market::pool(world.seed, &self.name)])
    }

    async fn nodes(&self) -> Result<Vec<Node>, EngineError> {
        let mut world = self.shared.world();
        if world.is_silent(&self.name) {
            return Err(lost());
        }
        let nodes = market::nodes(world.seed, world.now);
        let ours = market::pool(world.seed, &self.name).id;
        Ok(nodes.into_iter().filter(|node| node.pool == ours).collect())
    }

    async fn acquire(&self, group: DecisionId, want: &Want) -> Result<SeenGroup, EngineError> {
        let mut world = self.shared.world();
        let (before, after) = world.call_to(&self.name);
        if before {
            return Err(lost());
        }
        let answer = world.acquire_group(group, want);
        world.say(|| format!("acquire {group} {:?} -> {answer:?}", want.alternatives));
        if after { Err(lost()) } else { answer }
    }

    async fn observe(&self, groups: &[DecisionId]) -> Result<Vec<SeenGroup>, EngineError> {
        let mut world = self.shared.world();
        if world.is_silent(&self.name) {
            return Err(lost());
        }
        Ok(groups.iter().filter_map(|group| world.seen_group(*group)).collect())
    }

    async fn list_owned(&self) -> Result<Vec<Owned>, EngineError> {
        let mut world = self.shared.world();
        if world.is_silent(&self.name) {
            return Err(lost());
        }
        // As clouds do: what ran can still be seen for an hour after its end.
        // One that was given back before it was asked for is of no offer.
        let ours = |machine: &Machine| world.offers.get(machine.offer).is_some_and(|of| of.offer.engine == self.name);
        let shown = world.machines.iter().filter(|(_, machine)| ours(machine));
        let shown = shown.filter(|(_, machine)| match machine.gone {
            None => true,
            Some((at, _)) => machine.since.is_some() && world.now - at <= Span::hours(1),
        });
        let owned = |(lease, machine): (&LeaseId, &Machine)| Owned {
            lease: *lease,
            offer: world.offers[machine.offer].offer.id.clone(),
            since: machine.since,
            until: machine.gone.map(|(at, _)| at),
            address: None,
        };
        let owned: Vec<Owned> = shown.map(owned).collect();
        world.shown.extend(owned.iter().filter_map(|owned| Some((owned.lease, owned.since?))));
        Ok(owned)
    }

    async fn release(&self, group: DecisionId, slots: &[u32]) -> Result<Vec<SeenLease>, EngineError> {
        let mut world = self.shared.world();
        let (before, after) = world.call_to(&self.name);
        if before {
            return Err(lost());
        }
        let seen = world.release_slots(group, slots);
        world.say(|| format!("release {group} {slots:?} -> {seen:?}"));
        if after { Err(lost()) } else { Ok(seen) }
    }

    async fn forget(&self, leases: &[LeaseId]) -> Result<(), EngineError> {
        let mut world = self.shared.world();
        for lease in leases {
            let done = world.machines.get(lease).is_some_and(|m| m.gone.is_some() && m.limbo_until.is_none());
            if done && let Some(machine) = world.machines.remove(lease) {
                world.past.insert(*lease, machine);
                world.forget_group(lease.group);
            }
        }
        Ok(())
    }
}

#[async_trait]
impl AgentLink for Shared {
    fn follow(&self, _lease: LeaseId, _address: &Address) {}

    fn last_words(&self, _lease: LeaseId, _address: &Address) {}

    fn workers(&self, leases: &[LeaseId]) -> Vec<SeenWorker> {
        let world = self.world();
        let machines = leases.iter().filter_map(|lease| Some((*lease, world.machines.get(lease)?)));
        let workers = machines.flat_map(|(lease, machine)| machine.workers.iter().map(move |w| (lease, machine, w)));
        workers.map(|(lease, machine, worker)| SeenWorker { lease, worker: world.view(machine, worker) }).collect()
    }

    fn unheard(&self) -> Vec<LeaseId> {
        self.world().machines.keys().copied().collect()
    }

    fn forget(&self, _leases: &[LeaseId]) {}

    async fn changed(&self) {}

    async fn start(&self, lease: LeaseId, order: &StartOrder) -> Result<(), EngineError> {
        let mut world = self.world();
        let (before, after) = world.call();
        if before {
            return Err(lost());
        }
        let up = world.machines.get(&lease).is_some_and(|m| m.gone.is_none() && m.ready);
        if !up {
            return Err(EngineError::NoLease(lease));
        }
        world.start_worker(lease, order);
        if after { Err(lost()) } else { Ok(()) }
    }

    async fn save(&self, lease: LeaseId, stint: StintId, _rank: u32, _request: u64) -> Result<(), EngineError> {
        let mut world = self.world();
        let (before, after) = world.call();
        if before {
            return Err(lost());
        }
        world.ask_to_save(lease, stint);
        if after { Err(lost()) } else { Ok(()) }
    }

    async fn stop(&self, lease: LeaseId, stint: StintId, rank: u32, order: StopOrder) -> Result<(), EngineError> {
        let mut world = self.world();
        let (before, after) = world.call();
        if before {
            return Err(lost());
        }
        let now = world.now;
        let Some(machine) = world.machines.get_mut(&lease).filter(|m| m.gone.is_none() && m.since.is_some()) else {
            return Err(EngineError::NoLease(lease));
        };
        match machine.worker(stint.workload) {
            Some(worker) if worker.stint == stint => world.ask_to_stop(lease, stint.workload, now + order.grace),
            Some(worker) if worker.stint.epoch > stint.epoch => {}
            _ => {
                machine.put(Worker {
                    stint,
                    rank,
                    job: usize::MAX,
                    devices: None,
                    ready_at: now,
                    running: false,
                    asked: true,
                    doom: None,
                    end: Some(WorkerEnd::Stopped),
                    killed: false,
                    settles_at: now,
                });
                world.dirty_since.get_or_insert(now);
            }
        }
        if after { Err(lost()) } else { Ok(()) }
    }
}
