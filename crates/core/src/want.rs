//! What is asked of an engine in one request, and what became of it: a group and its leases.

use crate::ids::{LeaseId, NodeId, WorkloadId};
use crate::offer::OfferId;
use crate::pool::Shape;
use crate::units::{NanoUsd, Span, Time};
use serde::{Deserialize, Serialize};
use std::fmt;

/// A group to be had: all of its leases come from one of the alternatives.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Want {
    pub workload: WorkloadId,
    /// Leases that are wanted.
    pub units: u32,
    /// Leases without which none is of use: the engine gives so many or none.
    pub least: u32,
    /// Any of them will do; earlier ones are preferred.
    pub alternatives: Vec<Alternative>,
    /// What one worker needs of a lease. Where machines can, it is kept to the cores and the memory in it.
    #[serde(default)]
    pub worker: Shape,
    /// Who submitted the workload, for machines that run programs as their submitters. Not in the log, which has it with
    /// the workload: it is filled in for the engine.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub owner: String,
    /// Leases that the workload has already and that these join: all of them are to reach one another.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub beside: Vec<LeaseId>,
    /// Nodes on which the workload's program could not be begun: rather others.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rather_not_on: Vec<NodeId>,
    /// The nodes that the brain chose, one a lease; empty where the engine chooses.
    #[serde(default)]
    pub on: Vec<NodeId>,
    /// How long the leases are needed, where that is known.
    #[serde(default)]
    pub lasts: Option<Span>,
}

/// One way to satisfy a want.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Alternative {
    pub offer: OfferId,
    /// Most that a lease may cost an hour.
    pub max_price: Option<NanoUsd>,
}

impl Want {
    /// So many leases of one offer, or none.
    pub fn of(workload: WorkloadId, offer: OfferId, units: u32) -> Want {
        Want {
            workload,
            units,
            least: units,
            alternatives: vec![Alternative { offer, max_price: None }],
            worker: Shape::default(),
            owner: String::new(),
            beside: Vec::new(),
            rather_not_on: Vec::new(),
            on: Vec::new(),
            lasts: None,
        }
    }
}

/// Where a lease can be reached once it is usable: the agent on it listens there, or called from there.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Address(pub String);

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

/// What an engine says of a lease when it is first there.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeaseTerms {
    /// The engine's own name for it; empty where it goes by ours.
    #[serde(default)]
    pub reference: String,
    /// Which of the alternatives it became; none for the first.
    #[serde(default)]
    pub offer: Option<OfferId>,
    #[serde(default)]
    pub node: Option<NodeId>,
    #[serde(default)]
    pub size: Shape,
    /// When it ends by agreement (wall time, a capacity block): a term to plan around, not a notice.
    #[serde(default)]
    pub ends_by: Option<Time>,
}

/// Where a group stands at its engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum GroupPhase {
    /// Not answered yet.
    Asked,
    /// It waits in the engine's own queue, which is neither paid nor boot.
    Queued {
        since: Time,
        /// When the engine expects to grant it.
        eta: Option<Time>,
    },
    /// Its leases are there or on their way.
    Granted {
        at: Time,
        /// How many: slots from this number on do not come.
        units: u32,
    },
}
