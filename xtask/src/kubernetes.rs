//! A real Kubernetes for tests: etcd, API server, scheduler, controllers and kubelet in one program, built from the published Go
//! modules into the cache, once. That takes minutes, so it begins beside everything else and is waited for where it is needed.

use crate::workspace::{cache, is_root, root};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread::JoinHandle;
use std::time::Instant;

/// The minor and the patch of 1.x: the modules of that release have the same numbers after a 0.
const VERSION: &str = "36.3";

/// A program that is built, or there already.
pub struct Building(JoinHandle<Result<PathBuf, String>>);

/// Begins to build it where it is not there.
pub fn begin() -> Building {
    Building(std::thread::spawn(built))
}

impl Building {
    /// Where it is, or why it cannot be had.
    pub fn wait(self) -> Result<PathBuf, String> {
        self.0.join().unwrap_or_else(|_| Err("building it failed without a word".to_owned()))
    }
}

/// The folder of this version.
fn folder() -> PathBuf {
    cache().join(format!("kubernetes-1.{VERSION}"))
}

fn built() -> Result<PathBuf, String> {
    if !is_root() {
        return Err("its nodes need root".to_owned());
    }
    let program = folder().join("kubernetes");
    if program.exists() {
        return Ok(program);
    }
    if !Command::new("go").arg("version").output().is_ok_and(|said| said.status.success()) {
        return Err("it is built with Go, which is not installed".to_owned());
    }
    println!("building Kubernetes 1.{VERSION} (once; it takes ten minutes and more, beside everything else)");
    let began = Instant::now();
    let source = folder().join(format!("source-{}", std::process::id()));
    let built = build(&source, &program);
    let _ = std::fs::remove_dir_all(&source);
    built?;
    println!("Kubernetes 1.{VERSION} is built: {} s", began.elapsed().as_secs());
    Ok(program)
}

fn build(source: &Path, program: &Path) -> Result<(), String> {
    let text = |error: std::io::Error| error.to_string();
    std::fs::create_dir_all(source).map_err(text)?;
    std::fs::copy(root().join("xtask/kubernetes/main.go"), source.join("main.go")).map_err(text)?;
    let module = go(source, &["mod", "download", "-json", &format!("k8s.io/kubernetes@v1.{VERSION}")])?;
    let module: serde_json::Value = serde_json::from_str(&module).map_err(|error| error.to_string())?;
    let theirs = Path::new(module["Dir"].as_str().unwrap_or_default()).join("go.mod");
    let theirs = std::fs::read_to_string(theirs).map_err(text)?;
    std::fs::write(source.join("go.mod"), go_mod(&theirs)).map_err(text)?;
    go(source, &["mod", "tidy"])?;
    let of_version = "k8s.io/component-base/version";
    let (minor, _) = VERSION.split_once('.').unwrap_or((VERSION, ""));
    let version =
        [("gitVersion", format!("v1.{VERSION}")), ("gitMajor", "1".to_owned()), ("gitMinor", minor.to_owned())];
    let version: String = version.iter().map(|(name, value)| format!(" -X {of_version}.{name}={value}")).collect();
    let new = source.join("kubernetes");
    let new_text = new.to_string_lossy().into_owned();
    go(source, &["build", "-trimpath", &format!("-ldflags=-s -w{version}"), "-o", &new_text, "."])?;
    std::fs::rename(&new, program).map_err(text)
}

/// Kubernetes' own file points into its repository, which its module does not carry: the published modules of the same release stand
/// in their place.
fn go_mod(theirs: &str) -> String {
    let staged = theirs.lines().filter_map(|line| line.trim().split_once(" => ./staging/"));
    let replaced: String = staged.map(|(module, _)| format!("\t{module} => {module} v0.{VERSION}\n")).collect();
    format!("module test\n\ngo 1.26.0\n\nrequire k8s.io/kubernetes v1.{VERSION}\n\nreplace (\n{replaced})\n")
}

/// What Go says; as little in the way of others as can be.
fn go(folder: &Path, args: &[&str]) -> Result<String, String> {
    let mut command = Command::new("nice");
    command.args(["-n", "10", "go"]).args(args).current_dir(folder).env("CGO_ENABLED", "0").env("GOFLAGS", "");
    let said = command.output().map_err(|error| format!("go: {error}"))?;
    if said.status.success() {
        return Ok(String::from_utf8_lossy(&said.stdout).into_owned());
    }
    let lines = String::from_utf8_lossy(&said.stderr).into_owned();
    let last: Vec<&str> = lines.lines().rev().take(3).collect();
    Err(format!("go {}: {}", args[0], last.join(" | ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_lies_in_their_repository_is_taken_from_the_same_release() {
        let theirs = "module k8s.io/kubernetes\nrequire x v1\nreplace (\n\tk8s.io/api => ./staging/src/k8s.io/api\n\tother => ./elsewhere\n)\n";
        let ours = go_mod(theirs);
        assert!(
            ours.contains(&format!("\tk8s.io/api => k8s.io/api v0.{VERSION}\n")) && !ours.contains("other"),
            "{ours}"
        );
    }
}
