//! One machine that has joined: its accelerators and who uses them, its place, how it is and what is done about it.

use super::nodes::{bad_name, remark, server};
use crate::args::NodeArgs;
use crate::fitted::{Column, fitted, labelled};
use crate::here::Here;
use crate::live::width;
use jiff::Timestamp;
use std::collections::BTreeMap;
use windfall_core::Span;
use windfall_core::health::Remedy;
use windfall_exec::{DiskReading, LEVELS, ProgramsRunAs};
use windfall_server::api_types::{DeviceView, NodeDetail, SymptomView, UserView};
use windfall_server::client::{Code, Failure};

/// Where the values begin.
const INDENT: usize = 10;
/// Clocks that differ by less agree.
const CLOCKS_AGREE_MS: u64 = 1_000;

pub async fn node(here: &Here, args: &NodeArgs) -> Result<Code, Failure> {
    bad_name(&args.name)?;
    let client = server(here).await?;
    let detail: NodeDetail = client.get(&format!("/v1/nodes/{}", args.name)).await?;
    if here.json {
        println!("{}", serde_json::to_string(&detail).expect("a node has string keys"));
    } else {
        print!("{}", page(&detail, width(), Timestamp::now()));
    }
    Ok(Code::Done)
}

/// All of it in lines of at most `width` characters.
fn page(detail: &NodeDetail, width: usize, now: Timestamp) -> String {
    let node = &detail.node;
    let mut text = format!("{}: {}\n", node.name, node.state.word());
    let mut say = |label: &str, words: String| {
        if !words.is_empty() {
            text.push_str(&labelled(label, &words, INDENT, width));
        }
    };
    say("why", remark(node).unwrap_or_default());
    let server = if node.is_server { "; the server runs on it" } else { "" };
    say("machine", format!("{} processors, {}{server}", node.cpus, size(node.memory_bytes)));
    say("rate", if node.rate.0 == 0 { String::new() } else { format!("{} an hour", node.rate) });
    say("disk", detail.disk.map(disk).unwrap_or_default());
    let agent = node.version.as_ref().map(|version| format!("version {version}"));
    let heard = node.heard_ms.map(|ms| format!("heard {} ago", span(ms)));
    let clock = detail.server_ahead_ms.and_then(clock);
    say("agent", [agent, heard, clock].into_iter().flatten().collect::<Vec<_>>().join(", "));
    say("programs", node.programs.as_ref().map(programs).unwrap_or_default());
    let place = LEVELS.into_iter().filter_map(|level| Some(format!("{level} {}", node.domains.get(level)?)));
    say("place", place.collect::<Vec<_>>().join(", "));
    say("labels", labels(&node.labels));
    let others: Vec<String> = detail.others.iter().map(user).collect();
    say("jobs", others.join(", "));
    text.push_str(&health(&node.symptoms, &node.name, width, now));
    text.push_str(&devices(&detail.devices, width));
    text
}

/// As whom programs run on a node, in a sentence.
fn programs(programs: &ProgramsRunAs) -> String {
    match programs {
        ProgramsRunAs::Submitter { otherwise: None } => "run as whoever submitted them".to_owned(),
        ProgramsRunAs::Submitter { otherwise: Some(name) } => {
            format!("run as whoever submitted them, or as {name} where that person has no account there")
        }
        ProgramsRunAs::Account { name } => format!("run as {name}, whoever submitted them"),
    }
}

fn labels(labels: &BTreeMap<String, String>) -> String {
    let other = labels.iter().filter(|(key, _)| !LEVELS.contains(&key.as_str()));
    other.map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>().join(" ")
}

fn health(symptoms: &[SymptomView], name: &str, width: usize, now: Timestamp) -> String {
    if symptoms.is_empty() {
        return labelled("health", "nothing is known to be wrong", INDENT, width);
    }
    let mut text = String::new();
    for (number, view) in symptoms.iter().enumerate() {
        let label = if number == 0 { "health" } else { "" };
        let ago = ago(view.symptom.seen_unix_ms, now);
        let done = match (view.symptom.accepted, view.remedy) {
            (true, _) => "accepted: it was put to work again",
            (false, Remedy::Nothing) => "a program's own doing",
            (false, Remedy::Say) => "said only",
            (false, Remedy::Drain) => "nothing new is put there",
            (false, Remedy::MoveFromDevice) => "nothing new is put there, and its work is moved",
            (false, Remedy::MoveAll) => "nothing new is put there, and all work is moved",
        };
        text.push_str(&labelled(label, &format!("{} ({ago}): {done}", view.text), INDENT, width));
        if !view.symptom.accepted {
            text.push_str(&labelled("", &format!("hint: {}", view.hint), INDENT, width));
        }
    }
    let stays =
        |view: &SymptomView| view.remedy >= Remedy::Drain && !view.symptom.accepted && !view.symptom.kind.passes();
    if symptoms.iter().any(stays) {
        let then = format!("then: windfall nodes resume {name}");
        text.push_str(&labelled("", &then, INDENT, width));
    }
    text
}

fn devices(devices: &[DeviceView], width: usize) -> String {
    if devices.is_empty() {
        return labelled("devices", "no accelerators", INDENT, width);
    }
    let column = |head: &str, leaves: u8, cell: &dyn Fn(&DeviceView) -> String| {
        Column::words(head, leaves, devices.iter().map(cell).collect::<Vec<_>>())
    };
    let users = |one: &DeviceView| one.users.iter().map(user).collect::<Vec<_>>().join(", ");
    let used = |one: &DeviceView| match one.is_gone {
        true => "gone".to_owned(),
        false if one.users.is_empty() => "-".to_owned(),
        false => users(one),
    };
    let memory = |one: &DeviceView| {
        if one.accelerator.memory_bytes == 0 { String::new() } else { size(one.accelerator.memory_bytes) }
    };
    let table = vec![
        column("DEVICE", 0, &|one| one.accelerator.device.clone()).least(12),
        column("MODEL", 0, &|one| one.accelerator.model.clone()),
        column("MEMORY", 2, &memory),
        column("BUS", 5, &|one| one.accelerator.bus.clone()),
        column("NVLINK", 4, &|one| one.accelerator.nvlink.clone().unwrap_or_default()).least(8),
        column("MIG", 4, &|one| if one.accelerator.is_cut { "on".to_owned() } else { String::new() }),
        column("HEAT", 3, &|one| one.celsius.map(|celsius| format!("{celsius} °C")).unwrap_or_default()),
        column("USED BY", 0, &used).least(12),
    ];
    format!("\n{}", fitted(table, width))
}

fn user(user: &UserView) -> String {
    format!("{} {} ({})", user.job, user.name, user.owner)
}

fn size(bytes: u64) -> String {
    match bytes as f64 / 1e9 {
        gigabytes if gigabytes < 0.1 => format!("{:.1} MB", bytes as f64 / 1e6),
        gigabytes => format!("{gigabytes:.1} GB"),
    }
}

fn disk(disk: DiskReading) -> String {
    let read_only = if disk.is_read_only { ", read-only" } else { "" };
    format!("{} of {} free{read_only}", size(disk.free_bytes), size(disk.of_bytes))
}

fn span(ms: u64) -> Span {
    Span(i64::try_from(ms).unwrap_or(i64::MAX))
}

fn ago(unix_ms: u64, now: Timestamp) -> String {
    let now_ms = u64::try_from(now.as_millisecond()).unwrap_or(0);
    format!("{} ago", span(now_ms.saturating_sub(unix_ms)))
}

/// Whether the machine's clock differs from the server's.
fn clock(ahead_ms: i64) -> Option<String> {
    let by = span(ahead_ms.unsigned_abs());
    match ahead_ms {
        ms if ms.unsigned_abs() < CLOCKS_AGREE_MS => None,
        ms if ms > 0 => Some(format!("its clock is {by} behind the server's")),
        _ => Some(format!("its clock is {by} ahead of the server's")),
    }
}
