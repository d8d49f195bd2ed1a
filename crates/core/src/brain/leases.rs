//! The fold over what becomes of groups and leases: asked for, queued, granted, refused, up, ready, noticed, gone. Every
//! second of a lease that is up is metered here.

use super::{Brain, Group, Lease, LeasePhase, SHOWN_AFTER_END, Stint};
use crate::ids::{DecisionId, LeaseId, NodeId, WorkloadId};
use crate::ledger::{Goods, HostShape, Meter, PriceLine};
use crate::offer::{Market, Offer, OfferId};
use crate::pool::Shape;
use crate::record::{LeaseEnd, Refusal, WorkerEnd};
use crate::trouble::Trouble;
use crate::units::{NanoUsd, Span, Time, Work};
use crate::want::{Address, GroupPhase, LeaseTerms, Want};
use std::sync::Arc;

impl Brain {
    pub(super) fn on_acquire(&mut self, by: DecisionId, want: &Want) {
        let (now, Some(job)) = (self.now, self.jobs.get_mut(&want.workload)) else { return };
        let Some(first) = want.alternatives.first() else { return };
        if self.groups.contains_key(&by) {
            return;
        }
        job.began_at.get_or_insert(now);
        for slot in 0..want.units {
            let id = LeaseId { group: by, slot };
            let known = self.known_offer(&first.offer);
            let lease = Lease::asked(id, Some(want.workload), first.offer.clone(), known, now);
            if !self.leases.contains_key(&id) {
                self.leases.insert(lease);
            }
        }
        let group = Group { id: by, want: want.clone(), asked_at: now, phase: GroupPhase::Asked };
        self.groups.insert(by, group);
    }

    fn market_of(&self, offer: &OfferId) -> Market {
        self.known_offer(offer).map_or(Market::OnDemand, |offer| offer.market)
    }

    /// An offer as it is shown, or was last shown.
    pub(super) fn known_offer(&self, id: &OfferId) -> Option<&Offer> {
        self.offers.get(id).or_else(|| self.withdrawn.get(id))
    }

    pub(super) fn on_release(&mut self, by: DecisionId, group: DecisionId, slots: &[u32]) {
        for slot in slots {
            if let Some(lease) = self.leases.get_mut(&LeaseId { group, slot: *slot })
                && !lease.is_releasing()
            {
                lease.phase = LeasePhase::Releasing { by };
            }
        }
        let want = self.groups.get(&group).map(|group| &group.want).filter(|want| !want.beside.is_empty());
        let job = want.and_then(|want| self.jobs.get_mut(&want.workload));
        let is_off = |stint: &Stint| stint.leases().all(|lease| lease.group != group);
        if let Some(job) = job.filter(|job| job.stint.as_deref().is_some_and(is_off)) {
            job.fill_up_later(self.now);
        }
    }

    /// A group that is about to change, and with it what its leases are to everybody.
    fn group_mut(&mut self, id: DecisionId) -> Option<&mut Group> {
        self.leases.touch(id);
        self.groups.get_mut(&id)
    }

    pub(super) fn on_group_queued(&mut self, id: DecisionId, since: Time, eta: Option<Time>) {
        let now = self.now;
        if let Some(group) = self.group_mut(id) {
            group.phase = GroupPhase::Queued { since: since.clamp(group.asked_at, now), eta };
        }
    }

    /// Slots beyond what was granted do not come.
    pub(super) fn on_group_granted(&mut self, id: DecisionId, at: Time, units: u32) {
        let now = self.now;
        let Some(group) = self.group_mut(id) else { return };
        let at = at.clamp(group.asked_at, now);
        let waited = group.leaves_queue(at, units);
        let workload = group.want.workload;
        self.note_wait(waited);
        let never = |lease: &&Lease| lease.id.slot >= units && lease.meter.is_none();
        let never: Vec<LeaseId> = self.leases_in(id).filter(never).map(|lease| lease.id).collect();
        for lease in never {
            self.leases.remove(&lease);
        }
        self.forget_group_if_empty(id);
        self.forget_if_over(workload);
    }

    fn note_wait(&mut self, waited: Option<(OfferId, Span)>) {
        match waited {
            Some((offer, Span::ZERO)) => self.droughts.came_at_once(&offer),
            Some((offer, wait)) => self.droughts.waited(&offer, self.now, wait),
            None => {}
        }
    }

    pub(super) fn on_group_failed(&mut self, id: DecisionId, refusal: Refusal) {
        let Some(group) = self.groups.remove(&id) else { return };
        let leases: Vec<LeaseId> = self.leases_in(id).map(|lease| lease.id).collect();
        for lease in leases {
            self.leases.remove(&lease);
        }
        for alternative in &group.want.alternatives {
            match refusal {
                Refusal::Owner => self.on_refused_to(group.want.workload, &alternative.offer),
                _ => self.on_refused(&alternative.offer, refusal),
            }
        }
        self.forget_if_over(group.want.workload);
    }

    /// What one person may not have is left alone by that job, and by nobody else.
    fn on_refused_to(&mut self, job: WorkloadId, offer: &OfferId) {
        let until = self.now + self.habits(offer).refusal_pause.scaled(10, 1);
        if let Some(job) = self.jobs.get_mut(&job) {
            job.refused.retain(|_, until| *until > self.now);
            job.refused.insert(offer.clone(), until);
        }
    }

    fn on_refused(&mut self, offer: &OfferId, refusal: Refusal) {
        if refusal == Refusal::NoCapacity {
            self.heard(offer, false);
        }
        let usual = self.habits(offer).refusal_pause;
        let pause = match refusal {
            Refusal::NoCapacity => usual,
            Refusal::Retry { after } => after,
            _ => Span(usual.0.saturating_mul(10)),
        };
        let until = self.now + Span(pause.0.clamp(1_000, Span::hours(1).0));
        if !self.market_of(offer).can_be_taken() {
            self.droughts.refused(offer, self.now, until);
        }
        let known = self.refused.entry(offer.clone()).or_insert(until);
        *known = (*known).max(until);
        self.awake.offer(offer);
        self.awake.reopens(offer, *known);
    }

    pub(super) fn on_lease_up(&mut self, id: LeaseId, at: Time, terms: &LeaseTerms, ready: Option<&Address>) {
        let Some(lease) = self.leases.get_mut(&id) else { return };
        lease.bind(terms);
        let Shape { cpu_millis, memory_bytes, .. } = lease.terms.size;
        let (offer, at) = (lease.offer.clone(), at.clamp(lease.asked_at, self.now));
        let known = self.known_offer(&offer).map(|offer| (offer.market, Goods::of(offer)));
        let Some(lease) = self.leases.get_mut(&id) else { return };
        if let Some((market, goods)) = known {
            lease.market = market;
            lease.goods = Some(Arc::new(Goods { shape: HostShape { cpu_millis, memory_bytes }, ..goods }));
        }
        lease.up_at = Some(at);
        lease.ready = ready.cloned().or(lease.ready.take());
        if lease.phase == LeasePhase::Asked {
            lease.phase = LeasePhase::Up;
        }
        let firm = !lease.market.can_be_taken();
        let free = self.leases.get(&id).is_some_and(|lease| self.is_paid_by_node(lease));
        // One whose price nobody ever said costs nothing until somebody does.
        let prices = self.prices.entry(offer.clone()).or_insert_with(|| PriceLine::starting(at, NanoUsd(0)));
        if let Some(lease) = self.leases.get_mut(&id) {
            let mut meter = Meter::start(at, prices);
            meter.set_free(free);
            lease.meter = Some(meter);
        }
        self.enter_node(id, at);
        if let Some(group) = self.group_mut(id.group) {
            let units = group.want.units;
            let waited = match group.phase {
                // Nobody said when it was granted: it never queued, so it was on its way since it was asked for.
                GroupPhase::Asked => group.leaves_queue(group.asked_at, units),
                GroupPhase::Queued { .. } => group.leaves_queue(at, units),
                GroupPhase::Granted { .. } => None,
            };
            self.note_wait(waited);
        }
        if firm {
            self.droughts.given(&offer, self.now);
        }
        self.heard(&offer, true);
    }

    pub(super) fn on_lease_ready(&mut self, id: LeaseId, address: &Address) {
        if let Some(lease) = self.leases.get_mut(&id) {
            lease.ready = Some(address.clone());
        }
    }

    /// Whether a life of a lease that began at `since` is in the books to its end.
    pub(super) fn is_booked(&self, id: LeaseId, since: Time) -> bool {
        self.closed.end_of(id).is_some_and(|end| end >= since)
    }

    fn note_closed(&mut self, id: LeaseId, at: Time) {
        self.closed.add(id, at);
        self.closed.forget_before(self.now, SHOWN_AFTER_END);
    }

    /// Takes a lease into the books that nobody asked for as far as the log knows.
    pub(super) fn on_lease_found(&mut self, id: LeaseId, offer: &OfferId, since: Option<Time>) {
        // Nobody knows when it was asked for; it may come up before this news of it arrives.
        let lease = Lease::asked(id, None, offer.clone(), self.known_offer(offer), Time(0));
        self.leases.insert(lease);
        since.into_iter().for_each(|since| self.on_lease_up(id, since, &LeaseTerms::default(), None));
    }

    pub(super) fn on_lease_noticed(&mut self, id: LeaseId, ends_at: Time) {
        let Some(lease) = self.leases.get_mut(&id) else { return };
        lease.phase = LeasePhase::Noticed { ends_at };
        for workload in self.leases.get(&id).into_iter().flat_map(Lease::workloads) {
            let stint = self.jobs.get_mut(&workload).and_then(|job| job.stint.as_mut());
            if let Some(stint) = stint.filter(|stint| stint.is_on(id)) {
                stint.interrupted = true;
            }
        }
    }

    pub(super) fn on_lease_gone(&mut self, seq: u64, id: LeaseId, at: Time, end: LeaseEnd) {
        let Some(up_at) = self.leases.get(&id).map(|lease| lease.up_at) else { return };
        let end_at = up_at.map_or(at, |up_at| at.clamp(up_at, self.now));
        self.book(id, end_at, seq);
        if up_at.is_some() {
            self.leave_node(id, end_at, seq);
        }
        let on_it = self.workloads_on(id).collect();
        let Some(lease) = self.leases.remove(&id) else { return };
        if end == LeaseEnd::Taken {
            self.heard(&lease.offer, false);
        }
        self.note_closed(id, end_at);
        self.forget_group_if_empty(id.group);
        if let Some(job) = lease.workload.and_then(|workload| self.jobs.get_mut(&workload))
            && lease.up_at.is_some()
        {
            *job.held.entry(lease.market).or_default() += lease.held_at(end_at);
        }
        for sharer in &lease.sharers {
            if let Some(job) = self.jobs.get_mut(&sharer.stint.workload) {
                *job.held.entry(lease.market).or_default() += Span((end_at - sharer.since).0.max(0));
            }
        }
        self.correct_tenures(lease.market, end_at, &lease.tenures);
        self.end_workers_on(id, end, lease.terms.node.as_ref(), on_it);
        lease.workload.into_iter().for_each(|workload| self.forget_if_over(workload));
    }

    /// Whatever ran on a lease that is gone is dead, and did not end by itself as far as anyone knows.
    fn end_workers_on(&mut self, id: LeaseId, end: LeaseEnd, node: Option<&NodeId>, on_it: Vec<WorkloadId>) {
        let now = self.now;
        for workload in on_it {
            let Some(job) = self.jobs.get_mut(&workload) else { continue };
            let Some(stint) = job.stint.as_mut().filter(|stint| stint.is_on(id)) else { continue };
            let lost = match end {
                _ if !stint.is_sending_from(id) => None,
                LeaseEnd::Released => {
                    (job.cancelled_by.is_some() || job.given_up).then(|| Trouble::given_up(&job.spec))
                }
                _ => Some(Trouble::lost_on_its_way(&job.spec, workload, node)),
            };
            let torn = stint.is_sending_from(id) && end != LeaseEnd::Released;
            if let Some(lost) = &lost {
                stint.lose(lost);
            }
            for rank in stint.ranks_on(id) {
                let worker = &mut stint.workers[rank];
                stint.interrupted |= worker.end.is_none() && (end != LeaseEnd::Released || stint.stopping.is_none());
                worker.end.get_or_insert(WorkerEnd::Stopped);
                worker.settled = true;
            }
            stint.torn |= torn;
            let from_another = job.spec.continues.as_ref().is_some_and(|from| from.durable > Work(0));
            let is_durable = job.progress.checkpoint.is_some() || from_another;
            match stint.is_ended() {
                true => _ = stint.ended_at.get_or_insert(now),
                // What the others save counts no more, without what is lost: where something is durable, all go on from there.
                false => stint.interrupted |= torn && is_durable && stint.goes_well(),
            }
            self.close_stint_if_over(workload);
            self.forget_if_over(workload);
        }
    }

    fn forget_group_if_empty(&mut self, id: DecisionId) {
        if self.leases_in(id).next().is_none() {
            self.groups.remove(&id);
        }
    }
}
