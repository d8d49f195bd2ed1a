//! Ledger rows and meters of before rows stood alone, as they are read today.

use serde_json::{Value, json};

/// Lifts a payload of version 4. Shares were thousandths. Meters did not know who a stretch was charged to: it was the
/// one workload of the lease, or overhead; and what a lease was of stood in the offers only.
pub(crate) fn lifted(mut payload: Value) -> Value {
    if let Some(permille) = payload.get("share_permille").and_then(Value::as_u64) {
        payload["share"] = json!(super::Share::new(permille, 1_000));
    }
    let offers = payload.get("offers").cloned().unwrap_or_default();
    for lease in payload.get_mut("leases").and_then(Value::as_array_mut).into_iter().flatten() {
        lease["goods"] = lease["offer"].as_str().map_or(Value::Null, |id| goods(&offers[id]));
        let charged = match &lease["workload"] {
            Value::Null => json!([["overhead", super::Share::WHOLE]]),
            workload => json!([[{ "workload": workload }, super::Share::WHOLE]]),
        };
        let earlier = lease.pointer_mut("/meter/earlier").and_then(Value::as_array_mut);
        for stretch in earlier.into_iter().flatten() {
            *stretch = json!({ "from": stretch[0], "rate": stretch[1], "charged": charged });
        }
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
