//! Results side by side: which of two is faster, by how much, and whether that is more than chance.

use super::result::Run;
use super::statistics::difference;
use crate::text::{cut, dollars};
use serde::Serialize;
use std::fmt::Write;

/// Differences with a smaller chance than this are told as real.
const SURE: f64 = 0.05;

/// One run against the first of its name.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Comparison {
    pub name: String,
    /// Where it comes from: a file.
    pub source: String,
    pub accelerator: Option<String>,
    pub count: u32,
    pub precision: Option<String>,
    pub batch: Option<u64>,
    pub steps_per_second: Option<f64>,
    /// Items a second where both say it, so that batches that differ are compared fairly; steps a second otherwise.
    pub speed_ratio: Option<f64>,
    pub speed_ratio_low: Option<f64>,
    pub speed_ratio_high: Option<f64>,
    /// How likely such a difference is by chance; null without repetitions on both sides.
    pub p: Option<f64>,
    /// Null where it is not known.
    pub significant: Option<bool>,
    pub usd_per_1000_steps: Option<f64>,
    /// Cost of the same work, against the first.
    pub cost_ratio: Option<f64>,
    pub energy_ratio: Option<f64>,
    pub peak_memory_bytes: Option<u64>,
    pub mfu: Option<f64>,
}

/// Holds every run against the first one of its name.
pub fn compare(runs: &[(String, Run)]) -> Vec<Comparison> {
    let mut compared: Vec<(usize, Comparison)> = Vec::new();
    for (source, run) in runs {
        let first = runs.iter().position(|(_, other)| other.name == run.name).unwrap_or(0);
        compared.push((first, one(source, run, &runs[first].1)));
    }
    // Runs of one name stand together, in the order in which names first come.
    compared.sort_by_key(|(first, _)| *first);
    compared.into_iter().map(|(_, comparison)| comparison).collect()
}

/// Work of a step: its items where they are known.
fn work(run: &Run, other: &Run) -> f64 {
    let known = run.batch.zip(other.batch).filter(|(one, two)| *one > 0 && *two > 0 && run.unit == other.unit);
    known.map_or(1.0, |(batch, _)| batch as f64)
}

fn one(source: &str, run: &Run, first: &Run) -> Comparison {
    let (own, firsts) = (work(run, first), work(first, run));
    let scaled = |run: &Run, work: f64| run.repetitions.iter().map(|speed| speed * work).collect::<Vec<f64>>();
    let is_first = std::ptr::eq(run, first);
    let found = (!is_first).then(|| difference(&scaled(first, firsts), &scaled(run, own))).flatten();
    let plain = run.steps_per_second.zip(first.steps_per_second).map(|(run, first)| run * own / (first * firsts));
    let each =
        |run: &Run, work: f64, all: Option<f64>| all.map(|all| all / work).filter(|_| run.steps_per_second.is_some());
    let ratio =
        |one: Option<f64>, two: Option<f64>| one.zip(two).filter(|(_, two)| *two > 0.0).map(|(one, two)| one / two);
    let energy =
        |run: &Run| run.energy_joules.filter(|_| run.measured_steps > 0).map(|all| all / run.measured_steps as f64);
    Comparison {
        name: run.name.clone(),
        source: source.to_owned(),
        accelerator: run.accelerator.clone(),
        count: run.count,
        precision: run.precision.clone(),
        batch: run.batch,
        steps_per_second: run.steps_per_second,
        speed_ratio: plain,
        speed_ratio_low: found.map(|found| found.low),
        speed_ratio_high: found.map(|found| found.high),
        p: found.map(|found| found.p),
        significant: found.map(|found| found.p < SURE),
        usd_per_1000_steps: run.usd_per_1000_steps,
        cost_ratio: ratio(each(run, own, run.usd_per_1000_steps), each(first, firsts, first.usd_per_1000_steps)),
        energy_ratio: ratio(each(run, own, energy(run)), each(first, firsts, energy(first))),
        peak_memory_bytes: run.peak_memory_bytes,
        mfu: run.mfu,
    }
}

/// What a comparison says, in a few words.
pub fn verdict(of: &Comparison) -> String {
    let Some(ratio) = of.speed_ratio else { return "no speed to compare".to_owned() };
    if of.p.is_none() {
        return if (ratio - 1.0).abs() < 1e-12 {
            "the first".to_owned()
        } else {
            format!("{ratio:.2}×, significance unknown")
        };
    }
    let p = of.p.unwrap_or(1.0);
    let how = if p < 0.001 { "p < 0.001".to_owned() } else { format!("p = {p:.3}") };
    match of.significant {
        Some(true) if ratio > 1.0 => format!("{:.0} % faster, {how}", (ratio - 1.0) * 100.0),
        Some(true) => format!("{:.0} % slower, {how}", (1.0 - ratio) * 100.0),
        _ => format!("no significant difference ({ratio:.2}×, {how})"),
    }
}

/// Comparisons on one screen.
pub fn screen(all: &[Comparison], width: usize) -> String {
    let mut text = String::new();
    let mut name = None;
    for of in all {
        if name != Some(&of.name) {
            let _ = writeln!(text, "{}{}", if name.is_some() { "\n" } else { "" }, cut(&of.name, width));
            name = Some(&of.name);
        }
        let accelerator = of.accelerator.as_deref().unwrap_or("-");
        let place = if of.count > 1 { format!("{accelerator}:{}", of.count) } else { accelerator.to_owned() };
        let batch = of.batch.map_or("-".to_owned(), |batch| batch.to_string());
        let speed = of.steps_per_second.map_or("-".to_owned(), |speed| format!("{speed:.3}/s"));
        let usd = of.usd_per_1000_steps.map_or(String::new(), |usd| format!("  {}/1000", dollars(usd)));
        let precision = of.precision.as_deref().unwrap_or("-");
        let line = format!("  {place:<10} {precision:<5} batch {batch:<6} {speed:>12}{usd}");
        let said = verdict(of);
        if line.chars().count() + 2 + said.chars().count() <= width {
            let _ = writeln!(text, "{line}  {said}");
        } else {
            let _ = writeln!(text, "{}\n    {}", cut(&line, width), cut(&said, width.saturating_sub(4)));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(accelerator: &str, batch: u64, repetitions: &[f64]) -> (String, Run) {
        let mean = repetitions.iter().sum::<f64>() / repetitions.len() as f64;
        let run = Run {
            name: "bert-base".into(),
            accelerator: Some(accelerator.into()),
            count: 1,
            batch: Some(batch),
            steps_per_second: Some(mean),
            repetitions: repetitions.to_vec(),
            usd_per_1000_steps: Some(1.0 / mean),
            ..Run::default()
        };
        (accelerator.to_owned(), run)
    }

    #[test]
    fn a_difference_is_told_from_chance() {
        let compared = compare(&[
            run("A100", 32, &[3.0, 3.01, 2.99]),
            run("H100", 32, &[6.0, 6.02, 5.98]),
            run("L4", 32, &[2.7, 3.3, 3.1]),
        ]);
        let said: Vec<String> = compared.iter().map(verdict).collect();
        assert_eq!(said[0], "the first");
        assert_eq!(said[1], "100 % faster, p < 0.001");
        assert!(said[2].starts_with("no significant difference"), "{said:?}");
        assert!(screen(&compared, 80).lines().all(|line| line.chars().count() <= 80));
        assert!(screen(&compared, 40).lines().all(|line| line.chars().count() <= 40));
    }

    #[test]
    fn larger_batches_are_more_work() {
        let compared = compare(&[run("A100", 32, &[3.0, 3.0, 3.0]), run("A100", 64, &[1.5, 1.5, 1.5])]);
        assert_eq!((compared[1].speed_ratio, compared[1].cost_ratio), (Some(1.0), Some(1.0)));
    }
}
