//! What follows from the figures, in sentences that carry their evidence. Every rule is a small function in one list; what
//! is worth most of a rule comes first, and each rule says little, so that all are heard.

use super::figures::{Figures, Group};
use super::part::Part;
use super::starved::Starved;
use serde::Serialize;
use std::collections::BTreeMap;
use windfall_core::Span;
use windfall_core::english::grouped;

/// Fewer jobs say nothing about a habit.
const FEWEST: u64 = 20;

/// Sentences of one rule.
const EACH: usize = 2;

/// A sentence, and the numbers that it rests on.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Advice {
    /// The rule: `time`, `memory`, `idle-gpus`, `failures`, `timeouts`, `fairness`, `starvation`.
    pub rule: &'static str,
    pub about: String,
    pub text: String,
    pub evidence: BTreeMap<&'static str, f64>,
}

/// All that can be said.
pub fn advice(whole: &Part, starved: &[Starved], longer: u64) -> Vec<Advice> {
    let mut all = Vec::new();
    all.extend(idle_gpus(whole));
    all.extend(time(whole));
    all.extend(failures(whole));
    all.extend(timeouts(whole));
    all.extend(memory(whole));
    all.extend(unfairness(whole));
    all.extend(starvation(whole, starved, longer));
    all
}

/// A length of time in words.
pub fn lasting(seconds: f64) -> String {
    Span((seconds.max(0.0) * 1000.0) as i64).to_string()
}

/// Hours in words, with their dollars where those are known.
fn hours(amount: f64, figures: &Figures) -> String {
    let priced = figures.gpu_hours - figures.unpriced_gpu_hours;
    let usd = figures.usd.filter(|_| priced > 0.0).map(|usd| usd / priced * amount);
    let usd = usd.map_or(String::new(), |usd| format!(" ({})", windfall_core::NanoUsd::from_dollars(usd)));
    format!("{} GPU-hours{usd}", figure(amount))
}

/// A number for people: no more digits than it has to say.
pub fn figure(amount: f64) -> String {
    match amount.abs() {
        small if small < 9.95 => format!("{amount:.1}"),
        _ => grouped(amount.round().max(0.0) as u128),
    }
}

/// The groups that a rule speaks of, those with the most at stake first.
fn worst(groups: &[Group], stake: impl Fn(&Figures) -> Option<f64>) -> Vec<(&Group, f64)> {
    let mut found: Vec<(&Group, f64)> =
        groups.iter().filter_map(|group| Some((group, stake(&group.figures).filter(|stake| *stake > 0.0)?))).collect();
    found.sort_by(|one, other| other.1.total_cmp(&one.1).then_with(|| one.0.name.cmp(&other.0.name)));
    found.truncate(EACH);
    found
}

fn said(rule: &'static str, about: &str, text: String, evidence: &[(&'static str, f64)]) -> Advice {
    Advice { rule, about: about.to_owned(), text, evidence: evidence.iter().copied().collect() }
}

/// A limit at least three times what is used keeps a job out of every gap that it would fit in.
fn time(whole: &Part) -> Vec<Advice> {
    let stake = |figures: &Figures| {
        let time = figures.time.filter(|time| time.jobs >= FEWEST && time.asked_median >= 3_600.0)?;
        let over = time.asked_median - time.used_median;
        (time.asked_median >= 3.0 * time.used_median).then_some(over * time.jobs as f64)
    };
    let tell = |(group, _): &(&Group, f64)| {
        let time = group.figures.time?;
        let text = format!(
            "user {} asks for {} and uses {} at the median of {} jobs: backfill cannot use them",
            group.name,
            lasting(time.asked_median),
            lasting(time.used_median),
            grouped(time.jobs.into())
        );
        let evidence = [
            ("jobs", time.jobs as f64),
            ("asked_median_s", time.asked_median),
            ("used_median_s", time.used_median),
            ("unused_gpu_hours", group.figures.unused_gpu_hours),
        ];
        Some(said("time", &group.name, text, &evidence))
    };
    worst(&whole.user, stake).iter().filter_map(tell).collect()
}

fn memory(whole: &Part) -> Vec<Advice> {
    let stake = |figures: &Figures| {
        let memory = figures.memory.filter(|memory| memory.jobs >= FEWEST && memory.asked_median >= 8.0)?;
        let over = memory.asked_median - memory.used_median;
        (memory.used_percent < 25.0 && memory.asked_median >= 4.0 * memory.used_median)
            .then_some(over * memory.jobs as f64)
    };
    let tell = |(group, _): &(&Group, f64)| {
        let memory = group.figures.memory?;
        let text = format!(
            "user {} asks for {} GiB of memory and uses {} GiB at the median of {} jobs: nobody else can use the rest",
            group.name,
            figure(memory.asked_median),
            figure(memory.used_median),
            grouped(memory.jobs.into())
        );
        let evidence = [
            ("jobs", memory.jobs as f64),
            ("asked_median_gib", memory.asked_median),
            ("used_median_gib", memory.used_median),
            ("used_percent", memory.used_percent),
        ];
        Some(said("memory", &group.name, text, &evidence))
    };
    worst(&whole.user, stake).iter().filter_map(tell).collect()
}

fn idle_gpus(whole: &Part) -> Vec<Advice> {
    let stake = |figures: &Figures| {
        let idle = figures.gpu_idle_hours.filter(|idle| *idle >= 1.0)?;
        figures.gpu_idle_percent.filter(|percent| *percent >= 50.0).map(|_| idle)
    };
    let tell = |(group, idle): &(&Group, f64)| {
        let figures = &group.figures;
        let percent = figures.gpu_idle_percent?;
        let text = format!(
            "user {} left {} idle, {percent:.0} % of what was recorded: find what they wait for, or ask for fewer",
            group.name,
            hours(*idle, figures),
        );
        let evidence =
            [("idle_gpu_hours", *idle), ("idle_percent", percent), ("recorded_gpu_hours", figures.gpu_recorded_hours)];
        Some(said("idle-gpus", &group.name, text, &evidence))
    };
    worst(&whole.user, stake).iter().filter_map(tell).collect()
}

fn failures(whole: &Part) -> Vec<Advice> {
    let stake = |figures: &Figures| {
        let ended = figures.completed + figures.failed + figures.timed_out;
        (ended >= FEWEST && figures.failed * 4 >= ended).then_some(figures.failed_gpu_hours)
    };
    let tell = |(group, lost): &(&Group, f64)| {
        let figures = &group.figures;
        let ended = figures.completed + figures.failed + figures.timed_out;
        let text = format!(
            "{} of {} jobs of the type {} failed, after {}: try one before the rest is submitted",
            grouped(figures.failed.into()),
            grouped(ended.into()),
            group.name,
            hours(*lost, figures)
        );
        let evidence = [("failed", figures.failed as f64), ("ended", ended as f64), ("gpu_hours", *lost)];
        said("failures", &group.name, text, &evidence)
    };
    worst(&whole.r#type, stake).iter().map(tell).collect()
}

fn timeouts(whole: &Part) -> Vec<Advice> {
    let stake = |figures: &Figures| {
        (figures.timed_out >= 5).then_some(figures.timed_out_gpu_hours).filter(|hours| *hours >= 1.0)
    };
    let tell = |(group, lost): &(&Group, f64)| {
        let figures = &group.figures;
        let text = format!(
            "{} jobs of user {} ended at their time limit, after {}: save checkpoints and go on from them, or ask for more",
            grouped(figures.timed_out.into()),
            group.name,
            hours(*lost, figures)
        );
        said("timeouts", &group.name, text, &[("timed_out", figures.timed_out as f64), ("gpu_hours", *lost)])
    };
    worst(&whole.user, stake).iter().map(tell).collect()
}

fn unfairness(whole: &Part) -> Vec<Advice> {
    let mut found = Vec::new();
    for row in &whole.fairness.accounts {
        let Some(granted) = row.granted_percent.filter(|granted| *granted > 0.0) else { continue };
        let over = row.used_percent - granted;
        if over.abs() >= 5.0 && (row.used_percent >= 1.5 * granted || row.used_percent * 2.0 <= granted) {
            let text = format!(
                "account {} was granted {granted:.1} % and used {:.1} %: {}",
                row.account,
                row.used_percent,
                if over > 0.0 { "others get less than their share while it does" } else { "its share went to others" }
            );
            let evidence = [("granted_percent", granted), ("used_percent", row.used_percent)];
            found.push((over.abs(), said("fairness", &row.account, text, &evidence)));
        }
    }
    found.sort_by(|one, other| other.0.total_cmp(&one.0));
    found.into_iter().map(|(_, advice)| advice).take(EACH).collect()
}

fn starvation(whole: &Part, starved: &[Starved], longer: u64) -> Vec<Advice> {
    let Some(worst) = starved.first().filter(|worst| worst.ratio >= 1.0) else { return Vec::new() };
    let behind: Vec<String> =
        worst.behind.iter().map(|holder| format!("{} ({:.0} %)", holder.user, holder.percent)).collect();
    let behind = if behind.is_empty() {
        "while nobody used its partition".to_owned()
    } else {
        format!("while its partition was used by {}", behind.join(", "))
    };
    let text = format!(
        "{} of {} jobs waited longer than they asked to run; longest in proportion job {} of {}, {} for {}, {behind}",
        grouped(longer.into()),
        grouped(whole.total.jobs.into()),
        worst.job,
        worst.user,
        lasting(worst.waited_s.into()),
        lasting(worst.asked_s.into()),
    );
    let evidence = [("jobs", longer as f64), ("waited_s", worst.waited_s.into()), ("asked_s", worst.asked_s.into())];
    vec![said("starvation", &worst.user, text, &evidence)]
}
