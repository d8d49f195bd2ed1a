//! What GPUs do now: the driver's telemetry by a process of its own, or dcgm-exporter's answers, look by look. On a terminal the
//! picture is drawn over itself; elsewhere each look is a table, and with `--json` a line.

use super::{processes, show};
use crate::args::GpuArgs;
use crate::here::Here;
use std::fmt::Write as _;
use std::io::{IsTerminal, Write as _};
use std::path::Path;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use windfall_catalog::Catalog;
use windfall_exec::{Measured, NoTelemetry, TelemetryFeed, scrape};
use windfall_insight::telemetry::{Dcgm, GpuOptions, Sample, TopProcess, Watch, Which, top};
use windfall_server::client::{Code, Failure};

const NO_DRIVER: &str = "this machine has no NVIDIA driver: nothing to look at";
const NO_DRIVER_HINT: &str =
    "`windfall gpu --from LOG` reads logs of nvidia-smi; `--dcgm HOST:9400` asks dcgm-exporter";

/// Where looks come from.
enum Eyes {
    Driver(Box<TelemetryFeed>),
    Exporter { url: String, next: Instant },
}

/// What one look shows.
struct Look {
    at_unix_ms: u64,
    gpus: Vec<(Which, Sample)>,
    programs: Vec<TopProcess>,
    notes: Vec<String>,
}

/// Looks until told to end, or for as long as was asked.
pub async fn watch(
    here: &Here,
    args: &GpuArgs,
    options: &GpuOptions,
    catalog: &Catalog,
    (every, limit): (Duration, Option<Duration>),
) -> Result<Code, Failure> {
    let terminal = std::io::stdout().is_terminal() && !here.json;
    let looks = match (args.once, limit) {
        (true, _) => Some(1),
        (false, Some(limit)) => Some((limit.as_millis() / every.as_millis()).clamp(1, 10_000_000) as u64),
        (false, None) => None,
    };
    let mut eyes = open(args, every, looks)?;
    let mut watch = Watch::new(options.clone(), catalog);
    let mut picture = Picture::default();
    let mut seen = 0u64;
    let ended = async {
        while looks.is_none_or(|looks| seen < looks) {
            let Some(look) = eyes.look(every).await? else {
                return none(here);
            };
            seen += 1;
            if look.gpus.is_empty() && seen == 1 {
                return Err(Failure::new(Code::BadInput, "there is no GPU to look at").hint(NO_DRIVER_HINT));
            }
            for (which, sample) in &look.gpus {
                watch.add(which.clone(), sample);
            }
            if here.json && limit.is_none() {
                println!("{}", json(&watch, &look));
            } else if limit.is_none() || terminal {
                picture.draw(&text(&watch, &look), terminal && !args.once);
            }
        }
        Ok(Code::Done)
    };
    let code = tokio::select! {
        ended = ended => ended?,
        _ = tokio::signal::ctrl_c() => Code::Detached,
    };
    // What was watched for a time that was asked for is told as a whole.
    if limit.is_some() && seen > 0 {
        show(here, &watch.report(Vec::new()))?;
        return Ok(Code::Done);
    }
    Ok(if seen > 0 { Code::Done } else { code })
}

/// No driver is no mistake: who asks a machine what its GPUs do is told that it has none.
fn none(here: &Here) -> Result<Code, Failure> {
    if here.json {
        println!("{}", serde_json::json!({ "gpus": [], "notes": [NO_DRIVER] }));
    } else {
        println!("{NO_DRIVER}.\n{NO_DRIVER_HINT}");
    }
    Ok(Code::Done)
}

fn open(args: &GpuArgs, every: Duration, looks: Option<u64>) -> Result<Eyes, Failure> {
    if let Some(url) = &args.dcgm {
        let url = if url.contains("://") { url.clone() } else { format!("http://{url}") };
        let bare = url.splitn(4, '/').nth(3).is_none_or(str::is_empty);
        let url = if bare { format!("{}/metrics", url.trim_end_matches('/')) } else { url };
        return Ok(Eyes::Exporter { url, next: Instant::now() });
    }
    let feed = TelemetryFeed::start(Path::new("/proc/self/exe"), every, looks);
    feed.map(|feed| Eyes::Driver(Box::new(feed))).map_err(|error| no_telemetry(&error))
}

fn no_telemetry(error: &NoTelemetry) -> Failure {
    let source = std::error::Error::source(error).map_or(String::new(), |source| format!(": {source}"));
    let failure = Failure::new(Code::Unreachable, format!("{error}{source}"));
    match error {
        NoTelemetry::Hangs => failure.hint("`nvidia-smi` hangs as well: the driver or a GPU needs a reset"),
        NoTelemetry::Ended => failure.hint("`windfall doctor` says what the driver lacks"),
        NoTelemetry::Start(_) => failure,
    }
}

impl Eyes {
    /// The next look; none where this machine has no driver.
    async fn look(&mut self, every: Duration) -> Result<Option<Look>, Failure> {
        match self {
            Eyes::Driver(feed) => {
                let telemetry = feed.next().await.map_err(|error| no_telemetry(&error))?;
                let Some(accelerators) = telemetry.accelerators else { return Ok(None) };
                let at_s = Some(telemetry.at_unix_ms as f64 / 1e3);
                let programs = accelerators.iter().flat_map(|gpu| {
                    gpu.programs.iter().map(|program| processes::told(&gpu.index.to_string(), program))
                });
                let cut = accelerators.iter().filter(|gpu| gpu.is_cut).count();
                let notes =
                    (cut > 0).then(|| format!("{cut} GPUs are cut into parts (MIG): shares of parts are not told"));
                Ok(Some(Look {
                    at_unix_ms: telemetry.at_unix_ms,
                    programs: programs.collect(),
                    gpus: accelerators.into_iter().map(|gpu| reading(gpu, at_s)).collect(),
                    notes: notes.into_iter().collect(),
                }))
            }
            Eyes::Exporter { url, next } => {
                tokio::time::sleep_until((*next).into()).await;
                *next = (*next + every).max(Instant::now());
                exporter(url).await.map(Some)
            }
        }
    }
}

async fn exporter(url: &str) -> Result<Look, Failure> {
    let text = scrape(url).await.map_err(|error| {
        let source = std::error::Error::source(&error).map_or(String::new(), |source| format!(": {source}"));
        Failure::new(Code::Unreachable, format!("{error}{source}"))
            .hint("dcgm-exporter listens on port 9400 by default")
    })?;
    let mut dcgm = Dcgm::default();
    let refused = text.lines().filter(|line| dcgm.line(line).is_none()).count();
    let blanks = dcgm.blanks;
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let gpus = dcgm.samples(Some(since.as_secs_f64()));
    let mut notes = Vec::new();
    if gpus.is_empty() {
        let failure = Failure::new(Code::BadInput, format!("{url} has no metrics of DCGM"));
        return Err(failure.hint("name dcgm-exporter's address, such as node7:9400"));
    }
    notes.extend((refused > 0).then(|| format!("{refused} lines of {url} are no metrics")));
    notes.extend((blanks > 0).then(|| format!("{blanks} values are blank: the driver does not give them")));
    let no_sm = gpus.iter().all(|(_, sample)| sample.sm_percent.is_none());
    notes.extend(no_sm.then(|| {
        "multiprocessor activity is off in dcgm-exporter's default list: add DCGM_FI_PROF_SM_ACTIVE to its counters"
            .to_owned()
    }));
    Ok(Look { at_unix_ms: since.as_millis() as u64, gpus, programs: Vec::new(), notes })
}

fn reading(gpu: Measured, at_s: Option<f64>) -> (Which, Sample) {
    let which = Which {
        key: gpu.uuid.clone(),
        index: Some(gpu.index.to_string()),
        uuid: Some(gpu.uuid),
        name: Some(gpu.name),
        host: None,
        user: None,
    };
    let sample = Sample {
        at_s,
        busy_percent: gpu.busy_percent.map(f64::from),
        memory_busy_percent: gpu.memory_busy_percent.map(f64::from),
        memory_used_bytes: gpu.memory_used_bytes.map(|bytes| bytes as f64),
        memory_total_bytes: gpu.memory_total_bytes.map(|bytes| bytes as f64),
        power_w: gpu.power_mw.map(|mw| f64::from(mw) / 1e3),
        power_limit_w: gpu.power_limit_mw.map(|mw| f64::from(mw) / 1e3),
        energy_j: gpu.energy_mj.map(|mj| mj as f64 / 1e3),
        sm_clock_mhz: gpu.sm_clock_mhz.map(f64::from),
        celsius: gpu.celsius.map(f64::from),
        sm_percent: gpu.counters.sm,
        occupancy_percent: gpu.counters.occupancy,
        tensor_percent: gpu.counters.tensor,
        dram_percent: gpu.counters.dram,
    };
    (which, sample.checked())
}

fn text(watch: &Watch<'_>, look: &Look) -> String {
    let width = crate::live::width().min(160);
    let now = watch.now();
    let mut text = top(&now, &look.programs, width);
    for note in &look.notes {
        let _ = writeln!(text, "{}", crate::fitted::wrapped(&format!("note: {note}"), width).trim_end());
    }
    text
}

fn json(watch: &Watch<'_>, look: &Look) -> serde_json::Value {
    let gpus: Vec<serde_json::Value> = watch
        .now()
        .into_iter()
        .map(|(which, sample, class)| {
            let index = which.index.clone().unwrap_or_else(|| which.key.clone());
            let programs = look.programs.iter().filter(|program| program.gpu == index).map(|program| {
                serde_json::json!({
                    "pid": program.pid, "name": program.name, "user": program.user, "job": program.job,
                    "memory_held_bytes": program.memory_bytes, "busy_percent": program.busy_percent,
                })
            });
            serde_json::json!({
                "gpu": index,
                "uuid": which.uuid,
                "name": which.name,
                "host": which.host,
                "user": which.user,
                "class": class.word(),
                "busy_percent": sample.busy_percent,
                "sm_active_percent": sample.sm_percent,
                "occupancy_percent": sample.occupancy_percent,
                "tensor_active_percent": sample.tensor_percent,
                "dram_active_percent": sample.dram_percent,
                "memory_held_bytes": sample.memory_used_bytes.map(|bytes| bytes as u64),
                "memory_total_bytes": sample.memory_total_bytes.map(|bytes| bytes as u64),
                "power_watts": sample.power_w,
                "power_limit_watts": sample.power_limit_w,
                "energy_joules": sample.energy_j,
                "sm_clock_mhz": sample.sm_clock_mhz,
                "celsius": sample.celsius,
                "programs": programs.collect::<Vec<_>>(),
            })
        })
        .collect();
    serde_json::json!({ "at_unix_ms": look.at_unix_ms, "gpus": gpus, "notes": look.notes })
}

/// A few lines that are drawn over themselves.
#[derive(Default)]
struct Picture {
    drawn: usize,
}

impl Picture {
    fn draw(&mut self, text: &str, over: bool) {
        let mut out = std::io::stdout().lock();
        let rows = crate::live::size().1.saturating_sub(1).max(1);
        let shown: Vec<&str> = text.lines().take(if over { rows } else { usize::MAX }).collect();
        let up = if over && self.drawn > 0 { format!("\x1b[{}A\x1b[J", self.drawn) } else { String::new() };
        let _ = writeln!(out, "{up}{}", shown.join("\n"));
        let _ = out.flush();
        self.drawn = shown.len();
    }
}
