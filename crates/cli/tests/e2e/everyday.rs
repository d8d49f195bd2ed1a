//! What a person does every day, and what a script reads.

use super::processes::{self, Role};
use super::testbed::{Mount, Said, Testbed, is_root};
use serde_json::Value;

const QUICK: &str = "name: quick\nwork: { steps: 3 }\nprogress: 'step (\\d+)'\n\
run: for i in 1 2 3; do echo step $i; sleep 0.1; done\n";
const LONG: &str = "name: long\nrun: sleep 600\n";

#[track_caller]
fn has_keys(value: &Value, keys: &[&str]) {
    for key in keys {
        assert!(value.get(key).is_some(), "no {key} in {value}");
    }
}

#[test]
fn every_command_prints_json_with_the_same_keys() {
    let testbed = Testbed::bare();
    has_keys(&testbed.run(&["status", "--json"]).ends_with(0).json(), &["running", "home"]);
    has_keys(&testbed.run(&["down", "--json"]).ends_with(0).json(), &["running", "home", "live_jobs"]);
    assert!(!testbed.home.exists(), "asking starts nothing");
    let up = testbed.run(&["up", "--market", "steady", "--speed", "60", "--json"]).ends_with(0).json();
    has_keys(&up["server"], &["version", "pid", "installation", "speed", "engines", "now", "live_jobs", "leases"]);
    has_keys(&up["server"]["engines"][0], &["name", "zones", "replays", "silent_since"]);
    testbed.write("quick.yaml", QUICK);
    testbed.write("long.yaml", LONG);
    let lines = testbed.run(&["run", "--json", "quick.yaml"]).ends_with(0).lines();
    has_keys(&lines[0], &["type", "id", "speed", "market", "notes"]);
    let bill = [
        "state",
        "deadline_met",
        "interruptions",
        "lost_work_seconds",
        "cost_usd",
        "on_demand_only_usd",
        "omniscient_usd",
        "exit_code",
        "stints",
        "seconds",
    ];
    has_keys(lines.last().unwrap(), &bill);
    assert_eq!(lines.last().unwrap()["state"], "succeeded");
    assert!(lines[1..lines.len() - 1].iter().all(|line| line["type"] == "job"));
    has_keys(&testbed.run(&["submit", "--json", "long.yaml"]).ends_with(0).json(), &["type", "id", "notes"]);
    let jobs = testbed.run(&["jobs", "--all", "--json"]).ends_with(0).json();
    assert_eq!(jobs.as_array().unwrap().len(), 2);
    has_keys(
        &jobs[0],
        &["id", "name", "state", "cost_nanousd", "interruptions", "stints", "deadline_ms", "done", "total"],
    );
    let status = testbed.run(&["status", "--json"]).ends_with(0).json();
    assert_eq!((&status["running"], status["jobs"].as_array().unwrap().len()), (&Value::Bool(true), 1));
    let explained = testbed.run(&["explain", "--json", "quick"]).ends_with(0).json();
    has_keys(&explained, &["job", "lines", "policy", "present"]);
    has_keys(&explained["lines"][0], &["seq", "at", "kind", "text", "reason"]);
    let logs = testbed.run(&["logs", "--json", "quick"]).ends_with(0).lines();
    let text: String = logs.iter().map(|line| line["text"].as_str().unwrap()).collect();
    assert_eq!(text, "step 1\nstep 2\nstep 3\n");
    let cancelled = testbed.run(&["cancel", "--json", "long"]).ends_with(0).json();
    has_keys(&cancelled, &["type", "id"]);
    let attached = testbed.run(&["attach", "--json", "long"]).ends_with(130).lines();
    assert_eq!(attached.last().unwrap()["state"], "cancelled");
    let unknown = testbed.run(&["attach", "--json", "nobody"]).ends_with(2).json();
    has_keys(&unknown, &["type", "error", "hint", "code"]);
    has_keys(&testbed.run(&["down", "--json"]).ends_with(0).json(), &["running", "home", "live_jobs"]);
}

#[test]
fn a_program_that_fails_shows_its_code_and_its_last_words() {
    let testbed = Testbed::steady();
    testbed.write("bad.yaml", "name: bad\nrun: echo it began; echo no such dataset, corpus.txt >&2; exit 7\n");
    let said = testbed.run(&["run", "bad.yaml"]).ends_with(3);
    assert!(said.out.contains("code 7") && said.out.contains("| no such dataset, corpus.txt"), "{said:?}");
    assert!(!said.out.contains("you paid"), "what it did not do is no saving: {said:?}");
    let said = testbed.run(&["attach", "--json", "bad"]).ends_with(3);
    let bill = said.lines().pop().unwrap();
    assert_eq!(bill["exit_code"], 7);
    assert_eq!((&bill["on_demand_only_usd"], &bill["omniscient_usd"]), (&Value::Null, &Value::Null));
    assert_eq!(bill["last_output"], serde_json::json!(["it began", "no such dataset, corpus.txt"]));
    testbed.write("none.yaml", "name: none\nrun: [no-such-program-anywhere]\n");
    let said = testbed.run(&["run", "none.yaml"]).ends_with(3);
    assert!(said.out.contains("127") && said.out.contains("no-such-program-anywhere"), "{said:?}");
}

#[test]
fn a_job_that_succeeds_after_its_deadline_ends_with_four() {
    let testbed = Testbed::steady();
    // Three seconds here are three minutes there.
    testbed.write("late.yaml", "name: late\ndeadline: 1m\nwork: { hours: 0.05 }\nrun: sleep 3\n");
    let said = testbed.run(&["run", "--json", "late.yaml"]).ends_with(4);
    let bill = said.lines().pop().unwrap();
    assert_eq!((&bill["state"], &bill["deadline_met"]), (&"succeeded".into(), &Value::Bool(false)));
    assert!(said.lines()[0]["notes"][0].as_str().unwrap().contains("cannot make the deadline"), "said beforehand");
}

#[test]
fn bad_input_ends_with_two_and_starts_nothing() {
    let testbed = Testbed::bare();
    testbed.write("wrong.yaml", "name: wrong\nrum: python train.py\n");
    testbed.write("empty.yaml", "");
    testbed.write("good.yaml", QUICK);
    let bad: [&[&str]; 12] = [
        &["run", "wrong.yaml"],
        &["submit", "wrong.yaml"],
        &["run", "empty.yaml"],
        &["run", "not-there.yaml"],
        &["run", "--no-such-flag", "good.yaml"],
        &["no-such-command"],
        &["up", "--speed", "61"],
        &["attach", "12"],
        &["cancel", "nobody"],
        &["logs", "-f", "12"],
        &["explain", "12"],
        &[],
    ];
    for args in bad {
        let said = testbed.run(args).ends_with(2);
        assert!(!said.err.is_empty(), "{args:?} says nothing");
        assert!(!testbed.home.exists(), "{args:?} made a state directory");
    }
    let said: Said = testbed.run(&["run", "wrong.yaml"]);
    assert!(said.err.contains("rum") && said.err.contains("run"), "{said:?}");
    let jobs = testbed.run(&["jobs", "--json"]).ends_with(0);
    assert_eq!(jobs.out.trim(), "[]");
    assert!(!testbed.home.exists());
}

#[test]
fn an_unknown_job_changes_nothing_where_there_are_jobs() {
    let testbed = Testbed::steady();
    testbed.write("quick.yaml", QUICK);
    testbed.run(&["run", "quick.yaml"]).ends_with(0);
    for args in [["attach", "999"], ["cancel", "999"], ["explain", "999"], ["logs", "999"], ["cancel", "nobody"]] {
        let said = testbed.run(&args).ends_with(2);
        assert!(said.err.contains("error: no job"), "{said:?}");
    }
    let over = testbed.run(&["cancel", "quick"]).ends_with(2);
    assert!(over.err.contains("is over: succeeded"), "{over:?}");
    assert_eq!(testbed.jobs().len(), 1);
}

#[test]
fn explain_shows_every_decision_with_its_numbers() {
    let testbed = Testbed::steady();
    testbed.write("quick.yaml", "name: quick\nwork: { hours: 0.01 }\ndeadline: 2h\nrun: sleep 0.6\n");
    testbed.run(&["run", "quick.yaml"]).ends_with(0);
    let said = testbed.run(&["explain", "quick"]).ends_with(0).out;
    for part in [
        "submitted as quick",
        "→ acquire lease",
        "→ start stint 1",
        "exited with code 0",
        "→ end: succeeded",
        "→ release lease",
        "slack",
        "$1.00",
    ] {
        assert!(said.contains(part), "no {part:?} in\n{said}");
    }
    let json = testbed.run(&["explain", "--json", "quick"]).ends_with(0).json();
    let decisions: Vec<&Value> = json["lines"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|line| line["text"].as_str().unwrap().starts_with("acquire"))
        .collect();
    assert!(
        decisions.iter().all(|line| line["reason"]["numbers"].as_array().is_some_and(|n| !n.is_empty())),
        "{decisions:?}"
    );
}

#[test]
fn logs_follow_a_job_to_its_end_across_a_server_that_dies() {
    let testbed = Testbed::steady();
    testbed.submit("name: talker\nrun: for i in 1 2 3 4 5 6 7 8; do echo line $i; sleep 0.4; done\n");
    let out = testbed.work.join("out");
    let mut command = testbed.command(&["logs", "-f", "talker"]);
    let mut child = command.stdout(std::fs::File::create(&out).unwrap()).spawn().unwrap();
    let read = || std::fs::read_to_string(&out).unwrap();
    super::testbed::eventually("the first lines", || read().contains("line 2\n"));
    for process in super::processes::of(&testbed.home) {
        if process.role == super::processes::Role::Server {
            super::processes::signal(process.pid, rustix::process::Signal::KILL);
        }
    }
    assert_eq!(super::testbed::wait(&mut child), Some(0));
    let expected: String = (1..=8).map(|i| format!("line {i}\n")).collect();
    assert_eq!(read(), expected, "every line once, in order");
}

#[test]
fn two_runs_at_once_and_two_watchers_of_one_job_all_end_well() {
    let testbed = Testbed::steady();
    testbed.write("a.yaml", QUICK);
    testbed.write("b.yaml", &QUICK.replace("quick", "other"));
    let id = testbed.submit("name: shared\nrun: sleep 3\n").to_string();
    let spawn = |args: &[&str]| testbed.command(args).stdout(std::process::Stdio::null()).spawn().unwrap();
    let mut children =
        [spawn(&["run", "a.yaml"]), spawn(&["run", "b.yaml"]), spawn(&["attach", &id]), spawn(&["attach", &id])];
    for child in &mut children {
        assert_eq!(super::testbed::wait(child), Some(0));
    }
    assert_eq!(testbed.jobs().iter().filter(|job| job["state"] == "succeeded").count(), 3);
}

#[test]
fn a_deadline_may_be_a_local_date() {
    let testbed = Testbed::steady();
    let year = jiff::Zoned::now().year() + 2;
    let text = format!("name: dated\nwork: {{ hours: 1 }}\ndeadline: {year}-06-01 18:00\nrun: sleep 600\n");
    testbed.write("dated.yaml", &text);
    for (zone, utc_hour) in [("America/New_York", 22), ("Asia/Tokyo", 9)] {
        let mut command = testbed.command(&["submit", "--json", "dated.yaml"]);
        command.env("TZ", zone);
        let before = in_ms();
        let id = testbed.finish(command).ends_with(0).json()["id"].as_u64().unwrap();
        let job = testbed.job(id);
        let span = job["deadline_ms"].as_i64().unwrap() - job["submitted_at_ms"].as_i64().unwrap();
        let expected: jiff::Timestamp = format!("{year}-06-01T{utc_hour:02}:00:00Z").parse().unwrap();
        let off = expected.as_millisecond() - before - span;
        assert!(off.abs() < 120_000, "{zone}: {off} ms off");
    }
    testbed.leaves_nothing();
}

fn in_ms() -> i64 {
    jiff::Timestamp::now().as_millisecond()
}

#[test]
fn what_a_plan_puts_first_is_what_a_run_leases_and_the_bill_says_what_was_expected() {
    let testbed = Testbed::bare();
    let text = "name: planned\nresources: { accelerators: V100 }\nwork: { hours: 0.2, on: V100 }\ndeadline: 3h\nrun: sleep 12\n";
    testbed.write("planned.yaml", text);
    let plan = testbed.run(&["plan", "planned.yaml", "--here", "--json"]).ends_with(0).json();
    let best = &plan["candidates"][0];
    let id = testbed.run(&["submit", "--json", "planned.yaml"]).ends_with(0).json()["id"].as_u64().unwrap();
    let job = testbed.until(id, &["running"]);
    let lease = &job["lease"];
    assert_eq!((&lease["instance_type"], &lease["market"]), (&best["instance_type"], &best["market"]), "{job}");
    assert!(lease["zone"].as_str().unwrap().starts_with(best["region"].as_str().unwrap()), "{job}");
    let said = testbed.run(&["attach", "--json", "planned"]).ends_with(0);
    let lines = said.lines();
    let bill = lines.last().unwrap();
    let expected = bill["predicted_usd"].as_f64().unwrap();
    let (low, high) = (bill["predicted_usd_10"].as_f64().unwrap(), bill["predicted_usd_90"].as_f64().unwrap());
    assert!(expected > 0.0 && low <= high, "{bill}");
}

#[test]
fn work_in_tokens_is_promised_or_not_before_the_job_begins() {
    let testbed = Testbed::bare();
    let text = "name: tokens\nresources: { accelerators: V100 }\nwork: { parameters: 5e8, tokens: 4e8 }\ndeadline: 2h\nrun: sleep 600\n";
    testbed.write("tokens.yaml", text);
    let plan = testbed.run(&["plan", "tokens.yaml", "--here", "--deadline", "20h", "--json"]).ends_with(0).json();
    assert_eq!(plan["market"], "replay of aws-v100-us-west-2-2023, us-west-2c");
    let hours = plan["candidates"][0]["running_hours"].as_f64().unwrap();
    let said = testbed.run(&["submit", "--json", "tokens.yaml"]).ends_with(0).json();
    let notes = said["notes"].to_string();
    assert!(notes.contains("work: 7h 37m on V100:1") && notes.contains("cannot make the deadline"), "{said}");
    let total_ms = testbed.job(said["id"].as_u64().unwrap())["total"].as_f64().unwrap();
    assert!((total_ms / 3.6e6 - hours).abs() < 0.01, "{total_ms} ms, planned {hours} h");
    testbed.run(&["cancel", "tokens"]).ends_with(0);
}

#[test]
fn jobs_are_counted_from_one_and_a_limit_is_one() {
    let testbed = Testbed::steady();
    let ids = [testbed.submit(LONG), testbed.submit(LONG), testbed.submit(LONG)];
    assert_eq!(ids, [1, 2, 3]);
    let shown = |args: &[&str]| testbed.run(args).ends_with(0).json().as_array().unwrap().len();
    assert_eq!(shown(&["jobs", "--json", "--limit", "2"]), 2);
    assert_eq!(shown(&["jobs", "--all", "--json", "--limit", "1"]), 1);
}

#[test]
fn processes_have_the_name_of_the_program() {
    let testbed = Testbed::steady();
    let id = testbed.submit(LONG);
    testbed.until(id, &["running"]);
    let ours = processes::of(&testbed.home).into_iter().filter(|process| process.role != Role::Program);
    let names: Vec<String> = ours
        .map(|process| std::fs::read_to_string(format!("/proc/{}/comm", process.pid)).unwrap_or_default())
        .collect();
    assert!(names.len() >= 3 && names.iter().all(|name| name.trim() == "windfall"), "{names:?}");
}

#[test]
fn status_tells_what_waits_for_a_server() {
    let testbed = Testbed::steady();
    let _ = [testbed.submit(LONG), testbed.submit(LONG)];
    testbed.run(&["down"]).ends_with(0);
    let said = testbed.run(&["status"]).ends_with(0);
    assert!(said.out.contains("2 jobs have not ended"), "{}", said.out);
    assert_eq!(testbed.run(&["status", "--json"]).ends_with(0).json()["live_jobs"], 2);
    testbed.run(&["up"]).ends_with(0);
    testbed.run(&["down", "--cancel"]).ends_with(0);
    let said = testbed.run(&["status"]).ends_with(0);
    assert!(!said.out.contains("not ended"), "{}", said.out);
}

#[test]
fn a_nearly_full_disk_is_said() {
    if !is_root("a_nearly_full_disk_is_said") {
        return;
    }
    let testbed = Testbed::bare();
    let _mount = Mount::new(&testbed.home, &["-t", "tmpfs", "-o", "size=8m,mode=700", "tmpfs"]);
    let said = testbed.run(&["status"]).ends_with(0);
    assert!(said.out.contains("MB left: make room"), "{}", said.out);
}

#[test]
fn a_job_that_is_called_by_a_number_is_found_and_a_rank_that_is_not_there_is_refused() {
    let testbed = Testbed::steady();
    let id = testbed.submit("name: '2026'\nrun: sleep 600\n");
    let explained = testbed.run(&["explain", "--json", "2026"]).ends_with(0).json();
    assert_eq!(explained["job"]["id"], id);
    let refused = testbed.run(&["logs", "2026", "--rank", "7"]).ends_with(2);
    assert!(refused.err.contains("no rank 7"), "{}", refused.err);
    testbed.run(&["cancel", "2026"]).ends_with(0);
    testbed.until(id, &["cancelled"]);
}
