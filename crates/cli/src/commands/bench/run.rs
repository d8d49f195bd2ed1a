//! `windfall bench run`: repeats a program until its speed is known closely enough, and puts together what was seen.

use super::meter::Eyes;
use super::program::{Ended, Program, Repetition, repetition};
use super::{json, show};
use crate::args::{BenchRunArgs, MeasuredArgs};
use crate::commands::{facts, gpu, priced};
use crate::here::Here;
use regex::Regex;
use std::path::Path;
use windfall_catalog::{Catalog, Precision};
use windfall_insight::bench::{self, Interval, Run, SUITE_PROGRAM, SUITES, interval};
use windfall_insight::roofline::sheet;
use windfall_server::client::{Code, Failure};

/// Repetitions below which nothing is taken for known.
const LEAST: usize = 3;

/// What is measured, checked.
pub struct Asked<'a> {
    pub args: &'a MeasuredArgs,
    pub catalog: Catalog,
    pub usd_an_hour: Option<f64>,
    /// Where the price comes from.
    pub said: Option<String>,
    step: Regex,
    /// The suite's program, for as long as it is needed.
    suite: Option<tempfile::NamedTempFile>,
}

impl<'a> Asked<'a> {
    pub fn of(here: &Here, args: &'a MeasuredArgs) -> Result<Asked<'a>, Failure> {
        let catalog = facts::catalog(here)?;
        let (usd_an_hour, said) = priced::each(&catalog, args.price, args.instance.as_deref())?;
        args.accelerator.as_deref().map(|named| priced::known(&catalog, named)).transpose()?;
        if args.suite.is_none() && args.command.is_empty() {
            return Err(Failure::new(Code::BadInput, "nothing to measure")
                .hint(format!("name a suite ({}), or a command after `--`", SUITES.join(", "))));
        }
        if let Some(suite) = args.suite.as_deref().filter(|suite| !SUITES.contains(suite)) {
            let near = windfall_core::nearest::nearest(suite, SUITES);
            let near = near.map_or(String::new(), |near| format!("did you mean {near}? "));
            return Err(Failure::new(Code::BadInput, format!("no suite `{suite}`"))
                .hint(format!("{near}suites are {}; your own command goes after `--`", SUITES.join(", "))));
        }
        if args.flop.is_some_and(|flop| !(flop.is_finite() && flop > 0.0)) {
            return Err(Failure::new(Code::BadInput, "--flop: not a number of operations").hint("such as 6.1e12"));
        }
        Ok(Asked {
            step: pattern("--step", &args.step)?,
            suite: args.suite.is_some().then(suite_file).transpose()?,
            catalog,
            usd_an_hour,
            said,
            args,
        })
    }

    /// The program for one run; `batch` is the program's own where none is said.
    pub fn program(
        &self,
        precision: Option<&str>,
        seed: u64,
        batch: Option<u64>,
        steps: Option<u64>,
    ) -> Result<Program, Failure> {
        let args = self.args;
        let measure = gpu::time("--measure", &args.measure)?;
        let mut variables = vec![("WINDFALL_SEED", seed.to_string())];
        variables.extend(precision.map(|precision| ("WINDFALL_PRECISION", precision.to_owned())));
        variables.extend(batch.map(|batch| ("WINDFALL_BATCH", batch.to_string())));
        let command = match (&args.suite, &self.suite) {
            (Some(suite), Some(file)) => {
                let asked = serde_json::json!({
                    "precision": precision, "batch": batch, "seconds": measure.as_secs_f64(), "seed": seed,
                    "warmup": args.warmup, "small": args.small, "steps": steps.unwrap_or(0), "threads": 0,
                    "folder": std::env::temp_dir(),
                });
                vec![args.python.clone(), file.path().to_string_lossy().into_owned(), suite.clone(), asked.to_string()]
            }
            _ => args.command.clone(),
        };
        Ok(Program {
            command,
            variables,
            step: self.step.clone(),
            metric: None,
            warm_up: args.warmup,
            is_suite: args.suite.is_some(),
            measure,
            limit: gpu::time("--limit", &args.limit)?,
        })
    }

    /// What it is called.
    pub fn name(&self) -> String {
        let program = self.args.command.iter().find(|word| word.ends_with(".py")).or(self.args.command.first());
        let last = |path: &String| Path::new(path).file_name().map(|name| name.to_string_lossy().into_owned());
        self.args.suite.clone().or_else(|| program.and_then(last)).unwrap_or_else(|| "program".to_owned())
    }
}

/// A regular expression that a flag says.
pub fn pattern(flag: &str, text: &str) -> Result<Regex, Failure> {
    Regex::new(text).map_err(|error| {
        let what = error.to_string();
        Failure::new(Code::BadInput, format!("{flag}: not a pattern: {text}"))
            .hint(what.lines().last().unwrap_or_default().trim_start_matches("error: ").to_owned())
    })
}

fn suite_file() -> Result<tempfile::NamedTempFile, Failure> {
    let broken =
        |error: std::io::Error| Failure::new(Code::Bug, format!("a file for the suite cannot be written: {error}"));
    let file = tempfile::Builder::new().prefix("windfall-suite-").suffix(".py").tempfile().map_err(broken)?;
    std::fs::write(file.path(), SUITE_PROGRAM).map_err(broken)?;
    Ok(file)
}

pub async fn run(here: &Here, args: &BenchRunArgs) -> Result<Code, Failure> {
    let asked = Asked::of(here, &args.measured)?;
    for precision in &args.precision {
        known_format(precision)?;
    }
    let formats: Vec<Option<&str>> = match args.precision.as_slice() {
        [] => vec![None],
        formats => formats.iter().map(|format| Some(format.as_str())).collect(),
    };
    let mut eyes = Eyes::open();
    let mut runs = Vec::new();
    for precision in formats {
        let Some(repetitions) = repeated(args, &asked, precision, &mut eyes).await? else { return Ok(Code::Detached) };
        let mut run = put_together(&asked, &repetitions, precision);
        run.name = args.name.clone().unwrap_or(run.name);
        run.seed = Some(args.seed);
        run.steps = args.steps;
        (run.items_per_epoch, run.usd_per_epoch) = (args.epoch, epoch(&run, args.epoch));
        run.notes.extend(asked.said.clone());
        if here.json {
            println!("{}", json(&run)?);
        } else {
            print!("{}", show::screen(&run, crate::live::width().min(100)));
        }
        runs.push(run);
    }
    write(args.measured.out.as_deref(), &runs)?;
    Ok(Code::Done)
}

/// Fails where nobody has heard of a number format.
pub fn known_format(name: &str) -> Result<Precision, Failure> {
    let trained = [Precision::Fp32, Precision::Tf32, Precision::Bf16, Precision::Fp16];
    Precision::named(name).filter(|format| trained.contains(format)).ok_or_else(|| {
        Failure::new(Code::BadInput, format!("no number format `{name}`")).hint("fp32, tf32, bf16 or fp16")
    })
}

/// Writes results, where a file was named.
pub fn write(path: Option<&Path>, runs: &[Run]) -> Result<(), Failure> {
    let Some(path) = path else { return Ok(()) };
    std::fs::write(path, bench::write(runs))
        .map_err(|error| Failure::new(Code::BadInput, format!("{} cannot be written: {error}", path.display())))
}

/// Repetitions until the interval is tight; none where the person at the terminal ended it.
async fn repeated(
    args: &BenchRunArgs,
    asked: &Asked<'_>,
    precision: Option<&str>,
    eyes: &mut Eyes,
) -> Result<Option<Vec<Repetition>>, Failure> {
    let mut all: Vec<Repetition> = Vec::new();
    for at in 0..args.repeat {
        let program = asked.program(precision, args.seed + u64::from(at), None, None)?;
        let one = once(&program, eyes).await?;
        if one.ended == Ended::Interrupted {
            return Ok(None);
        }
        good(&one)?;
        if one.pace.is_none() && one.said.figures.is_empty() {
            return Err(no_steps(asked, &one));
        }
        let figures_only = one.pace.is_none();
        if let Some(pace) = &one.pace {
            eprintln!("repetition {}: {:.4} steps/s over {} steps", at + 1, pace.steps_per_second(), pace.steps);
        }
        all.push(one);
        let speeds = speeds(&all);
        let tight = interval(&speeds).is_some_and(|interval| interval.looseness() <= args.tight / 100.0);
        if figures_only || speeds.len() >= LEAST && tight {
            break;
        }
    }
    Ok(Some(all))
}

/// Runs a program once; a program that cannot be started is the user's to mend.
pub async fn once(program: &Program, eyes: &mut Eyes) -> Result<Repetition, Failure> {
    repetition(program, eyes).await.map_err(|error| {
        let failure = Failure::new(Code::BadInput, format!("{} cannot be started: {error}", program.command[0]));
        if program.is_suite { failure.hint("--python names the Python that has PyTorch") } else { failure }
    })
}

/// Fails where a run did not end well.
pub fn good(one: &Repetition) -> Result<(), Failure> {
    match &one.ended {
        Ended::Well | Ended::Interrupted => Ok(()),
        Ended::Refused(why) => Err(Failure::new(Code::BadInput, format!("this machine cannot do that: {why}"))),
        Ended::OutOfMemory => {
            Err(Failure::new(Code::JobFailed, "the program ran out of memory").hint("take a smaller batch"))
        }
        Ended::Failed(why) if one.tail.contains("No module named 'torch'") => {
            Err(Failure::new(Code::BadInput, format!("{why}: this Python has no PyTorch"))
                .hint("--python names the one that has it, such as .venv/bin/python"))
        }
        Ended::Failed(why) => {
            Err(Failure::new(Code::JobFailed, format!("{why}; it said last:\n{}", one.tail.trim_end())))
        }
    }
}

fn no_steps(asked: &Asked<'_>, one: &Repetition) -> Failure {
    let said = if one.tail.is_empty() {
        "it printed nothing".to_owned()
    } else {
        format!("it said last:\n{}", one.tail.trim_end())
    };
    let failure = Failure::new(
        Code::BadInput,
        format!("no speed: fewer than two lines after {} steps match `{}`; {said}", asked.args.warmup, asked.args.step),
    );
    failure.hint("say with --step what a line about progress looks like, and with --warmup how many steps do not count")
}

/// The speed of each repetition.
pub fn speeds(all: &[Repetition]) -> Vec<f64> {
    all.iter().filter_map(|one| one.pace.as_ref()).map(windfall_insight::bench::Pace::steps_per_second).collect()
}

/// One result of several repetitions.
pub fn put_together(asked: &Asked<'_>, all: &[Repetition], precision: Option<&str>) -> Run {
    let args = asked.args;
    let speeds = speeds(all);
    let mut notes = Vec::new();
    let known: Option<Interval> = match (speeds.as_slice(), all.last().and_then(|last| last.pace.as_ref())) {
        ([_], Some(pace)) => {
            notes.push("one repetition: the interval is of its own parts".to_owned());
            interval(&pace.stretches)
        }
        _ => interval(&speeds),
    };
    let speed = (!speeds.is_empty()).then(|| speeds.iter().sum::<f64>() / speeds.len() as f64);
    let last = all.last().map(|last| last.said.clone()).unwrap_or_default();
    let mean = |of: &dyn Fn(&Repetition) -> Option<f64>| {
        let values: Vec<f64> = all.iter().filter_map(of).collect();
        (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
    };
    let seen = all.iter().find_map(|one| one.used.name.clone());
    let device = args.accelerator.clone().or(last.device.clone()).or(seen);
    let found = device.as_deref().and_then(|device| sheet(&asked.catalog, device));
    let family = found.map(|sheet| sheet.family.clone()).or_else(|| device.clone());
    let on_cpu = device.as_deref().is_none_or(|device| device == "cpu");
    let used = all.iter().map(|one| one.used.count).max().filter(|count| *count > 0);
    let count = args.count.or(used).or(last.count).unwrap_or(1);
    let precision = last.precision.or(precision.map(str::to_owned));
    let flop = args.flop.or(last.flop_per_step);
    let peak = found
        .zip(precision.as_deref().and_then(Precision::named))
        .and_then(|(sheet, precision)| sheet.peak_tflops(precision));
    let energies: Vec<f64> = all.iter().filter_map(|one| one.used.energy_joules).collect();
    let host = all.iter().map(|one| one.host_bytes).max().filter(|bytes| *bytes > 0);
    let of_device = all.iter().filter_map(|one| one.said.peak_memory_bytes.max(one.used.peak_memory_bytes)).max();
    let items = last.items_per_step.or(args.items);
    notes.extend(last.versions);
    if on_cpu {
        notes.push("on processors: the memory is the program's own".to_owned());
    }
    Run {
        name: asked.name(),
        accelerator: family.or_else(|| Some("cpu".to_owned())),
        count,
        precision,
        batch: last.batch.or(args.items),
        steps_per_second: speed,
        steps_per_second_low: known.map(|known| known.low).filter(|low| *low > 0.0),
        steps_per_second_high: known.map(|known| known.high),
        repetitions: speeds,
        unit: last.unit.filter(|_| speed.is_some()),
        units_per_second: speed.zip(items).map(|(speed, items)| speed * items as f64),
        measured_steps: all.iter().filter_map(|one| one.pace.as_ref()).map(|pace| pace.steps).sum(),
        measured_seconds: all.iter().filter_map(|one| one.pace.as_ref()).map(|pace| pace.seconds).sum(),
        steps: None,
        peak_memory_bytes: if on_cpu { host } else { of_device.or(host) },
        busy_percent: mean(&|one| one.used.busy_percent),
        sm_active_percent: mean(&|one| one.used.sm_active_percent),
        tensor_active_percent: mean(&|one| one.used.tensor_active_percent),
        power_watts: mean(&|one| one.used.power_watts),
        energy_joules: (!energies.is_empty() && energies.len() == all.len()).then(|| energies.iter().sum()),
        mfu: flop
            .zip(speed)
            .zip(peak)
            .map(|((flop, speed), peak)| flop * speed / (f64::from(peak) * 1e12 * f64::from(count))),
        usd_per_1000_steps: asked
            .usd_an_hour
            .zip(speed)
            .map(|(usd, speed)| usd * f64::from(count) * 1_000.0 / speed / 3_600.0),
        items_per_epoch: None,
        usd_per_epoch: None,
        metric: mean(&|one| one.said.metric),
        seed: None,
        figures: last.figures,
        notes,
    }
}

/// What a pass over the data costs.
fn epoch(run: &Run, items: Option<u64>) -> Option<f64> {
    let (items, usd) = (items? as f64, run.usd_per_1000_steps?);
    let items_per_step = run.units_per_second? / run.steps_per_second?;
    Some(usd / 1_000.0 * items / items_per_step)
}
