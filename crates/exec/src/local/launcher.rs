//! The machines of leases, which are agents here: starts one in a lease's folder, and makes sure that it and everything
//! below it is gone.

use super::folder::Folder;
use crate::agents;
use std::io;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;
use tokio::process::Command;
use windfall_core::worker::{AgentRequest, CONTACT, DEVICES};

pub(super) struct Launcher {
    pub program: PathBuf,
    /// The file in which agents find when the server was last heard, where they are to end without it.
    pub contact: Option<PathBuf>,
}

impl Launcher {
    /// Starts the agent of a lease and returns when it listens. Started twice, there is one agent. Programs see these
    /// accelerators of the machine, or all of them.
    pub async fn launch(&self, folder: &Folder, devices: Option<&[String]>) -> io::Result<()> {
        let mut command = self.command(folder, "launch");
        if let Some(devices) = devices {
            command.env(DEVICES, devices.join(","));
        }
        if let Some(contact) = &self.contact {
            command.env(CONTACT, contact);
        }
        let run = command.arg(&folder.path).output();
        let output = tokio::time::timeout(Duration::from_secs(30), run).await.map_err(io::Error::other)??;
        if output.status.success() {
            return Ok(());
        }
        let said = String::from_utf8_lossy(&output.stderr);
        Err(io::Error::other(format!("the agent did not start: {}", said.trim())))
    }

    /// Whether the agent's process is there.
    pub fn is_alive(&self, folder: &Folder) -> bool {
        let Some(pid) = folder.pid() else { return folder.socket().exists() };
        let environ = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        // A process number may have been given to somebody else since.
        let mark = format!("WINDFALL_LEASE={}", folder.lease);
        environ.split(|byte| *byte == 0).any(|pair| pair == mark.as_bytes())
    }

    /// Ends the agent and everything that carries the lease's mark. Returns only when nothing is left.
    pub async fn end(&self, folder: &Folder, gently: bool) -> io::Result<()> {
        if gently && self.is_alive(folder) {
            // Lets the agent write down how its workers ended.
            let _ = agents::ask(&folder.path, &AgentRequest::Quit).await;
        }
        let sweep = self.command(folder, "sweep").arg(folder.lease.to_string()).output();
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
            command.env("WINDFALL_LEASE", folder.lease.to_string());
        } else {
            command.env_remove("WINDFALL_LEASE");
        }
        command
    }
}
