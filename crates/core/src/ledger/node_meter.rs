//! Counts what one node costs, from seen until gone, whether it is used or not: leases on it have their parts, then what
//! work that is not ours uses, and what is left is idle, not ready or drained. Late news of a lease is charged for its own
//! time: what nobody of ours was charged for goes to the lease, or the other way round, and nobody else's bill changes.

use super::{Account, Beneficiary, Bought, Charge, Goods, LedgerRow, Meter, PriceLine, Share, share};
use crate::ids::{LeaseId, NodeId, WorkloadId};
use crate::units::{NanoUsd, Time};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// Stretches that late news can still change. Stretches are closed by news only, so these reach back over any time in
/// which there was none; a node in a cluster lives for years, so all of them cannot be kept.
const REMEMBERED: usize = 16;

/// Counts what one node costs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeMeter {
    meter: Meter,
    prices: PriceLine,
    goods: Arc<Goods>,
    /// Who has what of it now; what this leaves is the meter's spare.
    charged: Vec<Charge>,
    /// Whether it is gone: late news of leases may still come.
    ended: bool,
}

/// What a node costs an hour, and for whom.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Split {
    pub rate: NanoUsd,
    pub goods: Arc<Goods>,
    /// Leases on it, each with its parts, and then what is not ours. None has more than those before it leave.
    pub charged: Vec<Charge>,
    /// Who is charged for the rest.
    pub spare: Beneficiary,
}

/// Parts of a node one after the other: nobody has more than is left.
pub fn dealt(wanted: impl IntoIterator<Item = Charge>) -> Vec<Charge> {
    let mut charged: Vec<Charge> = Vec::new();
    for charge in wanted {
        let taken = charged.iter().map(|charge| charge.share);
        let Some(left) = Share::rest(taken) else { break };
        let share = charge.share.least(left);
        match charged.iter_mut().find(|known| (known.beneficiary, known.lease) == (charge.beneficiary, charge.lease)) {
            _ if share.is_nothing() => {}
            Some(known) => known.share = Share::sum([known.share, share]),
            None => charged.push(Charge { share, ..charge }),
        }
    }
    charged
}

impl NodeMeter {
    /// A meter that starts at `at`.
    pub fn start(at: Time, split: Split) -> NodeMeter {
        let Split { rate, goods, charged, spare } = split;
        let prices = PriceLine::starting(at, rate);
        let mut meter = Meter::start(at, &prices);
        meter.spare = spare;
        NodeMeter { meter, prices, goods, charged, ended: false }
    }

    /// Whether it counts.
    pub fn is_running(&self) -> bool {
        !self.ended
    }

    /// Counted until here.
    pub fn upto(&self) -> Time {
        self.meter.upto
    }

    /// The price of the part that a lease has, an hour, rounded up: all of it, or what it gives to one workload.
    pub fn hourly(&self, lease: LeaseId, workload: Option<WorkloadId>) -> NanoUsd {
        let is_of_it = |charge: &&Charge| workload.is_none() || charge.beneficiary.workload() == workload;
        let parts = self.charged.iter().filter(|charge| is_of(charge, lease)).filter(is_of_it);
        parts.fold(NanoUsd(0), |sum, charge| sum + charge.share.of_rate(self.prices.rate()))
    }

    /// What a workload owes for a lease on it since the last rows were written.
    pub fn owed_by(&self, lease: LeaseId, workload: WorkloadId, now: Time) -> NanoUsd {
        if self.ended {
            return NanoUsd(0);
        }
        let owed = self.meter.unwritten(now, self.charged.clone(), &self.prices).into_iter();
        let own = owed.filter(|(charge, _)| is_of(charge, lease) && charge.beneficiary.workload() == Some(workload));
        own.fold(NanoUsd(0), |sum, (_, amount)| sum + amount)
    }

    /// Another split from `at` on, which is not before the last one; rows for the time before it.
    pub fn split(
        &mut self,
        at: Time,
        (seq, node): (u64, &NodeId),
        split: Split,
        whose: impl Fn(WorkloadId) -> Option<Account>,
    ) -> Vec<LedgerRow> {
        let same = (self.prices.rate(), self.meter.spare) == (split.rate, split.spare);
        if self.ended || (same && self.charged == split.charged && self.goods == split.goods) {
            return Vec::new();
        }
        let rows = self.close(at, (seq, node), whose);
        self.prices.push(self.meter.upto, split.rate);
        self.meter.spare = split.spare;
        (self.charged, self.goods) = (split.charged, split.goods);
        rows
    }

    /// Charges everybody until `at`.
    pub fn close(
        &mut self,
        at: Time,
        (seq, node): (u64, &NodeId),
        whose: impl Fn(WorkloadId) -> Option<Account>,
    ) -> Vec<LedgerRow> {
        if self.ended {
            return Vec::new();
        }
        let bought = Bought::node(seq, node, &self.goods, &self.prices);
        let rows = self.meter.close(at.max(self.meter.upto), bought, self.charged.clone(), whose);
        self.meter.remember(REMEMBERED);
        rows
    }

    /// It is gone: charges everybody until `at`, and counts no more.
    pub fn end(
        &mut self,
        at: Time,
        record: (u64, &NodeId),
        whose: impl Fn(WorkloadId) -> Option<Account>,
    ) -> Vec<LedgerRow> {
        let rows = self.close(at, record, whose);
        (self.ended, self.charged) = (true, Vec::new());
        rows
    }

    /// Late news: a lease had a part of it from `at` on, of what nobody of ours had.
    pub fn came(
        &mut self,
        at: Time,
        (seq, node): (u64, &NodeId),
        part: Charge,
        whose: impl Fn(WorkloadId) -> Option<Account>,
    ) -> Vec<LedgerRow> {
        self.meter.know(&[part], whose);
        let bought = Bought::node(seq, node, &self.goods, &self.prices);
        self.meter.revise(at, bought, |charged, spare| {
            let mut left = part.share;
            for beneficiary in [spare, Beneficiary::Foreign] {
                left = moved(charged, beneficiary, part, left);
            }
        })
    }

    /// Late news: a lease was gone from `at` on.
    pub fn left(&mut self, at: Time, (seq, node): (u64, &NodeId), lease: LeaseId) -> Vec<LedgerRow> {
        let bought = Bought::node(seq, node, &self.goods, &self.prices);
        self.meter.revise(at, bought, |charged, spare| {
            // In place: what stands behind it is rounded as it was.
            for charge in charged.iter_mut().filter(|charge| is_of(charge, lease)) {
                *charge = Charge::of(spare, charge.share);
            }
        })
    }
}

fn is_of(charge: &Charge, lease: LeaseId) -> bool {
    charge.lease == Some(lease)
}

/// Moves up to `left` of what a beneficiary has to another, in place, so that everybody else's part is rounded as it was;
/// gives what is still left.
fn moved(charged: &mut Vec<Charge>, from: Beneficiary, to: Charge, mut left: Share) -> Share {
    for at in (0..charged.len()).rev().filter(|at| charged[*at].beneficiary == from).collect::<Vec<_>>() {
        let had = charged[at].share;
        let taken = had.least(left);
        if taken.is_nothing() {
            break;
        }
        charged[at] = Charge { share: taken, ..to };
        if let Some(rest) = share::minus(had, taken) {
            charged.insert(at + 1, Charge::of(from, rest));
        }
        left = share::minus(left, taken).unwrap_or(Share::new(0, 1));
    }
    left
}
