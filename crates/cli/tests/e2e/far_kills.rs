//! Kills anything at any moment on several machines and their server, and carries on. Seeded: the seed and every kill are
//! printed.
//!
//! `WINDFALL_KILLS` says how many kill points (12), `WINDFALL_SEED` which.

use super::far::{Far, SHARED};
use super::kills::{Dice, kinds_of, one_or_two, setting};
use super::nodes::{free_port, state_of, up};
use super::processes::{self, Process, Role};
use super::testbed::{LIMIT, Testbed, eventually, is_root, one_at_a_time, within};
use super::witness::{self, Witness, WitnessRun, check_ledger};
use rustix::process::Signal;
use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

/// Whatever else runs on two of the machines, a gang of two that wants two of each finds room on two of them.
const MACHINES: [&str; 3] = ["one", "two", "three"];
const WORDS: [&str; 2] = ["--accelerators", "H200:3"];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Victim {
    Server,
    /// What makes a machine a node.
    Node(usize),
    /// Everything on a machine.
    Power(usize),
    /// Not killed: the wire between a machine and the server is cut for a moment.
    Wire(usize),
    Guard(usize),
    Agent(usize),
    Worker(usize),
}

struct Scene {
    testbed: Testbed,
    port: u16,
    machines: Vec<Far>,
    /// The ranks of a gang are one job, and a witness each.
    jobs: Vec<Witness>,
    /// What all machines see, so that a second run of a program meets the first one wherever it is.
    journals: tempfile::TempDir,
}

impl Scene {
    fn new() -> Scene {
        let (testbed, port) = (Testbed::bare(), free_port());
        up(&testbed, port, "4h");
        let journals = tempfile::Builder::new().prefix("windfall-journals-").tempdir_in(SHARED).unwrap();
        std::fs::set_permissions(journals.path(), PermissionsExt::from_mode(0o777)).unwrap();
        let mut machines: Vec<Far> = MACHINES.iter().map(|_| Far::new(&testbed)).collect();
        for (far, name) in machines.iter_mut().zip(MACHINES) {
            far.write(&testbed.work.join("witness.py"), witness::PROGRAM);
            let token = testbed.run(&["nodes", "token", name, "--rate", "3.6"]).ends_with(0).out;
            far.start_agent_with(port, Some(token.trim()), &WORDS, &[]);
        }
        eventually("all are ready", || MACHINES.iter().all(|name| is_ready(&testbed, name)));
        let one = "resources: { accelerators: H200:1 }\n";
        let two = "resources: { accelerators: H200:2 }\ncheckpoint: { settle: 1s }\n";
        let submit = |named, asks, ranks| Witness::submit_far(&testbed, journals.path(), named, asks, ranks);
        let mut jobs = submit(("plain", "far"), one, 1);
        jobs.extend(submit(("daemon", "far-daemon"), one, 1));
        jobs.extend(submit(("gang", "far-gang-daemon"), two, 2));
        Scene { testbed, port, machines, jobs, journals }
    }

    /// A run that has saved something: a program that dies again and again without getting anywhere has failed, and
    /// rightly so.
    fn with_something_saved(&self, index: usize) -> Option<WitnessRun> {
        let witness = &self.jobs[index];
        let run = witness.alive().filter(|run| run.beats > 10)?;
        (self.durable(witness) > run.first_step).then_some(run)
    }

    /// The steps that a job has in its newest checkpoint, by what the server says.
    fn durable(&self, witness: &Witness) -> u64 {
        self.testbed.job(witness.id)["durable"].as_u64().unwrap()
    }

    /// The processes of a victim, if there are any at this moment.
    fn find(&self, victim: Victim) -> Vec<i32> {
        let with_role = |all: Vec<Process>, role: Role, lease: Option<String>| {
            let is_it = |process: &Process| process.role == role && (lease.is_none() || process.lease == lease);
            all.iter().filter(|process| is_it(process)).map(|process| process.pid).collect()
        };
        let on_lease_of = |index: usize, role: Role| {
            let there = self.machines.iter().map(Far::processes).find_map(|there| {
                let run = self.jobs[index].alive().and_then(|run| self.jobs[index].process(&run))?;
                let lease = there.iter().find(|process| process.pid == run)?.lease.clone()?;
                Some((there, lease))
            });
            there.map(|(there, lease)| with_role(there, role, Some(lease))).unwrap_or_default()
        };
        match victim {
            Victim::Server => with_role(processes::of(&self.testbed.home), Role::Server, None),
            Victim::Node(at) | Victim::Wire(at) => with_role(self.machines[at].processes(), Role::Node, None),
            Victim::Power(at) => self.machines[at].processes().iter().map(|process| process.pid).collect(),
            Victim::Guard(index) => on_lease_of(index, Role::Guard),
            Victim::Agent(index) => on_lease_of(index, Role::Agent),
            Victim::Worker(index) => {
                self.with_something_saved(index).and_then(|run| self.jobs[index].process(&run)).into_iter().collect()
            }
        }
    }

    /// Kills these in one moment, unless one of them is not there.
    fn strike(&mut self, victims: &[Victim]) -> bool {
        let found: Vec<Vec<i32>> = victims.iter().map(|victim| self.find(*victim)).collect();
        if found.iter().any(Vec::is_empty) {
            return false;
        }
        for (victim, pids) in victims.iter().zip(found) {
            match victim {
                Victim::Wire(at) => self.machines[*at].cut(true),
                Victim::Power(at) => self.machines[*at].lose_power(),
                _ => pids.into_iter().for_each(|pid| processes::signal(pid, Signal::KILL)),
            }
        }
        true
    }

    /// What a person or a service manager does after a while: starts what is no longer there, and mends the wire.
    fn mend(&mut self, victims: &[Victim], dice: &mut Dice) -> u64 {
        std::thread::sleep(Duration::from_millis(dice.below(2_500)));
        let mut successors = 0;
        for victim in victims {
            match *victim {
                Victim::Wire(at) => self.machines[at].cut(false),
                Victim::Node(at) | Victim::Power(at) => {
                    self.machines[at].kill_agent();
                    self.machines[at].start_agent_with(self.port, None, &WORDS, &[]);
                }
                Victim::Server => {
                    successors += u64::from(dice.below(3) == 0 && self.strike_successor(dice));
                    self.testbed.run(&["up"]).ends_with(0);
                }
                Victim::Guard(_) | Victim::Agent(_) | Victim::Worker(_) => {}
            }
        }
        successors
    }

    /// Kills a server while it starts.
    fn strike_successor(&self, dice: &mut Dice) -> bool {
        let mut up = self.testbed.command(&["up"]);
        let mut client = up.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        std::thread::sleep(Duration::from_millis(dice.below(120)));
        let found = self.find(Victim::Server);
        found.iter().for_each(|pid| processes::signal(*pid, Signal::KILL));
        super::testbed::wait(&mut client);
        !found.is_empty()
    }

    /// Every job is still there, none is over, none has run twice or seen what is the server's.
    fn carry_on(&self) {
        let jobs = self.testbed.jobs();
        assert_eq!(jobs.len(), 3, "a job was lost: {jobs:?}");
        let over = |state: &str| ["succeeded", "failed", "cancelled", "stopped"].contains(&state);
        let ended: Vec<_> = jobs.iter().filter(|job| over(job["state"].as_str().unwrap())).collect();
        assert!(ended.is_empty(), "over before its time: {ended:?}");
        for witness in &self.jobs {
            witness.check();
            self.check_processes(witness);
        }
    }

    /// Looks for a second run of a program on all machines at once.
    fn check_processes(&self, witness: &Witness) {
        let words = format!("{} {} far", self.journals.path().display(), witness.name());
        let running = || -> Vec<i32> {
            let all = processes::with_word(witness.name());
            all.into_iter().filter(|pid| processes::line(*pid).contains(&words)).collect()
        };
        // A program that forks looks like two for a moment, and one may end while the others are looked for: two runs of it stay
        // two. Those that are shorter are told by the locks in the journal.
        let mut always: BTreeSet<i32> = running().into_iter().collect();
        for _ in 0..20 {
            always.retain(|pid| processes::is_running(*pid));
            if always.len() <= 1 {
                return;
            }
            std::thread::sleep(Duration::from_millis(100));
            let now = running();
            always.retain(|pid| now.contains(pid));
        }
        let lines: Vec<String> = always.iter().map(|pid| processes::line(*pid)).collect();
        panic!("{} runs twice: {always:?} {lines:?}", witness.name());
    }

    /// Lets every job end and looks at what is left.
    fn end(mut self) {
        for witness in &self.jobs {
            witness.until_beats(&[]);
        }
        self.jobs.iter().for_each(Witness::finish);
        for witness in &self.jobs {
            witness.check_over(&self.testbed);
        }
        for (rank, witness) in [0, 0, 0, 1].into_iter().zip(&self.jobs) {
            self.check_output(witness, rank);
            assert!(self.testbed.job(witness.id)["cost_nanousd"].as_u64() > Some(0), "machines are paid for");
        }
        let state = self.machines[0].state().display().to_string();
        for (far, name) in self.machines.iter().zip(MACHINES) {
            // A rank that was killed leaves what it saved last, where that is in no checkpoint: it may be somebody's last copy.
            let left = format!("cd {state} && ls leases && find jobs -mindepth 2 -maxdepth 2 ! -name 'unsaved-*'");
            let is_clear = within(LIMIT, || far.says(&left).is_empty());
            let all = || far.says(&format!("cd {state} && find leases jobs | head -60; cat leases/*/marks.json"));
            assert!(is_clear, "of the jobs is left on {name}: {}\n{}", far.says(&left), all());
            let left = far.processes();
            assert!(left.iter().all(|process| process.role == Role::Node), "on {name}: {left:?}");
        }
        self.testbed.forgets_leases();
        self.testbed.run(&["down"]).ends_with(0);
        check_ledger(&self.testbed);
        self.testbed.leaves_nothing();
        self.machines.iter_mut().for_each(Far::kill_agent);
        assert!(self.machines.iter().all(|far| far.processes().is_empty()));
    }

    /// The last run of a program is in its output from the first to the last step, once and in order.
    fn check_output(&self, witness: &Witness, rank: u32) {
        let run = *witness.runs().last().unwrap();
        let said = self.testbed.run(&["logs", &witness.id.to_string(), "--rank", &rank.to_string()]).ends_with(0).out;
        let steps = said.lines().filter_map(|line| line.strip_prefix("step ")?.parse::<u64>().ok());
        let last: Vec<u64> = steps.collect::<Vec<_>>().into_iter().rev().take(run.beats as usize).rev().collect();
        let meant: Vec<u64> = (run.first_step + 1..).take(run.beats as usize).collect();
        assert_eq!(last, meant, "{}: the output of its last run", witness.name());
    }
}

fn is_ready(testbed: &Testbed, name: &str) -> bool {
    state_of(testbed, name).as_deref() == Some("ready")
}

impl Victim {
    fn draw(dice: &mut Dice) -> Victim {
        let (job, machine) = (dice.below(4) as usize, dice.below(MACHINES.len() as u64) as usize);
        match dice.below(12) {
            0 | 1 => Victim::Server,
            2 | 3 => Victim::Node(machine),
            4 => Victim::Wire(machine),
            5 => Victim::Power(machine),
            6 | 7 => Victim::Guard(job),
            8 | 9 => Victim::Agent(job),
            _ => Victim::Worker(job),
        }
    }
}

#[test]
fn killing_anything_on_machines_and_their_server_loses_nothing() {
    if !is_root("machines of their own") {
        return;
    }
    let (points, seed) = (setting("WINDFALL_KILLS", 12), setting("WINDFALL_SEED", 20_260_101));
    println!("kill points: {points}, seed: {seed}");
    let _one = one_at_a_time();
    let (mut scene, mut dice) = (Scene::new(), Dice(seed));
    assert!(!Path::new(&scene.testbed.home).starts_with(scene.journals.path()));
    let mut tried: BTreeMap<String, u32> = BTreeMap::new();
    let (mut done, mut missed) = (0, 0);
    while done < points {
        std::thread::sleep(Duration::from_millis(dice.below(900)));
        let victims = one_or_two(&mut dice, Victim::draw);
        let durable: Vec<u64> = scene.jobs.iter().map(|witness| scene.durable(witness)).collect();
        if scene.strike(&victims) {
            println!("{done:>4}: {victims:?}");
            *tried.entry(kinds_of(&victims)).or_default() += 1;
            done += 1 + scene.mend(&victims, &mut dice);
        } else {
            // Between two stints there is no worker to kill; but do not wait for ever.
            missed += 1;
            assert!(missed < points * 40 + 400, "hardly anything ever runs");
        }
        scene.carry_on();
        if done % 5 == 0 {
            eventually("every job gets on, with all that was durable", || {
                let got_on = |(witness, durable): (&Witness, &u64)| {
                    let run = witness.alive().filter(|run| run.beats > 0);
                    run.is_some_and(|run| run.last_step >= *durable)
                };
                scene.jobs.iter().zip(&durable).all(got_on)
            });
        }
    }
    println!("{done} kill points: {tried:?}; {missed} times there was nobody to kill");
    scene.end();
}
