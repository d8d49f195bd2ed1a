//! The fault explorer: random worlds through the server's own apply–decide–commit–dispatch loop, in virtual
//! time, with every law checked after every step. A seed is a world: the same seed gives the same log, byte
//! by byte, so any violation can be replayed and shrunk.
//!
//! Law 4 (limits of teams, tiers) has its slot, and nothing to check yet: the brain knows no teams.

mod audit;
mod books;
mod check;
mod conduct;
mod driver;
mod engine;
mod fault;
mod market;
mod nodes;
mod pace;
mod planted;
mod program;
mod random;
mod report;
mod scenario;
mod server;
mod shrink;
mod store;
mod world;

pub use planted::Bug;
pub use report::{Found, PlantedResult, Report};
pub use shrink::{explore, log_digest, planted, replay};

use std::ops::Range;
use std::time::Duration;

/// What to explore.
#[derive(Clone, Debug)]
pub struct Options {
    /// The worlds.
    pub seeds: Range<u64>,
    /// End after this long, whatever is left of the seeds.
    pub time: Option<Duration>,
    /// Steps until a world becomes calm and has to bring everything to its end.
    pub steps_per_world: u64,
    /// A bug to plant.
    pub bug: Option<Bug>,
    /// Shrink what is found.
    pub shrink: bool,
}

impl Default for Options {
    fn default() -> Options {
        Options { seeds: 0..100, time: None, steps_per_world: 400, bug: None, shrink: true }
    }
}

/// The laws by number, as they are printed.
pub const LAWS: &[(u8, &str)] = &[
    (1, "no accepted job is lost; each ends once, as it really ended"),
    (2, "at most one stint of a job makes progress; a stale one is fenced off"),
    (3, "a gang starts whole or not at all"),
    (4, "limits of teams and tiers (nothing to check yet)"),
    (5, "no lease outlives its purpose"),
    (6, "the ledger balances"),
    (7, "a deadline that on-demand can meet is met"),
    (8, "progress never falls behind the last durable checkpoint"),
    (9, "bad input changes nothing"),
    (10, "nothing is dispatched before it is committed, nothing by an old leader"),
    (11, "a replay of the log is exact"),
    (12, "apply is total"),
    (13, "time goes on: nothing due is slept through, no busy loops, no asking for leases in circles"),
    (14, "only news is logged"),
    (15, "whoever is cancelled gets nothing new"),
    (16, "a budget is kept, but for the time of a last save"),
    (17, "a ledger row stands alone, and is of one day"),
    (18, "an engine that does not answer delays nobody else"),
    (19, "a device is one workload's at a time, and a machine does not go under others"),
    (20, "after a step, a look at everybody decides nothing more"),
];
