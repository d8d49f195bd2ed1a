//! How well several accelerators work together: inside a node by its links, between nodes by their network.

use super::request::{Request, Work};
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

/// The share of perfect scaling on so many nodes: what each doubling was published to keep, or what the network
/// allows if that is less.
pub(super) fn efficiency(catalog: &Catalog, request: &Request, kind: &InstanceType<'_>, nodes: u32) -> Scaling {
    let family = kind.accelerator.unwrap_or_default();
    let inside = within_node(catalog, family, kind.count.as_f64());
    if nodes <= 1 {
        // Figures that were stated for whole nodes need no scaling of ours.
        return Scaling { share: inside, evidence: Evidence::Given };
    }
    if let Some(measured) = request.scaling.get(&nodes) {
        return Scaling { share: inside * measured, evidence: Evidence::Measured };
    }
    // More tokens make larger batches; other work is to be done in fewer steps at a time.
    let kept = match request.work {
        Some(Work::Tokens { .. }) => catalog.throughput().weak_scaling_per_doubling(family),
        _ => catalog.throughput().strong_scaling_per_doubling(family),
    };
    let others = f64::from(nodes - 1) / f64::from(nodes);
    let network = 1.0 / (1.0 + HALF_GBPS / kind.network_gbps.unwrap_or(UNKNOWN_GBPS).max(0.1) * others);
    let published = kept.map(|kept| f64::from(kept.min(1.0)).powf(f64::from(nodes).log2()));
    let between = published.map_or(network, |published| published.min(network));
    let known = published.is_some() && kind.network_gbps.is_some();
    let evidence = if known { Evidence::Published } else { Evidence::Assumed };
    Scaling { share: inside * between, evidence }
}

/// The share of perfect scaling inside a node: as published for this accelerator, or else for others.
pub(super) fn within_node(catalog: &Catalog, family: &str, count: f64) -> f64 {
    let known = catalog.throughput();
    let own = known.node_efficiency(family, count as u32);
    let others = || {
        let mut all: Vec<f32> =
            known.node_scaling.iter().filter(|row| f64::from(row.count) == count).map(|row| row.efficiency).collect();
        all.sort_by(f32::total_cmp);
        all.get(all.len() / 2).copied()
    };
    own.or_else(others).map_or(USUAL_SHARE, |share| f64::from(share.clamp(0.05, 1.0)))
}
