//! What a GPU does, from the means of a stretch of time. Memory that is held says that a program is there, and never that it
//! computes. With counters of the multiprocessors (DCGM's profiling fields, NVML's GPM) the answer is what kernels use;
//! without them only that some kernel ran, and power tells whether it was a small one.

use serde::Serialize;

/// Below this share of the time nothing ran.
pub const NOTHING_RAN: f64 = 2.0;
/// Below this share of the time the GPU waited for its host.
const WAITED: f64 = 70.0;
/// A sample below this had no work worth the name.
pub const EMPTY: f64 = 5.0;
/// Windows with this share of empty samples between busy ones wait for more than launches.
const GAPS: f64 = 0.25;
/// A program's context alone takes more memory than this.
const HELD_BYTES: f64 = 256.0 * 1024.0 * 1024.0;
/// Shares of time in use elsewhere: tensor-heavy, and multiprocessors that are really used.
const TENSOR: f64 = 50.0;
const SM_FOR_TENSOR: f64 = 60.0;
const SM: f64 = 50.0;
const DRAM: f64 = 50.0;
/// Kernels that fill a GPU draw more of its power than this; single multiprocessors and small kernels do not.
const POWER: f64 = 0.45;

/// What a GPU does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Class {
    /// Nothing runs, and nobody holds memory.
    Idle,
    /// A program holds memory and computes nothing.
    Held,
    /// Whole samples without a kernel between busy ones: too long for launches.
    InputBound,
    /// Kernels run for a part of the time.
    HostBound,
    /// Kernels run all the time and use little of the GPU.
    Underused,
    /// The memory's bandwidth is what limits.
    MemoryBound,
    /// Tensor cores do the work.
    TensorHeavy,
    /// Multiprocessors are in use, tensor cores little.
    Computing,
    /// Kernels run all the time; how much of the GPU they use was not measured.
    Busy,
    /// The source does not say.
    Unknown,
}

impl Class {
    /// The word for people and programs.
    pub fn word(self) -> &'static str {
        match self {
            Class::Idle => "idle",
            Class::Held => "held",
            Class::InputBound => "input-bound",
            Class::HostBound => "host-bound",
            Class::Underused => "underused",
            Class::MemoryBound => "memory-bound",
            Class::TensorHeavy => "tensor-heavy",
            Class::Computing => "computing",
            Class::Busy => "busy",
            Class::Unknown => "unknown",
        }
    }

    /// What the word means.
    pub fn means(self) -> &'static str {
        match self {
            Class::Idle => "nothing runs, and nobody holds memory",
            Class::Held => "a program holds memory and computes nothing",
            Class::InputBound => "seconds without a kernel between busy ones: the host loads data, saves or evaluates",
            Class::HostBound => "kernels run for a part of the time: the host launches too late or waits",
            Class::Underused => "kernels run all the time and use little of the GPU: they are too small",
            Class::MemoryBound => "the memory's bandwidth limits",
            Class::TensorHeavy => "tensor cores do the work",
            Class::Computing => "multiprocessors are in use, tensor cores little or not at all",
            Class::Busy => "some kernel runs all the time; how much of the GPU it uses was not measured",
            Class::Unknown => "the source does not say whether anything runs",
        }
    }

    /// What would help, if anything.
    pub fn fix(self) -> Option<&'static str> {
        match self {
            Class::Idle => Some("give it back, or let others use it"),
            Class::Held => {
                Some("end programs that hold memory and do nothing: notebooks, debuggers, servers without requests")
            }
            Class::InputBound => {
                Some("more loader workers, prefetching and pinned memory; save and evaluate beside the step")
            }
            Class::HostBound => {
                Some("`windfall profile` on a trace tells late launches from waiting; CUDA graphs, fewer `.item()`")
            }
            Class::Underused => Some("larger batches, CUDA graphs, or a smaller GPU; a share of one may do"),
            Class::MemoryBound => Some("fuse kernels, 16-bit numbers; a GPU with more bandwidth, not more TFLOP/s"),
            Class::Computing => Some("bf16 or tf32, if the matrix products are still in fp32"),
            Class::TensorHeavy | Class::Busy | Class::Unknown => None,
        }
    }

    /// Whether the money for it is lost: nothing is computed.
    pub fn is_waste(self) -> bool {
        matches!(self, Class::Idle | Class::Held)
    }
}

/// What a class rests on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Evidence {
    /// Nothing.
    None,
    /// That some kernel ran, no more.
    Busy,
    /// That, and how much of its power the GPU drew.
    Power,
    /// Counters of multiprocessors and memory.
    Counters,
}

/// Means over a stretch of time.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Means {
    pub busy: Option<f64>,
    pub sm: Option<f64>,
    pub tensor: Option<f64>,
    pub dram: Option<f64>,
    pub memory_used_bytes: Option<f64>,
    /// Of the most that the GPU may draw, 0 to 1.
    pub power: Option<f64>,
    /// The share of samples in which nothing ran, 0 to 1.
    pub empty: f64,
    /// How often work and emptiness took turns.
    pub turns: u32,
}

/// What the means say, and what that rests on.
pub fn class(means: &Means) -> (Class, Evidence) {
    let evidence = match (means.busy, means.sm.or(means.dram), means.power) {
        (_, Some(_), _) => Evidence::Counters,
        (Some(_), None, Some(_)) => Evidence::Power,
        (Some(_), None, None) => Evidence::Busy,
        (None, None, _) => return (Class::Unknown, Evidence::None),
    };
    let busy = means.busy.or(means.sm).or(means.dram).unwrap_or(0.0);
    let none = |share: Option<f64>| share.is_none_or(|share| share < NOTHING_RAN);
    if busy < NOTHING_RAN && none(means.sm) && none(means.dram) {
        let held = means.memory_used_bytes.is_some_and(|bytes| bytes >= HELD_BYTES);
        return (if held { Class::Held } else { Class::Idle }, evidence);
    }
    if busy < WAITED && means.busy.is_some() {
        let gaps = means.empty >= GAPS && means.turns >= 3;
        return (if gaps { Class::InputBound } else { Class::HostBound }, evidence);
    }
    let at_least = |share: Option<f64>, least: f64| share.is_some_and(|share| share >= least);
    let class = match evidence {
        Evidence::Counters if at_least(means.tensor, TENSOR) && at_least(means.sm, SM_FOR_TENSOR) => Class::TensorHeavy,
        Evidence::Counters if at_least(means.dram, DRAM) && means.dram > means.tensor => Class::MemoryBound,
        Evidence::Counters if at_least(means.sm, SM) => Class::Computing,
        Evidence::Counters if means.sm.is_some() => Class::Underused,
        // dcgm-exporter's own list of fields has DRAM and tensor cores, and no multiprocessors.
        Evidence::Counters if at_least(means.tensor, TENSOR) => Class::TensorHeavy,
        _ if means.power.is_some_and(|power| power < POWER) => Class::Underused,
        _ => Class::Busy,
    };
    (class, evidence)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(means: Means) -> &'static str {
        class(&means).0.word()
    }

    #[test]
    fn memory_that_is_held_is_no_work() {
        let bytes = Some(80e9);
        assert_eq!(of(Means { busy: Some(0.0), memory_used_bytes: bytes, ..Means::default() }), "held");
        assert_eq!(of(Means { busy: Some(0.0), memory_used_bytes: Some(4e6), ..Means::default() }), "idle");
        assert_eq!(of(Means { memory_used_bytes: bytes, ..Means::default() }), "unknown");
    }

    #[test]
    fn busy_says_little_and_counters_say_what_is_used() {
        let busy = Means { busy: Some(99.0), ..Means::default() };
        assert_eq!(class(&busy), (Class::Busy, Evidence::Busy));
        assert_eq!(class(&Means { power: Some(0.3), ..busy }), (Class::Underused, Evidence::Power));
        assert_eq!(class(&Means { power: Some(0.8), ..busy }), (Class::Busy, Evidence::Power));
        let counted = |sm, tensor, dram| of(Means { sm: Some(sm), tensor: Some(tensor), dram: Some(dram), ..busy });
        assert_eq!(counted(90.0, 62.0, 30.0), "tensor-heavy");
        assert_eq!(counted(45.0, 3.0, 80.0), "memory-bound");
        assert_eq!(counted(95.0, 0.0, 80.0), "memory-bound");
        assert_eq!(counted(80.0, 5.0, 20.0), "computing");
        assert_eq!(counted(1.0, 0.0, 0.1), "underused");
        assert_eq!(of(Means { tensor: Some(60.0), dram: Some(20.0), ..busy }), "tensor-heavy");
    }

    #[test]
    fn who_waits_for_longer_than_a_launch_waits_for_data() {
        let half = Means { busy: Some(40.0), ..Means::default() };
        assert_eq!(of(half), "host-bound");
        assert_eq!(of(Means { empty: 0.5, turns: 4, ..half }), "input-bound");
        assert_eq!(of(Means { empty: 0.5, turns: 1, ..half }), "host-bound");
    }
}
