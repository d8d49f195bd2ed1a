//! The processes of one state directory, found by their command line and their environment.

use rustix::process::{Pid, Signal, kill_process};
use std::path::Path;
use std::time::Duration;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Role {
    Server,
    Launcher,
    Guard,
    Agent,
    /// What makes a machine a node.
    Node,
    /// A command at a terminal.
    Client,
    /// A program or something that it started.
    Program,
}

#[derive(Clone, Debug)]
pub struct Process {
    pub pid: i32,
    pub role: Role,
    /// The lease that it stands on.
    pub lease: Option<String>,
    /// The job that it belongs to.
    pub job: Option<u64>,
}

/// Everything alive that belongs to a state directory.
pub fn of(home: &Path) -> Vec<Process> {
    let home = home.to_string_lossy().into_owned();
    let real = std::fs::canonicalize(&home).map_or(home.clone(), |path| path.to_string_lossy().into_owned());
    let ours = |words: &[String]| words.iter().any(|word| word.starts_with(&home) || word.starts_with(&real));
    let marks = [format!("WINDFALL_HOME={home}"), format!("WINDFALL_HOME={real}")];
    all()
        .into_iter()
        .filter(|pid| *pid != std::process::id() as i32)
        .filter_map(|pid| {
            let (line, environ) = (words(pid, "cmdline"), words(pid, "environ"));
            let mine = ours(&line) || environ.iter().any(|pair| marks.contains(pair));
            (mine && is_running(pid)).then(|| describe(pid, &line, &environ))
        })
        .collect()
}

fn describe(pid: i32, line: &[String], environ: &[String]) -> Process {
    let value = |name: &str| environ.iter().find_map(|pair| pair.strip_prefix(name)).map(str::to_owned);
    let word = |at: usize| line.get(at).map_or("", String::as_str);
    let windfall = word(0).ends_with("windfall");
    let role = match (windfall, word(1), word(2)) {
        (true, "serve", _) => Role::Server,
        (true, "agent", "launch") => Role::Launcher,
        (true, "agent", "guard") => Role::Guard,
        (true, "agent", "serve") => Role::Agent,
        (true, "agent", "join" | "pilot") => Role::Node,
        (true, "agent", _) => Role::Program,
        (true, _, _) => Role::Client,
        _ => Role::Program,
    };
    let lease = value("WINDFALL_LEASE=");
    let job = value("WINDFALL_JOB=").and_then(|text| text.parse().ok());
    Process { pid, role, lease, job }
}

/// Everything alive in a network of its own, named by the link of its namespace.
pub fn in_network(namespace: &Path) -> Vec<Process> {
    let is_there = |pid: &i32| std::fs::read_link(format!("/proc/{pid}/ns/net")).is_ok_and(|net| net == namespace);
    let there = all().into_iter().filter(|pid| is_there(pid) && is_running(*pid));
    there.map(|pid| describe(pid, &words(pid, "cmdline"), &words(pid, "environ"))).collect()
}

/// Everything alive that counts its processes as this one does: what is in its container.
pub fn beside(pid: i32) -> Vec<Process> {
    let table = |pid: i32| std::fs::read_link(format!("/proc/{pid}/ns/pid")).ok();
    let own = table(pid);
    let there = all().into_iter().filter(|pid| own.is_some() && table(*pid) == own && is_running(*pid));
    there.map(|pid| describe(pid, &words(pid, "cmdline"), &words(pid, "environ"))).collect()
}

/// Everything alive whose command line holds this word.
pub fn with_word(marker: &str) -> Vec<i32> {
    let here = std::process::id() as i32;
    let holds = |pid: &i32| words(*pid, "cmdline").iter().any(|word| word.contains(marker));
    all().into_iter().filter(|pid| *pid != here && is_running(*pid)).filter(holds).collect()
}

/// Every program of a job with this number, whichever server it is of.
pub fn of_job(job: u64) -> Vec<i32> {
    let mark = format!("WINDFALL_JOB={job}");
    let is_its = |pid: &i32| is_running(*pid) && words(*pid, "environ").contains(&mark);
    all().into_iter().filter(is_its).collect()
}

/// The command line of a process.
pub fn line(pid: i32) -> String {
    words(pid, "cmdline").join(" ")
}

/// Whether a process is there and is not a zombie.
pub fn is_running(pid: i32) -> bool {
    let Ok(stat) = std::fs::read_to_string(format!("/proc/{pid}/stat")) else { return false };
    let state = stat.rfind(')').and_then(|at| stat[at + 1..].split_whitespace().next());
    !matches!(state, None | Some("Z" | "X"))
}

pub fn signal(pid: i32, signal: Signal) {
    if let Some(pid) = Pid::from_raw(pid) {
        let _ = kill_process(pid, signal);
    }
}

/// Kills everything of a state directory: what a failed test must not leave behind.
pub fn end(home: &Path) {
    for _ in 0..500 {
        let left = of(home);
        if left.is_empty() {
            return;
        }
        for process in left {
            signal(process.pid, Signal::KILL);
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn words(pid: i32, file: &str) -> Vec<String> {
    let bytes = std::fs::read(format!("/proc/{pid}/{file}")).unwrap_or_default();
    bytes
        .split(|byte| *byte == 0)
        .filter(|word| !word.is_empty())
        .map(|word| String::from_utf8_lossy(word).into_owned())
        .collect()
}

fn all() -> Vec<i32> {
    let entries = std::fs::read_dir("/proc").unwrap();
    entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()).collect()
}
