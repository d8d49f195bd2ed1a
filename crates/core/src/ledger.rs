//! Every second of a lease, and of a node that is paid for whether it is used or not: its price, and who it is charged to. A row stands alone: whatever a report groups by is in it, so
//! that it can be read when the job, the offer and the lease are forgotten. Rows are appended, corrections too.

pub(crate) mod former;
mod meter;
mod node_meter;
mod parts;
mod price_line;
mod share;
#[cfg(test)]
mod tests;

pub use meter::{Bought, Meter};
pub use node_meter::{NodeMeter, Split, dealt};
pub use parts::{HostShape, Parts, part_of_node};
pub use price_line::{FREE, MOST_DAYS, PriceLine};
pub use share::{Charge, Share, at_most_whole};

use crate::ids::{LeaseId, NodeId, PoolId, WorkloadId};
use crate::offer::{Market, Offer, OfferId};
use crate::pool::{Node, Pool};
use crate::spec::JobSpec;
use crate::units::{NanoUsd, Time};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

/// Who a stretch of a lease or of a node is charged to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Beneficiary {
    /// A job or a fleet.
    Workload(WorkloadId),
    /// Nobody used it.
    Idle,
    /// Work that is not ours used it.
    Foreign,
    /// It was paid for and could not be used.
    NotReady,
    /// It was kept empty on purpose: unhealthy, or about to be given back.
    Drained,
    /// Kept for the system's own sake.
    Overhead,
}

impl Beneficiary {
    /// The job or fleet.
    pub fn workload(self) -> Option<WorkloadId> {
        match self {
            Beneficiary::Workload(id) => Some(id),
            _ => None,
        }
    }

    /// One word for it, as reports say it.
    pub fn word(self) -> &'static str {
        match self {
            Beneficiary::Workload(_) => "work",
            Beneficiary::Idle => "idle",
            Beneficiary::Foreign => "foreign",
            Beneficiary::NotReady => "not-ready",
            Beneficiary::Drained => "drained",
            Beneficiary::Overhead => "overhead",
        }
    }
}

/// What kind of workload is charged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WorkloadKind {
    /// Finite work.
    Job,
    /// Endless work.
    Fleet,
}

impl fmt::Display for WorkloadKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            WorkloadKind::Job => "job",
            WorkloadKind::Fleet => "fleet",
        })
    }
}

/// Whose money it is: the workload that is charged, as it was when it was charged.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Account {
    pub workload: WorkloadId,
    /// The team that pays.
    pub team: String,
    /// Who submitted it.
    pub user: String,
    /// The user's name for it; need not be unique.
    pub name: String,
    /// Job or fleet.
    pub kind: WorkloadKind,
    /// The user's own words about it.
    pub tags: BTreeMap<String, String>,
}

impl Account {
    /// The account of a job.
    pub fn of(workload: WorkloadId, spec: &JobSpec) -> Account {
        Account {
            workload,
            team: spec.team.clone(),
            user: spec.owner.clone(),
            name: spec.name.clone(),
            kind: WorkloadKind::Job,
            tags: spec.tags.clone(),
        }
    }
}

/// What was paid for: of the offer, all that outlives its prices.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Goods {
    /// The engine that gave it.
    pub engine: String,
    /// The pool that it came from; empty where the engine names none.
    #[serde(default)]
    pub pool: PoolId,
    /// How it was bought.
    pub market: Market,
    /// The cloud, or `local`.
    pub cloud: String,
    /// Its region, where regions matter.
    pub region: String,
    /// Its zone.
    pub zone: String,
    /// The machine, as its cloud names it.
    pub instance_type: String,
    /// The accelerator's name, or empty for none.
    pub accelerator: String,
    /// How many of them.
    pub count: u32,
    /// Cores and memory, where they are known.
    #[serde(default)]
    pub shape: HostShape,
}

impl Goods {
    /// What an offer gives.
    pub fn of(offer: &Offer) -> Goods {
        Goods {
            engine: offer.engine.clone(),
            pool: offer.pool.clone(),
            market: offer.market,
            cloud: offer.cloud.clone(),
            region: offer.region.clone(),
            zone: offer.zone.clone(),
            instance_type: offer.instance_type.clone(),
            accelerator: offer.accelerator.clone(),
            count: counted(offer.accelerators),
            shape: HostShape::default(),
        }
    }

    /// What a node is that is paid for as a whole.
    pub fn of_node(node: &Node, pool: &Pool) -> Goods {
        let domain = |level: &str| node.domains.get(level).cloned().unwrap_or_default();
        Goods {
            engine: pool.engine.clone(),
            pool: pool.id.clone(),
            market: Market::Owned,
            cloud: "local".to_owned(),
            region: domain("region"),
            zone: domain("zone"),
            instance_type: String::new(),
            accelerator: node.accelerator.clone(),
            count: counted(node.capacity.accelerators),
            shape: HostShape { cpu_millis: node.capacity.cpu_millis, memory_bytes: node.capacity.memory_bytes },
        }
    }
}

/// A stage on which programs are rehearsed has accelerators in any number; one is paid for.
fn counted(accelerators: u32) -> u32 {
    if accelerators == u32::MAX { 1 } else { accelerators }
}

/// One stretch of a lease or of a node, for one beneficiary, within one day of UTC.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LedgerRow {
    /// The record that closed the stretch.
    pub seq: u64,
    /// The lease that was paid for, or that had this part of the node; none for what no lease had.
    pub lease: Option<LeaseId>,
    /// The node that was paid for, where its pool's books are whole: all its rows add up to its price.
    #[serde(default)]
    pub node: Option<NodeId>,
    /// From.
    pub from: Time,
    /// Until; before `from` in a correction, which takes back.
    pub to: Time,
    /// Price of the whole lease, or of the whole node, an hour; the mean where it moved meanwhile.
    pub rate: NanoUsd,
    /// Who it is charged to.
    pub beneficiary: Beneficiary,
    /// Whose money it is. None where nobody's work is charged, and in rows of before accounts were kept.
    pub account: Option<Arc<Account>>,
    /// The offer by name; none for a node, and in rows of before it was kept.
    pub offer: Option<OfferId>,
    /// What that was; none where nobody ever showed the offer, and in rows of before it was kept.
    pub goods: Option<Arc<Goods>>,
    /// The part of the lease, or of the node, that this beneficiary has.
    pub share: Share,
    /// The charge.
    pub amount: NanoUsd,
    /// The charge by what it was for; none where the machine is not known.
    pub parts: Option<Parts>,
    /// Our own count, until the provider's bill is there.
    pub estimated: bool,
}

impl LedgerRow {
    /// The moment at which the stretch begins, also of a correction. A row counts for the day of this moment.
    pub fn begins(&self) -> Time {
        self.from.min(self.to)
    }

    /// The name of what was paid for: the lease, or the node where no lease had this part of it.
    pub fn paid_for(&self) -> String {
        match (&self.lease, &self.node) {
            (Some(lease), _) => lease.to_string(),
            (None, Some(node)) => node.to_string(),
            (None, None) => String::new(),
        }
    }
}
