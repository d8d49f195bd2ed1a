//! What accelerators of this computer do, again and again: a process that only does this tells a line of JSON each time
//! ([`tell_telemetry`]), and [`TelemetryFeed`] hears it. A driver that hangs or crashes takes nobody else along.

use super::library::Library;
use super::measure::{Measured, Meter};
use serde::{Deserialize, Serialize};
use std::io::{self, Write};
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};
use tokio::time::timeout;

/// A process that says nothing for this long hangs in the driver.
const HANGS_AFTER: Duration = Duration::from_secs(30);

/// What accelerators do at a moment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Telemetry {
    pub at_unix_ms: u64,
    /// None where this computer has no NVIDIA driver.
    pub accelerators: Option<Vec<Measured>>,
}

/// Tells what accelerators do, a line each time, until nobody listens. The first line comes after one pause, because shares are
/// of the time between two looks.
pub fn tell_telemetry(every: Duration, times: Option<u64>) -> io::Result<()> {
    let Some(library) = Library::open() else { return tell(None) };
    let mut meter = Meter::default();
    meter.measure(&library);
    let (began, mut told) = (Instant::now(), 0u32);
    while times.is_none_or(|times| u64::from(told) < times) {
        told = told.saturating_add(1);
        std::thread::sleep((began + every * told).saturating_duration_since(Instant::now()));
        tell(meter.measure(&library))?;
    }
    Ok(())
}

fn tell(accelerators: Option<Vec<Measured>>) -> io::Result<()> {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let telemetry = Telemetry { at_unix_ms: since.as_millis() as u64, accelerators };
    let mut out = io::stdout().lock();
    serde_json::to_writer(&mut out, &telemetry)?;
    out.write_all(b"\n")?;
    out.flush()
}

/// Why no more telemetry comes.
#[derive(Debug, thiserror::Error)]
pub enum NoTelemetry {
    #[error("the process that asks the driver cannot be started")]
    Start(#[source] io::Error),
    #[error("NVIDIA's driver does not answer: it has hung for {} s", HANGS_AFTER.as_secs())]
    Hangs,
    #[error("the process that asks NVIDIA's driver has ended")]
    Ended,
}

/// Telemetry of this computer, by a process of its own.
#[derive(Debug)]
pub struct TelemetryFeed {
    _child: Child,
    lines: Lines<BufReader<ChildStdout>>,
    limit: Duration,
}

impl TelemetryFeed {
    /// Starts the process: `program` knows the `agent` subcommands.
    pub fn start(program: &Path, every: Duration, times: Option<u64>) -> Result<TelemetryFeed, NoTelemetry> {
        let mut command = Command::new(program);
        command.args(["agent", "telemetry", "--every-ms", &every.as_millis().to_string()]);
        command.args(times.map(|times| format!("--times={times}")));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).kill_on_drop(true);
        let mut child = command.spawn().map_err(NoTelemetry::Start)?;
        let out = child.stdout.take().ok_or_else(|| NoTelemetry::Start(io::ErrorKind::BrokenPipe.into()))?;
        Ok(TelemetryFeed { _child: child, lines: BufReader::new(out).lines(), limit: HANGS_AFTER + every })
    }

    /// What it tells next.
    pub async fn next(&mut self) -> Result<Telemetry, NoTelemetry> {
        let heard = async {
            while let Ok(Some(line)) = self.lines.next_line().await {
                // Some drivers print; what is no telemetry is not for us.
                if let Ok(telemetry) = serde_json::from_str(&line) {
                    return Ok(telemetry);
                }
            }
            Err(NoTelemetry::Ended)
        };
        timeout(self.limit, heard).await.map_err(|_| NoTelemetry::Hangs)?
    }
}
