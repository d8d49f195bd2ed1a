//! A server or an agent that stays: its configuration, its unit.

use super::UpArgs;
use clap::{Args, Subcommand};
use std::path::PathBuf;

const CONFIG_HELP: &str = "\
Examples:
  windfall config example > config.toml       every key, commented
  windfall config check config.toml           exit code 2 where it is wrong
  windfall config show                        what holds, and who says so
  windfall config show --listen 0.0.0.0:7443  what would hold with this flag
  windfall schema --config                    the JSON Schema, for editors

The file is the one that --config names, else WINDFALL_CONFIG, else config.toml in the state directory.";

/// The configuration file.
#[derive(Debug, Args)]
#[command(after_help = CONFIG_HELP)]
pub struct ConfigArgs {
    /// What to do with it.
    #[command(subcommand)]
    pub command: ConfigCommand,
}

/// What to do with a configuration file.
#[derive(Debug, Subcommand)]
pub enum ConfigCommand {
    /// Say whether a file is right; nothing is changed
    Check {
        /// The file (default: the one that would be used)
        file: Option<PathBuf>,
    },
    /// Show what holds for a server, and for an agent, and who says so
    Show(Box<UpArgs>),
    /// Print a commented file that sets nothing
    Example,
}

const SERVICE_HELP: &str = "\
Examples:
  windfall service print                        the server's unit, explained
  windfall service install server               as root: for account `windfall`
  windfall service install agent --user         a unit of your own
  windfall service install agent --root image/  for the image of a machine
  windfall service uninstall agent

A unit holds no token and no password. Jobs go on while a service is stopped or restarted. State and configuration stay \
when it is uninstalled.";

/// What to do with units.
#[derive(Debug, Subcommand)]
#[command(after_help = SERVICE_HELP)]
pub enum ServiceCommand {
    /// Write the unit, and a commented configuration where there is none
    #[command(after_help = SERVICE_HELP)]
    Install(ServiceArgs),
    /// Stop it and remove the unit; state and configuration stay
    Uninstall(ServiceArgs),
    /// Print the unit; nothing is written
    Print(UnitArgs),
}

/// Which unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum UnitName {
    /// The server
    Server,
    /// The agent of a machine that joins
    Agent,
}

/// What a unit says.
#[derive(Clone, Debug, Args)]
pub struct UnitArgs {
    /// Which one
    #[arg(value_enum, default_value = "server")]
    pub unit: UnitName,
    /// A unit of this user, not of the system
    #[arg(long)]
    pub user: bool,
    /// Who it runs as: programs of jobs on this machine run as that account too
    #[arg(long, default_value = "windfall", value_name = "NAME", conflicts_with = "user")]
    pub account: String,
    /// The program (default: this one)
    #[arg(long, value_name = "PATH")]
    pub program: Option<PathBuf>,
}

/// A unit, and where it is written.
#[derive(Clone, Debug, Args)]
pub struct ServiceArgs {
    /// What it says.
    #[command(flatten)]
    pub unit: UnitArgs,
    /// Below this folder, as for the image of a machine; nothing is started
    #[arg(long, value_name = "DIR")]
    pub root: Option<PathBuf>,
    /// Write over, or remove, a unit that was not written by this command
    #[arg(long)]
    pub force: bool,
}
