//! The machine sleeps, or the program is replaced by a newer one, while a job runs.

use super::far::Far;
use super::nodes::{free_port, output, state_of};
use super::processes::{self, Role};
use super::testbed::{Testbed, eventually, is_root, wait};
use super::witness::{Witness, check_ledger};
use rustix::process::Signal;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

const THIS: &[u8] = env!("CARGO_PKG_VERSION").as_bytes();

/// The same program under another version of the same length: a real binary, with the version that it
/// would tell changed in place.
fn as_version(folder: &Path, version: &str) -> PathBuf {
    assert_eq!(version.len(), THIS.len(), "a version is replaced in place");
    let mut bytes = std::fs::read(env!("CARGO_BIN_EXE_windfall")).unwrap();
    let at: Vec<usize> = (0..bytes.len() - THIS.len()).filter(|at| bytes[*at..].starts_with(THIS)).collect();
    assert!(!at.is_empty(), "the program does not hold its version as text");
    for at in at {
        bytes[at..at + THIS.len()].copy_from_slice(version.as_bytes());
    }
    let folder = folder.join(version);
    std::fs::create_dir_all(&folder).unwrap();
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
    let old = as_version(&testbed.work, "0.0.9");
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
    let old = as_version(&testbed.work, "0.0.9");
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

#[test]
fn a_job_on_a_node_goes_on_while_its_server_and_then_its_agent_are_replaced_by_newer_ones() {
    if !is_root("a machine of its own") {
        return;
    }
    let (testbed, port) = (Testbed::bare(), free_port());
    // Where other machines find it, too.
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(std::process::id().to_string());
    let old = as_version(&folder, "0.0.9");
    testbed.finish(with(&testbed, &old, &["up", "--listen", &format!("0.0.0.0:{port}")])).ends_with(0);
    let token = testbed.finish(with(&testbed, &old, &["nodes", "token", "lab-1"])).ends_with(0).out.trim().to_owned();
    let mut far = Far::new(&testbed);
    far.program.clone_from(&old);
    far.start_agent(port, Some(&token));
    let build = || {
        let nodes = testbed.run(&["nodes", "--json"]).ends_with(0).json();
        nodes[0]["version"].as_str().map(str::to_owned)
    };
    let job = testbed.write("job.yaml", "name: elder\nresources: { accelerators: H200:1 }\nrun: |\n  echo begun\n  while [ ! -e end ]; do sleep 0.1; done\n");
    let submitted = testbed.finish(with(&testbed, &old, &["submit", job.to_str().unwrap(), "--json"])).ends_with(0);
    let id = submitted.json()["id"].as_u64().unwrap();
    eventually("its program runs", || !far.programs(id).is_empty());
    let programs = far.programs(id);

    // The newer client replaces the older server; the node's agent is an older one for a while.
    testbed.run(&["jobs"]).ends_with(0);
    let status = testbed.run(&["status", "--json"]).ends_with(0).json();
    assert_eq!(status["server"]["version"], env!("CARGO_PKG_VERSION"), "{status}");
    eventually("it is back", || state_of(&testbed, "lab-1").as_deref() == Some("ready"));
    assert_eq!(build().as_deref(), Some("0.0.9"));
    far.kill_agent();
    far.program = env!("CARGO_BIN_EXE_windfall").into();
    far.start_agent(port, None);
    eventually("it is a newer one", || build().as_deref() == Some(env!("CARGO_PKG_VERSION")));

    assert!(far.programs(id).iter().any(|pid| programs.contains(pid)), "the same program all the time");
    far.write(&testbed.work.join("end"), "");
    testbed.until(id, &["succeeded"]);
    assert_eq!(output(&testbed, id).matches("begun").count(), 1);
    testbed.run(&["down"]).ends_with(0);
    check_ledger(&testbed);
    testbed.leaves_nothing();
    std::fs::remove_dir_all(folder).unwrap();
}
