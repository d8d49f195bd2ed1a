//! One job on its way through one course of a market, from change to change.

use super::drawn_market::DrawnMarket;
use super::forecast_terms::ForecastTerms;
use crate::market::policies::levi_cushion;
use crate::units::Span;

/// Moves of one world that are played. A job that is not done by then goes on as it went: after thousands of changes
/// of the market more of them tell nothing new.
const MOST_MOVES: usize = 4_000;

/// Less work than this, in milliseconds, is none.
const DONE: f64 = 0.5;

/// What happened in one world.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct WorldOutcome {
    /// Time paid for on spot.
    pub spot: Span,
    /// Time paid for on a market that cannot be taken away.
    pub firm: Span,
    /// Part of both that was spent in changeovers.
    pub starting: Span,
    /// Part of both that did work which an interruption undid.
    pub undone: Span,
    /// From the beginning to the end.
    pub elapsed: Span,
    /// Leases that the market took.
    pub interruptions: u32,
    /// It ended. A market whose spells are shorter than a start never brings a job to its end.
    pub finished: bool,
    /// It ended after its deadline, or not at all.
    pub late: bool,
}

/// What a job holds.
#[derive(Clone, Copy, PartialEq)]
enum HeldMarket {
    Nothing,
    Spot,
    Firm,
}

/// What was paid for and what happened up to a moment. Times are milliseconds.
#[derive(Clone, Copy, Default)]
struct PlayedSoFar {
    now: f64,
    /// What is left to do.
    work: f64,
    spot: f64,
    firm: f64,
    starting: f64,
    undone: f64,
    interruptions: f64,
}

impl PlayedSoFar {
    /// Goes on in the same way for `times` as long as it took until now.
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
pub(super) fn play_in_world(terms: &ForecastTerms, tick: f64, market: &mut DrawnMarket<'_>) -> WorldOutcome {
    let need = terms.need.0 as f64;
    let mut so_far = PlayedSoFar { work: need, ..PlayedSoFar::default() };
    play(terms, tick, market, &mut so_far);
    if so_far.work >= DONE {
        carry_on(terms, &mut so_far);
    }
    let finished = so_far.work < DONE;
    let late = !finished || terms.left.is_some_and(|left| so_far.now > left.0 as f64 + 1.0);
    let span = |ms: f64| Span(ms as i64);
    WorldOutcome {
        spot: span(so_far.spot),
        firm: span(so_far.firm),
        starting: span(so_far.starting),
        undone: span(so_far.undone),
        elapsed: span(so_far.now),
        interruptions: so_far.interruptions as u32,
        finished,
        late,
    }
}

/// Time kept in reserve before a deadline while nothing is held.
fn cushion(terms: &ForecastTerms, work: f64) -> f64 {
    levi_cushion(Span(work as i64), terms.tick).0 as f64
}

/// Time to the deadline beyond what the work needs from there.
fn slack(terms: &ForecastTerms, so_far: &PlayedSoFar, held: HeldMarket) -> f64 {
    let start = if held == HeldMarket::Nothing { terms.restart.0 as f64 } else { 0.0 };
    terms.left.map_or(f64::INFINITY, |left| left.0 as f64 - so_far.now - so_far.work - start)
}

/// From change to change, until the work is done or enough was seen.
fn play(terms: &ForecastTerms, tick: f64, market: &mut DrawnMarket<'_>, so_far: &mut PlayedSoFar) {
    let restart = terms.restart.0 as f64;
    let (mut held, mut fresh) = (HeldMarket::Nothing, 0.0f64);
    let (mut up, rest) = market.begin();
    let mut spell = rest;
    let mut changes = rest * tick;
    // What a loss costs: what it undoes, and the start after it.
    let loss = restart + (terms.undone + terms.tick).0 as f64;
    let mut firm_from = 0.0f64;
    for _ in 0..MOST_MOVES {
        if so_far.work < DONE {
            break;
        }
        while changes <= so_far.now {
            up = !up;
            spell = market.next(up, spell);
            changes += spell * tick;
            if !up && held == HeldMarket::Spot {
                held = HeldMarket::Nothing;
                so_far.interruptions += 1.0;
                let lost = fresh.min(terms.undone.0 as f64);
                so_far.undone += lost;
                so_far.work += lost;
            }
        }
        let have = slack(terms, so_far, held);
        let wants_spot = match held {
            HeldMarket::Firm => have > loss + restart,
            _ => have > loss,
        };
        let target = match held {
            _ if up && (wants_spot || !terms.has_firm) => HeldMarket::Spot,
            HeldMarket::Firm => HeldMarket::Firm,
            _ if terms.has_firm && have <= cushion(terms, so_far.work) => HeldMarket::Firm,
            _ => HeldMarket::Nothing,
        };
        let asks_for_firm = target == HeldMarket::Firm && held != HeldMarket::Firm;
        if asks_for_firm && so_far.now >= firm_from {
            firm_from = so_far.now + market.refusal_ms(terms.refused);
        }
        let refused = asks_for_firm && so_far.now < firm_from;
        // A lease is not given back for capacity that is refused.
        let target = if refused { held } else { target };
        let entering = target != HeldMarket::Nothing && target != held;
        let start = if entering { restart } else { 0.0 };
        fresh = if entering { 0.0 } else { fresh };
        held = target;
        let done = so_far.now + start + so_far.work;
        let until = match held {
            HeldMarket::Nothing if refused => changes.min(firm_from),
            HeldMarket::Nothing if terms.has_firm => {
                changes.min(so_far.now + (have - cushion(terms, so_far.work)).max(1.0))
            }
            HeldMarket::Nothing => changes,
            // Slack does not grow on a market that stays: it is never left again.
            HeldMarket::Firm if slack(terms, so_far, held) - start <= loss + restart => done,
            HeldMarket::Spot | HeldMarket::Firm => changes.min(done),
        };
        let paid = if held == HeldMarket::Nothing { 0.0 } else { until - so_far.now };
        let progress = (paid - start).max(0.0);
        so_far.work -= progress;
        fresh += progress;
        so_far.starting += paid.min(start);
        *(if held == HeldMarket::Spot { &mut so_far.spot } else { &mut so_far.firm }) += paid;
        so_far.now = until;
    }
}

/// A job that is not done after thousands of changes goes on as it went, on spot for as long as its slack allows and
/// then on what stays. One that made no progress never ends.
fn carry_on(terms: &ForecastTerms, so_far: &mut PlayedSoFar) {
    let speed = (terms.need.0 as f64 - so_far.work) / so_far.now;
    if speed <= 0.0 {
        return;
    }
    let to_the_end = so_far.work / speed;
    let spare = (slack(terms, so_far, HeldMarket::Nothing) - cushion(terms, so_far.work)).max(0.0);
    let longest = if terms.has_firm && speed < 1.0 { spare / (1.0 - speed) } else { f64::INFINITY };
    let more = to_the_end.min(longest);
    so_far.work -= more * speed;
    so_far.go_on(more / so_far.now);
    if so_far.work >= DONE && terms.has_firm {
        let restart = terms.restart.0 as f64;
        so_far.firm += restart + so_far.work;
        so_far.starting += restart;
        so_far.now += restart + so_far.work;
        so_far.work = 0.0;
    }
}
