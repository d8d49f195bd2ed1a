//! A server of the explorer: the server's own cycle and dispatch, with the calls that are on their way.

use crate::engine::Shared;
use crate::shelf::Shelf;
use futures::FutureExt;
use std::future::Future;
use std::sync::Arc;
use windfall_core::brain::{Config, Open};
use windfall_core::worker::StartOrder;
use windfall_core::{Brain, Event, StintId, Time};
use windfall_server::cycle::{Cycle, CycleError};
use windfall_server::dispatch::{self, Outfit, Task};

/// The memory store and the invented engine are always ready.
pub(crate) fn now<T>(future: impl Future<Output = T>) -> T {
    future.now_or_never().expect("nothing here ever waits")
}

/// A call on its way to the engine.
pub(crate) struct Flight {
    pub at: Time,
    pub open: Open,
}

/// A server that lives.
pub(crate) struct Server {
    pub cycle: Cycle,
    pub flights: Vec<Flight>,
    /// What was seen and has not arrived yet.
    pub inbox: Vec<(Time, Vec<Event>)>,
}

impl Server {
    pub fn open(shelf: &Arc<Shelf>, config: &Config) -> Result<Server, CycleError> {
        let cycle = now(Cycle::open(shelf.clone(), config.clone()))?;
        Ok(Server { cycle, flights: Vec::new(), inbox: Vec::new() })
    }

    /// Everything in the outbox that is not on its way already.
    pub fn dispatch_outbox(&mut self, at: Time) {
        for open in self.cycle.brain().outbox() {
            if !self.flights.iter().any(|flight| flight.open.id == open.id) {
                self.flights.push(Flight { at, open });
            }
        }
    }

    /// The next call that is due, as a task; calls that are no longer open are dropped.
    pub fn take_due(&mut self, at: Time) -> Option<(Open, Option<Task>)> {
        let due = self.flights.iter().position(|flight| flight.at <= at)?;
        let flight = self.flights.remove(due);
        let task = dispatch::task(self.cycle.brain(), &Tailor, &flight.open);
        Some((flight.open, task))
    }

    pub fn observe(&self, shared: &Shared, at: Time) -> Option<Vec<Event>> {
        now(dispatch::observe(self.cycle.brain(), shared, at)).ok()
    }
}

/// Makes start orders for the invented world.
pub(crate) struct Tailor;

impl Outfit for Tailor {
    fn order(&self, brain: &Brain, stint: StintId, rank: u32) -> Option<StartOrder> {
        let job = brain.job(stint.workload)?;
        let known = job.stint.as_ref().filter(|known| known.id == stint)?;
        Some(StartOrder {
            stint,
            rank,
            world_size: known.leases.len() as u32,
            master: (String::new(), 0),
            command: Vec::new(),
            folder: String::new(),
            fresh_folder: false,
            env: Default::default(),
            output: String::new(),
            progress: None,
            checkpoint_dir: None,
            checkpoint_store: String::new(),
            checkpoint_key: job.spec.run.environment.clone(),
            keep: job.spec.checkpoint.keep,
            settle_ms: 0,
            complete: None,
            last_upload_ms: 0,
            resume: known.resume,
            foreign: Vec::new(),
        })
    }
}
