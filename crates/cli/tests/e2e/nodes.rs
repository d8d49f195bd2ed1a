//! Machines that have joined: each has a network, a disk and a user of its own, and shares nothing with the server but a wire.

use super::far::Far;
use super::health::{detail, is};
use super::processes;
use super::testbed::{Testbed, eventually, is_root, within};
use super::witness::check_ledger;
use rustix::process::Signal;
use std::time::Duration;

/// A port that nobody has at this moment.
pub fn free_port() -> u16 {
    std::net::TcpListener::bind("0.0.0.0:0").unwrap().local_addr().unwrap().port()
}

pub fn up(testbed: &Testbed, port: u16, dead_man: &str) {
    testbed.run(&["up", "--listen", &format!("0.0.0.0:{port}"), "--dead-man", dead_man]).ends_with(0);
}

pub fn token(testbed: &Testbed, name: &str) -> String {
    testbed.run(&["nodes", "token", name, "--rate", "3.6"]).ends_with(0).out.trim().to_owned()
}

pub fn state_of(testbed: &Testbed, name: &str) -> Option<String> {
    let nodes = testbed.run(&["nodes", "--json"]).ends_with(0).json();
    let node = nodes.as_array().unwrap().iter().find(|node| node["name"] == name)?.clone();
    Some(node["state"].as_str().unwrap().to_owned())
}

pub fn join(testbed: &Testbed, far: &mut Far, port: u16, name: &str) {
    far.start_agent(port, Some(&token(testbed, name)));
    eventually("it is ready", || state_of(testbed, name).as_deref() == Some("ready"));
}

/// Counts on from what it saved, says what it sees of the server, and ends when a file is there.
fn job(testbed: &Testbed, out: &str) -> String {
    format!(
        "name: train\nresources: {{ accelerators: H200:1 }}\ncheckpoint: {{ path: {out} }}\nenv: {{ NAMED: yes }}\n\
         run: |\n  echo \"sees [$CUDA_VISIBLE_DEVICES] as $(id -u), named [$NAMED], secret [$SECRET]\"\n  \
         LC_ALL=C stat {home} 2>&1 | grep -q 'No such file' || echo 'the server lies open'\n  \
         n=$(cat {out}/n 2>/dev/null || echo 0)\n  echo from $n\n  mkdir -p {out}\n  \
         while [ ! -e end ]; do n=$((n + 1)); echo $n > {out}/n.new; mv {out}/n.new {out}/n; sleep 0.1; done\n  echo done at $n\n",
        home = testbed.home.display()
    )
}

pub fn submit(testbed: &Testbed, out: &str) -> u64 {
    submit_text(testbed, &job(testbed, out))
}

fn submit_text(testbed: &Testbed, text: &str) -> u64 {
    let file = testbed.write("job.yaml", text);
    let mut submit = testbed.command(&["submit", file.to_str().unwrap(), "--json"]);
    submit.env("SECRET", "of the terminal");
    testbed.finish(submit).ends_with(0).json()["id"].as_u64().unwrap()
}

/// The address of a server that is none of ours.
fn stranger(host: &str) -> String {
    let listener = std::net::TcpListener::bind((host, 0)).unwrap();
    let address = listener.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().take(4).flatten() {
            let _ = std::io::Write::write_all(&mut stream, b"HTTP/1.0 400 Bad Request\r\n\r\n");
        }
    });
    address
}

/// A job that has saved on a machine that has just joined as `lab-1`.
fn saves_on(testbed: &Testbed, far: &mut Far, port: u16, text: &str) -> u64 {
    join(testbed, far, port, "lab-1");
    let id = submit_text(testbed, text);
    testbed.until(id, &["running"]);
    eventually("it has saved", || has_saved(testbed, id));
    id
}

pub fn output(testbed: &Testbed, id: u64) -> String {
    testbed.run(&["logs", &id.to_string()]).ends_with(0).out
}

pub fn has_saved(testbed: &Testbed, id: u64) -> bool {
    testbed.run(&["explain", "--all", &id.to_string()]).ends_with(0).out.contains("is durable")
}

/// The numbers from which a job's stints began, as it printed them.
pub fn beginnings(testbed: &Testbed, id: u64) -> Vec<u64> {
    let output = output(testbed, id);
    output.lines().filter_map(|line| line.strip_prefix("from ")?.parse().ok()).collect()
}

#[test]
fn a_machine_joins_once_and_runs_a_job_with_nothing_of_the_servers_but_its_orders() {
    if !is_root("a machine of its own") {
        return;
    }
    let (testbed, port) = (Testbed::bare(), free_port());
    up(&testbed, port, "4h");
    let mut far = Far::new(&testbed);
    let server = format!("{}:{port}", far.server);

    // Whoever is not what it says gets nowhere, and is told why.
    let good = token(&testbed, "lab-1");
    let other_server = format!("windfall-join-{}{}", "0".repeat(64), &good[good.len() - 32..]);
    let stranger = stranger(&far.server);
    for (args, code, says) in [
        (vec![stranger.as_str(), "--token", &good], 2, "answers, but not as a server of nodes"),
        (vec![server.as_str(), "--token", "nonsense"], 2, "this is no token"),
        (vec![&server, "--token", &other_server], 2, "not the server that the token is of"),
        (vec![&server, "--token", &good, "--name", "lab-2"], 2, "another name"),
        (vec![&server], 2, "has not joined"),
        (vec!["ftp://somewhere", "--token", &good], 2, "not the address of a server"),
    ] {
        let (ended, said) = far.try_to_join(&args);
        assert!(ended == Some(code) && said.contains(says) && said.contains("hint:"), "{args:?}: {said}");
    }
    far.start_agent(port, Some(&good));
    eventually("it is ready", || state_of(&testbed, "lab-1").as_deref() == Some("ready"));
    let (ended, said) = far.try_to_join(&[&server, "--token", &good]);
    assert!(ended == Some(2) && said.contains("was used before"), "{said}");
    // What it has joined with is not spent on another server, whose token it was given by mistake.
    let (other, other_port) = (Testbed::bare(), free_port());
    up(&other, other_port, "4h");
    let joined = far.state().display().to_string();
    let args = [&format!("{}:{other_port}", far.server), "--token", &token(&other, "lab-1"), "--state", &joined];
    far.stop_agent();
    let (ended, said) = far.try_to_join(&args);
    assert!(ended == Some(2) && said.contains("has joined another server") && said.contains("hint:"), "{said}");
    far.start_agent(port, None);
    eventually("it is still a node here", || state_of(&testbed, "lab-1").as_deref() == Some("ready"));
    other.leaves_nothing();
    let again = testbed.run(&["nodes", "token", "lab-1"]).ends_with(2);
    assert!(again.err.contains("has joined already") && again.err.contains("hint:"), "{again:?}");
    assert!(testbed.run(&["nodes", "token", "../x"]).ends_with(2).err.contains("cannot be a node's name"));

    let id = submit(&testbed, "out");
    testbed.until(id, &["running"]);
    eventually("it has saved", || has_saved(&testbed, id));
    let said = output(&testbed, id);
    assert!(said.contains(&format!("sees [0] as {}, named [yes], secret []\nfrom 0\n", far.user)), "{said}");
    assert!(!said.contains("open"), "{said}");
    // Its checkpoints are with the server: its own disk keeps only what the program wrote.
    assert!(std::fs::read_dir(testbed.home.join("checkpoints")).unwrap().next().is_some());

    // A drained node takes nothing new, and what runs there goes on.
    testbed.run(&["nodes", "drain", "lab-1", "--why", "a fan is loud"]).ends_with(0);
    assert!(testbed.run(&["nodes"]).ends_with(0).out.contains("a fan is loud"));
    let second = submit(&testbed, "out-2");
    assert!(!within(Duration::from_secs(3), || testbed.job(second)["state"] == "running"));
    assert_eq!(testbed.job(id)["state"], "running");
    let silent = testbed.run(&["logs", &second.to_string()]).ends_with(0);
    assert!(silent.out.is_empty() && silent.err.contains(&format!("job {second} has not run yet: ")), "{silent:?}");
    testbed.run(&["nodes", "resume", "lab-1"]).ends_with(0);
    testbed.until(second, &["running"]);
    let busy = testbed.run(&["nodes", "remove", "lab-1"]).ends_with(2);
    assert!(busy.err.contains("2 leases") && busy.err.contains("--lost"), "{busy:?}");

    far.write(&testbed.work.join("end"), "");
    for id in [id, second] {
        testbed.until(id, &["succeeded"]);
        assert!(output(&testbed, id).contains("done at "), "last words come before the end");
    }
    let state = testbed.home.with_file_name("far").join("state").display().to_string();
    eventually("nothing of the jobs is left there", || {
        far.says(&format!("cd {state} && ls jobs leases")) == "jobs:\n\nleases:"
    });
    testbed.run(&["nodes", "remove", "lab-1"]).ends_with(0);
    eventually("it hears that it is no node any more", || far.said().contains("its key is not known here"));
    testbed.run(&["down"]).ends_with(0);
    check_ledger(&testbed);
    testbed.leaves_nothing();
}

#[test]
fn work_on_a_node_outlives_its_server_its_agent_and_a_wire_that_is_cut_for_a_while() {
    if !is_root("a machine of its own") {
        return;
    }
    let (testbed, port) = (Testbed::bare(), free_port());
    up(&testbed, port, "4h");
    let mut far = Far::new(&testbed);
    join(&testbed, &mut far, port, "lab-1");
    let id = submit(&testbed, "out");
    testbed.until(id, &["running"]);
    eventually("its program runs", || !far.programs(id).is_empty());
    let programs = far.programs(id);

    let server = testbed.run(&["status", "--json"]).ends_with(0).json()["server"]["pid"].as_i64().unwrap();
    processes::signal(server as i32, Signal::KILL);
    testbed.run(&["up"]).ends_with(0);
    eventually("it is back after the server was killed", || state_of(&testbed, "lab-1").as_deref() == Some("ready"));
    far.kill_agent();
    eventually("it is away", || state_of(&testbed, "lab-1").as_deref() == Some("away"));
    far.start_agent(port, None);
    eventually("it is back after its agent was killed", || state_of(&testbed, "lab-1").as_deref() == Some("ready"));
    far.cut(true);
    let limit = Duration::from_secs(40);
    assert!(within(limit, || state_of(&testbed, "lab-1").as_deref() == Some("away")), "it is noticed");
    assert_eq!(testbed.job(id)["state"], "running", "nobody begins it elsewhere");
    far.cut(false);
    eventually("it is back after the wire was cut", || state_of(&testbed, "lab-1").as_deref() == Some("ready"));

    let same = far.programs(id);
    assert!(programs.iter().any(|pid| same.contains(pid)), "the same program all the time: {programs:?}, {same:?}");
    far.write(&testbed.work.join("end"), "");
    testbed.until(id, &["succeeded"]);
    assert_eq!(beginnings(&testbed, id), [0], "{}", output(&testbed, id));
    assert!(output(&testbed, id).contains("done at "));
    testbed.run(&["down"]).ends_with(0);
    check_ledger(&testbed);
    testbed.leaves_nothing();
}

#[test]
fn a_node_that_is_cut_off_for_longer_than_its_dead_man_time_runs_nothing_when_its_job_goes_on_elsewhere() {
    if !is_root("a machine of its own") {
        return;
    }
    let (testbed, port) = (Testbed::bare(), free_port());
    up(&testbed, port, "6s");
    let [mut one, mut two] = [Far::new(&testbed), Far::new(&testbed)];
    let text = job(&testbed, "out").replace("sleep 0.1", "echo at $n; sleep 0.1");
    let id = saves_on(&testbed, &mut one, port, &text);
    join(&testbed, &mut two, port, "lab-2");

    one.cut(true);
    // Its agent is gone too: whoever started the program must end it without being told.
    one.kill_agent();
    let limit = Duration::from_secs(60);
    let moved = within(limit, || {
        let [here, there] = [one.programs(id), two.programs(id)];
        assert!(here.is_empty() || there.is_empty(), "it runs twice: {here:?} and {there:?}");
        !there.is_empty()
    });
    assert!(moved, "it goes on elsewhere: {}", testbed.run(&["explain", &id.to_string()]).out);
    one.until_quiet(id);
    let printed = one.says(&format!("cat {}/jobs/*/output-*.log", one.state().display()));
    assert!(!output(&testbed, id).contains(&printed), "of the last seconds the server has heard nothing");
    one.cut(false);
    one.start_agent(port, None);
    eventually("the other is back", || state_of(&testbed, "lab-1").as_deref() == Some("ready"));
    assert!(one.programs(id).is_empty());
    eventually("what was printed during the cut is there", || output(&testbed, id).starts_with(&printed));
    two.write(&testbed.work.join("end"), "");
    testbed.until(id, &["succeeded"]);
    let begun = beginnings(&testbed, id);
    assert!(begun.len() == 2 && begun[1] > 0, "it went on from what was saved: {begun:?}");
    testbed.run(&["down"]).ends_with(0);
    check_ledger(&testbed);
    testbed.leaves_nothing();
}

#[test]
fn a_copy_of_a_node_s_disk_does_not_speak_for_the_machine_that_it_was_copied_from() {
    if !is_root("a machine of its own") {
        return;
    }
    let (testbed, port) = (Testbed::bare(), free_port());
    up(&testbed, port, "30s");
    let [mut one, mut two] = [Far::new(&testbed), Far::new(&testbed)];
    let id = saves_on(&testbed, &mut one, port, &job(&testbed, "out"));
    let copy = testbed.work.parent().unwrap().join("copy.tar");
    let from = format!("cd {} && tar c --exclude='*.sock' state", one.disk().display());
    let tar = one.command("sh", &["-c", &from]).output().unwrap();
    std::fs::write(&copy, tar.stdout).unwrap();
    let mut unpack = two.command("tar", &["x", "-C", two.disk().to_str().unwrap()]);
    assert!(unpack.stdin(std::fs::File::open(&copy).unwrap()).status().unwrap().success());
    // Its wire to the server is another one.
    two.says(&format!("sed -i s/{}/{}/ {}/joined.json", one.server, two.server, two.state().display()));
    let contact = format!("cat {}/contact", two.state().display());
    let copied = two.says(&contact);

    one.cut(true);
    two.start_agent(port, None);
    let mut was_there = false;
    let limit = Duration::from_secs(150);
    let moved = within(limit, || {
        let [here, there] = [one.programs(id), two.programs(id)];
        assert!(here.is_empty() || there.is_empty(), "it runs twice: {here:?} and {there:?}");
        was_there |= !here.is_empty() && two.says(&contact) != copied;
        !there.is_empty()
    });
    assert!(was_there, "the copy is the node while the machine that it was copied from still runs the job");
    let nodes = testbed.run(&["nodes"]).out;
    assert!(moved, "it goes on there: {nodes}{}{}", two.said(), testbed.run(&["explain", &id.to_string()]).out);
    one.cut(false);
    eventually("the first is told", || one.said().contains("another machine with the same key"));
    two.write(&testbed.work.join("end"), "");
    testbed.until(id, &["succeeded"]);
    let begun = beginnings(&testbed, id);
    assert!(begun.len() == 2 && begun[1] > 0, "it went on from what was saved: {begun:?}");
    testbed.run(&["down"]).ends_with(0);
    check_ledger(&testbed);
    testbed.leaves_nothing();
}

#[test]
fn an_agent_whose_state_directory_is_removed_ends_and_its_job_goes_on_elsewhere() {
    if !is_root("a machine of its own") {
        return;
    }
    let (testbed, port) = (Testbed::bare(), free_port());
    // Longer than anybody waits here: the server is told, and does not find out by itself.
    up(&testbed, port, "4h");
    let (mut first, mut second) = (Far::new(&testbed), Far::new(&testbed));
    let id = saves_on(&testbed, &mut first, port, &job(&testbed, "out"));
    join(&testbed, &mut second, port, "lab-2");
    first.as_root(&format!("rm -rf {}", first.state().display()));
    eventually("it says so and ends", || first.said().contains("was removed while this agent ran"));
    eventually("it goes on on the other machine", || !second.programs(id).is_empty());
    second.write(&testbed.work.join("end"), "");
    testbed.until(id, &["succeeded"]);
    testbed.run(&["nodes", "remove", "lab-1", "--lost"]).ends_with(0);
    testbed.leaves_nothing();
}

#[test]
fn nodes_have_labels_and_a_place_and_what_is_wrong_changes_nothing() {
    if !is_root("a machine of its own") {
        return;
    }
    let (testbed, port) = (Testbed::bare(), free_port());
    for (args, says) in [
        (&["nodes", "label", "lab-1", "rack"][..], "not a label: rack"),
        (&["nodes", "label", "lab-1"], "KEY=VALUE"),
        (&["nodes", "topology", "none.toml"], "there is no such file"),
        (&["node", "../x"], "cannot be a node's name"),
    ] {
        let refused = testbed.run(args).ends_with(2);
        assert!(refused.err.contains(says), "{refused:?}");
    }
    assert!(!testbed.home.exists(), "nothing was asked, and nothing made");
    up(&testbed, port, "4h");
    let mut far = Far::new(&testbed);
    let (ended, said) = far.try_to_join(&["host:1", "--label", "a b=c"]);
    assert!(ended == Some(2) && said.contains("not a label: a b=c") && said.contains("hint:"), "{said}");
    let word = token(&testbed, "lab-1");
    far.start_agent_with(
        port,
        Some(&word),
        &["--once", "--accelerators", "H200:2", "--label", "zone=west", "--label", "tier=old"],
        &[],
    );
    // What was said of the machine then holds for the plain agent that goes on.
    let said = far.state().join("said.json").display().to_string();
    eventually("it has joined", || far.says(&format!("ls {said} 2>&1 || true")) == said);
    far.start_agent_with(port, None, &[], &[]);
    eventually("it is ready", || is(&testbed, "lab-1", "ready"));

    let labels = || detail(&testbed, "lab-1")["node"]["labels"].clone();
    testbed.run(&["nodes", "label", "lab-1", "rack=r7", "tier=gold"]).ends_with(0);
    assert_eq!(
        labels(),
        serde_json::json!({ "rack": "r7", "tier": "gold", "zone": "west" }),
        "the operator's counts more"
    );
    testbed.run(&["nodes", "label", "lab-1", "tier-"]).ends_with(0);
    assert_eq!(labels()["tier"], "old");
    for (wrong, says) in [(&["rack=r1", "rack=r2"][..], "said twice"), (&["nosuch-"], "no label called nosuch")] {
        let refused = testbed.run(&[&["nodes", "label", "lab-1"], wrong].concat()).ends_with(2);
        assert!(refused.err.contains(says) && refused.err.contains("hint:"), "{refused:?}");
    }

    let file = testbed.write("wrong.toml", "[rack.r1]\nzone = \"east\"\nnodes = [\"lab-1\", \"lab-2\"]\n");
    let before = labels();
    let refused = testbed.run(&["nodes", "topology", file.to_str().unwrap()]).ends_with(2);
    assert!(refused.err.contains("no node called lab-2") && refused.err.contains("did you mean lab-1?"), "{refused:?}");
    let file = testbed.write("worse.toml", "[rak.r1]\nnodes = [\"lab-1\"]\n");
    let refused = testbed.run(&["nodes", "topology", file.to_str().unwrap()]).ends_with(2);
    assert!(refused.err.contains("worse.toml:1:2") && refused.err.contains("did you mean `rack`?"), "{refused:?}");
    assert_eq!(labels(), before, "nothing was changed");
    let file = testbed.write("right.toml", "[rack.r1]\nzone = \"east\"\nnodes = [\"lab-1\"]\n");
    testbed.run(&["nodes", "topology", file.to_str().unwrap()]).ends_with(0);
    let place = serde_json::json!({ "rack": "r1", "zone": "east" });
    assert_eq!(detail(&testbed, "lab-1")["node"]["domains"], place);

    testbed.run(&["down"]).ends_with(0);
    testbed.run(&["up"]).ends_with(0);
    assert_eq!(detail(&testbed, "lab-1")["node"]["domains"], place, "the next server knows it");
    let shown = testbed.run(&["node", "lab-1"]).ends_with(0).out;
    assert!(shown.contains("place     zone east, rack r1") && shown.contains("labels    tier=old"), "{shown}");
    let unknown = testbed.run(&["node", "lab-11"]).ends_with(2);
    assert!(
        unknown.err.contains("no node called lab-11") && unknown.err.contains("did you mean lab-1?"),
        "{unknown:?}"
    );
    let mut narrow = testbed.command(&["node", "lab-1"]);
    narrow.env("COLUMNS", "40");
    let narrow = testbed.finish(narrow).ends_with(0).out;
    assert!(narrow.lines().all(|line| line.chars().count() <= 40), "{narrow}");
    testbed.leaves_nothing();
}
