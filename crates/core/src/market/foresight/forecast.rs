//! What a job will need on a market, before it runs. Worlds are drawn from the model of markets and the job is
//! played through each by the rule of `levi-safe` and its net; what was paid for, how long it took and how often
//! it was interrupted are counted. Every candidate lives through the same worlds, so that they can be compared.

use super::drawn_market::{DrawnMarket, Law, REFUSED_FOR_MS, Random, pick};
use super::forecast_terms::{ForecastTerms, Losses, WORLDS};
use super::model::{Class, Model};
use super::one_world::{WorldOutcome, play_in_world};
use crate::units::Span;

/// What is to be expected.
#[derive(Clone, Debug, PartialEq)]
pub struct JobForecast {
    /// One for each world.
    pub outcomes: Vec<WorldOutcome>,
}

/// A mean with the span in which it and at least eight of ten outcomes lie.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Expected {
    pub mean: f64,
    /// At most one in ten is below.
    pub low: f64,
    /// At most one in ten is above.
    pub high: f64,
}

impl JobForecast {
    /// A job that never leaves a market that cannot be taken away.
    pub fn firm(terms: &ForecastTerms) -> JobForecast {
        let mean = terms.mean_factor();
        let worlds = (0..WORLDS).map(|world| {
            let mut random = Random::of(world);
            let mut waited = Span::ZERO;
            while random.next() < terms.refused && waited < Span::hours(24) {
                waited += Span(REFUSED_FOR_MS as i64);
            }
            let firm = terms.in_world(world, mean).need + terms.restart;
            let elapsed = firm + waited;
            let late = terms.left.is_some_and(|left| left < elapsed);
            WorldOutcome { firm, starting: terms.restart, elapsed, finished: true, late, ..WorldOutcome::default() }
        });
        JobForecast { outcomes: worlds.collect() }
    }

    /// The distribution of any figure.
    pub fn expect(&self, figure: impl Fn(&WorldOutcome) -> f64) -> Expected {
        let mut all: Vec<f64> = self.outcomes.iter().map(figure).collect();
        all.sort_by(f64::total_cmp);
        let mean = all.iter().sum::<f64>() / all.len().max(1) as f64;
        // A few costly worlds can lift the mean above nine of ten outcomes.
        Expected { mean, low: quantile(&all, 0.1).min(mean), high: quantile(&all, 0.9).max(mean) }
    }

    /// Whether the job ends in every world: where it does not, what was counted is no forecast.
    pub fn finishes(&self) -> bool {
        self.outcomes.iter().all(|outcome| outcome.finished)
    }

    /// The share of worlds in which the deadline is met.
    pub fn in_time(&self) -> f64 {
        self.share(|outcome| !outcome.late)
    }

    /// The share of worlds of which something holds.
    pub fn share(&self, of: impl Fn(&WorldOutcome) -> bool) -> f64 {
        self.outcomes.iter().filter(|outcome| of(outcome)).count() as f64 / self.outcomes.len().max(1) as f64
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
    pub fn forecast(&self, terms: &ForecastTerms) -> JobForecast {
        // The copies of a regime make decisions robust; a forecast is of the markets as they were recorded.
        let classes: Vec<&Class> = self.classes.iter().filter(|class| class.as_learnt).collect();
        let tick_hours = self.tick.0 as f64 / 3.6e6;
        let laws_at = |losses: &Losses| classes.iter().map(|class| Law::of(class, *losses, tick_hours)).collect();
        let laws: Vec<Vec<Law>> = terms.losses.dealt().iter().map(laws_at).collect();
        let mean = terms.mean_factor();
        let sum: f64 = classes.iter().map(|class| class.prior).sum();
        let priors: Vec<f64> = classes.iter().map(|class| class.prior / sum).collect();
        let worlds = (0..WORLDS).map(|world| {
            // Classes are dealt out in even shares, not drawn: their mixture is what most of the band comes from.
            let class = pick(&priors, (world as f64 + 0.5) / WORLDS as f64);
            let laws = &laws[world % laws.len()];
            let random = Random::of(world);
            let mut market = DrawnMarket { laws, priors: &priors, mixing: self.mixing, class, random };
            play_in_world(&terms.in_world(world, mean), self.tick.0 as f64, &mut market)
        });
        JobForecast { outcomes: worlds.collect() }
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

#[cfg(test)]
#[path = "forecast_tests.rs"]
mod tests;
