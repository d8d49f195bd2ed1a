//! The job of a group in Slurm's queue: looked up, submitted once, ended.

use super::commands::{self, Job, JobState, Kind};
use super::pilot::{self, job_name, node_name};
use super::{LOOK, Slurm, away};
use crate::directory::{Account, Directory};
use crate::engine::EngineError;
use std::time::{Duration, Instant};
use windfall_core::pool::Shape;
use windfall_core::{DecisionId, LeaseId, Refusal, Span, Want};

/// How long it may take until a job that was cancelled is over; Slurm itself kills after half a minute.
const ENDS_WITHIN: Duration = Duration::from_secs(50);
/// The first pause before it is looked whether a job that was cancelled is over.
const ENDED_SOON: Duration = Duration::from_millis(250);
const MINUTE: Span = Span::minutes(1);
/// What is asked for beside the work, for the start and the last save.
const ROOM_TO_BEGIN: Span = Span::minutes(15);

impl Slurm {
    /// The job of a group among these: one whose user may have submitted it.
    pub(super) fn its_job(&self, group: DecisionId, jobs: &[Job]) -> Option<Job> {
        let owner = self.owner_of(group);
        commands::latest(jobs, &job_name(group), &[&self.user, &owner]).cloned()
    }

    /// The job of a group, if the controller knows it.
    pub(super) async fn queued(&self, group: DecisionId) -> Result<Option<Job>, EngineError> {
        let jobs = self.looks.jobs(&[job_name(group)]).await.map_err(away)?;
        Ok(self.its_job(group, &jobs))
    }

    /// The job of a group, if it was ever submitted.
    pub(super) async fn job(&self, group: DecisionId) -> Result<Option<Job>, EngineError> {
        match self.queued(group).await? {
            Some(job) => Ok(Some(job)),
            None => Ok(self.its_job(group, &self.looks.past(&[job_name(group)]).await)),
        }
    }

    /// Submits the job of a group; none where all of it is gone already.
    pub(super) async fn submit(
        &self,
        group: DecisionId,
        want: &Want,
        kinds: &[Kind],
    ) -> Result<Option<Job>, EngineError> {
        let marks = self.marks_in(group);
        let Some(first) = marks.values().find(|marks| marks.gone.is_none()) else { return Ok(None) };
        let Some((kind, count)) = self.of_offer(kinds, &first.offer) else {
            return Err(EngineError::Refused(Refusal::Invalid));
        };
        let shape = self.shape(kind, count, first.limits, want.lasts);
        let tokens: Result<Vec<String>, EngineError> = marks
            .keys()
            .map(|lease| self.hub.pilot_token(&node_name(*lease)).map(|token| token.to_string()))
            .map(|token| token.map_err(|why| EngineError::Unreachable { why }))
            .collect();
        let owner = other_user(&first.owner).await?;
        let options = pilot::options(&self.settings, group, first.units, &shape, owner.as_ref());
        let script = pilot::script(&self.settings, &shape, &tokens?);
        let submitted = {
            let _hand = self.hands.acquire().await;
            commands::submit(&options, &script).await
        };
        match submitted {
            Ok(id) => Ok(Some(Job {
                id,
                name: job_name(group),
                user: owner.map_or_else(|| self.user.clone(), |owner| owner.name),
                state: JobState::Waits,
                submitted: Some(self.leases.clock.now()),
                started: None,
                ends: None,
            })),
            Err(error) => match error.refusal() {
                Some(refusal) => {
                    eprintln!("windfall: {}: {error}", self.name);
                    Err(EngineError::Refused(if owner.is_some() { Refusal::Owner } else { refusal }))
                }
                None => Err(away(error)),
            },
        }
    }

    /// What is asked of each node, for so many of its accelerators and what a job says that it needs.
    pub(super) fn shape(&self, kind: &Kind, count: u32, needs: Shape, lasts: Option<Span>) -> pilot::Shape {
        let most = kind.limit.map_or(self.settings.wall_minutes, |limit| limit.0 / 60_000);
        let minutes = lasts.map_or(most, |lasts| minutes_for(lasts).min(most));
        // A part of a node gets its part of the rest, unless the job says how much it needs: of one that asks for no memory Slurm
        // may take all that the node has.
        let part = |all: u64, of: u32, whole: u32| all * u64::from(of) / u64::from(whole.max(1));
        let cpus = match needs.cpu_millis {
            0 if count == 0 => 1,
            0 => part(u64::from(kind.cpus), count, kind.accelerators).max(1) as u32,
            millis => millis.div_ceil(1_000) as u32,
        };
        pilot::Shape {
            partition: kind.partition.clone(),
            accelerator: kind.accelerator.clone(),
            accelerators: count,
            cpus,
            memory_mb: match needs.memory_bytes {
                0 if count == 0 => part(kind.memory_mb, cpus.min(kind.cpus), kind.cpus),
                0 => part(kind.memory_mb, count, kind.accelerators),
                bytes => bytes.div_ceil(1 << 20),
            },
            minutes: self.settings.wall_minutes.min(minutes).max(1),
        }
    }

    /// Has the job of a lease end after this time, or a little later: Slurm counts in minutes, and says itself when that will be.
    pub(super) async fn shorten(&self, lease: LeaseId, notice: Span) -> Result<(), EngineError> {
        let job = self.queued(lease.group).await?.filter(|job| job.state == JobState::Runs);
        let job = job.ok_or(EngineError::NoLease(lease))?;
        let now = self.leases.clock.now();
        let ends = now + notice;
        if job.ends.is_some_and(|agreed| agreed <= ends) {
            return Ok(());
        }
        let minutes = (ends - job.started.unwrap_or(now)).0.max(0) / MINUTE.0 + 1;
        commands::limit(&job.id, minutes).await.map_err(away)
    }

    /// Ends leases as their agents can, for as long as a job that is cancelled may take. Whoever is not reached is ended by Slurm.
    pub(super) async fn end_well(&self, group: DecisionId, slots: &[u32]) {
        let _ = tokio::time::timeout(ENDS_WITHIN, self.leases.release(group, slots)).await;
    }

    /// Cancels a job, and returns when it is over.
    pub(super) async fn cancel(&self, group: DecisionId) -> Result<(), EngineError> {
        let (began, mut wait) = (Instant::now(), ENDED_SOON);
        let Some(mut job) = self.job(group).await? else { return Ok(()) };
        while !job.state.is_over() {
            {
                let _hand = self.hands.acquire().await;
                commands::cancel(&job.id).await.map_err(away)?;
            }
            if began.elapsed() > ENDS_WITHIN {
                return Err(EngineError::Unreachable { why: format!("job {} of Slurm's is not over yet", job.id) });
            }
            tokio::time::sleep(wait).await;
            wait = (wait * 2).min(LOOK);
            match self.job(group).await? {
                Some(now) => job = now,
                None => break,
            }
        }
        Ok(())
    }
}

/// The wall time that is asked for work that is expected to take so long. A short job starts sooner where Slurm fills gaps; one that
/// was cut too short saves and goes on in another, or is given all the time that there is.
fn minutes_for(lasts: Span) -> i64 {
    (lasts.scaled(5, 4) + ROOM_TO_BEGIN).0.div_euclid(60_000) + 1
}

/// The user that a site's server submits for: a job that root has submitted for itself is root's. Refused where this computer
/// knows no such user: nothing runs under a wrong name.
async fn other_user(owner: &str) -> Result<Option<Account>, EngineError> {
    if !rustix::process::geteuid().is_root() || owner.is_empty() || owner == "root" {
        return Ok(None);
    }
    match Directory::of_this_machine().account(owner).await {
        Ok(Some(account)) => Ok(Some(account)),
        Ok(None) => Err(EngineError::Refused(Refusal::Owner)),
        Err(why) => Err(EngineError::Unreachable { why: why.to_string() }),
    }
}
