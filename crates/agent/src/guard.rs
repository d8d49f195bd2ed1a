//! The guard, and how the three processes of a lease come to be. Each step is a process of its own that
//! sets itself up and then goes on, because that needs no code between fork and exec.

use crate::worker::{Kept, memory};
use crate::{Account, AgentError, Limits, cgroup, limits, processes};
use rustix::process::{
    Pid, Signal, WaitOptions, getppid, set_child_subreaper, set_parent_process_death_signal, setsid, wait,
};
use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use windfall_core::worker::MEMORY;

/// Carries the submitting terminal's umask, in octal, to the program's start.
pub const UMASK: &str = "WINDFALL_UMASK";

/// Carries the control group that a program belongs in to its start.
pub(crate) const GROUP: &str = "WINDFALL_GROUP";

/// The running binary, also after its file was replaced by a newer build.
const SELF: &str = "/proc/self/exe";

/// Starts guard and agent in a lease's folder and returns when the agent listens. With an account, which root alone can
/// give, nothing of the folder is touched before this process has become that.
pub fn launch(dir: &Path, account: Option<&Account>, limits: Limits) -> Result<(), AgentError> {
    let mut has_memory = false;
    if let Ok(lease) = std::env::var("WINDFALL_LEASE") {
        // Where no group can be made, what the lease's processes carry in their environment tells them apart.
        let _ = cgroup::join(&lease);
        has_memory = limits.apply(&lease).memory;
    }
    limits::spare_no_more_than_others();
    if let Some(account) = account {
        account.assume()?;
    }
    if answers(dir) {
        return Ok(());
    }
    let log = File::options().create(true).append(true).open(dir.join("agent.log"));
    let log = log.map_err(AgentError::new("the agent's log cannot be written"))?;
    let err = log.try_clone().map_err(AgentError::new("the agent's log cannot be written"))?;
    let mut child = Command::new(SELF)
        .arg0("windfall")
        .args(["agent", "guard"])
        .arg(dir)
        .stdin(Stdio::null())
        .stdout(log)
        .stderr(err)
        .env_remove(MEMORY)
        .envs(has_memory.then(|| (MEMORY, limits.memory_bytes.to_string())))
        .spawn()
        .map_err(AgentError::new("the guard cannot be started"))?;
    let until = Instant::now() + Duration::from_secs(25);
    while !answers(dir) {
        if let Ok(Some(status)) = child.try_wait() {
            // Another guard may hold the folder: then its agent answers soon.
            if !status.success() {
                let why = std::io::Error::other(format!("the guard ended with {status}"));
                return Err(AgentError::new("the agent did not start")(why));
            }
        }
        if Instant::now() > until {
            return Err(AgentError::new("the agent does not answer")(std::io::ErrorKind::TimedOut.into()));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}

fn answers(dir: &Path) -> bool {
    let Ok(folder) = File::open(dir) else { return false };
    std::os::unix::net::UnixStream::connect(format!("/proc/self/fd/{}/agent.sock", folder.as_raw_fd())).is_ok()
}

/// Agents that one guard starts: the first, and each other in place of one that was killed while it sent what programs had left.
const MOST_AGENTS: u32 = 5;

/// Leads the lease's session, adopts every orphan below it, and ends them all when the agent ends. An agent that was killed
/// when no program ran any more, and something was still to be sent, has a successor.
pub fn guard(dir: &Path) -> Result<(), AgentError> {
    let failed = |what: &'static str| move |error: rustix::io::Errno| AgentError::new(what)(error.into());
    // Fails only for a process that leads its group already, which is as good.
    let _ = setsid();
    set_child_subreaper(Some(rustix::process::getpid())).map_err(failed("orphans cannot be adopted"))?;
    let lock = File::options().create(true).append(true).open(dir.join("agent.lock"));
    let lock = lock.map_err(AgentError::new("the lease's lock cannot be opened"))?;
    if lock.try_lock().is_err() {
        return Ok(());
    }
    // Who looks after the lease knows by it that an agent may still follow.
    std::fs::write(dir.join("guard.pid"), std::process::id().to_string())
        .map_err(AgentError::new("the lease's folder is not writable"))?;
    let memory = memory();
    for _ in 0..MOST_AGENTS {
        let given = || memory.as_ref().and_then(|memory| memory.try_clone().ok());
        let input = given().map_or_else(Stdio::null, Stdio::from);
        let agent = Command::new(SELF).arg0("windfall").args(["agent", "serve"]).arg(dir).stdin(input).spawn();
        let agent = agent.map_err(AgentError::new("the agent cannot be started"))?;
        let was_killed = was_killed(Pid::from_raw(agent.id() as i32));
        processes::end_descendants();
        if !was_killed || !Kept::in_file(given().map(File::from)).left().is_for_another() {
            break;
        }
    }
    Ok(())
}

/// Waits for the end of the agent, and tells whether it did not end by itself.
fn was_killed(agent: Option<Pid>) -> bool {
    loop {
        match wait(WaitOptions::empty()) {
            Ok(Some((pid, status))) if Some(pid) == agent => return status.terminating_signal().is_some(),
            Ok(_) => {}
            Err(rustix::io::Errno::INTR) => {}
            Err(_) => return false,
        }
    }
}

/// Becomes the user's program, bound to die when the agent dies. Returns only on failure.
pub fn exec_worker(command: &[String]) -> AgentError {
    let parent = getppid();
    if let Err(error) = set_parent_process_death_signal(Some(Signal::KILL)) {
        return AgentError::new("the program cannot be bound to its agent")(error.into());
    }
    // The agent may have died before the line above took effect.
    if getppid() != parent {
        return AgentError::new("the agent is gone")(std::io::ErrorKind::BrokenPipe.into());
    }
    let Some((program, arguments)) = command.split_first() else {
        return AgentError::new("no command")(std::io::ErrorKind::InvalidInput.into());
    };
    // The server keeps its own files private; the program's are as the submitting terminal would make them.
    let umask = std::env::var(UMASK).ok().and_then(|text| u32::from_str_radix(&text, 8).ok());
    if let Some(umask) = umask {
        rustix::process::umask(rustix::fs::Mode::from_raw_mode(umask));
    }
    if let Some(group) = std::env::var_os(GROUP) {
        cgroup::enter(Path::new(&group));
    }
    limits::go_first();
    let error = Command::new(program).args(arguments).env_remove(UMASK).env_remove(GROUP).exec();
    AgentError::new(format!("{program} cannot be run"))(error)
}
