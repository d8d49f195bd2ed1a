//! A lease's control group, where this user may make one, and in it one for each worker. Whatever a program does to its
//! session, its parent and its environment, its processes stay in the group that it was started in, so they are found
//! when everybody who knew them is dead, and told apart from those of the other workers. Version 2 is used where it can
//! be written, else the freezer or pids hierarchy of version 1; where none can, the marks in `sweep.rs` are all there is.

use crate::processes;
use rustix::process::Signal;
use std::collections::BTreeSet;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Rounds of killing before giving up.
const ROUNDS: u32 = 400;
/// How often joining a group is tried: another guard may remove it as a left-over in between.
const JOINS: u32 = 10;
/// Tries to remove a group; one that stays is empty and does no harm.
const REMOVALS: u32 = 40;
const PAUSE: Duration = Duration::from_millis(5);
/// At most this many directories are searched for a group. A group beyond them is found only in
/// its usual directory.
const SEARCHED: usize = 20_000;

/// The group for those who were in the group of leases before those had to be kept to something.
pub(crate) const BESIDE: &str = "windfall-beside";

/// One mounted hierarchy of groups.
pub(crate) struct Hierarchy {
    mount: PathBuf,
    /// The group of this process in it.
    pub own: PathBuf,
}

pub(crate) fn name(lease: &str) -> String {
    format!("windfall-{lease}")
}

/// Whether a guard on this machine can make groups: tried with one in which nobody ever is.
pub fn can_be_made() -> bool {
    let name = format!("windfall-try-{}", std::process::id());
    let made = |hierarchy: Hierarchy| {
        let group = hierarchy.own.join(&name);
        std::fs::create_dir(&group).is_ok_and(|()| {
            let usable = std::fs::OpenOptions::new().write(true).open(group.join("cgroup.procs")).is_ok();
            let _ = std::fs::remove_dir(&group);
            usable
        })
    };
    hierarchies().into_iter().any(made)
}

/// Moves this process into a group of its own. False where none can be made.
pub(crate) fn join(lease: &str) -> bool {
    let is_in = |hierarchy: &Hierarchy| hierarchy.own.ends_with(name(lease));
    if hierarchies().iter().any(is_in) {
        return true;
    }
    let joined = hierarchies().into_iter().find(|hierarchy| join_in(&hierarchy.own.join(name(lease))));
    if let Some(hierarchy) = &joined {
        remove_empty(&hierarchy.own);
    }
    joined.is_some()
}

/// Makes a group, if it is not there. Whoever runs in it may see what it is kept to, whatever this process's umask is.
pub(crate) fn make(group: &Path) -> bool {
    let is_new = std::fs::create_dir(group).is_ok();
    if is_new {
        let _ = std::fs::set_permissions(group, PermissionsExt::from_mode(0o755));
    }
    is_new || group.is_dir()
}

pub(crate) fn join_in(group: &Path) -> bool {
    let pid = std::process::id().to_string();
    for _ in 0..JOINS {
        if !make(group) {
            return false;
        }
        match std::fs::write(group.join("cgroup.procs"), &pid) {
            Ok(()) => return true,
            // Another guard removed it as an empty one, between the two steps.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(_) => break,
        }
    }
    let _ = std::fs::remove_dir(group);
    false
}

/// Removes groups that nobody is in any more: a machine that died in the middle of a sweep leaves them. One in which
/// somebody is keeps those below it, though they may be empty: a worker may be about to start there.
fn remove_empty(beside: &Path) {
    let entries = std::fs::read_dir(beside).into_iter().flatten().flatten();
    for entry in entries.filter(|entry| entry.file_name().to_string_lossy().starts_with("windfall-")) {
        if members(&entry.path()).is_empty() {
            remove(&entry.path());
        }
    }
}

/// Removes a group and those below it, the deepest first, as far as nobody is in them.
fn remove(group: &Path) {
    below(group).iter().rev().for_each(|group| drop(std::fs::remove_dir(group)));
}

/// The control group of one worker on this agent's lease; it is removed with this.
pub(crate) struct WorkerGroup {
    path: PathBuf,
    /// As `/proc/PID/cgroup` ends for those in it: the lease's group, then the worker's.
    lease: String,
    worker: String,
}

impl WorkerGroup {
    /// Makes the group of a worker. None where this process is in no group of the lease.
    pub fn make(lease: &str, worker: &str) -> Option<WorkerGroup> {
        let own = hierarchies().into_iter().map(|hierarchy| hierarchy.own).find(|own| own.ends_with(name(lease)))?;
        let path = own.join(worker);
        let there = std::fs::create_dir(&path).is_ok() || path.is_dir();
        there.then(|| WorkerGroup { path, lease: name(lease), worker: worker.to_owned() })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether a process is in it. Nothing is known of a zombie's group in version 1.
    pub fn holds(&self, pid: i32) -> bool {
        let groups = std::fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap_or_default();
        self.is_among(&groups)
    }

    fn is_among(&self, groups: &str) -> bool {
        // A program may itself run leases: what is below the first group of ours decides.
        let worker_of = |line: &str| {
            let mut names = line.split('/').skip_while(|name| *name != self.lease);
            names.nth(1) == Some(&self.worker)
        };
        groups.lines().any(worker_of)
    }
}

impl Drop for WorkerGroup {
    fn drop(&mut self) {
        // One that stays is empty, and goes with the lease's.
        remove(&self.path);
    }
}

/// Moves this process into a group that was made for it. Where that fails it stays in the lease's.
pub(crate) fn enter(group: &Path) {
    let _ = join_in(group);
}

/// Kills every process in the groups of a lease and removes them. An error when some do not end.
pub(crate) fn end(lease: &str) -> io::Result<()> {
    for group in hierarchies().iter().flat_map(|hierarchy| find(hierarchy, &name(lease))) {
        kill_all(&group)?;
        remove_patiently(&group);
    }
    Ok(())
}

/// Removes the groups of that name, in which nobody runs any more.
pub(crate) fn remove_all(hierarchy: &Hierarchy, name: &str) {
    let usual = hierarchy.own.join(name);
    if usual.is_dir() {
        remove_patiently(&usual);
    }
}

fn remove_patiently(group: &Path) {
    for _ in 0..REMOVALS {
        remove(group);
        if !group.exists() {
            break;
        }
        // A process that was killed keeps its group for a moment.
        std::thread::sleep(PAUSE);
    }
}

fn kill_all(group: &Path) -> io::Result<()> {
    // Nobody forks while the group stands still; in version 1 who is killed dies when it goes on.
    let still = ["freezer.state", "cgroup.freeze"].map(|file| group.join(file)).into_iter().find(|file| file.exists());
    let freeze = |words: [&str; 2]| {
        let Some(file) = &still else { return };
        let word = if file.ends_with("cgroup.freeze") { words[1] } else { words[0] };
        let _ = std::fs::write(file, word);
    };
    let is_inside = |pid: i32| is_in(group, pid);
    for _ in 0..ROUNDS {
        freeze(["FROZEN", "1"]);
        // All at once, where the kernel can.
        let _ = std::fs::write(group.join("cgroup.kill"), "1");
        let left = members(group);
        // Stopped first, so that no process sees another one die and acts on it.
        processes::signal_each(&left, Signal::STOP, is_inside);
        processes::signal_each(&left, Signal::KILL, is_inside);
        freeze(["THAWED", "0"]);
        if left.is_empty() {
            return Ok(());
        }
        std::thread::sleep(PAUSE);
    }
    Err(io::Error::other(format!("processes do not end: {:?}", members(group))))
}

/// Whether a process is in a group of that name, or below one.
fn is_in(group: &Path, pid: i32) -> bool {
    let groups = std::fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap_or_default();
    let Some(name) = group.file_name().and_then(|name| name.to_str()) else { return false };
    groups.lines().any(|line| line.split('/').any(|part| part == name))
}

/// The processes in a group and in those below it.
fn members(group: &Path) -> BTreeSet<i32> {
    let list = |group: PathBuf| std::fs::read_to_string(group.join("cgroup.procs")).unwrap_or_default();
    let pids: Vec<i32> = below(group)
        .into_iter()
        .map(list)
        .flat_map(|text| text.lines().filter_map(|l| l.parse().ok()).collect::<Vec<_>>())
        .collect();
    let me = std::process::id() as i32;
    pids.into_iter().filter(|pid| *pid != me && processes::is_running(*pid)).collect()
}

/// A group and all below it, the highest first.
fn below(group: &Path) -> Vec<PathBuf> {
    let mut found = vec![group.to_owned()];
    let mut next = 0;
    while next < found.len() && found.len() < SEARCHED {
        let inside = std::fs::read_dir(&found[next]).into_iter().flatten().flatten();
        let groups = inside.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
        found.extend(groups.map(|entry| entry.path()));
        next += 1;
    }
    found
}

/// The groups of that name. The guard may have been started from another group than this process.
fn find(hierarchy: &Hierarchy, name: &str) -> Vec<PathBuf> {
    let usual = hierarchy.own.join(name);
    if usual.is_dir() {
        return vec![usual];
    }
    below(&hierarchy.mount).into_iter().filter(|group| group.file_name().is_some_and(|last| last == name)).collect()
}

/// The hierarchies to use, the best first.
fn hierarchies() -> Vec<Hierarchy> {
    ["", "freezer", "pids"].into_iter().filter_map(of_controller).collect()
}

/// The hierarchy of a controller in version 1, or that of version 2, whose name is empty.
pub(crate) fn of_controller(controller: &str) -> Option<Hierarchy> {
    let read = |file: &str| std::fs::read_to_string(file).unwrap_or_default();
    read_hierarchy(&read("/proc/self/mounts"), &read("/proc/self/cgroup"), controller)
}

fn read_hierarchy(mounts: &str, own: &str, controller: &str) -> Option<Hierarchy> {
    let kind = if controller.is_empty() { "cgroup2" } else { "cgroup" };
    let mount = mounts.lines().find_map(|line| {
        let mut words = line.split(' ').skip(1);
        let (mount, found, options) = (words.next()?, words.next()?, words.next()?);
        let with = controller.is_empty() || options.split(',').any(|word| word == controller);
        (found == kind && with).then(|| PathBuf::from(mount))
    })?;
    let path = own.lines().find_map(|line| {
        let mut words = line.splitn(3, ':').skip(1);
        let (controllers, path) = (words.next()?, words.next()?);
        let path = path.strip_prefix('/').filter(|path| !path.starts_with(".."))?;
        controllers.split(',').any(|word| word == controller).then(|| path.to_owned())
    })?;
    // Those who moved aside belong where they were.
    let path = Path::new(&path);
    let path = if path.ends_with(BESIDE) { path.parent().unwrap_or(path) } else { path };
    Some(Hierarchy { own: mount.join(path), mount })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_versions_are_found_and_a_place_outside_is_not_used() {
        let mounts = "cgroup /c/pids cgroup rw,pids 0 0\ncgroup /c/freezer cgroup rw,freezer 0 0\n\
                      cgroup2 /c/unified cgroup2 rw 0 0\n";
        let own = "9:name=systemd:/\n8:pids:/../other\n6:freezer:/a/b\n0::/user.slice\n";
        let found = |controller: &str| read_hierarchy(mounts, own, controller).map(|found| found.own);
        assert_eq!(found("").as_deref(), Some(Path::new("/c/unified/user.slice")));
        assert_eq!(found("freezer").as_deref(), Some(Path::new("/c/freezer/a/b")));
        assert_eq!(["pids", "memory", "systemd"].map(found), [None, None, None]);
        assert!(read_hierarchy("", own, "").is_none());
        let aside = read_hierarchy(mounts, "0::/user.slice/windfall-beside\n", "").expect("found");
        assert_eq!(aside.own, Path::new("/c/unified/user.slice"), "who moved aside belongs where it was");
    }

    #[test]
    fn a_process_is_in_the_group_of_the_worker_that_started_it_whatever_runs_below_that() {
        let group = |worker: &str| WorkerGroup {
            path: PathBuf::from("/nowhere"),
            lease: "windfall-a-1".to_owned(),
            worker: worker.to_owned(),
        };
        let (first, second) = (group("worker-1.0.1.0"), group("worker-2.0.1.0"));
        let groups = "8:pids:/\n0::/user/windfall-a-1/worker-1.0.1.0\n";
        assert!(first.is_among(groups) && !second.is_among(groups));
        let nested = "0::/windfall-a-1/worker-2.0.1.0/windfall-b-1/worker-1.0.1.0\n";
        assert!(!first.is_among(nested) && second.is_among(nested));
        assert!(!group("worker-1.0.1").is_among(groups) && !first.is_among("0::/windfall-a-1\n"));
    }

    #[test]
    fn a_group_that_is_there_already_is_joined_and_one_that_cannot_be_made_is_not() {
        let dir = tempfile::tempdir().expect("a folder");
        let group = dir.path().join("windfall-1");
        assert!(join_in(&group), "a new one");
        assert!(join_in(&group), "the same again");
        let inside = std::fs::read_to_string(group.join("cgroup.procs")).expect("written");
        assert_eq!(inside, std::process::id().to_string());
        assert!(!join_in(&dir.path().join("missing/windfall-1")));
    }
}
