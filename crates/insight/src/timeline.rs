//! What pictures need of a trace: how busy the accelerator was over time, and single spans of one step.

use crate::analysis::Figures;
use crate::trace::kernel::{Class, short};
use crate::trace::rows::{DeviceRow, OURS};
use crate::trace::{Trace, Whose};
use serde::Serialize;
use std::collections::BTreeMap;

/// Columns of the overview.
const COLUMNS: usize = 600;

/// Spans that are drawn one by one.
const SPANS: usize = 6_000;

/// Spans of one rank.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Timeline {
    /// Length of the overview.
    pub length_us: f64,
    /// Share of each column that was computation, communication and copies, in thousandths.
    pub columns: Vec<[u16; 3]>,
    /// Names of the spans below.
    pub names: Vec<String>,
    /// Streams of the spans below.
    pub streams: Vec<i64>,
    /// Where the window begins on the overview.
    pub from_us: f64,
    pub window_us: f64,
    /// Start within the window, duration, name, stream, class.
    pub spans: Vec<(f64, f64, u32, u32, u8)>,
}

/// Reads a trace's rows once more for its picture.
pub fn timeline(trace: &Trace, whose: Whose, figures: &Figures) -> Timeline {
    let (first, length) = (figures.unions.first_ns, figures.unions.span().max(1));
    let window = window(trace, whose, figures);
    let mut columns = vec![[0f64; 3]; COLUMNS];
    let mut picture = Timeline {
        length_us: length as f64 / 1e3,
        columns: Vec::new(),
        names: Vec::new(),
        streams: Vec::new(),
        from_us: (window.0 - first) as f64 / 1e3,
        window_us: 0.0,
        spans: Vec::new(),
    };
    let (mut names, mut streams) = (BTreeMap::new(), BTreeMap::new());
    let mut last = window.0;
    for row in trace.spans(whose).filter(|row| row.flags & OURS != 0) {
        let class = match trace.names.kernel(row.name).class {
            Class::Compute => 0,
            Class::Communication => 1,
            _ => 2,
        };
        add(
            &mut columns,
            class,
            (row.start_ns - first) as f64 / length as f64,
            (row.end_ns - first) as f64 / length as f64,
        );
        if row.start_ns < window.0 || row.start_ns >= window.1 || picture.spans.len() == SPANS {
            continue;
        }
        let name = *names.entry(row.name).or_insert_with(|| {
            picture.names.push(short(trace.names.text(row.name)));
            picture.names.len() as u32 - 1
        });
        let stream = *streams.entry(row.stream).or_insert_with(|| {
            picture.streams.push(trace.stream(row.stream));
            picture.streams.len() as u32 - 1
        });
        last = last.max(row.end_ns);
        let start = (row.start_ns - window.0) as f64 / 1e3;
        picture.spans.push((start, row.duration_ns() as f64 / 1e3, name, stream, class as u8));
    }
    picture.window_us = (last - window.0) as f64 / 1e3;
    picture.columns = columns.iter().map(|column| column.map(|share| (share.min(1.0) * 1e3).round() as u16)).collect();
    picture
}

/// The time of one step in the middle, as the accelerator saw it; without steps, from the beginning on.
fn window(trace: &Trace, whose: Whose, figures: &Figures) -> (i64, i64) {
    let step = trace.steps.get(trace.steps.len() / 2);
    let (from, until) = step.map_or((i64::MIN, i64::MAX), |step| (step.start_ns, step.end_ns));
    let launched =
        |row: &DeviceRow| row.launch.is_some_and(|launch| launch.start_ns >= from && launch.start_ns < until);
    let rows = trace.spans(whose).filter(|row| row.flags & OURS != 0);
    let mut seen: Option<(i64, i64)> = None;
    for row in rows.filter(|row| step.is_none() || launched(row)) {
        let (first, last) = seen.unwrap_or((row.start_ns, row.end_ns));
        seen = Some((first, last.max(row.end_ns)));
    }
    seen.unwrap_or((figures.unions.first_ns, figures.unions.last_ns))
}

/// Adds a span to the columns that it covers.
fn add(columns: &mut [[f64; 3]], class: usize, from: f64, until: f64) {
    let count = columns.len() as f64;
    let (from, until) = ((from * count).clamp(0.0, count), (until * count).clamp(0.0, count));
    for (at, column) in columns.iter_mut().enumerate().take(until.ceil() as usize).skip(from as usize) {
        column[class] += (until.min(at as f64 + 1.0) - from.max(at as f64)).max(0.0);
    }
}
