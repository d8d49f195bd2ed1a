//! Engines as the server meets them: looks that fail, hang, come late or twice, and what agents say meanwhile.

use super::*;
use crate::server::{LookOnItsWay, moment};
use std::time::Duration;
use windfall_core::DecisionId;
use windfall_exec::Owned;
use windfall_server::cycle::Habits;
use windfall_server::dispatch::Look;

/// What a loop may take beyond its patience before somebody is delayed.
const MARGIN: Span = Span::seconds(30);

impl WorldRun {
    pub(super) fn habits(&self) -> Habits {
        let habits = Habits {
            // What is overlooked stays overlooked.
            hear_all_every: Duration::from_secs(1 << 30),
            sweep_every: Duration::from_millis(SWEEP.0.unsigned_abs()),
            snapshot_rows: 90,
            ..Habits::default()
        };
        match self.how.bug {
            Some(Bug::SilenceUnnoticed) => Habits { silent_after: Duration::from_secs(1 << 30), ..habits },
            _ => habits,
        }
    }

    /// One engine refuses to answer, or hangs.
    pub(super) fn silence_an_engine(&mut self) {
        if self.shared.world().calm {
            return;
        }
        let (refuses, hangs) = (self.strike(FaultKind::EngineSilent), self.strike(FaultKind::EngineHangs));
        if !refuses && !hangs {
            return;
        }
        let silence = Span::seconds(self.random.spread(60, 900));
        let mut world = self.shared.world();
        let engine = world.engines[self.random.below(world.engines.len() as u64) as usize].clone();
        let until = self.now + silence;
        (if hangs { &mut world.hangs_until } else { &mut world.silent_until }).insert(engine, until);
        world.delay += silence + Span::seconds(30);
    }

    /// The server looks at every engine in every turn; answers fail, get lost, come late or twice, but not more often
    /// because it looks more often.
    pub(super) fn stir_engines(&mut self) {
        self.answer_looks();
        let Some(server) = &mut self.server else { return };
        let now = self.now;
        let (due, waiting) = std::mem::take(&mut server.inbox).into_iter().partition(|(at, _)| *at <= now);
        server.inbox = waiting;
        let due: Vec<(Time, Vec<Event>)> = due;
        server.cycle.happened(due.into_iter().flat_map(|(_, events)| events));
        let mut world = self.shared.world();
        self.may_fail = world.dirty_since.take().is_some() || now >= self.next_poll;
        let calm = world.calm;
        for engine in &world.engines {
            server.cycle.stirred(moment(now), engine);
        }
        drop(world);
        if self.may_fail {
            self.next_poll = now + if calm { Span::minutes(15) } else { self.scenario.poll };
        }
        if self.how.bug == Some(Bug::TimersLost) {
            self.next_poll = self.next_poll.max(now + Span::hours(3));
        }
    }

    /// A planted bug: the loop stands still while an engine hangs.
    pub(super) fn is_stuck(&self) -> bool {
        let hangs = |server: &Server| server.looks.iter().any(|look| look.seen.is_none());
        self.how.bug == Some(Bug::EngineAwaited) && self.server.as_ref().is_some_and(hangs)
    }

    pub(super) fn look(&mut self, engine: String, number: u64, groups: Vec<DecisionId>, sweep: bool) {
        let hangs = self.shared.world().hangs_until.get(&engine).copied().filter(|until| self.now < *until);
        let on_its_way =
            |at: Time, seen| LookOnItsWay { at, engine: engine.clone(), number, seen, groups: groups.clone(), sweep };
        if let Some(until) = hangs {
            // As the server does, it is given up after a while, and tried again.
            let at = until.min(self.now + Span::seconds(30));
            let look = on_its_way(at, None);
            return self.server.iter_mut().for_each(|server| server.looks.push(look.clone()));
        }
        let seen = self.seen(&engine, &groups, sweep);
        if self.may_fail && self.strike(FaultKind::LookSlow) {
            let most = if self.scenario.gentle { 2_000 } else { 25_000 };
            let later = Span(self.random.spread(100, most));
            self.shared.world().delay += later;
            let look = on_its_way(self.now + later, Some(seen));
            return self.server.iter_mut().for_each(|server| server.looks.push(look.clone()));
        }
        self.saw(&engine, number, &groups, seen);
    }

    /// Looks that are answered by now.
    fn answer_looks(&mut self) {
        while let Some(server) = &mut self.server {
            let Some(due) = server.looks.iter().position(|look| look.at <= self.now) else { return };
            let LookOnItsWay { engine, number, seen, groups, sweep, .. } = server.looks.remove(due);
            let seen = seen.unwrap_or_else(|| self.seen(&engine, &groups, sweep));
            if let Some(server) = &mut self.server {
                server.cycle.saw(moment(self.now), &engine, number, seen);
            }
        }
    }

    /// What an engine shows now, or why it cannot be seen.
    pub(super) fn seen(&mut self, engine: &str, groups: &[DecisionId], sweep: bool) -> Result<Look, String> {
        let look = now(dispatch::look(&self.shared.engine(engine), groups, sweep));
        let mut look = look.map_err(|error| error.to_string())?;
        if let Some(Ok(owned)) = look.owned.take() {
            look.owned = Some(Ok(self.swept(owned)));
        }
        Ok(look)
    }

    /// Hands a look to the loop; answers get lost, come late or twice, or in any order.
    fn saw(&mut self, engine: &str, number: u64, groups: &[DecisionId], seen: Result<Look, String>) {
        let Some(server) = &mut self.server else { return };
        let Ok(look) = &seen else { return server.cycle.saw(moment(self.now), engine, number, seen) };
        let events = dispatch::observed(server.cycle.brain(), engine, groups, look).events;
        let events = self.distort(events, FaultKind::ObserveFails);
        let Some(server) = &mut self.server else { return };
        match events {
            None => server.cycle.saw(moment(self.now), engine, number, Err("the answer was lost".to_owned())),
            Some(events) => {
                server.cycle.happened(events);
                server.cycle.saw(moment(self.now), engine, number, seen);
            }
        }
    }

    pub(super) fn hear(&mut self, all: bool) {
        let Some(server) = &mut self.server else { return };
        let said = server.hear(&self.shared, all);
        let said = self.distort(said, FaultKind::ObservationDropped);
        if said.is_none() {
            // Agents say it again.
            self.next_poll = self.next_poll.min(self.now + Span::seconds(1));
        }
        if let Some(server) = &mut self.server {
            if said.is_none() {
                server.heard.clear();
            }
            server.cycle.heard(moment(self.now), said.unwrap_or_default());
        }
    }

    /// What becomes of news on its way; none when it is lost, or comes later.
    fn distort(&mut self, mut events: Vec<Event>, loss: FaultKind) -> Option<Vec<Event>> {
        if !self.may_fail || events.is_empty() {
            return Some(events);
        }
        let dropped = self.strike(loss);
        let stale = !dropped && self.strike(FaultKind::ObservationStale);
        if dropped || stale {
            self.shared.world().delay += Span::seconds(2);
        }
        if stale || (!dropped && self.strike(FaultKind::ObservationTwice)) {
            let most = if self.scenario.gentle { 2_000 } else { 600_000 };
            let later = Span(self.random.spread(100, most));
            let at = self.now + later;
            self.server.iter_mut().for_each(|server| server.inbox.push((at, events.clone())));
        }
        if events.len() > 1 && self.strike(FaultKind::EventsShuffled) {
            shuffle(&mut events, &mut self.random);
        }
        (!dropped && !stale).then_some(events)
    }

    fn swept(&mut self, owned: Vec<Owned>) -> Vec<Owned> {
        if self.how.bug == Some(Bug::NoSweep) {
            return Vec::new();
        }
        let Some(server) = &self.server else { return owned };
        let orphans = dispatch::orphans(server.cycle.brain(), &owned);
        self.orphans += orphans.len() as u64;
        if self.how.bug == Some(Bug::OrphanUnbooked) {
            for orphan in orphans {
                if let Event::LeaseFound { lease, offer, .. } = orphan {
                    self.perform(&Task::Release(offer.engine().to_owned(), lease.group, vec![lease.slot]));
                }
            }
            return Vec::new();
        }
        owned
    }

    /// Law 18: people are answered and jobs are thought of, whatever some engine does.
    pub(super) fn check_delays(&mut self) {
        let (now, bug) = (self.now, self.how.bug);
        let patience = |real: Duration| Span(real.as_millis() as i64) + MARGIN;
        let habits = Habits::default();
        let trouble_at = self.shared.world().trouble_at;
        let Some(server) = self.server.as_mut().filter(|server| server.cycle.leads()) else { return };
        let brain = server.cycle.brain();
        let unanswered = server.wishes.values().find(|(_, since)| now - *since > MARGIN);
        let mut late = unanswered.map(|(wish, since)| format!("{wish:?} was asked for {} ago", now - *since));
        let left: BTreeSet<WorkloadId> = brain.left_alone().collect();
        server.left_alone.retain(|job, _| left.contains(job));
        for job in left {
            *self.reached.entry(18).or_default() += 1;
            let since = *server.left_alone.entry(job).or_insert(now);
            let runs = brain.job(job).is_some_and(|job| job.stint.is_some());
            let holds = runs || brain.leases_of(job).next().is_some();
            let most = patience(if holds { habits.blind_most } else { habits.silent_after });
            if now - since > most {
                late = Some(format!("job {job} is left alone for {}, with leases: {holds}", now - since));
            }
        }
        // A world that has just jumped has had no turn to do anything about it.
        if let Some(what) = late.filter(|_| bug.is_some() || now - trouble_at > Span::ZERO) {
            self.fail(18, what);
        }
    }
}

/// Any order, but that a lease comes up before it is gone: one observation says both, in that order.
fn shuffle(events: &mut [Event], random: &mut Random) {
    for i in (1..events.len()).rev() {
        events.swap(i, random.below(i as u64 + 1) as usize);
    }
    for i in 0..events.len() {
        let Event::LeaseGone { lease: gone, .. } = events[i] else { continue };
        let later = (i + 1..events.len()).find(|j| matches!(events[*j], Event::LeaseUp { lease, .. } if lease == gone));
        if let Some(j) = later {
            events.swap(i, j);
        }
    }
}
