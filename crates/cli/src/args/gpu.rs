//! Arguments of `windfall gpu`.

use clap::Args;
use std::path::PathBuf;

const HELP: &str = "\
Examples:
  windfall gpu                              what this machine's GPUs do, again and again
  windfall gpu --once                       the same, once
  windfall gpu --for 60s --price 3.5        watch for a minute, then say what that time was worth
  windfall gpu --from nvidia-smi.csv        what ran, after the fact
  windfall gpu --from dmon.txt --price 3.5  with the dollars of idle time
  windfall gpu --dcgm localhost:9400        what dcgm-exporter sees

Logs are what these write:
  nvidia-smi --query-gpu=timestamp,index,name,utilization.gpu,memory.used,memory.total,power.draw,power.limit --format=csv -l 1
  nvidia-smi dmon -s pucvmet -o DT
  dcgmi dmon -e 1002,1003,1004,1005

Classes:
  idle          nothing runs, and nobody holds memory
  held          a program holds memory and computes nothing
  input-bound   seconds without a kernel between busy ones: the host loads data, saves or evaluates
  host-bound    kernels run for a part of the time: the host launches too late or waits
  underused     kernels run all the time and use little of the GPU
  memory-bound  the memory's bandwidth limits
  tensor-heavy  tensor cores do the work
  computing     multiprocessors are in use, tensor cores little or not at all
  busy          some kernel runs all the time; how much of the GPU it uses was not measured";

/// What GPUs do: this machine's now, or those of a log.
#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub struct GpuArgs {
    /// Logs of nvidia-smi or dcgmi, plain or gzip, or a saved answer of dcgm-exporter
    #[arg(long, num_args = 1.., value_name = "LOG", conflicts_with_all = ["dcgm", "once", "duration"])]
    pub from: Vec<PathBuf>,
    /// The columns of a log without a header, by nvidia-smi's names
    #[arg(long, value_delimiter = ',', value_name = "NAME,…", requires = "from")]
    pub columns: Vec<String>,
    /// Ask dcgm-exporter instead of the driver
    #[arg(long, value_name = "URL")]
    pub dcgm: Option<String>,
    /// Look once
    #[arg(long, conflicts_with = "duration")]
    pub once: bool,
    /// Look for so long, then say what was seen
    #[arg(long = "for", id = "duration", value_name = "TIME")]
    pub duration: Option<String>,
    /// The time between two looks; of a log whose lines have no time, between two lines
    #[arg(long, default_value = "1s", value_name = "TIME")]
    pub every: String,
    /// The length of time that is looked at together
    #[arg(long, default_value = "2s", value_name = "TIME")]
    pub window: String,
    /// Dollars for an hour of one GPU
    #[arg(long, value_name = "USD", allow_negative_numbers = true)]
    pub price: Option<f64>,
    /// The model, where a log does not say it
    #[arg(long, value_name = "GPU")]
    pub accelerator: Option<String>,
}
