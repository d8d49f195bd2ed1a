//! The rule: files of a crate never use each other in a circle; a module and the files below it count as one, because a
//! folder's `mod.rs` names its files and they share what it defines. What is used is followed through re-exports to the
//! file that defines it. Tests do not count.

use crate::workspace::root;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// Circles that are there today: crate, modules, and why. Whoever breaks one up takes it off the list.
const KNOWN: &[(&str, &[&str], &str)] = &[
    (
        "explore",
        &["audit", "driver", "engine", "scenario", "server", "world"],
        "the times of a world (BEGIN, SWEEP, RETRY) stand in its driver: a file of their own would end it",
    ),
    (
        "server",
        &["cycle::requests", "cycle::step"],
        "a request is taken in a step, and a step carries tickets of requests",
    ),
    (
        "server",
        &["listener", "principal"],
        "the listener makes a principal of who connects, which is read back from it",
    ),
];

/// A module, by its path in the crate; the root's is empty.
type Module = Vec<String>;

/// Every circle that is not known, and every known one that is gone.
pub fn violations() -> Vec<String> {
    let mut found = Vec::new();
    for krate in crates() {
        let name = krate.file_name().and_then(|name| name.to_str()).unwrap_or_default().to_owned();
        let circles = circles(&modules(&krate.join("src")));
        let known: Vec<&[&str]> = KNOWN.iter().filter(|(of, ..)| *of == name).map(|(_, modules, _)| *modules).collect();
        for circle in &circles {
            if !known.iter().any(|known| circle == known) {
                found.push(format!("crate {name}: these use each other in a circle: {}", circle.join(", ")));
            }
        }
        for gone in known.iter().filter(|known| !circles.iter().any(|circle| circle == *known)) {
            found.push(format!("crate {name}: no such circle any more, take it off the list: {}", gone.join(", ")));
        }
    }
    found
}

fn crates() -> Vec<std::path::PathBuf> {
    let entries = std::fs::read_dir(root().join("crates")).into_iter().flatten().flatten();
    let mut all: Vec<_> = entries.map(|entry| entry.path()).chain([root().join("xtask")]).collect();
    all.sort();
    all
}

/// The text of every module below a folder, without tests.
fn modules(source: &Path) -> BTreeMap<Module, String> {
    let (mut found, mut folders) = (BTreeMap::new(), vec![(source.to_owned(), Module::new())]);
    while let Some((folder, above)) = folders.pop() {
        for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            let path = entry.path();
            let Some(stem) = path.file_stem().and_then(|stem| stem.to_str()).map(str::to_owned) else { continue };
            let module: Module = above.iter().cloned().chain([stem.clone()]).collect();
            if stem == "tests" || stem.ends_with("_tests") {
                continue;
            }
            if path.is_dir() {
                folders.push((path, module));
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let module = if matches!(stem.as_str(), "lib" | "main" | "mod") { above.clone() } else { module };
                let text = std::fs::read_to_string(&path).unwrap_or_default();
                found.entry(module).or_insert_with(String::new).push_str(&without_tests(&text));
            }
        }
    }
    found
}

fn without_tests(text: &str) -> String {
    let code = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
    code.lines().map(|line| line.split("//").next().unwrap_or_default()).collect::<Vec<_>>().join("\n")
}

/// Groups of modules that use each other in a circle, each in order.
fn circles(modules: &BTreeMap<Module, String>) -> Vec<Vec<String>> {
    let crate_of = Crate::of(modules);
    let uses: BTreeMap<&Module, BTreeSet<Module>> =
        modules.iter().map(|(module, text)| (module, crate_of.used_by(module, text))).collect();
    let reached: BTreeMap<&Module, BTreeSet<Module>> =
        modules.keys().map(|module| (module, reached_from(module, &uses))).collect();
    let both = |a: &Module, b: &Module| reached[a].contains(b) && reached[b].contains(a);
    let mut found: Vec<Vec<String>> = Vec::new();
    for module in modules.keys().filter(|module| reached[module].contains(*module)) {
        let mut circle: Vec<String> =
            modules.keys().filter(|other| both(module, other)).map(|other| other.join("::")).collect();
        circle.sort();
        if !found.contains(&circle) {
            found.push(circle);
        }
    }
    found
}

fn reached_from(module: &Module, uses: &BTreeMap<&Module, BTreeSet<Module>>) -> BTreeSet<Module> {
    let (mut reached, mut next) = (BTreeSet::new(), vec![module]);
    while let Some(module) = next.pop() {
        for used in uses.get(module).into_iter().flatten() {
            if reached.insert(used.clone()) {
                next.push(used);
            }
        }
    }
    reached
}

/// The modules of a crate, and where names come from that they pass on.
struct Crate<'a> {
    modules: &'a BTreeMap<Module, String>,
    /// By module and name, the path of what is re-exported under it.
    passed_on: BTreeMap<(Module, String), Module>,
}

impl<'a> Crate<'a> {
    fn of(modules: &'a BTreeMap<Module, String>) -> Crate<'a> {
        let mut this = Crate { modules, passed_on: BTreeMap::new() };
        for (module, text) in modules {
            for path in uses(text).into_iter().filter(|(public, _)| *public).map(|(_, path)| path) {
                if let Some((name, path)) =
                    this.whole(module, &path).and_then(|path| Some((path.last()?.clone(), path)))
                {
                    this.passed_on.insert((module.clone(), name), path);
                }
            }
        }
        this
    }

    /// Modules that a module uses, without those above and below it.
    fn used_by(&self, module: &Module, text: &str) -> BTreeSet<Module> {
        let own = uses(text).into_iter().filter(|(public, _)| !public).map(|(_, path)| path);
        let used = own.chain(paths(text)).filter_map(|path| self.defined_in(self.whole(module, &path)?, 0));
        used.filter(|used| !used.starts_with(module) && !module.starts_with(used)).collect()
    }

    /// A path from the root of the crate; none of what is of another crate.
    fn whole(&self, module: &Module, path: &str) -> Option<Module> {
        let mut words: Vec<String> = path.split("::").map(|word| word.trim().to_owned()).collect();
        let mut from = module.clone();
        match words.first()?.as_str() {
            "crate" => from.clear(),
            "self" => {}
            "super" => {
                while words.get(1).is_some_and(|word| word == "super") {
                    words.remove(0);
                    from.pop();
                }
                from.pop();
            }
            first => {
                let below: Module = module.iter().cloned().chain([first.to_owned()]).collect();
                self.modules.contains_key(&below).then_some(())?;
                words.insert(0, String::new());
            }
        }
        from.extend(words.drain(1..));
        Some(from)
    }

    /// The module in which what a path names is defined.
    fn defined_in(&self, path: Module, deep: usize) -> Option<Module> {
        let known =
            (0..=path.len()).rev().map(|count| &path[..count]).find(|start| self.modules.contains_key(*start))?;
        let from = path.get(known.len()).and_then(|name| self.passed_on.get(&(known.to_vec(), name.clone())));
        match from.filter(|from| **from != path && deep < 8) {
            Some(from) => self.defined_in(from.iter().chain(&path[known.len() + 1..]).cloned().collect(), deep + 1),
            None => Some(known.to_vec()),
        }
    }
}

/// What `use` names, path by path, and whether it is passed on.
fn uses(text: &str) -> Vec<(bool, String)> {
    let mut found = Vec::new();
    let mut rest = text;
    while let Some(at) = rest.find("use ") {
        let line = rest[..at].rsplit('\n').next().unwrap_or_default().trim();
        let after = &rest[at + 4..];
        rest = after;
        let public = line.starts_with("pub") && !line.contains("fn");
        if line.is_empty() || public {
            let tree = after.split(';').next().unwrap_or_default();
            found.extend(expanded(tree).into_iter().map(|path| (public, path)));
        }
    }
    found
}

/// The paths of a tree of names in braces.
fn expanded(tree: &str) -> Vec<String> {
    let Some((before, inside)) = tree.split_once('{').filter(|_| tree.trim_end().ends_with('}')) else {
        return vec![tree.split(" as ").next().unwrap_or_default().trim().to_owned()];
    };
    let inside = inside.trim_end().strip_suffix('}').unwrap_or(inside);
    let (mut depth, mut parts) = (0_i32, vec![String::new()]);
    for letter in inside.chars() {
        depth += i32::from(letter == '{') - i32::from(letter == '}');
        match parts.last_mut() {
            Some(part) if letter != ',' || depth > 0 => part.push(letter),
            _ => parts.push(String::new()),
        }
    }
    let parts = parts.iter().filter(|part| !part.trim().is_empty());
    parts.flat_map(|part| expanded(part)).map(|path| format!("{}{path}", before.trim_start())).collect()
}

/// Paths that code names without `use`.
fn paths(text: &str) -> Vec<String> {
    let starts = ["crate::", "super::"].into_iter().flat_map(|start| text.match_indices(start));
    let path = |(at, _): (usize, &str)| {
        let end = text[at..].find(|letter: char| !(letter.is_alphanumeric() || letter == '_' || letter == ':'));
        text[at..end.map_or(text.len(), |end| at + end)].trim_end_matches(':').to_owned()
    };
    starts.map(path).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(files: &[(&str, &str)], expected: &[&[&str]]) {
        let module = |name: &str| name.split("::").filter(|word| !word.is_empty()).map(str::to_owned).collect();
        let modules = files.iter().map(|(name, text)| (module(name), (*text).to_owned())).collect();
        assert_eq!(circles(&modules), expected);
    }

    #[test]
    fn no_files_use_each_other_in_a_circle() {
        assert_eq!(violations(), Vec::<String>::new());
    }

    #[test]
    fn a_circle_is_found_however_long_it_is_and_however_things_are_named() {
        check(&[("a", "use crate::b::B;"), ("b", "use super::a::{self, A};")], &[&["a", "b"]]);
        check(
            &[("a", "use crate::b::B;"), ("b", "fn f() -> crate::c::C;"), ("c", "use crate::{x, a::A};")],
            &[&["a", "b", "c"]],
        );
        check(&[("a", "use crate::b::B;"), ("b", "use std::fmt;")], &[]);
    }

    #[test]
    fn what_is_passed_on_counts_where_it_is_defined() {
        let root = ("", "mod a;\nmod b;\npub use a::A;");
        check(&[root, ("a", "use crate::b::B;"), ("b", "use crate::A;")], &[&["a", "b"]]);
    }

    #[test]
    fn a_module_and_what_is_below_it_are_one() {
        check(&[("a", "use self::b::B;"), ("a::b", "use super::A;")], &[]);
    }
}
