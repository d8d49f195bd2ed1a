//! Two or more jobs side by side.

use super::rank::{nothing, rank};
use super::shown::{chance, cost, dollars, machines, market};
use super::{ask, record};
use crate::age::{self, Today};
use crate::args::CompareArgs;
use crate::commands::for_sale::for_sale;
use crate::fitted::{Column, fitted};
use crate::here::Here;
use crate::show::usd_between;
use windfall_catalog::plan::Candidate;
use windfall_server::client::{Code, Failure};

pub fn compare(here: &Here, args: &CompareArgs) -> Result<Code, Failure> {
    let sold = for_sale(here, args.change.here)?;
    let (catalog, sold_on) = (&sold.catalog, &sold.market);
    let mut best: Vec<(String, Candidate<'_>)> = Vec::new();
    for file in &args.files {
        let asked = ask::asked(here, &sold, Some(file), &args.change)?;
        let ranking = rank(catalog, &asked, &args.change, here.json);
        if ranking.candidates.is_empty() {
            return Err(nothing(catalog, &asked, &ranking));
        }
        let label = file.display().to_string();
        best.extend(ranking.candidates.into_iter().next().map(|candidate| (label, candidate)));
    }
    if here.json {
        let all: Vec<_> =
            best.iter().map(|(file, c)| serde_json::json!({ "file": file, "best": record::candidate(c) })).collect();
        println!("{}", serde_json::json!({ "market": sold_on, "jobs": all }));
        return Ok(Code::Done);
    }
    let today = Today::now();
    let mut names =
        vec!["cloud", "region", "instances", "market", "expected cost", "eight of ten", "hours", "interruptions"];
    let promised = best.iter().any(|(_, c)| c.in_time.is_some());
    names.extend(promised.then_some("in time"));
    names.extend(best.first().into_iter().flat_map(|(_, c)| c.parts.each().map(|(name, _)| name)));
    let mut columns = vec![Column::words("", 0, names.iter().map(|name| name.replace('_', " ")))];
    let least = best.iter().map(|(_, c)| c.cost.mean).fold(f64::INFINITY, f64::min);
    for (file, c) in &best {
        let more =
            if c.cost.mean > least * 1.000_001 { format!(" (×{:.2})", c.cost.mean / least) } else { String::new() };
        let mut cells = vec![
            c.offer.kind.cloud.to_owned(),
            c.offer.region.to_owned(),
            machines(c),
            market(c),
            format!("{}{more}", cost(c, today)),
            usd_between(c.cost.low, c.cost.high, '-'),
            format!("{:.1}", c.hours.mean),
            format!("{:.1}", c.interruptions),
        ];
        if promised {
            cells.push(c.in_time.map_or("no deadline".to_owned(), chance));
        }
        cells.extend(c.parts.each().map(|(_, part)| part.map_or("unknown".to_owned(), dollars)));
        columns.push(Column::figures(file.as_str(), 0, cells));
    }
    print!("{}", fitted(columns, crate::live::width()));
    if let Some(old) = age::note(today, best.iter().map(|(_, c)| c.offer.source)) {
        println!("\n{old}");
    }
    if let Some(name) = sold_on {
        println!("\nmarket  {name}");
    }
    Ok(Code::Done)
}
