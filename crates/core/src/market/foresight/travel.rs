//! One job on its way through one course of a market, from change to change.

use super::outlook::{Course, Journey, Passage};
use crate::market::policies::levi_cushion;
use crate::units::Span;

/// Moves of one world that are played. A job that is not done by then goes on as it went: after thousands of changes
/// of the market more of them tell nothing new.
const MOST_MOVES: usize = 4_000;

/// Less work than this, in milliseconds, is none.
const DONE: f64 = 0.5;

/// Where a job stands.
#[derive(Clone, Copy, PartialEq)]
enum Place {
    Nowhere,
    Spot,
    Firm,
}

/// What was paid for and what happened up to a moment. Times are milliseconds.
#[derive(Clone, Copy, Default)]
struct Count {
    now: f64,
    /// What is left to do.
    work: f64,
    spot: f64,
    firm: f64,
    starting: f64,
    undone: f64,
    interruptions: f64,
}

impl Count {
    /// The same course for so many times as long again as up to now.
    fn go_on(&mut self, times: f64) {
        for figure in [
            &mut self.now,
            &mut self.spot,
            &mut self.firm,
            &mut self.starting,
            &mut self.undone,
            &mut self.interruptions,
        ] {
            *figure *= 1.0 + times;
        }
    }
}

/// Plays one job through one course of the market.
pub(super) fn travel(journey: &Journey, tick: f64, market: &mut Course<'_>) -> Passage {
    let need = journey.need.0 as f64;
    let mut count = Count { work: need, ..Count::default() };
    play(journey, tick, market, &mut count);
    if count.work >= DONE {
        carry_on(journey, &mut count);
    }
    let finished = count.work < DONE;
    let late = !finished || journey.left.is_some_and(|left| count.now > left.0 as f64 + 1.0);
    let span = |ms: f64| Span(ms as i64);
    Passage {
        spot: span(count.spot),
        firm: span(count.firm),
        starting: span(count.starting),
        undone: span(count.undone),
        elapsed: span(count.now),
        interruptions: count.interruptions as u32,
        finished,
        late,
    }
}

/// What is kept before a deadline while nothing is held.
fn cushion(journey: &Journey, work: f64) -> f64 {
    levi_cushion(Span(work as i64), journey.tick).0 as f64
}

/// Time to the deadline beyond what the work needs from there.
fn slack(journey: &Journey, count: &Count, place: Place) -> f64 {
    let start = if place == Place::Nowhere { journey.restart.0 as f64 } else { 0.0 };
    journey.left.map_or(f64::INFINITY, |left| left.0 as f64 - count.now - count.work - start)
}

/// From change to change, until the work is done or enough was seen.
fn play(journey: &Journey, tick: f64, market: &mut Course<'_>, count: &mut Count) {
    let restart = journey.restart.0 as f64;
    let (mut place, mut fresh) = (Place::Nowhere, 0.0f64);
    let (mut up, rest) = market.begin();
    let mut spell = rest;
    let mut changes = rest * tick;
    // What a loss costs: what it undoes, and the start after it.
    let loss = restart + (journey.undone + journey.tick).0 as f64;
    let mut firm_from = 0.0f64;
    for _ in 0..MOST_MOVES {
        if count.work < DONE {
            break;
        }
        while changes <= count.now {
            up = !up;
            spell = market.next(up, spell);
            changes += spell * tick;
            if !up && place == Place::Spot {
                place = Place::Nowhere;
                count.interruptions += 1.0;
                let lost = fresh.min(journey.undone.0 as f64);
                count.undone += lost;
                count.work += lost;
            }
        }
        let have = slack(journey, count, place);
        let wants_spot = match place {
            Place::Firm => have > loss + restart,
            _ => have > loss,
        };
        let target = match place {
            _ if up && (wants_spot || !journey.has_firm) => Place::Spot,
            Place::Firm => Place::Firm,
            _ if journey.has_firm && have <= cushion(journey, count.work) => Place::Firm,
            _ => Place::Nowhere,
        };
        let asks_for_firm = target == Place::Firm && place != Place::Firm;
        if asks_for_firm && count.now >= firm_from {
            firm_from = count.now + market.refusal_ms(journey.refused);
        }
        let refused = asks_for_firm && count.now < firm_from;
        // What is held is not given back for what cannot be had.
        let target = if refused { place } else { target };
        let entering = target != Place::Nowhere && target != place;
        let start = if entering { restart } else { 0.0 };
        fresh = if entering { 0.0 } else { fresh };
        place = target;
        let done = count.now + start + count.work;
        let until = match place {
            Place::Nowhere if refused => changes.min(firm_from),
            Place::Nowhere if journey.has_firm => {
                changes.min(count.now + (have - cushion(journey, count.work)).max(1.0))
            }
            Place::Nowhere => changes,
            // Slack does not grow on a market that stays: it is never left again.
            Place::Firm if slack(journey, count, place) - start <= loss + restart => done,
            Place::Spot | Place::Firm => changes.min(done),
        };
        let held = if place == Place::Nowhere { 0.0 } else { until - count.now };
        let progress = (held - start).max(0.0);
        count.work -= progress;
        fresh += progress;
        count.starting += held.min(start);
        *(if place == Place::Spot { &mut count.spot } else { &mut count.firm }) += held;
        count.now = until;
    }
}

/// A job that is not done after thousands of changes goes on as it went, on spot for as long as its slack allows and
/// then on what stays. One that made no progress never ends.
fn carry_on(journey: &Journey, count: &mut Count) {
    let speed = (journey.need.0 as f64 - count.work) / count.now;
    if speed <= 0.0 {
        return;
    }
    let to_the_end = count.work / speed;
    let spare = (slack(journey, count, Place::Nowhere) - cushion(journey, count.work)).max(0.0);
    let longest = if journey.has_firm && speed < 1.0 { spare / (1.0 - speed) } else { f64::INFINITY };
    let more = to_the_end.min(longest);
    count.work -= more * speed;
    count.go_on(more / count.now);
    if count.work >= DONE && journey.has_firm {
        let restart = journey.restart.0 as f64;
        count.firm += restart + count.work;
        count.starting += restart;
        count.now += restart + count.work;
        count.work = 0.0;
    }
}
