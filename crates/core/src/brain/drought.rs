//! Capacity that nobody takes away is no promise either: how long it could not be had, as part of the fold. A deadline keeps
//! room for a drought as long as the longest of the last day, and for a wait in an engine's queue as most of the last ones.

use crate::offer::OfferId;
use crate::units::{Span, Time};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, VecDeque};

/// Droughts are remembered for so long after their last refusal.
const MEMORY: Span = Span::hours(24);
/// Offers that are remembered at most.
const MOST: usize = 256;
/// Waits in a queue that are remembered of an offer.
const WAITS: usize = 32;
/// Hundredths of them that were no longer than what is expected of the next.
const MOST_WAITS: usize = 95;

/// How one offer could not be had.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Drought {
    /// Since when it refuses; none once it has given again.
    since: Option<Time>,
    longest: Span,
    /// The last refusal.
    at: Time,
    /// How long groups waited for it in its engine's own queue, the last ones.
    #[serde(default, skip_serializing_if = "VecDeque::is_empty")]
    queued: VecDeque<Span>,
    /// What the next one is expected to wait.
    #[serde(default)]
    usual: Span,
}

/// Rounded up by an eighth at most: what changes a little with every group need not be looked at by everybody.
fn rounded(wait: Span) -> Span {
    let step = (wait.0.max(1) as u64).next_power_of_two() as i64 / 16;
    Span((wait.0 + step.max(1) - 1) / step.max(1) * step.max(1))
}

impl Drought {
    fn is_fresh(&self, now: Time) -> bool {
        now - self.at <= MEMORY
    }

    fn waited(&mut self, wait: Span) {
        self.queued.push_back(wait);
        if self.queued.len() > WAITS {
            self.queued.pop_front();
        }
        let mut queued: Vec<Span> = self.queued.iter().copied().collect();
        queued.sort_unstable();
        let place = (queued.len() * MOST_WAITS).div_ceil(100).saturating_sub(1);
        self.usual = rounded(queued.get(place).copied().unwrap_or_default());
    }

    fn expected(&self, now: Time) -> Span {
        if self.is_fresh(now) { self.longest.max(self.usual) } else { self.usual }
    }
}

/// Offers that cannot be taken away, and that refused.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Droughts(Vec<(OfferId, Drought)>);

impl Droughts {
    fn of(&mut self, offer: &OfferId, now: Time) -> &mut Drought {
        self.0.retain(|(_, drought)| drought.is_fresh(now) || !drought.queued.is_empty());
        let at = self.0.iter().position(|(known, _)| known == offer).unwrap_or_else(|| {
            if self.0.len() >= MOST {
                self.0.remove(0);
            }
            let drought = Drought {
                since: None,
                longest: Span::ZERO,
                at: Time(i64::MIN / 2),
                queued: VecDeque::new(),
                usual: Span::ZERO,
            };
            self.0.push((offer.clone(), drought));
            self.0.len() - 1
        });
        &mut self.0[at].1
    }

    /// An offer refused, and is left alone until then.
    pub(super) fn refused(&mut self, offer: &OfferId, now: Time, until: Time) {
        let drought = self.of(offer, now);
        if !drought.is_fresh(now) {
            (drought.since, drought.longest) = (None, Span::ZERO);
        }
        let since = *drought.since.get_or_insert(now);
        drought.longest = drought.longest.max(until - since);
        drought.at = now;
    }

    /// A group has left its engine's queue, where it waited for so long.
    pub(super) fn waited(&mut self, offer: &OfferId, now: Time, wait: Span) {
        self.of(offer, now).waited(wait);
    }

    /// A group was granted without a wait: that counts where others had to wait.
    pub(super) fn came_at_once(&mut self, offer: &OfferId) {
        let known = self.0.iter_mut().find(|(known, drought)| known == offer && !drought.queued.is_empty());
        known.into_iter().for_each(|(_, drought)| drought.waited(Span::ZERO));
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
        let known = self.0.iter().find(|(known, _)| known == offer);
        known.map_or(Span::ZERO, |(_, drought)| drought.expected(now))
    }

    /// How long each offer may have to be waited for, by what was seen of late; what is not in it never kept anybody waiting.
    pub(super) fn waits(&self, now: Time) -> BTreeMap<&OfferId, Span> {
        let expected = self.0.iter().map(|(offer, drought)| (offer, drought.expected(now)));
        expected.filter(|(_, wait)| *wait > Span::ZERO).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn most_of_the_last_waits_in_a_queue_are_kept_room_for() {
        let (offer, mut droughts) = (OfferId::new("slurm/gpu"), Droughts::default());
        for minutes in 1..=20 {
            droughts.waited(&offer, Time(0), Span::minutes(minutes));
        }
        let wait = droughts.wait(&offer, Time(0));
        assert!((Span::minutes(19)..Span::minutes(21)).contains(&wait), "all but one in twenty: {wait}");
        for _ in 0..WAITS {
            droughts.waited(&offer, Time(0), Span::minutes(2));
        }
        let later = Time(0) + Span::hours(48);
        let wait = droughts.wait(&offer, later);
        assert!(
            (Span::minutes(2)..Span::seconds(136)).contains(&wait),
            "only the last ones count, however old: {wait}"
        );
        droughts.refused(&offer, later, later + Span::minutes(5));
        assert_eq!(droughts.wait(&offer, later), Span::minutes(5), "a refusal may take longer");
        (0..WAITS).for_each(|_| droughts.came_at_once(&offer));
        assert_eq!(droughts.wait(&offer, later + Span::hours(25)), Span::ZERO, "nobody waits any more");
    }
}
