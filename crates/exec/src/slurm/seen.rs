//! What Slurm says of a group's job, and what follows for its leases: begun, warned, over.

use super::Slurm;
use super::commands::{Job, JobState};
use super::pilot::node_name;
use crate::engine::{LeaseState, SeenGroup, SeenLease};
use crate::local::Marks;
use crate::nodes::Life;
use std::sync::Arc;
use std::time::{Duration, Instant};
use windfall_core::{DecisionId, GroupPhase, LeaseEnd, LeaseId, NodeId, Span, Time};

/// A program is told of an end that was not agreed on this long before it.
const SAVE_WITHIN: Span = Span::minutes(5);
/// A machine that Slurm has given up, and that we do not hear either, is gone after this.
pub(super) const COMES_BACK: Duration = Duration::from_secs(60);
/// A program that still runs so shortly before the agreed end is told of it.
const LAST_WARNING: Span = Span::seconds(20);
/// By how much the end of a job may move without anybody having moved it.
const WAVERS: Span = Span::seconds(5);
/// How long processes of a job that was ended have to end by themselves; a site may say otherwise.
const KILLS_WITHIN: Span = Span::seconds(30);
/// A job that neither the controller nor the accounts know for so long is gone.
const UNKNOWN_FOR: Span = Span::minutes(10);

impl Slurm {
    /// Takes in what Slurm says of a group, and tells how it stands.
    pub(super) fn seen(self: &Arc<Self>, group: DecisionId, job: Option<&Job>) -> Option<SeenGroup> {
        let now = self.leases.clock.now();
        let marks = self.marks_in(group);
        let live: Vec<LeaseId> =
            marks.iter().filter(|(_, marks)| marks.gone.is_none()).map(|(lease, _)| *lease).collect();
        let sold_at = marks.values().filter_map(|marks| marks.sold_at).min().unwrap_or(now);
        match job {
            Some(Job { state: JobState::Over(end), ends, .. }) => {
                let end = if self.releasing().contains(&group) { LeaseEnd::Released } else { *end };
                live.iter().for_each(|lease| self.bury(*lease, ends.unwrap_or(now).min(now), end));
            }
            Some(Job { state: JobState::NodeLost, ends, .. }) => {
                let at = ends.unwrap_or(now).min(now);
                for lease in &live {
                    let node = node_name(*lease);
                    // Where we reach it all the same it saves and ends before anything goes on elsewhere. Of one that neither Slurm
                    // nor we reach we believe Slurm.
                    let life = self.hub.life(&node, *lease);
                    if life != Life::Unknown {
                        self.unheard().remove(lease);
                    }
                    match life {
                        Life::Alive if marks[lease].ends_at.is_some() => {}
                        Life::Alive => self.leases.mark(*lease, |marks| marks.ends_at = Some(now + SAVE_WITHIN)),
                        // It may be about to come back, to a server that was started anew for example.
                        Life::Unknown if marks[lease].up_at.is_some() => {
                            let since = *self.unheard().entry(*lease).or_insert_with(Instant::now);
                            if since.elapsed() > COMES_BACK {
                                self.bury(*lease, at, LeaseEnd::Lost);
                            }
                        }
                        Life::Over | Life::Unknown => self.bury(*lease, at, LeaseEnd::Lost),
                    }
                }
                self.leases.carry_notices_out(now);
            }
            Some(job) if job.state == JobState::Runs => {
                for lease in &live {
                    self.begin(*lease, &marks[lease], job.ends);
                    let ends = job.ends.filter(|ends| comes_sooner(*ends, marks[lease].ends_by, now));
                    if marks[lease].up_at.is_some() && ends.is_some() && marks[lease].ends_at != ends {
                        self.leases.mark(*lease, |marks| marks.ends_at = ends);
                    }
                }
                self.leases.carry_notices_out(now);
            }
            // Whoever has ended it leaves its processes a moment.
            Some(job) if job.state == JobState::Ends => {
                for lease in live.iter().filter(|lease| marks[lease].up_at.is_some() && marks[lease].ends_at.is_none())
                {
                    self.leases.mark(*lease, |marks| marks.ends_at = Some(now + KILLS_WITHIN));
                }
                self.leases.carry_notices_out(now);
            }
            Some(_) => {}
            // It was submitted before, or never: whoever asks for it again finds out.
            None if now - sold_at > UNKNOWN_FOR => {
                let is_away = |lease: &&LeaseId| !self.hub.is_there(&node_name(**lease));
                live.iter().filter(is_away).for_each(|lease| self.bury(*lease, now, LeaseEnd::Lost));
            }
            None => {}
        }
        let mut seen = self.leases.group_of(group)?;
        // We are giving them back. What ran on the last of them has ended, and its job has not: whoever forgets the lease now loses
        // the job. What was lost is told at once, because work waits for it.
        let is_gone = |seen: &SeenLease| matches!(seen.state, LeaseState::Gone { end: LeaseEnd::Released, .. });
        if job.is_some_and(|job| !job.state.is_over()) && seen.leases.iter().all(is_gone) {
            seen.leases.iter_mut().for_each(|seen| seen.state = LeaseState::Pending);
        }
        let waits = job.filter(|job| job.state == JobState::Waits);
        let phase = match waits {
            Some(job) => GroupPhase::Queued {
                since: job.submitted.unwrap_or(sold_at),
                eta: job.started.filter(|eta| *eta > now),
            },
            None => match (job, seen.phase) {
                // It was on its way since Slurm began it, however long it had waited before.
                (Some(job), GroupPhase::Granted { at, units }) => {
                    GroupPhase::Granted { at: job.started.unwrap_or(now).max(at).min(now), units }
                }
                (Some(_), phase) => phase,
                (None, _) => GroupPhase::Asked,
            },
        };
        Some(SeenGroup { phase, ..seen })
    }

    /// Starts the agent of a lease whose pilot has joined. Others come when they come.
    pub(super) fn begin(self: &Arc<Self>, lease: LeaseId, marks: &Marks, ends_by: Option<Time>) {
        let name = node_name(lease);
        if marks.up_at.is_some() {
            return;
        }
        let nodes = self.hub.nodes();
        let Some(node) = nodes.into_iter().find(|node| node.record.name == name && node.is_connected) else { return };
        let devices = node.record.inventory.accelerators.iter().map(|one| one.device.clone()).collect();
        self.leases.mark(lease, |marks| {
            marks.devices = Some(devices);
            marks.node = Some(NodeId(format!("{}/{}", self.name, node.record.inventory.name).into()));
            // From now on its node is there, and must begin it soon.
            marks.sold_at = Some(self.leases.clock.now());
            marks.ends_by = ends_by;
        });
        self.leases.launch_beside(lease);
    }
}

/// Whether a job ends earlier than was agreed when it began, and so soon that its program must be told: another job takes its
/// place, or its time limit was changed.
fn comes_sooner(ends: Time, agreed: Option<Time>, now: Time) -> bool {
    let is_moved = agreed.is_none_or(|agreed| ends < agreed - WAVERS);
    // Whoever is still there at the agreed end hears of it as well.
    ends - now <= if is_moved { SAVE_WITHIN } else { LAST_WARNING }
}
