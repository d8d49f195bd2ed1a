//! Engines: what runs leases.

use clap::{Args, Subcommand};

/// What runs leases for this server.
#[derive(Debug, Args)]
pub struct EnginesArgs {
    /// What to do; without a word, they are listed.
    #[command(subcommand)]
    pub command: Option<EnginesCommand>,
}

/// What to do with engines.
#[derive(Debug, Subcommand)]
pub enum EnginesCommand {
    /// List them: what each sells, what of it is leased, what that costs
    List,
    /// Whether each can be used: its programs, rights and limits, with what is missing; nothing is changed
    Check,
    /// End what engines hold with this server's mark and its log does not know. The server does so by itself every minute; this has
    /// it do so now, and says what it was
    Sweep {
        /// Only show it
        #[arg(long)]
        dry_run: bool,
    },
    /// Walk the whole way through one: a small job of yours asks for a machine, runs, saves, has its machine taken away with a
    /// notice, goes on on another one from what it saved, and ends. Prints each step, what the engine was asked and how long that
    /// took, and what is left there. Ctrl-C ends it and gives everything back
    Drill(DrillArgs),
}

/// A drill of one engine.
#[derive(Debug, Args)]
pub struct DrillArgs {
    /// The engine, as `windfall engines` names it
    pub name: String,
    /// What to ask for; the least and cheapest that it sells unless this says otherwise
    #[arg(long, value_name = "NAME:COUNT")]
    pub accelerators: Option<String>,
    /// Seconds of notice before the first machine is taken away; some engines count in minutes
    #[arg(long, default_value_t = 60, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(5..=3600))]
    pub notice: u32,
    /// Minutes after which it is given up, and everything given back: a queue may be long
    #[arg(long, default_value_t = 30, value_name = "MINUTES", value_parser = clap::value_parser!(u32).range(1..=10080))]
    pub within: u32,
}
