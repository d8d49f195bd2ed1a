//! What a rehearsal has to report: its acts, the verdict, findings with their fixes. The names are a promise to programs.

use super::act::{Cut, Ended, Played};
use super::compare::Compared;
use super::final_state;
use super::judge::{Judgement, Verdict};
use super::seen::{Finding, Scene, Seen, seconds};
use serde::Serialize;
use std::cell::Cell;
use std::time::Instant;
use windfall_core::english::counted;

/// One act.
#[derive(Clone, Debug, Serialize)]
pub struct Act {
    /// What is done to the program.
    pub name: &'static str,
    /// How often that was done.
    pub interruptions: u32,
    /// Running time that had to be done again.
    pub lost_work_seconds: Option<f64>,
    /// From the end of one stint to progress in the next.
    pub restart_seconds: Option<f64>,
    /// The longest time that a checkpoint took to be durable.
    pub checkpoint_seconds: f64,
    /// Whether it ended as the undisturbed run did.
    pub final_state_equal: Option<bool>,
    /// Which files of the final state were compared, and how.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub compared: Option<Vec<String>>,
    /// What came of it, in a few words.
    pub outcome: String,
}

/// All that there is to say.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The judgement in one word.
    pub verdict: Verdict,
    /// The verdict in one sentence.
    pub reason: String,
    /// Whether two undisturbed runs end alike, where that was tried.
    pub deterministic: Option<bool>,
    /// The undisturbed run.
    pub run_seconds: f64,
    pub notice_seconds: f64,
    /// What the program needed of it.
    pub stop_seconds: Option<f64>,
    /// The most that an interruption can cost.
    pub longest_loss_seconds: f64,
    /// The undisturbed run, then the others.
    pub acts: Vec<Act>,
    /// The weightiest first.
    pub findings: Vec<Finding>,
    /// What else a person should read, a line each.
    #[serde(skip)]
    pub remarks: Vec<String>,
}

/// Says what is being played while it is played.
pub(crate) struct Screen<'s> {
    say: &'s dyn Fn(&str),
    began: Instant,
    act: Cell<u32>,
}

impl<'s> Screen<'s> {
    pub fn new(say: &'s dyn Fn(&str)) -> Screen<'s> {
        Screen { say, began: Instant::now(), act: Cell::new(0) }
    }

    pub fn begin(&self, name: &str, how_long: &str) {
        self.act.set(self.act.get() + 1);
        let since = seconds(self.began.elapsed().as_secs_f64());
        (self.say)(&format!("[{since:>6}] act {}: {name}, {how_long}…", self.act.get()));
    }

    pub fn end(&self, played: &Played) {
        if played.ended == Ended::Late {
            (self.say)("         its time is over: the job is ended");
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

fn undisturbed(seen: &Seen) -> String {
    let (ran, saves) = (seconds(seen.baseline.ran), counted(seen.baseline.saves.len() as u64, "save"));
    match &seen.base.ended {
        Ended::Job(state, ..) => format!("{} after {ran}, {saves}", state.word()),
        _ => format!("stopped at the limit after {ran}, {saves}"),
    }
}

impl Report {
    pub(crate) fn of(seen: &Seen) -> Report {
        let Judgement { verdict, line, findings } = seen.judge();
        let undisturbed = Act {
            name: "undisturbed",
            interruptions: 0,
            lost_work_seconds: None,
            restart_seconds: None,
            checkpoint_seconds: seen.checkpoint_seconds(&seen.base),
            final_state_equal: None,
            compared: None,
            outcome: undisturbed(seen),
        };
        let acts = seen.scenes.iter().chain(&seen.kept_folder).map(|scene| Act {
            name: scene.name,
            interruptions: scene.played.cuts,
            lost_work_seconds: lost(scene),
            restart_seconds: took(scene),
            checkpoint_seconds: seen.checkpoint_seconds(&scene.played),
            final_state_equal: scene.equal(&seen.volatile),
            compared: Some(scene.compared.iter().flatten().map(Compared::words).collect()),
            outcome: outcome(seen, scene),
        });
        Report {
            verdict,
            reason: line,
            deterministic: seen.deterministic,
            run_seconds: seen.baseline.ran,
            notice_seconds: seen.notice.as_secs_f64(),
            stop_seconds: seen.stop_seconds(),
            longest_loss_seconds: seen.worst_loss(),
            acts: std::iter::once(undisturbed).chain(acts).collect(),
            findings,
            remarks: remarks(seen),
        }
    }
}

fn remarks(seen: &Seen) -> Vec<String> {
    let limit = seconds(seen.limit.as_secs_f64());
    let longer = !seen.baseline.finished && seen.base.ended == Ended::Late;
    let longer = longer.then(|| format!("final state: not tested, the program is longer than the limit of {limit}"));
    let compared = final_state::compared(seen).map(|files| format!("compared with the undisturbed run: {files}"));
    let notice = seen.notice_line().map(|line| format!("notice: {line}"));
    [longer, compared, notice].into_iter().flatten().collect()
}
