//! Two profiles side by side: what changed between before and after.

use crate::report::{KernelLine, Rank, Report};
use crate::text::{parts, time};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt::Write;

/// A figure before and after.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Change {
    pub what: String,
    pub before_us: f64,
    pub after_us: f64,
}

/// Two reports and what changed.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Diff {
    /// How much shorter a step is, in percent of before; negative where it is longer. Without steps, of the whole trace.
    pub saves_percent: Option<f64>,
    /// Parts of the time, by step where both have steps.
    pub parts: Vec<Change>,
    /// Kernels whose time changed most.
    pub kernels: Vec<Change>,
    pub before: Report,
    pub after: Report,
}

/// Kernels that are listed.
const KERNELS: usize = 12;

/// Compares two reports.
pub fn diff(before: Report, after: Report) -> Diff {
    let by_step = before.step_us.is_some() && after.step_us.is_some();
    let whole = |report: &Report| if by_step { report.step_us } else { Some(span(report)).filter(|us| *us > 0.0) };
    let saves_percent = whole(&before).zip(whole(&after)).map(|(before, after)| 100.0 * (1.0 - after / before));
    Diff {
        saves_percent,
        parts: changes(summed(&before, by_step), summed(&after, by_step), false),
        kernels: changes(kernels(&before, by_step), kernels(&after, by_step), true),
        before,
        after,
    }
}

fn span(report: &Report) -> f64 {
    report.ranks.iter().map(|rank| rank.kernel_time_us).sum::<f64>() / report.ranks.len().max(1) as f64
}

/// What a sum over all ranks is divided by.
fn divisor(report: &Report, by_step: bool) -> f64 {
    let steps: u64 = if by_step { report.ranks.iter().map(|rank| rank.steps).sum() } else { report.ranks.len() as u64 };
    steps.max(1) as f64
}

fn summed(report: &Report, by_step: bool) -> Vec<(String, f64)> {
    let mut all: Vec<(String, f64)> = Vec::new();
    for (what, us) in report.ranks.iter().flat_map(|rank: &Rank| parts(rank)) {
        match all.iter_mut().find(|(known, _)| known == what) {
            Some((_, sum)) => *sum += us,
            None => all.push((what.to_owned(), us)),
        }
    }
    all.iter_mut().for_each(|(_, us)| *us /= divisor(report, by_step));
    all
}

fn kernels(report: &Report, by_step: bool) -> Vec<(String, f64)> {
    let mut all: BTreeMap<String, f64> = BTreeMap::new();
    for kernel in report.ranks.iter().flat_map(|rank| &rank.kernels) {
        let KernelLine { short, total_us, .. } = kernel;
        *all.entry(short.clone()).or_default() += total_us / divisor(report, by_step);
    }
    all.into_iter().collect()
}

fn changes(before: Vec<(String, f64)>, after: Vec<(String, f64)>, most_first: bool) -> Vec<Change> {
    let find =
        |list: &[(String, f64)], what: &str| list.iter().find(|(known, _)| known == what).map_or(0.0, |(_, us)| *us);
    let mut names: Vec<String> = before.iter().map(|(what, _)| what.clone()).collect();
    names.extend(after.iter().map(|(what, _)| what.clone()).filter(|what| find_name(&before, what)));
    let mut changes: Vec<Change> = names
        .into_iter()
        .map(|what| Change { before_us: find(&before, &what), after_us: find(&after, &what), what })
        .collect();
    if most_first {
        let size = |change: &Change| (change.after_us - change.before_us).abs();
        changes.sort_by(|one, other| size(other).total_cmp(&size(one)));
        changes.truncate(KERNELS);
    }
    changes
}

fn find_name(list: &[(String, f64)], what: &str) -> bool {
    list.iter().all(|(known, _)| known != what)
}

/// The comparison on one screen.
pub fn screen(diff: &Diff) -> String {
    let mut text = String::new();
    let unit = if diff.before.step_us.is_some() && diff.after.step_us.is_some() { "a step" } else { "the whole trace" };
    let _ = writeln!(text, "before  {}: {}", diff.before.verdict, diff.before.because);
    let _ = writeln!(text, "after   {}: {}", diff.after.verdict, diff.after.because);
    if let Some(saved) = diff.saves_percent {
        let (word, saved) = if saved >= 0.0 { ("shorter", saved) } else { ("longer", -saved) };
        let _ = writeln!(text, "{unit} is {saved:.1} % {word}");
    }
    let _ = writeln!(text, "\n{:<40} {:>11} {:>11} {:>12}", format!("Time of {unit}"), "before", "after", "change");
    for change in diff.parts.iter().filter(|change| change.before_us > 0.0 || change.after_us > 0.0) {
        line(&mut text, change);
    }
    let _ = writeln!(text, "\nKernels that changed most");
    for change in &diff.kernels {
        line(&mut text, change);
    }
    text
}

fn line(text: &mut String, change: &Change) {
    let name: String = change.what.chars().take(38).collect();
    let difference = change.after_us - change.before_us;
    let sign = if difference < 0.0 { "-" } else { "+" };
    let _ = writeln!(
        text,
        "  {name:<38} {:>11} {:>11} {:>12}",
        time(change.before_us),
        time(change.after_us),
        format!("{sign}{}", time(difference.abs()))
    );
}
