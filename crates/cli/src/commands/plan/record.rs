//! A plan for programs; the names are a promise.

use super::ask::Asked;
use serde_json::{Value, json};
use windfall_catalog::plan::{Basis, Candidate, Ranking};
use windfall_core::NanoUsd;

pub fn plan(asked: &Asked, ranking: &Ranking<'_>) -> Value {
    let rejected: Vec<Value> = ranking
        .rejected
        .iter()
        .map(|rejected| {
            json!({
                "cloud": rejected.offer.kind.cloud, "region": rejected.offer.region,
                "instance_type": rejected.offer.kind.name, "market": rejected.offer.term.market(),
                "nodes": rejected.nodes, "class": rejected.why.class(), "why": rejected.why.to_string(),
            })
        })
        .collect();
    let pareto = ranking.pareto();
    json!({
        "name": asked.name,
        "market": asked.market,
        "deadline_hours": asked.deadline.map(|deadline| deadline.0 as f64 / 3.6e6),
        "candidates": ranking.candidates.iter().map(candidate).collect::<Vec<_>>(),
        "pareto": pareto,
        "rejected": rejected,
        "dearer": ranking.dearer,
        "assumptions": asked.notes.iter().chain(&ranking.notes).collect::<Vec<_>>(),
    })
}

pub fn candidate(candidate: &Candidate<'_>) -> Value {
    let kind = &candidate.offer.kind;
    let usd = |money: Option<NanoUsd>| money.map(NanoUsd::dollars);
    let parts: serde_json::Map<String, Value> =
        candidate.parts.each().into_iter().map(|(name, part)| (name.to_owned(), json!(usd(part)))).collect();
    json!({
        "cloud": kind.cloud,
        "region": candidate.offer.region,
        "zone": candidate.offer.zone,
        "instance_type": kind.name,
        "accelerator": kind.accelerator,
        "count": kind.count.as_f64(),
        "market": candidate.market,
        "nodes": candidate.nodes,
        "places": candidate.places,
        "precision": candidate.precision.map(|precision| precision.word()),
        "price_usd_per_hour": candidate.price.dollars(),
        "on_demand_usd_per_hour": usd(candidate.firm_price),
        "expected_cost_usd": candidate.cost.mean,
        "cost_usd_10": candidate.cost.low,
        "cost_usd_90": candidate.cost.high,
        "expected_hours": candidate.hours.mean,
        "hours_10": candidate.hours.low,
        "hours_90": candidate.hours.high,
        "running_hours": candidate.need.0 as f64 / 3.6e6,
        "deadline_probability": candidate.in_time,
        "over_budget_probability": candidate.over_budget,
        "expected_interruptions": candidate.interruptions,
        "checkpoint_every_seconds": candidate.interval.as_ref().map(|interval| interval.every.0 as f64 / 1e3),
        "checkpoint_why": candidate.interval.as_ref().map(|interval| interval.why.as_str()),
        "cost_parts": parts,
        "unknown_parts": candidate.parts.unknown(),
        "ranked_as_usd": candidate.cost.mean + candidate.stand_in.dollars(),
        "scaling_efficiency": candidate.efficiency,
        "speed": candidate.evidence.word(),
        "speed_how": candidate.how,
        "market_basis": candidate.basis.word(),
        "interruption_band": match candidate.basis {
            Basis::Band(band) => Some(band.label()),
            _ => None,
        },
        "committed_until": candidate.committed_until,
        "source": candidate.offer.source.name,
        "as_of": candidate.offer.source.as_of,
    })
}
