//! A third reader of the log: whether the server behaved. It knows nothing of the brain. News is told once; nothing new
//! is asked for while something old is on its way back; whoever is cancelled gets nothing new; a job that has ended
//! gives everything back at once, but for what its last save still needs.

use std::collections::{BTreeMap, BTreeSet};
use windfall_core::{
    Body, CheckpointId, Decision, Event, LeaseId, Offer, OfferId, Span, StintId, Time, Trouble, Work, WorkloadId,
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
    started: BTreeSet<u32>,
    /// Ranks that have ended, and whether what they saved last is stored.
    ended: BTreeMap<u32, bool>,
    ended_at: Option<Time>,
    progress: Option<(Work, Option<Work>)>,
    trouble: Option<Trouble>,
}

struct Lease {
    workload: Option<WorkloadId>,
    batch: u64,
    up: bool,
    noticed: bool,
    at_risk: bool,
    released: bool,
}

/// What the log says of everybody's conduct.
#[derive(Default)]
pub(crate) struct Conduct {
    jobs: BTreeMap<WorkloadId, Job>,
    leases: BTreeMap<LeaseId, Lease>,
    offers: BTreeMap<OfferId, Offer>,
    now: Time,
}

fn stale(what: impl std::fmt::Debug) -> Result<(), Broken> {
    Err((14, format!("logged, and no news: {what:?}")))
}

impl Conduct {
    /// Takes a row in; a violated law comes back.
    pub fn row(&mut self, seq: u64, batch: u64, at: Time, body: &Body) -> Result<(), Broken> {
        self.now = at;
        match body {
            Body::Event(event) if self.is_news(event) => {
                self.event(seq, event);
                Ok(())
            }
            Body::Event(event) => stale(event),
            Body::Decision(decision, _) => self.decision(batch, decision),
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
            Event::CancelRequested { workload, .. } => self.jobs.get(workload).is_some_and(|job| !job.cancelled),
            Event::LeaseUp { lease: id, .. } | Event::LeaseFailed { lease: id, .. } => lease(id).is_some_and(|l| !l.up),
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
            Event::Configured { .. } | Event::Submitted { .. } | Event::BudgetSet { .. } | Event::LeaseFound { .. } => {
                true
            }
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
            Event::CancelRequested { workload, .. } => self.change(workload, |job| job.cancelled = true),
            Event::StoreChecked { workload, .. } => self.change(workload, |job| job.looked_at_store = false),
            Event::LeaseUp { lease, .. } => self.mark(lease, |lease| lease.up = true),
            Event::LeaseNoticed { lease, .. } => self.mark(lease, |lease| lease.noticed = true),
            Event::LeaseAtRisk { lease } => self.mark(lease, |lease| lease.at_risk = true),
            Event::LeaseFailed { lease, .. } | Event::LeaseGone { lease, .. } => self.gone(*lease),
            Event::LeaseFound { lease, since, until, .. } if until.is_none() => {
                let found = Lease {
                    workload: None,
                    batch: 0,
                    up: since.is_some(),
                    noticed: false,
                    at_risk: false,
                    released: false,
                };
                self.leases.insert(*lease, found);
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
            Event::Configured { .. } | Event::LeaseFound { .. } | Event::BudgetSet { .. } => {}
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
        let Some(workload) = self.leases.remove(&id).and_then(|lease| lease.workload) else { return };
        let now = self.now;
        if let Some(stint) = self.jobs.get_mut(&workload).and_then(|job| job.stint.as_mut())
            && let Some(rank) = stint.leases.iter().position(|lease| *lease == id)
        {
            stint.ended.insert(rank as u32, true);
            if stint.ended.len() == stint.leases.len() {
                stint.ended_at.get_or_insert(now);
            }
        }
    }

    fn decision(&mut self, batch: u64, decision: &Decision) -> Result<(), Broken> {
        match decision {
            Decision::Acquire { lease, workload, .. } => {
                self.may_have_more(workload, "asked for a lease")?;
                let old =
                    self.leases.iter().find(|(_, known)| known.workload == Some(*workload) && known.batch != batch);
                if let Some((old, _)) = old {
                    return Err((5, format!("job {workload} asked for {lease} while {old} is not gone")));
                }
                let new = Lease {
                    workload: Some(*workload),
                    batch,
                    up: false,
                    noticed: false,
                    at_risk: false,
                    released: false,
                };
                self.leases.insert(*lease, new);
            }
            Decision::Release { lease } => self.mark(lease, |lease| lease.released = true),
            Decision::Start { stint, leases, .. } => {
                self.may_have_more(&stint.workload, "started")?;
                let stint = Stint {
                    id: *stint,
                    leases: leases.clone(),
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
