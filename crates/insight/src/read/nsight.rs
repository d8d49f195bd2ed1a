//! What Nsight Systems exported (`nsys export --type sqlite`), told as the events of a trace: kernels, copies, calls of the
//! runtime and ranges of NVTX. Names are kept once; rows are not kept.

use super::event::Event;
use super::source::Ending;
use super::sqlite::{Database, Table, Value};
use super::{Visitor, Walk};
use std::collections::{HashMap, HashSet};

const KERNELS: &str = "CUPTI_ACTIVITY_KIND_KERNEL";
const COPIES: &str = "CUPTI_ACTIVITY_KIND_MEMCPY";
const FILLS: &str = "CUPTI_ACTIVITY_KIND_MEMSET";
const GRAPHS: &str = "CUPTI_ACTIVITY_KIND_GRAPH_TRACE";
const CALLS: &str = "CUPTI_ACTIVITY_KIND_RUNTIME";
const RANGES: &str = "NVTX_EVENTS";

/// Events of NVTX that have a beginning and an end: ranges that are pushed and popped, and others.
const SPANS: [i64; 2] = [59, 60];

/// What else an export says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct About {
    pub device: Option<String>,
    /// Some kernel is PyTorch's.
    pub torch: bool,
}

/// Reads an export and tells the visitor all that is in it.
pub fn walk(mut database: Database, visitor: &mut impl Visitor) -> (Walk, About) {
    let tables = [KERNELS, COPIES, FILLS, GRAPHS, CALLS, RANGES];
    let is_trace = tables.iter().any(|name| database.table(name).is_some());
    let mut walk = Walk { is_trace, events: 0, broken: 0, cut: false, ending: Ending::Whole };
    let names = names(&mut database);
    let mut about = About { device: device(&mut database), torch: false };
    about.torch = names.values().any(|name| memchr::memmem::find(name, b"at::native").is_some());
    for name in tables {
        if let Some(table) = database.table(name) {
            rows(&mut database, &table, &names, visitor, &mut walk);
        }
    }
    let damaged = database.damaged;
    walk.ending = match (database.cut, damaged) {
        (false, 0) => Ending::Whole,
        (true, _) => Ending::Corrupt("the file is shorter than it says, rows are missing".to_owned()),
        (false, pages) => Ending::Corrupt(format!("{pages} pages of the database could not be understood")),
    };
    (walk, about)
}

/// Columns that hold numbers of names, best first.
const NAMED: [&str; 5] = ["demangledName", "shortName", "mangledName", "nameId", "textId"];

/// The names that rows refer to.
fn names(database: &mut Database) -> HashMap<i64, Box<[u8]>> {
    let mut wanted: HashSet<i64> = HashSet::new();
    for name in [KERNELS, CALLS, RANGES] {
        let Some(table) = database.table(name) else { continue };
        let places: Vec<usize> = NAMED.iter().filter_map(|column| table.column(column)).collect();
        database.ahead = true;
        database.rows(&table, |row| {
            wanted.extend(places.iter().filter_map(|at| whole(row.get(*at))));
        });
    }
    database.ahead = false;
    let mut names = HashMap::new();
    if let Some(table) = database.table("StringIds")
        && let (Some(id), Some(value)) = (table.column("id"), table.column("value"))
    {
        database.rows(&table, |row| {
            if let (Some(id), Some(Value::Text(name))) = (whole(row.get(id)), row.get(value))
                && wanted.contains(&id)
            {
                names.insert(id, Box::from(*name));
            }
        });
    }
    names
}

fn device(database: &mut Database) -> Option<String> {
    let table = database.table("TARGET_INFO_GPU")?;
    let name = table.column("name")?;
    let mut found = None;
    database.rows(&table, |row| {
        if let (None, Some(Value::Text(name))) = (&found, row.get(name)) {
            found = Some(String::from_utf8_lossy(name).into_owned());
        }
    });
    found
}

fn whole(value: Option<&Value<'_>>) -> Option<i64> {
    match value? {
        Value::Integer(number) => Some(*number),
        _ => None,
    }
}

/// Places of the columns that matter.
struct Columns {
    start: Option<usize>,
    end: Option<usize>,
    device: Option<usize>,
    stream: Option<usize>,
    correlation: Option<usize>,
    process: Option<usize>,
    thread: Option<usize>,
    names: Vec<usize>,
    /// What kind of copy or of range, from which memory, to which, and text in place.
    kind: Option<usize>,
    source: Option<usize>,
    sink: Option<usize>,
    text: Option<usize>,
}

impl Columns {
    fn of(table: &Table) -> Columns {
        let at = |name| table.column(name);
        Columns {
            start: at("start"),
            end: at("end"),
            device: at("deviceId"),
            stream: at("streamId"),
            correlation: at("correlationId"),
            process: at("globalPid"),
            thread: at("globalTid"),
            names: NAMED.iter().filter_map(|name| at(name)).collect(),
            kind: at("copyKind").or_else(|| at("eventType")),
            source: at("srcKind"),
            sink: at("dstKind"),
            text: at("text"),
        }
    }
}

fn rows(
    database: &mut Database,
    table: &Table,
    names: &HashMap<i64, Box<[u8]>>,
    visitor: &mut impl Visitor,
    walk: &mut Walk,
) {
    let columns = Columns::of(table);
    let of_device = !matches!(table.name.as_str(), CALLS | RANGES);
    database.rows(table, |row| {
        let number = |place: Option<usize>| place.and_then(|at| whole(row.get(at)));
        // Both hold the process in bits 24 to 47; numbers of calls begin anew in each.
        let global = number(columns.process).or(number(columns.thread)).unwrap_or(0);
        let process = global >> 24 & 0xff_ffff;
        let correlation = number(columns.correlation).filter(|number| (0..1 << 32).contains(number));
        let start_ns = number(columns.start);
        let duration_ns = start_ns.zip(number(columns.end)).map(|(start, end)| end.saturating_sub(start));
        let home = if of_device { number(columns.device).unwrap_or(0) } else { process };
        let (home, thread) = (home.to_string(), (global & 0xff_ffff).to_string());
        let known = columns.names.iter().find_map(|at| names.get(&whole(row.get(*at))?)).map(|name| &name[..]);
        let in_place = match columns.text.and_then(|at| row.get(at)) {
            Some(Value::Text(text)) => Some(*text),
            _ => None,
        };
        let kind = number(columns.kind);
        let Some((category, name)) = called(&table.name, kind, in_place.or(known), || {
            (memory(number(columns.source)), memory(number(columns.sink)))
        }) else {
            return;
        };
        walk.events += 1;
        visitor.event(&Event {
            phase: b'X',
            category,
            name: &name,
            process: home.as_bytes(),
            thread: thread.as_bytes(),
            start_ns,
            duration_ns,
            fraction: true,
            stream: of_device.then(|| number(columns.stream).unwrap_or(0)),
            correlation: correlation.map(|correlation| process << 32 | correlation),
            ..Event::default()
        });
    });
}

/// The category and the name that an event of a trace has.
fn called(
    table: &str,
    kind: Option<i64>,
    name: Option<&[u8]>,
    memories: impl Fn() -> (&'static str, &'static str),
) -> Option<(&'static [u8], Vec<u8>)> {
    match table {
        KERNELS => Some((b"kernel", name.unwrap_or(b"kernel without a name").to_vec())),
        GRAPHS => Some((b"kernel", b"CUDA graph".to_vec())),
        FILLS => Some((b"gpu_memset", b"Memset (Device)".to_vec())),
        COPIES => {
            let way = match kind {
                Some(1) => "HtoD",
                Some(2) => "DtoH",
                Some(8) => "DtoD",
                Some(10) => "PtoP",
                _ => "other",
            };
            let (source, sink) = memories();
            Some((b"gpu_memcpy", format!("Memcpy {way} ({source} -> {sink})").into_bytes()))
        }
        CALLS => Some((b"cuda_runtime", without_version(name.unwrap_or(b"call")).to_vec())),
        _ => {
            let text = name.filter(|_| kind.is_none_or(|kind| SPANS.contains(&kind)))?;
            Some(range(text))
        }
    }
}

fn memory(kind: Option<i64>) -> &'static str {
    match kind {
        Some(0) => "Pageable",
        Some(1) => "Pinned",
        Some(2) => "Device",
        Some(3) => "Array",
        Some(4) => "Managed",
        _ => "Unknown",
    }
}

/// `cudaLaunchKernel_v7000` is `cudaLaunchKernel`; `cuMemcpyDtoH_v2` stays.
fn without_version(name: &[u8]) -> &[u8] {
    let digits = name.iter().rev().take_while(|byte| byte.is_ascii_digit()).count();
    match name.len().checked_sub(digits + 2).map(|at| name.split_at(at)) {
        Some((bare, rest)) if digits >= 4 && rest.starts_with(b"_v") => bare,
        _ => name,
    }
}

/// A range of NVTX is a step, an operator of PyTorch (`emit_nvtx`), or what the program calls it.
fn range(text: &[u8]) -> (&'static [u8], Vec<u8>) {
    if let Some(number) = step(text) {
        return (b"user_annotation", format!("ProfilerStep#{number}").into_bytes());
    }
    let operator =
        memchr::memmem::find(text, b", seq = ").or_else(|| text.starts_with(b"aten::").then_some(text.len()));
    match operator {
        Some(end) => (b"cpu_op", text[..end].to_vec()),
        None => (b"user_annotation", text.to_vec()),
    }
}

/// The number in `step 3`, `Step_3`, `iteration=3`, `ProfilerStep#3`.
fn step(text: &[u8]) -> Option<u64> {
    let lower = text.to_ascii_lowercase();
    let digits = lower.iter().rev().take_while(|byte| byte.is_ascii_digit()).count();
    let (word, number) = lower.split_at(lower.len() - digits);
    let word = word.trim_ascii_end();
    let word = word.strip_suffix(&[b'#'][..]).or(word.strip_suffix(b"=")).or(word.strip_suffix(b":")).unwrap_or(word);
    let word = word.strip_suffix(b"_").or(word.strip_suffix(b"-")).unwrap_or(word).trim_ascii_end();
    let marks = [&b"step"[..], b"iteration", b"iter"].iter().any(|mark| word.ends_with(mark));
    std::str::from_utf8(number).ok().filter(|_| marks)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_known_by_how_people_name_them() {
        for text in ["step 3", "Step_3", "iteration=3", "ProfilerStep#3", "train iter 3", "step: 3", "step3"] {
            assert_eq!(step(text.as_bytes()), Some(3), "{text}");
        }
        for text in ["layer 3", "step", "3", "", "stepping 3a", "step 99999999999999999999999"] {
            assert_eq!(step(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn calls_lose_their_version_and_nothing_else() {
        assert_eq!(without_version(b"cudaLaunchKernel_v7000"), b"cudaLaunchKernel");
        assert_eq!(without_version(b"cuMemcpyDtoH_v2"), b"cuMemcpyDtoH_v2");
        assert_eq!(without_version(b"_v7000"), b"");
        assert_eq!(without_version(b"7000"), b"7000");
    }
}
