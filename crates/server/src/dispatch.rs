//! Carries decisions to an engine, and what an engine shows back to events. Nothing here chooses: a
//! decision becomes calls, an observation becomes events, and what is not sure is asked again.

use async_trait::async_trait;
use futures::future::join_all;
use std::collections::BTreeMap;
use std::collections::BTreeSet;
use windfall_core::brain::Open;
use windfall_core::worker::StartOrder;
use windfall_core::{
    Brain, Decision, Event, LeaseEnd, LeaseId, OfferId, Span, StintId, Time, Trouble, Work, WorkloadId,
};
use windfall_exec::{Engine, EngineError, LeaseState, Observed, Owned, Want};

/// A decision made ready to be carried out: everything copied out of the state.
#[derive(Clone, Debug)]
pub enum Task {
    /// Get a lease.
    Acquire(LeaseId, Want),
    /// Give one back.
    Release(LeaseId),
    /// Start workers.
    Start(Vec<(LeaseId, StartOrder)>),
    /// Ask workers to save.
    Save(StintId, Vec<(LeaseId, u32)>, u64),
    /// Stop workers.
    Stop(StintId, Vec<(LeaseId, u32)>, Span),
    /// See whether the store of a job's checkpoints answers.
    CheckStore(WorkloadId, StoreAccess),
}

/// What is known of a job beside the brain: its environment and its folders.
pub trait JobFolders: Send + Sync {
    /// The order that starts one rank of a stint; none when the job's folder is lost.
    fn start_order(&self, brain: &Brain, stint: StintId, rank: u32) -> Option<StartOrder>;
    /// How to reach the store of a job's checkpoints; none when the job's folder is lost.
    fn store_access(&self, brain: &Brain, workload: WorkloadId) -> Option<StoreAccess>;
}

/// How to reach a job's checkpoints.
#[derive(Clone, Debug, Default)]
pub struct StoreAccess {
    /// The store's address.
    pub address: String,
    /// The job's name inside it.
    pub key: String,
    /// Where credentials are looked for.
    pub env: BTreeMap<String, String>,
    /// The job has saved there: a store without its checkpoints is not the one that is waited for.
    pub saved_before: bool,
}

/// Looks at checkpoint stores.
#[async_trait]
pub trait StoreProbe: Send + Sync {
    /// What is wrong with a store; none when it answers and can hold checkpoints.
    async fn probe(&self, access: &StoreAccess) -> Option<Trouble>;
}

/// What came of a task.
#[derive(Debug, Default)]
pub struct Performed {
    /// What happened.
    pub events: Vec<Event>,
    /// The engine did not answer for sure: the same again later, if it is still open.
    pub again: bool,
}

/// Makes an open decision ready; none when it is no longer open or needs nothing.
pub fn task(brain: &Brain, folders: &dyn JobFolders, open: &Open) -> Option<Task> {
    match &open.decision {
        Decision::Acquire { lease, offer, max_price, .. } => {
            Some(Task::Acquire(*lease, Want { offer: offer.clone(), max_price: *max_price }))
        }
        Decision::Release { lease } => Some(Task::Release(*lease)),
        Decision::Start { stint, leases, .. } => {
            let orders = leases.iter().zip(0..);
            let orders = orders.map(|(lease, rank)| Some((*lease, folders.start_order(brain, *stint, rank)?)));
            orders.collect::<Option<Vec<_>>>().map(Task::Start)
        }
        Decision::Checkpoint { stint } => Some(Task::Save(*stint, workers(brain, *stint)?, open.id.seq)),
        Decision::Stop { stint, grace } => Some(Task::Stop(*stint, workers(brain, *stint)?, *grace)),
        Decision::CheckStore { workload } => {
            folders.store_access(brain, *workload).map(|access| Task::CheckStore(*workload, access))
        }
        Decision::Pause { .. } | Decision::End { .. } | Decision::Notify { .. } => None,
    }
}

/// The workers of a stint whose leases are still there.
fn workers(brain: &Brain, stint: StintId) -> Option<Vec<(LeaseId, u32)>> {
    let known = brain.job(stint.workload)?.stint.as_ref().filter(|known| known.id == stint)?;
    Some(known.leases.iter().copied().zip(0..).filter(|(lease, _)| brain.lease(*lease).is_some()).collect())
}

/// Carries a task out. What goes to several machines goes to all of them at once: one that hangs delays nobody.
pub async fn perform(engine: &dyn Engine, stores: &dyn StoreProbe, task: &Task) -> Performed {
    let mut performed = Performed::default();
    match task {
        Task::Acquire(lease, want) => match engine.acquire(*lease, want).await {
            Ok(state) => performed.events.extend(lease_events(*lease, &state)),
            Err(EngineError::Refused(refusal)) => performed.events.push(Event::LeaseFailed { lease: *lease, refusal }),
            Err(_) => performed.again = true,
        },
        Task::Release(lease) => match engine.release(*lease).await {
            Ok(state) => performed.events.extend(lease_events(*lease, &state)),
            Err(_) => performed.again = true,
        },
        Task::Start(orders) => {
            performed.again = any_failed(orders.iter().map(|(lease, order)| engine.start(*lease, order))).await;
        }
        Task::Save(stint, workers, request) => {
            let saves = workers.iter().map(|(lease, rank)| engine.save(*lease, *stint, *rank, *request));
            performed.again = any_failed(saves).await;
        }
        Task::Stop(stint, workers, grace) => {
            let stops = workers.iter().map(|(lease, rank)| engine.stop(*lease, *stint, *rank, *grace));
            performed.again = any_failed(stops).await;
        }
        Task::CheckStore(workload, access) => {
            let trouble = stores.probe(access).await;
            performed.events.push(Event::StoreChecked { workload: *workload, trouble });
        }
    }
    performed
}

async fn any_failed(calls: impl Iterator<Item = impl Future<Output = Result<(), EngineError>>>) -> bool {
    join_all(calls).await.iter().any(Result::is_err)
}

/// What a state says of the lease itself. One that came and went between two looks was paid for as well.
fn lease_events(lease: LeaseId, state: &LeaseState) -> Vec<Event> {
    match *state {
        LeaseState::Pending => Vec::new(),
        LeaseState::Up { since, .. } => vec![Event::LeaseUp { lease, at: since }],
        LeaseState::Gone { since, at, end } => {
            let up = since.map(|since| Event::LeaseUp { lease, at: since });
            up.into_iter().chain([Event::LeaseGone { lease, at, end }]).collect()
        }
    }
}

/// All that an observation says, in an order in which each part makes sense: a worker's last words come
/// before the end of its machine.
pub fn events_of(observed: &Observed, speed: u32) -> Vec<Event> {
    let lease = observed.lease;
    let mut events = Vec::new();
    if let LeaseState::Up { since, ends_at, at_risk } = observed.state {
        events.push(Event::LeaseUp { lease, at: since });
        if at_risk {
            events.push(Event::LeaseAtRisk { lease });
        }
        if let Some(ends_at) = ends_at {
            events.push(Event::LeaseNoticed { lease, ends_at });
        }
    }
    if let Some(worker) = &observed.worker {
        let (stint, rank) = (worker.stint, worker.rank);
        if worker.pid.is_some() {
            let (restored, work) = (worker.restored, worker.restored_work.map(Work));
            events.push(Event::WorkerStarted { stint, rank, restored, work });
        }
        if rank == 0 {
            if let Some(done) = worker.done {
                events.push(Event::Progress { stint, done: Work(done), total: worker.total.map(Work) });
            }
            if let Some(checkpoint) = worker.durable {
                let ran = worker.durable_ran_ms.map(|ms| world_time(ms, speed));
                events.push(Event::CheckpointDurable { stint, checkpoint, work: worker.durable_work.map(Work), ran });
            }
            events.push(Event::Troubled { stint, trouble: worker.trouble.clone() });
        }
        if let Some(end) = &worker.end {
            events.push(Event::WorkerEnded { stint, rank, end: end.clone(), settled: worker.settled });
        }
    }
    if let LeaseState::Gone { .. } = observed.state {
        events.extend(lease_events(lease, &observed.state));
    }
    events
}

/// A real span as the world counts it.
fn world_time(real_ms: u64, speed: u32) -> Span {
    Span(i64::try_from(real_ms.saturating_mul(u64::from(speed))).unwrap_or(i64::MAX))
}

/// Everything an engine shows about the leases that a brain holds. A lease that came up and that the
/// engine does not know any more is lost; an offer that it does not show any more is not for sale.
pub async fn observe(brain: &Brain, engine: &dyn Engine, now: Time) -> Result<Vec<Event>, EngineError> {
    let offers = engine.offers().await?;
    let shown: BTreeSet<&OfferId> = offers.iter().map(|offer| &offer.id).collect();
    let gone = brain.offers().filter(|offer| !shown.contains(&offer.id)).map(|offer| offer.id.clone());
    let mut events: Vec<Event> = gone.map(|offer| Event::OfferGone { offer }).collect();
    events.extend(offers.into_iter().map(|offer| Event::OfferSeen { offer }));
    let leases: Vec<LeaseId> = brain.leases().map(|lease| lease.id).collect();
    if leases.is_empty() {
        return Ok(events);
    }
    let observed = engine.observe(&leases).await?;
    let known: BTreeSet<LeaseId> = observed.iter().map(|observed| observed.lease).collect();
    events.extend(lost(brain, &known, now));
    let speed = engine.describe().speed;
    events.extend(observed.iter().flat_map(|observed| events_of(observed, speed)));
    Ok(events)
}

/// Leases that were up and that the engine does not show any more. One that was only asked for may be on its way.
fn lost(brain: &Brain, known: &BTreeSet<LeaseId>, now: Time) -> Vec<Event> {
    let up = brain.leases().filter(|lease| lease.up_at.is_some() && !known.contains(&lease.id));
    up.map(|lease| Event::LeaseGone { lease: lease.id, at: now, end: LeaseEnd::Lost }).collect()
}

/// News of leases that the engine holds and the log does not know: nobody will ever give them back but us.
pub fn orphans(brain: &Brain, owned: &[Owned]) -> Vec<Event> {
    let found = owned.iter().cloned();
    let found = found.map(|Owned { lease, offer, since, until }| Event::LeaseFound { lease, offer, since, until });
    found.filter(|event| brain.is_news(event)).collect()
}

#[cfg(test)]
mod tests;
