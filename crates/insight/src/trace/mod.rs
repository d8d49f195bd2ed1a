//! A trace as rows in order: what the accelerator did, who launched it, what the host did meanwhile, the steps and the
//! shapes of operators. Rows are packed numbers in spools, so that memory does not grow with the file.

mod calls;
pub mod collect;
pub mod kernel;
pub mod names;
mod owners;
pub mod rows;
pub mod xla;

use crate::spool::Sorted;
use names::Names;
use rows::{DeviceRow, HostRow};

/// What a trace says of itself.
#[derive(Clone, Debug, Default)]
pub struct Header {
    pub rank: Option<u64>,
    pub world_size: Option<u64>,
    /// The accelerators' name, such as `NVIDIA H200`.
    pub device: Option<String>,
    /// Streaming multiprocessors of the first accelerator.
    pub multiprocessors: Option<u64>,
    pub program: Program,
}

/// What a program is written with: advice is given in its words.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Program {
    #[default]
    Torch,
    Jax,
    /// The trace does not say.
    Cuda,
}

impl Program {
    /// How such a program marks its steps.
    pub fn step_words(self) -> &'static str {
        match self {
            Program::Torch => "`profiler.step()`",
            Program::Jax => "`jax.profiler.StepTraceAnnotation`",
            Program::Cuda => "NVTX ranges named `step 1`, `step 2`, …",
        }
    }
}

/// An accelerator of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Device {
    /// As the trace numbers it.
    pub number: u64,
    /// The trace has work of it.
    pub worked: bool,
}

/// A step that the program marked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    pub number: u64,
    pub start_ns: i64,
    pub end_ns: i64,
}

/// What went wrong in single events; they are counted, not listed.
#[derive(Clone, Copy, Debug, Default)]
pub struct Oddities {
    /// Spans without a start or a duration.
    pub unfinished: u64,
    pub negative: u64,
    /// Spans whose times cannot be.
    pub impossible: u64,
    /// Accelerator spans that no launch in the trace belongs to.
    pub without_launch: u64,
    /// Markers of synchronisation among the accelerator's spans.
    pub sync_markers: u64,
}

/// What HTA needs beyond our own figures.
#[derive(Clone, Copy, Debug, Default)]
pub struct HtaFacts {
    /// Distinct names with `ProfilerStep` in them.
    pub step_names: usize,
    /// The latest start of such a span, on host or accelerator.
    pub last_step_ns: Option<i64>,
    /// Some start was written with a fraction of a microsecond.
    pub fraction: bool,
}

/// A trace, ready to be analysed.
pub struct Trace {
    pub header: Header,
    pub names: Names,
    /// Streams by number in rows: place of the accelerator, and stream.
    pub streams: Vec<(u16, i64)>,
    pub devices: Vec<Device>,
    pub device: Sorted<{ DeviceRow::WIDTH }>,
    pub host: Sorted<{ HostRow::WIDTH }>,
    /// Whether a thread launched work on the accelerator, by number in rows.
    pub launching: Vec<bool>,
    /// Joined operators and kernels.
    operators: Vec<OperatorTime>,
    pub steps: Vec<Step>,
    /// An accelerator saw these steps, and not the host.
    pub steps_on_device: bool,
    pub oddities: Oddities,
    pub hta: HtaFacts,
    pub events: u64,
    /// Host spans that were seen, kept or not.
    pub host_events: u64,
    /// Operators with shapes that were seen.
    pub shaped: u64,
}

/// Kernel time of one operator with given shapes.
#[derive(Clone, Debug, PartialEq)]
pub struct OperatorTime {
    pub name: String,
    /// `Input Dims` as written.
    pub shapes: String,
    /// `Input type` as written.
    pub types: String,
    /// `Concrete Inputs` as written, where the arithmetic depends on it.
    pub values: String,
    /// Place of the accelerator that ran the kernels.
    pub device: u16,
    pub calls: u64,
    pub time_ns: i64,
    /// Time of it on tensor cores.
    pub tensor_ns: i64,
}

impl Trace {
    /// A stream as the program numbers it.
    pub fn stream(&self, in_row: u16) -> i64 {
        self.streams.get(usize::from(in_row)).map_or(-1, |(_, stream)| *stream)
    }

    /// Places of the accelerators that worked, in the order of their numbers.
    pub fn worked(&self) -> Vec<u16> {
        let mut worked: Vec<(u64, u16)> = (0u16..)
            .zip(&self.devices)
            .filter(|(_, device)| device.worked)
            .map(|(at, device)| (device.number, at))
            .collect();
        worked.sort_unstable();
        worked.into_iter().map(|(_, at)| at).collect()
    }
}

impl OperatorTime {
    /// Adds the time of a kernel.
    pub fn add(&mut self, time_ns: i64, tensor: bool) {
        self.time_ns = self.time_ns.saturating_add(time_ns);
        self.tensor_ns = self.tensor_ns.saturating_add(if tensor { time_ns } else { 0 });
    }
}

/// One accelerator of a trace, or all of them as one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whose {
    All,
    One(u16),
}

impl Trace {
    /// Operators with shapes and the time of their kernels.
    pub fn operators(&self, whose: Whose) -> Vec<OperatorTime> {
        let mut merged: Vec<OperatorTime> = Vec::new();
        for operator in &self.operators {
            let same = |other: &&mut OperatorTime| {
                (&other.name, &other.shapes, &other.types, &other.values)
                    == (&operator.name, &operator.shapes, &operator.types, &operator.values)
            };
            match (whose, self.devices.len()) {
                (Whose::One(device), _) if operator.device != device => {}
                (Whose::All, 2..) => match merged.iter_mut().find(same) {
                    Some(known) => {
                        known.calls += operator.calls;
                        known.time_ns = known.time_ns.saturating_add(operator.time_ns);
                        known.tensor_ns = known.tensor_ns.saturating_add(operator.tensor_ns);
                    }
                    None => merged.push(operator.clone()),
                },
                _ => merged.push(operator.clone()),
            }
        }
        merged
    }

    /// Spans of accelerators in order.
    pub fn spans(&self, whose: Whose) -> impl Iterator<Item = DeviceRow> + '_ {
        self.device.iter().map(DeviceRow::unpack).filter(move |row| match whose {
            Whose::All => true,
            Whose::One(device) => self.streams.get(usize::from(row.stream)).is_none_or(|(place, _)| *place == device),
        })
    }
}
