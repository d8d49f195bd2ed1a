//! What a job would cost, everywhere: ranked ways to run it, what will not do, and why. `use` points one way:
//! plan and compare → rank, table, page, picture, record → shown → ask.

mod ask;
mod compare;
mod page;
mod picture;
mod rank;
mod record;
mod shown;
mod table;

pub use compare::compare;

use super::for_sale::for_sale;
use crate::args::PlanArgs;
use crate::here::Here;
use rank::{nothing, rank};
use windfall_server::client::{Code, Failure};

pub fn plan(here: &Here, args: &PlanArgs) -> Result<Code, Failure> {
    let sold = for_sale(here, args.change.here)?;
    let asked = ask::asked(here, &sold, args.file.as_deref(), &args.change)?;
    let catalog = sold.catalog;
    let ranking = rank(&catalog, &asked, &args.change, here.json || args.why.is_some());
    if ranking.candidates.is_empty() && args.why.is_none() {
        return Err(nothing(&catalog, &asked, &ranking));
    }
    if let Some(path) = &args.svg {
        let picture = picture::svg(&asked, &ranking);
        std::fs::write(path, picture).map_err(|error| {
            Failure::new(Code::BadInput, format!("{}: {error}", path.display())).hint("name a file that can be written")
        })?;
    }
    if let Some(kind) = &args.why {
        print!("{}", table::why(&catalog, &asked, &ranking, kind)?);
    } else if here.json {
        println!("{}", record::plan(&asked, &ranking));
    } else if args.md {
        print!("{}", page::page(&catalog, &asked, &ranking));
    } else {
        print!("{}", table::plan(&asked, &ranking, &args.change));
    }
    Ok(Code::Done)
}
