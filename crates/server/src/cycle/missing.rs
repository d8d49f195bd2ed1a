//! Leases that their engine did not find. A fresh machine and an old one are both not found for a while, so a lease
//! counts as gone only when it was not found for as long as its pool takes to settle.

use std::collections::{BTreeMap, BTreeSet};
use windfall_core::{Brain, Event, LeaseEnd, LeaseId, Time};

/// Since when each is not found.
#[derive(Debug, Default)]
pub(super) struct Missing(BTreeMap<LeaseId, Time>);

impl Missing {
    /// Takes in what a look did not find; gives the end of those that were not found for long enough.
    pub fn gone(&mut self, brain: &Brain, not_found: &[LeaseId], now: Time) -> Vec<Event> {
        let known: BTreeSet<&LeaseId> = not_found.iter().collect();
        self.0.retain(|lease, _| known.contains(lease));
        for lease in not_found {
            self.0.entry(*lease).or_insert(now);
        }
        let over = self.0.iter().filter(|(lease, since)| settled_at(brain, **lease, **since) <= now);
        // Nobody knows better when it went than that it was not there then.
        over.map(|(lease, since)| Event::LeaseGone { lease: *lease, at: *since, end: LeaseEnd::Lost }).collect()
    }

    /// When the next of them counts as gone.
    pub fn next(&self, brain: &Brain) -> Option<Time> {
        let known = self.0.iter().filter(|(lease, _)| brain.lease(**lease).is_some());
        known.map(|(lease, since)| settled_at(brain, *lease, *since)).min()
    }
}

fn settled_at(brain: &Brain, lease: LeaseId, since: Time) -> Time {
    let settle = brain.lease(lease).map(|lease| brain.habits(&lease.offer).settle);
    since + settle.unwrap_or_default()
}
