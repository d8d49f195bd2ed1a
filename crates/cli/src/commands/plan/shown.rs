//! What people are shown of a ranking, in a table or on a page: which rows, and how a figure is written.

use super::ask::Asked;
use crate::age::Today;
use crate::show::usd;
use windfall_catalog::plan::{Basis, Candidate, Ranking};
use windfall_core::{Market, NanoUsd};

/// How many candidates people are shown.
pub const LINES: usize = 12;

/// Candidates that differ only in their region are one line: the cheapest speaks for all.
pub fn by_type<'p, 'c>(ranking: &'p Ranking<'c>) -> Vec<&'p Candidate<'c>> {
    let mut seen = std::collections::BTreeSet::new();
    let fresh = |row: &&Candidate<'c>| {
        let kind = &row.offer.kind;
        seen.insert((kind.cloud, kind.name, row.market, row.nodes, row.precision))
    };
    ranking.candidates.iter().filter(fresh).collect()
}

/// `2 × p4d.24xlarge`.
pub fn machines(candidate: &Candidate<'_>) -> String {
    let times = if candidate.nodes > 1 { format!("{} × ", candidate.nodes) } else { String::new() };
    let precision = candidate.precision.map(|precision| format!(" {}", precision.word())).unwrap_or_default();
    format!("{times}{}{precision}", candidate.offer.kind.name)
}

/// A share of worlds for people. There are too few worlds to tell 100 % from 99 %.
pub fn chance(share: f64) -> String {
    match (share * 100.0).round() as i64 {
        100 => ">99 %".to_owned(),
        0 => "<1 %".to_owned(),
        percent => format!("{percent} %"),
    }
}

/// The expected cost: `!` when its price is old, `+?` when a part of it is unknown.
pub fn cost(row: &Candidate<'_>, today: Today) -> String {
    let open = if row.stand_in.0 > 0 { "+?" } else { "" };
    format!("{}{open}", today.marked(usd(row.cost.mean), row.offer.source))
}

/// `spot*` where nobody says how often it is taken back.
pub fn market(row: &Candidate<'_>) -> String {
    match (row.market, row.basis) {
        (Market::Spot, Basis::Assumed) => "spot*".to_owned(),
        (market, _) => market.to_string(),
    }
}

/// A price for people.
pub fn dollars(price: NanoUsd) -> String {
    price.to_string()
}

/// What was assumed of these rows.
pub fn notes<'p>(asked: &'p Asked, ranking: &'p Ranking<'_>, rows: &[&Candidate<'_>]) -> impl Iterator<Item = &'p str> {
    let any = |of: fn(&Candidate<'_>) -> bool| rows.iter().any(|row| of(row));
    let star = any(|candidate| candidate.basis == Basis::Assumed)
        .then_some("spot* is taken back as often as is assumed: nobody publishes how often");
    let open = any(|candidate| candidate.stand_in.0 > 0).then_some(
        "a cost with +? lacks a part that nobody can price; it is ranked as if that cost the dearest known rate",
    );
    star.into_iter().chain(open).chain(asked.notes.iter().chain(&ranking.notes).map(String::as_str))
}
