//! Selling groups: what the market has left, which alternative it becomes, and the agents that make it usable.

use super::folder::{Folder, Marks};
use super::{Held, Simulated};
use crate::engine::{EngineError, LeaseState, SeenGroup, SeenLease};
use std::collections::btree_map::Entry;
use std::sync::Arc;
use windfall_core::{DecisionId, GroupPhase, LeaseId, Offer, OfferId, Refusal, Want};

impl Simulated {
    /// Sells a group, if the market has enough of an alternative now: what is sold and not given back counts. What was
    /// sold before is made whole where it was cut off in the middle.
    pub(super) fn sell(&self, group: DecisionId, want: &Want) -> Result<(), EngineError> {
        let offers = self.position.offers(self.clock.now());
        let mut held = self.held();
        let known = held.range(LeaseId { group, slot: 0 }..=LeaseId { group, slot: u32::MAX });
        let known = known.map(|(_, held)| held.marks.clone()).max_by_key(|marks| marks.units);
        let marks = match known {
            // Given back before it was asked for, or sold by a server that knew no groups.
            Some(marks) if marks.units == 0 => return Ok(()),
            Some(marks) => Marks { up_at: None, ends_at: None, at_risk: false, gone: None, ..marks },
            None => {
                let sold = |offer: &OfferId| {
                    held.values().filter(|held| held.marks.gone.is_none() && held.marks.offer == *offer).count() as u32
                };
                let (offer, units) = chosen(&offers, want, sold)?;
                Marks { offer, units, sold_at: Some(self.clock.now()), ..Marks::default() }
            }
        };
        let why = |error: std::io::Error| EngineError::Unreachable { why: error.to_string() };
        for slot in 0..marks.units {
            if let Entry::Vacant(missing) = held.entry(LeaseId { group, slot }) {
                let folder = Folder::create(&self.root, *missing.key()).map_err(why)?;
                folder.write_marks(&marks);
                missing.insert(Held { folder, marks: marks.clone(), told: false });
            }
        }
        Ok(())
    }

    /// Starts the agent of a lease that was sold.
    pub(super) async fn launch(self: &Arc<Self>, lease: LeaseId) -> Result<(), EngineError> {
        let gate = self.gate(lease);
        let _alone = gate.lock().await;
        if self.state_of(lease) != Some(LeaseState::Pending) {
            return Ok(());
        }
        let why = |error: std::io::Error| EngineError::Unreachable { why: error.to_string() };
        let folder = self.folder(lease).ok_or(EngineError::NoLease(lease))?;
        self.machines.launch(&folder).await.map_err(why)?;
        let now = self.clock.now();
        self.mark(lease, |marks| {
            marks.up_at.get_or_insert(now);
        });
        tokio::spawn(Arc::clone(self).tend(lease));
        Ok(())
    }

    /// The leases of a group that are known, and where the group stands; none where nothing of it is known.
    pub(super) fn group_of(&self, group: DecisionId) -> Option<SeenGroup> {
        let held = self.held();
        let known = held.range(LeaseId { group, slot: 0 }..=LeaseId { group, slot: u32::MAX });
        let known: Vec<(LeaseId, Marks)> = known.map(|(lease, held)| (*lease, held.marks.clone())).collect();
        drop(held);
        let units = known.iter().map(|(lease, marks)| marks.units.max(lease.slot + 1)).max()?;
        let at = known.iter().filter_map(|(_, marks)| marks.sold_at.or(marks.up_at)).min().unwrap_or(self.clock.now());
        let leases = known.iter().filter_map(|(lease, _)| self.seen(*lease)).collect();
        Some(SeenGroup { group, phase: GroupPhase::Granted { at, units }, leases })
    }

    fn seen(&self, lease: LeaseId) -> Option<SeenLease> {
        self.state_of(lease).map(|state| SeenLease { lease, state })
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
