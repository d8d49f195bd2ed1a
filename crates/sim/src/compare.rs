//! Many jobs under many policies, side by side and in parallel.

use crate::course::{Course, Terms};
use crate::omniscient::least_cost;
use crate::play::{Played, Player, play};
use crate::whole::play_whole;
use std::sync::atomic::{AtomicUsize, Ordering};
use windfall_core::NanoUsd;

/// A job on a stretch of market.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// The market.
    pub course: Course,
    /// The job.
    pub terms: Terms,
    /// For people: which file, where it begins.
    pub name: String,
}

/// How one policy did.
#[derive(Clone, Debug, PartialEq)]
pub struct PolicyResult {
    /// The policy.
    pub name: String,
    /// Every scenario, in order.
    pub played: Vec<Played>,
}

impl PolicyResult {
    /// The average cost in dollars.
    pub fn mean_cost(&self) -> f64 {
        mean(self.played.iter().map(|played| played.cost.dollars()))
    }

    /// Scenarios that ended late.
    pub fn late(&self) -> usize {
        self.played.iter().filter(|played| played.late).count()
    }
}

/// The average of some numbers; zero of none.
pub fn mean(values: impl ExactSizeIterator<Item = f64>) -> f64 {
    let count = values.len();
    if count == 0 { 0.0 } else { values.sum::<f64>() / count as f64 }
}

/// Up to so many runs are played by the whole brain; more, on the fast path, which decides the same.
const WHOLE_RUNS: usize = 32;

/// Plays every scenario under every policy, and says how many are done after each one.
pub fn compare(
    scenarios: &[Scenario],
    players: &[Player],
    threads: usize,
    done: &(dyn Fn(usize) + Sync),
) -> Vec<PolicyResult> {
    let few = scenarios.len() * players.len() <= WHOLE_RUNS;
    let play = if few { play_whole } else { play };
    let rows = in_parallel(scenarios, threads, done, |scenario| {
        players.iter().map(|player| play(player, &scenario.course, &scenario.terms)).collect::<Vec<_>>()
    });
    let column = |number: usize| rows.iter().map(|row| row[number].clone()).collect();
    let standing =
        |(number, player): (usize, &Player)| PolicyResult { name: player.name.clone(), played: column(number) };
    players.iter().enumerate().map(standing).collect()
}

/// The least that each scenario could have cost.
pub fn optima(scenarios: &[Scenario], threads: usize, done: &(dyn Fn(usize) + Sync)) -> Vec<Option<NanoUsd>> {
    in_parallel(scenarios, threads, done, |scenario| least_cost(&scenario.course, &scenario.terms))
}

/// Results in the order of the items, whatever the order in which threads take them.
fn in_parallel<I: Sync, R: Send>(
    items: &[I],
    threads: usize,
    done: &(dyn Fn(usize) + Sync),
    work: impl Fn(&I) -> R + Sync,
) -> Vec<R> {
    let (next, finished) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let mut results: Vec<(usize, R)> = std::thread::scope(|scope| {
        let spawn = |_| {
            scope.spawn(|| {
                let mut mine = Vec::new();
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    let Some(item) = items.get(number) else { return mine };
                    mine.push((number, work(item)));
                    done(finished.fetch_add(1, Ordering::Relaxed) + 1);
                }
            })
        };
        let workers: Vec<_> = (0..threads.max(1)).map(spawn).collect();
        workers.into_iter().flat_map(|worker| worker.join().expect("a policy does not panic")).collect()
    });
    results.sort_by_key(|(number, _)| *number);
    results.into_iter().map(|(_, result)| result).collect()
}
