//! All that was seen of a program, and what is read from it directly. What it means is said in `findings.rs` and `judge.rs`.

use super::act::{Cut, Ended, Played, Stint};
use super::compare::{Compared, ValuePath};
use super::traces::{Baseline, Restart};
use serde::Serialize;
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

/// What a program still prints of the step in which it is told is no new work.
pub const LAST_WORDS: Duration = Duration::from_millis(1_500);

/// How much a finding weighs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Severity {
    /// Good to know.
    Info,
    /// Costs work or time.
    Warning,
    /// Work is lost without bound, or the result is wrong.
    Unsafe,
}

/// Something about the program that matters on spot capacity.
#[derive(Clone, Debug, Serialize)]
pub struct Finding {
    /// Stable.
    pub code: &'static str,
    /// What shows it.
    pub seen: String,
    pub why: &'static str,
    pub fix: String,
    pub severity: Severity,
}

/// An act and what its restarts show.
pub struct Scene {
    pub name: &'static str,
    pub played: Played,
    pub restarts: Vec<Restart>,
    /// The files of its final state beside those of the undisturbed run; none when there is nothing to compare.
    pub compared: Option<Vec<Compared>>,
}

/// All that was seen.
pub struct Seen {
    pub base: Played,
    pub baseline: Baseline,
    pub scenes: Vec<Scene>,
    /// The same interruption with the folder kept, where that was tried.
    pub kept_folder: Option<Scene>,
    /// Files that the program wrote in its folder, outside the checkpoint directory.
    pub outside: Vec<PathBuf>,
    /// It saves when Windfall asks it to, and so as often as the market makes it worth.
    pub saves_when_asked: bool,
    pub deterministic: Option<bool>,
    /// Where two undisturbed runs differ.
    pub volatile: BTreeSet<ValuePath>,
    /// Two undisturbed runs print different last lines.
    pub last_line_varies: bool,
    /// Acts that went wrong beside others and well alone.
    pub only_alone: Vec<&'static str>,
    /// The folder with the state that the undisturbed run ended with.
    pub base_state: PathBuf,
    /// The folder that the undisturbed run ran in.
    pub base_folder: PathBuf,
    pub notice: Duration,
    pub limit: Duration,
    pub settle: Duration,
    /// Where the program should save, as the user knows it.
    pub checkpoint: String,
}

impl Scene {
    /// Only the clock says that it began from zero.
    pub fn is_doubtful(&self) -> bool {
        self.restarts.iter().any(Restart::is_doubtful)
    }

    /// The stint that was interrupted first.
    pub fn cut(&self) -> Option<&Stint> {
        self.played.stints.iter().find(|stint| stint.cut.is_some())
    }

    /// The program went on to its end, or was killed for going on, after it had been told to stop.
    pub fn ignored_notice(&self, baseline: &Baseline) -> bool {
        let Some(stint) = self.cut() else { return false };
        let Some((Cut::Notice(_), at)) = stint.cut else { return false };
        if stint.outlasted_notice() {
            return true;
        }
        let rest = baseline.ran - stint.age(at).as_secs_f64();
        let took = stint.view.evidence.stop_took_ms.map_or(0.0, |ms| ms as f64 / 1_000.0);
        // Without a handler a process dies of it at once, or ignores it.
        if !stint.hears_notices() && took > LAST_WORDS.as_secs_f64() {
            return true;
        }
        baseline.finished && rest > 0.8 && took > 0.7 * rest
    }

    /// Something was saved between the notice and the end.
    pub fn saved_on_notice(&self, baseline: &Baseline) -> bool {
        let Some(stint) = self.cut() else { return false };
        let Some((Cut::Notice(_), at)) = stint.cut else { return false };
        let at_risk = baseline.every.map_or(f64::INFINITY, |every| every * 0.25).max(baseline.ran * 0.05);
        let saved = stint.saved_after(at);
        // A save that was due anyway, in the moment before it died, is older than what it had done.
        let all = self.restarts.first().is_none_or(|r| r.by != "progress" || r.lost.is_none_or(|lost| lost < at_risk));
        saved && all && !self.ignored_notice(baseline)
    }

    /// It failed before its interruption came.
    pub fn failed_uninterrupted(&self) -> bool {
        self.played.cuts == 0 && matches!(self.played.ended, Ended::Job(..)) && !self.played.succeeded()
    }

    pub fn hung(&self) -> bool {
        self.played.ended == Ended::Late
    }
}

impl Seen {
    pub fn scene(&self, name: &str) -> Option<&Scene> {
        self.scenes.iter().find(|scene| scene.name == name)
    }

    pub fn restarts(&self) -> impl Iterator<Item = (&Scene, &Restart)> {
        self.scenes.iter().flat_map(|scene| scene.restarts.iter().map(move |restart| (scene, restart)))
    }

    /// Most running time that one interruption cost, or may cost by the longest time between two saves.
    pub fn worst_loss(&self) -> f64 {
        // A damaged checkpoint costs one more interval; that is not what an interruption costs.
        let plain = |scene: &Scene| scene.cut().is_none_or(|s| !matches!(s.cut, Some((Cut::Damaged | Cut::Torn, _))));
        let restarts = self.restarts().filter(|(scene, _)| plain(scene));
        let measured = restarts.filter_map(|(_, restart)| restart.lost).fold(0.0, f64::max);
        if self.saves_when_asked {
            return measured;
        }
        if !self.baseline.saves_on_the_way() {
            return measured.max(self.baseline.ran);
        }
        measured.max(self.baseline.longest_gap() + self.checkpoint_seconds(&self.base))
    }

    /// From the first write of a save until it is durable, at worst.
    pub fn checkpoint_seconds(&self, played: &Played) -> f64 {
        let took = played.stints.iter().map(|stint| {
            let burst = stint.watch.saves.iter().map(|save| (save.ended - save.began).as_millis() as u64).max();
            stint.view.evidence.longest_save_ms.max(burst.unwrap_or(0)) + stint.view.evidence.upload_ms
        });
        took.max().unwrap_or(0) as f64 / 1_000.0
    }

    /// The longest time from SIGTERM to the program's end, where it ended by itself.
    pub fn stop_seconds(&self) -> Option<f64> {
        let told = |scene: &Scene| {
            let stint = scene.cut().filter(|stint| matches!(stint.cut, Some((Cut::Notice(_), _))))?;
            stint.view.evidence.stop_took_ms.filter(|_| !scene.ignored_notice(&self.baseline))
        };
        self.scenes.iter().filter_map(told).max().map(|took| took as f64 / 1_000.0)
    }

    /// The notice that was given, what was needed of it, and what clouds give; none when there was none.
    pub fn notice_line(&self) -> Option<String> {
        let told = |scene: &Scene| scene.cut().is_some_and(|stint| matches!(stint.cut, Some((Cut::Notice(_), _))));
        self.scenes.iter().any(told).then(|| {
            let needed = self
                .stop_seconds()
                .map_or("it did not end in it".to_owned(), |took| format!("it ended {} after SIGTERM", seconds(took)));
            let given = seconds(self.notice.as_secs_f64());
            format!("given {given}, {needed}; GCP and Azure give 30s, AWS gives 2m 0s")
        })
    }
}

/// Seconds for people: `0.4s`, `12s`, `3m 5s`.
pub fn seconds(seconds: f64) -> String {
    windfall_core::Span((seconds * 1_000.0) as i64).to_string()
}
