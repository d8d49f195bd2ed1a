//! Promises as a user sees them: a deadline with a program that is deaf, requests that nothing can serve, work that is
//! gone on from after a failure, and a bill that can be checked.

use super::testbed::{Testbed, eventually};

/// Ignores SIGTERM, and saves every 40 of 300 steps.
const DEAF: &str = r#"
import os, signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
path = os.path.join(os.environ["WINDFALL_CHECKPOINT_DIR"], "step")
step = int(open(path).read()) if os.path.exists(path) else 0
while step < 300:
    step += 1
    time.sleep(0.25)
    print(f"step {step}/300", flush=True)
    if step % 40 == 0:
        with open(path + ".tmp", "w") as file:
            file.write(str(step))
        os.replace(path + ".tmp", path)
"#;

#[test]
fn a_deadline_is_kept_with_a_program_that_ignores_sigterm() {
    let testbed = Testbed::bare();
    testbed.write("deaf.py", DEAF);
    testbed.write(
        "deaf.yaml",
        "resources: { accelerators: V100 }\nwork: { hours: 1.25, on: V100 }\ndeadline: 2h\n\
         checkpoint: { restart: 60s }\nprogress: 'step (\\d+)/(\\d+)'\nrun: exec python3 deaf.py\n",
    );
    let said = testbed.run(&["run", "--json", "deaf.yaml"]).ends_with(0);
    let bill = said.lines().pop().unwrap();
    assert_eq!((&bill["state"], &bill["deadline_met"]), (&"succeeded".into(), &true.into()), "{bill}");
    assert!(bill["stints"].as_u64().unwrap() < 10, "{bill}");
    assert!(bill["lost_work_seconds"].as_f64().unwrap() > 0.0, "what it lost is on the bill: {bill}");
    // Every lease with its cost: the bill can be checked.
    let explained = testbed.run(&["explain", bill["id"].to_string().as_str()]).ends_with(0);
    assert!(explained.out.lines().any(|line| line.contains("is gone") && line.contains("cost $")), "{explained:?}");
}

#[test]
fn what_nothing_can_serve_is_refused_with_what_is_sold() {
    let testbed = Testbed::steady();
    testbed.write("banana.yaml", "resources: { accelerators: banana }\nrun: 'true'\n");
    let said = testbed.run(&["submit", "banana.yaml"]).ends_with(2);
    assert!(said.err.contains("banana:1") && said.err.contains("what is sold is"), "{said:?}");
    assert!(said.err.contains("--wait"), "{said:?}");
    testbed.write("cheap.yaml", "max_price: 0.0001\nrun: 'true'\n");
    let said = testbed.run(&["submit", "cheap.yaml"]).ends_with(2);
    assert!(said.err.contains("below every spot price on record"), "{said:?}");
    assert!(testbed.jobs().is_empty(), "nothing changed");
    testbed.submit("name: dear\nmax_price: 1000\nrun: 'true'\n");
    let meant = testbed.run(&["submit", "--wait", "--json", "banana.yaml"]).ends_with(0).json();
    let job = testbed.job(meant["id"].as_u64().unwrap());
    assert!(job["waits_for"].as_str().unwrap().contains("banana:1"), "{job}");
}

/// Counts to twenty; fails at ten unless told otherwise.
const STUMBLES: &str = r#"
import os, sys, time
path = os.path.join(os.environ["WINDFALL_CHECKPOINT_DIR"], "step")
step = int(open(path).read()) if os.path.exists(path) else 0
print(f"begins at {step}", flush=True)
while step < 20:
    step += 1
    print(f"step {step}/20", flush=True)
    with open(path + ".tmp", "w") as file:
        file.write(str(step))
    os.replace(path + ".tmp", path)
    if step == 10 and os.environ.get("CAREFUL") != "1":
        sys.exit(7)
    time.sleep(0.05)
"#;

#[test]
fn a_failed_job_is_gone_on_from_with_a_changed_job_file() {
    let testbed = Testbed::steady();
    testbed.write("stumbles.py", STUMBLES);
    let file = "name: stumbles\nprogress: 'step (\\d+)/(\\d+)'\nrun: exec python3 stumbles.py\n";
    testbed.write("first.yaml", file);
    testbed.write("second.yaml", &format!("{file}env: {{ CAREFUL: '1' }}\n"));
    let failed = testbed.run(&["run", "--json", "first.yaml"]).ends_with(3).lines();
    let first = failed.last().unwrap()["id"].to_string();
    // One with a mistake in it fails on everything that is saved, which says nothing of what is saved.
    testbed.write("mistaken.yaml", &file.replace("python3", "no-such-program"));
    let mistaken = testbed.run(&["resume", "--json", "stumbles", "mistaken.yaml"]).ends_with(0).json();
    testbed.until(mistaken["id"].as_u64().unwrap(), &["failed"]);
    let accepted = testbed.run(&["resume", "--json", "stumbles", "second.yaml"]).ends_with(0).json();
    let id = accepted["id"].as_u64().unwrap();
    testbed.until(id, &["succeeded"]);
    let output = testbed.run(&["logs", &id.to_string()]).ends_with(0).out;
    assert!(output.starts_with("begins at 10\n"), "{output}");
    // Stints of the first job count on from those of the second: both went on from the same checkpoints.
    let again = testbed.run(&["resume", "--json", &first, "second.yaml"]);
    let id = again.ends_with(0).json()["id"].as_u64().unwrap();
    testbed.until(id, &["succeeded"]);
    let output = testbed.run(&["logs", &id.to_string()]).ends_with(0).out;
    assert!(output.starts_with("begins at 20\n"), "{output}");
    // Where the store is empty nothing is begun anew behind the user's back.
    std::fs::remove_dir_all(testbed.home.join("checkpoints")).unwrap();
    let refused = testbed.run(&["resume", &id.to_string()]).ends_with(2);
    assert!(refused.err.contains("is not in its store any more"), "{refused:?}");
}

#[test]
fn a_bill_compares_like_with_like() {
    let testbed = Testbed::steady();
    testbed.write("firm.yaml", "priority: critical\nwork: { hours: 0.05 }\nrun: sleep 3\n");
    let said = testbed.run(&["run", "firm.yaml"]).ends_with(0);
    assert!(said.out.contains("you paid the same"), "{said:?}");
    assert!(!said.out.contains("on average"), "nothing was started twice: {said:?}");
    testbed.write("fails.yaml", "run: exit 3\n");
    let said = testbed.run(&["run", "fails.yaml"]).ends_with(3);
    assert!(!said.out.contains("% less"), "a job that failed saved nothing: {said:?}");
    assert!(!said.out.contains("code 3 (code 3)"), "{said:?}");
}

#[test]
fn a_short_job_with_plenty_of_time_is_not_put_off() {
    let testbed = Testbed::steady();
    for _ in 0..2 {
        testbed.write("short.yaml", "work: { hours: 0.1 }\ndeadline: 90m\nrun: sleep 6\n");
        let said = testbed.run(&["run", "--json", "short.yaml"]).ends_with(0);
        let bill = said.lines().pop().unwrap();
        assert!(bill["seconds"].as_f64().unwrap() < 1_800.0, "{bill}");
    }
}

#[test]
fn a_gang_larger_than_the_market_ever_was_is_refused() {
    let testbed = Testbed::bare();
    testbed.write("gang.yaml", "nodes: 3\nrun: 'true'\n");
    let said = testbed.run(&["submit", "gang.yaml"]).ends_with(2);
    assert!(said.err.contains("never on sale here: the most is 1"), "{said:?}");
    testbed.write("promised.yaml", "nodes: 3\nwork: { hours: 1 }\ndeadline: 9h\nrun: 'true'\n");
    testbed.run(&["submit", "promised.yaml"]).ends_with(0);
}

#[test]
fn a_checkpoint_folder_that_is_not_the_job_s_own_is_refused() {
    let testbed = Testbed::steady();
    let file = testbed.write("a-file", "");
    let shared = testbed.work.join("saves");
    std::fs::create_dir(&shared).unwrap();
    std::os::unix::fs::symlink(&shared, testbed.work.join("link")).unwrap();
    std::os::unix::fs::symlink("/etc", testbed.work.join("system")).unwrap();
    let job = |path: &std::path::Path| format!("checkpoint: {{ path: {} }}\nrun: sleep 600\n", path.display());
    testbed.write("first.yaml", &job(&shared));
    testbed.run(&["submit", "first.yaml"]).ends_with(0);
    let wrong = [
        (testbed.home.join("jobs"), "state directory"),
        ("/etc/windfall".into(), "folder of the system"),
        (testbed.work.join("system/windfall"), "folder of the system"),
        (file, "is a file"),
        (testbed.work.join("link"), "saves its checkpoints in"),
        (shared.join("below"), "saves its checkpoints in"),
    ];
    for (path, words) in wrong {
        testbed.write("other.yaml", &job(&path));
        let said = testbed.run(&["submit", "other.yaml"]).ends_with(2);
        assert!(said.err.contains(words), "{path:?}: {said:?}");
    }
    let through = testbed.work.join("link/store");
    let inside = format!("{{ path: {}, store: {} }}", shared.display(), through.display());
    testbed.write("inside.yaml", &format!("checkpoint: {inside}\nrun: sleep 600\n"));
    let said = testbed.run(&["submit", "inside.yaml"]).ends_with(2);
    assert!(said.err.contains("one inside the other"), "{said:?}");
    assert_eq!(testbed.jobs().len(), 1, "nothing else was taken");
}

#[test]
fn files_that_another_job_left_are_not_taken_for_progress() {
    let testbed = Testbed::steady();
    testbed.write("counts.py", STUMBLES);
    let path = testbed.work.join("saves");
    let run = "progress: 'step (\\d+)/(\\d+)'\nenv: { CAREFUL: '1' }\nrun: exec python3 counts.py\n";
    testbed.write("job.yaml", &format!("name: counts\ncheckpoint: {{ path: {} }}\n{run}", path.display()));
    testbed.run(&["run", "job.yaml"]).ends_with(0);
    for command in ["run", "submit"] {
        let refused = testbed.run(&[command, "job.yaml"]).ends_with(2);
        assert!(refused.err.contains("holds files that this job did not write: step"), "{refused:?}");
        assert!(refused.err.contains("--with-files"), "{refused:?}");
    }
    assert_eq!(testbed.run(&["jobs", "--all", "--json"]).ends_with(0).json().as_array().unwrap().len(), 1);
    let meant = testbed.run(&["submit", "--with-files", "--json", "job.yaml"]).ends_with(0).json();
    let id = meant["id"].as_u64().unwrap();
    testbed.until(id, &["succeeded"]);
    assert!(testbed.run(&["logs", &id.to_string()]).ends_with(0).out.starts_with("begins at 20\n"));
    std::fs::remove_dir_all(&path).unwrap();
    testbed.run(&["run", "job.yaml"]).ends_with(0);
    let output = testbed.run(&["logs", "counts"]).ends_with(0).out;
    assert!(output.starts_with("begins at 0\n"), "{output}");
}

#[test]
fn a_job_that_goes_on_in_another_folder_leaves_what_is_there() {
    let testbed = Testbed::steady();
    testbed.write("stumbles.py", STUMBLES);
    let file = |path: &str, careful: &str| {
        let path = testbed.work.join(path);
        format!(
            "name: stumbles\nenv: {{ CAREFUL: '{careful}' }}\nprogress: 'step (\\d+)/(\\d+)'\ncheckpoint: {{ path: {} }}\n\
             run: exec python3 stumbles.py\n",
            path.display()
        )
    };
    testbed.write("first.yaml", &file("saves", "0"));
    testbed.run(&["run", "first.yaml"]).ends_with(3);
    std::fs::create_dir_all(testbed.work.join("other/empty")).unwrap();
    let mine = testbed.write("other/mine.txt", "mine");
    testbed.write("second.yaml", &file("other", "1"));
    let refused = testbed.run(&["resume", "stumbles", "second.yaml"]).ends_with(2);
    assert!(refused.err.contains("holds files that this job did not write: mine.txt\n"), "{refused:?}");
    let accepted = testbed.run(&["resume", "--with-files", "--json", "stumbles", "second.yaml"]).ends_with(0).json();
    let id = accepted["id"].as_u64().unwrap();
    testbed.until(id, &["succeeded"]);
    assert!(testbed.run(&["logs", &id.to_string()]).ends_with(0).out.starts_with("begins at 10\n"));
    assert_eq!(std::fs::read_to_string(mine).unwrap(), "mine");
}

/// Reports each step, saves the fortieth and nothing after it.
const FORGETFUL: &str = r#"
import os, time
path = os.path.join(os.environ["WINDFALL_CHECKPOINT_DIR"], "step")
for step in range(1, 10_000):
    print(f"step {step}/10000", flush=True)
    if step == 40 and not os.path.exists(path):
        with open(path, "w") as file:
            file.write("40")
    time.sleep(0.05)
"#;

#[test]
fn what_a_lost_machine_took_with_it_is_on_the_bill() {
    let testbed = Testbed::steady();
    testbed.write("forgetful.py", FORGETFUL);
    let id = testbed.submit(
        "name: forgetful\nwork: { steps: 10000, throughput: { stage: 20/min } }\n\
         progress: 'step (\\d+)/(\\d+)'\nrun: exec python3 forgetful.py\n",
    );
    eventually("it has saved once and gone on", || {
        let job = testbed.job(id);
        job["durable"].as_u64() > Some(0) && job["done"].as_u64() > job["durable"].as_u64().map(|saved| saved + 60)
    });
    let done = testbed.job(id)["done"].as_u64().unwrap();
    testbed.post("/v1/interrupt", &serde_json::json!({ "job": id, "how": "without" }));
    eventually("the loss is known", || testbed.job(id)["interruptions"] == 1);
    let job = testbed.job(id);
    // Twenty steps take a minute of the world's time.
    let lost_steps = job["lost_ms"].as_u64().unwrap() / 3_000;
    assert!(lost_steps + 2 >= done - job["durable"].as_u64().unwrap(), "{lost_steps} of {done}: {job}");
    testbed.run(&["cancel", "forgetful"]).ends_with(0);
}
