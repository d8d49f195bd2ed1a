//! A state directory and a working folder for one test, and the commands run on them. Whatever a test
//! started is gone when its testbed is dropped, also when the test failed.

use super::processes;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// Longer than anything here takes, also on a busy machine, and shorter than programs sleep that must be ended.
pub const LIMIT: Duration = Duration::from_secs(300);

pub struct Testbed {
    pub home: PathBuf,
    pub work: PathBuf,
    _dir: tempfile::TempDir,
}

/// What a command said, and how it ended.
#[derive(Debug)]
pub struct Said {
    pub code: Option<i32>,
    pub out: String,
    pub err: String,
}

impl Said {
    /// The output as one JSON value.
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.out).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }
    /// The output as one JSON value a line.
    pub fn lines(&self) -> Vec<Value> {
        self.out
            .lines()
            .map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}")))
            .collect()
    }
    #[track_caller]
    pub fn ends_with(self, code: i32) -> Said {
        assert_eq!(self.code, Some(code), "{self:?}");
        self
    }
}

impl Testbed {
    /// A new testbed with no server yet.
    pub fn bare() -> Testbed {
        Testbed::at("home")
    }

    /// A new testbed whose state directory has this name.
    pub fn at(name: &str) -> Testbed {
        let dir = tempfile::Builder::new().prefix("windfall-e2e-").tempdir().unwrap();
        let work = dir.path().join("work");
        std::fs::create_dir(&work).unwrap();
        Testbed { home: dir.path().join(name), work, _dir: dir }
    }

    /// A new testbed with a server whose market never takes anything away.
    pub fn steady() -> Testbed {
        Testbed::steady_at(60)
    }

    /// The same with this many seconds of the world in a real one: the fewer, the less it matters that the machine is
    /// busy for a moment.
    pub fn steady_at(speed: u32) -> Testbed {
        let testbed = Testbed::bare();
        testbed.run(&["up", "--market", "steady", "--speed", &speed.to_string()]).ends_with(0);
        testbed
    }

    /// A new testbed whose steady market sells machines of eight accelerators.
    pub fn of_eight() -> Testbed {
        let testbed = Testbed::bare();
        testbed.run(&["up", "--market", "steady-v100-8", "--speed", "60"]).ends_with(0);
        testbed
    }

    /// A command of ours, ready to be changed.
    pub fn command(&self, args: &[&str]) -> Command {
        self.command_of(Path::new(env!("CARGO_BIN_EXE_windfall")), args)
    }

    /// The same of another copy of the program.
    pub fn command_of(&self, program: &Path, args: &[&str]) -> Command {
        let mut command = Command::new(program);
        command.args(args).current_dir(&self.work).stdin(Stdio::null());
        command.env("WINDFALL_HOME", &self.home).env("NO_COLOR", "1").env("WINDFALL_IDLE", "300");
        command.env_remove("RUST_BACKTRACE").env_remove("WINDFALL_CONFIG");
        command
    }

    /// Runs a command of ours to its end.
    pub fn run(&self, args: &[&str]) -> Said {
        self.finish(self.command(args))
    }

    /// Runs a command to its end. Its output goes through files, so that nothing it leaves behind can hold us up.
    pub fn finish(&self, mut command: Command) -> Said {
        let (out, err) = (tempfile::NamedTempFile::new().unwrap(), tempfile::NamedTempFile::new().unwrap());
        command.stdout(out.reopen().unwrap()).stderr(err.reopen().unwrap());
        let mut child = command.spawn().unwrap();
        let code = wait(&mut child);
        let read =
            |file: &tempfile::NamedTempFile| String::from_utf8_lossy(&std::fs::read(file.path()).unwrap()).into_owned();
        Said { code, out: read(&out), err: read(&err) }
    }

    /// Writes a file into the working folder.
    pub fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.work.join(name);
        std::fs::write(&path, text).unwrap();
        path
    }

    /// Submits a job file's text and returns the job's number.
    pub fn submit(&self, text: &str) -> u64 {
        let name = format!("job-{}.yaml", text.len());
        self.write(&name, text);
        self.run(&["submit", "--json", &name]).ends_with(0).json()["id"].as_u64().unwrap()
    }

    /// Every job that the server knows.
    pub fn jobs(&self) -> Vec<Value> {
        let all = self.run(&["jobs", "--all", "--json"]).ends_with(0).json();
        all.as_array().unwrap().clone()
    }

    /// One job as listed.
    pub fn job(&self, id: u64) -> Value {
        self.jobs().into_iter().find(|job| job["id"] == id).unwrap_or_else(|| panic!("job {id} is lost"))
    }

    /// Whether the server says that an engine does not answer.
    pub fn is_silent(&self, engine: &str) -> bool {
        let engines = self.run(&["engines", "--json"]).ends_with(0).json();
        engines.as_array().unwrap().iter().any(|one| one["name"] == engine && !one["silent_since"].is_null())
    }

    /// Waits until a job is in one of these states.
    pub fn until(&self, id: u64, states: &[&str]) -> Value {
        let mut last = Value::Null;
        eventually(&format!("job {id} is {states:?}"), || {
            last = self.job(id);
            states.contains(&last["state"].as_str().unwrap_or_default())
        });
        last
    }

    /// Asks the server something over its socket, as programs do.
    pub fn post(&self, path: &str, body: &Value) -> String {
        self.exchange("POST", path, &body.to_string())
    }

    /// What the server answers to a question.
    pub fn get(&self, path: &str) -> Value {
        let answer = self.exchange("GET", path, "");
        let body = answer.split_once("\r\n\r\n").map_or("", |(_, body)| body);
        serde_json::from_str(body).unwrap_or_else(|error| panic!("{path}: {error}: {answer}"))
    }

    /// Method, path and body: of what is not read to its end the answer may be lost.
    pub fn exchange(&self, method: &str, path: &str, body: &str) -> String {
        use std::io::{Read, Write};
        let folder = std::fs::File::open(&self.home).unwrap();
        let socket = format!("/proc/self/fd/{}/server.sock", std::os::fd::AsRawFd::as_raw_fd(&folder));
        let mut stream = std::os::unix::net::UnixStream::connect(socket).unwrap();
        let head = "host: windfall\r\ncontent-type: application/json\r\nconnection: close\r\n";
        write!(stream, "{method} {path} HTTP/1.1\r\n{head}content-length: {}\r\n\r\n{body}", body.len()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }

    /// What a test that failed leaves to be understood: its jobs, why they are where they are, and what runs.
    fn tell_what_was(&self) {
        let shown = |args: &[&str]| {
            let said = self.command(args).output();
            said.map(|said| String::from_utf8_lossy(&said.stdout).into_owned()).unwrap_or_default()
        };
        eprintln!("{}", shown(&["jobs", "--all"]));
        for id in 1..=6 {
            let lines = shown(&["explain", &id.to_string()]);
            let last: Vec<&str> = lines.lines().rev().take(25).collect();
            eprintln!("--- job {id}\n{}", last.into_iter().rev().collect::<Vec<_>>().join("\n"));
        }
        for process in processes::of(&self.home) {
            eprintln!("{process:?} {}", processes::line(process.pid));
        }
    }

    /// Checks that nothing is kept of leases that are gone. A server that still asked for one when it went removes its
    /// folder with its next sweep.
    pub fn forgets_leases(&self) {
        let folders = || std::fs::read_dir(self.home.join("leases")).unwrap().map(|entry| entry.unwrap().path());
        eventually("no folder of a gone lease is left", || folders().all(|path| !path.is_dir()));
    }

    /// Ends everything and checks that nothing at all is left.
    pub fn leaves_nothing(&self) {
        self.run(&["down", "--cancel"]).ends_with(0);
        eventually("nothing of this testbed runs", || processes::of(&self.home).is_empty());
    }
}

impl Drop for Testbed {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let log = std::fs::read_to_string(self.home.join("server.log")).unwrap_or_default();
            eprintln!("--- server.log of {}\n{log}---", self.home.display());
            self.tell_what_was();
        }
        let mut down = self.command(&["down", "--cancel"]);
        if let Ok(mut child) = down.stdout(Stdio::null()).stderr(Stdio::null()).spawn() {
            let until = Instant::now() + Duration::from_secs(20);
            while Instant::now() < until && matches!(child.try_wait(), Ok(None)) {
                std::thread::sleep(Duration::from_millis(10));
            }
            let _ = child.kill();
            let _ = child.wait();
        }
        processes::end(&self.home);
    }
}

/// Waits for a child, but not for ever.
pub fn wait(child: &mut Child) -> Option<i32> {
    let mut status = None;
    let ended = within(LIMIT, || {
        status = child.try_wait().unwrap();
        status.is_some()
    });
    if !ended {
        let _ = child.kill();
        let _ = child.wait();
        panic!("a command does not end");
    }
    status.and_then(|status| status.code())
}

/// Waits for a condition, but not for ever.
#[track_caller]
pub fn eventually(what: &str, condition: impl FnMut() -> bool) {
    assert!(within(LIMIT, condition), "never: {what}");
}

/// Whether a condition comes true in time.
pub fn within(limit: Duration, mut condition: impl FnMut() -> bool) -> bool {
    let until = Instant::now() + limit;
    loop {
        if condition() {
            return true;
        }
        if Instant::now() > until {
            return false;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// The interpreter itself: a shim in front of it would be one more process.
pub fn python() -> &'static str {
    static FOUND: OnceLock<String> = OnceLock::new();
    FOUND.get_or_init(|| {
        let asked = Command::new("python3").args(["-c", "import sys; print(sys.executable)"]).output();
        let asked = asked.expect("these tests need python3");
        String::from_utf8(asked.stdout).unwrap().trim().to_owned()
    })
}

/// Runs a few lines of Python and returns what they print.
pub fn in_python(code: &str, args: &[&Path]) -> String {
    let said = Command::new(python()).arg("-c").arg(code).args(args).output().unwrap();
    assert!(said.status.success(), "{}", String::from_utf8_lossy(&said.stderr));
    String::from_utf8(said.stdout).unwrap().trim().to_owned()
}

/// Whether this user may do everything; a test that needs that says so and ends.
pub fn is_root(what: &str) -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        println!("skipped: {what} (needs root)");
    }
    root
}

/// Held by a test that keeps a whole machine busy for minutes: others beside it look at how long something takes, and two of
/// these at once would be more than a small machine has.
pub fn one_at_a_time() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    // One that failed leaves nothing behind that matters to the next.
    ONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A mount that goes away with the test. Needs root.
pub struct Mount {
    pub at: PathBuf,
}

impl Mount {
    pub fn new(at: &Path, args: &[&str]) -> Mount {
        std::fs::create_dir_all(at).unwrap();
        let status = Command::new("mount").args(args).arg(at).status().unwrap();
        assert!(status.success(), "mount {args:?}");
        Mount { at: at.to_owned() }
    }

    /// Mounts it again with other options.
    pub fn change(&self, options: &str) {
        let options = format!("remount,{options}");
        let status = Command::new("mount").args(["-o", &options]).arg(&self.at).status().unwrap();
        assert!(status.success(), "mount {options}");
    }

    /// Writes until nothing more fits; what was written is to be removed to make room.
    pub fn fill(&self) -> PathBuf {
        let ballast = self.at.join("ballast");
        let mut file = std::fs::File::options().create(true).append(true).open(&ballast).unwrap();
        for size in [65_536, 4_096, 512, 1] {
            while std::io::Write::write_all(&mut file, &vec![0; size]).is_ok() {}
        }
        ballast
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        processes::end(&self.at);
        let _ = Command::new("umount").arg("-l").arg(&self.at).status();
    }
}
