//! Leases with all that is looked up of them: whose they are, of which offer, what has room. Kept as
//! the table of jobs is.

use super::job_table::{Person, take_out};
use super::{Lease, LeasePhase};
use crate::ids::{DecisionId, Installation, LeaseId, WorkloadId};
use crate::offer::OfferId;
use crate::spec::Ask;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Deref;

/// Every lease that is not known to be gone.
#[derive(Clone, Debug, Default)]
pub(super) struct Leases {
    all: BTreeMap<LeaseId, Lease>,
    index: LeaseIndex,
}

/// Leases of an offer by whose they are.
type Dealers<L> = BTreeMap<OfferId, BTreeMap<Person, BTreeSet<L>>>;

#[derive(Clone, Debug, Default)]
struct LeaseIndex {
    /// Leases that a workload has, or has a part of.
    of_workload: BTreeMap<WorkloadId, BTreeSet<LeaseId>>,
    of_offer: BTreeMap<OfferId, BTreeSet<LeaseId>>,
    /// Those of them that are more than their workload asked for, by whose they are: what is on its way, and what has room,
    /// the least of it first.
    coming: Dealers<LeaseId>,
    with_room: Dealers<(Free, LeaseId)>,
    /// Leases that nobody asked for as far as the log knows.
    orphans: BTreeSet<LeaseId>,
    /// Asked for, and not seen yet.
    asked: BTreeSet<LeaseId>,
    /// On their way back.
    releasing: BTreeSet<LeaseId>,
    /// What each lease is found by.
    keys: BTreeMap<LeaseId, LeaseKeys>,
    /// Leases that may have changed since the last refresh.
    stale: BTreeSet<LeaseId>,
    /// What leases were found by that are gone since then.
    gone: Vec<LeaseKeys>,
}

/// Before every lease.
const FIRST: LeaseId = LeaseId { group: DecisionId { installation: Installation(0), seq: 0 }, slot: 0 };

/// A lease that is more than its workload asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Dealt {
    /// Who has it.
    pub to: Person,
    pub room: Room,
}

/// Whether others may run on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Room {
    /// It is on its way.
    Coming,
    /// Something of it is free.
    Open(Free),
    Full,
}

/// What is free of a machine: devices of which nobody has anything, and of one device the most, in
/// [`crate::pool::DevicePart::UNITS`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Free {
    pub whole: u32,
    pub most: u32,
}

impl Free {
    /// The least that has room for an ask. Parts are asked of one device only.
    fn least_for(ask: &Ask) -> Free {
        match ask.part.is_whole() {
            true => Free { whole: ask.count, most: 0 },
            false => Free { whole: 0, most: ask.part.units() },
        }
    }
}

/// What a lease is found by.
#[derive(Clone, Debug, PartialEq, Eq)]
struct LeaseKeys {
    workloads: BTreeSet<WorkloadId>,
    offer: OfferId,
    /// Who has it, where it is more than was asked for.
    dealt: Option<Dealt>,
    orphan: bool,
    asked: bool,
    releasing: bool,
}

impl LeaseKeys {
    fn of(lease: &Lease, dealt: Option<Dealt>) -> LeaseKeys {
        LeaseKeys {
            workloads: lease.workloads().collect(),
            offer: lease.offer.clone(),
            dealt,
            orphan: lease.workload.is_none(),
            asked: lease.phase == LeasePhase::Asked,
            releasing: lease.is_releasing(),
        }
    }
}

fn set_to(set: &mut BTreeSet<LeaseId>, id: LeaseId, is_in: bool) {
    match is_in {
        true => set.insert(id),
        false => set.remove(&id),
    };
}

impl LeaseIndex {
    fn enter(&mut self, id: LeaseId, keys: LeaseKeys) {
        for workload in &keys.workloads {
            self.of_workload.entry(*workload).or_default().insert(id);
        }
        self.of_offer.entry(keys.offer.clone()).or_default().insert(id);
        if let Some(Dealt { to, room }) = &keys.dealt {
            match room {
                Room::Coming => _ = whose(&mut self.coming, &keys.offer, to).insert(id),
                Room::Open(free) => _ = whose(&mut self.with_room, &keys.offer, to).insert((*free, id)),
                Room::Full => {}
            }
        }
        set_to(&mut self.orphans, id, keys.orphan);
        set_to(&mut self.asked, id, keys.asked);
        set_to(&mut self.releasing, id, keys.releasing);
        self.keys.insert(id, keys);
    }

    fn leave(&mut self, id: LeaseId) -> Option<LeaseKeys> {
        let keys = self.keys.remove(&id)?;
        keys.workloads.iter().for_each(|workload| take_out(&mut self.of_workload, workload, id));
        take_out(&mut self.of_offer, &keys.offer, id);
        if let Some(Dealt { to, room }) = &keys.dealt {
            match room {
                Room::Coming => leaves(&mut self.coming, &keys.offer, to, id),
                Room::Open(free) => leaves(&mut self.with_room, &keys.offer, to, (*free, id)),
                Room::Full => {}
            }
        }
        for set in [&mut self.orphans, &mut self.asked, &mut self.releasing] {
            set.remove(&id);
        }
        Some(keys)
    }
}

fn whose<'a, L>(all: &'a mut Dealers<L>, offer: &OfferId, person: &Person) -> &'a mut BTreeSet<L> {
    all.entry(offer.clone()).or_default().entry(person.clone()).or_default()
}

fn leaves<L: Ord>(all: &mut Dealers<L>, offer: &OfferId, person: &Person, lease: L) {
    if let Some(people) = all.get_mut(offer) {
        take_out(people, person, lease);
        if people.is_empty() {
            all.remove(offer);
        }
    }
}

impl Leases {
    pub fn insert(&mut self, lease: Lease) {
        self.remove(&lease.id);
        self.index.enter(lease.id, LeaseKeys::of(&lease, None));
        self.index.stale.insert(lease.id);
        self.all.insert(lease.id, lease);
    }

    pub fn remove(&mut self, id: &LeaseId) -> Option<Lease> {
        let lease = self.all.remove(id)?;
        let keys = self.index.leave(*id);
        self.index.gone.extend(keys);
        self.index.stale.remove(id);
        Some(lease)
    }

    pub fn get_mut(&mut self, id: &LeaseId) -> Option<&mut Lease> {
        let lease = self.all.get_mut(id)?;
        self.index.stale.insert(*id);
        Some(lease)
    }

    /// A lease that is charged for, or costs something else: to those who look at it that is no news.
    pub fn charge(&mut self, id: &LeaseId) -> Option<&mut Lease> {
        self.all.get_mut(id)
    }

    /// Leases of a group may be something else to those who look at them.
    pub fn touch(&mut self, group: DecisionId) {
        let slots = LeaseId { group, slot: 0 }..=LeaseId { group, slot: u32::MAX };
        self.index.stale.extend(self.all.range(slots).map(|(id, _)| *id));
    }

    /// Brings the indices up to date, and tells who has or had a lease that may have changed, of which offer it is or was,
    /// and whose it is or was where it is more than was asked for.
    pub fn refresh(
        &mut self,
        dealt: impl Fn(&Lease) -> Option<Dealt>,
        mut tell: impl FnMut(&BTreeSet<WorkloadId>, &OfferId, Option<&Person>),
    ) {
        let mut tell =
            |keys: &LeaseKeys| tell(&keys.workloads, &keys.offer, keys.dealt.as_ref().map(|dealt| &dealt.to));
        std::mem::take(&mut self.index.gone).iter().for_each(&mut tell);
        for id in std::mem::take(&mut self.index.stale) {
            let Some(lease) = self.all.get(&id) else { continue };
            let keys = LeaseKeys::of(lease, dealt(lease));
            tell(&keys);
            if self.index.keys.get(&id) != Some(&keys) {
                self.index.leave(id).iter().for_each(&mut tell);
                self.index.enter(id, keys);
            }
        }
    }

    fn each<'a>(&'a self, ids: Option<&'a BTreeSet<LeaseId>>) -> impl Iterator<Item = &'a Lease> {
        ids.into_iter().flatten().filter_map(|id| self.all.get(id))
    }

    /// Leases that a workload has, or has a part of.
    pub fn used_by(&self, workload: WorkloadId) -> impl Iterator<Item = &Lease> {
        self.each(self.index.of_workload.get(&workload))
    }

    /// Leases of an offer.
    pub fn of_offer(&self, offer: &OfferId) -> impl Iterator<Item = &Lease> {
        self.each(self.index.of_offer.get(offer))
    }

    /// Leases of an offer, to change them.
    pub fn ids_of_offer(&self, offer: &OfferId) -> Vec<LeaseId> {
        self.index.of_offer.get(offer).into_iter().flatten().copied().collect()
    }

    /// Leases of an offer on their way to workloads of a person, and more than they asked for.
    pub fn coming(&self, offer: &OfferId, person: &Person) -> impl Iterator<Item = &Lease> {
        self.each(self.index.coming.get(offer).and_then(|people| people.get(person)))
    }

    /// Leases of an offer that workloads of a person have, and of which enough for an ask was free, the least first: what is
    /// wholly free stays so.
    pub fn with_room(&self, offer: &OfferId, person: &Person, ask: &Ask) -> impl Iterator<Item = &Lease> {
        let leases = self.index.with_room.get(offer).and_then(|people| people.get(person));
        let least = (Free::least_for(ask), FIRST);
        leases.into_iter().flat_map(move |leases| leases.range(least..)).filter_map(|(_, id)| self.all.get(id))
    }

    /// Offers of which a person has leases with something free.
    pub fn offers_with_room(&self, person: &Person) -> impl Iterator<Item = &OfferId> {
        self.index.with_room.iter().filter(move |(_, people)| people.contains_key(person)).map(|(offer, _)| offer)
    }

    /// People who have leases of an offer with something free.
    pub fn people_with_room(&self, offer: &OfferId) -> impl Iterator<Item = &Person> {
        self.index.with_room.get(offer).into_iter().flat_map(BTreeMap::keys)
    }

    /// Who has a lease, where it is more than was asked for.
    pub fn dealt_to(&self, id: LeaseId) -> Option<&Person> {
        self.index.keys.get(&id)?.dealt.as_ref().map(|dealt| &dealt.to)
    }

    /// Leases of a workload may be something else to those who look at them.
    pub fn touch_of(&mut self, workload: WorkloadId) {
        self.index.stale.extend(self.index.of_workload.get(&workload).into_iter().flatten());
    }

    /// How many leases of an offer there are.
    pub fn count_of(&self, offer: &OfferId) -> u32 {
        self.index.of_offer.get(offer).map_or(0, |leases| u32::try_from(leases.len()).unwrap_or(u32::MAX))
    }

    /// Offers of which there are leases.
    pub fn offers(&self) -> impl Iterator<Item = &OfferId> {
        self.index.of_offer.keys()
    }

    /// Leases that nobody asked for as far as the log knows.
    pub fn orphans(&self) -> impl Iterator<Item = &Lease> {
        self.each(Some(&self.index.orphans))
    }

    /// Leases that were asked for and are not seen yet.
    pub fn asked(&self) -> impl Iterator<Item = &Lease> {
        self.each(Some(&self.index.asked))
    }

    /// Leases on their way back.
    pub fn releasing(&self) -> impl Iterator<Item = &Lease> {
        self.each(Some(&self.index.releasing))
    }
}

impl Deref for Leases {
    type Target = BTreeMap<LeaseId, Lease>;
    fn deref(&self) -> &Self::Target {
        &self.all
    }
}

/// Stored as a list: a lease's name is no text, and keys of JSON objects are.
impl Serialize for Leases {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_seq(self.all.values())
    }
}

impl<'de> Deserialize<'de> for Leases {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Leases, D::Error> {
        let mut leases = Leases::default();
        Vec::<Lease>::deserialize(from)?.into_iter().for_each(|lease| leases.insert(lease));
        Ok(leases)
    }
}
