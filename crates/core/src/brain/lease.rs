//! Groups and leases as the brain knows them: a group from asked for until the last of its leases is gone, a lease until
//! the engine says that it is gone.

use super::{Brain, Open, Tenure};
use crate::ids::{DecisionId, LeaseId, StintId, WorkloadId};
use crate::ledger::{Goods, Meter, Share};
use crate::offer::{Market, Offer, OfferId};
use crate::pool::Habits;
use crate::record::Decision;
use crate::units::{Span, Time};
use crate::want::{Address, GroupPhase, LeaseTerms, Want};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// What was asked of an engine in one request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Group {
    pub id: DecisionId,
    pub want: Want,
    pub asked_at: Time,
    pub phase: GroupPhase,
}

impl Group {
    /// Since when its leases are on their way; none while it waits in the engine's own queue.
    pub fn on_its_way_since(&self) -> Option<Time> {
        match self.phase {
            GroupPhase::Asked => Some(self.asked_at),
            GroupPhase::Queued { .. } => None,
            GroupPhase::Granted { at, .. } => Some(at),
        }
    }

    /// So many of its leases are on their way since then; how long it waited in its engine's queue, and for what.
    pub(super) fn leaves_queue(&mut self, at: Time, units: u32) -> Option<(OfferId, Span)> {
        let before = std::mem::replace(&mut self.phase, GroupPhase::Granted { at, units });
        let wait = match before {
            GroupPhase::Queued { since, .. } => Span((at - since).0.max(0)),
            GroupPhase::Asked => Span::ZERO,
            GroupPhase::Granted { .. } => return None,
        };
        Some((self.want.alternatives.first()?.offer.clone(), wait))
    }
}

/// Where a lease stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LeasePhase {
    /// The engine was asked for it.
    Asked,
    /// It is there and paid for.
    Up,
    /// It will be taken away.
    Noticed { ends_at: Time },
    /// It is being given back.
    Releasing {
        /// The decision that said so.
        by: DecisionId,
    },
}

/// What an engine granted and meters.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lease {
    pub id: LeaseId,
    /// Who it is for; nobody when the log did not know it.
    pub workload: Option<WorkloadId>,
    /// What was bought: until it is up, what was asked for first.
    pub offer: OfferId,
    /// What that is: the ledger needs it also when the offer is gone.
    pub goods: Option<Arc<Goods>>,
    pub market: Market,
    /// Since when it is wanted.
    pub asked_at: Time,
    pub phase: LeasePhase,
    /// Runs from up until gone.
    pub meter: Option<Meter>,
    pub up_at: Option<Time>,
    /// Where it can be reached, once it is usable.
    #[serde(default)]
    pub ready: Option<Address>,
    /// What its engine said of it when it was first there.
    #[serde(default)]
    pub terms: LeaseTerms,
    /// Since when the market says that it may soon be taken.
    #[serde(default)]
    pub at_risk_since: Option<Time>,
    /// Stints of other workloads that have a part of it.
    #[serde(default)]
    pub sharers: Vec<Sharer>,
    /// Who had it, or a part of it, and left it, as long as its meter knows of that time.
    #[serde(default)]
    pub tenures: Vec<Tenure>,
    /// Since when its workload has it, where that was another's before.
    #[serde(default)]
    pub handed_over_at: Option<Time>,
}

/// A stint on a lease of another workload: it is charged for its part, and the other for the rest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sharer {
    pub stint: StintId,
    pub share: Share,
    pub since: Time,
}

impl Lease {
    pub(super) fn asked(
        id: LeaseId,
        workload: Option<WorkloadId>,
        offer: OfferId,
        shown: Option<&Offer>,
        asked_at: Time,
    ) -> Lease {
        Lease {
            id,
            workload,
            offer,
            goods: shown.map(Goods::of).map(Arc::new),
            market: shown.map_or(Market::OnDemand, |offer| offer.market),
            asked_at,
            phase: LeasePhase::Asked,
            meter: None,
            up_at: None,
            ready: None,
            terms: LeaseTerms::default(),
            at_risk_since: None,
            sharers: Vec::new(),
            tenures: Vec::new(),
            handed_over_at: None,
        }
    }

    /// Binds it to what the engine says of it.
    pub(super) fn bind(&mut self, terms: &LeaseTerms) {
        self.terms = terms.clone();
        if let Some(offer) = &terms.offer {
            self.offer = offer.clone();
        }
    }

    /// Held for work: there, ready, and neither announced to go nor on its way back.
    pub fn is_usable(&self) -> bool {
        self.phase == LeasePhase::Up && self.ready.is_some()
    }
    /// On its way back.
    pub fn is_releasing(&self) -> bool {
        matches!(self.phase, LeasePhase::Releasing { .. })
    }
    /// Since when its workload has it and it is up.
    pub fn held_since(&self) -> Option<Time> {
        self.up_at.map(|up| self.handed_over_at.unwrap_or(up))
    }
    /// How long its workload has had it by `now`.
    pub fn held_at(&self, now: Time) -> Span {
        self.held_since().map_or(Span::ZERO, |since| Span((now - since).0.max(0)))
    }
}

impl Brain {
    /// Groups of which a lease is not known to be gone.
    pub fn groups(&self) -> impl Iterator<Item = &Group> {
        self.groups.values()
    }

    /// The group of a lease; none when the log did not know the lease.
    pub fn group_of(&self, lease: &Lease) -> Option<&Group> {
        self.groups.get(&lease.id.group)
    }

    /// The leases of a group that are not known to be gone.
    pub fn leases_in(&self, group: DecisionId) -> impl Iterator<Item = &Lease> {
        let slot = |slot| LeaseId { group, slot };
        self.leases.range(slot(0)..=slot(u32::MAX)).map(|(_, lease)| lease)
    }

    /// How leases of an offer behave.
    pub fn habits(&self, offer: &OfferId) -> &Habits {
        let pool = self.known_offer(offer).and_then(|offer| self.pools.get(&offer.pool));
        pool.map_or(&Habits::USUAL, |pool| &pool.habits)
    }

    /// Since when a lease is on its way; none while its group waits in a queue.
    pub(super) fn on_its_way_since(&self, lease: &Lease) -> Option<Time> {
        self.group_of(lease).map_or(Some(lease.asked_at), Group::on_its_way_since)
    }

    /// When a lease that is not usable by then is given back; none while its group waits in a queue.
    pub(super) fn boot_overdue(&self, lease: &Lease) -> Option<Time> {
        Some(self.on_its_way_since(lease)? + self.habits(&lease.offer).boot)
    }

    /// Decisions about leases whose effect has not been seen.
    pub(super) fn open_for_leases(&self) -> Vec<Open> {
        let asked: BTreeSet<DecisionId> = self.leases.asked().map(|lease| lease.id.group).collect();
        let asked = asked.into_iter().filter_map(|group| self.open_for_group(group));
        asked.chain(releases(self.leases.releasing())).collect()
    }

    /// The request for a group, if it has not been answered.
    pub(super) fn open_for_group(&self, group: DecisionId) -> Option<Open> {
        let group = self.groups.get(&group).filter(|group| group.phase == GroupPhase::Asked)?;
        let mut leases =
            self.leases.range(LeaseId { group: group.id, slot: 0 }..=LeaseId { group: group.id, slot: u32::MAX });
        let asked = leases.any(|(_, lease)| lease.phase == LeasePhase::Asked);
        asked.then(|| Open { id: group.id, decision: Decision::Acquire { want: group.want.clone() } })
    }
}

/// What gives leases back that are not gone yet.
pub(super) fn releases<'a>(leases: impl Iterator<Item = &'a Lease>) -> Vec<Open> {
    let mut releases: BTreeMap<DecisionId, (DecisionId, Vec<u32>)> = BTreeMap::new();
    for lease in leases {
        if let LeasePhase::Releasing { by } = lease.phase {
            releases.entry(by).or_insert((lease.id.group, Vec::new())).1.push(lease.id.slot);
        }
    }
    let open = |(id, (group, slots))| Open { id, decision: Decision::Release { group, slots } };
    releases.into_iter().map(open).collect()
}
