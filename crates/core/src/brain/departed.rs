//! Bills that late news can still change. An engine may say much later that a lease was gone before somebody left it: what
//! was counted after that is taken back, also from a job that is forgotten by then. Its last view is written again. A step
//! looks at those who had the lease, never at everybody who is forgotten.

use super::Brain;
use crate::ids::{LeaseId, WorkloadId};
use crate::offer::Market;
use crate::units::{NanoUsd, Span, Time};
use crate::view::JobView;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::sync::Arc;

/// A time in which a workload had a lease, or a part of it. It ended while the lease stayed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tenure {
    pub workload: WorkloadId,
    pub since: Time,
    pub until: Time,
}

impl Tenure {
    /// How much of it was counted though the lease was gone.
    fn beyond(&self, end: Time) -> Span {
        Span((self.until - self.since.max(end)).0.max(0))
    }
}

/// A job that is forgotten while late news can still change its bill.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Departed {
    /// As it was last written.
    view: JobView,
    /// Its tenures on leases that are still there.
    tenures: u32,
}

impl Brain {
    /// A workload has had a lease, or a part of it, until now. The lease is charged until now.
    pub(super) fn end_tenure(&mut self, workload: WorkloadId, id: LeaseId, since: Time) {
        let (until, Some(lease)) = (self.now, self.leases.charge(&id)) else { return };
        let Some(job) = self.jobs.get_mut(&workload).filter(|_| since < until) else { return };
        *job.held.entry(lease.market).or_default() += until - since;
        let Some(meter) = &lease.meter else { return };
        job.tenures += 1;
        lease.tenures.push(Tenure { workload, since, until });
        // In the order of their ends. A lease may live for years: what its meter has forgotten nobody can take back.
        let forgotten = lease.tenures.partition_point(|tenure| tenure.until <= meter.known_since());
        let forgotten: Vec<Tenure> = lease.tenures.drain(..forgotten).collect();
        self.forget_tenures(&forgotten);
    }

    /// A job is about to be forgotten; its last view is written.
    pub(super) fn depart(&mut self, workload: WorkloadId) {
        let Some(view) = self.view(workload, self.now) else { return };
        let tenures = self.jobs.get(&workload).map_or(0, |job| job.tenures);
        if tenures > 0 {
            self.departed.insert(workload, Arc::new(Departed { view: view.clone(), tenures }));
        }
        self.final_views.push(view);
    }

    /// Charges a job that is forgotten for something, or gives it money back.
    pub(super) fn charge_departed(&mut self, workload: WorkloadId, market: Market, amount: NanoUsd) {
        if let Some(departed) = self.departed.get_mut(&workload) {
            Arc::make_mut(departed).view.count(market, Span::ZERO, amount);
        }
    }

    /// A lease is gone since `end`: who had it after that had it for less long, and the money is taken back already. Last
    /// views that this changes are written again.
    pub(super) fn correct_tenures(&mut self, market: Market, end: Time, tenures: &[Tenure]) {
        let mut corrected = BTreeSet::new();
        for tenure in tenures.iter().rev().take_while(|tenure| tenure.until > end) {
            let less = Span(-tenure.beyond(end).0);
            if let Some(job) = self.jobs.charge(&tenure.workload) {
                *job.held.entry(market).or_default() += less;
            } else if let Some(departed) = self.departed.get_mut(&tenure.workload) {
                Arc::make_mut(departed).view.count(market, less, NanoUsd(0));
                corrected.insert(tenure.workload);
            }
        }
        let corrected = corrected.iter().filter_map(|workload| self.departed.get(workload));
        self.final_views.extend(corrected.map(|departed| departed.view.clone()));
        self.forget_tenures(tenures);
    }

    /// Nothing can change these any more.
    fn forget_tenures(&mut self, tenures: &[Tenure]) {
        for Tenure { workload, .. } in tenures {
            if let Some(job) = self.jobs.charge(workload) {
                job.tenures = job.tenures.saturating_sub(1);
            } else if let Some(departed) = self.departed.get_mut(workload).map(Arc::make_mut) {
                departed.tenures = departed.tenures.saturating_sub(1);
                if departed.tenures == 0 {
                    self.departed.remove(workload);
                }
            }
        }
    }

    /// How many tenures each job is believed to have that can still change, forgotten or not: for the laws.
    pub(crate) fn tenures(&self) -> impl Iterator<Item = (WorkloadId, u32)> {
        let jobs = self.jobs.iter().map(|(id, job)| (*id, job.tenures)).filter(|(_, tenures)| *tenures > 0);
        jobs.chain(self.departed.iter().map(|(id, departed)| (*id, departed.tenures)))
    }
}
