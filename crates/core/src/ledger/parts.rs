//! What an amount was for: accelerators, cores, memory. A machine has one price; how much of it is for what is said by
//! weights, the same for everybody, so that two reports never disagree.

use super::{Goods, Share, share::divided};
use crate::pool::Shape;
use crate::units::NanoUsd;
use serde::{Deserialize, Serialize};

/// Cores and memory of a machine. Zero where nobody said.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostShape {
    /// Cores as its cloud counts them, in thousandths.
    pub cpu_millis: u64,
    /// Main memory.
    pub memory_bytes: u64,
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

const GIB_BYTES: u64 = 1 << 30;
/// What stands beside each accelerator where nobody says: as on a p3.2xlarge, which has one.
const BESIDE_ACCELERATOR: HostShape = HostShape { cpu_millis: 8_000, memory_bytes: 61 * GIB_BYTES };
/// Memory beside each core of a machine without accelerators, where nobody says: as general-purpose machines have.
const BESIDE_CORE: u64 = 4 * GIB_BYTES;

fn ratio(number: u64, times: u64, of: u64) -> u64 {
    u64::try_from(u128::from(number) * u128::from(times) / u128::from(of)).unwrap_or(u64::MAX)
}

impl HostShape {
    /// What is said of a machine, and for the rest what is usual of one with so many accelerators.
    fn completed(self, accelerators: u64) -> HostShape {
        let usual = match (accelerators, self) {
            (0, HostShape { cpu_millis: 0, memory_bytes: 0 }) => {
                HostShape { cpu_millis: 1_000, memory_bytes: BESIDE_CORE }
            }
            (0, HostShape { cpu_millis, memory_bytes }) => HostShape {
                cpu_millis: ratio(memory_bytes, 1_000, BESIDE_CORE),
                memory_bytes: ratio(cpu_millis, BESIDE_CORE, 1_000),
            },
            (count, _) => HostShape {
                cpu_millis: count.saturating_mul(BESIDE_ACCELERATOR.cpu_millis),
                memory_bytes: count.saturating_mul(BESIDE_ACCELERATOR.memory_bytes),
            },
        };
        let said = |said: u64, usual: u64| if said > 0 { said } else { usual };
        HostShape {
            cpu_millis: said(self.cpu_millis, usual.cpu_millis),
            memory_bytes: said(self.memory_bytes, usual.memory_bytes),
        }
    }
}

/// The part of a node that something of a size has: by accelerators where the node has any, else by cores and memory,
/// weighed as above. Where only one of the two is said of it, that one counts; where nothing is said, it is all of it.
pub fn part_of_node(size: Shape, capacity: Shape) -> Share {
    if size == Shape::default() {
        return Share::WHOLE;
    }
    let at_most_all = |part: u64, of: u64| Share::new(part.min(of), of);
    if capacity.accelerators > 0 {
        return at_most_all(size.accelerators.into(), capacity.accelerators.into());
    }
    // Cores in thousandths and memory in MiB: 128,000 is a multiple of 1,000 and of 1,024. No machine is near the bounds.
    let cores = |shape: Shape| shape.cpu_millis.min(1 << 32) * (CORE * 128);
    let memory = |shape: Shape| (shape.memory_bytes >> 20).min(1 << 38) * (GIB * 125);
    match (cores(capacity), memory(capacity)) {
        (0, 0) => Share::WHOLE,
        (all, 0) => at_most_all(cores(size), all),
        (0, all) => at_most_all(memory(size), all),
        (all, _) if size.memory_bytes == 0 => at_most_all(cores(size), all),
        (_, all) if size.cpu_millis == 0 => at_most_all(memory(size), all),
        (cpu, bytes) => at_most_all(cores(size).min(cpu) + memory(size).min(bytes), cpu + bytes),
    }
}

impl Parts {
    /// An amount that was paid for a machine, or for a share of it.
    pub fn of(amount: NanoUsd, goods: &Goods) -> Parts {
        let accelerators = u64::from(goods.count);
        let shape = goods.shape.completed(accelerators);
        // In thousandths of the weights; no machine is near the bound, which keeps products within 128 bits.
        let weight = |units: u64, each: u64, of: u64| ratio(units, each * 1_000, of).min(1 << 61);
        let weights = [
            weight(accelerators, ACCELERATOR, 1),
            weight(shape.cpu_millis, CORE, 1_000),
            weight(shape.memory_bytes, GIB, GIB_BYTES),
        ];
        let [gpu, cpu, memory] = divided(amount, weights);
        Parts { gpu, cpu, memory }
    }

    /// The amount.
    pub fn total(self) -> NanoUsd {
        self.gpu + self.cpu + self.memory
    }
}
