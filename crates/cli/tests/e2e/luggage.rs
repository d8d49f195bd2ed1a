//! What of a job travels: its folder and its secrets to where it runs, and what it leaves back.

use super::far::Far;
use super::nodes::{free_port, join, output};
use super::processes::{self, Process, Role};
use super::testbed::{Testbed, eventually, is_root};
use rustix::process::Signal;
use std::path::{Path, PathBuf};

/// Nobody prints or stores this: the program knows its digest only.
const SECRET: &str = "hush-5f3a81c2";

/// Says what it finds, counts on from what it saved, and ends when the file that is named by its first argument is there.
const PROGRAM: &str = "\
echo \"in $(pwd) with $(cat input) and $(ls | tr '\\n' ' ')\"
echo \"set up: $(cat venv/made 2>/dev/null)\"
sum() { printf %s \"$1\" | md5sum | cut -c1-8; }
[ \"$(sum \"$TOKEN\")\" = d9ddea72 ] && echo 'the token came'
[ \"$(sum \"$FROM_FILE\")\" = d9ddea72 ] && echo 'the one of the file came'
env | grep -c =hush-
n=$(cat out/n 2>/dev/null || echo 0)
echo from $n
while [ ! -e \"$1\" ]; do n=$((n + 1)); echo $n > out/n.new; mv out/n.new out/n; sleep 0.1; done
mkdir -p results; echo $n > results/n; echo noise > scratch
";

/// A project in a folder of its own, with things that are to be left behind.
fn project(testbed: &Testbed) -> PathBuf {
    let folder = testbed.work.join("project");
    for (path, text) in [
        ("train.sh", PROGRAM),
        ("input", "the first input"),
        ("data/large", "not for sending"),
        (".gitignore", "data/\n"),
        (".git/config", "not for sending"),
    ] {
        let path = folder.join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
    std::fs::write(testbed.work.join("token"), format!("{SECRET}\n")).unwrap();
    folder
}

fn job(testbed: &Testbed, end: &Path, setup: &str) -> String {
    format!(
        "name: travels\nworkdir: project\nsetup: |\n  {setup}\noutputs: [results/]\ncheckpoint: {{ path: out }}\n\
         secrets: {{ TOKEN: terminal, FROM_FILE: 'file:{}' }}\nresources: {{ accelerators: H200:1 }}\nrun: sh train.sh {}\n",
        testbed.work.join("token").display(),
        end.display(),
    )
}

fn setup(testbed: &Testbed) -> String {
    // Each time it runs leaves a line beside the state directory of its machine.
    let count = testbed.home.with_file_name("setups").join("count");
    format!(
        "mkdir venv; echo made in $(basename $(pwd) | wc -c) > venv/made; echo once >> {}; echo setting up",
        count.display()
    )
}

fn submit(testbed: &Testbed, text: &str) -> (u64, String) {
    let file = testbed.write("job.yaml", text);
    let mut submit = testbed.command(&["submit", file.to_str().unwrap(), "--json"]);
    submit.env("TOKEN", SECRET);
    let said = testbed.finish(submit).ends_with(0);
    (said.json()["id"].as_u64().unwrap(), said.err)
}

/// Files below a folder that have this text in them.
fn files_with(folder: &Path, text: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap().flatten() {
        let path = entry.path();
        if path.is_dir() && !path.is_symlink() {
            found.extend(files_with(&path, text));
        } else if path.is_file() {
            let bytes = std::fs::read(&path).unwrap_or_default();
            found.extend(bytes.windows(text.len()).any(|part| part == text.as_bytes()).then_some(path));
        }
    }
    found
}

#[test]
fn a_folder_is_sent_as_it_was_set_up_once_and_what_is_named_comes_back() {
    let testbed = Testbed::bare();
    testbed.run(&["up", "--local", "--accelerators", "H200:2"]).ends_with(0);
    let folder = project(&testbed);
    let counted = testbed.home.with_file_name("setups");
    std::fs::create_dir_all(&counted).unwrap();
    let ends: Vec<PathBuf> = (0..3).map(|n| testbed.work.join(format!("end-{n}"))).collect();

    let (first, _) = submit(&testbed, &job(&testbed, &ends[0], &setup(&testbed)));
    testbed.until(first, &["running"]);
    // Those who come later have what was there when they were submitted, not what is there when they run.
    let (second, _) = submit(&testbed, &job(&testbed, &ends[1], &setup(&testbed)));
    testbed.until(second, &["running"]);
    let (third, _) = submit(&testbed, &job(&testbed, &ends[2], &setup(&testbed)));
    std::fs::write(folder.join("input"), "another input").unwrap();
    eventually("both have begun", || [first, second].iter().all(|id| output(&testbed, *id).contains("from 0")));
    std::fs::write(&ends[0], "").unwrap();
    testbed.until(first, &["succeeded"]);
    testbed.until(third, &["running"]);
    eventually("the third has begun", || output(&testbed, third).contains("from 0"));

    for id in [first, second, third] {
        let said = output(&testbed, id);
        assert!(said.contains("with the first input and input out train.sh venv"), "{said}");
        assert!(said.contains("set up: made in 33"), "{said}");
        assert!(said.contains("the token came\nthe one of the file came\n2\n"), "{said}");
        assert!(!said.contains(&format!("in {} with", folder.display())), "in a copy: {said}");
    }
    assert_eq!(std::fs::read_to_string(counted.join("count")).unwrap(), "once\n", "for all of them");
    let setups: Vec<bool> = [first, second, third].map(|id| output(&testbed, id).contains("setting up")).into();
    assert_eq!(setups.iter().filter(|is| **is).count(), 1, "whoever ran it has what it printed");

    // A program that is killed goes on from what it saved inside its folder.
    eventually("the second has saved", || {
        testbed.run(&["explain", "--all", &second.to_string()]).ends_with(0).out.contains("is durable")
    });
    let lease = testbed.run(&["explain", "--json", &second.to_string()]).ends_with(0).out;
    assert!(!lease.contains(SECRET));
    let agents = processes::of(&testbed.home).into_iter().filter(|process| process.role == Role::Agent);
    agents.for_each(|agent| processes::signal(agent.pid, Signal::KILL));
    eventually("it has begun again", || output(&testbed, second).matches("from ").count() >= 2);
    let said = output(&testbed, second);
    let again: u64 = said.lines().rev().find_map(|line| line.strip_prefix("from ")?.parse().ok()).unwrap();
    assert!(again > 0, "{said}");
    for end in &ends {
        std::fs::write(end, "").unwrap();
    }
    for id in [second, third] {
        testbed.until(id, &["succeeded"]);
    }

    // What is named comes back, and nothing else; the folder itself is as it was.
    let into = testbed.work.join("got");
    let got = testbed.run(&["get", &second.to_string(), "--into", into.to_str().unwrap()]).ends_with(0).out;
    assert_eq!(got.trim(), into.join("results/n").display().to_string());
    assert!(std::fs::read_to_string(into.join("results/n")).unwrap().trim().parse::<u64>().unwrap() >= again);
    assert_eq!(std::fs::read_dir(&into).unwrap().count(), 1);
    assert!(!folder.join("results").exists() && !folder.join("out").exists() && !folder.join("venv").exists());
    let none = testbed.run(&["get", &second.to_string(), "elsewhere", "--into", into.to_str().unwrap()]).ends_with(2);
    assert!(none.err.contains("nothing at elsewhere") && none.err.contains("hint:"), "{none:?}");
    let file = testbed.write("a-file", "");
    let closed = testbed.run(&["get", &second.to_string(), "--into", file.join("x").to_str().unwrap()]).ends_with(2);
    assert!(closed.err.contains("cannot write into the folder") && closed.err.contains("--into DIR"), "{closed:?}");
    let outside = testbed.run(&["get", &second.to_string(), "../x"]).ends_with(2);
    assert!(outside.err.contains("not inside the job's folder"), "{outside:?}");

    // The same folder once more is not sent once more; a secret is nowhere in the state directory.
    std::fs::write(folder.join("input"), "the first input").unwrap();
    let file = testbed.write("job.yaml", &job(&testbed, &ends[0], &setup(&testbed)));
    let mut again = testbed.command(&["submit", file.to_str().unwrap()]);
    again.env("TOKEN", SECRET);
    let again = testbed.finish(again).ends_with(0);
    assert!(again.err.contains("workdir: 3 files") && again.err.contains("none of them new"), "{again:?}");
    assert_eq!(files_with(&testbed.home, SECRET), Vec::<PathBuf>::new());
    for words in [vec!["explain", "--all", "--json", "1"], vec!["jobs", "--all", "--json"], vec!["status", "--json"]] {
        assert!(!testbed.run(&words).ends_with(0).out.contains(SECRET), "{words:?}");
    }
    testbed.until(4, &["succeeded"]);
    testbed.run(&["down"]).ends_with(0);
    let left: Vec<_> = std::fs::read_dir(testbed.home.join("jobs")).unwrap().flatten().collect();
    let copies = left.iter().flat_map(|job| std::fs::read_dir(job.path()).unwrap().flatten());
    assert_eq!(copies.filter(|entry| entry.path().is_dir()).count(), 0, "copies of folders go with their stints");
    testbed.leaves_nothing();
}

#[test]
fn what_cannot_travel_is_said_before_anything_is_submitted_or_as_the_reason_of_the_end() {
    let testbed = Testbed::bare();
    project(&testbed);
    let text = job(&testbed, Path::new("/nonexistent"), "true");
    let refused = |text: &str, says: &str| {
        let file = testbed.write("job.yaml", text);
        let said = testbed.run(&["submit", file.to_str().unwrap()]).ends_with(2);
        assert!(said.err.contains(says) && said.err.contains("hint:"), "{said:?}");
        assert!(!testbed.home.join("state.db").exists(), "nothing was begun");
    };
    refused(&text, "secrets: TOKEN is not set in this terminal");
    refused(&text.replace("workdir: project", "workdir: nowhere"), "is not there");
    refused(&text.replace("workdir: project\n", ""), "`setup` without `workdir`");
    refused(&text.replace("TOKEN: terminal", "TOKEN: hush"), "not a place that a secret can come from");
    refused(&text.replace("run: sh", "env: { TOKEN: x }\nrun: sh"), "is under `secrets` too");
    refused(&text.replace("[results/]", "[../up]"), "is not inside the job's folder");

    testbed.run(&["up", "--local", "--accelerators", "H200:1"]).ends_with(0);
    let (id, _) = submit(&testbed, &text.replace("setup: |\n  true", "setup: |\n  echo no such package; exit 7"));
    testbed.until(id, &["failed"]);
    let why = testbed.run(&["explain", &id.to_string()]).ends_with(0).out;
    assert!(why.contains("its setup ended with exit code 7: see its output"), "{why}");
    assert!(output(&testbed, id).ends_with("no such package\n"));
    let file = testbed.write("job.yaml", &text.replace("TOKEN: terminal", "TOKEN: server"));
    let refused = testbed.run(&["submit", file.to_str().unwrap()]).ends_with(2);
    assert!(
        refused.err.contains("TOKEN is not offered") && refused.err.contains("WINDFALL_SECRET_TOKEN"),
        "{refused:?}"
    );
    // The keys of a state directory go nowhere, by whatever name it is called.
    let own =
        testbed.write("job.yaml", &text.replace("workdir: project", &format!("workdir: {}", testbed.home.display())));
    let mut refused = testbed.command(&["submit", own.to_str().unwrap()]);
    refused.env("TOKEN", SECRET);
    let refused = testbed.finish(refused).ends_with(2);
    assert!(refused.err.contains("is the state directory"), "{refused:?}");
    let nothing = testbed.run(&["get", &id.to_string()]).ends_with(2);
    assert!(nothing.err.contains("has brought nothing back") && nothing.err.contains("hint:"), "{nothing:?}");
    testbed.run(&["down"]).ends_with(0);
    testbed.leaves_nothing();
}

#[test]
fn a_machine_that_shares_no_disk_gets_the_folder_and_gives_back_what_is_named() {
    if !is_root("a machine of its own") {
        return;
    }
    let (testbed, port) = (Testbed::bare(), free_port());
    project(&testbed);
    let mut server = testbed.command(&["up", "--listen", &format!("0.0.0.0:{port}"), "--dead-man", "4h"]);
    server.env("WINDFALL_SECRET_OFFERED", "of the operator");
    testbed.finish(server).ends_with(0);
    let mut far = Far::new(&testbed);
    join(&testbed, &mut far, port, "lab-1");
    let far_disk = testbed.home.with_file_name("far");
    let (count, end) = (far_disk.join("count"), far_disk.join("end"));
    let setup = format!("mkdir venv; echo made > venv/made; echo once >> {}", count.display());
    let text = job(&testbed, &end, &setup)
        .replace("secrets: {", "secrets: { OFFERED: server,")
        .replace("run: sh", "run: |\n  echo \"offered [$OFFERED] as $(id -u)\"\n  sh");
    let ids: Vec<u64> = (0..2).map(|_| submit(&testbed, &text).0).collect();
    for id in &ids {
        testbed.until(*id, &["running"]);
        eventually("it has begun", || output(&testbed, *id).contains("from 0"));
        let said = output(&testbed, *id);
        assert!(said.contains(&format!("offered [of the operator] as {}", far.user)), "{said}");
        assert!(said.contains("with the first input and input out train.sh venv"), "{said}");
        assert!(said.contains("set up: made\nthe token came\nthe one of the file came\n2\n"), "{said}");
    }
    assert_eq!(far.says(&format!("cat {}", count.display())), "once");

    // The wire and the server are away when the programs end: what they leave comes all the same.
    far.cut(true);
    far.write(&end, "");
    far.until_quiet(ids[0]);
    far.cut(false);
    for id in &ids {
        testbed.until(*id, &["succeeded"]);
    }
    // What is on its way is waited for. Then the machine is gone for good, and what it gave back is not.
    for id in &ids {
        testbed.run(&["get", &id.to_string(), "--into", testbed.work.join("early").to_str().unwrap()]).ends_with(0);
    }
    let found = far.says(&format!("grep -rl {SECRET} {} | head -3", far_disk.join("state").display()));
    assert_eq!(found, "", "its disk keeps no secret");
    drop(far);
    let into = testbed.work.join("got");
    testbed.run(&["get", &ids[1].to_string(), "results/n", "--into", into.to_str().unwrap()]).ends_with(0);
    assert!(std::fs::read_to_string(into.join("results/n")).unwrap().trim().parse::<u64>().unwrap() > 0);
    assert_eq!(files_with(&testbed.home, SECRET), Vec::<PathBuf>::new());
    testbed.run(&["down"]).ends_with(0);
}

/// Submits jobs to a machine that is cut off when their programs end, so that all that they leave is still to be sent.
fn that_owe_everything(testbed: &Testbed, far: &Far, count: usize) -> Vec<u64> {
    let end = far.disk().join("end");
    let text = job(testbed, &end, "true");
    let ids: Vec<u64> = (0..count).map(|_| submit(testbed, &text).0).collect();
    for id in &ids {
        eventually("it has begun", || output(testbed, *id).contains("from 0"));
        let explained = || testbed.run(&["explain", "--all", &id.to_string()]).ends_with(0).out;
        eventually("it has saved", || explained().contains("is durable"));
    }
    far.cut(true);
    far.write(&end, "");
    let views = format!("cat {}/leases/*/view.json", far.state().display());
    eventually("their agents know of their ends", || far.says(&views).matches("exited").count() == count);
    ids
}

#[test]
fn what_an_agent_had_still_to_send_when_it_or_its_guard_was_killed_is_sent_all_the_same() {
    if !is_root("a machine of its own") {
        return;
    }
    let (testbed, port) = (Testbed::bare(), free_port());
    project(&testbed);
    super::nodes::up(&testbed, port, "4h");
    let mut far = Far::new(&testbed);
    join(&testbed, &mut far, port, "lab-1");
    let ids = that_owe_everything(&testbed, &far, 2);
    let on_lease =
        |role: Role| -> Vec<Process> { far.processes().into_iter().filter(|process| process.role == role).collect() };
    let (agents, guards) = (on_lease(Role::Agent), on_lease(Role::Guard));
    assert_eq!((agents.len(), guards.len()), (2, 2));

    // Of one lease the agent is killed, twice, and of the other its guard.
    let mut killed = agents[0].clone();
    for _ in 0..2 {
        processes::signal(killed.pid, Signal::KILL);
        eventually("another agent goes on", || {
            let other = on_lease(Role::Agent).into_iter().find(|it| it.lease == killed.lease && it.pid != killed.pid);
            other.map(|other| killed = other).is_some()
        });
    }
    let guard = guards.iter().find(|guard| guard.lease != killed.lease).unwrap();
    processes::signal(guard.pid, Signal::KILL);
    eventually("it has no guard", || on_lease(Role::Guard).len() == 1);
    assert_eq!(on_lease(Role::Agent).len(), 2, "an agent without a guard still sends");

    far.cut(false);
    for id in &ids {
        testbed.until(*id, &["succeeded"]);
        let into = testbed.work.join(format!("got-{id}"));
        testbed.run(&["get", &id.to_string(), "--into", into.to_str().unwrap()]).ends_with(0);
        let last = std::fs::read_to_string(into.join("results/n")).unwrap();
        let why = testbed.run(&["explain", &id.to_string()]).ends_with(0).out;
        assert!(!why.contains("not durable") && !why.contains("brought back:") && !why.contains("was lost"), "{why}");
        // What it saved last is what it goes on from.
        let mut resume = testbed.command(&["resume", &id.to_string(), "job.yaml", "--json"]);
        resume.env("TOKEN", SECRET);
        let again = testbed.finish(resume).ends_with(0).json()["id"].as_u64().unwrap();
        testbed.until(again, &["succeeded"]);
        let from = format!("from {}", last.trim());
        assert!(output(&testbed, again).contains(&from), "{from}: {}", output(&testbed, again));
    }
    let leases = format!("ls {}/leases", far.state().display());
    eventually("nothing is left there", || far.says(&leases).is_empty() && on_lease(Role::Agent).is_empty());
    testbed.run(&["down"]).ends_with(0);
}

#[test]
fn a_secret_that_a_server_no_longer_offers_is_waited_for() {
    let testbed = Testbed::bare();
    project(&testbed);
    let up = |offered: bool| {
        let mut up = testbed.command(&["up", "--local", "--accelerators", "H200:1"]);
        if offered {
            up.env("WINDFALL_SECRET_TOKEN", SECRET);
        }
        testbed.finish(up).ends_with(0);
    };
    up(true);
    let text = job(&testbed, &testbed.work.join("end"), "true").replace("TOKEN: terminal", "TOKEN: server");
    let (id, _) = submit(&testbed, &text);
    eventually("it has the secret", || output(&testbed, id).contains("the token came"));

    // The next server is started by somebody else, and the program has to begin anew.
    let server = testbed.run(&["status", "--json"]).ends_with(0).json()["server"]["pid"].as_i64().unwrap();
    processes::signal(server as i32, Signal::KILL);
    up(false);
    let agents = processes::of(&testbed.home).into_iter().filter(|process| process.role == Role::Agent);
    agents.for_each(|agent| processes::signal(agent.pid, Signal::KILL));
    eventually("it waits, and holds nothing", || {
        let why = testbed.run(&["explain", &id.to_string()]).ends_with(0).out;
        why.contains("has no WINDFALL_SECRET_TOKEN") && processes::of_job(id).is_empty()
    });
    assert!(!["failed", "succeeded"].contains(&testbed.job(id)["state"].as_str().unwrap()));

    testbed.run(&["down"]).ends_with(0);
    up(true);
    eventually("it goes on", || output(&testbed, id).matches("the token came").count() == 2);
    testbed.write("end", "");
    testbed.until(id, &["succeeded"]);
    testbed.run(&["down"]).ends_with(0);
    testbed.leaves_nothing();
}
