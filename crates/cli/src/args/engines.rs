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
    /// What engines hold with this server's mark and its log does not know; the server ends such leases by itself
    Sweep {
        /// Only show them, which is all that there is to do
        #[arg(long, required = true)]
        dry_run: bool,
    },
}
