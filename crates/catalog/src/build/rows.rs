//! What a reader of prices hands over, before anybody is said to have said it.

use crate::facts::{Facts, SourceId, TypeId};
use crate::words::Term;
use std::collections::{BTreeMap, BTreeSet};
use windfall_core::NanoUsd;

/// Prices, and where types are sold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rows {
    prices: Vec<(TypeId, String, Option<String>, Term, NanoUsd)>,
    pub(super) sold: BTreeMap<(TypeId, String), BTreeSet<String>>,
}

impl Rows {
    /// One price.
    pub fn add(&mut self, kind: TypeId, region: &str, zone: Option<&str>, term: Term, price: NanoUsd) {
        self.prices.push((kind, region.to_owned(), zone.map(str::to_owned), term, price));
    }

    /// Types, regions, terms and prices.
    pub fn prices(&self) -> impl Iterator<Item = (TypeId, &str, Term, NanoUsd)> {
        self.prices.iter().map(|(kind, region, _, term, price)| (*kind, region.as_str(), *term, *price))
    }

    /// Removes the on-demand prices of given types. Returns the types and regions they were of.
    pub fn withhold(&mut self, kinds: &BTreeSet<TypeId>) -> Vec<(TypeId, String)> {
        let withheld =
            |row: &(TypeId, String, Option<String>, Term, NanoUsd)| row.3 == Term::OnDemand && kinds.contains(&row.0);
        let gone = self.prices.iter().filter(|row| withheld(row)).map(|row| (row.0, row.1.clone())).collect();
        self.prices.retain(|row| !withheld(row));
        gone
    }

    /// How many prices.
    pub fn len(&self) -> usize {
        self.prices.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.prices.is_empty()
    }

    /// Regions and terms that are priced.
    pub fn regions(&self) -> impl Iterator<Item = (&str, Term)> {
        self.prices.iter().map(|(_, region, _, term, _)| (region.as_str(), *term))
    }

    /// Makes them facts.
    pub fn tell(&self, facts: &mut Facts, source: SourceId) {
        for ((kind, region), zones) in &self.sold {
            zones.iter().for_each(|zone| facts.sold_in(*kind, region, zone));
        }
        for (kind, region, zone, term, price) in &self.prices {
            facts.price(*kind, region, zone.as_deref(), *term, *price, source);
        }
    }
}
