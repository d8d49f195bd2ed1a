//! The figures of Holistic Trace Analysis 0.5.0, by its definitions.
//!
//! They differ from ours where HTA drops the last step, drops spans whose launch is not in the trace, counts markers of
//! synchronisation as work, adds up idle time stream by stream, and (unless told otherwise) rounds starts up and ends down
//! to microseconds, which makes short kernels vanish.

use super::unions::{COMMUNICATION, COMPUTE, Unions};
use crate::trace::kernel::Class;
use crate::trace::rows::{CORRELATED, DeviceRow, HTA_IDLE, HTAS};
use crate::trace::{HtaFacts, Trace};
use serde::Serialize;
use std::collections::BTreeMap;

/// A gap below this is the accelerator's own time between two kernels.
pub const KERNEL_WAIT_NS: i64 = 30_000;

/// Whether times are rounded to microseconds first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rounding {
    /// As HTA with `HTA_DISABLE_NS_ROUNDING=1`.
    Exact,
    /// As HTA does by itself.
    Rounded,
}

/// Idle time of one stream, or of all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct IdleByCause {
    pub host_wait: f64,
    pub kernel_wait: f64,
    pub other: f64,
}

/// HTA's figures, in microseconds.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct HtaFigures {
    pub kernel_time_us: f64,
    pub idle_us: f64,
    pub compute_us: f64,
    pub communication_us: f64,
    pub memory_us: f64,
    /// Share of communication under which computation runs; none without communication.
    pub overlap_percent: Option<f64>,
    pub idle_by_stream_us: Vec<(i64, IdleByCause)>,
}

/// One union as HTA merges it: what rounding made negative stays negative.
#[derive(Clone, Copy, Default)]
struct Merged {
    open: Option<(i64, i64)>,
    total_ns: i64,
    first_ns: Option<i64>,
    last_ns: i64,
}

impl Merged {
    fn add(&mut self, start: i64, end: i64) {
        self.first_ns.get_or_insert(start);
        match &mut self.open {
            Some((_, until)) if start <= *until => *until = (*until).max(end),
            _ => {
                self.close();
                self.open = Some((start, end));
            }
        }
    }

    fn close(&mut self) {
        if let Some((start, end)) = self.open.take() {
            self.total_ns = self.total_ns.saturating_add(end - start);
            self.last_ns = end;
        }
    }
}

/// Adds up spans in the order of their starts.
pub struct Hta {
    facts: HtaFacts,
    rounding: Rounding,
    all: Merged,
    classes: [Merged; 3],
    unions: Unions,
    /// Until when the last span of each stream went on, and its idle time so far by cause.
    streams: BTreeMap<i64, (i64, [i64; 3])>,
}

impl Hta {
    /// Nothing added yet.
    pub fn of(trace: &Trace, rounding: Rounding) -> Hta {
        let rounding = if trace.hta.fraction { rounding } else { Rounding::Exact };
        Hta {
            facts: trace.hta,
            rounding,
            all: Merged::default(),
            classes: [Merged::default(); 3],
            unions: Unions::default(),
            streams: BTreeMap::new(),
        }
    }

    fn span(&self, row: &DeviceRow) -> (i64, i64) {
        match self.rounding {
            Rounding::Exact => {
                let start = self.start(row.start_ns);
                (start, start.saturating_add(row.duration_ns()))
            }
            Rounding::Rounded => {
                let end = as_float(row.start_ns) + row.duration_ns() as f64 / 1_000.0;
                (self.start(row.start_ns), (end.floor() as i64).saturating_mul(1_000))
            }
        }
    }

    fn start(&self, time_ns: i64) -> i64 {
        let float = as_float(time_ns);
        let whole = match self.rounding {
            Rounding::Exact => float.floor(),
            Rounding::Rounded => float.ceil(),
        };
        let rest = if self.rounding == Rounding::Exact { ((float - whole) * 1_000.0).round() as i64 } else { 0 };
        (whole as i64).saturating_mul(1_000).saturating_add(rest)
    }

    /// Adds a span.
    pub fn add(&mut self, trace: &Trace, row: &DeviceRow) {
        if row.flags & HTAS == 0 {
            return;
        }
        let stream = trace.stream(row.stream);
        let launched = row.launch.map(|launch| self.start(launch.start_ns));
        // With more than one step, only what was launched before the last one counts.
        if self.facts.step_names > 1 {
            let last = self.facts.last_step_ns.map_or(i64::MAX, |last| self.start(last));
            if stream < 0 || row.flags & CORRELATED == 0 || launched.is_none_or(|launched| launched >= last) {
                return;
            }
        }
        let (start, end) = self.span(row);
        self.all.add(start, end);
        let class = trace.names.kernel(row.name).hta_class;
        let merged = match class {
            Class::Compute => Some(0),
            Class::Communication => Some(1),
            Class::Memory => Some(2),
            Class::Sync => None,
        };
        if let Some(at) = merged {
            self.classes[at].add(start, end);
            self.unions.add(class, start, end.max(start));
        }
        if row.flags & HTA_IDLE != 0 {
            self.idle(stream, start, end, launched);
        }
    }

    fn idle(&mut self, stream: i64, start: i64, end: i64, launched: Option<i64>) {
        use std::collections::btree_map::Entry;
        match self.streams.entry(stream) {
            Entry::Vacant(new) => {
                new.insert((end, [0; 3]));
            }
            Entry::Occupied(mut known) => {
                let (until, idle) = known.get_mut();
                let gap = start - *until;
                let cause = match launched {
                    Some(launched) if launched > *until => 0,
                    _ if gap < KERNEL_WAIT_NS => 1,
                    _ => 2,
                };
                idle[cause] = idle[cause].saturating_add(gap);
                *until = end;
            }
        }
    }

    /// The figures.
    pub fn finish(mut self) -> HtaFigures {
        self.all.close();
        self.classes.iter_mut().for_each(Merged::close);
        self.unions.finish();
        let kernel_time = self.all.last_ns - self.all.first_ns.unwrap_or(self.all.last_ns);
        let [compute, communication, memory] = self.classes.map(|merged| merged.total_ns);
        let idle = |[host_wait, kernel_wait, other]: [i64; 3]| IdleByCause {
            host_wait: micros(host_wait),
            kernel_wait: micros(kernel_wait),
            other: micros(other),
        };
        let shared = self.unions.both(COMPUTE, COMMUNICATION);
        HtaFigures {
            kernel_time_us: micros(kernel_time),
            idle_us: micros(kernel_time - self.all.total_ns),
            compute_us: micros(compute),
            communication_us: micros(communication),
            memory_us: micros(memory),
            overlap_percent: (communication > 0).then(|| 100.0 * shared as f64 / communication as f64),
            idle_by_stream_us: self.streams.into_iter().map(|(stream, (_, ns))| (stream, idle(ns))).collect(),
        }
    }
}

/// A time as HTA holds it: microseconds in a double, which late in this century's clock are a quarter apart.
fn as_float(time_ns: i64) -> f64 {
    (time_ns.div_euclid(1_000)) as f64 + time_ns.rem_euclid(1_000) as f64 / 1_000.0
}

fn micros(ns: i64) -> f64 {
    ns as f64 / 1_000.0
}
