//! The test command: everything that must hold, in the order in which it is cheapest to learn that it
//! does not.

use crate::components::Components;
use crate::kubernetes;
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

/// One thing that was tried.
struct Row {
    name: String,
    good: bool,
    remark: String,
    /// How long it took, where that is worth knowing.
    seconds: u64,
}

struct Summary {
    rows: Vec<Row>,
    /// What failed tests printed, to be said again at the end, where it is found.
    failures: Vec<Vec<String>>,
    passed: u64,
    /// Of those that passed, what did so only when nothing else ran.
    only_alone: u64,
    failed: u64,
    skipped: u64,
}

impl Summary {
    fn check(&mut self, name: &str, found: &[String]) {
        for violation in found {
            println!("{name}: {violation}");
        }
        self.row(name, found.is_empty(), format!("{} found", found.len()), 0);
    }

    fn row(&mut self, name: &str, good: bool, remark: String, seconds: u64) {
        if good {
            self.passed += 1;
        } else {
            self.failed += 1;
        }
        self.rows.push(Row { name: name.to_owned(), good, remark, seconds });
    }

    fn skip(&mut self, name: String, why: String) {
        self.skipped += 1;
        self.rows.push(Row { name: format!("skipped: {name}"), good: true, remark: why, seconds: 0 });
    }

    fn step(&mut self, name: &str, command: &mut Command) {
        println!("\n== {name}");
        let began = Instant::now();
        let good = run(command);
        let seconds = began.elapsed().as_secs();
        self.row(name, good, format!("{seconds} s"), seconds);
    }

    /// What the test programs said.
    fn programs(&mut self, all: Vec<Ran>) {
        for ran in all {
            self.passed += ran.passed;
            self.failed += ran.failed;
            self.failures.extend(ran.failures);
            let remark = format!("{} passed, {} failed, {} s", ran.passed, ran.failed, ran.seconds);
            self.rows.push(Row { name: ran.name, good: ran.good, remark, seconds: ran.seconds });
            for name in ran.only_alone {
                self.only_alone += 1;
                let remark = "failed beside others: see above".to_owned();
                self.rows.push(Row { name: format!("only alone: {name}"), good: true, remark, seconds: 0 });
            }
            ran.skipped.into_iter().for_each(|what| self.skip(what, String::new()));
        }
    }
}

/// Runs everything.
pub fn test(args: &[String]) -> ExitCode {
    let quick = args.iter().any(|arg| arg == "--quick");
    let mut summary =
        Summary { rows: Vec::new(), failures: Vec::new(), passed: 0, only_alone: 0, failed: 0, skipped: 0 };
    let leftovers = Leftovers::watch(&Components::folder());
    let kubernetes = kubernetes::begin();
    let metadata = metadata();
    summary.check("architecture", &architecture::violations(&metadata));
    summary.check("circles of use", &circles::violations());
    summary.check("licences", &licences::violations(&metadata));
    summary.check("house style", &style::violations());
    summary.check("list of mutants", &mutants::violations());
    summary.step("format", &mut cargo(&["fmt", "--all", "--check"]));
    summary.step("lints", &mut cargo(&["clippy", "--workspace", "--all-targets", "--quiet", "--", "-D", "warnings"]));
    summary.step("build", &mut cargo(&["build", "--workspace", "--all-targets", "--quiet"]));

    let mut components = Components::start(leftovers);
    components.kubernetes(kubernetes);
    for (name, why) in &components.skipped {
        summary.skip((*name).to_owned(), why.clone());
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
    let count = format!("{} of them, {} s", ran.len(), began.elapsed().as_secs());
    summary.row("test programs", !ran.is_empty(), count, 0);
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

/// Things of the test command that are named as those that take longest.
const LONGEST: usize = 6;

fn longest(rows: &[Row]) {
    let mut rows: Vec<&Row> = rows.iter().filter(|row| row.seconds > 0).collect();
    rows.sort_by_key(|row| std::cmp::Reverse(row.seconds));
    let named: Vec<String> = rows.iter().take(LONGEST).map(|row| format!("{} {} s", row.name, row.seconds)).collect();
    println!("\nlongest: {}", named.join(", "));
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
    for Row { name, good, remark, .. } in &summary.rows {
        println!("  {:<6} {name:<28} {remark}", if *good { "ok" } else { "FAILED" });
    }
    longest(&summary.rows);
    println!("\n{} passed, {} failed, {} skipped", summary.passed, summary.failed, summary.skipped);
    if summary.only_alone > 0 {
        println!("{} of those that passed did so only when nothing else ran", summary.only_alone);
    }
    let ci = std::env::var_os("CI").is_some();
    if ci && summary.skipped > 0 {
        println!("on CI a skip is a failure");
    }
    finish(summary.failed == 0 && !(ci && summary.skipped > 0))
}
