//! What a job will need on a market, before it runs. Worlds are drawn from the model of markets and the job is
//! played through each by the rule of `levi-safe` and its net; what was paid for, how long it took and how often
//! it was interrupted are counted. Every candidate lives through the same worlds, so that they can be compared.

use super::model::{BUCKET_STARTS, BUCKETS, Class, Hazard, Model, survival, width};
use super::travel::travel;
use crate::units::Span;

/// Worlds that are drawn: enough for a tenth and a nine-tenths quantile, few enough to plan in a blink.
pub const WORLDS: usize = 120;
/// Rates between the least and the most that worlds are dealt out to.
const RATES: usize = 5;
/// The power of its size by which a gang is interrupted more often than one machine. Most losses are common, because a
/// whole market runs dry: of two AWS markets in which capacity was counted in 2023, gangs of 16 (us-east-2b) lost it 2.1
/// times and gangs of 4 (us-east-1f) 1.5 times as often as one machine.
const GANG_POWER: f64 = 0.28;
/// Most of those further losses are short, and cost less than the recorded spells that a forecast would put in their
/// place: with this power it expects what gangs of 2 to 16 paid on these markets.
const GANG_POWER_RECORDED: f64 = 0.1;
/// On-demand capacity that is refused is asked for again after so long.
const REFUSED_FOR_MS: f64 = 30.0 * 60_000.0;

/// How often a market takes capacity back.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Losses {
    /// As in the recorded markets, but so many times as likely at any moment.
    Recorded(f64),
    /// At a steady rate an hour that lies between these: nobody recorded more than that.
    Rate {
        /// It is at least this.
        least: f64,
        /// It is at most this.
        most: f64,
    },
}

impl Losses {
    /// A market that takes back this share of its machines within so many hours, from the least to the most.
    pub fn of_share(least: f64, most: f64, hours: f64) -> Losses {
        Losses::Rate { least: rate(least, hours), most: rate(most, hours) }
    }

    /// The same for a gang, which is interrupted when one of its machines is taken.
    pub fn of_gang(self, nodes: u32) -> Losses {
        let of_gang = |power: f64| libm::pow(f64::from(nodes.max(1)), power);
        let (rate, recorded) = (of_gang(GANG_POWER), of_gang(GANG_POWER_RECORDED));
        match self {
            Losses::Recorded(times) => Losses::Recorded(times * recorded),
            Losses::Rate { least, most } => Losses::Rate { least: least * rate, most: most * rate },
        }
    }

    /// Those that worlds are dealt out to.
    fn dealt(self) -> Vec<Losses> {
        let Losses::Rate { least, most } = self else { return vec![self] };
        let rate = |n: usize| least + (most - least) * (n as f64 + 0.5) / RATES as f64;
        (0..RATES).map(|n| Losses::Rate { least: rate(n), most: rate(n) }).collect()
    }
}

/// The steady rate an hour at which this share is lost within so many hours.
fn rate(share: f64, hours: f64) -> f64 {
    -libm::log1p(-share.clamp(0.0, 0.999)) / hours
}

/// A job on one kind of machine.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Journey {
    /// Running time that the work needs, saving included.
    pub need: Span,
    /// How sure that is: about two of three times it is off by less than this share.
    pub spread: f64,
    /// Time to the deadline.
    pub left: Option<Span>,
    /// Changeover: from asking for a lease to progress.
    pub restart: Span,
    /// Work that an interruption is expected to undo.
    pub undone: Span,
    /// How often the market is looked at; also kept before a deadline.
    pub tick: Span,
    /// How often a lease on spot is taken back.
    pub losses: Losses,
    /// Whether there is a market to fall back to that cannot be taken away.
    pub has_firm: bool,
    /// Chance that this market has nothing when it is asked.
    pub refused: f64,
}

impl Journey {
    /// The same job in one world, where its work takes somewhat more or less. The mean over all worlds stays.
    fn in_world(&self, world: usize, mean: f64) -> Journey {
        Journey { need: Span((self.need.0 as f64 * self.factor(world) / mean) as i64), ..*self }
    }

    fn mean_factor(&self) -> f64 {
        (0..WORLDS).map(|world| self.factor(world)).sum::<f64>() / WORLDS as f64
    }

    /// Worlds are dealt out over the bell curve (its quantiles as those of the logistic one, which is near enough), in
    /// an order that has nothing to do with what else they differ in.
    fn factor(&self, world: usize) -> f64 {
        let place = ((world * 49 + 17) % WORLDS) as f64 + 0.5;
        let odds = place / (WORLDS as f64 - place);
        libm::exp(self.spread * libm::log(odds) / 1.702)
    }
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

/// A mean with the span in which it and at least eight of ten outcomes lie.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Expected {
    /// The mean.
    pub mean: f64,
    /// At most one in ten is below.
    pub low: f64,
    /// At most one in ten is above.
    pub high: f64,
}

impl Outlook {
    /// A job that never leaves a market that cannot be taken away.
    pub fn firm(journey: &Journey) -> Outlook {
        let mean = journey.mean_factor();
        let worlds = (0..WORLDS).map(|world| {
            let mut random = Random::of(world);
            let mut waited = Span::ZERO;
            while random.next() < journey.refused && waited < Span::hours(24) {
                waited += Span(REFUSED_FOR_MS as i64);
            }
            let firm = journey.in_world(world, mean).need + journey.restart;
            let elapsed = firm + waited;
            let late = journey.left.is_some_and(|left| left < elapsed);
            Passage { firm, starting: journey.restart, elapsed, finished: true, late, ..Passage::default() }
        });
        Outlook { passages: worlds.collect() }
    }

    /// The distribution of any figure.
    pub fn expect(&self, figure: impl Fn(&Passage) -> f64) -> Expected {
        let mut all: Vec<f64> = self.passages.iter().map(figure).collect();
        all.sort_by(f64::total_cmp);
        let mean = all.iter().sum::<f64>() / all.len().max(1) as f64;
        // A few costly worlds can lift the mean above nine of ten outcomes.
        Expected { mean, low: quantile(&all, 0.1).min(mean), high: quantile(&all, 0.9).max(mean) }
    }

    /// Whether the job ends in every world: where it does not, what was counted is no forecast.
    pub fn finishes(&self) -> bool {
        self.passages.iter().all(|passage| passage.finished)
    }

    /// The share of worlds in which the deadline is met.
    pub fn in_time(&self) -> f64 {
        self.share(|passage| !passage.late)
    }

    /// The share of worlds of which something holds.
    pub fn share(&self, of: impl Fn(&Passage) -> bool) -> f64 {
        self.passages.iter().filter(|passage| of(passage)).count() as f64 / self.passages.len().max(1) as f64
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
        let tick_hours = self.tick.0 as f64 / 3.6e6;
        let laws_at = |losses: &Losses| classes.iter().map(|class| Law::of(class, *losses, tick_hours)).collect();
        let laws: Vec<Vec<Law>> = journey.losses.dealt().iter().map(laws_at).collect();
        let mean = journey.mean_factor();
        let sum: f64 = classes.iter().map(|class| class.prior).sum();
        let priors: Vec<f64> = classes.iter().map(|class| class.prior / sum).collect();
        let worlds = (0..WORLDS).map(|world| {
            // Classes are dealt out in even shares, not drawn: their mixture is what most of the band comes from.
            let class = pick(&priors, (world as f64 + 0.5) / WORLDS as f64);
            let laws = &laws[world % laws.len()];
            let random = Random::of(world);
            let mut market = Course { laws, priors: &priors, mixing: self.mixing, class, random };
            travel(&journey.in_world(world, mean), self.tick.0 as f64, &mut market)
        });
        Outlook { passages: worlds.collect() }
    }

    /// Mean time for which spot capacity lasts: what a checkpoint interval is chosen by.
    pub fn mean_lifetime(&self, losses: Losses) -> Span {
        let tick_hours = self.tick.0 as f64 / 3.6e6;
        let dealt = losses.dealt();
        let an_hour = dealt.iter().map(|losses| match losses {
            Losses::Rate { least, .. } => *least,
            _ => {
                let laws = self.classes.iter().map(|class| (class.prior, Law::of(class, *losses, tick_hours)));
                laws.map(|(prior, law)| prior / law.length[1].max(1.0)).sum::<f64>() / tick_hours
            }
        });
        let mean = an_hour.sum::<f64>() / dealt.len() as f64;
        Span((3.6e6 / mean.max(1e-9)) as i64)
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
    /// Capacity comes back as in the recorded markets, however it was lost.
    fn of(class: &Class, losses: Losses, tick_hours: f64) -> Law {
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
pub(super) struct Course<'m> {
    laws: &'m [Law],
    priors: &'m [f64],
    mixing: f64,
    class: usize,
    random: Random,
}

impl Course<'_> {
    /// The state at the beginning, and for how many ticks it lasts.
    pub(super) fn begin(&mut self) -> (bool, f64) {
        let law = &self.laws[self.class];
        let up = self.random.next() * (law.length[0] + law.length[1]) < law.length[1];
        (up, law.rest(usize::from(up), &mut self.random))
    }

    /// For how long on-demand capacity is not to be had at this moment.
    pub(super) fn refusal_ms(&mut self, chance: f64) -> f64 {
        if chance > 0.0 && self.random.next() < chance { REFUSED_FOR_MS } else { 0.0 }
    }

    /// How many ticks the next spell lasts.
    pub(super) fn next(&mut self, up: bool, after: f64) -> f64 {
        if self.random.next() < self.mixing * after {
            self.class = pick(self.priors, self.random.next());
        }
        self.laws[self.class].draw(usize::from(up), 0, &mut self.random)
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
    fn of(world: usize) -> Random {
        Random(0x5EED_0000 + world as u64)
    }

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
#[path = "outlook_tests.rs"]
mod tests;
