//! Machines that are not well. The agent loads a library which stands in for NVIDIA's (`programs/fake_nvml.c`), as it
//! loads the real one, and what that shows is in a file.

use super::far::{Far, SHARED};
use super::nodes::{beginnings, free_port, has_saved, output, state_of, submit, token, up};
use super::testbed::{Testbed, eventually, is_root, within};
use super::witness::check_ledger;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// Builds the library in a folder, under the name of the real one.
fn build_library(folder: &Path) {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs/fake_nvml.c");
    let mut build = Command::new("cc");
    build.args(["-shared", "-fPIC", "-o"]).arg(folder.join("libnvidia-ml.so.1")).arg(source);
    assert!(build.status().expect("these tests need a C compiler").success());
}

/// The accelerators of a machine, as its library shows them.
struct Accelerators {
    folder: tempfile::TempDir,
    name: &'static str,
}

impl Accelerators {
    /// Two that are linked to each other.
    fn two(name: &'static str) -> Accelerators {
        let folder = tempfile::Builder::new().prefix("windfall-nvml-").tempdir_in(SHARED).unwrap();
        let everybody = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(folder.path(), everybody).unwrap();
        build_library(folder.path());
        let accelerators = Accelerators { folder, name };
        accelerators.show(["ok 0 0", "ok 0 0"], "");
        accelerators
    }

    fn file(&self) -> PathBuf {
        self.folder.path().join("shown")
    }

    fn uuid(&self, number: usize) -> String {
        format!("GPU-{}-{number}", self.name)
    }

    /// From now on they are so: `ok` or `lost`, memory errors, and whether spare memory is used up; and an error.
    fn show(&self, states: [&str; 2], error: &str) {
        let buses = ["00000000:19:00.0", "00000000:9A:00.0"];
        let line =
            |at: usize| format!("{} NVIDIA_H200 {} {} {}\n", self.uuid(at), buses[at], states[at], buses[1 - at]);
        let new = self.folder.path().join("new");
        std::fs::write(&new, format!("{}{}{error}\n", line(0), line(1))).unwrap();
        std::fs::rename(new, self.file()).unwrap();
    }

    fn start_agent(&self, testbed: &Testbed, far: &mut Far, port: u16, is_new: bool) {
        let token = is_new.then(|| token(testbed, self.name));
        let variables = [("LD_LIBRARY_PATH", self.folder.path()), ("FAKE_NVML", &*self.file())];
        far.start_agent_with(port, token.as_deref(), &[], &variables);
        eventually("it is there", || state_of(testbed, self.name).is_some_and(|state| state != "away"));
    }
}

/// A server, its port, and its node `lab-1` that is ready, with two accelerators.
fn lab() -> (Testbed, u16, Far, Accelerators) {
    let (testbed, port) = (Testbed::bare(), free_port());
    up(&testbed, port, "4h");
    let mut far = Far::new(&testbed);
    let accelerators = Accelerators::two("lab-1");
    accelerators.start_agent(&testbed, &mut far, port, true);
    eventually("it is ready", || is(&testbed, "lab-1", "ready"));
    (testbed, port, far, accelerators)
}

pub fn detail(testbed: &Testbed, name: &str) -> Value {
    testbed.run(&["node", name, "--json"]).ends_with(0).json()
}

pub fn is(testbed: &Testbed, name: &str, state: &str) -> bool {
    state_of(testbed, name).as_deref() == Some(state)
}

/// Whether a node is in this state for the time that several beats and readings take.
fn stays(testbed: &Testbed, name: &str, state: &str) -> bool {
    !within(Duration::from_secs(12), || !is(testbed, name, state))
}

#[test]
fn work_leaves_a_machine_whose_accelerator_fell_off_the_bus_and_ends_elsewhere() {
    if !is_root("a machine of its own") {
        return;
    }
    let (testbed, port) = (Testbed::bare(), free_port());
    up(&testbed, port, "4h");
    let [mut one, mut two] = [Far::new(&testbed), Far::new(&testbed)];
    let [of_one, of_two] = [Accelerators::two("lab-1"), Accelerators::two("lab-2")];
    of_one.start_agent(&testbed, &mut one, port, true);
    eventually("it is ready", || is(&testbed, "lab-1", "ready"));

    // What the library shows is what the node has.
    let id = submit(&testbed, "out");
    testbed.until(id, &["running"]);
    eventually("it has saved", || has_saved(&testbed, id));
    eventually("the driver was read", || detail(&testbed, "lab-1")["devices"][0]["celsius"] == 41);
    let node = detail(&testbed, "lab-1");
    let first = &node["devices"][0];
    assert_eq!(first["accelerator"]["model"], "H200");
    assert_eq!(first["accelerator"]["device"], of_one.uuid(0));
    assert_eq!(first["accelerator"]["nvlink"], node["devices"][1]["accelerator"]["nvlink"], "they are linked");
    assert_eq!((&first["users"][0]["job"], &first["users"][0]["name"]), (&Value::from(id), &Value::from("train")));
    assert!(node["node"]["symptoms"].as_array().unwrap().is_empty() && node["disk"]["of_bytes"].as_u64() > Some(0));
    assert!(output(&testbed, id).contains(&format!("sees [{}]", of_one.uuid(0))), "{}", output(&testbed, id));

    // A program's own error moves nobody.
    of_one.show(["ok 0 0", "ok 0 0"], "xid 31 0 1");
    eventually("it is heard", || !detail(&testbed, "lab-1")["node"]["symptoms"].as_array().unwrap().is_empty());
    assert!(is(&testbed, "lab-1", "ready"));

    of_two.start_agent(&testbed, &mut two, port, true);
    eventually("the other is ready", || is(&testbed, "lab-2", "ready"));
    // The other accelerator of that machine breaks: only a restart mends it, so all work leaves.
    of_one.show(["ok 0 0", "ok 0 0"], "xid 79 1 2");
    eventually("it is drained", || is(&testbed, "lab-1", "drained"));
    eventually("its work goes on elsewhere", || !two.programs(id).is_empty());
    one.until_quiet(id);
    let listed = testbed.run(&["nodes"]).ends_with(0).out;
    assert!(listed.contains(&format!("{}: it has fallen off the bus (XID 79)", of_one.uuid(1))), "{listed}");
    let shown = testbed.run(&["node", "lab-1"]).ends_with(0).out;
    assert!(shown.contains("hint: restart the machine") && shown.contains("windfall nodes resume lab-1"), "{shown}");
    let explained = testbed.run(&["explain", "--all", &id.to_string()]).ends_with(0).out;
    assert!(explained.contains("its machine is not well") && explained.contains("XID 79"), "{explained}");

    // Put to work again it stays so, until something new happens.
    testbed.run(&["nodes", "resume", "lab-1"]).ends_with(0);
    assert!(stays(&testbed, "lab-1", "ready"), "by the same old error: {}", detail(&testbed, "lab-1"));
    of_one.show(["ok 0 0", "ok 0 0"], "xid 79 1 3");
    eventually("it is drained by a new one", || is(&testbed, "lab-1", "drained"));

    two.write(&testbed.work.join("end"), "");
    testbed.until(id, &["succeeded"]);
    let begun = beginnings(&testbed, id);
    assert!(begun.len() == 2 && begun[1] > 0, "it went on from what it saved: {begun:?}");
    testbed.run(&["down"]).ends_with(0);
    check_ledger(&testbed);
    testbed.leaves_nothing();
}

#[test]
fn an_accelerator_that_disappears_is_said_and_nothing_is_lost() {
    if !is_root("a machine of its own") {
        return;
    }
    let (testbed, port, mut far, accelerators) = lab();
    let id = submit(&testbed, "out");
    testbed.until(id, &["running"]);
    eventually("it has saved", || has_saved(&testbed, id));

    accelerators.show(["lost 0 0", "ok 0 0"], "");
    eventually("it is drained", || is(&testbed, "lab-1", "drained"));
    testbed.until(id, &["waiting"]);
    let why = format!("lab-1 is drained: {}: it was there and is not any more", accelerators.uuid(0));
    eventually("it says why it waits", || {
        testbed.job(id)["waits_for"].as_str().is_some_and(|text| text.ends_with(&why))
    });
    let devices = detail(&testbed, "lab-1")["devices"].clone();
    let gone: Vec<&Value> = devices.as_array().unwrap().iter().filter(|one| one["is_gone"] == true).collect();
    assert!(gone.len() == 1 && gone[0]["accelerator"]["device"] == accelerators.uuid(0), "{devices}");

    // Somebody knows of it: the rest of the machine works again, and never with what is gone.
    testbed.run(&["nodes", "resume", "lab-1"]).ends_with(0);
    testbed.until(id, &["running"]);
    eventually("it runs", || output(&testbed, id).contains(&format!("sees [{}]", accelerators.uuid(1))));
    assert!(stays(&testbed, "lab-1", "ready"), "{}", detail(&testbed, "lab-1"));

    // An agent that comes back without one is asked where it is.
    far.stop_agent();
    eventually("it is away", || is(&testbed, "lab-1", "away"));
    accelerators.show(["ok 0 0", "ok 0 0"], "");
    accelerators.start_agent(&testbed, &mut far, port, false);
    eventually("it is ready with both", || is(&testbed, "lab-1", "ready"));
    far.stop_agent();
    eventually("it is away", || is(&testbed, "lab-1", "away"));
    accelerators.show(["lost 0 0", "ok 0 0"], "");
    accelerators.start_agent(&testbed, &mut far, port, false);
    eventually("it is drained", || is(&testbed, "lab-1", "drained"));
    testbed.run(&["nodes", "resume", "lab-1"]).ends_with(0);

    far.write(&testbed.work.join("end"), "");
    testbed.until(id, &["succeeded"]);
    let begun = beginnings(&testbed, id);
    assert!(begun.len() >= 2 && begun.is_sorted() && begun[1] > 0, "{begun:?}");
    testbed.run(&["down"]).ends_with(0);
    check_ledger(&testbed);
    testbed.leaves_nothing();
}

#[test]
fn memory_errors_keep_a_machine_from_new_work_and_move_what_runs_only_when_they_cannot_be_mended() {
    if !is_root("a machine of its own") {
        return;
    }
    let (testbed, _, far, accelerators) = lab();
    let id = submit(&testbed, "out");
    eventually("it has saved", || has_saved(&testbed, id));
    let programs = far.programs(id);

    accelerators.show(["ok 3 0", "ok 0 0"], "");
    eventually("it is drained", || is(&testbed, "lab-1", "drained"));
    let shown = testbed.run(&["node", "lab-1"]).ends_with(0).out;
    assert!(shown.contains("3 memory errors could not be corrected") && shown.contains("--gpu-reset"), "{shown}");
    let second = submit(&testbed, "out-2");
    assert!(stays(&testbed, "lab-1", "drained") && testbed.job(second)["state"] == "waiting", "nothing new");
    let same = far.programs(id);
    assert!(programs.iter().any(|pid| same.contains(pid)), "what runs there goes on: {programs:?}, {same:?}");
    // Somebody knows of them. More of them are news.
    testbed.run(&["nodes", "resume", "lab-1"]).ends_with(0);
    testbed.until(second, &["running"]);
    accelerators.show(["ok 4 0", "ok 0 0"], "");
    eventually("it is drained by one more", || is(&testbed, "lab-1", "drained"));
    testbed.run(&["cancel", &second.to_string()]).ends_with(0);
    testbed.until(second, &["cancelled"]);
    testbed.run(&["nodes", "resume", "lab-1"]).ends_with(0);
    eventually("it is ready", || is(&testbed, "lab-1", "ready"));

    // No spare memory is left: work leaves that accelerator, and the other stays in use once somebody says so.
    accelerators.show(["ok 4 1", "ok 0 0"], "");
    testbed.until(id, &["waiting"]);
    let explained = testbed.run(&["explain", "--all", &id.to_string()]).ends_with(0).out;
    assert!(explained.contains("broken memory could not be replaced by spare memory"), "{explained}");
    far.until_quiet(id);
    far.write(&testbed.work.join("end"), "");
    testbed.run(&["nodes", "resume", "lab-1"]).ends_with(0);
    testbed.until(id, &["succeeded"]);
    let begun = beginnings(&testbed, id);
    assert!(begun.len() == 2 && begun[1] > 0, "it went on from what it saved: {begun:?}");
    testbed.run(&["down"]).ends_with(0);
    check_ledger(&testbed);
    testbed.leaves_nothing();
}

#[test]
fn accelerators_of_this_computer_are_those_that_the_driver_shows() {
    let accelerators = Accelerators::two("here");
    let testbed = Testbed::bare();
    let mut up = testbed.command(&["up", "--local"]);
    up.env("LD_LIBRARY_PATH", accelerators.folder.path()).env("FAKE_NVML", accelerators.file());
    let up = testbed.finish(up).ends_with(0);
    assert!(up.out.contains(" with H200:2 and "), "{up:?}");
    let job = |count: u32| {
        let asks = format!("resources: {{ accelerators: H200:{count} }}");
        testbed.submit(&format!("name: sees-{count}\n{asks}\nrun: echo \"sees [$CUDA_VISIBLE_DEVICES]\"\n"))
    };
    let [one, two] = [1, 2].map(job);
    testbed.until(one, &["succeeded"]);
    testbed.until(two, &["succeeded"]);
    assert_eq!(output(&testbed, one), format!("sees [{}]\n", accelerators.uuid(0)));
    assert_eq!(output(&testbed, two), format!("sees [{},{}]\n", accelerators.uuid(0), accelerators.uuid(1)));

    // It is a node like those that join: listed, watched, drained when it is not well, and put to work again.
    let nodes = testbed.run(&["nodes", "--json"]).ends_with(0).json();
    let name = nodes[0]["name"].as_str().unwrap().to_owned();
    assert!(nodes.as_array().unwrap().len() == 1 && nodes[0]["is_server"] == true && is(&testbed, &name, "ready"));
    let id = submit(&testbed, "out");
    eventually("it has saved", || has_saved(&testbed, id));
    let node = detail(&testbed, &name);
    assert_eq!(node["devices"][0]["accelerator"]["device"], accelerators.uuid(0));
    assert_eq!(node["devices"][0]["users"][0]["job"], id, "{node}");
    accelerators.show(["ok 0 0", "ok 0 0"], "xid 48 0 1");
    eventually("it is drained", || is(&testbed, &name, "drained"));
    testbed.until(id, &["waiting"]);
    let waits = testbed.job(id)["waits_for"].as_str().unwrap().to_owned();
    assert!(waits.contains(&format!("{name} is drained: {}: a memory error", accelerators.uuid(0))), "{waits}");
    let shown = testbed.run(&["node", &name]).ends_with(0).out;
    assert!(shown.contains("(XID 48)") && shown.contains("the server runs on it"), "{shown}");
    // A new server knows of it.
    testbed.run(&["down"]).ends_with(0);
    let mut up = testbed.command(&["up"]);
    up.env("LD_LIBRARY_PATH", accelerators.folder.path()).env("FAKE_NVML", accelerators.file());
    testbed.finish(up).ends_with(0);
    assert!(is(&testbed, &name, "drained"));
    let refused = testbed.run(&["nodes", "remove", &name]).ends_with(2);
    assert!(refused.err.contains("the computer that this server runs on"), "{refused:?}");
    let refused = testbed.run(&["nodes", "token", "other"]).ends_with(2);
    assert!(refused.err.contains("takes no nodes in"), "{refused:?}");
    testbed.run(&["nodes", "resume", &name]).ends_with(0);
    testbed.until(id, &["running"]);
    testbed.write("end", "");
    testbed.until(id, &["succeeded"]);
    let begun = beginnings(&testbed, id);
    assert!(begun.len() == 2 && begun[1] > 0, "it went on from what it saved: {begun:?}");
    check_ledger(&testbed);
    testbed.leaves_nothing();
}

#[test]
fn a_machine_with_a_full_disk_takes_nothing_new_until_there_is_room() {
    if !is_root("a machine of its own") {
        return;
    }
    let (testbed, port) = (Testbed::bare(), free_port());
    up(&testbed, port, "4h");
    let mut far = Far::new(&testbed);
    let state = far.state().display().to_string();
    far.as_root(&format!("mkdir -p {state} && mount -t tmpfs -o size=8m,mode=777 tmpfs {state}"));
    let accelerators = Accelerators::two("lab-1");
    accelerators.start_agent(&testbed, &mut far, port, true);
    eventually("it is ready", || is(&testbed, "lab-1", "ready"));
    let first = submit(&testbed, "out");
    testbed.until(first, &["running"]);

    far.says(&format!("cat /dev/zero > {state}/ballast"));
    eventually("it is drained", || is(&testbed, "lab-1", "drained"));
    assert!(testbed.run(&["nodes"]).ends_with(0).out.contains("the disk is full: "));
    let second = submit(&testbed, "out-2");
    assert!(stays(&testbed, "lab-1", "drained"));
    assert_eq!(testbed.job(first)["state"], "running", "what runs there goes on");
    let waits = testbed.job(second);
    assert!(
        waits["state"] == "waiting" && waits["waits_for"].as_str().unwrap().contains("the disk is full"),
        "{waits}"
    );

    far.says(&format!("rm {state}/ballast"));
    testbed.until(second, &["running"]);
    assert!(is(&testbed, "lab-1", "ready"), "by itself");
    far.write(&testbed.work.join("end"), "");
    for id in [first, second] {
        testbed.until(id, &["succeeded"]);
    }
    assert_eq!(beginnings(&testbed, first), [0]);
    testbed.run(&["down"]).ends_with(0);
    testbed.leaves_nothing();
}

#[test]
fn things_that_do_not_fit_on_a_disk_wait_for_room_and_leave_none_of_it_taken() {
    if !is_root("a machine of its own") {
        return;
    }
    let (testbed, port) = (Testbed::bare(), free_port());
    up(&testbed, port, "4h");
    let mut far = Far::new(&testbed);
    let state = far.state().display().to_string();
    far.as_root(&format!("mkdir -p {state} && mount -t tmpfs -o size=60m,mode=777 tmpfs {state}"));
    far.start_agent(port, Some(&token(&testbed, "lab-1")));
    eventually("it is ready", || is(&testbed, "lab-1", "ready"));
    for (folder, bytes) in [("large", 40_000_000), ("small", 1_000)] {
        std::fs::create_dir(testbed.work.join(folder)).unwrap();
        let noise: Vec<u8> = (0..bytes).map(|n: u64| (n.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 56) as u8).collect();
        std::fs::write(testbed.work.join(folder).join("data"), noise).unwrap();
    }
    let job = |folder: &str| {
        let asks = "resources: { accelerators: H200:1 }";
        testbed.submit(&format!("name: {folder}\n{asks}\nworkdir: {folder}\nrun: wc -c data\n"))
    };
    // Its folder is unpacked once for all jobs, and copied for each.
    let large = job("large");
    let waits = || testbed.job(large)["waits_for"].as_str().unwrap_or_default().to_owned();
    eventually("it waits and says why", || waits().contains("lab-1 has no room for it"));
    let small = job("small");
    testbed.until(small, &["succeeded"]);
    assert!(!testbed.job(large)["state"].as_str().unwrap().contains("failed"));
    let left = || far.says(&format!("df --output=used -B1 {state} | tail -1")).parse::<u64>().unwrap_or(u64::MAX);
    eventually("it leaves nothing there while it waits", || left() < 10_000_000);
    // One that clears up before it says so, as installers do.
    let setup = "setup: head -c 100000000 /dev/zero > filled || { sleep 1; rm filled; exit 3; }";
    let installs = testbed.submit(&format!(
        "name: installs\nresources: {{ accelerators: H200:1 }}\nworkdir: small\n{setup}\nrun: wc -c filled\n"
    ));
    let waits = || testbed.job(installs)["waits_for"].as_str().unwrap_or_default().to_owned();
    eventually("its setup is not to blame", || waits().contains("exit code 3, and the disk was full meanwhile"));

    far.as_root(&format!("mount -o remount,size=400m {state}"));
    for waited in [large, installs] {
        testbed.until(waited, &["succeeded"]);
        assert_eq!(testbed.job(waited)["interruptions"], 0);
    }
    testbed.run(&["down"]).ends_with(0);
    check_ledger(&testbed);
    testbed.leaves_nothing();
}

/// Saves into a folder of the machine's own disk, and says so where there is no room.
const SAVER: &str = r#"
import os, time
folder, resume = os.environ["WINDFALL_CHECKPOINT_DIR"], os.environ["WINDFALL_RESUME"]
n = int(open(f"{resume}/n").read().split()[0]) if resume else 0
print("from", n, flush=True)
while not os.path.exists("end"):
    try:
        with open(f"{folder}/n.new", "w") as new:
            new.write(f"{n + 1} " + "x" * 200_000)
        os.rename(f"{folder}/n.new", f"{folder}/n")
        n += 1
    except OSError:
        print("no room at", n, flush=True)
    time.sleep(0.5)
print("done at", n, flush=True)
"#;

#[test]
fn a_job_that_saves_on_a_disk_that_fills_goes_on_and_loses_nothing_durable() {
    if !is_root("a machine of its own") {
        return;
    }
    let (testbed, port) = (Testbed::bare(), free_port());
    up(&testbed, port, "4h");
    let [mut one, mut two] = [Far::new(&testbed), Far::new(&testbed)];
    let state = one.state().display().to_string();
    one.as_root(&format!("mkdir -p {state} && mount -t tmpfs -o size=16m,mode=777 tmpfs {state}"));
    for far in [&one, &two] {
        far.write(&testbed.work.join("saver.py"), SAVER);
    }
    one.start_agent(port, Some(&token(&testbed, "lab-1")));
    eventually("it is ready", || is(&testbed, "lab-1", "ready"));
    let job = |name: &str| {
        let asks = "resources: { accelerators: H200:1 }\ncheckpoint: { settle: 100ms }\n";
        testbed.submit(&format!("name: {name}\n{asks}run: python3 saver.py {name}\n"))
    };
    let [stays, moves] = ["stays", "moves-away"].map(job);
    let saves =
        |id: u64| testbed.run(&["explain", "--all", &id.to_string()]).ends_with(0).out.matches("is durable").count();
    for id in [stays, moves] {
        eventually("it has saved", || saves(id) > 2);
    }
    two.start_agent(port, Some(&token(&testbed, "lab-2")));
    eventually("the other is ready", || is(&testbed, "lab-2", "ready"));

    one.says(&format!("cat /dev/zero > {state}/ballast"));
    eventually("it is said", || is(&testbed, "lab-1", "drained"));
    for id in [stays, moves] {
        eventually("it sees it too", || output(&testbed, id).contains("no room at "));
        assert_eq!(testbed.job(id)["state"], "running", "and goes on");
    }
    // The one is lost while there is no room: it goes on elsewhere, from the last save that was whole.
    let last = |id: u64| -> u64 {
        let said = output(&testbed, id);
        said.lines().rev().find_map(|line| line.strip_prefix("no room at ")?.parse().ok()).unwrap()
    };
    let reached = last(moves);
    let programs = one.programs(moves).into_iter().filter(|pid| super::processes::line(*pid).contains("moves-away"));
    programs.for_each(|pid| super::processes::signal(pid, rustix::process::Signal::KILL));
    eventually("it goes on elsewhere", || !two.programs(moves).is_empty());
    one.until_quiet(moves);
    eventually("it has begun there", || beginnings(&testbed, moves).len() == 2);
    assert_eq!(beginnings(&testbed, moves), [0, reached], "all that was whole was durable");

    let before = saves(stays);
    one.says(&format!("rm {state}/ballast"));
    eventually("there is room", || is(&testbed, "lab-1", "ready"));
    eventually("it saves again", || saves(stays) > before + 1);
    for far in [&one, &two] {
        far.write(&testbed.work.join("end"), "");
    }
    for id in [stays, moves] {
        testbed.until(id, &["succeeded"]);
    }
    assert_eq!(beginnings(&testbed, stays), [0], "{}", output(&testbed, stays));
    testbed.run(&["down"]).ends_with(0);
    check_ledger(&testbed);
    testbed.leaves_nothing();
}

#[test]
fn a_driver_that_hangs_drains_its_machine_and_hangs_nobody_else() {
    if !is_root("a machine of its own") {
        return;
    }
    let (testbed, _, _far, accelerators) = lab();
    accelerators.show(["ok 0 0", "ok 0 0"], "hang");
    eventually("it is drained", || is(&testbed, "lab-1", "drained"));
    let shown = testbed.run(&["node", "lab-1"]).ends_with(0).out;
    assert!(shown.contains("the accelerators' driver does not answer") && shown.contains("nvidia-smi"), "{shown}");
    accelerators.show(["ok 0 0", "ok 0 0"], "");
    eventually("it answers again", || is(&testbed, "lab-1", "ready"));
    testbed.run(&["down"]).ends_with(0);
    testbed.leaves_nothing();
}
