//! A market drawn from the model: spells with and without capacity that follow each other. The same world draws the
//! same market on every machine.

use super::forecast_terms::Losses;
use super::model::{BUCKET_STARTS, BUCKETS, Class, Hazard, survival, width};

/// On-demand capacity that is refused is asked for again after so long.
pub(super) const REFUSED_FOR_MS: f64 = 30.0 * 60_000.0;

/// Spell lengths of one class, ready to be drawn.
pub(super) struct Law {
    hazard: [Hazard; 2],
    /// Chance to survive to the beginning of each bucket.
    reached: [[f64; BUCKETS]; 2],
    /// Mean length in ticks.
    pub length: [f64; 2],
}

impl Law {
    /// Capacity comes back as in the recorded markets, however it was lost.
    pub fn of(class: &Class, losses: Losses, tick_hours: f64) -> Law {
        let up = match losses {
            Losses::Recorded(times) => class.hazard[1].map(|hazard| 1.0 - libm::pow(1.0 - hazard, times.max(0.0))),
            Losses::Rate { least, .. } => [1.0 - libm::exp(-least * tick_hours); BUCKETS],
        };
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
pub(super) struct DrawnMarket<'m> {
    pub laws: &'m [Law],
    pub priors: &'m [f64],
    pub mixing: f64,
    pub class: usize,
    pub random: Random,
}

impl DrawnMarket<'_> {
    /// The state at the beginning, and for how many ticks it lasts.
    pub fn begin(&mut self) -> (bool, f64) {
        let law = &self.laws[self.class];
        let up = self.random.next() * (law.length[0] + law.length[1]) < law.length[1];
        (up, law.rest(usize::from(up), &mut self.random))
    }

    /// For how long on-demand capacity is not to be had at this moment.
    pub fn refusal_ms(&mut self, chance: f64) -> f64 {
        if chance > 0.0 && self.random.next() < chance { REFUSED_FOR_MS } else { 0.0 }
    }

    /// How many ticks the next spell lasts.
    pub fn next(&mut self, up: bool, after: f64) -> f64 {
        if self.random.next() < self.mixing * after {
            self.class = pick(self.priors, self.random.next());
        }
        self.laws[self.class].draw(usize::from(up), 0, &mut self.random)
    }
}

pub(super) fn pick(weights: &[f64], at: f64) -> usize {
    let mut sum = 0.0;
    let found = weights.iter().position(|weight| {
        sum += weight;
        at < sum
    });
    found.unwrap_or(weights.len().saturating_sub(1))
}

/// Numbers that are the same on every machine.
pub(super) struct Random(u64);

impl Random {
    pub fn of(world: usize) -> Random {
        Random(0x5EED_0000 + world as u64)
    }

    /// Evenly between zero and one, neither included.
    pub fn next(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((z ^ (z >> 31)) >> 11) as f64 / (1u64 << 53) as f64 + 1e-17
    }
}

#[cfg(test)]
mod tests {
    use super::super::model::Model;
    use super::*;

    #[test]
    fn drawn_spells_have_the_length_of_their_law() {
        let class = &Model::embedded().classes[0];
        let law = Law::of(class, Losses::Recorded(1.0), 1.0 / 6.0);
        for state in [0, 1] {
            let mut random = Random(7);
            let count = 40_000;
            let mean = (0..count).map(|_| law.draw(state, 0, &mut random)).sum::<f64>() / f64::from(count);
            assert!((mean / law.length[state] - 1.0).abs() < 0.1, "{mean} for {}", law.length[state]);
        }
    }
}
