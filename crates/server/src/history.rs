//! A job's records as lines for people.

use crate::api_types::Line;
use std::collections::BTreeMap;
use windfall_core::english::counted;
use windfall_core::{Body, Decision, Event, LeaseId, NanoUsd, Reason, Refusal, Span, Time, WorkerEnd, codec};
use windfall_store::{LedgerRow, Row};

/// Lines of a job's history, in order, with what each lease cost. Rows of a newer binary are named but not read.
pub fn lines(rows: &[Row], ledger: &[LedgerRow], submitted_at: Time) -> Vec<Line> {
    let mut costs: BTreeMap<&str, (i64, i64)> = BTreeMap::new();
    for row in ledger {
        let (ms, nanousd) = costs.entry(&row.lease).or_default();
        *ms += row.to_ms - row.from_ms;
        *nanousd += row.nanousd;
    }
    rows.iter()
        .map(|row| {
            let (text, reason) = match codec::decode::<Body>(row.version, &row.payload) {
                Ok(body) => {
                    let (text, reason) = describe(row.seq, &body, submitted_at);
                    (format!("{text}{}", cost_text(&body, &costs)), reason)
                }
                Err(error) => (format!("cannot be shown: {error}"), None),
            };
            Line { seq: row.seq, at: Time(row.at_ms), kind: row.kind.to_string(), text, reason }
        })
        .collect()
}

/// What a lease that is gone has cost, so that a bill can be checked.
fn cost_text(body: &Body, costs: &BTreeMap<&str, (i64, i64)>) -> String {
    let Body::Event(Event::LeaseGone { lease, .. }) = body else { return String::new() };
    costs
        .get(lease.to_string().as_str())
        .map_or(String::new(), |(ms, nanousd)| format!(": {} cost {}", Span(*ms), NanoUsd(*nanousd)))
}

fn describe(seq: u64, body: &Body, submitted_at: Time) -> (String, Option<Reason>) {
    match body {
        Body::Event(event) => (event_text(event, submitted_at), None),
        Body::Decision(decision, reason) => (decision_text(seq, decision), Some(reason.clone())),
    }
}

fn event_text(event: &Event, submitted_at: Time) -> String {
    match event {
        Event::Configured { .. } => "another configuration from now on".to_owned(),
        Event::Submitted { workload, .. } => format!("submitted as {}", workload.job().name),
        Event::CancelRequested { by, .. } => format!("{by} asked to cancel it"),
        Event::GiveUpRequested { by, .. } => format!("{by} gave up what it still had to save"),
        Event::BudgetSet { budget: Some(budget), by, .. } => format!("{by} set its budget to {budget}"),
        Event::BudgetSet { budget: None, by, .. } => format!("{by} took its budget away"),
        Event::OfferSeen { offer } => format!("{} at {} an hour", offer.id, offer.price_per_hour),
        Event::OfferGone { offer } => format!("{offer} is no longer for sale"),
        Event::EngineSilent { engine, .. } => format!("{engine} does not answer"),
        Event::EngineAnswers { engine } => format!("{engine} answers again"),
        Event::PoolSeen { pool } => format!("pool {}", pool.id),
        Event::NodeSeen { node } => match node.symptoms.first() {
            Some(first) => format!("node {} is drained: {first}", node.id),
            None => format!("node {}", node.id),
        },
        Event::NodeGone { node } => format!("node {node} is gone"),
        Event::GroupQueued { group, eta: Some(eta), .. } => {
            format!("group {} is in its engine's queue, expected at {}", group.seq, *eta - submitted_at)
        }
        Event::GroupQueued { group, eta: None, .. } => format!("group {} is in its engine's queue", group.seq),
        Event::GroupGranted { group, units, .. } => {
            format!("group {} was granted: {}", group.seq, counted((*units).into(), "lease"))
        }
        Event::GroupFailed { group, refusal } => format!("lease {} could not be had: {}", group.seq, refused(*refusal)),
        Event::LeaseUp { lease, ready: None, .. } => format!("lease {} is up, not ready yet", number(*lease)),
        Event::LeaseUp { lease, .. } => format!("lease {} is up", number(*lease)),
        Event::LeaseReady { lease, .. } => format!("lease {} is ready", number(*lease)),
        Event::LeaseNoticed { lease, ends_at, why } => {
            let ends = *ends_at - submitted_at;
            match why {
                None => format!("notice: lease {} is taken away at {ends}", number(*lease)),
                Some(why) => {
                    format!("notice: lease {} ends at {ends}, its machine is not well: {why}", number(*lease))
                }
            }
        }
        Event::LeaseAtRisk { lease } => format!("{lease} may soon be taken away"),
        Event::LeaseGone { lease, end, .. } => format!("lease {} is gone ({end:?})", number(*lease)).to_lowercase(),
        Event::LeaseFound { lease, .. } => format!("lease {} was found, unknown to the log", number(*lease)),
        Event::WorkerStarted { stint, rank, restored, .. } => match restored {
            Some(checkpoint) => format!("stint {} rank {rank} runs from checkpoint {checkpoint}", stint.epoch),
            None => format!("stint {} rank {rank} runs from the beginning", stint.epoch),
        },
        Event::WorkerEnded { stint, rank, end, settled } => {
            let ran =
                !matches!(end, WorkerEnd::NeverRan { .. } | WorkerEnd::NoRoom { .. } | WorkerEnd::StoreAway { .. });
            let more = if ran && !settled { "; its last save is on its way" } else { "" };
            format!("stint {} rank {rank} {}{more}", stint.epoch, end)
        }
        Event::Troubled { trouble: Some(trouble), .. } => format!("trouble: {}", trouble.text),
        Event::Troubled { trouble: None, .. } => "the trouble is over".to_owned(),
        Event::StoreChecked { trouble: Some(trouble), .. } => format!("the store is still away: {}", trouble.text),
        Event::StoreChecked { trouble: None, .. } => "the store answers again".to_owned(),
        Event::Progress { done, total, .. } => match total {
            Some(total) => format!("progress {} of {}", done.0, total.0),
            None => format!("progress {}", done.0),
        },
        Event::CheckpointDurable { checkpoint, work, ran, .. } => match (work, ran) {
            (Some(work), _) => format!("checkpoint {checkpoint} is durable, with {} done", work.0),
            (None, Some(ran)) => format!("checkpoint {checkpoint} is durable, written after {ran} of running"),
            (None, None) => format!("checkpoint {checkpoint} is durable"),
        },
    }
}

/// Why an engine said no.
fn refused(refusal: Refusal) -> String {
    match refusal {
        Refusal::NoCapacity => "there is none now".to_owned(),
        Refusal::Quota => "the account's limit is reached".to_owned(),
        Refusal::Owner => {
            "the engine does not give it to the job's owner; `windfall engines check` may say why".to_owned()
        }
        Refusal::Retry { after } => format!("not now, perhaps in {after}"),
        Refusal::Auth => "the engine does not accept the server's credentials".to_owned(),
        Refusal::Invalid => "the engine can never give what was asked for".to_owned(),
        Refusal::Bug => "the engine is at fault".to_owned(),
    }
}

/// A lease as people are told of it: the number of its group, and its own where it is not the first.
fn number(lease: LeaseId) -> String {
    match lease.slot {
        0 => lease.group.seq.to_string(),
        slot => format!("{}.{slot}", lease.group.seq),
    }
}

fn decision_text(seq: u64, decision: &Decision) -> String {
    match decision {
        Decision::Acquire { want } => {
            let offer = want.alternatives.first().map(|first| first.offer.to_string()).unwrap_or_default();
            let or = match want.alternatives.len() {
                0 | 1 => String::new(),
                more => format!(", or {}", counted(more as u64 - 1, "offer as good")),
            };
            match want.units {
                1 => format!("acquire lease {seq}: {offer}{or}"),
                units => format!("acquire {units} leases as group {seq}: {offer}{or}"),
            }
        }
        Decision::Release { group, slots } => match slots.as_slice() {
            [slot] => format!("release lease {}", number(LeaseId { group: *group, slot: *slot })),
            slots => format!("release {} leases of group {}", slots.len(), group.seq),
        },
        Decision::HandOver { lease, .. } => format!("take lease {} over", number(*lease)),
        Decision::Start { stint, allocations, .. } => {
            format!("start stint {} on {}", stint.epoch, counted(allocations.len() as u64, "lease"))
        }
        Decision::Checkpoint { stint } => format!("ask stint {} to save", stint.epoch),
        Decision::Pause { .. } => "pause: hold nothing".to_owned(),
        Decision::CheckStore { .. } => "look whether the store of its checkpoints answers".to_owned(),
        Decision::Stop { stint, grace } => format!("stop stint {} within {grace}", stint.epoch),
        Decision::End { outcome, .. } => format!("end: {}", outcome.word()),
        Decision::Notify { told, .. } => format!("notify: {told}"),
    }
}
