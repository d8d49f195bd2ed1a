//! Notices of leases that will be taken away: their agents are told once, and what is still there at the end is ended.

use super::{Folder, LocalLeases, Marks};
use std::sync::Arc;
use windfall_core::{LeaseEnd, LeaseId, Time};

impl LocalLeases {
    /// Tells agents of notices that they have not heard of, and ends leases whose time is up. Returns at once.
    pub fn carry_notices_out(self: &Arc<Self>, now: Time) {
        for (lease, folder, marks, ends_at) in self.untold() {
            let in_ms = self.clock.real_time(ends_at - now).as_millis() as u64;
            let leases = Arc::clone(self);
            // All at once: an agent that hangs must not use up the notice of the others.
            tokio::spawn(async move {
                let told = leases.hosts.notice(&folder, &marks, in_ms).await.is_ok();
                if let Some(held) = leases.held().get_mut(&lease) {
                    held.told = told;
                }
            });
        }
        for lease in self.overdue(now) {
            let leases = Arc::clone(self);
            tokio::spawn(async move {
                // What could not be ended is tried again with the next look.
                let _ = leases.end(lease, LeaseEnd::Taken).await;
                if let Some(held) = leases.held().get_mut(&lease) {
                    held.is_ending = false;
                }
            });
        }
    }

    /// Leases whose agents are to be told of their notice now; told again only when that fails.
    fn untold(&self) -> Vec<(LeaseId, Folder, Marks, Time)> {
        let mut held = self.held();
        let live = held.iter_mut().filter(|(_, held)| !held.is_gone() && !held.told);
        live.filter_map(|(id, held)| {
            let ends_at = held.marks.ends_at?;
            held.told = true;
            Some((*id, held.folder.clone(), held.marks.clone(), ends_at))
        })
        .collect()
    }

    /// Leases whose time is up and that nobody ends yet: one that takes long to end, on a node that is away for example, is
    /// not asked to end once more with every look.
    pub(super) fn overdue(&self, now: Time) -> Vec<LeaseId> {
        let mut held = self.held();
        let live = held.iter_mut().filter(|(_, held)| !held.is_gone() && !held.is_ending);
        let overdue = live.filter(|(_, held)| held.marks.ends_at.is_some_and(|at| at <= now));
        overdue
            .map(|(id, held)| {
                held.is_ending = true;
                *id
            })
            .collect()
    }
}
