//! Whole conversations with the command line, as golden files: what a user types, what is answered, and the
//! exit code. A change of any word is a change that somebody has to want.

use std::fmt::Write;
use std::process::Command;

/// Runs commands in an empty home and folder; paths of this machine are replaced by words.
fn transcript(lines: &[&[&str]]) -> String {
    let dir = tempfile::tempdir().expect("a folder");
    let mut text = String::new();
    for args in lines {
        let output = Command::new(env!("CARGO_BIN_EXE_windfall"))
            .args(*args)
            .current_dir(dir.path())
            .env("WINDFALL_HOME", dir.path().join("home"))
            .env("COLUMNS", "80")
            .env("NO_COLOR", "1")
            .output()
            .expect("it runs");
        let _ = writeln!(text, "$ windfall {}", args.join(" "));
        text.push_str(&String::from_utf8_lossy(&output.stdout));
        text.push_str(&String::from_utf8_lossy(&output.stderr));
        let _ = writeln!(text, "[exit {}]\n", output.status.code().unwrap_or(-1));
    }
    assert!(!dir.path().join("home").exists(), "questions and mistakes start nothing and change nothing");
    text.replace(&*dir.path().to_string_lossy(), "FOLDER").replace(env!("CARGO_PKG_VERSION"), "VERSION")
}

#[test]
fn help_teaches() {
    insta::assert_snapshot!(transcript(&[
        &["--help"],
        &["--version"],
        &["run", "--help"],
        &["rehearse", "--help"],
        &["up", "--help"],
        &["simulate", "market", "--help"]
    ]));
}

#[test]
fn mistakes_are_answered_with_a_hint_and_code_two() {
    insta::assert_snapshot!(transcript(&[
        &[],
        &["runn"],
        &["run"],
        &["run", "nowhere.yaml"],
        &["submit", "nowhere.yaml", "--json"],
        &["up", "--speed", "61"],
        &["rehearse", "nowhere.yaml"],
    ]));
}

#[test]
fn recorded_markets_are_played_and_bad_ones_named() {
    let dir = tempfile::tempdir().expect("a folder");
    let file = |name: &str, text: &str| {
        let path = dir.path().join(name);
        std::fs::write(&path, text).expect("written");
        path.to_string_lossy().into_owned()
    };
    let ticks: Vec<&str> = (0..120).map(|tick| if tick % 17 < 11 { "4" } else { "1" }).collect();
    let good = file("good.json", &format!("{{\"metadata\":{{\"gap_seconds\":600}},\"data\":[{}]}}", ticks.join(",")));
    let gap = file("gap.json", "{\"metadata\":{\"gap_seconds\":600},\"data\":[1,1,null,1]}");
    let minus = file("minus.json", "{\"metadata\":{\"gap_seconds\":600},\"data\":[1,-1]}");
    let tickless = file("tickless.json", "{\"data\":[1,0]}");
    let free = file("free.json", "{\"metadata\":{\"gap_seconds\":600},\"data\":[1,0],\"prices\":[0.9,0]}");
    let empty = dir.path().join("empty");
    std::fs::create_dir(&empty).expect("made");
    let empty = empty.to_string_lossy().into_owned();
    let job = ["--work", "8h", "--deadline", "9h,12h", "--restart", "72s"];
    let with = |path: &str, more: &[&str]| {
        let words = [["simulate", "market", path].as_slice(), &job, more].concat();
        words.iter().map(|word| (*word).to_owned()).collect::<Vec<String>>()
    };
    let lines = [
        with(&good, &["--gang", "2", "--starts", "3"]),
        with(&good, &["--gang", "2", "--policy", "foresight,greedy", "--json"]),
        with(&good, &["--policy", "clairvoyant"]),
        with(&good, &["--spot-price", "0"]),
        with(&gap, &[]),
        with(&minus, &[]),
        with(&tickless, &[]),
        with(&free, &[]),
        with(&empty, &[]),
        ["simulate", "market", &good, "--work", "8h", "--deadline", "7h"].map(str::to_owned).to_vec(),
        ["simulate", "market", &good, "--deadline", "60h"].map(str::to_owned).to_vec(),
    ];
    let lines: Vec<Vec<&str>> = lines.iter().map(|line| line.iter().map(String::as_str).collect()).collect();
    let lines: Vec<&[&str]> = lines.iter().map(Vec::as_slice).collect();
    let text = transcript(&lines);
    insta::assert_snapshot!(text.replace(&*dir.path().to_string_lossy(), "MARKETS"));
}

#[test]
fn questions_to_nobody_are_answered_without_a_server() {
    insta::assert_snapshot!(transcript(&[
        &["status"],
        &["status", "--json"],
        &["jobs"],
        &["jobs", "--all", "--json"],
        &["attach", "7"],
        &["cancel", "7"],
        &["logs", "nobody"],
        &["explain", "7", "--json"],
        &["down"],
        &["down", "--json"],
    ]));
}

#[test]
fn a_job_file_is_written_once_and_not_over() {
    insta::assert_snapshot!(transcript(&[
        &["init", "--yes", "--name", "first", "--command", "python train.py", "--hours", "4", "--deadline", "8h"],
        &["init", "--yes"],
        &["init", "--yes", "--force", "--deadline", "soon"],
    ]));
}
