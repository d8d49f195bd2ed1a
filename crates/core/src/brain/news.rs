//! What is news: engines and agents report states again and again, and only what changes something is logged.

use super::{Brain, Job, LeasePhase, Verdict};
use crate::ids::StintId;
use crate::record::Event;
use crate::units::{Span, Time};
use crate::want::GroupPhase;

impl Brain {
    /// Whether an event would change anything: what is not news is not logged.
    pub fn is_news(&self, event: &Event) -> bool {
        let stint_of =
            |id: &StintId| self.jobs.get(&id.workload).and_then(|job| job.stint.as_ref()).filter(|s| s.id == *id);
        match event {
            // A log begins with it, also where it is the usual one.
            Event::Configured { config } => self.config != **config || self.last_seq == 0,
            Event::Submitted { key, .. } => self.submitted_as(key).is_none(),
            Event::CancelRequested { workload, .. } => {
                // One whose program is done ends by itself: only its last save may still be on its way.
                let open = |job: &Job| job.ended.is_none() && job.verdict != Some(Verdict::Done);
                self.jobs.get(workload).is_some_and(|job| job.cancelled_by.is_none() && open(job))
            }
            Event::GiveUpRequested { workload, .. } => {
                let ends = |job: &Job| job.cancelled_by.is_some() || job.ended.is_some() || job.verdict.is_some();
                self.jobs.get(workload).is_some_and(|job| !job.given_up && job.stint.is_some() && ends(job))
            }
            Event::BudgetSet { workload, budget, .. } => {
                let live = self.jobs.get(workload).filter(|job| job.ended.is_none());
                let valid = budget.is_none_or(|budget| budget.0 > 0);
                valid && live.is_some_and(|job| job.paused || job.spec.budget != *budget)
            }
            Event::OfferSeen { offer } => self.offers.get(&offer.id) != Some(offer),
            Event::OfferGone { offer } => self.offers.contains_key(offer),
            Event::EngineSilent { engine, .. } => !self.silent_engines.contains_key(engine),
            Event::EngineAnswers { engine } => self.silent_engines.contains_key(engine),
            Event::PoolSeen { pool } => self.pools.get(&pool.id) != Some(pool),
            Event::NodeSeen { node } => self.nodes.get(&node.id) != Some(&**node),
            Event::NodeGone { node } => self.nodes.contains_key(node),
            Event::GroupQueued { group, eta, .. } => self.groups.get(group).is_some_and(|group| match group.phase {
                GroupPhase::Asked => true,
                GroupPhase::Queued { eta: known, .. } => is_another_eta(known, *eta),
                GroupPhase::Granted { .. } => false,
            }),
            Event::GroupGranted { group, units, .. } => self.groups.get(group).is_some_and(|group| match group.phase {
                GroupPhase::Asked | GroupPhase::Queued { .. } => true,
                GroupPhase::Granted { units: known, .. } => *units < known,
            }),
            Event::GroupFailed { group, .. } => {
                self.groups.contains_key(group) && self.leases_in(*group).all(|lease| lease.meter.is_none())
            }
            Event::LeaseUp { lease, .. } => self.leases.get(lease).is_some_and(|l| l.meter.is_none()),
            Event::LeaseReady { lease, address } => {
                self.leases.get(lease).is_some_and(|lease| lease.ready.as_ref() != Some(address))
            }
            Event::LeaseNoticed { lease, .. } => {
                self.leases.get(lease).is_some_and(|l| matches!(l.phase, LeasePhase::Up | LeasePhase::Asked))
            }
            Event::LeaseAtRisk { lease } => self.leases.get(lease).is_some_and(|l| l.at_risk_since.is_none()),
            Event::LeaseGone { lease, .. } => self.leases.contains_key(lease),
            Event::LeaseFound { lease, since, until, .. } => {
                let strange = lease.group.installation == self.installation && !self.leases.contains_key(lease);
                strange && until.is_none_or(|_| since.is_some_and(|since| !self.is_booked(*lease, since)))
            }
            Event::WorkerStarted { stint, rank, .. } => stint_of(stint)
                .and_then(|s| s.workers.get(*rank as usize))
                .is_some_and(|worker| !worker.started && worker.end.is_none()),
            Event::WorkerEnded { stint, rank, settled, .. } => stint_of(stint)
                .and_then(|s| s.workers.get(*rank as usize))
                .is_some_and(|worker| worker.end.is_none() || (*settled && !worker.settled)),
            Event::Troubled { stint, trouble } => {
                stint_of(stint).is_some_and(|stint| stint.would_learn(trouble.as_ref()))
            }
            Event::StoreChecked { workload, .. } => self
                .jobs
                .get(workload)
                .is_some_and(|job| job.store_away.as_ref().is_some_and(|away| away.asked.is_some())),
            Event::Progress { stint, done, total } => match (stint_of(stint), self.jobs.get(&stint.workload)) {
                (Some(s), Some(job)) => {
                    let own = job.in_own_unit(*done, *total);
                    own.is_some_and(|work| s.reported.is_none_or(|(_, known)| work > known))
                        || (total.is_some() && job.progress.total != *total)
                }
                _ => false,
            },
            Event::CheckpointDurable { stint, checkpoint, .. } => {
                stint_of(stint).is_some()
                    && self.jobs.get(&stint.workload).is_some_and(|job| Some(*checkpoint) > job.progress.checkpoint)
            }
        }
    }

    /// Whether progress tells enough to be logged by itself, and not only together with what it leads to: a first word,
    /// another total, or a share of the whole.
    pub fn is_telling(&self, event: &Event) -> bool {
        const SHARE: u64 = 500;
        let Event::Progress { stint, done, total } = event else { return true };
        let Some(job) = self.jobs.get(&stint.workload) else { return false };
        let known = job.stint.as_ref().filter(|known| known.id == *stint).and_then(|known| known.reported);
        let (Some((_, known)), Some(work)) = (known, job.in_own_unit(*done, *total)) else { return true };
        let whole = job.total().unwrap_or(known).0;
        (total.is_some() && job.progress.total != *total) || work.minus(known).0 >= (whole / SHARE).max(1)
    }
}

/// Engines guess anew at every look: only a guess that differs by more than this is news.
const OTHER_ETA: Span = Span::minutes(10);

fn is_another_eta(known: Option<Time>, eta: Option<Time>) -> bool {
    match (known, eta) {
        (Some(known), Some(eta)) => (eta - known).0.unsigned_abs() > OTHER_ETA.0.unsigned_abs(),
        (known, eta) => known != eta,
    }
}
