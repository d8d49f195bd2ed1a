//! The agent of a machine that has joined a server: whether it runs, reaches its server, and agrees with it on the time.

use super::state;
use crate::args::JoinArgs;
use crate::config::{file_in_use, join_with_file, of_agent, read};
use crate::here::{Here, agent_state};
use std::net::{TcpStream, ToSocketAddrs};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;
use windfall_core::Span;
use windfall_exec::Finding;
use windfall_exec::JoinedNode;

const CONNECT: Duration = Duration::from_secs(3);
/// Clocks further apart than this make logs hard to read together.
const APART_MS: u64 = 2_000;
/// Where the unit of the system keeps it.
const OF_SYSTEM: &str = "/var/lib/windfall-agent";

/// State directories of agents that may be on this machine.
fn candidates(here: &Here) -> Vec<PathBuf> {
    let file = file_in_use(None, Some(&here.home)).and_then(|path| read(&path).ok());
    let args = join_with_file(JoinArgs::default(), &of_agent(&JoinArgs::default(), file.as_ref()));
    let own = agent_state(args.state).ok();
    let mut all: Vec<PathBuf> = own.into_iter().chain([PathBuf::from(OF_SYSTEM)]).collect();
    all.dedup();
    all.into_iter().filter(|path| path.symlink_metadata().is_ok()).collect()
}

/// Every agent whose state is on this machine.
pub(super) fn agents(here: &Here) -> Vec<Finding> {
    let all = candidates(here);
    if all.is_empty() {
        return vec![Finding::ok("agent", "this machine has joined no server")];
    }
    all.iter().flat_map(|state| agent(state)).collect()
}

fn agent(state: &Path) -> Vec<Finding> {
    let name = "agent";
    let shown = state.display();
    let node = match JoinedNode::of(state) {
        Ok(Some(node)) => node,
        Ok(None) => {
            let says = format!("{shown} is of no server: it has not joined, or was removed");
            let mend = format!("windfall agent join HOST:PORT --token-file - --state {shown}");
            return vec![Finding::warning(name, says, mend)];
        }
        Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => {
            return vec![Finding::warning(
                name,
                format!("this user may not look into {shown}"),
                "sudo windfall doctor",
            )];
        }
        Err(error) => {
            let says = format!("{shown}: joined.json cannot be read: {error}");
            return vec![Finding::missing(
                name,
                says,
                format!("windfall agent join HOST:PORT --token-file - --state {shown}"),
            )];
        }
    };
    let whose = format!("node {} of {}", node.name, node.server);
    let agent = holder(&state.join("lock"));
    let mut found = vec![match agent {
        Some(pid) => Finding::ok(name, format!("{whose}, pid {pid}")),
        None => {
            let mend = format!("systemctl start windfall-agent  # or: windfall agent join --state {shown}");
            Finding::missing(name, format!("{whose}, but no agent runs"), mend)
        }
    }];
    found.extend(agent.map(programs));
    found.push(state::directory("agent dir", state));
    found.push(reach(&node));
    found.extend(node.server_ahead_ms.map(clocks));
    found
}

/// As whom an agent runs programs.
fn programs(agent: u32) -> Finding {
    match std::fs::metadata(format!("/proc/{agent}")).map(|meta| meta.uid()) {
        Ok(0) => Finding::ok("programs", "run as whoever submitted them"),
        Ok(uid) => {
            let user = windfall_server::name_of(uid);
            Finding::ok("programs", format!("all run as {user}, who can read what each of them leaves here"))
        }
        Err(_) => Finding::ok("programs", "nobody knows as whom they run: the agent has just ended"),
    }
}

/// Whether the server can be reached over the network from here.
fn reach(node: &JoinedNode) -> Finding {
    let name = "network";
    let heard =
        node.heard.map_or(String::new(), |heard| format!("; last heard {} ago", Span(heard.as_millis() as i64)));
    let host = node.server.rsplit_once(':').map_or(node.server.as_str(), |(host, _)| host);
    let Some(address) = node.server.to_socket_addrs().ok().and_then(|mut all| all.next()) else {
        return Finding::missing(name, format!("{host} has no address{heard}"), format!("getent hosts {host}"));
    };
    match TcpStream::connect_timeout(&address, CONNECT) {
        Ok(_) => Finding::ok(name, format!("{} answers{heard}", node.server)),
        Err(error) => {
            let says = format!("{} does not answer: {error}{heard}", node.server);
            Finding::missing(name, says, "windfall status  # on the server: is it up with --listen, and its port open?")
        }
    }
}

fn clocks(ahead_ms: i64) -> Finding {
    let apart = Span(i64::try_from(ahead_ms.unsigned_abs()).unwrap_or(i64::MAX));
    match ahead_ms.unsigned_abs() <= APART_MS {
        true => Finding::ok("clocks", "this machine and its server agree"),
        false => {
            let which = if ahead_ms > 0 { "behind" } else { "ahead of" };
            let says = format!("this machine was {apart} {which} its server when they last met");
            Finding::warning("clocks", says, "sudo timedatectl set-ntp true  # on both")
        }
    }
}

/// The process that has a file locked, by the kernel's list: to try the lock could keep an agent from starting.
fn holder(lock: &Path) -> Option<u32> {
    let meta = std::fs::metadata(lock).ok()?;
    let locks = std::fs::read_to_string("/proc/locks").ok()?;
    holder_in(&locks, meta.dev(), meta.ino())
}

fn holder_in(locks: &str, device: u64, inode: u64) -> Option<u32> {
    let place = format!("{:02x}:{:02x}:{inode}", rustix::fs::major(device), rustix::fs::minor(device));
    locks.lines().find_map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let at = words.iter().position(|word| *word == place)?;
        // One that only waits for it is marked with an arrow.
        if words.contains(&"->") { None } else { words.get(at.checked_sub(1)?)?.parse().ok() }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_holds_a_lock_is_told_from_who_waits_for_it() {
        let device = rustix::fs::makedev(0xfe, 0);
        let locks = "1: POSIX  ADVISORY  WRITE 7 fe:01:11 0 EOF\n2: -> FLOCK  ADVISORY  WRITE 8 fe:00:11 0 EOF\n\
                     3: FLOCK  ADVISORY  WRITE 9 fe:00:11 0 EOF\n";
        assert_eq!(holder_in(locks, device, 11), Some(9));
        assert_eq!(holder_in(locks, device, 12), None);
    }

    #[test]
    fn an_agent_that_does_not_run_and_a_server_that_is_not_there_are_missing() {
        let dir = tempfile::tempdir().expect("a folder");
        let states = |state: &Path| {
            let found = agent(state).into_iter();
            found.map(|one| format!("{} {}", one.name, one.state.word())).collect::<Vec<_>>()
        };
        assert_eq!(states(dir.path()), ["agent warning"], "it has not joined");
        let free = std::net::TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("an address");
        let joined = format!("{{\"server\":\"{free}\",\"key\":\"{}\",\"name\":\"gpu-1\"}}", "0".repeat(64));
        std::fs::write(dir.path().join("joined.json"), joined).expect("written");
        std::fs::write(dir.path().join("server-clock"), "-95000").expect("written");
        let found = states(dir.path());
        let expected = ["agent missing", "agent dir ok", "network missing", "clocks warning"];
        assert_eq!(found, expected);
        let lock = std::fs::File::create(dir.path().join("lock")).expect("made");
        lock.lock().expect("locked");
        assert_eq!(agent(dir.path())[0].says, format!("node gpu-1 of {free}, pid {}", std::process::id()));
        std::fs::write(dir.path().join("joined.json"), "nonsense").expect("written");
        assert_eq!(states(dir.path()), ["agent missing"]);
    }
}
