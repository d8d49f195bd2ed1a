//! Devices of machines that nobody uses: which there are at a step, which are on their way, and who may have them.

use super::{Brain, Job, Lease, LeasePhase};
use crate::ids::{LeaseId, WorkloadId};
use crate::offer::{Market, OfferId};
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
    pub(super) fn count_on(&self, lease: &Lease) -> Option<u32> {
        self.count_of(&lease.goods.as_ref()?.accelerator, lease.accelerators())
    }

    /// The same of a machine that has so many.
    pub(super) fn count_of(&self, accelerator: &str, all: u32) -> Option<u32> {
        // The hosts of a TPU slice are one thing, which is used as a whole.
        let whole = accelerator.to_ascii_lowercase().starts_with("tpu") || all > MOST_DEVICES;
        let ask = self.spec.resources.iter().find(|ask| ask.accelerator == accelerator)?;
        (!whole && (1..all).contains(&ask.count)).then_some(ask.count)
    }
}

/// Machines with devices that nobody uses, as they are during one step.
pub(super) struct Rooms {
    pub by_offer: BTreeMap<OfferId, Vec<LeaseId>>,
    /// Devices of each machine that is dealt out by device which stints have, or get by decisions of this step.
    pub used: BTreeMap<LeaseId, BTreeSet<u32>>,
    /// Machines that are on their way, or asked for in this step.
    pub coming: BTreeMap<OfferId, Vec<Coming>>,
}

/// A machine that is on its way, with devices for more than the job that it was asked for.
pub(super) struct Coming {
    pub holder: WorkloadId,
    pub spare: u32,
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
            if let Some(coming) = self.coming(lease) {
                rooms.coming.entry(lease.offer.clone()).or_default().push(coming);
            }
            if !lease.is_usable() {
                continue;
            }
            let used = self.devices_in_use(lease);
            if self.takes_guests(lease) && used.len() < lease.accelerators() as usize {
                rooms.by_offer.entry(lease.offer.clone()).or_default().push(lease.id);
            }
            rooms.used.insert(lease.id, used);
        }
        rooms
    }

    /// Whether programs on one machine of an offer are told apart.
    pub(super) fn tells_apart(&self, offer: &OfferId) -> bool {
        let pool = self.offers.get(offer).and_then(|offer| self.pools.get(&offer.pool));
        pool.is_some_and(|pool| pool.tells_apart)
    }

    /// Whether others may run on a lease. What comes in groups may have to be given back as a group.
    fn takes_guests(&self, lease: &Lease) -> bool {
        self.group_of(lease).is_some_and(|group| group.want.units == 1) && self.tells_apart(&lease.offer)
    }

    /// A lease that is on its way and will have room. One in an engine's own queue may take hours.
    fn coming(&self, lease: &Lease) -> Option<Coming> {
        let booting = matches!(lease.phase, LeasePhase::Asked | LeasePhase::Up) && lease.ready.is_none();
        self.on_its_way_since(lease).filter(|_| booting && self.takes_guests(lease))?;
        let holder = self.jobs.get(&lease.workload?)?;
        Some(Coming { holder: holder.id, spare: lease.accelerators() - holder.count_on(lease)? })
    }

    /// The job whose machine is on its way and may have room for this one: for people who ask why it waits.
    pub(super) fn waits_for_room_of(&self, job: &Job) -> Option<WorkloadId> {
        let may_wait = job.spec.gang == 1 && job.spec.deadline.is_none();
        let mut leases = self.leases.values().filter(|_| may_wait);
        leases.find_map(|lease| {
            let coming = self.coming(lease)?;
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
}

/// Whether a job may run on a machine of another one: both are of the same person, and neither counts on the machine to
/// keep a deadline. A machine that can be taken nobody counts on.
pub(super) fn may_share(job: &Job, holder: &Job, market: Market) -> bool {
    let same = (&job.spec.owner, &job.spec.team) == (&holder.spec.owner, &holder.spec.team);
    let counted_on = !market.can_be_taken() && [job, holder].iter().any(|job| job.spec.deadline.is_some());
    let leaving = holder.ended.is_some() || holder.cancelled_by.is_some() || holder.paused || holder.verdict.is_some();
    same && !counted_on && !leaving
}
