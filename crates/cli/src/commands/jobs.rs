//! Questions and orders about jobs that exist.

use crate::args::{BudgetArgs, CancelArgs, ExplainArgs, JobsArgs, LogsArgs};
use crate::fitted::{Column, fitted, folded};
use crate::here::Here;
use crate::{live, show};
use std::io::Write;
use windfall_core::view::{JobView, State};
use windfall_core::{NanoUsd, Outcome, Span};
use windfall_server::api_types::{ExplainAnswer, JobAnswer};
use windfall_server::client::{Client, Lines};
use windfall_server::client::{Code, Failure};

/// The number of a job, from the server. If jobs were submitted here before and no server runs, one is started.
pub async fn ask_about(client: &Client, job: &str) -> Result<u64, Failure> {
    match client.ensure_known().await? {
        Some(_) => resolve(client, job).await,
        None => Err(Failure::new(Code::BadInput, format!("no such job: {job}")).hint("no job was ever submitted here")),
    }
}

/// The number of a job that is named by number or by name; of several with one name, the newest.
async fn resolve(client: &Client, job: &str) -> Result<u64, Failure> {
    let number: Option<u64> = job.parse().ok();
    // Of a live job no database is asked. Somebody may call a job 2026: it is meant when there is no such number yet.
    let live: Vec<JobView> = client.get("/v1/jobs?limit=1").await?;
    if let Some(number) = number.filter(|number| live.first().is_some_and(|job| *number <= job.id.0)) {
        return Ok(number);
    }
    let newest: Vec<JobView> = client.get("/v1/jobs?all=true&limit=1").await?;
    if let Some(number) = number.filter(|number| newest.first().is_some_and(|job| *number <= job.id.0)) {
        return Ok(number);
    }
    let letters = job.bytes().map(|byte| format!("%{byte:02X}")).collect::<String>();
    let named: Vec<JobView> = client.get(&format!("/v1/jobs?all=true&limit=1&name={letters}")).await?;
    named.first().map(|view| view.id.0).or(number).ok_or_else(|| {
        Failure::new(Code::BadInput, format!("no job is called {job}")).hint("windfall jobs --all lists them")
    })
}

/// Jobs in one answer of the server.
const PAGE: u32 = 1_000;

/// As many jobs as were asked for, page by page.
async fn listed(client: &Client, args: &JobsArgs) -> Result<Vec<JobView>, Failure> {
    let (mut jobs, mut before): (Vec<JobView>, Option<u64>) = (Vec::new(), args.before);
    loop {
        let limit = args.limit.saturating_sub(jobs.len() as u32).min(PAGE);
        let below = before.map_or(String::new(), |before| format!("&before={before}"));
        let page: Vec<JobView> = client.get(&format!("/v1/jobs?all={}&limit={limit}{below}", args.all)).await?;
        let is_last = page.len() < limit as usize;
        jobs.extend(page);
        before = jobs.last().map(|job| job.id.0);
        if is_last || jobs.len() >= args.limit as usize {
            return Ok(jobs);
        }
    }
}

pub async fn jobs(here: &Here, args: &JobsArgs) -> Result<Code, Failure> {
    let client = here.client();
    let jobs: Vec<JobView> = match client.ensure_known().await? {
        Some(_) => listed(&client, args).await?,
        None => Vec::new(),
    };
    if here.json {
        println!("{}", serde_json::to_string(&jobs).map_err(|error| Failure::new(Code::Bug, error.to_string()))?);
        return Ok(Code::Done);
    }
    if jobs.is_empty() {
        println!("{}", if args.all { "no jobs yet" } else { "no live jobs; ended ones with --all" });
        return Ok(Code::Done);
    }
    print!("{}", table(&jobs, crate::live::width()));
    print!("{}", show::troubles(&jobs));
    if let Some(last) = jobs.last().filter(|_| jobs.len() == args.limit as usize) {
        let all = if args.all { " --all" } else { "" };
        println!("the next page: windfall jobs{all} --limit {} --before {}", args.limit, last.id);
    }
    Ok(Code::Done)
}

fn table(jobs: &[JobView], width: usize) -> String {
    let cells = |cell: fn(&JobView) -> String| jobs.iter().map(cell).collect::<Vec<String>>();
    // One that has ended may still hold a machine, for its last save.
    let lease = |job: &JobView| match job.state.is_over() && job.lease.is_none() {
        true => "-".to_owned(),
        false => show::lease(job),
    };
    let columns = vec![
        Column::words("JOB", 0, cells(|job| job.id.to_string())),
        Column::words("NAME", 0, cells(|job| job.name.clone())).least(8),
        Column::words("STATE", 0, cells(|job| job.state.word().to_owned())),
        Column::words("DONE", 2, cells(show::percent)),
        Column::words("SLACK", 3, cells(|job| job.slack.map_or("-".to_owned(), |slack| slack.to_string()))),
        Column::words("INT", 5, cells(|job| job.interruptions.to_string())),
        Column::words("COST", 1, cells(|job| job.cost.to_string())),
        Column::words("LEASE", 4, cells(lease)).least(12),
    ];
    fitted(columns, width)
}

pub async fn logs(here: &Here, args: &LogsArgs) -> Result<Code, Failure> {
    let client = here.client();
    let id = ask_about(&client, &args.job).await?;
    let path = format!("/v1/jobs/{id}/logs?follow={}&rank={}", args.follow, args.rank);
    let mut shown = 0;
    loop {
        let mut parts = client.stream(&path).await?;
        match pour(here, &mut parts, &mut shown).await {
            // The server ended while the output was followed. The next one has the same output.
            Err(failure) if args.follow && failure.code == Code::Unreachable => {
                client.ensure().await?;
            }
            other => {
                other?;
                if shown == 0 {
                    let answer: JobAnswer = client.get(&format!("/v1/jobs/{id}")).await?;
                    eprintln!("{}", silence(&answer.job));
                }
                return Ok(Code::Done);
            }
        }
    }
}

/// Why a job has no output.
fn silence(job: &JobView) -> String {
    let id = job.id;
    let why = match &job.outcome {
        Some(Outcome::Failed { why, .. }) if !why.is_empty() => Some(why.clone()),
        Some(Outcome::Cancelled { by }) => Some(format!("it was cancelled by {by}")),
        Some(Outcome::StoppedByRule { rule }) => Some(format!("it was stopped by its own rule `{rule}: stop`")),
        _ => job.waits_for.clone(),
    };
    let why = why.map(|why| format!(": {why}")).unwrap_or_default();
    match (job.ran > Span::ZERO, job.state.is_over()) {
        (true, true) => format!("job {id} has printed nothing"),
        (true, false) => format!("job {id} has printed nothing yet"),
        (false, true) => format!("job {id} never ran{why}"),
        (false, false) => format!("job {id} has not run yet{why}"),
    }
}

/// Prints what comes after the first `shown` bytes, and counts it.
async fn pour(here: &Here, parts: &mut Lines, shown: &mut usize) -> Result<(), Failure> {
    let mut out = std::io::stdout();
    let mut seen = 0;
    while let Some(part) = parts.part().await {
        let part = part?;
        let news = &part[shown.saturating_sub(seen).min(part.len())..];
        seen += part.len();
        *shown = seen.max(*shown);
        if news.is_empty() {
            continue;
        }
        let written = if here.json {
            writeln!(out, "{}", serde_json::json!({ "type": "output", "text": String::from_utf8_lossy(news) }))
        } else {
            out.write_all(news)
        };
        match written.and_then(|()| out.flush()) {
            Ok(()) => {}
            // A reader that has seen enough is not an error.
            Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => break,
            Err(error) => return Err(Failure::new(Code::Bug, format!("the output cannot be written: {error}"))),
        }
    }
    Ok(())
}

pub async fn cancel(here: &Here, args: &CancelArgs) -> Result<Code, Failure> {
    let client = here.client();
    let id = ask_about(&client, &args.job).await?;
    client.insist::<_, ()>(&format!("/v1/jobs/{id}/cancel?now={}", args.now), &()).await?;
    let answer: JobAnswer = client.get(&format!("/v1/jobs/{id}")).await?;
    match answer.job.ended_at.is_some() {
        _ if here.json => println!("{}", serde_json::json!({ "type": "cancelling", "id": id })),
        true if answer.job.state == State::Cancelled => println!("job {id} is cancelled"),
        true => println!("job {id} is {}: what it still sent is given up", answer.job.state.word()),
        false if args.now => println!("job {id} is being cancelled, without time to save"),
        false => println!("job {id} is being cancelled: its program may save first"),
    }
    Ok(Code::Done)
}

pub async fn budget(here: &Here, args: &BudgetArgs) -> Result<Code, Failure> {
    let bad = || {
        let problem = format!("{} is no budget", args.dollars);
        Failure::new(Code::BadInput, problem).hint("say dollars above 0, as in: windfall budget 3 25.50; or `none`")
    };
    let budget = match args.dollars.trim_start_matches('$') {
        "none" => None,
        dollars => match dollars.parse::<f64>() {
            Ok(dollars) if dollars > 0.0 && dollars < 1e9 => Some(NanoUsd::from_dollars(dollars)),
            _ => return Err(bad()),
        },
    };
    let client = here.client();
    let id = ask_about(&client, &args.job).await?;
    let body = serde_json::json!({ "budget_nanousd": budget });
    client.insist::<_, ()>(&format!("/v1/jobs/{id}/budget"), &body).await?;
    let said = budget.map_or("no budget".to_owned(), |budget| format!("a budget of {budget}"));
    if here.json {
        println!("{}", serde_json::json!({ "type": "budget", "id": id, "budget_usd": budget.map(NanoUsd::dollars) }));
    } else {
        println!("job {id} has {said} now");
    }
    Ok(Code::Done)
}

pub async fn explain(here: &Here, args: &ExplainArgs) -> Result<Code, Failure> {
    let client = here.client();
    let id = ask_about(&client, &args.job).await?;
    let answer: ExplainAnswer = client.get(&format!("/v1/jobs/{id}/explain")).await?;
    if here.json {
        println!("{}", serde_json::to_string(&answer).map_err(|error| Failure::new(Code::Bug, error.to_string()))?);
        return Ok(Code::Done);
    }
    print!("{}", explained(&answer, args.all, live::width()));
    Ok(Code::Done)
}

/// A job's history with its reasons, and what is still to be known of it.
fn explained(answer: &ExplainAnswer, all: bool, width: usize) -> String {
    let job = &answer.job;
    let mut text = folded("", &format!("{} · job {} · {}", job.name, job.id, job.state.word()), width);
    for line in answer.lines.iter().filter(|line| all || line.kind != "progress") {
        let at = (line.at - job.submitted_at).to_string();
        match &line.reason {
            Some(reason) => {
                text.push_str(&folded(&format!("{at:>8}  → "), &line.text, width));
                text.push_str(&folded(&" ".repeat(12), &format!("{reason} (rule: {})", reason.rule), width));
            }
            None => text.push_str(&folded(&format!("{at:>8}    "), &line.text, width)),
        }
    }
    if job.state == State::Paused {
        text.push_str(&folded("now: ", "paused: it holds nothing until its budget is raised", width));
    } else if let (Some(policy), Some(present)) = (&answer.policy, &answer.present) {
        // A policy speaks of markets; a job may wait for something else.
        match job.waits_for.as_ref().filter(|waits| !waits.starts_with(&present.text)) {
            Some(waits) => text.push_str(&folded("waiting: ", waits, width)),
            None => text.push_str(&folded("now: ", &format!("{policy} says: {present}"), width)),
        }
    }
    // What was not decided but found out stands in no line of its own.
    let told = job.told.as_ref().map(ToString::to_string);
    let is_said = |told: &String| answer.lines.iter().any(|line| line.text.contains(told.as_str()));
    if let Some(told) = told.filter(|told| !is_said(told)) {
        text.push_str(&folded("note: ", &told, width));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use windfall_core::brain::Config;
    use windfall_core::{Body, Brain, Event, Installation, JobSpec, Record, Time, Workload, WorkloadId};

    #[test]
    fn a_job_without_output_says_whether_it_ran_and_why_not() {
        let mut brain = Brain::new(Installation(1), Config::default());
        let workload = Workload::from(JobSpec::named("quiet".to_owned(), vec!["run".to_owned()]));
        let event = Event::Submitted { workload, key: "1".to_owned(), id: Some(WorkloadId(1)) };
        brain.apply(&Record { seq: 1, batch: 1, at: Time(1_000), body: Body::Event(event) });
        let waits = brain.view(WorkloadId(1), Time(1_000)).expect("it works");
        assert!(silence(&waits).starts_with("job 1 has not run yet: "), "{}", silence(&waits));
        let outcome = Some(Outcome::Failed { code: 127, why: "no such folder".to_owned() });
        let failed = JobView { state: State::Failed, outcome, ..waits.clone() };
        assert_eq!(silence(&failed), "job 1 never ran: no such folder");
        let ran = JobView { state: State::Succeeded, ran: Span::seconds(1), ..waits };
        assert_eq!(silence(&ran), "job 1 has printed nothing");
    }
}
