//! Leases whose marks are there and cannot be read, after a power cut for example. What was written down of them is lost, and
//! they may run all the same: nothing of them is ended, and none of them is told to be gone, before it is known where they are.

use super::{Folder, Held, LocalLeases, Marks};
use crate::nodes::Holder;
use std::sync::{Arc, MutexGuard, PoisonError};
use windfall_core::LeaseId;

impl LocalLeases {
    fn unreadable(&self) -> MutexGuard<'_, std::collections::BTreeMap<LeaseId, Folder>> {
        self.unreadable.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether it is not known yet what a lease is.
    pub fn is_unreadable(&self, lease: LeaseId) -> bool {
        self.unreadable().contains_key(&lease)
    }

    /// Those leases of a group.
    pub(super) fn unreadable_of(&self, group: windfall_core::DecisionId) -> Vec<LeaseId> {
        self.unreadable().keys().filter(|lease| lease.group == group).copied().collect()
    }

    /// Nobody asks for a lease any more: what a node still has of it is a stray from now on.
    pub(super) fn forget_unreadable(&self, lease: LeaseId) {
        self.unreadable().remove(&lease).iter().for_each(Folder::delete);
    }

    /// Takes over a folder whose marks cannot be read: one in which an agent was is looked after as any other here.
    pub(super) fn adopt_unreadable(self: &Arc<Self>, folder: Folder, why: &std::io::Error) {
        let lease = folder.lease;
        eprintln!("what was written down of lease {lease} cannot be read, in {}: {why}", folder.path.display());
        if folder.had_agent() {
            // Whose it was is lost: where that matters it takes nobody's orders.
            let is_apart = self.runs_as_submitters();
            self.take_back(folder, Marks { is_apart, ..Marks::default() });
        } else if self.hosts.nodes.is_some() {
            self.unreadable().insert(lease, folder);
        } else {
            // It can be on this computer alone, and nothing of it ever began.
            folder.delete();
        }
    }

    /// Looks where such leases are. One that a node shows is held again; one that no node can have is none.
    pub fn settle_unreadable(self: &Arc<Self>) {
        let waiting: Vec<(LeaseId, Folder)> =
            self.unreadable().iter().map(|(lease, folder)| (*lease, folder.clone())).collect();
        for (lease, folder) in waiting {
            match self.hosts.holder_of(lease) {
                Holder::Unknown => continue,
                Holder::Nobody => folder.delete(),
                Holder::Node(record) => {
                    eprintln!("lease {lease} was found again on node {}", record.name);
                    // Which accelerators it has is lost: nobody else gets any of its machine.
                    let devices = record.inventory.accelerators.iter().map(|one| one.device.clone()).collect();
                    let (host, devices) = (Some(record.name), Some(devices));
                    let marks = Marks { host, devices, ..Marks::default() };
                    self.take_back(folder, marks);
                }
            }
            self.unreadable().remove(&lease);
        }
    }

    fn take_back(self: &Arc<Self>, folder: Folder, marks: Marks) {
        let (lease, now) = (folder.lease, self.clock.now());
        let marks = Marks { units: lease.slot + 1, up_at: Some(now), ..marks };
        folder.write_marks(&marks);
        self.held().entry(lease).or_insert_with(|| Held::new(folder, marks));
        tokio::spawn(Arc::clone(self).tend(lease));
    }
}
