//! A market as it was recorded by others: how many instances could be had, tick after tick, and perhaps at
//! what price. Read from JSON of the form `{"metadata": {"gap_seconds": 600}, "data": [1, 0, …]}`.

use crate::gunzip::gunzip;
use serde_json::Value;
use std::path::{Path, PathBuf};
use windfall_core::{NanoUsd, Span};

/// A recorded market.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recording {
    /// The file's name without its ending.
    pub name: String,
    pub tick: Span,
    /// Instances that could be had, tick by tick.
    pub counts: Vec<u32>,
    /// Spot price an hour, tick by tick, where it was recorded.
    pub prices: Option<Vec<NanoUsd>>,
}

/// How files are to be understood.
#[derive(Clone, Copy, Debug, Default)]
pub struct Reading {
    /// 1 means that nothing could be had.
    pub unavailable_is_one: bool,
    /// The tick, where the file does not say.
    pub tick: Option<Span>,
}

/// A recording that cannot be used: where, what, and what to do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}: {place}: {problem}", file.display())]
pub struct RecordingError {
    /// The file or folder.
    pub file: PathBuf,
    /// The place in it.
    pub place: String,
    pub problem: String,
    pub hint: String,
}

/// Reads one file, or every recording in a folder and below, in the order of their names.
pub fn read_recordings(path: &Path, reading: Reading) -> Result<Vec<Recording>, RecordingError> {
    let mut files = Vec::new();
    find(path, &mut files)?;
    if files.is_empty() {
        let hint = "a recording is a file that ends in .json or .json.gz";
        return Err(wrong(path, "the folder", "no recorded market in it", hint));
    }
    files.iter().map(|file| read_recording(file, reading)).collect()
}

fn find(path: &Path, files: &mut Vec<PathBuf>) -> Result<(), RecordingError> {
    let unreadable = |error: std::io::Error| wrong(path, "the path", error.to_string(), "check that it exists");
    if !std::fs::metadata(path).map_err(unreadable)?.is_dir() {
        files.push(path.to_owned());
        return Ok(());
    }
    let entries = std::fs::read_dir(path).map_err(unreadable)?.collect::<Result<Vec<_>, _>>().map_err(unreadable)?;
    let mut paths: Vec<PathBuf> = entries.iter().map(|entry| entry.path()).collect();
    paths.sort();
    for path in paths {
        let name = path.to_string_lossy();
        if path.is_dir() || name.ends_with(".json") || name.ends_with(".json.gz") {
            find(&path, files)?;
        }
    }
    Ok(())
}

/// Reads one file.
pub fn read_recording(file: &Path, reading: Reading) -> Result<Recording, RecordingError> {
    let bytes = std::fs::read(file).map_err(|e| wrong(file, "the file", e.to_string(), "check that it exists"))?;
    let bytes = match bytes.starts_with(&[0x1f, 0x8b]) {
        true => gunzip(&bytes).map_err(|e| wrong(file, "the file", e, "unpack it with gunzip and look at it"))?,
        false => bytes,
    };
    let value: Value = serde_json::from_slice(&bytes).map_err(|error| {
        let place = format!("line {}, column {}", error.line(), error.column());
        wrong(file, &place, "not JSON", "expected {\"metadata\": {\"gap_seconds\": 600}, \"data\": [1, 0, …]}")
    })?;
    let name = file.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let name = name.trim_end_matches(".gz").trim_end_matches(".json").to_owned();
    let tick = tick_of(file, &value, reading)?;
    let counts = counts_of(file, &value, reading)?;
    let prices = prices_of(file, &value, counts.len())?;
    Ok(Recording { name, tick, counts, prices })
}

fn tick_of(file: &Path, value: &Value, reading: Reading) -> Result<Span, RecordingError> {
    let said = value.pointer("/metadata/gap_seconds").or_else(|| value.get("gap_seconds"));
    let place = "metadata.gap_seconds";
    match (said.filter(|said| !said.is_null()), reading.tick) {
        (Some(said), _) => match said.as_f64().filter(|seconds| (1.0..=86_400.0).contains(seconds)) {
            Some(seconds) => Ok(Span((seconds * 1_000.0).round() as i64)),
            None => Err(wrong(file, place, format!("{said} is no tick"), "expected 1 to 86400 seconds")),
        },
        (None, Some(tick)) => Ok(tick),
        (None, None) => Err(wrong(file, place, "the length of a tick is missing", "give it with --tick, such as 600s")),
    }
}

fn counts_of(file: &Path, value: &Value, reading: Reading) -> Result<Vec<u32>, RecordingError> {
    let hint = "expected a list of counts, one for each tick";
    let list = value.get("data").and_then(Value::as_array);
    let list = list.ok_or_else(|| wrong(file, "data", "there is no list of ticks", hint))?;
    if list.is_empty() {
        return Err(wrong(file, "data", "no ticks", hint));
    }
    let count = |(number, value): (usize, &Value)| {
        let place = format!("data[{number}]");
        let problem = match value.as_f64() {
            None if value.is_null() => "a gap: nothing was recorded here".to_owned(),
            Some(count) if count < 0.0 => format!("{value} is negative"),
            Some(count) if count.fract() == 0.0 && count <= f64::from(u32::MAX) => {
                let count = count as u32;
                return match (reading.unavailable_is_one, count) {
                    (false, count) => Ok(count),
                    (true, 0) => Ok(1),
                    (true, 1) => Ok(0),
                    (true, _) => {
                        Err(wrong(file, &place, format!("{value} with --unavailable-is-one"), "expected 0 or 1"))
                    }
                };
            }
            _ => format!("{value} is no count"),
        };
        Err(wrong(file, &place, problem, "cut the recording there, or fill in what could be had"))
    };
    list.iter().enumerate().map(count).collect()
}

fn prices_of(file: &Path, value: &Value, ticks: usize) -> Result<Option<Vec<NanoUsd>>, RecordingError> {
    let Some(list) = value.get("prices").and_then(Value::as_array) else { return Ok(None) };
    if list.len() != ticks {
        let problem = format!("{} prices for {ticks} ticks", list.len());
        return Err(wrong(file, "prices", problem, "expected one price for each tick"));
    }
    let price = |(number, value): (usize, &Value)| match value.as_f64().filter(|price| *price > 0.0) {
        Some(price) => Ok(NanoUsd::from_dollars(price)),
        None => {
            let place = format!("prices[{number}]");
            Err(wrong(file, &place, format!("{value} is no price"), "expected dollars an hour above 0"))
        }
    };
    list.iter().enumerate().map(price).collect::<Result<Vec<_>, _>>().map(Some)
}

fn wrong(file: &Path, place: &str, problem: impl Into<String>, hint: &str) -> RecordingError {
    RecordingError { file: file.to_owned(), place: place.to_owned(), problem: problem.into(), hint: hint.to_owned() }
}
