//! Which node has a lease of which nothing is written down here any more.

use super::hub::Hub;
use super::life::Life;
use super::record::NodeRecord;
use windfall_core::LeaseId;

/// Who has a lease, as far as nodes tell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Holder {
    Node(Box<NodeRecord>),
    /// Every node has told what it holds, or can hold nothing any more.
    Nobody,
    /// A node that cannot be reached may have it.
    Unknown,
}

impl Hub {
    /// The node on which a lease runs.
    pub(crate) fn holder_of(&self, lease: LeaseId) -> Holder {
        let lives = self.registry.nodes().into_iter().map(|node| (self.life(&node.name, lease), node));
        let mut may_have = lives.filter(|(life, _)| *life != Life::Over).collect::<Vec<_>>();
        if let Some(at) = may_have.iter().position(|(life, _)| *life == Life::Alive) {
            return Holder::Node(Box::new(may_have.swap_remove(at).1));
        }
        if may_have.is_empty() { Holder::Nobody } else { Holder::Unknown }
    }
}
