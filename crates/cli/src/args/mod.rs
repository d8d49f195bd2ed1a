//! The command line, in one place: help, completions and man pages come from here.

mod bench;
mod cost;
mod engines;
mod facts;
mod gpu;
mod k8s;
mod nodes;
mod profile;
mod sbatch;
mod service;
mod simulate;
mod slurm;

pub use bench::{
    BenchCommand, BenchCompareArgs, BenchExtrapolateArgs, BenchPrecisionArgs, BenchRunArgs, MeasuredArgs, ScalingWord,
};
pub use cost::CostArgs;
pub use engines::{DrillArgs, EnginesArgs, EnginesCommand};
pub use facts::{
    CatalogArgs, CatalogCommand, CompareArgs, OfferSort, OffersArgs, PlaceArgs, PlanArgs, PlanChange, PlanGroup,
};
pub use gpu::GpuArgs;
pub use k8s::{K8sCommand, K8sInstallArgs};
pub use nodes::{AgentCommand, JoinArgs, NodeArgs, NodesArgs, NodesCommand, PilotArgs};
pub use profile::{LikeHta, ProfileArgs};
pub use sbatch::SbatchArgs;
pub use service::{ConfigArgs, ConfigCommand, ServiceArgs, ServiceCommand, UnitArgs, UnitName};
pub use simulate::{SimulateCommand, SimulateMarketArgs};
pub use slurm::{SlurmBy, SlurmCommand, SlurmReportArgs};

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
  windfall cost --by team,day         who spent what, when
  windfall profile trace.json.gz      why is my step slow, and what does that cost?
  windfall gpu --from nvidia-smi.csv  what did my GPUs do, and what of it was wasted?
  windfall bench run bert-base        how fast is this machine, and what do 1,000 steps cost?
  windfall slurm report jobs.txt      who uses the cluster, who waits, what is asked for and not used
  windfall help words                 what the words on the screen mean

Exit codes:
  0 done   1 a bug, or output that cannot be written   2 bad input, nothing changed   3 the job failed   4 finished late
  5 the service cannot be reached   130 detached, interrupted, cancelled or paused

Environment:
  WINDFALL_HOME     the state directory (default: ~/.local/state/windfall)
  WINDFALL_CONFIG   the configuration file (default: its config.toml, if any)
  WINDFALL_IDLE     seconds without jobs or clients after which a server ends itself (default: 600; one that listens stays)
  WINDFALL_CATALOG  a catalogue of prices to use instead of the embedded one
  WINDFALL_TODAY    the day from which ages of prices count (default: today)
  NO_COLOR          no colours

Linux is supported; other systems are not.";

const UP_HELP: &str = "\
Examples:
  windfall up                                  a recorded market, to try it
  windfall up --local                          this computer's accelerators
  windfall up --local --listen 0.0.0.0:7443    and machines that join
  windfall up --config lab.toml                as the file says; flags count more
  windfall up --foreground                     as services do

A configuration file says the same, once: `windfall config example` prints one, `windfall config show` says what holds. One \
that is wrong changes nothing. `windfall service install` has a server started with the machine.";

const DOCTOR_HELP: &str = "\
Looks at: python3, the NVIDIA driver, the clock, the configuration, the state directory, the server, the port, disks, \
control groups, limits, the kernel, and the agent of a machine that has joined. Nothing is changed, nothing is started; \
a file of 4 KB is written to the disk and removed, to see how fast that is.

Exit codes:
  0 nothing that is needed is missing (there may be warnings)   2 something needed is missing";

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
    /// Bring back what a job's program left: the files that its job file names as `outputs`
    Get(GetArgs),
    /// Cancel a job: it may save, then it ends
    Cancel(CancelArgs),
    /// Go on from what an ended job has saved, as a new job with a budget of its own
    Resume(ResumeArgs),
    /// Give a job another budget; one that was paused for its budget goes on
    Budget(BudgetArgs),
    /// Every decision about a job, with its numbers
    Explain(ExplainArgs),
    /// Who spent what, on what: the ledger, split by team, user, job, market, day, tag
    Cost(CostArgs),
    /// What the server does now
    Status,
    /// The server's machines: list, drain, resume, label, remove them, make tokens to join by
    Nodes(NodesArgs),
    /// One of the server's machines: its accelerators and who uses them, its place, how it is
    Node(NodeArgs),
    /// What runs leases for the server: list, check what each needs, drill one, show what is in no log
    Engines(EnginesArgs),
    /// Start a server
    Up(UpArgs),
    /// End the server; jobs go on and are adopted by the next one
    Down(DownArgs),
    /// What a server does by itself: check its configuration file, show what holds
    Config(Box<ConfigArgs>),
    /// Units of systemd for server and agent: print, install, uninstall them
    #[command(subcommand)]
    Service(ServiceCommand),
    /// What is missing on this machine, with the command that mends it; nothing is changed
    #[command(after_help = DOCTOR_HELP)]
    Doctor,
    /// What can be bought: accelerators, where, for how much
    Offers(OffersArgs),
    /// What a job would cost, everywhere: ranked ways to run it, and why the others will not do
    Plan(Box<PlanArgs>),
    /// Plans of several jobs side by side
    Compare(Box<CompareArgs>),
    /// Where the prices come from and how old they are; build a catalogue of your own
    Catalog(CatalogArgs),
    /// Where a training step's time goes, from profiler traces, and what would pay most
    Profile(Box<ProfileArgs>),
    /// What GPUs do: this machine's now, or those of a log of nvidia-smi, after the fact
    Gpu(Box<GpuArgs>),
    /// Measure programs on this machine: speed, memory, energy, cost; compare, extrapolate, try number formats
    #[command(subcommand)]
    Bench(BenchCommand),
    /// Interrupt your program in every way that spot capacity does, and say whether it is safe
    Rehearse(RehearseArgs),
    /// Would another policy have been better? Play recorded markets
    #[command(subcommand)]
    Simulate(SimulateCommand),
    /// What a Slurm cluster's accounting says
    #[command(subcommand)]
    Slurm(SlurmCommand),
    /// Submit a script to this machine's Slurm cluster as sbatch does, with what its writer got wrong put right
    Sbatch(SbatchArgs),
    /// What a Kubernetes cluster needs so that a server uses it
    #[command(subcommand)]
    K8s(K8sCommand),
    /// Write a commented job file
    Init(InitArgs),
    /// Print the JSON Schema of job files
    Schema {
        /// The one of configuration files
        #[arg(long)]
        config: bool,
        /// The one of benchmark results
        #[arg(long, conflicts_with = "config")]
        benchmark: bool,
    },
    /// What the words on the screen mean
    #[command(long_about = crate::glossary::glossary(100))]
    Words,
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
    /// Make this machine a node of a server
    #[command(subcommand)]
    Agent(AgentCommand),
    /// An engine in a process of its own
    #[command(hide = true)]
    Engine(EngineArgs),
}

/// A job file.
#[derive(Debug, Args)]
pub struct SubmitArgs {
    /// The job file
    pub file: PathBuf,
    /// What is accepted all the same
    #[command(flatten)]
    pub accept: AcceptArgs,
}

/// What is accepted all the same.
#[derive(Clone, Copy, Debug, Args)]
pub struct AcceptArgs {
    /// Accept it although nothing that is sold here could serve it: it waits until something does
    #[arg(long)]
    pub wait: bool,
    /// Begin with the files that lie in `checkpoint.path`, whoever wrote them
    #[arg(long)]
    pub with_files: bool,
}

/// An ended job, and what to change.
#[derive(Debug, Args)]
pub struct ResumeArgs {
    /// Its number or name
    pub job: String,
    /// A job file with changes; the job as it was if left out
    pub file: Option<PathBuf>,
    /// What is accepted all the same
    #[command(flatten)]
    pub accept: AcceptArgs,
}

/// A job file, and how to watch.
#[derive(Debug, Args)]
pub struct RunArgs {
    /// The job file
    pub file: PathBuf,
    /// Plain lines even on a terminal
    #[arg(long)]
    pub plain: bool,
    /// What is accepted all the same
    #[command(flatten)]
    pub accept: AcceptArgs,
}

/// Which jobs.
#[derive(Debug, Args)]
pub struct JobsArgs {
    /// Ended ones too
    #[arg(long, short)]
    pub all: bool,
    /// At most so many
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..))]
    pub limit: u32,
    /// Only jobs with a lower number: the next page of a long list
    #[arg(long, value_name = "JOB")]
    pub before: Option<u64>,
}

/// A job.
#[derive(Debug, Args)]
pub struct JobArgs {
    /// Its number or its name
    pub job: String,
}

/// A job that is to end.
#[derive(Debug, Args)]
pub struct CancelArgs {
    /// Its number or its name
    pub job: String,
    /// Kill it without time to save, and give up a last save that is on its way
    #[arg(long)]
    pub now: bool,
}

/// A job's budget.
#[derive(Debug, Args)]
pub struct BudgetArgs {
    /// Its number or its name
    pub job: String,
    /// Dollars for the whole job, what it has cost included; `none` for no limit
    pub dollars: String,
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

/// What a job left.
#[derive(Debug, Args)]
pub struct GetArgs {
    /// Its number or its name
    pub job: String,
    /// Only this file or folder of what it left
    pub path: Option<PathBuf>,
    /// The folder that takes the files [default: the present one]
    #[arg(long, value_name = "FOLDER")]
    pub into: Option<PathBuf>,
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
#[derive(Clone, Debug, Default, Args)]
#[command(after_help = UP_HELP)]
pub struct UpArgs {
    /// What this says holds where no flag does [env: WINDFALL_CONFIG] [default: config.toml in the state directory]
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Serve in this process until told to end, as services do
    #[arg(long)]
    pub foreground: bool,
    /// Use this computer, with its accelerators, instead of a recorded market
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", value_name = "BOOL")]
    #[arg(conflicts_with_all = ["market", "zones", "from_hours", "speed"])]
    pub local: Option<bool>,
    /// Take machines in that join over the network, on this address
    #[arg(long, conflicts_with_all = ["market", "zones", "from_hours", "speed"], value_name = "IP:PORT")]
    pub listen: Option<std::net::SocketAddr>,
    /// How long the work on a machine that has joined goes on without a word from the server
    #[arg(long, value_name = "TIME")]
    pub dead_man: Option<String>,
    /// The accelerators of this computer, where they are not found by themselves
    #[arg(long, value_delimiter = ',', value_name = "NAME:COUNT,…")]
    pub accelerators: Vec<String>,
    /// What an hour of this computer costs, in dollars
    #[arg(long, value_name = "DOLLARS")]
    pub rate: Option<f64>,
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
    /// End without jobs and clients for so long, or never [env: WINDFALL_IDLE, in seconds] [default: 10m, and never
    /// with --listen]
    #[arg(long, value_name = "TIME")]
    pub idle: Option<String>,
    /// The policy of jobs that name none
    #[arg(long, hide = true, value_name = "NAME")]
    pub policy: Option<String>,
    /// The configuration file has been read
    #[arg(long, hide = true)]
    pub settled: bool,
    /// Lease also from the engine of this name that listens on this socket
    #[arg(long, hide = true, value_name = "NAME=SOCKET")]
    pub engine: Vec<String>,
    /// Lease also from the Slurm cluster of this machine, as this JSON says
    #[arg(long, hide = true, requires = "listen", value_name = "JSON")]
    pub slurm: Option<String>,
    /// Lease also from a Kubernetes cluster, as this JSON says
    #[arg(long, hide = true, requires = "listen", value_name = "JSON")]
    pub kubernetes: Option<String>,
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
    /// The notice before an interruption: the shortest that a cloud promises, 30s on GCP and Azure; AWS gives 120s
    #[arg(long, default_value = "30s", value_name = "TIME")]
    pub notice: String,
    /// Play so many acts at the same time (default: as many as free cores allow, and one with an accelerator)
    #[arg(long, value_name = "N")]
    pub at_once: Option<std::num::NonZero<usize>>,
    /// Keep the state directory of the rehearsal for a look
    #[arg(long)]
    pub keep: bool,
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

/// A recorded market in a process of its own.
#[derive(Debug, Args)]
pub struct EngineArgs {
    /// Its name
    pub name: String,
    /// Where it listens
    #[arg(long, value_name = "PATH")]
    pub socket: PathBuf,
    /// The folder of its leases
    #[arg(long, value_name = "DIR")]
    pub leases: PathBuf,
    /// The recorded market to replay
    #[arg(long, value_name = "NAME")]
    pub market: String,
    /// Sell in these zones only
    #[arg(long, value_delimiter = ',', value_name = "ZONE,…")]
    pub zones: Vec<String>,
    /// How many times faster than life, as the server's world
    #[arg(long, default_value_t = 60)]
    pub speed: u32,
}
