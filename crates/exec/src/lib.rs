//! Engines: what turns decisions into machines and programs. An engine makes no choice of its own; what
//! it is told is complete, and what it answers is a state that can be asked for again.

mod agents;
mod clock;
mod engine;
mod link;
mod local;
mod machines;
mod net;
mod nodes;
mod remote;
mod simulated;

pub use agents::is_on_node;
pub use clock::{ClockFile, WorldClock};
pub use engine::{
    Capabilities, Engine, EngineError, Interrupt, LeaseState, Owned, PastJob, Recording, SeenGroup, SeenLease,
};
pub use link::{AgentLink, LocalLink, SeenWorker};
pub use machines::{Accelerator, Inventory, Machines, Stated, tell_readings};
pub use net::{Fingerprint, JoinToken};
pub use nodes::{
    DeviceReading, DiskReading, HealthReport, Hub, InStore, JobsOfNodes, JoinedNode, LEVELS, LabelChange, Labels,
    NodeError, NodeRecord, NodeSettings, NodeStanding, NodeStream, NotALabel, NotLabelled, NotWelcome, StorePart,
    TOKEN_LIVES, is_node_name, serve_node,
};
pub use remote::{EngineServer, RemoteEngine};
pub use simulated::{Replay, Simulated, SimulatedError};
