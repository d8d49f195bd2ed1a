//! How well several accelerators work together: inside a node by its links, between nodes by their network.

use super::request::Request;
use super::speed::{Evidence, USUAL_MFU};
use crate::catalog::Catalog;
use crate::knowledge::Precision;
use crate::offer::InstanceType;

/// Gb/s of network for each node at which half of the time between two nodes would be waiting: large-model training
/// loses about 5 % at 400 Gb/s and 15 % at 100 Gb/s.
const HALF_GBPS: f64 = 20.0;
/// Gb/s for each node in runs that people publish.
const USUAL_GBPS: f64 = 400.0;
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
    let kept = catalog.throughput().strong_scaling_per_doubling(family);
    let others = f64::from(nodes - 1) / f64::from(nodes);
    let network = 1.0 / (1.0 + HALF_GBPS / kind.network_gbps.unwrap_or(UNKNOWN_GBPS).max(0.1) * others);
    let published = kept.map(|kept| f64::from(kept.min(1.0)).powf(f64::from(nodes).log2()));
    let between = published.map_or(network, |published| published.min(network));
    let known = published.is_some() && kind.network_gbps.is_some();
    let evidence = if known { Evidence::Published } else { Evidence::Assumed };
    Scaling { share: inside * between, evidence }
}

/// What of its peak speed a gang uses on a large model.
pub(super) struct OfPeak {
    pub mfu: f64,
    pub evidence: Evidence,
    /// What the figure rests on, for people.
    pub from: String,
    /// What is left of the share of peak that one node reaches.
    pub scaling: f64,
}

/// The share of peak as published for a model of about that size on so many accelerators. Beyond the greatest number
/// that was published each further doubling keeps what doublings usually keep; a network that is slower than the ones
/// such runs have takes more. What the user measured between nodes replaces both.
pub(super) fn of_peak(
    catalog: &Catalog,
    request: &Request,
    kind: &InstanceType<'_>,
    parameters: f64,
    nodes: u32,
) -> OfPeak {
    let family = kind.accelerator.unwrap_or_default();
    let in_node = kind.count.as_f64();
    let asked = (in_node * f64::from(nodes)).max(1.0);
    let published = |count: f64| catalog.throughput().mfu_for(family, parameters as u64, count as u32, Precision::Bf16);
    let one_node = published(in_node).map_or(USUAL_MFU, |known| f64::from(known.mfu));
    if let Some(measured) = request.scaling.get(&nodes) {
        let from = format!("{:.1} % in one node and your own scaling", one_node * 100.0);
        return OfPeak { mfu: one_node * measured, evidence: Evidence::Measured, from, scaling: *measured };
    }
    let others = f64::from(nodes.saturating_sub(1)) / f64::from(nodes.max(1));
    let waits = |gbps: f64| 1.0 / (1.0 + HALF_GBPS / gbps.max(0.1) * others);
    let network = (waits(kind.network_gbps.unwrap_or(UNKNOWN_GBPS)) / waits(USUAL_GBPS)).min(1.0);
    let Some(known) = published(asked) else {
        let kept = waits(kind.network_gbps.unwrap_or(UNKNOWN_GBPS));
        let from = "as ordinary training reaches".to_owned();
        return OfPeak { mfu: USUAL_MFU * kept, evidence: Evidence::Assumed, from, scaling: kept };
    };
    let (least, most) = known.counts;
    let kept =
        catalog.throughput().weak_scaling_per_doubling(family).map_or(USUAL_SHARE, |kept| f64::from(kept.min(1.0)));
    let beyond = if asked > f64::from(most) { kept.powf((asked / f64::from(most)).log2()) } else { 1.0 };
    let mfu = f64::from(known.mfu) * beyond * network;
    let size = parameters / known.nearest.parameters.max(1) as f64;
    let alike = (f64::from(least)..=f64::from(most)).contains(&asked) && (0.5..=2.0).contains(&size) && network > 0.98;
    let evidence = if alike { Evidence::Published } else { Evidence::Assumed };
    let from = format!("from a {} model on {} of them", known.nearest.model, known.nearest.count);
    OfPeak { mfu, evidence, from, scaling: (mfu / one_node).min(1.0) }
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
