//! Which processes on the lease belong to which worker, so that one worker is ended with all that it left behind and
//! nothing of the others is.
//!
//! A process belongs to a worker by the first of these that says so: its control group, where there are any; its process
//! group; a mark in its environment, which survives `setsid`, double forks and the death of every parent; the owner of
//! its parent. The agent adopts orphans, so that all of them stay below it. An orphan that left its process group and
//! cleared its environment, on a machine without control groups, belongs to nobody: it is ended with the last program
//! that runs on the lease.

use crate::cgroup::WorkerGroup;
use crate::processes::{self, GLANCES, PAUSE, ROUNDS, Stat};
use rustix::process::Signal;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use windfall_core::StintId;

/// A driver may hold a killed process for a while, and the process its device: its worker has not ended before that, for
/// two minutes more at most.
const PATIENT_ROUNDS: u32 = 1_200;
const PATIENT_PAUSE: Duration = Duration::from_millis(100);

/// The mark's name in the environment of a worker's processes.
pub(crate) const MARK: &str = "WINDFALL_WORKER";

/// A worker on a lease: what its processes carry.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Mark {
    lease: String,
    worker: String,
}

impl Mark {
    pub fn new(lease: &str, stint: StintId, rank: u32) -> Mark {
        let StintId { workload, member, epoch } = stint;
        Mark { lease: lease.to_owned(), worker: format!("worker-{workload}.{member}.{epoch}.{rank}") }
    }

    /// The mark's value. It names the lease too: a program may run leases of its own, with workers of the same name.
    pub fn value(&self) -> String {
        format!("{}/{}", self.lease, self.worker)
    }
}

/// The programs that run on this agent's lease.
#[derive(Default)]
pub(crate) struct LeaseProcesses(Mutex<Known>);

#[derive(Default)]
struct Known {
    programs: BTreeMap<Mark, Program>,
    /// Whose each process was when it was last looked at: of a zombie that is no longer known.
    owners: BTreeMap<i32, Mark>,
}

struct Program {
    /// Its first process, which leads its process group. Its exit status belongs to whoever started it.
    main: i32,
    group: Option<WorkerGroup>,
    /// An orphan of it died of a signal, and its worker was not told yet.
    died: bool,
}

/// What is left of a program.
pub(crate) struct Left {
    pub running: BTreeSet<i32>,
    /// An orphan died of a signal since the last look.
    pub died: bool,
}

/// A program's processes, from its start until nothing of it runs any more.
pub(crate) struct ProgramProcesses {
    lease: Arc<LeaseProcesses>,
    mark: Mark,
}

/// A place for a program that is about to start.
pub(crate) struct Starting {
    lease: Arc<LeaseProcesses>,
    mark: Mark,
    group: Option<WorkerGroup>,
}

impl Starting {
    pub fn new(lease: &Arc<LeaseProcesses>, mark: Mark) -> Starting {
        let group = WorkerGroup::make(&mark.lease, &mark.worker);
        Starting { lease: Arc::clone(lease), mark, group }
    }

    /// The control group that it is to be started in.
    pub fn group(&self) -> Option<&Path> {
        self.group.as_ref().map(WorkerGroup::path)
    }

    /// It runs. Nobody may reap its first process from now on.
    pub fn started(self, main: i32) -> ProgramProcesses {
        let Starting { lease, mark, group } = self;
        lease.known().programs.insert(mark.clone(), Program { main, group, died: false });
        ProgramProcesses { lease, mark }
    }
}

impl LeaseProcesses {
    fn known(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Known {
    /// Whose a process is by itself.
    fn owner(&self, pid: i32, stat: Stat) -> Option<Mark> {
        let is = |test: &dyn Fn(&Mark, &Program) -> bool| {
            self.programs.iter().find(|(mark, program)| test(mark, program)).map(|(mark, _)| mark.clone())
        };
        is(&|_, program| program.group.as_ref().is_some_and(|group| group.holds(pid)))
            .or_else(|| is(&|_, program| program.main == stat.group))
            .or_else(|| is(&|mark, _| processes::carries(pid, &format!("{MARK}={}", mark.value()))))
    }

    /// Takes the exit status of orphans that have ended, and notes whose they were.
    fn reap(&mut self, children: impl Iterator<Item = (i32, Stat)>) {
        for (pid, stat) in children {
            // A first process is waited for by its worker.
            if self.programs.values().any(|program| program.main == pid) {
                continue;
            }
            let owner = self.owner(pid, stat).or_else(|| self.owners.get(&pid).cloned());
            let Some(by_signal) = processes::reap(pid) else {
                self.owners.extend(owner.map(|owner| (pid, owner)));
                continue;
            };
            self.owners.remove(&pid);
            // Where nobody knows whose it was, everybody's save may be torn.
            let affected =
                self.programs.iter_mut().filter(|(mark, _)| owner.as_ref().is_none_or(|owner| *mark == owner));
            affected.for_each(|(_, program)| program.died |= by_signal);
        }
    }

    fn take_died(&mut self, mark: &Mark) -> bool {
        self.programs.get_mut(mark).is_some_and(|program| std::mem::take(&mut program.died))
    }
}

impl ProgramProcesses {
    /// Takes the exit status of orphans that have ended. True if one of this program died of a signal since it was last
    /// asked. Looks at the agent's children only, so that it may be asked often.
    pub fn reap(&self) -> bool {
        let mut known = self.lease.known();
        let children = processes::children().into_iter();
        known.reap(children.filter_map(|pid| Some((pid, processes::stat(pid)?))));
        known.take_died(&self.mark)
    }

    /// What is left of the program, its first process included. Looks at all processes.
    pub fn left(&self) -> Left {
        let me = std::process::id() as i32;
        let mut known = self.lease.known();
        let table = processes::table();
        let owners = processes::below(&table, me, |pid, of_parent| known.owner(pid, table[&pid]).or(of_parent));
        // What belongs to nobody belongs to the last program.
        let alone = known.programs.len() == 1;
        let mine = |owner: &Option<Mark>| owner.as_ref().map_or(alone, |owner| *owner == self.mark);
        let running = owners.iter().filter(|(_, owner)| mine(owner)).map(|(pid, _)| *pid).collect();
        // Whose a zombie was is known from an earlier look.
        known.owners.retain(|pid, _| table.get(pid).is_some_and(|stat| stat.zombie));
        known.owners.extend(owners.into_iter().filter_map(|(pid, owner)| Some((pid, owner?))));
        known.reap(table.into_iter().filter(|(_, stat)| stat.parent == me && stat.zombie));
        Left { running, died: known.take_died(&self.mark) }
    }

    /// Kills what is left and reaps it. Returns how many processes were there at first.
    pub async fn end(&self) -> u32 {
        let (mut first, mut empty) = (None, 0);
        for round in 0..ROUNDS + PATIENT_ROUNDS {
            let running = self.left().running;
            first.get_or_insert(running.len() as u32);
            empty = if running.is_empty() { empty + 1 } else { 0 };
            if empty == GLANCES {
                break;
            }
            processes::signal_all(&running, Signal::KILL);
            tokio::time::sleep(if round < ROUNDS { PAUSE } else { PATIENT_PAUSE }).await;
        }
        first.unwrap_or(0)
    }
}

impl Drop for ProgramProcesses {
    fn drop(&mut self) {
        let gone = self.lease.known().programs.remove(&self.mark);
        // Its control group goes with it, outside the lock.
        drop(gone);
    }
}
