//! How far a program was when it was interrupted, and from where it went on: by the progress it tells, else by
//! the lines it prints again, else by how often it saves in the rest, else by how long the rest takes.

use super::act::{Cut, Played, Stint};
use regex::Regex;
use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

/// Output read of one stint.
const MOST_OUTPUT: usize = 16 << 20;
/// Bytes at the end of the output among which its last line is looked for.
const LAST_OUTPUT: u64 = 16 << 10;
/// Characters of a line that are shown and compared.
const LONGEST_LINE: usize = 200;
/// Lines printed in this first part of a stint are greetings, which every start repeats.
const GREETINGS: f64 = 0.2;
/// With less work than this before an interruption, where the rest begins cannot be told from its length.
const LEAST_WORK: f64 = 0.4;

/// With so many saves in an undisturbed run, their number tells how much of it a rest was.
pub(super) const ENOUGH_SAVES: usize = 5;

/// What the undisturbed run looked like, in seconds.
#[derive(Clone, Debug, Default)]
pub struct Baseline {
    /// How long it ran, to its end or to the limit.
    pub ran: f64,
    pub finished: bool,
    /// When its saves were complete, since its start.
    pub saves: Vec<f64>,
    /// When the first of them began.
    pub first: Option<f64>,
    /// The usual time between two saves.
    pub every: Option<f64>,
    /// Before it does any work.
    pub startup: f64,
    pub lines: BTreeSet<String>,
}

/// A stint that followed an interruption.
#[derive(Clone, Debug)]
pub struct Restart {
    /// The share of the work before the interruption that was still there; none when nothing tells.
    pub kept: Option<f64>,
    /// The share that the newest checkpoint should have brought back.
    pub expected: f64,
    /// What tells: `progress`, `output`, `saves` or `run time`.
    pub by: &'static str,
    /// Running time whose work was done again.
    pub lost: Option<f64>,
    /// From the interruption until the program worked again.
    pub took: f64,
    /// Of that, the program's own start-up.
    pub startup: f64,
    /// Something was restored.
    pub restored: bool,
    /// It failed with this code.
    pub failed: Option<i32>,
}

impl Restart {
    /// It had a checkpoint to go on from and did not; none when nothing tells.
    pub fn began_from_zero(&self) -> Option<bool> {
        let kept = self.kept?;
        (self.expected > 0.15).then_some(kept < 0.35 * self.expected)
    }

    /// It seems to have begun from zero, and nothing that it told says so.
    pub fn is_doubtful(&self) -> bool {
        self.passed_over_checkpoint() && self.by != "progress"
    }

    /// It was given a checkpoint, and began from zero.
    pub fn passed_over_checkpoint(&self) -> bool {
        self.restored && self.began_from_zero() == Some(true)
    }
}

/// What a program printed; too long an output is cut at its end.
pub fn output(log: &Path) -> String {
    let bytes = std::fs::read(log).unwrap_or_default();
    String::from_utf8_lossy(&bytes[..bytes.len().min(MOST_OUTPUT)]).into_owned()
}

/// The last line of a stint's output that is not empty, cut short.
pub fn last_line(log: &Path) -> Option<String> {
    use std::io::{Read, Seek, SeekFrom};
    let mut file = std::fs::File::open(log).ok()?;
    let length = file.metadata().ok()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(LAST_OUTPUT))).ok()?;
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes).ok()?;
    let text = String::from_utf8_lossy(&bytes).into_owned();
    let line = text.split(['\n', '\r']).map(str::trim).rfind(|line| !line.is_empty())?;
    Some(line.chars().take(LONGEST_LINE).collect())
}

/// Every progress value in a stint's output, in order.
pub fn progress(stint: &Stint, pattern: Option<&Regex>) -> Vec<u64> {
    let Some(pattern) = pattern else { return Vec::new() };
    let text = output(&stint.log);
    let number = |found: regex::Captures<'_>| found.get(1)?.as_str().replace([',', '_'], "").parse().ok();
    pattern.captures_iter(&text).filter_map(number).collect()
}

/// The lines of a stint after its greetings.
fn lines(stint: &Stint) -> BTreeSet<String> {
    let until = stint.ran().mul_f64(GREETINGS);
    let offset = stint.output.iter().rev().find(|(age, _)| *age <= until).map_or(0, |(_, length)| *length);
    let text = output(&stint.log);
    let rest = text.get(usize::try_from(offset).unwrap_or(0)..).unwrap_or("");
    rest.lines().map(str::trim).filter(|line| !line.is_empty()).map(str::to_owned).collect()
}

impl Baseline {
    pub fn of(played: &Played) -> Baseline {
        let Some(stint) = played.last() else { return Baseline::default() };
        let saves: Vec<f64> = stint.watch.saves.iter().map(|save| stint.age(save.ended).as_secs_f64()).collect();
        let gaps: Vec<f64> = saves.windows(2).map(|pair| pair[1] - pair[0]).collect();
        let usual = median(gaps);
        let told = stint.view.evidence.first_progress_ms.map(|ms| ms as f64 / 1_000.0);
        // The first save comes one interval after the work has begun.
        let by_saves = usual.zip(saves.first()).map(|(usual, first)| (first - usual).max(0.0));
        let startup = match (told, by_saves) {
            (Some(told), Some(by_saves)) => told.min(by_saves.max(0.05)),
            (one, other) => one.or(other).unwrap_or(0.0),
        };
        Baseline {
            ran: stint.ran().as_secs_f64(),
            finished: played.succeeded(),
            first: stint.watch.saves.first().map(|save| stint.age(save.began).as_secs_f64()),
            every: usual,
            startup,
            lines: output(&stint.log).lines().map(|line| line.trim().to_owned()).collect(),
            saves,
        }
    }

    /// Whether it saves while it works, not only when it ends.
    pub fn saves_on_the_way(&self) -> bool {
        let end = if self.finished { self.ran * 0.9 } else { f64::INFINITY };
        self.saves.iter().any(|save| *save < end) || self.first.is_some_and(|first| first < end / 2.0)
    }

    /// The longest time between two saves, from its start on.
    pub fn longest_gap(&self) -> f64 {
        let from = [self.startup].into_iter().chain(self.saves.iter().copied());
        let to = self.saves.iter().copied().chain(self.finished.then_some(self.ran));
        from.zip(to).map(|(from, to)| to - from).fold(0.0, f64::max)
    }
}

fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied()
}

/// What the restarts of an act show.
pub fn restarts(played: &Played, baseline: &Baseline, pattern: Option<&Regex>) -> Vec<Restart> {
    let mut found = Vec::new();
    for (at, pair) in played.stints.windows(2).enumerate() {
        let (before, after) = (&pair[0], &pair[1]);
        let Some((_, cut_at)) = before.cut else { continue };
        // A stint whose program was never seen to run tells nothing.
        if after.started.is_none() && after.view.pid.is_none() {
            continue;
        }
        let ended = played.stints.len() == at + 2 && played.succeeded();
        let (kept, by) = kept(&played.stints[..=at], after, baseline, pattern, ended);
        let gone = before.ended.unwrap_or(cut_at);
        let startup = after.view.evidence.first_progress_ms.map_or(baseline.startup, |ms| ms as f64 / 1_000.0);
        let ran = (before.ran().as_secs_f64() - baseline.startup).max(0.0);
        let restored = after.view.restored.is_some() && after.found > 0;
        let expected = if restored { expected(&played.stints[..=at], baseline) } else { 0.0 };
        found.push(Restart {
            kept,
            // The lines that are compared begin after the greetings, and so does this share.
            expected: match by {
                "output" => (1.0 - (1.0 - expected) / (1.0 - GREETINGS)).max(0.0),
                _ => expected,
            },
            by,
            lost: kept.map(|kept| (1.0 - kept) * work_before(&played.stints[..=at], baseline).max(ran)),
            took: after.started.map_or(Duration::ZERO, |s| s.saturating_duration_since(gone)).as_secs_f64() + startup,
            startup,
            restored,
            failed: after.failed(),
        });
    }
    found
}

/// The share of the work reached that the stints up to an interruption had saved.
fn expected(before: &[Stint], baseline: &Baseline) -> f64 {
    let (mut safe, mut reached) = (0.0_f64, 0.01_f64);
    for stint in before {
        let began = if stint.found > 0 { safe } else { 0.0 };
        let work = |age: f64| began + (age - baseline.startup).max(0.0);
        reached = reached.max(work(stint.ran().as_secs_f64()));
        // Of a damaged checkpoint the one before it is what comes back.
        let passed = usize::from(matches!(stint.cut, Some((Cut::Damaged, _))));
        if let Some(at) = stint.durable.iter().rev().nth(passed) {
            // It holds what was done when it was written, not when it had settled.
            let written = stint.watch.saves.iter().rev().find(|save| save.ended <= *at).map_or(*at, |save| save.ended);
            safe = work(stint.age(written).as_secs_f64()).min(reached);
        }
    }
    safe / reached
}

/// Running time of all the work that the stints up to an interruption have reached.
fn work_before(stints: &[Stint], baseline: &Baseline) -> f64 {
    stints.iter().map(|stint| (stint.ran().as_secs_f64() - baseline.startup).max(0.0)).fold(0.0, f64::max)
}

fn kept(
    before: &[Stint],
    after: &Stint,
    baseline: &Baseline,
    pattern: Option<&Regex>,
    ended: bool,
) -> (Option<f64>, &'static str) {
    let reached: BTreeSet<u64> = before.iter().flat_map(|stint| progress(stint, pattern)).collect();
    let again = progress(after, pattern);
    if reached.len() >= 3 && !again.is_empty() {
        return (Some(by_progress(&reached, &again)), "progress");
    }
    let told = before.iter().filter_map(|stint| stint.view.done).max();
    if let (None, Some(told), Some(first)) = (pattern, told.filter(|told| *told >= 3), after.first_done) {
        let redone = told.saturating_sub(first.saturating_sub(1));
        return (Some(1.0 - redone as f64 / told as f64), "progress");
    }
    let printed: BTreeSet<String> = before.iter().flat_map(lines).collect();
    let alike = printed.iter().filter(|line| baseline.lines.contains(*line)).count();
    // Lines that no other run prints, for their times and numbers, cannot be compared.
    if printed.len() >= 3 && alike * 5 >= printed.len() * 4 && (ended || after.ran() > work_time(before)) {
        let text = output(&after.log);
        let redone: BTreeSet<&str> = text.lines().map(str::trim).filter(|line| printed.contains(*line)).collect();
        return (Some(1.0 - redone.len() as f64 / printed.len() as f64), "output");
    }
    let work = before.last().map_or(0.0, |stint| stint.ran().as_secs_f64()) - baseline.startup;
    if ended && baseline.finished && before.len() == 1 && work >= LEAST_WORK {
        let [all, done, rest] = [baseline.saves.len(), before[0].watch.saves.len(), after.watch.saves.len()];
        // A busy machine makes a run longer, and not its saves more; but who looks too rarely takes two of them for one.
        if all >= ENOUGH_SAVES && done > 1 && after.longest_unseen() < baseline.every.unwrap_or(0.0) / 2.0 {
            return (Some((all.saturating_sub(rest) as f64 / done as f64).min(1.0)), "saves");
        }
        let spared = baseline.ran - after.ran().as_secs_f64();
        return (Some((spared / work).clamp(0.0, 1.0)), "run time");
    }
    (None, "")
}

fn work_time(before: &[Stint]) -> Duration {
    before.iter().map(Stint::ran).max().unwrap_or_default()
}

/// The share of the values reached before that were not told again. A first value that stands alone (`step 0 of
/// 100` before `resuming at step 40`) is a greeting.
fn by_progress(reached: &BTreeSet<u64>, again: &[u64]) -> f64 {
    let span = reached.last().zip(reached.first()).map_or(1, |(last, first)| (last - first).max(1));
    let usual = (span / reached.len() as u64).max(1);
    let from = match again {
        [first, second, ..] if *second > first.saturating_add(usual * 4) => *second,
        [first, ..] => *first,
        [] => return 0.0,
    };
    reached.iter().filter(|value| **value < from).count() as f64 / reached.len() as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_tells_where_the_rest_begins() {
        let reached: BTreeSet<u64> = (1..=40).collect();
        assert_eq!(by_progress(&reached, &[1, 2, 3]), 0.0);
        assert_eq!(by_progress(&reached, &[41, 42]), 1.0);
        assert_eq!(by_progress(&reached, &[31, 32, 33]), 0.75);
        assert_eq!(by_progress(&reached, &[0, 31, 32]), 0.75, "a greeting is passed over");
        let sparse: BTreeSet<u64> = [100, 200, 300].into();
        assert_eq!(by_progress(&sparse, &[400]), 1.0);
    }

    #[test]
    fn the_longest_gap_counts_from_the_start_to_the_end() {
        let baseline =
            Baseline { ran: 10.0, finished: true, saves: vec![2.0, 4.0], startup: 0.5, ..Baseline::default() };
        assert_eq!(baseline.longest_gap(), 6.0);
        assert!(baseline.saves_on_the_way());
        assert!(!Baseline { saves: vec![9.9], ..baseline }.saves_on_the_way());
    }
}
