//! Ranks beside each other: which one the others wait for, and whether it is always the same.
//!
//! A collective ends for all ranks at once, so a rank that comes early waits in it. The rank with the least communication came
//! last; what the others have more than it is waiting. Whether the same rank computes longest in every step tells a slow
//! machine or an uneven split from batches that happen to be uneven.

use crate::report::{BetweenRanks, Rank, Straggler};
use std::collections::BTreeMap;

/// A rank that computes this much longer than the median holds up the others.
const STRAGGLES: f64 = 5.0;

/// Ranks whose computation takes clearly longer than the median rank's, slowest first.
pub fn stragglers(ranks: &[Rank]) -> Vec<Straggler> {
    let mut times: Vec<f64> = ranks.iter().map(|rank| rank.compute_us).collect();
    times.sort_by(f64::total_cmp);
    // With an even number of ranks the lower middle: of two, the slower one is the straggler.
    let Some(median) = times.get(times.len().saturating_sub(1) / 2).copied().filter(|time| *time > 0.0) else {
        return Vec::new();
    };
    let of = |rank: &Rank| Straggler { rank: rank.rank, slower_percent: 100.0 * (rank.compute_us / median - 1.0) };
    let mut found: Vec<Straggler> = ranks.iter().map(of).filter(|one| one.slower_percent >= STRAGGLES).collect();
    found.sort_by(|one, other| other.slower_percent.total_cmp(&one.slower_percent));
    found.truncate(8);
    found
}

/// How ranks differ; none where there is only one.
pub fn between(ranks: &[Rank]) -> Option<BetweenRanks> {
    if ranks.len() < 2 {
        return None;
    }
    let waiting = waiting(ranks);
    let others = ranks.len() as f64 - 1.0;
    let longest = ranks.iter().map(|rank| rank.kernel_time_us).fold(0.0, f64::max);
    let (steps, spreads, slowest) = by_step(ranks);
    let most = slowest.iter().max_by_key(|(rank, count)| (**count, std::cmp::Reverse(**rank)));
    Some(BetweenRanks {
        waiting_percent: waiting.map(|(_, percent, _)| percent),
        waiting_us: waiting.map(|(us, ..)| us),
        saves_percent: waiting.map(|(us, ..)| 100.0 * us / others / longest),
        last_rank: waiting.map(|(.., rank)| rank),
        steps,
        spread_percent: spreads.get(spreads.len() / 2).copied(),
        slowest_rank: most.map(|(rank, _)| *rank),
        slowest_steps: most.map_or(0, |(_, count)| *count),
    })
}

/// The time of all ranks that is waiting in collectives, as a share too, and the rank that all wait for.
fn waiting(ranks: &[Rank]) -> Option<(f64, f64, u64)> {
    let last = ranks.iter().min_by(|one, other| one.communication_us.total_cmp(&other.communication_us))?;
    if last.communication_us <= 0.0 {
        return None;
    }
    let all: f64 = ranks.iter().map(|rank| rank.kernel_time_us).sum();
    let waited: f64 = ranks.iter().map(|rank| rank.communication_us - last.communication_us).sum();
    (all > 0.0).then(|| (waited, 100.0 * waited / all, last.rank))
}

/// How many steps several ranks have, how far ranks are apart in each, in order, and how often each rank is slowest.
fn by_step(ranks: &[Rank]) -> (u64, Vec<f64>, BTreeMap<u64, u64>) {
    let mut steps: BTreeMap<u64, Vec<(f64, u64)>> = BTreeMap::new();
    for rank in ranks {
        for step in &rank.step_times {
            steps.entry(step.number).or_default().push((step.kernels_us, rank.rank));
        }
    }
    steps.retain(|_, times| times.len() > 1);
    let (mut spreads, mut slowest) = (Vec::new(), BTreeMap::new());
    for times in steps.values_mut() {
        times.sort_by(|one, other| one.0.total_cmp(&other.0).then(one.1.cmp(&other.1)));
        if let (Some((fastest, _)), Some((slow, rank))) = (times.first(), times.last())
            && *fastest > 0.0
        {
            spreads.push(100.0 * (slow / fastest - 1.0));
            *slowest.entry(*rank).or_default() += 1;
        }
    }
    spreads.sort_by(f64::total_cmp);
    (steps.len() as u64, spreads, slowest)
}
