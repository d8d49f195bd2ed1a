//! What the loop asks for, one step at a time, and the moments and habits that it goes by.

#[cfg(doc)]
use super::Cycle;
use super::{Answer, Ticket};
use crate::snapshots::SnapshotTask;
use std::collections::BTreeMap;
use std::time::Duration;
use windfall_core::brain::Open;
use windfall_core::{Address, DecisionId, LeaseId, Time, WorkloadId};
use windfall_store::Commit;

/// A moment by both clocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    /// The world's clock: what the brain knows.
    pub world: Time,
    /// Real time since the server began: pauses, repeats, sweeps.
    pub real: Duration,
}

/// How often the loop does what nobody asks it to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Habits {
    /// Progress of one stint is logged at most this often: often enough to see, rare enough to keep.
    pub progress_every: Duration,
    /// How often an engine is asked for everything that it holds.
    pub sweep_every: Duration,
    /// Rows between two snapshots, at least: one is made after so many rows, or after as many as the state has parts where
    /// that is more. A start replays those, and what was written while the snapshot was being made.
    pub snapshot_rows: u64,
    /// How often what all agents said last is gone through, news or not.
    pub hear_all_every: Duration,
    /// An engine that could not be observed is looked at again after this long, then after twice as long each time.
    pub look_again: Duration,
    /// The longest pause between two such looks.
    pub look_again_most: Duration,
    /// What an engine showed is of now for this long, also where it says that something has changed.
    pub fresh_for: Duration,
    /// An engine that was not seen for this long is silent: nothing new is asked of it until it answers.
    pub silent_after: Duration,
    /// Jobs wait for an engine that they have leases of and that cannot be observed, but not longer than this: then a
    /// deadline that nears, a budget that is spent and a person's wish weigh more than the risk of acting on what was
    /// seen last. Faults that pass (throttling, a restart of an endpoint) are shorter.
    pub blind_most: Duration,
}

impl Default for Habits {
    fn default() -> Habits {
        Habits {
            progress_every: Duration::from_secs(1),
            sweep_every: Duration::from_secs(60),
            snapshot_rows: 2_000,
            hear_all_every: Duration::from_secs(10),
            look_again: Duration::from_secs(1),
            look_again_most: Duration::from_secs(10),
            fresh_for: Duration::from_secs(1),
            silent_after: Duration::from_secs(10),
            blind_most: Duration::from_secs(60),
        }
    }
}

/// What to do next.
#[derive(Debug)]
pub enum Step {
    /// Take the lead on the store, then load the rows after the last one that is known; then [`Cycle::led`].
    Lead { known: u64 },
    /// Look at an engine; then, whenever that is over, [`Cycle::saw`].
    Look {
        engine: String,
        /// Which look at this engine it is: an answer to an earlier one does not count.
        number: u64,
        /// What it is asked for beside its offers, pools and nodes.
        groups: Vec<DecisionId>,
        /// Whether to list what it holds.
        sweep: bool,
    },
    /// Take in what the agents on leases say; then, at once, [`Cycle::heard`].
    Hear {
        /// Leases that are gone: their agents have said their last.
        gone: Vec<LeaseId>,
        /// What all agents said last, and not only those who have said something since: it may not have been taken in.
        all: bool,
    },
    /// Write this; then [`Cycle::committed`].
    Commit(Box<Commit>),
    /// Give a person the answer.
    Answer(Ticket, Answer),
    /// Engines may forget these leases: the log knows that they are gone.
    Forget(Vec<Gone>),
    /// Make this snapshot beside the loop; then, whenever that is over, [`Cycle::snapshot_ended`]. A start is faster with
    /// it; the log alone is enough.
    Snapshot(SnapshotTask),
    /// Carry this decision out; then, whenever that is over, [`Cycle::performed`].
    Call(Open),
    /// One line for the server's log.
    Say(String),
    /// Wait until something happens or one of these moments comes; then [`Cycle::turn`].
    Rest {
        /// By the world's clock.
        world: Option<Time>,
        /// In real time since the server began.
        real: Option<Duration>,
    },
    /// The server must end, and say why.
    End(String),
}

/// A lease that is gone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gone {
    pub lease: LeaseId,
    pub engine: String,
    /// The keys of the jobs that it served, where they are still known.
    pub keys: BTreeMap<WorkloadId, String>,
    /// Where its agent listened.
    pub address: Option<Address>,
}
