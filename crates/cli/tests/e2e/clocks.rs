//! A replayed world's clock over the death of its server: it never goes back, and nothing is charged meanwhile.

use super::processes::{self, Role};
use super::testbed::{Testbed, eventually, python};
use rustix::process::Signal;
use std::time::Duration;

/// Says nothing to anybody; writes down for each beat whether a server was there, and how long it took.
const PROGRAM: &str = r#"
import os, sys, time
base = sys.argv[1]
last = time.monotonic()
for beat in range(400):
    time.sleep(0.05)
    down = os.path.exists(base + "/down")
    now = time.monotonic()
    with open(base + "/beats", "a") as f:
        f.write(f"{int(down)} {now - last}\n")
    last = now
    if os.path.exists(base + "/finish"):
        break
"#;

/// Beats so far: how many, and their seconds while a server was there and while none was.
fn beats(testbed: &Testbed) -> (usize, f64, f64) {
    let text = std::fs::read_to_string(testbed.work.join("beats")).unwrap_or_default();
    let lines = text.lines().filter_map(|line| line.split_once(' '));
    lines.fold((0, 0.0, 0.0), |(count, up, down), (flag, seconds)| {
        let seconds: f64 = seconds.parse().unwrap_or(0.0);
        if flag == "1" { (count + 1, up, down + seconds) } else { (count + 1, up + seconds, down) }
    })
}

fn world_now(testbed: &Testbed) -> i64 {
    testbed.run(&["status", "--json"]).ends_with(0).json()["server"]["now"].as_i64().unwrap()
}

#[test]
fn a_world_stands_still_while_its_server_is_down_and_never_goes_back() {
    let testbed = Testbed::steady_at(1);
    let program = testbed.write("silent.py", PROGRAM);
    let run =
        format!("[{:?}, {:?}, {:?}]", python(), program.display().to_string(), testbed.work.display().to_string());
    let id = testbed.submit(&format!("name: silent\nrun: {run}\n"));
    eventually("it runs for a while", || beats(&testbed).0 > 100);
    let (now, cost) = (world_now(&testbed), testbed.job(id)["cost_nanousd"].as_i64().unwrap());
    assert!(cost > 0);
    for process in processes::of(&testbed.home).iter().filter(|process| process.role == Role::Server) {
        processes::signal(process.pid, Signal::KILL);
    }
    testbed.write("down", "");
    let before = beats(&testbed).0;
    eventually("it runs on without a server", || beats(&testbed).0 > before + 120);
    std::fs::remove_file(testbed.work.join("down")).unwrap();
    let job = testbed.job(id);
    assert!(world_now(&testbed) >= now, "the clock went back");
    assert!(job["cost_nanousd"].as_i64().unwrap() >= cost, "money fell");
    std::thread::sleep(Duration::from_secs(1));
    testbed.write("finish", "");
    let job = testbed.until(id, &["succeeded", "failed"]);
    assert_eq!(job["state"], "succeeded", "{job}");
    testbed.run(&["attach", &id.to_string()]).ends_with(0);
    let (_, up, down) = beats(&testbed);
    let job = testbed.job(id);
    let held = |market: &str| job[market].as_i64().unwrap_or(0) as f64 / 1e3;
    let billed = held("spot_ms") + held("on_demand_ms");
    // A lease is there a little before its program and a little after it.
    assert!((billed - up).abs() < 4.0 && down > 5.0, "billed {billed} s; ran {up} s with a server, {down} s without");
    testbed.leaves_nothing();
}

/// A server that was stopped hears what its agents did before it judges by old news.
#[test]
fn a_server_that_was_stopped_calls_no_deadline_lost() {
    let testbed = Testbed::steady();
    let id = testbed.submit(
        "name: hasty\npriority: critical\nlate: stop\nwork: { hours: 1 }\ndeadline: 80m\nprogress: 'step (\\d+)/(\\d+)'\n\
         run: for i in $(seq 1 240); do sleep 0.25; echo step $i/240; done\n",
    );
    eventually("it is on its way", || testbed.job(id)["done"].as_u64() > Some(300_000));
    let servers: Vec<i32> = (processes::of(&testbed.home).into_iter())
        .filter(|process| process.role == Role::Server)
        .map(|process| process.pid)
        .collect();
    servers.iter().for_each(|pid| processes::signal(*pid, Signal::STOP));
    // Longer than the time that it has to spare.
    std::thread::sleep(Duration::from_secs(21));
    servers.iter().for_each(|pid| processes::signal(*pid, Signal::CONT));
    assert_eq!(testbed.until(id, &["succeeded", "failed", "cancelled", "stopped"])["state"], "succeeded");
}

#[test]
fn a_server_without_its_directory_gives_everything_back_and_ends() {
    let testbed = Testbed::steady();
    let id = testbed.submit("name: left\nrun: sleep 600\n");
    testbed.until(id, &["running"]);
    let pids: Vec<i32> = processes::of(&testbed.home).into_iter().map(|process| process.pid).collect();
    assert!(pids.len() >= 3, "{pids:?}");
    std::fs::remove_dir_all(&testbed.home).unwrap();
    eventually("nothing runs any more", || !pids.iter().any(|pid| processes::is_running(*pid)));
}
