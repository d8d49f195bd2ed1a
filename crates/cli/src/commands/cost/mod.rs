//! Who spent what, on what. Reads the ledger and nothing else: every row of it stands alone.

mod by;
mod show;
mod sums;
#[cfg(test)]
mod tests;

use super::Here;
use crate::args::CostArgs;
use by::{By, moment};
use show::Asked;
use sums::Sums;
use windfall_server::client::{Code, Failure};

pub async fn cost(here: &Here, args: &CostArgs) -> Result<Code, Failure> {
    let mut by: Vec<By> = Vec::new();
    for word in &args.by {
        let read = By::read(word)?;
        if !by.contains(&read) {
            by.push(read);
        }
    }
    let asked = asked(args)?;
    let mut sums = Sums::new(by);
    let client = here.client();
    let end = match client.ensure_known().await? {
        Some(_) => Some(client.ledger(asked.from, asked.before, |entry| sums.add(&entry.row, entry.open)).await?),
        None => None,
    };
    if here.json {
        println!("{}", show::json(&sums, &asked, end.as_ref()));
    } else if args.csv {
        print!("{}", show::csv(&sums).map_err(|error| Failure::new(Code::Bug, error.to_string()))?);
    } else {
        match end.filter(|_| sums.days.is_some()) {
            Some(end) => print!("{}", show::table(&sums, &asked, &end, crate::live::width())),
            None => print!("{}", show::nothing(&asked)),
        }
    }
    Ok(Code::Done)
}

fn asked(args: &CostArgs) -> Result<Asked, Failure> {
    let from = args.from.as_deref().map(|day| moment("--from", day, false)).transpose()?;
    let before = args.to.as_deref().map(|day| moment("--to", day, true)).transpose()?;
    if let (Some(first), Some(end), Some(from), Some(to)) = (from, before, &args.from, &args.to)
        && first >= end
    {
        let what = format!("--from {from} is after --to {to}");
        return Err(Failure::new(Code::BadInput, what).hint("name the earlier day first; both days are included"));
    }
    Ok(Asked { from, before })
}
