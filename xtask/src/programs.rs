//! Every test program of the workspace. Two lanes run at once, each one program after the other: tests that compute,
//! and beside them tests that mostly wait for processes, clocks and disks. What a program says is shown when it is over.
//! A test of the second kind plays hours in seconds, and a machine that is busy with something else breaks its promises:
//! one that fails is tried once more when nothing else runs, and named even if it then passes.

use crate::leftovers::{MARK, mark};
use crate::workspace::cargo;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

/// Programs whose tests mostly wait, longest first, and how many of their tests run at once. All others compute: as
/// many at once as there are cores.
const WAITING: &[(&str, usize)] = &[("rehearse", 6), ("e2e", 6), ("conformance", 6), ("checkpoints", 4)];

/// Failed tests of all programs that are tried again. With more of them the fault is not the machine's.
const MOST_AGAIN: usize = 3;

/// A test program that runs longer has hung: it is ended, so that there is a summary which names it.
const MOST_TIME: Duration = Duration::from_secs(40 * 60);

/// A built test program.
struct TestProgram {
    package: String,
    target: String,
    /// It holds the tests that stand in the source itself.
    unit: bool,
    path: PathBuf,
    /// The folder of its package, in which it runs.
    folder: PathBuf,
}

/// How a program went.
pub struct Ran {
    pub name: String,
    pub good: bool,
    pub passed: u64,
    pub failed: u64,
    pub seconds: u64,
    /// What was skipped, and why.
    pub skipped: Vec<String>,
    /// What each failed test printed.
    pub failures: Vec<Vec<String>>,
    /// The tests that failed.
    failed_names: Vec<String>,
    /// Tests that failed beside others and passed alone.
    pub only_alone: Vec<String>,
}

/// Builds all test programs and runs them with these variables.
pub fn run_all(env: &[(&str, String)]) -> Vec<Ran> {
    let programs = built();
    let (mut waiting, computing): (Vec<_>, Vec<_>) =
        programs.into_iter().partition(|program| program.waits().is_some());
    waiting.sort_by_key(TestProgram::waits);
    let (ran, screen) = (Mutex::new(Vec::new()), Mutex::new(()));
    let lane = |programs: &[TestProgram]| {
        for program in programs {
            let one = run_one(program.command(env), &program.name(), Some(&screen));
            ran.lock().unwrap_or_else(std::sync::PoisonError::into_inner).push(one);
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(|| lane(&waiting));
        scope.spawn(|| {
            lane(&computing);
            let mut examples = cargo(&["test", "--workspace", "--doc", "--no-fail-fast", "--quiet"]);
            examples.envs(env.iter().map(|(name, value)| (name, value)));
            let one = run_one(examples, "examples in documentation", Some(&screen));
            ran.lock().unwrap_or_else(std::sync::PoisonError::into_inner).push(one);
        });
    });
    let mut ran = ran.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    if ran.iter().map(|one| one.failed_names.len()).sum::<usize>() <= MOST_AGAIN {
        for program in &waiting {
            let failed = ran.iter_mut().find(|one| one.name == program.name() && !one.good);
            failed.into_iter().for_each(|failed| failed.try_alone(program, env, Some(&screen)));
        }
    }
    ran
}

impl Ran {
    /// Tries the tests that failed once more, one by one.
    fn try_alone(&mut self, program: &TestProgram, env: &[(&str, String)], screen: Option<&Mutex<()>>) {
        // A program that died has failed, whatever it said before.
        if self.failed_names.len() as u64 != self.failed {
            return;
        }
        for name in std::mem::take(&mut self.failed_names) {
            let mut command = program.command(env);
            command.args(["--exact", &name]);
            let again = run_one(command, &format!("{} alone: {name}", self.name), screen);
            if again.good && again.passed == 1 {
                self.passed += 1;
                self.failed -= 1;
                self.only_alone.push(name);
            } else {
                self.failed_names.push(name);
            }
        }
        self.good = self.failed_names.is_empty();
    }
}

/// The test programs, as cargo says.
fn built() -> Vec<TestProgram> {
    let build = ["test", "--workspace", "--no-run", "--quiet", "--message-format", "json-render-diagnostics"];
    let output = cargo(&build).stderr(Stdio::inherit()).output().map(|output| output.stdout).unwrap_or_default();
    let messages = output.split(|byte| *byte == b'\n').filter_map(|line| serde_json::from_slice(line).ok());
    messages.filter_map(|message: serde_json::Value| TestProgram::in_message(&message)).collect()
}

impl TestProgram {
    fn in_message(message: &serde_json::Value) -> Option<TestProgram> {
        if message["profile"]["test"] != true {
            return None;
        }
        let folder = Path::new(message["manifest_path"].as_str()?).parent()?.to_owned();
        Some(TestProgram {
            package: folder.file_name()?.to_str()?.to_owned(),
            target: message["target"]["name"].as_str()?.to_owned(),
            unit: message["target"]["kind"][0] != "test",
            path: message["executable"].as_str()?.into(),
            folder,
        })
    }

    /// Its place among those that mostly wait.
    fn waits(&self) -> Option<usize> {
        WAITING.iter().position(|(name, _)| !self.unit && *name == self.target)
    }

    fn name(&self) -> String {
        if self.unit { format!("{}: unit tests", self.package) } else { format!("{}: {}", self.package, self.target) }
    }

    fn command(&self, env: &[(&str, String)]) -> Command {
        let cores = std::thread::available_parallelism().map_or(2, usize::from);
        let waits = self.waits().map(|number| WAITING[number]);
        // What computes gives way: beside it others look at how long something takes.
        let mut command = Command::new(if waits.is_some() { "env" } else { "nice" });
        let at_once = waits.map_or(cores, |(_, at_once)| at_once).to_string();
        command.arg(&self.path).args(["--quiet", "--show-output", "--test-threads", &at_once]);
        command.current_dir(&self.folder);
        command.envs(env.iter().map(|(name, value)| (name, value)));
        command.env("CARGO_MANIFEST_DIR", &self.folder).env(MARK, mark());
        // The line that failed is said without it, and the frames of the test runner hide the rest.
        command.env("RUST_BACKTRACE", "0");
        command
    }
}

/// Runs a test program and counts what it says; without a screen nothing is shown.
fn run_one(mut command: Command, name: &str, screen: Option<&Mutex<()>>) -> Ran {
    let began = Instant::now();
    let mut ran = Ran {
        name: name.to_owned(),
        good: false,
        passed: 0,
        failed: 0,
        seconds: 0,
        skipped: Vec::new(),
        failures: Vec::new(),
        failed_names: Vec::new(),
        only_alone: Vec::new(),
    };
    let mut shown = Vec::new();
    match command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn() {
        Ok(mut child) => {
            let output = child.stdout.take().into_iter().flat_map(|out| BufReader::new(out).lines());
            let (ended, ends) = mpsc::channel::<()>();
            let pid = child.id().to_string();
            let limit = std::thread::spawn(move || {
                let hangs = ends.recv_timeout(MOST_TIME) == Err(RecvTimeoutError::Timeout);
                hangs && Command::new("kill").args(["-KILL", &pid]).status().is_ok()
            });
            read(output.map_while(Result::ok), &mut ran, &mut shown);
            ran.good = child.wait().is_ok_and(|status| status.success());
            drop(ended);
            if limit.join().unwrap_or(false) {
                shown.push(format!("it was ended after {} minutes", MOST_TIME.as_secs() / 60));
            }
        }
        Err(error) => shown.push(error.to_string()),
    }
    ran.seconds = began.elapsed().as_secs();
    // A program that dies without a word has failed as well.
    ran.failed += u64::from(!ran.good && ran.failed == 0);
    let Some(screen) = screen else { return ran };
    let _one_at_a_time = screen.lock();
    println!("== {name}: {} passed, {} failed, {} s", ran.passed, ran.failed, ran.seconds);
    // What is good is said in one line, so that what failed is easily found.
    if !ran.good {
        shown.iter().filter(|line| !line.is_empty()).for_each(|line| println!("{line}"));
    }
    ran
}

/// Reads the output of a test program.
fn read(lines: impl Iterator<Item = String>, ran: &mut Ran, shown: &mut Vec<String>) {
    let mut section = Section::Progress;
    for line in lines {
        section = section.after(&line);
        if section == Section::Failures {
            if line.starts_with("---- ") {
                ran.failures.push(Vec::new());
            }
            ran.failures.last_mut().into_iter().for_each(|lines| lines.push(line.clone()));
        }
        if section == Section::Names {
            ran.failed_names.extend(line.strip_prefix("    ").map(str::to_owned));
        }
        if let Some(counts) = line.strip_prefix("test result: ") {
            ran.passed += count(counts, " passed");
            ran.failed += count(counts, " failed");
        }
        ran.skipped.extend(line.strip_prefix("skipped: ").map(str::to_owned));
        if section != Section::Successes {
            shown.push(line);
        }
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

#[cfg(test)]
mod tests {
    use super::{Section, TestProgram, count, run_one};
    use std::os::unix::fs::PermissionsExt;

    /// A test program of two tests: the first fails whenever it is run with the other, the second always.
    const PROGRAM: &str = "#!/bin/sh\n\
        case \"$*\" in\n\
        *--exact*busy*) echo 'test result: ok. 1 passed; 0 failed'; exit 0;;\n\
        *--exact*) printf 'failures:\\n\\nfailures:\\n    broken\\ntest result: FAILED. 0 passed; 1 failed\\n'; exit 101;;\n\
        *) printf 'failures:\\n\\nfailures:\\n    broken\\n    busy\\n\\ntest result: FAILED. 3 passed; 2 failed\\n'; exit 101;;\n\
        esac\n";

    #[test]
    fn what_fails_alone_too_has_failed() {
        let folder = std::env::temp_dir().join(format!("windfall-xtask-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder");
        let path = folder.join("program");
        std::fs::write(&path, PROGRAM).expect("written");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).expect("it may run");
        let [package, target] = ["cli", "e2e"].map(str::to_owned);
        let program = TestProgram { package, target, unit: false, path, folder: folder.clone() };
        // Not shown: whoever runs this test counts what it shows.
        let mut ran = run_one(program.command(&[]), &program.name(), None);
        assert_eq!((ran.good, ran.passed, ran.failed), (false, 3, 2));
        ran.try_alone(&program, &[], None);
        std::fs::remove_dir_all(&folder).expect("removed");
        assert_eq!((ran.good, ran.passed, ran.failed, ran.only_alone), (false, 4, 1, vec!["busy".to_owned()]));
    }

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
