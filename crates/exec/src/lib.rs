//! Engines: what turns decisions into machines and programs. An engine makes no choice of its own; what
//! it is told is complete, and what it answers is a state that can be asked for again.

mod clock;
mod engine;
mod simulated;

pub use clock::{ClockFile, WorldClock};
pub use engine::{Capabilities, Engine, EngineError, LeaseState, Observed, Owned, Want};
pub use simulated::{Interrupt, Replay, Simulated, SimulatedError};
