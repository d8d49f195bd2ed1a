//! A plan as a page for a proposal or a pull request.

use super::ask::Asked;
use super::shown::{by_type, chance, cost, dollars, machines, market, notes};
use crate::age::{self, Today};
use crate::show::{usd, usd_between};
use std::fmt::Write as _;
use windfall_catalog::Catalog;
use windfall_catalog::plan::Ranking;

/// Alternatives on the page.
const ALTERNATIVES: usize = 8;

pub fn page(catalog: &Catalog, asked: &Asked, ranking: &Ranking<'_>) -> String {
    let mut text = format!("# Compute plan: {}\n\n", asked.name);
    let Some(best) = ranking.candidates.first() else { return text };
    let today = Today::now();
    let deadline = asked.deadline.map(|deadline| format!(" within {deadline}")).unwrap_or_default();
    let _ = writeln!(
        text,
        "**Expected cost {}** (eight of ten outcomes between {} and {}), expected time {:.1} h{deadline}, on {} in {} {} ({}).\n",
        cost(best, today),
        usd(best.cost.low),
        usd(best.cost.high),
        best.hours.mean,
        machines(best),
        best.offer.kind.cloud,
        best.offer.region,
        market(best).replace('*', "\\*"),
    );
    if let Some(in_time) = best.in_time {
        let _ = writeln!(text, "Chance to make the deadline: {}.\n", chance(in_time));
    }
    if let Some(over) = best.over_budget {
        let _ = writeln!(text, "Chance to cost more than the budget: {}.\n", chance(over));
    }
    let _ = writeln!(text, "| part | cost |\n|---|---:|");
    for (name, part) in best.parts.each() {
        let _ = writeln!(text, "| {} | {} |", name.replace('_', " "), part.map_or("unknown".to_owned(), dollars));
    }
    let _ = writeln!(text, "| **total of what is known** | **{}** |\n", cost(best, today));
    let _ = writeln!(text, "## Alternatives\n");
    let (head, rule) = if asked.deadline.is_some() { (" in time |", "---:|") } else { ("", "") };
    let _ = writeln!(text, "| cloud | region | instances | market | cost | eight of ten | hours |{head}");
    let _ = writeln!(text, "|---|---|---|---|---:|---:|---:|{rule}");
    let rows: Vec<_> = by_type(ranking).into_iter().take(ALTERNATIVES).collect();
    for row in &rows {
        let in_time = row.in_time.map(|share| format!(" {} |", chance(share))).unwrap_or_default();
        let _ = writeln!(
            text,
            "| {} | {} | {} | {} | {} | {} | {:.1} |{in_time}",
            row.offer.kind.cloud,
            row.offer.region,
            machines(row),
            market(row).replace('*', "\\*"),
            cost(row, today),
            usd_between(row.cost.low, row.cost.high, '–'),
            row.hours.mean,
        );
    }
    let _ = writeln!(text, "\n## Assumptions\n");
    let _ =
        writeln!(text, "- running time: {:.1} h, {} ({})", best.need.0 as f64 / 3.6e6, best.how, best.evidence.word());
    if let Some(interval) = &best.interval {
        let _ = writeln!(text, "- a checkpoint every {}: {}", interval.every, interval.why);
    }
    let _ = writeln!(
        text,
        "- price: {} of {}; course of the market: {}",
        best.offer.source.name,
        best.offer.source.as_of,
        best.basis.word()
    );
    if let Some(old) = age::note(today, ranking.candidates.iter().map(|row| row.offer.source)) {
        let _ = writeln!(text, "- {old}");
    }
    if let Some(market) = &asked.market {
        let _ = writeln!(text, "- market: {market}");
    }
    for note in notes(asked, ranking, &rows) {
        let _ = writeln!(text, "- {}", note.replace('*', "\\*"));
    }
    let _ = writeln!(
        text,
        "\nMade by `windfall plan --md` from catalogue {}.",
        &catalog.digest()[..12.min(catalog.digest().len())]
    );
    text
}
