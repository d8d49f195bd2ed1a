//! Walks a file of Kubernetes by the table of its keys: what is unknown, given twice or of the wrong type becomes a problem with its
//! place, and what is left out a note with its place.

use super::keys::{Keys, Reason, Treatment};
use crate::context::Context;
use crate::error::{Class, Problem, Problems, Quoted, position};
use crate::node::{Node, Yaml};
use std::collections::BTreeMap;
use std::ops::Range;
use windfall_core::nearest::nearest;

pub(super) struct Reader<'r, 'a> {
    pub text: &'a str,
    pub context: &'r Context,
    pub problems: &'r mut Problems<'a>,
    /// What is left out, by why.
    left: BTreeMap<Reason, Vec<(usize, String)>>,
    pub notes: Vec<String>,
}

/// The keys of an object that are used, with where each stands.
#[derive(Debug, Default)]
pub(super) struct Object<'n> {
    pub span: Range<usize>,
    used: BTreeMap<&'n str, (&'n Node, &'n Node)>,
}

impl<'n> Object<'n> {
    pub fn get(&self, name: &str) -> Option<&'n Node> {
        self.used.get(name).map(|(_, value)| *value)
    }

    /// Where a key stands, or else the object.
    pub fn at(&self, name: &str) -> Range<usize> {
        self.used.get(name).map_or(self.span.clone(), |(key, _)| key.span.clone())
    }
}

/// What says nothing: Kubernetes writes much of that itself.
fn is_empty(node: &Node) -> bool {
    match &node.yaml {
        Yaml::Scalar { .. } => node.is_nothing(),
        Yaml::List(items) => items.is_empty(),
        Yaml::Map(entries) => entries.is_empty(),
    }
}

impl<'r, 'a> Reader<'r, 'a> {
    pub fn new(text: &'a str, context: &'r Context, problems: &'r mut Problems<'a>) -> Reader<'r, 'a> {
        Reader { text, context, problems, left: BTreeMap::new(), notes: Vec::new() }
    }

    pub fn wrong(&mut self, span: &Range<usize>, problem: Problem) {
        self.problems.add(span, problem);
    }

    /// `12:9`, as editors and compilers write places.
    pub fn place(&self, at: usize) -> String {
        let place = position(self.text, &(at..at));
        format!("{}:{}", place.line, place.column)
    }

    /// What is left out is named once, at the end.
    pub fn leave(&mut self, reason: Reason, name: &str, at: usize) {
        let name: String = name.chars().map(|c| if c.is_control() { '?' } else { c }).take(60).collect();
        self.left.entry(reason).or_default().push((at, name));
    }

    /// One note for all that is left out for the same reason.
    pub fn left_out(&mut self) {
        for (reason, mut named) in std::mem::take(&mut self.left) {
            named.sort();
            let named: Vec<String> = named.iter().map(|(at, name)| format!("{name} ({})", self.place(*at))).collect();
            self.notes.push(format!("not used: {}: {}", named.join(", "), reason.words()));
        }
    }

    /// The keys of an object by their table.
    pub fn object<'n>(&mut self, node: &'n Node, name: &str, keys: Keys) -> Object<'n> {
        let mut object = Object { span: node.span.clone(), used: BTreeMap::new() };
        for (key, value) in self.entries(node, name) {
            let Some(word) = key.text() else {
                self.wrong(&key.span, Problem::new(Class::WrongType, "a key that is no text").expected("a name"));
                continue;
            };
            let Some((known, treatment)) = keys.iter().find(|(known, _)| *known == word) else {
                self.unknown(key, word, name, keys);
                continue;
            };
            match treatment {
                _ if is_empty(value) => {}
                Treatment::Used => _ = object.used.insert(known, (key, value)),
                // What is not wanted is not missed.
                Treatment::Left(_) if value.text() == Some("false") => {}
                Treatment::Left(reason) => self.leave(*reason, word, key.span.start),
                Treatment::Refused(hint) => {
                    let problem = Problem::new(Class::Unsupported, format!("`{word}` cannot be honoured"));
                    self.wrong(&key.span, problem.expected("a Job without it").hint(*hint));
                }
            }
        }
        object
    }

    fn unknown(&mut self, key: &Node, word: &str, name: &str, keys: Keys) {
        let problem = Problem::new(Class::UnknownKey, format!("{} is no key of {name}", Quoted(word)));
        let hint = match nearest(word, keys.iter().map(|(known, _)| *known)) {
            Some(near) => format!("did you mean {near}?"),
            None => "remove it, or check its indentation".to_owned(),
        };
        self.wrong(&key.span, problem.expected("a key of batch/v1 Jobs").hint(hint));
    }

    /// Keys and values of a map, each key once.
    pub fn entries<'n>(&mut self, node: &'n Node, name: &str) -> Vec<(&'n Node, &'n Node)> {
        if !matches!(node.yaml, Yaml::Map(_)) {
            if !node.is_nothing() {
                let problem = Problem::new(Class::WrongType, format!("{name} is {}", node.what()));
                self.wrong(&node.span, problem.expected("keys with values"));
            }
            return Vec::new();
        }
        let mut known: Vec<&str> = Vec::new();
        let mut entries = Vec::new();
        for (key, value) in node.entries() {
            let word = key.text().unwrap_or_default();
            if known.contains(&word) {
                let problem = Problem::new(Class::DuplicateKey, format!("{} is given twice", Quoted(word)));
                self.wrong(&key.span, problem.hint("keep one of them"));
                continue;
            }
            known.push(word);
            entries.push((key, value));
        }
        entries
    }

    pub fn list<'n>(&mut self, node: &'n Node, name: &str) -> &'n [Node] {
        match &node.yaml {
            Yaml::List(items) => items,
            _ => {
                let problem = Problem::new(Class::WrongType, format!("{name} is {}", node.what()));
                self.wrong(&node.span, problem.expected("a list").hint("begin each of its lines with `- `"));
                &[]
            }
        }
    }

    pub fn word<'n>(&mut self, node: &'n Node, name: &str) -> Option<&'n str> {
        if let Yaml::Scalar { text, .. } = &node.yaml {
            return Some(if node.is_nothing() { "" } else { text.as_str() });
        }
        let problem = Problem::new(Class::WrongType, format!("{name} is {}", node.what()));
        self.wrong(&node.span, problem.expected("text"));
        None
    }

    /// A whole number of at least so much.
    pub fn whole(&mut self, node: &Node, name: &str, least: u32) -> Option<u32> {
        let number = node.text().and_then(|text| text.parse::<u32>().ok()).filter(|number| *number >= least);
        if number.is_none() {
            let problem = Problem::new(Class::BadValue, format!("{name} is {}", node.what()));
            self.wrong(&node.span, problem.expected(format!("a whole number of at least {least}")));
        }
        number
    }
}
