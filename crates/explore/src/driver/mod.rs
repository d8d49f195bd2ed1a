//! One world from its first moment to its last: who does what next, which faults strike, and when the laws
//! are looked at. The server's part is the server's own code.

mod inbox;

use crate::audit::Audit;
use crate::engine::Shared;
use crate::fault::{Faults, Kind};
use crate::planted::Bug;
use crate::random::{self, Random};
use crate::scenario::{Scenario, spoiled};
use crate::server::{Flight, Server, now};
use crate::shelf::{Shelf, snapshot_of};
use crate::world::World;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use windfall_core::laws::Reached;
use windfall_core::{Event, NanoUsd, Span, Time, Workload, WorkloadId};
use windfall_exec::Engine;
use windfall_server::cycle::{CycleError, Stepped};
use windfall_server::dispatch::{self, Task};
use windfall_store::{Store, StoreError};

/// When every world begins.
pub(crate) const BEGIN: Time = Time(1_000_000_000);
/// How long the server waits before it asks an engine again that did not answer.
pub(crate) const RETRY: Span = Span::seconds(2);
/// How often it looks for leases that the log does not know.
pub(crate) const SWEEP: Span = Span::minutes(10);
/// Turns that a calm world may take to bring every job to its end.
const CALM_TURNS: u64 = 6_000;

/// How a world is run.
#[derive(Clone, Debug, Default)]
pub(crate) struct How {
    pub seed: u64,
    /// Steps until the world becomes calm.
    pub steps: u64,
    pub bug: Option<Bug>,
    pub only_faults: Option<BTreeSet<u64>>,
    pub only_jobs: Option<BTreeSet<usize>>,
    pub trace: bool,
}

/// A broken law.
#[derive(Clone, Debug)]
pub(crate) struct Broken {
    pub law: u8,
    pub what: String,
    pub step: u64,
}

/// A world being lived.
pub(crate) struct Life {
    pub how: How,
    pub scenario: Scenario,
    pub shared: Shared,
    pub shelf: Arc<Shelf>,
    pub server: Option<Server>,
    old_leader: Option<(Time, Server)>,
    pub now: Time,
    up_again: Time,
    next_poll: Time,
    next_sweep: Time,
    /// Calls of dead servers that are still on their way.
    late_calls: Vec<(Time, Task)>,
    to_submit: Vec<usize>,
    pub accepted: BTreeSet<usize>,
    to_cancel: Vec<usize>,
    /// When somebody will raise the budget of a job that is paused.
    raises: BTreeMap<WorkloadId, Time>,
    /// Delay by faults that a job found when it was submitted.
    pub delay_before: BTreeMap<usize, Span>,
    random: Random,
    pub audit: Audit,
    pub reached: Reached,
    pub steps: u64,
    turns: u64,
    pub broken: Option<Broken>,
    pub kept: Option<(u64, String)>,
    pub orphans: u64,
    pub restarts: u64,
    pub refused_inputs: u64,
    /// Turns since a moment, to see that time goes on.
    pub pace: (Time, u64),
}

impl Life {
    pub fn new(how: How) -> Life {
        let mut scenario = Scenario::of(how.seed);
        let mut faults = Faults::new(how.seed, how.only_faults.clone());
        faults.without = std::mem::take(&mut scenario.without);
        let mut world = World::new(how.seed, BEGIN, scenario.boot, scenario.moody, faults, how.bug);
        world.jobs = scenario.jobs.iter().map(|plan| crate::program::Truth::new(plan.program.clone())).collect();
        world.trace = how.trace.then(Vec::new);
        let jobs = 0..scenario.jobs.len();
        let wanted: Vec<usize> = jobs.filter(|j| how.only_jobs.as_ref().is_none_or(|only| only.contains(j))).collect();
        let to_cancel = wanted.iter().copied().filter(|job| scenario.jobs[*job].cancel_at.is_some()).collect();
        Life {
            shared: Shared::new(world),
            shelf: Shelf::new(how.bug),
            server: None,
            old_leader: None,
            now: BEGIN,
            up_again: BEGIN,
            next_poll: BEGIN,
            next_sweep: BEGIN,
            late_calls: Vec::new(),
            to_submit: wanted,
            accepted: BTreeSet::new(),
            to_cancel,
            raises: BTreeMap::new(),
            delay_before: BTreeMap::new(),
            random: random::of(how.seed, &[99]),
            audit: Audit::default(),
            reached: Reached::default(),
            steps: 0,
            turns: 0,
            broken: None,
            kept: None,
            orphans: 0,
            restarts: 0,
            refused_inputs: 0,
            pace: (BEGIN, 0),
            scenario,
            how,
        }
    }

    /// Lives the whole life.
    pub fn live(&mut self) {
        let mut calm_at = None;
        while self.broken.is_none() {
            let over = self.is_over();
            if calm_at.is_none() && (over || self.steps >= self.how.steps) {
                calm_at = Some(self.turns);
                self.shared.world().calm_down();
                self.old_leader = None;
                self.shared.world().say(|| "the world becomes calm".to_owned());
            }
            if over && self.is_clean() {
                self.check_end();
                return;
            }
            if calm_at.is_some_and(|calm| self.turns > calm + CALM_TURNS) {
                return self.lost();
            }
            self.turn();
        }
    }

    pub fn fail(&mut self, law: u8, what: String) {
        self.broken.get_or_insert(Broken { law, what, step: self.steps });
    }

    pub fn strike(&self, kind: Kind) -> bool {
        self.shared.world().strike(kind)
    }

    /// Every job was submitted and has ended.
    fn is_over(&self) -> bool {
        self.to_submit.is_empty() && self.audit.ids.len() == self.audit.ends.len()
    }

    /// Nothing is left in the world or on the way.
    fn is_clean(&self) -> bool {
        let idle = self.server.as_ref().is_some_and(|s| s.flights.is_empty() && s.cycle.brain().leases().count() == 0);
        idle && self.late_calls.is_empty()
            && self.shared.world().machines.values().all(|machine| machine.gone.is_some())
    }

    fn turn(&mut self) {
        self.turns += 1;
        let next = self.next_moment();
        self.go_to(next);
        self.check_pace();
        self.run_late_calls();
        self.run_old_leader();
        if self.server.is_none() {
            if self.now >= self.up_again {
                self.start_server();
            }
            return;
        }
        let events = self.gather();
        if self.server.is_some() {
            self.step(events);
        }
        self.check();
    }

    fn next_moment(&mut self) -> Time {
        let mut next = self.now + Span::hours(12);
        let mut at = |time: Time| next = next.min(time);
        self.late_calls.iter().for_each(|(time, _)| at(*time));
        if let Some((time, _)) = &self.old_leader {
            at(*time);
        }
        match &self.server {
            None => at(self.up_again),
            Some(server) => {
                if self.how.bug != Some(Bug::TimersLost) {
                    server.cycle.next_wakeup().into_iter().for_each(&mut at);
                }
                server.flights.iter().for_each(|flight| at(flight.at));
                server.inbox.iter().for_each(|(time, _)| at(*time));
                at(self.next_poll);
                at(self.next_sweep);
                self.to_submit.iter().for_each(|job| at(self.scenario.jobs[*job].submit_at));
                self.to_cancel.iter().filter_map(|job| self.scenario.jobs[*job].cancel_at).for_each(&mut at);
                self.raises.values().for_each(|time| at(*time));
                let world = self.shared.world();
                let lag = Span(50 + (self.turns % 7) as i64 * 60);
                world.dirty_since.or_else(|| world.next_change()).into_iter().for_each(|time| at(time + lag));
            }
        }
        next.max(self.now)
    }

    fn go_to(&mut self, next: Time) {
        let jump = self.server.is_some() && self.strike(Kind::ClockJump);
        let next = if jump { next + Span::minutes(self.random.between(60, 600)) } else { next };
        let mut world = self.shared.world();
        world.advance(next);
        if jump {
            world.delay += next - self.now;
            world.trouble_at = next;
            // After a gap engines are observed before timers fire.
            world.dirty_since = Some(self.now);
        }
        self.now = next;
    }

    fn start_server(&mut self) {
        self.restarts += 1;
        let mut server = match Server::open(&self.shelf, &self.scenario.config) {
            Ok(server) => server,
            Err(error) => return self.fail(11, format!("the state cannot be opened: {error:?}")),
        };
        if self.how.bug != Some(Bug::OutboxDropped) {
            server.dispatch_outbox(self.now);
        }
        self.server = Some(server);
        self.next_poll = self.now;
        self.next_sweep = self.now;
        let mut world = self.shared.world();
        world.trouble_at = self.now;
        world.say(|| "a server starts".to_owned());
    }

    /// The server is gone with all it had in memory; calls may still be on their way.
    fn die(&mut self) {
        let Some(mut server) = self.server.take() else { return };
        let most = if self.scenario.gentle { 3 } else { 1_200 };
        let down = Span::seconds(self.random.spread(1, most));
        self.up_again = self.now + down;
        self.shared.world().say(|| format!("the server dies, and is down for {down}"));
        self.shared.world().delay += down;
        while let Some((_, task)) = server.take_due(Time(i64::MAX)) {
            if let Some(task) = task
                && self.strike(Kind::CallAfterDeath)
            {
                let later = self.now + Span::seconds(self.random.spread(1, 4_000));
                self.late_calls.push((later, task));
            }
        }
    }

    fn run_late_calls(&mut self) {
        let now = self.now;
        while let Some(due) = self.late_calls.iter().position(|(at, _)| *at <= now) {
            let (_, task) = self.late_calls.remove(due);
            self.perform(&task);
            self.shared.world().trouble_at = now;
        }
    }

    /// An old leader carries out what it had decided, and tries to go on.
    fn run_old_leader(&mut self) {
        let Some((_, mut old)) = self.old_leader.take_if(|(at, _)| *at <= self.now) else { return };
        self.shared.world().trouble_at = self.now;
        while let Some((_, task)) = old.take_due(Time(i64::MAX)) {
            if let Some(task) = task {
                self.perform(&task);
            }
        }
        let events = old.observe(&self.shared, self.now).unwrap_or_default();
        if let Ok(stepped) = now(old.cycle.step(self.now, events))
            && (!stepped.decisions.is_empty() || stepped.logged.iter().any(Option::is_some))
        {
            self.fail(10, "a leader that was replaced has committed".to_owned());
        }
        *self.reached.entry(10).or_default() += 1;
    }

    fn perform(&self, task: &Task) -> dispatch::Performed {
        match (self.how.bug, task) {
            (Some(Bug::ReleaseForgotten), Task::Release(_)) => Default::default(),
            (Some(Bug::HalfGang), Task::Start(orders)) if orders.len() > 1 => {
                now(dispatch::perform(&self.shared, &Task::Start(orders[..orders.len() - 1].to_vec())))
            }
            _ => now(dispatch::perform(&self.shared, task)),
        }
    }

    fn step(&mut self, events: Vec<Event>) {
        let now_ = self.now;
        self.arm_store();
        if self.how.bug == Some(Bug::DispatchBeforeCommit) {
            self.dispatch_early(&events);
        }
        let Some(server) = &mut self.server else { return };
        self.steps += 1;
        let again = events.clone();
        match now(server.cycle.step(now_, events)) {
            Ok(stepped) => self.stepped(stepped),
            Err(CycleError::Store(StoreError::Refused)) => {
                // Nothing of it happened; the same is told again.
                server.inbox.push((now_ + Span::seconds(1), again));
                server.dispatch_outbox(now_);
                self.shared.world().delay += Span::seconds(1);
                self.shared.world().trouble_at = now_;
            }
            Err(CycleError::Store(StoreError::Crashed | StoreError::Gap { .. })) => self.die(),
            Err(error) => self.fail(10, format!("the leader could not commit: {error:?}")),
        }
    }

    fn arm_store(&mut self) {
        let memory = &self.shelf.memory;
        if self.strike(Kind::StoreRefuses) {
            memory.fail_next_commits(self.random.between(1, 5) as u64);
        } else if self.strike(Kind::DiesBeforeCommit) {
            memory.crash_before_commit(0);
        } else if self.strike(Kind::DiesAfterCommit) {
            memory.crash_after_commit(0);
        } else if self.shared.world().calm {
            memory.clear_faults();
        }
    }

    fn stepped(&mut self, stepped: Stepped) {
        let now_ = self.now;
        let Some(server) = &mut self.server else { return };
        let brain = server.cycle.brain();
        self.accepted
            .extend(self.to_submit.iter().copied().filter(|j| brain.submitted_as(&format!("key-{j}")).is_some()));
        self.to_submit.retain(|job| !self.accepted.contains(job));
        let shared = &self.shared;
        self.to_cancel.retain(|job| !shared.world().jobs[*job].cancel_sent);
        for open in stepped.decisions {
            let mut at = now_;
            if shared.world().strike(Kind::CallDelayed) {
                let most = if self.scenario.gentle { 2_000 } else { 120_000 };
                let later = Span(self.random.spread(200, most));
                at = at + later;
                shared.world().delay += later;
            }
            server.flights.push(Flight { at, open });
        }
        if !stepped.gone.is_empty() && self.scenario.forgets {
            let _ = now(shared.forget(&stepped.gone));
        }
        if self.random.permille(10) {
            let _ = now(self.shelf.snapshot(self.shelf.epoch(), &snapshot_of(server.cycle.brain())));
        }
        if self.strike(Kind::TwoServers) {
            let until = now_ + Span::seconds(self.random.spread(1, 2_000));
            self.old_leader = self.server.take().map(|server| (until, server));
            self.start_server();
        }
    }

    fn dispatch_early(&mut self, events: &[Event]) {
        let Some(server) = &self.server else { return };
        let mut brain = server.cycle.brain().clone();
        let mut seq = brain.last_seq();
        let mut take = |brain: &mut windfall_core::Brain, body| {
            seq += 1;
            let batch = brain.last_batch() + 1;
            brain.apply(&windfall_core::Record { seq, batch, at: self.now, body });
            seq
        };
        for event in events {
            if brain.is_news(event) {
                take(&mut brain, windfall_core::Body::Event(event.clone()));
            }
        }
        let mut early = Vec::new();
        for decided in brain.decide(self.now) {
            let body = windfall_core::Body::Decision(decided.decision.clone(), decided.reason);
            let seq = take(&mut brain, body);
            let id = windfall_core::DecisionId { installation: brain.installation(), seq };
            early.push(windfall_core::brain::Open { id, decision: decided.decision });
        }
        for open in early {
            if let Some(task) = dispatch::task(&brain, &crate::server::Tailor, &open) {
                self.check_committed(&open);
                self.perform(&task);
            }
        }
    }
}
