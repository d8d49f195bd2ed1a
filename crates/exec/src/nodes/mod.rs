//! Machines that have joined over the network: the server's side of them, and theirs.

mod contact;
mod daemon;
mod health;
mod hub;
mod joined;
mod labels;
mod orders;
mod output;
mod protocol;
mod registry;
mod relay;
mod upkeep;

pub use daemon::{NodeError, NodeSettings, serve_node};
pub use hub::{Hub, JobsOfNodes, NodeStanding, NodeStream};
pub use joined::JoinedNode;
pub use labels::{LEVELS, LabelChange, Labels, NotALabel};
pub use protocol::{DeviceReading, DiskReading, HealthReport, InStore, NotWelcome, StorePart};
pub use registry::{NodeRecord, TOKEN_LIVES, is_node_name};
pub use upkeep::NotLabelled;

pub(crate) use hub::Life;
