//! A replayed world's clock over the death of its server: it never goes back, and nothing is charged meanwhile.

use super::place::{Place, eventually, python};
use super::processes::{self, Role};
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
fn beats(place: &Place) -> (usize, f64, f64) {
    let text = std::fs::read_to_string(place.work.join("beats")).unwrap_or_default();
    let lines = text.lines().filter_map(|line| line.split_once(' '));
    lines.fold((0, 0.0, 0.0), |(count, up, down), (flag, seconds)| {
        let seconds: f64 = seconds.parse().unwrap_or(0.0);
        if flag == "1" { (count + 1, up, down + seconds) } else { (count + 1, up + seconds, down) }
    })
}

fn world_now(place: &Place) -> i64 {
    place.run(&["status", "--json"]).ends_with(0).json()["server"]["now"].as_i64().unwrap()
}

#[test]
fn a_world_stands_still_while_its_server_is_down_and_never_goes_back() {
    let place = Place::bare();
    place.run(&["up", "--market", "steady", "--speed", "1"]).ends_with(0);
    let program = place.write("silent.py", PROGRAM);
    let run = format!("[{:?}, {:?}, {:?}]", python(), program.display().to_string(), place.work.display().to_string());
    let id = place.submit(&format!("name: silent\nrun: {run}\n"));
    eventually("it runs for a while", || beats(&place).0 > 100);
    let (now, cost) = (world_now(&place), place.job(id)["cost_nanousd"].as_i64().unwrap());
    assert!(cost > 0);
    for process in processes::of(&place.home).iter().filter(|process| process.role == Role::Server) {
        processes::signal(process.pid, Signal::KILL);
    }
    place.write("down", "");
    let before = beats(&place).0;
    eventually("it runs on without a server", || beats(&place).0 > before + 120);
    std::fs::remove_file(place.work.join("down")).unwrap();
    let job = place.job(id);
    assert!(world_now(&place) >= now, "the clock went back");
    assert!(job["cost_nanousd"].as_i64().unwrap() >= cost, "money fell");
    std::thread::sleep(Duration::from_secs(1));
    place.write("finish", "");
    let job = place.until(id, &["succeeded", "failed"]);
    assert_eq!(job["state"], "succeeded", "{job}");
    place.run(&["attach", &id.to_string()]).ends_with(0);
    let (_, up, down) = beats(&place);
    let job = place.job(id);
    let held = |market: &str| job[market].as_i64().unwrap_or(0) as f64 / 1e3;
    let billed = held("spot_ms") + held("on_demand_ms");
    // A lease is there a little before its program and a little after it.
    assert!((billed - up).abs() < 4.0 && down > 5.0, "billed {billed} s; ran {up} s with a server, {down} s without");
    place.leaves_nothing();
}

/// A server that was stopped hears what its agents did before it judges by old news.
#[test]
fn a_server_that_was_stopped_calls_no_deadline_lost() {
    let place = Place::bare();
    place.run(&["up", "--market", "steady", "--speed", "60"]).ends_with(0);
    let id = place.submit(
        "name: hasty\npriority: critical\nlate: stop\nwork: { hours: 0.5 }\ndeadline: 37m\nprogress: 'step (\\d+)/(\\d+)'\n\
         run: for i in $(seq 1 120); do sleep 0.25; echo step $i/120; done\n",
    );
    eventually("it is on its way", || place.job(id)["done"].as_u64() > Some(300_000));
    let servers: Vec<i32> = (processes::of(&place.home).into_iter())
        .filter(|process| process.role == Role::Server)
        .map(|process| process.pid)
        .collect();
    servers.iter().for_each(|pid| processes::signal(*pid, Signal::STOP));
    std::thread::sleep(Duration::from_secs(8));
    servers.iter().for_each(|pid| processes::signal(*pid, Signal::CONT));
    assert_eq!(place.until(id, &["succeeded", "failed", "cancelled", "stopped"])["state"], "succeeded");
}

#[test]
fn a_server_without_its_directory_gives_everything_back_and_ends() {
    let place = Place::steady();
    let id = place.submit("name: left\nrun: sleep 600\n");
    place.until(id, &["running"]);
    let pids: Vec<i32> = processes::of(&place.home).into_iter().map(|process| process.pid).collect();
    assert!(pids.len() >= 3, "{pids:?}");
    std::fs::remove_dir_all(&place.home).unwrap();
    eventually("nothing runs any more", || !pids.iter().any(|pid| processes::is_running(*pid)));
}
