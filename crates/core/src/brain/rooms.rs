//! Devices of machines that nobody uses: which there are at a step, which are on their way, and who may have them.

use super::job_table::{Jobs, Person};
use super::lease_table::{Dealt, Free, Room};
use super::lookout::fits;
use super::{Brain, Group, Job, Lease, LeasePhase};
use crate::ids::{LeaseId, WorkloadId};
use crate::ledger::Account;
use crate::offer::{Market, Offer, OfferId};
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
        let ask = ask_for(&self.spec.resources, accelerator)?;
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

/// What is asked of an accelerator.
pub(super) fn ask_for<'a>(asks: &'a [Ask], accelerator: &str) -> Option<&'a Ask> {
    asks.iter().find(|ask| ask.accelerator == accelerator)
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

    /// Nobody has these any more.
    fn give_back(&mut self, devices: &[Device]) {
        for device in devices {
            if let Some(free) = self.0.get_mut(device.number as usize) {
                *free = (*free + device.part.units()).min(DevicePart::UNITS);
            }
        }
    }

    fn give_all(&mut self) {
        self.0.fill(0);
    }

    pub fn is_none(&self) -> bool {
        self.0.iter().all(|free| *free == 0)
    }

    fn free(&self) -> Free {
        let whole = self.0.iter().filter(|free| **free == DevicePart::UNITS).count();
        Free { whole: u32::try_from(whole).unwrap_or(u32::MAX), most: self.0.iter().copied().max().unwrap_or(0) }
    }
}

/// Machines of an offer that a person has.
pub(super) type RoomKey = (Person, OfferId);

/// What is kept of one person's machines.
pub(super) fn of_person<'a, V>(
    all: &'a mut BTreeMap<RoomKey, V>,
    person: &Person,
) -> impl Iterator<Item = (&'a RoomKey, &'a mut V)> {
    let person = person.clone();
    all.range_mut((person.clone(), OfferId::new(""))..).take_while(move |((of, _), _)| *of == person)
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
    coming: BTreeMap<RoomKey, Coming>,
    /// Jobs that were looked at: what they waited for before does not count any more.
    looked_at: BTreeSet<WorkloadId>,
}

/// What a job waits for: devices of a machine that is on its way to another one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Claim {
    pub holder: WorkloadId,
    pub devices: Vec<Device>,
}

/// What nobody waits for of machines that are on their way, each by the job that it was asked for.
#[derive(Default)]
struct Coming {
    spare: BTreeMap<WorkloadId, FreeDevices>,
    /// Those of which something is left.
    with_spare: BTreeSet<WorkloadId>,
}

impl Coming {
    fn insert(&mut self, holder: WorkloadId, spare: FreeDevices) {
        self.spare.insert(holder, spare);
        self.change(holder, |_| ());
    }

    /// Does something to what is left of a machine.
    fn change<T>(&mut self, holder: WorkloadId, change: impl FnOnce(&mut FreeDevices) -> T) -> Option<T> {
        let spare = self.spare.get_mut(&holder)?;
        let done = change(spare);
        match spare.is_none() {
            true => self.with_spare.remove(&holder),
            false => self.with_spare.insert(holder),
        };
        Some(done)
    }

    /// Devices of a machine for one more job; none when there are not enough.
    fn take(&mut self, holder: WorkloadId, ask: &Ask) -> Option<Claim> {
        let devices = self.change(holder, |spare| spare.take(ask))??;
        Some(Claim { holder, devices })
    }

    /// Keeps for a job what it waits for already: dealt anew, it might not fit any more.
    fn keep(&mut self, claim: &Claim) {
        self.change(claim.holder, |spare| spare.give(&claim.devices));
    }

    fn let_go(&mut self, claim: &Claim) {
        self.change(claim.holder, |spare| spare.give_back(&claim.devices));
    }
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
        let mut free = lease.free_devices(&brain.jobs);
        self.given.get(&lease.id).into_iter().for_each(|devices| free.give(devices));
        free
    }

    /// A job is looked at: what was kept for it is free until it says again what it waits for.
    pub fn look_at(&mut self, brain: &Brain, job: &Job) {
        self.looked_at.insert(job.id);
        if let Some(claim) = brain.awake.rooms.claim_of(job.id) {
            of_person(&mut self.coming, &job.person()).for_each(|(_, coming)| coming.let_go(claim));
        }
    }

    /// Machines that decisions of this step have given something of, or taken back.
    pub fn changed(&self) -> impl Iterator<Item = LeaseId> {
        self.given.keys().chain(&self.closed).copied()
    }

    /// Devices for an ask on a machine of somebody who may share it.
    pub fn devices_on(&self, brain: &Brain, lease: &Lease, ask: &Ask) -> Option<Vec<Device>> {
        if self.closed.contains(&lease.id) || !lease.is_usable() || !brain.takes_guests(lease) {
            return None;
        }
        let holder = brain.jobs.get(&lease.workload?).filter(|holder| shares(holder, lease.market))?;
        if brain.silent_since(lease.offer.engine()).is_some() {
            return None;
        }
        let mut free = self.free(brain, lease);
        let devices = free.take(ask)?;
        // Between two stints the devices of the holder stay its own.
        if holder.stint.is_none() && !self.has_begun(lease) {
            free.take(holder.needs_on(lease)?)?;
        }
        Some(devices)
    }

    /// Keeps room for a job on a machine that is on its way, rather on the one that it waits for already.
    pub fn wait_for(&mut self, brain: &Brain, job: &Job, offer: &Offer, ask: &Ask) -> Option<Claim> {
        let known = brain.awake.rooms.claim_of(job.id).map(|claim| claim.holder);
        let coming = self.coming(brain, &job.person(), offer);
        let candidates: Vec<WorkloadId> = known.into_iter().chain(coming.with_spare.iter().copied()).collect();
        candidates.into_iter().find_map(|holder| {
            brain.jobs.get(&holder).filter(|holder| may_share(job, holder, offer.market))?;
            coming.take(holder, ask)
        })
    }

    /// A machine is asked for in this step: others may wait for it.
    pub fn expect(&mut self, brain: &Brain, job: &Job, offer: &Offer, ask: &Ask) {
        let mut spare = FreeDevices::all(offer.accelerators);
        spare.take(ask);
        self.coming(brain, &job.person(), offer).insert(job.id, spare);
    }

    /// Machines of an offer that are on their way to a person. What those wait for who are not looked at is kept for them.
    fn coming(&mut self, brain: &Brain, person: &Person, offer: &Offer) -> &mut Coming {
        let looked_at = &self.looked_at;
        self.coming.entry((person.clone(), offer.id.clone())).or_insert_with(|| {
            let mut coming = Coming::default();
            let leases = brain.leases.coming(&offer.id, person);
            for (holder, spare) in leases.filter_map(|lease| brain.coming(lease)) {
                coming.insert(holder, spare);
                let claims = brain.awake.rooms.claims_on(holder).filter(|(job, _)| !looked_at.contains(job));
                claims.for_each(|(_, claim)| coming.keep(claim));
            }
            coming
        })
    }
}

impl Brain {
    /// Whether programs on one machine of an offer are told apart.
    pub(super) fn tells_apart(&self, offer: &OfferId) -> bool {
        let pool = self.offers.get(offer).and_then(|offer| self.pools.get(&offer.pool));
        pool.is_some_and(|pool| pool.tells_apart)
    }

    /// Whether others may run on a lease. What comes in groups may have to be given back as a group, what a gang is to go on with is
    /// its own, and one that ends by agreement was asked for with its job's work in mind.
    fn takes_guests(&self, lease: &Lease) -> bool {
        let is_alone = |group: &Group| group.want.units == 1 && group.want.beside.is_empty();
        lease.terms.ends_by.is_none() && self.group_of(lease).is_some_and(is_alone) && self.tells_apart(&lease.offer)
    }

    /// Whether a machine of a person has room for an ask, after the decisions of a step so far.
    pub(super) fn has_room(&self, rooms: &Rooms, person: &Person, offer: &OfferId, ask: &Ask) -> bool {
        self.leases.with_room(offer, person, ask).any(|lease| rooms.devices_on(self, lease, ask).is_some())
    }

    /// A lease that is on its way and will have room: who has it, and what is left. One in an engine's own queue may take
    /// hours.
    fn coming(&self, lease: &Lease) -> Option<(WorkloadId, FreeDevices)> {
        let booting = matches!(lease.phase, LeasePhase::Asked | LeasePhase::Up) && lease.ready.is_none();
        self.on_its_way_since(lease).filter(|_| booting && self.takes_guests(lease))?;
        let holder = self.jobs.get(&lease.workload?)?;
        let mut spare = FreeDevices::all(lease.accelerators());
        spare.take(holder.needs_on(lease)?)?;
        Some((holder.id, spare))
    }

    /// The job whose machine is on its way and may have room for this one: for people who ask why it waits.
    pub(super) fn waits_for_room_of(&self, job: &Job) -> Option<WorkloadId> {
        if job.spec.gang != 1 || job.spec.deadline.is_some() {
            return None;
        }
        let asks = &job.spec.resources;
        let accepted = self.offers.of_asks(asks).into_iter().filter(|offer| fits(asks, offer));
        let person = job.person();
        let mut leases = accepted.flat_map(|offer| self.leases.coming(&offer.id, &person));
        leases.find_map(|lease| {
            let (holder, mut spare) = self.coming(lease)?;
            let holder = self.jobs.get(&holder).filter(|holder| may_share(job, holder, lease.market))?;
            spare.take(job.needs_on(lease)?).map(|_| holder.id)
        })
    }
}

impl Lease {
    /// Who has it and whether others may run on it, where it is more than was asked for.
    pub(super) fn dealt(&self, jobs: &Jobs) -> Option<Dealt> {
        let holder = self.workload.and_then(|workload| jobs.get(&workload))?;
        holder.needs_on(self)?;
        let room = match () {
            () if !self.is_usable() => Room::Coming,
            () => match self.free_devices(jobs).free() {
                Free { most: 0, .. } => Room::Full,
                free => Room::Open(free),
            },
        };
        Some(Dealt { to: holder.person(), room })
    }

    /// What stints leave of it.
    fn free_devices(&self, jobs: &Jobs) -> FreeDevices {
        let mut free = FreeDevices::all(self.accelerators());
        let stints = self.workloads().filter_map(|workload| jobs.get(&workload)?.stint.as_ref());
        let parts = stints.flat_map(|stint| stint.allocations.iter().filter(|part| part.lease == self.id));
        for part in parts {
            match &part.devices {
                Some(devices) => free.give(devices),
                None => free.give_all(),
            }
        }
        free
    }
}

/// Whether a job may run on a machine of another one of the same person: neither counts on the machine to keep a deadline. A
/// machine that can be taken nobody counts on.
pub(super) fn may_share(job: &Job, holder: &Job, market: Market) -> bool {
    shares(holder, market) && !counts_on(job, market)
}

/// Whether others may run on a machine of a job.
fn shares(holder: &Job, market: Market) -> bool {
    !holder.is_leaving() && !counts_on(holder, market)
}

/// Whether a job counts on a machine.
pub(super) fn counts_on(job: &Job, market: Market) -> bool {
    !market.can_be_taken() && job.spec.deadline.is_some()
}
