//! Carries decisions to an engine, and what an engine shows back to events. Nothing here chooses: a
//! decision becomes calls, an observation becomes events, and what is not sure is asked again.

use crate::notes::JobNotes;
use async_trait::async_trait;
use futures::future::join_all;
use std::collections::{BTreeMap, BTreeSet};
use windfall_core::brain::Open;
use windfall_core::spec::SecretFrom;
use windfall_core::worker::{StartOrder, WorkerView};
use windfall_core::{
    Allocation, Brain, Decision, DecisionId, Event, GroupPhase, LeaseId, Node, NodeId, Offer, OfferId, Pool, PoolId,
    Span, StintId, Trouble, TroubleKind, Want, Work, WorkerEnd, WorkloadId,
};
use windfall_exec::{AgentLink, Engine, EngineError, LeaseState, Owned, SeenGroup, SeenLease, SeenWorker, StopOrder};

/// Variables of a server's environment that begin like this are secrets which its operator offers to jobs.
pub const SECRETS: &str = "WINDFALL_SECRET_";

/// A secret that this server's operator offers.
pub fn offered(name: &str) -> Option<String> {
    std::env::var(format!("{SECRETS}{name}")).ok()
}

/// Variables of a terminal by which a setup on this computer finds its programs.
const OF_PROGRAMS: [&str; 4] = ["PATH", "VIRTUAL_ENV", "CONDA_PREFIX", "PYTHONPATH"];

/// A decision made ready to be carried out: everything copied out of the state.
#[derive(Clone, Debug)]
pub enum Task {
    /// Get a group of leases.
    Acquire(DecisionId, Want),
    /// Give leases of a group back to their engine.
    Release(String, DecisionId, Vec<u32>),
    /// Start workers.
    Start(Vec<(LeaseId, StartOrder)>),
    /// Ask workers to save.
    Save(StintId, Vec<(LeaseId, u32)>, u64),
    /// Stop workers.
    Stop(StintId, Vec<(LeaseId, u32)>, StopOrder),
    /// See whether the store of a job's checkpoints answers.
    CheckStore(WorkloadId, StoreAccess),
}

/// What is known of a job beside the brain: its folders. The environment of the submitting terminal is filled in when the
/// task is carried out, beside the loop ([`Task::equip`]).
pub trait JobFolders: Send + Sync {
    /// The order that starts one rank of a stint; none when the brain does not know that stint any more. Its devices and the port of
    /// rank 0 follow from where it runs and are filled in by [`task`].
    fn start_order(&self, brain: &Brain, stint: StintId, rank: u32) -> Option<StartOrder>;
    /// How to reach the store of a job's checkpoints; none when the brain does not know the job any more.
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
    /// The job's secrets: without them it cannot begin either.
    pub secrets: BTreeMap<String, SecretFrom>,
    /// Who named it.
    pub owner: String,
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
        Decision::Acquire { want } => {
            let owner = brain.job(want.workload).map(|job| job.spec.owner.clone()).unwrap_or_default();
            Some(Task::Acquire(open.id, Want { owner, ..want.clone() }))
        }
        Decision::Release { group, slots } => {
            let engine = brain.leases_in(*group).next()?.offer.engine().to_owned();
            Some(Task::Release(engine, *group, slots.clone()))
        }
        Decision::Start { stint, allocations, .. } => {
            let order = |(part, rank): (&Allocation, u32)| {
                let order = folders.start_order(brain, *stint, rank)?;
                let (devices, share) = (device_numbers(part), share_of_device(part));
                let node = brain.lease(part.lease).and_then(|lease| lease.terms.node.as_ref());
                let machine = node.map(NodeId::name).unwrap_or_default().to_owned();
                Some((part.lease, StartOrder { devices, share, machine, ..order }))
            };
            allocations.iter().zip(0..).map(order).collect::<Option<Vec<_>>>().map(Task::Start)
        }
        Decision::Checkpoint { stint } => Some(Task::Save(*stint, workers(brain, *stint)?, open.id.seq)),
        Decision::Stop { stint, grace } => {
            let workers = workers(brain, *stint)?;
            let job = brain.job(stint.workload)?;
            let size = job.stint.as_ref().map_or(0, |stint| stint.size());
            let left: BTreeSet<u32> = workers.iter().map(|(_, rank)| *rank).collect();
            let gone = (0..size).filter(|rank| !left.contains(rank)).collect();
            Some(Task::Stop(*stint, workers, StopOrder { grace: *grace, gone, gives_up: job.given_up }))
        }
        Decision::CheckStore { workload } => {
            folders.store_access(brain, *workload).map(|access| Task::CheckStore(*workload, access))
        }
        Decision::HandOver { .. } | Decision::Pause { .. } | Decision::End { .. } | Decision::Notify { .. } => None,
    }
}

/// Whether an agent may tell of a worker: one that the log has on another lease is not its own. Of a stint that the log does
/// not have at present nothing is learnt anyway, but how it ended.
pub fn is_placed(brain: &Brain, seen: &SeenWorker) -> bool {
    let stint = brain.job(seen.worker.stint.workload).and_then(|job| job.stint.as_ref());
    let Some(stint) = stint.filter(|stint| stint.id == seen.worker.stint) else { return true };
    stint.leases().nth(seen.worker.rank as usize) == Some(seen.lease)
}

/// The devices that a worker may see. A MIG part keeps its device's number for now: CUDA names such a part by an
/// identifier that only the machine knows.
fn device_numbers(part: &Allocation) -> Option<Vec<u32>> {
    let mut numbers: Vec<u32> = part.devices.as_ref()?.iter().map(|device| device.number).collect();
    numbers.sort_unstable();
    numbers.dedup();
    Some(numbers)
}

/// How much of its accelerator a worker has, where that is not all of it.
fn share_of_device(part: &Allocation) -> Option<(u32, u32)> {
    let device = part.devices.as_ref()?.first()?;
    (!device.part.is_whole()).then(|| device.part.fraction())
}

/// The workers of a stint whose leases are still there.
fn workers(brain: &Brain, stint: StintId) -> Option<Vec<(LeaseId, u32)>> {
    let known = brain.job(stint.workload)?.stint.as_ref().filter(|known| known.id == stint)?;
    Some(known.leases().zip(0..).filter(|(lease, _)| brain.lease(*lease).is_some()).collect())
}

impl Task {
    /// The leases whose agents it is for.
    pub fn leases(&self) -> impl Iterator<Item = LeaseId> {
        let leases: Vec<LeaseId> = match self {
            Task::Start(orders) => orders.iter().map(|(lease, _)| *lease).collect(),
            Task::Save(_, workers, _) | Task::Stop(_, workers, _) => workers.iter().map(|(lease, _)| *lease).collect(),
            _ => Vec::new(),
        };
        leases.into_iter()
    }

    /// The job whose notes it needs before it can be carried out.
    pub fn needs_notes_of(&self) -> Option<WorkloadId> {
        match self {
            Task::Start(orders) => orders.first().map(|(_, order)| order.stint.workload),
            Task::CheckStore(workload, _) => Some(*workload),
            _ => None,
        }
    }

    /// Fills in what the notes of its job say. What the job file says of a variable counts more than the terminal; where a
    /// worker runs on another machine, only its secrets leave this one. `offered` are secrets of the server's operator.
    /// Fails with the reason where a secret is not there.
    pub fn equip(
        &mut self,
        notes: &JobNotes,
        is_elsewhere: impl Fn(LeaseId) -> bool,
        offered: impl Fn(&str) -> Option<String>,
    ) -> Result<(), String> {
        let fill_in = |env: &mut BTreeMap<String, String>| {
            for (name, value) in &notes.env {
                env.entry(name.clone()).or_insert_with(|| value.clone());
            }
        };
        let values = |secrets: &BTreeMap<String, SecretFrom>| {
            let value = |(name, from): (&String, &SecretFrom)| {
                let value = match from {
                    SecretFrom::Submission => notes.env.get(name).cloned(),
                    SecretFrom::Server => offered(name),
                };
                let missing = || match from {
                    SecretFrom::Submission => format!("its secret {name} was not submitted with it"),
                    SecretFrom::Server => {
                        format!("its secret {name} is not offered: the server's environment has no {SECRETS}{name}")
                    }
                };
                Ok((name.clone(), value.ok_or_else(missing)?))
            };
            secrets.iter().map(value).collect::<Result<Vec<_>, String>>()
        };
        match self {
            Task::Start(orders) => {
                for (lease, order) in orders {
                    order.env.extend(values(&order.secrets)?);
                    if let Some(provision) = &mut order.provision {
                        let programs = OF_PROGRAMS.iter().filter(|_| !is_elsewhere(*lease));
                        let programs = programs.filter_map(|name| notes.env.get_key_value(*name));
                        let own = order.env.iter().chain(programs).map(|(name, value)| (name.clone(), value.clone()));
                        provision.variant = windfall_agent::digest_of(&own.collect());
                    }
                    if !is_elsewhere(*lease) {
                        fill_in(&mut order.env);
                    }
                    order.foreign.clone_from(&notes.rest.foreign);
                }
            }
            Task::CheckStore(_, access) => {
                values(&access.secrets)?;
                fill_in(&mut access.env);
            }
            _ => {}
        }
        Ok(())
    }

    /// What comes of it where a secret is not there, which a server that is started elsewhere may offer later: the job waits
    /// for it as for a store that is away, and holds nothing meanwhile.
    pub fn unequipped(&self, why: &str) -> Performed {
        self.not_begun(WorkerEnd::StoreAway { why: why.to_owned() }, TroubleKind::StoreAway, why)
    }

    /// What comes of it where what [`Task::equip`] needs can never be read: its workers end as if their agents had said
    /// so, and the job with them. Nobody pays for a lease that waits for what does not come.
    pub fn never_equipped(&self, why: &str) -> Performed {
        self.not_begun(WorkerEnd::NeverRan { why: why.to_owned() }, TroubleKind::StoreDenied, why)
    }

    fn not_begun(&self, end: WorkerEnd, kind: TroubleKind, why: &str) -> Performed {
        let events = match self {
            Task::Start(orders) => {
                let ended = |(_, order): &(LeaseId, StartOrder)| Event::WorkerEnded {
                    stint: order.stint,
                    rank: order.rank,
                    end: end.clone(),
                    settled: true,
                };
                orders.iter().map(ended).collect()
            }
            Task::CheckStore(workload, _) => {
                let trouble = Some(Trouble { kind, text: why.to_owned() });
                vec![Event::StoreChecked { workload: *workload, trouble }]
            }
            _ => Vec::new(),
        };
        Performed { events, again: false }
    }

    /// The engine that is to do it; none of what agents and stores do.
    pub fn engine(&self) -> Option<&str> {
        match self {
            Task::Acquire(_, want) => Some(want.alternatives.first()?.offer.engine()),
            Task::Release(engine, ..) => Some(engine),
            _ => None,
        }
    }
}

/// Carries a task out. What goes to several machines goes to all of them at once: one that hangs delays nobody. `engine`
/// is the one that the task names, if there is such a one.
pub async fn perform(
    engine: Option<&dyn Engine>,
    link: &dyn AgentLink,
    stores: &dyn StoreProbe,
    task: &Task,
) -> Performed {
    let mut performed = Performed::default();
    match (task, engine) {
        (Task::Acquire(..) | Task::Release(..), None) => performed.again = true,
        (Task::Acquire(group, want), Some(engine)) => match engine.acquire(*group, want).await {
            Ok(seen) => performed.events.extend(group_events(&seen)),
            Err(EngineError::Refused(refusal)) => performed.events.push(Event::GroupFailed { group: *group, refusal }),
            Err(_) => performed.again = true,
        },
        (Task::Release(_, group, slots), Some(engine)) => match engine.release(*group, slots).await {
            Ok(seen) => performed.events.extend(seen.iter().flat_map(lease_events)),
            Err(_) => performed.again = true,
        },
        (Task::Start(orders), _) => {
            performed.again = any_failed(orders.iter().map(|(lease, order)| link.start(*lease, order))).await;
        }
        (Task::Save(stint, workers, request), _) => {
            let saves = workers.iter().map(|(lease, rank)| link.save(*lease, *stint, *rank, *request));
            performed.again = any_failed(saves).await;
        }
        (Task::Stop(stint, workers, order), _) => {
            let stops = workers.iter().map(|(lease, rank)| link.stop(*lease, *stint, *rank, order.clone()));
            performed.again = any_failed(stops).await;
        }
        (Task::CheckStore(workload, access), _) => {
            let trouble = stores.probe(access).await;
            performed.events.push(Event::StoreChecked { workload: *workload, trouble });
        }
    }
    performed
}

async fn any_failed(calls: impl Iterator<Item = impl Future<Output = Result<(), EngineError>>>) -> bool {
    join_all(calls).await.iter().any(Result::is_err)
}

/// What is said of a group: each of its leases, then where it stands. A whole group whose leases are up needs no word
/// of its own.
fn group_events(seen: &SeenGroup) -> Vec<Event> {
    let group = seen.group;
    let of_group = match seen.phase {
        GroupPhase::Asked => None,
        GroupPhase::Queued { since, eta } => Some(Event::GroupQueued { group, since, eta }),
        GroupPhase::Granted { at, units } => Some(Event::GroupGranted { group, at, units }),
    };
    seen.leases.iter().flat_map(lease_events).chain(of_group).collect()
}

/// What a state says of a lease. One that came and went between two looks was paid for as well.
fn lease_events(seen: &SeenLease) -> Vec<Event> {
    let lease = seen.lease;
    match &seen.state {
        LeaseState::Pending => Vec::new(),
        LeaseState::Up { since, terms, ready, ends_at, at_risk, why } => {
            let up = Event::LeaseUp { lease, at: *since, terms: Box::new(terms.clone()), ready: ready.clone() };
            let ready = ready.clone().map(|address| Event::LeaseReady { lease, address });
            let at_risk = at_risk.then_some(Event::LeaseAtRisk { lease });
            let noticed = ends_at.map(|ends_at| Event::LeaseNoticed { lease, ends_at, why: why.clone() });
            [up].into_iter().chain(ready).chain(at_risk).chain(noticed).collect()
        }
        LeaseState::Gone { since, at, end } => {
            let up = since.map(|since| Event::LeaseUp { lease, at: since, terms: Box::default(), ready: None });
            up.into_iter().chain([Event::LeaseGone { lease, at: *at, end: *end }]).collect()
        }
    }
}

/// What is said of a worker.
pub fn worker_events(worker: &WorkerView, speed: u32) -> Vec<Event> {
    let mut events = Vec::new();
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
        // What is lost for good is told beside what is wrong now: nothing is, any more.
        if worker.trouble.as_ref().is_some_and(|trouble| trouble.kind == TroubleKind::NotReturned) {
            events.push(Event::Troubled { stint, trouble: None });
        }
        events.push(Event::Troubled { stint, trouble: worker.trouble.clone() });
    } else if let Some(trouble) = worker.trouble.as_ref().filter(|trouble| trouble.kind == TroubleKind::NotReturned) {
        // Of checkpoints rank 0 speaks for all; what is brought back is each machine's own.
        events.push(Event::Troubled { stint, trouble: Some(trouble.clone()) });
    }
    if let Some(end) = &worker.end {
        events.push(Event::WorkerEnded { stint, rank, end: end.clone(), settled: worker.settled });
    }
    events
}

/// News in an order in which each part makes sense: what is there, then what runs on it, then what is gone. A worker's
/// last words come before the end of its machine.
pub fn in_order(news: Vec<Event>, of_workers: Vec<Event>) -> Vec<Event> {
    let gone: BTreeSet<LeaseId> = news.iter().filter_map(gone_lease).collect();
    let of_gone = |event: &Event| match event {
        Event::LeaseUp { lease, .. } | Event::LeaseGone { lease, .. } => gone.contains(lease),
        _ => false,
    };
    let (last, first): (Vec<Event>, Vec<Event>) = news.into_iter().partition(of_gone);
    first.into_iter().chain(of_workers).chain(last).collect()
}

fn gone_lease(event: &Event) -> Option<LeaseId> {
    match event {
        Event::LeaseGone { lease, .. } => Some(*lease),
        _ => None,
    }
}

/// A real span as the world counts it.
fn world_time(real_ms: u64, speed: u32) -> Span {
    Span(i64::try_from(real_ms.saturating_mul(u64::from(speed))).unwrap_or(i64::MAX))
}

/// What an engine showed in one look.
#[derive(Clone, Debug, Default)]
pub struct Look {
    pub pools: Vec<Pool>,
    pub nodes: Vec<Node>,
    pub offers: Vec<Offer>,
    pub groups: Vec<SeenGroup>,
    /// All that it holds, where that was asked for.
    pub owned: Option<Result<Vec<Owned>, String>>,
}

/// Looks at an engine: what it has, and these groups.
pub async fn look(engine: &dyn Engine, groups: &[DecisionId], sweep: bool) -> Result<Look, EngineError> {
    let (pools, nodes, offers) = (engine.pools().await?, engine.nodes().await?, engine.offers().await?);
    let groups = if groups.is_empty() { Vec::new() } else { engine.observe(groups).await? };
    let owned = if sweep { Some(engine.list_owned().await.map_err(|error| error.to_string())) } else { None };
    Ok(Look { pools, nodes, offers, groups, owned })
}

/// What a look says.
#[derive(Clone, Debug, Default)]
pub struct Observation {
    pub events: Vec<Event>,
    /// Leases that were up and that it did not find.
    pub not_found: Vec<LeaseId>,
}

/// What a look at an engine says to a brain. An offer or a node that it does not show any more is not there.
pub fn observed(brain: &Brain, engine: &str, asked: &[DecisionId], look: &Look) -> Observation {
    let Look { pools, nodes, offers, groups, .. } = look;
    let mut events: Vec<Event> = pools.iter().map(|pool| Event::PoolSeen { pool: pool.clone() }).collect();
    let ours: BTreeSet<&PoolId> = brain.pools().filter(|pool| pool.engine == engine).map(|pool| &pool.id).collect();
    let shown: BTreeSet<&NodeId> = nodes.iter().map(|node| &node.id).collect();
    let gone = brain.nodes().filter(|node| ours.contains(&node.pool) && !shown.contains(&node.id));
    events.extend(gone.map(|node| Event::NodeGone { node: node.id.clone() }));
    events.extend(nodes.iter().map(|node| Event::NodeSeen { node: Box::new(node.clone()) }));
    let shown: BTreeSet<&OfferId> = offers.iter().map(|offer| &offer.id).collect();
    let gone = brain.offers().filter(|offer| offer.engine == engine && !shown.contains(&offer.id));
    events.extend(gone.map(|offer| Event::OfferGone { offer: offer.id.clone() }));
    events.extend(offers.iter().map(|offer| Event::OfferSeen { offer: offer.clone() }));
    events.extend(groups.iter().flat_map(group_events));
    let known: BTreeSet<LeaseId> = groups.iter().flat_map(|seen| &seen.leases).map(|seen| seen.lease).collect();
    let asked: BTreeSet<&DecisionId> = asked.iter().collect();
    let up = brain.leases().filter(|lease| lease.up_at.is_some() && asked.contains(&lease.id.group));
    let not_found = up.filter(|lease| !known.contains(&lease.id)).map(|lease| lease.id).collect();
    Observation { events, not_found }
}

/// News of leases that the engine holds and the log does not know: nobody will ever give them back but us.
pub fn orphans(brain: &Brain, owned: &[Owned]) -> Vec<Event> {
    let found = owned.iter().cloned();
    let found = found.map(|Owned { lease, offer, since, until, .. }| Event::LeaseFound { lease, offer, since, until });
    found.filter(|event| brain.is_news(event)).collect()
}

#[cfg(test)]
mod tests;
