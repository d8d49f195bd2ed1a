//! Ends everything of a lease. Its processes are found by a mark, `WINDFALL_LEASE` in their environment, which survives
//! `setsid`, double forks and the death of every parent. One that wiped its environment too is found by its control
//! group, where there is one.

use crate::processes::{GLANCES, PAUSE, ROUNDS, all, carries, descendants, is_running, signal_all, user_of};
use crate::{AgentError, cgroup, limits};
use rustix::process::Signal;
use std::collections::BTreeSet;

/// Ends every process of a lease: those in its control group, those that carry its mark, and everything below
/// one. Returns only when none is left. Of a lease that runs as a user of its own nobody else's process is touched, whatever
/// it carries.
pub fn sweep(lease: &str, uid: Option<u32>) -> Result<(), AgentError> {
    let group = cgroup::end(lease);
    group.map_err(AgentError::new(format!("the control group of lease {lease} cannot be emptied")))?;
    limits::remove(lease);
    let mark = format!("WINDFALL_LEASE={lease}");
    let (mut clean, mut alone) = (0, 0);
    for _ in 0..ROUNDS {
        let found = marked(&mark, uid);
        clean = if found.is_empty() { clean + 1 } else { 0 };
        if clean == GLANCES {
            return Ok(());
        }
        let (keepers, others): (BTreeSet<i32>, BTreeSet<i32>) = found.iter().partition(|pid| is_keeper(**pid));
        // Guard and agent go last, and stand still until then: they adopt what loses its parent, so that a
        // program which cleared its environment is still found, and what we kill is not taken for an end of
        // the program's own.
        alone = if others.is_empty() { alone + 1 } else { 0 };
        signal_all(&keepers, if alone >= GLANCES { Signal::KILL } else { Signal::STOP });
        signal_all(&others, Signal::KILL);
        std::thread::sleep(PAUSE);
    }
    let left = format!("processes of lease {lease} do not end: {:?}", marked(&mark, uid));
    Err(AgentError::new(left)(std::io::ErrorKind::TimedOut.into()))
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
