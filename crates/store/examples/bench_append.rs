//! How fast rows become durable. 64 tasks each submit a row and wait until it is on the disk; one task commits whatever is
//! queued, as the server's loop does. Then: how long a start takes with 100,000 jobs and 100,000 rows.
//!
//! `cargo run --release -p windfall-store --example bench_append -- [--json] [--seconds N] [--directory DIR]`;
//! PostgreSQL is measured too where WINDFALL_TEST_POSTGRES names a server (whose fsync should be on).

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use tokio::sync::{mpsc, oneshot};
use windfall_store::{Commit, JobRow, MemoryStore, Row, Snapshot, Store, open};

const SUBMITTERS: usize = 64;
const MANY: u64 = 100_000;

type Failure = Box<dyn std::error::Error + Send + Sync>;

struct Options {
    json: bool,
    seconds: u64,
    directory: std::path::PathBuf,
}

fn options() -> Result<Options, Failure> {
    let mut options = Options { json: false, seconds: 5, directory: std::env::temp_dir() };
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--json" => options.json = true,
            "--seconds" => options.seconds = arguments.next().ok_or("--seconds needs a number")?.parse()?,
            "--directory" => options.directory = arguments.next().ok_or("--directory needs a path")?.into(),
            other => return Err(format!("unknown argument: {other}").into()),
        }
    }
    Ok(options)
}

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let options = options()?;
    let directory = options.directory.join(format!("windfall-bench-{}", std::process::id()));
    std::fs::create_dir_all(&directory)?;
    let file = |name: &str| format!("sqlite:{}", directory.join(name).display());
    let mut reports = vec![measure("sqlite", &options, &file("append.db"), &file("start.db")).await];
    if let Ok(server) = std::env::var("WINDFALL_TEST_POSTGRES") {
        let mark = if server.contains('?') { '&' } else { '?' };
        let schema = |part: &str| format!("{server}{mark}schema=bench_{part}_{}", std::process::id());
        reports.push(measure("postgres", &options, &schema("append"), &schema("start")).await);
    }
    std::fs::remove_dir_all(&directory)?;
    let reports = reports.into_iter().collect::<Result<Vec<_>, _>>()?;
    let memory = memory_commits_per_second().await?;
    if options.json {
        let stores: Vec<_> = reports.iter().map(Report::json).collect();
        println!("{}", serde_json::json!({ "stores": stores, "memory_commits_per_s": memory }));
    } else {
        reports.iter().for_each(Report::print);
        println!("memory\n  {memory:>9.0} commits/s of one row each");
    }
    Ok(())
}

struct Report {
    backend: &'static str,
    events_per_s: f64,
    rows_per_commit: f64,
    commit: Times,
    submit: Times,
    open_ms: f64,
    load_snapshot_ms: f64,
    load_tail_ms: f64,
}

impl Report {
    fn print(&self) {
        println!("{}", self.backend);
        println!(
            "  {:>9.0} events/s durable, {SUBMITTERS} submitters, {:.1} rows a commit",
            self.events_per_s, self.rows_per_commit
        );
        for (name, times) in [("commit", &self.commit), ("submit to durable", &self.submit)] {
            println!(
                "  {:>9.2} ms P50, {:.2} ms P99, {:.2} ms longest: {name}",
                times.at(50),
                times.at(99),
                times.at(100)
            );
        }
        println!("  {:>9.1} ms to open, {MANY} jobs and {MANY} rows", self.open_ms);
        println!("  {:>9.1} ms to load, snapshot 1000 rows before the end", self.load_snapshot_ms);
        println!("  {:>9.1} ms to load, no snapshot, {MANY} rows", self.load_tail_ms);
    }

    fn json(&self) -> serde_json::Value {
        serde_json::json!({
            "backend": self.backend,
            "events_per_s": self.events_per_s,
            "rows_per_commit": self.rows_per_commit,
            "commit_p50_ms": self.commit.at(50),
            "commit_p99_ms": self.commit.at(99),
            "submit_p50_ms": self.submit.at(50),
            "submit_p99_ms": self.submit.at(99),
            "open_ms": self.open_ms,
            "load_snapshot_ms": self.load_snapshot_ms,
            "load_tail_ms": self.load_tail_ms,
        })
    }
}

/// Durations, sorted.
struct Times(Vec<Duration>);

impl Times {
    fn new(mut times: Vec<Duration>) -> Self {
        times.sort();
        Self(times)
    }

    fn at(&self, percent: usize) -> f64 {
        let index = (self.0.len() * percent / 100).min(self.0.len().saturating_sub(1));
        self.0.get(index).map_or(0.0, |time| 1_000.0 * time.as_secs_f64())
    }
}

async fn measure(backend: &'static str, options: &Options, append: &str, start: &str) -> Result<Report, Failure> {
    let (events_per_s, rows_per_commit, commit, submit) = appending(append, options.seconds).await?;
    let (open_ms, load_tail_ms, load_snapshot_ms) = starting(start).await?;
    Ok(Report { backend, events_per_s, rows_per_commit, commit, submit, open_ms, load_snapshot_ms, load_tail_ms })
}

fn row(seq: u64, payload: Arc<str>) -> Row {
    let workload = Some(seq % 5_000);
    Row { seq, batch: seq, at_ms: seq as i64, workload, kind: "progress-seen".into(), version: 1, payload }
}

fn payload(of: usize) -> Arc<str> {
    format!("{{\"workload\":{of},\"lease\":\"i-0abcdef{of:08}\",\"steps\":123456,\"note\":\"{}\"}}", "n".repeat(220))
        .into()
}

type Submission = (Arc<str>, oneshot::Sender<()>);

async fn appending(url: &str, seconds: u64) -> Result<(f64, f64, Times, Times), Failure> {
    let store: Arc<dyn Store> = Arc::from(open(url).await?);
    let (submit, submitted) = mpsc::channel::<Submission>(SUBMITTERS);
    let committer = tokio::spawn(commit_all(store.clone(), submitted));
    let stop = Arc::new(AtomicBool::new(false));
    let begin = Instant::now();
    let tasks: Vec<_> = (0..SUBMITTERS)
        .map(|task| {
            let (submit, stop) = (submit.clone(), stop.clone());
            tokio::spawn(async move {
                let mut waits = Vec::new();
                while !stop.load(Ordering::Relaxed) {
                    let (done, durable) = oneshot::channel();
                    let asked = Instant::now();
                    if submit.send((payload(task), done)).await.is_err() || durable.await.is_err() {
                        break;
                    }
                    waits.push(asked.elapsed());
                }
                waits
            })
        })
        .collect();
    drop(submit);
    tokio::time::sleep(Duration::from_secs(seconds)).await;
    stop.store(true, Ordering::Relaxed);
    let mut waits = Vec::new();
    for task in tasks {
        waits.extend(task.await?);
    }
    let took = begin.elapsed();
    let commits = committer.await??;
    store.close().await;
    let (events, count) = (waits.len() as f64, commits.len() as f64);
    Ok((events / took.as_secs_f64(), events / count, Times::new(commits), Times::new(waits)))
}

async fn commit_all(
    store: Arc<dyn Store>,
    mut submitted: mpsc::Receiver<Submission>,
) -> Result<Vec<Duration>, Failure> {
    let epoch = store.lead().await?;
    let mut seq = store.load().await?.next_seq;
    let mut commits = Vec::new();
    let mut batch = Vec::with_capacity(SUBMITTERS);
    while submitted.recv_many(&mut batch, 1_024).await > 0 {
        let rows = batch.iter().zip(seq..).map(|((payload, _), seq)| row(seq, payload.clone())).collect();
        let begin = Instant::now();
        store.commit(epoch, &Commit { rows, ..Commit::default() }).await?;
        commits.push(begin.elapsed());
        seq += batch.len() as u64;
        for (_, done) in batch.drain(..) {
            let _ = done.send(());
        }
    }
    Ok(commits)
}

/// Milliseconds to open, to load without a snapshot, and to load with one near the end.
async fn starting(url: &str) -> Result<(f64, f64, f64), Failure> {
    let store = open(url).await?;
    let epoch = store.lead().await?;
    for first in (1..=MANY).step_by(10_000) {
        let numbers = first..first + 10_000;
        let rows = numbers.clone().map(|seq| row(seq, payload(seq as usize))).collect();
        let jobs = numbers.map(job).collect();
        store.commit(epoch, &Commit { rows, jobs, ..Commit::default() }).await?;
    }
    store.close().await;
    let (_, tail) = timed_start(url, MANY as usize).await?;

    let store = open(url).await?;
    let epoch = store.lead().await?;
    let state: Arc<str> = format!("{{\"state\":\"{}\"}}", "s".repeat(5_000_000)).into();
    store.snapshot(epoch, &Snapshot { seq: MANY - 1_000, at_ms: 0, version: 1, payload: state }).await?;
    store.close().await;
    let (opened, snapshot) = timed_start(url, 1_000).await?;
    Ok((opened, tail, snapshot))
}

async fn timed_start(url: &str, rows: usize) -> Result<(f64, f64), Failure> {
    let begin = Instant::now();
    let store = open(url).await?;
    let opened = begin.elapsed();
    let loaded = store.load().await?;
    let loading = begin.elapsed() - opened;
    assert_eq!(loaded.tail.len(), rows);
    store.close().await;
    Ok((1_000.0 * opened.as_secs_f64(), 1_000.0 * loading.as_secs_f64()))
}

fn job(workload: u64) -> JobRow {
    JobRow {
        workload,
        name: format!("train-{}", workload % 1_000),
        owner: format!("person-{}", workload % 50),
        state: "succeeded".into(),
        live: workload.is_multiple_of(100),
        submitted_at_ms: workload as i64,
        ended_at_ms: None,
        version: 1,
        summary: payload(workload as usize),
    }
}

async fn memory_commits_per_second() -> Result<f64, Failure> {
    let store: Box<dyn Store> = Box::new(MemoryStore::new());
    let epoch = store.lead().await?;
    let text = payload(1);
    let begin = Instant::now();
    for seq in 1..=500_000 {
        store.commit(epoch, &Commit { rows: vec![row(seq, text.clone())], ..Commit::default() }).await?;
    }
    Ok(500_000.0 / begin.elapsed().as_secs_f64())
}
