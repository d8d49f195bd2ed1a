//! Notices of leases that will be taken away: their agents are told once, and what is still there at the end is ended.

use super::{Folder, LocalLeases, Marks};
use crate::engine::EngineError;
use std::sync::Arc;
use windfall_core::{LeaseEnd, LeaseId, Span, Time};

impl LocalLeases {
    /// Takes a lease away after this time. One that has a shorter notice keeps it.
    pub fn give_notice(self: &Arc<Self>, lease: LeaseId, notice: Span) -> Result<(), EngineError> {
        let now = self.clock.now();
        let is_up = self.held().get(&lease).is_some_and(|held| !held.is_gone() && held.marks.up_at.is_some());
        if !is_up {
            return Err(EngineError::NoLease(lease));
        }
        let ends_at = now + notice;
        self.mark(lease, |marks| marks.ends_at = Some(marks.ends_at.map_or(ends_at, |known| known.min(ends_at))));
        self.carry_notices_out(now);
        Ok(())
    }

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
