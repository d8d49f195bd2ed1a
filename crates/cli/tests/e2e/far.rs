//! Another machine, as near as one computer comes to it: a network, a process table, a disk and a user of its own. Needs
//! root; everything of it goes away with the test.

use super::processes::{self, Process};
use super::testbed::{Testbed, eventually, wait};
use rustix::process::Signal;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

/// Who the agent of a first machine is, of a second the next, and so on: nobody on this computer.
const USERS: u32 = 54_321;
/// What all machines of a test see, and this computer.
pub const SHARED: &str = "/var/tmp";

pub struct Far {
    name: String,
    /// Who its agent is, by number.
    pub user: String,
    /// This computer's end of the wire between them.
    wire: String,
    /// This computer's address on it.
    pub server: String,
    /// Where the machine keeps what it has: hidden from this computer, and this computer's home from it.
    disk: PathBuf,
    /// The shell that holds the machine's namespaces.
    init: Child,
    agent: Option<Child>,
    /// What its agent is started with.
    pub program: PathBuf,
}

fn run(program: &str, args: &[&str]) {
    let said = Command::new(program).args(args).output().unwrap();
    assert!(said.status.success(), "{program} {args:?}: {}", String::from_utf8_lossy(&said.stderr));
}

fn child_of(pid: u32) -> Option<u32> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).ok()?;
    text.split_whitespace().next()?.parse().ok()
}

impl Far {
    /// A machine that sees nothing of the testbed but this copy of its working folder, and of nobody's temporary files.
    pub fn new(testbed: &Testbed) -> Far {
        static NEXT: AtomicU32 = AtomicU32::new(1);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let pid = std::process::id();
        let name = format!("wf{pid}-{number}");
        let (wire, there) = (format!("wf{}h{number}", pid % 100_000), format!("wf{}n{number}", pid % 100_000));
        let net = format!("10.{}.{}", 64 + pid % 128, number % 256);
        run("ip", &["netns", "add", &name]);
        run("ip", &["link", "add", &wire, "type", "veth", "peer", "name", &there, "netns", &name]);
        run("ip", &["addr", "add", &format!("{net}.1/24"), "dev", &wire]);
        run("ip", &["link", "set", &wire, "up"]);
        run("ip", &["-n", &name, "addr", "add", &format!("{net}.2/24"), "dev", &there]);
        run("ip", &["-n", &name, "link", "set", &there, "up"]);
        run("ip", &["-n", &name, "link", "set", "lo", "up"]);
        let root = testbed.work.parent().unwrap();
        let disk = root.join("far");
        let user = (USERS + number).to_string();
        let program: PathBuf = env!("CARGO_BIN_EXE_windfall").into();
        let folder = program.parent().unwrap();
        // A disk of its own lies over everything of the testbed; only the working folder has a namesake on it.
        let script = format!(
            "echo {name} > /proc/sys/kernel/hostname && mount --make-rprivate / && mount -t tmpfs -o mode=1777 tmpfs /dev/shm && \
             mkdir /dev/shm/tmp /dev/shm/bin && chmod 1777 /dev/shm/tmp && mount --bind {folder} /dev/shm/bin && \
             mount --bind /dev/shm/tmp {tmp} && mkdir -p {root} {folder} && \
             {{ [ -e {program} ] || mount --bind /dev/shm/bin {folder}; }} && umount /dev/shm/bin && \
             mount -t tmpfs -o mode=755 tmpfs {root} && mkdir -p {work} {disk} && \
             chown {user} {work} {disk} && echo ready && exec sleep 100000",
            root = root.display(),
            tmp = std::env::temp_dir().display(),
            folder = folder.display(),
            program = program.display(),
            work = testbed.work.display(),
            disk = disk.display(),
        );
        let mut init = Command::new("ip");
        init.args([
            "netns",
            "exec",
            &name,
            "unshare",
            "--mount",
            "--uts",
            "--pid",
            "--fork",
            "--mount-proc",
            "--kill-child",
        ]);
        init.args(["sh", "-c", &script]).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut init = init.spawn().unwrap();
        let mut said = [0; 5];
        std::io::Read::read_exact(init.stdout.as_mut().unwrap(), &mut said).unwrap();
        assert_eq!(&said, b"ready");
        Far { name, user, wire, server: format!("{net}.1"), disk, init, agent: None, program }
    }

    /// The machine's address.
    pub fn address(&self) -> String {
        let net = self.server.strip_suffix(".1").expect("the first address");
        format!("{net}.2")
    }

    /// A wire between two machines, on which each reaches the other by its address.
    pub fn connect(&self, other: &Far) {
        let names = [&other.name, &self.name].map(|name| format!("to{}", name.rsplit('-').next().unwrap_or_default()));
        let [here, there] = &names;
        run(
            "ip",
            &["-n", &self.name, "link", "add", here, "type", "veth", "peer", "name", there, "netns", &other.name],
        );
        for (far, end, to) in [(self, here, other), (other, there, self)] {
            run("ip", &["-n", &far.name, "link", "set", end, "up"]);
            run(
                "ip",
                &["-n", &far.name, "route", "add", &format!("{}/32", to.address()), "dev", end, "src", &far.address()],
            );
        }
    }

    /// A process inside the machine's namespaces: the first one that `unshare` made.
    fn inside(&self) -> String {
        child_of(self.init.id()).unwrap_or(self.init.id()).to_string()
    }

    /// A command on the machine, as its user.
    pub fn command(&self, program: &str, args: &[&str]) -> Command {
        let mut command = Command::new("nsenter");
        command.args(["--target", &self.inside(), "--mount", "--uts", "--pid", "--net"]);
        command.args(["setpriv", "--reuid", &self.user, "--regid", &self.user, "--clear-groups", program]).args(args);
        command.stdin(Stdio::null()).env("HOME", &self.disk).env_remove("WINDFALL_HOME");
        command
    }

    /// What a shell line says there.
    pub fn says(&self, line: &str) -> String {
        let said = self.command("sh", &["-c", line]).output().unwrap();
        String::from_utf8_lossy(&said.stdout).trim().to_owned()
    }

    /// Writes a file there.
    pub fn write(&self, path: &Path, text: &str) {
        let mut child = self.command("sh", &["-c", &format!("cat > {}", path.display())]);
        let mut child = child.stdin(Stdio::piped()).spawn().unwrap();
        std::io::Write::write_all(child.stdin.as_mut().unwrap(), text.as_bytes()).unwrap();
        assert!(child.wait().unwrap().success());
    }

    /// The agent as it joins with these words, to its end; with a state of its own unless they say which.
    pub fn try_to_join(&self, args: &[&str]) -> (Option<i32>, String) {
        let state = self.disk.join("tried").display().to_string();
        let of_its_own = ["--state", &state].into_iter().filter(|_| !args.contains(&"--state"));
        // One that is let in does not end by itself.
        let first = ["60", env!("CARGO_BIN_EXE_windfall"), "agent", "join"].into_iter();
        let words: Vec<&str> = first.chain(of_its_own).chain(args.iter().copied()).collect();
        let said = self.command("timeout", &words).output().unwrap();
        (said.status.code(), String::from_utf8_lossy(&said.stderr).into_owned())
    }

    /// Starts the agent: with a token it joins, without one it goes on.
    pub fn start_agent(&mut self, port: u16, token: Option<&str>) {
        self.start_agent_with(port, token, &["--accelerators", "H200:2"], &[]);
    }

    /// The same with other words, and variables of its own.
    pub fn start_agent_with(&mut self, port: u16, token: Option<&str>, words: &[&str], variables: &[(&str, &Path)]) {
        let (server, state) = (format!("{}:{port}", self.server), self.state().display().to_string());
        // Variables are for the agent alone, not for who becomes it.
        let variables: Vec<String> =
            variables.iter().map(|(name, value)| format!("{name}={}", value.display())).collect();
        let mut args: Vec<&str> = variables.iter().map(String::as_str).collect();
        let program = self.program.display().to_string();
        args.extend([&*program, "agent", "join", &server, "--state", &state]);
        args.extend(words);
        args.extend(token.iter().flat_map(|token| ["--token", token]));
        let mut agent = self.command("env", &args);
        let log = std::fs::File::options().create(true).append(true).open(self.log()).unwrap();
        self.agent = Some(agent.stdout(log.try_clone().unwrap()).stderr(log).spawn().unwrap());
    }

    /// The folder of its user, as the machine sees it.
    pub fn disk(&self) -> &Path {
        &self.disk
    }

    /// The agent's state directory, as the machine sees it.
    pub fn state(&self) -> PathBuf {
        self.disk.join("state")
    }

    /// Runs a shell line there as root.
    pub fn as_root(&self, line: &str) {
        run("nsenter", &["--target", &self.inside(), "--mount", "--uts", "--pid", "--net", "sh", "-ec", line]);
    }

    fn log(&self) -> PathBuf {
        self.disk.with_file_name(format!("{}.log", self.name))
    }

    /// What the agent has said.
    pub fn said(&self) -> String {
        std::fs::read_to_string(self.log()).unwrap_or_default()
    }

    /// Kills the agent of the machine, and nobody else there.
    pub fn kill_agent(&mut self) {
        if let Some(mut agent) = self.agent.take() {
            // What was started only waits for the agent.
            let inside = child_of(agent.id()).unwrap_or(agent.id());
            processes::signal(inside as i32, Signal::KILL);
            let _ = agent.wait();
        }
    }

    /// Tells the agent of the machine to end, as its service manager does, and gives its exit code.
    pub fn stop_agent(&mut self) -> Option<i32> {
        let mut agent = self.agent.take()?;
        let inside = child_of(agent.id()).unwrap_or(agent.id());
        processes::signal(inside as i32, Signal::TERM);
        wait(&mut agent)
    }

    /// Cuts the wire, or mends it.
    pub fn cut(&self, is_cut: bool) {
        run("ip", &["link", "set", &self.wire, if is_cut { "down" } else { "up" }]);
    }

    /// From now on the machine sends no more than this in a second.
    pub fn slow_down(&self, rate: &str) {
        let limit = ["root", "tbf", "rate", rate, "burst", "64kb", "latency", "1s"];
        let there = self.wire.replacen('h', "n", 1);
        run("tc", &[&["-n", &self.name, "qdisc", "add", "dev", &there], &limit[..]].concat());
    }

    /// What runs there, as this computer sees it, but for the shell that holds the machine and whoever looks into it.
    pub fn processes(&self) -> Vec<Process> {
        let inside = self.inside();
        let namespace = std::fs::read_link(format!("/proc/{inside}/ns/net")).unwrap();
        let of_the_machine = [self.init.id(), inside.parse().unwrap()].map(|pid| pid as i32);
        let table = |pid: i32| std::fs::read_link(format!("/proc/{pid}/ns/pid")).ok();
        let own = table(of_the_machine[1]);
        let is_guest = |pid: i32| !of_the_machine.contains(&pid) && table(pid) == own;
        processes::in_network(&namespace).into_iter().filter(|process| is_guest(process.pid)).collect()
    }

    /// Programs of a job that run there, as this computer sees them.
    pub fn programs(&self, job: u64) -> Vec<i32> {
        self.processes().iter().filter(|process| process.job == Some(job)).map(|process| process.pid).collect()
    }

    /// The power fails: everything there ends in one moment, and nothing is told. What is on its disk stays.
    pub fn lose_power(&mut self) {
        eventually("nothing runs without power", || {
            let left = self.processes();
            left.iter().for_each(|process| processes::signal(process.pid, Signal::KILL));
            left.is_empty()
        });
        self.kill_agent();
    }

    /// Waits until nothing of a job runs there.
    pub fn until_quiet(&self, job: u64) {
        eventually("nothing of the job runs on the machine", || self.programs(job).is_empty());
    }
}

impl Drop for Far {
    fn drop(&mut self) {
        self.kill_agent();
        // With the first process of its namespace everything in it ends.
        if let Ok(inside) = self.inside().parse() {
            processes::signal(inside, Signal::KILL);
        }
        let _ = self.init.wait();
        let _ = Command::new("ip").args(["link", "del", &self.wire]).output();
        let _ = Command::new("ip").args(["netns", "del", &self.name]).output();
    }
}
