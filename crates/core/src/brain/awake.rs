//! Which jobs are looked at in a step: those that changed, those whose moment has come, and those for whom an offer or a
//! machine with room is something else than when they last looked. All others would decide what they decided before.

use super::ceilings::{Ceilings, Heeds};
use super::job_table::{FitClass, Jobs, Person};
use super::lookout::fits;
use super::queue::{Source, Stir};
use super::room_watch::{RoomLooked, RoomWatch};
use super::rooms::{Claim, RoomKey};
use super::shown::Shown;
use super::{Brain, Job, Lease};
use crate::ids::{DecisionId, PoolId, WorkloadId};
use crate::market::foresight::PlanTerms;
use crate::offer::{Offer, OfferId};
use crate::spec::Ask;
use crate::units::{NanoUsd, Time};
use std::collections::{BTreeMap, BTreeSet};

/// Jobs that are looked at in one step because their moment has come. The others' turn is the next step, at once: somebody
/// who submits between the two does not wait for all of them.
const MOST_DUE: usize = 500;

/// Who is to be looked at, and what those who are not have seen.
#[derive(Clone, Debug)]
pub(super) struct Awake {
    /// Nothing is known of what anybody saw last.
    everyone: bool,
    jobs: BTreeSet<WorkloadId>,
    /// Offers of which something may be different: what is shown, what is held, or whether they answer.
    offers: BTreeSet<OfferId>,
    /// Machines with room.
    pub rooms: RoomWatch,
    /// Every offer as it was when jobs last looked.
    shown: BTreeMap<OfferId, Shown>,
    /// Jobs that looked at an offer since it was last out of reach for everybody. Without an entry, everybody may have.
    lookers: BTreeMap<OfferId, BTreeSet<WorkloadId>>,
    /// When offers that refused may be asked again.
    reopening: BTreeSet<(Time, OfferId)>,
    moments: BTreeMap<WorkloadId, Time>,
    by_moment: BTreeSet<(Time, WorkloadId)>,
    /// Prices that somebody with a budget counts on.
    ceilings: Ceilings,
}

impl Default for Awake {
    /// Whoever begins, or was loaded, looks at everybody first.
    fn default() -> Awake {
        Awake {
            everyone: true,
            jobs: BTreeSet::new(),
            offers: BTreeSet::new(),
            rooms: RoomWatch::default(),
            shown: BTreeMap::new(),
            lookers: BTreeMap::new(),
            reopening: BTreeSet::new(),
            moments: BTreeMap::new(),
            by_moment: BTreeSet::new(),
            ceilings: Ceilings::default(),
        }
    }
}

/// What a step saw of one job.
pub(super) struct LookedJob {
    pub id: WorkloadId,
    /// When it is to be looked at again, whatever happens until then.
    pub moment: Option<Time>,
    /// It has something to say, and is asked again until that is done; or it could not be asked.
    pub again: bool,
    /// The machine on its way to another one that it waits for.
    pub waits_for: Option<Claim>,
    /// The plan that it would follow.
    pub wanted: Option<PlanTerms>,
    /// Prices up to which it looks again in time.
    pub heeds: Heeds,
}

/// Who is to be looked at in a step, and what there is to see.
pub(super) struct Sources<'a> {
    pub sources: Vec<Source<'a>>,
    pub offers: Vec<(OfferId, Option<Shown>)>,
    pub rooms: Vec<RoomLooked>,
}

/// What a step looked at.
pub(super) struct Looked {
    pub now: Time,
    pub jobs: Vec<LookedJob>,
    pub offers: Vec<(OfferId, Option<Shown>)>,
    pub rooms: Vec<RoomLooked>,
    /// Machines of which something was given away.
    pub taken_of: BTreeSet<RoomKey>,
}

impl Awake {
    pub fn everyone(&mut self) {
        self.everyone = true;
    }

    // While everybody is to be looked at, no lists are kept: a brain that only answers readers never decides, and its lists
    // would grow for ever.

    pub fn job(&mut self, id: WorkloadId) {
        if !self.everyone {
            self.jobs.insert(id);
        }
    }

    pub fn offer(&mut self, id: &OfferId) {
        if !self.everyone {
            self.offers.insert(id.clone());
        }
    }

    /// What somebody has costs more than before.
    pub fn price(&mut self, id: &OfferId, price: NanoUsd) {
        if !self.everyone {
            self.jobs.extend(self.ceilings.below(id, price));
        }
    }

    /// No more than this is left of an offer.
    fn found(&mut self, id: &OfferId, free: Option<u32>) {
        if let Some(shown) = self.shown.get_mut(id) {
            shown.left = shown.left.into_iter().chain(free).min();
        }
    }

    /// Machines of an offer that a person has may have other room than before.
    pub fn room(&mut self, person: &Person, offer: &OfferId) {
        if !self.everyone {
            self.rooms.touch(person, offer);
        }
    }

    /// An offer refused, and may be asked again then.
    pub fn reopens(&mut self, id: &OfferId, at: Time) {
        self.reopening.retain(|(_, known)| known != id);
        self.reopening.insert((at, id.clone()));
    }

    /// Who was just loaded does not know yet when offers that refused may be asked again.
    pub fn remember(&mut self, refused: &BTreeMap<OfferId, Time>) {
        if self.everyone {
            self.reopening = refused.iter().map(|(id, until)| (*until, id.clone())).collect();
        }
    }

    /// A job is not there any more.
    pub fn forget(&mut self, job: &Job) {
        let id = job.id;
        self.jobs.remove(&id);
        self.rooms.forget(job);
        self.lookers.values_mut().for_each(|lookers| _ = lookers.remove(&id));
        self.set_moment(id, None);
        self.ceilings.set(id, Heeds::default());
    }

    fn set_moment(&mut self, id: WorkloadId, at: Option<Time>) {
        if let Some(known) = self.moments.remove(&id) {
            self.by_moment.remove(&(known, id));
        }
        if let Some(at) = at {
            self.moments.insert(id, at);
            self.by_moment.insert((at, id));
        }
    }

    /// The first moment that somebody waits for, but for some.
    pub fn first_moment(&self, but_for: &BTreeSet<WorkloadId>) -> Option<Time> {
        let own = self.by_moment.iter().find(|(_, id)| !but_for.contains(id)).map(|(at, _)| *at);
        let reopens = self.reopening.first().map(|(at, _)| *at);
        own.into_iter().chain(reopens).min()
    }

    /// The moment that a job waits for.
    pub fn moment_of(&self, id: WorkloadId) -> Option<Time> {
        self.moments.get(&id).copied()
    }

    fn due(&self, now: Time) -> impl Iterator<Item = WorkloadId> {
        self.by_moment.iter().take_while(move |(at, _)| *at <= now).map(|(_, id)| *id)
    }

    /// Notes what a step has looked at.
    pub fn looked(&mut self, looked: Looked, jobs: &Jobs) {
        if std::mem::take(&mut self.everyone) {
            self.rooms.clear();
        }
        self.jobs.clear();
        self.offers.clear();
        let saw = looked.jobs.iter().filter_map(|job| jobs.get(&job.id));
        self.rooms.looked(looked.rooms, looked.taken_of, saw);
        for (id, shown) in looked.offers {
            // Whoever looked before knows by now that nobody can have it.
            match &shown {
                None => self.lookers.remove(&id),
                Some(shown) if !shown.has(1) => self.lookers.insert(id.clone(), BTreeSet::new()),
                Some(_) => None,
            };
            match shown {
                Some(shown) => self.shown.insert(id, shown),
                None => self.shown.remove(&id),
            };
        }
        let mut by_asks: BTreeMap<&[Ask], Vec<WorkloadId>> = BTreeMap::new();
        for job in looked.jobs.iter().filter_map(|job| jobs.get(&job.id)) {
            by_asks.entry(&job.spec.resources).or_default().push(job.id);
        }
        for (id, lookers) in self.lookers.iter_mut().filter(|_| !by_asks.is_empty()) {
            let Some(open) = self.shown.get(id).filter(|shown| shown.has(1)) else { continue };
            let fitting = by_asks.iter().filter(|(asks, _)| fits(asks, &open.offer));
            lookers.extend(fitting.flat_map(|(_, ids)| ids));
        }
        for job in looked.jobs {
            self.set_moment(job.id, job.moment);
            self.rooms.waits_for(job.id, job.waits_for);
            self.ceilings.set(job.id, job.heeds);
            if job.again {
                self.jobs.insert(job.id);
            }
        }
        while self.reopening.first().is_some_and(|(at, _)| *at <= looked.now) {
            self.reopening.pop_first();
        }
    }
}

impl Brain {
    /// Brings the indices up to date after a record, and wakes whoever it concerns.
    pub(super) fn settle(&mut self) {
        let changed = self.jobs.refresh();
        // Its devices may be free, or not any more.
        changed.presence.into_iter().for_each(|id| self.leases.touch_of(id));
        let (jobs, awake) = (&self.jobs, &mut self.awake);
        let mut held = BTreeSet::new();
        let dealt = |lease: &Lease| lease.dealt(jobs);
        self.leases.refresh(dealt, |workloads, offer, person| {
            workloads.iter().for_each(|id| awake.job(*id));
            held.insert(offer.clone());
            person.into_iter().for_each(|person| awake.room(person, offer));
        });
        for offer in held {
            let free = self.free_of(&offer);
            self.awake.offer(&offer);
            self.awake.found(&offer, free);
        }
        changed.any.into_iter().for_each(|id| self.awake.job(id));
    }

    /// An engine falls silent, or answers again: news to whoever can have something of it, or has.
    pub(super) fn on_engine_silence(&mut self, engine: &str) {
        let theirs = self.offers.values().filter(|offer| offer.engine == engine);
        theirs.for_each(|offer| self.awake.offer(&offer.id));
        self.touch_leases(|_, lease| lease.offer.engine() == engine);
    }

    /// A pool is new, or has other habits: what was seen of its offers does not count any more.
    pub(super) fn on_other_pool(&mut self, pool: &PoolId) {
        for offer in self.offers.values().filter(|offer| offer.pool == *pool) {
            self.awake.offer(&offer.id);
            self.awake.shown.remove(&offer.id);
        }
        let shown =
            |brain: &Brain, lease: &Lease| brain.offers.get(&lease.offer).is_some_and(|offer| offer.pool == *pool);
        self.touch_leases(|brain, lease| shown(brain, lease) || brain.pool_of(lease).is_some_and(|of| of.id == *pool));
    }

    fn touch_leases(&mut self, concerns: impl Fn(&Brain, &Lease) -> bool) {
        let groups: BTreeSet<DecisionId> =
            self.leases.values().filter(|lease| concerns(self, lease)).map(|lease| lease.id.group).collect();
        groups.into_iter().for_each(|group| self.leases.touch(group));
    }

    /// Instances of an offer that nobody holds, where that is known.
    fn free_of(&self, id: &OfferId) -> Option<u32> {
        let capacity = self.offers.get(id)?.capacity?;
        Some(capacity.saturating_sub(self.leases.count_of(id)))
    }

    fn shown(&self, id: &OfferId, now: Time) -> Option<Shown> {
        let offer = self.offers.get(id)?;
        let refused = self.refused.get(id).is_some_and(|until| *until > now);
        let free = self.free_of(id);
        Some(Shown {
            offer: offer.clone(),
            free,
            left: free,
            shut: refused || self.silent_since(&offer.engine).is_some(),
            wait: self.droughts.wait(id, now),
        })
    }

    /// Who is to be looked at in a step, by why; and offers and machines with room as they will have seen them then, where
    /// that is something new.
    pub(super) fn sources(&self, now: Time) -> Sources<'_> {
        let awake = &self.awake;
        if awake.everyone {
            let gone = awake.shown.keys().filter(|id| !self.offers.contains_key(*id));
            let offers = self.offers.keys().chain(gone).map(|id| (id.clone(), self.shown(id, now))).collect();
            let everyone = Source { ids: Box::new(self.jobs.keys().copied()), stir: Stir::Any };
            return Sources { sources: vec![everyone], offers, rooms: self.all_rooms() };
        }
        let due = awake.due(now).take(MOST_DUE);
        let mut own: BTreeSet<WorkloadId> = awake.jobs.iter().copied().chain(due).collect();
        own.extend(own.iter().flat_map(|holder| awake.rooms.waiting_for(*holder)).collect::<Vec<_>>());
        let mut sources = vec![Source { ids: Box::new(own.into_iter()), stir: Stir::Any }];
        let reopened = awake.reopening.iter().take_while(|(at, _)| *at <= now).map(|(_, id)| id);
        let suspects: BTreeSet<&OfferId> = awake.offers.iter().chain(reopened).collect();
        let mut changed: BTreeMap<&OfferId, Option<Shown>> = BTreeMap::new();
        let mut with_other_terms = Vec::new();
        for id in suspects {
            let (before, after) = (awake.shown.get(id), self.shown(id, now));
            if before != after.as_ref() {
                self.stirred_by(id, before, after.as_ref(), &changed, &mut sources);
                if before.zip(after.as_ref()).is_none_or(|(before, after)| !before.has_same_terms(after)) {
                    with_other_terms.push(id);
                }
                changed.insert(id, after);
            }
        }
        let offers = changed.into_iter().map(|(id, shown)| (id.clone(), shown)).collect();
        let rooms = self.stirred_by_rooms(&with_other_terms, &mut sources);
        Sources { sources, offers, rooms }
    }

    /// Jobs for whom a changed offer may make a difference, when others have changed already.
    fn stirred_by<'a>(
        &'a self,
        id: &'a OfferId,
        before: Option<&Shown>,
        after: Option<&Shown>,
        changed: &BTreeMap<&OfferId, Option<Shown>>,
        sources: &mut Vec<Source<'a>>,
    ) {
        let could_have =
            |job: &Job, shown: &Shown| fits(&job.spec.resources, &shown.offer) || job.smaller(&shown.offer).is_some();
        let falls_back: Vec<WorkloadId> = self
            .jobs
            .with_fallback()
            .filter_map(|id| self.jobs.get(&id))
            .filter(|job| before.into_iter().chain(after).any(|shown| could_have(job, shown)))
            .map(|job| job.id)
            .collect();
        sources.push(Source { ids: Box::new(falls_back.into_iter()), stir: Stir::Any });
        sources.push(Source { ids: Box::new(self.concerned_holders(id, before, after).into_iter()), stir: Stir::Any });
        // Whoever is short of workers has asked for what could be had before.
        let is_same = |(before, after): (&Shown, &Shown)| before.had_for_all(1) && before.has_same_terms(after);
        let was_had = before.zip(after).is_some_and(is_same);
        if after.is_some_and(|shown| shown.has(1)) && !was_had {
            let has_it = |id: &WorkloadId, offer: &OfferId| self.leases.used_by(*id).any(|lease| lease.offer == *offer);
            let short = self.jobs.short().filter(move |job| has_it(job, id));
            sources.push(Source { ids: Box::new(short), stir: Stir::Any });
        }
        let passes_firm = before.zip(after).is_some_and(|(before, after)| self.passes_firm(before, after, changed));
        let accepts = |class: &FitClass, shown: Option<&Shown>| shown.is_some_and(|shown| fits(&class.1, &shown.offer));
        for (class, members) in self.jobs.by_class() {
            if !accepts(class, before) && !accepts(class, after) {
                continue;
            }
            let least = class.0;
            let all = Box::new(members.iter().copied());
            let (Some(before), Some(after)) = (before, after) else {
                sources.push(Source { ids: all, stir: Stir::Any });
                continue;
            };
            if self.matters_to_all(class, before, after, passes_firm.then_some(changed)) {
                sources.push(Source { ids: all, stir: Stir::Any });
                continue;
            }
            match (before.has(least), after.has(least)) {
                (true, true) if before.had_for_all(least) && before.price() == after.price() => {}
                (_, true) => {
                    // Some may have seen it at the lower price, if only for a moment.
                    let floor = if before.has(least) { before.price().min(after.price()) } else { after.price() };
                    sources.push(Source { ids: all, stir: Stir::Open { offer: id, least, floor } });
                }
                (true, false) => {
                    let lookers = self.awake.lookers.get(id);
                    let ids: Box<dyn Iterator<Item = WorkloadId> + 'a> = match lookers {
                        Some(lookers) => Box::new(lookers.iter().copied().filter(|id| members.contains(id))),
                        None => all,
                    };
                    sources.push(Source { ids, stir: Stir::Any });
                }
                (false, false) => {}
            }
        }
    }

    /// Who holds something of a changed offer and goes on to see it, whether anybody else can have it or not. The price of
    /// spot is news where it passes that of something firm, and news to whoever holds that, or sees room on a machine of it
    /// from a dearer one. Those who accept several accelerators hear of every price.
    fn concerned_holders(&self, id: &OfferId, before: Option<&Shown>, after: Option<&Shown>) -> BTreeSet<WorkloadId> {
        let known = before.zip(after);
        if known.is_some_and(|(before, after)| before.is_same_thing(after) && before.price() == after.price()) {
            return BTreeSet::new();
        }
        let holders = |id| self.leases.of_offer(id).flat_map(Lease::workloads);
        let Some((before, after)) = known.filter(|(before, after)| before.is_same_thing(after) && after.is_spot())
        else {
            return holders(id).collect();
        };
        let between = before.price().min(after.price())..=before.price().max(after.price());
        let alike = self.offers.of_accelerator(&after.offer.accelerator);
        let firm: Vec<&Offer> = alike.filter(|offer| !offer.market.can_be_taken()).collect();
        let passed = || firm.iter().filter(|offer| between.contains(&offer.price_per_hour));
        let own = passed().next().map(|_| holders(id)).into_iter().flatten();
        let with_room = passed().filter(|offer| self.leases.people_with_room(&offer.id).next().is_some());
        let with_room = with_room.map(|offer| offer.price_per_hour).min();
        let dearer = firm.iter().filter(|offer| with_room.is_some_and(|price| offer.price_per_hour >= price));
        let could_have_it =
            |id: &WorkloadId| self.jobs.get(id).is_some_and(|job| fits(&job.spec.resources, &after.offer));
        let of_firm = passed().chain(dearer).flat_map(|firm| holders(&firm.id));
        own.chain(of_firm.filter(could_have_it)).collect()
    }

    /// Whether the price of something firm lies between two prices of an offer, as it was seen or as it is now.
    fn passes_firm(&self, before: &Shown, after: &Shown, changed: &BTreeMap<&OfferId, Option<Shown>>) -> bool {
        let between = before.price().min(after.price())..=before.price().max(after.price());
        let seen = self.awake.shown.values().chain(changed.values().flatten());
        before.price() != after.price()
            && seen.filter(|shown| !shown.is_spot()).any(|firm| between.contains(&firm.price()))
    }

    /// Whether a change of an offer may change what jobs of a class decide that could have it neither before nor after.
    /// `passing` are offers that changed already, where the price passes that of something firm.
    /// What follows from beliefs and plans is not asked here: whoever goes by them looks again within a tick.
    fn matters_to_all(
        &self,
        (least, asks): &FitClass,
        before: &Shown,
        after: &Shown,
        passing: Option<&BTreeMap<&OfferId, Option<Shown>>>,
    ) -> bool {
        let same_price = before.price() == after.price();
        if !before.is_same_thing(after) || before.wait != after.wait {
            return true;
        }
        // Of several accelerators, which one sets the pace is a question of prices, and of what answers.
        if asks.len() != 1 && (!same_price || !after.is_spot() && before.shut != after.shut) {
            return true;
        }
        let Some(changed) = passing.filter(|_| !same_price && after.is_spot()) else { return false };
        // Whether what nobody takes away costs no more than any spot, to be had now or later.
        let shown = |offer: &Offer| match changed.get(&offer.id) {
            Some(changed) => changed.as_ref(),
            None => self.awake.shown.get(&offer.id),
        };
        let others = self.offers.of_asks(asks).into_iter().filter_map(shown);
        let others = others.filter(|shown| shown.offer.id != after.offer.id && fits(asks, &shown.offer));
        let (spot, firm): (Vec<&Shown>, Vec<&Shown>) = others.partition(|shown| shown.is_spot());
        let has_room = |shown: &Shown| *least == 1 && self.leases.people_with_room(&shown.offer.id).next().is_some();
        // Each job sees the cheapest of those that it could have: room is its person's, and any of these may be that one.
        let mut firm = firm.iter().filter(|shown| shown.has(*least) || has_room(shown)).map(|shown| shown.price());
        let cheapest = spot.iter().map(|shown| shown.price()).min();
        let leads = |firm: NanoUsd, spot: NanoUsd| firm <= cheapest.map_or(spot, |cheapest| cheapest.min(spot));
        firm.any(|firm| leads(firm, before.price()) != leads(firm, after.price()))
    }
}
