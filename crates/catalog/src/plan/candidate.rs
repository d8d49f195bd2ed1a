//! One way to run the job, with what it is expected to cost and to take.

use super::evidence::Evidence;
use super::parts::Parts;
use super::why::Why;
use crate::knowledge::Precision;
use crate::offer::Offer;
use crate::words::Band;
use windfall_core::market::foresight::Expected;
use windfall_core::{Market, NanoUsd, Span};

/// Where the course of a market is taken from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Basis {
    /// This very market was recorded.
    Recorded,
    /// The cloud publishes how often it takes this type back in this region.
    Band(Band),
    /// Nobody says.
    Assumed,
    /// It is not taken away: nothing to assume.
    Firm,
}

impl Basis {
    /// The word for programs and people.
    pub fn word(self) -> &'static str {
        match self {
            Basis::Recorded => "recorded",
            Basis::Band(_) => "band",
            Basis::Assumed => "assumed",
            Basis::Firm => "firm",
        }
    }
}

/// How often to save, and why.
#[derive(Clone, Debug, PartialEq)]
pub struct Interval {
    pub every: Span,
    pub why: String,
}

/// One way to run the job.
#[derive(Clone, Debug)]
pub struct Candidate<'c> {
    /// What is bought.
    pub offer: Offer<'c>,
    pub market: Market,
    pub nodes: u32,
    /// What a node costs an hour, discounts taken off; nothing for what is paid already.
    pub price: NanoUsd,
    /// What a node costs on demand when spot is not to be had.
    pub firm_price: Option<NanoUsd>,
    /// Running time that the work needs.
    pub need: Span,
    pub evidence: Evidence,
    /// The same, for people.
    pub how: String,
    /// Share of perfect scaling.
    pub efficiency: f64,
    /// Another precision than the one the work was stated in.
    pub precision: Option<Precision>,
    /// Dollars.
    pub cost: Expected,
    /// Hours from the beginning to the end.
    pub hours: Expected,
    /// Chance to make the deadline, where there is one.
    pub in_time: Option<f64>,
    /// Chance to cost more than the budget.
    pub over_budget: Option<f64>,
    pub interruptions: f64,
    /// How often to save; none where nothing is taken away.
    pub interval: Option<Interval>,
    /// Where the course of the market is taken from.
    pub basis: Basis,
    /// The cost in its parts.
    pub parts: Parts,
    /// What was added for its unknown parts when it was ranked, at the dearest known rates; not in the cost.
    pub stand_in: NanoUsd,
    /// Until when a commitment covers it.
    pub committed_until: Option<String>,
    /// In how many regions the same can be had, this one among them.
    pub places: usize,
}

/// An offer that will not do.
#[derive(Clone, Debug)]
pub struct Rejected<'c> {
    pub offer: Offer<'c>,
    pub nodes: u32,
    pub why: Why,
}

/// The ways to run a job, ranked, and the offers that will not do.
#[derive(Clone, Debug, Default)]
pub struct Ranking<'c> {
    /// Cheapest first.
    pub candidates: Vec<Candidate<'c>>,
    /// What will not do.
    pub rejected: Vec<Rejected<'c>>,
    /// What would do and was dearer than all of the above: how many.
    pub dearer: usize,
    /// What was assumed, one line each.
    pub notes: Vec<String>,
}

impl Ranking<'_> {
    /// Reasons for which offers were rejected, as people read them, with how many each; the most frequent first.
    pub fn ruled_out(&self) -> Vec<(&'static str, usize)> {
        let mut reasons: Vec<(&'static str, usize)> = Vec::new();
        for reason in self.rejected.iter().map(|rejected| rejected.why.of_many()) {
            match reasons.iter_mut().find(|(known, _)| *known == reason) {
                Some((_, count)) => *count += 1,
                None => reasons.push((reason, 1)),
            }
        }
        reasons.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        reasons
    }

    /// The shortest running time among what is too slow for the deadline.
    pub fn fastest_too_slow(&self) -> Option<&Why> {
        let slow = self.rejected.iter().filter_map(|rejected| match &rejected.why {
            Why::TooSlow { takes } => Some((takes, &rejected.why)),
            _ => None,
        });
        slow.min_by_key(|(takes, _)| *takes).map(|(_, why)| why)
    }

    /// The best chance to make the deadline among what makes it too seldom.
    pub fn best_chance(&self) -> Option<f64> {
        let chances = self.rejected.iter().filter_map(|rejected| match &rejected.why {
            Why::MayMiss { chance } => Some(*chance),
            _ => None,
        });
        chances.max_by(f64::total_cmp)
    }

    /// Candidates that no other beats in both cost and time, fastest first. Times that differ by a hundredth count as equal.
    pub fn pareto(&self) -> Vec<usize> {
        let mut order: Vec<usize> = (0..self.candidates.len()).collect();
        let hours = |at: usize| self.candidates[at].hours.mean;
        let cost = |at: usize| self.candidates[at].cost.mean + self.candidates[at].stand_in.dollars();
        order.sort_by(|a, b| hours(*a).total_cmp(&hours(*b)).then_with(|| cost(*a).total_cmp(&cost(*b))));
        let as_fast = order.clone();
        let (mut seen, mut cheapest) = (0, f64::INFINITY);
        order.retain(|at| {
            while let Some(other) = as_fast.get(seen).filter(|other| hours(**other) <= hours(*at) * 1.01) {
                cheapest = cheapest.min(cost(*other));
                seen += 1;
            }
            cost(*at) <= cheapest
        });
        // Of several that cost the same the fastest is enough.
        order.dedup_by(|later, first| cost(*later) >= cost(*first) - 1e-9);
        order
    }
}
