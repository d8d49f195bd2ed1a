//! The engines of a server: what they sell and hold, and whether they can be used.

use super::drill::{drill, letters};
use super::nodes::server;
use crate::args::{EnginesArgs, EnginesCommand};
use crate::findings;
use crate::fitted::{Column, fitted};
use crate::here::Here;
use std::collections::BTreeSet;
use std::time::{Duration, Instant};
use windfall_core::english::counted;
use windfall_exec::Finding;
use windfall_server::api_types::{EngineChecks, EngineReport, Stray};
use windfall_server::client::{Client, Code, Failure};

/// How long strays may take to end: programs on them may save what they have.
const ENDED_WITHIN: Duration = Duration::from_secs(180);
/// How often it is looked whether they have.
const LOOK: Duration = Duration::from_secs(1);

pub async fn engines(here: &Here, args: &EnginesArgs) -> Result<Code, Failure> {
    let client = server(here).await?;
    match &args.command {
        None | Some(EnginesCommand::List) => list(here, &client).await,
        Some(EnginesCommand::Check) => check(here, &client).await,
        Some(EnginesCommand::Sweep { dry_run: true }) => show(here, &client).await,
        Some(EnginesCommand::Sweep { dry_run: false }) => sweep(here, &client).await,
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

async fn strays(client: &Client) -> Result<Vec<Stray>, Failure> {
    client.get("/v1/engines/strays").await
}

/// Has the server end what nobody knows, and waits until engines do not hold it any more.
async fn sweep(here: &Here, client: &Client) -> Result<Code, Failure> {
    let found = strays(client).await?;
    if !found.is_empty() {
        client.post::<_, ()>("/v1/engines/sweep", &()).await?;
    }
    let (began, mut left) = (Instant::now(), found.clone());
    while !left.is_empty() && began.elapsed() < ENDED_WITHIN {
        tokio::time::sleep(LOOK).await;
        let engines: BTreeSet<String> = left.iter().map(|stray| stray.engine.clone()).collect();
        for engine in engines {
            let held: Vec<String> = client.get(&format!("/v1/engines/{}/leases", letters(&engine))).await?;
            left.retain(|stray| stray.engine != engine || held.contains(&stray.lease));
        }
    }
    if here.json {
        println!("{}", serde_json::json!({ "found": found, "left": left }));
    } else {
        print!("{}", swept(&found, &left));
    }
    Ok(if left.is_empty() { Code::Done } else { Code::Unreachable })
}

/// What was ended, and what was not.
fn swept(found: &[Stray], left: &[Stray]) -> String {
    let mut text = String::new();
    for stray in found {
        let what = if left.contains(stray) { "still holds" } else { "has ended" };
        text += &format!("{} {what} lease {}, which the log did not know\n", stray.engine, stray.lease);
    }
    if found.is_empty() {
        text += "engines hold nothing of ours that the log does not know\n";
    }
    if !left.is_empty() {
        text += "the server goes on trying: `windfall engines` says whether an engine answers\n";
    }
    text
}

async fn show(here: &Here, client: &Client) -> Result<Code, Failure> {
    let strays = strays(client).await?;
    if here.json {
        println!("{}", serde_json::to_string(&strays).expect("leases have string keys"));
        return Ok(Code::Done);
    }
    for stray in &strays {
        println!("{} holds lease {} ({}), which the log does not know", stray.engine, stray.lease, stray.offer);
    }
    match strays.len() as u64 {
        0 => println!("engines hold nothing of ours that the log does not know"),
        many => println!("{}: `windfall engines sweep` has the server end them now", counted(many, "stray lease")),
    }
    Ok(Code::Done)
}

#[cfg(test)]
mod tests {
    use super::*;
    use windfall_core::{Market, NanoUsd, Time};
    use windfall_exec::Limit;

    #[test]
    fn what_was_swept_is_named_and_what_stays_as_well() {
        let stray = |lease: &str| Stray {
            engine: "kubernetes".to_owned(),
            lease: lease.to_owned(),
            offer: "kubernetes/unknown/owned".to_owned(),
            since: None,
        };
        let found = [stray("1-2.0"), stray("1-3.0")];
        let text = swept(&found, &found[1..]);
        assert!(
            text.contains("kubernetes has ended lease 1-2.0,") && text.contains("still holds lease 1-3.0,"),
            "{text}"
        );
        assert!(text.contains("goes on trying") && !swept(&found, &[]).contains("goes on trying"));
        assert_eq!(swept(&[], &[]), "engines hold nothing of ours that the log does not know\n");
    }

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
