//! Engines: what turns decisions into machines and programs. An engine makes no choice of its own; what
//! it is told is complete, and what it answers is a state that can be asked for again.

mod clock;
mod engine;
mod simulated;

pub use clock::{ClockFile, WorldClock};
pub use engine::{AgentLink, Capabilities, Engine, EngineError, LeaseState, Owned, SeenGroup, SeenLease, SeenWorker};
pub use simulated::{Interrupt, Replay, Simulated, SimulatedError};
