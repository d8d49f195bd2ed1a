//! Events in, rows out: picks what the analysis needs from every event and forgets the rest.

use super::calls::{HostName, host_name};
use super::kernel::Class;
use super::names::{NameId, Names};
use super::owners::own;
use super::rows::{CORRELATED, DeviceRow, Doing, HTA_IDLE, HTAS, HostRow, Launch, OURS, PairRow};
use super::xla::{Lines, Meaning};
use super::{Device, Header, HtaFacts, Oddities, OperatorTime, Program, Step, Trace, xla};
use crate::read::Visitor;
use crate::read::event::Event;
use crate::read::json::{integer, text};
use crate::roofline::operators;
use crate::spool::{Sorted, Spool};
use std::borrow::Cow;
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
    /// Streams by number in rows: accelerator and stream.
    streams: Vec<(u16, i64)>,
    stream_index: HashMap<(u64, i64), u16>,
    threads: HashMap<(u64, u64), u16>,
    last_thread: Option<((u64, u64), u16)>,
    /// The span that was last kept of each thread: what lies within it is not kept again.
    covered: Vec<(i64, i64)>,
    devices: Vec<Device>,
    pairs: Spool<{ PairRow::WIDTH }>,
    device: Spool<{ DeviceRow::WIDTH }>,
    host: Spool<{ HostRow::WIDTH }>,
    /// Operators and kernels by external id.
    owners: Spool<3>,
    shapes: HashMap<Box<[u8]>, u64>,
    operators: Vec<OperatorTime>,
    steps: Vec<Step>,
    /// Steps as an accelerator saw them.
    device_steps: Vec<Step>,
    xla: Lines,
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
            devices: Vec::new(),
            pairs: Spool::new(budget.bytes / 3),
            device: Spool::new(budget.bytes / 3),
            host: Spool::new(budget.bytes / 6),
            owners: Spool::new(budget.bytes / 6),
            shapes: HashMap::new(),
            operators: Vec::new(),
            steps: Vec::new(),
            device_steps: Vec::new(),
            xla: Lines::default(),
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
        let operators = own(&owners, &self.operators);
        // Without launches nothing on the accelerator belongs to a step of the host.
        let steps_on_device = !self.device_steps.is_empty() && (self.steps.is_empty() || !launching.contains(&true));
        if steps_on_device {
            self.steps = self.device_steps;
        }
        self.steps.sort_by_key(|step| (step.start_ns, step.number));
        self.steps.dedup();
        self.hta.step_names = self.step_names.len();
        Ok(Trace {
            header: self.header,
            names: self.names,
            streams: self.streams,
            devices: self.devices,
            device: self.device.sorted()?,
            host: self.host.sorted()?,
            launching,
            operators,
            steps: self.steps,
            steps_on_device,
            oddities: self.oddities,
            hta: self.hta,
            events: self.events,
            host_events: self.host_events,
            shaped: self.shaped,
        })
    }

    /// Says which kind of program the events are of, and on which accelerator, where no field of a file does.
    pub fn about(&mut self, program: Program, device: Option<String>) {
        self.header.program = program;
        self.header.device = device.or(self.header.device.take());
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

    fn stream(&mut self, device: u64, stream: i64) -> u16 {
        if let Some(known) = self.stream_index.get(&(device, stream)) {
            return *known;
        }
        let at = self.devices.iter().position(|known| known.number == device).unwrap_or_else(|| {
            self.devices.push(Device { number: device, worked: false });
            self.devices.len() - 1
        });
        let index = u16::try_from(self.streams.len()).unwrap_or(u16::MAX);
        self.stream_index.insert((device, stream), index);
        if usize::from(index) == self.streams.len() {
            self.streams.push((u16::try_from(at).unwrap_or(u16::MAX), stream));
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
        let correlation = event.correlation.filter(|correlation| *correlation >= 0);
        flags |= if correlation.is_some() { CORRELATED } else { 0 };
        let occupancy = event.occupancy.map_or(255, |percent| percent.clamp(0.0, 100.0).round() as u8);
        // A span that does not say whose it is counts as the first accelerator's.
        let device = if event.process.is_empty() { 0 } else { number(event.process) };
        let stream = self.stream(device, event.stream.unwrap_or(-1));
        if flags & OURS != 0
            && let Some((device, _)) = self.streams.get(usize::from(stream))
            && let Some(device) = self.devices.get_mut(usize::from(*device))
        {
            device.worked = true;
        }
        let end_ns = start_ns.saturating_add(duration_ns);
        let span = DeviceRow { start_ns, end_ns, stream, flags, occupancy, name, launch: None };
        if let Some(external) = event.external.filter(|_| flags & OURS != 0) {
            let time = (duration_ns as u64).min(u64::MAX >> 1);
            let device = self.streams.get(usize::from(stream)).map_or(0, |(device, _)| *device);
            self.owners.push([external as u64, 1 + u64::from(device), time << 1 | u64::from(kernel.tensor)]);
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
            device: 0,
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

    /// An event of a trace that XLA wrote.
    fn xla(&mut self, event: &Event<'_>, meaning: Meaning, start_ns: i64, duration_ns: i64) {
        self.header.program = Program::Jax;
        let step = |number| Step { number, start_ns, end_ns: start_ns.saturating_add(duration_ns) };
        let said = match meaning {
            Meaning::Span { .. } => xla::name(event),
            _ => None,
        };
        let name = said.as_ref().map_or(Cow::Borrowed(event.name), |said| Cow::Borrowed(said.as_bytes()));
        match meaning {
            Meaning::Span { device, stream } => {
                let device = device.to_string();
                let event = Event { name: &name, process: device.as_bytes(), stream: Some(stream), ..*event };
                self.device_span(&event, start_ns, duration_ns, true);
            }
            Meaning::Launch => self.call(event, start_ns, duration_ns),
            Meaning::Wait => {
                let thread = self.thread(event);
                self.host_span(thread, start_ns, duration_ns, Doing::Waiting);
            }
            Meaning::Work => {
                let thread = self.thread(event);
                self.host_span(thread, start_ns, duration_ns, Doing::Work);
            }
            Meaning::Step(number) => self.steps.push(step(number)),
            Meaning::DeviceStep(number) => self.device_steps.push(step(number)),
            Meaning::Nothing => {}
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
        if event.phase == b'M' {
            self.xla.named(event, number(event.process), number(event.thread));
            return;
        }
        let side = side(event.category);
        let meaning = match event.category.is_empty() && self.xla.known() {
            true => self.xla.meaning(event, number(event.process), number(event.thread)),
            false => Meaning::Nothing,
        };
        let counted = side != Side::Ignored && !event.category.is_empty() || meaning != Meaning::Nothing;
        let span = matches!(event.phase, b'X' | 0) && counted;
        if !span || side == Side::Unknown && event.stream.is_none() && meaning == Meaning::Nothing {
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
        if meaning != Meaning::Nothing {
            return self.xla(event, meaning, start_ns, duration_ns);
        }
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
