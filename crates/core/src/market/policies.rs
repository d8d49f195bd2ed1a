//! The policies. Each reads like its rule; none knows about leases, engines or the log.

use super::sight::{Choice, Seen, Sight};
use crate::reason::Reason;
use crate::units::{Span, Time};

/// Never anything that the market can take away.
pub fn on_demand(sight: &Sight) -> (Choice, Reason) {
    match sight.firm() {
        Some(firm) => hold_or_take(sight, firm, Reason::new("on-demand", "on-demand only")),
        None => wait(sight, Reason::new("no-on-demand", "no on-demand capacity can be had")),
    }
}

/// Spot when there is spot, else nothing, until the safety net acts.
pub fn greedy(sight: &Sight) -> (Choice, Reason) {
    if sight.on_firm() {
        return stay(sight, Reason::new("greedy", "on-demand until the end"));
    }
    match sight.spot() {
        Some(spot) => hold_or_take(sight, spot, Reason::new("greedy", "the cheapest spot that can be had")),
        None => no_spot(sight, "greedy"),
    }
}

/// Keeps progress on the line from nothing at the start to everything at the deadline (Can't Be Late, NSDI'24).
pub fn uniform_progress(sight: &Sight) -> (Choice, Reason) {
    let (Some(left), Some(need), Some(whole)) = (sight.left(), sight.need, sight.whole) else {
        return greedy(sight);
    };
    let elapsed = sight.now - sight.began;
    let all = elapsed + left;
    let done = whole - need;
    let line = |at: Span| Span((i128::from(at.0) * i128::from(whole.0) / i128::from(all.0.max(1))) as i64);
    let say = |text: &str| Reason::new("uniform-progress", text).span("done", done).span("line", line(elapsed));
    if sight.on_firm() {
        let ahead = done > line(elapsed + sight.restart + sight.restart);
        return match sight.spot().filter(|_| ahead) {
            Some(spot) => hold_or_take(sight, spot, say("ahead of the line, spot is back")),
            None => stay(sight, say("on-demand until ahead of the line")),
        };
    }
    match (sight.spot(), sight.firm()) {
        (Some(spot), _) => hold_or_take(sight, spot, say("spot can be had")),
        (None, Some(firm)) if done < line(elapsed) => hold_or_take(sight, firm, say("behind the line and no spot")),
        (None, _) => {
            let behind_at =
                Span((i128::from(done.0) * i128::from(all.0) / i128::from(whole.0.max(1))) as i64) + Span(1_000);
            wait_until(sight, sight.began + behind_at, say("ahead of the line: waiting for spot"))
        }
    }
}

/// Waits for spot while a tenth of the work is left as slack, and goes back to spot whenever that is
/// safe (the waiting rule of LEVI, with a safety net that holds).
pub fn levi_safe(sight: &Sight) -> (Choice, Reason) {
    let (Some(slack), Some(need)) = (sight.slack(), sight.need) else {
        return greedy(sight);
    };
    let cushion = sight.restart + sight.margin + sight.margin + need.scaled(10, 100);
    let say = |text: &str| Reason::new("levi-safe", text).span("slack", slack).span("cushion", cushion);
    if sight.on_firm() {
        let safe = slack > cushion + sight.at_risk + sight.restart;
        return match sight.spot().filter(|_| safe) {
            Some(spot) => hold_or_take(sight, spot, say("spot is back and there is slack for it")),
            None => stay(sight, say("on-demand keeps the deadline")),
        };
    }
    if let Some(spot) = sight.spot() {
        return hold_or_take(sight, spot, say("the cheapest spot that can be had"));
    }
    match sight.firm() {
        Some(firm) if slack <= cushion => {
            hold_or_take(sight, firm, say("no spot, and too little slack to wait for it"))
        }
        _ => {
            let until = sight.now + (slack - cushion);
            wait_until(sight, until, say("no spot: waiting for it while there is slack"))
        }
    }
}

fn hold_or_take(sight: &Sight, seen: &Seen, reason: Reason) -> (Choice, Reason) {
    match &sight.present {
        Some(present) if present.offer == seen.id => stay(sight, reason),
        // Moving between spot offers for a lower price is not worth a changeover here.
        Some(present) if present.market == seen.market => stay(sight, reason),
        _ => (Choice::Take(seen.id.clone()), reason.money("price", seen.price)),
    }
}

fn stay(sight: &Sight, reason: Reason) -> (Choice, Reason) {
    (Choice::Stay { until: sight.retry_at() }, reason)
}

fn wait(sight: &Sight, reason: Reason) -> (Choice, Reason) {
    (Choice::Wait { until: sight.retry_at() }, reason)
}

/// Waits for a moment; one that has passed is no moment to wait for, and would be asked for again and again.
fn wait_until(sight: &Sight, at: Time, reason: Reason) -> (Choice, Reason) {
    (Choice::Wait { until: Some(at).filter(|at| *at > sight.now).or(sight.retry_at()) }, reason)
}

fn no_spot(sight: &Sight, rule: &str) -> (Choice, Reason) {
    let known = sight.offers.iter().filter(|seen| seen.market.can_be_taken()).count() as u64;
    if known == 0 {
        // Nothing to wait for: this world sells no spot.
        return on_demand(sight);
    }
    wait(sight, Reason::new(rule, "no spot can be had: waiting for it").count("spot offers", known))
}
