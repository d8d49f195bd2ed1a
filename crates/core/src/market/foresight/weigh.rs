//! What each choice is expected to cost, and the cheapest of them. Several zones are one market for the
//! question of spot, on-demand or waiting; which zone is a question of price and of how long it will last.

use super::super::policies;
use super::super::sight::{Choice, Seen, Sight};
use super::model::Model;
use super::plan::{Plan, Stand};
use crate::reason::Reason;
use crate::units::{NanoUsd, Span};

/// Differences below this many on-demand ticks are noise of the grid: there on-demand wins.
const TIE: f64 = 1e-3;
/// Work that could be done now is put off only for a gain of so many on-demand ticks: nobody minds an early end.
const PUT_OFF: f64 = 0.05;
/// For a saving below this no job waits, however large a share it is.
const WORTH_WAITING_AT_LEAST: NanoUsd = NanoUsd(10_000_000);
/// Work is short that takes at most so many of the plan's ticks,
const SHORT: i64 = 4;
/// and could be begun anew so many times until its deadline.
const TRIES: i64 = 8;
/// A move between zones must be better by this share of what changeovers are expected to cost there: that is an
/// estimate, while the price is known.
const MOVE_MARGIN: f64 = 1.0;
/// Changeovers that come to nothing, as a share of all: a machine that does not come up, a checkpoint that is slow.
const CHANGEOVER_FAILS: f64 = 0.01;
/// Largest power by which weights are tilted, either way: beyond it one class would be all that is left.
const MOST_TILT: f64 = 4.0;
/// Zones fail together more often than by chance: in the long run they count as this many independent ones.
const ALONE: f64 = 0.4;

/// The choice that is expected to cost least, among those that keep the deadline whatever the market does.
pub fn foresight(sight: &Sight) -> (Choice, Reason) {
    let situation =
        sight.plan.as_ref().zip(sight.model.as_ref()).and_then(|(plan, model)| Situation::of(sight, plan, model));
    let (Some(situation), Some(firm)) = (situation, sight.firm()) else {
        return without_a_plan(sight);
    };
    let weighed = situation.weigh();
    let money = |ticks: f64| NanoUsd((ticks * firm.price.for_span(situation.plan.terms().tick).0 as f64) as i64);
    let say = |text: &str| {
        let reason =
            Reason::new("foresight", text).span("slack", situation.idle).money("on-demand", money(weighed.firm));
        let spot = weighed.spot.map(|(_, cost)| cost);
        let reason = spot.iter().fold(reason, |reason, cost| reason.money("spot", money(*cost)));
        weighed.wait.iter().fold(reason, |reason, cost| reason.money("waiting", money(*cost)))
    };
    let until = Some(sight.now + situation.step);
    let hold = |seen: &Seen, reason: Reason| match &sight.present {
        Some(present) if present.offer == seen.id => (Choice::Stay { until }, reason),
        _ => (Choice::Take(seen.id.clone()), reason.money("price", seen.price)),
    };
    let spot = weighed.spot.map_or(f64::INFINITY, |(_, cost)| cost);
    // A job on on-demand gives that up to wait only if the wait saves enough.
    let given_up = if sight.on_firm() { situation.worth_waiting(weighed.firm) } else { 0.0 };
    let wait = weighed.wait.map_or(f64::INFINITY, |wait| wait + given_up);
    match weighed.spot {
        _ if weighed.firm <= spot.min(wait) + situation.least_gain() => {
            hold(firm, say("on-demand is expected to cost least"))
        }
        Some((zone, _)) if spot - wait <= situation.worth_waiting(spot) => {
            hold(zone, say("spot is expected to cost least"))
        }
        _ => (Choice::Wait { until }, say("waiting for spot is expected to cost least")),
    }
}

/// The choice until a plan is solved. What runs stays where it is while a plan is being solved: right after a restart
/// of the server nothing is known that would justify a move.
fn without_a_plan(sight: &Sight) -> (Choice, Reason) {
    let runs = sight.present.as_ref().is_some_and(|present| present.running);
    let (choice, reason) = policies::levi_safe(sight);
    match choice.goal() {
        Some(_) if runs && sight.plan_is_coming => {
            let text = "what runs stays until its plan is solved";
            (Choice::Stay { until: Some(sight.now + sight.margins.tick) }, Reason::new("foresight", text))
        }
        // What a plan would have to be about moves with prices that wake nobody, and there may be one for that.
        _ if sight.plan_terms().is_some() => (choice.no_later_than(sight.now + sight.margins.tick), reason),
        _ => (choice, reason),
    }
}

/// What a job's choice depends on now. The margins that the world asks for are already taken off its time.
struct Situation<'a> {
    sight: &'a Sight,
    plan: &'a Plan,
    model: &'a Model,
    up: bool,
    believed: Vec<Believed>,
    left: Span,
    need: Span,
    starting: Span,
    /// Slack with nothing held.
    idle: Span,
    /// Slack with what is held now.
    held: Span,
    /// Until the next look.
    step: Span,
}

/// A class and an age that the market may be of, and what follows within a step.
struct Believed {
    class: usize,
    /// The bucket after the step, if the spell goes on.
    bucket: usize,
    goes_on: f64,
    ends: f64,
}

/// Expected costs to the end in on-demand ticks; none for what is not allowed.
struct Weighed<'a> {
    firm: f64,
    spot: Option<(&'a Seen, f64)>,
    wait: Option<f64>,
}

/// The chance that the state of all zones taken as one ends within a part of a tick, from what is believed of
/// each: several zones are down together far more rarely than one, and never for as long.
fn ends_by_zones(sight: &Sight, plan: &Plan, part: f64) -> f64 {
    let (mut all_down, mut any_up) = (1.0, false);
    for belief in sight.offers.iter().filter_map(|seen| seen.belief.as_ref()) {
        let mut ends = 0.0;
        belief.each(plan.terms().tick, |class, bucket, weight| {
            ends += weight * plan.model().classes[class].within(usize::from(belief.up), bucket, part);
        });
        all_down *= if belief.up { ends } else { 1.0 - ends };
        any_up |= belief.up;
    }
    if any_up { all_down } else { 1.0 - all_down }
}

/// The share of time in which any zone has capacity, from what is believed of each.
fn availability(sight: &Sight, plan: &Plan) -> f64 {
    let mut none = 1.0;
    for belief in sight.offers.iter().filter_map(|seen| seen.belief.as_ref()) {
        let mut some = 0.0;
        belief.each(plan.terms().tick, |class, _, weight| some += weight * plan.model().classes[class].availability);
        none *= 1.0 - some;
    }
    1.0 - libm::pow(none, ALONE)
}

/// A class, a bucket of age, and how much they are believed in.
type Weight = (usize, usize, f64);

/// Moves weight between classes as little as is needed (in relative entropy) for them to have capacity as often as all
/// zones together: what follows the next step is then read from markets that are as good.
fn tilt(seen: &mut [Weight], plan: &Plan, wanted: f64) {
    let share = |class: usize| plan.model().classes[class].availability;
    let total: f64 = seen.iter().map(|(_, _, weight)| weight).sum();
    let log_odds: Vec<f64> = seen.iter().map(|(class, ..)| libm::log(share(*class) / (1.0 - share(*class)))).collect();
    let tilted = |power: f64| -> (f64, f64) {
        seen.iter().zip(&log_odds).fold((0.0, 0.0), |(all, some), ((class, _, weight), odds)| {
            let weight = weight * libm::exp(power * odds);
            (all + weight, some + weight * share(*class))
        })
    };
    let (mut low, mut high) = (-MOST_TILT, MOST_TILT);
    for _ in 0..16 {
        let power = 0.5 * (low + high);
        let (all, some) = tilted(power);
        *(if some < wanted * all { &mut low } else { &mut high }) = power;
    }
    let power = 0.5 * (low + high);
    let (all, _) = tilted(power);
    for ((_, _, weight), odds) in seen.iter_mut().zip(&log_odds) {
        *weight *= libm::exp(power * odds) * total / all;
    }
}

impl<'a> Situation<'a> {
    fn of(sight: &'a Sight, plan: &'a Plan, model: &'a Model) -> Option<Situation<'a>> {
        let single = || sight.offers.iter().find_map(|seen| seen.belief.as_deref());
        let belief = sight.anywhere.as_deref().or_else(single)?;
        let reserve = sight.least_slack_on_spot() - sight.restart;
        let (left, need) = (sight.left()? - reserve, sight.need?);
        let starting = if sight.present.is_some() { sight.starting() } else { Span::ZERO };
        let running = left - need - starting;
        let held = if sight.on_firm() { running } else { running - sight.restart };
        let tick = plan.terms().tick;
        let step = Span(sight.margins.tick.0.clamp(tick.0 / 4, tick.0));
        let part = step.0 as f64 / tick.0 as f64;
        let older = belief.bucket_after(tick, step);
        let by_zones = sight.anywhere.as_ref().map(|_| ends_by_zones(sight, plan, part));
        let mut seen: Vec<Weight> = Vec::new();
        belief.each(tick, |class, bucket, weight| seen.push((class, bucket, weight)));
        if by_zones.is_some() {
            tilt(&mut seen, plan, availability(sight, plan));
        }
        let believed = seen.into_iter().map(|(class, bucket, weight)| {
            let own = || plan.model().classes[class].within(usize::from(belief.up), bucket, part);
            let (ends, bucket) = (by_zones.unwrap_or_else(own), older.unwrap_or(bucket));
            Believed { class, bucket, goes_on: weight * (1.0 - ends), ends: weight * ends }
        });
        let believed = believed.collect();
        Some(Situation {
            sight,
            plan,
            model,
            // Capacity that others hold or that is too dear counts as none.
            up: belief.up && sight.spots().next().is_some(),
            believed,
            left,
            need,
            starting,
            idle: left - need - sight.restart,
            held,
            step,
        })
    }

    fn ticks(&self, span: Span) -> f64 {
        span.0 as f64 / self.plan.terms().tick.0 as f64
    }

    /// By how many on-demand ticks something must be cheaper than on-demand. Whoever runs on that already pays for a
    /// move with what is not saved, and with the risk of every changeover.
    fn least_gain(&self) -> f64 {
        if !self.sight.on_firm() || self.sight.starting().0 > 0 {
            return TIE;
        }
        let lost = if self.sight.saves_when_told { Span::ZERO } else { self.sight.at_risk };
        TIE + self.ticks(lost) + CHANGEOVER_FAILS * self.ticks(self.sight.restart)
    }

    /// The saving in on-demand ticks for which work is put off that could be done now at a cost of `spot`: time has a value.
    fn worth_waiting(&self, spot: f64) -> f64 {
        if self.sight.worth_waiting_permille == 0 {
            return PUT_OFF;
        }
        let hour = (Span::hours(1).0 as f64 / self.need.0.max(1) as f64).min(1.0);
        let share = spot * hour * f64::from(self.sight.worth_waiting_permille) / 1_000.0;
        PUT_OFF.max(share).max(WORTH_WAITING_AT_LEAST.0 as f64 / self.firm_tick())
    }

    fn weigh(&self) -> Weighed<'a> {
        let (idle, firmly, other_idle, other_firm) = match self.up {
            true => (Stand::UpIdle, Stand::UpFirm, Stand::DownIdle, Stand::DownFirm),
            false => (Stand::DownIdle, Stand::DownFirm, Stand::UpIdle, Stand::UpFirm),
        };
        let (starting, slack) = match self.sight.on_firm() {
            true => (self.starting, self.held),
            false => (self.sight.restart, self.idle),
        };
        let firm = match self.is_plain(starting) {
            true => self.ticks(self.need + starting),
            false => self.ticks(self.step) + self.expect(slack, firmly, other_firm),
        };
        let may_wait = self.idle >= self.step.max(self.sight.margins.tick);
        Weighed {
            firm,
            spot: self.zone().and_then(|zone| Some((zone, self.on_spot(zone)?))),
            wait: may_wait.then(|| self.expect(self.idle - self.step, idle, other_idle).max(self.least())),
        }
    }

    /// The least that the rest can cost whenever it is begun: a start and the work, at the lowest price there is.
    fn least(&self) -> f64 {
        let lowest = self.sight.offers.iter().map(|seen| self.price(seen)).fold(f64::INFINITY, f64::min);
        self.ticks(self.need + self.sight.restart) * lowest.min(1.0)
    }

    /// What all that is left costs is plain, and no plan is asked, where it ends before the next look, or is a few of the plan's
    /// ticks with time for many tries: for that the plan is too coarse.
    fn is_plain(&self, starting: Span) -> bool {
        let (all, once) = (self.need + starting, self.need + self.sight.restart);
        let short = self.plan.terms().tick.scaled(SHORT, 1);
        all <= self.step || (all <= short && self.idle >= once.scaled(TRIES, 1))
    }

    /// The chance that what is up does not last for so long.
    fn lost_within(&self, span: Span) -> f64 {
        let ends: f64 = self.believed.iter().map(|believed| believed.ends).sum();
        1.0 - libm::pow((1.0 - ends).max(0.0), span.0 as f64 / self.step.0.max(1) as f64)
    }

    fn holds(&self, zone: &Seen) -> bool {
        self.sight.present.as_ref().is_some_and(|present| present.offer == zone.id)
    }

    /// Expected cost on spot in a zone; none where slack does not allow it.
    fn on_spot(&self, zone: &Seen) -> Option<f64> {
        let holds = self.holds(zone);
        let (starting, slack) =
            if holds { (self.starting, self.held) } else { (self.sight.restart, self.idle - self.sight.restart) };
        let entry = if holds { 0.0 } else { zone.entry.0 as f64 / self.firm_tick() };
        if self.is_plain(starting) {
            // A loss costs another start; what was saved is not done again.
            let all = self.need + starting;
            let paid = self.ticks(all) + self.lost_within(all) * self.ticks(self.sight.restart);
            return Some(paid * self.price(zone) + entry);
        }
        let now = self.ticks(self.step) * self.price(zone) + entry;
        (slack.0 >= 0).then(|| now + self.expect(slack, Stand::UpSpot, Stand::DownIdle))
    }

    /// Nano-dollars of an on-demand tick.
    fn firm_tick(&self) -> f64 {
        let firm = self.sight.firm().map_or(NanoUsd(1), |firm| firm.price);
        firm.for_span(self.plan.terms().tick).0.max(1) as f64
    }

    /// The zone to be in: its price, and what it costs to get there spread over how long it will last.
    fn zone(&self) -> Option<&'a Seen> {
        let zones: Vec<&'a Seen> = self.sight.spots().collect();
        if zones.len() < 2 {
            return zones.first().copied();
        }
        let start = self.start_cost();
        let zones: Vec<(f64, &'a Seen)> = zones.into_iter().map(|zone| (self.index(zone, start), zone)).collect();
        let &(least, best) = zones.iter().min_by(|(a, _), (b, _)| a.total_cmp(b))?;
        // What is held stays unless the other is clearly better, and a changeover may still be lost.
        let keep = |(index, _): &&(f64, &Seen)| {
            let near = *index <= least + MOVE_MARGIN * (least - self.price(best));
            near || self.idle < self.sight.restart + self.sight.restart
        };
        let held = zones.iter().find(|(_, zone)| self.holds(zone)).filter(keep);
        Some(held.map_or(best, |(_, zone)| zone))
    }

    /// What a changeover costs beyond its price: the slack that it uses up, in on-demand ticks.
    fn start_cost(&self) -> f64 {
        let value = |slack: Span| self.expect(slack.max(Span::ZERO), Stand::UpSpot, Stand::DownIdle);
        (value(self.idle - self.sight.restart) - value(self.idle)).max(0.0)
    }

    /// Price of a tick, in on-demand ticks.
    fn price(&self, zone: &Seen) -> f64 {
        zone.price.0 as f64 / self.sight.firm().map_or(1.0, |firm| firm.price.0.max(1) as f64)
    }

    /// The same with every changeover that the zone is expected to bring.
    fn index(&self, zone: &Seen, start: f64) -> f64 {
        let lasts = zone.belief.as_ref().map_or(1.0, |belief| self.model.lifetime(belief));
        let scale = self.model.tick().0 as f64 / self.plan.terms().tick.0 as f64;
        let ticks = (lasts * scale).min(self.need.0 as f64 / self.plan.terms().tick.0 as f64).max(1.0);
        let price = self.price(zone);
        let begins = self.sight.restart.0 as f64 / self.plan.terms().tick.0 as f64 * price + start;
        // A loss costs a changeover wherever the job goes then; getting there costs one, and the way, once more.
        let moves = if self.holds(zone) { 0.0 } else { begins + zone.entry.0 as f64 / self.firm_tick() };
        price + (begins + moves) / ticks
    }

    /// Expected cost to the end after a step, over all that is believed about the market.
    fn expect(&self, slack: Span, stays: Stand, flips: Stand) -> f64 {
        let (plan, tick) = (self.plan, self.plan.terms().tick);
        let ticks = |span: Span| span.0 as f32 / tick.0 as f32;
        let place = plan.find(ticks(self.left - self.step), ticks(slack));
        let value = |class, stand, bucket| f64::from(plan.value(class, stand, bucket, &place));
        let cost = |believed: &Believed| {
            let Believed { class, bucket, goes_on, ends } = *believed;
            goes_on * value(class, stays, bucket) + ends * value(class, flips, 0)
        };
        self.believed.iter().map(cost).sum()
    }
}
