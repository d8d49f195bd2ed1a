//! The test command: everything that must hold, in the order in which it is cheapest to learn that it
//! does not.

use crate::components::Components;
use crate::leftovers::{Leftovers, MARK, mark};
use crate::programs::{self, Ran};
use crate::workspace::{cargo, debug_program, finish, metadata, root, run};
use crate::{architecture, circles, licences, mutants, style};
use std::process::{Command, ExitCode};
use std::time::Instant;

/// Where property tests read their seed.
const CASES_SEED: &str = "PROPTEST_RNG_SEED";

/// How many lines of a failed test are said again at the end.
const LINES_AGAIN: usize = 60;

struct Summary {
    rows: Vec<(String, bool, String)>,
    /// What failed tests printed, to be said again at the end, where it is found.
    failures: Vec<Vec<String>>,
    passed: u64,
    failed: u64,
    skipped: u64,
}

impl Summary {
    fn check(&mut self, name: &str, found: &[String]) {
        for violation in found {
            println!("{name}: {violation}");
        }
        self.row(name, found.is_empty(), format!("{} found", found.len()));
    }

    fn row(&mut self, name: &str, good: bool, remark: String) {
        if good {
            self.passed += 1;
        } else {
            self.failed += 1;
        }
        self.rows.push((name.to_owned(), good, remark));
    }

    fn step(&mut self, name: &str, command: &mut Command) {
        println!("\n== {name}");
        let began = Instant::now();
        let good = run(command);
        self.row(name, good, format!("{} s", began.elapsed().as_secs()));
    }

    /// What the test programs said.
    fn programs(&mut self, all: Vec<Ran>) {
        for ran in all {
            self.passed += ran.passed;
            self.failed += ran.failed;
            self.skipped += ran.skipped.len() as u64;
            self.failures.extend(ran.failures);
            let remark = format!("{} passed, {} failed, {} s", ran.passed, ran.failed, ran.seconds);
            self.rows.push((ran.name, ran.good, remark));
            self.rows.extend(ran.skipped.into_iter().map(|why| (format!("skipped: {why}"), true, String::new())));
        }
    }
}

/// Runs everything.
pub fn test(args: &[String]) -> ExitCode {
    let quick = args.iter().any(|arg| arg == "--quick");
    let mut summary = Summary { rows: Vec::new(), failures: Vec::new(), passed: 0, failed: 0, skipped: 0 };
    let leftovers = Leftovers::watch(&Components::folder());
    let metadata = metadata();
    summary.check("architecture", &architecture::violations(&metadata));
    summary.check("circles of use", &circles::violations());
    summary.check("licences", &licences::violations(&metadata));
    summary.check("house style", &style::violations());
    summary.check("list of mutants", &mutants::violations());
    summary.step("format", &mut cargo(&["fmt", "--all", "--check"]));
    summary.step("lints", &mut cargo(&["clippy", "--workspace", "--all-targets", "--quiet", "--", "-D", "warnings"]));
    summary.step("build", &mut cargo(&["build", "--workspace", "--all-targets", "--quiet"]));

    let components = Components::start(leftovers);
    for (name, why) in &components.skipped {
        summary.skipped += 1;
        summary.rows.push((format!("skipped: {name}"), true, why.clone()));
    }
    let mut env: Vec<(&str, String)> = components.env.clone();
    env.push(("WINDFALL_BIN", debug_program("windfall").display().to_string()));
    // The same cases in every run of this command: what is new is looked for on purpose, with another seed.
    env.push((CASES_SEED, std::env::var(CASES_SEED).unwrap_or_else(|_| "1".to_owned())));
    if quick {
        env.push(("WINDFALL_QUICK", "1".to_owned()));
    }
    let began = Instant::now();
    let ran = programs::run_all(&env);
    summary.row("test programs", !ran.is_empty(), format!("{} of them, {} s", ran.len(), began.elapsed().as_secs()));
    summary.programs(ran);
    let mut python = Command::new("python3");
    python.args(["-m", "unittest", "discover", "-s", "python/tests", "-t", "python"]).current_dir(root());
    summary.step("python helper", &mut python);
    let seconds = if quick { "5" } else { "30" };
    // The program that was built above: cargo would build it anew with the features of its package alone.
    let mut explorer = Command::new(debug_program("windfall-explore"));
    summary.step("explorer, fresh seeds", explorer.args(["--seconds", seconds]).env(MARK, mark()));
    drop(components);
    report(&summary)
}

fn report(summary: &Summary) -> ExitCode {
    for lines in &summary.failures {
        println!();
        let (first, last) = (lines.len().min(LINES_AGAIN / 2), lines.len().saturating_sub(LINES_AGAIN / 2));
        lines[..first].iter().for_each(|line| println!("{line}"));
        if last > first {
            println!("[{} lines are above]", last - first);
        }
        lines[last.max(first)..].iter().for_each(|line| println!("{line}"));
    }
    println!("\nsummary");
    for (name, good, remark) in &summary.rows {
        println!("  {:<6} {name:<28} {remark}", if *good { "ok" } else { "FAILED" });
    }
    println!("\n{} passed, {} failed, {} skipped", summary.passed, summary.failed, summary.skipped);
    let ci = std::env::var_os("CI").is_some();
    if ci && summary.skipped > 0 {
        println!("on CI a skip is a failure");
    }
    finish(summary.failed == 0 && !(ci && summary.skipped > 0))
}
