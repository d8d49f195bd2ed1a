//! Very many jobs at once on a real controller: each is run once, none is lost, and the controller is not asked to death.

use super::kills::setting;
use super::nodes::free_port;
use super::slurm::{Cluster, up};
use super::testbed::{Testbed, eventually, is_root, within};
use super::witness::check_ledger;
use serde_json::{Value, json};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// How often the controller was asked for something, by what it says itself.
fn asked(cluster: &Cluster, what: &str) -> u64 {
    let said = cluster.says("sdiag", &[]);
    let line = said.lines().find(|line| line.trim_start().starts_with(what)).unwrap_or_default();
    line.split("count:").nth(1).and_then(|rest| rest.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}

/// Everything that the controller was asked for: submissions, looks, and what its own nodes say.
fn looks(cluster: &Cluster) -> [u64; 3] {
    ["REQUEST_JOB_INFO", "REQUEST_PARTITION_INFO", "REQUEST_NODE_INFO"].map(|what| asked(cluster, what))
}

/// Numbers that programs wrote, one for each run.
fn runs(file: &Path) -> Vec<u64> {
    let mut numbers: Vec<u64> =
        std::fs::read_to_string(file).unwrap().lines().map(|line| line.parse().unwrap()).collect();
    numbers.sort_unstable();
    numbers
}

fn program(number: u64, file: &Path) -> String {
    format!("echo {number} >> {}", file.display())
}

fn all_jobs(testbed: &Testbed) -> Vec<Value> {
    testbed.get("/v1/jobs?all=true&limit=10000").as_array().unwrap().clone()
}

/// `WINDFALL_SUBMITS` says how many.
#[test]
fn many_jobs_at_once_are_each_run_once_and_the_controller_is_not_asked_to_death() {
    if !is_root("a Slurm cluster") {
        return;
    }
    let (testbed, port) = (Testbed::bare(), free_port());
    let Some(cluster) = Cluster::start(&testbed, "many_jobs_at_once") else { return };
    up(&testbed, &cluster, port, "gpu");
    let (many, ran) = (setting("WINDFALL_SUBMITS", 60), testbed.work.join("ran"));
    std::fs::write(&ran, "").unwrap();
    let began = Instant::now();
    for number in 0..many {
        let run = program(number, &ran);
        testbed.submit(&format!("name: many-{number}\nresources: {{ accelerators: H100:1 }}\nrun: {run}\n"));
    }
    println!("{many} jobs submitted in {:.1} s", began.elapsed().as_secs_f64());
    eventually("all are done", || all_jobs(&testbed).iter().all(|job| job["state"] == "succeeded"));
    let seconds = began.elapsed().as_secs_f64();
    assert_eq!(runs(&ran), (0..many).collect::<Vec<u64>>(), "each ran once");
    let (submitted, others) = (asked(&cluster, "REQUEST_SUBMIT_BATCH_JOB"), looks(&cluster));
    println!(
        "{many} jobs done in {seconds:.1} s: {submitted} submissions, {others:?} looks at jobs, partitions, nodes"
    );
    // What nodes there are is asked every two seconds, however many jobs want to know.
    assert!(others[2] <= seconds as u64 / 2 + 10, "the controller is asked too often: {others:?}");
    // Looks at jobs begin a quarter of a second apart; `srun` asks for its own job.
    assert!(others[0] <= seconds as u64 * 4 + many + 20, "the controller is asked too often: {others:?}");
    assert!(submitted <= many, "a job of Slurm's for each at the most: {submitted}");
    eventually("nothing of it is in the queue", || cluster.pilots().is_empty());
    testbed.run(&["down"]).ends_with(0);
    check_ledger(&testbed);
    testbed.leaves_nothing();
}

/// Submits so many jobs by hand, `at_once` at a time, and says how many a second that was. They are held, and cancelled again.
fn by_hand(cluster: &Cluster, script: &Path, many: u64, at_once: u64) -> f64 {
    let submit = || {
        let mut command = Command::new("sbatch");
        command.args(["--parsable", "--hold", "-p", "gpu", "--mem=10", "--job-name=by-hand", "--output=/dev/null"]);
        command.arg(script).env("SLURM_CONF", cluster.config()).stdout(Stdio::null());
        assert!(command.status().unwrap().success());
    };
    let began = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..at_once {
            scope.spawn(|| (0..many / at_once).for_each(|_| submit()));
        }
    });
    let rate = many as f64 / began.elapsed().as_secs_f64();
    cluster.says("scancel", &["--name=by-hand"]);
    rate
}

/// `cargo xtask bench slurm-submits` asks for a thousand.
#[test]
fn of_very_many_submissions_none_is_lost_and_none_is_run_twice() {
    if !is_root("a Slurm cluster") {
        return;
    }
    let (testbed, port) = (Testbed::bare(), free_port());
    let Some(cluster) = Cluster::start(&testbed, "of_very_many_submissions") else { return };
    up(&testbed, &cluster, port, "gpu");
    let (many, ran) = (setting("WINDFALL_SUBMITS_AT_ONCE", 150), testbed.work.join("ran"));
    std::fs::write(&ran, "").unwrap();
    let script = testbed.write("by-hand.sh", "#!/bin/sh\n:\n");
    let peers = [1, 8].map(|at_once| by_hand(&cluster, &script, (many / 2).max(8), at_once));

    let job = |number: u64| {
        format!("name: many-{number}\nresources: {{ accelerators: H100:1 }}\nrun: {}\n", program(number, &ran))
    };
    let first = testbed.submit(&job(0));
    let spec: Value = testbed.get(&format!("/v1/jobs/{first}/spec"));
    let (before, looked) = (asked(&cluster, "REQUEST_SUBMIT_BATCH_JOB"), looks(&cluster));
    let began = Instant::now();
    for number in 1..many {
        let mut spec = spec.clone();
        spec["run"]["command"][2] = json!(program(number, &ran));
        let submission = json!({ "key": format!("{number:032x}"), "spec": spec, "deadline_in": null, "env": {} });
        let answer = testbed.post("/v1/jobs", &submission);
        assert!(answer.starts_with("HTTP/1.1 20"), "{answer}");
    }
    let accepted = began.elapsed().as_secs_f64();
    let submitted = || asked(&cluster, "REQUEST_SUBMIT_BATCH_JOB") - before;
    // The first one was under way.
    eventually("the controller has them all", || submitted() >= many - 1);
    let seconds = began.elapsed().as_secs_f64();
    let then = looks(&cluster);
    let per_second = |seconds: f64| (many - 1) as f64 / seconds;
    println!(
        "{many} submissions: accepted {:.0}/s, with the controller {:.1}/s; by hand sbatch {:.1}/s one by one, {:.1}/s \
         eight at a time: {:.2} of that",
        per_second(accepted),
        per_second(seconds),
        peers[0],
        peers[1],
        per_second(seconds) / peers[1]
    );
    println!(
        "in {seconds:.1} s the controller was asked {} times to submit, {} for jobs, {} for partitions, {} for nodes",
        submitted(),
        then[0] - looked[0],
        then[1] - looked[1],
        then[2] - looked[2]
    );

    // So many as are done in a while; the rest is given up where it stands.
    within(Duration::from_secs(setting("WINDFALL_SUBMITS_RUN_S", 15)), || runs(&ran).len() as u64 == many);
    let live = testbed.get("/v1/jobs?limit=10000");
    let live: Vec<u64> = live.as_array().unwrap().iter().filter_map(|job| job["id"].as_u64()).collect();
    live.iter().for_each(|id| _ = testbed.exchange("POST", &format!("/v1/jobs/{id}/cancel"), ""));
    eventually("all are over", || testbed.get("/v1/jobs?limit=10000").as_array().unwrap().is_empty());
    eventually("nothing of it is in the queue", || cluster.pilots().is_empty());
    let ended = all_jobs(&testbed);
    assert_eq!(ended.len() as u64, many, "none is lost");
    let done = ended.iter().filter(|job| job["state"] == "succeeded").count();
    let cancelled = ended.iter().filter(|job| job["state"] == "cancelled").count();
    let mut ran = runs(&ran);
    let times = ran.len();
    ran.dedup();
    assert_eq!(times, ran.len(), "none is run twice");
    assert!(done <= times && done + cancelled == ended.len(), "{done} done, {cancelled} cancelled, {times} ran");
    println!("{done} were done by then, {cancelled} were given up, and none ran twice");
    testbed.run(&["down"]).ends_with(0);
    check_ledger(&testbed);
    testbed.leaves_nothing();
}
