//! A real PostgreSQL under a running server: killed with -9, its connections cut, its lead taken by another server.
//! Nothing is lost, nothing is doubled, and workers do not notice.
//!
//! `WINDFALL_DATABASE_KILLS` says how often it is killed (6), `WINDFALL_SEED` when.

use super::processes::{self, Role};
use super::testbed::{Mount, Testbed, eventually, is_root};
use super::witness::Witness;
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// A database of this test's own, which it may kill.
struct Database {
    bin: PathBuf,
    folder: tempfile::TempDir,
    port: u16,
    child: Option<Child>,
}

impl Database {
    /// None, with a word, where PostgreSQL is not installed.
    fn new(test: &str) -> Option<Database> {
        Some(Database::within(installed(test)?, folder()))
    }

    fn within(bin: PathBuf, folder: tempfile::TempDir) -> Database {
        if rustix::process::geteuid().is_root() {
            // It refuses to run as root.
            let status = Command::new("chown").arg("postgres").arg(folder.path()).status().unwrap();
            assert!(status.success());
        }
        let port = TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap().port();
        let mut database = Database { bin, folder, port, child: None };
        let data = database.folder.path().join("data");
        let made = database.command("initdb").arg("-D").arg(&data).args(["-A", "trust", "-U", "app"]).output().unwrap();
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        database.start();
        database
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(if rustix::process::geteuid().is_root() { "setpriv" } else { "env" });
        if rustix::process::geteuid().is_root() {
            command.args(["--reuid=postgres", "--regid=postgres", "--clear-groups"]);
        }
        command.arg(self.bin.join(program)).current_dir("/").stdin(Stdio::null());
        command
    }

    fn start(&mut self) {
        let data = self.folder.path().join("data");
        eventually("PostgreSQL runs", || {
            let dead = self.child.as_mut().is_none_or(|child| !matches!(child.try_wait(), Ok(None)));
            if dead {
                let mut command = self.command("postgres");
                command.arg("-D").arg(&data).args(["-p", &self.port.to_string(), "-c", "listen_addresses=127.0.0.1"]);
                // Only processes die here, never the machine.
                command.args(["-c", "fsync=off", "-c", &format!("unix_socket_directories={}", data.display())]);
                self.child = Some(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
                std::thread::sleep(Duration::from_millis(100));
            }
            self.try_sql("SELECT 1").is_some()
        });
    }

    /// Kills it and every one of its processes in one moment.
    fn kill(&mut self) {
        let Some(mut child) = self.child.take() else { return };
        let main = child.id().to_string();
        let children = Command::new("pgrep").args(["-P", &main]).output().unwrap();
        let _ = child.kill();
        for pid in String::from_utf8_lossy(&children.stdout).lines().filter_map(|line| line.parse().ok()) {
            processes::signal(pid, rustix::process::Signal::KILL);
        }
        let _ = child.wait();
    }

    fn try_sql(&self, statement: &str) -> Option<String> {
        let mut psql = self.command("psql");
        psql.args(["-h", "127.0.0.1", "-p", &self.port.to_string(), "-U", "app", "-d", "postgres", "-Atqc", statement]);
        let said = psql.output().unwrap();
        said.status.success().then(|| String::from_utf8_lossy(&said.stdout).trim().to_owned())
    }

    fn sql(&self, statement: &str) -> String {
        self.try_sql(statement).unwrap_or_else(|| panic!("{statement}"))
    }

    /// Cuts every connection of a server.
    fn cut_connections(&self) {
        self.sql("SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE application_name = 'windfall'");
    }

    /// The ledger adds up to what each job says that it cost.
    fn check_ledger(&self, testbed: &Testbed) {
        for job in testbed.jobs() {
            let sum = format!("SELECT coalesce(sum(nanousd), 0) FROM windfall.ledger WHERE workload = {}", job["id"]);
            let sum: i64 = self.sql(&sum).parse().unwrap();
            assert_eq!(job["cost_nanousd"].as_i64(), Some(sum), "the ledger of job {} is off", job["id"]);
        }
    }

    fn address(&self) -> String {
        format!("postgres://app@127.0.0.1:{}/postgres", self.port)
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Where its programs are; none, with a word, where it is not installed.
fn installed(test: &str) -> Option<PathBuf> {
    let versions = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten();
    let bins = versions.filter_map(|entry| Some(entry.ok()?.path().join("bin")));
    let bin = bins.filter(|bin| bin.join("initdb").exists() && bin.join("psql").exists()).max();
    if bin.is_none() {
        println!("skipped: {test} (PostgreSQL is not under /usr/lib/postgresql)");
    }
    bin
}

fn folder() -> tempfile::TempDir {
    tempfile::Builder::new().prefix("windfall-database-").tempdir().unwrap()
}

fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

fn up(testbed: &Testbed, database: &Database) {
    testbed.run(&["up", "--market", "steady", "--speed", "60", "--store", &database.address()]).ends_with(0);
    // An address may hold a password, and everybody on a machine sees a program's arguments.
    for pid in server_pids(testbed) {
        let arguments = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        assert!(!String::from_utf8_lossy(&arguments).contains("postgres:"), "the server's arguments name its store");
    }
}

fn server_pids(testbed: &Testbed) -> Vec<i32> {
    let all = processes::of(&testbed.home).into_iter();
    all.filter(|process| process.role == Role::Server).map(|process| process.pid).collect()
}

/// What `status` says about the database.
fn away(testbed: &Testbed) -> bool {
    let said = testbed.run(&["status", "--json"]);
    said.code == Some(0) && !said.json()["server"]["database_away"].is_null()
}

/// Submits a small job until it is taken: a server that has just found its connection dead refuses the first.
fn submits_again(testbed: &Testbed, name: &str) {
    testbed.write("quick.yaml", &format!("name: {name}\nrun: echo done\n"));
    eventually("a job is taken again", || testbed.run(&["submit", "quick.yaml"]).code == Some(0));
}

#[test]
fn a_database_that_is_killed_again_and_again_costs_nothing() {
    let Some(mut database) = Database::new("a_database_that_is_killed_again_and_again_costs_nothing") else { return };
    let kills = setting("WINDFALL_DATABASE_KILLS", 6);
    let mut seed = setting("WINDFALL_SEED", 20_260_101);
    let mut dice = |n: u64| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) % n
    };
    let testbed = Testbed::bare();
    up(&testbed, &database);
    let jobs = [Witness::submit(&testbed, "first", "plain"), Witness::submit(&testbed, "second", "daemon")];
    let pids: Vec<i32> = jobs.iter().map(|job| job.until_beats(&[]).pid).collect();
    let servers = server_pids(&testbed);
    for round in 0..kills {
        std::thread::sleep(Duration::from_millis(dice(900)));
        if round % 3 == 2 {
            println!("{round:>3}: connections cut");
            database.cut_connections();
        } else {
            println!("{round:>3}: killed");
            database.kill();
            if round == 0 {
                eventually("status says that the database is away", || away(&testbed));
                let said = testbed.run(&["status"]).ends_with(0);
                assert!(said.out.contains("the database is away since"), "{said:?}");
                assert_eq!(testbed.run(&["jobs", "--json"]).ends_with(0).json().as_array().unwrap().len(), 2);
                testbed.write("quick.yaml", "name: refused\nrun: echo done\n");
                testbed.run(&["submit", "quick.yaml"]).ends_with(5);
            }
            std::thread::sleep(Duration::from_millis(dice(1_500)));
            database.start();
        }
        submits_again(&testbed, &format!("round-{round}"));
        eventually("the database is back", || !away(&testbed));
    }
    for (job, pid) in jobs.iter().zip(&pids) {
        assert_eq!(job.alive().map(|run| run.pid), Some(*pid), "the worker was kept");
    }
    assert_eq!(server_pids(&testbed), servers, "the server lived through it");
    jobs.iter().for_each(Witness::finish);
    for job in &jobs {
        job.check_over(&testbed);
        assert_eq!(job.runs().len(), 1, "one stint, every step once");
    }
    eventually("all jobs are over", || testbed.jobs().iter().all(|job| job["state"] == "succeeded"));
    let counted = database.sql("SELECT count(*), count(DISTINCT name) FROM windfall.jobs WHERE state = 'succeeded'");
    assert_eq!(counted, format!("{0}|{0}", 2 + kills), "none lost, none doubled");
    database.check_ledger(&testbed);
    let log = std::fs::read_to_string(testbed.home.join("server.log")).unwrap();
    let (away, back) = (log.matches("the database is away").count(), log.matches("the database is back").count());
    assert!(away == back && (1..=2 * kills as usize + 2).contains(&away), "said once for each outage: {log}");
    testbed.leaves_nothing();
}

/// A database without room ends itself, or refuses what is written; with room and started again it goes on.
#[test]
fn a_database_on_a_full_disk_costs_nothing() {
    let name = "a_database_on_a_full_disk_costs_nothing";
    let Some(bin) = installed(name).filter(|_| is_root(name)) else { return };
    let folder = folder();
    let disk = Mount::new(folder.path(), &["-t", "tmpfs", "-o", "size=160m", "tmpfs"]);
    let mut database = Database::within(bin, folder);
    let testbed = Testbed::bare();
    up(&testbed, &database);
    let job = Witness::submit(&testbed, "first", "plain");
    let pid = job.until_beats(&[]).pid;
    let servers = server_pids(&testbed);
    for round in 0..2 {
        let ballast = disk.fill();
        // What is written next needs a new file of the database's own log.
        let _ = database.try_sql("SELECT pg_switch_wal()");
        eventually("status says that the database is away", || {
            let _ = testbed.run(&["submit", "quick.yaml"]);
            away(&testbed)
        });
        std::fs::remove_file(&ballast).unwrap();
        database.start();
        submits_again(&testbed, &format!("round-{round}"));
        eventually("the database is back", || !away(&testbed));
    }
    assert_eq!(job.alive().map(|run| run.pid), Some(pid), "the worker was kept");
    assert_eq!(server_pids(&testbed), servers, "the server lived through it");
    job.finish();
    job.check_over(&testbed);
    eventually("all jobs are over", || testbed.jobs().iter().all(|job| job["state"] == "succeeded"));
    database.check_ledger(&testbed);
    testbed.leaves_nothing();
}

#[test]
fn a_server_whose_lead_was_taken_ends_itself_and_says_why() {
    let Some(database) = Database::new("a_server_whose_lead_was_taken_ends_itself_and_says_why") else { return };
    let (first, second) = (Testbed::bare(), Testbed::bare());
    up(&first, &database);
    let pids = server_pids(&first);
    // Another server can lead once the first one's connection is gone, if it is faster.
    eventually("the second server leads", || {
        database.cut_connections();
        let said = second.run(&["up", "--market", "steady", "--speed", "60", "--store", &database.address()]);
        said.code == Some(0)
    });
    // It learns of it when it writes.
    first.write("quick.yaml", "name: quick\nrun: echo done\n");
    let _ = first.command(&["submit", "quick.yaml"]).stdout(Stdio::null()).stderr(Stdio::null()).status();
    eventually("the first server is gone", || !pids.iter().any(|pid| processes::is_running(*pid)));
    let log = std::fs::read_to_string(first.home.join("server.log")).unwrap();
    assert!(log.contains("another server leads this store"), "{log}");
    second.run(&["jobs"]).ends_with(0);
}
