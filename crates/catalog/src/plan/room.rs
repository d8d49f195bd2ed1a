//! Whether a model fits into the accelerators it is trained on.

use super::request::{Accelerators, Tuning};
use super::why::Why;

/// On top of parameters and their state: activations, recomputed where they are large, and buffers of communication.
const ACTIVATIONS: f64 = 0.2;
/// What a runtime keeps on each accelerator.
const RUNTIME_GB: f64 = 2.0;
/// Accelerators that are made to serve models, not to train them.
const ONLY_SERVE: &[&str] = &["Inferentia", "Inferentia2"];

impl Tuning {
    /// Bytes for each parameter: weights and gradients in 16 bits, and a copy with two moments in 32 bits; with LoRA
    /// only for the fiftieth part that is trained.
    fn bytes_a_parameter(self) -> f64 {
        match self {
            Tuning::Full => 2.0 + 2.0 + 12.0,
            Tuning::Lora => 2.0 + (2.0 + 2.0 + 12.0) / 50.0,
        }
    }

    /// What is assumed, for people.
    pub fn assumed(self) -> String {
        let what = match self {
            Tuning::Full => "16 bytes a parameter (weights, gradients, Adam's moments; --lora needs 2.3)",
            Tuning::Lora => "2.3 bytes a parameter (frozen weights, LoRA matrices with their state)",
        };
        format!(
            "memory: {what}, {:.0} % for activations, {RUNTIME_GB:.0} GB of runtime on each accelerator; sharded over all \
             of them",
            ACTIVATIONS * 100.0
        )
    }
}

/// Whether models are trained on an accelerator.
pub(super) fn trains(family: &str) -> bool {
    !ONLY_SERVE.contains(&family)
}

/// Whether a model fits into these accelerators, which have so many GB each, or why not.
pub(super) fn fits(has: Option<f64>, here: &Accelerators<'_>, parameters: f64, tuning: Tuning) -> Result<(), Why> {
    if !trains(here.family) {
        return Err(Why::OnlyServes { family: here.family.to_owned() });
    }
    let all = parameters * tuning.bytes_a_parameter() * (1.0 + ACTIVATIONS) / 1e9;
    let least = all / here.all().max(1.0) + RUNTIME_GB;
    match has {
        Some(has) if has >= least => Ok(()),
        has => Err(Why::AcceleratorMemory { has, least }),
    }
}
