//! Plays recorded markets under any set of policies, side by side.

mod ask;
mod svg;

use crate::args::SimulateMarketArgs;
use crate::here::Here;
use crate::show::table;
use ask::Asked;
use std::io::{IsTerminal, Write};
use std::sync::Mutex;
use std::time::{Duration, Instant};
use windfall_core::{NanoUsd, Span};
use windfall_server::client::{Code, Failure};
use windfall_sim::{PolicyResult, compare, mean, optima};

pub fn market(here: &Here, args: &SimulateMarketArgs) -> Result<Code, Failure> {
    let asked = ask::asked(args)?;
    let threads = args.threads.map_or_else(
        || std::thread::available_parallelism().map_or(1, usize::from),
        |threads| usize::try_from(threads).unwrap_or(1),
    );
    let standings = {
        let progress = Progress::new("played", asked.scenarios.len());
        compare(&asked.scenarios, &asked.players, threads, &|done| progress.at(done))
    };
    let optimum = {
        let progress = Progress::new("optimum of", asked.scenarios.len());
        optima(&asked.scenarios, threads, &|done| progress.at(done))
    };
    let optimum: Vec<f64> = optimum.into_iter().map(|cost| cost.map_or(0.0, NanoUsd::dollars)).collect();
    if let Some(folder) = &args.svg {
        svg::write(folder, &asked, &standings, &optimum)?;
    }
    match here.json {
        true => println!("{}", json(&asked, &standings, &optimum)),
        false => print!("{}", text(&asked, &standings, &optimum)),
    }
    Ok(Code::Done)
}

fn json(asked: &Asked, standings: &[PolicyResult], optimum: &[f64]) -> serde_json::Value {
    let policy = |standing: &PolicyResult| {
        serde_json::json!({
            "name": standing.name,
            "mean_cost_usd": micro(standing.mean_cost()),
            "late": standing.late(),
            "interruptions": interruptions(standing),
            "mean_seconds_spot": mean_seconds(standing, |played| played.spot),
            "mean_seconds_on_demand": mean_seconds(standing, |played| played.on_demand),
        })
    };
    serde_json::json!({
        "scenarios": optimum.len(),
        "policies": standings.iter().map(policy).collect::<Vec<_>>(),
        "optimum": { "mean_cost_usd": micro(mean(optimum.iter().copied())) },
        "priors": { "file": asked.priors.file, "source": asked.priors.source, "learnt": asked.priors.learnt },
    })
}

/// To the millionth of a dollar: averages of floats end in noise.
fn micro(dollars: f64) -> f64 {
    (dollars * 1e6).round() / 1e6
}

fn interruptions(standing: &PolicyResult) -> u64 {
    standing.played.iter().map(|played| u64::from(played.interruptions)).sum()
}

fn mean_seconds(standing: &PolicyResult, span: impl Fn(&windfall_sim::Played) -> Span) -> f64 {
    mean(standing.played.iter().map(|played| span(played).0 as f64 / 1_000.0))
}

fn text(asked: &Asked, standings: &[PolicyResult], optimum: &[f64]) -> String {
    let best = mean(optimum.iter().copied());
    let span = |seconds: f64| Span((seconds * 1_000.0) as i64).to_string();
    let row = |standing: &PolicyResult| {
        let cost = standing.mean_cost();
        vec![
            standing.name.clone(),
            NanoUsd::from_dollars(cost).to_string(),
            format!("{:.2} %", 100.0 * (cost / best - 1.0)),
            standing.late().to_string(),
            format!("{:.1}", interruptions(standing) as f64 / optimum.len() as f64),
            span(mean_seconds(standing, |played| played.spot)),
            span(mean_seconds(standing, |played| played.on_demand)),
        ]
    };
    let mut rows: Vec<Vec<String>> = standings.iter().map(row).collect();
    rows.push(vec!["optimum".to_owned(), NanoUsd::from_dollars(best).to_string(), "0.00 %".to_owned(), "0".to_owned()]);
    let head = ["POLICY", "MEAN COST", "ABOVE OPTIMUM", "LATE", "INTERRUPTIONS", "ON SPOT", "ON-DEMAND"];
    let count = optimum.len();
    let many = if count == 1 { "scenario" } else { "scenarios" };
    let ask::Known { file, source, learnt } = &asked.priors;
    let whose = file.as_deref().unwrap_or("embedded; --priors FILE for others");
    let priors = format!("priors: {whose}, learnt {learnt} from {source}");
    format!("{}\n{count} {many}: {}\n{priors}\n", table(&head, &rows), asked.what)
}

/// How far it is, on standard error: a line that moves on a terminal, now and then a line elsewhere.
struct Progress {
    what: &'static str,
    all: usize,
    began: Instant,
    shown: Mutex<Instant>,
}

/// Work that is over sooner needs no progress.
const PATIENCE: Duration = Duration::from_secs(2);

impl Progress {
    fn new(what: &'static str, all: usize) -> Progress {
        Progress { what, all, began: Instant::now(), shown: Mutex::new(Instant::now()) }
    }

    fn at(&self, done: usize) {
        let terminal = std::io::stderr().is_terminal();
        let pause = if terminal { Duration::from_millis(200) } else { Duration::from_secs(10) };
        let Ok(mut shown) = self.shown.try_lock() else { return };
        if self.began.elapsed() < PATIENCE || shown.elapsed() < pause {
            return;
        }
        *shown = Instant::now();
        let left = self.began.elapsed().as_secs_f64() / done as f64 * (self.all - done) as f64;
        let (from, to) = if terminal { ("\r\x1b[K", "") } else { ("", "\n") };
        let left = Span((left * 1_000.0) as i64);
        eprint!("{from}{} {done} of {} scenarios, {left} left{to}", self.what, self.all);
        let _ = std::io::stderr().flush();
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if std::io::stderr().is_terminal() && self.began.elapsed() >= PATIENCE {
            eprint!("\r\x1b[K");
        }
    }
}
