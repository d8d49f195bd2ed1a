//! What a job would cost, everywhere: ranked ways to run it, what will not do, and why.

mod ask;
mod compare;
mod page;
mod picture;
mod record;
mod table;
mod world;

pub use compare::compare;
pub use world::replayed;

use super::Here;
use super::facts::catalog;
use crate::args::{PlanArgs, PlanChange, PlanGroup};
use crate::exit::{Code, Failure};
use ask::Asked;
use windfall_catalog::Catalog;
use windfall_catalog::plan::{Candidate, Plan};
use windfall_core::market::foresight::Model;

/// Candidates that people read.
const LINES: usize = 12;
/// Candidates for programs.
const RECORDS: usize = 200;
/// Enough that every cloud is among them.
const EVERY: usize = 100_000;

pub fn plan(here: &Here, args: &PlanArgs) -> Result<Code, Failure> {
    let (catalog, market) = for_sale(here, &args.change)?;
    let asked = Asked { market, ..ask::asked(here, &catalog, args.file.as_deref(), &args.change)? };
    let plan = make(&catalog, &asked, &args.change, here.json || args.why.is_some());
    if plan.candidates.is_empty() && args.why.is_none() {
        return Err(nothing(&asked, &plan));
    }
    if let Some(path) = &args.svg {
        let picture = picture::svg(&asked, &plan);
        std::fs::write(path, picture).map_err(|error| {
            Failure::new(Code::BadInput, format!("{}: {error}", path.display())).hint("name a file that can be written")
        })?;
    }
    if let Some(kind) = &args.why {
        print!("{}", table::why(&catalog, &asked, &plan, kind)?);
    } else if here.json {
        println!("{}", record::plan(&asked, &plan));
    } else if args.md {
        print!("{}", page::page(&catalog, &asked, &plan));
    } else {
        print!("{}", table::plan(&asked, &plan, &args.change));
    }
    Ok(Code::Done)
}

/// What there is to choose from: all of the catalogue, or the replayed market and its name.
fn for_sale(here: &Here, args: &PlanChange) -> Result<(Catalog, Option<String>), Failure> {
    if !args.here {
        return Ok((catalog(here)?, None));
    }
    replayed(here).map(|(catalog, name)| (catalog, Some(name)))
}

/// The plan.
fn make<'c>(catalog: &'c Catalog, asked: &Asked, args: &PlanChange, many: bool) -> Plan<'c> {
    // People see ways that differ only in their region as one line.
    let limit = match (many, args.all || args.by.is_some(), args.limit) {
        (_, true, _) => EVERY,
        (true, _, limit) => limit.unwrap_or(RECORDS).max(1),
        (false, _, limit) => limit.unwrap_or(LINES).max(1).saturating_mul(8),
    };
    let mut plan = catalog.plan(&asked.request, &Model::embedded(), limit);
    if args.by == Some(PlanGroup::Cloud) {
        let mut seen: Vec<&str> = Vec::new();
        plan.candidates.retain(|candidate| {
            let fresh = !seen.contains(&candidate.offer.kind.cloud);
            seen.push(candidate.offer.kind.cloud);
            fresh
        });
    }
    plan
}

/// Says which constraint kills everything.
fn nothing(asked: &Asked, plan: &Plan<'_>) -> Failure {
    let message = match plan.ruled_out().first() {
        Some((reason, count)) => format!("nothing can run {}: {count} offers, {reason}", asked.name),
        None => format!("nothing can run {}: no offer has what it asks for", asked.name),
    };
    let hint = match plan.fastest_too_slow() {
        Some(why) => format!("the fastest {why}; give it more time, nodes or other accelerators"),
        None if plan.rejected.is_empty() => "`windfall offers` shows what there is; ask for less".to_owned(),
        None => "ask for less, or see one type with --why TYPE".to_owned(),
    };
    Failure::new(Code::BadInput, message).hint(hint)
}

/// `2 × p4d.24xlarge`.
fn machines(candidate: &Candidate<'_>) -> String {
    let times = if candidate.nodes > 1 { format!("{} × ", candidate.nodes) } else { String::new() };
    let precision = candidate.precision.map(|precision| format!(" {}", precision.word())).unwrap_or_default();
    format!("{times}{}{precision}", candidate.offer.kind.name)
}
