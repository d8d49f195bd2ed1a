//! One run of a program that is measured: it is started in a process group of its own, its output is searched for steps, and it is
//! ended once enough was seen. Whatever ends the measurement ends the whole group.

use super::meter::{Eyes, Meter, Used};
use regex::Regex;
use rustix::process::{Pid, Signal, kill_process_group};
use serde_json::Value;
use std::collections::VecDeque;
use std::process::Stdio;
use std::time::{Duration, Instant};
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, BufReader};
use tokio::process::Command;
use tokio::sync::mpsc::{Sender, channel};
use windfall_insight::bench::{Figure, Mark, Pace, SUITE_LINE, pace};

/// How long a program that is told to end may take.
const GRACE: Duration = Duration::from_secs(10);
const LOOK: Duration = Duration::from_millis(250);
/// Lines of output that are kept for when something goes wrong.
const TAIL: usize = 12;
/// A line that is longer says nothing about steps.
const LONGEST: u64 = 1 << 20;

/// What is run and how it is read.
pub struct Program {
    pub command: Vec<String>,
    pub variables: Vec<(&'static str, String)>,
    pub step: Regex,
    pub metric: Option<Regex>,
    pub warm_up: u64,
    /// A built-in suite: it says itself when it has measured enough.
    pub is_suite: bool,
    pub measure: Duration,
    pub limit: Duration,
}

/// What the program said of itself.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Said {
    pub device: Option<String>,
    pub count: Option<u32>,
    pub precision: Option<String>,
    pub batch: Option<u64>,
    pub unit: Option<String>,
    pub items_per_step: Option<u64>,
    pub flop_per_step: Option<f64>,
    pub peak_memory_bytes: Option<u64>,
    pub metric: Option<f64>,
    pub figures: Vec<Figure>,
    pub versions: Option<String>,
}

/// How it ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ended {
    Well,
    /// It cannot do what was asked, and says why.
    Refused(String),
    OutOfMemory,
    /// It failed; the end of its output.
    Failed(String),
    /// The person at the terminal ended it.
    Interrupted,
}

/// One run.
pub struct Repetition {
    pub said: Said,
    pub pace: Option<Pace>,
    pub used: Used,
    pub host_bytes: u64,
    pub ended: Ended,
    /// The end of what it printed.
    pub tail: String,
}

/// Runs it once.
pub async fn repetition(program: &Program, eyes: &mut Eyes) -> std::io::Result<Repetition> {
    let before = eyes.before().await;
    let mut meter = Meter::after(&before);
    let mut command = Command::new(&program.command[0]);
    command.args(&program.command[1..]).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    // Lines of a program that keeps them back come when its buffer is full.
    command.env("PYTHONUNBUFFERED", "1").envs(program.variables.iter().map(|(name, value)| (*name, value)));
    let mut child = command.process_group(0).kill_on_drop(true).spawn()?;
    let pid = child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
    let group = pid.ok_or(std::io::ErrorKind::NotFound)?;
    let _ends = EndsGroup(group);
    let (tell, mut lines) = channel(1_024);
    listen(child.stdout.take(), tell.clone());
    listen(child.stderr.take(), tell);

    let began = Instant::now();
    let mut reading = Reading::new(program);
    let mut ticks = tokio::time::interval(LOOK);
    let (mut told_to_end, mut interrupted, mut open) = (None::<Instant>, false, true);
    let status = loop {
        tokio::select! {
            line = lines.recv(), if open => match line {
                Some((at, line)) => reading.line(&line, at),
                None => open = false,
            },
            telemetry = eyes.next() => meter.look(telemetry, group),
            status = child.wait(), if !open => break status?,
            _ = tokio::signal::ctrl_c() => {
                interrupted = true;
                let _ = kill_process_group(group, Signal::TERM);
                told_to_end.get_or_insert(Instant::now());
            }
            _ = ticks.tick() => {
                meter.look_at_host(group);
                match told_to_end {
                    Some(at) if at.elapsed() > GRACE => drop(kill_process_group(group, Signal::KILL)),
                    Some(_) => {}
                    None if reading.has_enough() || began.elapsed() > program.limit => {
                        let _ = kill_process_group(group, Signal::TERM);
                        told_to_end = Some(Instant::now());
                    }
                    None => {}
                }
                // Who was told to end and left processes behind does not keep us.
                if told_to_end.is_some() && child.try_wait()?.is_some() {
                    open = false;
                }
            }
        }
    };
    let stopped = told_to_end.is_some();
    let pace = reading.pace();
    let window = pace.as_ref().and_then(|pace| reading.window(pace));
    let (from, to) = window.unwrap_or((began, Instant::now()));
    let tail = reading.tail.iter().map(|line| format!("  {line}\n")).collect::<String>();
    let ended = match reading.ended.take() {
        _ if interrupted => Ended::Interrupted,
        Some(ended) => ended,
        None if status.success() || stopped => Ended::Well,
        None if reading.tail.iter().any(|line| line.to_lowercase().contains("out of memory")) => Ended::OutOfMemory,
        None => Ended::Failed(format!("the program failed ({status})")),
    };
    Ok(Repetition {
        used: meter.between(from, to),
        host_bytes: meter.host_bytes,
        said: reading.said,
        pace,
        ended,
        tail,
    })
}

/// Ends a process group, whoever of it is left.
struct EndsGroup(Pid);

impl Drop for EndsGroup {
    fn drop(&mut self) {
        let _ = kill_process_group(self.0, Signal::KILL);
    }
}

fn listen(stream: Option<impl AsyncRead + Unpin + Send + 'static>, to: Sender<(Instant, String)>) {
    let Some(stream) = stream else { return };
    tokio::spawn(async move {
        let mut reader = BufReader::new(stream);
        let mut bytes = Vec::new();
        loop {
            let read = (&mut reader).take(LONGEST).read_until(b'\n', &mut bytes).await;
            if !matches!(read, Ok(1..)) {
                return;
            }
            let at = Instant::now();
            // Progress bars end their lines with a carriage return.
            for line in String::from_utf8_lossy(&bytes).split(['\r', '\n']).filter(|line| !line.is_empty()) {
                if to.send((at, line.to_owned())).await.is_err() {
                    return;
                }
            }
            bytes.clear();
        }
    });
}

/// What of the output matters.
struct Reading<'p> {
    program: &'p Program,
    said: Said,
    marks: Vec<Mark>,
    /// When a mark came, and when it says that it was.
    clocks: Option<(Instant, f64)>,
    began: Instant,
    matches: u64,
    enough_from: Option<Instant>,
    ended: Option<Ended>,
    tail: VecDeque<String>,
}

impl<'p> Reading<'p> {
    fn new(program: &'p Program) -> Reading<'p> {
        Reading {
            program,
            said: Said::default(),
            marks: Vec::new(),
            clocks: None,
            began: Instant::now(),
            matches: 0,
            enough_from: None,
            ended: None,
            tail: VecDeque::new(),
        }
    }

    fn line(&mut self, line: &str, at: Instant) {
        if let Some(words) = line.strip_prefix(SUITE_LINE) {
            if let Ok(words) = serde_json::from_str::<Value>(words) {
                self.suite(&words, at);
            }
            return;
        }
        if self.tail.len() == TAIL {
            self.tail.pop_front();
        }
        self.tail.push_back(line.chars().take(200).collect());
        if let Some(found) = self.program.metric.as_ref().and_then(|metric| metric.captures_iter(line).last()) {
            let value = found.get(1).or(found.get(0)).and_then(|value| value.as_str().trim().parse().ok());
            self.said.metric = value.filter(|value: &f64| value.is_finite()).or(self.said.metric);
        }
        if self.program.is_suite {
            return;
        }
        if let Some(found) = self.program.step.captures_iter(line).last() {
            self.matches += 1;
            let steps = match found.get(1) {
                Some(group) => group.as_str().parse().ok(),
                None => Some(self.matches),
            };
            if let Some(steps) = steps {
                self.mark(Mark { at_s: at.saturating_duration_since(self.began).as_secs_f64(), steps }, at);
            }
        }
    }

    fn mark(&mut self, mark: Mark, at: Instant) {
        self.clocks = Some((at, mark.at_s));
        self.marks.push(mark);
        let first = self.marks.first().map_or(0, |first| first.steps);
        if self.enough_from.is_none() && mark.steps.saturating_sub(first) >= self.warm_up() {
            self.enough_from = Some(at);
        }
    }

    /// Suites warm up by themselves, before their first mark.
    fn warm_up(&self) -> u64 {
        if self.program.is_suite { 0 } else { self.program.warm_up }
    }

    fn suite(&mut self, words: &Value, at: Instant) {
        let text = |key: &str| words[key].as_str().map(str::to_owned);
        match words["event"].as_str().unwrap_or_default() {
            "begin" => {
                self.said.device = text("device");
                self.said.count = words["count"].as_u64().and_then(|count| u32::try_from(count).ok());
                self.said.precision = text("precision");
                self.said.versions = text("torch").map(|torch| {
                    text("cuda").map_or(format!("PyTorch {torch}"), |cuda| format!("PyTorch {torch}, CUDA {cuda}"))
                });
            }
            "meta" => {
                self.said.unit = text("unit");
                self.said.batch = words["batch"].as_u64();
                self.said.items_per_step = words["items_per_step"].as_u64();
                self.said.flop_per_step = words["flops_per_step"].as_f64().filter(|flop| *flop > 0.0);
            }
            "steps" => {
                if let (Some(steps), Some(at_s)) = (words["done"].as_u64(), words["at"].as_f64()) {
                    self.mark(Mark { at_s, steps }, at);
                }
            }
            "figure" => {
                if let (Some(name), Some(value), Some(unit)) = (text("name"), words["value"].as_f64(), text("unit")) {
                    self.said.figures.push(Figure { name, value, unit });
                }
            }
            "end" => {
                self.said.metric = words["metric"].as_f64().or(self.said.metric);
                self.said.peak_memory_bytes = words["peak_memory_bytes"].as_u64();
            }
            "refused" => self.ended = Some(Ended::Refused(text("why").unwrap_or_default())),
            "out-of-memory" => self.ended = Some(Ended::OutOfMemory),
            _ => {}
        }
    }

    /// A command is ended once it was measured for long enough.
    fn has_enough(&self) -> bool {
        !self.program.is_suite
            && self.program.metric.is_none()
            && self.enough_from.is_some_and(|from| from.elapsed() >= self.program.measure)
    }

    fn pace(&self) -> Option<Pace> {
        pace(&self.marks, self.warm_up())
    }

    /// When the steps of a pace were, on our clock.
    fn window(&self, pace: &Pace) -> Option<(Instant, Instant)> {
        let (at, said) = self.clocks?;
        let ours = |moment: f64| at.checked_sub(Duration::try_from_secs_f64(said - moment).ok()?);
        Some((ours(pace.from_s)?, ours(pace.to_s)?))
    }
}
