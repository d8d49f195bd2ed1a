//! The engines of a server: what they sell and hold, and whether they can be used.

use super::drill::drill;
use super::nodes::server;
use crate::args::{EnginesArgs, EnginesCommand};
use crate::findings;
use crate::fitted::{Column, fitted};
use crate::here::Here;
use windfall_core::english::counted;
use windfall_exec::Finding;
use windfall_server::api_types::{EngineChecks, EngineReport, Stray};
use windfall_server::client::{Client, Code, Failure};

pub async fn engines(here: &Here, args: &EnginesArgs) -> Result<Code, Failure> {
    let client = server(here).await?;
    match &args.command {
        None | Some(EnginesCommand::List) => list(here, &client).await,
        Some(EnginesCommand::Check) => check(here, &client).await,
        Some(EnginesCommand::Sweep { dry_run: _ }) => strays(here, &client).await,
        Some(EnginesCommand::Drill(args)) => drill(here, &client, args).await,
    }
}

async fn list(here: &Here, client: &Client) -> Result<Code, Failure> {
    let engines: Vec<EngineReport> = client.get("/v1/engines").await?;
    if here.json {
        println!("{}", serde_json::to_string(&engines).expect("engines have string keys"));
    } else {
        print!("{}", table(&engines, crate::live::width()));
        print!("{}", limits(&engines, crate::live::width()));
    }
    Ok(Code::Done)
}

fn table(engines: &[EngineReport], width: usize) -> String {
    let cells = |cell: fn(&EngineReport) -> String| engines.iter().map(cell).collect::<Vec<String>>();
    let markets = |engine: &EngineReport| {
        let markets: Vec<String> = engine.markets.iter().map(ToString::to_string).collect();
        if markets.is_empty() { "-".to_owned() } else { markets.join(",") }
    };
    let state = |engine: &EngineReport| if engine.silent_since.is_some() { "silent" } else { "answers" }.to_owned();
    let columns = vec![
        Column::words("ENGINE", 0, cells(|engine| engine.name.clone())),
        Column::words("STATE", 0, cells(state)),
        Column::words("SELLS", 2, cells(markets)),
        Column::figures("OFFERS", 3, cells(|engine| engine.offers.to_string())),
        Column::figures("LEASES", 1, cells(|engine| engine.leases.to_string())),
        Column::figures("COST/H", 1, cells(|engine| engine.hourly.to_string())),
    ];
    fitted(columns, width)
}

/// What may be spent at each at the most, beside what jobs' own budgets say.
fn limits(engines: &[EngineReport], width: usize) -> String {
    let all = || engines.iter().flat_map(|engine| engine.limits.iter().map(move |limit| (engine, limit)));
    let unknown: Vec<&str> =
        engines.iter().filter(|engine| engine.limits.is_empty()).map(|engine| engine.name.as_str()).collect();
    let mut text = String::new();
    if all().next().is_some() {
        let columns = vec![
            Column::words("LIMIT", 0, all().map(|(engine, _)| engine.name.clone())),
            Column::words("OF", 1, all().map(|(_, limit)| limit.of.clone())),
            Column::figures("AT MOST", 0, all().map(|(_, limit)| limit.most.clone())),
            Column::words("", 0, all().map(|(_, limit)| limit.what.clone())),
        ];
        text = format!("\n{}", fitted(columns, width));
    }
    if !unknown.is_empty() {
        text += &format!("\nno limit is known of {}: only budgets of jobs count there\n", unknown.join(", "));
    }
    text
}

async fn check(here: &Here, client: &Client) -> Result<Code, Failure> {
    let engines: Vec<EngineChecks> = client.get("/v1/engines/check").await?;
    let all: Vec<Finding> = engines.into_iter().flat_map(|engine| engine.checks).collect();
    Ok(findings::tell(here, &all))
}

async fn strays(here: &Here, client: &Client) -> Result<Code, Failure> {
    let strays: Vec<Stray> = client.get("/v1/engines/strays").await?;
    if here.json {
        println!("{}", serde_json::to_string(&strays).expect("leases have string keys"));
        return Ok(Code::Done);
    }
    for stray in &strays {
        println!("{} holds lease {} ({}), which the log does not know", stray.engine, stray.lease, stray.offer);
    }
    match strays.len() as u64 {
        0 => println!("engines hold nothing of ours that the log does not know"),
        many => println!("{}: the server ends what it does not know by itself", counted(many, "stray lease")),
    }
    Ok(Code::Done)
}

#[cfg(test)]
mod tests {
    use super::*;
    use windfall_core::{Market, NanoUsd, Time};
    use windfall_exec::Limit;

    #[test]
    fn a_narrow_terminal_still_shows_which_engine_is_silent() {
        let engine = |name: &str, silent_since| EngineReport {
            name: name.to_owned(),
            markets: vec![Market::Spot, Market::OnDemand],
            offers: 12,
            leases: 3,
            hourly: NanoUsd(7_500_000_000),
            silent_since,
            limits: vec![Limit::new("partition gpu", "nodes of a job", "4")],
        };
        let engines = [engine("machines", None), engine("slurm", Some(Time(1)))];
        let wide = table(&engines, 80);
        assert!(wide.lines().next().is_some_and(|head| head.ends_with("COST/H")), "{wide}");
        let bounds = limits(&engines, 80);
        assert!(
            bounds.lines().any(|line| line.contains("partition gpu") && line.ends_with("4  nodes of a job")),
            "{bounds}"
        );
        let narrow = table(&engines, 20);
        assert!(narrow.lines().all(|line| line.chars().count() <= 20) && narrow.contains("silent"), "{narrow}");
    }
}
