//! Arguments of `windfall profile`.

use clap::Args;
use std::path::PathBuf;

const HELP: &str = "\
Examples:
  windfall profile trace.json.gz                      what limits the step, and what would pay most
  windfall profile traces/ --instance p5.48xlarge     every rank of a job; fixes in dollars
  windfall profile trace.json.gz --html profile.html  one page with timeline and roofline, for offline use
  windfall profile --diff before.json.gz after.json.gz

A trace is what torch.profiler exports (`export_chrome_trace`, `tensorboard_trace_handler`), plain or gzip, what JAX's profiler \
leaves (`trace.json.gz`), or `nsys export --type sqlite`; a folder is all the traces in it, one for each rank. Mark steps with \
`profiler.step()`, and record shapes (`record_shapes=True`) for rooflines and MFU.

Tables of Nsight Compute (`ncu --csv`) and logs of NCCL (`NCCL_DEBUG=INFO`) are read as well, when they are named.";

/// Traces, and how to look at them.
#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub struct ProfileArgs {
    /// Traces or folders of traces, one file for each rank; or tables of Nsight Compute; or logs of NCCL
    #[arg(value_name = "TRACE", required_unless_present = "diff", conflicts_with = "diff")]
    pub traces: Vec<PathBuf>,
    /// What changed between two traces
    #[arg(long, num_args = 2, value_names = ["BEFORE", "AFTER"])]
    pub diff: Vec<PathBuf>,
    /// Dollars for an hour of one accelerator
    #[arg(long, value_name = "USD", allow_negative_numbers = true)]
    pub price: Option<f64>,
    /// The price of this instance type, on demand where it is cheapest
    #[arg(long, value_name = "TYPE", conflicts_with = "price")]
    pub instance: Option<String>,
    /// The accelerator, where the trace does not say which
    #[arg(long, value_name = "GPU")]
    pub accelerator: Option<String>,
    /// Figures by the definitions of Holistic Trace Analysis; `rounded` also rounds times as it does
    #[arg(long, value_enum, num_args = 0..=1, require_equals = true, default_missing_value = "exact", value_name = "HOW")]
    pub like_hta: Option<LikeHta>,
    /// Write a page with timeline, plots and tables that needs no network
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// Draw the roofline into this file
    #[arg(long, value_name = "FILE")]
    pub svg: Option<PathBuf>,
}

/// How times are taken where figures are HTA's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum LikeHta {
    /// To the nanosecond, as with HTA_DISABLE_NS_ROUNDING=1
    Exact,
    /// Rounded to microseconds, as HTA does by itself
    Rounded,
}
