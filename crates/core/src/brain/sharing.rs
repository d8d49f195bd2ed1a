//! Several workloads on one machine: which devices each has, who moves in where there is room, and who has the machine
//! when the one that it was got for leaves.

use super::decide::Round;
use super::{Brain, Job, Lease, LeasePhase};
use crate::ids::{LeaseId, WorkloadId};
use crate::offer::{Market, Offer, OfferId};
use crate::pool::{Allocation, Device, DevicePart};
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
        self.count_of(&lease.goods.as_ref()?.accelerator, lease.accelerators())
    }

    /// The same of a machine that has so many.
    fn count_of(&self, accelerator: &str, all: u32) -> Option<u32> {
        // The hosts of a TPU slice are one thing, which is used as a whole.
        let whole = accelerator.to_ascii_lowercase().starts_with("tpu") || all > MOST_DEVICES;
        let ask = self.spec.resources.iter().find(|ask| ask.accelerator == accelerator)?;
        (!whole && (1..all).contains(&ask.count)).then_some(ask.count)
    }
}

/// Machines with devices that nobody uses, as they are during one step.
pub(super) struct Rooms {
    by_offer: BTreeMap<OfferId, Vec<LeaseId>>,
    /// Devices of each machine that is dealt out by device which stints have, or get by decisions of this step.
    used: BTreeMap<LeaseId, BTreeSet<u32>>,
    /// Machines that are on their way, or asked for in this step.
    coming: BTreeMap<OfferId, Vec<Coming>>,
}

/// A machine that is on its way, with devices for more than the job that it was asked for.
struct Coming {
    holder: WorkloadId,
    spare: u32,
}

impl Rooms {
    /// A machine that is given back in this step takes nobody in.
    pub fn close(&mut self, lease: &Lease) {
        self.by_offer.get_mut(&lease.offer).into_iter().for_each(|leases| leases.retain(|id| *id != lease.id));
    }
}

impl Brain {
    pub(super) fn rooms(&self) -> Rooms {
        let mut rooms = Rooms { by_offer: BTreeMap::new(), used: BTreeMap::new(), coming: BTreeMap::new() };
        let dealt = |lease: &&Lease| (2..=MOST_DEVICES).contains(&lease.accelerators());
        for lease in self.leases.values().filter(dealt) {
            // What comes in groups may have to be given back as a group.
            let single =
                self.group_of(lease).is_some_and(|group| group.want.units == 1) && self.tells_apart(&lease.offer);
            if single && let Some(coming) = self.coming(lease) {
                rooms.coming.entry(lease.offer.clone()).or_default().push(coming);
            }
            if !lease.is_usable() {
                continue;
            }
            let used = self.devices_in_use(lease);
            if single && used.len() < lease.accelerators() as usize {
                rooms.by_offer.entry(lease.offer.clone()).or_default().push(lease.id);
            }
            rooms.used.insert(lease.id, used);
        }
        rooms
    }

    /// Whether programs on one machine of an offer are told apart.
    fn tells_apart(&self, offer: &OfferId) -> bool {
        let pool = self.offers.get(offer).and_then(|offer| self.pools.get(&offer.pool));
        pool.is_some_and(|pool| pool.tells_apart)
    }

    /// A lease that is on its way and will have room. One in an engine's own queue may take hours.
    fn coming(&self, lease: &Lease) -> Option<Coming> {
        let booting = matches!(lease.phase, LeasePhase::Asked | LeasePhase::Up) && lease.ready.is_none();
        self.on_its_way_since(lease).filter(|_| booting)?;
        let holder = self.jobs.get(&lease.workload?)?;
        Some(Coming { holder: holder.id, spare: lease.accelerators() - holder.count_on(lease)? })
    }

    /// The job whose machine is on its way and may have room for this one: for people who ask why it waits.
    pub(super) fn waits_for_room_of(&self, job: &Job) -> Option<WorkloadId> {
        let may_wait = job.spec.gang == 1 && job.spec.deadline.is_none();
        let mut leases = self.leases.values().filter(|_| may_wait);
        leases.find_map(|lease| {
            let coming = self.coming(lease).filter(|_| self.tells_apart(&lease.offer))?;
            let holder = self.jobs.get(&coming.holder).filter(|holder| may_share(job, holder, lease.market))?;
            (job.count_on(lease)? <= coming.spare).then_some(holder.id)
        })
    }

    /// Devices of a lease that stints have.
    fn devices_in_use(&self, lease: &Lease) -> BTreeSet<u32> {
        let stints = self.workloads_on(lease.id).into_iter();
        let stints = stints.filter_map(|workload| self.jobs.get(&workload)?.stint.as_ref());
        let parts = stints.flat_map(|stint| stint.allocations.iter().filter(|part| part.lease == lease.id));
        let numbers = parts.flat_map(|part| match &part.devices {
            Some(devices) => devices.iter().map(|device| device.number).collect::<Vec<u32>>(),
            None => (0..lease.accelerators().min(MOST_DEVICES)).collect(),
        });
        numbers.collect()
    }

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
        let devices: Vec<Device> = self.free_devices(lease).take(count as usize).collect();
        let enough = devices.len() == count as usize;
        enough.then(|| Allocation { devices: Some(devices), ..Allocation::whole(id) })
    }

    fn free_devices(&self, lease: &Lease) -> impl Iterator<Item = Device> {
        let used = self.rooms.used.get(&lease.id);
        let free = (0..lease.accelerators()).filter(move |number| used.is_none_or(|used| !used.contains(number)));
        free.map(|number| Device { number, part: DevicePart::Whole })
    }

    /// Room for a job on a machine that is held already and is what the job would buy.
    pub(super) fn room_on(&self, job: &Job, offer: &OfferId) -> Option<(Allocation, WorkloadId)> {
        if job.spec.gang != 1 {
            return None;
        }
        let leases = self.rooms.by_offer.get(offer)?.iter().filter_map(|id| self.brain.leases.get(id));
        leases.filter(|lease| job.stopped_in_vain_on != Some(lease.id)).find_map(|lease| {
            let holder = self.brain.jobs.get(&lease.workload?)?;
            if !may_share(job, holder, lease.market) || self.brain.silent_since(lease.offer.engine()).is_some() {
                return None;
            }
            let count = job.count_on(lease)? as usize;
            // Between two stints the devices of the holder stay its own.
            let kept = if holder.stint.is_none() { holder.count_on(lease)? as usize } else { 0 };
            let free: Vec<Device> = self.free_devices(lease).take(count + kept).collect();
            let devices = free.get(..count).filter(|_| free.len() == count + kept)?;
            Some((Allocation { devices: Some(devices.to_vec()), ..Allocation::whole(lease.id) }, holder.id))
        })
    }

    /// Whether a job had better wait for a machine that is on its way: it is what the job would get, and has room for it.
    /// A deadline does not wait for what others asked for.
    pub(super) fn room_is_coming(&mut self, job: &Job, offer: &OfferId) -> bool {
        let Some(offer) = self.brain.offers.get(offer).filter(|_| job.spec.gang == 1 && job.spec.deadline.is_none())
        else {
            return false;
        };
        let Some(count) = job.count_of(&offer.accelerator, offer.accelerators) else { return false };
        let jobs = &self.brain.jobs;
        let mut coming = self.rooms.coming.get_mut(&offer.id).into_iter().flatten();
        let shared = |coming: &&mut Coming| {
            let holder = jobs.get(&coming.holder);
            coming.spare >= count && holder.is_some_and(|holder| may_share(job, holder, offer.market))
        };
        coming.find(shared).map(|coming| coming.spare -= count).is_some()
    }

    /// A machine is asked for in this step: others may wait for it.
    pub(super) fn expect(&mut self, job: &Job, offer: &Offer) {
        if job.spec.gang == 1
            && self.brain.tells_apart(&offer.id)
            && let Some(count) = job.count_of(&offer.accelerator, offer.accelerators)
        {
            let coming = Coming { holder: job.id, spare: offer.accelerators - count };
            self.rooms.coming.entry(offer.id.clone()).or_default().push(coming);
        }
    }

    /// Notes that devices are given away in this step.
    pub(super) fn give_devices(&mut self, allocation: &Allocation) {
        let numbers = allocation.devices.iter().flatten().map(|device| device.number);
        self.rooms.used.entry(allocation.lease).or_default().extend(numbers);
    }

    /// Whether a job was started in this step on a lease of another.
    pub(super) fn has_newcomer(&self, lease: &Lease) -> bool {
        self.moved_in.contains(&lease.id)
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
            let text = "the job that the machine was got for leaves it: this one runs there, and has it from now on";
            self.say(Decision::HandOver { lease: lease.id, to }, Reason::new("hand-over", text));
        }
    }
}

/// Whether a job may run on a machine of another one: both are of the same person, and neither counts on the machine to
/// keep a deadline. A machine that can be taken nobody counts on.
fn may_share(job: &Job, holder: &Job, market: Market) -> bool {
    let same = (&job.spec.owner, &job.spec.team) == (&holder.spec.owner, &holder.spec.team);
    let counted_on = !market.can_be_taken() && [job, holder].iter().any(|job| job.spec.deadline.is_some());
    let leaving = holder.ended.is_some() || holder.cancelled_by.is_some() || holder.paused || holder.verdict.is_some();
    same && !counted_on && !leaving
}
