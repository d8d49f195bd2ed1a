//! The control plane dies and comes back; what runs goes on, and what is stale never counts.

use super::processes::{self, Role};
use super::testbed::{Testbed, eventually, in_python};
use super::witness::{Witness, check_ledger};
use rustix::process::Signal;
use serde_json::json;

fn server(testbed: &Testbed) -> Vec<i32> {
    pids(testbed, &Role::Server)
}

fn pids(testbed: &Testbed, role: &Role) -> Vec<i32> {
    processes::of(&testbed.home).into_iter().filter(|process| process.role == *role).map(|p| p.pid).collect()
}

fn kill(pids: &[i32]) {
    for pid in pids {
        processes::signal(*pid, Signal::KILL);
    }
    eventually("they are gone", || pids.iter().all(|pid| !processes::is_running(*pid)));
}

#[test]
fn a_worker_survives_the_death_of_the_server_and_is_adopted() {
    let testbed = Testbed::steady();
    let witness = Witness::submit(&testbed, "survivor", "daemon");
    let before = witness.until_beats(&[]);
    for _ in 0..3 {
        kill(&server(&testbed));
        let beats = witness.runs()[0].beats;
        eventually("it beats without a server", || witness.runs()[0].beats > beats + 10);
        let job = testbed.until(witness.id, &["running"]);
        assert_eq!(job["stints"], 1);
        assert_eq!(job["interruptions"], 0);
    }
    assert_eq!(witness.alive().map(|run| run.pid), Some(before.pid), "the same process all along");
    let explained = testbed.run(&["explain", "--json", "survivor"]).ends_with(0).json();
    let starts = explained["lines"].as_array().unwrap().iter().filter(|line| line["kind"] == "start").count();
    assert_eq!(starts, 1, "one stint in the log as well");
    witness.finish();
    witness.check_over(&testbed);
    assert_eq!(witness.runs().len(), 1);
    check_ledger(&testbed);
    testbed.leaves_nothing();
}

#[test]
fn a_program_that_ends_while_no_server_runs_has_succeeded() {
    let testbed = Testbed::steady();
    let witness = Witness::submit(&testbed, "alone", "plain");
    let run = witness.until_beats(&[]);
    kill(&server(&testbed));
    witness.finish();
    eventually("the program has ended", || !processes::is_running(run.pid));
    witness.check_over(&testbed);
    assert_eq!(witness.runs().len(), 1);
    check_ledger(&testbed);
}

#[test]
fn any_two_may_die_in_one_moment() {
    let testbed = Testbed::steady();
    let witness = Witness::submit(&testbed, "pairs", "daemon");
    let roles = [Role::Server, Role::Guard, Role::Agent, Role::Program];
    for (index, first) in roles.iter().enumerate() {
        for second in &roles[index..] {
            let run = witness.until_beats(&[]);
            let find = |role: &Role| if *role == Role::Program { vec![run.pid] } else { pids(&testbed, role) };
            let both: Vec<i32> = find(first).into_iter().chain(find(second)).collect();
            kill(&both);
            assert_eq!(testbed.jobs().len(), 1);
            let outlived = both.contains(&run.pid) || *first != Role::Server || *second != Role::Server;
            witness.until_beats(if outlived { std::slice::from_ref(&run.pid) } else { &[] });
            witness.check();
            assert!(witness.daemons().len() <= 1, "{first:?} and {second:?} left a process behind");
        }
    }
    witness.finish();
    witness.check_over(&testbed);
    check_ledger(&testbed);
    testbed.leaves_nothing();
}

#[test]
fn a_frozen_stint_is_dead_before_its_successor_runs() {
    let testbed = Testbed::steady();
    let witness = Witness::submit(&testbed, "frozen", "daemon");
    let run = witness.until_beats(&[]);
    let frozen: Vec<i32> =
        processes::of(&testbed.home).into_iter().filter(|p| p.role != Role::Server).map(|p| p.pid).collect();
    assert!(frozen.len() >= 4, "guard, agent, worker, daemon");
    for pid in &frozen {
        processes::signal(*pid, Signal::STOP);
    }
    let answer = testbed.post("/v1/interrupt", &json!({ "job": witness.id, "how": "without" }));
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    witness.until_beats(&[run.pid]);
    assert!(frozen.iter().all(|pid| !processes::is_running(*pid)), "nothing is left that could wake up");
    witness.finish();
    witness.check_over(&testbed);
    assert_eq!(witness.runs().len(), 2);
}

#[test]
fn a_notice_lets_the_program_save_and_nothing_is_lost() {
    let testbed = Testbed::steady();
    let witness = Witness::submit(&testbed, "noticed", "daemon");
    let run = witness.until_beats(&[]);
    // Two minutes of the world are two seconds here.
    testbed.post("/v1/interrupt", &json!({ "job": witness.id, "how": { "with-notice": 120_000 } }));
    let next = witness.until_beats(&[run.pid]);
    let before = witness.runs()[0];
    assert_eq!(next.first_step, before.last_step, "it goes on where the first stint stopped");
    assert_eq!(testbed.job(witness.id)["interruptions"], 1);
    witness.finish();
    witness.check_over(&testbed);
    check_ledger(&testbed);
}

#[test]
fn a_gang_that_loses_one_worker_resumes_whole() {
    let testbed = Testbed::steady();
    let gang = Witness::submit_gang(&testbed, "gang", 3);
    for victim in [Role::Agent, Role::Program, Role::Guard, Role::Server] {
        let runs: Vec<_> = gang.iter().map(|rank| rank.until_beats(&[])).collect();
        // Only what is durable is resumed from: wait until every rank's first save is.
        eventually("a checkpoint is durable", || testbed.job(gang[0].id)["durable"].as_u64() > Some(3));
        let pid = if victim == Role::Program { runs[1].pid } else { pids(&testbed, &victim)[0] };
        kill(&[pid]);
        testbed.jobs();
        let dead: Vec<i32> = runs.iter().map(|run| run.pid).collect();
        for rank in &gang {
            let run = rank.until_beats(if victim == Role::Server { &[] } else { &dead });
            assert!(victim == Role::Server || run.first_step > 0, "{victim:?}: every rank resumes: {run:?}");
            rank.check();
        }
    }
    assert_eq!(testbed.job(gang[0].id)["stints"], 4);
    for rank in &gang {
        rank.finish();
    }
    for rank in &gang {
        rank.check_over(&testbed);
    }
    check_ledger(&testbed);
    testbed.leaves_nothing();
}

#[test]
fn a_job_that_was_accepted_is_in_the_log_before_its_submitter_hears_of_it() {
    let testbed = Testbed::steady();
    let id = testbed.submit("name: kept\nrun: sleep 600\n");
    kill(&server(&testbed));
    let code = format!(
        "import sqlite3, sys; c = sqlite3.connect('file:' + sys.argv[1] + '/state.db?mode=ro', uri=True); \
         print(c.execute('select count(*) from log where workload = {id} and kind = \"submitted\"').fetchone()[0])"
    );
    assert_eq!(in_python(&code, &[&testbed.home]), "1");
    testbed.until(id, &["running"]);
    testbed.leaves_nothing();
}
