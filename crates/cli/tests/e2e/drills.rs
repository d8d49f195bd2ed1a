//! `windfall engines drill`: a job of its own goes the whole way through an engine, and nothing of it is left there; nor of one that
//! was interrupted in the middle.

use super::nodes::{beginnings, free_port, has_saved};
use super::processes;
use super::slurm::{Cluster, counts, up};
use super::testbed::{Said, Testbed, eventually, is_root, wait};
use super::witness::{Witness, check_ledger};
use rustix::process::Signal;
use serde_json::{Value, json};
use std::process::Stdio;

/// What was found by a drill that went well.
#[track_caller]
fn drilled(said: Said) -> Value {
    let found = said.ends_with(0).json();
    let steps: Vec<&str> = found["steps"].as_array().unwrap().iter().filter_map(|step| step["step"].as_str()).collect();
    let mut rest = steps.iter();
    for step in ["ask", "up", "ready", "run", "save", "notice", "replace", "up", "ready", "run", "end", "gone"] {
        assert!(rest.any(|known| *known == step), "{step} is not where it should be: {steps:?}");
    }
    let times = |what: &str| found["calls"].as_array().unwrap().iter().filter(|call| call["what"] == what).count();
    assert_eq!((times("acquire"), times("interrupt")), (2, 1), "{found}");
    assert!(times("observe") > 0 && times("release") > 0, "{found}");
    assert_eq!((&found["left"], &found["good"], &found["state"]), (&json!([]), &json!(true), &json!("succeeded")));
    found
}

#[test]
fn a_drill_goes_the_whole_way_through_a_recorded_market() {
    let testbed = Testbed::steady();
    let beside = Witness::submit(&testbed, "beside", "plain");
    beside.until_beats(&[]);
    drilled(testbed.run(&["engines", "drill", "simulated", "--json"]));
    assert_eq!(beside.runs().len(), 1, "whoever else is there was left alone");
    beside.finish();
    beside.check_over(&testbed);
    check_ledger(&testbed);
    testbed.run(&["engines", "drill", "nobody"]).ends_with(2);
    testbed.leaves_nothing();
    testbed.forgets_leases();
}

#[test]
fn a_drill_goes_the_whole_way_through_owned_machines_and_says_so() {
    let testbed = Testbed::bare();
    testbed.run(&["up", "--local"]).ends_with(0);
    let said = testbed.run(&["engines", "drill", "machines"]).ends_with(0);
    for words in ["ask ", "notice ", "replace ", "acquire ", "left behind: nothing", "has succeeded: 2 leases for $0"] {
        assert!(said.out.contains(words), "no {words:?} in {}", said.out);
    }
    let wrong = testbed.run(&["engines", "drill", "machines", "--accelerators", "H100:64"]).ends_with(2);
    assert!(wrong.err.contains("machines sells nothing of H100:64 now"), "{wrong:?}");
    check_ledger(&testbed);
    testbed.leaves_nothing();
    testbed.forgets_leases();
}

/// Interrupts a drill as soon as its job is in one of these states.
fn interrupted(testbed: &Testbed, engine: &str, states: &[&str]) {
    let mut command = testbed.command(&["engines", "drill", engine]);
    let mut drill = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let mut id = 0;
    eventually("it is there", || {
        let jobs = testbed.jobs();
        let is_there = |job: &&Value| job["name"] == "drill" && states.contains(&job["state"].as_str().unwrap());
        jobs.iter().find(is_there).is_some_and(|job| {
            id = job["id"].as_u64().unwrap();
            true
        })
    });
    processes::signal(drill.id() as i32, Signal::INT);
    assert_eq!(wait(&mut drill), Some(130));
    assert_eq!(testbed.job(id)["state"], "cancelled");
    let strays = testbed.run(&["engines", "sweep", "--dry-run", "--json"]).ends_with(0).json();
    assert_eq!(strays, json!([]));
}

#[test]
fn a_drill_that_is_interrupted_gives_everything_back_first() {
    let testbed = Testbed::bare();
    testbed.run(&["up", "--local"]).ends_with(0);
    interrupted(&testbed, "machines", &["running"]);
    check_ledger(&testbed);
    testbed.leaves_nothing();
    testbed.forgets_leases();
}

#[test]
fn a_drill_on_slurm_touches_nobody_else_s_job_and_leaves_none_of_its_own() {
    if !is_root("a Slurm cluster") {
        return;
    }
    let (testbed, port) = (Testbed::bare(), free_port());
    let Some(cluster) = Cluster::start(&testbed, "a_drill_on_slurm") else { return };
    up(&testbed, &cluster, port, "gpu");
    let id = testbed.submit(&counts(&testbed, 1));
    testbed.until(id, &["running"]);
    eventually("it has saved", || has_saved(&testbed, id));
    let script = testbed.write("theirs.sh", "#!/bin/sh\nsleep 1000\n");
    let theirs = ["--parsable", "-p", "gpu", "--mem=100", "--output=/dev/null", script.to_str().unwrap()];
    let theirs = cluster.says("sbatch", &theirs);
    let pilots = cluster.pilots();

    let found = drilled(testbed.run(&["engines", "drill", "slurm", "--json"]));
    let notice = found["steps"].as_array().unwrap().iter().find(|step| step["step"] == "notice").unwrap();
    println!("a drill on Slurm, until its notice: {} ms", notice["after_ms"]);
    eventually("nothing of it is in the queue", || cluster.pilots() == pilots);
    let state = || cluster.says("squeue", &["-h", "-j", &theirs, "-o", "%T"]);
    assert_eq!((state().as_str(), beginnings(&testbed, id).len()), ("RUNNING", 1), "others run as before");

    // One that waits in the queue is given up there as well.
    let all = ["--parsable", "-p", "gpu", "-n", "11", "--mem=100", "--output=/dev/null", script.to_str().unwrap()];
    assert!(!cluster.says("sbatch", &all).is_empty());
    eventually("all processors are taken", || {
        cluster.says("sinfo", &["-h", "-p", "gpu", "-t", "alloc", "-o", "%D"]) == "2"
    });
    interrupted(&testbed, "slurm", &["acquiring"]);
    eventually("nothing of it is in the queue", || cluster.pilots() == pilots);
    std::fs::write(testbed.work.join("end"), "").unwrap();
    testbed.until(id, &["succeeded"]);
    eventually("nothing of it is in the queue", || cluster.pilots().is_empty());
    let left = || std::fs::read_dir(testbed.work.join("scratch")).unwrap().count();
    eventually("nothing of it is on the nodes", || left() == 0);
    check_ledger(&testbed);
    testbed.run(&["down"]).ends_with(0);
    testbed.leaves_nothing();
}
