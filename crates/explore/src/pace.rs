//! Law 13: time goes on. Nothing that is due is slept through, and nobody turns in circles. Law 20: nobody is overlooked.

use crate::driver::WorldRun;
use crate::server::moment;
use windfall_core::Span;

/// A server that is asleep for so long after a moment that the brain waits for has forgotten it.
const OVERSLEPT: Span = Span::seconds(2);
/// So many turns within ten seconds are a busy loop.
const BUSY: u64 = 400;
/// So many rounds of asking within a minute are no search any more.
const FLAPPING: usize = 12;

impl WorldRun {
    /// A server that wakes up all the time does nothing else.
    pub fn check_pace(&mut self) {
        let (since, turns) = self.pace;
        self.pace = if self.now - since > Span::seconds(10) { (self.now, 0) } else { (since, turns + 1) };
        *self.reached.entry(13).or_default() += 1;
        if turns > BUSY * self.scale {
            self.fail(13, format!("the server woke up {turns} times within ten seconds"));
        }
        let just_jumped = self.shared.world().trouble_at == self.now;
        let Some(server) = self.server.as_ref().filter(|server| server.cycle.leads() && !just_jumped) else { return };
        let due = server.cycle.brain().next_wakeup().filter(|due| self.now - *due > OVERSLEPT);
        if let Some(due) = due {
            self.fail(13, format!("the server slept for {} after the brain wanted to be asked", self.now - due));
        }
    }

    /// Law 20, once the brain has nothing to say and nobody's moment has come.
    pub fn check_overlooked(&mut self) {
        let Some(server) = self.server.as_ref().filter(|server| server.cycle.leads()) else { return };
        let brain = server.cycle.brain();
        if brain.next_wakeup().is_some_and(|at| at <= self.now.max(brain.now())) {
            return;
        }
        let overlooked = brain.overlooked(self.now, &server.cycle.unseen(moment(self.now)));
        match overlooked.first() {
            None => *self.reached.entry(20).or_default() += 1,
            Some(decided) => {
                let what = format!("{:?} is not decided, for {}", decided.decision, decided.reason.text);
                self.fail(20, what);
            }
        }
    }

    /// Asking for leases does not go round in circles.
    pub fn check_asking(&mut self) {
        // A server with a planted bug may well do so; it is to be caught by the law that it breaks first.
        if self.how.bug.is_some() {
            return;
        }
        let since = self.now - Span::minutes(1);
        let mut asks = self.audit.asks.iter();
        let flapping = asks.find(|(_, asked)| asked.iter().rev().take_while(|at| **at > since).count() > FLAPPING);
        if let Some((id, _)) = flapping {
            let what = format!("job {id} asked for leases more than {FLAPPING} times within a minute");
            self.fail(13, what);
        }
    }
}
