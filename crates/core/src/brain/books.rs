//! The brain's side of the ledger: who has a lease at a moment, and the rows that this gives rise to.

use super::{Brain, Job, Lease};
use crate::ids::WorkloadId;
use crate::ledger::{Account, Beneficiary, Bought, LedgerRow, Share};
use crate::units::Time;
use std::collections::BTreeMap;

impl Lease {
    /// Who its time is charged to, and in which shares: all of it to the workload that it is for, or to overhead where
    /// the log did not know it.
    fn charged(&self) -> Vec<(Beneficiary, Share)> {
        vec![(self.workload.map_or(Beneficiary::Overhead, Beneficiary::Workload), Share::WHOLE)]
    }

    /// Charges everybody who has it until `at`.
    pub(super) fn charge(&mut self, at: Time, seq: u64, jobs: &BTreeMap<WorkloadId, Job>) -> Vec<LedgerRow> {
        let charged = self.charged();
        let known = charged.iter().filter_map(|(beneficiary, _)| jobs.get(&beneficiary.workload()?));
        let accounts: Vec<Account> = known.map(|job| Account::of(job.id, &job.spec)).collect();
        let bought = Bought { seq, lease: self.id, offer: &self.offer, goods: self.goods.as_ref() };
        self.meter.as_mut().map(|meter| meter.close(at, bought, &charged, accounts)).unwrap_or_default()
    }
}

impl Brain {
    /// The rows that would be written if every lease were charged until `now`, and nothing more came of them: what the
    /// ledger does not show yet. Nothing is changed.
    pub fn open_ledger(&self, now: Time) -> Vec<LedgerRow> {
        let up = self.leases.values().filter(|lease| lease.meter.as_ref().is_some_and(|meter| meter.upto < now));
        up.flat_map(|lease| lease.clone().charge(now, self.last_seq, &self.jobs)).collect()
    }
}
