//! What a program finds when it runs, and what is left of it when it is over.

use super::processes;
use super::testbed::{Testbed, eventually, python, within};
use super::witness::Witness;
use serde_json::json;
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

#[test]
fn a_program_runs_in_the_folder_and_the_environment_of_its_submitter() {
    // The server was started from elsewhere, with another PATH.
    let testbed = Testbed::bare();
    let mut up = testbed.command(&["up", "--market", "steady", "--speed", "60"]);
    up.current_dir("/").env("PATH", "/usr/bin:/bin").env("FLAVOUR", "of the server").env_remove("VIRTUAL_ENV");
    testbed.finish(up).ends_with(0);
    let venv = testbed.work.join("venv");
    std::fs::create_dir_all(venv.join("bin")).unwrap();
    let tool = venv.join("bin/train");
    std::fs::write(&tool, "#!/bin/sh\necho trained in $PWD with $VIRTUAL_ENV, $FLAVOUR, $FROM_FILE, $WINDFALL_STINT\n")
        .unwrap();
    std::fs::set_permissions(&tool, PermissionsExt::from_mode(0o755)).unwrap();
    testbed.write("job.yaml", "name: venv\nenv: { FROM_FILE: set }\nrun: train\n");
    let mut run = testbed.command(&["run", "job.yaml"]);
    run.env("VIRTUAL_ENV", &venv).env("PATH", format!("{}:/usr/bin:/bin", venv.join("bin").display()));
    run.env("FLAVOUR", "of the terminal").env("WINDFALL_STINT", "an outer one");
    testbed.finish(run).ends_with(0);
    let expected = format!("trained in {} with {}, of the terminal, set, 1\n", testbed.work.display(), venv.display());
    assert_eq!(testbed.run(&["logs", "venv"]).ends_with(0).out, expected);
}

#[test]
fn a_real_virtual_environment_is_used() {
    let testbed = Testbed::steady();
    let venv = testbed.work.join("env");
    let made = std::process::Command::new(python()).args(["-m", "venv", "--without-pip"]).arg(&venv).status();
    if !made.is_ok_and(|status| status.success()) {
        println!("skipped: a_real_virtual_environment_is_used (this python cannot make virtual environments)");
        return;
    }
    testbed.write("job.yaml", "name: venv\nrun: python -c 'import sys; print(sys.prefix)'\n");
    let mut run = testbed.command(&["run", "job.yaml"]);
    run.env("VIRTUAL_ENV", &venv).env("PATH", format!("{}:/usr/bin:/bin", venv.join("bin").display()));
    testbed.finish(run).ends_with(0);
    assert_eq!(testbed.run(&["logs", "venv"]).out.trim(), venv.display().to_string());
}

#[test]
fn a_program_needs_neither_a_home_nor_a_user() {
    let testbed = Testbed::steady();
    testbed.write("job.yaml", "name: bare\nrun: echo ${HOME-none} ${WINDFALL_HOME-none}\n");
    let mut run = testbed.command(&["run", "job.yaml", "--home"]);
    run.arg(&testbed.home).env_clear().env("PATH", "/usr/bin:/bin");
    testbed.finish(run).ends_with(0);
    assert_eq!(testbed.run(&["logs", "bare"]).out, "none none\n");
}

#[test]
fn how_each_stint_ended_is_known_also_when_the_next_runs_on_the_same_machine() {
    let testbed = Testbed::steady();
    let job = "name: again\nretries: 3\nrun: 'echo x >> tries; test $(wc -l < tries) -ge 4'\n";
    let id = testbed.submit(job);
    testbed.until(id, &["succeeded"]);
    let folders = std::fs::read_dir(testbed.home.join("jobs")).unwrap();
    let evidence = folders.map(|entry| entry.unwrap().path().join("stints.jsonl")).find(|path| path.exists());
    let read = || std::fs::read_to_string(evidence.as_ref().unwrap()).unwrap();
    eventually("the last one is written when its lease is gone", || read().lines().count() >= 4);
    let end = |line: &str| -> serde_json::Value { serde_json::from_str(line).unwrap() };
    let ends: Vec<_> =
        read().lines().map(end).map(|view| (view["stint"]["epoch"].clone(), view["end"].clone())).collect();
    let exited = |epoch: u64, code: i32| (json!(epoch), json!({ "exited": { "code": code } }));
    assert_eq!(ends, [exited(1, 1), exited(2, 1), exited(3, 1), exited(4, 0)]);
}

/// A shell that leaves a child in its group and one in a session of its own, both marked on their command line.
fn leaver(testbed: &Testbed, marker: &str, last: &str) -> String {
    testbed.write("wait.sh", "while [ -e \"$1\" ]; do sleep 0.2; done\n");
    let script = testbed.work.join("wait.sh").display().to_string();
    let base = testbed.work.display().to_string();
    format!(
        "name: leaver\ngrace: 60s\nrun: |\n  sh {script} {base} {marker} &\n  setsid sh {script} {base} {marker} &\n  \
         (env -i /usr/bin/setsid /bin/sh {script} {base} {marker} &) &\n  trap '' TERM\n  sleep 0.5\n  {last}\n"
    )
}

#[test]
fn nothing_is_left_of_a_program_that_ended() {
    let testbed = Testbed::steady();
    let marker = format!("leaver-end-{}", std::process::id());
    testbed.write("job.yaml", &leaver(&testbed, &marker, "exit 0"));
    testbed.run(&["run", "job.yaml"]).ends_with(0);
    let left = processes::with_word(&marker);
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn nothing_is_left_of_a_program_that_was_cancelled_or_interrupted() {
    for how in ["cancel", "interrupt", "notice"] {
        let testbed = Testbed::steady();
        let marker = format!("leaver-{how}-{}", std::process::id());
        testbed.write("job.yaml", &leaver(&testbed, &marker, "while true; do sleep 0.2; done"));
        let id = testbed.run(&["submit", "--json", "job.yaml"]).ends_with(0).json()["id"].as_u64().unwrap();
        // The shell itself has the marker on its line too, as `sh -c`.
        eventually("all of it runs", || processes::with_word(&marker).len() >= 4);
        let before = processes::with_word(&marker);
        match how {
            "cancel" => drop(testbed.run(&["cancel", "leaver"]).ends_with(0)),
            "interrupt" => drop(testbed.post("/v1/interrupt", &json!({ "job": id, "how": "without" }))),
            _ => drop(testbed.post("/v1/interrupt", &json!({ "job": id, "how": { "with-notice": 60_000 } }))),
        }
        if how == "cancel" {
            testbed.run(&["attach", "leaver"]).ends_with(130);
        } else {
            eventually("the next stint", || testbed.job(id)["stints"] == 2);
        }
        let left: Vec<&i32> = before.iter().filter(|pid| processes::is_running(**pid)).collect();
        assert!(left.is_empty(), "{how}: {left:?}");
        testbed.leaves_nothing();
        eventually("no marker anywhere", || processes::with_word(&marker).is_empty());
    }
}

#[test]
fn a_cancelled_program_may_save_first() {
    let testbed = Testbed::steady();
    let witness = Witness::submit(&testbed, "saver", "daemon");
    let run = witness.until_beats(&[]);
    testbed.run(&["cancel", "saver"]).ends_with(0);
    testbed.run(&["attach", "saver"]).ends_with(130);
    assert!(!processes::is_running(run.pid));
    let ended = witness.runs()[0];
    let store = testbed.home.join("checkpoints").join(testbed.job(witness.id)["key"].as_str().unwrap());
    let newest = std::fs::read_dir(store.join("manifests")).unwrap().map(|entry| entry.unwrap().path()).max().unwrap();
    let manifest: serde_json::Value = serde_json::from_slice(&std::fs::read(newest).unwrap()).unwrap();
    let blob = store.join("blobs").join(manifest["files"][0]["blob"].as_str().unwrap());
    assert_eq!(std::fs::read_to_string(blob).unwrap(), ended.last_step.to_string(), "its last save is kept");
}

#[test]
fn a_server_that_nobody_needs_ends_itself_and_one_with_a_job_does_not() {
    let testbed = Testbed::bare();
    let mut up = testbed.command(&["up", "--market", "steady"]);
    up.env("WINDFALL_IDLE", "1");
    testbed.finish(up).ends_with(0);
    eventually("it has ended", || processes::of(&testbed.home).is_empty());
    let witness = {
        let mut up = testbed.command(&["up"]);
        up.env("WINDFALL_IDLE", "1");
        testbed.finish(up).ends_with(0);
        Witness::submit(&testbed, "busy", "plain")
    };
    witness.until_beats(&[]);
    assert!(!within(Duration::from_secs(3), || processes::of(&testbed.home).is_empty()), "it has a job to look after");
    witness.finish();
    eventually("it has ended as well", || processes::of(&testbed.home).is_empty());
    witness.check_over(&testbed);
}
