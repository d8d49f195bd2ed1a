//! Drives the server's own loop: every step that it asks for meets the invented store and engine, and their faults.

use super::*;
use crate::server::{Flight, Folders, moment, world_time};
use crate::store::Unsure;
use windfall_core::brain::Open;
use windfall_core::{Body, DecisionId, LeaseId, codec};
use windfall_exec::Engine;
use windfall_server::cycle::Step;
use windfall_server::dispatch::Performed;
use windfall_store::{Commit, Loaded, Store, StoreError};

impl WorldRun {
    /// Carries out the calls that are due.
    pub(super) fn fly(&mut self) {
        let now = self.now;
        // Calls that fail are made again later, so this ends.
        while let Some(flight) = self.server.as_mut().and_then(|server| server.take_due(now)) {
            if self.strike(FaultKind::DiesBetween) {
                if let Some(server) = &mut self.server {
                    server.flights.push(flight);
                }
                return self.die();
            }
            self.check_committed(&flight.open);
            let performed = self.perform(&flight.task);
            if let Some(server) = &mut self.server {
                server.cycle.performed(moment(now), flight.open.id, performed);
            }
        }
    }

    /// One turn of the loop: does what it asks for until it rests.
    pub(super) fn drive(&mut self) {
        self.steps += 1;
        self.silence_an_engine();
        if !self.shared.world().calm && self.strike(FaultKind::StoreAway) {
            let away = Span::seconds(self.random.spread(5, 3_000));
            let mut world = self.shared.world();
            world.lose_store(away);
            // Whatever is stored and restored meanwhile comes later by as much, and once more by what was lost.
            world.delay += Span(away.0 * 2);
        }
        self.hide_an_offer();
        self.lose_sight_of_a_lease();
        if let Some(server) = self.server.as_mut().filter(|server| server.cycle.leads()) {
            server.cycle.happened(self.smuggled.drain(..));
        }
        self.stir_engines();
        if self.is_stuck() {
            return;
        }
        if let Some(server) = &mut self.server {
            server.cycle.turn();
        }
        while let Some(server) = &mut self.server {
            match server.cycle.next(moment(self.now)) {
                Step::Rest { world, real } => {
                    server.rests_until = (world, real.map(world_time));
                    break;
                }
                Step::Look { engine, number, groups, sweep } => self.look(engine, number, groups, sweep),
                Step::Hear { all, .. } => self.hear(all),
                Step::Commit(commit) => self.commit(&commit),
                Step::Lead { known } => self.lead(known),
                Step::Snapshot(task) => {
                    let end = now(task.run_here(&*self.store, server.cycle.epoch()));
                    server.cycle.snapshot_ended(end);
                    let _ = now(self.store.forget_parts(server.cycle.epoch()));
                }
                Step::Call(open) => self.call(open),
                Step::Forget(gone) => {
                    let leases: Vec<_> = gone.into_iter().map(|gone| gone.lease).collect();
                    if self.scenario.forgets {
                        // The engines of a world forget together.
                        let _ = now(self.shared.engine(crate::market::FIRST).forget(&leases));
                    }
                }
                Step::Answer(ticket, answer) => self.answered(ticket, answer),
                Step::Say(text) => self.shared.world().say(|| text),
                Step::End(why) => {
                    self.fail(10, format!("the only server ended itself: {why}"));
                    break;
                }
            }
            if self.broken.is_some() {
                return;
            }
        }
        if self.server.is_some() && self.strike(FaultKind::TwoServers) {
            let until = self.now + Span::seconds(self.random.spread(1, 2_000));
            self.old_leader = self.server.take().map(|server| (until, server));
            self.start_server();
        }
    }

    /// An offer that the engine does not show for a while. On-demand capacity stays: promises rest on it.
    fn hide_an_offer(&mut self) {
        let spots = self.shared.world().offers.iter().filter(|invented| invented.capacity.is_some()).count();
        if spots > 0 && self.strike(FaultKind::OfferHidden) {
            let offer = self.random.below(spots as u64) as usize;
            let until = self.now + Span::seconds(self.random.spread(30, 4_000));
            self.shared.world().hidden = Some((offer, until));
        }
    }

    /// A lease that the engine does not find, for less than its pool takes to settle.
    fn lose_sight_of_a_lease(&mut self) {
        if !self.strike(FaultKind::NotFound) {
            return;
        }
        let until = self.now + Span::seconds(self.random.spread(5, 100));
        let mut world = self.shared.world();
        let there: Vec<LeaseId> = world.machines.iter().filter(|(_, m)| m.ready).map(|(id, _)| *id).collect();
        if there.is_empty() {
            return;
        }
        let lease = self.random.pick(&there);
        if let Some(machine) = world.machines.get_mut(&lease) {
            machine.unfound_until = Some(until);
        }
        // Nothing that happens to it meanwhile is seen.
        world.delay += until - self.now;
    }

    fn commit(&mut self, commit: &Commit) {
        self.arm_store();
        if self.how.bug == Some(Bug::DispatchBeforeCommit) {
            self.dispatch_now(commit);
        }
        let Some(server) = &mut self.server else { return };
        let result = now(self.store.commit(server.cycle.epoch(), commit));
        if let Err(StoreError::Crashed) = result {
            return self.die();
        }
        if result.is_err() {
            if self.how.bug == Some(Bug::DispatchUncommitted) {
                self.dispatch_now(commit);
            }
            let mut world = self.shared.world();
            world.delay += Span::seconds(1);
            world.trouble_at = self.now;
        }
        if let Some(server) = &mut self.server {
            server.cycle.committed(moment(self.now), result);
        }
    }

    fn arm_store(&mut self) {
        let memory = &self.store.memory;
        if self.strike(FaultKind::StoreRefuses) {
            memory.fail_next_commits(self.random.between(1, 5) as u64);
        } else if self.strike(FaultKind::DiesBeforeCommit) {
            memory.crash_before_commit(0);
        } else if self.strike(FaultKind::DiesAfterCommit) {
            memory.crash_after_commit(0);
        } else if self.strike(FaultKind::UnsureWritten) {
            self.store.lose_sight(Unsure::Written);
        } else if self.strike(FaultKind::UnsureLost) {
            self.store.lose_sight(Unsure::Lost);
        } else if self.shared.world().calm {
            memory.clear_faults();
            self.store.lose_sight(Unsure::No);
        }
    }

    fn lead(&mut self, known: u64) {
        let answer: Result<(u64, Result<Loaded, StoreError>), StoreError> = if self.strike(FaultKind::LeadFails) {
            Err(StoreError::Refused)
        } else {
            now(self.store.lead()).map(|epoch| {
                let fails = self.strike(FaultKind::LoadFails);
                (epoch, if fails { Err(StoreError::Refused) } else { now(self.store.load_after(known)) })
            })
        };
        let away = answer.as_ref().map_or(true, |(_, loaded)| loaded.is_err());
        let mut world = self.shared.world();
        world.trouble_at = self.now;
        // The pause doubles; what it comes to is at most this.
        world.delay += Span::seconds(if away { 10 } else { 1 });
        drop(world);
        if let Some(server) = &mut self.server {
            server.cycle.led(moment(self.now), answer);
        }
    }

    fn call(&mut self, open: Open) {
        let now = self.now;
        let Some(server) = &mut self.server else { return };
        if server.dropped.contains(&open.id) {
            return;
        }
        let Some(task) = dispatch::task(server.cycle.brain(), &Folders, &open) else {
            let again = Performed { again: true, ..Performed::default() };
            return server.cycle.performed(moment(now), open.id, again);
        };
        let mut at = now;
        if self.shared.world().strike(FaultKind::CallDelayed) {
            let most = if self.scenario.gentle { 2_000 } else { 120_000 };
            let later = Span(self.random.spread(200, most));
            at = at + later;
            self.shared.world().delay += later;
        }
        server.flights.push(Flight { at, open, task });
    }

    /// Carries out what a commit decided, whatever became of the commit: planted bugs do so.
    fn dispatch_now(&mut self, commit: &Commit) {
        let Some(server) = &self.server else { return };
        let brain = server.cycle.brain().clone();
        for row in &commit.rows {
            let Ok(Body::Decision(decision, _)) = codec::decode(row.version, &row.payload) else { continue };
            let id = DecisionId { installation: brain.installation(), seq: row.seq };
            let open = Open { id, decision };
            if let Some(task) = dispatch::task(&brain, &Folders, &open) {
                self.check_committed(&open);
                self.perform(&task);
            }
        }
    }

    /// Law 2 at its root: a worker whose end the brain has booked does not run any more.
    pub(super) fn check_ends(&mut self) {
        let Some(server) = &self.server else { return };
        let brain = server.cycle.brain();
        let world = self.shared.world();
        let there = world.machines.iter().filter(|(_, machine)| machine.gone.is_none());
        let workers = there.flat_map(|(id, machine)| machine.workers.iter().map(move |worker| (id, worker)));
        let over = workers.filter(|(_, worker)| worker.running && worker.asked).find_map(|(id, worker)| {
            let job = brain.lease(*id).and_then(|_| brain.job(worker.stint.workload))?;
            let booked = job.stint.as_ref().is_none_or(|known| known.id != worker.stint);
            booked.then(|| format!("stint {} runs on {id}, and the brain has booked its end", worker.stint))
        });
        drop(world);
        if let Some(what) = over {
            self.fail(2, what);
        }
    }

    /// An old leader carries out what it had decided, and tries to go on. It must find out, and end itself.
    pub(super) fn run_old_leader(&mut self) {
        let Some((_, mut old)) = self.old_leader.take_if(|(at, _)| *at <= self.now) else { return };
        self.shared.world().trouble_at = self.now;
        while let Some(flight) = old.take_due(Time(i64::MAX)) {
            let performed = self.perform(&flight.task);
            old.cycle.performed(moment(self.now), flight.open.id, performed);
        }
        *self.reached.entry(10).or_default() += 1;
        old.cycle.turn();
        let mut fenced = false;
        for _ in 0..1_000 {
            match old.cycle.next(moment(self.now)) {
                Step::Rest { .. } if fenced => return self.fail(10, "a fenced leader goes on".to_owned()),
                Step::Rest { .. } | Step::End(_) => return,
                Step::Look { engine, number, groups, .. } => {
                    let look = self.seen(&engine, &groups, false);
                    old.cycle.saw(moment(self.now), &engine, number, look);
                }
                Step::Hear { all, .. } => {
                    let said = old.hear(&self.shared, all);
                    old.cycle.heard(moment(self.now), said);
                }
                Step::Commit(commit) => {
                    let result = now(self.store.commit(old.cycle.epoch(), &commit));
                    if result.is_ok() {
                        return self.fail(10, "a leader that was replaced has committed".to_owned());
                    }
                    fenced = matches!(result, Err(StoreError::Fenced { .. }));
                    old.cycle.committed(moment(self.now), result);
                }
                // As PostgreSQL answers while the new leader is connected.
                Step::Lead { .. } => {
                    let led = StoreError::Led { current: self.store.epoch() };
                    old.cycle.led(moment(self.now), Err(led));
                }
                Step::Call(_) if fenced => return self.fail(10, "a fenced leader calls engines".to_owned()),
                _ => {}
            }
        }
        self.fail(10, "a leader that was replaced does not come to rest".to_owned());
    }
}
