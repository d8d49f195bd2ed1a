//! A third reader of the log: whether the server behaved. It knows nothing of the brain. News is told once; nothing new
//! is asked for while something old is on its way back; whoever is cancelled gets nothing new; a job that has ended
//! gives everything back at once, but for what its last save still needs.

use std::collections::{BTreeMap, BTreeSet};
use windfall_core::pool::{Device, DevicePart};
use windfall_core::{
    Allocation, Body, CheckpointId, Decision, DecisionId, Event, LeaseId, Offer, OfferId, Pool, PoolId, Span, StintId,
    Time, Trouble, Work, WorkloadId,
};

/// A job that has ended may hold its leases for so long while its last save is stored.
const LAST_SAVE: Span = Span::minutes(12);

type Broken = (u8, String);

#[derive(Default)]
struct Job {
    cancelled: bool,
    ended: bool,
    checkpoint: Option<CheckpointId>,
    looked_at_store: bool,
    stint: Option<Stint>,
}

struct Stint {
    id: StintId,
    leases: Vec<LeaseId>,
    /// What each rank has of its lease; none for all of it.
    devices: Vec<Option<Vec<Device>>>,
    started: BTreeSet<u32>,
    /// Ranks that have ended, and whether what they saved last is stored.
    ended: BTreeMap<u32, bool>,
    ended_at: Option<Time>,
    progress: Option<(Work, Option<Work>)>,
    trouble: Option<Trouble>,
}

#[derive(Default)]
struct Lease {
    engine: String,
    workload: Option<WorkloadId>,
    batch: u64,
    up: bool,
    ready: bool,
    noticed: bool,
    at_risk: bool,
    released: bool,
}

/// What the log says of everybody's conduct.
#[derive(Default)]
pub(crate) struct Conduct {
    jobs: BTreeMap<WorkloadId, Job>,
    leases: BTreeMap<LeaseId, Lease>,
    /// How many leases each group was granted, once that is known.
    groups: BTreeMap<DecisionId, Option<u32>>,
    pools: BTreeMap<PoolId, Pool>,
    offers: BTreeMap<OfferId, Offer>,
    silent: BTreeSet<String>,
    now: Time,
    /// Starts beside another workload on one lease.
    pub neighbours: u64,
    /// Starts on a share of an accelerator, beside another workload on the same machine.
    pub sharers_of_devices: u64,
}

/// Whether what several have of one machine is there at once; who has no list has all of it.
pub(crate) fn fit_together<'a>(all: impl Iterator<Item = Option<&'a [Device]>>) -> bool {
    let mut given: BTreeMap<u32, u64> = BTreeMap::new();
    for devices in all {
        let Some(devices) = devices else { return false };
        for device in devices {
            *given.entry(device.number).or_default() += u64::from(device.part.units());
        }
    }
    given.values().all(|units| *units <= u64::from(DevicePart::UNITS))
}

fn stale(what: impl std::fmt::Debug) -> Result<(), Broken> {
    Err((14, format!("logged, and no news: {what:?}")))
}

impl Conduct {
    /// Takes a row in; a violated law comes back.
    pub fn row(&mut self, id: DecisionId, batch: u64, at: Time, body: &Body) -> Result<(), Broken> {
        self.now = at;
        match body {
            Body::Event(event) if self.is_news(event) => {
                self.event(id.seq, event);
                Ok(())
            }
            Body::Event(event) => stale(event),
            Body::Decision(decision, reason) => self.decision(id, batch, decision, &reason.rule),
        }
    }

    fn stint(&self, id: &StintId) -> Option<&Stint> {
        self.jobs.get(&id.workload)?.stint.as_ref().filter(|stint| stint.id == *id)
    }

    fn is_news(&self, event: &Event) -> bool {
        let lease = |id: &LeaseId| self.leases.get(id);
        match event {
            Event::OfferSeen { offer } => self.offers.get(&offer.id) != Some(offer),
            Event::OfferGone { offer } => self.offers.contains_key(offer),
            Event::EngineSilent { engine, .. } => !self.silent.contains(engine),
            Event::EngineAnswers { engine } => self.silent.contains(engine),
            Event::CancelRequested { workload, .. } => self.jobs.get(workload).is_some_and(|job| !job.cancelled),
            Event::PoolSeen { pool } => self.pools.get(&pool.id) != Some(pool),
            Event::NodeSeen { .. } | Event::NodeGone { .. } => true,
            Event::GroupQueued { group, .. } => self.groups.get(group).is_some_and(|granted| granted.is_none()),
            Event::GroupGranted { group, units, .. } => {
                self.groups.get(group).is_some_and(|granted| granted.is_none_or(|known| *units < known))
            }
            Event::GroupFailed { group, .. } => {
                self.leases.iter().any(|(id, _)| id.group == *group)
                    && self.leases.iter().all(|(id, lease)| id.group != *group || !lease.up)
            }
            Event::LeaseUp { lease: id, .. } => lease(id).is_some_and(|lease| !lease.up),
            Event::LeaseReady { lease: id, .. } => lease(id).is_some_and(|lease| !lease.ready),
            Event::LeaseNoticed { lease: id, .. } => lease(id).is_some_and(|lease| !lease.noticed),
            Event::LeaseAtRisk { lease: id } => lease(id).is_some_and(|lease| !lease.at_risk),
            Event::LeaseGone { lease: id, .. } => lease(id).is_some(),
            Event::WorkerStarted { stint, rank, .. } => {
                let known = self.stint(stint);
                known.is_some_and(|s| !s.started.contains(rank) && !s.ended.contains_key(rank))
            }
            Event::WorkerEnded { stint, rank, settled, .. } => {
                self.stint(stint).is_some_and(|s| s.ended.get(rank).is_none_or(|known| *settled && !known))
            }
            Event::Progress { stint, done, total } => {
                self.stint(stint).is_some_and(|s| s.progress.is_none_or(|known| known != (*done, *total)))
            }
            Event::CheckpointDurable { stint, checkpoint, .. } => {
                self.jobs.get(&stint.workload).is_some_and(|job| Some(*checkpoint) > job.checkpoint)
            }
            Event::Troubled { stint, trouble } => self.stint(stint).is_some_and(|stint| stint.trouble != *trouble),
            Event::StoreChecked { workload, .. } => self.jobs.get(workload).is_some_and(|job| job.looked_at_store),
            Event::Configured { .. }
            | Event::Submitted { .. }
            | Event::BudgetSet { .. }
            | Event::GiveUpRequested { .. }
            | Event::LeaseFound { .. } => true,
        }
    }

    fn event(&mut self, seq: u64, event: &Event) {
        match event {
            Event::Submitted { id, .. } => {
                self.jobs.insert(id.unwrap_or(WorkloadId(seq)), Job::default());
            }
            Event::OfferSeen { offer } => {
                self.offers.insert(offer.id.clone(), offer.clone());
            }
            Event::OfferGone { offer } => {
                self.offers.remove(offer);
            }
            Event::EngineSilent { engine, .. } => {
                self.silent.insert(engine.clone());
            }
            Event::EngineAnswers { engine } => {
                self.silent.remove(engine);
            }
            Event::CancelRequested { workload, .. } => self.change(workload, |job| job.cancelled = true),
            Event::StoreChecked { workload, .. } => self.change(workload, |job| job.looked_at_store = false),
            Event::PoolSeen { pool } => {
                self.pools.insert(pool.id.clone(), pool.clone());
            }
            Event::GroupQueued { .. } => {}
            Event::GroupGranted { group, units, .. } => {
                self.groups.insert(*group, Some(*units));
                self.leases.retain(|id, lease| id.group != *group || id.slot < *units || lease.up);
            }
            Event::GroupFailed { group, .. } => {
                let leases: Vec<LeaseId> = self.leases.keys().copied().filter(|id| id.group == *group).collect();
                leases.into_iter().for_each(|lease| self.gone(lease));
            }
            Event::LeaseUp { lease, ready, .. } => {
                let granted = self.groups.entry(lease.group).or_default();
                granted.get_or_insert(u32::MAX);
                self.mark(lease, |lease| (lease.up, lease.ready) = (true, lease.ready || ready.is_some()));
            }
            Event::LeaseReady { lease, .. } => self.mark(lease, |lease| lease.ready = true),
            Event::LeaseNoticed { lease, .. } => self.mark(lease, |lease| lease.noticed = true),
            Event::LeaseAtRisk { lease } => self.mark(lease, |lease| lease.at_risk = true),
            Event::LeaseGone { lease, .. } => self.gone(*lease),
            Event::LeaseFound { lease, since, until, .. } if until.is_none() => {
                self.leases.insert(*lease, Lease { up: since.is_some(), ..Lease::default() });
            }
            Event::WorkerStarted { stint, rank, .. } => self.in_stint(stint, |s, _| {
                s.started.insert(*rank);
            }),
            Event::WorkerEnded { stint, rank, settled, .. } => self.in_stint(stint, |s, now| {
                s.ended.insert(*rank, *settled);
                if s.ended.len() == s.leases.len() {
                    s.ended_at.get_or_insert(now);
                }
            }),
            Event::Progress { stint, done, total } => {
                self.in_stint(stint, |stint, _| stint.progress = Some((*done, *total)));
            }
            Event::Troubled { stint, trouble } => self.in_stint(stint, |stint, _| stint.trouble = trouble.clone()),
            Event::CheckpointDurable { stint, checkpoint, .. } => {
                self.change(&stint.workload, |job| job.checkpoint = Some(*checkpoint));
            }
            Event::Configured { .. }
            | Event::NodeSeen { .. }
            | Event::NodeGone { .. }
            | Event::LeaseFound { .. }
            | Event::GiveUpRequested { .. }
            | Event::BudgetSet { .. } => {}
        }
    }

    fn change(&mut self, id: &WorkloadId, change: impl FnOnce(&mut Job)) {
        if let Some(job) = self.jobs.get_mut(id) {
            change(job);
        }
    }

    fn mark(&mut self, id: &LeaseId, mark: impl FnOnce(&mut Lease)) {
        if let Some(lease) = self.leases.get_mut(id) {
            mark(lease);
        }
    }

    fn in_stint(&mut self, id: &StintId, change: impl FnOnce(&mut Stint, Time)) {
        let now = self.now;
        let stint = self.jobs.get_mut(&id.workload).and_then(|job| job.stint.as_mut());
        if let Some(stint) = stint.filter(|stint| stint.id == *id) {
            change(stint, now);
        }
    }

    fn gone(&mut self, id: LeaseId) {
        self.leases.remove(&id);
        let now = self.now;
        for stint in self.jobs.values_mut().filter_map(|job| job.stint.as_mut()) {
            let Some(rank) = stint.leases.iter().position(|lease| *lease == id) else { continue };
            stint.ended.insert(rank as u32, true);
            if stint.ended.len() == stint.leases.len() {
                stint.ended_at.get_or_insert(now);
            }
        }
    }

    fn decision(&mut self, id: DecisionId, batch: u64, decision: &Decision, rule: &str) -> Result<(), Broken> {
        match decision {
            Decision::Acquire { want } => {
                let workload = &want.workload;
                self.may_have_more(workload, "asked for leases")?;
                let stint = self.jobs.get(workload).and_then(|job| job.stint.as_ref());
                let runs_on = |lease: &LeaseId| stint.is_some_and(|stint| stint.leases.contains(lease));
                if let Some(other) = want.beside.iter().find(|lease| !runs_on(lease)) {
                    return Err((3, format!("job {workload} asked for {id} beside {other}, on which it does not run")));
                }
                let old = self.leases.iter().find(|(lease, known)| {
                    known.workload == Some(*workload)
                        && known.batch != batch
                        && !self.silent.contains(&known.engine)
                        && !want.beside.contains(lease)
                });
                if let Some((old, _)) = old {
                    return Err((5, format!("job {workload} asked for {id} while {old} is not gone")));
                }
                self.groups.insert(id, None);
                let engine = want.alternatives.first().map(|first| first.offer.engine().to_owned());
                let engine = engine.unwrap_or_default();
                for slot in 0..want.units {
                    let new = Lease { workload: Some(*workload), batch, engine: engine.clone(), ..Lease::default() };
                    self.leases.insert(LeaseId { group: id, slot }, new);
                }
            }
            Decision::Release { group, slots } => {
                for lease in slots.iter().map(|slot| LeaseId { group: *group, slot: *slot }) {
                    self.may_go(lease, rule)?;
                    self.mark(&lease, |lease| lease.released = true);
                }
            }
            Decision::HandOver { lease, to } => {
                let runs = |job: &Job| job.stint.as_ref().is_some_and(|stint| stint.leases.contains(lease));
                if !self.jobs.get(to).is_some_and(runs) {
                    return Err((5, format!("{lease} was handed over to job {to}, which does not run there")));
                }
                self.mark(lease, |lease| lease.workload = Some(*to));
            }
            Decision::Start { stint, allocations, .. } => {
                self.may_have_more(&stint.workload, "started")?;
                allocations.iter().try_for_each(|part| self.is_free(stint, part))?;
                let stint = Stint {
                    id: *stint,
                    leases: allocations.iter().map(|part| part.lease).collect(),
                    devices: allocations.iter().map(|part| part.devices.clone()).collect(),
                    started: BTreeSet::new(),
                    ended: BTreeMap::new(),
                    ended_at: None,
                    progress: None,
                    trouble: None,
                };
                self.change(&stint.id.workload.clone(), |job| job.stint = Some(stint));
            }
            Decision::CheckStore { workload } => self.change(workload, |job| job.looked_at_store = true),
            Decision::End { workload, .. } => self.change(workload, |job| job.ended = true),
            Decision::Checkpoint { .. } | Decision::Stop { .. } | Decision::Pause { .. } | Decision::Notify { .. } => {}
        }
        Ok(())
    }

    fn may_have_more(&self, workload: &WorkloadId, what: &str) -> Result<(), Broken> {
        match self.jobs.get(workload) {
            Some(job) if job.cancelled => Err((15, format!("job {workload} was cancelled, and {what} after that"))),
            Some(job) if job.ended => Err((1, format!("job {workload} has ended, and {what} after that"))),
            _ => Ok(()),
        }
    }

    /// Law 19: a machine is not given back under somebody else, but where something on it is out of reach.
    fn may_go(&self, lease: LeaseId, rule: &str) -> Result<(), Broken> {
        let holder = self.leases.get(&lease).and_then(|lease| lease.workload);
        let runs = |stint: &Stint| {
            let mut ranks = stint.leases.iter().zip(0..);
            ranks.any(|(known, rank)| *known == lease && !stint.ended.contains_key(&rank))
        };
        let others = self.jobs.iter().filter(|(id, _)| holder.is_some_and(|holder| **id != holder));
        let guest = others.filter_map(|(id, job)| Some((id, job.stint.as_ref()?))).find(|(_, stint)| runs(stint));
        match guest.filter(|_| !["stop-overrun", "last-save", "notice-overrun"].contains(&rule)) {
            Some((other, _)) => Err((19, format!("{lease} is given back ({rule}) while job {other} runs on it"))),
            None => Ok(()),
        }
    }

    /// Law 19: what a stint gets of a lease, nobody else has.
    fn is_free(&mut self, stint: &StintId, part: &Allocation) -> Result<(), Broken> {
        if self.leases.get(&part.lease).is_some_and(|lease| lease.released) {
            return Err((5, format!("stint {stint} was started on {}, which is given back", part.lease)));
        }
        let mut there: Vec<Option<&[Device]>> = Vec::new();
        let others = self.jobs.iter().filter(|(id, _)| **id != stint.workload);
        for known in others.filter_map(|(_, job)| job.stint.as_ref()) {
            let ranks = known.leases.iter().zip(&known.devices).zip(0..);
            let here = ranks.filter(|((lease, _), rank)| **lease == part.lease && !known.ended.contains_key(rank));
            there.extend(here.map(|((_, theirs), _)| theirs.as_deref()));
        }
        self.neighbours += there.len() as u64;
        let own = part.devices.as_deref();
        let theirs = || there.iter().copied().flatten().flatten().map(|device| device.number);
        let on_one = own.into_iter().flatten().any(|device| theirs().any(|number| number == device.number));
        self.sharers_of_devices += u64::from(on_one);
        if !there.is_empty() && !fit_together(there.into_iter().chain([own])) {
            return Err((19, format!("stint {stint} got devices of {} that others have", part.lease)));
        }
        Ok(())
    }

    /// Jobs that somebody cancelled.
    pub fn cancelled(&self) -> u64 {
        self.jobs.values().filter(|job| job.cancelled).count() as u64
    }

    /// What must hold between two batches.
    pub fn batch_over(&self) -> Result<u64, Broken> {
        let mut seen = 0;
        for (id, lease) in self.leases.iter().filter(|(_, lease)| !lease.released) {
            let job = lease.workload.and_then(|workload| self.jobs.get(&workload)).filter(|job| job.ended);
            let Some(job) = job else { continue };
            seen += 1;
            let storing = job.stint.as_ref().and_then(|stint| {
                let storing = stint.ended.values().any(|settled| !settled);
                stint.ended_at.filter(|_| storing)
            });
            if storing.is_none_or(|since| self.now > since + LAST_SAVE) {
                return Err((5, format!("the job of {id} has ended, and it is not given back")));
            }
        }
        Ok(seen)
    }
}
