//! One world from its first moment to its last: who does what next, which faults strike, and when the laws
//! are looked at. The server's part is the server's own code.

mod engines;
mod people;
mod steps;

use crate::audit::Audit;
use crate::engine::Shared;
use crate::fault::{FaultKind, Faults};
use crate::planted::Bug;
use crate::random::{self, Random};
use crate::scenario::Scenario;
use crate::server::{Server, now};
use crate::store::FaultyStore;
use crate::world::World;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use windfall_core::laws::Reached;
use windfall_core::{Event, Span, Time, WorkloadId};
use windfall_exec::Engine;
use windfall_server::dispatch::{self, Task};

/// When every world begins.
pub(crate) const BEGIN: Time = Time(1_000_000_000);
/// What a call that was lost costs in time, the wait before it is made again included.
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
pub(crate) struct WorldRun {
    pub how: How,
    pub scenario: Scenario,
    pub shared: Shared,
    pub store: Arc<FaultyStore>,
    pub server: Option<Server>,
    old_leader: Option<(Time, Server)>,
    pub now: Time,
    up_again: Time,
    next_poll: Time,
    /// What is seen in this turn may get lost.
    may_fail: bool,
    /// Calls of dead servers that are still on their way.
    late_calls: Vec<(Time, Task)>,
    to_submit: Vec<usize>,
    pub accepted: BTreeSet<usize>,
    to_cancel: Vec<usize>,
    tickets: u64,
    /// When somebody whose wish was not taken asks again, by job.
    ask_again: BTreeMap<usize, Time>,
    /// Jobs whose owners were told that nothing of them was kept.
    told_no: BTreeSet<usize>,
    /// What a planted bug lets through later.
    smuggled: Vec<Event>,
    /// When somebody will raise the budget of a job that is paused.
    raises: BTreeMap<WorkloadId, Time>,
    /// Delay by faults that a job found when it was submitted.
    pub delay_before: BTreeMap<usize, Span>,
    random: Random,
    pub audit: Audit,
    pub reached: Reached,
    pub steps: u64,
    turns: u64,
    /// How many times the steps of a world with a few jobs this one may take.
    pub scale: u64,
    pub broken: Option<Broken>,
    pub kept: Option<(u64, String)>,
    pub orphans: u64,
    pub restarts: u64,
    pub refused_inputs: u64,
    /// Turns since a moment, to see that time goes on.
    pub pace: (Time, u64),
}

impl WorldRun {
    pub fn new(how: How) -> WorldRun {
        let mut scenario = Scenario::of(how.seed);
        let mut faults = Faults::new(how.seed, how.only_faults.clone());
        faults.without = std::mem::take(&mut scenario.without);
        // Promises are kept through short outages only, and gentle worlds are where promises are checked.
        if scenario.gentle {
            faults.without.extend([FaultKind::EngineSilent, FaultKind::EngineHangs, FaultKind::StoreAway]);
        }
        let mut world = World::new(how.seed, BEGIN, scenario.boot, scenario.moody, faults, how.bug);
        world.jobs = scenario.jobs.iter().map(|plan| crate::program::Truth::new(plan.program.clone())).collect();
        world.trace = how.trace.then(Vec::new);
        let size = crate::market::Size::of(how.seed);
        let jobs = 0..scenario.jobs.len();
        let wanted: Vec<usize> = jobs.filter(|j| how.only_jobs.as_ref().is_none_or(|only| only.contains(j))).collect();
        let to_cancel = wanted.iter().copied().filter(|job| scenario.jobs[*job].cancel_at.is_some()).collect();
        WorldRun {
            shared: Shared::new(world),
            store: FaultyStore::new(how.bug),
            server: None,
            old_leader: None,
            now: BEGIN,
            up_again: BEGIN,
            next_poll: BEGIN,
            may_fail: false,
            late_calls: Vec::new(),
            to_submit: wanted,
            accepted: BTreeSet::new(),
            to_cancel,
            tickets: 0,
            ask_again: BTreeMap::new(),
            told_no: BTreeSet::new(),
            smuggled: Vec::new(),
            raises: BTreeMap::new(),
            delay_before: BTreeMap::new(),
            random: random::of(how.seed, &[99]),
            audit: Audit::of(size),
            reached: Reached::default(),
            steps: 0,
            turns: 0,
            scale: size.scale(),
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
            if calm_at.is_none() && (over || self.steps >= self.how.steps * self.scale) {
                calm_at = Some(self.turns);
                self.shared.world().calm_down();
                self.old_leader = None;
                self.shared.world().say(|| "the world becomes calm".to_owned());
            }
            if over && self.is_clean() {
                self.check_end();
                return;
            }
            if calm_at.is_some_and(|calm| self.turns > calm + CALM_TURNS * self.scale) {
                return self.lost();
            }
            self.turn();
        }
    }

    pub fn fail(&mut self, law: u8, what: String) {
        self.broken.get_or_insert(Broken { law, what, step: self.steps });
    }

    pub fn strike(&self, kind: FaultKind) -> bool {
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
        self.fly();
        if self.server.is_some() {
            self.hear_people();
            self.drive();
        }
        self.check();
        self.check_answers();
        self.check_delays();
        self.check_ends();
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
                let (timer, other) = server.rests_until;
                timer.filter(|_| self.how.bug != Some(Bug::TimersLost)).into_iter().for_each(&mut at);
                other.into_iter().for_each(&mut at);
                server.flights.iter().for_each(|flight| at(flight.at));
                self.next_wish().into_iter().for_each(&mut at);
                // A server whose store is away looks at nothing.
                if !server.cycle.leads() {
                    return next.max(self.now);
                }
                server.inbox.iter().for_each(|(time, _)| at(*time));
                server.looks.iter().for_each(|look| at(look.at));
                at(self.next_poll);
                let world = self.shared.world();
                let lag = Span(50 + (self.turns % 7) as i64 * 60);
                world.dirty_since.or_else(|| world.next_change()).into_iter().for_each(|time| at(time + lag));
            }
        }
        next.max(self.now)
    }

    fn go_to(&mut self, next: Time) {
        let jump = self.server.is_some() && self.strike(FaultKind::ClockJump);
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
        let engines = self.shared.world().engines.clone();
        let mut server = match Server::open(&self.store, &self.scenario.config, &engines, self.habits(), self.now) {
            Ok(server) => server,
            Err(error) => return self.fail(11, format!("the state cannot be opened: {error}")),
        };
        if self.how.bug == Some(Bug::OutboxDropped) {
            server.dropped = server.cycle.brain().outbox().into_iter().map(|open| open.id).collect();
        }
        self.audit.installation = server.cycle.brain().installation();
        self.server = Some(server);
        self.next_poll = self.now;
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
        while let Some(flight) = server.take_due(Time(i64::MAX)) {
            if self.strike(FaultKind::CallAfterDeath) {
                let later = self.now + Span::seconds(self.random.spread(1, 4_000));
                self.late_calls.push((later, flight.task));
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

    fn perform(&self, task: &Task) -> dispatch::Performed {
        let engine = task.engine().map(|engine| self.shared.engine(engine));
        let engine = engine.as_ref().map(|engine| engine as &dyn Engine);
        match (self.how.bug, task) {
            (Some(Bug::ReleaseForgotten), Task::Release(..)) => Default::default(),
            (Some(Bug::HalfGang), Task::Start(orders)) if orders.len() > 1 => {
                let part = Task::Start(orders[..orders.len() - 1].to_vec());
                now(dispatch::perform(engine, &self.shared, &self.shared, &part))
            }
            _ => now(dispatch::perform(engine, &self.shared, &self.shared, task)),
        }
    }
}
