//! What to ask an engine for: how many leases, of which offers. What is held, or was asked for earlier in the same step,
//! cannot be had again.

use super::decide::Round;
use super::queue::{IsStirred, Stir};
use super::rooms::counts_on;
use super::sight::affordable;
use super::{Job, Stint};
use crate::ids::WorkloadId;
use crate::market::Sight;
use crate::offer::{Offer, OfferId};
use crate::pool::Shape;
use crate::reason::Reason;
use crate::record::Decision;
use crate::want::{Alternative, Want};

/// Alternatives of one want.
const MOST_ALTERNATIVES: usize = 8;

impl Round<'_> {
    pub(super) fn acquire(&mut self, job: &Job, offer: &OfferId, sight: &Sight, reason: &Reason) {
        let Some(offer) = self.brain.offers.get(offer) else { return };
        // As many as the market has, where that is known: speed and price go with the number.
        let units = self.left_of(offer, 0).unwrap_or(job.spec.gang).clamp(job.spec.least(), job.spec.gang);
        let offers: Vec<&Offer> = std::iter::once(offer).chain(self.as_good(offer, units, sight)).collect();
        let want = self.want(job, &offers, (units, job.spec.least().min(units)), sight);
        *self.taken.entry(offer.id.clone()).or_default() += units;
        self.expect(job, offer);
        self.say(Decision::Acquire { want }, reason.clone());
    }

    /// How many machines of an offer a gang with fewer workers than it may have can get now.
    pub(super) fn units_of(&self, job: &Job, stint: &Stint, offer: &Offer) -> u32 {
        let missing = job.spec.gang.saturating_sub(stint.size());
        let shut = self.brain.refused.get(&offer.id).is_some_and(|until| *until > self.now)
            || self.brain.silent_since(&offer.engine).is_some();
        match shut || !affordable(job, offer) {
            true => 0,
            false => self.left_of(offer, 0).unwrap_or(missing).min(missing),
        }
    }

    /// Asks for machines that a gang goes on with beside those that it has.
    pub(super) fn acquire_more(&mut self, job: &Job, stint: &Stint, offer: &Offer, units: u32, sight: &Sight) {
        let want = Want { beside: stint.leases().collect(), ..self.want(job, &[offer], (units, 1), sight) };
        *self.taken.entry(offer.id.clone()).or_default() += units;
        let text = "it runs with fewer workers than it may: what is missing is got, and those that run go on meanwhile";
        let reason = Reason::new("fill-up", text).count("workers", stint.size().into());
        self.say(Decision::Acquire { want }, reason.count("of", job.spec.gang.into()));
    }

    fn want(&self, job: &Job, offers: &[&Offer], (units, least): (u32, u32), sight: &Sight) -> Want {
        let chosen = offers.first();
        let max_price = job.spec.max_price.filter(|_| chosen.is_some_and(|offer| offer.market.can_be_taken()));
        let asks = |offer: &&Offer| job.spec.resources.iter().find(|ask| ask.accelerator == offer.accelerator);
        let count = |offer: &&Offer| asks(offer).map_or(offer.accelerators, |ask| ask.count);
        Want {
            workload: job.id,
            units,
            least,
            alternatives: offers.iter().map(|offer| Alternative { offer: offer.id.clone(), max_price }).collect(),
            worker: Shape {
                accelerators: chosen.map_or(0, count),
                cpu_millis: job.spec.host.cpu_millis,
                memory_bytes: job.spec.host.memory_bytes,
            },
            owner: String::new(),
            beside: Vec::new(),
            rather_not_on: job.not_begun_at.iter().cloned().collect(),
            on: Vec::new(),
            lasts: job.lasts_on(chosen.copied(), units, sight),
        }
    }

    /// Offers that serve as well as the chosen one, should it be gone when the engine is asked: the same thing on the
    /// same market for no more, and nothing more to pay for the way there.
    fn as_good<'a>(&'a self, chosen: &'a Offer, units: u32, sight: &Sight) -> Vec<&'a Offer> {
        let seen = |id: &OfferId| sight.offers.iter().find(|seen| seen.id == *id);
        let entry = seen(&chosen.id).map(|seen| seen.entry).unwrap_or_default();
        let open = |offer: &Offer| {
            seen(&offer.id).is_some_and(|seen| {
                seen.available && seen.entry <= entry && seen.refused_until.is_none_or(|until| until <= self.now)
            })
        };
        let alike = |offer: &Offer| {
            offer.id != chosen.id
                && (&offer.engine, &offer.accelerator, offer.accelerators, offer.market)
                    == (&chosen.engine, &chosen.accelerator, chosen.accelerators, chosen.market)
        };
        let offers = self.brain.offers.values().filter(|offer| alike(offer) && open(offer));
        let room = |offer: &&Offer| self.left_of(offer, 0).is_none_or(|left| left >= units);
        let mut offers: Vec<&Offer> =
            offers.filter(|offer| offer.price_per_hour <= chosen.price_per_hour).filter(room).collect();
        offers.sort_by_key(|offer| offer.price_per_hour);
        offers.truncate(MOST_ALTERNATIVES - 1);
        offers
    }

    /// Instances of an offer that are held, or that decisions of this step take.
    fn taken_of(&self, offer: &OfferId) -> u32 {
        self.brain.leases.count_of(offer) + self.taken.get(offer).copied().unwrap_or(0)
    }

    /// Instances of an offer that decisions may still take, where that is known, if so many were given up before.
    fn left_of(&self, offer: &Offer, given_up: u32) -> Option<u32> {
        let taken = self.taken_of(&offer.id).saturating_sub(given_up);
        offer.capacity.map(|capacity| capacity.saturating_sub(taken))
    }

    /// Whether the reason for which a job may be looked at is one for it.
    pub(super) fn is_stirred(&self, id: WorkloadId, stir: Stir) -> IsStirred {
        let Some(job) = self.brain.jobs.get(&id) else { return IsStirred::No };
        match stir {
            Stir::Any => IsStirred::Yes,
            Stir::Open { offer, least, floor } => {
                let Some(offer) = self.brain.offers.get(offer) else { return IsStirred::Over };
                let too_dear = offer.market.can_be_taken() && job.spec.max_price.is_some_and(|limit| limit < floor);
                match self.left_of(offer, 0).is_some_and(|left| left < least) {
                    true => IsStirred::Over,
                    false if too_dear || self.brain.has_no_less(job, offer.market, floor) => IsStirred::No,
                    false => IsStirred::Yes,
                }
            }
            Stir::Room { person, offer, ask } => {
                // Whoever has something of the offer can have it anyway.
                if self.brain.leases.used_by(id).any(|lease| lease.offer == *offer) {
                    return IsStirred::No;
                }
                let may_move_in = |offer: &Offer| affordable(job, offer) && !counts_on(job, offer.market);
                match self.brain.has_room(&self.rooms, person, offer, ask) {
                    false => IsStirred::Over,
                    true if self.brain.offers.get(offer).is_some_and(may_move_in) => IsStirred::Yes,
                    true => IsStirred::No,
                }
            }
        }
    }

    /// What others hold, or take in this very step, cannot be had any more. What the job holds itself can: it would be
    /// free again once the job gave it up, and whoever thinks of moving must see that.
    pub(super) fn without_what_is_taken(&self, job: &Job, sight: &mut Sight) {
        let own = self.brain.used_by(job.id).map(|(lease, _)| lease).filter(|lease| !lease.is_releasing());
        let own: Vec<&OfferId> = own.map(|lease| &lease.offer).collect();
        for seen in sight.offers.iter_mut().filter(|seen| seen.available && self.taken_of(&seen.id) > 0) {
            let own = own.iter().filter(|offer| ***offer == seen.id).count() as u32;
            let left = self.brain.offers.get(&seen.id).and_then(|offer| self.left_of(offer, own));
            let enough = left.is_none_or(|left| left >= job.spec.least());
            seen.available = enough || self.room_on(job, &seen.id).is_some();
        }
    }
}
