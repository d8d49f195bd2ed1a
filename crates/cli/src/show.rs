//! Tables and lines for people.

use windfall_core::spec::WorkUnit;
use windfall_core::view::{JobView, State};
use windfall_core::{NanoUsd, Span, Work};

/// A table with aligned columns; the last column is left as it is.
pub fn table(head: &[&str], rows: &[Vec<String>]) -> String {
    let mut widths: Vec<usize> = head.iter().map(|cell| cell.chars().count()).collect();
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let line = |cells: &[String]| {
        let padded = cells.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}"));
        padded.collect::<Vec<_>>().join("  ").trim_end().to_owned() + "\n"
    };
    let mut text = line(&head.iter().map(|cell| (*cell).to_owned()).collect::<Vec<_>>());
    for row in rows {
        text.push_str(&line(row));
    }
    text
}

/// Dollars for people: `$2,385,046.61`.
pub fn usd(dollars: f64) -> String {
    NanoUsd::from_dollars(dollars).to_string()
}

/// Dollars from and to, in the digits of one amount: `$704.12-1,177.30`.
pub fn usd_between(low: f64, high: f64, dash: char) -> String {
    // Below ten cents amounts have four decimals, unless the other has two.
    let low = if low < 0.1 && high >= 0.1 { format!("${low:.2}") } else { usd(low) };
    format!("{low}{dash}{}", usd(high).trim_start_matches('$'))
}

/// How far a job is: `46 %`.
pub fn percent(job: &JobView) -> String {
    match fraction(job, job.done) {
        Some(fraction) => format!("{:.0} %", fraction * 100.0),
        None => "-".to_owned(),
    }
}

/// The share of the whole work, where that is known.
pub fn fraction(job: &JobView, work: Work) -> Option<f64> {
    let total = job.total.filter(|total| total.0 > 0)?;
    Some((work.0 as f64 / total.0 as f64).min(1.0))
}

/// Work in words: `37m 2s` or `1,200 steps`.
pub fn work(job: &JobView, work: Work) -> String {
    match job.unit {
        WorkUnit::Time => Span(i64::try_from(work.0).unwrap_or(i64::MAX)).to_string(),
        WorkUnit::Steps => format!("{} steps", work.0),
    }
}

/// What a job holds, or why it holds nothing.
pub fn lease(job: &JobView) -> String {
    match &job.lease {
        Some(lease) => format!("{} {} {} {}/h", lease.zone, lease.instance_type, lease.market, lease.price_per_hour),
        None if job.state == State::Waiting => {
            format!("none: {}", job.waits_for.as_deref().unwrap_or("waiting for capacity"))
        }
        None => "none".to_owned(),
    }
}

/// What needs a person, a line for each job that has trouble.
pub fn troubles(jobs: &[JobView]) -> String {
    let told = jobs.iter().filter_map(|job| Some((job, job.trouble.as_ref()?)));
    told.map(|(job, trouble)| format!("job {}: {}\n", job.id, trouble.text)).collect()
}

/// One line about where a job stands, for logs and pipes.
pub fn line(job: &JobView) -> String {
    let at = job.at - job.submitted_at;
    let mut text = format!("[{at:>8}] {:<9} {:>5}", job.state.word(), percent(job));
    text.push_str(&format!("  {}", lease(job)));
    if let Some(ends_at) = job.lease.as_ref().and_then(|lease| lease.ends_at) {
        text.push_str(&format!("  notice: {} left", ends_at - job.at));
    }
    if let Some(slack) = job.slack {
        text.push_str(&format!("  slack {slack}"));
    }
    text.push_str(&format!("  cost {}  interruptions {}", job.cost, job.interruptions));
    text
}
