//! Recorded worlds, played again.

use clap::{Args, Subcommand};
use std::path::PathBuf;

/// What to play again.
#[derive(Debug, Subcommand)]
pub enum SimulateCommand {
    /// Play recorded spot markets under any set of policies, against the optimum
    Market(SimulateMarketArgs),
}

const MARKET_EXAMPLES: &str = "\
Each file is a market of its own: {\"metadata\": {\"gap_seconds\": 600}, \"data\": [1, 0, …], \"prices\": […]}, with \
the number of instances that could be had in each tick; prices are optional, .json.gz is read too.

A scenario is one file × start × deadline × restart. Whole ticks are paid; every start of a lease takes a restart; \
deadlines are kept.

Examples:
  windfall simulate market traces/ --work 48h --deadline 52h,70h --restart 72s,180s --starts 30
  windfall simulate market aws-v100-us-east-1-2023 --starts 8
  windfall simulate market zone-a.json zone-b.json --together --policy foresight,skynomad --svg plots/
  windfall simulate market counts.json --gang 16 --on-demand-price 24.48 --spot-price 7.34 --json";

/// Which markets, which jobs, which policies.
#[derive(Debug, Args)]
#[command(after_help = MARKET_EXAMPLES)]
pub struct SimulateMarketArgs {
    /// Recorded markets: files, folders of them, or names of embedded ones (docs/markets.md), NAME or NAME/ZONE
    #[arg(required = true, value_name = "PATH")]
    pub paths: Vec<PathBuf>,
    /// Running time of the job
    #[arg(long, default_value = "48h", value_name = "TIME")]
    pub work: String,
    /// Time until it must be done
    #[arg(long, default_value = "70h", value_delimiter = ',', value_name = "TIME,…")]
    pub deadline: Vec<String>,
    /// From asking for a lease to progress
    #[arg(long, default_value = "3m", value_delimiter = ',', value_name = "TIME,…")]
    pub restart: Vec<String>,
    /// Length of a tick, for files that do not say
    #[arg(long, value_name = "TIME")]
    pub tick: Option<String>,
    /// On-demand dollars an hour of one instance [default: the embedded market's, or 3.06]
    #[arg(long, value_name = "USD")]
    pub on_demand_price: Option<f64>,
    /// Spot dollars an hour, in place of recorded prices [default without them: 0.9731]
    #[arg(long, value_name = "USD")]
    pub spot_price: Option<f64>,
    /// Policies to play, or all
    #[arg(long, default_value = "all", value_delimiter = ',', value_name = "NAME,…")]
    pub policy: Vec<String>,
    /// Instances that must be had at once
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub gang: u32,
    /// Evenly spaced windows of each file, as long as the longest deadline; 1: from its beginning
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub starts: u32,
    /// Moves windows a little from their even places; 0: not at all
    #[arg(long, default_value_t = 0)]
    pub seed: u64,
    /// The files are zones of one market, side by side
    #[arg(long)]
    pub together: bool,
    /// In these files 1 means that nothing could be had
    #[arg(long)]
    pub unavailable_is_one: bool,
    /// What foresight and skynomad know beforehand, in place of the embedded priors
    #[arg(long, value_name = "FILE")]
    pub priors: Option<PathBuf>,
    /// Write pictures into this folder: a timeline, and cost against time
    #[arg(long, value_name = "DIR")]
    pub svg: Option<PathBuf>,
    /// Threads [default: one for each core]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub threads: Option<u32>,
}
