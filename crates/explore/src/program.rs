//! The truth about a job that the brain never sees: its program, its runs, its durable checkpoints.

use std::collections::{BTreeMap, BTreeSet};
use windfall_core::record::Resume;
use windfall_core::{CheckpointId, Outcome, Rate, Span, Time, WorkerEnd};

/// How a program's story goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Plot {
    /// It gets through.
    Succeeds,
    /// It exits with a code when it gets there, so many times.
    Fails { at: u64, code: i32, times: u32 },
    /// A signal ends it when it gets there, so many times.
    Killed { at: u64, signal: i32, times: u32 },
    /// At the end rank 0 exits with 0 and the last rank with this code.
    RankFails { code: i32 },
    /// Its folder is gone.
    NeverRuns,
}

/// What it does on SIGTERM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OnTerm {
    /// Saves, then ends.
    Saves(Span),
    /// Ends.
    Stops(Span),
    /// Goes on until SIGKILL.
    Ignores,
}

/// A program.
#[derive(Clone, Debug)]
pub(crate) struct Program {
    pub total: u64,
    pub rate: Rate,
    pub saves_every: Option<Span>,
    /// It saves when it is asked to.
    pub listens: bool,
    pub save_takes: Span,
    /// From the start order until it makes progress.
    pub restore: Span,
    /// From its end until what it saved last is stored.
    pub upload: Span,
    pub plot: Plot,
    pub on_term: OnTerm,
    pub reports: bool,
    pub says_total: bool,
    /// It corrects its total as it goes.
    pub wavers: bool,
    /// Of a thousand checkpoints, so many make it fail when it resumes from them.
    pub bad_saves: u64,
}

/// A complete and durable checkpoint.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Saved {
    pub work: u64,
    /// What a fence is a copy of; itself for a real save and for a fence of nothing.
    pub origin: CheckpointId,
    /// A fence of nothing: its stint began from the beginning.
    pub fresh: bool,
    /// The origin of what its stint resumed from.
    pub began_from: Option<CheckpointId>,
    pub bad: bool,
}

/// One stint as it really goes.
#[derive(Clone, Debug)]
pub(crate) struct Run {
    pub epoch: u64,
    pub size: u32,
    pub resume: Resume,
    pub fenced: bool,
    pub restored: Option<CheckpointId>,
    pub base: u64,
    /// Work at `since`, or now when it stands still.
    pub work: u64,
    /// It makes progress since then.
    pub since: Option<Time>,
    pub seq: u64,
    pub next_save: Option<Time>,
    pub saving: Option<(Time, u64)>,
    pub durable: Option<(CheckpointId, u64)>,
    /// The machines were reported gone, and it runs on.
    pub limbo: bool,
    /// Some of its workers run and some do not.
    pub half_since: Option<Time>,
    /// The program has come to its end or its failure.
    pub climax: bool,
    /// Ranks that have exited with 0.
    pub zeroes: u32,
}

impl Run {
    pub fn work_at(&self, rate: Rate, now: Time) -> u64 {
        self.since.map_or(self.work, |since| self.work + rate.work_in(now - since).0)
    }
}

/// All that is true of a job.
#[derive(Clone, Debug)]
pub(crate) struct Truth {
    pub program: Program,
    pub saves: BTreeMap<CheckpointId, Saved>,
    pub runs: BTreeMap<u64, Run>,
    /// Times the plot has struck.
    pub strikes: u32,
    /// Every rank of one run exited with 0 by itself, all work done.
    pub completed: bool,
    pub ends: Vec<WorkerEnd>,
    /// Checkpoints that the program failed on.
    pub failed_on: BTreeSet<CheckpointId>,
    pub cancel_sent: bool,
    pub outcome: Option<(Time, Outcome)>,
}

impl Truth {
    pub fn new(program: Program) -> Truth {
        Truth {
            program,
            saves: BTreeMap::new(),
            runs: BTreeMap::new(),
            strikes: 0,
            completed: false,
            ends: Vec::new(),
            failed_on: BTreeSet::new(),
            cancel_sent: false,
            outcome: None,
        }
    }

    /// What a stint resumes from, as the agent picks it: the highest name wins, whoever wrote last, and
    /// what a later stint did not have in its past is fenced off.
    pub fn choose(&self, resume: Resume) -> Option<(CheckpointId, Saved)> {
        let before = match resume {
            Resume::Newest => None,
            Resume::Before(bad) => Some(self.saves.get(&bad).map_or(bad, |saved| saved.origin)),
        };
        let mut fences: BTreeMap<u64, Option<CheckpointId>> = BTreeMap::new();
        for (id, saved) in self.saves.iter().rev() {
            let fenced = |(epoch, base): (&u64, &Option<CheckpointId>)| {
                *epoch > id.epoch && base.is_none_or(|base| saved.origin > base)
            };
            if fences.iter().any(fenced) {
                continue;
            }
            fences.insert(id.epoch, saved.began_from);
            if before.is_some_and(|bad| saved.origin >= bad) {
                continue;
            }
            return (!saved.fresh).then_some((*id, *saved));
        }
        None
    }

    /// The most work that any checkpoint ever held.
    pub fn best_work(&self) -> u64 {
        self.saves.values().map(|saved| saved.work).max().unwrap_or(0)
    }
}
