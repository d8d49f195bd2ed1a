//! Kills anything at any moment and carries on. Seeded: the seed and every kill are printed.
//!
//! `WINDFALL_KILLS` says how many kill points (30), `WINDFALL_SEED` which.

use super::processes::{self, Role};
use super::testbed::{Testbed, eventually, one_at_a_time};
use super::witness::{Witness, check_ledger};
use rustix::process::Signal;
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use std::process::{Child, Stdio};
use std::time::Duration;

const JOBS: [(&str, &str); 4] =
    [("plain", "plain"), ("daemon", "daemon"), ("bare", "bare-daemon"), ("second", "daemon")];

/// None that leaves a process behind which nobody can tell from those of its neighbours.
const JOBS_TOGETHER: [(&str, &str); 4] =
    [("plain", "plain"), ("daemon", "daemon"), ("third", "plain"), ("second", "daemon")];

/// splitmix64: small, and the same everywhere.
pub struct Dice(pub u64);

impl Dice {
    /// A number below this one.
    pub fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % n
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Victim {
    Server,
    Watcher,
    Guard(usize),
    Agent(usize),
    Worker(usize),
    /// Not killed by us: the market takes the lease, with a notice or without.
    Lease(usize),
}

struct Scene {
    testbed: Testbed,
    jobs: Vec<Witness>,
    watchers: Vec<Child>,
}

impl Scene {
    fn new() -> Scene {
        let testbed = Testbed::steady();
        let jobs: Vec<Witness> = JOBS.iter().map(|(name, mode)| Witness::submit(&testbed, name, mode)).collect();
        Scene::of(testbed, jobs)
    }

    /// All on one machine, each on a device of its own.
    fn shared() -> Scene {
        let testbed = Testbed::of_eight();
        let mut jobs: Vec<Witness> = Vec::new();
        for (name, mode) in JOBS_TOGETHER {
            let witness = Witness::submit_on_one_device(&testbed, name, mode);
            // Only a machine that is there is shared.
            witness.until_beats(&[]);
            jobs.push(witness);
        }
        let leases: BTreeSet<String> = jobs.iter().map(|job| testbed.job(job.id)["lease"]["id"].to_string()).collect();
        assert!([1, jobs.len()].contains(&leases.len()), "all on one machine, or none where that is not safe");
        Scene::of(testbed, jobs)
    }

    fn of(testbed: Testbed, jobs: Vec<Witness>) -> Scene {
        let mut scene = Scene { testbed, jobs, watchers: Vec::new() };
        scene.watchers = (0..scene.jobs.len()).map(|index| scene.watcher(index)).collect();
        scene
    }

    fn watcher(&self, index: usize) -> Child {
        let mut command = self.testbed.command(&["attach", &self.jobs[index].id.to_string()]);
        command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
    }

    /// The process of a victim, if there is one at this moment.
    fn find(&self, victim: Victim) -> Vec<i32> {
        let all = processes::of(&self.testbed.home);
        let on_lease_of = |index: usize, role: &Role| {
            let job = self.jobs[index].id;
            let lease = all.iter().find(|process| process.job == Some(job)).and_then(|process| process.lease.clone());
            let here = all.iter().filter(|process| lease.is_some() && process.lease == lease && process.role == *role);
            here.map(|process| process.pid).collect()
        };
        match victim {
            Victim::Server => all.iter().filter(|process| process.role == Role::Server).map(|p| p.pid).collect(),
            Victim::Watcher => self.watchers.first().map(|child| child.id() as i32).into_iter().collect(),
            Victim::Guard(index) => on_lease_of(index, &Role::Guard),
            Victim::Agent(index) => on_lease_of(index, &Role::Agent),
            // A program that dies again and again without getting anywhere has failed, and rightly so.
            Victim::Worker(index) | Victim::Lease(index) => {
                self.jobs[index].alive().filter(|run| run.beats > 10).map(|run| run.pid).into_iter().collect()
            }
        }
    }

    /// Kills these in one moment, unless one of them is not there.
    fn strike(&self, victims: &[Victim], dice: &mut Dice) -> bool {
        let found: Vec<Vec<i32>> = victims.iter().map(|victim| self.find(*victim)).collect();
        if found.iter().any(Vec::is_empty) {
            return false;
        }
        for victim in victims {
            if let Victim::Lease(index) = victim {
                let how = if dice.below(2) == 0 { json!("without") } else { json!({ "with-notice": 60_000 }) };
                self.testbed.post("/v1/interrupt", &json!({ "job": self.jobs[*index].id, "how": how }));
            }
        }
        let ours = found.iter().zip(victims).filter(|(_, victim)| !matches!(victim, Victim::Lease(_)));
        for pid in ours.flat_map(|(pids, _)| pids) {
            processes::signal(*pid, Signal::KILL);
        }
        true
    }

    /// Kills a server while it starts.
    fn strike_successor(&self, dice: &mut Dice) -> bool {
        let mut jobs = self.testbed.command(&["jobs"]);
        let mut client = jobs.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        std::thread::sleep(Duration::from_millis(dice.below(60)));
        let found = self.find(Victim::Server);
        for pid in &found {
            processes::signal(*pid, Signal::KILL);
        }
        super::testbed::wait(&mut client);
        !found.is_empty()
    }

    /// Any command starts a server where there is none; every job is still there and none is over.
    fn carry_on(&mut self) {
        let jobs = self.testbed.jobs();
        assert_eq!(jobs.len(), self.jobs.len(), "a job was lost: {jobs:?}");
        let over = |state: &str| ["succeeded", "failed", "cancelled", "stopped"].contains(&state);
        let ended: Vec<_> = jobs.iter().filter(|job| over(job["state"].as_str().unwrap())).collect();
        assert!(ended.is_empty(), "over before its time: {ended:?}");
        for witness in &self.jobs {
            witness.check();
        }
        for index in 0..self.watchers.len() {
            if self.watchers[index].try_wait().unwrap().is_some() {
                self.watchers[index] = self.watcher(index);
            }
        }
    }

    /// Lets every job end and looks at what is left.
    fn end(mut self) {
        for witness in &self.jobs {
            witness.until_beats(&[]);
            witness.finish();
        }
        for witness in &self.jobs {
            witness.check_over(&self.testbed);
        }
        for watcher in &mut self.watchers {
            assert_eq!(super::testbed::wait(watcher), Some(0), "a watcher ends with its job");
        }
        check_ledger(&self.testbed);
        let left = processes::of(&self.testbed.home);
        assert!(left.iter().all(|process| process.role == Role::Server), "{left:?}");
        self.testbed.forgets_leases();
        self.testbed.leaves_nothing();
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        for watcher in &mut self.watchers {
            let _ = watcher.kill();
            let _ = watcher.wait();
        }
    }
}

impl Victim {
    fn draw(dice: &mut Dice) -> Victim {
        let job = dice.below(JOBS.len() as u64) as usize;
        match dice.below(11) {
            0..=2 => Victim::Server,
            3 => Victim::Watcher,
            4 | 5 => Victim::Guard(job),
            6 | 7 => Victim::Agent(job),
            8 => Victim::Lease(job),
            _ => Victim::Worker(job),
        }
    }

    fn draw_some(dice: &mut Dice) -> Vec<Victim> {
        let mut victims = one_or_two(dice, Victim::draw);
        // With both of its keepers dead in one moment, a process that left its session and its environment
        // cannot be known any more: that takes control groups, which an ordinary user does not have.
        if let [Victim::Guard(2), Victim::Agent(2)] | [Victim::Agent(2), Victim::Guard(2)] = victims[..] {
            victims.pop();
        }
        victims
    }
}

/// One victim, or two different ones.
pub fn one_or_two<V: PartialEq>(dice: &mut Dice, draw: impl Fn(&mut Dice) -> V) -> Vec<V> {
    let mut victims = vec![draw(dice)];
    if dice.below(3) == 0 {
        let second = draw(dice);
        victims.extend((second != victims[0]).then_some(second));
    }
    victims
}

/// What was killed at once, in words by which it is counted.
pub fn kinds_of<V: std::fmt::Debug>(victims: &[V]) -> String {
    let kind = |victim: &V| format!("{victim:?}").replace(|letter: char| !letter.is_alphabetic(), "").to_lowercase();
    victims.iter().map(kind).collect::<Vec<_>>().join("+")
}

/// A number of the environment.
pub fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

#[test]
fn killing_anything_at_any_moment_loses_nothing() {
    kill_anything(Scene::new, setting("WINDFALL_KILLS", 30));
}

#[test]
fn killing_anything_under_jobs_that_share_a_machine_loses_nothing() {
    kill_anything(Scene::shared, setting("WINDFALL_KILLS", 20));
}

fn kill_anything(scene: impl FnOnce() -> Scene, points: u64) {
    let _one = one_at_a_time();
    let mut scene = scene();
    let seed = setting("WINDFALL_SEED", 20_260_101);
    println!("kill points: {points}, seed: {seed}");
    let mut dice = Dice(seed);
    for witness in &scene.jobs {
        witness.until_beats(&[]);
    }
    let mut tried: BTreeMap<String, u32> = BTreeMap::new();
    let (mut done, mut missed) = (0, 0);
    while done < points {
        std::thread::sleep(Duration::from_millis(dice.below(900)));
        let victims = Victim::draw_some(&mut dice);
        if scene.strike(&victims, &mut dice) {
            println!("{done:>4}: {victims:?}");
            *tried.entry(kinds_of(&victims)).or_default() += 1;
            done += 1;
        } else {
            // Between two stints there is no worker to kill; but do not wait for ever.
            missed += 1;
            assert!(missed < points * 20 + 200, "hardly anything ever runs");
        }
        if victims.contains(&Victim::Server) && dice.below(3) == 0 && scene.strike_successor(&mut dice) {
            *tried.entry("successor".to_owned()).or_default() += 1;
            done += 1;
        }
        scene.carry_on();
        if done % 10 == 0 {
            eventually("every job gets on", || scene.jobs.iter().all(|witness| witness.alive().is_some()));
        }
    }
    println!("{done} kill points: {tried:?}; {missed} times there was nobody to kill");
    scene.end();
}

#[test]
fn a_submission_survives_the_death_of_the_server() {
    let testbed = Testbed::steady();
    let mut dice = Dice(setting("WINDFALL_SEED", 20_260_101));
    for round in 0..20 {
        let name = format!("round-{round}");
        testbed.write("job.yaml", &format!("name: {name}\nrun: sleep 600\n"));
        let mut client =
            testbed.command(&["submit", "job.yaml"]).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        std::thread::sleep(Duration::from_millis(dice.below(30)));
        for process in processes::of(&testbed.home).iter().filter(|process| process.role == Role::Server) {
            processes::signal(process.pid, Signal::KILL);
        }
        assert_eq!(super::testbed::wait(&mut client), Some(0), "{name}");
        let accepted = testbed.jobs().iter().filter(|job| job["name"] == name.as_str()).count();
        assert_eq!(accepted, 1, "{name}: accepted once, never twice");
        testbed.run(&["cancel", &name]).ends_with(0);
    }
    testbed.leaves_nothing();
}
