//! The policies that need no model. Each reads like its rule; none knows about leases, engines or the log.

use super::sight::{Choice, Seen, Sight};
use crate::offer::Market;
use crate::reason::Reason;
use crate::units::{NanoUsd, Span, Time};

/// Never anything that the market can take away.
pub fn on_demand(sight: &Sight) -> (Choice, Reason) {
    match sight.firm() {
        Some(firm) if firm.market == Market::Owned => {
            hold_or_take(sight, firm, Reason::new("owned", "an owned machine has room"))
        }
        Some(firm) => hold_or_take(sight, firm, Reason::new("on-demand", "on-demand only")),
        None if sight.offers.iter().any(|seen| seen.market == Market::Owned) => {
            rest(sight, Reason::new("no-room", "what it asks for is in use on owned machines"))
        }
        None => rest(sight, Reason::new("no-on-demand", "no on-demand capacity can be had")),
    }
}

/// Spot when there is spot, else nothing, until the deadline allows no more than on-demand to the end.
pub fn greedy(sight: &Sight) -> (Choice, Reason) {
    if sight.on_firm() && sight.deadline.is_some() {
        return stay(Reason::new("greedy", "on-demand until the end"));
    }
    if let Some(last) = last_call(sight, "greedy") {
        return last;
    }
    match sight.spot() {
        Some(spot) => hold_or_take(sight, spot, Reason::new("greedy", "the cheapest spot that can be had")),
        None => no_spot(sight, "greedy"),
    }
}

/// Cuts the time to the deadline into slices, and is greedy in each: its share of the work is done at its end.
pub fn time_sliced(sight: &Sight) -> (Choice, Reason) {
    const SLICE: Span = Span::hours(4);
    let Some(line) = Line::of(sight) else { return greedy(sight) };
    let end = Span((line.elapsed.0.div_euclid(SLICE.0) + 1) * SLICE.0).min(line.all);
    let (left, lacking) = (end - line.elapsed, line.at(end) - line.done);
    let say = |text: &str| Reason::new("time-sliced", text).span("slice left", left).span("work left in it", lacking);
    if let Some(last) = last_call(sight, "time-sliced") {
        return last;
    }
    // Spot is kept until the market takes it, on-demand until the slice is done.
    let late = sight.present.is_none() && lacking + sight.restart + sight.restart > left;
    let chosen = match (sight.spot(), sight.firm()) {
        (_, Some(firm)) if lacking.0 > 0 && (late || sight.on_firm()) => {
            hold_or_take(sight, firm, say("on-demand until the slice is done"))
        }
        (Some(spot), _) => hold_or_take(sight, spot, say("spot can be had")),
        (None, _) => wait(say("no spot: waiting for it within the slice")),
    };
    for_a_tick(sight, chosen)
}

/// Keeps progress on the line from nothing at the start to everything at the deadline, and leaves on-demand
/// only when well ahead of it (Can't Be Late, NSDI'24).
pub fn uniform_progress(sight: &Sight) -> (Choice, Reason) {
    along_the_line(sight, sight.restart + sight.restart)
}

/// The same without hysteresis: back to spot whenever there is spot.
pub fn uniform_progress_no_hysteresis(sight: &Sight) -> (Choice, Reason) {
    along_the_line(sight, Span(i64::MIN / 4))
}

fn along_the_line(sight: &Sight, ahead_by: Span) -> (Choice, Reason) {
    let Some(line) = Line::of(sight) else { return greedy(sight) };
    if let Some(last) = last_call(sight, "uniform-progress") {
        return last;
    }
    let say =
        |text: &str| Reason::new("uniform-progress", text).span("done", line.done).span("line", line.at(line.elapsed));
    if sight.on_firm() {
        let ahead = line.done > line.at(line.elapsed + ahead_by);
        return match sight.spot().filter(|_| ahead) {
            Some(spot) => hold_or_take(sight, spot, say("ahead of the line, spot is back")),
            None => stay(say("on-demand until ahead of the line")),
        };
    }
    match (sight.spot(), sight.firm()) {
        (Some(spot), _) => hold_or_take(sight, spot, say("spot can be had")),
        (None, Some(firm)) if line.done < line.at(line.elapsed) => {
            hold_or_take(sight, firm, say("behind the line and no spot"))
        }
        (None, _) => wait_until(sight, line.behind_at(sight), say("ahead of the line: waiting for spot")),
    }
}

/// Waits for spot while a tenth of the work is left as slack, and goes back to spot whenever that is
/// safe (the waiting rule of LEVI, with a safety net that holds).
pub fn levi_safe(sight: &Sight) -> (Choice, Reason) {
    let (Some(slack), Some(need)) = (sight.slack(), sight.need) else {
        return greedy(sight);
    };
    if let Some(last) = last_call(sight, "levi-safe") {
        return last;
    }
    let cushion = levi_cushion(need, sight.margins.tick);
    let say = |text: &str| Reason::new("levi-safe", text).span("slack", slack).span("cushion", cushion);
    if let Some(spot) = sight.spot() {
        return hold_or_take(sight, spot, say("the cheapest spot that can be had"));
    }
    if sight.on_firm() {
        return stay(say("on-demand keeps the deadline"));
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

/// The slack with which waiting for spot ends: a tenth of the work, and two looks at the market. Forecasts play this rule.
pub(super) fn levi_cushion(need: Span, tick: Span) -> Span {
    tick + tick + need.scaled(10, 100)
}

/// Weighs the worth of progress against each zone's price over its expected lifetime (SkyNomad, NSDI'27).
pub fn skynomad(sight: &Sight) -> (Choice, Reason) {
    let (Some(line), Some(firm), Some(model)) = (Line::of(sight), sight.firm(), &sight.model) else {
        return greedy(sight);
    };
    if let Some(last) = last_call(sight, "skynomad") {
        return last;
    }
    let hours = |span: Span| span.0 as f64 / Span::hours(1).0 as f64;
    // Before there is progress to speak of, an hour on the line stands for it.
    let pace = hours(line.whole) / hours(line.all).max(1e-9);
    let so_far = (hours(line.done) + pace) / (hours(line.elapsed) + 1.0);
    let needed = hours(line.whole - line.done) / hours(line.all - line.elapsed).max(1e-9);
    let worth = firm.price.dollars() * needed / so_far;
    let utility = |seen: &Seen| {
        let held = sight.present.as_ref().is_some_and(|present| present.offer == seen.id);
        let lasts =
            seen.belief.as_ref().map_or(f64::INFINITY, |belief| model.lifetime_by_spells(belief) * hours(model.tick()));
        let delay = if held { Span::ZERO } else { sight.restart };
        let entry = if held { 0.0 } else { seen.entry.dollars() };
        let useful = if lasts.is_finite() { (lasts - hours(delay)).max(0.0) / lasts } else { 1.0 };
        worth * useful - seen.price.dollars() - entry / lasts
    };
    let say = |text: &str, utility: f64| {
        Reason::new("skynomad", text)
            .money("worth of an hour", NanoUsd::from_dollars(worth))
            .money("utility", NanoUsd::from_dollars(utility))
    };
    let best = sight.spots().chain([firm]).map(|seen| (utility(seen), seen));
    let best =
        best.fold((0.0, None), |best, (utility, seen)| if utility > best.0 { (utility, Some(seen)) } else { best });
    let held = sight.offers.iter().find(|seen| sight.present.as_ref().is_some_and(|present| present.offer == seen.id));
    const MARGIN: f64 = 0.05;
    let chosen = match (best, held) {
        ((most, _), Some(held)) if most <= utility(held).max(0.0) + MARGIN * firm.price.dollars() => {
            stay(say("nothing is better by enough to move", utility(held)))
        }
        ((most, Some(seen)), _) => {
            (Choice::Take(seen.id.clone()), say("worth the most for its price", most).money("price", seen.price))
        }
        ((_, None), _) => wait(say("progress is not worth any price now", 0.0)),
    };
    for_a_tick(sight, chosen)
}

/// The straight line from nothing at the start to everything at the deadline.
struct Line {
    elapsed: Span,
    all: Span,
    done: Span,
    whole: Span,
}

impl Line {
    fn of(sight: &Sight) -> Option<Line> {
        let (left, need, whole) = (sight.left()?, sight.need?, sight.whole?);
        let elapsed = sight.now - sight.began;
        Some(Line { elapsed, all: elapsed + left, done: whole - need, whole })
    }

    /// Where progress should be so long after the start.
    fn at(&self, after: Span) -> Span {
        after.scaled(self.whole.0, self.all.0)
    }

    /// When progress will be behind if none is made.
    fn behind_at(&self, sight: &Sight) -> Time {
        sight.began + self.done.scaled(self.all.0, self.whole.0) + Span::seconds(1)
    }
}

/// The net that these rules bring along themselves: two changeovers before the deadline, on-demand to the end.
/// Whoever would leave on-demand is asked as if nothing were held: for a moment nothing will be.
fn last_call(sight: &Sight, rule: &str) -> Option<(Choice, Reason)> {
    let (left, firm, least) = (sight.left()?, sight.firm()?, least_before_last_call(sight)?);
    (left < least).then(|| {
        let reason = Reason::new(rule, "two changeovers before the deadline: on-demand to the end");
        hold_or_take(sight, firm, reason.span("left", left).span("needed", least))
    })
}

fn least_before_last_call(sight: &Sight) -> Option<Span> {
    let on_spot = sight.present.is_some() && !sight.on_firm();
    let wait = if on_spot { Span::ZERO } else { sight.margins.tick };
    Some(sight.need? + sight.restart + sight.restart + wait)
}

/// When it will act for somebody who holds nothing.
pub(super) fn last_call_at(sight: &Sight) -> Option<Time> {
    let idle = sight.present.is_none() && sight.firm().is_some();
    let at = sight.now + (sight.left()? - least_before_last_call(sight)?) + Span(1);
    Some(at).filter(|at| idle && *at > sight.now)
}

fn hold_or_take(sight: &Sight, seen: &Seen, reason: Reason) -> (Choice, Reason) {
    match &sight.present {
        Some(present) if present.offer == seen.id => stay(reason),
        // Moving between spot offers for a lower price is not worth a changeover here.
        Some(present) if present.market == seen.market => stay(reason),
        _ => (Choice::Take(seen.id.clone()), reason.money("price", seen.price)),
    }
}

fn stay(reason: Reason) -> (Choice, Reason) {
    (Choice::Stay { until: None }, reason)
}

fn wait(reason: Reason) -> (Choice, Reason) {
    (Choice::Wait { until: None }, reason)
}

/// A choice that moves with the time alone is looked at again after a tick.
fn for_a_tick(sight: &Sight, (choice, reason): (Choice, Reason)) -> (Choice, Reason) {
    (choice.no_later_than(sight.now + sight.margins.tick), reason)
}

/// Keeps what is held, if anything is.
fn rest(sight: &Sight, reason: Reason) -> (Choice, Reason) {
    if sight.present.is_some() { stay(reason) } else { wait(reason) }
}

/// Waits for a moment; one that has passed is no moment to wait for, and would be asked for again and again.
fn wait_until(sight: &Sight, at: Time, reason: Reason) -> (Choice, Reason) {
    if sight.present.is_some() {
        return stay(reason);
    }
    (Choice::Wait { until: Some(at).filter(|at| *at > sight.now) }, reason)
}

fn no_spot(sight: &Sight, rule: &str) -> (Choice, Reason) {
    let known = sight.offers.iter().filter(|seen| seen.market.can_be_taken()).count() as u64;
    if known == 0 {
        // Nothing to wait for: this world sells no spot.
        return on_demand(sight);
    }
    let reason = Reason::new(rule, "no spot can be had: waiting for it").count("spot offers", known);
    // Without a deadline nothing is worth more than spot costs.
    if sight.on_firm() { wait(reason) } else { rest(sight, reason) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::market::foresight::Model;
    use crate::market::{Margins, Present};
    use crate::offer::{Market, OfferId};
    use crate::reason::Number;

    /// Ten hours of work in twenty, of which one hour is done after five: on-demand at three dollars, and this on spot.
    fn behind(spots: &[(&str, f64)]) -> Sight {
        let offer = |id: &str, market, price| Seen {
            id: OfferId::new(id),
            market,
            price: NanoUsd::from_dollars(price),
            entry: NanoUsd(0),
            available: true,
            refused_until: None,
            belief: None,
        };
        let spots = spots.iter().map(|(id, price)| offer(id, Market::Spot, *price));
        let offers = spots.chain([offer("firm", Market::OnDemand, 3.0)]).collect();
        let start = Sight::at_the_start(Span::hours(10), Span::hours(20), Span::minutes(6), Margins::default(), offers);
        let (now, need) = (Time(0) + Span::hours(5), Some(Span::hours(9)));
        Sight { now, need, model: Some(Model::embedded()), ..start }
    }

    #[test]
    fn skynomad_values_an_hour_by_what_is_needed_over_what_was_made() {
        let (choice, reason) = skynomad(&behind(&[("spot", 0.9)]));
        assert_eq!(choice, Choice::Take(OfferId::new("spot")));
        // 9 hours in 15 are needed; 1 hour in 5 was made, and one more hour counts as if on the line: 1.5 in 6.
        let Some((_, Number::Money(worth))) = reason.numbers.first() else { panic!("{reason:?}") };
        assert!((worth.dollars() - 3.0 * (9.0 / 15.0) / (1.5 / 6.0)).abs() < 1e-6, "{worth}");
    }

    #[test]
    fn skynomad_moves_only_for_a_twentieth_of_what_on_demand_costs() {
        let goes = |other: f64| {
            let present = Present { offer: OfferId::new("held"), market: Market::Spot, running: true, since: Time(0) };
            let sight = Sight { restart: Span::ZERO, ..behind(&[("held", 1.0), ("other", other)]) };
            skynomad(&Sight { present: Some(present), ..sight }).0 == Choice::Take(OfferId::new("other"))
        };
        assert!(!goes(1.1) && !goes(0.9), "ten cents are less than a twentieth of three dollars");
        assert!(goes(0.8));
    }
}
