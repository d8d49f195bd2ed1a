//! Jobs of one person side by side on one machine of eight accelerators, with real processes.

use super::processes::{self, Role};
use super::testbed::{Testbed, eventually};
use super::witness::check_ledger;
use rustix::process::Signal;

/// A job that says which devices it has, counts on from what it saved, and ends when a file is there.
fn job(name: &str, accelerators: impl std::fmt::Display) -> String {
    format!(
        "name: {name}\nresources: {{ accelerators: V100:{accelerators} }}\n\
         checkpoint: {{ path: out-{name}, restart: 30s }}\n\
         run: |\n  echo devices $CUDA_VISIBLE_DEVICES$WINDFALL_ACCELERATOR_SHARE\n  n=$(cat out-{name}/n 2>/dev/null || echo 0)\n  mkdir -p out-{name}\n  \
         while [ ! -e end-{name} ]; do n=$((n + 1)); echo $n > out-{name}/n.new; mv out-{name}/n.new out-{name}/n; sleep 0.1; done\n"
    )
}

fn lease(testbed: &Testbed, id: u64) -> String {
    testbed.job(id)["lease"]["id"].as_str().unwrap_or_default().to_owned()
}

/// Everything is given back, paid for to the nano-dollar, and nothing runs any more.
fn ends_clean(testbed: &Testbed) {
    eventually("all machines are given back", || {
        testbed.run(&["cost", "--json"]).ends_with(0).json()["total"]["running_nanousd"] == 0
    });
    check_ledger(testbed);
    testbed.leaves_nothing();
}

/// Whether agents can make control groups here. Where they cannot, a process that left its session and cleared its
/// environment is told from a neighbour's by nothing, and machines are not shared.
fn are_told_apart(testbed: &Testbed) -> bool {
    let agent = processes::of(&testbed.home).into_iter().find(|process| process.role == Role::Agent);
    let groups = std::fs::read_to_string(format!("/proc/{}/cgroup", agent.expect("an agent").pid)).unwrap();
    groups.contains("/windfall-")
}

/// The same; a test that needs it says so and ends.
fn share_machines(testbed: &Testbed, test: &str) -> bool {
    let told_apart = are_told_apart(testbed);
    if !told_apart {
        println!("skipped: {test} (control groups cannot be made here)");
    }
    told_apart
}

#[test]
fn machines_are_shared_where_programs_are_told_apart_and_nowhere_else() {
    let testbed = Testbed::of_eight();
    let first = testbed.submit(&job("first", 1));
    testbed.until(first, &["running"]);
    let second = testbed.submit(&job("second", 1));
    testbed.until(second, &["running"]);
    assert_eq!(lease(&testbed, first) == lease(&testbed, second), are_told_apart(&testbed));
    testbed.run(&["down", "--cancel"]).ends_with(0);
}

#[test]
fn jobs_that_are_submitted_at_once_wait_for_one_machine() {
    let testbed = Testbed::of_eight();
    let jobs: Vec<u64> = ["a", "b", "c"].iter().map(|name| testbed.submit(&job(name, 2))).collect();
    for id in &jobs {
        testbed.until(*id, &["running"]);
    }
    if share_machines(&testbed, "jobs_that_are_submitted_at_once_wait_for_one_machine") {
        assert!(jobs.iter().all(|id| lease(&testbed, *id) == lease(&testbed, jobs[0])), "{:?}", testbed.jobs());
    }
    testbed.run(&["down", "--cancel"]).ends_with(0);
}

#[test]
fn jobs_have_shares_of_one_accelerator_and_pay_for_them() {
    let testbed = Testbed::of_eight();
    let half = testbed.submit(&job("half", "0.5"));
    testbed.until(half, &["running"]);
    if !share_machines(&testbed, "jobs_have_shares_of_one_accelerator_and_pay_for_them") {
        return;
    }
    let third = testbed.submit(&job("third", "1/3"));
    let most = testbed.submit(&job("most", "3/4"));
    for id in [third, most] {
        testbed.until(id, &["running"]);
    }
    let logs = |id: u64| testbed.run(&["logs", &id.to_string()]).ends_with(0).out;
    for (id, said) in [(half, "devices 01/2\n"), (third, "devices 01/3\n"), (most, "devices 13/4\n")] {
        eventually("it says its device, and how much of it it has", || logs(id).contains(said));
    }
    let hourly = |id: u64| testbed.job(id)["lease"]["price_per_hour_nanousd"].as_i64().unwrap();
    let all = hourly(half) + hourly(third) + hourly(most);
    let within_a_nanodollar = |paid: i64, part: i64| (paid - part).abs() <= 1;
    assert!(within_a_nanodollar(hourly(third), all / 24), "a third of one of eight: {} of {all}", hourly(third));
    assert!(within_a_nanodollar(hourly(most), all * 3 / 32), "{} of {all}", hourly(most));
    for name in ["half", "third", "most"] {
        testbed.write(&format!("end-{name}"), "");
    }
    for id in [half, third, most] {
        testbed.until(id, &["succeeded"]);
    }
    ends_clean(&testbed);
}

#[test]
fn jobs_of_one_person_share_a_machine_and_whoever_stays_has_it() {
    let testbed = Testbed::of_eight();
    let first = testbed.submit(&job("first", 2));
    testbed.until(first, &["running"]);
    if !share_machines(&testbed, "jobs_of_one_person_share_a_machine_and_whoever_stays_has_it") {
        return;
    }
    let second = testbed.submit(&job("second", 1));
    let third = testbed.submit(&job("third-of-all", 8));
    for id in [second, third] {
        testbed.until(id, &["running"]);
    }
    assert_eq!(lease(&testbed, first), lease(&testbed, second));
    assert_ne!(lease(&testbed, first), lease(&testbed, third), "it asked for all of one");
    let logs = |id: u64| testbed.run(&["logs", &id.to_string()]).ends_with(0).out;
    eventually("the first says its devices", || logs(first).contains("devices 0,1\n"));
    eventually("the second says its devices", || logs(second).contains("devices 2\n"));
    assert!(!logs(third).contains("devices 0"), "all of a machine is not named: {}", logs(third));
    let hourly = |id: u64| testbed.job(id)["lease"]["price_per_hour_nanousd"].as_i64();
    assert_eq!((hourly(first), hourly(second)), (Some(7_000_000_000), Some(1_000_000_000)));

    testbed.write("end-first", "");
    testbed.until(first, &["succeeded"]);
    let told = testbed.run(&["explain", &second.to_string()]).ends_with(0).out;
    eventually("the machine is the second's", || hourly(second) == Some(8_000_000_000));
    assert_eq!(testbed.job(second)["state"], "running", "nobody was stopped: {told}");
    assert_eq!(testbed.job(second)["interruptions"].as_u64().unwrap_or(0), 0);
    let told = testbed.run(&["explain", &second.to_string()]).ends_with(0).out;
    assert!(told.contains("there is room on a machine") && told.contains("take lease"), "{told}");
    for (id, name) in [(second, "second"), (third, "third-of-all")] {
        testbed.write(&format!("end-{name}"), "");
        testbed.until(id, &["succeeded"]);
    }
    ends_clean(&testbed);
}

#[test]
fn both_go_on_from_what_they_saved_when_their_machine_dies() {
    let testbed = Testbed::of_eight();
    let first = testbed.submit(&job("first", 1));
    testbed.until(first, &["running"]);
    if !share_machines(&testbed, "both_go_on_from_what_they_saved_when_their_machine_dies") {
        return;
    }
    let second = testbed.submit(&job("second", 1));
    testbed.until(second, &["running"]);
    let shared = lease(&testbed, first);
    assert_eq!(shared, lease(&testbed, second));
    let saved = |id: u64| testbed.run(&["explain", &id.to_string()]).ends_with(0).out.contains("is durable");
    eventually("both have saved", || saved(first) && saved(second));
    let guard = processes::of(&testbed.home).into_iter().find(|process| process.role == Role::Guard);
    processes::signal(guard.expect("the guard of the shared machine").pid, Signal::KILL);
    for id in [first, second] {
        eventually("it runs on another machine", || {
            testbed.job(id)["state"] == "running" && lease(&testbed, id) != shared
        });
    }
    for (id, name) in [(first, "first"), (second, "second")] {
        testbed.write(&format!("end-{name}"), "");
        testbed.until(id, &["succeeded"]);
        assert_eq!(testbed.job(id)["interruptions"], 1);
    }
    ends_clean(&testbed);
}
