//! Decisions on their way to engines: which to hand over now, and when to hand one over again. A decision counts as
//! done only when its effect is in the log, so until then it is repeated; engines do the same thing once.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use windfall_core::DecisionId;
use windfall_core::brain::Open;

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
pub(crate) struct Flights(BTreeMap<DecisionId, Flight>);

impl Flights {
    /// Of the outbox, what is to be handed over now.
    pub fn due(&mut self, outbox: Vec<Open>, now: Duration) -> Vec<Open> {
        let open: BTreeSet<DecisionId> = outbox.iter().map(|open| open.id).collect();
        self.0.retain(|id, flight| matches!(flight, Flight::OnItsWay(_)) || open.contains(id));
        let mut due = Vec::new();
        for open in outbox {
            let count = match self.0.get(&open.id) {
                None => Count::default(),
                Some(Flight::Waits { until, count }) if *until <= now => *count,
                Some(_) => continue,
            };
            self.0.insert(open.id, Flight::OnItsWay(count));
            due.push(open);
        }
        due
    }

    /// Whether a call may still reach its engine.
    pub fn is_on_its_way(&self, id: DecisionId) -> bool {
        matches!(self.0.get(&id), Some(Flight::OnItsWay(_)))
    }

    /// A call ended; `again` when nobody knows how.
    pub fn landed(&mut self, id: DecisionId, now: Duration, again: bool) {
        let Some(Flight::OnItsWay(count)) = self.0.get(&id).copied() else { return };
        let (pause, count) = count.after(again);
        self.0.insert(id, Flight::Waits { until: now + pause, count });
    }

    /// Hands over everything again that is not on its way at this moment: what its answers said was not kept.
    pub fn forget_answers(&mut self) {
        self.0.retain(|_, flight| matches!(flight, Flight::OnItsWay(_)));
    }

    /// When the next repeat is due.
    pub fn next(&self) -> Option<Duration> {
        let waiting = self.0.values().filter_map(|flight| match flight {
            Flight::Waits { until, .. } => Some(*until),
            Flight::OnItsWay(_) => None,
        });
        waiting.min()
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
            let mut flights = Flights([(id, Flight::OnItsWay(Count::default()))].into());
            flights.landed(id, Duration::ZERO, again);
            assert_eq!(flights.next(), Some(Duration::from_secs(seconds)));
        }
    }
}
