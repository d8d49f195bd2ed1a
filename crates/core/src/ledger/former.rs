//! Ledger rows and meters of before rows stood alone, as they are read today.

use super::PriceLine;
use crate::units::{NanoUsd, Time};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Lifts a payload of version 4. Shares were thousandths, and what a lease was of stood in the offers only.
pub(crate) fn lifted(mut payload: Value) -> Value {
    if let Some(permille) = payload.get("share_permille").and_then(Value::as_u64) {
        payload["share"] = json!(super::Share::new(permille, 1_000));
    }
    let offers = payload.get("offers").cloned().unwrap_or_default();
    let mut paid: Vec<(String, Value, i64)> = Vec::new();
    for lease in payload.get_mut("leases").and_then(Value::as_array_mut).into_iter().flatten() {
        lease["goods"] = lease["offer"].as_str().map_or(Value::Null, |id| goods(&offers[id]));
        // What was charged for a lease that is still there was not in its job's books before it was gone.
        if let Some(written) = lease.pointer("/meter/written").and_then(Value::as_i64).filter(|written| *written != 0)
            && let Some(workload) = lease["workload"].as_u64()
        {
            paid.push((workload.to_string(), lease["market"].clone(), written));
        }
    }
    for (workload, market, written) in paid {
        let job = &mut payload["jobs"][&workload];
        let market = market.as_str().unwrap_or_default();
        job["paid"] = (job["paid"].as_i64().unwrap_or(0) + written).into();
        let by = job["paid_by"][market].as_i64().unwrap_or(0) + written;
        job["paid_by"][market] = by.into();
    }
    payload
}

/// Lifts a snapshot of version 5. What a lease costs is asked of its offer's prices today; each meter was closed with every
/// price, so what it had not counted yet was at the last one. Corrections do not reach back to before the upgrade.
pub(crate) fn with_lines(mut payload: Value) -> Value {
    let now = Time(payload["now"].as_i64().unwrap_or_default());
    let mut lines: BTreeMap<String, PriceLine> = BTreeMap::new();
    let shown = payload.get("offers").and_then(Value::as_object).into_iter().flatten();
    let shown = shown.map(|(id, offer)| (id.clone(), &offer["price_per_hour"]));
    let gone = payload.get("gone_prices").and_then(Value::as_object).into_iter().flatten();
    for (id, price) in gone.map(|(id, price)| (id.clone(), price)).chain(shown) {
        lines.insert(id, PriceLine::starting(now, NanoUsd(price.as_i64().unwrap_or_default())));
    }
    for lease in payload.get_mut("leases").and_then(Value::as_array_mut).into_iter().flatten() {
        let free = lease["paid_by_node"].as_bool().unwrap_or(false);
        let offer = lease["offer"].as_str().unwrap_or_default().to_owned();
        if let Some(meter) = lease.get_mut("meter").filter(|meter| meter.is_object()) {
            let line = lines.entry(offer).or_insert_with(|| PriceLine::starting(now, NanoUsd(0)));
            follow(meter, line, free);
        }
    }
    for books in
        payload.get_mut("node_books").and_then(Value::as_object_mut).into_iter().flat_map(|all| all.values_mut())
    {
        if let Some(node) = books.get_mut("meter").filter(|meter| meter.is_object()) {
            let rate = NanoUsd(node["meter"]["rate"].as_i64().unwrap_or_default());
            let line = PriceLine::starting(Time(node["meter"]["upto"].as_i64().unwrap_or_default()), rate);
            follow(&mut node["meter"], &line, false);
            node["prices"] = json!(line);
        }
    }
    if payload.get("leases").is_some() {
        payload["prices"] = json!(lines);
    }
    payload
}

fn follow(meter: &mut Value, line: &PriceLine, free: bool) {
    meter["sum"] = json!(line.sum(Time(meter["upto"].as_i64().unwrap_or_default())));
    meter["free"] = free.into();
    meter["earlier"] = json!([]);
}

/// From the fields themselves: what else an offer has today is none of this step's business.
fn goods(offer: &Value) -> Value {
    if !offer.is_object() {
        return Value::Null;
    }
    json!({
        "engine": offer["engine"],
        "market": offer["market"],
        "cloud": offer["cloud"],
        "region": offer["region"].as_str().unwrap_or_default(),
        "zone": offer["zone"],
        "instance_type": offer["instance_type"],
        "accelerator": offer["accelerator"],
        "count": super::counted(offer["accelerators"].as_u64().and_then(|n| n.try_into().ok()).unwrap_or_default()),
    })
}
