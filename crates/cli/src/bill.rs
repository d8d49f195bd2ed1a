//! The bill: for people and for scripts.

use serde_json::{Value, json};
use windfall_core::english::counted;
use windfall_core::view::{JobView, State};
use windfall_core::{NanoUsd, Outcome, Span};
use windfall_server::api_types::{Bill, JobAnswer};
use windfall_server::client::Code;

/// The exit code that a job's end means.
pub fn code(job: &JobView) -> Code {
    match (job.state, job.deadline_met()) {
        (State::Succeeded, Some(false)) => Code::Late,
        (State::Succeeded, _) => Code::Done,
        // A person ended it, or has to say how it goes on: its program did not fail.
        (State::Cancelled | State::Paused, _) => Code::Detached,
        _ => Code::JobFailed,
    }
}

/// One JSON object: the last line of `windfall run --json`.
pub fn json(answer: &JobAnswer) -> Value {
    let (job, bill) = (&answer.job, &answer.bill);
    let dollars = |money: Option<NanoUsd>| money.map(NanoUsd::dollars);
    let seconds = |span: Span| span.0 as f64 / 1_000.0;
    let forecast = bill.as_ref().and_then(|bill| bill.forecast.as_ref());
    // Other costs are only compared for a job that finished.
    let got_through = bill.as_ref().filter(|_| job.state == State::Succeeded);
    json!({
        "type": "bill",
        "id": job.id,
        "name": job.name,
        "state": job.state,
        "exit_code": job.exit_code,
        "last_output": answer.last_words,
        "deadline_met": job.deadline_met(),
        "interruptions": job.interruptions,
        "stints": job.stints,
        "lost_work_seconds": seconds(job.lost),
        "seconds": job.ended_at.map(|ended| seconds(ended - job.submitted_at)),
        "seconds_spot": seconds(job.spot),
        "seconds_on_demand": seconds(job.firm),
        "seconds_owned": seconds(job.owned),
        "spot_usd": job.spot_cost.dollars(),
        "on_demand_usd": job.firm_cost.dollars(),
        "owned_usd": job.owned_cost.dollars(),
        "cost_usd": job.cost.dollars(),
        "on_demand_only_usd": dollars(got_through.and_then(|bill| bill.on_demand_only)),
        "omniscient_usd": dollars(got_through.and_then(|bill| bill.omniscient)),
        "predicted_usd": dollars(forecast.map(|forecast| forecast.cost)),
        "predicted_usd_10": dollars(forecast.map(|forecast| forecast.low)),
        "predicted_usd_90": dollars(forecast.map(|forecast| forecast.high)),
        "predicted_seconds": forecast.map(|forecast| seconds(forecast.elapsed)),
    })
}

/// The bill in words.
pub fn text(answer: &JobAnswer) -> String {
    let job = &answer.job;
    let mut text = headline(job);
    if !answer.last_words.is_empty() {
        text.push_str("\n\nIts last output:");
        for line in &answer.last_words {
            text.push_str(&format!("\n  | {line}"));
        }
    }
    text.push_str("\n\n");
    if let Some(bill) = &answer.bill {
        text.push_str(&sums(job, bill));
    }
    text.push_str(&format!(
        "\n  {} · {} of work lost · {}",
        counted(job.interruptions.into(), "interruption"),
        job.lost,
        counted(job.stints, "stint"),
    ));
    if job.stints > 1 && job.restarts > 1 {
        text.push_str(&format!(" · starts took {} on average", job.restart));
    }
    // If the deadline was met after all, the warning about it is left out.
    let met = job.state == State::Succeeded && job.deadline.zip(job.ended_at).is_some_and(|(until, at)| at <= until);
    if let Some(told) = job.told.as_ref().filter(|told| !(met && told.is_about_the_deadline())) {
        text.push_str(&format!("\n  {told}"));
    }
    text.push('\n');
    text
}

fn headline(job: &JobView) -> String {
    let took = job.ended_at.map_or(Span::ZERO, |ended| ended - job.submitted_at);
    let mut text = format!("{} (job {}) ", job.name, job.id);
    text.push_str(&match &job.outcome {
        Some(Outcome::Succeeded) => format!("succeeded in {took}"),
        Some(Outcome::Failed { why, code }) if why.contains(&format!("code {code}")) => {
            format!("failed after {took}: {why}")
        }
        Some(Outcome::Failed { why, code }) => format!("failed after {took}: {why} (code {code})"),
        Some(Outcome::Cancelled { by }) => format!("was cancelled by {by} after {took}"),
        Some(Outcome::StoppedByRule { rule }) => format!("was stopped by its own rule `{rule}` after {took}"),
        None if job.state == State::Paused => paused(job),
        None => format!("is {}", job.state.word()),
    });
    if let (Some(deadline), Some(ended), State::Succeeded) = (job.deadline, job.ended_at, job.state) {
        let (span, word) = if ended <= deadline { (deadline - ended, "before") } else { (ended - deadline, "after") };
        text.push_str(&format!(", {span} {word} its deadline"));
    }
    text.push('.');
    text
}

fn paused(job: &JobView) -> String {
    let budget = job.budget.map_or(String::new(), |budget| format!(" of {budget}"));
    format!(
        "is paused: going on would exceed its budget{budget}. It holds nothing; what it saved last is kept.\n\
         Raise the budget and it goes on: windfall budget {} DOLLARS; or end it: windfall cancel {}",
        job.id, job.id
    )
}

fn sums(job: &JobView, bill: &Bill) -> String {
    let row = |what: &str, time: String, money: NanoUsd, remark: String| {
        format!("  {what:<20}{time:>9}{:>11}   {remark}", money.to_string()).trim_end().to_owned() + "\n"
    };
    let mut text = String::new();
    if job.owned.0 > 0 {
        text.push_str(&row("owned", job.owned.to_string(), bill.owned_cost, String::new()));
    }
    // Where nothing was bought, that need not be said twice.
    if job.owned.0 == 0 || (job.spot + job.firm).0 > 0 {
        text.push_str(&row("spot", job.spot.to_string(), bill.spot_cost, String::new()));
        text.push_str(&row("on-demand", job.firm.to_string(), bill.firm_cost, String::new()));
    }
    text.push_str(&format!("  {}\n", "─".repeat(40)));
    text.push_str(&row("paid", (job.spot + job.firm + job.owned).to_string(), bill.cost, String::new()));
    // Other costs are only compared for a job that finished.
    let done = job.state == State::Succeeded;
    if let Some(only) = bill.on_demand_only.filter(|only| only.0 > 0 && done) {
        let share = bill.cost.dollars() / only.dollars() * 100.0;
        let remark = match share {
            share if (99.5..100.5).contains(&share) => "you paid the same".to_owned(),
            share if share < 100.0 => format!("you paid {:.0} % less", 100.0 - share),
            share => format!("you paid {:.0} % more", share - 100.0),
        };
        text.push_str(&row("on-demand only", job.on_demand_time().to_string(), only, remark));
    }
    if let Some(forecast) = &bill.forecast {
        let remark = format!("between {} and {} eight times in ten", forecast.low, forecast.high);
        text.push_str(&row("expected at first", forecast.elapsed.to_string(), forecast.cost, remark));
    }
    if let Some(least) = bill.omniscient.filter(|least| least.0 > 0 && done) {
        let above = bill.cost.dollars() / least.dollars() * 100.0 - 100.0;
        let remark = format!("in hindsight; you are {above:.0} % above it");
        text.push_str(&row("least possible", String::new(), least, remark));
    }
    text
}
