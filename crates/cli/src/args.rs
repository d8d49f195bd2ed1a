//! The command line, in one place: help, completions and man pages come from here.

use clap::{Args, Parser, Subcommand};
use std::path::PathBuf;

const ABOUT: &str = "Runs finite work on the cheapest accelerator capacity that still keeps its deadline";

const LONG_ABOUT: &str = "\
Windfall runs finite work on the cheapest capacity that still keeps its deadline.

Write a job file (`windfall init`), see whether your program survives interruptions (`windfall rehearse`), and run it \
(`windfall run`). A server starts in the background when one is needed; a job outlives the terminal that started it.";

const AFTER_HELP: &str = "\
Examples:
  windfall init --command 'python train.py' --hours 4 --deadline 8h
  windfall rehearse job.yaml          is my program safe on spot capacity?
  windfall run job.yaml               run it and watch
  windfall submit job.yaml            run it in the background
  windfall offers H100                what it costs, where
  windfall plan job.yaml              what the job would cost, everywhere
  windfall explain 12                 every decision about job 12, with its numbers

Exit codes:
  0 done   2 bad input, nothing changed   3 the job failed   4 finished late
  5 the service cannot be reached   130 detached or interrupted

Environment:
  WINDFALL_HOME     the state directory (default: ~/.local/state/windfall)
  WINDFALL_IDLE     seconds without jobs or clients after which a server ends itself (default: 600)
  WINDFALL_CATALOG  a catalogue of prices to use instead of the embedded one
  NO_COLOR          no colours

Linux is supported; other systems are not.";

/// Finds, runs, shares and accounts for accelerator compute at the lowest cost that keeps every promise.
#[derive(Debug, Parser)]
#[command(name = "windfall", version, about = ABOUT, long_about = LONG_ABOUT, after_help = AFTER_HELP, max_term_width = 100)]
pub struct Cli {
    /// The state directory, and so the world and the server [env: WINDFALL_HOME]
    #[arg(long, global = true, value_name = "DIR", help_heading = "Global options")]
    pub home: Option<PathBuf>,
    /// Print JSON for programs instead of text for people
    #[arg(long, global = true, help_heading = "Global options")]
    pub json: bool,
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run a job and watch it until it ends
    Run(RunArgs),
    /// Submit a job and return
    Submit(SubmitArgs),
    /// List jobs
    Jobs(JobsArgs),
    /// Watch a job that was started elsewhere
    Attach(JobArgs),
    /// Show what a job's program printed
    Logs(LogsArgs),
    /// Cancel a job: it may save, then it ends
    Cancel(JobArgs),
    /// Every decision about a job, with its numbers
    Explain(ExplainArgs),
    /// What the server does now
    Status,
    /// Start a server
    Up(UpArgs),
    /// End the server; jobs go on and are adopted by the next one
    Down(DownArgs),
    /// What can be bought: accelerators, where, for how much
    Offers(OffersArgs),
    /// What a job would cost, everywhere: ranked ways to run it, and why the others will not do
    Plan(Box<PlanArgs>),
    /// Plans of several jobs side by side
    Compare(Box<CompareArgs>),
    /// Where the prices come from and how old they are; build a catalogue of your own
    Catalog(CatalogArgs),
    /// Interrupt your program in every way that spot capacity does, and say whether it is safe
    Rehearse(RehearseArgs),
    /// Would another policy have been better? Play recorded markets
    #[command(subcommand)]
    Simulate(SimulateCommand),
    /// Write a commented job file
    Init(InitArgs),
    /// Print the JSON Schema of job files
    Schema,
    /// Print completions for a shell
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
    /// Write man pages into a folder
    Man {
        /// The folder
        folder: PathBuf,
    },
    /// A server in the foreground
    #[command(hide = true)]
    Serve(UpArgs),
    /// What stands on a lease
    #[command(hide = true, subcommand)]
    Agent(AgentCommand),
}

/// A job file.
#[derive(Debug, Args)]
pub struct SubmitArgs {
    /// The job file
    pub file: PathBuf,
}

/// A job file, and how to watch.
#[derive(Debug, Args)]
pub struct RunArgs {
    /// The job file
    pub file: PathBuf,
    /// Plain lines even on a terminal
    #[arg(long)]
    pub plain: bool,
}

/// Which jobs.
#[derive(Debug, Args)]
pub struct JobsArgs {
    /// Ended ones too
    #[arg(long, short)]
    pub all: bool,
    /// At most so many
    #[arg(long, default_value_t = 50)]
    pub limit: u32,
}

/// A job.
#[derive(Debug, Args)]
pub struct JobArgs {
    /// Its number or its name
    pub job: String,
}

/// A job's output.
#[derive(Debug, Args)]
pub struct LogsArgs {
    /// Its number or its name
    pub job: String,
    /// Go on until the job ends
    #[arg(long, short)]
    pub follow: bool,
    /// Which worker of a gang
    #[arg(long, default_value_t = 0)]
    pub rank: u32,
}

/// A job's decisions.
#[derive(Debug, Args)]
pub struct ExplainArgs {
    /// Its number or its name
    pub job: String,
    /// Progress reports too
    #[arg(long, short)]
    pub all: bool,
}

/// The world of a new state directory.
#[derive(Debug, Args)]
pub struct UpArgs {
    /// The recorded market to replay
    #[arg(long, value_name = "NAME")]
    pub market: Option<String>,
    /// Sell in these zones only
    #[arg(long, value_delimiter = ',', value_name = "ZONE,…")]
    pub zones: Vec<String>,
    /// Where the window begins on the recording
    #[arg(long, value_name = "HOURS")]
    pub from_hours: Option<f64>,
    /// How many times faster than life, 1 to 60
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=60))]
    pub speed: Option<u32>,
    /// Keep the state there: postgres://…
    #[arg(long, value_name = "URL")]
    pub store: Option<String>,
    /// Give each stint a fresh copy of the job's folder
    #[arg(long, hide = true)]
    pub fresh_folder: bool,
    /// End with this process, and remove the state directory
    #[arg(long, hide = true, value_name = "PID")]
    pub bound_to: Option<u32>,
}

/// How to end a server.
#[derive(Debug, Args)]
pub struct DownArgs {
    /// Cancel every job first
    #[arg(long)]
    pub cancel: bool,
}

/// What to rehearse.
#[derive(Debug, Args)]
pub struct RehearseArgs {
    /// The job file
    pub file: PathBuf,
    /// At most so long for one act
    #[arg(long, default_value = "10m", value_name = "TIME")]
    pub limit: String,
    /// The notice before an interruption, in real time
    #[arg(long, default_value = "10s", value_name = "TIME")]
    pub notice: String,
    /// Keep the state directory of the rehearsal for a look
    #[arg(long)]
    pub keep: bool,
}

const OFFERS_HELP: &str = "\
Examples:
  windfall offers                            every accelerator, cheapest price
  windfall offers H100                       by instance type and market
  windfall offers H100:8,A100:8 --market spot        either, as spot capacity
  windfall offers --cloud gcp TPU-v5e                TPUs count in chips
  windfall offers --sort price-per-tflop --all       every offer, every place
  windfall offers L4 --max-price 0.5 --json          for programs

Columns: $/PFLOPS-H is an hour of 1,000 peak bf16 TFLOP/s, $/TB-H an hour of
1,000 GB of accelerator memory. A share after `spot` is how many such instances
AWS takes back in a month. LAST YEAR shows the price over twelve months. MORE is
in how many more places, not cheaper, the same can be had. Prices without a zone
hold in their whole region. What is unknown is left empty.";

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
    /// In these clouds: aws, azure, gcp, lambda, nebius, oci, runpod, vast
    #[arg(long, value_delimiter = ',', value_name = "CLOUD,…")]
    pub cloud: Vec<String>,
    /// In these regions or zones
    #[arg(long, value_delimiter = ',', value_name = "REGION,…")]
    pub region: Vec<String>,
    /// On these markets: spot, on-demand, reserved, reserved-1y, reserved-3y
    #[arg(long, value_delimiter = ',', value_name = "MARKET,…")]
    pub market: Vec<String>,
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
    #[arg(long, value_name = "N")]
    pub limit: Option<usize>,
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

`spot*` marks a market without a recording of its own. What nobody can price is unknown and not in the sum.";

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
    #[arg(long, value_name = "H")]
    pub hours: Option<f64>,
    /// The accelerators that the hours were counted on
    #[arg(long, value_name = "GPU[:N]", requires = "hours")]
    pub on: Option<String>,
    /// Parameters of the model
    #[arg(long, value_name = "N", requires = "tokens")]
    pub parameters: Option<f64>,
    /// Tokens to train on
    #[arg(long, value_name = "N", requires = "parameters")]
    pub tokens: Option<f64>,
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
    /// In these clouds
    #[arg(long, value_delimiter = ',', value_name = "CLOUD,…")]
    pub cloud: Vec<String>,
    /// In these regions or zones
    #[arg(long, value_delimiter = ',', value_name = "REGION,…")]
    pub region: Vec<String>,
    /// On these markets: spot, on-demand
    #[arg(long, value_delimiter = ',', value_name = "MARKET,…")]
    pub market: Vec<String>,
    /// Where the checkpoint store is: cloud/region
    #[arg(long, value_name = "PLACE")]
    pub store_at: Option<String>,
    /// What you hold already, and your discounts
    #[arg(long, value_name = "FILE")]
    pub holdings: Option<PathBuf>,
    /// Only what `windfall run` can lease here: the replayed market
    #[arg(long)]
    pub here: bool,
    /// Only the cheapest of each
    #[arg(long, value_enum)]
    pub by: Option<PlanGroup>,
    /// At most so many lines
    #[arg(long, value_name = "N")]
    pub limit: Option<usize>,
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
  windfall simulate market zone-a.json zone-b.json --together --policy foresight,skynomad --svg plots/
  windfall simulate market counts.json --gang 16 --on-demand-price 24.48 --spot-price 7.34 --json";

/// Which markets, which jobs, which policies.
#[derive(Debug, Args)]
#[command(after_help = MARKET_EXAMPLES)]
pub struct SimulateMarketArgs {
    /// Recorded markets: files, or folders of them
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
    /// On-demand dollars an hour of one instance
    #[arg(long, default_value_t = 3.06, value_name = "USD")]
    pub on_demand_price: f64,
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

/// Answers for a job file.
#[derive(Debug, Args)]
pub struct InitArgs {
    /// The file to write
    #[arg(default_value = "job.yaml")]
    pub file: PathBuf,
    /// The job's name
    #[arg(long)]
    pub name: Option<String>,
    /// What to run
    #[arg(long)]
    pub command: Option<String>,
    /// Accelerators, such as V100 or A100:8
    #[arg(long)]
    pub accelerators: Option<String>,
    /// How long it runs undisturbed, in hours
    #[arg(long)]
    pub hours: Option<String>,
    /// How many steps it takes
    #[arg(long, conflicts_with = "hours")]
    pub steps: Option<String>,
    /// When it must be done: 8h, or a date
    #[arg(long)]
    pub deadline: Option<String>,
    /// The folder that the program saves checkpoints in
    #[arg(long)]
    pub checkpoint_path: Option<String>,
    /// Where checkpoints are kept: a folder, s3://…, gs://…, az://…
    #[arg(long)]
    pub store: Option<String>,
    /// Write over an existing file
    #[arg(long)]
    pub force: bool,
    /// Ask nothing
    #[arg(long, short)]
    pub yes: bool,
}

/// What stands on a lease.
#[derive(Debug, Subcommand)]
pub enum AgentCommand {
    /// Start guard and agent.
    Launch {
        /// The lease's folder
        folder: PathBuf,
    },
    /// Adopt orphans.
    Guard {
        /// The lease's folder
        folder: PathBuf,
    },
    /// Supervise.
    Serve {
        /// The lease's folder
        folder: PathBuf,
    },
    /// Become the program.
    Exec {
        /// The program and its arguments
        #[arg(last = true)]
        command: Vec<String>,
    },
    /// End everything that carries a lease's mark.
    Sweep {
        /// The lease
        lease: String,
    },
}
