//! Events in, rows out: picks what the analysis needs from every event and forgets the rest.

use super::kernel::Class;
use super::names::{NameId, Names};
use super::rows::{CORRELATED, DeviceRow, Doing, HTA_IDLE, HTAS, HostRow, Launch, OURS, PairRow};
use super::{Header, HtaFacts, Oddities, OperatorTime, Step, Trace};
use crate::read::Visitor;
use crate::read::event::Event;
use crate::read::json::{integer, text};
use crate::roofline::operators;
use crate::spool::{Sorted, Spool};
use std::collections::{BTreeSet, HashMap};
use std::hash::{DefaultHasher, Hash, Hasher};

/// Where an event belongs.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    Device,
    /// A call into the driver or the runtime library.
    Call,
    Operator,
    Annotation,
    DeviceAnnotation,
    SyncMarker,
    /// Everything else, which is work of the accelerator if it has a stream.
    Unknown,
    Ignored,
}

fn side(category: &[u8]) -> Side {
    match category {
        b"kernel" | b"Kernel" | b"gpu_memcpy" | b"Memcpy" | b"gpu_memset" | b"Memset" | b"concurrent_kernel"
        | b"mtia_ccp_events" => Side::Device,
        b"cuda_runtime"
        | b"cuda_driver"
        | b"Runtime"
        | b"mtia_runtime"
        | b"hip_runtime"
        | b"xpu_runtime"
        | b"glow_runtime"
        | b"privateuse1_runtime"
        | b"privateuse1_driver" => Side::Call,
        b"cpu_op" | b"Operator" => Side::Operator,
        b"user_annotation" => Side::Annotation,
        b"gpu_user_annotation" => Side::DeviceAnnotation,
        b"cuda_sync" => Side::SyncMarker,
        b"python_function" | b"ac2g" | b"fwdbwd" | b"async_cpu_to_gpu" | b"async" | b"cpu_instant_event" | b"Trace"
        | b"overhead" => Side::Ignored,
        _ => Side::Unknown,
    }
}

/// A call that only puts work into a queue takes a few microseconds; one that takes longer than this was held up.
const HELD_UP_NS: i64 = 200_000;

/// A time further from 1970 than this, 126 years, is a mistake; so is a span of more than four years. Within these
/// bounds differences of times always fit into a number.
const LATEST_NS: i64 = 4_000_000_000_000_000_000;
const LONGEST_NS: i64 = LATEST_NS / 32;

/// What a name means on the host.
#[derive(Clone, Copy, PartialEq, Eq)]
struct HostName {
    waits: bool,
    /// Asks the driver something and launches nothing.
    asks: bool,
    loads: bool,
    /// An operator whose arithmetic is known.
    counted: bool,
}

fn host_name(name: &str) -> HostName {
    let has = |words: &[&str]| words.iter().any(|word| name.contains(word));
    HostName {
        waits: has(&["Synchronize", "hipMemcpyWithStream"])
            || matches!(name, "cudaMemcpy" | "hipMemcpy" | "cuMemcpyDtoH_v2"),
        asks: has(&["Get", "Query", "Peek", "IsCapturing", "Attribute", "Occupancy", "EventRecord", "EventCreate"]),
        loads: name.to_ascii_lowercase().contains("dataloader"),
        counted: operators::is_known(name),
    }
}

/// Bytes of rows that are kept in memory, by what they are.
#[derive(Clone, Copy, Debug)]
pub struct Budget {
    pub bytes: usize,
}

/// Turns events into rows.
pub struct Collector {
    header: Header,
    names: Names,
    host_names: Vec<Option<HostName>>,
    streams: Vec<i64>,
    stream_index: HashMap<i64, u16>,
    threads: HashMap<(u64, u64), u16>,
    last_thread: Option<((u64, u64), u16)>,
    /// The span that was last kept of each thread: what lies within it is not kept again.
    covered: Vec<(i64, i64)>,
    devices: BTreeSet<u64>,
    pairs: Spool<{ PairRow::WIDTH }>,
    device: Spool<{ DeviceRow::WIDTH }>,
    host: Spool<{ HostRow::WIDTH }>,
    /// Operators and kernels by external id.
    owners: Spool<3>,
    shapes: HashMap<Box<[u8]>, u64>,
    operators: Vec<OperatorTime>,
    steps: Vec<Step>,
    step_names: BTreeSet<NameId>,
    oddities: Oddities,
    hta: HtaFacts,
    events: u64,
    host_events: u64,
    shaped: u64,
}

impl Collector {
    /// With nothing seen yet.
    pub fn new(budget: Budget) -> Collector {
        Collector {
            header: Header::default(),
            names: Names::default(),
            host_names: Vec::new(),
            streams: Vec::new(),
            stream_index: HashMap::new(),
            threads: HashMap::new(),
            last_thread: None,
            covered: Vec::new(),
            devices: BTreeSet::new(),
            pairs: Spool::new(budget.bytes / 3),
            device: Spool::new(budget.bytes / 3),
            host: Spool::new(budget.bytes / 6),
            owners: Spool::new(budget.bytes / 6),
            shapes: HashMap::new(),
            operators: Vec::new(),
            steps: Vec::new(),
            step_names: BTreeSet::new(),
            oddities: Oddities::default(),
            hta: HtaFacts::default(),
            events: 0,
            host_events: 0,
            shaped: 0,
        }
    }

    /// Joins launches with what they launched and operators with their kernels.
    pub fn finish(mut self) -> std::io::Result<Trace> {
        let pairs = std::mem::replace(&mut self.pairs, Spool::new(0)).sorted()?;
        let mut launching = vec![false; self.covered.len()];
        self.join(&pairs, &mut launching);
        drop(pairs);
        let owners = self.owners.sorted()?;
        own(&owners, &mut self.operators);
        self.steps.sort_by_key(|step| (step.start_ns, step.number));
        self.steps.dedup();
        self.hta.step_names = self.step_names.len();
        self.operators.retain(|operator| operator.calls > 0);
        Ok(Trace {
            header: self.header,
            names: self.names,
            streams: self.streams,
            device: self.device.sorted()?,
            host: self.host.sorted()?,
            launching,
            operators: self.operators,
            steps: self.steps,
            oddities: self.oddities,
            hta: self.hta,
            events: self.events,
            host_events: self.host_events,
            shaped: self.shaped,
        })
    }

    /// How many accelerators the spans are of.
    pub fn devices(&self) -> usize {
        self.devices.len()
    }

    fn join(&mut self, pairs: &Sorted<{ PairRow::WIDTH }>, launching: &mut [bool]) {
        let mut known: Option<(i64, Launch)> = None;
        for row in pairs.iter() {
            match PairRow::unpack(row) {
                PairRow::Launch { correlation, launch } => {
                    // Where several calls have one correlation, the first one put the work into the stream.
                    if known.is_none_or(|(other, _)| other != correlation) {
                        known = Some((correlation, launch));
                    }
                }
                PairRow::Device { correlation, mut span } => {
                    span.launch = known.filter(|(other, _)| *other == correlation).map(|(_, launch)| launch);
                    match span.launch.and_then(|launch| launching.get_mut(usize::from(launch.thread))) {
                        Some(thread) => *thread |= span.flags & OURS != 0,
                        None => self.oddities.without_launch += u64::from(span.flags & OURS != 0),
                    }
                    self.device.push(span.pack());
                }
            }
        }
    }

    fn host_name(&mut self, id: NameId) -> HostName {
        let at = id.0 as usize;
        if self.host_names.len() <= at {
            self.host_names.resize(at + 1, None);
        }
        *self.host_names[at].get_or_insert_with(|| host_name(self.names.text(id)))
    }

    fn thread(&mut self, event: &Event<'_>) -> u16 {
        let key = (number(event.process), number(event.thread));
        if let Some((known, thread)) = self.last_thread
            && known == key
        {
            return thread;
        }
        // Threads beyond the numbers that fit into a row are counted as one.
        let next = u16::try_from(self.threads.len()).unwrap_or(u16::MAX);
        let thread = *self.threads.entry(key).or_insert(next);
        if self.covered.len() <= usize::from(thread) {
            self.covered.resize(usize::from(thread) + 1, (i64::MAX, i64::MIN));
        }
        self.last_thread = Some((key, thread));
        thread
    }

    fn stream(&mut self, stream: i64) -> u16 {
        let next = u16::try_from(self.streams.len()).unwrap_or(u16::MAX);
        let index = *self.stream_index.entry(stream).or_insert(next);
        if usize::from(index) == self.streams.len() {
            self.streams.push(stream);
        }
        index
    }

    fn device_span(&mut self, event: &Event<'_>, start_ns: i64, duration_ns: i64, ours: bool) {
        let name = self.names.id(event.name);
        let kernel = self.names.kernel(name);
        let marker = kernel.class == Class::Sync;
        self.oddities.sync_markers += u64::from(marker || !ours);
        let mut flags = if ours && !marker { OURS } else { 0 };
        if event.stream.is_some_and(|stream| stream != -1) {
            flags |= HTAS;
            let categories: [&[u8]; 7] =
                [b"kernel", b"Kernel", b"gpu_memset", b"Memset", b"gpu_memcpy", b"Memcpy", b"mtia_ccp_events"];
            flags |= if categories.contains(&event.category) { HTA_IDLE } else { 0 };
        }
        if flags & OURS != 0 {
            self.devices.insert(number(event.process));
        }
        let correlation = event.correlation.filter(|correlation| *correlation >= 0);
        flags |= if correlation.is_some() { CORRELATED } else { 0 };
        let occupancy = event.occupancy.map_or(255, |percent| percent.clamp(0.0, 100.0).round() as u8);
        let stream = self.stream(event.stream.unwrap_or(-1));
        let end_ns = start_ns.saturating_add(duration_ns);
        let span = DeviceRow { start_ns, end_ns, stream, flags, occupancy, name, launch: None };
        if let Some(external) = event.external.filter(|_| flags & OURS != 0) {
            let time = (duration_ns as u64).min(u64::MAX >> 1);
            self.owners.push([external as u64, 1, time << 1 | u64::from(kernel.tensor)]);
        }
        match correlation {
            Some(correlation) => self.pairs.push(PairRow::Device { correlation, span }.pack()),
            None => {
                self.oddities.without_launch += u64::from(flags & OURS != 0);
                self.device.push(span.pack());
            }
        }
    }

    fn call(&mut self, event: &Event<'_>, start_ns: i64, duration_ns: i64) {
        let id = self.names.id(event.name);
        let name = self.host_name(id);
        let thread = self.thread(event);
        if let Some(correlation) = event.correlation.filter(|correlation| *correlation >= 0 && !name.asks) {
            let duration_ns = u32::try_from(duration_ns).unwrap_or(u32::MAX);
            self.pairs.push(PairRow::Launch { correlation, launch: Launch { start_ns, duration_ns, thread } }.pack());
        }
        let doing = match () {
            () if name.waits => Doing::Waiting,
            () if duration_ns >= HELD_UP_NS && !name.asks => Doing::HeldUp,
            () => Doing::Work,
        };
        self.host_span(thread, start_ns, duration_ns, doing);
    }

    fn operator(&mut self, event: &Event<'_>, start_ns: i64, duration_ns: i64, annotation: bool) {
        let id = self.names.id(event.name);
        let name = self.host_name(id);
        let thread = self.thread(event);
        if name.loads {
            self.host_span(thread, start_ns, duration_ns, Doing::Loading);
        } else if !annotation {
            self.host_span(thread, start_ns, duration_ns, Doing::Work);
        }
        if let Some(external) = event.external
            && name.counted
            && !event.shapes.is_empty()
        {
            self.shaped += 1;
            let key = self.shape(event);
            self.owners.push([external as u64, 0, key]);
        }
    }

    fn shape(&mut self, event: &Event<'_>) -> u64 {
        let values = if operators::needs_values(event.name) { event.values } else { &[] };
        let key: Vec<u8> = [event.name, event.shapes, event.types, values].join(&0);
        if let Some(known) = self.shapes.get(key.as_slice()) {
            return *known;
        }
        let number = self.operators.len() as u64;
        let written = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        self.operators.push(OperatorTime {
            name: text(event.name),
            shapes: written(event.shapes),
            types: written(event.types),
            values: written(values),
            calls: 0,
            time_ns: 0,
            tensor_ns: 0,
        });
        self.shapes.insert(key.into(), number);
        number
    }

    fn host_span(&mut self, thread: u16, start_ns: i64, duration_ns: i64, doing: Doing) {
        self.host_events += 1;
        let end_ns = start_ns.saturating_add(duration_ns);
        let covered = &mut self.covered[usize::from(thread)];
        if doing == Doing::Work {
            if covered.0 <= start_ns && end_ns <= covered.1 {
                return;
            }
            *covered = (start_ns, end_ns);
        }
        self.host.push(HostRow { start_ns, end_ns, thread, doing }.pack());
    }

    fn step(&mut self, event: &Event<'_>, start_ns: i64, duration_ns: i64, side: Side) {
        let id = self.names.id(event.name);
        self.step_names.insert(id);
        self.hta.last_step_ns = self.hta.last_step_ns.max(Some(start_ns));
        let digits = event.name.split(|byte| *byte == b'#').nth(1).and_then(|digits| integer(digits.trim_ascii()));
        if let Some(number) = digits.and_then(|number| u64::try_from(number).ok())
            && side != Side::DeviceAnnotation
        {
            self.steps.push(Step { number, start_ns, end_ns: start_ns.saturating_add(duration_ns) });
        }
    }
}

/// A process or a thread as a number, whatever it is called.
fn number(written: &[u8]) -> u64 {
    if let Some(number) = integer(written) {
        return number as u64;
    }
    let mut hasher = DefaultHasher::new();
    written.hash(&mut hasher);
    hasher.finish()
}

/// Adds kernel time to the operators that it belongs to.
fn own(owners: &Sorted<3>, operators: &mut [OperatorTime]) {
    let mut owner: Option<(u64, usize, bool)> = None;
    for [external, what, value] in owners.iter() {
        if what == 0 {
            owner = Some((external, value as usize, false));
        } else if let Some((of, at, counted)) = &mut owner
            && *of == external
            && let Some(operator) = operators.get_mut(*at)
        {
            operator.calls += u64::from(!std::mem::replace(counted, true));
            let time = (value >> 1) as i64;
            operator.time_ns = operator.time_ns.saturating_add(time);
            operator.tensor_ns = operator.tensor_ns.saturating_add(if value & 1 == 1 { time } else { 0 });
        }
    }
}

impl Visitor for Collector {
    fn field(&mut self, name: &[u8], value: &[u8]) {
        if !matches!(name, b"deviceProperties" | b"distributedInfo") {
            return;
        }
        let Ok(value) = serde_json::from_slice::<serde_json::Value>(value) else { return };
        if name == b"distributedInfo" {
            self.header.rank = value["rank"].as_u64();
            self.header.world_size = value["world_size"].as_u64();
        } else {
            self.header.device = value[0]["name"].as_str().map(str::to_owned);
            self.header.multiprocessors = value[0]["numSms"].as_u64();
        }
    }

    fn event(&mut self, event: &Event<'_>) {
        self.events += 1;
        let side = side(event.category);
        let span = matches!(event.phase, b'X' | 0) && side != Side::Ignored && !event.category.is_empty();
        if !span || side == Side::Unknown && event.stream.is_none() {
            return;
        }
        let (Some(start_ns), Some(duration_ns)) = (event.start_ns, event.duration_ns) else {
            self.oddities.unfinished += 1;
            return;
        };
        if start_ns.abs() > LATEST_NS || duration_ns > LONGEST_NS {
            self.oddities.impossible += 1;
            return;
        }
        if duration_ns < 0 {
            self.oddities.negative += 1;
            return;
        }
        self.hta.fraction |= event.fraction;
        if event.name.starts_with(b"ProfilerStep") {
            return self.step(event, start_ns, duration_ns, side);
        }
        match side {
            Side::Device | Side::Unknown => self.device_span(event, start_ns, duration_ns, true),
            Side::SyncMarker => self.device_span(event, start_ns, duration_ns, false),
            Side::Call => self.call(event, start_ns, duration_ns),
            Side::Operator => self.operator(event, start_ns, duration_ns, false),
            Side::Annotation => self.operator(event, start_ns, duration_ns, true),
            Side::DeviceAnnotation | Side::Ignored => {}
        }
    }
}
