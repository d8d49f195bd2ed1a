//! On-demand capacity is no promise either: how long it could not be had, as part of the fold. A deadline keeps
//! room for a drought as long as the longest of the last day.

use crate::offer::OfferId;
use crate::units::{Span, Time};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Droughts are remembered for so long after their last refusal.
const MEMORY: Span = Span::hours(24);
/// Offers that are remembered at most.
const MOST: usize = 256;

/// What was refused by one offer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Drought {
    /// Since when it refuses; none once it has given again.
    since: Option<Time>,
    longest: Span,
    /// The last refusal.
    at: Time,
}

/// Offers that cannot be taken away, and that refused.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Droughts(Vec<(OfferId, Drought)>);

impl Droughts {
    /// An offer refused, and is left alone until then.
    pub(super) fn refused(&mut self, offer: &OfferId, now: Time, until: Time) {
        self.0.retain(|(_, drought)| now - drought.at <= MEMORY);
        if !self.0.iter().any(|(known, _)| known == offer) {
            if self.0.len() >= MOST {
                self.0.remove(0);
            }
            self.0.push((offer.clone(), Drought { since: None, longest: Span::ZERO, at: now }));
        }
        for (_, drought) in self.0.iter_mut().filter(|(known, _)| known == offer) {
            let since = *drought.since.get_or_insert(now);
            drought.longest = drought.longest.max(until - since);
            drought.at = now;
        }
    }

    /// An offer gave what was asked.
    pub(super) fn given(&mut self, offer: &OfferId, now: Time) {
        for (_, drought) in self.0.iter_mut().filter(|(known, _)| known == offer) {
            let lasted = drought.since.take().map_or(Span::ZERO, |since| now - since);
            drought.longest = drought.longest.max(lasted);
        }
    }

    /// How long one offer may have to be waited for.
    pub(super) fn wait(&self, offer: &OfferId, now: Time) -> Span {
        self.waits(now).get(offer).copied().unwrap_or_default()
    }

    /// How long each offer may have to be waited for, by what was seen of late; what is not in it never refused.
    pub(super) fn waits(&self, now: Time) -> BTreeMap<&OfferId, Span> {
        let fresh = self.0.iter().filter(|(_, drought)| now - drought.at <= MEMORY);
        fresh.map(|(offer, drought)| (offer, drought.longest)).collect()
    }
}
