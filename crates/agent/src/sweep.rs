//! Ends everything of a lease. Its processes are found by a mark, `WINDFALL_LEASE` in their environment, which survives
//! `setsid`, double forks and the death of every parent. One that wiped its environment too is found by its control
//! group, where there is one. What another process has started for it (a service manager, a timer) carries neither: it is
//! found where nothing but leases runs as their user.

use crate::processes::{GLANCES, PAUSE, ROUNDS, all, carries, descendants, is_running, signal_each, user_of};
use crate::{AgentError, cgroup, limits};
use rustix::process::Signal;
use std::collections::BTreeSet;

/// Ends every process of a lease: those in its control group, those that carry its mark, and everything below
/// one. Returns only when none is left. Of a lease that runs as a user of its own nobody else's process is touched, whatever
/// it carries.
pub fn sweep(lease: &str, whose: Option<Whose>) -> Result<(), AgentError> {
    let group = cgroup::end(lease);
    group.map_err(AgentError::new(format!("the control group of lease {lease} cannot be emptied")))?;
    limits::remove(lease);
    let mark = format!("WINDFALL_LEASE={lease}");
    let find = || match whose {
        Some(Whose { uid, is_alone: true }) => all_of(uid),
        _ => marked(&mark, whose.map(|whose| whose.uid)),
    };
    let (mut clean, mut alone) = (0, 0);
    for _ in 0..ROUNDS {
        let found = find();
        clean = if found.is_empty() { clean + 1 } else { 0 };
        if clean == GLANCES {
            return Ok(());
        }
        let (keepers, others): (BTreeSet<i32>, BTreeSet<i32>) = found.iter().partition(|pid| is_keeper(**pid));
        // Guard and agent go last, and stand still until then: they adopt what loses its parent, so that a
        // program which cleared its environment is still found, and what we kill is not taken for an end of
        // the program's own.
        alone = if others.is_empty() { alone + 1 } else { 0 };
        let is_theirs = |pid: i32| whose.is_none_or(|whose| user_of(pid) == Some(whose.uid));
        signal_each(&keepers, if alone >= GLANCES { Signal::KILL } else { Signal::STOP }, is_theirs);
        signal_each(&others, Signal::KILL, is_theirs);
        std::thread::sleep(PAUSE);
    }
    let left = format!("processes of lease {lease} do not end: {:?}", find());
    Err(AgentError::new(left)(std::io::ErrorKind::TimedOut.into()))
}

/// As whom a lease ran that is ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Whose {
    pub uid: u32,
    /// Nothing else runs as that user, and no other lease does: all of its processes are the lease's, also those that another
    /// one has started for it (a service manager, a timer).
    pub is_alone: bool,
}

/// Every process of a user. Root's, and our own, are nobody's to end this way.
fn all_of(uid: u32) -> BTreeSet<i32> {
    let me = std::process::id() as i32;
    let is_theirs = |pid: &i32| uid != 0 && *pid != me && user_of(*pid) == Some(uid) && is_running(*pid);
    all().into_iter().filter(is_theirs).collect()
}

/// What carries the mark, and what is below it: a program may clear its environment.
fn marked(mark: &str, uid: Option<u32>) -> BTreeSet<i32> {
    let me = std::process::id() as i32;
    let carrying: BTreeSet<i32> =
        all().into_iter().filter(|pid| is_running(*pid)).filter(|pid| carries(*pid, mark)).collect();
    let mut found: BTreeSet<i32> = carrying.iter().flat_map(|pid| descendants(*pid)).collect();
    found.extend(carrying);
    found.remove(&me);
    found.retain(|pid| uid.is_none_or(|uid| user_of(*pid) == Some(uid)));
    found
}

/// Whether a process is a guard or an agent.
fn is_keeper(pid: i32) -> bool {
    let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let mut words = line.split(|byte| *byte == 0).skip(1);
    words.next() == Some(b"agent") && matches!(words.next(), Some(b"guard" | b"serve"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::CommandExt;

    #[test]
    fn what_runs_as_a_user_that_only_leases_have_is_ended_without_a_mark_and_what_is_another_s_is_not() {
        if !rustix::process::geteuid().is_root() {
            println!("skipped: what runs as a user that only leases have is ended without a mark (needs root)");
            return;
        }
        let uid = 1_900_000_000 + std::process::id();
        let start = |uid: u32, mark: &str| {
            let mut sleep = std::process::Command::new("sleep");
            sleep.arg("600").env_clear().env("PATH", "/usr/bin:/bin").env("WINDFALL_LEASE", mark).uid(uid).gid(uid);
            sleep.spawn().expect("sleep")
        };
        let lease = format!("sweep-test-{uid}");
        let (mut without, mut with, mut of_another) =
            (start(uid, "another"), start(uid, &lease), start(uid + 1, &lease));
        let ended = |whose: Whose, child: &mut std::process::Child| {
            // Whoever this sweep waits for is a child of this process: it must be reaped to be gone.
            sweep(&lease, Some(whose)).expect("nothing is left");
            child.try_wait().expect("asked").is_some()
        };
        let by_mark = ended(Whose { uid, is_alone: false }, &mut with);
        let left = without.try_wait().expect("asked").is_none();
        let all = ended(Whose { uid, is_alone: true }, &mut without);
        let other_left = of_another.try_wait().expect("asked").is_none();
        for child in [&mut without, &mut with, &mut of_another] {
            let _ = child.kill();
            let _ = child.wait();
        }
        assert!(by_mark && left, "only what carries the mark");
        assert!(all, "all of that user's");
        assert!(other_left, "nothing of anybody else's, whatever it carries");
    }
}
