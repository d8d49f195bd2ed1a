//! The cores and the memory that everything on a lease may have together, kept by the kernel where this user may say so
//! (control groups of version 2, or of version 1 where those are what there is). Who is killed for its memory is told why.

use crate::cgroup::{self, Hierarchy};
use rustix::io::Errno;
use std::collections::BTreeSet;
use std::io;
use std::path::Path;
use windfall_core::WorkerEnd;
use windfall_core::worker::MEMORY;

/// Limits; zero where there is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    pub cpu_millis: u64,
    pub memory_bytes: u64,
}

/// Those that the kernel keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Kept {
    pub cpu: bool,
    pub memory: bool,
}

/// The time over which cores are counted, in microseconds: what kernels use by themselves.
const PERIOD_US: u64 = 100_000;

impl Limits {
    /// Keeps this process and all that it will start to these limits. It is in the lease's group already, where there is
    /// one.
    pub(crate) fn apply(&self, lease: &str) -> Kept {
        let own = cgroup::of_controller("").filter(|own| own.own.ends_with(cgroup::name(lease)));
        let keep = |controller: &str, is_wanted: bool, set: &dyn Fn(&Path, bool) -> io::Result<()>| {
            is_wanted
                && (own.as_ref().is_some_and(|own| in_version_2(own, controller, set))
                    || in_version_1(lease, controller, set))
        };
        let memory = |group: &Path, is_new: bool| set_memory(group, is_new, self.memory_bytes);
        let cpu = |group: &Path, is_new: bool| set_cpu(group, is_new, self.cpu_millis);
        Kept { cpu: keep("cpu", self.cpu_millis > 0, &cpu), memory: keep("memory", self.memory_bytes > 0, &memory) }
    }
}

fn set_memory(group: &Path, is_version_2: bool, bytes: u64) -> io::Result<()> {
    let write = |name: &str, text: String| std::fs::write(group.join(name), text);
    let [limit, with_swap] = match is_version_2 {
        true => ["memory.max", "memory.swap.max"],
        false => ["memory.limit_in_bytes", "memory.memsw.limit_in_bytes"],
    };
    write(limit, bytes.to_string())?;
    // Where the kernel counts no swap there is nothing to say of it.
    let _ = write(with_swap, if is_version_2 { "0".to_owned() } else { bytes.to_string() });
    Ok(())
}

fn set_cpu(group: &Path, is_version_2: bool, millis: u64) -> io::Result<()> {
    let quota_us = (millis.saturating_mul(PERIOD_US) / 1_000).max(1_000);
    match is_version_2 {
        true => std::fs::write(group.join("cpu.max"), format!("{quota_us} {PERIOD_US}")),
        false => std::fs::write(group.join("cpu.cfs_period_us"), PERIOD_US.to_string())
            .and_then(|()| std::fs::write(group.join("cpu.cfs_quota_us"), quota_us.to_string())),
    }
}

fn in_version_2(own: &Hierarchy, controller: &str, set: &dyn Fn(&Path, bool) -> io::Result<()>) -> bool {
    let Some(above) = own.own.parent() else { return false };
    enable(above, controller) && set(&own.own, true).is_ok()
}

/// A group of the lease's in the controller's own hierarchy, which this process enters.
fn in_version_1(lease: &str, controller: &str, set: &dyn Fn(&Path, bool) -> io::Result<()>) -> bool {
    let Some(hierarchy) = cgroup::of_controller(controller) else { return false };
    let group = match hierarchy.own.ends_with(cgroup::name(lease)) {
        true => hierarchy.own,
        false => hierarchy.own.join(cgroup::name(lease)),
    };
    let is_there = cgroup::make(&group);
    let is_set = is_there && set(&group, false).is_ok() && cgroup::join_in(&group);
    if is_there && !is_set {
        let _ = std::fs::remove_dir(&group);
    }
    is_set
}

/// Lets the groups below one be kept to something. A group may not have processes of its own then, so those that are in it
/// move to one beside, where all of them are ours.
fn enable(group: &Path, controller: &str) -> bool {
    let has = |file: &str| {
        let text = std::fs::read_to_string(group.join(file)).unwrap_or_default();
        text.split_whitespace().any(|word| word == controller)
    };
    if has("cgroup.subtree_control") {
        return true;
    }
    let write = || std::fs::write(group.join("cgroup.subtree_control"), format!("+{controller}"));
    let is_busy = |error: &io::Error| error.raw_os_error() == Some(Errno::BUSY.raw_os_error());
    has("cgroup.controllers")
        && match write() {
            Err(error) if is_busy(&error) => move_ours(group) && write().is_ok(),
            done => done.is_ok(),
        }
}

/// Moves the processes of a group into one below it; false, and nothing is moved, where one of them is not ours.
fn move_ours(group: &Path) -> bool {
    let inside = |group: &Path| -> BTreeSet<i32> {
        let text = std::fs::read_to_string(group.join("cgroup.procs")).unwrap_or_default();
        text.lines().filter_map(|line| line.parse().ok()).collect()
    };
    let program = |of: &str| std::fs::metadata(format!("/proc/{of}/exe")).ok();
    let same = |pid: &i32| {
        use std::os::unix::fs::MetadataExt;
        let [ours, theirs] = [program("self"), program(&pid.to_string())].map(|meta| meta.map(|m| (m.dev(), m.ino())));
        ours.is_some() && ours == theirs
    };
    let pids = inside(group);
    let beside = group.join(cgroup::BESIDE);
    if !pids.iter().all(same) || !cgroup::make(&beside) {
        return false;
    }
    // One that ends meanwhile needs no place.
    pids.iter().for_each(|pid| drop(std::fs::write(beside.join("cgroup.procs"), pid.to_string())));
    inside(group).is_empty()
}

/// Removes what `apply` made for a lease in hierarchies of its own. Nobody is in it any more.
pub(crate) fn remove(lease: &str) {
    for hierarchy in ["memory", "cpu"].into_iter().filter_map(cgroup::of_controller) {
        cgroup::remove_all(&hierarchy, &cgroup::name(lease));
    }
}

/// How many processes of this process's group were killed for its memory; none where nobody counts.
pub(crate) fn kills() -> Option<u64> {
    let files = [("", "memory.events"), ("memory", "memory.oom_control")];
    let counts = files.into_iter().filter_map(|(controller, file)| {
        let own = cgroup::of_controller(controller)?.own;
        count_in(&std::fs::read_to_string(own.join(file)).ok()?)
    });
    counts.reduce(|one, other| one + other)
}

fn count_in(text: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix("oom_kill ")?.trim().parse().ok())
}

/// The end of a program, where it is one that its memory explains: a process was killed for it since `before`.
pub(crate) fn explained(end: WorkerEnd, before: Option<u64>) -> WorkerEnd {
    let limit = std::env::var(MEMORY).ok().and_then(|text| text.parse().ok());
    let is_more = || kills().zip(before).is_some_and(|(now, before)| now > before);
    match (&end, limit) {
        (WorkerEnd::Killed { .. } | WorkerEnd::Exited { code: 1.. }, Some(limit_bytes)) if is_more() => {
            WorkerEnd::OutOfMemory { limit_bytes }
        }
        _ => end,
    }
}

/// Whoever stands on a lease is as likely to be killed as anybody when memory is short, whatever this process inherited from a
/// server or an agent of root's. Said by root, it is also the least that its programs can say of themselves.
pub(crate) fn spare_no_more_than_others() {
    if score().is_some_and(|score| score < 0) {
        let _ = std::fs::write(OOM_SCORE, "0");
    }
}

/// The program is killed before those who keep it: that needs no rights.
pub(crate) fn go_first() {
    if let Some(score) = score() {
        let _ = std::fs::write(OOM_SCORE, first(score).to_string());
    }
}

/// A tenth of the machine's memory more than it has: guard and agent have a thousandth, and whoever uses far more than
/// their programs is still found.
fn first(score: i32) -> i32 {
    score.max(0).saturating_add(100).min(1_000)
}

/// Lets this process stay when memory is short, where root runs it: leases go on without it, but nobody looks after them.
pub fn stay_when_memory_is_short() {
    if score().is_some_and(|score| score > -500) {
        let _ = std::fs::write(OOM_SCORE, "-500");
    }
}

fn score() -> Option<i32> {
    std::fs::read_to_string(OOM_SCORE).ok()?.trim().parse().ok()
}

const OOM_SCORE: &str = "/proc/self/oom_score_adj";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_written_as_each_version_has_them() {
        let dir = tempfile::tempdir().expect("a folder");
        let read = |name: &str| std::fs::read_to_string(dir.path().join(name)).expect("written");
        set_memory(dir.path(), true, 8 << 30).expect("set");
        set_cpu(dir.path(), true, 1_500).expect("set");
        assert_eq!(["memory.max", "memory.swap.max", "cpu.max"].map(read), ["8589934592", "0", "150000 100000"]);
        set_memory(dir.path(), false, 1 << 20).expect("set");
        set_cpu(dir.path(), false, 1).expect("set");
        let limits = ["memory.limit_in_bytes", "memory.memsw.limit_in_bytes"].map(read);
        assert_eq!(limits, ["1048576", "1048576"]);
        // The kernel takes no less than a millisecond.
        assert_eq!(["cpu.cfs_period_us", "cpu.cfs_quota_us"].map(read), ["100000", "1000"]);
    }

    #[test]
    fn a_controller_is_enabled_once_and_not_where_there_is_none() {
        let dir = tempfile::tempdir().expect("a folder");
        let put = |name: &str, text: &str| std::fs::write(dir.path().join(name), text).expect("written");
        assert!(!enable(dir.path(), "memory"), "no such controller");
        put("cgroup.controllers", "cpu memory pids\n");
        assert!(enable(dir.path(), "memory"));
        let enabled = std::fs::read_to_string(dir.path().join("cgroup.subtree_control")).expect("written");
        assert_eq!(enabled, "+memory");
        put("cgroup.subtree_control", "cpu memory\n");
        assert!(enable(dir.path(), "memory"));
    }

    #[test]
    fn only_processes_of_ours_are_moved() {
        let dir = tempfile::tempdir().expect("a folder");
        let procs = dir.path().join("cgroup.procs");
        // The first process of a machine is none of ours.
        std::fs::write(&procs, format!("{}\n1\n", std::process::id())).expect("written");
        assert!(!move_ours(dir.path()) && !dir.path().join(cgroup::BESIDE).exists());
    }

    #[test]
    fn a_program_goes_before_those_who_keep_it_whatever_they_have() {
        assert_eq!([-1_000, -500, 0, 300, 950, 1_000].map(first), [100, 100, 100, 400, 1_000, 1_000]);
        assert!((-1_000..1_000).all(|score| first(score) > score));
    }

    #[test]
    fn kills_are_counted_in_both_versions() {
        assert_eq!(count_in("low 0\noom 3\noom_kill 2\noom_group_kill 0\n"), Some(2));
        assert_eq!(count_in("oom_kill_disable 0\nunder_oom 0\noom_kill 7\n"), Some(7));
        assert_eq!(count_in("oom_kill_disable 0\n"), None);
    }
}
