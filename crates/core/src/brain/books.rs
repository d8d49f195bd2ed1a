//! The brain's side of the ledger: who has a lease at a moment, and the rows that this gives rise to.

use super::job_table::Jobs;
use super::{Brain, Job, Lease, Sharer};
use crate::ids::{LeaseId, StintId, WorkloadId};
use crate::ledger::{Beneficiary, Bought, Charge, FREE, LedgerRow, PriceLine, Share};
use crate::offer::Market;
use crate::pool::Allocation;
use crate::units::{NanoUsd, Time};
use std::collections::{BTreeMap, BTreeSet};

impl Lease {
    /// Who its time is charged to, and in which shares: stints of others their part, and all the rest the workload that
    /// it is for, or overhead where the log did not know it.
    pub(super) fn charged(&self) -> Vec<Charge> {
        let holder = self.workload.map_or(Beneficiary::Overhead, Beneficiary::Workload);
        if self.sharers.is_empty() {
            return vec![Charge::of(holder, Share::WHOLE)];
        }
        let others = self.sharers.iter();
        let others = others.map(|sharer| Charge::of(Beneficiary::Workload(sharer.stint.workload), sharer.share));
        let others: Vec<Charge> = others.collect();
        match Share::rest(others.iter().map(|charge| charge.share)) {
            Some(rest) => others.into_iter().chain([Charge::of(holder, rest)]).collect(),
            None => others,
        }
    }

    /// Workloads that have it, or a part of it.
    pub fn workloads(&self) -> impl Iterator<Item = WorkloadId> {
        self.workload.into_iter().chain(self.sharers.iter().map(|sharer| sharer.stint.workload))
    }

    /// Charges everybody who has it until `at`.
    fn charge(&mut self, at: Time, seq: u64, jobs: &Jobs, prices: &PriceLine) -> Vec<LedgerRow> {
        let charged = self.charged();
        let whose = |id| jobs.get(&id).map(Job::account);
        let bought = Bought::lease(seq, self.id, (&self.offer, prices), self.goods.as_ref());
        let Some(meter) = &mut self.meter else { return Vec::new() };
        let mut rows = meter.close(at, bought, charged, whose);
        // What its node pays for costs nothing here; what was charged before is still corrected.
        rows.retain(|row| !meter.is_free() || row.amount != NanoUsd(0));
        rows
    }

    /// What a workload owes for it by itself since the last rows were written.
    fn owed_by(&self, workload: WorkloadId, now: Time, prices: &PriceLine) -> NanoUsd {
        let Some(meter) = &self.meter else { return NanoUsd(0) };
        let owed = meter.unwritten(now, self.charged(), prices).into_iter();
        let own = owed.filter(|(charge, _)| charge.beneficiary.workload() == Some(workload));
        own.fold(NanoUsd(0), |sum, (_, amount)| sum + amount)
    }

    /// The part of it that an allocation has: by accelerators, else by cores, else all of it.
    fn share_of(&self, allocation: &Allocation) -> Share {
        let accelerators = self.accelerators();
        match &allocation.devices {
            Some(devices) if accelerators > 0 => {
                let parts = devices.iter().map(|device| device.part.fraction());
                Share::sum(parts.map(|(part, of)| Share::new(part.into(), u64::from(of) * u64::from(accelerators))))
            }
            _ if allocation.cpu_millis > 0 && self.terms.size.cpu_millis > 0 => {
                Share::new(allocation.cpu_millis.min(self.terms.size.cpu_millis), self.terms.size.cpu_millis)
            }
            _ => Share::WHOLE,
        }
    }
}

impl Brain {
    /// Charges a lease until `at`: rows for the ledger, and the same to the jobs among those who have it.
    pub(super) fn book(&mut self, id: LeaseId, at: Time, seq: u64) {
        let Some(lease) = self.leases.charge(&id) else { return };
        let prices = self.prices.get(&lease.offer).unwrap_or(&FREE);
        let (market, rows) = (lease.market, lease.charge(at, seq, &self.jobs, prices));
        self.post(rows, Some(market));
    }

    /// Takes rows into the ledger, and into the bills of the jobs among those who are charged, also where those are
    /// forgotten. All are of one market, or each is of its lease's.
    pub(super) fn post(&mut self, rows: Vec<LedgerRow>, market: Option<Market>) {
        for row in &rows {
            let Some(workload) = row.beneficiary.workload() else { continue };
            let of_lease = || row.lease.and_then(|lease| self.leases.get(&lease)).map(|lease| lease.market);
            let bought = || row.goods.as_ref().map(|goods| goods.market);
            let market = market.or_else(of_lease).or_else(bought).unwrap_or(Market::OnDemand);
            match self.jobs.charge(&workload) {
                Some(job) => {
                    job.paid += row.amount;
                    *job.paid_by.entry(market).or_default() += row.amount;
                }
                None => self.charge_departed(workload, market, row.amount),
            }
        }
        self.fresh_ledger.extend(rows);
    }

    /// Workers of a stint move in on leases of other workloads.
    pub(super) fn share_leases(&mut self, stint: StintId, allocations: &[Allocation], seq: u64) {
        let now = self.now;
        for allocation in allocations {
            let strange = |lease: &&mut Lease| lease.workload != Some(stint.workload);
            if self.leases.get_mut(&allocation.lease).filter(strange).is_none() {
                continue;
            }
            self.book(allocation.lease, now, seq);
            if let Some(lease) = self.leases.get_mut(&allocation.lease) {
                let share = lease.share_of(allocation);
                lease.sharers.push(Sharer { stint, share, since: now });
            }
            self.split_node_of(allocation.lease, seq);
        }
    }

    /// A stint is over: what it had of leases of others is theirs again.
    pub(super) fn give_shares_back(&mut self, stint: StintId) {
        let (now, seq) = (self.now, self.last_seq);
        let known = self.jobs.get(&stint.workload).and_then(|job| job.stint.as_ref());
        let leases: BTreeSet<LeaseId> = known.into_iter().flat_map(|stint| stint.leases()).collect();
        let is_shared = |id: &LeaseId| {
            self.leases.get(id).is_some_and(|lease| lease.sharers.iter().any(|sharer| sharer.stint == stint))
        };
        for id in leases.into_iter().filter(is_shared).collect::<Vec<_>>() {
            self.book(id, now, seq);
            let Some(lease) = self.leases.get_mut(&id) else { continue };
            let parts: Vec<Sharer> = lease.sharers.extract_if(.., |sharer| sharer.stint == stint).collect();
            parts.iter().for_each(|part| self.end_tenure(stint.workload, id, part.since));
            self.split_node_of(id, seq);
        }
    }

    /// Workloads that may run something on a lease.
    pub(super) fn workloads_on(&self, id: LeaseId) -> impl Iterator<Item = WorkloadId> {
        self.leases.get(&id).into_iter().flat_map(Lease::workloads)
    }

    /// Stints that run on a lease.
    pub fn stints_on(&self, id: LeaseId) -> Vec<StintId> {
        let stints = self.workloads_on(id).filter_map(|workload| self.jobs.get(&workload)?.stint.as_ref());
        stints.filter(|stint| stint.is_on(id)).map(|stint| stint.id).collect()
    }

    /// Leases that a workload has, or has a part of, and since when.
    pub(crate) fn used_by(&self, id: WorkloadId) -> impl Iterator<Item = (&Lease, Option<Time>)> {
        self.leases.used_by(id).filter_map(move |lease| {
            let shared = lease.sharers.iter().filter(|sharer| sharer.stint.workload == id).map(|sharer| sharer.since);
            match lease.workload == Some(id) {
                true => Some((lease, lease.held_since())),
                false => shared.min().map(|since| (lease, Some(since))),
            }
        })
    }

    /// What a job has cost up to `now`, leases that still run included.
    pub fn spent(&self, job: &Job, now: Time) -> NanoUsd {
        self.used_by(job.id).fold(job.paid, |sum, (lease, _)| sum + self.owed(lease, job.id, now))
    }

    /// What a workload owes for a lease since the last rows were written: for itself, and for its part of its node.
    pub(super) fn owed(&self, lease: &Lease, workload: WorkloadId, now: Time) -> NanoUsd {
        let of_node = self.node_meter(lease).map(|meter| meter.owed_by(lease.id, workload, now));
        lease.owed_by(workload, now, self.prices_of(lease)) + of_node.unwrap_or_default()
    }

    fn prices_of(&self, lease: &Lease) -> &PriceLine {
        self.prices.get(&lease.offer).unwrap_or(&FREE)
    }

    /// What a lease costs an hour by itself.
    pub(super) fn rate_of(&self, lease: &Lease) -> NanoUsd {
        let paid = lease.meter.as_ref().is_some_and(|meter| !meter.is_free());
        if paid { self.prices_of(lease).rate() } else { NanoUsd(0) }
    }

    /// What a lease costs a workload an hour.
    pub(super) fn hourly(&self, lease: &Lease, workload: WorkloadId) -> NanoUsd {
        let rate = self.rate_of(lease);
        let own = lease.charged().into_iter().filter(|charge| charge.beneficiary.workload() == Some(workload));
        let own = own.fold(NanoUsd(0), |sum, charge| sum + charge.share.of_rate(rate));
        let of_node = self.node_meter(lease).map(|meter| meter.hourly(lease.id, Some(workload)));
        own + of_node.unwrap_or_default()
    }

    /// What a lease costs an hour, whoever pays for it.
    pub(super) fn hourly_of_all(&self, lease: &Lease) -> NanoUsd {
        let own = self.rate_of(lease);
        let of_node = self.node_meter(lease).map(|meter| meter.hourly(lease.id, None));
        own + of_node.unwrap_or_default()
    }

    /// The leases of each engine that are up, and what they cost an hour.
    pub fn up_by_engine(&self) -> BTreeMap<String, (u64, NanoUsd)> {
        let mut up: BTreeMap<String, (u64, NanoUsd)> = BTreeMap::new();
        for lease in self.leases.values().filter(|lease| lease.up_at.is_some()) {
            let (count, hourly) = up.entry(lease.offer.engine().to_owned()).or_default();
            *count += 1;
            *hourly += self.hourly_of_all(lease);
        }
        up
    }

    /// The rows that would be written if every lease and every node were charged until `now`, and nothing more came of them: what the
    /// ledger does not show yet. Nothing is changed.
    pub fn open_ledger(&self, now: Time) -> Vec<LedgerRow> {
        let up = self.leases.values().filter(|lease| lease.meter.as_ref().is_some_and(|meter| meter.upto < now));
        let of_leases =
            up.flat_map(|lease| lease.clone().charge(now, self.last_seq, &self.jobs, self.prices_of(lease)));
        of_leases.chain(self.open_of_nodes(now)).collect()
    }
}
