//! A result for people: what was measured, a line each.

use std::fmt::Write;
use windfall_core::english::grouped;
use windfall_insight::bench::Run;
use windfall_insight::text::dollars;

const GIB: f64 = 1_073_741_824.0;

/// The result in lines of at most so many columns.
pub fn screen(run: &Run, width: usize) -> String {
    let mut text = String::new();
    let place = match (run.accelerator.as_deref().unwrap_or("-"), run.count) {
        (accelerator, 1) => accelerator.to_owned(),
        (accelerator, count) => format!("{accelerator}:{count}"),
    };
    let mut head = vec![run.name.clone(), place];
    head.extend(run.precision.clone());
    head.extend(run.batch.filter(|_| run.steps_per_second.is_some()).map(|batch| format!("batch {batch}")));
    put(&mut text, "", &head.join(", "), width);
    for (what, said) in lines(run) {
        put(&mut text, what, &said, width);
    }
    for figure in &run.figures {
        put(&mut text, "", &format!("{:<26} {:>12} {}", figure.name, value(figure.value), figure.unit), width);
    }
    for note in &run.notes {
        put(&mut text, "note", note, width);
    }
    text
}

fn put(text: &mut String, what: &str, said: &str, width: usize) {
    let indent = if what.is_empty() { 0 } else { 9 };
    let room = width.saturating_sub(indent + 2).max(16);
    if text.is_empty() {
        let _ = writeln!(text, "{said}");
        return;
    }
    let lines = crate::fitted::wrapped(said, room);
    let keeps = what.is_empty() && said.chars().count() <= room;
    let lines: Vec<&str> = if keeps { vec![said] } else { lines.lines().collect() };
    for (at, line) in lines.iter().enumerate() {
        let lead = if at == 0 { what } else { "" };
        let _ = writeln!(text, "  {lead:<indent$}{line}");
    }
}

fn lines(run: &Run) -> Vec<(&'static str, String)> {
    let mut lines = Vec::new();
    if let Some(speed) = run.steps_per_second {
        let band = run.steps_per_second_low.zip(run.steps_per_second_high).map_or(String::new(), |(low, high)| {
            let times = if run.repetitions.len() == 1 { "repetition" } else { "repetitions" };
            format!(" ({} to {}, {} {times})", value(low), value(high), run.repetitions.len())
        });
        lines.push(("speed", format!("{} steps/s{band}", value(speed))));
        let unit = run.unit.as_deref().unwrap_or("items");
        let items = run.units_per_second.map(|items| format!(", {} {unit}/s", grouped(items.round() as u128)));
        lines.push(("step", format!("{} ms{}", value(1e3 / speed), items.unwrap_or_default())));
    }
    if let Some(bytes) = run.peak_memory_bytes {
        lines.push(("memory", format!("{:.2} GiB at most", bytes as f64 / GIB)));
    }
    let mut used = Vec::new();
    used.extend(run.busy_percent.map(|share| format!("some kernel ran {share:.0} % of the time")));
    used.extend(run.sm_active_percent.map(|share| format!("multiprocessors {share:.0} %")));
    used.extend(run.tensor_active_percent.map(|share| format!("tensor cores {share:.0} %")));
    if !used.is_empty() {
        lines.push(("GPU", used.join(", ")));
    }
    if let Some(watts) = run.power_watts {
        let each = run.energy_joules.filter(|_| run.measured_steps > 0).map(|all| all / run.measured_steps as f64);
        lines.push((
            "power",
            format!("{watts:.0} W{}", each.map_or(String::new(), |each| format!(", {} J a step", value(each)))),
        ));
    }
    lines.extend(run.mfu.map(|mfu| ("MFU", format!("{:.1} %", mfu * 100.0))));
    lines.extend(run.metric.map(|metric| ("metric", value(metric))));
    if let Some(usd) = run.usd_per_1000_steps {
        let mut cost = format!("{} for 1,000 steps", dollars(usd));
        if let Some(epoch) = run.usd_per_epoch {
            let _ = write!(cost, ", {} a pass over the data", dollars(epoch));
        }
        if let Some(steps) = run.steps {
            let _ = write!(cost, ", {} for {} steps", dollars(usd * steps as f64 / 1e3), grouped(steps.into()));
        }
        lines.push(("cost", cost));
    }
    lines
}

/// A number with four digits that say something.
pub fn value(number: f64) -> String {
    match number.abs() {
        large if large >= 1e4 => grouped(number.round() as u128),
        large if large >= 1e3 => format!("{number:.0}"),
        large if large >= 1e2 => format!("{number:.1}"),
        large if large >= 1e1 => format!("{number:.2}"),
        large if large >= 1.0 => format!("{number:.3}"),
        small if small >= 1e-3 || small == 0.0 => format!("{number:.4}"),
        _ => format!("{number:.2e}"),
    }
}
