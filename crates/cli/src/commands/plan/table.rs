//! A plan for people at a terminal.

use super::ask::Asked;
use super::picture;
use super::shown::{LINES, by_type, chance, cost, dollars, machines, market, notes};
use crate::age::{self, Today};
use crate::args::PlanChange;
use crate::fitted::{Column, fitted, labelled, wrapped};
use crate::show::{usd, usd_between};
use std::fmt::Write as _;
use windfall_catalog::Catalog;
use windfall_catalog::plan::{Basis, Candidate, Evidence, Ranking};
use windfall_core::Market;
use windfall_server::client::{Code, Failure};

/// Where the words about the cheapest way begin.
const INDENT: usize = 10;

pub fn plan(asked: &Asked, ranking: &Ranking<'_>, args: &PlanChange) -> String {
    let lines = if args.all { usize::MAX } else { args.limit.map_or(LINES, |limit| limit as usize) };
    let rows: Vec<&Candidate<'_>> = by_type(ranking).into_iter().take(lines).collect();
    let (today, width) = (Today::now(), crate::live::width());
    let mut text = format!("{}: {}\n", asked.name, promise(asked));
    if let Some(market) = &asked.market {
        text.push_str(&wrapped(&format!("market: {market}"), width));
    }
    text.push('\n');
    text.push_str(&fitted(columns(asked, &rows, today), width));
    if let Some(best) = rows.first() {
        text.push('\n');
        text.push_str(&details(asked, best, today, width));
    }
    if asked.request.nodes.len() > 1 {
        text.push('\n');
        text.push_str(&picture::plot(ranking, width));
    }
    text.push_str(&leftovers(ranking, width));
    if let Some(old) =
        age::note(today, rows.iter().flat_map(|row| [Some(row.offer.source), row.offer.band_source]).flatten())
    {
        let _ = writeln!(text, "{}", wrapped(&old, width).trim_end());
    }
    for note in notes(asked, ranking, &rows) {
        let _ = writeln!(text, "{}", wrapped(&format!("assumed: {note}"), width).trim_end());
    }
    text
}

fn promise(asked: &Asked) -> String {
    match asked.deadline {
        Some(deadline) => format!("within {deadline}, cheapest first"),
        None => "no deadline, cheapest first".to_owned(),
    }
}

fn columns(asked: &Asked, rows: &[&Candidate<'_>], today: Today) -> Vec<Column> {
    let each = |cell: &dyn Fn(&Candidate<'_>) -> String| rows.iter().map(|row| cell(row)).collect::<Vec<_>>();
    let regions = rows.iter().map(|row| match row.places.saturating_sub(1) {
        0 => row.offer.region.to_owned(),
        more => format!("{} +{more}", row.offer.region),
    });
    let mut columns = vec![
        Column::words("CLOUD", 0, each(&|row| row.offer.kind.cloud.to_owned())),
        Column::words("REGION", 4, regions).least(10),
        Column::words("INSTANCE", 0, each(&machines)).least(14),
        Column::words("MARKET", 0, each(&|row| market(row))),
        Column::figures("COST", 0, each(&|row| cost(row, today))),
        Column::words("8 OF 10", 3, each(&|row| band(row))),
        Column::figures("HOURS", 0, each(&|row| format!("{:.1}", row.hours.mean))),
        Column::figures(
            "INTERRUPTED",
            6,
            each(&|row| match row.market {
                Market::Spot => format!("{:.1}", row.interruptions),
                _ => String::new(),
            }),
        ),
    ];
    let risk = each(&|row| match (row.market, row.basis) {
        (Market::Spot, Basis::Band(band)) => {
            let said = format!("{band} a month");
            row.offer.band_source.map_or(said.clone(), |source| today.marked(said, source))
        }
        (Market::Spot, basis) => basis.word().to_owned(),
        _ => String::new(),
    });
    columns.push(Column::words("RISK", 7, risk));
    if asked.deadline.is_some() {
        columns.push(Column::figures("IN TIME", 2, each(&|row| row.in_time.map(chance).unwrap_or_default())));
    }
    if asked.request.budget.is_some() {
        let over = each(&|row| row.over_budget.map(chance).unwrap_or_default());
        columns.push(Column::figures("OVER BUDGET", 2, over));
    }
    columns.push(Column::words(
        "SPEED",
        5,
        each(&|row| match row.evidence {
            Evidence::Given => String::new(),
            evidence => evidence.word().to_owned(),
        }),
    ));
    columns
}

fn band(row: &Candidate<'_>) -> String {
    if row.cost.high - row.cost.low < 0.005 {
        return String::new();
    }
    usd_between(row.cost.low, row.cost.high, '-')
}

fn details(asked: &Asked, best: &Candidate<'_>, today: Today, width: usize) -> String {
    let mut text = String::new();
    let mut say = |label: &str, line: String| text.push_str(&labelled(label, &line, INDENT, width));
    let kind = &best.offer.kind;
    let accelerator = kind.accelerator.map(|name| format!(", {}×{name}", kind.count)).unwrap_or_default();
    say("cheapest", format!("{} in {} {}{accelerator}", machines(best), kind.cloud, best.offer.region));
    let firm = best.firm_price.filter(|_| best.market == Market::Spot);
    let firm = firm.map(|price| format!(", on demand {}", dollars(price))).unwrap_or_default();
    let price = match &best.committed_until {
        Some(until) => format!("paid already, until {until}"),
        None => {
            let source = best.offer.source;
            let days = today.age_days(&source.as_of).filter(|_| today.is_old(source));
            let old = days.map_or(String::new(), |days| format!(", {days} days old"));
            let price = dollars(best.price);
            format!("{price} an hour{firm} ({}, {}{old})", source.name, source.as_of)
        }
    };
    say("price", price);
    let hours = best.need.0 as f64 / 3.6e6;
    say("work", format!("{hours:.1} h of running, {} ({})", best.how, best.evidence.word()));
    let worth_a_word = (best.parts.total().0 / 200).min(5_000_000);
    let parts: Vec<String> = best
        .parts
        .each()
        .into_iter()
        .filter_map(|(name, part)| match part {
            Some(part) if part.0 > 0 && part.0 >= worth_a_word => {
                Some(format!("{} {}", name.replace('_', " "), dollars(part)))
            }
            Some(_) => None,
            None => Some(format!("{} unknown", name.replace('_', " "))),
        })
        .collect();
    say("cost", parts.join(", "));
    if let Some(interval) = &best.interval {
        say("save", format!("every {}: {}", interval.every, interval.why));
    }
    if let Some(precision) = asked.request.precision.first()
        && best.precision.is_none()
    {
        say("precision", format!("no gain from {} known on {}", precision.word(), kind.accelerator.unwrap_or("it")));
    }
    text
}

fn leftovers(ranking: &Ranking<'_>, width: usize) -> String {
    let words: Vec<String> = ranking.ruled_out().iter().map(|(reason, count)| format!("{count} {reason}")).collect();
    if words.is_empty() {
        return String::new();
    }
    format!("\n{}", labelled("not", &format!("{} (--why TYPE)", words.join(", ")), INDENT, width))
}

/// What became of every offer of one instance type.
pub fn why(catalog: &Catalog, asked: &Asked, ranking: &Ranking<'_>, kind: &str) -> Result<String, Failure> {
    let mut text = String::new();
    for (at, candidate) in ranking.candidates.iter().enumerate().filter(|(_, c)| c.offer.kind.name == kind) {
        let place = format!("{} {}", candidate.offer.kind.cloud, candidate.offer.region);
        let _ = writeln!(
            text,
            "{place}, {} × {}: place {} of the plan, {} in {:.1} h; {}",
            candidate.nodes,
            candidate.market,
            at + 1,
            usd(candidate.cost.mean),
            candidate.hours.mean,
            candidate.how
        );
    }
    for rejected in ranking.rejected.iter().filter(|rejected| rejected.offer.kind.name == kind) {
        let offer = &rejected.offer;
        let _ = writeln!(
            text,
            "{} {}, {} × {}: {}",
            offer.kind.cloud, offer.region, rejected.nodes, offer.term, rejected.why
        );
    }
    if !text.is_empty() {
        return Ok(text);
    }
    let Some(known) = catalog.instance_types().find(|known| known.name == kind) else {
        let near = windfall_core::nearest::nearest(kind, catalog.instance_types().map(|known| known.name));
        let failure = Failure::new(Code::BadInput, format!("no instance type is called `{kind}`"));
        return Err(match near {
            Some(near) => failure.hint(format!("did you mean {near}?")),
            None => failure.hint("`windfall offers --all` lists all"),
        });
    };
    let has = known.accelerator.map_or("no accelerator".to_owned(), |name| format!("{}×{name}", known.count));
    let asks = asked.request.accelerators.iter().map(|wanted| match wanted.count {
        Some(count) => format!("{}:{count}", wanted.family),
        None => wanted.family.clone(),
    });
    let asks: Vec<String> = asks.collect();
    Ok(format!("{kind} has {has}; the job asks for {}\n", asks.join(" or ")))
}
