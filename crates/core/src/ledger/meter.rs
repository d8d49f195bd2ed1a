//! Counts what one lease or one node costs, and writes the rows for it. All rows of it add up to what it cost, to the
//! nano-dollar, however it was cut into days, prices, beneficiaries and corrections.

use super::price_line::{DAY_MS, MOST_DAYS};
use super::{Account, Beneficiary, Charge, Goods, LedgerRow, Parts, PriceLine, Share, share};
use crate::ids::{LeaseId, NodeId, WorkloadId};
use crate::offer::OfferId;
use crate::units::{Accrued, NanoUsd, Time};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Stretches of a lease, at least, that late news can still change. They end with a guest that comes or goes; while its engine is
/// silent there are none. A lease may live for years, so all of them cannot be kept.
const REMEMBERED: usize = 256;

/// Counts what one lease costs, from up until gone, or one node, from seen until gone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Meter {
    /// Counted until here.
    pub upto: Time,
    /// What the line of prices had come to by then.
    sum: Accrued,
    /// Somebody else pays since `upto`: it costs nothing.
    #[serde(default)]
    free: bool,
    /// Who is charged for what nobody has of it since `upto`.
    #[serde(default = "idle")]
    pub spare: Beneficiary,
    accrued: Accrued,
    /// What rows were written for.
    written: NanoUsd,
    /// Earlier stretches. News of the end may come late, and what is then taken back is taken from who had it then.
    #[serde(default)]
    earlier: Vec<Stretch>,
    /// Everybody who was charged for them: a job may be forgotten before what it paid is taken back.
    #[serde(default, with = "accounts")]
    accounts: BTreeMap<WorkloadId, Arc<Account>>,
}

/// Accounts are stored as a list: each says whose it is.
mod accounts {
    use super::*;
    use serde::{Deserializer, Serializer};

    type Accounts = BTreeMap<WorkloadId, Arc<Account>>;

    pub fn serialize<S: Serializer>(accounts: &Accounts, to: S) -> Result<S::Ok, S::Error> {
        to.collect_seq(accounts.values())
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Accounts, D::Error> {
        let all = Vec::<Arc<Account>>::deserialize(from)?;
        Ok(all.into_iter().map(|account| (account.workload, account)).collect())
    }
}

fn idle() -> Beneficiary {
    Beneficiary::Idle
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Stretch {
    pub from: Time,
    #[serde(default)]
    pub free: bool,
    pub charged: Vec<Charge>,
    /// Who is charged for what others had of it and, as it turns out, had not.
    #[serde(default = "idle")]
    pub spare: Beneficiary,
}

/// What every row of a lease, or of a node, says alike.
#[derive(Clone, Copy, Debug)]
pub struct Bought<'a> {
    /// The record that closes a stretch.
    pub seq: u64,
    /// Which lease; none for a node.
    pub lease: Option<LeaseId>,
    /// Which node, if that is what is paid for.
    pub node: Option<&'a NodeId>,
    /// Which offer; none for a node.
    pub offer: Option<&'a OfferId>,
    /// What that is, where it is known.
    pub goods: Option<&'a Arc<Goods>>,
    /// What that costs.
    pub prices: &'a PriceLine,
}

impl<'a> Bought<'a> {
    /// A lease of an offer.
    pub fn lease(
        seq: u64,
        lease: LeaseId,
        (offer, prices): (&'a OfferId, &'a PriceLine),
        goods: Option<&'a Arc<Goods>>,
    ) -> Bought<'a> {
        Bought { seq, lease: Some(lease), node: None, offer: Some(offer), goods, prices }
    }

    /// A node.
    pub fn node(seq: u64, node: &'a NodeId, goods: &'a Arc<Goods>, prices: &'a PriceLine) -> Bought<'a> {
        Bought { seq, lease: None, node: Some(node), offer: None, goods: Some(goods), prices }
    }
}

impl Meter {
    /// A meter that starts at `at`.
    pub fn start(at: Time, prices: &PriceLine) -> Meter {
        Meter {
            upto: at,
            sum: prices.sum(at),
            free: false,
            spare: Beneficiary::Idle,
            accrued: Accrued::default(),
            written: NanoUsd(0),
            earlier: Vec::new(),
            accounts: BTreeMap::new(),
        }
    }

    /// Whether somebody else pays.
    pub fn is_free(&self) -> bool {
        self.free
    }

    /// Somebody else pays from `upto` on, or nobody else does any more.
    pub fn set_free(&mut self, free: bool) {
        self.free = free;
    }

    /// What it has cost up to `now`, without writing anything.
    pub fn cost_at(&self, now: Time, prices: &PriceLine) -> NanoUsd {
        let mut accrued = self.accrued;
        if now > self.upto && !self.free {
            accrued.add_between(self.sum, prices.sum(now));
        }
        accrued.total()
    }

    /// What was not written yet of the cost up to `now`, by these shares.
    pub fn unwritten(&self, now: Time, charged: Vec<Charge>, prices: &PriceLine) -> Vec<(Charge, NanoUsd)> {
        let charged = share::whole(charged, self.spare);
        let amounts = share::between(self.written, self.cost_at(now, prices), &charged);
        charged.into_iter().zip(amounts).collect()
    }

    /// Closes the stretch at `at` (which may lie before `upto`: a correction) and returns its rows: one for each day of
    /// UTC and beneficiary. `charged` are the shares of this stretch; what they leave is spare. `whose` gives accounts of
    /// workloads among them.
    pub fn close(
        &mut self,
        at: Time,
        bought: Bought<'_>,
        charged: Vec<Charge>,
        whose: impl Fn(WorkloadId) -> Option<Account>,
    ) -> Vec<LedgerRow> {
        let at = at.max(self.reaches_back_to(bought.prices));
        let mut rows = Vec::new();
        self.take_back(at, bought, &mut rows);
        if at > self.upto {
            self.know(&charged, whose);
            let charged = share::whole(charged, self.spare);
            let stretch = Stretch { from: self.upto, free: self.free, charged, spare: self.spare };
            self.count(at, bought, &stretch, &mut rows);
            self.keep(stretch);
            self.remember(REMEMBERED);
        }
        rows
    }

    /// Since when it is known who had it.
    pub fn known_since(&self) -> Time {
        self.earlier.first().map_or(self.upto, |first| first.from)
    }

    /// The first moment that news can still change.
    fn reaches_back_to(&self, prices: &PriceLine) -> Time {
        let known = self.known_since();
        prices.since().map_or(known, |since| since.clamp(known, self.upto))
    }

    /// Keeps a stretch that was counted; one that goes on as the last one did is the same.
    fn keep(&mut self, stretch: Stretch) {
        let goes_on = |last: &Stretch| {
            (last.free, last.spare) == (stretch.free, stretch.spare) && last.charged == stretch.charged
        };
        if !self.earlier.last().is_some_and(goes_on) {
            self.earlier.push(stretch);
        }
    }

    /// Takes stretches after `at` back, each at the prices of its time and from those who were charged for it. Gives them as they
    /// were, the latest first, with their ends.
    fn take_back(&mut self, at: Time, bought: Bought<'_>, rows: &mut Vec<LedgerRow>) -> Vec<(Stretch, Time)> {
        let mut taken = Vec::new();
        while at < self.upto
            && let Some(stretch) = self.earlier.pop()
        {
            let (end, from) = (self.upto, at.max(stretch.from));
            self.count(from, bought, &stretch, rows);
            taken.push((Stretch { from, ..stretch.clone() }, end));
            if from > stretch.from {
                self.earlier.push(stretch);
                break;
            }
        }
        taken
    }

    /// Late news changes who had what from `at` on: what was charged since is taken back, and charged anew, from and to those
    /// for whom that is another amount. It reaches back as far as the stretches that are remembered. What the whole cost
    /// stays the same.
    pub(super) fn revise(
        &mut self,
        at: Time,
        bought: Bought<'_>,
        change: impl Fn(&mut Vec<Charge>, Beneficiary),
    ) -> Vec<LedgerRow> {
        let (mut back, mut anew) = (Vec::new(), Vec::new());
        for (mut stretch, end) in
            self.take_back(at.max(self.reaches_back_to(bought.prices)), bought, &mut back).into_iter().rev()
        {
            change(&mut stretch.charged, stretch.spare);
            stretch.charged = share::whole(stretch.charged, stretch.spare);
            self.count(end, bought, &stretch, &mut anew);
            self.keep(stretch);
        }
        without_what_is_the_same(back, anew)
    }

    /// Forgets all but the last so many stretches once there are twice as many, and accounts that none of them names:
    /// corrections reach back no further then.
    pub(super) fn remember(&mut self, most: usize) {
        // Now and then, so that each one costs little.
        if self.earlier.len() < 2 * most {
            return;
        }
        self.earlier.drain(..self.earlier.len() - most);
        let charges = self.earlier.iter().flat_map(|stretch| &stretch.charged);
        let named: BTreeSet<WorkloadId> = charges.filter_map(|charge| charge.beneficiary.workload()).collect();
        self.accounts.retain(|workload, _| named.contains(workload));
    }

    /// Remembers whose money it is. What an account says of a workload never changes.
    pub(super) fn know(&mut self, charged: &[Charge], whose: impl Fn(WorkloadId) -> Option<Account>) {
        for workload in charged.iter().filter_map(|charge| charge.beneficiary.workload()) {
            if !self.accounts.contains_key(&workload)
                && let Some(account) = whose(workload)
            {
                self.accounts.insert(workload, Arc::new(account));
            }
        }
    }

    /// Counts from `upto` until `at`, forwards or backwards, day by day.
    fn count(&mut self, at: Time, bought: Bought<'_>, stretch: &Stretch, rows: &mut Vec<LedgerRow>) {
        for_each_day(self.upto, at, |to| {
            let (from, before, after) = (self.upto, self.sum, bought.prices.sum(to));
            let mut cost = Accrued::default();
            if !stretch.free {
                cost.add_between(before, after);
            }
            self.accrued.add_between(Accrued::default(), cost);
            (self.upto, self.sum) = (to, after);
            let rate = if stretch.free { NanoUsd(0) } else { bought.prices.rate_between(from, to, cost) };
            let amounts = share::between(self.written, self.accrued.total(), &stretch.charged);
            self.written = self.accrued.total();
            for (Charge { beneficiary, share, lease }, amount) in stretch.charged.iter().zip(amounts) {
                rows.push(LedgerRow {
                    seq: bought.seq,
                    lease: lease.or(bought.lease),
                    node: bought.node.cloned(),
                    from,
                    to,
                    rate,
                    beneficiary: *beneficiary,
                    account: beneficiary.workload().and_then(|id| self.accounts.get(&id)).cloned(),
                    offer: bought.offer.cloned(),
                    goods: bought.goods.cloned(),
                    share: *share,
                    amount,
                    parts: bought.goods.map(|goods| Parts::of(amount, goods)),
                    estimated: true,
                });
            }
        });
    }
}

/// Rows that take something back and rows that charge it anew, without those that cancel each other.
fn without_what_is_the_same(mut back: Vec<LedgerRow>, mut anew: Vec<LedgerRow>) -> Vec<LedgerRow> {
    type What = (Time, Time, Beneficiary, Option<LeaseId>, Share);
    let what =
        |row: &LedgerRow| -> What { (row.begins(), row.from.max(row.to), row.beneficiary, row.lease, row.share) };
    let amounts = |rows: &[LedgerRow]| {
        let mut amounts: BTreeMap<What, NanoUsd> = BTreeMap::new();
        rows.iter().for_each(|row| *amounts.entry(what(row)).or_default() += row.amount);
        amounts
    };
    let (taken, charged) = (amounts(&back), amounts(&anew));
    let counts = |row: &LedgerRow| {
        let (taken, charged) = (taken.get(&what(row)), charged.get(&what(row)));
        taken.zip(charged).is_none_or(|(taken, charged)| *taken + *charged != NanoUsd(0))
    };
    back.retain(counts);
    anew.retain(counts);
    back.into_iter().chain(anew).collect()
}

/// Gives where the rows of a stretch end: at every midnight between, and at `at`.
fn for_each_day(from: Time, at: Time, mut end: impl FnMut(Time)) {
    let (first, last) = (from.min(at).0, from.max(at).0);
    // The midnights strictly between, the latest of them if there are too many.
    let newest = last.saturating_sub(1).div_euclid(DAY_MS);
    let oldest = first.div_euclid(DAY_MS).saturating_add(1);
    let oldest = oldest.max(newest.saturating_sub(MOST_DAYS as i64 - 2));
    let midnights = (oldest..=newest).map(|day| Time(day.saturating_mul(DAY_MS)));
    match at < from {
        true => midnights.rev().for_each(&mut end),
        false => midnights.for_each(&mut end),
    }
    end(at);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stretch_ends_at_every_midnight_forwards_and_backwards() {
        let ends = |from, at| {
            let mut ends = Vec::new();
            for_each_day(Time(from), Time(at), |end| ends.push(end.0));
            ends
        };
        assert_eq!(ends(1, DAY_MS), [DAY_MS]);
        assert_eq!(ends(DAY_MS, DAY_MS + 5), [DAY_MS + 5]);
        assert_eq!(ends(1, 2 * DAY_MS + 1), [DAY_MS, 2 * DAY_MS, 2 * DAY_MS + 1]);
        assert_eq!(ends(2 * DAY_MS + 1, 1), [2 * DAY_MS, DAY_MS, 1]);
        assert_eq!(ends(-1, 1), [0, 1]);
        assert_eq!(ends(i64::MIN, i64::MAX).len(), MOST_DAYS);
        assert_eq!(ends(i64::MAX, i64::MIN).last(), Some(&i64::MIN));
    }
}
