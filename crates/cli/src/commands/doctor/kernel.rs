//! What the kernel gives this user: control groups, limits, and what the product uses of it.

use super::machine::is_container;
use rustix::process::{Resource, getrlimit};
use std::path::Path;
use windfall_exec::Finding;

/// Control groups: how the processes of a lease are found and ended whatever they do.
pub(super) fn control_groups(root: &Path) -> Finding {
    let read = |path: &str| std::fs::read_to_string(root.join(path)).unwrap_or_default();
    let (mounts, own) = (read("proc/self/mounts"), read("proc/self/cgroup"));
    let mount_of = |kind: &str| {
        mounts.lines().find_map(|line| {
            let mut words = line.split(' ').skip(1);
            let (mount, found) = (words.next()?, words.next()?);
            (found == kind).then(|| mount.to_owned())
        })
    };
    let mend = match is_container(root) {
        true => "docker run --privileged --cgroupns=host …",
        false => "windfall service install --user  # its unit has Delegate=yes",
    };
    let Some(mount) = mount_of("cgroup2") else {
        let says = match mount_of("cgroup") {
            Some(_) if windfall_agent::control_groups_can_be_made() => {
                return Finding::warning(
                    "cgroups",
                    "version 1, and groups can be made; version 2 ends all processes of a lease at once",
                    "sudo grubby --update-kernel=ALL --args=systemd.unified_cgroup_hierarchy=1  # or the kernel's command line otherwise; then reboot",
                );
            }
            Some(_) => "version 1, and no group can be made: processes of a lease are told apart by their marks alone",
            None => "not mounted: processes of a lease are told apart by their marks alone",
        };
        return Finding::warning("cgroups", says, mend);
    };
    let path = own.lines().find_map(|line| line.strip_prefix("0::/")).unwrap_or_default();
    let group = root.join(mount.trim_start_matches('/')).join(path);
    let may = |path: &Path| rustix::fs::access(path, rustix::fs::Access::WRITE_OK).is_ok();
    if !may(&group) || !may(&group.join("cgroup.procs")) {
        let says =
            "version 2, but none can be made from here: processes of a lease are told apart by their marks alone";
        return Finding::warning("cgroups", says, mend);
    }
    let controllers = std::fs::read_to_string(group.join("cgroup.controllers")).unwrap_or_default();
    let lacks: Vec<&str> = ["cpu", "memory"]
        .into_iter()
        .filter(|name| !controllers.split_whitespace().any(|word| word == *name))
        .collect();
    match lacks.is_empty() {
        true => Finding::ok("cgroups", format!("version 2, delegated, with {}", controllers.trim())),
        false => Finding::warning("cgroups", format!("version 2, delegated, without {}", lacks.join(" and ")), mend),
    }
}

/// Files and processes that may be open at once.
pub(super) fn limits() -> Vec<Finding> {
    let files = getrlimit(Resource::Nofile).maximum;
    let processes = getrlimit(Resource::Nproc).current;
    limits_of(files, processes)
}

/// A server listens to each agent by a descriptor, and raises its own limit as far as this.
const FILES: u64 = 65_536;
const FEWEST_FILES: u64 = 1_024;
/// A loader of data starts a few for each accelerator.
const PROCESSES: u64 = 4_096;

fn limits_of(files: Option<u64>, processes: Option<u64>) -> Vec<Finding> {
    let name = "limits";
    let mend = |what: &str, value: u64| {
        format!("echo \"$USER - {what} {value}\" | sudo tee -a /etc/security/limits.conf  # then log in again")
    };
    let shown = |limit: Option<u64>| limit.map_or("any number of".to_owned(), |limit| limit.to_string());
    let mut found = Vec::new();
    match files {
        Some(files) if files < FEWEST_FILES => {
            found.push(Finding::missing(name, format!("{files} open files at most"), mend("nofile", FILES)));
        }
        Some(files) if files < FILES => {
            let says = format!("{files} open files at most: fewer agents are heard at once");
            found.push(Finding::warning(name, says, mend("nofile", FILES)));
        }
        _ => {}
    }
    if let Some(processes) = processes.filter(|processes| *processes < PROCESSES) {
        let says = format!("{processes} processes of this user at most, those of all jobs together");
        found.push(Finding::warning(name, says, mend("nproc", 65_536)));
    }
    if found.is_empty() {
        found.push(Finding::ok(name, format!("{} open files, {} processes", shown(files), shown(processes))));
    }
    found
}

/// The kernel, and what is used of it.
pub(super) fn kernel(root: &Path) -> Finding {
    let read = |path: &str| std::fs::read_to_string(root.join(path)).unwrap_or_default();
    let release = read("proc/sys/kernel/osrelease").trim().to_owned();
    let watches: Option<u64> = read("proc/sys/fs/inotify/max_user_watches").trim().parse().ok();
    let instances: Option<u64> = read("proc/sys/fs/inotify/max_user_instances").trim().parse().ok();
    kernel_of(&release, watches, instances)
}

/// The oldest that is still maintained by its makers at the time of writing, less a little.
const OLDEST: (u32, u32) = (5, 4);

fn kernel_of(release: &str, watches: Option<u64>, instances: Option<u64>) -> Finding {
    let name = "kernel";
    let mut parts = release.split(['.', '-']).map_while(|part| part.parse::<u32>().ok());
    let version = parts.next().zip(parts.next());
    if version.is_none() {
        return Finding::missing(
            name,
            "/proc does not say which: it is needed to find processes",
            "mount -t proc proc /proc",
        );
    }
    if version.is_some_and(|version| version < OLDEST) {
        let says = format!("{release}: nobody has tried anything older than {}.{}", OLDEST.0, OLDEST.1);
        return Finding::warning(name, says, "uname -r  # use a newer kernel");
    }
    // A program's folder of checkpoints is listened to; where that is refused it is looked at again and again.
    if watches.is_some_and(|watches| watches < 8_192) || instances.is_some_and(|instances| instances < 128) {
        let says = format!("{release}; few inotify watches: folders of checkpoints are polled instead");
        return Finding::warning(
            name,
            says,
            "sudo sysctl fs.inotify.max_user_watches=524288 fs.inotify.max_user_instances=512",
        );
    }
    Finding::ok(name, release.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use windfall_exec::FindingState;

    #[test]
    fn a_group_that_is_delegated_is_told_from_one_that_is_not() {
        let root = tempfile::tempdir().expect("a folder");
        let root = root.path();
        let put = |path: &str, text: &str| {
            let path = root.join(path);
            std::fs::create_dir_all(path.parent().expect("a folder above")).expect("made");
            std::fs::write(path, text).expect("written");
        };
        assert_eq!(control_groups(root).state, FindingState::Warning, "nothing is mounted");
        put("proc/self/mounts", "cgroup2 /sys/fs/cgroup cgroup2 rw 0 0\n");
        put("proc/self/cgroup", "0::/user.slice/windfall.service\n");
        assert_eq!(control_groups(root).state, FindingState::Warning, "it is not there");
        put("sys/fs/cgroup/user.slice/windfall.service/cgroup.procs", "");
        put("sys/fs/cgroup/user.slice/windfall.service/cgroup.controllers", "cpuset pids\n");
        assert!(control_groups(root).says.ends_with("without cpu and memory"));
        put("sys/fs/cgroup/user.slice/windfall.service/cgroup.controllers", "cpuset cpu memory pids\n");
        assert_eq!(control_groups(root), Finding::ok("cgroups", "version 2, delegated, with cpuset cpu memory pids"));
    }

    #[test]
    fn low_limits_are_named_each_by_itself() {
        let states = |files, processes| limits_of(files, processes).iter().map(|one| one.state).collect::<Vec<_>>();
        assert_eq!(states(None, None), [FindingState::Ok]);
        assert_eq!(states(Some(65_536), Some(4_096)), [FindingState::Ok]);
        assert_eq!(states(Some(4_096), Some(100)), [FindingState::Warning, FindingState::Warning]);
        assert_eq!(states(Some(256), None), [FindingState::Missing]);
    }

    #[test]
    fn kernels_are_told_by_their_release() {
        let of = |release: &str, watches| kernel_of(release, watches, Some(512)).state;
        assert_eq!((of("6.1.0-31-amd64", Some(65_536)), of("5.4.0", None)), (FindingState::Ok, FindingState::Ok));
        assert_eq!(
            (of("4.18.0-553.el8", None), of("6.1.0", Some(10)), of("", None)),
            (FindingState::Warning, FindingState::Warning, FindingState::Missing)
        );
    }
}
