//! Which processes there are, which are below which, and how they are signalled, reaped and ended.

use rustix::process::{Pid, Signal, kill_process};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Rounds of looking and killing before giving up; a fork bomb may need several.
pub(crate) const ROUNDS: u32 = 400;
/// How many looks in a row must find nothing. The process list changes while it is read, and one look may miss a
/// process whose parent ends at that moment.
pub(crate) const GLANCES: u32 = 3;
pub(crate) const PAUSE: Duration = Duration::from_millis(5);

/// Everything below `root`, not `root` itself. Zombies are left out: they run nothing.
pub(crate) fn descendants(root: i32) -> BTreeSet<i32> {
    let mut children: BTreeMap<i32, Vec<i32>> = BTreeMap::new();
    let mut zombies = BTreeSet::new();
    for (pid, stat) in all().into_iter().filter_map(|pid| Some((pid, stat(pid)?))) {
        children.entry(stat.parent).or_default().push(pid);
        if stat.zombie {
            zombies.insert(pid);
        }
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
    // Looked through before they are left out: while the threads of a process end, it is a zombie with children.
    found.retain(|pid| !zombies.contains(pid));
    found
}

/// Kills everything below this process and reaps it. Returns how many processes were there at first.
pub(crate) fn end_descendants() -> u32 {
    let me = std::process::id() as i32;
    let mut first = None;
    let mut empty = 0;
    for _ in 0..ROUNDS {
        reap();
        let found = descendants(me);
        first.get_or_insert(found.len() as u32);
        empty = if found.is_empty() { empty + 1 } else { 0 };
        if empty == GLANCES {
            break;
        }
        signal_all(&found, Signal::KILL);
        std::thread::sleep(PAUSE);
    }
    first.unwrap_or(0)
}

/// Takes the exit status of every child that has ended. True if one of them died of a signal.
pub(crate) fn reap() -> bool {
    use rustix::process::{WaitOptions, wait};
    let mut died = false;
    while let Ok(Some((_, status))) = wait(WaitOptions::NOHANG) {
        died |= status.signaled();
    }
    died
}

/// Takes the exit status of the processes that lost their parent and ended below this one, but for `main`, whose
/// status somebody else waits for. True if one of them died of a signal.
pub(crate) fn reap_orphans(main: Option<i32>) -> bool {
    use rustix::process::{WaitOptions, waitpid};
    let mut died = false;
    for pid in children().into_iter().filter(|pid| Some(*pid) != main) {
        if let Ok(Some((_, status))) = waitpid(Pid::from_raw(pid), WaitOptions::NOHANG) {
            died |= status.signaled();
        }
    }
    died
}

/// The children of this process. Asked for often, and a machine may run thousands of agents: none may look at all
/// processes. One that comes or goes during the look may be missing until the next.
fn children() -> Vec<i32> {
    let me = std::process::id() as i32;
    if std::fs::metadata(format!("/proc/self/task/{me}/children")).is_err() {
        // A kernel without these lists.
        return all().into_iter().filter(|pid| stat(*pid).is_some_and(|stat| stat.parent == me)).collect();
    }
    let threads = std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    let lists = threads.filter_map(|thread| std::fs::read_to_string(thread.path().join("children")).ok());
    let lists: Vec<String> = lists.collect();
    lists.iter().flat_map(|list| list.split_whitespace()).filter_map(|pid| pid.parse().ok()).collect()
}

pub(crate) fn signal_all(pids: &BTreeSet<i32>, signal: Signal) {
    for pid in pids.iter().filter_map(|pid| Pid::from_raw(*pid)) {
        // Gone already is as good as killed.
        let _ = kill_process(pid, signal);
    }
}

pub(crate) fn all() -> Vec<i32> {
    let Ok(entries) = std::fs::read_dir("/proc") else { return Vec::new() };
    entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()).collect()
}

/// The first few processes below this one, for people: `4711 (python3)`.
pub(crate) fn names() -> Vec<String> {
    let found = descendants(std::process::id() as i32);
    let name = |pid: &i32| std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    found.iter().take(8).map(|pid| format!("{pid} ({})", name(pid).trim())).collect()
}

/// The process group of a process.
pub(crate) fn group_of(pid: i32) -> Option<i32> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat[stat.rfind(')')? + 1..].split_whitespace().nth(2)?.parse().ok()
}

/// Whether a process is there and is not a zombie.
pub(crate) fn is_running(pid: i32) -> bool {
    stat(pid).is_some_and(|stat| !stat.zombie)
}

struct Stat {
    parent: i32,
    zombie: bool,
}

fn stat(pid: i32) -> Option<Stat> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name is in brackets and may itself contain brackets and spaces.
    let mut fields = stat[stat.rfind(')')? + 1..].split_whitespace();
    let state = fields.next()?;
    Some(Stat { parent: fields.next()?.parse().ok()?, zombie: matches!(state, "Z" | "X") })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_runs_until_it_is_dead_and_a_zombie_is_dead() {
        let mut child = std::process::Command::new("sleep").arg("600").spawn().expect("sleep");
        let pid = child.id() as i32;
        let ran = is_running(pid);
        // Before anything is asserted: a sleep that is left holds this test's output open.
        child.kill().expect("killed");
        assert!(ran);
        let ended = (0..2_000).any(|_| {
            std::thread::sleep(std::time::Duration::from_millis(5));
            !is_running(pid)
        });
        assert!(ended, "a zombie does not run");
        child.wait().expect("reaped");
        assert!(!is_running(pid) && stat(pid).is_none());
    }
}
