//! Stored formats and their versions. A payload says its version beside it; each older one has a step
//! that lifts it to the next, so any released log is read by any later binary.

mod groups;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

/// The version written by this binary.
pub const VERSION: u16 = 7;

/// A payload that cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum CodecError {
    /// Written by a newer binary.
    #[error("payload version {found} is newer than this binary knows: {VERSION}")]
    Newer {
        /// What it says.
        found: u16,
    },
    /// Not what its version promises.
    #[error("a stored payload cannot be read")]
    Malformed(#[from] serde_json::Error),
}

/// Lifts a payload from version `i + 1` to `i + 2`.
type Upgrade = fn(Value) -> Value;

/// One step per released version but the newest.
const UPGRADES: &[Upgrade] = &[
    // In version 1 a checkpoint of unknown work held all that the program had run by then.
    |mut payload| {
        if let Some(saved) = payload.pointer_mut("/event/checkpoint-durable").filter(|saved| saved["work"].is_null()) {
            saved["ran"] = i64::MAX.into();
        }
        payload
    },
    // In version 2 the id of a job was the sequence of its submission, and was not written down.
    |payload| payload,
    // In version 3 what people were told was text only, in records, in snapshots and in views of jobs; and speeds were
    // counted in 1,000 seconds.
    |mut payload| {
        let words = |text: &Value| {
            let about =
                text.as_str().is_some_and(|text| [LATE, INFEASIBLE].iter().any(|start| text.starts_with(start)));
            json!({ "former": { "text": text, "about_the_deadline": about } })
        };
        let reason = payload.pointer("/decision/1").cloned().unwrap_or_default();
        if let Some(notify) = payload.pointer_mut("/decision/0/notify") {
            let text = notify["text"].as_str().unwrap_or_default().to_owned();
            notify["told"] = match () {
                () if text.starts_with(LATE) => json!("late"),
                () => infeasible(&text, &reason).unwrap_or_else(|| words(&json!(text))),
            };
        }
        let jobs = payload.get_mut("jobs").and_then(Value::as_object_mut).into_iter().flatten().map(|(_, job)| job);
        for job in jobs.filter(|job| job["notice"].is_string()) {
            job["told"] = words(&job["notice"]);
        }
        finer(&mut payload);
        if let Some(text) = payload.get("notice").filter(|text| text.is_string()).map(words) {
            payload["told"] = text;
        }
        payload
    },
    // In version 4 leases were asked for one by one, and a ledger row did not stand alone.
    |payload| crate::ledger::former::lifted(groups::lift(payload)),
    // In version 5 each meter knew its own price.
    crate::ledger::former::with_lines,
    // In version 6 nobody told leases apart whose time was over, or that were ended at their engine.
    |payload| payload,
];

/// Speeds, which stand in tables called `rates`, in a million times as many seconds.
fn finer(payload: &mut Value) {
    match payload {
        Value::Object(entries) => {
            for (name, value) in entries {
                match value {
                    Value::Object(rates) if name == "rates" => {
                        for rate in rates.values_mut() {
                            *rate = rate.as_u64().map_or(Value::Null, |rate| rate.saturating_mul(1_000_000).into());
                        }
                    }
                    value => finer(value),
                }
            }
        }
        Value::Array(values) => values.iter_mut().for_each(finer),
        _ => {}
    }
}

/// How version 3 began what it said about deadlines.
const LATE: &str = "late:";
const INFEASIBLE: &str = "cannot make the deadline:";

/// That a deadline cannot be met, as version 3 said it: in words, with the numbers in the reason.
fn infeasible(text: &str, reason: &Value) -> Option<Value> {
    let numbers = reason["numbers"].as_array().map(Vec::as_slice).unwrap_or_default();
    let number = |name: &str| {
        let found = numbers.iter().find(|pair| pair[0] == name).map(|pair| pair[1]["value"].clone());
        found.unwrap_or_default()
    };
    let then = ["cheapest", "stop"].into_iter().find(|word| text.contains(&format!("(late: {word})")));
    let late = number("late by").as_i64().filter(|_| text.starts_with(INFEASIBLE))?;
    Some(json!({ "infeasible": { "late": late, "price": number("price of that"), "then": then.unwrap_or("soonest") } }))
}

/// Room for most payloads: a job takes one to two thousand bytes.
const LIKELY: usize = 2 << 10;

/// Text of a payload in the present version.
pub fn encode<T: Serialize>(payload: &T) -> String {
    let mut text = Vec::with_capacity(LIKELY);
    serde_json::to_writer(&mut text, payload).expect("stored types have string keys and no failing serializers");
    String::from_utf8(text).expect("JSON is text")
}

/// Reads a payload of any version up to the present one.
pub fn decode<T: DeserializeOwned>(version: u16, payload: &str) -> Result<T, CodecError> {
    decode_with(UPGRADES, version, payload)
}

fn decode_with<T: DeserializeOwned>(upgrades: &[Upgrade], version: u16, payload: &str) -> Result<T, CodecError> {
    let newest = upgrades.len() as u16 + 1;
    if version > newest || version == 0 {
        return Err(CodecError::Newer { found: version });
    }
    if version == newest {
        return Ok(serde_json::from_str(payload)?);
    }
    let mut value: Value = serde_json::from_str(payload)?;
    for upgrade in &upgrades[usize::from(version) - 1..] {
        value = upgrade(value);
    }
    // By way of text: see `from_json`.
    Ok(serde_json::from_str(&value.to_string())?)
}

/// Reads JSON from bytes, as text. `from_slice`, `from_reader` and `from_value` would each compile the reading of all our types
/// once more, which is a tenth of what a build takes.
pub fn from_json<T: DeserializeOwned>(bytes: &[u8]) -> serde_json::Result<T> {
    serde_json::from_str(std::str::from_utf8(bytes).map_err(serde::de::Error::custom)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{Body, Decision, Event};
    use crate::spec::Late;
    use crate::told::Told;
    use crate::units::{NanoUsd, Span};

    #[test]
    fn an_old_payload_is_lifted_step_by_step() {
        let upgrades: &[Upgrade] = &[
            |mut v| {
                v["b"] = v["a"].take();
                v.as_object_mut().expect("object").remove("a");
                v
            },
            |mut v| {
                v["c"] = 7.into();
                v
            },
        ];
        let read: std::collections::BTreeMap<String, u32> =
            decode_with(upgrades, 1, r#"{"a":3}"#).expect("version 1 is read");
        assert_eq!(read["b"], 3);
        assert_eq!(read["c"], 7);
    }

    #[test]
    fn a_save_of_version_1_keeps_its_worth() {
        let saved = r#"{"event":{"checkpoint-durable":{"stint":{"workload":3,"epoch":1},
            "checkpoint":{"epoch":1,"seq":1},"work":null}}}"#;
        let read: Body = decode(1, saved).expect("version 1 is read");
        assert!(matches!(read, Body::Event(Event::CheckpointDurable { ran: Some(Span(i64::MAX)), .. })), "{read:?}");
    }

    #[test]
    fn what_version_3_said_in_words_has_a_kind() {
        let said = |text: &str| {
            let reason = r#"{"rule":"x","text":"y","numbers":[["late by",{"unit":"span","value":7000}],
                ["price of that",{"unit":"money","value":9}]]}"#;
            let record = format!(r#"{{"decision":[{{"notify":{{"workload":1,"text":"{text}"}}}},{reason}]}}"#);
            match decode(3, &record).expect("version 3 is read") {
                Body::Decision(Decision::Notify { told, .. }, _) => told,
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(said("late: the deadline has passed"), Told::Late);
        let infeasible = Told::Infeasible { late: Span(7_000), price: Some(NanoUsd(9)), then: Late::Stop };
        assert_eq!(said("cannot make the deadline: …; it stops (late: stop)"), infeasible);
        let former = |text: &str| Told::Former { text: text.into(), about_the_deadline: false };
        assert_eq!(said("something about the deadline"), former("something about the deadline"));
        let view: Value = decode(3, r#"{"notice":"late: the deadline has passed"}"#).expect("a view");
        assert_eq!(view["told"]["former"]["about_the_deadline"], true);
        let spec: Value =
            decode(3, r#"{"event":{"submitted":{"work":{"rates":{"V100":1000000}}}}}"#).expect("a submission");
        assert_eq!(spec["event"]["submitted"]["work"]["rates"]["V100"], crate::Rate::REAL_TIME.0);
        let lifted: Value = decode(3, r#"{"jobs":{"1":{"notice":"a"},"2":{"notice":null}}}"#).expect("a snapshot");
        assert_eq!(lifted["jobs"]["1"]["told"]["former"]["text"], "a");
        assert!(lifted["jobs"]["2"].get("told").is_none());
    }

    #[test]
    fn a_ledger_row_of_version_4_is_read_with_what_is_known() {
        let row = r#"{"seq":9,"lease":{"installation":1,"seq":4},"from":1000,"to":2000,"rate":3,
            "beneficiary":{"workload":2},"share_permille":1000,"amount":7,"estimated":true}"#;
        let read: crate::LedgerRow = decode(4, row).expect("version 4 is read");
        assert_eq!(
            (read.share, read.amount, read.account, read.goods),
            (crate::ledger::Share::WHOLE, NanoUsd(7), None, None)
        );
        assert_eq!(read.beneficiary.workload(), Some(crate::WorkloadId(2)));
        // What a lease that still runs was charged is in its job's books.
        let running = r#"{"offers":{},"jobs":{"2":{"paid":5,"paid_by":{"spot":5}}},
            "leases":[{"offer":"x","workload":2,"market":"spot","up_at":1,"meter":{"written":7,"earlier":[]}}]}"#;
        let lifted: Value = decode(4, running).expect("a snapshot");
        assert_eq!(lifted["jobs"]["2"], json!({ "paid": 12, "paid_by": { "spot": 12 } }));
    }

    #[test]
    fn a_meter_of_version_5_goes_on_at_its_last_price() {
        let snapshot = r#"{"now":7200000,"offers":{"x":{"price_per_hour":30}},"gone_prices":{"y":50},"leases":[
            {"offer":"x","meter":{"rate":30,"upto":3600000,"written":5,"accrued":{"whole_nanousd":5,"rest":0}}},
            {"offer":"y","meter":{"rate":50,"upto":0,"written":0,"accrued":{"whole_nanousd":0,"rest":0}}},
            {"offer":"x","paid_by_node":true,"meter":{"rate":0,"upto":0,"written":0,"accrued":{"whole_nanousd":0,"rest":0}}},
            {"offer":"z","meter":null}]}"#;
        let lifted: Value = decode(5, snapshot).expect("a snapshot");
        let cost = |number: usize| {
            let lease = &lifted["leases"][number];
            let meter: crate::ledger::Meter = serde_json::from_value(lease["meter"].clone()).expect("a meter");
            let line = lifted["prices"][lease["offer"].as_str().expect("an offer")].clone();
            let line: crate::ledger::PriceLine = serde_json::from_value(line).expect("a line");
            meter.cost_at(crate::Time(7_200_000 + 3_600_000), &line).0
        };
        assert_eq!((cost(0), cost(1), cost(2)), (5 + 60, 150, 0));
        let record: Value = decode(5, r#"{"a":3}"#).expect("a record");
        assert_eq!(record, json!({ "a": 3 }));
    }

    #[test]
    fn a_newer_payload_is_refused() {
        assert!(matches!(decode::<u32>(VERSION + 1, "1"), Err(CodecError::Newer { .. })));
    }
}
