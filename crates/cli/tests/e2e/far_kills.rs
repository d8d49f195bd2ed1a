//! Kills anything at any moment on several machines and their server, and carries on. Seeded: the seed and every kill are
//! printed.
//!
//! `WINDFALL_KILLS` says how many kill points (12), `WINDFALL_SEED` which.

use super::far::{Far, SHARED};
use super::judge::{Judge, Scene, kill_at_random};
use super::kills::Dice;
use super::nodes::{free_port, state_of, up};
use super::processes::{self, Process, Role};
use super::testbed::{LIMIT, Testbed, eventually, is_root, one_at_a_time, within};
use super::witness::{self, Witness, check_ledger};
use rustix::process::Signal;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
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

struct Machines {
    judge: Judge,
    port: u16,
    machines: Vec<Far>,
}

impl Machines {
    fn new() -> Machines {
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
        Machines { judge: Judge { testbed, jobs, journals }, port, machines }
    }

    /// The processes of a victim, if there are any at this moment.
    fn find(&self, victim: Victim) -> Vec<i32> {
        let with_role = |all: Vec<Process>, role: Role, lease: Option<String>| {
            let is_it = |process: &Process| process.role == role && (lease.is_none() || process.lease == lease);
            all.iter().filter(|process| is_it(process)).map(|process| process.pid).collect()
        };
        let jobs = &self.judge.jobs;
        let on_lease_of = |index: usize, role: Role| {
            let there = self.machines.iter().map(Far::processes).find_map(|there| {
                let run = jobs[index].alive().and_then(|run| jobs[index].process(&run))?;
                let lease = there.iter().find(|process| process.pid == run)?.lease.clone()?;
                Some((there, lease))
            });
            there.map(|(there, lease)| with_role(there, role, Some(lease))).unwrap_or_default()
        };
        match victim {
            Victim::Server => self.judge.server(),
            Victim::Node(at) | Victim::Wire(at) => with_role(self.machines[at].processes(), Role::Node, None),
            Victim::Power(at) => self.machines[at].processes().iter().map(|process| process.pid).collect(),
            Victim::Guard(index) => on_lease_of(index, Role::Guard),
            Victim::Agent(index) => on_lease_of(index, Role::Agent),
            Victim::Worker(index) => self.judge.worker(index),
        }
    }

    /// Lets every job end and looks at what is left.
    fn end(mut self) {
        self.judge.end();
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
        let testbed = &self.judge.testbed;
        testbed.forgets_leases();
        testbed.run(&["down"]).ends_with(0);
        check_ledger(testbed);
        testbed.leaves_nothing();
        self.machines.iter_mut().for_each(Far::kill_agent);
        assert!(self.machines.iter().all(|far| far.processes().is_empty()));
    }
}

impl Scene for Machines {
    type Victim = Victim;

    fn judge(&self) -> &Judge {
        &self.judge
    }

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
                    successors += u64::from(dice.below(3) == 0 && self.judge.strike_successor(dice));
                    self.judge.testbed.run(&["up"]).ends_with(0);
                }
                Victim::Guard(_) | Victim::Agent(_) | Victim::Worker(_) => {}
            }
        }
        successors
    }
}

fn is_ready(testbed: &Testbed, name: &str) -> bool {
    state_of(testbed, name).as_deref() == Some("ready")
}

#[test]
fn killing_anything_on_machines_and_their_server_loses_nothing() {
    if !is_root("machines of their own") {
        return;
    }
    let _one = one_at_a_time();
    let mut scene = Machines::new();
    assert!(!Path::new(&scene.judge.testbed.home).starts_with(scene.judge.journals.path()));
    kill_at_random(&mut scene, 12);
    scene.end();
}
