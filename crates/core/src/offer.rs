//! What can be bought, and how.

use crate::units::{NanoUsd, Span};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::sync::Arc;

/// How an offer is bought.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Market {
    /// Cheap, and taken away at the market's will.
    Spot,
    /// Kept until given back.
    OnDemand,
    /// Covered by a commitment that is paid for anyway.
    Reserved,
    /// A cluster's own node.
    Owned,
}

impl Market {
    /// Whether the market may take a lease away.
    pub fn can_be_taken(self) -> bool {
        self == Market::Spot
    }
}

impl fmt::Display for Market {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Market::Spot => "spot",
            Market::OnDemand => "on-demand",
            Market::Reserved => "reserved",
            Market::Owned => "owned",
        })
    }
}

/// The name of an offer: `engine/zone/instance-type/market`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct OfferId(pub Arc<str>);

impl OfferId {
    /// An offer's name.
    pub fn new(name: &str) -> OfferId {
        OfferId(name.into())
    }
}

impl fmt::Display for OfferId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

/// Something that can be bought.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Offer {
    /// Its name; two offers with one name are the same offer at two moments.
    pub id: OfferId,
    /// The engine that gives it.
    pub engine: String,
    /// The cloud it is in, or `local`.
    pub cloud: String,
    /// The zone it is in.
    pub zone: String,
    /// The instance type as the cloud names it.
    pub instance_type: String,
    /// How it is bought.
    pub market: Market,
    /// The accelerator's name, or empty for none.
    pub accelerator: String,
    /// Accelerators in one instance.
    pub accelerators: u32,
    /// Price of one instance-hour now.
    pub price_per_hour: NanoUsd,
    /// Instances that could be had now; none when the engine does not know.
    pub capacity: Option<u32>,
    /// The warning that comes before a lease is taken away.
    pub notice: Span,
}
