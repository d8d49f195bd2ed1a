//! The values of a checkpoint file as a tree, whatever its format, and the walk that finds where two of them
//! differ. Entries are compared by key, so the order in which a program happened to write them does not matter.

use super::tensor::{Apart, Bytes, Kind, Tensor};
use std::collections::{BTreeMap, BTreeSet, HashSet};

/// Differences named of one file; more say nothing new.
const MOST_NAMED: usize = 10_000;
/// Pairs of values that are looked at in two files.
const MOST_PAIRS: usize = 20_000_000;
/// What lies deeper is said not to be readable: paths to it would take more room than the file.
const DEEPEST: usize = 400;
const DEEPEST_KEY: usize = 12;

/// The place of a value in its tree.
pub type At = usize;

/// One value. Parts are named by their place, because a pickle may use one value many times, or inside itself.
#[derive(Clone, Debug)]
pub enum Value {
    Nothing,
    Bool(bool),
    Int(i64),
    Float(f64),
    Text(String),
    Raw(Vec<u8>),
    List(Vec<At>),
    Map(Vec<(At, At)>),
    Set(Vec<At>),
    /// A class or a function, which is never called.
    Name(String),
    /// What a class or a function would make of its arguments, and what is put into it afterwards.
    Made {
        by: At,
        of: At,
        state: Option<At>,
        items: Vec<At>,
        entries: Vec<(At, At)>,
    },
    /// What the file keeps elsewhere, by name: in a torch file, the bytes of a tensor.
    Elsewhere(At, Option<Bytes>),
    Tensor(Tensor),
}

/// All values of a file; the last is its root.
#[derive(Clone, Debug, Default)]
pub struct Tree {
    pub values: Vec<Value>,
    pub root: At,
}

/// A place where two files differ.
#[derive(Clone, Debug, PartialEq)]
pub struct Difference {
    /// The keys on the way to it.
    pub keys: Vec<String>,
    pub what: Apartness,
}

/// How the values at a place differ.
#[derive(Clone, Debug, PartialEq)]
pub enum Apartness {
    /// Tensors, by so much at most in so many elements.
    Tensor(f64, u64),
    /// Tensors of other shapes or types.
    Shape,
    /// Single values, in words.
    Single(String, String),
    /// Many bytes, lists of other lengths, values of other kinds.
    Content,
    /// Only one of the two has it.
    Alone,
    /// It cannot be read here.
    Unreadable,
}

/// What a walk found.
#[derive(Clone, Debug, Default)]
pub struct Walk {
    pub differences: Vec<Difference>,
    pub tensors: usize,
    pub singles: usize,
}

impl Tree {
    pub fn add(&mut self, value: Value) -> At {
        self.values.push(value);
        self.values.len() - 1
    }

    /// Takes all values of another tree in; gives the place of its root.
    pub fn graft(&mut self, other: Tree) -> At {
        let base = self.values.len();
        let moved = |at: At| at + base;
        let all = |parts: Vec<At>| parts.into_iter().map(moved).collect();
        let pairs = |parts: Vec<(At, At)>| parts.into_iter().map(|(key, value)| (moved(key), moved(value))).collect();
        self.values.extend(other.values.into_iter().map(|value| match value {
            Value::List(parts) => Value::List(all(parts)),
            Value::Set(parts) => Value::Set(all(parts)),
            Value::Map(entries) => Value::Map(pairs(entries)),
            Value::Elsewhere(at, bytes) => Value::Elsewhere(moved(at), bytes),
            Value::Made { by, of, state, items, entries } => Value::Made {
                by: moved(by),
                of: moved(of),
                state: state.map(moved),
                items: all(items),
                entries: pairs(entries),
            },
            single => single,
        }));
        moved(other.root)
    }

    fn get(&self, at: At) -> &Value {
        self.values.get(at).unwrap_or(&Value::Nothing)
    }

    /// The value under a key of the root.
    pub fn entry(&self, key: &str) -> Option<&Value> {
        let Value::Map(entries) = self.get(self.root) else { return None };
        let named = |at: &At| matches!(self.get(*at), Value::Text(text) if text == key);
        entries.iter().find(|(at, _)| named(at)).map(|(_, value)| self.get(*value))
    }

    /// A value as a key, exactly; none for what is too deep or no key. `1` and `"1"` are two keys.
    fn key(&self, at: At, depth: usize) -> Option<String> {
        let list = |parts: &[At]| -> Option<String> {
            let keys = parts.iter().map(|at| self.key(*at, depth + 1)).collect::<Option<Vec<String>>>()?;
            Some(keys.iter().map(|key| format!("{}:{key}", key.len())).collect())
        };
        Some(match self.get(at) {
            Value::Nothing => "none".to_owned(),
            Value::Bool(value) => format!("bool {value}"),
            Value::Int(value) => format!("int {value}"),
            Value::Float(value) => format!("float {:x}", value.to_bits()),
            Value::Text(text) => format!("text {text}"),
            Value::Name(name) => format!("name {name}"),
            Value::Raw(bytes) => format!("bytes {bytes:?}"),
            Value::List(parts) if depth < DEEPEST_KEY => format!("list {}", list(parts)?),
            Value::Made { by, of, state: None, items, entries } if entries.is_empty() && depth < DEEPEST_KEY => {
                format!("made {} {} {}", self.key(*by, depth + 1)?, self.key(*of, depth + 1)?, list(items)?)
            }
            _ => return None,
        })
    }

    /// A value in a few words, for messages.
    fn words(&self, at: At, depth: usize) -> String {
        let list = |parts: &[At]| {
            let words: Vec<String> = parts.iter().take(8).map(|at| self.words(*at, depth + 1)).collect();
            words.join(",")
        };
        match self.get(at) {
            Value::Nothing => "None".to_owned(),
            Value::Bool(value) => value.to_string(),
            Value::Int(value) => value.to_string(),
            Value::Float(value) => value.to_string(),
            Value::Text(text) => text.chars().take(200).collect(),
            Value::Name(name) => name.clone(),
            Value::List(parts) | Value::Set(parts) if depth < 3 => format!("({})", list(parts)),
            Value::Made { by, of, .. } if depth < 3 => {
                format!("{}{}", self.words(*by, depth + 1), self.words(*of, depth + 1))
            }
            _ => "…".to_owned(),
        }
    }

    /// Entries by their keys, each with its key in words; none when one is no key that can be told from others.
    fn by_key(&self, entries: &[(At, At)]) -> Option<BTreeMap<String, (String, At)>> {
        let mut found = BTreeMap::new();
        for (key, value) in entries {
            // A pickle may put one key twice: then the later one counts, as in Python.
            found.insert(self.key(*key, 0)?, (self.words(*key, 0), *value));
        }
        Some(found)
    }
}

/// Every place where two trees differ.
pub fn walk(one: &Tree, other: &Tree) -> Walk {
    let mut walk = Walk::default();
    let mut seen = HashSet::new();
    let mut open = vec![(Vec::new(), one.root, other.root)];
    while let Some((keys, left, right)) = open.pop() {
        if walk.differences.len() >= MOST_NAMED || !seen.insert((left, right)) {
            continue;
        }
        if keys.len() > DEEPEST || seen.len() > MOST_PAIRS {
            walk.differences.push(Difference { keys: keys.clone(), what: Apartness::Unreadable });
            continue;
        }
        let mut found = |what| walk.differences.push(Difference { keys: keys.clone(), what });
        let below = |key: String| keys.iter().cloned().chain([key]).collect::<Vec<String>>();
        match (one.get(left), other.get(right)) {
            (Value::Tensor(left), Value::Tensor(right)) => {
                walk.tensors += 1;
                match left.apart(right) {
                    Apart::Equal => {}
                    Apart::By(most, many) => found(match (left.single(), right.single()) {
                        (Some(left), Some(right)) => Apartness::Single(left.to_string(), right.to_string()),
                        _ => Apartness::Tensor(most, many),
                    }),
                    Apart::Unlike => found(Apartness::Shape),
                    Apart::Unreadable => found(Apartness::Unreadable),
                }
            }
            (Value::Map(left), Value::Map(right)) => {
                let (Some(left), Some(right)) = (one.by_key(left), other.by_key(right)) else {
                    found(Apartness::Unreadable);
                    continue;
                };
                for key in left.keys().chain(right.keys()).collect::<BTreeSet<_>>() {
                    match (left.get(key), right.get(key)) {
                        (Some((words, left)), Some((_, right))) => open.push((below(words.clone()), *left, *right)),
                        (Some((words, _)), None) | (None, Some((words, _))) => {
                            walk.differences.push(Difference { keys: below(words.clone()), what: Apartness::Alone });
                        }
                        (None, None) => {}
                    }
                }
            }
            (Value::List(left), Value::List(right)) if left.len() == right.len() => {
                for (at, (left, right)) in left.iter().zip(right).enumerate() {
                    open.push((below(at.to_string()), *left, *right));
                }
            }
            (Value::Set(left), Value::Set(right)) => {
                let members = |tree: &Tree, parts: &[At]| {
                    parts.iter().map(|at| tree.key(*at, 0)).collect::<Option<BTreeSet<_>>>()
                };
                match (members(one, left), members(other, right)) {
                    (Some(left), Some(right)) if left == right => {}
                    (None, _) | (_, None) => found(Apartness::Unreadable),
                    _ => found(Apartness::Content),
                }
            }
            (Value::Made { .. }, Value::Made { .. }) => {
                let Value::Made { by, of, state, items, entries } = one.get(left).clone() else { continue };
                let Value::Made { by: by2, of: of2, state: state2, items: items2, entries: entries2 } =
                    other.get(right).clone()
                else {
                    continue;
                };
                open.push((keys.clone(), by, by2));
                open.push((keys.clone(), of, of2));
                match (state, state2) {
                    (Some(state), Some(state2)) => open.push((keys.clone(), state, state2)),
                    (None, None) => {}
                    _ => found(Apartness::Content),
                }
                if items.len() != items2.len() || entries.len() != entries2.len() {
                    walk.differences.push(Difference { keys: keys.clone(), what: Apartness::Content });
                    continue;
                }
                for (at, (item, item2)) in items.iter().zip(&items2).enumerate() {
                    open.push((below(at.to_string()), *item, *item2));
                }
                let (Some(left), Some(right)) = (one.by_key(&entries), other.by_key(&entries2)) else {
                    walk.differences.push(Difference { keys: keys.clone(), what: Apartness::Unreadable });
                    continue;
                };
                for (key, (words, entry)) in left {
                    match right.get(&key) {
                        Some((_, entry2)) => open.push((below(words), entry, *entry2)),
                        None => walk.differences.push(Difference { keys: below(words), what: Apartness::Alone }),
                    }
                }
            }
            // Bytes count, not the name under which a file keeps them.
            (Value::Elsewhere(_, Some(left)), Value::Elsewhere(_, Some(right))) => {
                walk.tensors += 1;
                match bytes_of(left).apart(&bytes_of(right)) {
                    Apart::Equal => {}
                    Apart::Unreadable => found(Apartness::Unreadable),
                    _ => found(Apartness::Content),
                }
            }
            (Value::Elsewhere(left, None), Value::Elsewhere(right, None)) => open.push((keys.clone(), *left, *right)),
            (Value::Raw(left), Value::Raw(right)) => {
                walk.singles += 1;
                if left != right {
                    found(Apartness::Content);
                }
            }
            (is, was) => {
                walk.singles += 1;
                if !same(is, was) {
                    found(if is_single(is) && is_single(was) {
                        Apartness::Single(one.words(left, 0), other.words(right, 0))
                    } else {
                        Apartness::Content
                    });
                }
            }
        }
    }
    walk.differences.sort_by(|one, other| one.keys.cmp(&other.keys));
    walk
}

/// Bytes as a tensor of which nothing else is known.
fn bytes_of(bytes: &Bytes) -> Tensor {
    Tensor { kind: Kind::Other, width: 1, shape: vec![bytes.len()], strides: None, bytes: bytes.clone() }
}

fn is_single(value: &Value) -> bool {
    matches!(value, Value::Nothing | Value::Bool(_) | Value::Int(_) | Value::Float(_) | Value::Text(_) | Value::Name(_))
}

fn same(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::Nothing, Value::Nothing) => true,
        (Value::Bool(one), Value::Bool(other)) => one == other,
        (Value::Int(one), Value::Int(other)) => one == other,
        (Value::Float(one), Value::Float(other)) => one == other || (one.is_nan() && other.is_nan()),
        (Value::Int(int), Value::Float(float)) | (Value::Float(float), Value::Int(int)) => *int as f64 == *float,
        (Value::Text(one), Value::Text(other)) | (Value::Name(one), Value::Name(other)) => one == other,
        _ => false,
    }
}

/// A JSON document as a tree.
pub fn from_json(document: &serde_json::Value) -> Tree {
    fn place(tree: &mut Tree, document: &serde_json::Value) -> At {
        let value = match document {
            serde_json::Value::Null => Value::Nothing,
            serde_json::Value::Bool(value) => Value::Bool(*value),
            serde_json::Value::Number(number) => {
                let large = || match number.as_u64() {
                    Some(large) => Value::Text(large.to_string()),
                    None => Value::Float(number.as_f64().unwrap_or(f64::NAN)),
                };
                number.as_i64().map_or_else(large, Value::Int)
            }
            serde_json::Value::String(text) => Value::Text(text.clone()),
            serde_json::Value::Array(parts) => Value::List(parts.iter().map(|part| place(tree, part)).collect()),
            serde_json::Value::Object(entries) => Value::Map(
                entries.iter().map(|(key, value)| (tree.add(Value::Text(key.clone())), place(tree, value))).collect(),
            ),
        };
        tree.add(value)
    }
    let mut tree = Tree::default();
    tree.root = place(&mut tree, document);
    tree
}
