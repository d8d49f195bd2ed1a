//! What an amount was for: accelerators, cores, memory. A machine has one price; how much of it is for what is said by
//! weights, the same for everybody, so that two reports never disagree.

use super::{Goods, share::divided};
use crate::units::NanoUsd;
use serde::{Deserialize, Serialize};

/// Cores and memory of a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shape {
    /// Cores as its cloud counts them.
    pub cpus: u32,
    /// Main memory.
    pub memory_gib: u32,
}

/// An amount by what it was for. The three add up to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Parts {
    /// Accelerators of any kind.
    pub gpu: NanoUsd,
    /// Cores.
    pub cpu: NanoUsd,
    /// Main memory.
    pub memory: NanoUsd,
}

/// Weights of one accelerator, one core and one GiB, in millionths of a dollar an hour. They are the default prices of
/// OpenCost (its configs/default.json, "based on GCP us-central1"), by which clusters split their nodes already. Only
/// their ratio counts: what is split is what was paid.
const ACCELERATOR: u64 = 950_000;
const CORE: u64 = 31_611;
const GIB: u64 = 4_237;

/// What stands beside each accelerator where nobody says: as on a p3.2xlarge, which has one.
const BESIDE_ACCELERATOR: Shape = Shape { cpus: 8, memory_gib: 61 };
/// A machine without accelerators of which nobody says more: 4 GiB a core, as general-purpose machines have.
const WITHOUT_ACCELERATOR: Shape = Shape { cpus: 1, memory_gib: 4 };

impl Parts {
    /// An amount that was paid for a machine, or for a share of it.
    pub fn of(amount: NanoUsd, goods: &Goods) -> Parts {
        let count = u64::from(goods.count);
        let (shape, times) = match goods.shape.filter(|shape| shape.cpus > 0 || shape.memory_gib > 0) {
            Some(shape) => (shape, 1),
            None if count > 0 => (BESIDE_ACCELERATOR, count),
            None => (WITHOUT_ACCELERATOR, 1),
        };
        let weights =
            [count * ACCELERATOR, times * u64::from(shape.cpus) * CORE, times * u64::from(shape.memory_gib) * GIB];
        let [gpu, cpu, memory] = divided(amount, weights);
        Parts { gpu, cpu, memory }
    }

    /// The amount.
    pub fn total(self) -> NanoUsd {
        self.gpu + self.cpu + self.memory
    }
}
