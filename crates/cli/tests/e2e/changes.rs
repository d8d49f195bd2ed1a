//! The machine sleeps, or the program is replaced by a newer one, while a job runs.

use super::processes::{self, Role};
use super::testbed::{Testbed, eventually, wait};
use super::witness::{Witness, check_ledger};
use rustix::process::Signal;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

const THIS: &[u8] = env!("CARGO_PKG_VERSION").as_bytes();

/// The same program under another version of the same length: a real binary, with the version that it
/// would tell changed in place.
fn as_version(testbed: &Testbed, version: &str) -> PathBuf {
    assert_eq!(version.len(), THIS.len(), "a version is replaced in place");
    let mut bytes = std::fs::read(env!("CARGO_BIN_EXE_windfall")).unwrap();
    let at: Vec<usize> = (0..bytes.len() - THIS.len()).filter(|at| bytes[*at..].starts_with(THIS)).collect();
    assert!(!at.is_empty(), "the program does not hold its version as text");
    for at in at {
        bytes[at..at + THIS.len()].copy_from_slice(version.as_bytes());
    }
    let folder = testbed.work.join(version);
    std::fs::create_dir(&folder).unwrap();
    let path = folder.join("windfall");
    std::fs::write(&path, bytes).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    path
}

fn with(testbed: &Testbed, program: &PathBuf, args: &[&str]) -> Command {
    let mut command = Command::new(program);
    command.args(args).current_dir(&testbed.work).stdin(std::process::Stdio::null());
    command.env("WINDFALL_HOME", &testbed.home).env("NO_COLOR", "1").env("WINDFALL_IDLE", "300");
    command
}

fn servers(testbed: &Testbed) -> Vec<i32> {
    let all = processes::of(&testbed.home).into_iter();
    all.filter(|process| process.role == Role::Server).map(|process| process.pid).collect()
}

#[test]
fn a_newer_client_replaces_an_older_server_and_the_worker_goes_on() {
    let testbed = Testbed::bare();
    let old = as_version(&testbed, "0.0.9");
    testbed.finish(with(&testbed, &old, &["up", "--market", "steady"])).ends_with(0);
    let before = servers(&testbed);
    let status = testbed.finish(with(&testbed, &old, &["status", "--json"])).ends_with(0).json();
    assert_eq!(status["server"]["version"], "0.0.9", "{status}");
    let witness = Witness::submit_with(&testbed, with(&testbed, &old, &[]), "elder", "plain");
    let run = witness.until_beats(&[]);
    testbed.run(&["jobs"]).ends_with(0);
    let status = testbed.run(&["status", "--json"]).ends_with(0).json();
    assert_eq!(status["server"]["version"], env!("CARGO_PKG_VERSION"), "{status}");
    let after = servers(&testbed);
    assert_eq!(after.len(), 1);
    assert_ne!(before, after, "another server");
    assert_eq!(testbed.until(witness.id, &["running"])["stints"], 1);
    assert_eq!(witness.alive().map(|run| run.pid), Some(run.pid), "the same process all along");
    let refused = testbed.finish(with(&testbed, &old, &["jobs"])).ends_with(5);
    assert!(refused.err.contains("newer") && refused.err.contains("hint:"), "{refused:?}");
    assert_eq!(servers(&testbed), after, "an older client leaves it alone");
    witness.finish();
    witness.check_over(&testbed);
    check_ledger(&testbed);
    testbed.leaves_nothing();
}

#[test]
fn a_newer_client_leaves_a_server_that_is_a_service_to_whoever_keeps_it() {
    let testbed = Testbed::bare();
    let old = as_version(&testbed, "0.0.9");
    let mut service = with(&testbed, &old, &["up", "--foreground", "--market", "steady"]);
    let mut service = service.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null()).spawn().unwrap();
    let status = || testbed.run(&["status", "--json"]).ends_with(0).json();
    eventually("it serves", || status()["running"] == true);
    let refused = testbed.run(&["jobs"]).ends_with(5);
    assert!(refused.err.contains("it is a service") && refused.err.contains("systemctl restart"), "{refused:?}");
    assert_eq!(status()["server"]["pid"], service.id(), "it goes on");
    let look = testbed.run(&["doctor", "--json"]).json();
    let server = look["checks"].as_array().unwrap().iter().find(|check| check["name"] == "server").unwrap().clone();
    assert!(server["state"] == "warning" && server["mend"] == "systemctl restart windfall-server", "{server}");
    processes::signal(service.id() as i32, Signal::TERM);
    assert_eq!(wait(&mut service), Some(0));
}

#[test]
fn a_machine_that_slept_goes_on_where_it_was() {
    let testbed = Testbed::steady();
    let witness = Witness::submit(&testbed, "sleeper", "daemon");
    let run = witness.until_beats(&[]);
    let everyone: Vec<i32> = processes::of(&testbed.home).iter().map(|process| process.pid).collect();
    assert!(everyone.contains(&run.pid));
    everyone.iter().for_each(|pid| processes::signal(*pid, Signal::STOP));
    let beats = witness.runs()[0].beats;
    std::thread::sleep(Duration::from_secs(6));
    assert!(witness.runs()[0].beats <= beats + 1, "nothing runs on a machine that sleeps");
    // They do not all wake up at once.
    for pid in &everyone {
        processes::signal(*pid, Signal::CONT);
        std::thread::sleep(Duration::from_millis(50));
    }
    eventually("it beats again", || witness.runs()[0].beats > beats + 10);
    let job = testbed.until(witness.id, &["running"]);
    assert_eq!((job["stints"].as_u64(), job["interruptions"].as_u64()), (Some(1), Some(0)), "{job}");
    assert_eq!(witness.alive().map(|run| run.pid), Some(run.pid));
    witness.finish();
    witness.check_over(&testbed);
    check_ledger(&testbed);
    testbed.leaves_nothing();
}
