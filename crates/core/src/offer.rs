//! What can be bought, and how.

use crate::ids::PoolId;
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

    /// The engine that sells it.
    pub fn engine(&self) -> &str {
        self.0.split_once('/').map_or(&self.0, |(engine, _)| engine)
    }
}

impl fmt::Display for OfferId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

/// Where bytes lie: moving them to another place may cost.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Place {
    /// The cloud.
    pub cloud: String,
    /// Its region.
    pub region: String,
}

/// What a way between two places costs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Way {
    /// From where.
    pub from: Place,
    /// To where.
    pub to: Place,
    /// Price of a GiB.
    pub per_gib: NanoUsd,
}

impl Way {
    /// What so many bytes cost on it, rounded up.
    pub fn cost(&self, bytes: u64) -> NanoUsd {
        let cost = (i128::from(self.per_gib.0) * i128::from(bytes) + (1 << 30) - 1) >> 30;
        NanoUsd(i64::try_from(cost).unwrap_or(i64::MAX))
    }
}

/// Something that can be bought.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Offer {
    /// Its name; two offers with one name are the same offer at two moments.
    pub id: OfferId,
    /// The engine that gives it.
    pub engine: String,
    /// The pool whose habits its leases have.
    #[serde(default)]
    pub pool: PoolId,
    /// The cloud it is in, or `local`.
    pub cloud: String,
    /// The region of that cloud, where regions matter: bytes that leave one are paid for.
    #[serde(default)]
    pub region: String,
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
    /// Instances that this account may hold now, those that it holds included; none when the engine does not know.
    pub capacity: Option<u32>,
    /// The warning that comes before a lease is taken away.
    pub notice: Span,
}

impl Offer {
    /// Its accelerators as a job file asks for them.
    pub fn what(&self) -> String {
        match self.accelerators {
            u32::MAX => format!("{} in any number", self.accelerator),
            count => format!("{}:{count}", self.accelerator),
        }
    }

    /// Where it is; none where the engine knows no regions.
    pub fn place(&self) -> Option<Place> {
        let known = !self.region.is_empty();
        known.then(|| Place { cloud: self.cloud.clone(), region: self.region.clone() })
    }
}
