//! Every figure that the documentation names, each from the command that makes it.

use crate::bench_build::bench_build;
use crate::bench_server::bench_server;
use crate::components::Components;
use crate::leftovers::Leftovers;
use crate::load::load;
use crate::profile::profile;
use crate::workspace::{built, cargo, finish, root, run, windfall};
use std::process::{Command, ExitCode};
use std::time::Instant;

/// Runs the named benchmarks, or all of them.
pub fn bench(args: &[String]) -> ExitCode {
    let wanted = |name: &str| args.is_empty() || args.iter().any(|arg| arg == name);
    if args.first().is_some_and(|name| name == "market") {
        return finish(market(&args[1..]));
    }
    if args.first().is_some_and(|name| name == "brain") {
        return finish(brain(&args[1..]));
    }
    if args.first().is_some_and(|name| name == "slurm") {
        return finish(slurm(&args[1..]));
    }
    // It begins a cluster of its own, and needs root for that.
    if args.first().is_some_and(|name| name == "slurm-submits") {
        return finish(slurm_submits(&args[1..]));
    }
    // It builds for itself, from nothing: whoever asks for everything has built already.
    if args.first().is_some_and(|name| name == "build") {
        return finish(bench_build());
    }
    if args.first().is_some_and(|name| name == "profile") {
        return finish(profile(&args[1..]));
    }
    if args.first().is_some_and(|name| name == "server") {
        return finish(bench_server(&args[1..]));
    }
    let mut good = run(&mut cargo(&["build", "--release", "--quiet", "--workspace", "--examples", "--bins"]));
    let needs_components = wanted("store") || wanted("checkpoint");
    let components = needs_components.then(|| Components::start(Leftovers::watch(&Components::folder())));
    let env =
        || components.iter().flat_map(|components| components.env.iter().map(|(name, value)| (*name, value.clone())));
    if wanted("size") {
        size();
    }
    if wanted("store") {
        good &= run(release("examples/bench_append").envs(env()));
    }
    if wanted("checkpoint") {
        good &= run(release("examples/bench_checkpoint").envs(env()));
    }
    if wanted("explore") {
        good &= run(release("windfall-explore").args(["--seconds", "60"]));
    }
    if wanted("restart") {
        good &= run(&mut release("examples/bench_restart"));
    }
    if wanted("catalog") {
        good &= run(&mut release("examples/bench_catalog"));
    }
    if wanted("slurm") {
        good &= slurm(&[]);
    }
    if wanted("brain") {
        good &= brain(&[]);
    }
    if wanted("server") {
        good &= bench_server(&[]);
    }
    if wanted("plan") {
        good &= plan();
    }
    if wanted("quickstart") {
        good &= quickstart();
    }
    if wanted("load") {
        good &= load();
    }
    // The recorded markets are not in the tree: whoever asks for everything may not have them.
    if wanted("market") && (!args.is_empty() || std::env::var_os("WINDFALL_DATA").is_some()) {
        good &= market(&[]);
    }
    if wanted("profile") && (!args.is_empty() || std::env::var_os("WINDFALL_DATA").is_some()) {
        good &= profile(&[]);
    }
    finish(good)
}

/// Every policy on the recorded markets, or some of its parts: `table`, `zones`, `regions`, `gangs`, `folds`, `speed`.
fn market(parts: &[String]) -> bool {
    let package = ["--package", "windfall-sim", "--example", "bench_market"];
    run(cargo(&["build", "--release", "--quiet"]).args(package)) && run(release("examples/bench_market").args(parts))
}

/// What a step of the brain costs with very many jobs: sizes, `--seconds`, `--rounds`, `--json`.
fn brain(words: &[String]) -> bool {
    let package = ["--package", "windfall-sim", "--example", "bench_brain"];
    run(cargo(&["build", "--release", "--quiet"]).args(package)) && run(release("examples/bench_brain").args(words))
}

/// A report of invented accounting, beside `wc -l` and Python's csv: a number of jobs.
fn slurm(words: &[String]) -> bool {
    let package = ["--package", "windfall-insight", "--example", "bench_slurm"];
    run(cargo(&["build", "--release", "--quiet"]).args(package)) && run(release("examples/bench_slurm").args(words))
}

/// Submissions to a real controller, beside `sbatch` by hand: a number of jobs. None may be lost, and none run twice.
fn slurm_submits(words: &[String]) -> bool {
    let many = words.first().map_or("1000", String::as_str);
    println!("\n== {many} submissions to a real slurmctld, beside sbatch by hand");
    let test = ["test", "--release", "--quiet", "--workspace", "--test", "e2e", "--"];
    let mut command = cargo(&test);
    command.args(["of_very_many_submissions", "--nocapture"]).env("WINDFALL_SUBMITS_AT_ONCE", many);
    run(&mut command)
}

/// Writes the embedded markets again.
pub fn markets() -> ExitCode {
    finish(market(&["markets".to_owned()]))
}

/// Learns the priors of spot markets again, from every recording there is, and writes the fact file.
pub fn priors() -> ExitCode {
    let file = root().join("crates/core/src/market/foresight/priors.json");
    let mut command = cargo(&["run", "--quiet", "--release", "--package", "windfall-sim", "--example", "bench_market"]);
    let output = command.args(["--", "priors"]).stderr(std::process::Stdio::inherit()).output();
    let learnt = output.ok().filter(|output| output.status.success()).map(|output| output.stdout);
    finish(learnt.is_some_and(|learnt| std::fs::write(file, learnt).is_ok()))
}

fn release(program: &str) -> Command {
    println!("\n== {program}");
    let mut command = Command::new(built().join(program));
    command.current_dir(root());
    command
}

/// Plans beside a calculation by hand and beside SkyPilot's, and whether what they expect is what happens.
fn plan() -> bool {
    println!("\n== ten plans beside a calculation by hand");
    let program = built().join("windfall");
    let by_hand = run(Command::new("python3").arg(root().join("xtask/peers/hand_plans.py")).arg(&program));
    println!("\n== plan, beside SkyPilot {SKYPILOT}");
    let Some(python) = skypilot() else {
        println!("skipped: SkyPilot cannot be installed from PyPI here");
        return false;
    };
    let script = root().join("xtask/peers/bench_plan.py");
    let beside = by_hand & run(Command::new("python3").arg(script).arg(program).arg(python));
    println!("\n== what plans expect and what happens, zone by zone, learnt from the others");
    beside & run(release("examples/calibrate_plan").arg("foresight"))
}

const SKYPILOT: &str = "0.14.1";

/// A Python with SkyPilot in it, outside the tree.
fn skypilot() -> Option<std::path::PathBuf> {
    let folder = crate::workspace::cache().join(format!("skypilot-{SKYPILOT}"));
    let python = folder.join("bin/python");
    let ready = folder.join("ready");
    if !ready.exists() {
        let made = run(Command::new("python3").args(["-m", "venv"]).arg(&folder))
            && run(Command::new(&python).args(["-m", "pip", "install", "--quiet", &format!("skypilot=={SKYPILOT}")]));
        if !made {
            return None;
        }
        std::fs::write(&ready, "").ok()?;
    }
    Some(python)
}

fn size() {
    let binary = built().join("windfall");
    if let Ok(meta) = std::fs::metadata(&binary) {
        println!("binary size: {:.1} MB", meta.len() as f64 / 1e6);
    }
}

/// Runs at once: the example waits more than it computes.
const AT_ONCE: u32 = 5;

/// The first run, again and again, every other round with both cores busy.
fn quickstart() -> bool {
    let runs: u32 = std::env::var("WINDFALL_RUNS").ok().and_then(|runs| runs.parse().ok()).unwrap_or(20);
    println!("\n== quickstart, {runs} runs, {AT_ONCE} at once");
    let mut walls = Vec::new();
    let mut good = 0;
    for first in (0..runs).step_by(AT_ONCE as usize) {
        let busy_round = first / AT_ONCE % 2 == 1;
        let mut busy: Vec<_> = (0..if busy_round { 2 } else { 0 })
            .filter_map(|_| Command::new("sh").args(["-c", "while :; do :; done"]).spawn().ok())
            .collect();
        let round: Vec<_> =
            (first..runs.min(first + AT_ONCE)).map(|number| std::thread::spawn(move || one_run(number))).collect();
        for (wall, bill) in round.into_iter().filter_map(|run| run.join().ok()) {
            let kept = bill["deadline_met"] == true
                && bill["interruptions"].as_u64() >= Some(3)
                && bill["state"] == "succeeded";
            good += u32::from(kept);
            walls.push(wall);
            println!(
                "run {:>2}{}: {wall:.1} s, {} interruptions, ${:.2} against ${:.2} on-demand and ${:.2} at best{}",
                walls.len(),
                if busy_round { " (both cores busy)" } else { "" },
                bill["interruptions"],
                bill["cost_usd"].as_f64().unwrap_or(0.0),
                bill["on_demand_only_usd"].as_f64().unwrap_or(0.0),
                bill["omniscient_usd"].as_f64().unwrap_or(0.0),
                if kept { "" } else { "  NOT AS PROMISED" },
            );
        }
        for child in &mut busy {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
    walls.sort_by(f64::total_cmp);
    if let (Some(least), Some(most)) = (walls.first(), walls.last()) {
        let median = walls[walls.len() / 2];
        println!("quickstart: {good} of {runs} as promised, wall time {least:.1} to {most:.1} s, median {median:.1} s");
    }
    good == runs
}

/// One run on a home of its own: its wall time and its bill.
fn one_run(number: u32) -> (f64, serde_json::Value) {
    let home = std::env::temp_dir().join(format!("windfall-bench-{}-{number}", std::process::id()));
    let began = Instant::now();
    let output = windfall(&home, &["run", "--json", "examples/quickstart/job.yaml"]);
    let wall = began.elapsed().as_secs_f64();
    let text = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
    let bill = text.lines().last().and_then(|line| serde_json::from_str(line).ok()).unwrap_or_default();
    let _ = windfall(&home, &["down"]);
    let _ = std::fs::remove_dir_all(&home);
    (wall, bill)
}
