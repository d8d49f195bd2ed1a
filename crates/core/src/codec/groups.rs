//! Version 4 knew no groups: each lease was asked for by itself, was usable as soon as it was up, and a stint named its
//! leases. Each such lease becomes a group of one.

use serde_json::{Map, Value, json};

/// Lifts a record, a snapshot or a view of version 4.
pub(super) fn lift(mut payload: Value) -> Value {
    if let Some(events) = payload.get_mut("event").and_then(Value::as_object_mut) {
        lift_event(events);
    }
    if let Some(decisions) = payload.pointer_mut("/decision/0").and_then(Value::as_object_mut) {
        lift_decision(decisions);
    }
    let leases = payload.get_mut("leases").and_then(Value::as_array_mut);
    if let Some(groups) = leases.map(|leases| leases.iter_mut().filter_map(lift_lease).collect::<Vec<Value>>()) {
        payload["groups"] = groups.into();
    }
    let jobs = payload.get_mut("jobs").and_then(Value::as_object_mut).into_iter().flatten();
    for (_, job) in jobs {
        if let Some(stint) = job.get_mut("stint").and_then(Value::as_object_mut) {
            allocate(stint);
        }
    }
    payload
}

fn lift_event(events: &mut Map<String, Value>) {
    if let Some(up) = events.get_mut("lease-up") {
        up["ready"] = json!("");
    }
    if let Some(failed) = events.remove("lease-failed") {
        let failed = json!({ "group": failed["lease"], "refusal": failed["refusal"] });
        events.insert("group-failed".to_owned(), failed);
    }
}

fn lift_decision(decisions: &mut Map<String, Value>) {
    if let Some(acquire) = decisions.get_mut("acquire") {
        *acquire = json!({ "want": want(acquire) });
    }
    if let Some(release) = decisions.get_mut("release") {
        *release = json!({ "group": release["lease"], "slots": [0] });
    }
    if let Some(start) = decisions.get_mut("start").and_then(Value::as_object_mut) {
        allocate(start);
    }
}

fn want(of: &Value) -> Value {
    let alternative = json!({ "offer": of["offer"], "max_price": of["max_price"] });
    json!({ "workload": of["workload"], "units": 1, "least": 1, "alternatives": [alternative] })
}

/// A lease of a snapshot; gives its group, if it was asked for.
fn lift_lease(lease: &mut Value) -> Option<Value> {
    if !lease["up_at"].is_null() {
        lease["ready"] = json!("");
    }
    if lease["workload"].is_null() {
        return None;
    }
    let phase = match lease["phase"].as_str() {
        Some("asked") => json!("asked"),
        _ => json!({ "granted": { "at": lease["asked_at"], "units": 1 } }),
    };
    Some(json!({ "id": lease["id"], "want": want(lease), "asked_at": lease["asked_at"], "phase": phase }))
}

/// Workers had whole leases.
fn allocate(stint: &mut Map<String, Value>) {
    let leases = stint.remove("leases").unwrap_or_default();
    let whole = |lease: &Value| json!({ "lease": lease });
    let allocations: Vec<Value> = leases.as_array().into_iter().flatten().map(whole).collect();
    stint.insert("allocations".to_owned(), allocations.into());
}

#[cfg(test)]
mod tests {
    use crate::codec::decode;
    use crate::ids::{DecisionId, Installation, LeaseId};
    use crate::record::{Body, Decision, Event, Refusal};
    use crate::want::Address;

    const LEASE: &str = r#"{"installation":7,"seq":12}"#;

    fn group() -> DecisionId {
        DecisionId { installation: Installation(7), seq: 12 }
    }

    fn event(text: &str) -> Event {
        match decode(4, &format!(r#"{{"event":{text}}}"#)).expect("version 4 is read") {
            Body::Event(event) => event,
            other => panic!("{other:?}"),
        }
    }

    fn decision(text: &str) -> Decision {
        let reason = r#"{"rule":"x","text":"y","numbers":[]}"#;
        match decode(4, &format!(r#"{{"decision":[{text},{reason}]}}"#)).expect("version 4 is read") {
            Body::Decision(decision, _) => decision,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_lease_of_version_4_is_the_first_of_its_group() {
        let lease = LeaseId { group: group(), slot: 0 };
        let up = event(&format!(r#"{{"lease-up":{{"lease":{LEASE},"at":5}}}}"#));
        assert!(
            matches!(&up, Event::LeaseUp { lease: known, ready: Some(Address(at)), .. } if *known == lease && at.is_empty()),
            "{up:?}"
        );
        let failed = event(&format!(r#"{{"lease-failed":{{"lease":{LEASE},"refusal":"no-capacity"}}}}"#));
        assert_eq!(failed, Event::GroupFailed { group: group(), refusal: Refusal::NoCapacity });
        let asked = decision(&format!(
            r#"{{"acquire":{{"lease":{LEASE},"workload":3,"offer":"o","market":"spot","max_price":9}}}}"#
        ));
        let Decision::Acquire { want } = asked else { panic!("{asked:?}") };
        assert_eq!((want.workload.0, want.units, want.least, want.alternatives.len()), (3, 1, 1, 1));
        let back = decision(&format!(r#"{{"release":{{"lease":{LEASE}}}}}"#));
        assert_eq!(back, Decision::Release { group: group(), slots: vec![0] });
        let start = decision(&format!(
            r#"{{"start":{{"stint":{{"workload":3,"epoch":1}},"leases":[{LEASE}],"resume":"newest"}}}}"#
        ));
        let Decision::Start { allocations, .. } = start else { panic!("{start:?}") };
        assert_eq!(allocations, [crate::Allocation::whole(lease)]);
    }
}
