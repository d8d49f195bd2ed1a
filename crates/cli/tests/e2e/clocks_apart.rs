//! Machines whose clocks are five minutes from the server's, one ahead and one behind: nothing is decided by comparing them.

use super::far::Far;
use super::nodes::{beginnings, free_port, has_saved, output, state_of, submit, up};
use super::testbed::{Testbed, eventually, is_root, one_at_a_time, within};
use super::witness::check_ledger;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

const APART_MS: i64 = 300_000;

/// The library that tells programs another time; Debian calls its package `libfaketime`.
fn library(test: &str) -> Option<PathBuf> {
    let found =
        ["x86_64", "aarch64"].map(|machine| format!("/usr/lib/{machine}-linux-gnu/faketime/libfaketimeMT.so.1"));
    let found = found.into_iter().map(PathBuf::from).find(|path| path.exists());
    if found.is_none() {
        println!("skipped: {test} (libfaketime is not installed)");
    }
    found
}

/// Starts what makes a machine a node, with a clock that is so far from this computer's. Only the time of day is another:
/// what counts the time since the machine began is right on every machine.
fn start(far: &mut Far, port: u16, token: Option<&str>, library: &Path, apart: &str) {
    let variables = [
        ("LD_PRELOAD", library),
        ("FAKETIME", Path::new(apart)),
        ("FAKETIME_DONT_FAKE_MONOTONIC", Path::new("1")),
        ("DONT_FAKE_MONOTONIC", Path::new("1")),
    ];
    far.start_agent_with(port, token, &["--accelerators", "H200:2"], &variables);
}

fn is_ready(testbed: &Testbed, name: &str) -> bool {
    state_of(testbed, name).as_deref() == Some("ready")
}

/// Cuts a machine off for longer than its dead-man time, until its job runs on the other one and nowhere else.
fn move_over(testbed: &Testbed, id: u64, [from, to]: [&Far; 2], name: &str) {
    from.cut(true);
    let moved = within(Duration::from_secs(90), || {
        let [here, there] = [from.programs(id), to.programs(id)];
        assert!(here.is_empty() || there.is_empty(), "it runs twice: {here:?} and {there:?}");
        !there.is_empty()
    });
    assert!(moved, "it goes on elsewhere: {}", testbed.run(&["explain", &id.to_string()]).out);
    from.cut(false);
    eventually("it is back", || is_ready(testbed, name));
    assert!(from.programs(id).is_empty());
}

#[test]
fn clocks_that_are_five_minutes_apart_change_nothing() {
    let Some(library) = library("clocks_that_are_five_minutes_apart_change_nothing") else { return };
    if !is_root("machines of their own") {
        return;
    }
    let _one = one_at_a_time();
    let (testbed, port, began) = (Testbed::bare(), free_port(), Instant::now());
    up(&testbed, port, "6s");
    let [mut ahead, mut behind] = [Far::new(&testbed), Far::new(&testbed)];
    let token = |name: &str| testbed.run(&["nodes", "token", name, "--rate", "3.6"]).ends_with(0).out.trim().to_owned();
    start(&mut ahead, port, Some(&token("ahead")), &library, "+300s");
    eventually("it is ready", || is_ready(&testbed, "ahead"));
    let id = submit(&testbed, "out");
    testbed.until(id, &["running"]);
    eventually("it has saved", || has_saved(&testbed, id));
    start(&mut behind, port, Some(&token("behind")), &library, "-300s");
    eventually("it is ready", || is_ready(&testbed, "behind"));
    for (name, apart) in [("ahead", -APART_MS), ("behind", APART_MS)] {
        let server_ahead = || testbed.run(&["node", name, "--json"]).ends_with(0).json()["server_ahead_ms"].as_i64();
        eventually("its clock is known", || server_ahead().is_some());
        let off = server_ahead().unwrap() - apart;
        assert!(off.abs() < 60_000, "{name}: the clocks are {off} ms from being five minutes apart");
    }

    move_over(&testbed, id, [&ahead, &behind], "ahead");
    let saved =
        || testbed.run(&["explain", "--all", &id.to_string()]).ends_with(0).out.matches("checkpoint 2.").count();
    eventually("it saves there", || saved() > 2);
    move_over(&testbed, id, [&behind, &ahead], "behind");

    ahead.write(&testbed.work.join("end"), "");
    testbed.until(id, &["succeeded"]);
    let (begun, said) = (beginnings(&testbed, id), output(&testbed, id));
    assert!(begun.len() == 3 && begun[0] == 0 && begun[1] > 0 && begun[2] > begun[1], "in their order: {said}");
    assert!(said.trim_end().lines().next_back().unwrap().starts_with("done at "), "{said}");
    let job = testbed.job(id);
    let (held, passed) = (job["owned_ms"].as_i64().unwrap(), began.elapsed().as_millis() as i64);
    assert!(held > 0 && held <= passed, "it was charged for {held} ms of {passed}");
    assert!(job["ran_ms"].as_i64() <= Some(passed) && job["cost_nanousd"].as_i64() > Some(0), "{job}");
    for far in [&ahead, &behind] {
        far.until_quiet(id);
    }

    testbed.run(&["down"]).ends_with(0);
    check_ledger(&testbed);
    testbed.leaves_nothing();
}
