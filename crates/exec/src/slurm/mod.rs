//! A Slurm cluster. A group is one job of Slurm's, a *pilot*, whose processes join the server as nodes, each for one lease; what
//! runs on them is then run as on any node. Slurm queues and places; the brain chooses what is submitted, and tries again.

mod check;
mod commands;
mod limits;
mod looks;
mod pilot;
mod queue;
mod seen;
mod survey;
#[cfg(test)]
mod tests;

use crate::accelerators::family_of;
use crate::clock::WorldClock;
use crate::engine::{Capabilities, Engine, EngineError, Interrupt, Owned, SeenGroup, SeenLease};
use crate::finding::Finding;
use crate::gates::Gates;
use crate::limit::Limit;
use crate::local::{LocalLeases, Marks};
use crate::name_of_account;
use crate::nodes::Hub;
use async_trait::async_trait;
use commands::{JobState, Kind, SlurmError};
use limits::SeenLimits;
use looks::Looks;
use pilot::{group_of, job_name, node_name};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
pub use survey::{NoSurvey, SeenPartition, Survey, survey};
use tokio::sync::Semaphore;
use windfall_core::pool::{Books, Habits, Placing, Shape, Supply};
use windfall_core::{
    DecisionId, LeaseEnd, LeaseId, Market, NanoUsd, Offer, OfferId, Place, Pool, PoolId, Refusal, Span, Time, Want,
};

/// How often the cluster is looked at.
const LOOK: Duration = Duration::from_secs(2);

/// Programs that submit or cancel at the same time: a thousand at once would be a thousand processes.
const AT_ONCE: usize = 8;

/// How a cluster is used.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SlurmSettings {
    /// Where compute nodes reach the server: HOST:PORT.
    pub server: String,
    /// This program on compute nodes.
    pub program: PathBuf,
    /// A folder of each compute node's own.
    pub scratch: PathBuf,
    /// The partitions that may be used; empty for all.
    #[serde(default)]
    pub partitions: Vec<String>,
    #[serde(default)]
    pub account: Option<String>,
    #[serde(default)]
    pub qos: Option<String>,
    /// The wall time that is asked for, in minutes, where the partition allows so much.
    pub wall_minutes: i64,
    /// What accelerators are called here, by what the site calls them; others by what their name says.
    #[serde(default)]
    pub accelerators: BTreeMap<String, String>,
    /// What an hour of an accelerator costs.
    #[serde(rename = "rate_nanousd", default)]
    pub rate: NanoUsd,
}

impl SlurmSettings {
    /// What job files call an accelerator of the site's.
    fn called(&self, gres: &str) -> String {
        let said = self.accelerators.get(gres).cloned();
        said.or_else(|| family_of(gres)).unwrap_or_else(|| gres.to_uppercase())
    }
}

/// A cluster.
pub struct Slurm {
    name: String,
    /// Who runs the server.
    user: String,
    settings: SlurmSettings,
    hub: Arc<Hub>,
    leases: Arc<LocalLeases>,
    /// One submission of a group at a time: a second one looks whether the first was made.
    submitting: Gates,
    looks: Looks,
    limits: Mutex<SeenLimits>,
    /// How many of Slurm's programs that change something run at once.
    hands: Semaphore,
    /// Since when we have not heard leases whose machines Slurm has given up.
    unheard: Mutex<BTreeMap<LeaseId, Instant>>,
    /// Groups whose jobs are being cancelled by us.
    releasing: Mutex<BTreeSet<DecisionId>>,
}

impl Slurm {
    /// Opens the engine on `root`, and adopts the leases it finds there.
    pub fn open(
        name: &str,
        root: PathBuf,
        settings: SlurmSettings,
        hub: Arc<Hub>,
        clock: Arc<WorldClock>,
        program: PathBuf,
    ) -> std::io::Result<Arc<Slurm>> {
        let leases = LocalLeases::of_machines(root, clock, program, Some(Arc::clone(&hub)), None)?;
        let (submitting, looks) = (Gates::default(), Looks::default());
        let user = name_of_account(rustix::process::geteuid().as_raw());
        let (name, releasing) = (name.to_owned(), Mutex::default());
        Ok(Arc::new(Slurm {
            name,
            user,
            settings,
            hub,
            leases,
            submitting,
            looks,
            limits: Mutex::default(),
            hands: Semaphore::new(AT_ONCE),
            unheard: Mutex::default(),
            releasing,
        }))
    }

    fn offer_id(&self, kind: &Kind, count: u32) -> OfferId {
        let nodes = match kind.accelerators {
            0 => format!("{}cpu", kind.cpus),
            // As the site calls them: two kinds may have one name here.
            many => format!("{}x{many}-{}cpu", kind.accelerator.to_uppercase(), kind.cpus),
        };
        OfferId::new(&format!("{}/{}/{nodes}/{}/owned", self.name, kind.partition, self.part_name(kind, count)))
    }

    fn part_name(&self, kind: &Kind, count: u32) -> String {
        if count == 0 { "cpu".to_owned() } else { format!("{}x{count}", self.settings.called(&kind.accelerator)) }
    }

    fn price(&self, count: u32) -> NanoUsd {
        NanoUsd(self.settings.rate.0.saturating_mul(i64::from(count)))
    }

    async fn kinds(&self) -> Result<Vec<Kind>, EngineError> {
        let mut kinds = self.looks.kinds().await.map_err(away)?;
        kinds.retain(|kind| self.uses(kind));
        Ok(kinds)
    }

    fn uses(&self, kind: &Kind) -> bool {
        self.settings.partitions.is_empty() || self.settings.partitions.contains(&kind.partition)
    }

    /// The kind of node and the part of it that an offer is.
    fn of_offer<'a>(&self, kinds: &'a [Kind], offer: &OfferId) -> Option<(&'a Kind, u32)> {
        let parts = kinds.iter().flat_map(|kind| parts(kind).map(move |count| (kind, count)));
        parts.into_iter().find(|(kind, count)| self.offer_id(kind, *count) == *offer)
    }

    /// What each slot of a group becomes: the first alternative that there is.
    fn chosen(
        &self,
        group: DecisionId,
        want: &Want,
        kinds: &[Kind],
        known: &BTreeMap<u32, Marks>,
    ) -> Result<Vec<Marks>, EngineError> {
        if let Some(begun) = known.values().find(|marks| marks.units > 0) {
            return Ok((0..begun.units).map(|slot| known.get(&slot).unwrap_or(begun).clone()).collect());
        }
        let fits = |(kind, count): &(&Kind, u32)| kind.nodes >= want.units.max(1) && (*count > 0 || kind.cpus > 0);
        let affordable = |most: Option<NanoUsd>, count: u32| most.is_none_or(|most| self.price(count) <= most);
        let mut asked = want.alternatives.iter().filter_map(|asked| {
            let (kind, count) = self.of_offer(kinds, &asked.offer)?;
            affordable(asked.max_price, count).then_some((kind, count))
        });
        let Some((kind, count)) = asked.find(fits) else { return Err(EngineError::Refused(Refusal::NoCapacity)) };
        let marks = |slot: u32| Marks {
            offer: self.offer_id(kind, count),
            size: size_of(count),
            host: Some(node_name(LeaseId { group, slot })),
            owner: want.owner.clone(),
            limits: Shape { accelerators: 0, ..want.worker },
            sold_at: Some(self.leases.clock.now()),
            units: want.units,
            ..Marks::default()
        };
        Ok((0..want.units).map(marks).collect())
    }

    fn releasing(&self) -> MutexGuard<'_, BTreeSet<DecisionId>> {
        self.releasing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn unheard(&self) -> MutexGuard<'_, BTreeMap<LeaseId, Instant>> {
        self.unheard.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn marks_in(&self, group: DecisionId) -> BTreeMap<LeaseId, Marks> {
        let held = self.leases.held();
        let of_group = held.range(LeaseId { group, slot: 0 }..=LeaseId { group, slot: u32::MAX });
        of_group.map(|(lease, held)| (*lease, held.marks.clone())).collect()
    }

    /// Who a group is for.
    fn owner_of(&self, group: DecisionId) -> String {
        self.marks_in(group).into_values().map(|marks| marks.owner).next().unwrap_or_default()
    }

    /// Nothing of a lease runs any more, as Slurm says.
    fn bury(&self, lease: LeaseId, at: Time, end: LeaseEnd) {
        self.unheard().remove(&lease);
        self.leases.mark(lease, |marks| _ = marks.gone.get_or_insert((at, end)));
        self.dismiss(lease);
    }

    /// Lets a pilot go: its key opens nothing any more, so it ends, and with it what it runs.
    fn dismiss(&self, lease: LeaseId) {
        // Where its record stays, the next sweep removes it.
        let _ = self.hub.remove(&node_name(lease));
    }
}

fn away(error: SlurmError) -> EngineError {
    EngineError::Unreachable { why: error.to_string() }
}

/// The parts of a node that can be had: so many of its accelerators, or a processor.
fn parts(kind: &Kind) -> impl Iterator<Item = u32> {
    (1..=kind.accelerators).chain([0])
}

fn size_of(count: u32) -> Shape {
    match count {
        0 => Shape { cpu_millis: 1_000, ..Shape::default() },
        accelerators => Shape { accelerators, ..Shape::default() },
    }
}

#[async_trait]
impl Engine for Arc<Slurm> {
    fn describe(&self) -> Capabilities {
        let places = vec![Place { cloud: "slurm".to_owned(), region: String::new() }];
        Capabilities { name: self.name.clone(), markets: vec![Market::Owned], places, machines: Vec::new() }
    }

    async fn changed(&self) {
        tokio::select! { () = self.leases.changed.notified() => {}, () = tokio::time::sleep(LOOK) => {} }
    }

    async fn offers(&self) -> Result<Vec<Offer>, EngineError> {
        let offer = |kind: &Kind, count: u32| Offer {
            id: self.offer_id(kind, count),
            engine: self.name.clone(),
            pool: PoolId(self.name.clone().into()),
            cloud: "slurm".to_owned(),
            region: String::new(),
            zone: kind.partition.clone(),
            instance_type: self.part_name(kind, count),
            market: Market::Owned,
            accelerator: if count == 0 { String::new() } else { self.settings.called(&kind.accelerator) },
            accelerators: count,
            price_per_hour: self.price(count),
            // Whoever finds no room queues there: Slurm counts what is free, and fills gaps with what waits.
            capacity: Some(0).filter(|_| kind.nodes == 0),
            notice: Span::ZERO,
        };
        let kinds = self.kinds().await?;
        Ok(kinds
            .iter()
            .flat_map(|kind| parts(kind).map(move |count| (kind, count)))
            .map(|(kind, count)| offer(kind, count))
            .collect())
    }

    async fn pools(&self) -> Result<Vec<Pool>, EngineError> {
        Ok(vec![Pool {
            id: PoolId(self.name.clone().into()),
            engine: self.name.clone(),
            placing: Placing::Theirs,
            supply: Supply::Fixed,
            books: Books::Leased,
            habits: Habits {
                dead_man: Span(self.hub.dead_man().as_millis() as i64),
                notice: Span::ZERO,
                ..Habits::USUAL
            },
            tells_apart: false,
        }])
    }

    async fn acquire(&self, group: DecisionId, want: &Want) -> Result<SeenGroup, EngineError> {
        let kinds = self.kinds().await?;
        // What is on no book here was never submitted before now, so that only the controller can know of it.
        let is_new = self.marks_in(group).is_empty();
        self.leases.give(group, |_, known| self.chosen(group, want, &kinds, known))?;
        let gate = self.submitting.of(group);
        let _one = gate.lock().await;
        let known = if is_new { self.queued(group).await? } else { self.job(group).await? };
        let job = match known {
            Some(job) => Some(job),
            None => self.submit(group, want, &kinds).await.inspect_err(|error| {
                if matches!(error, EngineError::Refused(_)) {
                    let leases: Vec<LeaseId> = self.marks_in(group).into_keys().collect();
                    leases.iter().for_each(|lease| self.bury(*lease, self.leases.clock.now(), LeaseEnd::Lost));
                    self.leases.forget(&leases);
                }
            })?,
        };
        self.seen(group, job.as_ref()).ok_or(EngineError::NoLease(LeaseId { group, slot: 0 }))
    }

    async fn observe(&self, groups: &[DecisionId]) -> Result<Vec<SeenGroup>, EngineError> {
        if groups.is_empty() {
            return Ok(Vec::new());
        }
        let names: Vec<String> = groups.iter().map(|group| job_name(*group)).collect();
        let jobs = self.looks.jobs(&names).await.map_err(away)?;
        let is_live = |group: DecisionId| self.marks_in(group).values().any(|marks| marks.gone.is_none());
        let is_forgotten = |group: &DecisionId| self.its_job(*group, &jobs).is_none() && is_live(*group);
        let forgotten: Vec<String> = groups.iter().copied().filter(is_forgotten).map(job_name).collect();
        let past = if forgotten.is_empty() { Arc::default() } else { self.looks.past(&forgotten).await };
        let job = |group: DecisionId| self.its_job(group, &jobs).or_else(|| self.its_job(group, &past));
        Ok(groups.iter().filter_map(|group| self.seen(*group, job(*group).as_ref())).collect())
    }

    async fn list_owned(&self) -> Result<Vec<Owned>, EngineError> {
        let mut owned = self.leases.owned();
        let known: BTreeSet<DecisionId> = owned.iter().map(|owned| owned.lease.group).collect();
        let jobs = commands::jobs_that_begin(pilot::PREFIX).await.map_err(away)?;
        let strays = jobs.iter().filter(|job| !job.state.is_over()).filter_map(|job| Some((group_of(&job.name)?, job)));
        owned.extend(strays.filter(|(group, _)| !known.contains(group)).map(|(group, job)| Owned {
            lease: LeaseId { group, slot: 0 },
            offer: OfferId::new(&format!("{}/unknown/owned", self.name)),
            since: job.started.filter(|_| job.state != JobState::Waits),
            until: None,
            address: None,
        }));
        Ok(owned)
    }

    async fn release(&self, group: DecisionId, slots: &[u32]) -> Result<Vec<SeenLease>, EngineError> {
        let asked: BTreeSet<u32> = slots.iter().copied().collect();
        let stays = |lease: &LeaseId, marks: &Marks| marks.gone.is_none() && !asked.contains(&lease.slot);
        let is_whole = !self.marks_in(group).iter().any(|(lease, marks)| stays(lease, marks));
        if !is_whole {
            let seen = self.leases.release(group, slots).await?;
            slots.iter().for_each(|slot| self.dismiss(LeaseId { group, slot: *slot }));
            return Ok(seen);
        }
        self.end_well(group, slots).await;
        // Pilots with nothing left to do end by themselves, and clean up: Slurm would kill them.
        let ended = self.marks_in(group).into_iter().filter(|(_, marks)| marks.gone.is_some());
        ended.for_each(|(lease, _)| self.dismiss(lease));
        let gate = self.submitting.of(group);
        let one = gate.lock().await;
        self.releasing().insert(group);
        self.cancel(group).await?;
        drop(one);
        for slot in slots {
            self.bury(LeaseId { group, slot: *slot }, self.leases.clock.now(), LeaseEnd::Released);
        }
        // What was never given can never be given from now on.
        self.leases.release(group, slots).await
    }

    /// Only what this server has asked for: the cluster shows the jobs of other servers as well.
    async fn abandon(&self) {
        let leases: Vec<LeaseId> = self.leases.held().keys().copied().collect();
        let groups: BTreeSet<DecisionId> = leases.iter().map(|lease| lease.group).collect();
        for group in groups {
            let slots: Vec<u32> = leases.iter().filter(|lease| lease.group == group).map(|lease| lease.slot).collect();
            // What cannot be ended now is ended by nobody.
            let _ = self.release(group, &slots).await;
        }
    }

    async fn interrupt(&self, lease: LeaseId, how: Interrupt) -> Result<(), EngineError> {
        let Interrupt::WithNotice(notice) = how else { return Err(EngineError::Refused(Refusal::Invalid)) };
        self.shorten(lease, notice).await
    }

    fn limits(&self) -> Vec<Limit> {
        self.seen_limits()
    }

    async fn check(&self) -> Vec<Finding> {
        self.findings().await
    }

    async fn forget(&self, leases: &[LeaseId]) -> Result<(), EngineError> {
        leases.iter().for_each(|lease| self.dismiss(*lease));
        leases.iter().for_each(|lease| _ = self.releasing().remove(&lease.group));
        self.leases.forget(leases);
        Ok(())
    }
}
