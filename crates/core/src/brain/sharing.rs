//! Several workloads on one machine: which devices each gets, who moves in where there is room, and who has the machine
//! when the one that has it leaves.

use super::decide::Round;
use super::rooms::{Claim, ask_for, may_share};
use super::{Brain, Job, Lease, Sharer};
use crate::ids::{LeaseId, WorkloadId};
use crate::offer::{Offer, OfferId};
use crate::pool::Allocation;
use crate::reason::Reason;
use crate::record::Decision;

impl Brain {
    /// Whether a workload has a stint on a lease, ended or not.
    pub(super) fn is_on(&self, workload: WorkloadId, lease: LeaseId) -> bool {
        let stint = self.jobs.get(&workload).and_then(|job| job.stint.as_ref());
        stint.is_some_and(|stint| stint.is_on(lease))
    }

    /// A guest has the lease from now on, and pays for all that others do not have of it. Whoever still runs there keeps it.
    pub(super) fn on_hand_over(&mut self, seq: u64, id: LeaseId, to: WorkloadId) {
        let now = self.now;
        let is_guest = |lease: &&Lease| lease.sharers.iter().any(|sharer| sharer.stint.workload == to);
        let is_left = |lease: &&Lease| lease.workload.is_none_or(|holder| !self.is_on(holder, id));
        let lease = self.leases.get(&id).filter(is_guest).filter(is_left).filter(|lease| !lease.is_releasing());
        let Some(lease) = lease else { return };
        let (from, held_since) = (lease.workload, lease.held_since());
        self.book(id, now, seq);
        from.zip(held_since).into_iter().for_each(|(from, since)| self.end_tenure(from, id, since));
        let Some(lease) = self.leases.get_mut(&id) else { return };
        lease.workload = Some(to);
        lease.handed_over_at = Some(now);
        let parts: Vec<Sharer> = lease.sharers.extract_if(.., |sharer| sharer.stint.workload == to).collect();
        parts.iter().for_each(|part| self.end_tenure(to, id, part.since));
        self.split_node_of(id, seq);
        from.into_iter().for_each(|from| self.forget_if_over(from));
    }
}

impl Round<'_> {
    /// What a worker of a job gets of its own lease: the devices that it asked for, or all of it; nothing while others
    /// have too many of them.
    pub(super) fn own_part(&self, job: &Job, id: LeaseId) -> Option<Allocation> {
        let lease = self.brain.leases.get(&id)?;
        let Some(ask) = job.needs_on(lease) else { return Some(Allocation::whole(id)) };
        let devices = self.rooms.free(self.brain, lease).take(ask)?;
        Some(Allocation { devices: Some(devices), ..Allocation::whole(id) })
    }

    /// Room for a job on a machine that is held already and is what the job would buy; rather on the one that it waited for.
    pub(super) fn room_on(&self, job: &Job, offer: &OfferId) -> Option<(Allocation, WorkloadId)> {
        if job.spec.gang != 1 {
            return None;
        }
        let brain = self.brain;
        let claim = brain.awake.rooms.claim_of(job.id);
        let awaited = claim.into_iter().flat_map(|claim| brain.leases_of(claim.holder));
        let awaited = awaited.filter(|lease| lease.offer == *offer);
        let person = brain.leases.people_with_room(offer).next().map(|_| job.person());
        let accelerator = brain.offers.get(offer).map(|offer| offer.accelerator.as_str());
        let ask = accelerator.and_then(|accelerator| ask_for(&job.spec.resources, accelerator));
        let open = person.iter().zip(ask).flat_map(|(person, ask)| brain.leases.with_room(offer, person, ask));
        awaited.chain(open).find_map(|lease| {
            let holder = brain.jobs.get(&lease.workload?)?;
            let shuns = job.stopped_in_vain_on == Some(lease.id) || job.not_begun_on.contains(&lease.id);
            let ask = job.needs_on(lease).filter(|_| !shuns && may_share(job, holder, lease.market))?;
            let devices = self.rooms.devices_on(brain, lease, ask)?;
            Some((Allocation { devices: Some(devices), ..Allocation::whole(lease.id) }, holder.id))
        })
    }

    /// Room on a machine that is on its way to another job and had better be waited for: it is what this one would get. A
    /// deadline does not wait for what others asked for.
    pub(super) fn room_is_coming(&mut self, job: &Job, offer: &OfferId) -> Option<Claim> {
        let waits = job.spec.gang == 1 && job.spec.deadline.is_none();
        let offer = self.brain.offers.get(offer).filter(|_| waits)?;
        let ask = job.needs_of(&offer.accelerator, offer.accelerators)?;
        self.rooms.wait_for(self.brain, job, offer, ask)
    }

    /// A machine is asked for in this step: others may wait for it.
    pub(super) fn expect(&mut self, job: &Job, offer: &Offer) {
        if job.spec.gang == 1
            && self.brain.tells_apart(&offer.id)
            && let Some(ask) = job.needs_of(&offer.accelerator, offer.accelerators)
        {
            self.rooms.expect(self.brain, job, offer, ask);
        }
    }

    /// Notes that devices are given away in this step.
    pub(super) fn give_devices(&mut self, allocation: &Allocation) {
        if let Some(devices) = &allocation.devices {
            self.rooms.give(allocation.lease, devices);
        }
    }

    /// Leaves a machine to one of the guests on it.
    pub(super) fn hand_over(&mut self, lease: &Lease) {
        let stays = |workload: &WorkloadId| {
            let stint = self.brain.jobs.get(workload).and_then(|job| job.stint.as_ref());
            stint.is_some_and(|stint| stint.stopping.is_none() && !stint.is_ended())
        };
        // Who has a budget may not be able to pay for all of it.
        let bears = |workload: &WorkloadId| {
            stays(workload) && self.brain.jobs.get(workload).is_some_and(|job| job.spec.budget.is_none())
        };
        let guests = || lease.sharers.iter().map(|sharer| sharer.stint.workload);
        if let Some(to) = guests().find(bears).or_else(|| guests().find(stays)).or_else(|| guests().next()) {
            let text = "the job that had the machine leaves it: this one runs there, and has it from now on";
            self.say(Decision::HandOver { lease: lease.id, to }, Reason::new("hand-over", text));
        }
    }
}
