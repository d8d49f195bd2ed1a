//! Engines: what turns decisions into machines and programs. An engine makes no choice of its own; what
//! it is told is complete, and what it answers is a state that can be asked for again.

mod accelerators;
mod accounts;
mod agents;
mod clock;
mod directory;
mod engine;
mod finding;
mod gates;
mod kubernetes;
mod limit;
mod link;
mod local;
mod machines;
mod net;
mod nodes;
mod owned;
mod remote;
mod removal;
mod scrape;
mod shared;
mod simulated;
mod slurm;
mod tenants;

pub use accounts::{Accounts, ProgramsRunAs};
pub use agents::node_of;
pub use clock::{ClockFile, WorldClock};
pub use directory::{
    Account, Directory, DirectorySilent, is_plain as is_account_name, look_up, name_of as name_of_account,
    unnamed as unnamed_account,
};
pub use engine::{
    Capabilities, Engine, EngineError, Interrupt, LeaseState, Owned, PastJob, Recording, SeenGroup, SeenLease,
};
pub use finding::{Finding, FindingState};
pub use kubernetes::{Kubernetes, KubernetesSettings, KubernetesSetup, ServerInPod};
pub use limit::Limit;
pub use link::{AgentLink, LocalLink, SeenWorker, StopOrder};
pub use machines::{
    Accelerator, Counters, Here, Inventory, Machines, Measured, NoTelemetry, Program, Stated, Telemetry, TelemetryFeed,
    tell_readings, tell_telemetry,
};
pub use net::{Fingerprint, JoinToken};
pub use nodes::{
    DeviceReading, DiskReading, HealthReport, Hub, InStore, JobsOfNodes, JoinedNode, LEVELS, LabelChange, Labels,
    NODE_NAME, NodeError, NodeRecord, NodeSettings, NodeStanding, NodeStream, NotALabel, NotLabelled, NotWelcome,
    StorePart, TOKEN_LIVES, is_node_name, listen_relay, serve_node,
};
pub use owned::{Replaceable, open as open_owned, stays_in_place};
pub use remote::{EngineServer, RemoteEngine};
pub use removal::remove_tree;
pub use scrape::{NotScraped, scrape};
pub use simulated::{Replay, Simulated, SimulatedError};
pub use slurm::{NoSurvey, SeenPartition, Slurm, SlurmSettings, Survey, survey as survey_slurm};
pub use tenants::{folder_of_submitter, relay_socket};
