//! The text of a unit: what systemd is told, with the reason for each line. Nothing is read or written here.

use crate::args::UnitName;
use std::path::{Path, PathBuf};

/// The first words of every unit that is written here: a file without them is somebody else's.
pub(super) const MARK: &str = "# Written by `windfall service install`";

/// What a unit depends on.
pub(super) struct Unit {
    pub name: UnitName,
    /// The account it runs as; none for a unit of this user.
    pub account: Option<String>,
    pub program: PathBuf,
    pub config: PathBuf,
    pub state: PathBuf,
}

impl Unit {
    /// The name of its file.
    pub fn file_name(&self) -> &'static str {
        match self.name {
            UnitName::Server => "windfall-server.service",
            UnitName::Agent => "windfall-agent.service",
        }
    }

    /// The whole file.
    pub fn text(&self) -> String {
        let after = "Wants=network-online.target\nAfter=network-online.target time-sync.target";
        let (what, network) = match (self.name, &self.account) {
            (UnitName::Server, Some(_)) => {
                ("server", format!("# An address to listen on, and a clock that is right.\n{after}\n"))
            }
            (UnitName::Agent, Some(_)) => {
                ("agent", format!("# A network to reach the server by, and a clock that is right.\n{after}\n"))
            }
            // A manager of a user knows no targets of the system.
            (UnitName::Server, None) => ("server", String::new()),
            (UnitName::Agent, None) => ("agent", String::new()),
        };
        let title = match self.name {
            UnitName::Server => "Windfall server",
            UnitName::Agent => "Windfall agent: this machine is a node",
        };
        let target = if self.account.is_some() { "multi-user.target" } else { "default.target" };
        let account = self.account.as_ref().map(|account| self.account_lines(account)).unwrap_or_default();
        let protection = if self.account.is_some() { PROTECTION } else { PROTECTION_OF_USER };
        format!(
            "{MARK} {what}.\n# Changes belong in a drop-in, which stays: systemctl {user}edit {file}\n\n\
             [Unit]\nDescription={title}\n{network}\n\
             [Service]\n{start}{account}\n{LIFE}\n{jobs}\n{protection}\n\
             [Install]\nWantedBy={target}\n",
            user = if self.account.is_some() { "" } else { "--user " },
            file = self.file_name(),
            start = self.start_lines(),
            jobs = if self.account.is_some() { format!("{JOBS}{LIMITS}") } else { JOBS.to_owned() },
        )
    }

    fn start_lines(&self) -> String {
        let [program, config, state] = [&self.program, &self.config, &self.state].map(|path| quoted(path));
        match self.name {
            UnitName::Server => format!(
                "# It says when it listens; a long log takes a while to read.\n\
                 Type=notify\nTimeoutStartSec=10min\n\
                 ExecStart={program} --home {state} up --foreground --config {config}\n"
            ),
            UnitName::Agent => format!(
                "# It goes on as the node that this machine is; it joins once, by hand, with a token that is written nowhere.\n\
                 # A server that is away for a while is waited for, so being started is enough.\n\
                 Type=exec\n\
                 ExecStart={program} agent join --state {state} --config {config}\n"
            ),
        }
    }

    fn account_lines(&self, account: &str) -> String {
        let folder = self.state.file_name().unwrap_or_default().to_string_lossy();
        let mode = match self.name {
            UnitName::Server => {
                "# Others pass through it to the server's socket, and see nothing else.\nStateDirectoryMode=0711"
            }
            UnitName::Agent => "StateDirectoryMode=0700",
        };
        format!(
            "# Programs of jobs on this machine run as this account: never root.\n\
             User={account}\n\
             # /var/lib/{folder}, made for that account.\n\
             StateDirectory={folder}\n{mode}\n"
        )
    }
}

/// How it ends and begins again.
const LIFE: &str = "\
# Jobs outlive it: only this process is ended, not the guards, agents and programs of leases that it has started. The
# next one finds them again.
KillMode=process
# What ended by mistake is begun again; wrong settings, or a node that was removed (exit code 2), are not mended by that.
Restart=on-failure
RestartSec=5s
RestartPreventExitStatus=2
TimeoutStopSec=30s
";

/// What jobs need.
const JOBS: &str = "\
# Each lease has a control group of its own below this unit's, by which its processes are found and ended.
Delegate=yes
# A program that runs out of memory ends by itself, and not this service with all that it runs.
OOMPolicy=continue
# Processes and files of all jobs count together.
TasksMax=infinity
LimitNOFILE=65536
# What it writes is for its owner alone; programs get the mask of whoever submitted them.
UMask=0077
";

/// What only the system's manager may allow.
const LIMITS: &str = "\
# Memory that network cards read directly must stay where it is: NCCL over InfiniBand pins it.
LimitMEMLOCK=infinity
";

/// What it, and every program that it starts, may not do.
const PROTECTION: &str = "\
# Neither it nor a program of a job becomes root. Jobs that need set-uid helpers (some installations of Apptainer) need
# a drop-in with NoNewPrivileges=no and CapabilityBoundingSet=~.
NoNewPrivileges=yes
CapabilityBoundingSet=
RestrictSUIDSGID=yes
# /usr, /boot and /etc cannot be written.
ProtectSystem=full
# Left open on purpose: jobs' folders are in home directories and in /tmp, accelerators are devices (ProtectClock would
# hide them too), control groups are made, and compilers of kernels write memory that they run.
ProtectHome=no
PrivateTmp=no
PrivateDevices=no
ProtectControlGroups=no
MemoryDenyWriteExecute=no
";

const PROTECTION_OF_USER: &str = "\
# Neither it nor a program of a job becomes root.
NoNewPrivileges=yes
";

/// A path as one word of a unit.
fn quoted(path: &Path) -> String {
    let text = path.to_string_lossy().replace('%', "%%").replace('$', "$$");
    let is_plain = text.chars().all(|c| c.is_ascii_alphanumeric() || "/._-+@:%$".contains(c));
    if is_plain { text } else { format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\"")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unit(name: UnitName, account: Option<&str>, state: &str) -> Unit {
        Unit {
            name,
            account: account.map(str::to_owned),
            program: PathBuf::from("/opt/my tools/100%/wind$fall"),
            config: PathBuf::from("/etc/windfall/config.toml"),
            state: PathBuf::from(state),
        }
    }

    #[test]
    fn jobs_outlive_the_service_and_nothing_secret_is_in_its_unit() {
        for name in [UnitName::Server, UnitName::Agent] {
            for account in [Some("windfall"), None] {
                let text = unit(name, account, "/var/lib/windfall").text();
                for line in [
                    "KillMode=process",
                    "Delegate=yes",
                    "Restart=on-failure",
                    "OOMPolicy=continue",
                    "NoNewPrivileges=yes",
                ] {
                    assert!(text.lines().any(|found| found == line), "{line}: {text}");
                }
                let settings = text.lines().filter(|line| !line.starts_with('#'));
                let settings: Vec<&str> = settings.collect();
                assert!(!settings.iter().any(|line| line.contains("token") || line.contains("Environment")), "{text}");
                assert_eq!(settings.contains(&"User=windfall"), account.is_some());
                // These would take accelerators, folders or control groups away from jobs.
                for hidden in [
                    "ProtectClock=yes",
                    "PrivateDevices=yes",
                    "PrivateTmp=yes",
                    "ProtectHome=yes",
                    "ProtectControlGroups=yes",
                ] {
                    assert!(!text.contains(hidden), "{hidden}");
                }
                assert!(text.lines().all(|line| line.len() <= 125), "{text}");
            }
        }
    }

    #[test]
    fn a_path_is_one_word_whatever_is_in_it() {
        let text = unit(UnitName::Server, None, "/home/a/.local/state/windfall").text();
        assert!(
            text.contains("ExecStart=\"/opt/my tools/100%%/wind$$fall\" --home /home/a/.local/state/windfall up"),
            "{text}"
        );
    }
}
