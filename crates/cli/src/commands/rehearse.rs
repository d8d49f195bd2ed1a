//! `windfall rehearse`: what is asked, and what is shown of the answer.

use crate::args::RehearseArgs;
use crate::here::Here;
use crate::show;
use std::time::Duration;
use windfall_jobfile as jobfile;
use windfall_rehearse::{Options, Report, Severity, Verdict, seconds};
use windfall_server::client::{Code, Failure};

/// Rehearses a job file.
pub async fn rehearse(here: &Here, args: &RehearseArgs) -> Result<Code, Failure> {
    let (limit, notice) = (duration("--limit", &args.limit)?, duration("--notice", &args.notice)?);
    let mut read = jobfile::read(&args.file, &here.context()?).map_err(|error| here.bad_file(&error))?;
    if let Some(luggage) = read.spec.run.luggage.take() {
        // It is played here, in copies of the folder and with this terminal's variables: nothing travels.
        let mut notes = Vec::new();
        notes.extend(luggage.setup.map(|_| "`setup` is not run in a rehearsal: the program has what the folder has"));
        let elsewhere = read.secrets.values().any(|secret| *secret != jobfile::Secret::Terminal);
        notes.extend(elsewhere.then_some("only secrets of this terminal are there in a rehearsal"));
        notes.iter().for_each(|note| eprintln!("note: {note}"));
    }
    let options = Options {
        spec: read.spec,
        notice,
        limit,
        keep: args.keep,
        at_once: args.at_once.map(std::num::NonZero::get),
        say: &|line| eprintln!("{line}"),
    };
    let Some(rehearsed) = windfall_rehearse::rehearse(options).await? else { return Ok(Code::Detached) };
    let report = &rehearsed.report;
    if here.json {
        println!("{}", serde_json::to_string(report).map_err(|error| Failure::new(Code::Bug, error.to_string()))?);
    } else {
        print!("{}", text(report));
    }
    if args.keep {
        eprintln!("kept for a look: {}", rehearsed.stage.display());
    }
    Ok(match report.verdict {
        Verdict::Safe | Verdict::SafeWithLoss => Code::Done,
        Verdict::Unsafe | Verdict::Unknown => Code::JobFailed,
    })
}

fn duration(name: &str, text: &str) -> Result<Duration, Failure> {
    let read = jobfile::duration(text).filter(|span| span.0 > 0);
    let span = read.ok_or_else(|| {
        Failure::new(Code::BadInput, format!("{name}: not a length of time: {text}")).hint("write 30s, 10m or 2h")
    })?;
    Ok(Duration::from_millis(span.0.unsigned_abs()))
}

fn text(report: &Report) -> String {
    let some = |value: Option<f64>| value.map_or("-".to_owned(), seconds);
    let state = |equal: Option<bool>| match equal {
        Some(true) => "equal",
        Some(false) => "differs",
        None => "-",
    };
    let row = |act: &windfall_rehearse::Act| {
        vec![
            act.name.to_owned(),
            some(act.lost_work_seconds),
            some(act.restart_seconds),
            some(Some(act.checkpoint_seconds).filter(|took| *took > 0.0)),
            state(act.final_state_equal).to_owned(),
            act.outcome.clone(),
        ]
    };
    let rows: Vec<Vec<String>> = report.acts.iter().map(row).collect();
    let head = ["act", "work lost", "restart", "checkpoint", "final state", "outcome"];
    let mut text = format!("\n{}\n", show::table(&head, &rows));
    for remark in &report.remarks {
        text.push_str(&format!("{remark}\n\n"));
    }
    text.push_str(&format!("verdict: {}\n", report.reason));
    for finding in &report.findings {
        let word = match finding.severity {
            Severity::Unsafe => "unsafe",
            Severity::Warning => "warning",
            Severity::Info => "note",
        };
        text.push_str(&format!(
            "\n{word}: {}\n  seen: {}\n  why:  {}\n  fix:  {}\n",
            finding.code, finding.seen, finding.why, finding.fix
        ));
    }
    text
}
