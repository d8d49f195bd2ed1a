//! The engine of the invented world: keeps the contract of `Engine`, with answers that get lost on the way.

use crate::fault::Kind;
use crate::planted::Bug;
use crate::random;
use crate::world::{Machine, Worker, World};
use async_trait::async_trait;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use windfall_core::worker::{StartOrder, WorkerView};
use windfall_core::{LeaseEnd, LeaseId, Market, Offer, Refusal, Span, StintId, Trouble, TroubleKind, Work, WorkerEnd};
use windfall_exec::{Capabilities, Engine, EngineError, LeaseState, Observed, Owned, Want};

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
}

fn lost() -> EngineError {
    EngineError::Unreachable { why: "the answer was lost".to_owned() }
}

impl World {
    /// Whether a call is lost on its way there, and whether its answer is.
    fn call(&mut self) -> (bool, bool) {
        if self.is_silent() {
            return (true, false);
        }
        let before = self.strike(Kind::CallLostBefore);
        let after = !before && self.strike(Kind::CallLostAfter);
        if before || after {
            self.delay += crate::driver::RETRY;
        }
        (before, after)
    }

    /// Whether the engine answers nothing now.
    fn is_silent(&mut self) -> bool {
        let silent = self.now < self.silent_until;
        if silent {
            self.trouble_at = self.now;
        }
        silent
    }

    /// Whether an offer is not shown, and cannot be had, now.
    fn is_hidden(&self, offer: usize) -> bool {
        self.hidden.is_some_and(|(hidden, until)| hidden == offer && self.now < until)
    }

    fn state(&self, machine: &Machine) -> LeaseState {
        let skew = Span(if self.bug == Some(Bug::WrongUpTime) { 60_000 } else { 0 });
        match (machine.gone, machine.since) {
            (Some((at, end)), since) => LeaseState::Gone { since, at, end },
            (None, Some(since)) => {
                // The market may warn that a lease is at risk before it sends a notice.
                let near = machine.notice_at.is_some_and(|at| self.now >= at - Span::minutes(3));
                let at_risk = near && machine.offer.is_multiple_of(2);
                LeaseState::Up { since: since + skew, ends_at: machine.ends_at, at_risk }
            }
            (None, None) => LeaseState::Pending,
        }
    }

    fn acquire(&mut self, lease: LeaseId, want: &Want) -> Result<LeaseState, EngineError> {
        if let Some(machine) = self.machines.get_mut(&lease) {
            if machine.gone.is_none() && self.bug == Some(Bug::AcquireNotIdempotent) {
                machine.copies += 1;
            }
            let machine = machine.clone();
            return Ok(self.state(&machine));
        }
        let Some(offer) = self.stall(&want.offer) else { return Err(EngineError::Refused(Refusal::Invalid)) };
        let (held, now, stall) = (self.held(offer), self.now, &self.stalls[offer]);
        let spot = stall.capacity.is_some();
        let dear = want.max_price.is_some_and(|max| stall.offer.price_per_hour > max);
        let moody = stall.moody && random::of(self.seed, &[8, lease.0.seq]).permille(400);
        if dear || moody || self.is_hidden(offer) || stall.capacity.is_some_and(|capacity| held >= capacity) {
            return Err(EngineError::Refused(Refusal::NoCapacity));
        }
        if (spot || stall.moody) && self.strike(Kind::OddRefusal) {
            let odd = [
                Refusal::Quota,
                Refusal::Retry { after: Span::seconds(20) },
                Refusal::Auth,
                Refusal::Bug,
                Refusal::Retry { after: Span(0) },
            ];
            return Err(EngineError::Refused(random::of(self.seed, &[9, lease.0.seq]).pick(&odd)));
        }
        let never = spot && self.strike(Kind::NeverUp);
        let late = Span(random::of(self.seed, &[10, lease.0.seq]).between(self.boot.0 / 3, self.boot.0));
        self.machines.insert(
            lease,
            Machine {
                offer,
                up_at: (!never).then_some(now + late),
                since: None,
                notice_at: None,
                ends_at: None,
                taken_at: None,
                gone: None,
                limbo_until: None,
                worker: None,
                copies: 1,
                unwanted_since: None,
            },
        );
        Ok(LeaseState::Pending)
    }

    fn release(&mut self, lease: LeaseId) -> LeaseState {
        let now = self.now;
        let Some(machine) = self.machines.get(&lease) else {
            let gone = (now, LeaseEnd::Released);
            let buried = Machine {
                offer: usize::MAX,
                up_at: None,
                since: None,
                notice_at: None,
                ends_at: None,
                taken_at: None,
                gone: Some(gone),
                limbo_until: None,
                worker: None,
                copies: 1,
                unwanted_since: None,
            };
            let state = self.state(&buried);
            self.machines.insert(lease, buried);
            return state;
        };
        if machine.gone.is_none() {
            self.end_machine(lease, LeaseEnd::Released);
        }
        self.machines.get(&lease).map_or(LeaseState::Pending, |machine| self.state(machine))
    }

    fn view(&self, machine: &Machine) -> Option<WorkerView> {
        let worker = machine.worker.as_ref()?;
        let known = self.jobs.get(worker.job).and_then(|truth| Some((truth, truth.runs.get(&worker.stint.epoch)?)));
        let blank = WorkerView::new(worker.stint, worker.rank);
        let Some((truth, run)) = known else {
            // It was stopped before it was ordered.
            return Some(WorkerView { end: worker.end.clone(), settled: worker.is_settled(self.now), ..blank });
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
        Some(WorkerView {
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
        })
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
impl Engine for Shared {
    fn describe(&self) -> Capabilities {
        Capabilities {
            name: "invented".to_owned(),
            markets: vec![Market::Spot, Market::OnDemand],
            notice: Span::seconds(120),
            speed: 1,
        }
    }

    async fn offers(&self) -> Result<Vec<Offer>, EngineError> {
        let mut world = self.world();
        if world.is_silent() {
            return Err(lost());
        }
        let shown = world.stalls.iter().enumerate().filter(|(number, _)| !world.is_hidden(*number));
        let offers = shown.map(|(_, stall)| Offer { capacity: stall.capacity, ..stall.offer.clone() });
        Ok(offers.collect())
    }

    async fn acquire(&self, lease: LeaseId, want: &Want) -> Result<LeaseState, EngineError> {
        let mut world = self.world();
        let (before, after) = world.call();
        if before {
            return Err(lost());
        }
        let answer = world.acquire(lease, want);
        world.say(|| format!("acquire {lease} {} -> {answer:?}", want.offer));
        if after { Err(lost()) } else { answer }
    }

    async fn observe(&self, leases: &[LeaseId]) -> Result<Vec<Observed>, EngineError> {
        let mut world = self.world();
        if world.is_silent() {
            return Err(lost());
        }
        let known = leases.iter().filter_map(|lease| Some((*lease, world.machines.get(lease)?)));
        let observed =
            known.map(|(lease, m)| Observed { lease, state: world.state(m), worker: world.view(m) }).collect();
        Ok(observed)
    }

    async fn list_owned(&self) -> Result<Vec<Owned>, EngineError> {
        let mut world = self.world();
        if world.is_silent() {
            return Err(lost());
        }
        // As clouds do: what ran can still be seen for an hour after its end.
        let shown = world.machines.iter().filter(|(_, machine)| match machine.gone {
            None => true,
            Some((at, _)) => machine.since.is_some() && world.now - at <= Span::hours(1),
        });
        let owned = |(lease, machine): (&LeaseId, &Machine)| Owned {
            lease: *lease,
            offer: world.stalls[machine.offer].offer.id.clone(),
            since: machine.since,
            until: machine.gone.map(|(at, _)| at),
        };
        let owned: Vec<Owned> = shown.map(owned).collect();
        world.shown.extend(owned.iter().filter_map(|owned| Some((owned.lease, owned.since?))));
        Ok(owned)
    }

    async fn start(&self, lease: LeaseId, order: &StartOrder) -> Result<(), EngineError> {
        let mut world = self.world();
        let (before, after) = world.call();
        if before {
            return Err(lost());
        }
        let up = world.machines.get(&lease).is_some_and(|m| m.gone.is_none() && m.since.is_some());
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

    async fn stop(&self, lease: LeaseId, stint: StintId, rank: u32, grace: Span) -> Result<(), EngineError> {
        let mut world = self.world();
        let (before, after) = world.call();
        if before {
            return Err(lost());
        }
        let now = world.now;
        let Some(machine) = world.machines.get_mut(&lease).filter(|m| m.gone.is_none() && m.since.is_some()) else {
            return Err(EngineError::NoLease(lease));
        };
        match &machine.worker {
            Some(worker) if worker.stint == stint => world.ask_to_stop(lease, now + grace),
            Some(worker) if worker.stint.epoch > stint.epoch => {}
            _ => {
                machine.worker = Some(Worker {
                    stint,
                    rank,
                    job: usize::MAX,
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

    async fn release(&self, lease: LeaseId) -> Result<LeaseState, EngineError> {
        let mut world = self.world();
        let (before, after) = world.call();
        if before {
            return Err(lost());
        }
        let state = world.release(lease);
        world.say(|| format!("release {lease} -> {state:?}"));
        if after { Err(lost()) } else { Ok(state) }
    }

    async fn forget(&self, leases: &[LeaseId]) -> Result<(), EngineError> {
        let mut world = self.world();
        for lease in leases {
            let done = world.machines.get(lease).is_some_and(|m| m.gone.is_some() && m.limbo_until.is_none());
            if done && let Some(machine) = world.machines.remove(lease) {
                world.past.insert(*lease, machine);
            }
        }
        Ok(())
    }
}
