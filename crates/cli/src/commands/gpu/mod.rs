//! `windfall gpu`: what GPUs do, from a log, from the driver of this machine, or from dcgm-exporter. Answered here; no server.

mod live;
mod processes;

use crate::args::GpuArgs;
use crate::commands::{facts, priced};
use crate::here::Here;
use std::time::Duration;
use windfall_insight::telemetry::{GpuError, GpuOptions, GpuReport, report, screen};
use windfall_jobfile as jobfile;
use windfall_server::client::{Code, Failure};

/// The shortest time between two looks: counters need some.
const SHORTEST: Duration = Duration::from_millis(100);

pub async fn gpu(here: &Here, args: &GpuArgs) -> Result<Code, Failure> {
    let catalog = facts::catalog(here)?;
    args.accelerator.as_deref().map(|named| priced::known(&catalog, named)).transpose()?;
    let every = time("--every", &args.every)?;
    let options = GpuOptions {
        window_s: time("--window", &args.window)?.as_secs_f64(),
        every_s: every.as_secs_f64(),
        columns: args.columns.clone(),
        usd_an_hour: priced::each(&catalog, args.price, None)?.0,
        accelerator: args.accelerator.clone(),
    };
    if args.from.is_empty() {
        let limit = args.duration.as_deref().map(|text| time("--for", text)).transpose()?;
        if every < SHORTEST {
            return Err(
                Failure::new(Code::BadInput, format!("--every: {} is too short", args.every)).hint("100ms or more")
            );
        }
        return live::watch(here, args, &options, &catalog, (every, limit)).await;
    }
    let report = report(&args.from, &options, &catalog, &Default::default()).map_err(|error| bad(&error))?;
    show(here, &report)?;
    Ok(Code::Done)
}

fn show(here: &Here, report: &GpuReport) -> Result<(), Failure> {
    if here.json {
        let json = serde_json::to_string(report).map_err(|error| Failure::new(Code::Bug, error.to_string()))?;
        println!("{json}");
    } else {
        print!("{}", screen(report, crate::live::width().min(100)));
    }
    Ok(())
}

fn bad(error: &GpuError) -> Failure {
    let source = std::error::Error::source(error).map_or(String::new(), |source| format!(": {source}"));
    let hint = match error {
        GpuError::Read { .. } => {
            "name a log of `nvidia-smi --query-gpu=… --format=csv`, `nvidia-smi dmon` or `dcgmi dmon`"
        }
        GpuError::NoHeader { .. } => "say what the columns are: --columns temperature.gpu,utilization.gpu,memory.used",
        GpuError::NoColumn { .. } => "`nvidia-smi --help-query-gpu` lists them",
        GpuError::TooMany { .. } => "read the logs of fewer machines at once",
        GpuError::NoReading { .. } | GpuError::Empty { .. } => {
            "a log begins with the names of its columns: `nvidia-smi --query-gpu=timestamp,index,utilization.gpu,memory.used --format=csv -l 1`"
        }
    };
    Failure::new(Code::BadInput, format!("{error}{source}")).hint(hint)
}

/// A length of time that a flag says.
pub fn time(flag: &str, text: &str) -> Result<Duration, Failure> {
    let span = jobfile::duration(text).filter(|span| span.0 > 0);
    let bad =
        || Failure::new(Code::BadInput, format!("{flag}: not a length of time: {text}")).hint("write 1s, 500ms or 5m");
    Ok(Duration::from_millis(span.ok_or_else(bad)?.0.unsigned_abs()))
}
