//! Arguments of `windfall sbatch`.

use clap::Args;

const HELP: &str = "\
Examples:
  windfall sbatch train.sh                     as sbatch train.sh, with what is missing filled in
  windfall sbatch -p gpu -t 2:00:00 train.sh --epochs 3
  windfall sbatch --dry-run train.sh           only show what would be changed

What follows is that of sbatch: its options, then the script, then the script's arguments. What you choose on the command line \
or by a variable of sbatch (SBATCH_…) is never changed, nor is your file: a changed copy is submitted, and what differs is shown.

Looks at: GPUs that the script uses and does not ask for; a job without GPUs in a partition of nodes that have some; a time limit \
that is missing or far above what your last jobs of this name took (from 3 jobs on); a signal that the script traps and \
does not ask for; --cpus-per-task, which srun does not take over since Slurm 22.05; a partition or QOS for short jobs that begins it \
clearly sooner.

Prints what sbatch prints, and ends with its exit code. Without Slurm on this machine: 2.";

/// What is submitted, and how.
#[derive(Debug, Args)]
#[command(after_help = HELP, override_usage = "windfall sbatch [--dry-run | --as-is] [OPTIONS OF SBATCH] SCRIPT [ARGS]")]
pub struct SbatchArgs {
    /// Only show what would be changed
    #[arg(long)]
    pub dry_run: bool,
    /// Change nothing
    #[arg(long)]
    pub as_is: bool,
    /// Options of sbatch, the script, and its arguments
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "WORDS")]
    pub words: Vec<String>,
}
