//! What was seen of each GPU, in figures that programs may rely on.

use super::class::{Class, Evidence};
use super::sample::{Sample, Which};
use super::stretch::Stretch;
use serde::Serialize;

/// The report on logs, or on what was watched.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct GpuReport {
    pub gpus: Vec<GpuLine>,
    /// Dollars for time in which nothing was computed, on all of them.
    pub wasted_usd: Option<f64>,
    pub notes: Vec<String>,
}

/// One GPU. What was not measured is null.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct GpuLine {
    /// Its index, or what else tells it apart.
    pub gpu: String,
    pub uuid: Option<String>,
    pub name: Option<String>,
    pub host: Option<String>,
    /// Whom it is used by, where the source knows: a pod or a job.
    pub user: Option<String>,
    pub seconds: f64,
    pub readings: u64,
    /// What it did for most of the time.
    pub class: Class,
    /// What the classes rest on.
    pub evidence: Evidence,
    /// The share of time in which some kernel ran; says nothing about how much of the GPU it used.
    pub busy_percent: Option<f64>,
    pub sm_active_percent: Option<f64>,
    pub occupancy_percent: Option<f64>,
    pub tensor_active_percent: Option<f64>,
    /// The share of the memory's bandwidth.
    pub dram_active_percent: Option<f64>,
    /// Memory that was held: no measure of use.
    pub memory_held_bytes: Option<u64>,
    pub peak_memory_held_bytes: Option<u64>,
    pub memory_total_bytes: Option<u64>,
    pub power_watts: Option<f64>,
    pub peak_power_watts: Option<f64>,
    pub power_limit_watts: Option<f64>,
    pub energy_joules: Option<f64>,
    /// Dollars for the whole time.
    pub usd: Option<f64>,
    /// Dollars for the time in which nothing was computed.
    pub wasted_usd: Option<f64>,
    /// Longest first.
    pub classes: Vec<GpuClass>,
    pub phases: Vec<GpuPhase>,
    pub notes: Vec<String>,
}

/// Time of one class.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct GpuClass {
    pub class: Class,
    pub seconds: f64,
    pub percent: f64,
    pub usd: Option<f64>,
    pub busy_percent: Option<f64>,
    pub power_watts: Option<f64>,
}

/// A stretch of time in which a GPU did one thing.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct GpuPhase {
    pub class: Class,
    /// Seconds since the first reading.
    pub from_s: f64,
    pub seconds: f64,
    pub busy_percent: Option<f64>,
    pub sm_active_percent: Option<f64>,
    pub tensor_active_percent: Option<f64>,
    pub dram_active_percent: Option<f64>,
    pub power_watts: Option<f64>,
    pub memory_held_bytes: Option<u64>,
}

impl GpuReport {
    /// A report on these GPUs, by index where they have one.
    pub fn of(mut gpus: Vec<GpuLine>, notes: Vec<String>) -> GpuReport {
        let order = |line: &GpuLine| (line.host.clone(), line.gpu.parse::<u64>().unwrap_or(u64::MAX), line.gpu.clone());
        gpus.sort_by_key(order);
        let wasted: Option<Vec<f64>> = gpus.iter().map(|gpu| gpu.wasted_usd).collect();
        let wasted_usd = wasted.filter(|all| !all.is_empty()).map(|all| all.iter().sum());
        GpuReport { gpus, wasted_usd, notes }
    }
}

/// What was seen of one GPU.
pub fn line_of(which: Which, stretch: &Stretch, last: Option<&Sample>, usd_an_hour: Option<f64>) -> GpuLine {
    let total = &stretch.total;
    let usd = |seconds: f64| usd_an_hour.map(|usd| usd * seconds / 3_600.0);
    let bytes = |amount: Option<f64>| amount.map(|amount| amount as u64);
    let mut classes: Vec<GpuClass> = stretch
        .classes
        .iter()
        .map(|(class, sums)| GpuClass {
            class: *class,
            seconds: sums.seconds,
            percent: if total.seconds > 0.0 { 100.0 * sums.seconds / total.seconds } else { 0.0 },
            usd: usd(sums.seconds),
            busy_percent: sums.busy(),
            power_watts: sums.power(),
        })
        .collect();
    classes.sort_by(|one, other| other.seconds.total_cmp(&one.seconds).then(one.class.cmp(&other.class)));
    let phases = stretch.phases.iter().map(|phase| GpuPhase {
        class: phase.class,
        from_s: phase.from_s,
        seconds: phase.sums.seconds,
        busy_percent: phase.sums.busy(),
        sm_active_percent: phase.sums.sm(),
        tensor_active_percent: phase.sums.tensor(),
        dram_active_percent: phase.sums.dram(),
        power_watts: phase.sums.power(),
        memory_held_bytes: bytes(phase.sums.memory()),
    });
    let wasted: f64 = classes.iter().filter(|one| one.class.is_waste()).map(|one| one.seconds).sum();
    let mut notes = Vec::new();
    if stretch.holes_s >= 1.0 {
        notes.push(format!("the log leaves out {:.0} s, which are counted as nothing", stretch.holes_s));
    }
    if stretch.dropped > 0 {
        notes.push(format!("{} readings are no later than the one before and left out", stretch.dropped));
    }
    let measured_power = total.power().is_some() || last.is_some_and(|last| last.energy_j.is_some());
    GpuLine {
        gpu: which.index.clone().unwrap_or_else(|| which.key.clone()),
        uuid: which.uuid,
        name: which.name,
        host: which.host,
        user: which.user,
        seconds: total.seconds,
        readings: u64::from(total.readings),
        class: classes.first().map_or(Class::Unknown, |first| first.class),
        evidence: stretch.evidence.unwrap_or(Evidence::None),
        busy_percent: total.busy(),
        sm_active_percent: total.sm(),
        occupancy_percent: total.occupancy(),
        tensor_active_percent: total.tensor(),
        dram_active_percent: total.dram(),
        memory_held_bytes: bytes(total.memory()),
        peak_memory_held_bytes: bytes(total.most_memory),
        memory_total_bytes: bytes(last.and_then(|last| last.memory_total_bytes)),
        power_watts: total.power(),
        peak_power_watts: total.most_power,
        power_limit_watts: stretch.limit_w(),
        energy_joules: measured_power.then_some(stretch.energy_j),
        usd: usd(total.seconds),
        wasted_usd: usd(wasted),
        classes,
        phases: phases.collect(),
        notes,
    }
}
