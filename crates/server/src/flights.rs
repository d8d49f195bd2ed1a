//! Decisions on their way to engines: which to hand over now, and when to hand one over again. A decision counts as
//! done only when its effect is in the log, so until then it is repeated; engines do the same thing once.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use windfall_core::brain::{Open, OpenAbout};
use windfall_core::{Brain, DecisionId};

/// After a call without an answer the same is asked again, after twice as long each time.
const ASK_AGAIN: Duration = Duration::from_secs(1);
/// The longest pause after calls without an answer.
const ASK_AGAIN_MOST: Duration = Duration::from_secs(30);
/// A call was answered and its effect is not seen: repeated after this long, then after twice as long each time.
const REPEAT: Duration = Duration::from_secs(2);
/// The longest pause between two repeats.
const REPEAT_MOST: Duration = Duration::from_secs(60);

#[derive(Clone, Copy, Debug)]
enum Flight {
    OnItsWay(Count),
    Waits { until: Duration, count: Count },
}

/// How often it was answered without effect, and not answered since the last answer.
#[derive(Clone, Copy, Debug, Default)]
struct Count {
    answered: u32,
    missed: u32,
}

impl Count {
    fn after(self, again: bool) -> (Duration, Count) {
        let doubled = |first: Duration, times: u32, most: Duration| (first * (1 << times.min(6))).min(most);
        if again {
            let pause = doubled(ASK_AGAIN, self.missed, ASK_AGAIN_MOST);
            (pause, Count { missed: self.missed.saturating_add(1), ..self })
        } else {
            let pause = doubled(REPEAT, self.answered, REPEAT_MOST);
            (pause, Count { answered: self.answered.saturating_add(1), missed: 0 })
        }
    }
}

/// What is on its way. Times are real time since the server began.
#[derive(Debug, Default)]
pub(crate) struct Flights {
    flights: BTreeMap<DecisionId, (OpenAbout, Flight)>,
    /// Those that wait, by until when.
    waiting: BTreeSet<(Duration, DecisionId)>,
    /// What was decided since something was last handed over.
    fresh: Vec<(DecisionId, OpenAbout)>,
    /// The whole outbox has been looked at, and since then only what is fresh can be new in it.
    knows_outbox: bool,
}

impl Flights {
    /// These were decided, and are durable.
    pub fn decided(&mut self, decisions: impl IntoIterator<Item = (DecisionId, OpenAbout)>) {
        self.fresh.extend(decisions);
    }

    /// Of the outbox, what is to be handed over now.
    pub fn due(&mut self, brain: &Brain, now: Duration) -> Vec<Open> {
        let mut looked_at = std::mem::take(&mut self.fresh);
        if !std::mem::replace(&mut self.knows_outbox, true) {
            let about = |open: Open| Some((open.id, OpenAbout::of(open.id, &open.decision)?));
            looked_at = brain.outbox().into_iter().filter_map(about).collect();
        }
        while let Some((until, id)) = self.waiting.first().copied().filter(|(until, _)| *until <= now) {
            self.waiting.remove(&(until, id));
            looked_at.extend(self.flights.get(&id).map(|(about, _)| (id, *about)));
        }
        looked_at.sort_by_key(|(id, _)| *id);
        let open = looked_at.into_iter().filter_map(|(id, about)| self.take_off(brain, id, about, now)).collect();
        let is_known = |open: &Open| self.flights.contains_key(&open.id);
        debug_assert!(brain.outbox().iter().all(is_known), "what waits for its effect is never forgotten");
        open
    }

    /// Hands one over, if it still waits for its effect and is not on its way.
    fn take_off(&mut self, brain: &Brain, id: DecisionId, about: OpenAbout, now: Duration) -> Option<Open> {
        let count = match self.flights.get(&id) {
            None => Count::default(),
            Some((_, Flight::Waits { until, count })) if *until <= now => *count,
            Some(_) => return None,
        };
        let Some(open) = brain.open(id, about) else {
            self.flights.remove(&id);
            return None;
        };
        self.flights.insert(id, (about, Flight::OnItsWay(count)));
        Some(open)
    }

    /// Whether a call may still reach its engine.
    pub fn is_on_its_way(&self, id: DecisionId) -> bool {
        matches!(self.flights.get(&id), Some((_, Flight::OnItsWay(_))))
    }

    /// A call ended; `again` when nobody knows how.
    pub fn landed(&mut self, id: DecisionId, now: Duration, again: bool) {
        let Some((about, Flight::OnItsWay(count))) = self.flights.get(&id).copied() else { return };
        let (pause, count) = count.after(again);
        self.waiting.insert((now + pause, id));
        self.flights.insert(id, (about, Flight::Waits { until: now + pause, count }));
    }

    /// Hands over everything again that is not on its way at this moment: what its answers said was not kept.
    pub fn forget_answers(&mut self) {
        self.flights.retain(|_, (_, flight)| matches!(flight, Flight::OnItsWay(_)));
        self.waiting.clear();
        self.fresh.clear();
        self.knows_outbox = false;
    }

    /// When the next repeat is due.
    pub fn next(&self) -> Option<Duration> {
        self.waiting.first().map(|(until, _)| *until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_nobody_answered_is_asked_again_sooner_than_what_had_no_effect() {
        let pauses = |again: bool| {
            let mut count = Count::default();
            [(); 3].map(|()| {
                let (pause, next) = count.after(again);
                count = next;
                pause.as_secs()
            })
        };
        assert_eq!((pauses(true), pauses(false)), ([1, 2, 4], [2, 4, 8]));
        let id = DecisionId { installation: windfall_core::Installation(1), seq: 1 };
        for (again, seconds) in [(true, 1), (false, 2)] {
            let on_its_way = (OpenAbout::Group(id), Flight::OnItsWay(Count::default()));
            let mut flights = Flights { flights: [(id, on_its_way)].into(), ..Flights::default() };
            flights.landed(id, Duration::ZERO, again);
            assert_eq!(flights.next(), Some(Duration::from_secs(seconds)));
        }
    }
}
