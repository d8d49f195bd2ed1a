//! The state as the log has it: what people are shown, what a failed commit goes back to, and what snapshots are made of.
//! The loop's own brain is ahead of it by the commit that is on its way. Readers share it with the loop and never enter
//! the loop: lists of jobs are read a few jobs at a time, other questions in one go, and the loop waits that long.

use crate::save_paths::SavePaths;
use std::sync::{PoisonError, RwLock};
use windfall_core::{Body, Brain, Decision, Event, Record, WorkloadId};

/// The state as the log has it.
#[derive(Debug)]
pub struct Durable(RwLock<Stood>);

/// Where the log stood at one moment.
#[derive(Debug)]
struct Stood {
    brain: Brain,
    last_ledger_row: u64,
    /// Where its jobs save.
    save_paths: SavePaths,
    /// Jobs that have not ended, counted as they come and end: people ask for the number often.
    live_jobs: usize,
}

impl Durable {
    pub(crate) fn new(brain: Brain, last_ledger_row: u64) -> Durable {
        let live_jobs = brain.jobs().filter(|job| job.ended.is_none()).count();
        let save_paths = SavePaths::of(&brain);
        Durable(RwLock::new(Stood { brain, last_ledger_row, save_paths, live_jobs }))
    }

    /// How many jobs have not ended.
    pub fn live_jobs(&self) -> usize {
        self.0.read().unwrap_or_else(PoisonError::into_inner).live_jobs
    }

    /// Looks at it. Whoever has much to look at comes back for each part of it.
    pub fn read<T>(&self, look: impl FnOnce(&Brain) -> T) -> T {
        look(&self.0.read().unwrap_or_else(PoisonError::into_inner).brain)
    }

    /// Looks at it and at where its jobs save their checkpoints.
    pub(crate) fn read_paths<T>(&self, look: impl FnOnce(&Brain, &SavePaths) -> T) -> T {
        let stood = self.0.read().unwrap_or_else(PoisonError::into_inner);
        look(&stood.brain, &stood.save_paths)
    }

    /// Looks at it and at the last ledger row, both of one moment.
    pub fn read_books<T>(&self, look: impl FnOnce(&Brain, u64) -> T) -> T {
        let stood = self.0.read().unwrap_or_else(PoisonError::into_inner);
        look(&stood.brain, stood.last_ledger_row)
    }

    /// A commit is durable. `ahead` is the brain that decided it, whose plans people are told of.
    pub(crate) fn advance(&self, records: &[Record], ledger_rows: u64, ahead: &Brain) {
        let mut stood = self.0.write().unwrap_or_else(PoisonError::into_inner);
        stood.apply(records);
        stood.last_ledger_row += ledger_rows;
        stood.brain.share_plans(ahead);
    }

    /// The log holds more than was known.
    pub(crate) fn catch_up(&self, records: &[Record], last_ledger_row: u64) {
        let mut stood = self.0.write().unwrap_or_else(PoisonError::into_inner);
        stood.apply(records);
        stood.last_ledger_row = last_ledger_row;
    }
}

impl Stood {
    fn apply(&mut self, records: &[Record]) {
        for record in records {
            // Only these let a job begin and end.
            let about = match &record.body {
                Body::Event(Event::Submitted { id, .. }) => Some(id.unwrap_or(WorkloadId(record.seq))),
                Body::Decision(Decision::End { workload, .. }, _) => Some(*workload),
                _ => None,
            };
            let lives = |brain: &Brain| about.and_then(|id| brain.job(id)).is_some_and(|job| job.ended.is_none());
            let lived = lives(&self.brain);
            self.brain.apply(record);
            match (lived, lives(&self.brain)) {
                (false, true) => {
                    self.live_jobs += 1;
                    about.into_iter().for_each(|id| self.save_paths.add(&self.brain, id));
                }
                (true, false) => self.live_jobs -= 1,
                _ => {}
            }
        }
        // Whoever made the commit has written these.
        self.brain.take_ledger();
        self.brain.take_final_views();
    }
}
