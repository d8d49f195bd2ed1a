//! Several workloads on one machine: which devices each has, who moves in where there is room, and who has the machine
//! when the one that it was got for leaves.

use super::decide::Round;
use super::{Brain, Job, Lease, Stint};
use crate::ids::{LeaseId, WorkloadId};
use crate::offer::OfferId;
use crate::pool::{Allocation, Device, Part};
use crate::reason::Reason;
use crate::record::Decision;
use std::collections::{BTreeMap, BTreeSet};

/// Machines with more accelerators are not dealt out by device: an offer that fits every ask says that it has any number.
const MOST_DEVICES: u32 = 1_024;

impl Lease {
    /// Its accelerators: as its engine said, or as the offer was.
    pub(super) fn accelerators(&self) -> u32 {
        match self.terms.size.accelerators {
            0 => self.goods.as_ref().map_or(0, |goods| goods.count),
            said => said,
        }
    }
}

impl Job {
    /// How many accelerators of a lease a worker of this job uses; none for all of them.
    fn count_on(&self, lease: &Lease) -> Option<u32> {
        let accelerator = &lease.goods.as_ref()?.accelerator;
        let ask = self.spec.resources.iter().find(|ask| ask.accelerator == *accelerator)?;
        let in_part = 0 < ask.count && ask.count < lease.accelerators() && lease.accelerators() <= MOST_DEVICES;
        in_part.then_some(ask.count)
    }
}

/// Machines with devices that nobody uses, as they are during one step.
pub(super) struct Rooms {
    by_offer: BTreeMap<OfferId, Vec<LeaseId>>,
    /// Devices that decisions of this step give away.
    given: BTreeMap<LeaseId, BTreeSet<u32>>,
}

impl Brain {
    pub(super) fn rooms(&self) -> Rooms {
        let mut by_offer: BTreeMap<OfferId, Vec<LeaseId>> = BTreeMap::new();
        let dealt = |lease: &&Lease| (2..=MOST_DEVICES).contains(&lease.accelerators());
        for lease in self.leases.values().filter(dealt).filter(|lease| lease.is_usable()) {
            if self.devices_in_use(lease, None).len() < lease.accelerators() as usize {
                by_offer.entry(lease.offer.clone()).or_default().push(lease.id);
            }
        }
        Rooms { by_offer, given: BTreeMap::new() }
    }

    /// Devices of a lease that stints have, but for those of one workload.
    fn devices_in_use(&self, lease: &Lease, but_for: Option<WorkloadId>) -> BTreeSet<u32> {
        let others = self.workloads_on(lease.id).into_iter().filter(|workload| Some(*workload) != but_for);
        let stints = others.filter_map(|workload| self.jobs.get(&workload)?.stint.as_ref());
        let all = 0..lease.accelerators().min(MOST_DEVICES);
        let of_stint = |stint: &Stint| -> Vec<u32> {
            let here = stint.allocations.iter().filter(|part| part.lease == lease.id);
            let numbers = here.map(|part| match &part.devices {
                Some(devices) => devices.iter().map(|device| device.number).collect(),
                None => all.clone().collect::<Vec<u32>>(),
            });
            numbers.flatten().collect()
        };
        stints.flat_map(of_stint).collect()
    }

    /// A guest has the lease from now on, and pays for all that others do not have of it.
    pub(super) fn on_hand_over(&mut self, seq: u64, id: LeaseId, to: WorkloadId) {
        let now = self.now;
        let is_guest = |lease: &&Lease| lease.sharers.iter().any(|sharer| sharer.stint.workload == to);
        let Some(lease) = self.leases.get(&id).filter(is_guest).filter(|lease| !lease.is_releasing()) else { return };
        let (from, market, held) = (lease.workload, lease.market, lease.held_at(now));
        self.book(id, now, seq);
        if let Some(job) = from.and_then(|from| self.jobs.get_mut(&from)) {
            *job.held.entry(market).or_default() += held;
        }
        let Some(lease) = self.leases.get_mut(&id) else { return };
        lease.workload = Some(to);
        lease.handed_over_at = Some(now);
        for sharer in lease.sharers.extract_if(.., |sharer| sharer.stint.workload == to) {
            if let Some(job) = self.jobs.get_mut(&to) {
                *job.held.entry(market).or_default() += now - sharer.since;
            }
        }
        self.split_node_of(id, seq);
        from.into_iter().for_each(|from| self.forget_if_over(from));
    }
}

impl Round<'_> {
    /// What a worker of a job gets of its own lease: the devices that it asked for, or all of it; nothing while others
    /// have too many of them.
    pub(super) fn own_part(&self, job: &Job, id: LeaseId) -> Option<Allocation> {
        let lease = self.brain.leases.get(&id)?;
        let Some(count) = job.count_on(lease) else { return Some(Allocation::whole(id)) };
        let devices: Vec<Device> = self.free_devices(job, lease).take(count as usize).collect();
        let enough = devices.len() == count as usize;
        enough.then(|| Allocation { devices: Some(devices), ..Allocation::whole(id) })
    }

    fn free_devices(&self, job: &Job, lease: &Lease) -> impl Iterator<Item = Device> {
        let mut used = self.brain.devices_in_use(lease, Some(job.id));
        used.extend(self.rooms.given.get(&lease.id).into_iter().flatten());
        let free = (0..lease.accelerators()).filter(move |number| !used.contains(number));
        free.map(|number| Device { number, part: Part::Whole })
    }

    /// Room for a job on a machine that is held already and is what the job would buy.
    pub(super) fn room_on(&self, job: &Job, offer: &OfferId) -> Option<(Allocation, WorkloadId)> {
        if job.spec.gang != 1 {
            return None;
        }
        let leases = self.rooms.by_offer.get(offer)?.iter().filter_map(|id| self.brain.leases.get(id));
        leases.filter(|lease| job.stopped_in_vain_on != Some(lease.id)).find_map(|lease| {
            let holder = self.brain.jobs.get(&lease.workload?)?;
            if !may_share(job, holder, lease) || self.brain.silent_since(lease.offer.engine()).is_some() {
                return None;
            }
            let count = job.count_on(lease)? as usize;
            // Between two stints the devices of the holder stay its own.
            let kept = if holder.stint.is_none() { holder.count_on(lease)? as usize } else { 0 };
            let free: Vec<Device> = self.free_devices(job, lease).collect();
            let devices = free.get(..count).filter(|_| count + kept <= free.len())?;
            Some((Allocation { devices: Some(devices.to_vec()), ..Allocation::whole(lease.id) }, holder.id))
        })
    }

    /// Notes that devices are given away in this step.
    pub(super) fn give_devices(&mut self, allocation: &Allocation) {
        let numbers = allocation.devices.iter().flatten().map(|device| device.number);
        self.rooms.given.entry(allocation.lease).or_default().extend(numbers);
    }

    /// Leaves a machine to one of the guests on it.
    pub(super) fn hand_over(&mut self, lease: &Lease) {
        let stays = |workload: &WorkloadId| {
            let stint = self.brain.jobs.get(workload).and_then(|job| job.stint.as_ref());
            stint.is_some_and(|stint| stint.stopping.is_none() && !stint.is_ended())
        };
        let guests = || lease.sharers.iter().map(|sharer| sharer.stint.workload);
        if let Some(to) = guests().find(stays).or_else(|| guests().next()) {
            let text = "the job that the machine was got for leaves it: this one runs there, and has it from now on";
            self.say(Decision::HandOver { lease: lease.id, to }, Reason::new("hand-over", text));
        }
    }
}

/// Whether a job may run on a machine of another one: both are of the same person, and neither counts on the machine to
/// keep a deadline. A machine that can be taken nobody counts on.
fn may_share(job: &Job, holder: &Job, lease: &Lease) -> bool {
    let same = (&job.spec.owner, &job.spec.team) == (&holder.spec.owner, &holder.spec.team);
    let counted_on = !lease.market.can_be_taken() && [job, holder].iter().any(|job| job.spec.deadline.is_some());
    let leaving = holder.ended.is_some() || holder.cancelled_by.is_some() || holder.paused;
    same && !counted_on && !leaving
}
