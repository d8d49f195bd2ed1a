//! A model of spot markets: spells with and without capacity, whose chance to end depends on their age and
//! on the regime that the market is in. A class is a regime, or a regime with flakier spells than were
//! recorded: the next market need not be like the last ones.

use crate::units::Span;
use serde::{Deserialize, Serialize};
use std::sync::{Arc, LazyLock};

/// Ages at which buckets begin, in ticks: 1 is the tick in which a spell is first seen.
pub const BUCKET_STARTS: [u32; BUCKETS] = [1, 2, 3, 4, 5, 6, 7, 9, 11, 14, 18, 24, 32, 48, 72, 120];
/// How many there are.
pub const BUCKETS: usize = 16;

/// Chance that a spell ends within a tick, by its age.
pub type Hazard = [f64; BUCKETS];

/// A regime as it was learnt.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Regime {
    /// Its share of recorded time.
    pub weight: f64,
    /// Ends of spells without capacity.
    pub down: Hazard,
    /// Ends of spells with capacity.
    pub up: Hazard,
}

/// What was learnt from recorded markets; a fact file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Priors {
    pub source: String,
    pub learnt: String,
    pub tick_seconds: i64,
    pub regimes: Vec<Regime>,
}

impl Priors {
    /// Those of this program.
    pub fn embedded() -> Priors {
        serde_json::from_str(EMBEDDED).expect("the embedded priors are read by a test")
    }

    /// What must hold of any fact file, whoever wrote it.
    pub fn check(&self) -> Result<(), String> {
        if !(1..=86_400).contains(&self.tick_seconds) {
            return Err(format!("tick_seconds: {} is no tick", self.tick_seconds));
        }
        if self.regimes.is_empty() || self.regimes.len() > 64 {
            return Err(format!("regimes: {} of them, expected 1 to 64", self.regimes.len()));
        }
        for (number, regime) in self.regimes.iter().enumerate() {
            let sure = regime.down.iter().chain(&regime.up).any(|hazard| !(1e-9..=1.0 - 1e-9).contains(hazard));
            if sure || regime.weight.is_nan() || regime.weight <= 0.0 {
                return Err(format!("regimes[{number}]: weights are above 0, hazards above 0 and below 1"));
            }
        }
        Ok(())
    }
}

/// Copies of a regime: their share, and by how much the log-odds of (down, up) spells to end are shifted. The
/// recorded markets are few, so a market that is new must be allowed to be worse or better.
pub const SHIFTS: [(f64, f64, f64); 5] =
    [(0.5, 0.0, 0.0), (0.125, 0.7, 0.0), (0.125, 0.0, 0.7), (0.125, -0.7, 0.0), (0.125, 0.0, -0.7)];
/// Chance in a tick that a market changes its class: no market stays what it was for ever.
pub const MIXING: f64 = 0.001;

const EMBEDDED: &str = include_str!("priors.json");

/// One class of markets.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Class {
    pub prior: f64,
    /// As it was learnt, not a copy that is flakier or steadier.
    pub as_learnt: bool,
    /// By state (0 down, 1 up), then by bucket.
    pub hazard: [Hazard; 2],
    /// Logarithms of the chance to survive a tick: a part of a tick takes a part of them.
    decay: [Hazard; 2],
    /// Ticks of the next hours that a spell with capacity is expected to last, by bucket.
    pub lifetimes: [f64; BUCKETS],
    /// Share of time with capacity, in the long run.
    pub availability: f64,
}

impl Class {
    fn new(prior: f64, as_learnt: bool, hazard: [Hazard; 2]) -> Class {
        let decay = hazard.map(|hazard| hazard.map(|h| libm::log1p(-h)));
        let [down, up] = hazard.map(|hazard| lifetimes(&hazard)[0]);
        Class { prior, as_learnt, hazard, decay, lifetimes: soon(&hazard[1]), availability: up / (down + up) }
    }

    /// The chance that a spell ends within a part of a tick.
    pub fn within(&self, state: usize, bucket: usize, part: f64) -> f64 {
        match part == 1.0 {
            true => self.hazard[state][bucket],
            false => 1.0 - libm::exp(part * self.decay[state][bucket]),
        }
    }
}

/// The model.
#[derive(Clone, Debug, PartialEq)]
pub struct Model {
    pub(super) tick: Span,
    pub(super) classes: Vec<Class>,
    pub(super) mixing: f64,
}

impl Model {
    /// The model of markets never seen, from the embedded recordings.
    pub fn embedded() -> Arc<Model> {
        static MODEL: LazyLock<Arc<Model>> = LazyLock::new(|| Arc::new(Model::new(&Priors::embedded())));
        Arc::clone(&MODEL)
    }

    /// A model from what was learnt.
    pub fn new(priors: &Priors) -> Model {
        Model::with_shifts(priors, &SHIFTS, MIXING)
    }

    /// A model with other copies and another mixing: for choosing both by cross-validation.
    pub fn with_shifts(priors: &Priors, shifts: &[(f64, f64, f64)], mixing: f64) -> Model {
        let total: f64 = priors.regimes.iter().map(|regime| regime.weight).sum();
        let class = |regime: &Regime, (share, down, up): (f64, f64, f64)| {
            let hazard = [regime.down.map(|h| shifted(h, down)), regime.up.map(|h| shifted(h, up))];
            Class::new(regime.weight / total * share, down == 0.0 && up == 0.0, hazard)
        };
        let classes = priors.regimes.iter().flat_map(|regime| shifts.iter().map(move |shift| class(regime, *shift)));
        Model { tick: Span::seconds(priors.tick_seconds), classes: classes.collect(), mixing }
    }

    /// The same markets looked at with another tick.
    pub fn with_tick(&self, tick: Span) -> Model {
        if tick == self.tick || tick.0 <= 0 {
            return self.clone();
        }
        let class = |class: &Class| {
            let hazard = [0, 1].map(|state| resampled(&class.hazard[state], self.tick, tick));
            Class::new(class.prior, class.as_learnt, hazard)
        };
        let mixing = 1.0 - libm::pow(1.0 - self.mixing, tick.0 as f64 / self.tick.0 as f64);
        Model { tick, classes: self.classes.iter().map(class).collect(), mixing }
    }

    /// The tick that its hazards are for.
    pub fn tick(&self) -> Span {
        self.tick
    }
}

fn shifted(hazard: f64, by: f64) -> f64 {
    let odds = hazard / (1.0 - hazard) * libm::exp(by);
    odds / (1.0 + odds)
}

/// The bucket of an age in ticks.
pub fn bucket_of(age: u32) -> usize {
    BUCKET_STARTS.iter().rposition(|start| age >= *start).unwrap_or(0)
}

/// Ticks that a bucket spans; the last has no end.
pub(super) fn width(bucket: usize) -> Option<u32> {
    BUCKET_STARTS.get(bucket + 1).map(|end| end - BUCKET_STARTS[bucket])
}

/// Chance that a spell survives to the beginning of each bucket, and the time it is expected to spend in it.
pub(super) fn survival(hazard: &Hazard) -> [(f64, f64); BUCKETS] {
    let mut reached = 1.0;
    std::array::from_fn(|bucket| {
        let h = hazard[bucket];
        let (here, stays) = (reached, width(bucket).map_or(0.0, |width| libm::pow(1.0 - h, f64::from(width))));
        reached = here * stays;
        (here, here * (1.0 - stays) / h)
    })
}

/// Ticks that a spell is expected to go on from the beginning of each bucket.
pub(super) fn lifetimes(hazard: &Hazard) -> [f64; BUCKETS] {
    let mut lifetimes = [0.0; BUCKETS];
    let mut later = 0.0;
    for bucket in (0..BUCKETS).rev() {
        let stays = width(bucket).map_or(0.0, |width| libm::pow(1.0 - hazard[bucket], f64::from(width)));
        later = (1.0 - stays) / hazard[bucket] + stays * later;
        lifetimes[bucket] = later;
    }
    lifetimes
}

/// Zones are compared over so many ticks: the tail of long spells says nothing about the next hours.
const HORIZON: u32 = 48;

/// The same within the horizon, from the middle of each bucket.
fn soon(hazard: &Hazard) -> [f64; BUCKETS] {
    std::array::from_fn(|bucket| {
        let age = BUCKET_STARTS[bucket] + width(bucket).unwrap_or(1) / 2;
        let (mut survives, mut ticks) = (1.0, 0.0);
        for later in 0..HORIZON {
            ticks += survives;
            survives *= 1.0 - hazard[bucket_of(age + later)];
        }
        ticks
    })
}

/// Hazards at another tick, from the rate of the age at the middle of each bucket.
fn resampled(hazard: &Hazard, from: Span, to: Span) -> Hazard {
    let ratio = to.0 as f64 / from.0 as f64;
    std::array::from_fn(|bucket| {
        let middle = f64::from(BUCKET_STARTS[bucket]) - 0.5 + f64::from(width(bucket).unwrap_or(1) - 1) / 2.0;
        let age = libm::floor(middle * ratio + 0.5).max(1.0);
        let there = hazard[bucket_of(age as u32)];
        1.0 - libm::pow(1.0 - there, ratio)
    })
}

#[cfg(test)]
mod tests {
    use super::shifted;

    #[test]
    fn a_shift_multiplies_the_odds() {
        assert!((shifted(0.5, libm::log(3.0)) - 0.75).abs() < 1e-12);
        assert!((shifted(0.2, 0.0) - 0.2).abs() < 1e-12);
        assert!((shifted(0.9, -libm::log(9.0)) - 0.5).abs() < 1e-12);
    }
}
