//! A Kubernetes cluster. A group is one Indexed Job, a *pilot*, whose pods join the server as nodes, each for one lease; what runs on
//! them is then run as on any node. The scheduler places pods on nodes of the kind that was chosen; the brain tries again.

mod access;
mod api;
mod bounds;
mod capacity;
mod check;
mod cluster;
mod fate;
mod install;
mod jobs;
mod kinds;
mod labels;
mod objects;
mod pilot;
mod quotas;
mod rights;
mod seen;
mod settings;
#[cfg(test)]
mod tests;

use crate::clock::WorldClock;
use crate::engine::{Capabilities, Engine, EngineError, Interrupt, Owned, SeenGroup, SeenLease};
use crate::finding::Finding;
use crate::gates::Gates;
use crate::limit::Limit;
use crate::local::{LocalLeases, Marks};
use crate::nodes::Hub;
use api::ApiError;
use async_trait::async_trait;
use cluster::{Cluster, SeenJob, Survey};
pub use install::{KubernetesSetup, ServerInPod};
use kinds::Kind;
use objects::holds;
use pilot::{group_of, job_name, node_name};
use quotas::SeenQuotas;
pub use settings::KubernetesSettings;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use windfall_core::pool::{Books, Habits, Placing, Supply};
use windfall_core::{
    DecisionId, LeaseEnd, LeaseId, Market, Node, Offer, OfferId, Place, Pool, PoolId, Refusal, Span, Time, Want,
};

/// How often the cluster is looked at.
const LOOK: Duration = Duration::from_secs(2);
/// Given back leases end as their agents can for so long.
const ENDS_WITHIN: Duration = Duration::from_secs(50);
/// After a pod that could not begin nothing is asked for so long: the next would not begin either.
const PAUSE: Duration = Duration::from_secs(60);
/// The shortest warning of a cloud before it takes a machine away.
const SPOT_NOTICE: Span = Span::seconds(30);
/// An API server that has just begun knows neither rights nor accounts for a moment. What it does not allow for longer is not allowed.
const KNOWS_RIGHTS_AFTER: Duration = Duration::from_secs(30);
/// What went wrong is told by `engines check` for so long, and so much of it at most.
const TOLD_FOR: Duration = Duration::from_secs(3_600);
const MOST_TOLD: usize = 8;

/// A cluster.
pub struct Kubernetes {
    name: String,
    cluster: Cluster,
    hub: Arc<Hub>,
    leases: Arc<LocalLeases>,
    submitting: Gates,
    quotas: Mutex<SeenQuotas>,
    /// Since when we have not heard leases whose pods the cluster does not have any more.
    unheard: Mutex<BTreeMap<LeaseId, Instant>>,
    /// Groups whose Jobs are being deleted by us.
    releasing: Mutex<BTreeSet<DecisionId>>,
    /// Since when pods of a group cannot begin, and why.
    broken: Mutex<BTreeMap<DecisionId, (Instant, String)>>,
    /// What went wrong lately.
    troubles: Mutex<VecDeque<(Instant, String)>>,
    paused: Mutex<Option<Instant>>,
    /// Since when we may not make Jobs.
    no_right_since: Mutex<Option<Instant>>,
}

fn held<T>(lock: &Mutex<T>) -> MutexGuard<'_, T> {
    lock.lock().unwrap_or_else(PoisonError::into_inner)
}

fn away(error: ApiError) -> EngineError {
    EngineError::Unreachable { why: error.to_string() }
}

impl Kubernetes {
    /// Opens the engine on `root`, and adopts the leases it finds there.
    pub fn open(
        name: &str,
        root: PathBuf,
        settings: KubernetesSettings,
        hub: Arc<Hub>,
        clock: Arc<WorldClock>,
        program: PathBuf,
    ) -> std::io::Result<Arc<Kubernetes>> {
        let leases = LocalLeases::of_machines(root, clock, program, Some(Arc::clone(&hub)), None)?;
        Ok(Arc::new(Kubernetes {
            name: name.to_owned(),
            cluster: Cluster::new(settings),
            hub,
            leases,
            submitting: Gates::default(),
            quotas: Mutex::default(),
            unheard: Mutex::default(),
            releasing: Mutex::default(),
            broken: Mutex::default(),
            troubles: Mutex::default(),
            paused: Mutex::default(),
            no_right_since: Mutex::default(),
        }))
    }

    async fn survey(&self) -> Result<Arc<Survey>, EngineError> {
        let ours = || self.leases.held().keys().map(|lease| lease.group).collect();
        self.cluster.survey(self.leases.clock.now(), ours).await.map_err(away)
    }

    fn pool(&self, kind: &Kind) -> PoolId {
        let pool = if kind.elastic.is_some() { "elastic" } else { "fixed" };
        PoolId(format!("{}/{pool}", self.name).into())
    }

    fn releasing(&self) -> MutexGuard<'_, BTreeSet<DecisionId>> {
        held(&self.releasing)
    }

    fn unheard(&self) -> MutexGuard<'_, BTreeMap<LeaseId, Instant>> {
        held(&self.unheard)
    }

    fn broken(&self) -> MutexGuard<'_, BTreeMap<DecisionId, (Instant, String)>> {
        held(&self.broken)
    }

    fn marks_in(&self, group: DecisionId) -> BTreeMap<LeaseId, Marks> {
        let held = self.leases.held();
        let of_group = held.range(LeaseId { group, slot: 0 }..=LeaseId { group, slot: u32::MAX });
        of_group.map(|(lease, held)| (*lease, held.marks.clone())).collect()
    }

    /// Nothing of a lease runs any more, as the cluster says.
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

    /// Has a Job deleted while the caller goes on. What fails is done by the Job's own time to live.
    fn delete_beside(self: &Arc<Self>, group: DecisionId) {
        let kubernetes = Arc::clone(self);
        tokio::spawn(async move { kubernetes.ask_to_delete(group).await });
    }

    fn say(&self, text: &str) {
        eprintln!("windfall: {}: {text}", self.name);
    }

    /// Tells of something that went wrong, now and to whoever checks.
    fn trouble(&self, text: &str) {
        self.say(text);
        let mut troubles = held(&self.troubles);
        troubles.push_back((Instant::now(), text.to_owned()));
        while troubles.len() > MOST_TOLD || troubles.front().is_some_and(|(at, _)| at.elapsed() > TOLD_FOR) {
            troubles.pop_front();
        }
    }

    /// What a Job that could not be made means; none where nobody knows yet.
    fn refused(&self, error: &ApiError) -> Option<Refusal> {
        let refusal = error.refusal()?;
        if refusal != Refusal::Auth {
            return Some(refusal);
        }
        let since = *held(&self.no_right_since).get_or_insert_with(Instant::now);
        (since.elapsed() > KNOWS_RIGHTS_AFTER).then_some(refusal)
    }

    fn pause(&self) {
        *held(&self.paused) = Some(Instant::now());
    }

    /// Whether nothing is to be asked for now.
    fn pauses_for(&self) -> Option<Duration> {
        let since = (*held(&self.paused))?.elapsed();
        PAUSE.checked_sub(since).filter(|left| !left.is_zero())
    }
}

#[async_trait]
impl Engine for Arc<Kubernetes> {
    fn describe(&self) -> Capabilities {
        let places = vec![Place { cloud: "kubernetes".to_owned(), region: String::new() }];
        let markets = vec![Market::Spot, Market::OnDemand, Market::Reserved, Market::Owned];
        Capabilities { name: self.name.clone(), markets, places, machines: Vec::new() }
    }

    async fn changed(&self) {
        tokio::select! { () = self.leases.changed.notified() => {}, () = tokio::time::sleep(LOOK) => {} }
    }

    async fn offers(&self) -> Result<Vec<Offer>, EngineError> {
        let survey = self.survey().await?;
        let parts = survey.kinds.iter().flat_map(|kind| kind.parts().map(move |count| (kind, count)));
        Ok(parts.map(|(kind, count)| self.offer(&survey, kind, count)).collect())
    }

    async fn nodes(&self) -> Result<Vec<Node>, EngineError> {
        let survey = self.survey().await?;
        let nodes = survey.kinds.iter().flat_map(|kind| kind.nodes.iter().map(move |room| (kind, room)));
        Ok(nodes.map(|(kind, room)| self.node(kind, room)).collect())
    }

    async fn pools(&self) -> Result<Vec<Pool>, EngineError> {
        let pool = |name: &str, placing: Placing, supply: Supply| Pool {
            id: PoolId(format!("{}/{name}", self.name).into()),
            engine: self.name.clone(),
            placing,
            supply,
            books: Books::Leased,
            habits: Habits {
                dead_man: Span(self.hub.dead_man().as_millis() as i64),
                notice: Span::ZERO,
                ..Habits::USUAL
            },
            tells_apart: false,
        };
        Ok(vec![pool("fixed", Placing::Pinned, Supply::Fixed), pool("elastic", Placing::Theirs, Supply::Elastic)])
    }

    async fn acquire(&self, group: DecisionId, want: &Want) -> Result<SeenGroup, EngineError> {
        let is_new = self.marks_in(group).is_empty();
        if let Some(left) = self.pauses_for().filter(|_| is_new) {
            return Err(EngineError::Refused(Refusal::Retry { after: Span(left.as_millis() as i64) }));
        }
        let survey = self.survey().await?;
        let choices = self.choices(want, &survey);
        let given = self.leases.give(group, |_, known| self.chosen(group, want, &choices, known));
        given.inspect_err(|_| self.tell_of_quota(group, want, &survey))?;
        let gate = self.submitting.of(group);
        let _one = gate.lock().await;
        // One that was let go has pods, and is looked at as a whole.
        let known = self.job(group).await.map_err(away)?;
        if known.is_some_and(|job| !job.spec.suspend) {
            let jobs = self.cluster.jobs(&[group]).await.map_err(away)?;
            let seen = self.seen(group, its_job(group, &jobs));
            return seen.ok_or(EngineError::NoLease(LeaseId { group, slot: 0 }));
        }
        let job = self.submit(group, want, &survey.kinds).await.inspect_err(|error| {
            if matches!(error, EngineError::Refused(_)) {
                let leases: Vec<LeaseId> = self.marks_in(group).into_keys().collect();
                leases.iter().for_each(|lease| self.bury(*lease, self.leases.clock.now(), LeaseEnd::Lost));
                self.leases.forget(&leases);
            }
        })?;
        let job = job.map(|job| SeenJob { job, pods: Vec::new() });
        self.seen(group, job.as_ref()).ok_or(EngineError::NoLease(LeaseId { group, slot: 0 }))
    }

    async fn observe(&self, groups: &[DecisionId]) -> Result<Vec<SeenGroup>, EngineError> {
        if groups.is_empty() {
            return Ok(Vec::new());
        }
        let jobs = self.cluster.jobs(groups).await.map_err(away)?;
        Ok(groups.iter().filter_map(|group| self.seen(*group, its_job(*group, &jobs))).collect())
    }

    async fn list_owned(&self) -> Result<Vec<Owned>, EngineError> {
        let mut owned = self.leases.owned();
        let known: BTreeSet<DecisionId> = owned.iter().map(|owned| owned.lease.group).collect();
        let jobs = self.cluster.all_jobs().await.map_err(away)?;
        let is_over = |job: &objects::Job| {
            let over = ["Complete", "Failed"].into_iter().any(|kind| holds(&job.status.conditions, kind).is_some());
            over || job.metadata.deletion_timestamp.is_some()
        };
        let strays = jobs.iter().filter(|job| !is_over(job));
        let strays = strays.filter_map(|job| Some((group_of(&job.metadata.name)?, job)));
        owned.extend(strays.filter(|(group, _)| !known.contains(group)).map(|(group, job)| Owned {
            lease: LeaseId { group, slot: 0 },
            offer: OfferId::new(&format!("{}/unknown/owned", self.name)),
            since: job.metadata.creation_timestamp.map(|at| at.0).filter(|_| !job.spec.suspend),
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
        // Whoever is not reached is ended with its pod.
        let _ = tokio::time::timeout(ENDS_WITHIN, self.leases.release(group, slots)).await;
        // Pilots with nothing left to do end by themselves, and clean up: a pod would be killed after its grace time.
        let ended = self.marks_in(group).into_iter().filter(|(_, marks)| marks.gone.is_some());
        ended.for_each(|(lease, _)| self.dismiss(lease));
        let gate = self.submitting.of(group);
        let one = gate.lock().await;
        self.releasing().insert(group);
        self.delete(group).await?;
        drop(one);
        for slot in slots {
            self.bury(LeaseId { group, slot: *slot }, self.leases.clock.now(), LeaseEnd::Released);
        }
        // What was never given can never be given from now on.
        self.leases.release(group, slots).await
    }

    /// Only what this server has asked for: the namespace may have Jobs of other servers as well.
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
        self.evict(lease, notice.0 / 1_000).await
    }

    fn limits(&self) -> Vec<Limit> {
        self.seen_limits()
    }

    async fn check(&self) -> Vec<Finding> {
        self.findings().await
    }

    async fn forget(&self, leases: &[LeaseId]) -> Result<(), EngineError> {
        leases.iter().for_each(|lease| self.dismiss(*lease));
        self.leases.forget(leases);
        let groups: BTreeSet<DecisionId> = leases.iter().map(|lease| lease.group).collect();
        for group in groups.into_iter().filter(|group| self.marks_in(*group).is_empty()) {
            self.releasing().remove(&group);
            self.broken().remove(&group);
            // One that failed by itself is still there.
            self.delete_beside(group);
        }
        Ok(())
    }
}

/// The Job of a group among these.
fn its_job(group: DecisionId, jobs: &[SeenJob]) -> Option<&SeenJob> {
    let name = job_name(group);
    jobs.iter().find(|seen| seen.job.metadata.name == name)
}
