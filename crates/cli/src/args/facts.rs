//! Questions to facts: offers, plans, the catalogue.

use clap::{Args, Subcommand};
use std::path::PathBuf;

const OFFERS_HELP: &str = "\
Examples:
  windfall offers                            every accelerator, cheapest price
  windfall offers H100                       by instance type and market
  windfall offers H100:8,A100:8 --market spot        either, as spot capacity
  windfall offers --cloud gcp TPU-v5e                TPUs count in chips
  windfall offers --sort price-per-tflop --all       every offer, every place
  windfall offers L4 --max-price 0.5 --json          for programs

Columns: $/PFLOPS-H is an hour of 1,000 peak bf16 TFLOP/s, $/TB-H an hour of
1,000 GB of accelerator memory, GPU GB the memory of one. A share after `spot` is
how many such instances AWS took back in a month. LAST YEAR shows the price over
twelve months. MORE is in how many more places, not cheaper, the same can be had.
Prices without a zone hold in their whole region. What is unknown is left empty.
`!` marks prices and shares that are more than 180 days old.

Tables fit the terminal, or COLUMNS; into a pipe they are written whole.";

/// Where and how things are bought.
#[derive(Debug, Default, Args)]
pub struct PlaceArgs {
    /// In these clouds: aws, azure, gcp, lambda, nebius, oci, runpod, vast
    #[arg(long, value_delimiter = ',', value_name = "CLOUD,…")]
    pub cloud: Vec<String>,
    /// In these regions or zones
    #[arg(long, value_name = "REGION,…")]
    pub region: Vec<String>,
    /// On these markets: spot, on-demand, reserved, reserved-1y, reserved-3y
    #[arg(long, value_delimiter = ',', value_name = "MARKET,…")]
    pub market: Vec<String>,
}

/// What to look for.
#[derive(Debug, Args)]
#[command(after_help = OFFERS_HELP)]
pub struct OffersArgs {
    /// Accelerators, such as H100, A100:8 or H100:8,A100-80GB:8 (any of them)
    #[arg(value_name = "GPU[:N]")]
    pub gpus: Vec<String>,
    /// The same as a flag
    #[arg(long, value_name = "GPU[:N]")]
    pub gpu: Vec<String>,
    /// Where and how.
    #[command(flatten)]
    pub places: PlaceArgs,
    /// Of these instance types
    #[arg(long, value_delimiter = ',', value_name = "TYPE,…")]
    pub instance_type: Vec<String>,
    /// With at least this much main memory
    #[arg(long, value_name = "GB")]
    pub min_memory: Option<String>,
    /// With at least this much memory on each accelerator
    #[arg(long, value_name = "GB")]
    pub min_gpu_memory: Option<String>,
    /// At most so many dollars an hour
    #[arg(long, value_name = "USD", allow_negative_numbers = true)]
    pub max_price: Option<f64>,
    /// Instances without accelerators
    #[arg(long, conflicts_with_all = ["gpus", "gpu"])]
    pub cpu: bool,
    /// In this order, cheapest first
    #[arg(long, value_enum)]
    pub sort: Option<OfferSort>,
    /// At most so many lines
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub limit: Option<u32>,
    /// Every offer of every place
    #[arg(long)]
    pub all: bool,
    /// Print CSV for spreadsheets
    #[arg(long, conflicts_with = "json")]
    pub csv: bool,
}

/// What offers are put in order by.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
pub enum OfferSort {
    /// An instance-hour
    Price,
    /// An hour of one accelerator
    PricePerGpu,
    /// An hour of one peak bf16 TFLOP/s
    PricePerTflop,
    /// An hour of one GB of accelerator memory
    PricePerGb,
}

const PLAN_HELP: &str = "\
Examples:
  windfall plan job.yaml                            ranked ways to run it
  windfall plan job.yaml --nodes 1,2,4,8            cheapest, fastest and what lies between
  windfall plan job.yaml --why g5.xlarge            what became of one instance type
  windfall plan job.yaml --md > plan.md             a page for a proposal or a pull request
  windfall plan --hours 8 --on A100 --by cloud --cloud aws,gcp,azure,lambda
                                                    the cheapest equivalent on each cloud
  windfall plan --parameters 7e9 --tokens 3e10 --gpu H100:8,A100-80GB:8 --deadline 7d

A holdings file (YAML) says what you hold already and which discounts you have:
  commitments: [{ cloud: aws, region: us-east-1, instance_type: p4d.24xlarge, count: 2, until: 2027-03-31 }]
  discounts: [{ cloud: gcp, market: on-demand, percent: 12 }]

`spot*` marks a market of which nobody publishes how often it takes machines back. What nobody can price is unknown and
not in the sum; such a way is marked `+?` and ranked as if that part cost the dearest known rate.";

/// What to plan.
#[derive(Debug, Default, Args)]
#[command(after_help = PLAN_HELP)]
pub struct PlanArgs {
    /// The job file; or say the work with --hours, or --parameters and --tokens
    #[arg(value_name = "JOB.yaml")]
    pub file: Option<PathBuf>,
    /// What differs from the job file.
    #[command(flatten)]
    pub change: PlanChange,
    /// Say what became of every offer of one instance type
    #[arg(long, value_name = "TYPE")]
    pub why: Option<String>,
    /// A page in Markdown
    #[arg(long, conflicts_with = "json")]
    pub md: bool,
    /// Draw cost against time into this file
    #[arg(long, value_name = "FILE")]
    pub svg: Option<PathBuf>,
}

/// Plans of several jobs.
#[derive(Debug, Args)]
pub struct CompareArgs {
    /// The job files
    #[arg(value_name = "JOB.yaml", required = true, num_args = 2..)]
    pub files: Vec<PathBuf>,
    /// What differs from the job file.
    #[command(flatten)]
    pub change: PlanChange,
}

/// What differs from the job file.
#[derive(Debug, Default, Args)]
pub struct PlanChange {
    /// Hours of running, instead of a job file's work
    #[arg(long, value_name = "H", allow_negative_numbers = true, conflicts_with_all = ["parameters", "tokens"])]
    pub hours: Option<String>,
    /// The accelerators that the hours were counted on
    #[arg(long, value_name = "GPU[:N]", requires = "hours")]
    pub on: Option<String>,
    /// Parameters of the model, such as 7e9 or 7B
    #[arg(long, value_name = "N", requires = "tokens", allow_negative_numbers = true)]
    pub parameters: Option<String>,
    /// Tokens to train on, such as 3e10 or 30B
    #[arg(long, value_name = "N", requires = "parameters", allow_negative_numbers = true)]
    pub tokens: Option<String>,
    /// Only LoRA matrices are trained: the model needs less memory
    #[arg(long, requires = "parameters")]
    pub lora: bool,
    /// On these accelerators
    #[arg(long, value_name = "GPU[:N],…")]
    pub gpu: Vec<String>,
    /// Numbers of nodes to look at
    #[arg(long, value_delimiter = ',', value_name = "N,…")]
    pub nodes: Vec<u32>,
    /// Your own measurement: share of perfect scaling by number of nodes
    #[arg(long, value_delimiter = ',', value_name = "N=SHARE,…")]
    pub scaling: Vec<String>,
    /// Time to the deadline, such as 36h
    #[arg(long, value_name = "TIME")]
    pub deadline: Option<String>,
    /// Number formats that the program may use
    #[arg(long, value_delimiter = ',', value_name = "FORMAT,…")]
    pub precision: Vec<String>,
    /// Where and how.
    #[command(flatten)]
    pub places: PlaceArgs,
    /// Where the checkpoint store is: cloud/region
    #[arg(long, value_name = "PLACE")]
    pub store_at: Option<String>,
    /// What you hold already, and your discounts
    #[arg(long, value_name = "FILE")]
    pub holdings: Option<PathBuf>,
    /// Only what `windfall run` can lease here: the replayed market
    #[arg(long)]
    pub here: bool,
    /// Only the cheapest of each; where no accelerators are named, those that come near in speed and memory count too
    #[arg(long, value_enum)]
    pub by: Option<PlanGroup>,
    /// At most so many lines
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub limit: Option<u32>,
    /// Every way there is
    #[arg(long)]
    pub all: bool,
}

/// What candidates are grouped by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum PlanGroup {
    /// Cloud
    Cloud,
}

const CATALOG_HELP: &str = "\
Examples:
  windfall catalog                         sources, dates and ages
  windfall catalog build --from prices/    one of your own, from files
  windfall catalog build --from prices/ --out team.catalog

`build` reads AWS bulk offer files and spot price history replies, Google Cloud
SKU lists, Azure retail price pages, Lambda's instance types and SkyPilot's
catalogue files (in a folder for each cloud); plain, gzip or Zstandard. What no
file speaks about is kept from the embedded catalogue.

A catalogue in the state directory (`catalog`), or the file that
WINDFALL_CATALOG names, is used instead of the embedded one.";

/// The catalogue in use, or a new one.
#[derive(Debug, Args)]
#[command(after_help = CATALOG_HELP, args_conflicts_with_subcommands = true)]
pub struct CatalogArgs {
    /// What to do; without it, the catalogue in use is shown.
    #[command(subcommand)]
    pub command: Option<CatalogCommand>,
}

/// What to do with catalogues.
#[derive(Debug, Subcommand)]
pub enum CatalogCommand {
    /// Make a catalogue from files
    Build {
        /// The folder with the files
        #[arg(long, value_name = "DIR")]
        from: PathBuf,
        /// The file to write (default: `catalog` in the state directory)
        #[arg(long, value_name = "FILE")]
        out: Option<PathBuf>,
    },
}
