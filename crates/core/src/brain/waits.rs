//! Jobs that wait because the disks of machines that stay are full. Somebody will empty them: nothing is wrong with the job, and
//! it holds nothing meanwhile. What is sold elsewhere it may still get.

use super::job::NoRoom;
use super::{Brain, Job, Stint};
use crate::ids::NodeId;
use crate::offer::{Market, OfferId};
use crate::record::WorkerEnd;
use crate::units::{Span, Time};
use std::collections::BTreeSet;

/// It is tried again after this long, then after twice the time each time.
const FIRST_WAIT: Span = Span::seconds(1);
const LONGEST_WAIT: Span = Span::minutes(5);

impl Brain {
    /// The offers of machines that stay, on which workers of a stint found no room, with what they said.
    pub(super) fn full_disks(&self, stint: &Stint) -> Option<(BTreeSet<OfferId>, String)> {
        let (mut offers, mut first) = (BTreeSet::new(), None);
        for (worker, id) in stint.workers.iter().zip(stint.leases()) {
            let Some(WorkerEnd::NoRoom { why }) = &worker.end else { continue };
            let lease = self.leases.get(&id)?;
            // A machine that is bought is another one each time, and where only a part of a machine is known, so may that be.
            if lease.market != Market::Owned || !self.is_paid_by_node(lease) {
                return None;
            }
            offers.insert(lease.offer.clone());
            let node = lease.terms.node.as_ref().map_or("its machine", NodeId::name);
            first.get_or_insert_with(|| format!("{node} has no room for it: {why}"));
        }
        Some((offers, first?))
    }
}

impl Job {
    /// Leaves machines alone for a while whose disks are full. It took so long to find that out.
    pub(super) fn note_full_disks(&mut self, offers: BTreeSet<OfferId>, why: String, took: Span, now: Time) {
        let times = self.no_room.as_ref().map_or(0, |known| known.times) + 1;
        // What took long to find out is not tried again soon: others have the machine for as long.
        let until = now + Span(FIRST_WAIT.0 << (times - 1).min(16)).min(LONGEST_WAIT).max(took);
        self.refused.retain(|_, until| *until > now);
        self.refused.extend(offers.into_iter().map(|offer| (offer, until)));
        self.no_room = Some(NoRoom { times, why, until });
    }

    /// Whether it waits for room on machines that stay.
    pub(super) fn waits_for_room(&self, now: Time) -> bool {
        self.no_room.as_ref().is_some_and(|no_room| no_room.until > now)
    }
}
