//! Which processes there are, which are below which, and how they are signalled, reaped and ended. Whose they are is in
//! `worker_processes.rs`.

use rustix::io::Errno;
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitOptions, kill_process, pidfd_open, pidfd_send_signal, wait, waitpid,
};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Rounds of looking and killing before giving up; a fork bomb may need several.
pub(crate) const ROUNDS: u32 = 400;
/// How many looks in a row must find nothing. The process list changes while it is read, and one look may miss a
/// process whose parent ends at that moment.
pub(crate) const GLANCES: u32 = 3;
pub(crate) const PAUSE: Duration = Duration::from_millis(5);

/// What is asked of a process again and again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stat {
    pub parent: i32,
    /// Its process group. A zombie still has one.
    pub group: i32,
    pub zombie: bool,
}

/// Every process of the machine at one look.
pub(crate) fn table() -> BTreeMap<i32, Stat> {
    all().into_iter().filter_map(|pid| Some((pid, stat(pid)?))).collect()
}

/// Everything below `root`, not `root` itself. Zombies are left out: they run nothing.
pub(crate) fn descendants(root: i32) -> BTreeSet<i32> {
    below(&table(), root, |_, ()| ()).into_keys().collect()
}

/// Everything below `root` that is no zombie, with what is said of each; `say` is told what was said of the parent.
pub(crate) fn below<T: Clone + Default>(
    table: &BTreeMap<i32, Stat>,
    root: i32,
    say: impl Fn(i32, T) -> T,
) -> BTreeMap<i32, T> {
    let mut children: BTreeMap<i32, Vec<i32>> = BTreeMap::new();
    table.iter().for_each(|(pid, stat)| children.entry(stat.parent).or_default().push(*pid));
    let mut found = BTreeMap::new();
    let mut open = vec![(root, T::default())];
    while let Some((parent, of_parent)) = open.pop() {
        for child in children.get(&parent).into_iter().flatten().filter(|child| **child != root) {
            if !found.contains_key(child) {
                let said = say(*child, of_parent.clone());
                found.insert(*child, said.clone());
                open.push((*child, said));
            }
        }
    }
    // Looked through before they are left out: while the threads of a process end, it is a zombie with children.
    found.retain(|pid, _| !table[pid].zombie);
    found
}

/// Kills everything below this process and reaps it. Returns how many processes were there at first.
pub(crate) fn end_descendants() -> u32 {
    let me = std::process::id() as i32;
    let mut first = None;
    let mut empty = 0;
    for _ in 0..ROUNDS {
        reap_all();
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

/// Takes the exit status of every child that has ended, also of one that somebody else waits for.
fn reap_all() {
    while let Ok(Some(_)) = wait(WaitOptions::NOHANG) {}
}

/// Takes the exit status of a child if it has ended: whether it died of a signal.
pub(crate) fn reap(pid: i32) -> Option<bool> {
    let (_, status) = waitpid(Pid::from_raw(pid), WaitOptions::NOHANG).ok()??;
    Some(status.signaled())
}

/// The children of this process. Asked for often, and a machine may run thousands of agents: none may look at all
/// processes. One that comes or goes during the look may be missing until the next.
pub(crate) fn children() -> Vec<i32> {
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

/// Signals those of these processes of which `is_still` holds. Between a look at the process list and a signal a process may
/// end, and its number be given to somebody else: so it is held first, then looked at again, then signalled.
pub(crate) fn signal_each(pids: &BTreeSet<i32>, signal: Signal, is_still: impl Fn(i32) -> bool) {
    for (number, pid) in pids.iter().filter_map(|pid| Some((*pid, Pid::from_raw(*pid)?))) {
        match pidfd_open(pid, PidfdFlags::empty()) {
            Ok(held) if is_still(number) => _ = pidfd_send_signal(held, signal),
            // A kernel that cannot hold one, or no descriptor is left.
            Err(Errno::NOSYS | Errno::PERM | Errno::MFILE | Errno::NFILE) if is_still(number) => {
                let _ = kill_process(pid, signal);
            }
            // Gone already is as good as killed.
            _ => {}
        }
    }
}

pub(crate) fn all() -> Vec<i32> {
    let Ok(entries) = std::fs::read_dir("/proc") else { return Vec::new() };
    entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()).collect()
}

/// The first few of these processes, for people: `4711 (python3)`.
pub(crate) fn names(pids: &BTreeSet<i32>) -> Vec<String> {
    let name = |pid: &i32| std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    pids.iter().take(8).map(|pid| format!("{pid} ({})", name(pid).trim())).collect()
}

/// Whether a process has this in its environment: `NAME=value`. Nothing is known of the environment of a zombie.
pub(crate) fn carries(pid: i32, pair: &str) -> bool {
    let environ = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
    environ.split(|byte| *byte == 0).any(|found| found == pair.as_bytes())
}

/// Whose a process is.
pub(crate) fn user_of(pid: i32) -> Option<u32> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("Uid:"))?;
    line.split_whitespace().next()?.parse().ok()
}

/// Whether a process is there and is not a zombie.
pub(crate) fn is_running(pid: i32) -> bool {
    stat(pid).is_some_and(|stat| !stat.zombie)
}

pub(crate) fn stat(pid: i32) -> Option<Stat> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name is in brackets and may itself contain brackets and spaces.
    let mut fields = stat[stat.rfind(')')? + 1..].split_whitespace();
    let zombie = matches!(fields.next()?, "Z" | "X");
    Some(Stat { parent: fields.next()?.parse().ok()?, group: fields.next()?.parse().ok()?, zombie })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_of_a_process_holds_for_all_below_it_until_something_else_is_said() {
        let stat = |parent, zombie| Stat { parent, group: 0, zombie };
        // 1 is the root; 3 is a zombie whose child still runs; 9 is somewhere else.
        let table = BTreeMap::from([
            (1, stat(0, false)),
            (2, stat(1, false)),
            (3, stat(2, true)),
            (4, stat(3, false)),
            (5, stat(2, false)),
            (6, stat(1, false)),
            (9, stat(0, false)),
        ]);
        let own = |pid| match pid {
            2 => Some("first"),
            5 => Some("second"),
            _ => None,
        };
        let said = below(&table, 1, |pid, of_parent| own(pid).or(of_parent));
        let expected = [(2, Some("first")), (4, Some("first")), (5, Some("second")), (6, None)];
        assert_eq!(said, BTreeMap::from(expected));
    }

    #[test]
    fn a_process_that_is_not_the_one_any_more_is_not_signalled() {
        let mut child = std::process::Command::new("sleep").arg("600").spawn().expect("sleep");
        let pids = BTreeSet::from([child.id() as i32]);
        signal_each(&pids, Signal::KILL, |_| false);
        let ended = child.try_wait().expect("asked");
        signal_each(&pids, Signal::KILL, |pid| pids.contains(&pid));
        let status = child.wait().expect("reaped");
        assert_eq!(ended, None, "its number is another's by now");
        assert!(!status.success(), "killed");
    }

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
