//! The cheapest of many ways, without weighing them all.

use super::weigh::Rough;
use crate::knowledge::Precision;
use crate::words::Term;
use std::collections::{BTreeMap, BTreeSet};
use windfall_core::NanoUsd;

/// How much of a plan is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// So many ways.
    Ways(usize),
    /// So many that differ in more than their region, each with all of its regions that were looked at.
    Types(usize),
}

/// What is counted against the limit: an instance type on a market, committed to or not, on so many nodes, at a
/// precision; and its number in the list where every way counts.
type Key = (u32, Term, bool, u32, Option<Precision>, Option<usize>);

pub(super) struct Best {
    limit: Limit,
    /// The lowest mean of each key that is among the best, lowest first.
    best: BTreeSet<(NanoUsd, Key)>,
    of_key: BTreeMap<Key, NanoUsd>,
    weighed: Vec<(NanoUsd, usize)>,
    /// In how many ways each type can be had in each region.
    places: BTreeMap<Key, BTreeMap<String, usize>>,
}

impl Best {
    pub fn new(limit: Limit, rough: &[Rough<'_>]) -> Best {
        let mut places: BTreeMap<Key, BTreeMap<String, usize>> = BTreeMap::new();
        for way in rough {
            *places.entry(of_type(way)).or_default().entry(way.offer.region.to_owned()).or_default() += 1;
        }
        Best { limit, best: BTreeSet::new(), of_key: BTreeMap::new(), weighed: Vec::new(), places }
    }

    fn count(&self) -> usize {
        match self.limit {
            Limit::Ways(count) | Limit::Types(count) => count.max(1),
        }
    }

    fn key(&self, at: usize, way: &Rough<'_>) -> Key {
        let (kind, term, committed, nodes, precision, _) = of_type(way);
        (kind, term, committed, nodes, precision, matches!(self.limit, Limit::Ways(_)).then_some(at))
    }

    /// Whether as many as are wanted are cheaper than this.
    pub fn is_full_below(&self, least: f64) -> bool {
        let worst = self.best.last().filter(|_| self.best.len() >= self.count());
        worst.is_some_and(|(mean, _)| least > mean.dollars())
    }

    pub fn add(&mut self, at: usize, way: &Rough<'_>, mean: f64) {
        let mean = NanoUsd::from_dollars(mean);
        let key = self.key(at, way);
        self.weighed.push((mean, at));
        let known = self.of_key.get(&key).copied();
        if known.is_some_and(|known| known <= mean) {
            return;
        }
        if let Some(known) = known {
            self.best.remove(&(known, key));
        }
        self.of_key.insert(key, mean);
        self.best.insert((mean, key));
        if self.best.len() > self.count() {
            self.best.pop_last();
        }
    }

    /// Takes a way back that was rejected after all.
    pub fn reject(&mut self, way: &Rough<'_>) {
        if let Some(places) = self.places.get_mut(&of_type(way))
            && let Some(left) = places.get_mut(way.offer.region)
        {
            *left -= 1;
            if *left == 0 {
                places.remove(way.offer.region);
            }
        }
    }

    /// The ways that are among the best, cheapest first, each with the number of regions where the same can be had;
    /// and how many that were weighed are dearer.
    pub fn chosen<'r, 'c>(mut self, rough: &'r [Rough<'c>]) -> (Vec<(&'r Rough<'c>, usize)>, usize) {
        let mut weighed = std::mem::take(&mut self.weighed);
        let all = weighed.len();
        let best: BTreeSet<Key> = self.best.iter().map(|(_, key)| *key).collect();
        weighed.retain(|(_, at)| best.contains(&self.key(*at, &rough[*at])));
        weighed.sort_by_key(|(mean, at)| (*mean, rough[*at].need.span, *at));
        let dearer = all - weighed.len();
        let with_places = |at: usize| (&rough[at], self.places.get(&of_type(&rough[at])).map_or(1, BTreeMap::len));
        (weighed.into_iter().map(|(_, at)| with_places(at)).collect(), dearer)
    }
}

fn of_type(way: &Rough<'_>) -> Key {
    (way.offer.kind.at, way.offer.term, way.committed.is_some(), way.nodes, way.need.precision, None)
}
