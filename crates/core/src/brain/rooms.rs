//! Devices of machines that nobody uses: which there are at a step, which are on their way, and who may have them.

use super::lookout::fits;
use super::tables::Person;
use super::{Brain, Job, Lease, LeasePhase};
use crate::ids::{LeaseId, WorkloadId};
use crate::ledger::Account;
use crate::offer::{Market, OfferId};
use crate::pool::{Device, DevicePart};
use crate::spec::{Ask, is_tpu};
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
    /// The accelerators of a lease that a worker of this job uses; none for all of them.
    pub(super) fn needs_on(&self, lease: &Lease) -> Option<&Ask> {
        self.needs_of(&lease.goods.as_ref()?.accelerator, lease.accelerators())
    }

    /// The same of a machine that has so many.
    pub(super) fn needs_of(&self, accelerator: &str, all: u32) -> Option<&Ask> {
        let dealt = !is_tpu(accelerator) && (1..=MOST_DEVICES).contains(&all);
        let ask = self.spec.resources.iter().find(|ask| ask.accelerator == accelerator)?;
        let less = (1..all).contains(&ask.count) || ask.count == 1 && !ask.part.is_whole();
        Some(ask).filter(|_| dealt && less)
    }

    /// Whose money it costs.
    pub(super) fn account(&self) -> Account {
        Account::of(self.id, &self.spec)
    }

    /// Who it is of.
    pub(super) fn person(&self) -> Person {
        (self.spec.team.as_str().into(), self.spec.owner.as_str().into())
    }

    /// Whether it has no more use for what it has.
    pub(super) fn is_leaving(&self) -> bool {
        self.ended.is_some() || self.cancelled_by.is_some() || self.paused || self.verdict.is_some()
    }
}

/// What nobody has of each device of a machine, in [`DevicePart::UNITS`].
#[derive(Clone)]
pub(super) struct FreeDevices(Vec<u32>);

impl FreeDevices {
    /// All of a machine with so many.
    pub fn all(count: u32) -> FreeDevices {
        FreeDevices(vec![DevicePart::UNITS; count.min(MOST_DEVICES) as usize])
    }

    /// Devices for an ask, which are no longer free then. A share goes where least is left beside it, so that whole devices
    /// stay whole.
    pub fn take(&mut self, ask: &Ask) -> Option<Vec<Device>> {
        let units = ask.part.units();
        let mut fit: Vec<(u32, u32)> = self.0.iter().copied().zip(0..).filter(|(free, _)| *free >= units).collect();
        fit.sort_unstable();
        let chosen = fit.get(..ask.count as usize)?;
        let devices = chosen.iter().map(|(_, number)| Device { number: *number, part: ask.part.clone() });
        let devices: Vec<Device> = devices.collect();
        self.give(&devices);
        Some(devices)
    }

    /// Somebody has these.
    pub fn give(&mut self, devices: &[Device]) {
        for device in devices {
            if let Some(free) = self.0.get_mut(device.number as usize) {
                *free = free.saturating_sub(device.part.units());
            }
        }
    }

    fn give_all(&mut self) {
        self.0.fill(0);
    }
}

/// What the decisions of one step have done to machines with devices that nobody uses.
#[derive(Default)]
pub(super) struct Rooms {
    given: BTreeMap<LeaseId, Vec<Device>>,
    /// Machines on which whoever has them starts in this step: its devices are among those given.
    begun: BTreeSet<LeaseId>,
    /// Machines that are given back in this step: they take nobody in.
    closed: BTreeSet<LeaseId>,
    /// Machines of an offer that are on their way, or asked for in this step.
    coming: BTreeMap<(OfferId, Person), Vec<Coming>>,
}

/// A machine that is on its way, with devices for more than the job that it was asked for.
pub(super) struct Coming {
    pub holder: WorkloadId,
    pub spare: FreeDevices,
}

impl Rooms {
    pub fn close(&mut self, lease: &Lease) {
        self.closed.insert(lease.id);
    }

    pub fn give(&mut self, lease: LeaseId, devices: &[Device]) {
        self.given.entry(lease).or_default().extend_from_slice(devices);
    }

    /// Whoever has a machine starts on it in this step.
    pub fn begin(&mut self, lease: LeaseId) {
        self.begun.insert(lease);
    }

    pub fn has_begun(&self, lease: &Lease) -> bool {
        self.begun.contains(&lease.id)
    }

    /// What is free of a machine that is dealt out by device, after the decisions of this step so far.
    pub fn free(&self, brain: &Brain, lease: &Lease) -> FreeDevices {
        let mut free = brain.free_devices(lease);
        self.given.get(&lease.id).into_iter().for_each(|devices| free.give(devices));
        free
    }

    /// Machines of an offer on which a job of the same person may run beside who has them.
    pub fn open_to<'a>(&'a self, brain: &'a Brain, job: &Job, offer: &OfferId) -> impl Iterator<Item = &'a Lease> {
        let open = |lease: &&Lease| !self.closed.contains(&lease.id) && lease.is_usable() && brain.takes_guests(lease);
        brain.leases.dealt(offer, job).filter(open)
    }

    /// Machines of an offer that are on their way to the person of a job.
    pub fn coming(&mut self, brain: &Brain, job: &Job, offer: &OfferId) -> &mut Vec<Coming> {
        let on_their_way = || brain.leases.dealt(offer, job).filter_map(|lease| brain.coming(lease)).collect();
        self.coming.entry((offer.clone(), job.person())).or_insert_with(on_their_way)
    }
}

impl Brain {
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
        let mut spare = FreeDevices::all(lease.accelerators());
        spare.take(holder.needs_on(lease)?)?;
        Some(Coming { holder: holder.id, spare })
    }

    /// The job whose machine is on its way and may have room for this one: for people who ask why it waits.
    pub(super) fn waits_for_room_of(&self, job: &Job) -> Option<WorkloadId> {
        if job.spec.gang != 1 || job.spec.deadline.is_some() {
            return None;
        }
        let accepted = self.offers.values().filter(|offer| fits(&job.spec.resources, offer));
        let mut leases = accepted.flat_map(|offer| self.leases.dealt(&offer.id, job));
        leases.find_map(|lease| {
            let mut coming = self.coming(lease)?;
            let holder = self.jobs.get(&coming.holder).filter(|holder| may_share(job, holder, lease.market))?;
            coming.spare.take(job.needs_on(lease)?).map(|_| holder.id)
        })
    }

    /// What stints leave of a lease.
    fn free_devices(&self, lease: &Lease) -> FreeDevices {
        let mut free = FreeDevices::all(lease.accelerators());
        let stints = self.workloads_on(lease.id).into_iter();
        let stints = stints.filter_map(|workload| self.jobs.get(&workload)?.stint.as_ref());
        let parts = stints.flat_map(|stint| stint.allocations.iter().filter(|part| part.lease == lease.id));
        for part in parts {
            match &part.devices {
                Some(devices) => free.give(devices),
                None => free.give_all(),
            }
        }
        free
    }
}

/// Whether a job may run on a machine of another one: both are of the same person, and neither counts on the machine to
/// keep a deadline. A machine that can be taken nobody counts on.
pub(super) fn may_share(job: &Job, holder: &Job, market: Market) -> bool {
    let same = (&job.spec.owner, &job.spec.team) == (&holder.spec.owner, &holder.spec.team);
    let counted_on = !market.can_be_taken() && [job, holder].iter().any(|job| job.spec.deadline.is_some());
    same && !counted_on && !holder.is_leaving()
}
