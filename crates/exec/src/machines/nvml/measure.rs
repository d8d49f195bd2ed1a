//! What the library measures of an accelerator: how long kernels ran, memory, power, energy, clocks, the programs on it, and on
//! Hopper and later counters of multiprocessors and memory (GPM). The first two samples of counters make the first shares.

use super::library::{Handle, Library, NvmlError, answered};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::ffi::{CStr, c_char, c_int, c_uint, c_ulonglong, c_void};
use std::ptr::{null, null_mut};

const SM_CLOCK: c_int = 1;
/// Programs on one accelerator that are told.
const PROGRAMS: usize = 256;
/// Metrics that a request has room for. NVML's own array has grown from 98 to 333; it looks only at as many as are asked for.
const METRICS: usize = 400;
const GPM_VERSION: c_uint = 1;
/// What NVML says where it does not know: all bits set.
const UNKNOWN_U64: c_ulonglong = c_ulonglong::MAX;

/// What counters are asked for, by GPM's numbers: multiprocessors, occupancy, tensor cores of any kind, memory bandwidth.
const SM: c_uint = 2;
const OCCUPANCY: c_uint = 3;
const TENSOR: c_uint = 5;
const DRAM: c_uint = 10;
const ASKED: [c_uint; 4] = [SM, OCCUPANCY, TENSOR, DRAM];

/// What is measured of an accelerator at a moment; none where its driver does not say.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    pub index: u32,
    pub uuid: String,
    pub name: String,
    /// The share of time in which some kernel ran.
    pub busy_percent: Option<u32>,
    /// The share of time in which memory was read or written.
    pub memory_busy_percent: Option<u32>,
    pub memory_used_bytes: Option<u64>,
    pub memory_total_bytes: Option<u64>,
    pub power_mw: Option<u32>,
    pub power_limit_mw: Option<u32>,
    /// Since the driver was loaded.
    pub energy_mj: Option<u64>,
    pub sm_clock_mhz: Option<u32>,
    pub celsius: Option<u32>,
    /// Cut into parts (MIG): most of these figures are then of no part.
    pub is_cut: bool,
    pub counters: Counters,
    pub programs: Vec<Program>,
}

/// Shares since the sample before, in percent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Counters {
    /// Multiprocessors that had something to do.
    pub sm: Option<f64>,
    /// Warps of those that there could be.
    pub occupancy: Option<f64>,
    pub tensor: Option<f64>,
    /// Of the memory's bandwidth.
    pub dram: Option<f64>,
}

/// A program on an accelerator.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Program {
    pub pid: u32,
    pub memory_bytes: Option<u64>,
    /// The share of time in which a kernel of it ran.
    pub busy_percent: Option<u32>,
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Rates {
    gpu: c_uint,
    memory: c_uint,
}

#[repr(C)]
#[derive(Clone, Copy)]
struct MemoryParts {
    version: c_uint,
    total: c_ulonglong,
    reserved: c_ulonglong,
    free: c_ulonglong,
    used: c_ulonglong,
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Memory {
    total: c_ulonglong,
    free: c_ulonglong,
    used: c_ulonglong,
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
struct ProcessInfo {
    pid: c_uint,
    used: c_ulonglong,
    gpu_instance: c_uint,
    compute_instance: c_uint,
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
struct ProcessSample {
    pid: c_uint,
    at_us: c_ulonglong,
    sm: c_uint,
    memory: c_uint,
    encoder: c_uint,
    decoder: c_uint,
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
struct GpmSupport {
    version: c_uint,
    is_supported: c_uint,
}

#[repr(C)]
#[derive(Clone, Copy)]
struct GpmMetric {
    id: c_uint,
    answer: c_int,
    value: f64,
    names: [*const c_char; 3],
}

#[repr(C)]
struct GpmRequest {
    version: c_uint,
    count: c_uint,
    before: *mut c_void,
    after: *mut c_void,
    metrics: [GpmMetric; METRICS],
}

// A layout that differs from NVML's is a wrong answer at best.
const _: () = assert!(
    size_of::<MemoryParts>() == 40
        && size_of::<ProcessInfo>() == 24
        && size_of::<ProcessSample>() == 32
        && size_of::<GpmMetric>() == 40
        && size_of::<GpmRequest>() == 24 + 40 * METRICS
);

/// Samples of an accelerator's counters: the last one, and room for the next.
#[derive(Debug)]
struct Samples {
    last: *mut c_void,
    next: *mut c_void,
    is_taken: bool,
}

/// Measures accelerators again and again.
#[derive(Debug, Default)]
pub(super) struct Meter {
    /// By UUID; none where an accelerator has no counters.
    samples: BTreeMap<String, Option<Samples>>,
    /// Until when programs' shares are known, in the driver's microseconds.
    heard_us: BTreeMap<String, c_ulonglong>,
}

impl Meter {
    /// Measures every accelerator that answers; none where the driver does not say what there is.
    pub fn measure(&mut self, library: &Library) -> Option<Vec<Measured>> {
        let mut all = Vec::new();
        for index in 0..library.count().ok()? {
            // One that is lost is missing.
            let Ok(handle) = library.handle(index) else { continue };
            let Ok(uuid) = library.uuid(handle) else { continue };
            if library.memory_bytes(handle) == Err(NvmlError::GPU_IS_LOST) {
                continue;
            }
            all.push(self.one(library, handle, index, uuid));
        }
        Some(all)
    }

    fn one(&mut self, library: &Library, of: Handle, index: u32, uuid: String) -> Measured {
        let rates = library.value(c"nvmlDeviceGetUtilizationRates", of, Rates::default()).ok();
        let number = |name: &CStr| library.value::<c_uint>(name, of, 0).ok();
        let memory = memory(library, of);
        Measured {
            index,
            name: library.name(of).unwrap_or_default(),
            busy_percent: rates.map(|rates| rates.gpu),
            memory_busy_percent: rates.map(|rates| rates.memory),
            memory_used_bytes: memory.map(|(used, _)| used),
            memory_total_bytes: memory.map(|(_, total)| total),
            power_mw: number(c"nvmlDeviceGetPowerUsage"),
            power_limit_mw: number(c"nvmlDeviceGetEnforcedPowerLimit"),
            energy_mj: library.value(c"nvmlDeviceGetTotalEnergyConsumption", of, 0).ok(),
            sm_clock_mhz: clock(library, of),
            celsius: library.celsius(of).ok(),
            is_cut: library.is_cut(of).unwrap_or(false),
            counters: self.counters(library, of, &uuid),
            programs: self.programs(library, of, &uuid),
            uuid,
        }
    }

    fn counters(&mut self, library: &Library, of: Handle, uuid: &str) -> Counters {
        let samples = self.samples.entry(uuid.to_owned()).or_insert_with(|| Samples::of(library, of));
        let Some(samples) = samples else { return Counters::default() };
        let get: Option<extern "C" fn(*mut c_void, *mut c_void) -> c_int> = library.function(c"nvmlGpmSampleGet");
        if get.is_none_or(|get| get(of.0, samples.next) != 0) {
            samples.is_taken = false;
            return Counters::default();
        }
        let counters = if samples.is_taken { shares(library, samples) } else { Counters::default() };
        std::mem::swap(&mut samples.last, &mut samples.next);
        samples.is_taken = true;
        counters
    }

    fn programs(&mut self, library: &Library, of: Handle, uuid: &str) -> Vec<Program> {
        let mut shares: BTreeMap<u32, u32> = BTreeMap::new();
        let heard = self.heard_us.entry(uuid.to_owned()).or_default();
        for sample in process_samples(library, of, *heard) {
            *heard = sample.at_us.max(*heard);
            let share = shares.entry(sample.pid).or_default();
            *share = sample.sm.min(100).max(*share);
        }
        let running = running(library, of).into_iter().map(|process| Program {
            pid: process.pid,
            memory_bytes: Some(process.used).filter(|used| *used != UNKNOWN_U64),
            busy_percent: shares.get(&process.pid).copied(),
        });
        running.collect()
    }
}

impl Samples {
    /// Room for two samples; none where the accelerator has no counters.
    fn of(library: &Library, of: Handle) -> Option<Samples> {
        let support = GpmSupport { version: GPM_VERSION, is_supported: 0 };
        let support = library.value(c"nvmlGpmQueryDeviceSupport", of, support).ok()?;
        if support.is_supported == 0 {
            return None;
        }
        let make: extern "C" fn(*mut *mut c_void) -> c_int = library.function(c"nvmlGpmSampleAlloc")?;
        let mut both = [null_mut(); 2];
        for one in &mut both {
            answered(make(one)).ok()?;
        }
        Some(Samples { last: both[0], next: both[1], is_taken: false })
    }
}

/// Shares between the last sample and the next.
fn shares(library: &Library, samples: &Samples) -> Counters {
    let ask: Option<extern "C" fn(*mut GpmRequest) -> c_int> = library.function(c"nvmlGpmMetricsGet");
    let empty = GpmMetric { id: 0, answer: 0, value: 0.0, names: [null(); 3] };
    let mut request = GpmRequest {
        version: GPM_VERSION,
        count: ASKED.len() as c_uint,
        before: samples.last,
        after: samples.next,
        metrics: [empty; METRICS],
    };
    for (metric, id) in request.metrics.iter_mut().zip(ASKED) {
        metric.id = id;
    }
    if ask.is_none_or(|ask| ask(&raw mut request) != 0) {
        return Counters::default();
    }
    let get = |id: c_uint| {
        let found = request.metrics.iter().take(ASKED.len()).find(|metric| metric.id == id && metric.answer == 0);
        found.map(|metric| metric.value).filter(|share| (0.0..=100.5).contains(share))
    };
    Counters { sm: get(SM), occupancy: get(OCCUPANCY), tensor: get(TENSOR), dram: get(DRAM) }
}

/// Memory in use and all of it. Newer drivers tell apart what they keep for themselves.
fn memory(library: &Library, of: Handle) -> Option<(u64, u64)> {
    let version = size_of::<MemoryParts>() as c_uint | 2 << 24;
    let parts = MemoryParts { version, total: 0, reserved: 0, free: 0, used: 0 };
    if let Ok(parts) = library.value(c"nvmlDeviceGetMemoryInfo_v2", of, parts) {
        return Some((parts.used, parts.total));
    }
    let memory = library.value(c"nvmlDeviceGetMemoryInfo", of, Memory::default()).ok()?;
    Some((memory.used, memory.total))
}

fn clock(library: &Library, of: Handle) -> Option<u32> {
    let ask: extern "C" fn(*mut c_void, c_int, *mut c_uint) -> c_int = library.function(c"nvmlDeviceGetClockInfo")?;
    let mut mhz = 0;
    answered(ask(of.0, SM_CLOCK, &raw mut mhz)).ok()?;
    Some(mhz)
}

fn running(library: &Library, of: Handle) -> Vec<ProcessInfo> {
    type Ask = extern "C" fn(*mut c_void, *mut c_uint, *mut ProcessInfo) -> c_int;
    let Some(ask) = library.function::<Ask>(c"nvmlDeviceGetComputeRunningProcesses_v3") else { return Vec::new() };
    let mut found = vec![ProcessInfo::default(); PROGRAMS];
    let mut count = PROGRAMS as c_uint;
    if answered(ask(of.0, &raw mut count, found.as_mut_ptr())).is_err() {
        return Vec::new();
    }
    found.truncate(count as usize);
    found
}

fn process_samples(library: &Library, of: Handle, since_us: c_ulonglong) -> Vec<ProcessSample> {
    type Ask = extern "C" fn(*mut c_void, *mut ProcessSample, *mut c_uint, c_ulonglong) -> c_int;
    let Some(ask) = library.function::<Ask>(c"nvmlDeviceGetProcessUtilization") else { return Vec::new() };
    let mut found = vec![ProcessSample::default(); PROGRAMS];
    let mut count = PROGRAMS as c_uint;
    // It says that it found nothing where nothing ran since then.
    if answered(ask(of.0, found.as_mut_ptr(), &raw mut count, since_us)).is_err() {
        return Vec::new();
    }
    found.truncate(count as usize);
    // Rows that were not written have no time.
    found.retain(|sample| sample.at_us > 0);
    found
}
