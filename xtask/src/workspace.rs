//! The workspace that chores work on: its root, its cargo and the programs built from it.

use crate::leftovers::{MARK, mark};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Output};

/// The root of the workspace: of the one that cargo runs this program for, where it says so. Two checkouts may share a target
/// folder, and the program in it be built from the other one.
pub fn root() -> PathBuf {
    let package = std::env::var_os("CARGO_MANIFEST_DIR").unwrap_or_else(|| env!("CARGO_MANIFEST_DIR").into());
    PathBuf::from(package).parent().map(PathBuf::from).unwrap_or_default()
}

/// Cargo, in the root of the workspace.
pub fn cargo(args: &[&str]) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(args).current_dir(root()).env(MARK, mark());
    // Cargo tells this program of its own package. Build scripts that look at such variables (ring's does) would run again,
    // and minutes of dependencies be built again, each time somebody changes between `cargo xtask` and cargo itself.
    let of_package = |name: &str| name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_");
    let names = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
    names.filter(|name| of_package(name)).for_each(|name| _ = command.env_remove(name));
    command
}

/// Runs a command and says whether it succeeded.
pub fn run(command: &mut Command) -> bool {
    match command.status() {
        Ok(status) => status.success(),
        Err(error) => {
            eprintln!("error: {command:?} cannot be run: {error}");
            false
        }
    }
}

/// The exit code of a chore.
pub fn finish(good: bool) -> ExitCode {
    if good { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// What `cargo metadata` says.
pub fn metadata() -> serde_json::Value {
    let output = cargo(&["metadata", "--format-version", "1", "--locked"]).output();
    let text = output.map(|output| output.stdout).unwrap_or_default();
    serde_json::from_slice(&text).unwrap_or_default()
}

/// Where cargo builds: it may have been told to do so elsewhere.
fn target() -> PathBuf {
    root().join(std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| "target".into(), PathBuf::from))
}

/// Where optimised programs are.
pub fn built() -> PathBuf {
    target().join("release")
}

/// A program as tests use it.
pub fn debug_program(name: &str) -> PathBuf {
    target().join("debug").join(name)
}

/// The optimised program on a state directory.
pub fn windfall(home: &Path, args: &[&str]) -> std::io::Result<Output> {
    Command::new(built().join("windfall")).args(args).env("WINDFALL_HOME", home).current_dir(root()).output()
}

/// Built components outlive a checkout.
pub fn cache() -> PathBuf {
    let named = std::env::var_os("WINDFALL_TEST_CACHE").map(PathBuf::from);
    let usual = || std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cache/windfall-test"));
    named.or_else(usual).unwrap_or_else(|| std::env::temp_dir().join("windfall-test-cache"))
}

/// Whether this is root, who may install what is missing.
pub fn is_root() -> bool {
    std::fs::metadata("/proc/self").is_ok_and(|meta| std::os::unix::fs::MetadataExt::uid(&meta) == 0)
}
