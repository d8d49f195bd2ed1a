//! People of a machine: accounts that only a server, or an agent, of one test knows, each with a folder of their own. Needs
//! root; nothing of it is outside the test's own folder and mounts.

use super::testbed::{Said, Testbed, eventually};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

/// Somebody with an account, whose number is another one in every test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Person {
    pub name: &'static str,
    number: u32,
}

pub const ADA: Person = Person { name: "ada", number: 1 };
pub const BOB: Person = Person { name: "bob", number: 2 };
/// Known to servers, and to no node.
pub const CAROL: Person = Person { name: "carol", number: 3 };
/// The account of a node's operator for people whom it does not know.
pub const SPARE: Person = Person { name: "spare", number: 4 };

/// The interpreter that every user can run.
pub const PYTHON: &str = "/usr/bin/python3";

pub struct People {
    pub testbed: Testbed,
    /// What the numbers of its accounts begin from.
    first: u32,
    agents: Vec<Child>,
    group: Option<PathBuf>,
}

impl People {
    pub fn new() -> People {
        let testbed = Testbed::bare();
        let root = testbed.work.parent().unwrap().to_owned();
        for folder in [&root, &testbed.work] {
            std::fs::set_permissions(folder, PermissionsExt::from_mode(0o755)).unwrap();
        }
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let first = 1_000_000_000 + std::process::id() * 100 + NEXT.fetch_add(10, Ordering::Relaxed) % 100;
        let people = People { testbed, first, agents: Vec::new(), group: None };
        for person in [ADA, BOB, CAROL] {
            let folder = people.folder(person);
            std::fs::create_dir(&folder).unwrap();
            std::fs::set_permissions(&folder, PermissionsExt::from_mode(0o700)).unwrap();
            chown(&folder, Some(people.uid(person)), Some(people.uid(person))).unwrap();
        }
        people.write_accounts("server", &[ADA, BOB, CAROL]);
        people.write_accounts("node", &[ADA, BOB, SPARE]);
        people
    }

    /// The number of somebody's account.
    pub fn uid(&self, person: Person) -> u32 {
        self.first + person.number
    }

    /// A group that Ada is in besides her own.
    pub fn group_of_ada(&self) -> u32 {
        self.first
    }

    /// Everything alive that is somebody's.
    pub fn processes_of(&self, person: Person) -> Vec<i32> {
        let entries = std::fs::read_dir("/proc").unwrap().flatten();
        let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        let is_theirs = |pid: &i32| uid_of(*pid) == Some(self.uid(person)) && super::processes::is_running(*pid);
        pids.filter(is_theirs).collect()
    }

    pub fn root(&self) -> &Path {
        self.testbed.work.parent().unwrap()
    }

    /// Where somebody works; closed to others.
    pub fn folder(&self, person: Person) -> PathBuf {
        self.testbed.work.join(person.name)
    }

    /// Lists of accounts as a machine has them: this computer's, and these people.
    fn write_accounts(&self, of: &str, people: &[Person]) {
        let (mut accounts, mut groups) =
            ["/etc/passwd", "/etc/group"].map(|file| std::fs::read_to_string(file).unwrap()).into();
        for person in people {
            let (name, uid) = (person.name, self.uid(*person));
            accounts.push_str(&format!("{name}:x:{uid}:{uid}::{}:/bin/sh\n", self.testbed.work.join(name).display()));
            groups.push_str(&format!("{name}:x:{uid}:\n"));
        }
        groups.push_str(&format!("wf-accelerators:x:{}:ada\n", self.first));
        for (kind, text) in [("passwd", accounts), ("group", groups)] {
            std::fs::write(self.root().join(format!("{of}.{kind}")), text).unwrap();
        }
    }

    /// A command of root's that sees those accounts, in a control group of its own where groups of leases are made below it.
    fn with_accounts(&self, of: &str, args: &[&str]) -> Command {
        let mut command = Command::new("unshare");
        let script = "mount --bind $1.passwd /etc/passwd; mount --bind $1.group /etc/group; shift; \
                      if [ -n \"$GROUP\" ]; then echo $$ > $GROUP/cgroup.procs; fi; exec \"$@\"";
        command.args(["--mount", "sh", "-ec", script, "sh"]).arg(self.root().join(of)).args(args);
        command.current_dir("/").stdin(Stdio::null()).env("WINDFALL_HOME", &self.testbed.home).env("NO_COLOR", "1");
        command.env("WINDFALL_IDLE", "300").env_remove("WINDFALL_CONFIG").env_remove("RUST_BACKTRACE");
        command.env("GROUP", self.group.as_deref().unwrap_or(Path::new("")));
        command
    }

    /// Starts a server of root's.
    pub fn up(&mut self, args: &[&str]) {
        // Version 2 keeps nobody to anything in a group that others are in too.
        let all = Path::new("/sys/fs/cgroup");
        if all.join("cgroup.controllers").exists() {
            let group = all.join(format!("e2e-{}-{}", std::process::id(), self.root().file_name().unwrap().display()));
            std::fs::create_dir(&group).unwrap();
            self.group = Some(group);
        }
        let up = self.with_accounts("server", &[&[env!("CARGO_BIN_EXE_windfall"), "up"], args].concat());
        self.testbed.finish(up).ends_with(0);
    }

    /// Starts an agent of root's by which this computer is a node too.
    pub fn start_agent(&mut self, port: u16, args: &[&str]) {
        let (server, state) = (format!("127.0.0.1:{port}"), self.node().display().to_string());
        let join = [env!("CARGO_BIN_EXE_windfall"), "agent", "join", &server, "--state", &state];
        let mut agent = self.with_accounts("node", &[&join, args].concat());
        let log = std::fs::File::options().create(true).append(true).open(self.root().join("agent.log")).unwrap();
        agent.env_remove("WINDFALL_HOME");
        self.agents.push(agent.stdout(log.try_clone().unwrap()).stderr(log).spawn().unwrap());
    }

    /// The state directory of that agent.
    pub fn node(&self) -> PathBuf {
        self.root().join("node")
    }

    /// Ends the agent as its service manager would. What it started goes on.
    pub fn stop_agent(&mut self) {
        for mut agent in self.agents.drain(..) {
            super::processes::signal(agent.id() as i32, rustix::process::Signal::TERM);
            super::testbed::wait(&mut agent);
        }
    }

    /// A command of somebody's.
    pub fn command(&self, person: Person, program: &str, args: &[&str]) -> Command {
        let mut command = Command::new("setpriv");
        let uid = self.uid(person).to_string();
        command.args(["--reuid", &uid, "--regid", &uid, "--clear-groups", program]).args(args);
        command.current_dir(self.folder(person)).stdin(Stdio::null()).env("HOME", self.folder(person));
        command.env("WINDFALL_HOME", &self.testbed.home).env("NO_COLOR", "1").env_remove("RUST_BACKTRACE");
        command.env("PATH", "/usr/bin:/bin").env_remove("WINDFALL_CONFIG");
        command
    }

    /// What windfall says to somebody.
    pub fn run(&self, person: Person, args: &[&str]) -> Said {
        self.testbed.finish(self.command(person, env!("CARGO_BIN_EXE_windfall"), args))
    }

    /// Somebody's job from a job file's text.
    pub fn submit(&self, person: Person, text: &str) -> u64 {
        let file = self.folder(person).join("job.yaml");
        std::fs::write(&file, text).unwrap();
        chown(&file, Some(self.uid(person)), Some(self.uid(person))).unwrap();
        self.run(person, &["submit", "--json", "job.yaml"]).ends_with(0).json()["id"].as_u64().unwrap()
    }

    /// What somebody's job has printed, as they are told.
    pub fn logs(&self, person: Person, id: u64) -> String {
        self.run(person, &["logs", &id.to_string()]).ends_with(0).out
    }

    /// Waits until a job has printed something.
    pub fn until_says(&self, person: Person, id: u64, words: &str) -> String {
        eventually(&format!("job {id} says: {words}"), || self.logs(person, id).contains(words));
        self.logs(person, id)
    }

    /// A file of somebody's.
    pub fn write(&self, person: Person, name: &str, text: &str) -> PathBuf {
        let path = self.folder(person).join(name);
        std::fs::write(&path, text).unwrap();
        chown(&path, Some(self.uid(person)), Some(self.uid(person))).unwrap();
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o600)).unwrap();
        path
    }

    /// A file that root alone can read.
    pub fn of_root(&self, name: &str, text: &str) -> PathBuf {
        let path = self.testbed.work.join(name);
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o600)).unwrap();
        path
    }
}

impl Drop for People {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("--- agent\n{}", std::fs::read_to_string(self.root().join("agent.log")).unwrap_or_default());
        }
        for mut agent in self.agents.drain(..) {
            let _ = agent.kill();
            let _ = agent.wait();
        }
        for person in [ADA, BOB, CAROL, SPARE] {
            self.processes_of(person)
                .into_iter()
                .for_each(|pid| super::processes::signal(pid, rustix::process::Signal::KILL));
        }
        super::processes::end(&self.node());
        let _ = Command::new(env!("CARGO_BIN_EXE_windfall"))
            .args(["down", "--cancel"])
            .env("WINDFALL_HOME", &self.testbed.home)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status();
        if let Some(group) = self.group.take() {
            let _ = std::fs::remove_dir(group.join("windfall-beside"));
            let _ = std::fs::remove_dir(group);
        }
    }
}

/// Whose a process is.
pub fn uid_of(pid: i32) -> Option<u32> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    status.lines().find_map(|line| line.strip_prefix("Uid:"))?.split_whitespace().next()?.parse().ok()
}

/// Every file below a folder, with whose it is. Links are not followed.
pub fn files_below(folder: &Path) -> Vec<(PathBuf, u32)> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let (path, Ok(meta)) = (entry.path(), entry.metadata()) else { continue };
        if meta.is_dir() {
            found.extend(files_below(&path));
        } else {
            found.push((path, meta.uid()));
        }
    }
    found
}
