//! The one format of results: what `windfall bench` writes, `bench compare` and `extrapolate` read, and a job file names in
//! `work: { benchmark: … }`. `docs/benchmark.schema.json` is its schema. Files of other makers with fewer keys are read too:
//! a speed and what it was measured on are enough.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// What a file of this format says of itself.
pub const FORMAT: &str = "windfall-benchmark/1";

/// Results, as they are stored.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Results {
    pub format: String,
    pub runs: Vec<Run>,
}

/// One program at one precision and batch on one kind of accelerator. What was not measured is null.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// A suite's name, or the program's.
    pub name: String,
    /// The accelerator's family, as `windfall offers` names it; `cpu` without one.
    pub accelerator: Option<String>,
    /// How many of them.
    pub count: u32,
    pub precision: Option<String>,
    /// Items in a step, on all accelerators together.
    pub batch: Option<u64>,
    pub steps_per_second: Option<f64>,
    /// The 95 % interval of repetitions.
    pub steps_per_second_low: Option<f64>,
    pub steps_per_second_high: Option<f64>,
    /// The speed of each repetition.
    pub repetitions: Vec<f64>,
    /// What a step's items are: `tokens`, `images`.
    pub unit: Option<String>,
    pub units_per_second: Option<f64>,
    /// Steps that were measured, without the warm-up, and the time that they took.
    pub measured_steps: u64,
    pub measured_seconds: f64,
    /// Steps of the whole job, where the file says how much there is to do.
    pub steps: Option<u64>,
    /// Of the accelerator that held most, or of the program where there is none.
    pub peak_memory_bytes: Option<u64>,
    /// The share of time in which some kernel ran, in percent.
    pub busy_percent: Option<f64>,
    pub sm_active_percent: Option<f64>,
    pub tensor_active_percent: Option<f64>,
    pub power_watts: Option<f64>,
    /// Of all accelerators for the measured steps.
    pub energy_joules: Option<f64>,
    /// Model FLOPs utilisation, 0 to 1.
    pub mfu: Option<f64>,
    pub usd_per_1000_steps: Option<f64>,
    /// Items that a pass over the data has, and what such a pass costs.
    pub items_per_epoch: Option<u64>,
    pub usd_per_epoch: Option<f64>,
    /// What the program said at its end, such as a loss.
    pub metric: Option<f64>,
    pub seed: Option<u64>,
    /// Ceilings and times that are no steps: TFLOP/s, GB/s, seconds.
    pub figures: Vec<Figure>,
    pub notes: Vec<String>,
}

/// A figure that is no step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Figure {
    pub name: String,
    pub value: f64,
    pub unit: String,
}

/// What is wrong with a file of results.
#[derive(Debug, thiserror::Error)]
pub enum ResultError {
    #[error("line {line}, column {column}: {what}")]
    NotJson { line: usize, column: usize, what: String },
    #[error("no results: an object with `steps_per_second` or `step_ms`, or `runs` with such objects")]
    NoRuns,
    #[error("run {run}: `{key}` is not {wanted}")]
    Value { run: usize, key: &'static str, wanted: &'static str },
}

/// Reads results: this format, one object a line as `--json` prints them, one object alone, or `runs` of another maker with
/// `model`, `device` and `step_ms`.
pub fn read(text: &str) -> Result<Vec<Run>, ResultError> {
    let mut runs = Vec::new();
    for value in serde_json::Deserializer::from_str(text).into_iter::<Value>() {
        let value = value.map_err(|error| ResultError::NotJson {
            line: error.line(),
            column: error.column(),
            what: error.to_string().split(" at line").next().unwrap_or_default().to_owned(),
        })?;
        let whole = Value::Array(vec![value.clone()]);
        let listed = value.get("runs").filter(|runs| runs.is_array()).unwrap_or(&whole);
        for run in listed.as_array().into_iter().flatten() {
            runs.push(self::run(run, &value, runs.len() + 1)?);
        }
    }
    if runs.iter().all(|run| run.steps_per_second.is_none() && run.figures.is_empty()) {
        return Err(ResultError::NoRuns);
    }
    Ok(runs)
}

/// Results as a file.
pub fn write(runs: &[Run]) -> String {
    let results = Results { format: FORMAT.to_owned(), runs: runs.to_vec() };
    // Numbers and texts only: there is nothing that could fail.
    serde_json::to_string_pretty(&results).unwrap_or_default() + "\n"
}

fn run(run: &Value, file: &Value, number: usize) -> Result<Run, ResultError> {
    let text = |keys: &[&'static str]| {
        let found = keys.iter().find_map(|key| run.get(*key).or(file.get(*key)).filter(|value| !value.is_null()));
        found.and_then(Value::as_str).map(str::to_owned)
    };
    let value = |key: &'static str, wanted: &'static str, is: fn(f64) -> bool| match run.get(key) {
        None | Some(Value::Null) => Ok(None),
        Some(value) => match value.as_f64().filter(|number| number.is_finite() && is(*number)) {
            Some(number) => Ok(Some(number)),
            None => Err(ResultError::Value { run: number, key, wanted }),
        },
    };
    let positive = |key: &'static str| value(key, "a number above 0", |number| number > 0.0);
    let amount = |key: &'static str| value(key, "a number from 0", |number| number >= 0.0);
    let whole = |key: &'static str| {
        let is = |number: f64| number >= 0.0 && number.fract() == 0.0 && number < 9e15;
        value(key, "a whole number from 0", is).map(|number| number.map(|number| number as u64))
    };
    let speed = match positive("steps_per_second")? {
        Some(speed) => Some(speed),
        None => positive("step_ms")?.map(|ms| 1e3 / ms),
    };
    let count = run.get("count").or(file.get("count")).filter(|count| !count.is_null());
    let count = count.map_or(Some(1), |count| count.as_u64().and_then(|count| u32::try_from(count).ok()));
    let count = count.filter(|count| (1..=1_000_000).contains(count));
    let texts = |key: &str| {
        let listed = run.get(key).and_then(Value::as_array).into_iter().flatten();
        listed.filter_map(|note| note.as_str().map(str::to_owned)).collect::<Vec<String>>()
    };
    let figures = run.get("figures").cloned().map(serde_json::from_value).transpose();
    let bad = |key, wanted| ResultError::Value { run: number, key, wanted };
    let repetitions = match run.get("repetitions") {
        None | Some(Value::Null) => Vec::new(),
        Some(listed) => {
            let all =
                listed.as_array().and_then(|listed| listed.iter().map(Value::as_f64).collect::<Option<Vec<f64>>>());
            all.filter(|all| all.iter().all(|one| one.is_finite() && *one > 0.0))
                .ok_or_else(|| bad("repetitions", "a list of numbers above 0"))?
        }
    };
    Ok(Run {
        name: text(&["name", "model"]).unwrap_or_default(),
        accelerator: text(&["accelerator", "device"]),
        count: count.ok_or_else(|| bad("count", "a number of accelerators"))?,
        precision: text(&["precision"]),
        batch: whole("batch")?,
        steps_per_second: speed,
        steps_per_second_low: positive("steps_per_second_low").ok().flatten(),
        steps_per_second_high: positive("steps_per_second_high")?,
        repetitions,
        unit: text(&["unit"]),
        units_per_second: amount("units_per_second")?,
        measured_steps: whole("measured_steps")?.unwrap_or(0),
        measured_seconds: amount("measured_seconds")?.unwrap_or(0.0),
        steps: whole("steps")?,
        peak_memory_bytes: whole("peak_memory_bytes")?,
        busy_percent: amount("busy_percent")?,
        sm_active_percent: amount("sm_active_percent")?,
        tensor_active_percent: amount("tensor_active_percent")?,
        power_watts: amount("power_watts")?,
        energy_joules: amount("energy_joules")?,
        mfu: amount("mfu")?,
        usd_per_1000_steps: amount("usd_per_1000_steps")?,
        items_per_epoch: whole("items_per_epoch")?,
        usd_per_epoch: amount("usd_per_epoch")?,
        metric: value("metric", "a number", |_| true)?,
        seed: whole("seed")?,
        figures: figures.map_err(|_| bad("figures", "a list of { name, value, unit }"))?.unwrap_or_default(),
        notes: texts("notes"),
    })
}

impl Run {
    /// Its name and its precision: `bert-base/bf16`.
    pub fn label(&self) -> String {
        format!("{}/{}", self.name, self.precision.as_deref().unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_as_it_was() {
        let run = Run {
            name: "gpt2-medium".into(),
            accelerator: Some("H200".into()),
            count: 8,
            precision: Some("bf16".into()),
            batch: Some(8),
            steps_per_second: Some(6.25),
            steps_per_second_low: Some(6.2),
            steps_per_second_high: Some(6.3),
            repetitions: vec![6.2, 6.25, 6.3],
            figures: vec![Figure { name: "save".into(), value: 1.5, unit: "s".into() }],
            notes: vec!["a note".into()],
            ..Run::default()
        };
        assert_eq!(read(&write(std::slice::from_ref(&run))).expect("it is read"), std::slice::from_ref(&run));
        let line = serde_json::to_string(&run).expect("it is written");
        assert_eq!(read(&format!("{line}\n{line}\n")).expect("it is read"), [run.clone(), run]);
    }

    #[test]
    fn files_of_other_makers_are_read() {
        let text = r#"{"device": "NVIDIA H200", "runs": [{"model": "resnet50", "precision": "fp32", "step_ms": 200}]}"#;
        let runs = read(text).expect("it is read");
        assert_eq!((runs[0].label().as_str(), runs[0].steps_per_second), ("resnet50/fp32", Some(5.0)));
        assert_eq!(runs[0].accelerator.as_deref(), Some("NVIDIA H200"));
        assert_eq!(read(r#"{"accelerator": "V100", "steps_per_second": 2.0}"#).expect("it is read")[0].count, 1);
    }

    #[test]
    fn mistakes_say_where() {
        let said = |text: &str| read(text).expect_err("a mistake").to_string();
        assert!(said("{\n \"runs\": [}").starts_with("line 2, column"), "{}", said("{\n \"runs\": [}"));
        assert!(said("{}").starts_with("no results"));
        assert!(said("").starts_with("no results"));
        assert_eq!(said(r#"{"runs":[{"step_ms":1},{"step_ms":-1}]}"#), "run 2: `step_ms` is not a number above 0");
        assert_eq!(said(r#"{"step_ms":1,"count":0}"#), "run 1: `count` is not a number of accelerators");
    }

    #[test]
    fn the_schema_has_every_key_and_no_other() {
        let schema: Value = serde_json::from_str(crate::bench::SCHEMA).expect("the schema is JSON");
        let properties = schema["$defs"]["run"]["properties"].as_object().expect("keys");
        let written = serde_json::to_value(Run::default()).expect("it is written");
        let keys: Vec<&String> = written.as_object().expect("an object").keys().collect();
        assert_eq!(keys, properties.keys().collect::<Vec<_>>());
        assert_eq!(schema["properties"]["format"]["const"], FORMAT);
        // What may be null in the schema is null in a run of which nothing is known, and nothing else is.
        for (key, value) in written.as_object().expect("an object") {
            let may_be_null = properties[key]["type"].as_array().is_some_and(|types| types.contains(&"null".into()));
            assert_eq!(value.is_null(), may_be_null, "{key}");
        }
        for key in schema["$defs"]["run"]["required"].as_array().expect("keys") {
            assert!(!written[key.as_str().expect("a key")].is_null(), "{key}");
        }
    }
}
