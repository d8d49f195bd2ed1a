//! How well several accelerators work together: inside a node by its links, between nodes by their network.

use super::request::Request;
use super::speed::Evidence;
use crate::catalog::Catalog;
use crate::offer::InstanceType;

/// Gb/s of network for each node at which half of the time between two nodes would be waiting: large-model training
/// loses about 5 % at 400 Gb/s and 15 % at 100 Gb/s.
const HALF_GBPS: f64 = 20.0;
/// Where nobody says the network, one as slow as small instances have.
const UNKNOWN_GBPS: f64 = 10.0;

/// Where nobody published how a number of accelerators works together.
const USUAL_SHARE: f64 = 0.92;

/// A share of perfect scaling.
pub(super) struct Scaling {
    pub share: f64,
    pub evidence: Evidence,
}

/// The share of perfect scaling on so many nodes.
pub(super) fn efficiency(catalog: &Catalog, request: &Request, kind: &InstanceType<'_>, nodes: u32) -> Scaling {
    let inside = within_node(catalog, kind.accelerator.unwrap_or_default(), kind.count.as_f64());
    if nodes <= 1 {
        // One accelerator, or figures that were stated for whole nodes, need no scaling of ours.
        return Scaling { share: inside, evidence: Evidence::Given };
    }
    if let Some(measured) = request.scaling.get(&nodes) {
        return Scaling { share: inside * measured, evidence: Evidence::Measured };
    }
    let gbps = kind.network_gbps.unwrap_or(UNKNOWN_GBPS).max(0.1);
    let others = f64::from(nodes - 1) / f64::from(nodes);
    let between = 1.0 / (1.0 + HALF_GBPS / gbps * others);
    Scaling { share: inside * between, evidence: Evidence::Assumed }
}

/// The share of perfect scaling inside a node: as published for this accelerator, or else for others.
pub(super) fn within_node(catalog: &Catalog, family: &str, count: f64) -> f64 {
    if count <= 1.0 {
        return 1.0;
    }
    let like = || catalog.throughput().node_scaling.iter().filter(|known| f64::from(known.count) == count);
    let own = middle(like().filter(|known| known.accelerator == family).map(|known| known.efficiency));
    own.or_else(|| middle(like().map(|known| known.efficiency))).unwrap_or(USUAL_SHARE)
}

fn middle(all: impl Iterator<Item = f32>) -> Option<f64> {
    let mut all: Vec<f64> = all.map(f64::from).collect();
    all.sort_by(f64::total_cmp);
    all.get(all.len() / 2).copied().map(|share| share.clamp(0.05, 1.0))
}
