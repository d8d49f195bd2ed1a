//! What limits a kernel, from how much of the arithmetic and of the memory it keeps busy. The bound of 60 % is the one by which
//! Nsight Compute itself tells a kernel that is limited by throughput from one that is limited by latency.

use super::NcuKernel;
use serde::Serialize;

/// From here on a unit is what limits.
const BUSY: f64 = 60.0;

/// Achieved occupancy below this cannot hide latency, unless tensor cores do the work.
const OCCUPIED: f64 = 40.0;

/// What limits a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Limit {
    TensorCores,
    Arithmetic,
    /// The accelerator's memory.
    Bandwidth,
    /// Caches and shared memory.
    Caches,
    /// The grid does not fill the accelerator.
    TooSmall,
    Latency,
    Unknown,
}

impl Limit {
    /// The word for people.
    pub fn word(self) -> &'static str {
        match self {
            Limit::TensorCores => "tensor cores",
            Limit::Arithmetic => "arithmetic",
            Limit::Bandwidth => "bandwidth",
            Limit::Caches => "caches",
            Limit::TooSmall => "too little work",
            Limit::Latency => "latency",
            Limit::Unknown => "unknown",
        }
    }
}

/// What a limit is told from: shares of what the hardware can do, in percent.
#[derive(Clone, Copy, Debug, Default)]
pub struct Throughputs {
    pub sm: Option<f64>,
    pub memory: Option<f64>,
    pub dram: Option<f64>,
    pub tensor: Option<f64>,
    pub occupancy: Option<f64>,
    pub occupancy_limit: Option<f64>,
    pub waves: Option<f64>,
}

/// What limits a kernel, and the numbers that say so.
pub fn limit(measured: &Throughputs) -> (Limit, String) {
    let (Some(sm), Some(memory)) = (measured.sm, measured.memory) else {
        return (Limit::Unknown, "no throughput was measured".to_owned());
    };
    let tensor = measured.tensor.unwrap_or(0.0);
    let dram = measured.dram.unwrap_or(memory);
    if sm >= BUSY && sm >= memory {
        return match tensor >= 0.8 * sm {
            true => (Limit::TensorCores, format!("tensor cores {tensor:.0} % busy")),
            false => (Limit::Arithmetic, format!("arithmetic {sm:.0} % busy, tensor cores {tensor:.0} %")),
        };
    }
    if memory >= BUSY {
        return match dram >= 0.9 * memory {
            true => (Limit::Bandwidth, format!("memory {dram:.0} % of its bandwidth")),
            false => (Limit::Caches, format!("caches and shared memory {memory:.0} % busy, memory {dram:.0} %")),
        };
    }
    if let Some(waves) = measured.waves.filter(|waves| *waves < 0.5) {
        return (Limit::TooSmall, format!("the grid fills {:.0} % of the accelerator", 100.0 * waves));
    }
    let occupancy = measured.occupancy.map_or(String::new(), |percent| match measured.occupancy_limit {
        Some(most) => format!(", occupancy {percent:.0} of {most:.0} %"),
        None => format!(", occupancy {percent:.0} %"),
    });
    (Limit::Latency, format!("arithmetic {sm:.0} %, memory {memory:.0} %{occupancy}"))
}

/// What limits most of the time, why, and what to change.
pub fn overall(kernels: &[NcuKernel]) -> (String, String, Vec<String>) {
    let mut shares: Vec<(Limit, f64)> = Vec::new();
    for kernel in kernels {
        match shares.iter_mut().find(|(limit, _)| *limit == kernel.limit) {
            Some((_, share)) => *share += kernel.percent,
            None => shares.push((kernel.limit, kernel.percent)),
        }
    }
    shares.sort_by(|one, other| other.1.total_cmp(&one.1).then(one.0.cmp(&other.0)));
    let Some((most, share)) = shares.first().copied() else {
        return ("unknown".to_owned(), "the table has no kernels".to_owned(), Vec::new());
    };
    let because = format!("{share:.0} % of kernel time is limited by {}", most.word());
    let fixes = kernels.iter().filter(|kernel| kernel.percent >= 5.0).filter_map(fix).take(5).collect();
    (most.word().to_owned(), because, fixes)
}

/// What would make a kernel faster, by what limits it.
fn fix(kernel: &NcuKernel) -> Option<String> {
    let tensor_idle = kernel.tensor_percent.is_some_and(|percent| percent < 1.0);
    let product = crate::trace::kernel::kernel(&kernel.name);
    let fp32_product = matches!(product.kind, crate::trace::kernel::Kind::Matmul) && tensor_idle;
    let what = match kernel.limit {
        Limit::Arithmetic if fp32_product => "use tensor cores: tf32 or bf16 instead of fp32".to_owned(),
        Limit::Bandwidth => {
            "it moves as fast as memory allows: fuse it with its neighbours, or use smaller numbers".to_owned()
        }
        Limit::TooSmall => "more work for each launch: larger batches, or several launches as one".to_owned(),
        Limit::Latency => match (kernel.occupancy_percent, kernel.occupancy_limit_percent) {
            (Some(percent), Some(most)) if percent < OCCUPIED && most < OCCUPIED => {
                let registers =
                    kernel.registers.map_or(String::new(), |count| format!(" ({count:.0} registers a thread)"));
                format!(
                    "registers or shared memory allow {most:.0} % occupancy only{registers}: smaller blocks or fewer of both"
                )
            }
            _ => "more independent work for each thread, fewer dependent loads".to_owned(),
        },
        _ => return None,
    };
    let advice = match (&kernel.advice, kernel.advice_percent) {
        (Some(name), Some(percent)) => format!("; Nsight Compute promises {percent:.0} % for {name}"),
        _ => String::new(),
    };
    Some(format!("{} ({:.0} % of the time): {what}{advice}", kernel.short, kernel.percent))
}
