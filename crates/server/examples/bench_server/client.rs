//! Clients, each in a process of its own with one connection, asking one thing after the other.

use crate::Failure;
use serde::de::DeserializeOwned;
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use windfall_core::JobSpec;
use windfall_core::spec::Ask;
use windfall_core::view::JobView;
use windfall_server::api_types::{Accepted, Hello, Submission};
use windfall_server::client::{STATUS_JOBS, environment, key};

/// Between two questions of one who looks.
const PAUSE: Duration = Duration::from_millis(20);

#[derive(Clone, Copy, Debug)]
pub enum Until {
    After(Duration),
    Count(usize),
}

#[derive(Clone, Copy, Debug)]
pub enum Kind {
    Submit { until: Until },
    Jobs,
    Status,
    Read { jobs: bool, until: Until },
}

impl Kind {
    pub fn until(self, until: Until) -> Kind {
        match self {
            Kind::Submit { .. } => Kind::Submit { until },
            Kind::Jobs => Kind::Read { jobs: true, until },
            Kind::Status => Kind::Read { jobs: false, until },
            Kind::Read { jobs, .. } => Kind::Read { jobs, until },
        }
    }

    fn words(self) -> [String; 2] {
        let (what, until) = match self {
            Kind::Submit { until } => ("submit", until),
            Kind::Jobs => ("jobs", Until::Count(1)),
            Kind::Status => ("status", Until::Count(1)),
            Kind::Read { jobs, until } => (if jobs { "jobs" } else { "status" }, until),
        };
        let until = match until {
            Until::After(span) => format!("{}ms", span.as_millis()),
            Until::Count(count) => count.to_string(),
        };
        [what.to_owned(), until]
    }
}

/// What one client saw.
#[derive(Clone, Debug)]
pub struct Answers {
    /// Seconds of each answer.
    pub waits: Vec<f64>,
    /// From its first question to its last answer.
    pub seconds: f64,
    /// Seconds that it ran on a processor meanwhile.
    pub on_processor: f64,
}

/// Runs clients at the same time. All are connected before the first asks.
pub fn run(home: &Path, kinds: &[Kind]) -> Result<Vec<Answers>, Failure> {
    let own = std::env::current_exe()?;
    let mut children: Vec<Child> = Vec::new();
    for kind in kinds {
        let mut command = Command::new(&own);
        command.arg("client").arg(home).args(kind.words()).stdin(Stdio::piped()).stdout(Stdio::piped());
        children.push(command.spawn()?);
    }
    let mut outs = Vec::new();
    for child in &mut children {
        let mut out = BufReader::new(child.stdout.take().ok_or("a client without output")?);
        let mut line = String::new();
        out.read_line(&mut line)?;
        if line.trim() != "connected" {
            return Err("a client cannot connect".into());
        }
        outs.push(out);
    }
    // Closing its input lets a client begin.
    children.iter_mut().for_each(|child| drop(child.stdin.take()));
    let mut answers = Vec::new();
    for (mut out, mut child) in outs.into_iter().zip(children) {
        let mut text = String::new();
        out.read_to_string(&mut text)?;
        if !child.wait()?.success() {
            return Err("a client failed".into());
        }
        let mut numbers = text.split_whitespace().filter_map(|number| number.parse::<f64>().ok());
        let seconds = numbers.next().ok_or("a client said nothing")?;
        let on_processor = numbers.next().ok_or("a client said nothing of itself")?;
        answers.push(Answers { waits: numbers.collect(), seconds, on_processor });
    }
    Ok(answers)
}

/// One client.
pub fn main(words: &[String]) -> Result<(), Failure> {
    let [home, what, until] = words else { return Err("client HOME WHAT UNTIL".into()) };
    let mut connection = Connection::open(Path::new(home))?;
    let _: Hello = connection.ask("/v1/hello", None)?;
    println!("connected");
    std::io::stdout().flush()?;
    std::io::stdin().read_to_end(&mut Vec::new())?;
    let span = until.strip_suffix("ms").and_then(|ms| ms.parse().ok()).map(Duration::from_millis);
    let count: usize = until.parse().unwrap_or(usize::MAX);
    let environment = environment();
    let (began, mut waits, ran) = (Instant::now(), Vec::new(), on_processor()?);
    while waits.len() < count && span.is_none_or(|span| began.elapsed() < span) {
        let submission = serde_json::to_vec(&submission(&environment))?;
        let asked = Instant::now();
        match what.as_str() {
            "submit" => _ = connection.ask::<Accepted>("/v1/jobs", Some(&submission))?,
            "jobs" => _ = connection.ask::<Vec<JobView>>("/v1/jobs?all=false&limit=50", None)?,
            _ => {
                connection.ask::<Hello>("/v1/hello", None)?;
                connection.ask::<Vec<JobView>>(STATUS_JOBS, None)?;
            }
        }
        waits.push(asked.elapsed().as_secs_f64());
        if what != "submit" {
            std::thread::sleep(PAUSE);
        }
    }
    let mut text = format!("{} {}", began.elapsed().as_secs_f64(), on_processor()? - ran);
    waits.iter().for_each(|wait| text.push_str(&format!(" {wait:.6}")));
    println!("{text}");
    Ok(())
}

/// Seconds that this thread, the only one of a client, ran on a processor so far.
fn on_processor() -> Result<f64, Failure> {
    let text = std::fs::read_to_string("/proc/self/schedstat")?;
    let nanoseconds: f64 = text.split_whitespace().next().ok_or("no time is told")?.parse()?;
    Ok(nanoseconds / 1e9)
}

/// One connection, kept open as programs do that submit many jobs. It blocks: what it costs to ask is the machine's as well
/// as the server's, and who only asks and waits needs no runtime.
struct Connection(BufReader<UnixStream>);

impl Connection {
    fn open(home: &Path) -> Result<Connection, Failure> {
        Ok(Connection(BufReader::new(UnixStream::connect(home.join("server.sock"))?)))
    }

    fn ask<T: DeserializeOwned>(&mut self, path: &str, body: Option<&[u8]>) -> Result<T, Failure> {
        let (method, body) = (if body.is_some() { "POST" } else { "GET" }, body.unwrap_or_default());
        let head = "host: windfall\r\ncontent-type: application/json";
        let head = format!("{method} {path} HTTP/1.1\r\n{head}\r\ncontent-length: {}\r\n\r\n", body.len());
        // One write: a program that sends head and body apart wakes the server twice.
        let request = [head.as_bytes(), body].concat();
        self.0.get_mut().write_all(&request)?;
        let (mut line, mut status, mut length) = (String::new(), String::new(), None);
        loop {
            line.clear();
            if self.0.read_line(&mut line)? == 0 {
                return Err(format!("{path}: the server hung up").into());
            }
            match line.trim_end().split_once(' ') {
                None => break,
                Some(("HTTP/1.1", said)) => status = said.to_owned(),
                Some((name, value)) if name.eq_ignore_ascii_case("content-length:") => length = value.parse().ok(),
                Some(_) => {}
            }
        }
        let mut answer = vec![0; length.ok_or("an answer without a length")?];
        self.0.read_exact(&mut answer)?;
        if !status.starts_with("200") {
            return Err(format!("{path}: {status}: {}", String::from_utf8_lossy(&answer)).into());
        }
        Ok(serde_json::from_slice(&answer)?)
    }
}

/// A job that nothing on sale here serves, so that it waits: what is measured is the server, not programs.
pub fn submission(environment: &BTreeMap<String, String>) -> Submission {
    let mut spec = JobSpec::named("bench", vec!["python".to_owned(), "train.py".to_owned()]);
    spec.resources = vec![Ask::of("H100", 8)];
    spec.run.folder = "/tmp".to_owned();
    let key = key();
    // Every second one saves in a folder of its own.
    if key.bytes().map(u32::from).sum::<u32>().is_multiple_of(2) {
        spec.checkpoint.path = Some(format!("/tmp/windfall-bench-saves/{key}"));
    }
    Submission {
        key,
        spec,
        deadline_in: None,
        env: environment.clone(),
        wait: true,
        with_files: false,
        own_files: false,
        continues: None,
    }
}

/// All waits, sorted.
pub fn waits(answers: &[Answers]) -> Vec<f64> {
    let mut waits: Vec<f64> = answers.iter().flat_map(|answer| answer.waits.iter().copied()).collect();
    waits.sort_by(f64::total_cmp);
    waits
}

/// The wait that 99 of 100 are no longer than.
pub fn p99(sorted: &[f64]) -> f64 {
    sorted.get((sorted.len() * 99).div_ceil(100).saturating_sub(1)).copied().unwrap_or(f64::INFINITY)
}

pub fn median(sorted: &[f64]) -> f64 {
    sorted.get(sorted.len() / 2).copied().unwrap_or(f64::INFINITY)
}
