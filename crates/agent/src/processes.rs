//! Finds processes by descent and by mark, and ends them. The mark is `WINDFALL_LEASE` in a process's
//! environment: it survives `setsid`, double forks and the death of every parent.

use crate::AgentError;
use rustix::process::{Pid, Signal, kill_process};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Rounds of looking and killing before giving up; a fork bomb may need several.
const ROUNDS: u32 = 200;
const PAUSE: Duration = Duration::from_millis(10);

/// Everything below `root`, not `root` itself. Zombies are left out: they run nothing.
pub(crate) fn descendants(root: i32) -> BTreeSet<i32> {
    let mut children: BTreeMap<i32, Vec<i32>> = BTreeMap::new();
    for (pid, parent) in all().into_iter().filter_map(|pid| Some((pid, parent_of(pid)?))) {
        children.entry(parent).or_default().push(pid);
    }
    let mut found = BTreeSet::new();
    let mut open = vec![root];
    while let Some(pid) = open.pop() {
        for child in children.get(&pid).into_iter().flatten() {
            if found.insert(*child) {
                open.push(*child);
            }
        }
    }
    found
}

/// Kills everything below this process and reaps it. Returns how many processes were there at first.
pub(crate) fn end_descendants() -> u32 {
    let me = std::process::id() as i32;
    let mut first = None;
    for _ in 0..ROUNDS {
        reap();
        let found = descendants(me);
        first.get_or_insert(found.len() as u32);
        if found.is_empty() {
            break;
        }
        signal_all(&found, Signal::KILL);
        std::thread::sleep(PAUSE);
    }
    first.unwrap_or(0)
}

/// Takes the exit status of every child that has ended.
pub(crate) fn reap() {
    use rustix::process::{WaitOptions, wait};
    while let Ok(Some(_)) = wait(WaitOptions::NOHANG) {}
}

/// Ends every process that carries a lease's mark, and everything below one. Returns only when none is left.
pub fn sweep(lease: &str) -> Result<(), AgentError> {
    let mark = format!("WINDFALL_LEASE={lease}");
    let mut clean = 0;
    for _ in 0..ROUNDS {
        let found = marked(&mark);
        // Looked at twice: a process that forks and exits between two glances can hide from one of them.
        clean = if found.is_empty() { clean + 1 } else { 0 };
        if clean == 2 {
            return Ok(());
        }
        let (keepers, others): (BTreeSet<i32>, BTreeSet<i32>) = found.iter().partition(|pid| is_keeper(**pid));
        // Guard and agent go last, and stand still until then: they adopt what loses its parent, so that a
        // program which cleared its environment is still found, and what we kill is not taken for an end of
        // the program's own.
        signal_all(&keepers, if others.is_empty() { Signal::KILL } else { Signal::STOP });
        signal_all(&others, Signal::KILL);
        std::thread::sleep(PAUSE);
    }
    let left = format!("processes of lease {lease} do not end: {:?}", marked(&mark));
    Err(AgentError::new(left)(std::io::ErrorKind::TimedOut.into()))
}

/// What carries the mark, and what is below it: a program may clear its environment.
fn marked(mark: &str) -> BTreeSet<i32> {
    let me = std::process::id() as i32;
    let carries = |pid: &i32| {
        let environ = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        environ.split(|byte| *byte == 0).any(|pair| pair == mark.as_bytes())
    };
    let carrying: BTreeSet<i32> =
        all().into_iter().filter(|pid| parent_of(*pid).is_some()).filter(carries).collect();
    let mut found: BTreeSet<i32> = carrying.iter().flat_map(|pid| descendants(*pid)).collect();
    found.extend(carrying);
    found.remove(&me);
    found
}

/// Whether a process is a guard or an agent.
fn is_keeper(pid: i32) -> bool {
    let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let mut words = line.split(|byte| *byte == 0).skip(1);
    words.next() == Some(b"agent") && matches!(words.next(), Some(b"guard" | b"serve"))
}

fn signal_all(pids: &BTreeSet<i32>, signal: Signal) {
    for pid in pids.iter().filter_map(|pid| Pid::from_raw(*pid)) {
        // Gone already is as good as killed.
        let _ = kill_process(pid, signal);
    }
}

fn all() -> Vec<i32> {
    let Ok(entries) = std::fs::read_dir("/proc") else { return Vec::new() };
    entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()).collect()
}

/// The parent of a process that is not a zombie.
fn parent_of(pid: i32) -> Option<i32> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name is in brackets and may itself contain brackets and spaces.
    let mut fields = stat[stat.rfind(')')? + 1..].split_whitespace();
    let state = fields.next()?;
    let parent = fields.next()?.parse().ok()?;
    (state != "Z" && state != "X").then_some(parent)
}
