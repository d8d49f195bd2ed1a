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
        &["up", "--help"]
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
