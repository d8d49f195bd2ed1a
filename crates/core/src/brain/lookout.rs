//! What is believed about spot markets, as part of the fold: the same records give the same beliefs. Jobs
//! that want the same thing share a lookout. Several words about one moment count as the last of them.

use super::job_table::FitClass;
use crate::market::foresight::{Belief, Model};
use crate::offer::{Market, Offer, OfferId};
use crate::spec::Ask;
use crate::units::{Span, Time};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Lookouts beyond which those go that nobody uses any more.
const MOST: usize = 16;

/// One market under watch.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Watched {
    belief: Belief,
    /// Up to when the belief counts everything.
    at: Time,
    /// What was last said, and when: taken in once time has gone on.
    up: bool,
    said_at: Time,
}

impl Watched {
    fn new(model: &Model, up: bool, now: Time) -> Watched {
        Watched { belief: model.belief(up), at: now, up, said_at: now }
    }

    fn say(&mut self, model: &Model, every: Span, up: bool, now: Time) {
        if !model.knows(&self.belief) {
            *self = Watched::new(model, up, now);
        }
        if now > self.said_at {
            model.observe(&mut self.belief, self.said_at - self.at, every, self.up);
            self.at = self.said_at;
            // Silence is counted in whole looks, up to just before now: what is said now may end the spell.
            let looks = ((now - self.at).0 - 1) / every.0.max(1);
            let silence = Span(looks * every.0);
            model.observe(&mut self.belief, silence, every, self.up);
            self.at = self.at + silence;
        }
        self.up = up;
        self.said_at = now;
    }

    fn at(&self, model: &Model, every: Span, now: Time) -> Belief {
        let mut belief = if model.knows(&self.belief) { self.belief.clone() } else { model.belief(self.up) };
        model.observe(&mut belief, self.said_at - self.at, every, self.up);
        model.observe(&mut belief, now - self.said_at.max(self.at), every, self.up);
        belief
    }
}

/// What jobs that want the same thing watch.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Lookout {
    gang: u32,
    resources: Vec<Ask>,
    anywhere: Watched,
    /// Stored as a list: an offer's name is a key of its own kind.
    zones: BTreeMap<OfferId, Watched>,
}

/// Beliefs at a moment.
#[derive(Clone, Debug, Default)]
pub(super) struct Beliefs {
    pub anywhere: Option<Arc<Belief>>,
    pub zones: BTreeMap<OfferId, Arc<Belief>>,
}

/// All lookouts, by how many are wanted of what. Stored as a list.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(from = "Vec<Lookout>", into = "Vec<Lookout>")]
pub(super) struct Lookouts(BTreeMap<u32, BTreeMap<Vec<Ask>, Lookout>>);

impl From<Vec<Lookout>> for Lookouts {
    fn from(all: Vec<Lookout>) -> Lookouts {
        let mut lookouts = Lookouts::default();
        all.into_iter().for_each(|lookout| lookouts.insert(lookout));
        lookouts
    }
}

impl From<Lookouts> for Vec<Lookout> {
    fn from(lookouts: Lookouts) -> Vec<Lookout> {
        lookouts.0.into_values().flat_map(BTreeMap::into_values).collect()
    }
}

/// What jobs that want the same thing see in one step: worked out for the first who looks.
pub(super) struct SeenInStep<T>(BTreeMap<u32, BTreeMap<Vec<Ask>, T>>);

impl<T> Default for SeenInStep<T> {
    fn default() -> SeenInStep<T> {
        SeenInStep(BTreeMap::new())
    }
}

impl<T: Clone> SeenInStep<T> {
    pub fn of(&mut self, (gang, resources): (u32, &[Ask]), look: impl FnOnce() -> T) -> T {
        let known = self.0.entry(gang).or_default();
        if let Some(seen) = known.get(resources) {
            return seen.clone();
        }
        let seen = look();
        known.insert(resources.to_vec(), seen.clone());
        seen
    }
}

/// Whether an offer has what is wanted, whatever it costs. What is bought may have more than that, and whoever wants no
/// accelerator takes what is cheap; owned machines are given in parts, and nobody gets more of one than is wanted.
pub(super) fn fits(resources: &[Ask], offer: &Offer) -> bool {
    let exact = offer.market == Market::Owned;
    let enough = |count: u32| if exact { count == offer.accelerators } else { count <= offer.accelerators };
    match resources {
        [] => !exact || offer.accelerators == 0,
        asks => asks.iter().any(|ask| {
            let is_its = ask.engine.as_ref().is_none_or(|engine| *engine == offer.engine);
            is_its && ask.accelerator == offer.accelerator && enough(ask.count)
        }),
    }
}

fn can_be_had(offer: &Offer, gang: u32) -> bool {
    offer.capacity.is_none_or(|capacity| capacity >= gang)
}

impl Lookouts {
    fn insert(&mut self, lookout: Lookout) {
        self.0.entry(lookout.gang).or_default().insert(lookout.resources.clone(), lookout);
    }

    fn all(&mut self) -> impl Iterator<Item = &mut Lookout> {
        self.0.values_mut().flat_map(BTreeMap::values_mut)
    }

    /// Begins to watch for a job, unless others do already.
    pub fn watch<'a>(
        &mut self,
        model: &Model,
        (gang, resources): (u32, &[Ask]),
        offers: impl Iterator<Item = &'a Offer>,
        is_used: impl Fn(&FitClass) -> bool,
        now: Time,
    ) {
        if self.0.get(&gang).is_some_and(|same| same.contains_key(resources)) {
            return;
        }
        let surplus = (self.0.values().map(BTreeMap::len).sum::<usize>() + 1).saturating_sub(MOST);
        if surplus > 0 {
            let classes = self.all().map(|lookout| (lookout.gang, lookout.resources.clone()));
            let idle: Vec<FitClass> = classes.filter(|class| !is_used(class)).take(surplus).collect();
            idle.into_iter().for_each(|(gang, asks)| _ = self.0.entry(gang).or_default().remove(&asks));
        }
        let watched = offers.filter(|offer| offer.market.can_be_taken() && fits(resources, offer));
        let zones: BTreeMap<OfferId, Watched> =
            watched.map(|offer| (offer.id.clone(), Watched::new(model, can_be_had(offer, gang), now))).collect();
        let anywhere = Watched::new(model, zones.values().any(|zone| zone.up), now);
        self.insert(Lookout { gang, resources: resources.to_vec(), anywhere, zones });
    }

    /// An offer was seen.
    pub fn saw(&mut self, model: &Model, every: Span, offer: &Offer, now: Time) {
        if offer.market.can_be_taken() {
            for lookout in self.all().filter(|lookout| fits(&lookout.resources, offer)) {
                let up = can_be_had(offer, lookout.gang);
                lookout.say(model, every, &offer.id, up, now);
            }
        }
    }

    /// What an answer of the market says about an offer whose capacity nobody tells.
    pub fn heard(&mut self, model: &Model, every: Span, offer: &OfferId, up: bool, now: Time) {
        for lookout in self.all().filter(|lookout| lookout.zones.contains_key(offer)) {
            lookout.say(model, every, offer, up, now);
        }
    }

    /// What is believed for a job at a moment.
    pub fn beliefs(&self, model: &Model, every: Span, (gang, resources): (u32, &[Ask]), now: Time) -> Beliefs {
        let Some(lookout) = self.0.get(&gang).and_then(|same| same.get(resources)) else { return Beliefs::default() };
        let at = |watched: &Watched| Arc::new(watched.at(model, every, now));
        Beliefs {
            anywhere: (lookout.zones.len() > 1).then(|| at(&lookout.anywhere)),
            zones: lookout.zones.iter().map(|(id, watched)| (id.clone(), at(watched))).collect(),
        }
    }
}

impl Lookout {
    fn say(&mut self, model: &Model, every: Span, offer: &OfferId, up: bool, now: Time) {
        match self.zones.get_mut(offer) {
            Some(watched) => watched.say(model, every, up, now),
            None => {
                self.zones.insert(offer.clone(), Watched::new(model, up, now));
            }
        }
        let any_up = self.zones.values().any(|zone| zone.up);
        self.anywhere.say(model, every, any_up, now);
    }
}
