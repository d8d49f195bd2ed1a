//! What the first command of the README costs whoever has nothing: how long it builds, and because of whom.

use crate::workspace::{cargo, root, run};
use serde_json::Value;
use std::path::Path;
use std::time::Instant;

/// Nobody waits longer than this for the first command, on two cores.
const MOST_SECONDS: f64 = 480.0;

/// Crates that are printed.
const SLOWEST: usize = 15;

/// One crate as cargo timed it.
struct Unit {
    name: String,
    seconds: f64,
    ours: bool,
}

/// Builds the program from nothing, apart from what is built already, and prints what took longest.
pub fn bench_build() -> bool {
    println!("\n== build from nothing");
    let folder = root().join("target/bench-build");
    let _ = std::fs::remove_dir_all(&folder);
    if !run(&mut cargo(&["fetch", "--locked", "--quiet"])) {
        return false;
    }
    let began = Instant::now();
    let mut build = cargo(&["build", "--release", "--quiet", "--bin", "windfall", "--timings"]);
    let good = run(build.env("CARGO_TARGET_DIR", &folder));
    let seconds = began.elapsed().as_secs_f64();
    if good {
        print(&units(&folder), seconds, &folder);
    }
    let _ = std::fs::remove_dir_all(&folder);
    good
}

fn print(units: &[Unit], seconds: f64, folder: &Path) {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let ratio = seconds / MOST_SECONDS;
    println!(
        "{seconds:.0} s on {cores} cores, downloads apart: {ratio:.2} of the {MOST_SECONDS:.0} s that it may take on two"
    );
    let ours: f64 = units.iter().filter(|unit| unit.ours).map(|unit| unit.seconds).sum();
    let all: f64 = units.iter().map(|unit| unit.seconds).sum();
    println!("{} crates and build scripts, {all:.0} s of compiling, {ours:.0} s of them ours", units.len());
    for unit in units.iter().take(SLOWEST) {
        let whose = if unit.ours { "  ours" } else { "" };
        println!("{:>7.1} s  {:>4.1} %  {}{whose}", unit.seconds, unit.seconds * 100.0 / all.max(1e-9), unit.name);
    }
    if let Ok(meta) = std::fs::metadata(folder.join("release/windfall")) {
        println!("binary size: {:.1} MB", meta.len() as f64 / 1e6);
    }
}

/// What cargo's page of timings says, the slowest first.
fn units(folder: &Path) -> Vec<Unit> {
    let page = std::fs::read_to_string(folder.join("cargo-timings/cargo-timing.html")).unwrap_or_default();
    let mut units = read(&page);
    units.sort_by(|a, b| b.seconds.total_cmp(&a.seconds));
    units
}

fn read(page: &str) -> Vec<Unit> {
    let data = page.split_once("const UNIT_DATA = ").map_or("", |(_, rest)| rest);
    let mut values = serde_json::Deserializer::from_str(data).into_iter::<Value>();
    let Some(Ok(Value::Array(list))) = values.next() else { return Vec::new() };
    let unit = |value: &Value| {
        let text = |key: &str| value[key].as_str().unwrap_or_default();
        let what = text("target").trim();
        let name =
            [text("name"), text("version"), what].into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>();
        let ours = text("name").starts_with("windfall");
        Some(Unit { name: name.join(" "), seconds: value["duration"].as_f64()?, ours })
    };
    list.iter().filter_map(unit).collect()
}

#[cfg(test)]
mod tests {
    use super::read;

    #[test]
    fn timings_are_found_in_cargos_page() {
        let page = "<script>\nDURATION = 3;\nconst UNIT_DATA = [\n  {\"i\": 0, \"name\": \"libc\", \"version\": \"0.2.1\", \
                    \"mode\": \"todo\", \"target\": \" build-script\", \"start\": 0.1, \"duration\": 1.25},\n  {\"i\": 1, \
                    \"name\": \"windfall-core\", \"version\": \"0.1.0\", \"target\": \"\", \"duration\": 9.0}\n];\nconst X = [];";
        let found: Vec<(String, f64, bool)> =
            read(page).into_iter().map(|unit| (unit.name, unit.seconds, unit.ours)).collect();
        let libc = ("libc 0.2.1 build-script".to_owned(), 1.25, false);
        assert_eq!(found, [libc, ("windfall-core 0.1.0".to_owned(), 9.0, true)]);
        assert!(read("<html>").is_empty());
    }
}
