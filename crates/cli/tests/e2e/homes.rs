//! State directories of every kind: odd names, other owners, full, read-only, damaged, newer, contested.

use super::processes::{self, Role};
use super::testbed::{LIMIT, Mount, Said, Testbed, eventually, in_python, is_root, python, wait, within};
use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const QUICK: &str = "name: quick\nrun: echo done\n";

/// Every file with its content, to see whether anything was touched. Logs and locks are not state.
fn picture(dir: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    let mut open = vec![dir.to_owned()];
    while let Some(dir) = open.pop() {
        for entry in std::fs::read_dir(&dir).unwrap().map(Result::unwrap) {
            let path = entry.path();
            let kind = entry.file_type().unwrap();
            if kind.is_dir() {
                open.push(path);
            } else if kind.is_file() && !["server.log", "server.lock"].contains(&entry.file_name().to_str().unwrap()) {
                // A server that was refused may still be ending: its side files go away between two looks.
                match std::fs::read(&path) {
                    Ok(bytes) => drop(found.insert(path, bytes)),
                    Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::NotFound, "{}: {error}", path.display()),
                }
            }
        }
    }
    found
}

fn sql(testbed: &Testbed, statement: &str) {
    let code = format!(
        "import sqlite3, sys; c = sqlite3.connect(sys.argv[1] + '/state.db'); c.execute('{statement}'); c.commit(); c.close()"
    );
    in_python(&code, &[&testbed.home]);
}

#[track_caller]
fn refused(said: Said, words: &[&str]) {
    let said = said.ends_with(5);
    assert!(said.err.starts_with("error: ") && said.err.contains("\nhint: "), "{said:?}");
    for word in words {
        assert!(said.err.contains(word), "no {word:?} in {said:?}");
    }
}

#[test]
fn a_long_name_and_one_with_spaces_work_like_any_other() {
    let long = format!("{}/{}", "a-folder-with-a-long-name".repeat(5), "and-another-inside-it".repeat(4));
    for name in [long.as_str(), "my state (old)/wind fall's \"home\""] {
        let testbed = Testbed::at(name);
        std::fs::create_dir_all(testbed.home.parent().unwrap()).unwrap();
        assert!(name.len() < 150 || testbed.home.as_os_str().len() > 150);
        testbed.write("quick.yaml", QUICK);
        testbed.run(&["run", "quick.yaml"]).ends_with(0);
        assert_eq!(testbed.run(&["logs", "quick"]).ends_with(0).out, "done\n");
        testbed.leaves_nothing();
    }
}

#[test]
fn of_eight_clients_that_start_at_once_one_starts_the_server() {
    let testbed = Testbed::bare();
    testbed.write("quick.yaml", QUICK);
    let spawn = |_| {
        let mut command = testbed.command(&["submit", "quick.yaml"]);
        command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap()
    };
    let mut children: Vec<_> = (0..8).map(spawn).collect();
    for child in &mut children {
        let code = wait(child);
        let mut said = String::new();
        std::io::Read::read_to_string(&mut child.stderr.take().unwrap(), &mut said).unwrap();
        assert_eq!(code, Some(0), "{said}");
    }
    let servers = || processes::of(&testbed.home).into_iter().filter(|process| process.role == Role::Server).count();
    eventually("the losers have left", || servers() == 1);
    assert_eq!(testbed.jobs().len(), 8);
    let log = std::fs::read_to_string(testbed.home.join("server.log")).unwrap();
    assert_eq!(log.matches("serves").count(), 1, "{log}");
    eventually("all are done", || testbed.jobs().iter().all(|job| job["state"] == "succeeded"));
}

#[test]
fn a_command_right_behind_down_starts_the_next_server() {
    let testbed = Testbed::steady();
    for _ in 0..10 {
        let mut down = testbed.command(&["down"]).stdout(Stdio::null()).spawn().unwrap();
        testbed.run(&["up"]).ends_with(0);
        assert_eq!(wait(&mut down), Some(0));
    }
}

/// A program of another user of this machine.
fn another_user(testbed: &Testbed, program: &str) -> Command {
    user(testbed, 65_534, program)
}

fn user(testbed: &Testbed, uid: u32, program: &str) -> Command {
    let mut command = Command::new("setpriv");
    command.args([format!("--reuid={uid}"), format!("--regid={uid}")]).args(["--clear-groups", program]);
    command.current_dir(&testbed.work).stdin(Stdio::null());
    command.env("WINDFALL_HOME", &testbed.home).env_remove("RUST_BACKTRACE").env("HOME", "/nonexistent");
    command
}

/// A steady testbed that others can pass through, and what another user is told there.
fn shared_place() -> (Testbed, impl Fn(&Testbed, &[&str]) -> Said) {
    let testbed = Testbed::steady();
    let job = testbed.write("quick.yaml", QUICK);
    for path in [testbed.work.as_path(), testbed.work.parent().unwrap()] {
        std::fs::set_permissions(path, PermissionsExt::from_mode(0o755)).unwrap();
    }
    std::fs::set_permissions(&job, PermissionsExt::from_mode(0o644)).unwrap();
    (testbed, |testbed: &Testbed, args: &[&str]| {
        let mut command = another_user(testbed, env!("CARGO_BIN_EXE_windfall"));
        command.args(args);
        testbed.finish(command)
    })
}

#[test]
fn another_user_sees_the_queue_and_can_neither_change_nor_read_what_is_not_theirs() {
    if !is_root("another_user_sees_the_queue_and_can_neither_change_nor_read_what_is_not_theirs") {
        return;
    }
    let (testbed, other) = shared_place();
    let id = testbed.submit("name: private\nenv: { TOKEN: hush }\nrun: 'echo secret; sleep 600'\n").to_string();
    testbed.until(id.parse().unwrap(), &["running"]);
    let queue = other(&testbed, &["jobs", "--json"]).ends_with(0).json();
    assert_eq!((&queue[0]["name"], &queue[0]["owner"]), (&"private".into(), &"root".into()), "{queue}");
    assert!(other(&testbed, &["status"]).ends_with(0).out.contains("private"));
    for forbidden in [
        &["cancel", &id][..],
        &["logs", &id],
        &["explain", &id],
        &["budget", &id, "5"],
        &["resume", &id],
        &["down"],
        &["down", "--cancel"],
        &["submit", "quick.yaml"],
        &["run", "quick.yaml"],
    ] {
        let said = other(&testbed, forbidden);
        assert!(said.code == Some(2) && said.err.contains("not allowed"), "{forbidden:?}: {said:?}");
        assert!(!said.out.contains("secret") && !said.out.contains("hush"), "{forbidden:?}: {said:?}");
    }
    // Of the ledger others see what they are charged, which is nothing here.
    let cost = |said: Said| said.ends_with(0).json()["total"]["cost_nanousd"].as_i64().unwrap();
    eventually("it has cost something", || cost(testbed.run(&["cost", "--json"])) > 0);
    assert_eq!(cost(other(&testbed, &["cost", "--json"])), 0);
    let refused = other(&testbed, &["cancel", &id]).err;
    assert!(refused.contains("not allowed to `nobody`: job 1 belongs to root\nhint: "), "{refused}");
    assert_eq!((&queue[0]["key"], &queue[0]["trouble"]), (&"".into(), &serde_json::Value::Null), "{queue}");
    // The files themselves are closed as well.
    for file in ["state.db", "server.log", "world.json", "jobs", "leases"] {
        let mut reads = another_user(&testbed, if file.contains('.') { "cat" } else { "ls" });
        reads.arg(testbed.home.join(file));
        assert_ne!(testbed.finish(reads).code, Some(0), "{file}");
    }
    assert_eq!(testbed.job(id.parse().unwrap())["state"], "running", "nothing was changed");
    testbed.run(&["cancel", &id]).ends_with(0);
}

#[test]
fn guests_cannot_crowd_out_whom_a_server_serves() {
    if !is_root("guests_cannot_crowd_out_whom_a_server_serves") {
        return;
    }
    let (testbed, _) = shared_place();
    // Says how many of its connections the server keeps open, and holds them until its input ends.
    let crowd = "import os, socket, sys, time\n\
                 os.setgroups([]); os.setgid(65534); os.setuid(65534)\n\
                 held = []\n\
                 for _ in range(300):\n    s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1]); held.append(s)\n\
                 time.sleep(1)\n\
                 kept = 0\n\
                 for s in held:\n    s.setblocking(False)\n    try:\n        kept += s.recv(1) != b''\n    except BlockingIOError:\n        kept += 1\n\
                 print(kept, flush=True)\nsys.stdin.read()\n";
    let mut command = Command::new(python());
    command.args(["-c", crowd]).arg(testbed.home.join("server.sock")).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut crowd = command.spawn().unwrap();
    let mut line = String::new();
    std::io::BufRead::read_line(&mut std::io::BufReader::new(crowd.stdout.as_mut().unwrap()), &mut line).unwrap();
    assert_eq!(line.trim(), "32");
    testbed.run(&["jobs"]).ends_with(0);
    let asks = |uid| {
        let mut asks = user(&testbed, uid, env!("CARGO_BIN_EXE_windfall"));
        asks.arg("jobs");
        testbed.finish(asks)
    };
    asks(65_533).ends_with(0);
    let full = asks(65_534).ends_with(5);
    assert!(full.err.contains("takes no more connections just now"), "{full:?}");
    drop(crowd.stdin.take());
    crowd.wait().unwrap();
    eventually("seats are free again", || asks(65_534).code == Some(0));
}

#[test]
fn a_directory_that_everybody_may_write_into_is_refused() {
    let testbed = Testbed::bare();
    std::fs::create_dir(&testbed.home).unwrap();
    std::fs::set_permissions(&testbed.home, PermissionsExt::from_mode(0o777)).unwrap();
    refused(testbed.run(&["up"]), &["everybody may write"]);
}

#[test]
fn another_user_starts_no_server_in_a_directory_that_is_not_theirs() {
    if !is_root("another_user_starts_no_server_in_a_directory_that_is_not_theirs") {
        return;
    }
    let (testbed, other) = shared_place();
    let before = picture(&testbed.home);
    testbed.run(&["down"]).ends_with(0);
    for args in [&["run", "quick.yaml"][..], &["jobs"], &["up"], &["nodes"]] {
        refused(other(&testbed, args), &["no server answers", "`root` starts it"]);
    }
    let after = picture(&testbed.home);
    assert!(
        before.keys().filter(|path| !path.to_string_lossy().contains("state.db-")).all(|path| after.contains_key(path))
    );
    testbed.run(&["up"]).ends_with(0);
    assert!(testbed.jobs().is_empty());
}

/// Everything is as it was. A server that refused may still be closing its files when its client has heard of it.
#[track_caller]
fn is_left_as(testbed: &Testbed, before: &BTreeMap<PathBuf, Vec<u8>>) {
    let mut touched = Vec::new();
    let same = within(LIMIT, || {
        let after = picture(&testbed.home);
        let all = after.keys().chain(before.keys()).cloned();
        touched = all.filter(|path| before.get(path) != after.get(path)).collect();
        touched.is_empty()
    });
    assert!(same, "touched: {touched:?}");
}

#[test]
fn a_newer_state_is_refused_and_left_as_it_is() {
    let testbed = Testbed::steady();
    testbed.write("quick.yaml", QUICK);
    testbed.run(&["run", "quick.yaml"]).ends_with(0);
    testbed.run(&["down"]).ends_with(0);
    sql(&testbed, "PRAGMA user_version = 9999");
    let before = picture(&testbed.home);
    for args in [&["jobs"][..], &["submit", "quick.yaml"], &["up"]] {
        refused(testbed.run(args), &["newer"]);
    }
    is_left_as(&testbed, &before);
    sql(&testbed, "PRAGMA user_version = 3");
    assert_eq!(testbed.jobs().len(), 1, "with the right version everything is there");
}

#[test]
fn a_damaged_state_is_refused_and_left_as_it_is() {
    let testbed = Testbed::steady();
    testbed.write("quick.yaml", QUICK);
    testbed.run(&["run", "quick.yaml"]).ends_with(0);
    testbed.run(&["down"]).ends_with(0);
    let db = testbed.home.join("state.db");
    let good = std::fs::read(&db).unwrap();
    let mut torn = good.clone();
    torn[4096..12_288].fill(0x5a);
    for damage in [b"this is no database, it is a poem about one, long enough to be looked at".to_vec(), torn] {
        std::fs::write(&db, &damage).unwrap();
        let before = picture(&testbed.home);
        for args in [&["jobs"][..], &["run", "quick.yaml"]] {
            refused(testbed.run(args), &["state"]);
        }
        is_left_as(&testbed, &before);
    }
    std::fs::write(&db, good).unwrap();
    assert_eq!(testbed.jobs().len(), 1);
}

#[test]
fn another_world_is_refused_in_a_directory_that_holds_one() {
    let testbed = Testbed::steady();
    let said = testbed.run(&["up", "--market", "aws-v100-us-west-2-2023"]).ends_with(2);
    assert!(said.err.contains("holds another world already"), "{said:?}");
    testbed.run(&["up", "--market", "steady", "--speed", "60"]).ends_with(0);
}

#[test]
fn a_world_that_cannot_be_leaves_nothing_behind() {
    let testbed = Testbed::bare();
    let wrong: [&[&str]; 6] = [
        &["up", "--from-hours", "1e300"],
        &["up", "--from-hours", "nan"],
        &["up", "--market", "no-such-market"],
        &["up", "--market", "aws-v100-us-west-2-2023", "--zones", "nowhere-1a"],
        &["up", "--store", "postgres://nobody@127.0.0.1:1/none"],
        &["up", "--store", "carrier-pigeon://loft"],
    ];
    for args in wrong {
        let said = testbed.run(args).ends_with(2);
        assert!(said.err.starts_with("error: ") && said.err.contains("\nhint: "), "{said:?}");
        assert!(!testbed.home.exists(), "{args:?} left something behind");
    }
    testbed.run(&["up"]).ends_with(0);
}

#[test]
fn of_ten_racing_worlds_only_the_one_that_stands_is_greeted() {
    let testbed = Testbed::bare();
    let markets = ["steady", "aws-v100-us-west-2-2023"];
    let start = |turn: usize| {
        let mut command = testbed.command(&["up", "--market", markets[turn % 2]]);
        command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
    };
    let children: Vec<_> = (0..10).map(start).collect();
    let codes: Vec<_> = children.into_iter().map(|mut child| wait(&mut child)).collect();
    let world: serde_json::Value =
        serde_json::from_slice(&std::fs::read(testbed.home.join("world.json")).unwrap()).unwrap();
    for (turn, code) in codes.iter().enumerate() {
        let stands = world["replay"]["market"] == markets[turn % 2];
        assert_eq!(*code, Some(if stands { 0 } else { 2 }), "{codes:?}, and {world} stands");
    }
}

#[test]
fn a_read_only_directory_is_refused_with_a_reason() {
    let testbed = Testbed::steady();
    testbed.write("quick.yaml", QUICK);
    testbed.run(&["run", "quick.yaml"]).ends_with(0);
    testbed.run(&["down"]).ends_with(0);
    let before = picture(&testbed.home);
    let args = [&["jobs"][..], &["run", "quick.yaml"], &["up"]];
    if rustix::process::geteuid().is_root() {
        let home = testbed.home.display().to_string();
        let _mount = Mount::new(&testbed.home, &["--bind", &home]);
        let status = Command::new("mount").args(["-o", "remount,ro,bind", &home]).status().unwrap();
        assert!(status.success());
        for args in args {
            refused(testbed.run(args), &[&home]);
        }
    } else {
        std::fs::set_permissions(&testbed.home, PermissionsExt::from_mode(0o500)).unwrap();
        for args in args {
            refused(testbed.run(args), &[]);
        }
        std::fs::set_permissions(&testbed.home, PermissionsExt::from_mode(0o700)).unwrap();
    }
    is_left_as(&testbed, &before);
    assert_eq!(testbed.jobs().len(), 1);
}

#[test]
fn a_full_disk_loses_nothing_and_work_goes_on_when_there_is_room() {
    if !is_root("a_full_disk_loses_nothing_and_work_goes_on_when_there_is_room") {
        return;
    }
    let testbed = Testbed::bare();
    let disk = Mount::new(&testbed.home, &["-t", "tmpfs", "-o", "size=4m,mode=700", "tmpfs"]);
    testbed.run(&["up", "--market", "steady", "--speed", "60"]).ends_with(0);
    let quiet = format!("name: quiet\nrun: while [ ! -e {}/finish ]; do sleep 0.1; done\n", testbed.work.display());
    let id = testbed.submit(&quiet);
    testbed.until(id, &["running"]);
    testbed.write("quick.yaml", QUICK);
    disk.fill();
    refused(testbed.run(&["submit", "quick.yaml"]), &["space"]);
    assert_eq!(testbed.jobs().len(), 1, "what was refused is not half there");
    assert_eq!(testbed.job(id)["state"], "running");
    // The worst: the program ends and the server dies while nothing can be written.
    testbed.write("finish", "");
    let ballast = disk.fill();
    for process in processes::of(&testbed.home).iter().filter(|process| process.role == Role::Server) {
        processes::signal(process.pid, rustix::process::Signal::KILL);
    }
    let said = testbed.run(&["jobs", "--json"]);
    assert!(said.code == Some(5) || said.code == Some(0), "{said:?}");
    std::fs::remove_file(&ballast).unwrap();
    assert_eq!(testbed.until(id, &["succeeded", "failed", "cancelled", "stopped"])["state"], "succeeded");
    testbed.run(&["run", "quick.yaml"]).ends_with(0);
    super::witness::check_ledger(&testbed);
    testbed.leaves_nothing();
}

#[test]
fn a_server_whose_socket_is_removed_is_found_again() {
    let testbed = Testbed::steady();
    testbed.write("quick.yaml", QUICK);
    testbed.run(&["submit", "quick.yaml"]).ends_with(0);
    let servers = || processes::of(&testbed.home).into_iter().filter(|process| process.role == Role::Server);
    let before: Vec<_> = servers().map(|process| process.pid).collect();
    std::fs::remove_file(testbed.home.join("server.sock")).unwrap();
    testbed.run(&["submit", "quick.yaml"]).ends_with(0);
    assert_eq!(servers().map(|process| process.pid).collect::<Vec<_>>(), before, "the same server answers");
    testbed.leaves_nothing();
}

#[test]
fn a_database_that_is_removed_under_a_server_loses_no_accepted_job() {
    let testbed = Testbed::steady();
    testbed.write("wait.yaml", "name: wait\nrun: sleep 600\n");
    for name in ["before", "after"] {
        testbed.write(&format!("{name}.yaml"), &QUICK.replace("quick", name));
    }
    testbed.run(&["submit", "wait.yaml"]).ends_with(0);
    testbed.run(&["submit", "before.yaml"]).ends_with(0);
    for file in ["state.db", "state.db-wal", "state.db-shm"] {
        std::fs::remove_file(testbed.home.join(file)).unwrap();
    }
    testbed.run(&["submit", "after.yaml"]).ends_with(0);
    eventually("both have ended well", || {
        let said = testbed.run(&["jobs", "--all", "--json"]).ends_with(0).out;
        let jobs: serde_json::Value = serde_json::from_str(&said).unwrap();
        let well = |name: &str| {
            let of_name = jobs.as_array().unwrap().iter().find(|job| job["name"] == name);
            of_name.is_some_and(|job| job["state"] == "succeeded")
        };
        well("before") && well("after")
    });
    let log = std::fs::read_to_string(testbed.home.join("server.log")).unwrap();
    assert!(log.contains("what it held was put back"), "{log}");
    testbed.run(&["cancel", "wait"]).ends_with(0);
    testbed.leaves_nothing();
}
