//! What was measured, as a table for people and as JSON for programs.

use crate::Measured;
use serde_json::{Value, json};
use std::fmt::Write;
use windfall_sim::crowd::Happening;

/// What others say of themselves, and where.
const ANCHORS: [&str; 4] = [
    "HyperQueue: below 0.1 ms a task (its own overhead, published)",
    "Slurm: 500 jobs a second (its guide to high throughput)",
    "Nomad: 3,750 containers a second (the C2M challenge)",
    "Kueue: 42.7 workloads a second (its performance test)",
];

/// Every kind of step, in the order of a round.
pub fn kinds() -> impl Iterator<Item = Happening> {
    Happening::ROUND.into_iter().chain([Happening::SecondLook])
}

fn grouped(number: u64) -> String {
    windfall_core::english::grouped(number.into())
}

/// Three digits in a unit that suits.
pub fn time(seconds: f64) -> String {
    match seconds {
        s if s < 1e-3 => format!("{:.1} us", s * 1e6),
        s if s < 1.0 => format!("{:.2} ms", s * 1e3),
        s => format!("{s:.2} s"),
    }
}

fn head(line: &str, cells: impl Iterator<Item = String>) -> String {
    let cells: Vec<String> = cells.map(|cell| format!("{cell:>23}")).collect();
    format!("{line:<28}{}\n", cells.concat())
}

/// The ratio of the largest size to the smallest, of medians.
fn flatness(measured: &[Measured], happening: Happening) -> Option<f64> {
    let (first, last) = (measured.first()?, measured.last()?);
    (first.jobs < last.jobs).then_some(last.median(happening)? / first.median(happening)?)
}

pub fn text(measured: &[Measured], skipped: &[(u64, f64)]) -> String {
    let mut text =
        "one step of the brain, median / P99 of processor time: events applied, decided, decisions applied\n\n"
            .to_owned();
    let of_each = |show: &dyn Fn(&Measured) -> String| measured.iter().map(show).collect::<Vec<String>>().into_iter();
    let ratio = |ratio: String| std::iter::once(format!("{ratio:>12}"));
    let sizes = of_each(&|size| format!("{} jobs", grouped(size.jobs)));
    text += &head("", sizes.chain(ratio("largest : smallest".to_owned())));
    for happening in kinds() {
        let cell = |size: &Measured| match (size.median(happening), size.p99(happening)) {
            (Some(median), Some(p99)) => format!("{} / {}", time(median), time(p99)),
            _ => "not reached".to_owned(),
        };
        let flat = flatness(measured, happening).map_or(String::new(), |ratio| format!("{ratio:.1}"));
        text += &head(happening.name(), of_each(&cell).chain(ratio(flat)));
    }
    text += "\ndecisions of such a step, on average: the more jobs a person has, the more of them share a machine that is lost\n";
    for happening in kinds() {
        let cell =
            |size: &Measured| size.decided_a_step(happening).map_or(String::new(), |number| format!("{number:.1}"));
        text += &head(happening.name(), of_each(&cell));
    }
    text.push('\n');
    text += &head("steps a second", of_each(&|size| format!("{:.1}", size.steps_per_second())));
    text += &head("bytes a live job", of_each(&|size| grouped(size.bytes_per_job as u64)));
    text += &head("live / with a stint", of_each(&|size| format!("{} / {}", size.live, size.running)));
    text += &head("leases", of_each(&|size| grouped(size.leases as u64)));
    text += &head("made in", of_each(&|size| format!("{:.1} s", size.made.as_secs_f64())));
    let rested = |size: &Measured| match size.rested {
        (time, Some(steps)) => format!("{:.1} s, {steps} steps", time.as_secs_f64()),
        (time, None) => format!("not in {:.1} s", time.as_secs_f64()),
    };
    text += &head("came to rest in", of_each(&rested));
    let rounds = |size: &Measured| {
        let steps: usize = size.steps.values().map(Vec::len).sum();
        format!("{}, {steps}{}", size.rounds, if size.cut_short { " (cut short)" } else { "" })
    };
    text += &head("whole rounds, steps", of_each(&rounds));
    text.push('\n');
    for (jobs, seconds) in skipped {
        let _ = writeln!(text, "{} jobs: not begun, a step would take about {}", grouped(*jobs), time(*seconds));
    }
    text += "bytes: all of the heap that the jobs, their stints and their leases take, before the first decision\n";
    text += "beside it, as their makers say (none of them looks at prices):\n";
    for anchor in ANCHORS {
        let _ = writeln!(text, "  {anchor}");
    }
    text
}

pub fn json(measured: &[Measured], skipped: &[(u64, f64)]) -> Value {
    let steps = |size: &Measured| {
        let of = |happening: Happening| {
            let count = size.steps.get(&happening).map_or(0, Vec::len);
            let (median, p99) = (size.median(happening), size.p99(happening));
            let decided = size.decided.get(&happening);
            json!({"step": happening.name(), "count": count, "median_seconds": median, "p99_seconds": p99,
                   "decisions": decided})
        };
        kinds().map(of).collect::<Vec<Value>>()
    };
    let size = |size: &Measured| {
        json!({
            "jobs": size.jobs, "live": size.live, "with_a_stint": size.running, "leases": size.leases,
            "bytes_per_live_job": size.bytes_per_job, "steps_per_second": size.steps_per_second(),
            "made_seconds": size.made.as_secs_f64(), "rest_seconds": size.rested.0.as_secs_f64(),
            "rest_steps": size.rested.1, "whole_rounds": size.rounds, "cut_short": size.cut_short,
            "steps": steps(size),
        })
    };
    let flat = kinds().filter_map(|kind| Some((kind.name().to_owned(), json!(flatness(measured, kind)?))));
    let skip = |(jobs, seconds): &(u64, f64)| json!({"jobs": jobs, "expected_step_seconds": seconds});
    json!({
        "sizes": measured.iter().map(size).collect::<Vec<Value>>(),
        "largest_by_smallest": flat.collect::<serde_json::Map<String, Value>>(),
        "not_begun": skipped.iter().map(skip).collect::<Vec<Value>>(),
    })
}
