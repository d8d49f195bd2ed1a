//! What is believed about one market: which class it is of, given all that was seen of it. Weights are
//! integers, so that a belief is the same on every machine and survives a snapshot to the last digit.

use super::model::{BUCKETS, Class, Model, bucket_of, lifetimes, survival, width};
use crate::units::Span;
use serde::{Deserialize, Serialize};

/// A weight of one.
const ONE: f64 = (1u64 << 32) as f64;
/// Ticks without news after which nothing more is learnt from silence: bounds the work of one look.
const LONGEST_SILENCE: i64 = 300;

/// A belief about a market.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Belief {
    /// Whether capacity was last seen.
    pub up: bool,
    /// Time since the present spell was first seen; none while its beginning was not seen.
    age: Option<Span>,
    /// By class; while the age is unknown, by class and bucket.
    weights: Vec<u32>,
    /// For spells with capacity, by age: thousandths of ticks seen, and spells that ended.
    spells: Vec<(u32, u32)>,
}

impl Belief {
    /// Calls with every (class, bucket of age, weight) that is believed in.
    pub(super) fn each(&self, tick: Span, mut with: impl FnMut(usize, usize, f64)) {
        match self.age {
            Some(age) => {
                let bucket = bucket_at(age, tick);
                for (class, weight) in self.weights.iter().enumerate() {
                    with(class, bucket, f64::from(*weight) / ONE);
                }
            }
            None => {
                for (place, weight) in self.weights.iter().enumerate().filter(|(_, weight)| **weight > 0) {
                    with(place / BUCKETS, place % BUCKETS, f64::from(*weight) / ONE);
                }
            }
        }
    }

    /// The bucket that a spell of known age is in after `step` more.
    pub(super) fn bucket_after(&self, tick: Span, step: Span) -> Option<usize> {
        self.age.map(|age| bucket_at(age + step, tick))
    }
}

fn bucket_at(age: Span, tick: Span) -> usize {
    bucket_of(u32::try_from(age.0 / tick.0.max(1) + 1).unwrap_or(u32::MAX))
}

impl Model {
    /// What is believed of a market that is seen for the first time: the chance of its state in each class,
    /// and an age by the law of a spell caught at a random moment.
    pub fn belief(&self, up: bool) -> Belief {
        let mut joint = Vec::with_capacity(self.classes.len() * BUCKETS);
        for class in &self.classes {
            let spells = [survival(&class.hazard[0]), survival(&class.hazard[1])];
            let length: f64 = spells.iter().flatten().map(|(_, time)| time).sum();
            joint.extend(spells[usize::from(up)].iter().map(|(_, time)| class.prior * time / length));
        }
        Belief { up, age: None, weights: normalised(&joint), spells: vec![(0, 0); BUCKETS] }
    }

    /// Takes in what is seen now, `elapsed` after the last news. Nothing changed until the look before this one; looks
    /// are `every` apart.
    pub fn observe(&self, belief: &mut Belief, elapsed: Span, every: Span, up: bool) {
        let every = Span(every.0.clamp(1, self.tick.0.max(1)));
        let mut rest = Span(elapsed.0.clamp(0, LONGEST_SILENCE * every.0));
        while rest > every {
            self.step(belief, every, belief.up);
            rest = rest - every;
        }
        if rest.0 > 0 || up != belief.up {
            self.step(belief, Span(rest.0.max(1)), up);
        }
    }

    /// Whether a belief was formed by this model: an older binary's may be of other classes.
    pub fn knows(&self, belief: &Belief) -> bool {
        let classes = if belief.age.is_some() { 1 } else { BUCKETS } * self.classes.len();
        belief.weights.len() == classes && belief.spells.len() == BUCKETS
    }

    /// How long the present spell with capacity is expected to last, in ticks, by all that is believed.
    pub(super) fn lifetime(&self, belief: &Belief) -> f64 {
        let mut sum = 0.0;
        belief.each(self.tick, |class, bucket, weight| sum += weight * self.classes[class].lifetimes[bucket]);
        sum.max(1.0)
    }

    /// The same as time.
    pub fn expected_lifetime(&self, belief: &Belief) -> Span {
        Span((self.lifetime(belief) * self.tick.0 as f64) as i64)
    }

    /// The same by the market's own spells alone (Nelson and Aalen's estimate by age, with the average of all
    /// markets as a few ticks of experience), as the SkyNomad rule has it.
    pub(in crate::market) fn lifetime_by_spells(&self, belief: &Belief) -> f64 {
        const EXPERIENCE: f64 = 12.0;
        let average =
            |bucket: usize| self.classes.iter().map(|class| class.prior * class.hazard[1][bucket]).sum::<f64>();
        let hazard = std::array::from_fn(|bucket| {
            let (ticks, ends) = belief.spells[bucket];
            (f64::from(ends) + EXPERIENCE * average(bucket)) / (f64::from(ticks) / 1_000.0 + EXPERIENCE)
        });
        lifetimes(&hazard)[belief.age.map_or(0, |age| bucket_at(age, self.tick))]
    }

    fn step(&self, belief: &mut Belief, elapsed: Span, up: bool) {
        let part = elapsed.0 as f64 / self.tick.0 as f64;
        let mixing = self.mixing * part;
        let flips = up != belief.up;
        let state = usize::from(belief.up);
        let likelihood = |class: &Class, bucket: usize| {
            let hazard = class.within(state, bucket, part);
            if flips { hazard } else { 1.0 - hazard }
        };
        match belief.age {
            Some(age) => {
                let bucket = bucket_at(age, self.tick);
                if belief.up {
                    let (ticks, ends) = &mut belief.spells[bucket];
                    *ticks = ticks.saturating_add((part * 1_000.0) as u32);
                    *ends += u32::from(flips);
                }
                let weights = self.classes.iter().zip(&belief.weights).map(|(class, weight)| {
                    let before = (1.0 - mixing) * f64::from(*weight) / ONE + mixing * class.prior;
                    before * likelihood(class, bucket)
                });
                belief.weights = normalised(&weights.collect::<Vec<_>>());
                belief.age = Some(if flips { Span::ZERO } else { age + elapsed });
            }
            None => {
                let seen = self.classes.iter().zip(belief.weights.chunks(BUCKETS)).map(|(class, weights)| {
                    let seen: [f64; BUCKETS] =
                        std::array::from_fn(|b| f64::from(weights[b]) / ONE * likelihood(class, b));
                    if flips { vec![seen.iter().sum()] } else { older(&seen, part).to_vec() }
                });
                belief.weights = normalised(&seen.flatten().collect::<Vec<_>>());
                belief.age = flips.then_some(Span::ZERO);
            }
        }
        belief.up = up;
    }
}

/// Ages that are only known by bucket move on by the share of the bucket that has passed.
fn older(weights: &[f64; BUCKETS], part: f64) -> [f64; BUCKETS] {
    let leaves = |bucket: usize| width(bucket).map_or(0.0, |width| weights[bucket] * part / f64::from(width));
    std::array::from_fn(|b| weights[b] - leaves(b) + if b > 0 { leaves(b - 1) } else { 0.0 })
}

fn normalised(weights: &[f64]) -> Vec<u32> {
    let total: f64 = weights.iter().sum();
    let most = f64::from(u32::MAX);
    weights.iter().map(|weight| libm::floor((weight / total * ONE + 0.5).min(most)) as u32).collect()
}
