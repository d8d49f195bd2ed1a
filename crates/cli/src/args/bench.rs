//! Arguments of `windfall bench`.

use clap::{Args, Subcommand, ValueEnum};
use std::path::PathBuf;

const RUN_HELP: &str = "\
Examples:
  windfall bench run bert-base --precision bf16           a built-in suite, in PyTorch
  windfall bench run --step 'step (\\d+)' -- python train.py
  windfall bench run --step 'step (\\d+)' --instance p5.48xlarge --out result.json -- torchrun --nproc-per-node 8 train.py

Suites: bert-base, gpt2-medium, resnet50 (training on made-up data); matmul, bandwidth, checkpoint, data-loading, all-reduce \
(ceilings and times).

A command's output is searched for the pattern; its group is the number of steps done so far, and without a group each match \
is one step. The command is run again until the 95 % interval of its speed is tight. Each run is ended once enough was measured. \
A result that is written with --out is what `work: { benchmark: result.json }` of a job file takes.";

const PRECISION_HELP: &str = "\
Examples:
  windfall bench precision bert-base
  windfall bench precision --step 'step (\\d+)' --metric 'val_loss ([\\d.]+)' --tolerance 0.01 --items 64 -- python train.py

A command is told by WINDFALL_PRECISION (fp32, tf32, bf16, fp16), WINDFALL_SEED and WINDFALL_BATCH what to use; one that does not \
look at them measures the same thing several times.";

/// Measures programs on this machine.
#[derive(Debug, Subcommand)]
pub enum BenchCommand {
    /// Measure a built-in suite, or a command of your own
    Run(Box<BenchRunArgs>),
    /// Try number formats on one program, with several seeds: speed, memory, quality, and the cheapest GPU that fits
    Precision(Box<BenchPrecisionArgs>),
    /// Results side by side, with significance
    Compare(BenchCompareArgs),
    /// What a whole training takes on more nodes, from a short run, with a band
    Extrapolate(BenchExtrapolateArgs),
}

/// What is measured, and how.
#[derive(Debug, Args)]
pub struct MeasuredArgs {
    /// A built-in suite
    #[arg(conflicts_with = "command", value_name = "SUITE")]
    pub suite: Option<String>,
    /// A command of your own
    #[arg(last = true, value_name = "COMMAND")]
    pub command: Vec<String>,
    /// What of the command's output says that steps were done
    #[arg(long, value_name = "REGEX", default_value = r"\bstep[ =:#]*(\d+)")]
    pub step: String,
    /// Steps before these do not count
    #[arg(long, value_name = "STEPS", default_value_t = 10)]
    pub warmup: u64,
    /// How long one repetition measures
    #[arg(long, value_name = "TIME", default_value = "10s")]
    pub measure: String,
    /// How long one repetition may take in all
    #[arg(long, value_name = "TIME", default_value = "10m")]
    pub limit: String,
    /// Accelerators that the program uses, where the driver does not say it
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=65_536))]
    pub count: Option<u32>,
    /// The accelerator, where neither the program nor the driver says it
    #[arg(long, value_name = "GPU")]
    pub accelerator: Option<String>,
    /// Items in a step
    #[arg(long, value_name = "ITEMS", value_parser = clap::value_parser!(u64).range(1..))]
    pub items: Option<u64>,
    /// Floating-point operations of a step, for MFU; suites know their own
    #[arg(long, value_name = "FLOP")]
    pub flop: Option<f64>,
    /// Dollars for an hour of one accelerator
    #[arg(long, value_name = "USD", allow_negative_numbers = true)]
    pub price: Option<f64>,
    /// The price of this instance type, on demand where it is cheapest
    #[arg(long, value_name = "TYPE", conflicts_with = "price")]
    pub instance: Option<String>,
    /// The Python that has PyTorch, for suites
    #[arg(long, value_name = "PROGRAM", default_value = "python3")]
    pub python: String,
    /// Suites in a size for trying them out
    #[arg(long)]
    pub small: bool,
    /// Write the results into this file
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
}

/// A measurement.
#[derive(Debug, Args)]
#[command(after_help = RUN_HELP)]
pub struct BenchRunArgs {
    /// What is measured
    #[command(flatten)]
    pub measured: MeasuredArgs,
    /// Number formats of a suite, one after the other; a command is told by WINDFALL_PRECISION
    #[arg(long, value_delimiter = ',', value_name = "FORMAT,…")]
    pub precision: Vec<String>,
    /// A name for the result [default: the suite, or the command's program]
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,
    /// The first repetition's seed
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Repeat until the half of the 95 % interval is so many percent of the speed
    #[arg(long, value_name = "PERCENT", default_value_t = 2.0)]
    pub tight: f64,
    /// Repeat so often at most
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub repeat: u32,
    /// Items in a pass over the data, for the cost of one
    #[arg(long, value_name = "ITEMS")]
    pub epoch: Option<u64>,
    /// Steps of the whole job: written into the result, and priced
    #[arg(long, value_name = "STEPS")]
    pub steps: Option<u64>,
}

/// A trial of number formats.
#[derive(Debug, Args)]
#[command(after_help = PRECISION_HELP)]
pub struct BenchPrecisionArgs {
    /// What is measured
    #[command(flatten)]
    pub measured: MeasuredArgs,
    /// The formats; the first is what others are held against
    #[arg(long = "try", value_delimiter = ',', default_value = "fp32,tf32,bf16,fp16", value_name = "FORMAT,…")]
    pub formats: Vec<String>,
    /// What of the output is the quality, its last match; smaller is better. Suites tell their loss
    #[arg(long, value_name = "REGEX")]
    pub metric: Option<String>,
    /// How much worse the metric's mean may get, as a share
    #[arg(long, default_value_t = 0.01)]
    pub tolerance: f64,
    /// Larger is better
    #[arg(long)]
    pub larger: bool,
    /// Seeds for each format
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=20))]
    pub seeds: u32,
    /// Also find the largest batch that fits, by doubling
    #[arg(long)]
    pub largest: bool,
}

/// What is compared.
#[derive(Debug, Args)]
pub struct BenchCompareArgs {
    /// Files of results; the first run of each name is what others are held against
    #[arg(required = true, value_name = "RESULT")]
    pub files: Vec<PathBuf>,
}

/// What stays the same when nodes are added.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ScalingWord {
    /// The batch of each accelerator
    Weak,
    /// The work until a quality is reached
    Strong,
}

/// A run that is carried on.
#[derive(Debug, Args)]
pub struct BenchExtrapolateArgs {
    /// A file of results; `file.json#name` or `file.json#name/precision` picks one of several
    #[arg(value_name = "RESULT")]
    pub file: String,
    /// Steps of the whole work, at the batch that was measured
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub steps: u64,
    /// Numbers of nodes
    #[arg(long, value_delimiter = ',', default_value = "1,2,4,8", value_name = "N,…", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub nodes: Vec<u32>,
    /// Accelerators of a node [default: as many as were measured]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_024))]
    pub per_node: Option<u32>,
    /// What stays the same when nodes are added
    #[arg(long, value_enum, default_value_t = ScalingWord::Weak)]
    pub scaling: ScalingWord,
    /// Dollars for an hour of one accelerator
    #[arg(long, value_name = "USD", allow_negative_numbers = true)]
    pub price: Option<f64>,
    /// The price of this instance type, on demand where it is cheapest
    #[arg(long, value_name = "TYPE", conflicts_with = "price")]
    pub instance: Option<String>,
}
