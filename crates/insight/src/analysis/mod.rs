//! Figures of one rank, from one pass over its rows in the order of time.

pub mod host;
pub mod hta;
pub mod launches;
pub mod path;
pub mod steps;
pub mod unions;

use crate::trace::kernel::{Class, Kernel, Kind};
use crate::trace::names::NameId;
use crate::trace::rows::{DeviceRow, OURS};
use crate::trace::{Trace, Whose};
use host::Host;
use hta::{Hta, HtaFigures, KERNEL_WAIT_NS, Rounding};
use launches::Launches;
use std::collections::BTreeMap;
use steps::{StepFigures, Steps};
pub use unions::sum;
use unions::{Gap, Unions};

/// Idle time of the whole accelerator by what ended it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Idle {
    /// The host was too slow to launch.
    pub launch_ns: i64,
    /// The host had waited for the accelerator.
    pub sync_ns: i64,
    /// The host loaded data, or did something else.
    pub input_ns: i64,
    /// Between two kernels that were both launched in time.
    pub kernel_wait_ns: i64,
    /// Launched in time and still not started: an event, another stream, or a launch that the trace does not have.
    pub other_ns: i64,
}

impl Idle {
    /// All that the host caused.
    pub fn host_ns(&self) -> i64 {
        self.launch_ns + self.sync_ns + self.input_ns
    }
}

/// All runs of one kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KernelTotal {
    pub count: u64,
    pub total_ns: i64,
    pub longest_ns: i64,
}

/// Figures of one rank.
#[derive(Clone, Debug)]
pub struct Figures {
    pub unions: Unions,
    pub idle: Idle,
    /// By total time, most first.
    pub kernels: Vec<(NameId, Kernel, KernelTotal)>,
    /// Time of kernels by what they do, most first; overlaps count twice.
    pub kinds: Vec<(Kind, i64)>,
    /// Kernel time on tensor cores.
    pub tensor_ns: i64,
    /// Time of matrix products and attention.
    pub product_ns: i64,
    /// Time of those in 32-bit floats without tensor cores.
    pub fp32_product_ns: i64,
    /// Time of all computation; overlaps count twice.
    pub kernel_ns: i64,
    /// Copies from the host's memory, and copies to it.
    pub copied_in_ns: i64,
    pub copied_in_pageable_ns: i64,
    /// Mean estimated occupancy in percent, weighted by time.
    pub occupancy_percent: Option<f64>,
    pub launches: Launches,
    pub steps: StepFigures,
    /// Time of the host in operators and calls that do not wait, on threads that launch.
    pub dispatch_ns: i64,
    pub waits: u64,
    pub waits_ns: i64,
    pub hta: HtaFigures,
    /// The critical path of one step.
    pub path: Option<path::Path>,
}

/// Works out the figures of a trace.
pub fn figures(trace: &Trace, whose: Whose, rounding: Rounding) -> Figures {
    let mut host = Host::of(trace);
    let mut hta = Hta::of(trace, rounding);
    let mut unions = Unions::default();
    let mut idle = Idle::default();
    let mut totals = vec![KernelTotal::default(); trace.names.count()];
    let mut launches = Launches::default();
    let mut steps = Steps::of(&trace.steps, trace.steps_on_device);
    let (mut occupancy, mut occupied_ns) = (0.0, 0i64);
    for row in trace.spans(whose) {
        hta.add(trace, &row);
        if row.flags & OURS == 0 {
            continue;
        }
        let class = trace.names.kernel(row.name).class;
        if let Some(gap) = unions.add(class, row.start_ns, row.end_ns) {
            attribute(&mut idle, gap, &row, &mut host);
        }
        if let Some(total) = totals.get_mut(row.name.0 as usize) {
            total.count += 1;
            total.total_ns = total.total_ns.saturating_add(row.duration_ns());
            total.longest_ns = total.longest_ns.max(row.duration_ns());
        }
        launches.add(&row);
        steps.add(&row, class);
        if row.occupancy <= 100 {
            occupancy += f64::from(row.occupancy) * row.duration_ns() as f64;
            occupied_ns = occupied_ns.saturating_add(row.duration_ns());
        }
    }
    unions.finish();
    host.finish();
    launches.finish();
    let mut kernels: Vec<(NameId, Kernel, KernelTotal)> = totals
        .into_iter()
        .enumerate()
        .filter(|(_, total)| total.count > 0)
        .map(|(at, total)| (NameId(at as u32), trace.names.kernel(NameId(at as u32)), total))
        .collect();
    kernels.sort_by_key(|(name, _, total)| (std::cmp::Reverse(total.total_ns), *name));
    let compute = || kernels.iter().filter(|(_, kernel, _)| kernel.class == Class::Compute);
    let time = |wanted: &dyn Fn(&Kernel) -> bool| -> i64 {
        sum(compute().filter(|(_, kernel, _)| wanted(kernel)).map(|(.., total)| total.total_ns))
    };
    let copied = |start: &str| -> i64 {
        let named = kernels.iter().filter(|(name, ..)| trace.names.text(*name).starts_with(start));
        sum(named.map(|(.., total)| total.total_ns))
    };
    let product = |kernel: &Kernel| matches!(kernel.kind, Kind::Matmul | Kind::Attention);
    let fp32 = |kernel: &Kernel| {
        product(kernel) && !kernel.tensor && kernel.precision == Some(windfall_catalog::Precision::Fp32)
    };
    Figures {
        kinds: kinds(&kernels),
        tensor_ns: time(&|kernel| kernel.tensor),
        product_ns: time(&product),
        fp32_product_ns: time(&fp32),
        kernel_ns: time(&|_| true),
        copied_in_ns: copied("Memcpy HtoD"),
        copied_in_pageable_ns: copied("Memcpy HtoD (Pageable"),
        kernels: kernels.clone(),
        occupancy_percent: (occupied_ns > 0).then(|| occupancy / occupied_ns as f64),
        steps: steps.finish(),
        dispatch_ns: host.dispatch_ns.saturating_sub(host.waits_ns).saturating_sub(host.held_up_ns).max(0),
        waits: host.waits,
        waits_ns: host.waits_ns,
        hta: hta.finish(),
        path: path::path(trace, whose),
        unions,
        idle,
        launches,
    }
}

fn kinds(kernels: &[(NameId, Kernel, KernelTotal)]) -> Vec<(Kind, i64)> {
    let mut kinds: BTreeMap<Kind, i64> = BTreeMap::new();
    for (_, kernel, total) in kernels.iter().filter(|(_, kernel, _)| kernel.class == Class::Compute) {
        let time = kinds.entry(kernel.kind).or_default();
        *time = time.saturating_add(total.total_ns);
    }
    let mut kinds: Vec<(Kind, i64)> = kinds.into_iter().collect();
    kinds.sort_by_key(|(kind, ns)| (std::cmp::Reverse(*ns), *kind));
    kinds
}

/// Adds a gap to its cause.
fn attribute(idle: &mut Idle, gap: Gap, row: &DeviceRow, host: &mut Host<'_>) {
    let length = gap.end_ns - gap.start_ns;
    match row.launch {
        Some(launch) if launch.start_ns > gap.start_ns => {
            let split = host.split(gap, launch.start_ns);
            idle.launch_ns += split.launch_ns;
            idle.sync_ns += split.sync_ns;
            idle.input_ns += split.input_ns;
        }
        _ if length < KERNEL_WAIT_NS => idle.kernel_wait_ns += length,
        _ => idle.other_ns += length,
    }
}
