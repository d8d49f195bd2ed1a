//! House rules that a compiler does not know.

use crate::docs;
use crate::workspace::root;
use std::process::Command;

/// Folders that only one machine has.
const MACHINE: &[&str] = &["root", "Users"];

/// A file longer than this does not fit in a head.
const LONGEST_FILE: usize = 500;

/// Lines and files that break a house rule.
pub fn violations() -> Vec<String> {
    let listed = Command::new("git")
        .args([
            "ls-files",
            "--cached",
            "--others",
            "--exclude-standard",
            "*.rs",
            "*.py",
            "*.md",
            "*.sh",
            "*.yaml",
            "*.toml",
        ])
        .current_dir(root())
        .output();
    let listed = listed.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
    // A file that was deleted but not committed yet is still listed.
    let read = |file: &str| std::fs::read_to_string(root().join(file)).ok();
    let files: Vec<(&str, String)> = listed.lines().filter_map(|file| Some((file, read(file)?))).collect();
    let code = files.iter().filter(|(file, _)| file.ends_with(".rs"));
    let mut found = docs::violations(code.map(|(file, text)| (*file, text.as_str())));
    for (file, text) in &files {
        let code = file.ends_with(".rs");
        if code && text.lines().count() > LONGEST_FILE {
            found.push(format!("{file} has {} lines: split it", text.lines().count()));
        }
        for (number, line) in text.lines().enumerate() {
            if let Some(rule) = broken(line, code).filter(|_| !file.starts_with("xtask/src/style.rs")) {
                found.push(format!("{file}:{}: {rule}", number + 1));
            }
        }
    }
    found
}

fn broken(line: &str, code: bool) -> Option<&'static str> {
    let has = |word: &str| line.contains(word);
    match () {
        () if code && has("#[ignore") => Some("a test is run or deleted, never ignored"),
        () if code && (has("todo!(") || has("unimplemented!(") || has("dbg!(")) => Some("unfinished"),
        () if MACHINE.iter().any(|folder| has(&format!("/{folder}/"))) => Some("a path of one machine"),
        () => None,
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_workspace_keeps_the_house_rules() {
        assert_eq!(super::violations(), Vec::<String>::new());
    }
}
