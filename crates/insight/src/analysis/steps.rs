//! What single steps took, and how much they differ.

use crate::trace::Step;
use crate::trace::kernel::Class;
use crate::trace::rows::DeviceRow;
use serde::Serialize;

/// One step.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct StepTime {
    pub number: u64,
    /// From its beginning to the next one's; the last step as long as it was marked.
    pub time_us: f64,
    /// Time of the kernels that it launched.
    pub kernels_us: f64,
    pub launches: u64,
}

/// All steps.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StepFigures {
    pub steps: Vec<StepTime>,
    /// From the first step's beginning to the last one's end, on the host or on the accelerator, whichever is longer:
    /// a host that runs ahead finishes its steps before the accelerator does.
    pub span_us: f64,
}

impl StepFigures {
    /// The time of a step, all of them taken together.
    pub fn mean_us(&self) -> Option<f64> {
        (!self.steps.is_empty()).then(|| self.span_us / self.steps.len() as f64)
    }

    /// Standard deviation as a share of the mean.
    pub fn variation(&self) -> Option<f64> {
        let all: f64 = self.steps.iter().map(|step| step.time_us).sum();
        let mean = Some(all / self.steps.len() as f64).filter(|mean| *mean > 0.0 && self.steps.len() > 1)?;
        let squares: f64 = self.steps.iter().map(|step| (step.time_us - mean).powi(2)).sum();
        Some((squares / (self.steps.len() - 1) as f64).sqrt() / mean)
    }

    /// The longest step.
    pub fn longest(&self) -> Option<&StepTime> {
        self.steps.iter().max_by(|one, other| one.time_us.total_cmp(&other.time_us))
    }
}

/// Adds spans to the steps that launched them.
pub struct Steps<'t> {
    steps: &'t [Step],
    kernels_ns: Vec<i64>,
    launches: Vec<u64>,
    /// Spans belong to steps by their own time, not by their launch's.
    on_device: bool,
    /// The first start and the last end of what the steps launched.
    device_ns: Option<(i64, i64)>,
}

impl<'t> Steps<'t> {
    /// Steps in the order of their starts, with nothing added yet.
    pub fn of(steps: &'t [Step], on_device: bool) -> Steps<'t> {
        Steps { steps, kernels_ns: vec![0; steps.len()], launches: vec![0; steps.len()], on_device, device_ns: None }
    }

    /// Adds a span to the step that launched it.
    pub fn add(&mut self, row: &DeviceRow, class: Class) {
        let launched = row.launch.map(|launch| launch.start_ns);
        let Some(time_ns) = launched.or(self.on_device.then_some(row.start_ns)) else { return };
        let after = self.steps.partition_point(|step| step.start_ns <= time_ns);
        let Some(at) = after.checked_sub(1).filter(|at| time_ns < self.steps[*at].end_ns) else { return };
        self.launches[at] += u64::from(launched.is_some());
        let (first, last) = self.device_ns.unwrap_or((row.start_ns, row.end_ns));
        self.device_ns = Some((first.min(row.start_ns), last.max(row.end_ns)));
        let time = if class == Class::Compute { row.duration_ns() } else { 0 };
        self.kernels_ns[at] = self.kernels_ns[at].saturating_add(time);
    }

    /// The steps.
    pub fn finish(self) -> StepFigures {
        let us = |ns: i64| ns as f64 / 1_000.0;
        let time = |at: usize| {
            let step = &self.steps[at];
            let next = self.steps.get(at + 1).map(|next| next.start_ns).filter(|next| *next >= step.end_ns);
            us(next.unwrap_or(step.end_ns) - step.start_ns)
        };
        let of = |(at, step): (usize, &Step)| StepTime {
            number: step.number,
            time_us: time(at),
            kernels_us: us(self.kernels_ns[at]),
            launches: self.launches[at],
        };
        let host = match (self.steps.first(), self.steps.last()) {
            (Some(first), Some(last)) => last.end_ns - first.start_ns,
            _ => 0,
        };
        let device = self.device_ns.map_or(0, |(first, last)| last - first);
        StepFigures { steps: self.steps.iter().enumerate().map(of).collect(), span_us: us(host.max(device)) }
    }
}
