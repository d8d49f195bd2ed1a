//! The other end of a process that reads NVIDIA's library: starts it, hears its readings, and starts it again when it has
//! crashed or says nothing.

use super::Reading;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};
use tokio::time::{Instant, sleep, timeout};

/// A process that says nothing for this long hangs in the driver. Starting the driver of eight accelerators takes some
/// seconds each where nothing keeps it loaded.
const HANGS_AFTER: Duration = Duration::from_secs(30);
/// The pause before a process that ended is started again.
const PAUSE: Duration = Duration::from_secs(5);

/// What is heard of the accelerators.
pub(crate) enum Heard {
    Reading(Reading),
    /// Nothing for too long: the driver hangs.
    Nothing,
}

/// Readings of the accelerators of this computer, by a process of its own.
pub(crate) struct Readings {
    /// The binary that knows the `agent` subcommands.
    program: PathBuf,
    running: Option<(Child, Lines<BufReader<ChildStdout>>)>,
    may_start: Instant,
    limit: Duration,
}

/// One reading; none where there is no answer in time.
pub(crate) async fn read_once(program: &Path) -> Option<Reading> {
    let mut command = Command::new(program);
    command.args(["agent", "accelerators", "--once"]).stdin(Stdio::null()).stderr(Stdio::null()).kill_on_drop(true);
    let output = timeout(HANGS_AFTER, command.output()).await.ok()?.ok()?;
    String::from_utf8_lossy(&output.stdout).lines().find_map(|line| serde_json::from_str(line).ok())
}

impl Readings {
    pub fn new(program: &Path) -> Readings {
        Readings { program: program.to_owned(), running: None, may_start: Instant::now(), limit: HANGS_AFTER }
    }

    /// The first reading; none where there is no answer in time, or nobody to ask.
    pub async fn first(&mut self) -> Option<Reading> {
        self.running = self.start().ok();
        self.may_start = Instant::now() + PAUSE;
        let (_, lines) = self.running.as_mut()?;
        let heard = async {
            while let Ok(Some(line)) = lines.next_line().await {
                if let Ok(reading) = serde_json::from_str(&line) {
                    return Some(reading);
                }
            }
            None
        };
        timeout(self.limit, heard).await.ok().flatten()
    }

    fn start(&self) -> io::Result<(Child, Lines<BufReader<ChildStdout>>)> {
        let mut command = Command::new(&self.program);
        command.args(["agent", "accelerators"]).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.kill_on_drop(true).spawn()?;
        let out = child.stdout.take().ok_or(io::ErrorKind::BrokenPipe)?;
        Ok((child, BufReader::new(out).lines()))
    }

    /// The next reading. A process that hangs is told to end, and another one is started once it has.
    pub async fn next(&mut self) -> Heard {
        let until = Instant::now() + self.limit;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                // One that hangs in the driver cannot be ended: no second one is started beside it.
                self.running.iter_mut().for_each(|(child, _)| _ = child.start_kill());
                if self.running.as_mut().is_some_and(|(child, _)| matches!(child.try_wait(), Ok(Some(_)))) {
                    self.running = None;
                }
                return Heard::Nothing;
            }
            let Some((_, lines)) = &mut self.running else {
                sleep(self.may_start.saturating_duration_since(Instant::now()).min(left)).await;
                if Instant::now() >= self.may_start {
                    self.may_start = Instant::now() + PAUSE;
                    self.running = self.start().ok();
                }
                continue;
            };
            match timeout(left, lines.next_line()).await {
                Ok(Ok(Some(line))) => match serde_json::from_str(&line) {
                    Ok(reading) => return Heard::Reading(reading),
                    // Some drivers print; what is no reading is not for us.
                    Err(_) => continue,
                },
                // It has ended, or was ended by the driver.
                Ok(_) => self.running = None,
                Err(_) => {}
            }
        }
    }
}
