//! This computer as an owned machine: real time, its accelerators given in parts, jobs that queue for them.

use super::processes::{self, Role};
use super::testbed::{Testbed, eventually};
use super::witness::check_ledger;
use rustix::process::Signal;

/// A job that says which accelerators it sees, counts on from what it saved, and ends when a file is there.
fn job(name: &str, resources: &str) -> String {
    format!(
        "name: {name}\n{resources}checkpoint: {{ path: out-{name} }}\n\
         run: |\n  echo \"sees [$CUDA_VISIBLE_DEVICES]\"\n  n=$(cat out-{name}/n 2>/dev/null || echo 0)\n  echo from $n\n  mkdir -p out-{name}\n  \
         while [ ! -e end-{name} ]; do n=$((n + 1)); echo $n > out-{name}/n.new; mv out-{name}/n.new out-{name}/n; sleep 0.1; done\n"
    )
}

fn of(count: u32) -> String {
    format!("resources: {{ accelerators: H200:{count} }}\n")
}

fn output(testbed: &Testbed, id: u64) -> String {
    testbed.run(&["logs", &id.to_string()]).ends_with(0).out
}

#[test]
fn jobs_queue_for_the_accelerators_of_this_computer_and_see_only_their_own() {
    let testbed = Testbed::bare();
    let up = testbed.run(&["up", "--local", "--accelerators", "H200:3", "--rate", "3.6"]).ends_with(0);
    assert!(up.out.contains(" with H200:3 and "), "{up:?}");
    let [two, one, more] =
        [("two", 2), ("one", 1), ("more", 2)].map(|(name, count)| testbed.submit(&job(name, &of(count))));
    let none = testbed.submit(&job("none", ""));
    for id in [two, one, none] {
        testbed.until(id, &["running"]);
    }
    let waits = testbed.job(more);
    assert_eq!(waits["state"], "waiting", "{waits}");
    assert_eq!(waits["waits_for"], "what it asks for is in use on owned machines");
    eventually("all have said what they see", || {
        [two, one, none].iter().all(|id| output(&testbed, *id).contains("sees"))
    });
    let seen =
        |id: u64| output(&testbed, id).lines().find(|line| line.starts_with("sees")).unwrap_or_default().to_owned();
    assert_eq!([seen(two), seen(one), seen(none)], ["sees [0,1]", "sees [2]", "sees []"]);

    // A new server finds everybody where the old one left them.
    let server = testbed.run(&["status", "--json"]).ends_with(0).json()["server"]["pid"].as_i64().unwrap();
    processes::signal(server as i32, Signal::KILL);
    let up = testbed.run(&["up"]).ends_with(0);
    assert!(up.out.contains("4 live jobs, 3 leases"), "{up:?}");
    assert_eq!(testbed.job(more)["state"], "waiting");

    testbed.write("end-two", "");
    testbed.until(two, &["succeeded"]);
    testbed.until(more, &["running"]);
    eventually("it has said what it sees", || output(&testbed, more).contains("sees"));
    assert_eq!(seen(more), "sees [0,1]", "what was given back");
    for (name, id) in [("one", one), ("more", more), ("none", none)] {
        testbed.write(&format!("end-{name}"), "");
        testbed.until(id, &["succeeded"]);
    }
    let bill = testbed.run(&["attach", "--json", &two.to_string()]).ends_with(0);
    let bill = bill.lines().into_iter().find(|line| line["type"] == "bill").expect("a bill");
    let (seconds, dollars) = (bill["seconds_owned"].as_f64().unwrap(), bill["owned_usd"].as_f64().unwrap());
    assert!(seconds > 0.0 && bill["seconds_on_demand"] == 0.0, "{bill}");
    let share = dollars / (seconds / 3600.0 * 3.6);
    assert!((0.66..0.67).contains(&share), "two of three accelerators: {bill}");
    testbed.run(&["down"]).ends_with(0);
    check_ledger(&testbed);
    testbed.leaves_nothing();
}

#[test]
fn a_job_whose_agent_is_killed_goes_on_from_what_it_saved() {
    let testbed = Testbed::bare();
    testbed.run(&["up", "--local", "--accelerators", "H200:1"]).ends_with(0);
    let id = testbed.submit(&job("train", &of(1)));
    testbed.until(id, &["running"]);
    eventually("something is saved", || {
        let explained = testbed.run(&["explain", &id.to_string()]).ends_with(0).out;
        explained.contains("checkpoint")
    });
    let agent = processes::of(&testbed.home).into_iter().find(|process| process.role == Role::Agent).expect("an agent");
    processes::signal(agent.pid, Signal::KILL);
    eventually("it runs again", || output(&testbed, id).matches("sees [0]").count() == 2);
    let begins: Vec<u64> =
        output(&testbed, id).lines().filter_map(|line| line.strip_prefix("from ")?.parse().ok()).collect();
    assert!(begins.len() == 2 && begins[0] == 0 && begins[1] > 0, "{begins:?}");
    testbed.write("end-train", "");
    testbed.until(id, &["succeeded"]);
    testbed.run(&["down"]).ends_with(0);
    testbed.leaves_nothing();
}

#[test]
fn a_state_has_one_world_and_what_cannot_be_is_refused_with_a_hint() {
    let testbed = Testbed::bare();
    for (args, says) in [
        (&["up", "--local", "--speed", "2"][..], "--speed"),
        (&["up", "--local", "--accelerators", "H200"], "not NAME:COUNT: H200"),
        (&["up", "--local", "--accelerators", "H200:0"], "not NAME:COUNT: H200:0"),
        (&["up", "--local", "--rate", "nan"], "not a price of an hour"),
        (&["up", "--rate", "2"], "--local"),
    ] {
        let refused = testbed.run(args).ends_with(2);
        assert!(refused.err.contains(says), "{refused:?}");
    }
    assert!(!testbed.home.exists(), "nothing was made");
    testbed.run(&["up", "--local"]).ends_with(0);
    let refused = testbed.run(&["up", "--market", "steady"]).ends_with(2);
    assert!(refused.err.contains("holds another world already") && refused.err.contains("--home"), "{refused:?}");
    // Nobody who uses this computer has a B300 that nobody stated.
    testbed.write("job.yaml", &job("train", "resources: { accelerators: B300:1 }\n"));
    let refused = testbed.run(&["submit", "job.yaml"]).ends_with(2);
    assert!(refused.err.contains("B300"), "{refused:?}");
    testbed.run(&["down"]).ends_with(0);
    let replayed = Testbed::steady();
    let refused = replayed.run(&["up", "--local"]).ends_with(2);
    assert!(refused.err.contains("holds another world already"), "{refused:?}");
    replayed.run(&["down"]).ends_with(0);
}

#[test]
fn what_a_server_is_started_with_otherwise_is_said_and_ends_nothing() {
    let testbed = Testbed::bare();
    testbed.run(&["up", "--local", "--accelerators", "H200:2", "--rate", "3.6"]).ends_with(0);
    // A gang that no two computers here could ever hold.
    let gang = |words: &str| format!("name: gang\nnodes: 3\nresources: {{ accelerators: H200:1 }}\nrun: {words}\n");
    testbed.write("gang.yaml", &gang("true"));
    let refused = testbed.run(&["submit", "gang.yaml"]).ends_with(2);
    assert!(
        refused.err.contains("it needs 3 workers at once, and all machines together have room for 2"),
        "{refused:?}"
    );
    testbed.run(&["submit", "--wait", "gang.yaml"]).ends_with(0);
    let id = testbed.submit(&job("train", &of(1)));
    testbed.until(id, &["running"]);
    testbed.run(&["down"]).ends_with(0);

    let refused = testbed.run(&["up", "--local=false"]).ends_with(2);
    assert!(refused.err.contains("leaves this server without machines"), "{refused:?}");
    // Its computer is for jobs no more: who runs there ends there, and all of it is paid for.
    let port = format!("127.0.0.1:{}", super::nodes::free_port());
    let up = testbed.run(&["up", "--local=false", "--listen", &port]).ends_with(0);
    for line in ["--local: false; it was true", "--accelerators: none; it was H200:2", "--rate: none; it was $3.60"] {
        assert!(up.err.contains(line), "{line}: {up:?}");
    }
    let nodes = || testbed.run(&["nodes", "--json"]).ends_with(0).json();
    let only = nodes();
    assert_eq!((only[0]["accelerators_used"].as_u64(), only.as_array().map(Vec::len)), (Some(1), Some(1)), "{only}");
    assert!(only[0]["drained"].as_str().is_some_and(|why| why.contains("--local=false")), "{only}");
    testbed.run(&["up", "--local"]).ends_with(0);
    let late = testbed.submit(&format!("name: late\n{}run: 'true'\n", of(1)));
    std::thread::sleep(std::time::Duration::from_secs(2));
    assert_eq!(testbed.job(late)["state"], "waiting");
    testbed.write("end-train", "");
    testbed.until(id, &["succeeded"]);
    eventually("it is a node no more", || nodes().as_array().is_some_and(Vec::is_empty));
    check_ledger(&testbed);
    testbed.run(&["down"]).ends_with(0);
    let up = testbed.run(&["up", "--local", "--accelerators", "H200:2"]).ends_with(0);
    assert!(up.err.contains("--listen: none; it was"), "{up:?}");
    testbed.until(late, &["succeeded"]);
    testbed.run(&["down"]).ends_with(0);
    testbed.leaves_nothing();
}
