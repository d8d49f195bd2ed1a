//! Machines that have joined over the network: the server's side of them, and theirs.

mod contact;
mod daemon;
#[cfg(test)]
mod fuzz;
mod health;
mod holder;
mod hub;
mod joined;
mod labels;
mod life;
mod orders;
mod output;
mod own;
mod protocol;
#[cfg(test)]
pub(crate) mod puppets;
mod record;
mod registry;
mod relay;
#[cfg(test)]
mod said_before;
mod tcp;
#[cfg(test)]
mod tests;
mod upkeep;

pub use daemon::{NodeError, NodeSettings, serve_node};
pub use hub::{Hub, JobsOfNodes, NodeStanding, NodeStream};
pub use joined::JoinedNode;
pub use labels::{LEVELS, LabelChange, Labels, NotALabel};
pub use protocol::{DeviceReading, DiskReading, HealthReport, InStore, NotWelcome, StorePart};
pub use record::NodeRecord;
pub use registry::{NODE_NAME, TOKEN_LIVES, is_node_name};
pub use upkeep::NotLabelled;

pub(crate) use holder::Holder;
pub(crate) use life::Life;
pub(crate) use orders::{Place, carried_out_in, judged};
pub(crate) use protocol::LeaseOrder;
#[cfg(test)]
pub(crate) use protocol::OnNode;
pub use relay::listen as listen_relay;
