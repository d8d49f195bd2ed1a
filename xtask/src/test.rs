//! The test command: everything that must hold, in the order in which it is cheapest to learn that it
//! does not.

use crate::components::Components;
use crate::workspace::{cargo, finish, metadata, root, run};
use crate::{architecture, licences, mutants, style};
use std::io::{BufRead, BufReader};
use std::process::{Command, ExitCode, Stdio};
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

    /// Runs a test binary and counts what it says.
    fn tests(&mut self, name: &str, command: &mut Command) {
        println!("\n== {name}");
        let began = Instant::now();
        let (mut passed, mut failed) = (0, 0);
        let mut section = Section::Progress;
        let good = match command.stdout(Stdio::piped()).spawn() {
            Ok(mut child) => {
                for line in
                    child.stdout.take().into_iter().flat_map(|out| BufReader::new(out).lines()).map_while(Result::ok)
                {
                    section = section.after(&line);
                    if section != Section::Successes {
                        println!("{line}");
                    }
                    if section == Section::Failures {
                        if line.starts_with("---- ") {
                            self.failures.push(Vec::new());
                        }
                        self.failures.last_mut().into_iter().for_each(|lines| lines.push(line.clone()));
                    }
                    if let Some(counts) = line.strip_prefix("test result: ") {
                        passed += count(counts, " passed");
                        failed += count(counts, " failed");
                    }
                    if let Some(skipped) = line.strip_prefix("skipped: ") {
                        self.skipped += 1;
                        self.rows.push((format!("skipped: {skipped}"), true, String::new()));
                    }
                }
                child.wait().is_ok_and(|status| status.success())
            }
            Err(error) => {
                println!("{error}");
                false
            }
        };
        self.passed += passed;
        self.failed += failed + u64::from(!good && failed == 0);
        self.rows.push((
            name.to_owned(),
            good,
            format!("{passed} passed, {failed} failed, {} s", began.elapsed().as_secs()),
        ));
    }
}

/// Where in the output of a test binary a line stands. What good tests print is read for what they skipped, and
/// not shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Section {
    Progress,
    Successes,
    Failures,
    Names,
}

impl Section {
    fn after(self, line: &str) -> Section {
        match line {
            "successes:" => Section::Successes,
            // The first time before what they printed, the second time before their names.
            "failures:" if self == Section::Failures => Section::Names,
            "failures:" => Section::Failures,
            _ if line.starts_with("test result: ") => Section::Progress,
            _ => self,
        }
    }
}

fn count(text: &str, word: &str) -> u64 {
    let before = text.find(word).map(|at| &text[..at]);
    before.and_then(|before| before.rsplit([' ', '.', ';']).next()).and_then(|number| number.parse().ok()).unwrap_or(0)
}

/// Runs everything.
pub fn test(args: &[String]) -> ExitCode {
    let quick = args.iter().any(|arg| arg == "--quick");
    let mut summary = Summary { rows: Vec::new(), failures: Vec::new(), passed: 0, failed: 0, skipped: 0 };
    let metadata = metadata();
    summary.check("architecture", &architecture::violations(&metadata));
    summary.check("licences", &licences::violations(&metadata));
    summary.check("house style", &style::violations());
    summary.check("list of mutants", &mutants::violations());
    summary.step("format", &mut cargo(&["fmt", "--all", "--check"]));
    summary.step("lints", &mut cargo(&["clippy", "--workspace", "--all-targets", "--quiet", "--", "-D", "warnings"]));
    summary.step("build", &mut cargo(&["build", "--workspace", "--all-targets", "--quiet"]));

    let components = Components::start();
    for (name, why) in &components.skipped {
        summary.skipped += 1;
        summary.rows.push((format!("skipped: {name}"), true, why.clone()));
    }
    let mut tests =
        cargo(&["test", "--workspace", "--no-fail-fast", "--quiet", "--", "--test-threads", "4", "--show-output"]);
    tests.envs(components.env.iter().map(|(name, value)| (*name, value.as_str())));
    tests.env("WINDFALL_BIN", root().join("target/debug/windfall"));
    // The same cases in every run of this command: what is new is looked for on purpose, with another seed.
    if std::env::var_os(CASES_SEED).is_none() {
        tests.env(CASES_SEED, "1");
    }
    if quick {
        tests.env("WINDFALL_QUICK", "1");
    }
    summary.tests("tests", &mut tests);
    let mut python = Command::new("python3");
    python.args(["-m", "unittest", "discover", "-s", "python/tests", "-t", "python"]).current_dir(root());
    summary.step("python helper", &mut python);
    let seconds = if quick { "5" } else { "30" };
    summary.step(
        "explorer, fresh seeds",
        &mut cargo(&["run", "--quiet", "--package", "windfall-explore", "--", "--seconds", seconds]),
    );
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

#[cfg(test)]
mod tests {
    use super::{Section, count};

    #[test]
    fn only_what_failed_is_shown() {
        let lines = [
            ("..F.", Section::Progress),
            ("successes:", Section::Successes),
            ("---- a stdout ----", Section::Successes),
            ("failures:", Section::Failures),
            ("---- b stdout ----", Section::Failures),
            ("failures:", Section::Names),
            ("    b", Section::Names),
            ("test result: FAILED. 1 passed; 1 failed", Section::Progress),
        ];
        let mut section = Section::Progress;
        for (line, expected) in lines {
            section = section.after(line);
            assert_eq!(section, expected, "{line}");
        }
    }

    #[test]
    fn counts_are_read_off_cargo_s_own_line() {
        assert_eq!(count("ok. 12 passed; 3 failed; 0 ignored", " passed"), 12);
        assert_eq!(count("ok. 12 passed; 3 failed; 0 ignored", " failed"), 3);
    }
}
