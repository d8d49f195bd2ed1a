//! What a person waits for while five hundred jobs run on this machine.

use crate::workspace::windfall;
use std::path::Path;
use std::time::{Duration, Instant};

/// All of them run at once, each with an agent, a guard and a program.
const JOBS: usize = 500;
/// What a person hardly notices.
const WANTED_SECONDS: f64 = 1.0;

/// Waits until every job was seen to run.
fn all_run(state: &Path) -> bool {
    // The list is as long as it is asked to be: fifty unless told otherwise.
    let limit = JOBS.to_string();
    let running = || {
        let output = windfall(state, &["jobs", "--json", "--limit", &limit]).ok()?;
        let jobs: Vec<serde_json::Value> = serde_json::from_slice(&output.stdout).ok()?;
        Some(jobs.iter().filter(|job| job["state"] == "running").count())
    };
    let until = Instant::now() + Duration::from_secs(120);
    while Instant::now() < until {
        let count = running().unwrap_or(0);
        if count >= JOBS {
            println!("{count} jobs run");
            return true;
        }
        std::thread::sleep(Duration::from_millis(500));
    }
    println!("only {} jobs run", running().unwrap_or(0));
    false
}

fn ask_for_lists(lists: &mut Vec<f64>, timed: &impl Fn(&[&str]) -> (f64, bool)) -> bool {
    let answers = [timed(&["jobs"]), timed(&["status"])];
    lists.extend(answers.iter().map(|(seconds, _)| seconds));
    answers.iter().all(|(_, good)| *good)
}

/// Submits the jobs one after the other and asks for the list in between. True if every answer came soon enough.
pub fn load() -> bool {
    println!("\n== load, {JOBS} running jobs on one machine");
    let home = std::env::temp_dir().join(format!("windfall-load-{}", std::process::id()));
    let _ = std::fs::create_dir_all(&home);
    let job = home.join("job.yaml");
    // On-demand capacity has no end, so that none of them waits.
    let written = std::fs::write(&job, "priority: critical\nrun: exec sleep 100000\n");
    let job = job.to_string_lossy().into_owned();
    let state = home.join("state");
    let timed = |args: &[&str]| {
        let began = Instant::now();
        let good = windfall(&state, args).is_ok_and(|output| output.status.success());
        (began.elapsed().as_secs_f64(), good)
    };
    let mut good = written.is_ok() && timed(&["up"]).1;
    let (mut submits, mut lists) = (Vec::new(), Vec::new());
    for number in 1..=JOBS {
        let (seconds, taken) = timed(&["submit", &job]);
        good &= taken;
        submits.push(seconds);
        if number % 25 == 0 {
            good &= ask_for_lists(&mut lists, &timed);
        }
    }
    good &= all_run(&state);
    for _ in 0..20 {
        let (seconds, taken) = timed(&["submit", &job]);
        good &= taken && ask_for_lists(&mut lists, &timed);
        submits.push(seconds);
    }
    for (what, seconds) in [("submit", &mut submits), ("jobs and status", &mut lists)] {
        seconds.sort_by(f64::total_cmp);
        let longest = seconds.last().copied().unwrap_or(f64::INFINITY);
        println!(
            "{what}: median {:.3} s, longest {longest:.3} s, {:.2} of the {WANTED_SECONDS} s that a person may wait",
            seconds[seconds.len() / 2],
            longest / WANTED_SECONDS,
        );
        good &= longest < WANTED_SECONDS;
    }
    let (seconds, ended) = timed(&["down", "--cancel"]);
    println!("all cancelled and gone after {seconds:.0} s");
    let _ = std::fs::remove_dir_all(&home);
    good && ended
}
