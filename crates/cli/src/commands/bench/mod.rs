//! `windfall bench`: measures programs on this machine, and says what the figures mean. Answered here; no server.

mod beside;
mod meter;
mod precision;
mod program;
mod run;
mod show;

use crate::args::BenchCommand;
use crate::here::Here;
use std::path::Path;
use windfall_insight::bench::{self, Run};
use windfall_server::client::{Code, Failure};

pub async fn bench(here: &Here, command: BenchCommand) -> Result<Code, Failure> {
    match command {
        BenchCommand::Run(args) => run::run(here, &args).await,
        BenchCommand::Precision(args) => precision::precision(here, &args).await,
        BenchCommand::Compare(args) => beside::compare(here, &args),
        BenchCommand::Extrapolate(args) => beside::extrapolate(here, &args),
    }
}

/// Runs of a file, or the one that `#…` picks.
pub fn read(named: &str) -> Result<Vec<Run>, Failure> {
    let (path, pick) = named.split_once('#').map_or((named, None), |(path, pick)| (path, Some(pick)));
    let wrong = |why: String| Failure::new(Code::BadInput, format!("{path}: {why}"));
    let text = std::fs::read_to_string(Path::new(path))
        .map_err(|error| wrong(error.to_string()).hint("name a file that `windfall bench run --out FILE` wrote"))?;
    let runs = bench::read(&text).map_err(|error| wrong(error.to_string()))?;
    let Some(pick) = pick else { return Ok(runs) };
    let names: Vec<String> = runs.iter().map(Run::label).collect();
    let fits = |run: &Run| run.name == pick || run.label() == pick;
    let fitting: Vec<Run> = runs.into_iter().filter(fits).collect();
    if fitting.is_empty() {
        return Err(wrong(format!("no run `{pick}`")).hint(format!("there are {}", names.join(", "))));
    }
    Ok(fitting)
}

fn json(value: &impl serde::Serialize) -> Result<String, Failure> {
    serde_json::to_string(value).map_err(|error| Failure::new(Code::Bug, error.to_string()))
}
