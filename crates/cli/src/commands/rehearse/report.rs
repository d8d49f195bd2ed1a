//! A rehearsal for people (a table of acts, the verdict, findings with their fixes) and for programs.

use super::act::{Cut, Ended, Played};
use super::compare::Compared;
use super::final_state;
use super::judge::{Judgement, Scene, Seen, Severity, seconds};
use crate::show;
use serde_json::{Value, json};
use std::cell::Cell;
use std::time::Instant;
use windfall_core::english::counted;

/// Says what is being played while it is played.
pub struct Screen {
    began: Instant,
    act: Cell<u32>,
}

impl Screen {
    pub fn new() -> Screen {
        Screen { began: Instant::now(), act: Cell::new(0) }
    }

    pub fn begin(&self, name: &str, how_long: &str) {
        self.act.set(self.act.get() + 1);
        let since = seconds(self.began.elapsed().as_secs_f64());
        eprintln!("[{since:>6}] act {}: {name}, {how_long}…", self.act.get());
    }

    pub fn end(&self, played: &Played) {
        if played.ended == Ended::Late {
            eprintln!("         its time is over: the job is ended");
        }
    }
}

/// What came of an act, in a few words.
fn outcome(seen: &Seen, scene: &Scene) -> String {
    let played = &scene.played;
    let asked = played.stints.iter().filter_map(|stint| stint.cut).map(|(cut, _)| cut).next_back();
    if played.cuts == 0 {
        return match scene.name {
            _ if scene.failed_uninterrupted() => "failed before it was interrupted".to_owned(),
            "during a save" => "not hit: its saves are too quick or too rare".to_owned(),
            _ => "not interrupted: it ended first".to_owned(),
        };
    }
    if matches!(asked, Some(Cut::Damaged | Cut::Torn)) && !played.hit {
        return "not tested: no checkpoint was durable by then".to_owned();
    }
    if scene.restarts.iter().any(|restart| restart.failed.is_some()) {
        return match played.succeeded() {
            true => "failed on resume, then ended on an older checkpoint or from zero".to_owned(),
            false => "failed on resume".to_owned(),
        };
    }
    if scene.hung() && seen.baseline.finished {
        return "did not end after its restart".to_owned();
    }
    let Some(restart) = scene.restarts.last() else { return "ended before it was restarted".to_owned() };
    let from = match (restart.restored, restart.began_from_zero(), restart.kept) {
        (false, _, Some(kept)) if kept > 0.6 => "went on, from state that is kept elsewhere",
        (false, ..) => "restarted from zero: there was no checkpoint",
        (true, Some(true), _) => "restarted from zero",
        (true, Some(false), _) => "resumed",
        (true, None, _) => "ran again; from where is not known",
    };
    let skipped: usize = played.stints.iter().map(|stint| stint.view.evidence.skipped.len()).sum();
    let passed = if skipped > 0 && asked == Some(Cut::Damaged) { ", from the checkpoint before" } else { "" };
    let ended = match played.ended {
        Ended::Job(state, ..) => format!(", {}", state.word()),
        Ended::Enough => ", stopped when that was clear".to_owned(),
        Ended::Late => ", stopped at the limit".to_owned(),
    };
    format!("{from}{passed}{ended}")
}

fn lost(scene: &Scene) -> Option<f64> {
    let lost: Vec<f64> = scene.restarts.iter().filter_map(|restart| restart.lost).collect();
    (!lost.is_empty()).then(|| lost.iter().sum())
}

fn took(scene: &Scene) -> Option<f64> {
    scene.restarts.iter().map(|restart| restart.took).reduce(f64::max)
}

/// For people.
pub fn text(seen: &Seen, judgement: &Judgement) -> String {
    let some = |value: Option<f64>| value.map_or("-".to_owned(), seconds);
    let state = |equal: Option<bool>| match equal {
        Some(true) => "equal",
        Some(false) => "differs",
        None => "-",
    };
    let mut rows = vec![vec![
        "undisturbed".to_owned(),
        "-".to_owned(),
        "-".to_owned(),
        some(seen.base.last().filter(|s| !s.watch.saves.is_empty()).map(|_| seen.checkpoint_seconds(&seen.base))),
        "-".to_owned(),
        undisturbed(seen),
    ]];
    for scene in seen.scenes.iter().chain(&seen.kept_folder) {
        rows.push(vec![
            scene.name.to_owned(),
            some(lost(scene)),
            some(took(scene)),
            some(Some(seen.checkpoint_seconds(&scene.played)).filter(|took| *took > 0.0)),
            state(scene.equal(&seen.volatile)).to_owned(),
            outcome(seen, scene),
        ]);
    }
    let head = ["act", "work lost", "restart", "checkpoint", "final state", "outcome"];
    let mut text = format!("\n{}\n", show::table(&head, &rows));
    if !seen.baseline.finished && seen.base.ended == Ended::Late {
        text.push_str(&format!(
            "final state: not tested, the program is longer than the limit of {}\n\n",
            seconds(seen.limit.as_secs_f64())
        ));
    }
    if let Some(files) = final_state::compared(seen) {
        text.push_str(&format!("compared with the undisturbed run: {files}\n\n"));
    }
    if let Some(line) = seen.notice_line() {
        text.push_str(&format!("notice: {line}\n\n"));
    }
    text.push_str(&format!("verdict: {}\n", judgement.line));
    for finding in &judgement.findings {
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

fn undisturbed(seen: &Seen) -> String {
    let (ran, saves) = (seconds(seen.baseline.ran), counted(seen.baseline.saves.len() as u64, "save"));
    match &seen.base.ended {
        Ended::Job(state, ..) => format!("{} after {ran}, {saves}", state.word()),
        _ => format!("stopped at the limit after {ran}, {saves}"),
    }
}

/// For programs.
pub fn json(seen: &Seen, judgement: &Judgement) -> Value {
    let mut acts = vec![json!({
        "name": "undisturbed",
        "interruptions": 0,
        "lost_work_seconds": null,
        "restart_seconds": null,
        "checkpoint_seconds": seen.checkpoint_seconds(&seen.base),
        "final_state_equal": null,
        "outcome": undisturbed(seen),
    })];
    acts.extend(seen.scenes.iter().chain(&seen.kept_folder).map(|scene| {
        json!({
            "name": scene.name,
            "interruptions": scene.played.cuts,
            "lost_work_seconds": lost(scene),
            "restart_seconds": took(scene),
            "checkpoint_seconds": seen.checkpoint_seconds(&scene.played),
            "final_state_equal": scene.equal(&seen.volatile),
            "compared": scene.compared.iter().flatten().map(Compared::words).collect::<Vec<String>>(),
            "outcome": outcome(seen, scene),
        })
    }));
    json!({
        "verdict": judgement.verdict,
        "reason": judgement.line,
        "deterministic": seen.deterministic,
        "run_seconds": seen.baseline.ran,
        "notice_seconds": seen.notice.as_secs_f64(),
        "stop_seconds": seen.stop_seconds(),
        "longest_loss_seconds": seen.worst_loss(),
        "acts": acts,
        "findings": judgement.findings,
    })
}
