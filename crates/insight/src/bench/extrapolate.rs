//! From a short run to a long one on more nodes. What is left of the speed at each doubling is what others measured: the share of
//! peak that training kept when the batch grew with the accelerators (weak), or the time to quality when the work stayed the same
//! (strong, MLPerf). The band is as wide as predictions for a model that was left out were wrong.

use super::result::Run;
use serde::Serialize;
use windfall_catalog::{Catalog, Throughput};

/// The part of left-out predictions that the band is made to hold.
const HELD: f64 = 0.9;
/// Pairs of one accelerator that are enough to go by it alone.
const ENOUGH: usize = 12;
/// The least width of a band where nobody repeated the run.
const UNREPEATED: f64 = 0.05;

/// What stays the same when nodes are added.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Scaling {
    /// The batch of each accelerator: the whole batch grows, and fewer steps do the work.
    Weak,
    /// The work until a quality is reached, with all that a larger batch costs.
    Strong,
}

/// What is kept at each doubling.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Kept {
    pub middle: f64,
    pub low: f64,
    pub high: f64,
    /// Measured pairs that this rests on, and of how many models or benchmarks.
    pub pairs: usize,
    pub groups: usize,
    /// The accelerator, or none where all of the table's count.
    pub accelerator: Option<String>,
    /// Pairs of left-out models that lay within the band that was made without them, 0 to 1.
    pub covered: f64,
}

/// One number of nodes.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Estimate {
    pub nodes: u32,
    pub accelerators: u32,
    /// Of the speed that as many times one node would have.
    pub efficiency: f64,
    pub hours: f64,
    pub hours_low: f64,
    pub hours_high: f64,
    pub usd: Option<f64>,
    pub usd_low: Option<f64>,
    pub usd_high: Option<f64>,
}

/// A pair of measurements that differ in how many accelerators there were.
#[derive(Clone, Debug)]
struct Pair {
    group: String,
    accelerator: String,
    /// The logarithm of what is kept at each doubling.
    kept: f64,
}

/// What is kept at each doubling on an accelerator; none where nobody measured anything.
pub fn kept(catalog: &Catalog, accelerator: &str, scaling: Scaling) -> Option<Kept> {
    let all = pairs(catalog.throughput(), scaling);
    let of_it: Vec<Pair> = all.iter().filter(|pair| pair.accelerator == accelerator).cloned().collect();
    let groups = |pairs: &[Pair]| {
        let mut names: Vec<&str> = pairs.iter().map(|pair| pair.group.as_str()).collect();
        names.sort_unstable();
        names.dedup();
        names.len()
    };
    let own = of_it.len() >= ENOUGH && groups(&of_it) >= 2;
    let used = if own { of_it } else { all };
    let residuals = residuals(&used);
    if residuals.is_empty() {
        return None;
    }
    let half = quantile(residuals.iter().map(|(residual, _)| residual.abs()).collect(), HELD);
    let middle = quantile(used.iter().map(|pair| pair.kept).collect(), 0.5);
    let covered = validated(&used);
    Some(Kept {
        middle: middle.exp(),
        low: (middle - half).exp(),
        high: (middle + half).exp().min(1.05),
        pairs: used.len(),
        groups: groups(&used),
        accelerator: own.then(|| accelerator.to_owned()),
        covered,
    })
}

/// How wrong each pair is predicted from the pairs of other groups, and its group.
fn residuals(pairs: &[Pair]) -> Vec<(f64, &str)> {
    let predicted = |group: &str| {
        let others: Vec<f64> = pairs.iter().filter(|pair| pair.group != group).map(|pair| pair.kept).collect();
        (!others.is_empty()).then(|| quantile(others, 0.5))
    };
    pairs.iter().filter_map(|pair| Some((pair.kept - predicted(&pair.group)?, pair.group.as_str()))).collect()
}

/// The share of pairs that lie within the band which the other groups alone make.
fn validated(pairs: &[Pair]) -> f64 {
    let mut held = 0usize;
    for pair in pairs {
        let others: Vec<Pair> = pairs.iter().filter(|other| other.group != pair.group).cloned().collect();
        let residuals: Vec<f64> = residuals(&others).iter().map(|(residual, _)| residual.abs()).collect();
        if residuals.is_empty() {
            continue;
        }
        let middle = quantile(others.iter().map(|other| other.kept).collect(), 0.5);
        let half = quantile(residuals, HELD);
        held += usize::from((pair.kept - middle).abs() <= half);
    }
    held as f64 / pairs.len().max(1) as f64
}

fn pairs(table: &Throughput, scaling: Scaling) -> Vec<Pair> {
    let mut found = Vec::new();
    match scaling {
        Scaling::Weak => {
            for few in &table.mfu {
                let alike = |many: &&windfall_catalog::Mfu| {
                    (&many.model, many.sequence, many.precision, &many.accelerator, many.network_gbps)
                        == (&few.model, few.sequence, few.precision, &few.accelerator, few.network_gbps)
                        && many.count >= 2 * few.count
                };
                for many in table.mfu.iter().filter(alike) {
                    let (accelerator, ratio) = (&few.accelerator, f64::from(many.mfu) / f64::from(few.mfu));
                    push(&mut found, &few.model, accelerator, (few.count, many.count), ratio);
                }
            }
        }
        Scaling::Strong => {
            let times = &table.training_times;
            for few in times {
                let alike = |many: &&windfall_catalog::TrainingTime| {
                    (&many.benchmark, &many.round, &many.accelerator) == (&few.benchmark, &few.round, &few.accelerator)
                        && many.count >= 2 * few.count
                };
                for many in times.iter().filter(alike) {
                    let work = |time: &windfall_catalog::TrainingTime| f64::from(time.minutes) * f64::from(time.count);
                    push(&mut found, &few.benchmark, &few.accelerator, (few.count, many.count), work(few) / work(many));
                }
            }
        }
    }
    found
}

fn push(found: &mut Vec<Pair>, group: &str, accelerator: &str, counts: (u32, u32), ratio: f64) {
    let doublings = (f64::from(counts.1) / f64::from(counts.0.max(1))).log2();
    if ratio > 0.0 && ratio.is_finite() && doublings >= 1.0 {
        found.push(Pair { group: group.to_owned(), accelerator: accelerator.to_owned(), kept: ratio.ln() / doublings });
    }
}

fn quantile(mut values: Vec<f64>, share: f64) -> f64 {
    values.sort_by(f64::total_cmp);
    let at = (share * (values.len() as f64 - 1.0)).ceil() as usize;
    values.get(at.min(values.len().saturating_sub(1))).copied().unwrap_or(0.0)
}

/// What the whole work takes: as many steps as the run's own are of that work, on so many nodes with so many accelerators.
pub fn extrapolate(
    run: &Run,
    kept: &Kept,
    steps: u64,
    nodes: &[u32],
    per_node: u32,
    usd_an_hour: Option<f64>,
) -> Vec<Estimate> {
    let Some(speed) = run.steps_per_second else { return Vec::new() };
    let slow = run.steps_per_second_low.unwrap_or(speed * (1.0 - UNREPEATED)).min(speed);
    let fast = run.steps_per_second_high.unwrap_or(speed * (1.0 + UNREPEATED)).max(speed);
    let estimate = |nodes: u32| {
        let accelerators = nodes.saturating_mul(per_node);
        let times = f64::from(accelerators) / f64::from(run.count.max(1));
        let doublings = times.log2();
        // Fewer accelerators than were measured: nothing is lost, and nothing won for sure.
        let left = |each: f64| if doublings > 0.0 { each.powf(doublings) } else { 1.0 };
        let hours = |speed: f64, each: f64| steps as f64 / (speed * times * left(each)) / 3_600.0;
        let (middle, low, high) = (hours(speed, kept.middle), hours(fast, kept.high), hours(slow, kept.low));
        let usd = |hours: f64| usd_an_hour.map(|usd| usd * hours * f64::from(accelerators));
        Estimate {
            nodes,
            accelerators,
            efficiency: left(kept.middle),
            hours: middle,
            hours_low: low,
            hours_high: high,
            usd: usd(middle),
            usd_low: usd(low),
            usd_high: usd(high),
        }
    };
    nodes.iter().copied().map(estimate).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The band is made of the residuals of models that were left out; how many of them it really holds is measured by
    /// making it again without each.
    #[test]
    fn bands_hold_what_others_measured() {
        let catalog = Catalog::embedded();
        for (accelerator, scaling) in [
            ("H100", Scaling::Weak),
            ("A100-80GB", Scaling::Weak),
            ("H100", Scaling::Strong),
            ("A100-80GB", Scaling::Strong),
            ("L4", Scaling::Strong),
        ] {
            let kept = kept(&catalog, accelerator, scaling).expect("it was measured");
            println!("{accelerator} {scaling:?}: {kept:?}");
            assert!(kept.covered >= 0.8, "{accelerator} {scaling:?}: {kept:?}");
            assert!(kept.low <= kept.middle && kept.middle <= kept.high && kept.middle > 0.5, "{kept:?}");
        }
    }

    #[test]
    fn twice_the_nodes_take_a_bit_more_than_half_the_time() {
        let kept = Kept { middle: 0.9, low: 0.8, high: 1.0, pairs: 2, groups: 2, accelerator: None, covered: 1.0 };
        let run = Run { count: 8, steps_per_second: Some(2.0), ..Run::default() };
        let estimates = extrapolate(&run, &kept, 7_200, &[1, 2, 4], 8, Some(2.0));
        let hours: Vec<f64> = estimates.iter().map(|one| one.hours).collect();
        assert!((hours[0] - 1.0).abs() < 1e-9 && (hours[1] - 0.5 / 0.9).abs() < 1e-9, "{hours:?}");
        assert!((hours[2] - 0.25 / 0.81).abs() < 1e-9, "{hours:?}");
        assert!(estimates.iter().all(|one| one.hours_low < one.hours && one.hours < one.hours_high), "{estimates:?}");
        assert_eq!(estimates[0].usd, Some(16.0));
    }
}
