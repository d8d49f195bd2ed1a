//! Asks the planner for the ways to run a job. Where there is none, says which constraint rules everything out.

use super::ask::Asked;
use super::shown::LINES;
use crate::args::{PlanChange, PlanGroup};
use windfall_catalog::plan::{Limit, Ranking, Why};
use windfall_catalog::{Catalog, Offer, Query, Wanted};
use windfall_core::english::counted;
use windfall_core::market::foresight::Model;
use windfall_server::client::{Code, Failure};

/// How many candidates a program is given.
const RECORDS: usize = 200;
/// Enough that every cloud is among them.
const EVERY: usize = 100_000;

/// The ranked ways to run the job; `many` for programs.
pub fn rank<'c>(catalog: &'c Catalog, asked: &Asked, args: &PlanChange, many: bool) -> Ranking<'c> {
    let limit = match (many, args.all || args.by.is_some(), args.limit) {
        (_, true, _) => Limit::Ways(EVERY),
        (true, _, limit) => Limit::Ways(limit.map_or(RECORDS, |limit| limit as usize)),
        // People see ways that differ only in their region as one line.
        (false, _, limit) => Limit::Types(limit.map_or(LINES, |limit| limit as usize)),
    };
    let mut ranking = catalog.plan(&asked.request, &Model::embedded(), limit);
    if args.by == Some(PlanGroup::Cloud) {
        let mut seen: Vec<&str> = Vec::new();
        ranking.candidates.retain(|candidate| {
            let fresh = !seen.contains(&candidate.offer.kind.cloud);
            seen.push(candidate.offer.kind.cloud);
            fresh
        });
    }
    ranking
}

/// The error when no offer will do: which constraint rules most of them out, and what to change.
pub fn nothing(catalog: &Catalog, asked: &Asked, ranking: &Ranking<'_>) -> Failure {
    let reasons = ranking.ruled_out();
    let said: Vec<String> =
        reasons.iter().map(|(reason, count)| format!("{} {reason}", counted(*count as u64, "offer"))).collect();
    let message = match said.is_empty() {
        false => format!("nothing can run {}: {}", asked.name, said.join(", ")),
        true => format!("nothing can run {}: no offer has what it asks for", asked.name),
    };
    let mut all = ranking.rejected.iter().map(|rejected| &rejected.why);
    let most = all.find(|why| reasons.first().is_some_and(|(reason, _)| why.of_many() == *reason));
    let hint = match (most, ranking.best_chance(), ranking.fastest_too_slow()) {
        (Some(Why::Commitment), ..) => {
            "say which commitments you hold in a file, and name it with --holdings; or --market spot,on-demand"
                .to_owned()
        }
        (Some(Why::AcceleratorMemory { .. }), ..) if !asked.request.accelerators.is_empty() => {
            let looked_at: Vec<&str> = asked.request.accelerators.iter().map(|asked| asked.family.as_str()).collect();
            format!("looked at as asked: {} only; name others, or more nodes", looked_at.join(", "))
        }
        (Some(Why::Budget { .. }), ..) => {
            let least = ranking.rejected.iter().filter_map(|rejected| match rejected.why {
                Why::Budget { cost } => Some(cost),
                _ => None,
            });
            format!("the cheapest is expected to cost {}", least.min().unwrap_or_default())
        }
        (_, Some(chance), _) => format!(
            "the best makes the deadline in {:.0} % of worlds, and 90 % are asked for; give it more time, nodes or other \
             accelerators",
            chance * 100.0
        ),
        (_, None, Some(why)) => format!("the fastest {why}; give it more time, nodes or other accelerators"),
        _ if ranking.rejected.is_empty() => match other_counts(catalog, asked) {
            counts if counts.is_empty() => "`windfall offers` shows what there is; ask for less".to_owned(),
            counts => format!("there it is sold as {}", counts.join(", ")),
        },
        _ => "ask for less, or see one type with --why TYPE".to_owned(),
    };
    Failure::new(Code::BadInput, message).hint(hint)
}

/// In which numbers the accelerators that were asked for are sold in the clouds and regions that were asked for.
fn other_counts(catalog: &Catalog, asked: &Asked) -> Vec<String> {
    let request = &asked.request;
    let any = |wanted: &Wanted| Wanted { count: None, ..wanted.clone() };
    let query = Query {
        accelerators: request.accelerators.iter().map(any).collect(),
        clouds: request.clouds.clone(),
        regions: request.regions.clone(),
        terms: request.terms.clone(),
        ..Query::default()
    };
    let found = catalog.search(&query);
    let named = |offer: &Offer<'_>| Some((offer.kind.accelerator?.to_owned(), offer.kind.count));
    let counts: std::collections::BTreeSet<_> = found.iter().filter_map(named).collect();
    counts.into_iter().take(6).map(|(family, count)| format!("{family}:{count}")).collect()
}
