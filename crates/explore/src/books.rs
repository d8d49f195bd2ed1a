//! Whether every ledger row stands alone: what it says of itself is held against what the log says of the job and of the
//! offer, and its amount against its own time, price and share.

use crate::nodes::NodeAudit;
use std::collections::BTreeMap;
use windfall_core::ledger::{Account, Goods, MOST_DAYS, Share};
use windfall_core::pool::Device;
use windfall_core::{Allocation, JobSpec, LeaseId, LedgerRow, Offer, OfferId, Time, WorkloadId, codec};

const DAY_MS: i64 = 86_400_000;

/// What the log says that rows repeat.
#[derive(Default)]
pub(crate) struct LedgerAudit {
    accounts: BTreeMap<WorkloadId, Account>,
    goods: BTreeMap<OfferId, Goods>,
    /// Of which offer a lease is, and whether it was found, not asked for.
    offers: BTreeMap<LeaseId, (OfferId, bool)>,
    /// What a workload got of a lease when it started there.
    parts: BTreeMap<(LeaseId, WorkloadId), Share>,
    /// Who ran on leases of others, from when until when.
    guests: Vec<Guest>,
    /// Rows that are to be held against the log once as much of it is read.
    unread: Vec<LedgerRow>,
    /// Rows that begin at midnight: their stretch was cut there.
    cut: u64,
    pub nodes: NodeAudit,
}

/// A workload on a lease of another, for as long as its program ran there.
struct Guest {
    lease: LeaseId,
    workload: WorkloadId,
    from: Time,
    to: Option<Time>,
}

impl LedgerAudit {
    pub fn submitted(&mut self, id: WorkloadId, spec: &JobSpec) {
        self.accounts.insert(id, Account::of(id, spec));
    }

    pub fn shown(&mut self, offer: &Offer) {
        self.goods.insert(offer.id.clone(), Goods::of(offer));
    }

    pub fn bought(&mut self, lease: LeaseId, offer: &OfferId, found: bool) {
        self.offers.insert(lease, (offer.clone(), found));
    }

    /// A worker starts on a part of a lease.
    pub fn started(&mut self, workload: WorkloadId, part: &Allocation) {
        let goods = self.offers.get(&part.lease).and_then(|(offer, _)| self.goods.get(offer));
        let all = u64::from(goods.map_or(1, |goods| goods.count));
        let of_all = |device: &Device| {
            let (part, of) = device.part.fraction();
            Share::new(part.into(), u64::from(of) * all)
        };
        let own = part.devices.as_ref().map(|devices| Share::sum(devices.iter().map(of_all)));
        let share = own.unwrap_or(Share::WHOLE);
        self.parts.insert((part.lease, workload), share);
    }

    /// A workload begins to run on a lease of another.
    pub fn moved_in(&mut self, workload: WorkloadId, lease: LeaseId, from: Time) {
        self.guests.push(Guest { lease, workload, from, to: None });
    }

    /// It does not run there any more, or the lease is its own now.
    pub fn moved_out(&mut self, at: Time, gone: impl Fn(LeaseId, WorkloadId) -> bool) {
        let guests = self.guests.iter_mut().filter(|guest| guest.to.is_none() && gone(guest.lease, guest.workload));
        guests.for_each(|guest| guest.to = Some(at));
    }

    /// Of those who have a lease for a while each pays for its devices, and one of them for all the rest.
    fn is_dealt(&self, rows: &[LedgerRow]) -> Result<(), String> {
        let LedgerRow { lease: Some(lease), from, to, .. } = rows[0] else { return Ok(()) };
        let there = |guest: &&Guest| guest.lease == lease && guest.from <= from && guest.to.is_none_or(|end| to <= end);
        let pays = |guest: &Guest| rows.iter().any(|row| row.beneficiary.workload() == Some(guest.workload));
        if let Some(guest) = self.guests.iter().filter(there).find(|guest| from < to && !pays(guest)) {
            return Err(format!("job {} had a part of {lease} and pays nothing", guest.workload));
        }
        if rows.len() == 1 {
            return Ok(());
        }
        let part = |row: &LedgerRow| self.parts.get(&(lease, row.beneficiary.workload()?)).copied();
        let for_the_rest = rows.iter().filter(|row| part(row) != Some(row.share)).count();
        match (for_the_rest, Share::rest(rows.iter().map(|row| row.share))) {
            (0 | 1, None) => Ok(()),
            (others, rest) => Err(format!("{others} pay for other parts than they have, and {rest:?} is nobody's")),
        }
    }

    /// A lease became one of the alternatives that were asked for.
    pub fn became(&mut self, lease: LeaseId, offer: &OfferId) {
        if let Some((known, _)) = self.offers.get_mut(&lease) {
            *known = offer.clone();
        }
    }

    /// Takes a stored row in.
    pub fn row(&mut self, stored: &windfall_store::LedgerRow) -> Result<(), (u8, String)> {
        let number = stored.seq;
        let row: LedgerRow = codec::decode(stored.version, &stored.payload)
            .map_err(|error| (6, format!("row {number} of the ledger cannot be read: {error}")))?;
        let columns = (stored.nanousd, stored.from_ms, stored.to_ms, stored.workload, stored.lease.clone());
        let workload = row.beneficiary.workload().map(|id| id.0);
        if columns != (row.amount.0, row.from.0, row.to.0, workload, row.paid_for()) {
            return Err((6, format!("row {number} of the ledger says {row:?}, and its columns {columns:?}")));
        }
        self.nodes.row(&row);
        self.unread.push(row);
        Ok(())
    }

    /// Holds new rows against the log; gives how many of them were cut at a midnight.
    pub fn check(&mut self) -> Result<u64, (u8, String)> {
        let unread = std::mem::take(&mut self.unread);
        for row in &unread {
            self.stands_alone(row).map_err(|what| (17, format!("{what}: {row:?}")))?;
        }
        let of_lease = |a: &LedgerRow, b: &LedgerRow| (a.seq, a.lease, a.from, a.to) == (b.seq, b.lease, b.from, b.to);
        for rows in unread.chunk_by(of_lease).filter(|rows| rows[0].node.is_none()) {
            self.is_dealt(rows).map_err(|what| (6, format!("{what}: {rows:?}")))?;
        }
        let mut of_nodes: BTreeMap<_, Vec<&LedgerRow>> = BTreeMap::new();
        for row in unread.iter().filter(|row| row.node.is_some()) {
            of_nodes.entry((row.seq, &row.node, row.begins(), row.from.max(row.to))).or_default().push(row);
        }
        for rows in of_nodes.values() {
            self.nodes.stretch(rows).map_err(|what| (6, format!("{what}: {rows:?}")))?;
        }
        Ok(std::mem::take(&mut self.cut))
    }

    fn is_of_its_lease(&self, row: &LedgerRow) -> Result<(), String> {
        let known = row.lease.and_then(|lease| self.offers.get(&lease));
        let (offer, found) = known.ok_or("a ledger row is of a lease that the log does not name")?;
        // One that was found may be of an offer that is no longer shown, of which nothing is known then.
        let known = row.goods.as_deref() == self.goods.get(offer) || (*found && row.goods.is_none());
        if row.offer.as_ref() != Some(offer) || !known {
            return Err("a ledger row names other goods than the lease that was paid for".to_owned());
        }
        Ok(())
    }

    fn stands_alone(&mut self, row: &LedgerRow) -> Result<(), String> {
        let (first, last) = (row.from.min(row.to).0, row.from.max(row.to).0);
        self.cut += u64::from(first.rem_euclid(DAY_MS) == 0);
        if first.div_euclid(DAY_MS) != (last - 1).div_euclid(DAY_MS) && last - first < MOST_DAYS as i64 * DAY_MS {
            return Err("a ledger row crosses midnight".to_owned());
        }
        if row.account.as_deref() != row.beneficiary.workload().and_then(|id| self.accounts.get(&id)) {
            return Err("a ledger row names another account than the job that it is charged to".to_owned());
        }
        match &row.node {
            Some(node) => self.nodes.is_true(row, node)?,
            None => self.is_of_its_lease(row)?,
        }
        if row.parts.map(|parts| parts.total()) != row.goods.as_ref().map(|_| row.amount) {
            return Err("the parts of a ledger row do not add up".to_owned());
        }
        // Rounding is cumulative, by time and by share, at both ends: each may move a nano-dollar to the next row. A price that
        // is a mean is rounded as well, by up to a nano-dollar an hour.
        let hours = i128::from((last - first) / 3_600_000);
        let time = i128::from((row.to - row.from).0) * i128::from(row.share.part);
        let exact = i128::from(row.rate.0) * time / (3_600_000 * i128::from(row.share.of));
        if (i128::from(row.amount.0) - exact).abs() > 3 + hours {
            return Err(format!("a ledger row should be {exact} n$"));
        }
        Ok(())
    }
}
