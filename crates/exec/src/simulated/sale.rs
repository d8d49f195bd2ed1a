//! Selling groups: what the market has left, and which alternative it becomes.

use super::Simulated;
use crate::engine::EngineError;
use crate::local::Marks;
use windfall_core::{DecisionId, Offer, OfferId, Refusal, Want};

impl Simulated {
    /// Sells a group, if the market has enough of an alternative now: what is sold and not given back counts.
    pub(super) fn sell(&self, group: DecisionId, want: &Want) -> Result<(), EngineError> {
        let now = self.leases.clock.now();
        let offers = self.position.offers(now);
        self.leases.give(group, |held, known| {
            let marks = match known.values().max_by_key(|marks| marks.units) {
                Some(marks) => Marks { up_at: None, ends_at: None, at_risk: false, gone: None, ..marks.clone() },
                None => {
                    let sold = |offer: &OfferId| {
                        held.values().filter(|held| !held.is_gone() && held.marks.offer == *offer).count() as u32
                    };
                    let (offer, units) = chosen(&offers, want, sold)?;
                    Marks { offer, units, sold_at: Some(now), ..Marks::default() }
                }
            };
            Ok(vec![marks.clone(); marks.units as usize])
        })
    }
}

/// The first alternative of which there is enough, and how many of it.
fn chosen(offers: &[Offer], want: &Want, sold: impl Fn(&OfferId) -> u32) -> Result<(OfferId, u32), EngineError> {
    let shown = |id: &OfferId| offers.iter().find(|offer| offer.id == *id);
    if want.units == 0 || want.alternatives.iter().all(|alternative| shown(&alternative.offer).is_none()) {
        return Err(EngineError::Refused(Refusal::Invalid));
    }
    let had = want.alternatives.iter().find_map(|alternative| {
        let offer = shown(&alternative.offer)?;
        let dear = alternative.max_price.is_some_and(|max| offer.price_per_hour > max);
        let left = offer.capacity.map_or(want.units, |capacity| capacity.saturating_sub(sold(&offer.id)));
        let units = left.min(want.units);
        (!dear && units >= want.least.max(1)).then(|| (offer.id.clone(), units))
    });
    had.ok_or(EngineError::Refused(Refusal::NoCapacity))
}
