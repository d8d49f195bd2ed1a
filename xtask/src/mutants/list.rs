//! The list of changes: the text files in `xtask/mutants/`. A change begins with `== NAME`; then follow `file:`, `bug:`,
//! the exact old text after a line `old:` and the new text after a line `new:`. The old text must be in the file once.

use crate::workspace::root;
use std::collections::BTreeSet;

/// Crates whose changes can be tried, and the names of their lists.
const LISTS: &[&str] = &["core", "server", "agent"];

/// The fewest changes worth the name of a list.
const FEWEST: usize = 40;

/// A small bug.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mutant {
    pub name: String,
    pub file: String,
    pub bug: String,
    pub old: String,
    pub new: String,
}

impl Mutant {
    /// The crate that it changes, without the prefix.
    pub fn krate(&self) -> &str {
        self.file.strip_prefix("crates/").and_then(|rest| rest.split('/').next()).unwrap_or_default()
    }

    /// The file's text with the change in it.
    pub fn apply(&self, text: &str) -> Result<String, String> {
        match text.matches(&self.old).count() {
            1 => Ok(text.replacen(&self.old, &self.new, 1)),
            0 => Err(format!("{}: its old text is not in {}", self.name, self.file)),
            n => Err(format!("{}: its old text is {n} times in {}", self.name, self.file)),
        }
    }

    fn check(&self, list: &str) -> Result<(), String> {
        let plain = self.name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-');
        if !plain || self.bug.is_empty() || self.old.is_empty() || self.old == self.new {
            return Err(format!("{}: it needs a plain name, a bug, an old text and another new one", self.name));
        }
        if self.krate() != list {
            return Err(format!("{}: its file is not of crates/{list}: {}", self.name, self.file));
        }
        let text = std::fs::read_to_string(root().join(&self.file));
        self.apply(&text.map_err(|error| format!("{}: {}: {error}", self.name, self.file))?).map(drop)
    }
}

/// All changes, crate by crate.
pub fn read_all() -> Result<Vec<Mutant>, String> {
    let mut all = Vec::new();
    for list in LISTS {
        let file = root().join("xtask/mutants").join(format!("{list}.txt"));
        let text = std::fs::read_to_string(&file).map_err(|error| format!("{}: {error}", file.display()))?;
        all.extend(parse(&text).map_err(|why| format!("xtask/mutants/{list}.txt: {why}"))?);
    }
    Ok(all)
}

/// Changes that do not apply to the present tree.
pub fn violations() -> Vec<String> {
    let all = match read_all() {
        Ok(all) => all,
        Err(why) => return vec![why],
    };
    let mut found = Vec::new();
    let mut names = BTreeSet::new();
    for mutant in &all {
        let list = LISTS.iter().find(|list| **list == mutant.krate()).copied().unwrap_or_default();
        found.extend(mutant.check(list).err());
        if !names.insert(&mutant.name) {
            found.push(format!("{}: the name is there twice", mutant.name));
        }
    }
    if all.len() < FEWEST {
        found.push(format!("{} changes are too few: at least {FEWEST}", all.len()));
    }
    found
}

fn parse(text: &str) -> Result<Vec<Mutant>, String> {
    enum Part {
        Head,
        Old,
        New,
    }
    let mut all: Vec<Mutant> = Vec::new();
    let mut part = Part::Head;
    for (line, number) in text.lines().zip(1..) {
        if let Some(name) = line.strip_prefix("== ") {
            all.push(Mutant { name: name.to_owned(), ..Mutant::default() });
            part = Part::Head;
            continue;
        }
        let Some(mutant) = all.last_mut() else {
            // Before the first change the file says what it is.
            continue;
        };
        match (&part, line) {
            (Part::Head, "old:") => part = Part::Old,
            (Part::Old, "new:") => part = Part::New,
            (Part::Old, line) => add(&mut mutant.old, line),
            (Part::New, line) => add(&mut mutant.new, line),
            (Part::Head, line) => match line.split_once(": ") {
                Some(("file", file)) => mutant.file = file.to_owned(),
                Some(("bug", bug)) => mutant.bug = bug.to_owned(),
                _ => return Err(format!("line {number}: expected file:, bug:, old: or new:, found: {line}")),
            },
        }
    }
    // An empty line parts a change from the next.
    for mutant in &mut all {
        mutant.new.truncate(mutant.new.trim_end_matches('\n').len());
    }
    Ok(all)
}

fn add(text: &mut String, line: &str) {
    if !text.is_empty() {
        text.push('\n');
    }
    text.push_str(line);
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIST: &str = "What this is.\n\n== a-name\nfile: crates/core/src/a.rs\nbug: it adds\nold:\n    a - b\nnew:\n    a + b\n\n== other\nfile: crates/agent/src/b.rs\nbug: two lines become none\nold:\n    one();\n    two();\nnew:\n";

    #[test]
    fn a_list_is_read_as_it_is_written() {
        let all = parse(LIST).expect("the list is well formed");
        assert_eq!(all.len(), 2);
        assert_eq!((all[0].name.as_str(), all[0].krate()), ("a-name", "core"));
        assert_eq!((all[0].old.as_str(), all[0].new.as_str()), ("    a - b", "    a + b"));
        assert_eq!((all[1].old.as_str(), all[1].new.as_str()), ("    one();\n    two();", ""));
    }

    #[test]
    fn a_change_applies_where_its_old_text_is_exactly_once() {
        let all = parse(LIST).expect("the list is well formed");
        assert_eq!(all[0].apply("let c =\n    a - b;\n"), Ok("let c =\n    a + b;\n".to_owned()));
        assert!(all[0].apply("let c = a * b;").is_err());
        assert!(all[0].apply("    a - b;\n    a - b;").is_err());
    }

    #[test]
    fn every_change_of_the_list_applies_to_the_present_tree() {
        assert_eq!(violations(), Vec::<String>::new());
    }
}
