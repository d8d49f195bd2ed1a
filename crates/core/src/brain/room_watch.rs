//! Who is to hear when machines of their own people have other room than before: jobs that could move in, jobs that looked
//! while there was room, and jobs that wait for a machine which is on its way.

use super::job_table::Person;
use super::queue::{Source, Stir};
use super::rooms::{Claim, RoomKey, Rooms, ask_for, of_person};
use super::{Brain, Job};
use crate::ids::WorkloadId;
use crate::offer::OfferId;
use crate::spec::Ask;
use std::collections::{BTreeMap, BTreeSet};

/// What those who are not looked at have seen of machines with room.
#[derive(Clone, Debug, Default)]
pub(super) struct RoomWatch {
    /// Machines that may have other room than before.
    stale: BTreeSet<RoomKey>,
    seen: BTreeMap<RoomKey, BTreeMap<Ask, RoomSeen>>,
    claims: Claims,
}

/// Room for an ask, as jobs saw it. Where nothing is noted there was none.
#[derive(Clone, Debug, Default)]
struct RoomSeen {
    /// Nobody took of it since: whoever looked found it.
    for_all: bool,
    /// Jobs that looked while there was room.
    lookers: BTreeSet<WorkloadId>,
}

/// Jobs that wait for a machine on its way to another one, which has room for them too.
#[derive(Clone, Debug, Default)]
struct Claims {
    claim: BTreeMap<WorkloadId, Claim>,
    of_holder: BTreeMap<WorkloadId, BTreeSet<WorkloadId>>,
}

/// Whether there was room when a step began, by what is asked for.
pub(super) struct RoomLooked {
    pub key: RoomKey,
    pub open: BTreeMap<Ask, bool>,
}

impl RoomWatch {
    /// Machines of an offer that a person has may have other room.
    pub fn touch(&mut self, person: &Person, offer: &OfferId) {
        self.stale.insert((person.clone(), offer.clone()));
    }

    /// What a job waits for.
    pub fn claim_of(&self, job: WorkloadId) -> Option<&Claim> {
        self.claims.claim.get(&job)
    }

    /// Jobs that wait for the machine of another one.
    pub fn waiting_for(&self, holder: WorkloadId) -> impl Iterator<Item = WorkloadId> {
        self.claims.of_holder.get(&holder).into_iter().flatten().copied()
    }

    /// The same, with what each waits for.
    pub fn claims_on(&self, holder: WorkloadId) -> impl Iterator<Item = (WorkloadId, &Claim)> {
        self.waiting_for(holder).filter_map(|job| Some((job, self.claims.claim.get(&job)?)))
    }

    /// What a job waits for from now on.
    pub fn waits_for(&mut self, job: WorkloadId, claim: Option<Claim>) {
        let holder = claim.as_ref().map(|claim| claim.holder);
        let before = match claim {
            Some(claim) => self.claims.claim.insert(job, claim),
            None => self.claims.claim.remove(&job),
        };
        if let Some(before) = before.map(|claim| claim.holder)
            && let Some(waiting) = self.claims.of_holder.get_mut(&before)
        {
            waiting.remove(&job);
            if waiting.is_empty() {
                self.claims.of_holder.remove(&before);
            }
        }
        if let Some(holder) = holder {
            self.claims.of_holder.entry(holder).or_default().insert(job);
        }
    }

    /// A job is not there any more.
    pub fn forget(&mut self, job: &Job) {
        self.waits_for(job.id, None);
        for (_, asks) in of_person(&mut self.seen, &job.person()) {
            asks.values_mut().for_each(|seen| _ = seen.lookers.remove(&job.id));
        }
    }

    /// Nothing is known of what anybody saw.
    pub fn clear(&mut self) {
        self.stale.clear();
        self.seen.clear();
    }

    /// Notes what a step found, who looked, and of which machines it gave something away.
    pub fn looked<'a>(
        &mut self,
        rooms: Vec<RoomLooked>,
        taken_of: BTreeSet<RoomKey>,
        jobs: impl Iterator<Item = &'a Job>,
    ) {
        self.stale.clear();
        for RoomLooked { key, open } in rooms {
            let mut before = self.seen.remove(&key).unwrap_or_default();
            let open = open.into_iter().filter(|(_, open)| *open);
            let now = open.map(|(ask, _)| {
                let lookers = before.remove(&ask).map(|seen| seen.lookers).unwrap_or_default();
                (ask, RoomSeen { for_all: true, lookers })
            });
            let now: BTreeMap<Ask, RoomSeen> = now.collect();
            if !now.is_empty() {
                self.seen.insert(key, now);
            }
        }
        let any = !self.seen.is_empty();
        for job in jobs.filter(|job| any && job.spec.gang == 1) {
            for (_, asks) in of_person(&mut self.seen, &job.person()) {
                let own = asks.iter_mut().filter(|(ask, _)| job.spec.resources.contains(ask));
                own.for_each(|(_, seen)| _ = seen.lookers.insert(job.id));
            }
        }
        for key in taken_of {
            let asks = self.seen.get_mut(&key).into_iter().flat_map(BTreeMap::values_mut);
            asks.for_each(|seen| seen.for_all = false);
        }
    }
}

impl Brain {
    /// Jobs to look at because machines have other room than before, or cost something else, and how it is now.
    pub(super) fn stirred_by_rooms<'a>(
        &'a self,
        with_other_terms: &[&'a OfferId],
        sources: &mut Vec<Source<'a>>,
    ) -> Vec<RoomLooked> {
        let watch = &self.awake.rooms;
        let stale = watch.stale.iter().map(|(person, offer)| ((person, offer), false));
        let other = with_other_terms
            .iter()
            .flat_map(|offer| self.leases.people_with_room(offer).map(|person| ((person, *offer), true)));
        let keys: BTreeMap<(&'a Person, &'a OfferId), bool> = stale.chain(other).collect();
        let mut looked = Vec::new();
        for ((person, offer), other_terms) in keys {
            let key = (person.clone(), offer.clone());
            let mut open_for: BTreeMap<Ask, bool> = BTreeMap::new();
            sources.push(Source { ids: Box::new(self.jobs.stopped_in_vain(person)), stir: Stir::Any });
            let seller = self.offers.get(offer);
            for (asks, members) in self.jobs.singles(person) {
                let Some(ask) = seller.and_then(|seller| ask_for(asks, &seller.accelerator)) else { continue };
                let has_room = || self.has_room(&Rooms::default(), person, offer, ask);
                let open = *open_for.entry(ask.clone()).or_insert_with(has_room);
                let seen = watch.seen.get(&key).and_then(|seen| seen.get(ask));
                if open && (other_terms || !seen.is_some_and(|seen| seen.for_all)) {
                    let stir = Stir::Room { person, offer, ask };
                    sources.push(Source { ids: Box::new(members.iter().copied()), stir });
                }
                // Room that is gone, or that costs more than somebody pays, is news to whoever found it.
                if let Some(seen) = seen.filter(|_| !open || other_terms) {
                    let lookers: Vec<WorkloadId> = seen.lookers.intersection(members).copied().collect();
                    sources.push(Source { ids: Box::new(lookers.into_iter()), stir: Stir::Any });
                }
            }
            looked.push(RoomLooked { key, open: open_for });
        }
        looked
    }

    /// Everything that there is room on, when everybody is looked at.
    pub(super) fn all_rooms(&self) -> Vec<RoomLooked> {
        let keys = self
            .leases
            .offers()
            .flat_map(|offer| self.leases.people_with_room(offer).map(move |person| (person, offer)));
        let open = |person: &Person, offer: &OfferId| {
            let seller = self.offers.get(offer);
            let asks = self.jobs.singles(person).filter_map(|(asks, _)| ask_for(asks, &seller?.accelerator));
            asks.map(|ask| (ask.clone(), self.has_room(&Rooms::default(), person, offer, ask))).collect()
        };
        keys.map(|(person, offer)| RoomLooked { key: (person.clone(), offer.clone()), open: open(person, offer) })
            .collect()
    }
}
