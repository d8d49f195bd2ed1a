//! What reaches the server: results of calls, observations, orphans and what people ask.

use super::*;

impl Life {
    /// Everything that reaches the server at this moment.
    pub(super) fn gather(&mut self) -> Vec<Event> {
        let mut events = Vec::new();
        if let Some(server) = &mut self.server {
            let mut waiting = Vec::new();
            for (at, batch) in server.inbox.drain(..) {
                if at <= self.now { events.extend(batch) } else { waiting.push((at, batch)) }
            }
            server.inbox = waiting;
        }
        self.fly(&mut events);
        if self.server.is_none() {
            return events;
        }
        self.sweep(&mut events);
        self.observe(&mut events);
        self.hear_people(&mut events);
        if events.len() > 1 && self.strike(Kind::EventsShuffled) {
            shuffle(&mut events, &mut self.random);
        }
        events
    }

    /// Carries out the calls that are due.
    fn fly(&mut self, events: &mut Vec<Event>) {
        let now = self.now;
        // Calls that fail are made again later, so this ends.
        while let Some((open, task)) = self.server.as_mut().and_then(|server| server.take_due(now)) {
            if self.strike(Kind::DiesBetween) {
                if let Some(server) = &mut self.server {
                    server.flights.push(Flight { at: now, open });
                }
                self.die();
                return;
            }
            let Some(task) = task else { continue };
            self.check_committed(&open);
            let performed = self.perform(&task);
            events.extend(performed.events);
            if performed.again
                && let Some(server) = &mut self.server
                && server.cycle.brain().is_open(open.id)
            {
                server.flights.push(Flight { at: now + RETRY, open });
            }
        }
    }

    fn sweep(&mut self, events: &mut Vec<Event>) {
        if self.now < self.next_sweep || self.how.bug == Some(Bug::NoSweep) {
            self.next_sweep = self.next_sweep.max(self.now + Span(1));
            if self.how.bug == Some(Bug::NoSweep) {
                self.next_sweep = self.now + SWEEP;
            }
            return;
        }
        self.next_sweep = self.now + SWEEP;
        let Some(server) = &self.server else { return };
        let orphans = dispatch::orphans(server.cycle.brain(), &now(self.shared.list_owned()).unwrap_or_default());
        self.orphans += orphans.len() as u64;
        for orphan in &orphans {
            self.shared.world().say(|| format!("{orphan:?}"));
        }
        if self.how.bug == Some(Bug::OrphanUnbooked) {
            for orphan in orphans {
                if let Event::LeaseFound { lease, .. } = orphan {
                    self.perform(&Task::Release(lease));
                }
            }
            return;
        }
        events.extend(orphans);
    }

    fn observe(&mut self, events: &mut Vec<Event>) {
        let dirty = self.shared.world().dirty_since.is_some();
        if !dirty && self.now < self.next_poll {
            return;
        }
        self.shared.world().dirty_since = None;
        let calm = self.shared.world().calm;
        self.next_poll = self.now + if calm { Span::minutes(15) } else { self.scenario.poll };
        if self.how.bug == Some(Bug::TimersLost) {
            self.next_poll = self.now + Span::hours(3);
        }
        let soon = Span::seconds(if self.scenario.gentle { 1 } else { 20 });
        let Some(server) = &mut self.server else { return };
        let seen = server.observe(&self.shared, self.now);
        let dropped = seen.is_none() || self.shared.world().strike(Kind::ObservationDropped);
        let Some(seen) = seen.filter(|_| !dropped) else {
            self.next_poll = self.now + soon;
            self.shared.world().delay += soon;
            return;
        };
        let stale = self.shared.world().strike(Kind::ObservationStale);
        if stale || self.shared.world().strike(Kind::ObservationTwice) {
            let most = if self.scenario.gentle { 2_000 } else { 600_000 };
            let later = Span(self.random.spread(100, most));
            server.inbox.push((self.now + later, seen.clone()));
            if stale {
                self.shared.world().delay += later;
                self.next_poll = self.next_poll.min(self.now + later);
                return;
            }
        }
        events.extend(seen);
    }

    /// Submissions and cancels that are due.
    fn hear_people(&mut self, events: &mut Vec<Event>) {
        let Some(server) = &self.server else { return };
        let due: Vec<usize> =
            self.to_submit.iter().copied().filter(|job| self.scenario.jobs[*job].submit_at <= self.now).collect();
        for job in due {
            let spec = self.scenario.jobs[job].spec.clone();
            if self.strike(Kind::BadInput) {
                let bad = spoiled(&spec, &mut self.random);
                *self.reached.entry(9).or_default() += 1;
                if bad.check().is_err() && self.how.bug != Some(Bug::BadInputAccepted) {
                    self.refused_inputs += 1;
                } else {
                    let key = format!("bad-{job}-{}", self.turns);
                    events.push(Event::Submitted { workload: Box::new(Workload::Job(bad)), key });
                }
            }
            let event = Event::Submitted { workload: Box::new(Workload::Job(spec)), key: format!("key-{job}") };
            if self.strike(Kind::SubmittedTwice) {
                events.push(event.clone());
            }
            let delay = self.shared.world().delay;
            self.delay_before.entry(job).or_insert(delay);
            if self.how.bug == Some(Bug::JobForgotten) {
                self.accepted.insert(job);
                self.to_submit.retain(|known| *known != job);
            } else {
                events.push(event);
            }
        }
        let brain = server.cycle.brain();
        for job in self.to_cancel.clone() {
            let Some(workload) = brain.submitted_as(&format!("key-{job}")) else { continue };
            if self.scenario.jobs[job].cancel_at.is_some_and(|at| at <= self.now) {
                self.shared.world().jobs[job].cancel_sent = true;
                events.push(Event::CancelRequested { workload, by: "somebody".to_owned() });
            }
        }
        let paused = brain
            .jobs()
            .filter(|job| job.paused && job.ended.is_none())
            .map(|job| (job.id, brain.spent(job, self.now)));
        let paused: BTreeMap<WorkloadId, NanoUsd> = paused.collect();
        self.raises.retain(|job, _| paused.contains_key(job));
        for (workload, spent) in paused {
            let later = Span::seconds(self.random.spread(1, 20_000));
            if *self.raises.entry(workload).or_insert(self.now + later) <= self.now {
                let more = NanoUsd(self.random.between(1_000_000, 20_000_000_000));
                let budget = self.random.permille(700).then_some(spent + more);
                events.push(Event::BudgetSet { workload, budget, by: "somebody".to_owned() });
            }
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
