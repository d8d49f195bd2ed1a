//! What a cluster says of a group's Job and its pods, and what follows for its leases: begun, warned, over, given up.

use super::Kubernetes;
use super::cluster::SeenJob;
use super::fate::{Fate, scheduled_at};
use super::labels::{Announced, NODE_IS_GONE};
use super::objects::Pod;
use super::pilot::node_name;
use crate::engine::{LeaseState, SeenGroup, SeenLease};
use crate::local::Marks;
use crate::nodes::Life;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};
use windfall_core::{DecisionId, GroupPhase, LeaseEnd, LeaseId, NodeId, Span, Time};

/// A program is told of an end that nobody announced this long before it is ended.
const SAVE_WITHIN: Span = Span::minutes(5);
/// A pod that the cluster does not have any more, and that we do not hear either, is gone after this.
pub(super) const COMES_BACK: Duration = Duration::from_secs(60);
/// A Job that was asked for this long ago and that the cluster does not have is gone.
const UNKNOWN_FOR: Span = Span::minutes(2);
/// An image that cannot be pulled may be there a moment later.
const BROKEN_FOR: Duration = Duration::from_secs(30);
/// How long some of a gang hold what they have while the rest has no node. Others may wait for just that.
const HALF_FOR: Span = Span::seconds(90);
/// The same where the rest was never made: no node that comes would change that.
const HALF_FOR_NONE: Span = Span::seconds(30);
/// The same where nodes are made for the rest.
const HALF_FOR_NEW: Span = Span::minutes(15);

impl Kubernetes {
    /// Takes in what the cluster says of a group, and tells how it stands.
    pub(super) fn seen(self: &Arc<Self>, group: DecisionId, job: Option<&SeenJob>) -> Option<SeenGroup> {
        let now = self.leases.clock.now();
        let marks = self.marks_in(group);
        let live: BTreeMap<LeaseId, &Marks> =
            marks.iter().filter(|(_, marks)| marks.gone.is_none()).map(|(lease, marks)| (*lease, marks)).collect();
        let sold_at = marks.values().filter_map(|marks| marks.sold_at).min().unwrap_or(now);
        match job {
            Some(job) => self.follow(group, job, &live, now),
            None if now - sold_at > UNKNOWN_FOR => {
                live.iter().for_each(|(lease, marks)| self.vanished(*lease, marks, LeaseEnd::Revoked));
            }
            // It was made before, or never: whoever asks for it again finds out.
            None => {}
        }
        self.leases.carry_notices_out(now);
        let mut seen = self.leases.group_of(group)?;
        // We are giving them back. What ran on the last of them has ended, and its Job has not: whoever forgets the lease now loses
        // the Job.
        let is_given_back = |seen: &SeenLease| matches!(seen.state, LeaseState::Gone { end: LeaseEnd::Released, .. });
        let is_there = job.is_some_and(|job| !job.is_over() || self.releasing().contains(&group));
        if is_there && seen.leases.iter().all(is_given_back) {
            seen.leases.iter_mut().for_each(|seen| seen.state = LeaseState::Pending);
        }
        let phase = match (job, seen.phase) {
            (None, _) => GroupPhase::Asked,
            (Some(job), GroupPhase::Granted { at, units }) => phase(job, live.keys(), sold_at, at, now, units),
            (Some(_), phase) => phase,
        };
        Some(SeenGroup { phase, ..seen })
    }

    fn follow(self: &Arc<Self>, group: DecisionId, job: &SeenJob, live: &BTreeMap<LeaseId, &Marks>, now: Time) {
        let ended = |end: LeaseEnd| if self.releasing().contains(&group) { LeaseEnd::Released } else { end };
        let mut never = None;
        for (lease, marks) in live {
            let pod = job.pod(lease.slot);
            match pod.map(Fate::of) {
                Some(Fate::Runs) => {
                    self.begin(*lease, marks, pod);
                    self.heed_node(*lease, marks, pod, now);
                }
                Some(Fate::Ends { at, .. })
                    if marks.up_at.is_some() && marks.ends_at.is_none_or(|known| at < known) =>
                {
                    self.leases.mark(*lease, |marks| marks.ends_at = Some(at));
                }
                Some(Fate::Over { at, end, why }) => {
                    if marks.up_at.is_none() && !self.releasing().contains(&group) {
                        self.trouble(&format!("a pod of {group} ended before it had begun: {why}"));
                    }
                    self.bury(*lease, at.unwrap_or(now).min(now), ended(end));
                }
                Some(Fate::Broken { why }) if marks.up_at.is_none() => never = Some(why),
                // A node that nobody hears takes none of its pods along by that alone.
                None if marks.up_at.is_some() || job.is_over() => {
                    let end = if self.node_is_gone(marks) { LeaseEnd::Lost } else { LeaseEnd::Revoked };
                    self.vanished(*lease, marks, ended(end))
                }
                _ => {}
            }
        }
        let has_waited = |why: &str| {
            let mut broken = self.broken();
            let (since, _) = broken.entry(group).or_insert_with(|| (Instant::now(), why.to_owned()));
            since.elapsed() > BROKEN_FOR
        };
        match (never, half(job, live, self.patience(live), now)) {
            (Some(why), _) if has_waited(&why) => {
                self.give_up(group, live, &why, now);
                // Whatever else is asked for would not begin either.
                self.pause();
            }
            (None, Some(why)) => self.give_up(group, live, &why, now),
            (Some(_), _) => {}
            (None, None) => _ = self.broken().remove(&group),
        }
    }

    /// How long some of a gang may wait for the rest.
    fn patience(&self, live: &BTreeMap<LeaseId, &Marks>) -> Span {
        let survey = self.cluster.last_survey();
        let kind = |marks: &&Marks| self.of_offer(&survey.kinds, &marks.offer).map(|(kind, _)| kind.elastic.is_some());
        if live.values().find_map(kind) == Some(true) { HALF_FOR_NEW } else { HALF_FOR }
    }

    /// A Job that will not come whole is deleted: what it holds is for others.
    fn give_up(self: &Arc<Self>, group: DecisionId, live: &BTreeMap<LeaseId, &Marks>, why: &str, now: Time) {
        self.trouble(&format!("the Job of {group} is given up: {why}"));
        self.broken().remove(&group);
        // Of those that are up their pods' end tells.
        let never_up = live.iter().filter(|(_, marks)| marks.up_at.is_none());
        never_up.for_each(|(lease, _)| self.bury(*lease, now, LeaseEnd::Lost));
        self.delete_beside(group);
    }

    /// A lease whose pod the cluster does not have any more. Where we reach it all the same it saves and ends before anything goes on
    /// elsewhere: a pod that was deleted by force is no dead process.
    fn vanished(&self, lease: LeaseId, marks: &Marks, end: LeaseEnd) {
        let now = self.leases.clock.now();
        let life = self.hub.life(&node_name(lease), lease);
        if life != Life::Unknown {
            self.unheard().remove(&lease);
        }
        match life {
            Life::Alive if marks.ends_at.is_some() => {}
            Life::Alive => self.leases.mark(lease, |marks| marks.ends_at = Some(now + SAVE_WITHIN)),
            Life::Unknown if marks.up_at.is_some() => {
                let since = *self.unheard().entry(lease).or_insert_with(Instant::now);
                if since.elapsed() > COMES_BACK {
                    self.bury(lease, now, end);
                }
            }
            Life::Over | Life::Unknown => self.bury(lease, now, end),
        }
    }

    /// Starts the agent of a lease whose pod has joined. Others come when they come.
    pub(super) fn begin(self: &Arc<Self>, lease: LeaseId, marks: &Marks, pod: Option<&Pod>) {
        let name = node_name(lease);
        if marks.up_at.is_some() {
            return;
        }
        let nodes = self.hub.nodes();
        let Some(node) = nodes.into_iter().find(|node| node.record.name == name && node.is_connected) else { return };
        let devices = node.record.inventory.accelerators.iter().map(|one| one.device.clone()).collect();
        let machine = pod.map_or("", |pod| pod.spec.node_name.as_str());
        self.leases.mark(lease, |marks| {
            marks.devices = Some(devices);
            marks.node = Some(NodeId(format!("{}/{machine}", self.name).into()));
            // From now on its node is there, and must begin it soon.
            marks.sold_at = Some(self.leases.clock.now());
        });
        self.leases.launch_beside(lease);
    }

    /// What is announced of a lease's node is announced of the lease.
    fn heed_node(&self, lease: LeaseId, marks: &Marks, pod: Option<&Pod>, now: Time) {
        let survey = self.cluster.last_survey();
        let announced = pod.and_then(|pod| survey.announced.get(&pod.spec.node_name)).copied();
        // Whoever deletes its pods does so a while later, and without a word.
        let gone = || self.node_is_gone(marks).then_some(Announced::Ends(None, NODE_IS_GONE));
        match announced.or_else(gone) {
            Some(Announced::Ends(since, after)) if marks.up_at.is_some() && marks.ends_at.is_none() => {
                let at = since.map_or(now, |since| since.0) + after;
                self.leases.mark(lease, |marks| marks.ends_at = Some(at.max(now)));
            }
            Some(Announced::AtRisk) if !marks.at_risk => self.leases.mark(lease, |marks| marks.at_risk = true),
            None if marks.at_risk => self.leases.mark(lease, |marks| marks.at_risk = false),
            _ => {}
        }
    }

    /// Whether the node that a lease came up on is not there any more.
    fn node_is_gone(&self, marks: &Marks) -> bool {
        let survey = self.cluster.last_survey();
        let was_there = marks.up_at.is_some_and(|up_at| survey.at > up_at);
        was_there && marks.node.as_ref().is_some_and(|node| !survey.has_node(node.name()))
    }
}

/// Where a group stands: it waits as long as a pod of it has no node.
fn phase<'a>(
    job: &SeenJob,
    mut live: impl Iterator<Item = &'a LeaseId>,
    sold_at: Time,
    at: Time,
    now: Time,
    units: u32,
) -> GroupPhase {
    let waits = |lease: &LeaseId| job.pod(lease.slot).is_none_or(|pod| !Fate::of(pod).is_placed());
    if !job.is_over() && live.any(waits) {
        let since = job.job.metadata.creation_timestamp.map_or(sold_at, |at| at.0);
        return GroupPhase::Queued { since: since.min(now), eta: None };
    }
    // It was on its way since its last pod had a node, however long it had waited before.
    let placed = job.pods.iter().filter_map(scheduled_at).max().unwrap_or(at);
    GroupPhase::Granted { at: placed.max(at).min(now), units }
}

/// Why a gang of which some have nodes and others do not is given up; none for as long as it may wait.
fn half(job: &SeenJob, live: &BTreeMap<LeaseId, &Marks>, patience: Span, now: Time) -> Option<String> {
    let of_pod = |(lease, marks): (&LeaseId, &&Marks)| {
        let pod = job.pod(lease.slot);
        (pod.map(Fate::of), pod.and_then(scheduled_at), marks.up_at.is_none())
    };
    let fates: Vec<(Option<Fate>, Option<Time>, bool)> = live.iter().map(of_pod).collect();
    let first = fates.iter().filter_map(|(_, at, _)| *at).min()?;
    // What has been up had a node: what became of its pod is another question.
    let never_up = fates.iter().filter(|(.., is_new)| *is_new).map(|(fate, ..)| fate);
    let waiting: Vec<&Option<Fate>> =
        never_up.filter(|fate| fate.as_ref().is_none_or(|fate| !fate.is_placed())).collect();
    let patience = if waiting.iter().any(|fate| fate.is_none()) { patience.min(HALF_FOR_NONE) } else { patience };
    if job.is_over() || waiting.is_empty() || now - first < patience {
        return None;
    }
    let said = waiting.iter().find_map(|fate| match fate {
        Some(Fate::Waits { why }) => why.clone(),
        _ => None,
    });
    let why = said.unwrap_or_else(|| "the cluster makes no more pods: see `kubectl describe quota`".to_owned());
    Some(format!("{} of {} pods have no node: {why}", waiting.len(), fates.len()))
}
