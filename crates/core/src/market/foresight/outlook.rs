//! What a job will need on a market, before it runs. Worlds are drawn from the model of markets and the job is
//! played through each by the rule of `levi-safe` and its net; what was paid for, how long it took and how often
//! it was interrupted are counted. Every candidate lives through the same worlds, so that they can be compared.

use super::model::{BUCKET_STARTS, BUCKETS, Class, Hazard, Model, survival, width};
use super::travel::travel;
use crate::units::Span;

/// Worlds that are drawn: enough for a tenth and a nine-tenths quantile, few enough to plan in a blink.
pub const WORLDS: usize = 120;
/// A job on one kind of machine.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Journey {
    /// Running time that the work needs, saving included.
    pub need: Span,
    /// Time to the deadline.
    pub left: Option<Span>,
    /// Changeover: from asking for a lease to progress.
    pub restart: Span,
    /// Work that an interruption is expected to undo.
    pub undone: Span,
    /// How often the market is looked at; also kept before a deadline.
    pub tick: Span,
    /// How much more likely than in the recorded markets a spell with capacity is to end at any moment.
    pub flakiness: f64,
    /// Whether there is a market to fall back to that cannot be taken away.
    pub has_firm: bool,
}

/// What happened in one world.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Passage {
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

/// What is to be expected.
#[derive(Clone, Debug, PartialEq)]
pub struct Outlook {
    /// One for each world.
    pub passages: Vec<Passage>,
}

/// A mean with the span in which eight of ten outcomes lie.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Expected {
    /// The mean.
    pub mean: f64,
    /// One in ten is below.
    pub low: f64,
    /// One in ten is above.
    pub high: f64,
}

impl Outlook {
    /// A job that never leaves a market that cannot be taken away.
    pub fn firm(journey: &Journey) -> Outlook {
        let elapsed = journey.need + journey.restart;
        let late = journey.left.is_some_and(|left| left < elapsed);
        let passage =
            Passage { firm: elapsed, starting: journey.restart, elapsed, finished: true, late, ..Passage::default() };
        Outlook { passages: vec![passage] }
    }

    /// The distribution of any figure.
    pub fn expect(&self, figure: impl Fn(&Passage) -> f64) -> Expected {
        let mut all: Vec<f64> = self.passages.iter().map(figure).collect();
        all.sort_by(f64::total_cmp);
        let mean = all.iter().sum::<f64>() / all.len().max(1) as f64;
        Expected { mean, low: quantile(&all, 0.1), high: quantile(&all, 0.9) }
    }

    /// Whether the job ends in every world: where it does not, what was counted is no forecast.
    pub fn finishes(&self) -> bool {
        self.passages.iter().all(|passage| passage.finished)
    }

    /// The share of worlds in which the deadline is met.
    pub fn in_time(&self) -> f64 {
        let met = self.passages.iter().filter(|passage| !passage.late).count();
        met as f64 / self.passages.len().max(1) as f64
    }
}

fn quantile(sorted: &[f64], at: f64) -> f64 {
    let Some(last) = sorted.len().checked_sub(1) else { return 0.0 };
    let place = at * last as f64;
    let below = place as usize;
    let above = (below + 1).min(last);
    sorted[below] + (sorted[above] - sorted[below]) * (place - below as f64)
}

impl Model {
    /// What is to be expected of a job on a market about which nothing is known but the model.
    pub fn outlook(&self, journey: &Journey) -> Outlook {
        // The copies of a regime make decisions robust; a forecast is of the markets as they were recorded.
        let classes: Vec<&Class> = self.classes.iter().filter(|class| class.as_learnt).collect();
        let laws: Vec<Law> = classes.iter().map(|class| Law::of(class, journey.flakiness)).collect();
        let sum: f64 = classes.iter().map(|class| class.prior).sum();
        let priors: Vec<f64> = classes.iter().map(|class| class.prior / sum).collect();
        let worlds = (0..WORLDS).map(|world| {
            // Classes are dealt out in even shares, not drawn: their mixture is what most of the band comes from.
            let mut random = Random(0x5EED_0000 + world as u64);
            let class = pick(&priors, (world as f64 + 0.5) / WORLDS as f64);
            let mut market = Course { laws: &laws, priors: &priors, mixing: self.mixing, class, random: &mut random };
            travel(journey, self.tick.0 as f64, &mut market)
        });
        Outlook { passages: worlds.collect() }
    }

    /// Mean time for which spot capacity lasts, at a flakiness: what a checkpoint interval is chosen by.
    pub fn mean_lifetime(&self, flakiness: f64) -> Span {
        let hazard = self.classes.iter().map(|class| {
            let law = Law::of(class, flakiness);
            class.prior / law.length[1].max(1.0)
        });
        Span((self.tick.0 as f64 / hazard.sum::<f64>()) as i64)
    }
}

/// Spell lengths of one class, ready to be drawn.
struct Law {
    hazard: [Hazard; 2],
    /// Chance to survive to the beginning of each bucket.
    reached: [[f64; BUCKETS]; 2],
    /// Mean length in ticks.
    length: [f64; 2],
}

impl Law {
    fn of(class: &Class, flakiness: f64) -> Law {
        let up = class.hazard[1].map(|hazard| 1.0 - libm::pow(1.0 - hazard, flakiness.max(0.0)));
        let hazard = [class.hazard[0], up.map(|hazard| hazard.max(1e-7))];
        let spells = [survival(&hazard[0]), survival(&hazard[1])];
        let reached = spells.map(|spell| spell.map(|(reached, _)| reached));
        let length = spells.map(|spell| spell.iter().map(|(_, time)| time).sum());
        Law { hazard, reached, length }
    }

    /// A spell's length in ticks, given that it has lasted to the beginning of `from`.
    fn draw(&self, state: usize, from: usize, random: &mut Random) -> f64 {
        let reached = &self.reached[state];
        let survives = random.next() * reached[from];
        let bucket = (from + 1..BUCKETS).take_while(|bucket| reached[*bucket] >= survives).last().unwrap_or(from);
        let inside = libm::log(survives / reached[bucket]) / libm::log1p(-self.hazard[state][bucket]);
        let most = width(bucket).map_or(f64::INFINITY, f64::from);
        f64::from(BUCKET_STARTS[bucket]) - 1.0 + inside.clamp(0.0, most)
    }

    /// What is left of a spell that is caught at a random moment.
    fn rest(&self, state: usize, random: &mut Random) -> f64 {
        let reached = &self.reached[state];
        let time = |bucket: usize| {
            let end = reached.get(bucket + 1).copied().unwrap_or(0.0);
            (reached[bucket] - end) / self.hazard[state][bucket]
        };
        let mut at = random.next() * self.length[state];
        let caught = (0..BUCKETS - 1).find(|bucket| {
            at -= time(*bucket);
            at < 0.0
        });
        let bucket = caught.unwrap_or(BUCKETS - 1);
        let age = f64::from(BUCKET_STARTS[bucket]) - 1.0;
        (self.draw(state, bucket, random) - age).max(0.0)
    }
}

/// One market's course: spells that follow each other.
pub(super) struct Course<'m> {
    laws: &'m [Law],
    priors: &'m [f64],
    mixing: f64,
    class: usize,
    random: &'m mut Random,
}

impl Course<'_> {
    /// The state at the beginning, and for how many ticks it lasts.
    pub(super) fn begin(&mut self) -> (bool, f64) {
        let law = &self.laws[self.class];
        let up = self.random.next() * (law.length[0] + law.length[1]) < law.length[1];
        (up, law.rest(usize::from(up), self.random))
    }

    /// How many ticks the next spell lasts.
    pub(super) fn next(&mut self, up: bool, after: f64) -> f64 {
        if self.random.next() < self.mixing * after {
            self.class = pick(self.priors, self.random.next());
        }
        self.laws[self.class].draw(usize::from(up), 0, self.random)
    }
}

fn pick(weights: &[f64], at: f64) -> usize {
    let mut sum = 0.0;
    let found = weights.iter().position(|weight| {
        sum += weight;
        at < sum
    });
    found.unwrap_or(weights.len().saturating_sub(1))
}

/// Numbers that are the same on every machine.
struct Random(u64);

impl Random {
    /// Evenly between zero and one, neither included.
    fn next(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((z ^ (z >> 31)) >> 11) as f64 / (1u64 << 53) as f64 + 1e-17
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn journey(hours: i64, deadline: Option<i64>) -> Journey {
        Journey {
            need: Span::hours(hours),
            left: deadline.map(Span::hours),
            restart: Span::minutes(6),
            undone: Span::minutes(5),
            tick: Span::minutes(10),
            flakiness: 1.0,
            has_firm: true,
        }
    }

    #[test]
    fn a_deadline_that_on_demand_can_meet_is_met_in_every_world() {
        let model = Model::embedded();
        for (hours, deadline) in [(1, 2), (10, 11), (48, 52), (48, 70), (48, 200), (5, 6)] {
            for flakiness in [0.2, 1.0, 5.0] {
                let outlook = model.outlook(&Journey { flakiness, ..journey(hours, Some(deadline)) });
                assert_eq!(outlook.in_time(), 1.0, "{hours} h in {deadline} h at {flakiness}");
            }
        }
    }

    #[test]
    fn what_is_paid_for_is_work_changeovers_and_what_was_undone() {
        let outlook = Model::embedded().outlook(&journey(20, Some(30)));
        for passage in &outlook.passages {
            let paid = passage.spot + passage.firm;
            let known = Span::hours(20) + passage.starting + passage.undone;
            assert!((paid - known).0.abs() <= 5, "{passage:?}");
            assert!(passage.elapsed >= paid);
        }
    }

    #[test]
    fn more_slack_is_cheaper_and_a_flakier_market_dearer() {
        let model = Model::embedded();
        let cost = |journey: &Journey| {
            model.outlook(journey).expect(|passage| passage.spot.0 as f64 + 3.0 * passage.firm.0 as f64).mean
        };
        let tight = cost(&journey(48, Some(50)));
        let loose = cost(&journey(48, Some(96)));
        assert!(loose < tight);
        assert!(cost(&Journey { flakiness: 4.0, ..journey(48, Some(60)) }) > cost(&journey(48, Some(60))));
    }

    #[test]
    fn without_a_deadline_or_a_firm_market_only_spot_is_paid_for() {
        let outlook = Model::embedded().outlook(&Journey { has_firm: false, ..journey(20, None) });
        assert!(outlook.passages.iter().all(|passage| passage.firm == Span::ZERO && !passage.late));
    }

    #[test]
    fn a_long_job_is_a_short_one_many_times() {
        let model = Model::embedded();
        let mut before: Option<(f64, f64)> = None;
        for hours in [100, 300, 1_000, 1_200, 3_000, 10_000, 100_000] {
            for (deadline, has_firm) in
                [(None, false), (None, true), (Some(hours * 3), true), (Some(hours + hours / 50), true)]
            {
                let outlook = model.outlook(&Journey { has_firm, ..journey(hours, deadline) });
                assert!(outlook.finishes(), "{hours} h in {deadline:?}");
                for passage in &outlook.passages {
                    let paid = passage.spot + passage.firm;
                    assert!(
                        paid >= Span::hours(hours) && passage.elapsed >= paid,
                        "{hours} h in {deadline:?}: {passage:?}"
                    );
                    assert!(deadline.is_none() || !has_firm || !passage.late, "{hours} h in {deadline:?}: {passage:?}");
                }
                if deadline.is_none() && !has_firm {
                    let mean = |figure: fn(&Passage) -> Span| outlook.expect(|passage| figure(passage).0 as f64).mean;
                    let (paid, took) =
                        (mean(|passage| passage.spot) / hours as f64, mean(|passage| passage.elapsed) / hours as f64);
                    if let Some((last_paid, last_took)) = before {
                        assert!(
                            (paid / last_paid - 1.0).abs() < 0.02,
                            "{hours} h cost {paid} an hour, {last_paid} before"
                        );
                        assert!(
                            (took / last_took - 1.0).abs() < 0.25,
                            "{hours} h took {took} an hour, {last_took} before"
                        );
                    }
                    before = Some((paid, took));
                }
            }
        }
    }

    #[test]
    fn a_market_whose_spells_are_shorter_than_a_start_never_ends_a_job() {
        let endless = Journey { restart: Span::hours(5_000), flakiness: 5.0, has_firm: false, ..journey(20, None) };
        let outlook = Model::embedded().outlook(&endless);
        assert!(!outlook.finishes() && outlook.in_time() < 1.0);
    }

    #[test]
    fn drawn_spells_have_the_length_of_their_law() {
        let class = &Model::embedded().classes[0];
        let law = Law::of(class, 1.0);
        for state in [0, 1] {
            let mut random = Random(7);
            let count = 40_000;
            let mean = (0..count).map(|_| law.draw(state, 0, &mut random)).sum::<f64>() / f64::from(count);
            assert!((mean / law.length[state] - 1.0).abs() < 0.1, "{mean} for {}", law.length[state]);
        }
    }
}
