//! Nodes, and the agent that makes a machine one.

use clap::{Args, Subcommand};
use std::path::PathBuf;

/// The server's machines: those that have joined, and its own computer where that is for jobs.
#[derive(Debug, Args)]
pub struct NodesArgs {
    /// What to do; without a word, they are listed.
    #[command(subcommand)]
    pub command: Option<NodesCommand>,
}

/// One of the server's machines.
#[derive(Debug, Args)]
pub struct NodeArgs {
    /// Its name
    pub name: String,
}

/// What to do with nodes.
#[derive(Debug, Subcommand)]
pub enum NodesCommand {
    /// List them
    List,
    /// Make a token by which one machine can join: `windfall agent join` there
    Token {
        /// What the node is to be called
        name: String,
        /// What an hour of it costs, in dollars
        #[arg(long, value_name = "DOLLARS")]
        rate: Option<f64>,
    },
    /// Put nothing new on a node; what runs there goes on
    Drain {
        /// Its name
        name: String,
        /// The reason, for people
        #[arg(long, default_value = "by its operator", value_name = "TEXT")]
        why: String,
    },
    /// Put work on a drained node again, whatever was wrong with it; what comes after this counts
    Resume {
        /// Its name
        name: String,
    },
    /// Say something of a node: its rack, its zone, or any word
    Label {
        /// Its name
        name: String,
        /// KEY=VALUE to say it, KEY- to take it back; zone, block, rack and nvlink are its place
        #[arg(required = true, value_name = "KEY=VALUE")]
        labels: Vec<String>,
    },
    /// Say where nodes are, from a file; a file that is wrong changes nothing
    Topology {
        /// TOML: [rack.r1], and below it nodes = ["gpu-1"] and perhaps zone = "east"
        file: PathBuf,
    },
    /// Forget a node: its key opens nothing any more
    Remove {
        /// Its name
        name: String,
        /// The machine is off for good: what ran there is begun elsewhere at once
        #[arg(long)]
        lost: bool,
    },
}

impl NodesCommand {
    /// The node that is meant.
    pub fn name(&self) -> Option<&str> {
        match self {
            NodesCommand::List | NodesCommand::Topology { .. } => None,
            NodesCommand::Token { name, .. }
            | NodesCommand::Drain { name, .. }
            | NodesCommand::Resume { name }
            | NodesCommand::Label { name, .. }
            | NodesCommand::Remove { name, .. } => Some(name),
        }
    }
}

/// An agent: the one of a machine, and what it starts for leases.
#[derive(Debug, Subcommand)]
pub enum AgentCommand {
    /// Join a server with this machine, and serve it until told to end
    Join(JoinArgs),
    /// Say what accelerators this machine has and how they are, as JSON lines.
    #[command(hide = true)]
    Accelerators {
        /// One line
        #[arg(long)]
        once: bool,
    },
    /// Say what accelerators do, as JSON lines.
    #[command(hide = true)]
    Telemetry {
        /// The pause between lines, and before the first
        #[arg(long, default_value_t = 1_000, value_parser = clap::value_parser!(u64).range(1..))]
        every_ms: u64,
        /// So many lines
        #[arg(long)]
        times: Option<u64>,
    },
    /// Start guard and agent of a lease.
    #[command(hide = true)]
    Launch {
        /// The lease's folder
        folder: PathBuf,
        /// Whom it runs as, by numbers: user, group and further groups
        #[arg(long)]
        account: Option<windfall_agent::Account>,
        /// The most cores that it has, in thousandths; 0 for any
        #[arg(long, default_value_t = 0)]
        cpu_millis: u64,
        /// The most memory that it has; 0 for any
        #[arg(long, default_value_t = 0)]
        memory_bytes: u64,
    },
    /// Adopt orphans.
    #[command(hide = true)]
    Guard {
        /// The lease's folder
        folder: PathBuf,
    },
    /// Supervise.
    #[command(hide = true)]
    Serve {
        /// The lease's folder
        folder: PathBuf,
    },
    /// Wait for the work of one lease, as a process of an engine's.
    #[command(hide = true)]
    Pilot(PilotArgs),
    /// Put this program into a folder, for another container of its pod.
    #[command(hide = true)]
    Copy {
        /// Where it is put, as `windfall`
        folder: PathBuf,
    },
    /// Become the program.
    #[command(hide = true)]
    Exec {
        /// The program and its arguments
        #[arg(last = true)]
        command: Vec<String>,
    },
    /// Look at what somebody names, as them: what, on the standard input.
    #[command(hide = true)]
    Look {
        /// Whom to become first, by numbers
        #[arg(long)]
        account: windfall_agent::Account,
    },
    /// End everything that carries a lease's mark.
    #[command(hide = true)]
    Sweep {
        /// The lease
        lease: String,
        /// Whom it runs as: nobody else's processes are ended
        #[arg(long)]
        uid: Option<u32>,
        /// Nothing but this lease runs as that user: all of its processes are ended
        #[arg(long, requires = "uid")]
        alone: bool,
    },
}

/// How a pilot finds its server. Its token is in a file, or a line of the standard input: the one of its number in Slurm's job.
#[derive(Clone, Debug, Args)]
pub struct PilotArgs {
    /// The server: HOST:PORT
    pub server: String,
    /// Where its state directory is made
    #[arg(long, value_name = "DIR")]
    pub scratch: PathBuf,
    /// The accelerators that it was given
    #[arg(long, value_name = "NAME:COUNT")]
    pub accelerators: Option<String>,
    /// The file that holds its token
    #[arg(long, value_name = "FILE")]
    pub token_file: Option<PathBuf>,
}

/// How a machine joins.
#[derive(Clone, Debug, Default, Args)]
pub struct JoinArgs {
    /// The server: HOST:PORT, or https://HOST:PORT; not needed once this machine has joined
    pub server: Option<String>,
    /// A token of `windfall nodes token NAME` [env: WINDFALL_JOIN_TOKEN]
    #[arg(long, conflicts_with = "token_file")]
    pub token: Option<String>,
    /// The file that holds the token; - for standard input
    #[arg(long, value_name = "FILE")]
    pub token_file: Option<PathBuf>,
    /// The name that the token is for, to be sure
    #[arg(long)]
    pub name: Option<String>,
    /// The accelerators of this machine, where they are not found by themselves
    #[arg(long, value_delimiter = ',', value_name = "NAME:COUNT,…")]
    pub accelerators: Vec<String>,
    /// Something to say of this machine, such as rack=r7; again for more
    #[arg(long = "label", value_name = "KEY=VALUE")]
    pub labels: Vec<String>,
    /// Run what root has submitted as root; without it, an agent of root's runs everything as whoever submitted it, and
    /// nothing as root
    #[arg(long)]
    pub as_root: bool,
    /// The account that runs what people have submitted whom this machine does not know; for an agent of root's
    #[arg(long, value_name = "NAME")]
    pub run_as: Option<String>,
    /// Join, write that down with the flags about this machine, and end: a service goes on from there with them
    #[arg(long)]
    pub once: bool,
    /// What its [agent] table says holds where no flag does [env: WINDFALL_CONFIG] [default: config.toml in the agent's
    /// state directory, if there is one]
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// The agent's state directory (default: /var/lib/windfall-agent for root, else ~/.local/state/windfall-agent)
    #[arg(long, value_name = "DIR")]
    pub state: Option<PathBuf>,
}
