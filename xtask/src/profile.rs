//! `cargo xtask bench profile`: `windfall profile` beside Holistic Trace Analysis and gunzip.

use crate::workspace::{built, cargo, root, run};
use std::path::PathBuf;
use std::process::Command;

const HTA: &str = "0.5.0";

/// Profiles the traces in `WINDFALL_DATA`: figures, verdicts, speed and memory, and an invented trace of `--gb N`.
pub fn profile(words: &[String]) -> bool {
    println!("\n== profile, beside HTA {HTA}");
    let Some(data) = std::env::var_os("WINDFALL_DATA") else {
        eprintln!("error: WINDFALL_DATA does not name the folder of traces");
        return false;
    };
    let gigabytes =
        words.iter().position(|word| word == "--gb").and_then(|at| words.get(at + 1)).map_or("1", |gb| gb.as_str());
    let program = ["build", "--release", "--quiet", "--package", "windfall-cli"];
    let python = hta().unwrap_or_else(|| {
        println!("HTA cannot be installed from PyPI here: its times are left out");
        "none".into()
    });
    let script = root().join("xtask/peers/bench_profile.py");
    run(&mut cargo(&program))
        && run(Command::new("python3").arg(script).arg(built().join("windfall")).arg(python).arg(data).arg(gigabytes))
}

/// A Python with HTA in it, outside the tree.
fn hta() -> Option<PathBuf> {
    let folder = crate::workspace::cache().join(format!("hta-{HTA}"));
    let python = folder.join("bin/python");
    let ready = folder.join("ready");
    if !ready.exists() {
        let package = format!("HolisticTraceAnalysis=={HTA}");
        let made = run(Command::new("python3").args(["-m", "venv"]).arg(&folder))
            && run(Command::new(&python).args(["-m", "pip", "install", "--quiet", &package]));
        if !made {
            return None;
        }
        std::fs::write(&ready, "").ok()?;
    }
    Some(python)
}
