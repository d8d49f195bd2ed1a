//! What the invented world makes of a group that is asked for: refused, queued, granted whole or in part, on this
//! alternative or on another one.

use super::{Machine, World};
use crate::fault::FaultKind;
use crate::market;
use crate::planted::Bug;
use crate::random;
use windfall_core::{DecisionId, GroupPhase, LeaseEnd, LeaseId, LeaseTerms, OfferId, Refusal, Span, Time, Want};
use windfall_exec::{EngineError, LeaseState, SeenGroup, SeenLease};

/// A group that the engine has taken on.
#[derive(Clone, Debug)]
pub(crate) struct Group {
    offer: usize,
    asked_at: Time,
    units: u32,
    least: u32,
    /// In the engine's own queue until then.
    pub queued_until: Option<Time>,
    granted: Option<(Time, u32)>,
}

impl World {
    pub fn acquire_group(&mut self, id: DecisionId, want: &Want) -> Result<SeenGroup, EngineError> {
        if let Some(seen) = self.seen_group(id) {
            if self.bug == Some(Bug::AcquireNotIdempotent) {
                let alive = |(_, machine): &(&LeaseId, &mut Machine)| machine.gone.is_none();
                self.machines.range_mut(slots(id)).filter(alive).for_each(|(_, machine)| machine.copies += 1);
            }
            return Ok(seen);
        }
        let (now, offer) = (self.now, self.choose(id, want)?);
        let spot = self.offers[offer].capacity.is_some();
        if (spot || self.offers[offer].moody) && self.strike(FaultKind::OddRefusal) {
            let odd = [
                Refusal::Quota,
                Refusal::Retry { after: Span::seconds(20) },
                Refusal::Auth,
                Refusal::Bug,
                Refusal::Retry { after: Span(0) },
            ];
            return Err(EngineError::Refused(random::of(self.seed, &[9, id.seq]).pick(&odd)));
        }
        let queued = spot && self.strike(FaultKind::Queued);
        let waits = Span::seconds(random::of(self.seed, &[12, id.seq]).spread(20, 6_000));
        let group = Group {
            offer,
            asked_at: now,
            units: want.units,
            least: want.least,
            queued_until: queued.then(|| now + waits),
            granted: None,
        };
        self.groups.insert(id, group);
        if !queued {
            self.grant(id);
        }
        self.seen_group(id).ok_or(EngineError::Refused(Refusal::Bug))
    }

    /// The alternative that the engine takes: the first that will do, or now and then another.
    fn choose(&self, id: DecisionId, want: &Want) -> Result<usize, EngineError> {
        let known = want.alternatives.iter().filter_map(|one| Some((self.invented(&one.offer)?, one.max_price)));
        let known: Vec<_> = known.collect();
        if known.is_empty() {
            return Err(EngineError::Refused(Refusal::Invalid));
        }
        let good = |(offer, max): &&(usize, Option<windfall_core::NanoUsd>)| {
            let invented = &self.offers[*offer];
            let dear = max.is_some_and(|max| invented.offer.price_per_hour > max);
            let moody = invented.moody && random::of(self.seed, &[8, id.seq]).permille(400);
            !dear && !moody && !self.is_hidden(*offer) && self.room(*offer).is_none_or(|room| room >= want.least)
        };
        let good: Vec<usize> = known.iter().filter(good).map(|(offer, _)| *offer).collect();
        let mut random = random::of(self.seed, &[13, id.seq]);
        let other = random.permille(300) && !self.calm;
        let first = good.first().copied().ok_or(EngineError::Refused(Refusal::NoCapacity))?;
        Ok(if other { random.pick(&good) } else { first })
    }

    /// Instances of an offer that can still be had, where that has an end.
    fn room(&self, offer: usize) -> Option<u32> {
        self.offers[offer].capacity.map(|capacity| capacity.saturating_sub(self.held(offer)))
    }

    /// Grants a group if there is room for it; else it goes on waiting.
    pub(super) fn grant(&mut self, id: DecisionId) {
        let now = self.now;
        let Some(group) = self.groups.get(&id).cloned() else { return };
        let units = self.room(group.offer).map_or(group.units, |room| room.min(group.units));
        if units < group.least.max(1) {
            if let Some(group) = self.groups.get_mut(&id) {
                group.queued_until = Some(now + Span::minutes(3));
            }
            return;
        }
        let spot = self.offers[group.offer].capacity.is_some();
        for slot in 0..units {
            let lease = LeaseId { group: id, slot };
            let never_up = spot && self.strike(FaultKind::NeverUp);
            let never_ready = spot && !never_up && self.strike(FaultKind::NeverReady);
            let mut random = random::of(self.seed, &[10, id.seq, slot.into()]);
            let ready = Span(random.between(self.boot.0 / 3, self.boot.0));
            let up = Span(ready.0 * random.between(1, 100) / 100);
            self.machines.entry(lease).or_insert(Machine {
                up_at: (!never_up).then_some(now + up),
                ready_at: (!never_ready).then_some(now + ready),
                ..Machine::asked(group.offer)
            });
        }
        if let Some(group) = self.groups.get_mut(&id) {
            (group.queued_until, group.granted) = (None, Some((now, units)));
        }
        self.say(|| format!("group {id} is granted: {units} of {}", group.units));
        self.touch();
    }

    pub fn release_slots(&mut self, id: DecisionId, wanted: &[u32]) -> Vec<SeenLease> {
        let now = self.now;
        for slot in wanted {
            let lease = LeaseId { group: id, slot: *slot };
            match self.machines.get(&lease).map(|machine| machine.gone.is_none()) {
                Some(true) => self.end_machine(lease, LeaseEnd::Released),
                Some(false) => {}
                // It never comes, whatever arrives later.
                None => {
                    let gone = Some((now, LeaseEnd::Released));
                    self.machines.insert(lease, Machine { gone, ..Machine::asked(usize::MAX) });
                }
            }
        }
        // What still waits in the queue and is given back is not granted any more.
        if self.groups.get(&id).is_some_and(|group| group.granted.is_none()) {
            self.groups.remove(&id);
        }
        let seen = wanted.iter().map(|slot| LeaseId { group: id, slot: *slot });
        seen.filter_map(|lease| Some(SeenLease { lease, state: self.state(lease, self.machines.get(&lease)?) }))
            .collect()
    }

    pub fn seen_group(&self, id: DecisionId) -> Option<SeenGroup> {
        let machines = || self.machines.range(slots(id));
        let found = machines().filter(|(_, machine)| machine.unfound_until.is_none_or(|until| until <= self.now));
        let leases =
            found.map(|(lease, machine)| SeenLease { lease: *lease, state: self.state(*lease, machine) }).collect();
        let phase = match self.groups.get(&id) {
            Some(Group { granted: Some((at, units)), .. }) => GroupPhase::Granted { at: *at, units: *units },
            Some(group) => {
                let eta = group.queued_until.filter(|_| id.seq.is_multiple_of(2));
                GroupPhase::Queued { since: group.asked_at, eta }
            }
            None => {
                let units = machines().next_back()?.0.slot + 1;
                GroupPhase::Granted { at: self.now, units }
            }
        };
        Some(SeenGroup { group: id, phase, leases })
    }

    /// Forgets a group of which no machine is left: one that comes to be asked for again later is made anew.
    pub fn forget_group(&mut self, id: DecisionId) {
        if self.machines.range(slots(id)).next().is_none() {
            self.groups.remove(&id);
        }
    }

    pub fn state(&self, lease: LeaseId, machine: &Machine) -> LeaseState {
        let skew = Span(if self.bug == Some(Bug::WrongUpTime) { 60_000 } else { 0 });
        match (machine.gone, machine.since) {
            (Some((at, end)), since) => LeaseState::Gone { since, at, end },
            (None, Some(since)) => {
                // The market may warn that a lease is at risk before it sends a notice.
                let near = machine.notice_at.is_some_and(|at| self.now >= at - Span::minutes(3));
                let at_risk = near && machine.offer.is_multiple_of(2);
                let offer = self.offers.get(machine.offer).map(|invented| invented.offer.id.clone());
                let place = market::place_of(self.seed, offer.as_ref().map_or("", OfferId::engine), lease);
                LeaseState::Up {
                    since: since + skew,
                    terms: LeaseTerms { offer, ends_by: machine.ends_by, ..place },
                    ready: machine.ready.then(Default::default),
                    ends_at: machine.ends_at,
                    at_risk,
                    why: None,
                }
            }
            (None, None) => LeaseState::Pending,
        }
    }
}

/// Every slot of a group.
fn slots(group: DecisionId) -> std::ops::RangeInclusive<LeaseId> {
    LeaseId { group, slot: 0 }..=LeaseId { group, slot: u32::MAX }
}
