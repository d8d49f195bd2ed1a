//! `cargo xtask bench server`: the server at size on SQLite, then on PostgreSQL.

use crate::components::Components;
use crate::leftovers::Leftovers;
use crate::workspace::{built, cargo, root, run};
use std::process::Command;

/// The server at size: parts (submit, live, restart, idle, running, history, nodes), `--seconds`, `--clients`, `--live`, `--history`,
/// `--nodes`, `--json`.
pub fn bench_server(words: &[String]) -> bool {
    let packages = ["--package", "windfall-cli", "--bin", "windfall", "--package", "windfall-server"];
    let build = ["build", "--release", "--quiet"];
    if !run(cargo(&build).args(packages).args(["--example", "bench_server"])) {
        return false;
    }
    let bench = |more: &[String]| {
        let mut command = Command::new(built().join("examples/bench_server"));
        run(command.current_dir(root()).args(words).args(more))
    };
    println!("\n== the server at size, on SQLite (synchronous=FULL)");
    let on_sqlite = bench(&[]);
    let components = Components::postgres_alone(Leftovers::watch(&Components::folder()));
    let Some((_, address)) = components.env.iter().find(|(name, _)| *name == "WINDFALL_TEST_POSTGRES") else {
        println!("skipped: PostgreSQL: {}", components.skipped.first().map_or("", |(_, why)| why.as_str()));
        return false;
    };
    println!("\n== the server at size, on PostgreSQL (fsync {})", shown(&components, "fsync"));
    // Running jobs and pages of the history are the same on both.
    let parts: Vec<String> = match words.iter().any(|word| ["submit", "live", "idle"].contains(&word.as_str())) {
        true => Vec::new(),
        false => ["submit", "live"].map(str::to_owned).to_vec(),
    };
    let store = ["--store".to_owned(), address.clone()];
    on_sqlite & bench(&[parts, store.to_vec()].concat())
}

/// A setting as the server itself says it.
fn shown(components: &Components, setting: &str) -> String {
    let said = components.ask_postgres(&format!("SHOW {setting}"));
    said.unwrap_or_else(|| "unknown".to_owned())
}
