//! Kills anything at random moments where programs run elsewhere than the server, and judges: whatever dies, no job is lost, none runs
//! twice, every one gets on from what was durable, and its output is whole. What there is to kill is a scene's.

use super::kills::{Dice, kinds_of, one_or_two, setting};
use super::processes::{self, Role};
use super::testbed::{Testbed, eventually};
use super::witness::{Witness, WitnessRun};
use rustix::process::Signal;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::process::Stdio;
use std::time::Duration;

/// The witnesses of a scene, and where they write what they have seen.
pub(super) struct Judge {
    pub testbed: Testbed,
    /// The ranks of a gang are one job, and a witness each.
    pub jobs: Vec<Witness>,
    /// What all programs see, so that a second run of one meets the first one wherever it is.
    pub journals: tempfile::TempDir,
}

/// Where things are killed.
pub(super) trait Scene {
    type Victim: Copy + PartialEq + Debug;

    fn judge(&self) -> &Judge;

    /// Somebody to kill.
    fn draw(dice: &mut Dice) -> Self::Victim;

    /// Kills these in one moment, unless one of them is not there.
    fn strike(&mut self, victims: &[Self::Victim]) -> bool;

    /// What a person or a service manager does after a while: starts what is no longer there. Gives how many more were killed.
    fn mend(&mut self, victims: &[Self::Victim], dice: &mut Dice) -> u64;
}

impl Judge {
    /// A run that has saved something: a program that dies again and again without getting anywhere has failed, and
    /// rightly so.
    pub fn with_something_saved(&self, index: usize) -> Option<WitnessRun> {
        let witness = &self.jobs[index];
        let run = witness.alive().filter(|run| run.beats > 10)?;
        (self.durable(witness) > run.first_step).then_some(run)
    }

    /// The process of a program that has saved something, if there is one at this moment.
    pub fn worker(&self, index: usize) -> Vec<i32> {
        self.with_something_saved(index).and_then(|run| self.jobs[index].process(&run)).into_iter().collect()
    }

    /// The steps that a job has in its newest checkpoint, by what the server says.
    fn durable(&self, witness: &Witness) -> u64 {
        self.testbed.job(witness.id)["durable"].as_u64().unwrap()
    }

    /// The server, if there is one at this moment.
    pub fn server(&self) -> Vec<i32> {
        let all = processes::of(&self.testbed.home).into_iter();
        all.filter(|process| process.role == Role::Server).map(|process| process.pid).collect()
    }

    /// Kills a server while it starts.
    pub fn strike_successor(&self, dice: &mut Dice) -> bool {
        let mut up = self.testbed.command(&["up"]);
        let mut client = up.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        std::thread::sleep(Duration::from_millis(dice.below(120)));
        let found = self.server();
        found.iter().for_each(|pid| processes::signal(*pid, Signal::KILL));
        super::testbed::wait(&mut client);
        !found.is_empty()
    }

    /// Every job is still there, none is over, none has run twice or seen what is the server's.
    fn carry_on(&self) {
        let jobs = self.testbed.jobs();
        let known: BTreeSet<u64> = self.jobs.iter().map(|witness| witness.id).collect();
        assert_eq!(jobs.len(), known.len(), "a job was lost: {jobs:?}");
        let over = |state: &str| ["succeeded", "failed", "cancelled", "stopped"].contains(&state);
        let ended: Vec<_> = jobs.iter().filter(|job| over(job["state"].as_str().unwrap())).collect();
        assert!(ended.is_empty(), "over before its time: {ended:?}");
        for witness in &self.jobs {
            witness.check();
            self.check_processes(witness);
        }
    }

    /// Looks for a second run of a program wherever it may be.
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

    /// Lets every job end, and looks at what is left of its programs and at what they have said.
    pub fn end(&self) {
        for witness in &self.jobs {
            witness.until_beats(&[]);
        }
        self.jobs.iter().for_each(Witness::finish);
        for witness in &self.jobs {
            witness.check_over(&self.testbed);
        }
        let mut ranks: BTreeMap<u64, u32> = BTreeMap::new();
        for witness in &self.jobs {
            let rank = ranks.entry(witness.id).or_default();
            self.check_output(witness, *rank);
            *rank += 1;
            assert!(self.testbed.job(witness.id)["cost_nanousd"].as_u64() > Some(0), "machines are paid for");
        }
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

/// Kills at so many moments, one or two things at once, and carries on. `WINDFALL_KILLS` says how many moments, `WINDFALL_SEED` which.
pub(super) fn kill_at_random<S: Scene>(scene: &mut S, usual_points: u64) {
    let (points, seed) = (setting("WINDFALL_KILLS", usual_points), setting("WINDFALL_SEED", 20_260_101));
    println!("kill points: {points}, seed: {seed}");
    let mut dice = Dice(seed);
    let mut tried: BTreeMap<String, u32> = BTreeMap::new();
    let (mut done, mut missed, mut looked_at) = (0, 0, 0);
    while done < points {
        std::thread::sleep(Duration::from_millis(dice.below(900)));
        let victims = one_or_two(&mut dice, S::draw);
        let judge = scene.judge();
        let durable: Vec<u64> = judge.jobs.iter().map(|witness| judge.durable(witness)).collect();
        if scene.strike(&victims) {
            println!("{done:>4}: {victims:?}");
            *tried.entry(kinds_of(&victims)).or_default() += 1;
            done += 1 + scene.mend(&victims, &mut dice);
        } else {
            // Between two stints there is no worker to kill; but do not wait for ever.
            missed += 1;
            assert!(missed < points * 40 + 400, "hardly anything ever runs");
        }
        let judge = scene.judge();
        judge.carry_on();
        if done >= looked_at + 5 {
            looked_at = done;
            eventually("every job gets on, with all that was durable", || {
                let got_on = |(witness, durable): (&Witness, &u64)| {
                    let run = witness.alive().filter(|run| run.beats > 0);
                    run.is_some_and(|run| run.last_step >= *durable)
                };
                judge.jobs.iter().zip(&durable).all(got_on)
            });
        }
    }
    println!("{done} kill points: {tried:?}; {missed} times there was nobody to kill");
}
