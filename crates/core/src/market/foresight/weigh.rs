//! What each choice is expected to cost, and the cheapest of them.

use super::super::policies::{self, hold_or_take, wait};
use super::super::sight::{Choice, Seen, Sight};
use super::belief::{Belief, within};
use super::plan::{Plan, Stand};
use crate::reason::Reason;
use crate::units::{NanoUsd, Span};

/// A plan is worth no more than this many on-demand ticks of it: below, on-demand wins.
const TIE: f64 = 1e-3;

/// The choice that is expected to cost least, among those that keep the deadline whatever the market does.
pub fn foresight(sight: &Sight) -> (Choice, Reason) {
    let (Some(plan), Some(firm), Some(outlook)) = (&sight.plan, sight.firm(), Outlook::of(sight)) else {
        return policies::levi_safe(sight);
    };
    let Some((spot, belief)) = candidate(sight) else {
        return policies::levi_safe(sight);
    };
    let weighed = outlook.weigh(sight, plan, spot, belief, firm.price);
    let money = |ticks: f64| NanoUsd((ticks * firm.price.for_span(plan.terms().tick).0 as f64) as i64);
    let say = |text: &str| {
        let reason = Reason::new("foresight", text).span("slack", outlook.idle);
        let reason = reason.money("on-demand", money(weighed.firm));
        let reason = weighed.spot.iter().fold(reason, |reason, cost| reason.money("spot", money(*cost)));
        weighed.wait.iter().fold(reason, |reason, cost| reason.money("waiting", money(*cost)))
    };
    let best = weighed.spot.unwrap_or(f64::INFINITY).min(weighed.wait.unwrap_or(f64::INFINITY));
    if weighed.firm <= best + TIE {
        return hold_or_take(sight, firm, say("on-demand is expected to cost least"));
    }
    match weighed.spot.filter(|cost| *cost <= best) {
        Some(_) => hold_or_take(sight, spot, say("spot is expected to cost least")),
        None => wait(sight, say("waiting for spot is expected to cost least")),
    }
}

/// The spot offer to weigh: what is held, else the cheapest that can be had, else the cheapest known.
fn candidate(sight: &Sight) -> Option<(&Seen, &Belief)> {
    let any = || sight.offers.iter().filter(|seen| seen.market.can_be_taken()).min_by_key(|seen| seen.price);
    let seen = sight.spot().or_else(any)?;
    Some((seen, seen.belief.as_ref()?))
}

/// Slack by what is held, with all that the world wants kept taken off.
struct Outlook {
    left: Span,
    need: Span,
    starting: Span,
    /// With nothing held.
    idle: Span,
    /// With what is held now.
    held: Span,
}

/// Expected costs to the end in on-demand ticks; none for what is not allowed.
struct Weighed {
    firm: f64,
    spot: Option<f64>,
    wait: Option<f64>,
}

impl Outlook {
    fn of(sight: &Sight) -> Option<Outlook> {
        let reserve = sight.least_slack_on_spot() - sight.restart;
        let (left, need) = (sight.left()? - reserve, sight.need?);
        let starting = if sight.present.is_some() { sight.starting() } else { Span::ZERO };
        let running = left - need - starting;
        let held = if sight.on_firm() { running } else { running - sight.restart };
        Some(Outlook { left, need, starting, idle: left - need - sight.restart, held })
    }

    fn weigh(&self, sight: &Sight, plan: &Plan, spot: &Seen, belief: &Belief, firm: NanoUsd) -> Weighed {
        let tick = plan.terms().tick;
        let step = Span(sight.margins.tick.0.clamp(tick.0 / 4, tick.0));
        let part = step.0 as f64 / tick.0 as f64;
        let ratio = spot.price.0 as f64 / firm.0.max(1) as f64;
        let expect = |slack: Span, stays: Stand, flips: Stand| self.expect(plan, belief, step, slack, [stays, flips]);
        let (idle, firmly, other_idle, other_firm) = match belief.up {
            true => (Stand::UpIdle, Stand::UpFirm, Stand::DownIdle, Stand::DownFirm),
            false => (Stand::DownIdle, Stand::DownFirm, Stand::UpIdle, Stand::UpFirm),
        };
        let holds_spot = sight.present.is_some() && !sight.on_firm();
        let ends = |starting: Span| self.need + starting <= step;
        let on_firm = {
            let starting = if sight.on_firm() { self.starting } else { sight.restart };
            let slack = if sight.on_firm() { self.held } else { self.idle };
            part + if ends(starting) { 0.0 } else { expect(slack, firmly, other_firm) }
        };
        let on_spot = sight.spot().map(|_| {
            let (starting, slack) =
                if holds_spot { (self.starting, self.held) } else { (sight.restart, self.idle - sight.restart) };
            match ends(starting) {
                true => Some(part * ratio),
                false if slack.0 < 0 => None,
                false => Some(part * ratio + expect(slack, Stand::UpSpot, Stand::DownIdle)),
            }
        });
        let after_wait = self.idle - step.max(sight.margins.tick);
        let wait = (after_wait.0 >= 0).then(|| expect(self.idle - step, idle, other_idle));
        Weighed { firm: on_firm, spot: on_spot.flatten(), wait }
    }

    /// Expected cost to the end after a step, over all that is believed about the market.
    fn expect(&self, plan: &Plan, belief: &Belief, step: Span, slack: Span, [stays, flips]: [Stand; 2]) -> f64 {
        let tick = plan.terms().tick;
        let ticks = |span: Span| span.0 as f32 / tick.0 as f32;
        let time = plan.find_time(ticks(self.left - step));
        let slack = plan.find_slack(ticks(slack));
        let part = step.0 as f64 / tick.0 as f64;
        let state = usize::from(belief.up);
        let older = belief.bucket_after(tick, step);
        let mut sum = 0.0;
        belief.each(tick, |class, bucket, weight| {
            let hazard = within(plan.model().classes[class].hazard[state][bucket], part);
            let stay = plan.value(class, stays, older.unwrap_or(bucket), time, slack);
            let flip = plan.value(class, flips, 0, time, slack);
            sum += weight * ((1.0 - hazard) * f64::from(stay) + hazard * f64::from(flip));
        });
        sum
    }
}
