//! What a plan is asked for.

use super::holdings::Holdings;
use crate::knowledge::Precision;
use crate::search::Wanted;
use crate::words::{Count, Term};
use std::collections::BTreeMap;
use windfall_core::{NanoUsd, Span};

/// How the work was stated.
#[derive(Clone, Debug, PartialEq)]
pub enum Work {
    /// So many hours on this; without a reference, on whatever was asked for first.
    Hours { hours: Span, on: Option<Wanted> },
    /// Steps, at speeds that the user gave by accelerator family.
    Steps {
        /// How many.
        steps: u64,
        per_second: BTreeMap<String, f64>,
        /// With how many accelerators in a node that was, where it was said.
        counts: BTreeMap<String, Count>,
    },
    /// A model of so many parameters trained on so many tokens.
    Tokens {
        parameters: f64,
        tokens: f64,
        /// Which of its parameters are trained.
        tuning: Tuning,
    },
    /// Steps, at a speed that was measured.
    Measured {
        /// How many.
        steps: u64,
        on: Wanted,
        per_second: f64,
        precision: Option<Precision>,
    },
}

/// What is trained of a model.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Tuning {
    /// Every parameter.
    #[default]
    Full,
    /// Small matrices beside frozen parameters.
    Lora,
}

/// The data that a job reads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobData {
    /// How many.
    pub bytes: u64,
    /// Cloud and region; none for where the job runs.
    pub at: Option<(String, String)>,
}

/// What is known of the job's checkpoints.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Saves {
    /// Size of one.
    pub bytes: Option<u64>,
    /// How often the program saves, when it does not leave that to us.
    pub every: Option<Span>,
    pub keep: u32,
    /// Where.
    pub at: StoreLocation,
}

/// Where the store of a job's checkpoints is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum StoreLocation {
    /// Where the job runs.
    #[default]
    Here,
    /// In this region.
    At { cloud: String, region: String },
    /// In a region of this cloud that nobody knows; in no cloud at all when it has no name.
    Within { cloud: String },
}

/// A request.
#[derive(Clone, Debug, Default)]
pub struct Request {
    /// How much there is to do; none when nobody knows.
    pub work: Option<Work>,
    /// Accelerators that will do, with their number in an instance; empty for any whose speed is known.
    pub accelerators: Vec<Wanted>,
    /// Also what comes near to those accelerators in speed and memory.
    pub equivalents: bool,
    /// Numbers of nodes to look at.
    pub nodes: Vec<u32>,
    /// Nodes that hours and speeds were stated for; none for one.
    pub stated_nodes: Option<u32>,
    pub deadline: Option<Span>,
    /// From asking for a lease to progress.
    pub restart: Option<Span>,
    pub saves: Saves,
    /// What the job reads.
    pub data: Option<JobData>,
    /// The precision that the program runs in, and so the one that hours and speeds were stated in.
    pub stated_precision: Option<Precision>,
    /// Other precisions that it may use, best first.
    pub precision: Vec<Precision>,
    /// Also smaller accelerators, where a precision makes room on them.
    pub smaller: bool,
    pub clouds: Vec<String>,
    /// In these regions or zones.
    pub regions: Vec<String>,
    /// On these terms; empty for spot and on-demand.
    pub terms: Vec<Term>,
    /// Main memory of a node.
    pub min_memory_gib: Option<f64>,
    /// Memory of each accelerator.
    pub min_accelerator_memory_gb: Option<f64>,
    /// Virtual cores of a node.
    pub min_vcpus: Option<f64>,
    /// Most that a spot instance may cost an hour.
    pub max_price: Option<NanoUsd>,
    /// Most that the whole job may cost.
    pub budget: Option<NanoUsd>,
    /// What the user holds already, and at which discounts.
    pub holdings: Holdings,
    /// The user's own measurement: share of perfect scaling by number of nodes.
    pub scaling: BTreeMap<u32, f64>,
    /// Spot instances that are ever on sale at once, where that is known.
    pub most_spot: Option<u32>,
    /// Offers whose market was recorded: cloud, region, instance type.
    pub recorded: Vec<(String, String, String)>,
}

/// An accelerator and how many of them work together.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Accelerators<'r> {
    pub family: &'r str,
    pub in_node: Count,
    pub nodes: u32,
}

impl Accelerators<'_> {
    pub fn all(&self) -> f64 {
        self.in_node.as_f64() * f64::from(self.nodes)
    }
}
