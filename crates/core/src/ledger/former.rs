//! Ledger rows and meters of before rows stood alone, as they are read today.

use serde_json::{Value, json};

/// Lifts a payload of version 4. Shares were thousandths. Meters did not know who a stretch was charged to: it was the
/// one workload of the lease, or overhead; and what a lease was of stood in the offers only.
pub(crate) fn lifted(mut payload: Value) -> Value {
    if let Some(permille) = payload.get("share_permille").and_then(Value::as_u64) {
        payload["share"] = json!(super::Share::new(permille, 1_000));
    }
    let offers = payload.get("offers").cloned().unwrap_or_default();
    let mut paid: Vec<(String, Value, i64)> = Vec::new();
    for lease in payload.get_mut("leases").and_then(Value::as_array_mut).into_iter().flatten() {
        lease["goods"] = lease["offer"].as_str().map_or(Value::Null, |id| goods(&offers[id]));
        let charged = match &lease["workload"] {
            Value::Null => json!([{ "beneficiary": "overhead", "share": super::Share::WHOLE }]),
            workload => json!([{ "beneficiary": { "workload": workload }, "share": super::Share::WHOLE }]),
        };
        // What was charged for a lease that is still there was not in its job's books before it was gone.
        if let Some(written) = lease.pointer("/meter/written").and_then(Value::as_i64).filter(|written| *written != 0)
            && let Some(workload) = lease["workload"].as_u64()
        {
            paid.push((workload.to_string(), lease["market"].clone(), written));
        }
        let earlier = lease.pointer_mut("/meter/earlier").and_then(Value::as_array_mut);
        for stretch in earlier.into_iter().flatten() {
            *stretch = json!({ "from": stretch[0], "rate": stretch[1], "charged": charged });
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
