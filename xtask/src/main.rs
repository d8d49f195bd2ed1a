//! Every chore of the project: `cargo xtask test`, `bench`, `explore`.

mod architecture;
mod bench;
mod bench_build;
mod bench_server;
mod circles;
mod components;
mod docs;
mod kubernetes;
mod leftovers;
mod licences;
mod load;
mod mutants;
mod profile;
mod programs;
mod style;
mod test;
mod workspace;

use std::process::ExitCode;
use workspace::{cargo, finish, run};

const HELP: &str = "\
cargo xtask test              everything that must hold: format, lints, architecture, licences, all tests
cargo xtask test --quick      the same without what takes minutes (kill points, the whole quickstart)
cargo xtask bench [NAME…]     every figure: store, checkpoint, explore, restart, quickstart, load, catalog, size, brain,
                              server, market and plan (read WINDFALL_DATA); market alone takes the parts wanted:
                              table, zones, regions, gangs, folds, speed; brain alone takes numbers of live jobs
                              (1000 10000 100000 if none), --seconds S, --rounds N, --json; server alone takes
                              parts (submit, live, restart, idle, running, history), --clients N, --seconds S, --live N,
                              --history N, --json; profile (reads WINDFALL_DATA) takes --gb N for the size of its
                              invented trace; slurm takes a number of jobs (500000 if none);
                              slurm-submits N submits as many jobs to a real slurmctld (1000 if none; root, and only when
                              named); build builds the program
                              from nothing, and is only run when named
cargo xtask catalog           the embedded catalogue and its report, from the files in WINDFALL_DATA
cargo xtask priors            learn the embedded priors of spot markets again from WINDFALL_DATA
cargo xtask markets           write the embedded spot markets again from WINDFALL_DATA
cargo xtask explore [ARGS…]   the fault explorer: --seed N, --seeds A..B, --seconds S, --planted all
cargo xtask mutants [ARGS…]   small bugs put into a copy of the tree one by one, which tests or explorer must find
                              (hours; goes on where it stopped): NAME…, --list, --check, --time SECONDS, --again
";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let rest = args.get(1..).unwrap_or_default();
    if rest.iter().any(|word| word == "--help" || word == "-h") {
        print!("{HELP}");
        return ExitCode::SUCCESS;
    }
    match args.first().map(String::as_str) {
        Some("test") => test::test(rest),
        Some("bench") => bench::bench(rest),
        Some("catalog") => {
            let make = ["run", "--quiet", "--release", "--package", "windfall-catalog", "--example", "make_catalog"];
            finish(run(&mut cargo(&make)))
        }
        Some("explore") => {
            let mut command = cargo(&["run", "--quiet", "--release", "--package", "windfall-explore", "--"]);
            finish(run(command.args(rest)))
        }
        Some("mutants") => mutants::mutants(rest),
        Some("priors") => bench::priors(),
        Some("markets") => bench::markets(),
        Some("end-leftovers-of") => leftovers::end_leftovers(rest),
        Some("help" | "--help" | "-h") | None => {
            print!("{HELP}");
            ExitCode::SUCCESS
        }
        Some(other) => {
            eprintln!("error: no chore is called {other}\n\n{HELP}");
            ExitCode::from(2)
        }
    }
}
