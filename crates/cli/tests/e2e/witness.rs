//! A program that writes down when it runs, and what its journal proves: one worker at a time, nothing
//! lost, nothing left behind.

use super::processes;
use super::testbed::{Testbed, eventually, in_python, python, within};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// Takes a lock that a second worker would not get, beats into a journal, saves by renaming, reports
/// progress, and ends when it is told to. With `daemon` it also has a child in a session of its own, which
/// ignores every polite signal and clears its environment. With `far` it is on another machine, whose process numbers mean
/// nothing here: it draws a number of its own, by which its command line is found. The journals are then what all machines
/// see and nothing else does, and the clock is that of the computer below them.
pub const PROGRAM: &str = r#"
import fcntl, os, random, signal, sys, time
base, name, mode = sys.argv[1:4]
# On another machine it is somebody else, who writes on in the same journal.
os.umask(0)
if "far" in mode and mode != "daemon-child" and len(sys.argv) == 4:
    os.execv(sys.executable, [sys.executable, *sys.argv, str(random.randrange(10**8, 2 * 10**9))])
me = sys.argv[4] if "far" in mode else os.getpid()
def say(kind, what=""):
    fd = os.open(f"{base}/{name}.journal", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
    os.write(fd, f"{time.monotonic_ns()} {kind} {me} {what}\n".encode())
    os.close(fd)
def claim(what):
    fd = os.open(f"{base}/{name}.{what}", os.O_RDWR | os.O_CREAT, 0o666)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        say("violation", what)
    return fd
if mode == "daemon-child":
    for s in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(s, signal.SIG_IGN)
    held = claim("daemon")
    say("daemon")
    while os.path.exists(base):
        time.sleep(0.1)
    sys.exit(0)
if "daemon" in mode and os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        environ = {} if "bare" in mode else dict(os.environ)
        os.execve(sys.executable, [sys.executable, sys.argv[0], base, name, "daemon-child"], environ)
    os._exit(0)
held = claim("worker")
if "far" in mode:
    # One that is merely closed would still be on a disk of both.
    try:
        os.stat(os.environ["SERVER_HOME"])
        say("violation", "the-server-s-home-is-there")
    except FileNotFoundError:
        pass
    except OSError as error:
        say("violation", f"the-server-s-home-is-closed-{error.errno}")
saves = os.environ["WINDFALL_CHECKPOINT_DIR"]
state = f"{saves}/state{os.environ['RANK']}"
def saved():
    return int(open(state).read()) if os.path.exists(state) else 0
step = saved() if os.environ["WINDFALL_RESUME"] else 0
say("start", step)
def stop(*_):
    # What is on the disk: the signal may come between a step and its save.
    say("exit", saved())
    sys.exit(0)
signal.signal(signal.SIGTERM, stop)
def put(path, text):
    with open(path + ".new", "w") as f:
        f.write(text)
    os.rename(path + ".new", path)
second, pause = 0, 4 if "far" in mode else 1
while not os.path.exists(f"{base}/{name}.finish"):
    step += 1
    # Ranks that saved whenever they liked would never leave their directory alone for a moment.
    if "gang" not in mode or time.time() // pause != second:
        second = time.time() // pause
        put(state, str(step))
    put(os.environ["WINDFALL_PROGRESS"], f"{step} 1000000\n")
    say("beat", step)
    print("step", step, flush=True)
    time.sleep(0.05)
stop()
"#;

pub struct Witness {
    pub id: u64,
    name: String,
    base: PathBuf,
    /// It is on another machine, and its runs are known by numbers of their own.
    is_far: bool,
}

/// One run of a witness, as its journal has it.
#[derive(Clone, Copy, Debug)]
pub struct WitnessRun {
    /// Its process number, or the number that it drew on another machine.
    pub pid: i32,
    pub from: u64,
    pub to: u64,
    pub first_step: u64,
    pub last_step: u64,
    pub beats: u32,
}

impl Witness {
    /// Submits a witness. `mode` is `plain`, `daemon` or `bare-daemon`.
    pub fn submit(testbed: &Testbed, name: &str, mode: &str) -> Witness {
        Witness::submit_with(testbed, testbed.command(&[]), name, mode)
    }

    /// Submits a witness that asks for one of the accelerators of a machine.
    pub fn submit_on_one_device(testbed: &Testbed, name: &str, mode: &str) -> Witness {
        Witness::submit_asking(testbed, testbed.command(&[]), name, mode, "resources: { accelerators: V100:1 }\n")
    }

    /// Submits a witness with a command that has no arguments yet.
    pub fn submit_with(testbed: &Testbed, command: Command, name: &str, mode: &str) -> Witness {
        Witness::submit_asking(testbed, command, name, mode, "")
    }

    fn submit_asking(testbed: &Testbed, mut command: Command, name: &str, mode: &str, asks: &str) -> Witness {
        let base = testbed.work.join("journals");
        std::fs::create_dir_all(&base).unwrap();
        let program = testbed.write("witness.py", PROGRAM);
        let text = format!(
            "name: {name}\n{asks}work: {{ steps: 1000000 }}\ngrace: 60s\nrun: [{:?}, {:?}, {:?}, {name}, {mode}]\n",
            python(),
            program.display().to_string(),
            base.display().to_string(),
        );
        testbed.write(&format!("{name}.yaml"), &text);
        command.args(["submit", "--json", &format!("{name}.yaml")]);
        let said = testbed.finish(command).ends_with(0);
        Witness { id: said.json()["id"].as_u64().unwrap(), name: name.to_owned(), base, is_far: false }
    }

    /// Submits a witness to machines that have its program, where `base` is a folder that all of them see. A gang has a
    /// witness for each rank.
    pub fn submit_far(
        testbed: &Testbed,
        base: &Path,
        (name, mode): (&str, &str),
        asks: &str,
        ranks: u32,
    ) -> Vec<Witness> {
        let suffix = if ranks > 1 { "-$RANK" } else { "" };
        let program = testbed.work.join("witness.py");
        let (home, base) = (testbed.home.display(), base.to_owned());
        let line = format!("exec python3 {} {} {name}{suffix} {mode}", program.display(), base.display());
        let text = format!(
            "name: {name}\nnodes: {ranks}\n{asks}work: {{ steps: 1000000 }}\ngrace: 5s\nenv: {{ SERVER_HOME: {home} }}\nrun: {line}\n"
        );
        let id = testbed.submit(&text);
        let named = |rank: u32| if ranks > 1 { format!("{name}-{rank}") } else { name.to_owned() };
        (0..ranks).map(|rank| Witness { id, name: named(rank), base: base.clone(), is_far: true }).collect()
    }

    /// Submits a gang of witnesses, one for each rank, that are one job.
    pub fn submit_gang(testbed: &Testbed, name: &str, ranks: u32) -> Vec<Witness> {
        let base = testbed.work.join("journals");
        std::fs::create_dir_all(&base).unwrap();
        let program = testbed.write("witness.py", PROGRAM);
        let line = format!("exec {} {} {} {name}-$RANK gang-daemon", python(), program.display(), base.display());
        let text = format!(
            "name: {name}\nnodes: {ranks}\nwork: {{ steps: 1000000 }}\ngrace: 60s\ncheckpoint: {{ settle: 300ms }}\nrun: {line}\n"
        );
        let id = testbed.submit(&text);
        (0..ranks)
            .map(|rank| Witness { id, name: format!("{name}-{rank}"), base: base.clone(), is_far: false })
            .collect()
    }

    fn journal(&self) -> Vec<(u64, String, i32, String)> {
        let text = std::fs::read_to_string(self.base.join(format!("{}.journal", self.name))).unwrap_or_default();
        text.lines()
            .map(|line| {
                let words: Vec<&str> = line.split(' ').collect();
                (words[0].parse().unwrap(), words[1].to_owned(), words[2].parse().unwrap(), words[3].to_owned())
            })
            .collect()
    }

    /// Every worker that there was, in order.
    pub fn runs(&self) -> Vec<WitnessRun> {
        let mut runs: BTreeMap<i32, WitnessRun> = BTreeMap::new();
        for (at, kind, pid, what) in self.journal().into_iter().filter(|(_, kind, ..)| kind != "daemon") {
            let Ok(step) = what.parse() else { continue };
            let born = WitnessRun { pid, from: at, to: at, first_step: step, last_step: step, beats: 0 };
            let run = runs.entry(pid).or_insert(born);
            (run.to, run.last_step) = (at, step);
            run.beats += u32::from(kind == "beat");
        }
        let mut runs: Vec<WitnessRun> = runs.into_values().collect();
        runs.sort_by_key(|run| run.from);
        runs
    }

    /// What it is called in its journal.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The worker that beats now.
    pub fn alive(&self) -> Option<WitnessRun> {
        self.runs().last().copied().filter(|run| run.beats > 0 && self.process(run).is_some())
    }

    /// The process of a run, as this computer numbers it, if it is there.
    pub fn process(&self, run: &WitnessRun) -> Option<i32> {
        if self.is_far {
            return processes::with_word(&run.pid.to_string()).into_iter().next();
        }
        processes::is_running(run.pid).then_some(run.pid)
    }

    /// Waits until a worker beats that is none of these, and has beaten for a while.
    pub fn until_beats(&self, not: &[i32]) -> WitnessRun {
        let mut found = None;
        eventually(&format!("a worker of {} beats", self.name), || {
            found = self.alive().filter(|run| run.beats > 5 && !not.contains(&run.pid));
            found.is_some()
        });
        found.unwrap()
    }

    /// Lets the program end by itself.
    pub fn finish(&self) {
        std::fs::write(self.base.join(format!("{}.finish", self.name)), "").unwrap();
    }

    /// What must be true of any journal, whatever happened.
    pub fn check(&self) {
        let violations: Vec<_> = self.journal().into_iter().filter(|(_, kind, ..)| kind == "violation").collect();
        assert!(violations.is_empty(), "{}: two at once: {violations:?}", self.name);
        for pair in self.runs().windows(2) {
            assert!(pair[0].to <= pair[1].from, "{}: two workers overlap: {pair:?}", self.name);
            assert!(pair[0].first_step <= pair[1].first_step, "{}: fell behind a save: {pair:?}", self.name);
        }
    }

    /// What must be true when its job is over: succeeded, nothing of it runs.
    pub fn check_over(&self, testbed: &Testbed) {
        let job = testbed.until(self.id, &["succeeded", "failed", "cancelled", "stopped"]);
        assert_eq!(job["state"], "succeeded", "{job}");
        testbed.run(&["attach", &self.id.to_string()]).ends_with(0);
        self.check();
        let left: Vec<_> =
            processes::of(&testbed.home).into_iter().filter(|process| process.job == Some(self.id)).collect();
        assert!(left.is_empty(), "{left:?}");
        eventually("no daemon is left", || self.daemons().is_empty());
    }

    /// Children in a session of their own.
    pub fn daemons(&self) -> Vec<i32> {
        let base = self.base.display().to_string();
        processes::with_word("daemon-child")
            .into_iter()
            .filter(|pid| {
                let line = std::fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
                let words: Vec<&str> = line.split('\0').collect();
                words.contains(&base.as_str()) && words.contains(&self.name.as_str())
            })
            .collect()
    }
}

/// The ledger adds up to what each job says that it cost, and for each node to its rate times the time for which it was there:
/// to the nano-dollar, with what was idle, and with no moment missing or counted twice.
pub fn check_ledger(testbed: &Testbed) {
    let sum = |rows: &[&Value]| -> i64 { rows.iter().map(|row| row["amount"].as_i64().unwrap()).sum() };
    let costs = |rows: &[Value]| {
        let of_job = |job: &Value| {
            let of_it: Vec<&Value> = rows.iter().filter(|row| row["beneficiary"]["workload"] == job["id"]).collect();
            (job["id"].as_u64(), job["cost_nanousd"].as_i64(), Some(sum(&of_it)))
        };
        testbed.jobs().iter().map(of_job).collect::<Vec<_>>()
    };
    // What a lease costs is written down when it is given back, which may be a moment after its job is done.
    let is_settled = || costs(&ledger(&testbed.home)).iter().all(|(_, said, written)| said == written);
    within(Duration::from_secs(60), is_settled);
    let rows = ledger(&testbed.home);
    for (job, said, written) in costs(&rows) {
        assert_eq!(said, written, "the ledger of job {job:?} is off");
    }
    let mut of_nodes: BTreeMap<&str, Vec<&Value>> = BTreeMap::new();
    for row in &rows {
        of_nodes.entry(row["node"].as_str().unwrap_or_default()).or_default().push(row);
    }
    of_nodes.remove("");
    for (node, rows) in of_nodes {
        let number = |row: &Value, what: &str| row[what].as_i64().unwrap();
        // Whoever shares a stretch has a row of it; what is taken back is a stretch that ends before it begins.
        let stretches: BTreeSet<[i64; 4]> =
            rows.iter().map(|row| ["seq", "from", "to", "rate"].map(|what| number(row, what))).collect();
        // How many stretches begin and end at a moment: from the first to the last there is one, and always one.
        let mut changes: BTreeMap<i64, i64> = BTreeMap::new();
        for [_, from, to, _] in &stretches {
            *changes.entry(*from).or_default() += 1;
            *changes.entry(*to).or_default() -= 1;
        }
        changes.retain(|_, change| *change != 0);
        let changes: Vec<i64> = changes.into_values().collect();
        assert_eq!(changes, [1, -1], "{node}: a moment is missing, or there twice: {stretches:?}");
        // The rates of these tests are whole nano-dollars a millisecond.
        let price: i64 = stretches.iter().map(|[_, from, to, rate]| (to - from) * (rate / 3_600_000)).sum();
        assert_eq!(sum(&rows), price, "{node}: not what it costs: {rows:?}");
    }
}

fn ledger(home: &Path) -> Vec<Value> {
    let code = "import sqlite3, sys; c = sqlite3.connect('file:' + sys.argv[1] + '/state.db?mode=ro', uri=True); \
                print('[' + ','.join(row[0] for row in c.execute('select payload from ledger order by seq')) + ']')";
    serde_json::from_str(&in_python(code, &[home])).unwrap()
}
