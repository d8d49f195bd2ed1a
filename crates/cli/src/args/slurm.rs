//! Arguments of `windfall slurm`.

use clap::{Args, Subcommand};
use std::path::PathBuf;

/// What to learn of a Slurm cluster.
#[derive(Debug, Subcommand)]
pub enum SlurmCommand {
    /// Use, waits, fairness, starvation, and what was asked for and not used, from accounting
    Report(Box<SlurmReportArgs>),
}

const HELP: &str = "\
Examples:
  windfall slurm report                              the last 30 days, asked of sacct and sshare here
  windfall slurm report jobs.txt --sshare shares.txt
  windfall slurm report jobs.txt --split 2026-03-01  the same figures before and after that day
  windfall slurm report jobs.txt --by account --price-per-gpu-hour 2.5 --html report.html

A file is what `sacct -a -P` or `sacct -a --json` prints, plain or gzip; the more fields, the more is known:
  F=JobID,JobName,User,Account,Partition,State,Submit,Eligible,Start,End
  F=$F,ElapsedRaw,TimelimitRaw,AllocCPUS,AllocTRES,ReqTRES,ReqMem,MaxRSS
  F=$F,NTasks,TotalCPU,TRESUsageInTot
  sacct -a -D -P -S 2026-01-01 -o $F > jobs.txt

A wait is counted from when a job could have started (Eligible, else Submit). Hours are cut at --since, --until and --split; \
a job counts where it was submitted. Times stand as in the file, those in seconds as UTC.";

/// Which accounting, and what of it.
#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub struct SlurmReportArgs {
    /// What sacct printed; `-` is standard input. Without any, sacct is asked
    #[arg(value_name = "FILE")]
    pub files: Vec<PathBuf>,
    /// What `sshare -a -P` printed: shares that accounts were granted
    #[arg(long, value_name = "FILE")]
    pub sshare: Option<PathBuf>,
    /// From this moment: 2026-01-31 or 2026-01-31T12:00:00 [default without files: 30 days ago]
    #[arg(long, value_name = "DATE")]
    pub since: Option<String>,
    /// Until this moment; a day is its first moment, as for sacct
    #[arg(long, value_name = "DATE")]
    pub until: Option<String>,
    /// The same figures before and after this moment
    #[arg(long, visible_alias = "before", value_name = "DATE")]
    pub split: Option<String>,
    /// Tables of these only
    #[arg(long, value_enum, value_delimiter = ',', value_name = "WHAT,…")]
    pub by: Vec<SlurmBy>,
    /// Rows of a table [default: 10; all in JSON]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub top: Option<u32>,
    /// Dollars for an hour of one GPU [default: its type's cheapest on demand, where Slurm names the type]
    #[arg(long, value_name = "USD", allow_negative_numbers = true)]
    pub price_per_gpu_hour: Option<f64>,
    /// Write a page with all tables that needs no network
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
}

/// What figures are split by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum SlurmBy {
    /// Users
    User,
    /// Accounts
    Account,
    /// Partitions
    Partition,
    /// Names of jobs without the numbers at their ends
    Type,
}

impl SlurmBy {
    /// Its stable name: the key in JSON, the head of a table.
    pub fn name(self) -> &'static str {
        match self {
            SlurmBy::User => "user",
            SlurmBy::Account => "account",
            SlurmBy::Partition => "partition",
            SlurmBy::Type => "type",
        }
    }
}
