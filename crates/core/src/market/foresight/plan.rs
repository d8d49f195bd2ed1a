//! The plan: for every time left, slack, state and age of the market and thing held, the least expected cost
//! to the end, by backward induction. Slack only ever falls, a lease that nothing takes away keeps it, and no
//! step may take it below zero: so whoever follows the plan is never late.

use super::grid::{Corners, Keep, KeptGrid, Shift, SlackGrid};
use super::model::{BUCKETS, Model, width};
use crate::units::{NanoUsd, Span};
use serde::{Deserialize, Serialize};

/// What is held when a value is asked for, with the state of the market.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stand {
    DownIdle = 0,
    DownFirm = 1,
    UpIdle = 2,
    UpSpot = 3,
    UpFirm = 4,
}

const STANDS: usize = 5;
/// What a forbidden step costs.
const FORBIDDEN: f32 = 1e9;

/// All jobs with the same terms share a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct PlanTerms {
    pub tick: Span,
    /// Changeover.
    pub restart: Span,
    /// The spot price in thousandths of the on-demand price.
    pub spot_permille: u32,
    /// Ticks to the deadline at most.
    pub ticks: u32,
    /// Ticks of slack at most.
    pub slack_ticks: u32,
}

impl PlanTerms {
    /// Longest plan: beyond it a tick is made longer.
    const MOST_TICKS: i64 = 640;
    /// Shortest plan: below it a tick is made shorter.
    const FEWEST_TICKS: i64 = 64;
    /// A plan's tick, few so that jobs share plans; the longest where a plan may be long: what markets were recorded at.
    const TICKS: [Span; 4] = [Span::seconds(60), Span::seconds(120), Span::seconds(300), Span::seconds(600)];

    /// The plan for a job, on a scale that many jobs share. `look` is how often its world is looked at.
    pub fn of(look: Span, restart: Span, [spot, firm]: [NanoUsd; 2], time: Span, slack: Span) -> PlanTerms {
        let wanted = time.0 / Self::FEWEST_TICKS;
        let wanted = Self::TICKS.into_iter().rev().find(|tick| tick.0 <= wanted).unwrap_or(Self::TICKS[0]).0;
        let look = look.0.max(1);
        // A whole number of looks, so that a tick of the plan ends when the world is looked at.
        let tick = ((wanted + look / 2) / look).max(1) * look;
        let tick = Span(tick * (time.0.max(0) / (tick * Self::MOST_TICKS) + 1));
        let ticks = |span: Span, step: u32| {
            u32::try_from(span.0.max(0) / tick.0 + 1).unwrap_or(u32::MAX).div_ceil(step).saturating_mul(step)
        };
        let permille = i128::from(spot.0) * 1_000 / i128::from(firm.0.max(1));
        PlanTerms {
            tick,
            restart,
            spot_permille: u32::try_from(permille.clamp(1, 1_000)).unwrap_or(1_000),
            ticks: ticks(time, 32),
            slack_ticks: ticks(slack, 8),
        }
    }

    /// Whether a plan on these terms may be followed by a job on `other`.
    pub fn suits(&self, other: &PlanTerms) -> bool {
        let off = (self.restart - other.restart).0.abs();
        let near = off <= (self.restart.0 / 10).max(15_000);
        near && self.tick == other.tick && self.ticks >= other.ticks && self.slack_ticks >= other.slack_ticks
    }

    /// Whether two jobs differ in their length and their slack only.
    pub fn like(&self, other: &PlanTerms) -> bool {
        (self.tick, self.restart, self.spot_permille) == (other.tick, other.restart, other.spot_permille)
    }

    /// Terms that serve both.
    pub fn wider(&self, other: &PlanTerms) -> PlanTerms {
        let (ticks, slack_ticks) = (self.ticks.max(other.ticks), self.slack_ticks.max(other.slack_ticks));
        PlanTerms { ticks, slack_ticks, ..*self }
    }

    /// Whether nothing is to be gained from another plan. How far off a price may be is a share of the job's own, so
    /// that of two plans the nearer one serves whenever the other does.
    pub fn serves(&self, other: &PlanTerms) -> bool {
        self.suits(other) && self.spot_permille.abs_diff(other.spot_permille) * 20 <= other.spot_permille.max(20)
    }
}

/// A solved plan.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    terms: PlanTerms,
    model: Model,
    kept: KeptGrid,
    /// Values by kept point, class, stand and bucket, in on-demand ticks.
    values: Vec<f32>,
}

/// A plan that is being solved, in slices as small as wanted.
#[derive(Clone, Debug)]
pub struct Solving {
    plan: Plan,
    time: u32,
    slacks: SlackGrid,
    /// Values of one tick less, by class, stand, bucket and slack.
    layer: Vec<f32>,
    shifts: Shifts,
}

/// What each change costs in slack.
#[derive(Clone, Debug)]
struct Shifts {
    /// From nothing to spot.
    start: Shift,
    /// From on-demand to spot.
    swap: Shift,
    /// A tick with nothing held.
    wait: Shift,
    /// From on-demand to nothing.
    leave: Shift,
}

impl Plan {
    /// Solves at once.
    pub fn solve(model: &Model, terms: PlanTerms) -> Plan {
        let mut solving = Solving::new(model, terms);
        while !solving.solve_some(u32::MAX) {}
        solving.finish()
    }

    /// What it is for.
    pub fn terms(&self) -> &PlanTerms {
        &self.terms
    }

    /// The model that it rests on.
    pub fn model(&self) -> &Model {
        &self.model
    }

    /// Bytes that it takes.
    pub fn bytes(&self) -> usize {
        self.values.len() * std::mem::size_of::<f32>()
    }

    /// Where a time left and a slack lie, in ticks.
    pub(super) fn find(&self, time: f32, slack: f32) -> Corners {
        self.kept.around(time.clamp(0.0, self.terms.ticks as f32), slack)
    }

    /// The least expected cost to the end in a class, in on-demand ticks.
    pub(super) fn value(&self, class: usize, stand: Stand, bucket: usize, place: &Corners) -> f32 {
        let row = (class * STANDS + stand as usize) * BUCKETS + bucket;
        let size = self.model.classes.len() * STANDS * BUCKETS;
        place.iter().map(|(point, weight)| weight * self.values[point * size + row]).sum()
    }
}

impl Solving {
    /// Begins.
    pub fn new(model: &Model, terms: PlanTerms) -> Solving {
        Solving::keeping(model, terms, Keep::USUAL)
    }

    pub(super) fn keeping(model: &Model, terms: PlanTerms, keep: Keep) -> Solving {
        let model = model.with_tick(terms.tick);
        let slacks = SlackGrid::solved(terms.slack_ticks as f32);
        let d = terms.restart.0 as f32 / terms.tick.0 as f32;
        let kept = KeptGrid::of(&slacks, keep, terms.ticks, d);
        let rows = model.classes.len() * STANDS * BUCKETS;
        let (layer, values) = (vec![0.0; rows * slacks.points.len()], vec![0.0; rows * kept.len()]);
        let shifts = Shifts {
            start: slacks.shifted(d),
            swap: slacks.shifted(2.0 * d),
            wait: slacks.shifted(1.0),
            leave: slacks.shifted(1.0 + d),
        };
        Solving { plan: Plan { terms, model, kept, values }, time: 0, slacks, layer, shifts }
    }

    /// What it will be for.
    pub fn terms(&self) -> &PlanTerms {
        &self.plan.terms
    }

    /// Goes on for about so many values; true when done.
    pub fn solve_some(&mut self, values: u32) -> bool {
        let mut left = u64::from(values);
        while self.time < self.plan.kept.last && left > 0 {
            self.time += 1;
            self.one_tick_more();
            self.keep();
            left = left.saturating_sub(self.layer.len() as u64);
        }
        self.time >= self.plan.kept.last
    }

    /// Keeps what is to be kept of the layer. That of no time left is zero throughout: nothing is left to do.
    fn keep(&mut self) {
        let width = self.slacks.points.len();
        let rows = self.layer.len() / width;
        for (point, slack) in self.plan.kept.at_time(self.time) {
            let values = &mut self.plan.values[point * rows..(point + 1) * rows];
            for (value, row) in values.iter_mut().zip(self.layer.chunks(width)) {
                *value = row[slack];
            }
        }
    }

    /// Bytes that the plan takes, and what solving it needs meanwhile.
    pub fn bytes(&self) -> usize {
        self.plan.bytes() + self.layer.len() * std::mem::size_of::<f32>()
    }

    /// The plan, once it is done.
    pub fn finish(self) -> Plan {
        debug_assert!(self.time >= self.plan.kept.last);
        self.plan
    }

    /// From the layer of a time left to that of one tick more.
    fn one_tick_more(&mut self) {
        let width = self.slacks.points.len();
        let size = STANDS * BUCKETS * width;
        let model = &self.plan.model;
        // A market may change its class: what lies ahead is mostly its own, and a little the average of all.
        let mut mean = vec![0.0_f32; size];
        for (class, layer) in model.classes.iter().zip(self.layer.chunks(size)) {
            let prior = class.prior as f32;
            for (mean, value) in mean.iter_mut().zip(layer) {
                *mean += prior * value;
            }
        }
        let mixing = model.mixing as f32;
        let mut ahead = vec![0.0_f32; size];
        for (number, class) in model.classes.iter().enumerate() {
            let layer = &mut self.layer[number * size..(number + 1) * size];
            for ((ahead, value), mean) in ahead.iter_mut().zip(layer.iter()).zip(&mean) {
                *ahead = *value + mixing * (mean - value);
            }
            let step = Step {
                ahead: &ahead,
                hazard: &class.hazard,
                slacks: &self.slacks,
                shifts: &self.shifts,
                time: self.time as f32,
                restart: self.plan.terms.restart.0 as f32 / self.plan.terms.tick.0 as f32,
                spot: self.plan.terms.spot_permille as f32 / 1_000.0,
            };
            step.fill(layer);
        }
    }
}

/// One tick of one class.
struct Step<'a> {
    ahead: &'a [f32],
    hazard: &'a [[f64; BUCKETS]; 2],
    slacks: &'a SlackGrid,
    shifts: &'a Shifts,
    time: f32,
    restart: f32,
    spot: f32,
}

impl Step<'_> {
    fn row(&self, stand: Stand, bucket: usize) -> &[f32] {
        let width = self.slacks.points.len();
        let from = (stand as usize * BUCKETS + bucket) * width;
        &self.ahead[from..from + width]
    }

    /// Expected cost of a tick that leaves the job standing at `stays`, or at `flips` when the spell ends.
    fn expect(&self, state: usize, bucket: usize, [stays, flips]: [Stand; 2], paid: f32, into: &mut [f32]) {
        let hazard = self.hazard[state][bucket] as f32;
        let ages = width(bucket).map_or(0.0, |width| 1.0 / width as f32);
        let (same, older, flip) = ((1.0 - hazard) * (1.0 - ages), (1.0 - hazard) * ages, hazard);
        let rows = self.row(stays, bucket).iter().zip(self.row(stays, (bucket + 1).min(BUCKETS - 1)));
        for ((into, (young, old)), other) in into.iter_mut().zip(rows).zip(self.row(flips, 0)) {
            *into = paid + same * young + older * old + flip * other;
        }
    }

    fn fill(&self, layer: &mut [f32]) {
        let width = self.slacks.points.len();
        // Points at which work is left: with nothing held, and with a firm lease. One more is read between them.
        let open = |until: f32| self.slacks.points.partition_point(|slack| *slack < until - 1e-4);
        let (with_idle, with_firm) = (open(self.time - self.restart), open(self.time));
        let count = (with_firm + 1).min(width);
        let mut rows: [Vec<f32>; 6] = std::array::from_fn(|_| vec![0.0; width]);
        let [firm, idle, spot, begun, wait, other] = &mut rows;
        for state in 0..2 {
            let (stand_idle, stand_firm, other_idle, other_firm) = match state {
                0 => (Stand::DownIdle, Stand::DownFirm, Stand::UpIdle, Stand::UpFirm),
                _ => (Stand::UpIdle, Stand::UpFirm, Stand::DownIdle, Stand::DownFirm),
            };
            for bucket in 0..BUCKETS {
                let mut put = |stand: Stand, work_left: usize, costs: [&[f32]; 3]| {
                    let from = (stand as usize * BUCKETS + bucket) * width;
                    let [a, b, c] = costs;
                    let least = a.iter().zip(b).zip(c).map(|((a, b), c)| a.min(*b).min(*c));
                    for (value, least) in layer[from..from + work_left.min(width)].iter_mut().zip(least) {
                        *value = least;
                    }
                };
                self.expect(state, bucket, [stand_firm, other_firm], 1.0, &mut firm[..count]);
                self.expect(state, bucket, [stand_idle, other_idle], 0.0, &mut idle[..count]);
                self.shifts.wait.read(idle, FORBIDDEN, &mut wait[..count]);
                if state == 0 {
                    put(stand_idle, with_idle, [firm, wait, wait]);
                    self.shifts.leave.read(idle, FORBIDDEN, &mut other[..count]);
                    put(stand_firm, with_firm, [firm, other, other]);
                    continue;
                }
                self.expect(1, bucket, [Stand::UpSpot, Stand::DownIdle], self.spot, &mut spot[..count]);
                put(Stand::UpSpot, with_idle, [firm, wait, spot]);
                self.begin(bucket, spot, &mut begun[..count]);
                self.shifts.start.read(begun, FORBIDDEN, &mut other[..count]);
                put(stand_idle, with_idle, [firm, wait, other]);
                self.shifts.swap.read(begun, FORBIDDEN, &mut other[..count]);
                self.shifts.leave.read(idle, FORBIDDEN, &mut wait[..count]);
                put(stand_firm, with_firm, [firm, wait, other]);
            }
        }
    }

    /// Cost of a tick that begins on spot, at the slack after its changeover. A lease lost before it runs has
    /// not used all of the changeover: what was charged for the rest comes back as slack.
    fn begin(&self, bucket: usize, spot: &[f32], begun: &mut [f32]) {
        let hazard = self.hazard[1][bucket] as f32;
        let lost = self.row(Stand::DownIdle, 0);
        for (slack, begun) in begun.iter_mut().enumerate() {
            *begun = spot[slack];
            if self.restart > 1.0 {
                let (low, part) = self.slacks.find(self.slacks.points[slack] + self.restart - 1.0);
                let given_back = lost[low] + part * (lost[low + 1] - lost[low]) - lost[slack];
                *begun += hazard * given_back.min(0.0);
            }
        }
    }
}
