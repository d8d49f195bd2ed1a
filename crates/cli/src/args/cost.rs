//! Who spent what, on what.

use clap::Args;

const COST_HELP: &str = "\
Examples:
  windfall cost                                  by team and market
  windfall cost --by day                         a line a day
  windfall cost --by job --from 2026-11-01       every job since then
  windfall cost --by team,tag:project --from 2026-11 --to 2026-11
                                                 a month, by team and project
  windfall cost --by team,user,day --csv > cost.csv     for spreadsheets
  windfall cost --by accelerator --json          for programs

Split by: team, user, job, kind (job or fleet), tag:KEY (`tags` in job files), market, engine, accelerator, day, \
beneficiary (work, idle, foreign, not-ready, drained, overhead); several with commas.

A name in parentheses is none: (idle), (foreign), (not-ready), (drained) and (overhead) are time that was paid for and \
charged to nobody's work, (none) is work without that tag or a machine without accelerators, (unknown) was paid before \
the ledger kept it.

Columns: LEASE-H is hours of leases, GPU-H hours of accelerators, RUNNING the part of COST that leases cost which still \
run, until now.

Days are UTC, by the clock of the world that was paid in: a replayed market has a clock of its own. Amounts are this \
server's own count, not a provider's bill.

A machine's price is split into GPU, CPU and memory at fixed weights: 0.95 for an accelerator, 0.031611 for a core, \
0.004237 for a GiB. Where its shape is not known, 8 cores and 61 GiB stand beside each accelerator, and without \
accelerators a core has 4 GiB.

JSON and CSV have exact nano-dollars (cost_nanousd is gpu + cpu + memory + unsplit) and milliseconds; running_nanousd \
is the part of cost_nanousd that leases cost which still run.";

/// How to split it, and of when.
#[derive(Debug, Args)]
#[command(after_help = COST_HELP)]
pub struct CostArgs {
    /// Split by these, in this order
    #[arg(long, value_delimiter = ',', value_name = "WHAT,…", default_value = "team,market")]
    pub by: Vec<String>,
    /// From this day on: 2026-11-01, or a month: 2026-11
    #[arg(long, value_name = "DAY")]
    pub from: Option<String>,
    /// Until this day, which is included; or a month
    #[arg(long, value_name = "DAY")]
    pub to: Option<String>,
    /// Print CSV for spreadsheets
    #[arg(long, conflicts_with = "json")]
    pub csv: bool,
}
