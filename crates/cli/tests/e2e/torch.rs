//! Real PyTorch over machines: ranks that meet by gloo, a part of the state each, and faults at random moments. Seeded: the
//! seed and every fault are printed. `WINDFALL_SEED` says which.

use super::far::Far;
use super::kills::{Dice, setting};
use super::nodes::{free_port, state_of, token, up};
use super::processes::{self, Role};
use super::testbed::{Testbed, eventually, is_root, one_at_a_time};
use super::witness::check_ledger;
use rustix::process::Signal;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

const PROGRAM: &str = include_str!("../programs/sharded.py");
const ELASTIC: &str = include_str!("../programs/elastic.py");
/// Debian's, which has the packages of Debian.
const PYTHON: &str = "/usr/bin/python3";
const STEPS: u32 = 200;
const MACHINES: [&str; 2] = ["one", "two"];
const WORDS: [&str; 2] = ["--accelerators", "H200:1"];

fn has_torch(test: &str) -> bool {
    let has = Path::new("/usr/lib/python3/dist-packages/torch").exists();
    if !has {
        println!("skipped: {test} (python3-torch is not installed)");
    }
    has
}

/// What the ranks say at the end when nobody disturbs them and nothing of ours is there.
fn undisturbed(testbed: &Testbed, (name, text): (&str, &str), steps: u32, ranks: usize) -> Vec<String> {
    let (program, port) = (testbed.write(name, text), free_port());
    let start = |rank: usize| {
        let saves = testbed.work.join(format!("plain-{rank}"));
        std::fs::create_dir(&saves).unwrap();
        let mut command = Command::new(PYTHON);
        command.arg(&program).args([&steps.to_string(), "0"]).stdin(Stdio::null()).stdout(Stdio::piped());
        command.env("RANK", rank.to_string()).env("WORLD_SIZE", ranks.to_string());
        command.env("MASTER_ADDR", "127.0.0.1").env("MASTER_PORT", port.to_string()).env("GLOO_SOCKET_IFNAME", "lo");
        command.env("WINDFALL_CHECKPOINT_DIR", saves).env_remove("WINDFALL_RESUME").spawn().unwrap()
    };
    let ranks: Vec<_> = (0..ranks).map(start).collect();
    let ended = ranks.into_iter().map(|rank| rank.wait_with_output().unwrap());
    ended.map(|said| last_words(&String::from_utf8_lossy(&said.stdout)).expect("it ends")).collect()
}

fn last_words(said: &str) -> Option<String> {
    said.lines().find(|line| line.contains(" ends at ")).map(str::to_owned)
}

#[derive(Clone, Copy, Debug)]
enum Fault {
    Worker,
    Agent,
    Node,
    Power,
}

impl Fault {
    /// Strikes on a machine; what a service manager starts again, it starts again.
    fn strike(self, far: &mut Far, job: u64, port: u16) {
        let with_role = |far: &Far, role: Role| {
            let found: Vec<i32> = far.processes().iter().filter(|one| one.role == role).map(|one| one.pid).collect();
            assert!(!found.is_empty(), "no {role:?}");
            found.into_iter().for_each(|pid| processes::signal(pid, Signal::KILL));
        };
        match self {
            Fault::Worker => {
                let programs = far.programs(job).into_iter().filter(|pid| processes::line(*pid).contains("sharded.py"));
                programs.for_each(|pid| processes::signal(pid, Signal::KILL));
            }
            Fault::Agent => with_role(far, Role::Agent),
            Fault::Node => far.kill_agent(),
            Fault::Power => far.lose_power(),
        }
        if matches!(self, Fault::Node | Fault::Power) {
            far.start_agent_with(port, None, &WORDS, &[]);
        }
    }
}

#[test]
fn pytorch_over_machines_ends_with_the_bits_of_an_undisturbed_run() {
    let name = "pytorch_over_machines_ends_with_the_bits_of_an_undisturbed_run";
    if !is_root("machines of their own") || !has_torch(name) {
        return;
    }
    let _one = one_at_a_time();
    let (testbed, port, seed) = (Testbed::bare(), free_port(), setting("WINDFALL_SEED", 20_260_101));
    println!("seed: {seed}");
    let mut dice = Dice(seed);
    up(&testbed, port, "4h");
    let mut machines = MACHINES.map(|_| Far::new(&testbed));
    machines[0].connect(&machines[1]);
    for (far, name) in machines.iter_mut().zip(MACHINES) {
        far.write(&testbed.work.join("sharded.py"), PROGRAM);
        far.start_agent_with(port, Some(&token(&testbed, name)), &WORDS, &[]);
        eventually("it is ready", || state_of(&testbed, name).as_deref() == Some("ready"));
    }
    let id = testbed.submit(&format!(
        "name: sharded\nnodes: 2\nresources: {{ accelerators: H200:1 }}\ngrace: 5s\ncheckpoint: {{ settle: 1s }}\n\
         run: {PYTHON} sharded.py {STEPS} 2\n"
    ));
    let wanted = undisturbed(&testbed, ("sharded.py", PROGRAM), STEPS, MACHINES.len());
    let logs = |rank: usize| testbed.run(&["logs", &id.to_string(), "--rank", &rank.to_string()]).ends_with(0).out;

    let stints = || testbed.job(id)["stints"].as_u64().unwrap();
    let saved = || {
        let said = testbed.run(&["explain", "--all", &id.to_string()]).ends_with(0).out;
        let of_now = format!("checkpoint {}.", stints());
        said.lines().filter(|line| line.contains(&of_now) && line.contains("is durable")).count()
    };
    for fault in [Fault::Worker, Fault::Agent, Fault::Node, Fault::Power] {
        // Something of the present stint is durable before each: a program that never gets anywhere has failed.
        eventually("something is durable", || {
            let job = testbed.job(id);
            assert!(job["outcome"].is_null(), "{job}\n{}\n{}", logs(0), logs(1));
            saved() > 0
        });
        std::thread::sleep(Duration::from_millis(dice.below(1_500)));
        let (at, before) = (dice.below(2) as usize, (stints(), saved()));
        println!("{fault:?} on {}", MACHINES[at]);
        fault.strike(&mut machines[at], id, port);
        match fault {
            Fault::Node => eventually("it saves on", || saved() > before.1),
            _ => eventually("it goes on", || stints() > before.0),
        }
    }
    let ended = testbed.until(id, &["succeeded", "failed"]);
    assert_eq!(ended["state"], "succeeded", "{ended}\n{}\n{}", logs(0), logs(1));
    for (rank, wanted) in wanted.iter().enumerate() {
        let said = logs(rank);
        assert_eq!(last_words(&said).as_ref(), Some(wanted), "{said}");
        let began: Vec<&str> = said.lines().filter(|line| line.contains(" from ")).collect();
        assert_eq!(
            began.len(),
            4,
            "three faults end a stint, and that of what makes a machine a node does not: {said}"
        );
        assert!(!began[1..].iter().any(|line| line.ends_with("from 0")), "not resumed: {said}");
    }
    machines.iter().for_each(|far| far.until_quiet(id));
    testbed.run(&["down"]).ends_with(0);
    check_ledger(&testbed);
    testbed.leaves_nothing();
}

#[test]
fn an_elastic_gang_goes_on_with_fewer_and_then_with_all_and_ends_with_the_same_bits() {
    let name = "an_elastic_gang_goes_on_with_fewer_and_then_with_all_and_ends_with_the_same_bits";
    if !is_root("machines of their own") || !has_torch(name) {
        return;
    }
    let _one = one_at_a_time();
    let (testbed, port) = (Testbed::bare(), free_port());
    up(&testbed, port, "4h");
    let names = ["one", "two", "three"];
    let mut machines = names.map(|_| Far::new(&testbed));
    machines[0].connect(&machines[1]);
    machines[0].connect(&machines[2]);
    machines[1].connect(&machines[2]);
    for (far, name) in machines.iter_mut().zip(names) {
        far.write(&testbed.work.join("elastic.py"), ELASTIC);
        far.start_agent_with(port, Some(&token(&testbed, name)), &WORDS, &[]);
        eventually("it is ready", || state_of(&testbed, name).as_deref() == Some("ready"));
    }
    // Without anything that says how much there is to do, more workers are always worth another start.
    let id = testbed.submit(&format!(
        "name: elastic\nelastic: 2..3\nresources: {{ accelerators: H200:1 }}\ngrace: 5s\n\
         checkpoint: {{ settle: 1s }}\nrun: {PYTHON} elastic.py 100 2\n"
    ));
    let wanted = undisturbed(&testbed, ("elastic.py", ELASTIC), 100, 2);
    let explained = || testbed.run(&["explain", "--all", &id.to_string()]).ends_with(0).out;
    let saves_with = |stint: u32| {
        let of_now = format!("checkpoint {stint}.");
        eventually("it saves", || {
            let job = testbed.job(id);
            assert!(job["outcome"].is_null(), "{job}\n{}", explained());
            explained().lines().any(|line| line.contains(&of_now) && line.contains("is durable"))
        });
    };
    saves_with(1);
    // Nothing new goes to the third machine, and what runs there is lost.
    testbed.run(&["nodes", "drain", "three"]).ends_with(0);
    Fault::Agent.strike(&mut machines[2], id, port);
    saves_with(2);
    testbed.run(&["nodes", "resume", "three"]).ends_with(0);
    saves_with(3);
    let ended = testbed.until(id, &["succeeded", "failed"]);
    assert_eq!(ended["state"], "succeeded", "{ended}\n{}", explained());
    assert_eq!((&ended["stints"], &ended["interruptions"]), (&3.into(), &1.into()), "{}", explained());
    let logs = |rank: u32| testbed.run(&["logs", &id.to_string(), "--rank", &rank.to_string()]).ends_with(0).out;
    let began = |said: &str| -> Vec<String> {
        said.lines().filter_map(|line| Some(line.split_once(" from ")?.0.to_owned())).collect()
    };
    assert_eq!(began(&logs(0)), ["rank 0 of 3", "rank 0 of 2", "rank 0 of 3"]);
    assert_eq!(began(&logs(2)), ["rank 2 of 3", "rank 2 of 3"]);
    let hash = |words: &str| words.rsplit(' ').next().map(str::to_owned);
    for rank in 0..3 {
        let said = logs(rank);
        assert_eq!(last_words(&said).and_then(|words| hash(&words)), hash(&wanted[0]), "{said}");
    }
    let asked = explained().matches("→ acquire").count();
    assert_eq!(asked, 2, "the two that were not lost are the same all the time: {}", explained());
    machines.iter().for_each(|far| far.until_quiet(id));
    testbed.run(&["down"]).ends_with(0);
    check_ledger(&testbed);
    testbed.leaves_nothing();
}

/// The ranks of the example, beside nothing of ours, with a folder for what they save.
fn example(saves: &Path, port: u16) -> Vec<std::process::Child> {
    let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/gang-torch/train.py");
    let start = |rank: u32| {
        let mut command = Command::new(PYTHON);
        command.arg(&program).stdin(Stdio::null()).stdout(Stdio::piped());
        command.env("RANK", rank.to_string()).env("WORLD_SIZE", "2").env("GLOO_SOCKET_IFNAME", "lo");
        command.env("MASTER_ADDR", "127.0.0.1").env("MASTER_PORT", port.to_string());
        command.env("STEPS", "40").env("SECONDS_A_STEP", "0.02").env("SAVE_EVERY", "5");
        command.env("WINDFALL_CHECKPOINT_DIR", saves).env_remove("WINDFALL_RESUME").spawn().unwrap()
    };
    (0..2).map(start).collect()
}

fn said(ranks: Vec<std::process::Child>) -> Vec<String> {
    let ended = ranks.into_iter().map(|rank| rank.wait_with_output().unwrap());
    ended.map(|said| String::from_utf8_lossy(&said.stdout).into_owned()).collect()
}

#[test]
fn the_example_of_a_gang_ends_with_the_same_weights_when_one_rank_is_told_to_stop() {
    let name = "the_example_of_a_gang_ends_with_the_same_weights_when_one_rank_is_told_to_stop";
    if !has_torch(name) {
        return;
    }
    let _one = one_at_a_time();
    let testbed = Testbed::bare();
    let undisturbed = said(example(&testbed.work.join("plain"), free_port()));
    let saves = testbed.work.join("saves");
    let ranks = example(&saves, free_port());
    eventually("something is saved", || std::fs::read_dir(&saves).is_ok_and(|mut entries| entries.next().is_some()));
    processes::signal(ranks[1].id() as i32, Signal::TERM);
    let stopped = said(ranks);
    assert!(stopped.iter().all(|said| said.contains("was told to stop, and saved ")), "{stopped:?}");
    let resumed = said(example(&saves, free_port()));
    for (resumed, undisturbed) in resumed.iter().zip(&undisturbed) {
        assert!(!resumed.contains(" from 0\n"), "{resumed}");
        assert!(
            last_words(resumed).is_some() && last_words(resumed) == last_words(undisturbed),
            "{resumed}{undisturbed}"
        );
    }
}
