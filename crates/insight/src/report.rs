//! What a profile says, for programs: every field here is part of `--json`.

use crate::analysis::hta::IdleByCause;
use crate::analysis::steps::StepTime;
use crate::roofline::Roofline;
use crate::trace::kernel::Class;
use serde::Serialize;

/// The whole answer.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// What limits the program: `launch-bound`, `input-bound`, `compute-bound`, ….
    pub verdict: String,
    /// Why, in a sentence with numbers.
    pub because: String,
    /// What would pay most, best first.
    pub fixes: Vec<Fix>,
    /// The accelerator's model, where a data sheet of it is known, else its name.
    pub accelerator: Option<String>,
    /// How many accelerators the program runs on.
    pub accelerators: u64,
    /// Mean time of a step.
    pub step_us: Option<f64>,
    /// What a thousand steps cost now on all accelerators.
    pub usd_per_1000_steps: Option<f64>,
    /// Ranks that the others wait for.
    pub stragglers: Vec<Straggler>,
    /// How ranks differ; null where there is only one.
    pub between_ranks: Option<BetweenRanks>,
    pub ranks: Vec<Rank>,
    pub notes: Vec<String>,
}

/// Something to change.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Fix {
    pub what: String,
    /// How much shorter a step would be.
    pub saves_percent: f64,
    pub usd_per_1000_steps: Option<f64>,
    /// Where the estimate comes from.
    pub basis: String,
}

/// A rank that computes longer than the others.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Straggler {
    pub rank: u64,
    /// How much longer than the median rank it computes.
    pub slower_percent: f64,
}

/// How the ranks of a job differ.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct BetweenRanks {
    /// Time that ranks spend in collectives beyond what the rank with the least spends there, as a share of all time: it waits
    /// for nobody, because it comes last. Null where some rank has no communication.
    pub waiting_percent: Option<f64>,
    /// The same in microseconds, of all ranks together.
    pub waiting_us: Option<f64>,
    /// How much shorter a step would be if that rank did not come last: what each other rank waits, of the longest time.
    pub saves_percent: Option<f64>,
    /// The rank that the others wait for.
    pub last_rank: Option<u64>,
    /// Steps that several ranks have.
    pub steps: u64,
    /// How much longer the slowest rank computes than the fastest, in the median of the steps, as a share of the fastest.
    pub spread_percent: Option<f64>,
    /// The rank that is slowest in most steps, and in how many.
    pub slowest_rank: Option<u64>,
    pub slowest_steps: u64,
}

/// Host waits by what the host did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct HostWait {
    pub launch: f64,
    pub sync: f64,
    pub input: f64,
}

/// Idle time of one stream by HTA's rules.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct StreamIdle {
    pub stream: i64,
    pub idle_by_cause_us: IdleByCause,
}

/// How work is launched.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct LaunchReport {
    pub count: u64,
    pub mean_call_us: Option<f64>,
    pub median_kernel_us: Option<f64>,
    pub median_delay_us: Option<f64>,
    /// Calls whose work takes less time than they do.
    pub shorter_than_call_percent: Option<f64>,
    /// Mean number of launches that wait for the accelerator.
    pub queue_length: Option<f64>,
    /// Calls that wait for the accelerator.
    pub waits: u64,
    /// Time of the host in operators and calls that do not wait.
    pub host_us: f64,
}

/// All runs of one kernel.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct KernelLine {
    pub name: String,
    pub short: String,
    pub class: Class,
    pub kind: &'static str,
    pub tensor: bool,
    pub precision: Option<&'static str>,
    pub count: u64,
    pub total_us: f64,
    pub mean_us: f64,
    pub longest_us: f64,
    /// Share of all kernel time.
    pub percent: f64,
}

/// Kernel time by what kernels do.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct KindLine {
    pub kind: &'static str,
    pub total_us: f64,
    pub percent: f64,
}

/// The chain of work that made one step as long as it was.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PathReport {
    /// Which step: the one of median length.
    pub step: u64,
    pub length_us: f64,
    pub parts: Vec<PathPart>,
    /// Kernels on the path, by time.
    pub kernels: Vec<PathPart>,
    /// All work that the step put on the accelerator, on the path or not.
    pub work_us: f64,
    /// What follows from it.
    pub says: String,
}

/// A part of a path.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PathPart {
    pub what: String,
    pub us: f64,
    pub percent: f64,
}

/// One rank.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Rank {
    pub rank: u64,
    pub file: String,
    /// From the first start to the last end on the accelerator.
    pub kernel_time_us: f64,
    pub busy_us: f64,
    pub idle_us: f64,
    /// Time in which computation ran, whatever else did; the same for the next two.
    pub compute_us: f64,
    pub communication_us: f64,
    pub memory_us: f64,
    /// Share of communication under which computation ran; null without communication.
    pub overlap_percent: Option<f64>,
    pub idle_by_cause_us: IdleByCause,
    pub host_wait_by_cause_us: HostWait,
    /// Communication without computation beside it.
    pub exposed_communication_us: f64,
    /// Copies with neither computation nor communication beside them.
    pub exposed_memory_us: f64,
    /// How many steps the trace has.
    pub steps: u64,
    pub step_us: Option<f64>,
    /// Standard deviation of steps as a share of their mean.
    pub step_variation_percent: Option<f64>,
    pub step_times: Vec<StepTime>,
    /// Null without steps or launches.
    pub critical_path: Option<PathReport>,
    /// Share of kernel time on tensor cores.
    pub tensor_core_percent: Option<f64>,
    pub occupancy_percent: Option<f64>,
    pub launches: LaunchReport,
    pub kinds: Vec<KindLine>,
    pub kernels: Vec<KernelLine>,
    /// With `--like-hta`, idle time by stream.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub streams: Vec<StreamIdle>,
    pub roofline: Roofline,
    pub notes: Vec<String>,
}
