//! Pools and nodes: where leases come from, what is known of the machines behind them, and which part of one a worker
//! uses. Engines tell of both; nothing here decides.

use crate::health::Symptom;
use crate::ids::{LeaseId, NodeId, PoolId};
use crate::units::{NanoUsd, Span};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The offers or owned nodes that one engine gives under one set of habits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pool {
    pub id: PoolId,
    pub engine: String,
    pub placing: Placing,
    pub supply: Supply,
    pub books: Books,
    pub habits: Habits,
    /// What several programs on one of its machines start is told apart, whatever they do: else one that is over may
    /// leave something behind that looks like another's.
    #[serde(default)]
    pub tells_apart: bool,
}

/// Who chooses the node of a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Placing {
    /// The brain, on machines that only we use.
    Ours,
    /// The brain, on machines that others use as well: the engine is told the node.
    Pinned,
    /// The engine.
    Theirs,
}

/// Whether a pool grows when more is asked of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Supply {
    Fixed,
    Elastic,
}

/// What of a pool is paid for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Books {
    /// Its nodes, whether they are used or not.
    Whole,
    /// What is leased.
    Leased,
}

/// How the leases of a pool behave. Spans are of the world's time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Habits {
    /// A lease that is not ready this long after its group was granted is given back.
    pub boot: Span,
    /// The engine may not show a lease that it has granted, or shows one that is gone, for this long.
    pub settle: Span,
    /// An agent that was not heard for this long has ended what it ran.
    pub dead_man: Span,
    /// The warning that comes before a lease is taken away.
    pub notice: Span,
    /// A lease that outlives its notice by this much is given back.
    pub notice_overrun: Span,
    /// An offer that had no capacity is left alone for this long, unless capacity is seen.
    pub refusal_pause: Span,
}

impl Habits {
    /// What holds of a pool that nobody told of.
    pub const USUAL: Habits = Habits {
        boot: Span::minutes(15),
        settle: Span::minutes(2),
        dead_man: Span::minutes(5),
        notice: Span::minutes(2),
        notice_overrun: Span::minutes(2),
        refusal_pause: Span::seconds(60),
    };
}

/// How much of a machine: what one has, or what is wanted of one. Zero where nobody said.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shape {
    pub accelerators: u32,
    pub cpu_millis: u64,
    pub memory_bytes: u64,
}

impl Shape {
    /// Whether nobody said anything.
    pub fn is_unsaid(&self) -> bool {
        *self == Shape::default()
    }
}

/// A machine as its engine shows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Node {
    pub id: NodeId,
    pub pool: PoolId,
    pub accelerator: String,
    pub capacity: Shape,
    /// What work that is not ours uses of it.
    pub foreign: Shape,
    /// Its place in the topology by level: `zone`, `block`, `rack`, `nvlink`.
    pub domains: BTreeMap<String, String>,
    pub health: Health,
    /// What an hour of it costs, where the pool's books are whole.
    pub rate: NanoUsd,
    /// Why it was drained by itself: what is wrong with it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub symptoms: Vec<Symptom>,
    /// It has accelerators of other models beside.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub mixed: bool,
    /// What whoever drained it says of that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drained_for: Option<String>,
    /// It is never one of several machines of a gang: others would not find it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub alone: bool,
}

/// Whether work can be put on a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Health {
    Ready,
    NotReady,
    /// A person takes nothing new on it, or it is not well.
    Drained,
}

/// The part of a lease that one worker uses.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Allocation {
    pub lease: LeaseId,
    /// None for all that the lease has.
    #[serde(default)]
    pub devices: Option<Vec<Device>>,
    #[serde(default)]
    pub cpu_millis: u64,
    #[serde(default)]
    pub memory_bytes: u64,
}

/// An accelerator of a lease, or a part of one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Device {
    /// Its number on the lease, from 0.
    pub number: u32,
    pub part: DevicePart,
}

/// How much of an accelerator.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DevicePart {
    #[default]
    Whole,
    /// A share of it: of its price, and of its cores where something keeps programs to theirs; of its memory by agreement.
    Share { part: u32, of: u32 },
    /// A MIG instance by its profile, such as `1g.10gb`, which has so many of seven slices.
    Mig { profile: String, slices: u32 },
}

impl DevicePart {
    /// An accelerator in units in which every half, third and so on until a twentieth of one is a whole number.
    pub const UNITS: u32 = 232_792_560;
    /// Shares are written with at most so many parts, so that they add up in [`DevicePart::UNITS`] to nothing less or more.
    pub const MOST_PARTS: u32 = 20;

    /// Whether it is all of the accelerator.
    pub fn is_whole(&self) -> bool {
        let (part, of) = self.fraction();
        part == of
    }

    /// In parts of [`DevicePart::UNITS`], rounded up.
    pub fn units(&self) -> u32 {
        let (part, of) = self.fraction();
        let units = (u64::from(part) * u64::from(Self::UNITS)).div_ceil(u64::from(of));
        u32::try_from(units).unwrap_or(Self::UNITS)
    }

    /// As a fraction: so many of so many.
    pub fn fraction(&self) -> (u32, u32) {
        match self {
            DevicePart::Whole => (1, 1),
            DevicePart::Share { part, of } => (*part.min(of), (*of).max(1)),
            DevicePart::Mig { slices, .. } => ((*slices).min(7), 7),
        }
    }
}

impl Allocation {
    /// All of a lease.
    pub fn whole(lease: LeaseId) -> Allocation {
        Allocation { lease, devices: None, cpu_millis: 0, memory_bytes: 0 }
    }
}
