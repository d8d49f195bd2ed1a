//! What is known beyond prices: what accelerators can do, how well programs use them, how work scales, what smaller
//! number formats gain, and what data costs to keep and to move. What nobody said is none, never zero.

use serde::{Deserialize, Serialize};
use windfall_core::NanoUsd;

/// A number format of training.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Precision {
    Fp64,
    Fp32,
    /// 32-bit floats, multiplied with 10-bit mantissas on tensor cores.
    Tf32,
    Fp16,
    /// 16-bit floats with the exponent of 32.
    Bf16,
    Fp8,
    Int8,
    Fp4,
}

impl Precision {
    /// Reads `bf16`, `amp_bf16`, `FP32`, ….
    pub fn named(word: &str) -> Option<Precision> {
        match word.to_ascii_lowercase().trim_start_matches("amp_") {
            "fp64" => Some(Precision::Fp64),
            "fp32" => Some(Precision::Fp32),
            "tf32" => Some(Precision::Tf32),
            "fp16" | "amp" => Some(Precision::Fp16),
            "bf16" => Some(Precision::Bf16),
            "fp8" => Some(Precision::Fp8),
            "int8" => Some(Precision::Int8),
            "fp4" => Some(Precision::Fp4),
            _ => None,
        }
    }

    /// The word for programs and people.
    pub fn word(self) -> &'static str {
        match self {
            Precision::Fp64 => "fp64",
            Precision::Fp32 => "fp32",
            Precision::Tf32 => "tf32",
            Precision::Fp16 => "fp16",
            Precision::Bf16 => "bf16",
            Precision::Fp8 => "fp8",
            Precision::Int8 => "int8",
            Precision::Fp4 => "fp4",
        }
    }
}

/// A data sheet: dense peaks, without structured sparsity.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Accelerator {
    /// The model: `H100-SXM5-80GB`.
    pub model: String,
    /// What people ask for: `H100`.
    pub family: String,
    pub vendor: String,
    /// Its generation: `Hopper`.
    pub generation: String,
    pub year: u16,
    pub memory_gb: f32,
    pub bandwidth_gb_s: Option<f32>,
    pub tflops: Vec<(Precision, f32)>,
    /// Most power it draws.
    pub power_w: Option<f32>,
    /// What connects it to its neighbours: `NVLink4`.
    pub link: String,
    /// How fast that is, both directions together.
    pub link_gb_s: Option<f32>,
    /// The highest bf16 TFLOP/s anybody measured on matrices.
    pub measured_bf16_tflops: Option<f32>,
    /// How sure these figures are: `high`, `medium`.
    pub certainty: String,
}

impl Accelerator {
    /// Peak in one precision.
    pub fn peak_tflops(&self, precision: Precision) -> Option<f32> {
        self.tflops.iter().find(|(known, _)| *known == precision).map(|(_, tflops)| *tflops)
    }

    /// The peak that training is compared by: bf16, or fp16 where there is no bf16.
    pub fn training_tflops(&self) -> Option<f32> {
        self.peak_tflops(Precision::Bf16).or_else(|| self.peak_tflops(Precision::Fp16))
    }
}

/// The share of peak that a training run reached.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Mfu {
    pub model: String,
    pub parameters: u64,
    /// Tokens in a sequence.
    pub sequence: u32,
    /// The accelerator's family.
    pub accelerator: String,
    pub count: u32,
    pub precision: Precision,
    /// Model FLOPs utilisation, 0 to 1.
    pub mfu: f32,
    /// Network between nodes, where the source says it.
    pub network_gbps: Option<u32>,
}

/// How long a benchmark took to reach its quality: strong scaling with everything it costs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TrainingTime {
    /// MLPerf's name of it.
    pub benchmark: String,
    /// The accelerator's family.
    pub accelerator: String,
    pub count: u32,
    /// Best result submitted.
    pub minutes: f32,
    /// The round it was submitted in.
    pub round: String,
}

/// How well data-parallel training uses several accelerators of one node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NodeScaling {
    /// The model trained.
    pub workload: String,
    /// The accelerator's family.
    pub accelerator: String,
    /// How they are connected: `NVLink` or `PCIe`.
    pub link: String,
    pub count: u32,
    /// Throughput against that many single ones.
    pub efficiency: f32,
}

/// What a smaller number format gained.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PrecisionGain {
    /// The model trained.
    pub workload: String,
    /// `cnn`, `transformer`, `recurrent`, `recommender`, `vocoder`.
    pub class: String,
    /// The accelerator's family.
    pub accelerator: String,
    pub count: u32,
    pub from: Precision,
    pub to: Precision,
    /// Throughput ratio; below one it is slower.
    pub speed: f32,
    /// Peak memory ratio at an equal batch, where measured.
    pub memory: Option<f32>,
    /// Whether both ran the same batch; a bigger batch gains more.
    pub equal_batch: bool,
    /// Whose figure it is.
    pub source: String,
}

/// A price for bytes up to some amount a month.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tier {
    /// Up to how many GiB a month; none for the last tier.
    pub up_to_gib: Option<u64>,
    /// Each GiB.
    pub per_gib: NanoUsd,
}

/// What it costs to send bytes out of a cloud to the internet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InternetEgress {
    pub cloud: String,
    /// Regions where these tiers hold.
    pub regions: Vec<String>,
    /// Lowest first.
    pub tiers: Vec<Tier>,
}

/// What it costs to send bytes from one region of a cloud to another.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RegionEgress {
    pub cloud: String,
    /// Region names that `rates` refers to.
    pub regions: Vec<String>,
    /// From, to, each GiB.
    pub rates: Vec<(u8, u8, NanoUsd)>,
}

/// What keeping a GiB costs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoragePrices {
    pub cloud: String,
    /// `object-standard`, `disk-balanced`, `local-ssd`, ….
    pub class: String,
    /// Region and price of a GiB for a month.
    pub per_gib_month: Vec<(String, NanoUsd)>,
}

/// What an operating system costs on an instance type.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LicencePrices {
    pub cloud: String,
    pub instance_type: String,
    /// System and price of an hour.
    pub per_hour: Vec<(String, NanoUsd)>,
}

/// How well programs use accelerators.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Throughput {
    /// Shares of peak.
    pub mfu: Vec<Mfu>,
    /// Times to quality.
    pub training_times: Vec<TrainingTime>,
    /// Scaling inside a node.
    pub node_scaling: Vec<NodeScaling>,
    /// Gains of smaller number formats.
    pub precision: Vec<PrecisionGain>,
}

/// What data costs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DataCosts {
    /// Out to the internet.
    pub internet: Vec<InternetEgress>,
    /// Between regions.
    pub regions: Vec<RegionEgress>,
    pub storage: Vec<StoragePrices>,
    pub licences: Vec<LicencePrices>,
}

/// Everything known beyond prices.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Knowledge {
    /// Data sheets.
    pub accelerators: Vec<Accelerator>,
    pub throughput: Throughput,
    pub data: DataCosts,
}
