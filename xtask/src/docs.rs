//! Which public items lack a doc line. Structs, enums and traits always need one, functions where another crate can call
//! them; fields and variants do not, because their name and type often say all. That is why this is not rustc's
//! `missing_docs`. Sources are read as text: what other crates see is followed through `pub mod` and `pub use`.

use std::collections::{BTreeMap, BTreeSet};

/// The files of one crate by module: `["plan", "rank"]` for `src/plan/rank.rs`.
type Modules<'t> = BTreeMap<Vec<&'t str>, (&'t str, &'t str)>;

/// Items without a doc line in all crates, from files as (path, text).
pub fn violations<'t>(files: impl Iterator<Item = (&'t str, &'t str)>) -> Vec<String> {
    let mut crates: BTreeMap<&str, Modules<'_>> = BTreeMap::new();
    for (path, text) in files {
        let Some((name, module)) = path.strip_prefix("crates/").and_then(|path| path.split_once("/src/")) else {
            continue;
        };
        let mut module: Vec<&str> = module.trim_end_matches(".rs").split('/').collect();
        if matches!(module.last(), Some(&("lib" | "main" | "mod"))) {
            module.pop();
        }
        crates.entry(name).or_default().insert(module, (path, text));
    }
    crates.values().flat_map(missing).collect()
}

fn missing(modules: &Modules<'_>) -> Vec<String> {
    let (open, mut names) = seen_outside(modules);
    for (_, text) in open.iter().filter_map(|module| modules.get(module)) {
        names.extend(text.lines().filter_map(|line| item(line).map(|(_, name)| name)));
    }
    let mut found = Vec::new();
    for (path, text) in modules.values() {
        if !text.starts_with("//!") {
            found.push(format!("{path}: a file begins with what it is for (//!)"));
        }
        let lines: Vec<&str> = text.lines().collect();
        let mut of_type = None;
        for (at, line) in lines.iter().enumerate().take_while(|(at, _)| !begins_tests(&lines, *at)) {
            if line.starts_with("impl") {
                of_type = implemented(line);
            }
            let Some((kind, name)) = item(line) else { continue };
            let needed = match kind {
                "fn" if line.starts_with(' ') => of_type.is_some_and(|of_type| names.contains(of_type)),
                "fn" => names.contains(name),
                _ => true,
            };
            if needed && !is_documented(&lines[..at]) {
                found.push(format!("{path}:{}: `{kind} {name}` has no doc line", at + 1));
            }
        }
    }
    found
}

/// Modules that other crates can name, and names that are shown to them out of other modules.
fn seen_outside<'t>(modules: &Modules<'t>) -> (Vec<Vec<&'t str>>, BTreeSet<&'t str>) {
    let (mut open, mut names) = (vec![Vec::new()], BTreeSet::new());
    let mut at = 0;
    while let Some(module) = open.get(at).cloned() {
        at += 1;
        let Some((_, text)) = modules.get(&module) else { continue };
        for line in text.lines() {
            if let Some(below) = line.strip_prefix("pub mod ").and_then(|rest| rest.strip_suffix(';')) {
                open.push([module.as_slice(), &[below]].concat());
            }
        }
        for used in text.split("\npub use ").skip(1).filter_map(|rest| rest.split(';').next()) {
            names.extend(used.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|word| !word.is_empty()));
        }
    }
    (open, names)
}

/// The kind and the name of a public item that a line declares, if it declares one that is looked at here.
fn item(line: &str) -> Option<(&'static str, &str)> {
    let mut words = line.trim_start().strip_prefix("pub ")?.split([' ', '(', '<', '{', ';', ':']);
    let kind = words.find(|word| !matches!(*word, "async" | "const" | "unsafe"))?;
    let kind = ["struct", "enum", "trait", "fn"].into_iter().find(|known| *known == kind)?;
    words.next().map(|name| (kind, name))
}

/// The type of `impl<'c> Ranking<'c> {`.
fn implemented(line: &str) -> Option<&str> {
    let mut rest = line.strip_prefix("impl")?;
    if rest.starts_with('<') {
        let mut depth = 0;
        let end = rest.find(|c: char| {
            depth += i32::from(c == '<') - i32::from(c == '>');
            depth == 0
        })?;
        rest = &rest[end + 1..];
    }
    rest.trim_start().split(|c: char| !c.is_alphanumeric() && c != '_').next()
}

fn begins_tests(lines: &[&str], at: usize) -> bool {
    lines[at] == "#[cfg(test)]"
        && lines[at + 1..].iter().find(|line| !line.starts_with("#[")).is_some_and(|line| line.starts_with("mod "))
}

/// Whether the lines above an item end with a doc line, but for attributes.
fn is_documented(above: &[&str]) -> bool {
    let mut in_attribute = false;
    for line in above.iter().rev().map(|line| line.trim()) {
        if line.starts_with("#[") {
            if line.contains("doc(hidden)") {
                return true;
            }
            in_attribute = false;
        } else if line.ends_with(")]") {
            in_attribute = true;
        } else if !in_attribute {
            return line.starts_with("///");
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(files: &[(&str, &str)], expect: &[&str]) {
        assert_eq!(violations(files.iter().copied()), expect);
    }

    #[test]
    fn a_type_needs_a_doc_line_and_its_fields_and_variants_do_not() {
        let text = "//! A.\npub struct S {\n    pub lease: u64,\n}\n/// E.\n#[derive(\n    Debug\n)]\npub enum E {\n    One,\n}\n";
        check(&[("crates/a/src/lib.rs", text)], &["crates/a/src/lib.rs:2: `struct S` has no doc line"]);
    }

    #[test]
    fn a_function_needs_one_where_another_crate_can_call_it() {
        let lib = "//! A.\nmod hidden;\npub mod open;\npub use hidden::{Known, known};\n";
        let hidden = "//! H.\npub fn known() {}\npub fn unknown() {}\n/// K.\npub struct Known;\nimpl<'a> Known {\n    pub async fn call() {}\n}\n/// O.\npub struct Other;\nimpl Other {\n    pub fn call() {}\n}\n";
        let open = "//! O.\npub fn called() {}\npub(crate) fn inside() {}\n#[cfg(test)]\nmod tests {\n    pub fn helper() {}\n}\n";
        check(
            &[("crates/a/src/lib.rs", lib), ("crates/a/src/hidden.rs", hidden), ("crates/a/src/open.rs", open)],
            &[
                "crates/a/src/hidden.rs:2: `fn known` has no doc line",
                "crates/a/src/hidden.rs:7: `fn call` has no doc line",
                "crates/a/src/open.rs:2: `fn called` has no doc line",
            ],
        );
    }

    #[test]
    fn a_file_says_what_it_is_for() {
        check(
            &[("crates/a/src/lib.rs", "mod b;\n")],
            &["crates/a/src/lib.rs: a file begins with what it is for (//!)"],
        );
    }
}
