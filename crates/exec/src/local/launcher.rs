//! The machines of leases, which are agents here: starts one in a lease's folder, and makes sure that it and everything
//! below it is gone.

use super::folder::{Folder, Marks};
use crate::accounts::RunsAs;
use crate::agents;
use std::io;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;
use tokio::process::Command;
use windfall_core::worker::{AgentRequest, CONTACT, DEVICES};

/// The mark of a lease in the environment of its processes.
const LEASE: &str = "WINDFALL_LEASE";
/// What an agent that runs as somebody else has of this process's environment: how programs and stores are found.
const OF_EVERYBODY: [&str; 13] = [
    "PATH",
    "LANG",
    "TZ",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "ALL_PROXY",
    "NO_PROXY",
    "http_proxy",
    "https_proxy",
    "all_proxy",
    "no_proxy",
];

/// Whether an address carries a name or a password: it is this process's, and whoever an agent runs as can read its
/// environment.
fn has_password(value: &str) -> bool {
    let rest = value.split_once("://").map_or(value, |(_, rest)| rest);
    rest.split('/').next().is_some_and(|host| host.contains('@'))
}

pub(super) struct Launcher {
    pub program: PathBuf,
    /// The file in which agents find when the server was last heard, where they are to end without it.
    pub contact: Option<PathBuf>,
}

impl Launcher {
    /// Starts the agent of a lease and returns when it listens. Started twice, there is one agent. Programs see the
    /// accelerators that the lease has of the machine, or all of them.
    pub async fn launch(&self, folder: &Folder, marks: &Marks) -> io::Result<()> {
        let mut command = self.command(folder, "launch");
        if let Some(RunsAs { account, .. }) = &marks.runs_as {
            folder.give_to(account)?;
            // What else is in this process's environment is not for others to read: secrets, and how machines join.
            command.env_clear().env(LEASE, folder.lease.to_string());
            let of_everybody = OF_EVERYBODY.iter().filter_map(|name| Some((*name, std::env::var(name).ok()?)));
            command.envs(of_everybody.filter(|(_, value)| !has_password(value)));
            command.args(["--account", &account.numbers()]);
        }
        if marks.limits.cpu_millis > 0 {
            command.args(["--cpu-millis", &marks.limits.cpu_millis.to_string()]);
        }
        if marks.limits.memory_bytes > 0 {
            command.args(["--memory-bytes", &marks.limits.memory_bytes.to_string()]);
        }
        if let Some(devices) = &marks.devices {
            command.env(DEVICES, devices.join(","));
        }
        if let Some(contact) = &self.contact {
            command.env(CONTACT, contact);
        }
        let run = command.arg(folder.of_agent()).output();
        let output = tokio::time::timeout(Duration::from_secs(30), run).await.map_err(io::Error::other)??;
        if output.status.success() {
            return Ok(());
        }
        let said = String::from_utf8_lossy(&output.stderr);
        Err(io::Error::other(format!("the agent did not start: {}", said.trim())))
    }

    /// Whether the agent's process is there, or its guard's, which may be about to begin another.
    pub fn is_alive(&self, folder: &Folder) -> bool {
        let Some(pid) = folder.pid() else { return folder.socket().exists() };
        // A process number may have been given to somebody else since.
        let mark = format!("{LEASE}={}", folder.lease);
        let is_marked = |pid: i32| {
            let environ = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
            environ.split(|byte| *byte == 0).any(|pair| pair == mark.as_bytes())
        };
        is_marked(pid) || folder.guard().is_some_and(is_marked)
    }

    /// Ends the agent and everything that carries the lease's mark. Returns only when nothing is left.
    pub async fn end(&self, folder: &Folder, marks: &Marks, gently: bool) -> io::Result<()> {
        if gently && self.is_alive(folder) {
            // Lets the agent write down how its workers ended.
            let _ = agents::ask(&folder.of_agent(), &AgentRequest::Quit).await;
        }
        let mut sweep = self.command(folder, "sweep");
        if let Some(RunsAs { account, is_alone, .. }) = &marks.runs_as {
            sweep.args(["--uid", &account.uid.to_string()]);
            sweep.args(is_alone.then_some("--alone"));
        }
        let sweep = sweep.arg(folder.lease.to_string()).output();
        let output = tokio::time::timeout(Duration::from_secs(60), sweep).await.map_err(io::Error::other)??;
        if output.status.success() {
            return Ok(());
        }
        Err(io::Error::other(String::from_utf8_lossy(&output.stderr).trim().to_owned()))
    }

    fn command(&self, folder: &Folder, verb: &str) -> Command {
        let mut command = Command::new(&self.program);
        command.arg0("windfall");
        command.args(["agent", verb]).stdin(Stdio::null()).kill_on_drop(false).current_dir("/");
        if verb == "launch" {
            command.env(LEASE, folder.lease.to_string());
        } else {
            command.env_remove(LEASE);
        }
        // A token is for this process alone.
        command.env_remove("WINDFALL_JOIN_TOKEN");
        command
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proxy_is_for_everybody_unless_it_carries_a_password() {
        for value in ["http://proxy:3128", "proxy:3128", "http://proxy/a@b", "localhost,.lab.org", "/etc/ssl/certs"] {
            assert!(!has_password(value), "{value}");
        }
        for value in ["http://lab:secret@proxy:3128", "http://token@proxy/", "lab:secret@proxy:3128"] {
            assert!(has_password(value), "{value}");
        }
    }
}
