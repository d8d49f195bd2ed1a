//! What to do next, job by job. Everything here reads the state; only what was looked at is noted.

use super::awake::LookedJob;
use super::ceilings::Heeds;
use super::job::StoreAway;
use super::rooms::{Claim, Rooms};
use super::sight::Look;
use super::{Brain, Decided, Job, Lease, LeasePhase, Stint, StintPhase};
use crate::ids::{DecisionId, LeaseId, NodeId, StintId, WorkloadId};
use crate::market::foresight::PlanTerms;
use crate::market::{Choice, Sight};
use crate::offer::OfferId;
use crate::pool::Allocation;
use crate::reason::Reason;
use crate::record::{Decision, Outcome, Resume};
use crate::units::{Span, Time};
use std::collections::{BTreeMap, BTreeSet};

/// A stop that is not over this long after its grace is ended by giving the leases back.
const STOP_OVERRUN: Span = Span::minutes(2);

/// The same where the budget is used up: no more than was set aside for it (`over_budget`).
const PAUSE_OVERRUN: Span = Span::seconds(45);

/// How long leases are held while their store does not answer.
const STORE_PATIENCE: Span = Span::minutes(5);
/// A store that was away is looked at again after this long, then at twice the pause each time.
const STORE_FIRST_LOOK: Span = Span::seconds(15);

/// Collects decisions and knows the sequence that each will have in the log.
pub(super) struct Round<'a> {
    pub brain: &'a Brain,
    pub now: Time,
    decided: Vec<Decided>,
    wake: Option<Time>,
    /// The plan that the job would follow if it were solved.
    pub wanted: Option<PlanTerms>,
    /// The machine on its way to another one that the job waits for.
    waits_for: Option<Claim>,
    /// Prices up to which the job looks again in time.
    pub heeds: Heeds,
    /// Instances of each offer that decisions of this step take.
    pub taken: BTreeMap<OfferId, u32>,
    pub rooms: Rooms,
    pub look: Look<'a>,
    /// Leases on which a job of another workload is started in this step.
    pub moved_in: BTreeSet<LeaseId>,
}

impl<'a> Round<'a> {
    pub fn at(brain: &'a Brain, now: Time) -> Round<'a> {
        Round {
            brain,
            now,
            decided: Vec::new(),
            wake: None,
            wanted: None,
            waits_for: None,
            heeds: Heeds::default(),
            taken: BTreeMap::new(),
            rooms: Rooms::default(),
            look: Look::default(),
            moved_in: BTreeSet::new(),
        }
    }

    pub fn look_at(&mut self, job: &Job) -> LookedJob {
        let said = self.decided.len();
        (self.wake, self.wanted, self.waits_for) = (None, None, None);
        self.heeds = Heeds::default();
        self.rooms.look_at(self.brain, job);
        self.for_job(job);
        LookedJob {
            id: job.id,
            moment: self.wake,
            again: self.decided.len() > said,
            waits_for: self.waits_for.take(),
            wanted: self.wanted,
            heeds: std::mem::take(&mut self.heeds),
        }
    }

    /// Money is spent whether anything is seen or not.
    pub fn keep_within_budget(&mut self, job: &Job) {
        // Whoever is stopping costs no less for being told so again, unless it does not stop.
        let stopping = job.stint.as_ref().and_then(|stint| stint.stopping);
        let stops = stopping.is_some_and(|stopping| self.now < stopping.at + stopping.grace + STOP_OVERRUN);
        if !stops && let Some(reason) = self.over_budget(job) {
            self.say(Decision::Pause { workload: job.id }, reason);
        }
    }

    pub fn leases(&self, job: &Job) -> Vec<&'a Lease> {
        self.brain.leases_of(job.id).collect()
    }

    /// All that was decided.
    pub fn end(mut self) -> Vec<Decided> {
        self.for_orphans();
        self.decided
    }
}

impl Round<'_> {
    pub(super) fn say(&mut self, decision: Decision, reason: Reason) {
        self.decided.push(Decided { decision, reason });
    }

    pub(super) fn wake_at(&mut self, at: Time) {
        self.wake = Some(self.wake.map_or(at, |wake| wake.min(at)));
    }

    fn for_job(&mut self, job: &Job) {
        if job.ended.is_some() {
            return match &job.stint {
                Some(stint) if stint.is_ended() => self.await_last_save(job, stint),
                _ => self.leave_all(job, &Reason::new("ended", "the job is over")),
            };
        }
        let mut sight = self.brain.sight_in(&mut self.look, job, self.now);
        self.without_what_is_taken(job, &mut sight);
        self.tell(job, &sight);
        let now = self.now;
        job.refused.values().copied().filter(|until| *until > now).min().into_iter().for_each(|at| self.wake_at(at));
        if let Some((outcome, reason)) = self.ending(job, &sight) {
            return match &job.stint {
                // The end is the program's; its last save may still be on its way.
                Some(stint) if stint.is_ended() && outcome == Outcome::Succeeded => {
                    self.say(Decision::End { workload: job.id, outcome }, reason);
                    self.await_last_save(job, stint);
                }
                Some(stint) => self.stop(job, stint, &reason),
                None => {
                    self.say(Decision::End { workload: job.id, outcome }, reason.clone());
                    self.leave_all(job, &reason);
                }
            };
        }
        if !job.paused
            && let Some(reason) = self.over_budget(job)
        {
            return self.say(Decision::Pause { workload: job.id }, reason);
        }
        match &job.stint {
            Some(stint) if job.paused => self.stop(job, stint, &paused()),
            Some(stint) => self.for_stint(job, stint, &sight),
            None if job.paused => self.leave_all(job, &paused()),
            None => match &job.store_away {
                Some(away) => self.watch_store(job, away),
                None => self.for_leases(job, &sight),
            },
        }
    }

    /// Gives back what the log did not know.
    fn for_orphans(&mut self) {
        let orphans: Vec<&Lease> = self.brain.leases.orphans().collect();
        self.release(&orphans, &Reason::new("orphan", "the engine holds it and the log did not know it"));
    }

    /// Gives back what a job has no more use for. A machine on which others run is theirs from then on.
    pub(super) fn leave_all(&mut self, job: &Job, reason: &Reason) {
        let leases = self.leases(job);
        self.leave(&leases, reason);
    }

    /// The same of some of its leases.
    pub(super) fn leave(&mut self, leases: &[&Lease], reason: &Reason) {
        let brain = self.brain;
        let leases = leases.iter().copied().filter(|lease| !lease.is_releasing());
        // Who has just moved in is there in the next step.
        let leases = leases.filter(|lease| !self.moved_in.contains(&lease.id));
        let (own, shared): (Vec<&Lease>, Vec<&Lease>) = leases.partition(|lease| lease.sharers.is_empty());
        self.release(&own, reason);
        let is_left = |lease: &&Lease| lease.workload.is_none_or(|holder| !brain.is_on(holder, lease.id));
        shared.into_iter().filter(is_left).for_each(|lease| self.hand_over(lease));
    }

    /// Gives back the machines of a stint that does not end, whoever they are for: agents kill what does not stop, so one
    /// that has not is out of reach, and nothing else on its machine can be trusted to run.
    pub(super) fn release_under(&mut self, job: &Job, stint: &Stint, reason: &Reason) {
        let brain = self.brain;
        let ids: BTreeSet<LeaseId> = brain.leases_of(job.id).map(|lease| lease.id).chain(stint.leases()).collect();
        let leases: Vec<&Lease> = ids.iter().filter_map(|id| brain.leases.get(id)).collect();
        self.release(&leases, reason);
    }

    /// Whether a stint has a lease together with another workload.
    pub(super) fn has_company(&self, job: &Job, stint: &Stint) -> bool {
        let mut leases = stint.leases().filter_map(|id| self.brain.leases.get(&id));
        leases.any(|lease| lease.workload != Some(job.id) || !lease.sharers.is_empty())
    }

    /// Gives leases back that are not on their way back, each group in one go.
    fn release(&mut self, leases: &[&Lease], reason: &Reason) {
        let mut groups: BTreeMap<DecisionId, Vec<u32>> = BTreeMap::new();
        for lease in leases.iter().filter(|lease| !lease.is_releasing()) {
            self.rooms.close(lease);
            groups.entry(lease.id.group).or_default().push(lease.id.slot);
        }
        for (group, slots) in groups {
            self.say(Decision::Release { group, slots }, reason.clone());
        }
    }

    /// Asks a stint to stop; when it does not, its machines are given back under it.
    pub(super) fn stop(&mut self, job: &Job, stint: &Stint, reason: &Reason) {
        if stint.is_ended() && !job.paused {
            return self.await_last_save(job, stint);
        }
        let grace = if job.given_up { Span::ZERO } else { job.spec.run.grace };
        match stint.stopping {
            None => self.say(Decision::Stop { stint: stint.id, grace }, reason.clone()),
            Some(stopping) if job.given_up && stopping.ends() > self.now => {
                self.say(Decision::Stop { stint: stint.id, grace }, reason.clone());
            }
            Some(stopping) => {
                let overrun = if job.paused { PAUSE_OVERRUN } else { STOP_OVERRUN };
                // Where nothing runs any more it may have been given long to send what is left: there is no money for that.
                let grace = if stint.is_ended() { stopping.grace.min(job.spec.run.grace) } else { stopping.grace };
                let overdue = stopping.at + grace + overrun;
                if self.now >= overdue {
                    self.release_under(job, stint, &Reason::new("stop-overrun", "the program did not stop in time"));
                } else {
                    self.wake_at(overdue);
                }
            }
        }
    }

    /// A stint that cannot begin because its store does not answer holds its leases for a while only.
    fn for_lack_of_store(&mut self, job: &Job, stint: &Stint) -> bool {
        let away = stint.trouble.as_ref().is_some_and(|trouble| trouble.kind.is_of_the_store());
        let Some(since) = stint.troubled_at.filter(|_| away && stint.phase == StintPhase::Starting) else {
            return false;
        };
        let until = since + STORE_PATIENCE;
        if self.now < until {
            self.wake_at(until);
            return false;
        }
        let text = "the store of its checkpoints does not answer: nothing is held until it does";
        self.stop(job, stint, &Reason::new("store-away", text).span("since", self.now - since));
        true
    }

    /// Asks now and then whether a store that was away answers again.
    fn watch_store(&mut self, job: &Job, away: &StoreAway) {
        let reason =
            Reason::new("store-away", "the store of its checkpoints does not answer: nothing is held until it does");
        self.leave_all(job, &reason);
        if away.asked.is_some() {
            return;
        }
        let pause = Span(STORE_FIRST_LOOK.0 << away.checks.min(5)).min(STORE_PATIENCE);
        let due = away.checked_at + pause;
        if self.now < due {
            return self.wake_at(due);
        }
        self.say(Decision::CheckStore { workload: job.id }, reason.span("since", self.now - away.since));
    }

    fn for_stint(&mut self, job: &Job, stint: &Stint, sight: &Sight) {
        if stint.stopping.is_some() {
            return self.stop(job, stint, &Reason::new("stop-overrun", "stopping"));
        }
        if stint.is_ended() {
            return self.await_last_save(job, stint);
        }
        if self.for_lack_of_store(job, stint) {
            return;
        }
        let ended = stint.workers.iter().any(|worker| worker.end.is_some());
        let clean =
            stint.workers.iter().all(|w| matches!(w.end, None | Some(crate::record::WorkerEnd::Exited { code: 0 })));
        if ended && (!clean || (stint.torn && stint.interrupted)) {
            return self.stop(job, stint, &Reason::new("gang", "a worker of the gang is gone, so the gang stops"));
        }
        let leases = stint.leases().filter_map(|id| self.brain.leases.get(&id));
        if let Some(first) = leases.filter(|lease| ends_at(lease).is_some()).min_by_key(|lease| ends_at(lease)) {
            return self.drain(job, stint, first);
        }
        if self.stop_at_term(job, stint) {
            return;
        }
        let (choice, reason) = self.choose(job, sight);
        match choice {
            Choice::Stay { until } => {
                self.wake_maybe(until);
                if !self.fill_up(job, stint, sight) {
                    self.keep_saved(job, stint);
                }
            }
            Choice::Take(_) | Choice::Wait { .. } => self.stop(job, stint, &reason),
        }
    }

    /// Lets a noticed gang save until the earliest of its notices; the agents have told the programs.
    fn drain(&mut self, job: &Job, stint: &Stint, first: &Lease) {
        let ends = ends_at(first).unwrap_or(self.now);
        if stint.size() > 1 {
            // The survivors of a gang hear nothing from their own machines.
            let left = Span((ends - self.now).0.max(0));
            let reason =
                Reason::new("notice", "a lease of the gang will be taken: all of it saves now").span("left", left);
            return self.stop(job, stint, &reason);
        }
        let overrun = ends + self.brain.habits(&first.offer).notice_overrun;
        if self.now >= overrun {
            let reason = Reason::new("notice-overrun", "the lease outlived its notice: giving it back");
            return self.release_under(job, stint, &reason);
        }
        self.wake_at(overrun);
    }

    fn for_leases(&mut self, job: &Job, sight: &Sight) {
        let leases = self.leases(job);
        let held: Vec<&Lease> = leases.iter().copied().filter(|lease| !lease.is_releasing()).collect();
        let least = job.spec.least() as usize;
        if held.is_empty() {
            // One gang at a time: what is on its way back may still be paid for. But who does not answer is not waited
            // for: nothing of this job runs there.
            let all_silent = leases.iter().all(|lease| self.brain.silent_since(lease.offer.engine()).is_some());
            return if all_silent { self.take(job, sight) } else { Default::default() };
        }
        let is_unheard =
            |lease: &Lease| lease.up_at.is_none() && self.brain.silent_since(lease.offer.engine()).is_some();
        let unheard: Vec<&Lease> = held.iter().copied().filter(|lease| is_unheard(lease)).collect();
        if !unheard.is_empty() {
            let text = "its engine does not answer: it is asked for elsewhere";
            // Whoever can do with those that are there does.
            let left = if held.len() - unheard.len() < least { &held } else { &unheard };
            return self.leave(left, &Reason::new("engine-silent", text));
        }
        let ending: Vec<&Lease> = held.iter().copied().filter(|lease| self.has_too_little_time(job, lease)).collect();
        if !ending.is_empty() {
            let text = "the machine ends soon by agreement: it is given back, and another is asked for";
            let left = if held.len() - ending.len() < least { &held } else { &ending };
            return self.leave(left, &Reason::new("term", text));
        }
        let doomed: Vec<&Lease> = held.iter().copied().filter(|lease| ends_at(lease).is_some()).collect();
        if held.len() - doomed.len() < least {
            let why = match job.spec.gang {
                1 => "the lease will be taken: it is not kept",
                _ => "a lease of the gang is missing or will be taken: none of them is kept",
            };
            return self.leave_all(job, &Reason::new("gang", why));
        }
        if !doomed.is_empty() {
            let why = "a lease of the gang will be taken: the others go on without it";
            return self.leave(&doomed, &Reason::new("gang", why));
        }
        let booting = held.iter().copied().filter(|lease| !lease.is_usable());
        let overdue = booting.clone().filter_map(|lease| self.brain.boot_overdue(lease)).min();
        if overdue.is_some_and(|overdue| self.now >= overdue) {
            let asked_at = booting.clone().map(|lease| lease.asked_at).min().unwrap_or(self.now);
            let reason =
                Reason::new("boot-timeout", "a lease was not ready in time").span("waited", self.now - asked_at);
            let booting: Vec<&Lease> = booting.collect();
            // Whoever can do with those that are there does.
            let late = if held.len() - booting.len() < least { &held } else { &booting };
            return self.leave(late, &reason);
        }
        // Those that come together are waited for together. What a gang was to be filled up with is not.
        let incomplete: BTreeSet<DecisionId> = booting.map(|lease| lease.id.group).collect();
        let ids = held.iter().map(|lease| lease.id).filter(|id| !incomplete.contains(&id.group));
        let ids: Vec<LeaseId> = ids.collect();
        let in_vain = self.stopped_in_vain(job, &held);
        let not_begun: Vec<&Lease> =
            held.iter().copied().filter(|lease| job.not_begun_on.contains(&lease.id)).collect();
        let (choice, reason) = self.choose(job, sight);
        match choice {
            Choice::Take(_) | Choice::Wait { .. } => self.leave_all(job, &reason),
            Choice::Stay { .. } if in_vain => {
                let text = "the program was stopped here to save, and saved nothing: not tried again on this lease";
                self.leave_all(job, &Reason::new("stopped-in-vain", text));
            }
            Choice::Stay { .. } if !not_begun.is_empty() => {
                let nodes: BTreeSet<&NodeId> = not_begun.iter().filter_map(|lease| lease.terms.node.as_ref()).collect();
                let names: Vec<&str> = nodes.into_iter().map(NodeId::name).collect();
                let here = if names.is_empty() { "here".to_owned() } else { format!("on {}", names.join(", ")) };
                let text = format!("its program could not be begun {here}: rather another machine is tried");
                let reason = Reason::new("not-begun", text);
                // Whoever can do with those that are left does.
                match held.len() - not_begun.len() < least {
                    true => self.leave_all(job, &reason),
                    false => self.leave(&not_begun, &reason),
                }
            }
            Choice::Stay { until } if ids.len() < least => {
                self.wake_maybe(overdue);
                self.wake_maybe(until);
            }
            Choice::Stay { until } => {
                if job.rests_until(self.now).is_some() {
                    self.wake_maybe(overdue);
                    self.wake_maybe(until);
                }
                self.start(job, ids);
            }
        }
    }

    /// Whether these are leases that can be taken, and on which a stop brought nothing to safety.
    fn stopped_in_vain(&self, job: &Job, held: &[&Lease]) -> bool {
        held.iter().any(|lease| lease.market.can_be_taken() && job.stopped_in_vain_on == Some(lease.id))
            && job.spec.deadline.is_some()
    }

    fn start(&mut self, job: &Job, leases: Vec<LeaseId>) {
        if let Some(at) = job.rests_until(self.now) {
            return self.wake_at(at);
        }
        let stint = StintId::of_job(job.id, job.epoch + 1);
        let resume = job.avoid.map_or(Resume::Newest, Resume::Before);
        let machines = if leases.len() == 1 { "the machine is up" } else { "the machines are up" };
        let text = format!("{machines}{}", job.goes_on_from());
        let saved = job.rate(job.usual_accelerator()).map(|rate| rate.time_for(job.progress.durable));
        let reason = Reason::new("start", text).count("machines", leases.len() as u64);
        let reason =
            saved.filter(|saved| saved.0 > 0).into_iter().fold(reason, |said, saved| said.span("saved", saved));
        // A machine whose devices others have by now is done without, where that goes.
        let parts = leases.into_iter().filter_map(|lease| self.own_part(job, lease));
        let allocations: Vec<Allocation> = parts.collect();
        if allocations.len() < job.spec.least() as usize {
            return;
        }
        for allocation in &allocations {
            self.give_devices(allocation);
            self.rooms.begin(allocation.lease);
        }
        self.say(Decision::Start { stint, allocations, resume }, reason);
    }

    /// Starts a job on a machine of another one.
    fn move_in(&mut self, job: &Job, allocation: Allocation, holder: WorkloadId) {
        if let Some(at) = job.rests_until(self.now) {
            return self.wake_at(at);
        }
        let stint = StintId::of_job(job.id, job.epoch + 1);
        let text = "there is room on a machine that is held already, and it is what would be got";
        let reason = Reason::new("room", text).count("of job", holder.0);
        self.give_devices(&allocation);
        self.moved_in.insert(allocation.lease);
        let resume = job.avoid.map_or(Resume::Newest, Resume::Before);
        self.say(Decision::Start { stint, allocations: vec![allocation], resume }, reason);
    }

    fn take(&mut self, job: &Job, sight: &Sight) {
        let (choice, reason) = self.choose(job, sight);
        match choice {
            Choice::Take(offer) => match self.room_on(job, &offer) {
                Some((allocation, holder)) => self.move_in(job, allocation, holder),
                None => {
                    self.waits_for = self.room_is_coming(job, &offer);
                    if self.waits_for.is_none() {
                        self.acquire(job, &offer, sight, &reason);
                    }
                }
            },
            Choice::Stay { until } | Choice::Wait { until } => self.wake_maybe(until),
        }
    }

    fn wake_maybe(&mut self, at: Option<Time>) {
        if let Some(at) = at {
            // At least a millisecond on, so that a rule which is true only after its moment is reached.
            self.wake_at(at.max(self.now + Span(1)));
        }
    }
}

fn paused() -> Reason {
    Reason::new("paused", "paused: it holds nothing until its budget is raised")
}

pub(super) fn ends_at(lease: &Lease) -> Option<Time> {
    match lease.phase {
        LeasePhase::Noticed { ends_at } => Some(ends_at),
        _ => None,
    }
}

impl Brain {
    /// A job's leases that are not known to be gone.
    pub fn leases_of(&self, id: WorkloadId) -> impl Iterator<Item = &Lease> {
        self.leases.used_by(id).filter(move |lease| lease.workload == Some(id))
    }
}
