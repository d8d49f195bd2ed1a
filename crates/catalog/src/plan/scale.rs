//! How well several accelerators work together: inside a node by its links, between nodes by their network.

use super::evidence::Evidence;
use super::request::Request;
use crate::catalog::Catalog;
use crate::knowledge::Precision;
use crate::offer::InstanceType;

/// Gb/s of network for each node at which half of the time between two nodes would be waiting: large-model training
/// loses about 5 % at 400 Gb/s and 15 % at 100 Gb/s.
const HALF_GBPS: f64 = 20.0;
/// Share of peak where nobody measured one: what ordinary training reaches.
pub(super) const USUAL_MFU: f64 = 0.35;
/// Gb/s for each node in runs that people publish.
const USUAL_GBPS: f64 = 400.0;
/// Where nobody says the network, one as slow as small instances have.
pub(super) const UNKNOWN_GBPS: f64 = 10.0;

/// Beyond the greatest number of accelerators that was published, each doubling keeps at most this share.
const BEYOND: f64 = 0.99;
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
    if let Some(own) = measured(request, nodes) {
        return Scaling { share: inside * own.share, evidence: own.evidence };
    }
    let kept = catalog.throughput().strong_scaling_per_doubling(figures_of(catalog, family));
    let others = f64::from(nodes - 1) / f64::from(nodes);
    let network = 1.0 / (1.0 + HALF_GBPS / kind.network_gbps.unwrap_or(UNKNOWN_GBPS).max(0.1) * others);
    let published = kept.map(|kept| f64::from(kept.min(1.0)).powf(f64::from(nodes).log2()));
    let between = published.map_or(network, |published| published.min(network));
    let known = published.is_some() && kind.network_gbps.is_some();
    let evidence = if known { Evidence::Published } else { Evidence::Assumed };
    Scaling { share: inside * between, evidence }
}

/// The user's own measurement of the share of perfect scaling, if there is one. Between two that were measured each
/// doubling keeps the same share; one node scales perfectly. Beyond the last, doublings go on losing what they lost
/// before it, and that is assumed.
fn measured(request: &Request, nodes: u32) -> Option<Scaling> {
    let mut points: Vec<(f64, f64)> = vec![(0.0, 0.0)];
    let own = request.scaling.iter().filter(|(nodes, _)| **nodes > 1);
    points.extend(own.map(|(nodes, share)| (f64::from(*nodes).log2(), share.ln())));
    if points.len() < 2 {
        return None;
    }
    let at = f64::from(nodes.max(1)).log2();
    let last = points.len() - 1;
    let right = points.iter().position(|(doublings, _)| *doublings >= at - 1e-9).unwrap_or(last).max(1);
    let ((from, low), (to, high)) = (points[right - 1], points[right]);
    let slope = (high - low) / (to - from);
    let beyond = at > to + 1e-9;
    // More nodes never make up for what was lost.
    let share = if beyond { high + slope.min(0.0) * (at - to) } else { low + slope * (at - from) };
    let evidence = if beyond { Evidence::Assumed } else { Evidence::Measured };
    Some(Scaling { share: share.exp(), evidence })
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
    let figures = figures_of(catalog, family);
    let published =
        |count: f64| catalog.throughput().mfu_for(figures, parameters as u64, count as u32, Precision::Bf16);
    let one_node = published(in_node).map_or(USUAL_MFU, |known| f64::from(known.mfu));
    if let Some(own) = measured(request, nodes).filter(|_| nodes > 1) {
        let from = format!("{:.1} % in one node and your own scaling", one_node * 100.0);
        // The scaling was measured; what one node reaches was not.
        let evidence = own.evidence.max(of_peak(catalog, request, kind, parameters, 1).evidence);
        return OfPeak { mfu: one_node * own.share, evidence, from, scaling: own.share };
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
    let kept = catalog.throughput().weak_scaling_per_doubling(figures);
    let kept = kept.map_or(USUAL_SHARE, |kept| f64::from(kept).min(BEYOND));
    let beyond = if asked > f64::from(most) { kept.powf((asked / f64::from(most)).log2()) } else { 1.0 };
    let mfu = f64::from(known.mfu) * beyond * network;
    let size = parameters / known.nearest.parameters.max(1) as f64;
    let alike = (f64::from(least)..=f64::from(most)).contains(&asked) && (0.5..=2.0).contains(&size) && network > 0.98;
    let evidence = if alike && figures == family { Evidence::Published } else { Evidence::Assumed };
    let from = format!("from a {} model on {} of them", known.nearest.model, known.nearest.count);
    OfPeak { mfu, evidence, from, scaling: (mfu / one_node).min(1.0) }
}

/// The share of perfect scaling inside a node: as published for this accelerator, or else for others.
pub(super) fn within_node(catalog: &Catalog, family: &str, count: f64) -> f64 {
    let known = catalog.throughput();
    let own = known.node_efficiency(figures_of(catalog, family), count as u32);
    let others = || {
        let mut all: Vec<f32> =
            known.node_scaling.iter().filter(|row| f64::from(row.count) == count).map(|row| row.efficiency).collect();
        all.sort_by(f32::total_cmp);
        all.get(all.len() / 2).copied()
    };
    own.or_else(others).map_or(USUAL_SHARE, |share| f64::from(share.clamp(0.05, 1.0)))
}

/// Whose published figures speak for an accelerator: its own, or those of one of its generation with the same peak.
pub(super) fn figures_of<'c>(catalog: &'c Catalog, family: &'c str) -> &'c str {
    let has = |family: &str| catalog.throughput().mfu.iter().any(|run| run.accelerator == family);
    let Some(own) = catalog.accelerator(family).filter(|_| !has(family)) else { return family };
    let alike = catalog.accelerators().iter().find(|other| {
        (&other.generation, &other.vendor) == (&own.generation, &own.vendor)
            && other.training_tflops() == own.training_tflops()
            && has(&other.family)
    });
    alike.map_or(family, |other| other.family.as_str())
}
