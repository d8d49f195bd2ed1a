//! A trace as rows in order: what the accelerator did, who launched it, what the host did meanwhile, the steps and the
//! shapes of operators. Rows are packed numbers in spools, so that memory does not grow with the file.

pub mod collect;
pub mod kernel;
pub mod names;
pub mod rows;

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
    /// Streams by number in rows: device and stream.
    pub streams: Vec<i64>,
    pub device: Sorted<{ DeviceRow::WIDTH }>,
    pub host: Sorted<{ HostRow::WIDTH }>,
    /// Whether a thread launched work on the accelerator, by number in rows.
    pub launching: Vec<bool>,
    /// Joined operators and kernels.
    pub operators: Vec<OperatorTime>,
    pub steps: Vec<Step>,
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
    pub calls: u64,
    pub time_ns: i64,
    /// Time of it on tensor cores.
    pub tensor_ns: i64,
}
