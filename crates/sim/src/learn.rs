//! Learns the regimes of spot markets from recordings: a mixture over stretches of a few days, in each of
//! which the chance of a spell to end depends on its age; by expectation and maximisation, from a fixed
//! beginning, so that the same recordings always teach the same.

use windfall_core::market::foresight::{BUCKETS, Priors, Regime, bucket_of};

/// What to learn, and how.
#[derive(Clone, Debug)]
pub struct Lesson {
    /// Regimes to tell apart.
    pub regimes: usize,
    /// Ticks of one stretch.
    pub stretch: usize,
    /// Ticks that the average of all stretches weighs in each regime's hazards.
    pub shrink: f64,
}

impl Default for Lesson {
    fn default() -> Lesson {
        Lesson { regimes: 4, stretch: 288, shrink: 80.0 }
    }
}

const ROUNDS: usize = 200;
/// No hazard is learnt to be certain.
const LEAST: f64 = 1e-4;

/// Ticks in each (state, bucket), and how many of them ended the spell.
type Counts = [[(f64, f64); BUCKETS]; 2];
type Hazards = [[f64; BUCKETS]; 2];

/// One of `every` ticks.
pub fn resample(up: &[bool], every: usize) -> Vec<bool> {
    up.iter().copied().step_by(every.max(1)).collect()
}

/// Learns from zones that were looked at once a tick.
pub fn learn(zones: &[Vec<bool>], lesson: &Lesson, tick_seconds: i64, source: &str, learnt: &str) -> Priors {
    let stretches: Vec<Counts> = zones.iter().flat_map(|zone| stretches(zone, lesson.stretch)).collect();
    let average = hazards(stretches.iter().map(|counts| (1.0, counts)), None, 1.0);
    let mut shares = first_shares(&stretches, lesson.regimes);
    let mut regimes = Vec::new();
    for _ in 0..ROUNDS {
        regimes = (0..lesson.regimes)
            .map(|regime| {
                let weighted = stretches.iter().zip(&shares).map(|(counts, share)| (share[regime], counts));
                let weight = shares.iter().map(|share| share[regime]).sum::<f64>() / stretches.len().max(1) as f64;
                (weight.max(1e-6), hazards(weighted, Some(&average), lesson.shrink))
            })
            .collect::<Vec<_>>();
        shares = stretches.iter().map(|counts| posterior(counts, &regimes)).collect();
    }
    let round = |value: f64| (value * 1e6).round() / 1e6;
    let regimes = regimes.into_iter().map(|(weight, [down, up])| Regime {
        weight: round(weight),
        down: down.map(round),
        up: up.map(round),
    });
    Priors { source: source.to_owned(), learnt: learnt.to_owned(), tick_seconds, regimes: regimes.collect() }
}

/// Cuts a zone into stretches; the first spell's age is not known, so it teaches nothing.
fn stretches(zone: &[bool], length: usize) -> Vec<Counts> {
    let Some(first) = zone.windows(2).position(|pair| pair[0] != pair[1]) else { return Vec::new() };
    let mut all = Vec::new();
    let mut age = 1;
    let mut counts = Counts::default();
    for (number, pair) in zone[first + 1..].windows(2).enumerate() {
        let flips = pair[0] != pair[1];
        let (ticks, ends) = &mut counts[usize::from(pair[0])][bucket_of(age)];
        *ticks += 1.0;
        *ends += f64::from(u8::from(flips));
        age = if flips { 1 } else { age + 1 };
        if (number + 1) % length == 0 {
            all.push(std::mem::take(&mut counts));
        }
    }
    if counts.iter().flatten().map(|(ticks, _)| ticks).sum::<f64>() > length as f64 / 4.0 {
        all.push(counts);
    }
    all
}

fn hazards<'a>(stretches: impl Iterator<Item = (f64, &'a Counts)>, average: Option<&Hazards>, shrink: f64) -> Hazards {
    let mut sums = Counts::default();
    for (share, counts) in stretches {
        for (sum, count) in sums.iter_mut().flatten().zip(counts.iter().flatten()) {
            sum.0 += share * count.0;
            sum.1 += share * count.1;
        }
    }
    std::array::from_fn(|state| {
        std::array::from_fn(|bucket| {
            let (ticks, ends) = sums[state][bucket];
            let towards = average.map_or(0.05, |average| average[state][bucket]);
            ((ends + shrink * towards) / (ticks + shrink)).clamp(LEAST, 1.0 - LEAST)
        })
    })
}

/// Stretches in order of how often they change, cut into equal parts: where the rounds begin.
fn first_shares(stretches: &[Counts], regimes: usize) -> Vec<Vec<f64>> {
    let changes = |counts: &Counts| counts.iter().flatten().map(|(_, ends)| ends).sum::<f64>();
    let mut order: Vec<usize> = (0..stretches.len()).collect();
    order.sort_by(|a, b| changes(&stretches[*a]).total_cmp(&changes(&stretches[*b])).then(a.cmp(b)));
    let mut shares = vec![vec![0.1 / regimes as f64; regimes]; stretches.len()];
    for (rank, stretch) in order.iter().enumerate() {
        shares[*stretch][rank * regimes / stretches.len().max(1)] += 0.9;
    }
    shares
}

fn posterior(counts: &Counts, regimes: &[(f64, Hazards)]) -> Vec<f64> {
    let fit = |(weight, hazards): &(f64, Hazards)| {
        let logs = counts.iter().flatten().zip(hazards.iter().flatten());
        weight.ln() + logs.map(|((ticks, ends), h)| ends * h.ln() + (ticks - ends) * (1.0 - h).ln()).sum::<f64>()
    };
    let fits: Vec<f64> = regimes.iter().map(fit).collect();
    let best = fits.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let shares: Vec<f64> = fits.iter().map(|fit| (fit - best).exp()).collect();
    let total: f64 = shares.iter().sum();
    shares.iter().map(|share| share / total).collect()
}
