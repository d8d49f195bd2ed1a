//! Reads a Python pickle as data. Nothing in it is executed or imported: a class or a function that the file names
//! stays a name, with its arguments beside it. What torch, collections and codecs write is understood; anything
//! else is compared by its parts.

use super::tensor::{Bytes, Tensor, element};
use super::tree::{At, Tree, Value};
use std::collections::{BTreeMap, HashMap};

/// Values of one file; a file with more is compared by its bytes.
const MOST_VALUES: usize = 8_000_000;

/// Reads a whole pickle; none when it is none, or uses what is not understood. `storages` are the bytes of tensors
/// that a torch file keeps beside it, by name.
pub fn read(bytes: &[u8], storages: &BTreeMap<String, Bytes>) -> Option<Tree> {
    let mut reader = Reader {
        rest: bytes,
        tree: Tree::default(),
        stack: Vec::new(),
        marks: Vec::new(),
        memo: HashMap::new(),
        storages,
    };
    while reader.tree.values.len() < MOST_VALUES {
        let code = reader.byte()?;
        if code == b'.' {
            reader.tree.root = reader.stack.pop()?;
            // What follows, another pickle or the bytes of arrays, would go unseen.
            return reader.rest.is_empty().then_some(reader.tree);
        }
        reader.step(code)?;
    }
    None
}

struct Reader<'a> {
    rest: &'a [u8],
    tree: Tree,
    stack: Vec<At>,
    marks: Vec<usize>,
    memo: HashMap<u64, At>,
    storages: &'a BTreeMap<String, Bytes>,
}

impl<'a> Reader<'a> {
    fn byte(&mut self) -> Option<u8> {
        self.take(1).map(|bytes| bytes[0])
    }

    fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let (bytes, rest) = self.rest.split_at_checked(length)?;
        self.rest = rest;
        Some(bytes)
    }

    fn number(&mut self, width: usize) -> Option<u64> {
        super::zip::number(self.take(width)?, 0, width)
    }

    fn sized(&mut self, width: usize) -> Option<&'a [u8]> {
        let length = self.number(width)?;
        self.take(usize::try_from(length).ok()?)
    }

    fn line(&mut self) -> Option<String> {
        let end = self.rest.iter().position(|byte| *byte == b'\n')?;
        let line = String::from_utf8_lossy(self.take(end)?).into_owned();
        self.take(1)?;
        Some(line)
    }

    fn push(&mut self, value: Value) -> Option<()> {
        let at = self.tree.add(value);
        self.stack.push(at);
        Some(())
    }

    fn text(&mut self, bytes: &[u8]) -> Option<()> {
        self.push(Value::Text(String::from_utf8_lossy(bytes).into_owned()))
    }

    /// All that was put on the stack since the last mark.
    fn since_mark(&mut self) -> Option<Vec<At>> {
        let mark = self.marks.pop()?;
        (mark <= self.stack.len()).then(|| self.stack.split_off(mark))
    }

    fn last(&mut self, many: usize) -> Option<Vec<At>> {
        Some(self.stack.split_off(self.stack.len().checked_sub(many)?))
    }

    fn int(&mut self, bytes: &[u8]) -> Option<()> {
        // Larger ones are compared by their bytes.
        if bytes.len() > 8 {
            return self.push(Value::Raw(bytes.to_vec()));
        }
        let sign = bytes.last().is_some_and(|byte| byte & 0x80 != 0);
        let start = if sign { -1_i64 as u64 } else { 0 };
        let value = bytes.iter().rev().fold(start, |sum, byte| (sum << 8) | u64::from(*byte));
        self.push(Value::Int(value as i64))
    }

    fn step(&mut self, code: u8) -> Option<()> {
        match code {
            0x80 => self.take(1).map(drop),
            0x95 => self.take(8).map(drop),
            b'N' => self.push(Value::Nothing),
            0x88 => self.push(Value::Bool(true)),
            0x89 => self.push(Value::Bool(false)),
            b'J' => self.take(4).and_then(|bytes| self.int(bytes)),
            b'K' => self.number(1).and_then(|value| self.push(Value::Int(value as i64))),
            b'M' => self.number(2).and_then(|value| self.push(Value::Int(value as i64))),
            0x8a => self.sized(1).and_then(|bytes| self.int(bytes)),
            0x8b => self.sized(4).and_then(|bytes| self.int(bytes)),
            b'I' | b'L' => self.written_int(),
            b'G' => {
                let bits = self.take(8)?.iter().fold(0, |sum, byte| (sum << 8) | u64::from(*byte));
                self.push(Value::Float(f64::from_bits(bits)))
            }
            b'F' => self.line().and_then(|line| self.push(Value::Float(line.parse().ok()?))),
            b'X' => self.sized(4).and_then(|bytes| self.text(bytes)),
            0x8c => self.sized(1).and_then(|bytes| self.text(bytes)),
            0x8d => self.sized(8).and_then(|bytes| self.text(bytes)),
            b'V' | b'S' => self.line().and_then(|line| self.push(Value::Text(line))),
            b'U' => self.sized(1).and_then(|bytes| self.text(bytes)),
            b'T' => self.sized(4).and_then(|bytes| self.text(bytes)),
            b'C' => self.sized(1).and_then(|bytes| self.push(Value::Raw(bytes.to_vec()))),
            b'B' => self.sized(4).and_then(|bytes| self.push(Value::Raw(bytes.to_vec()))),
            0x8e | 0x96 => self.sized(8).and_then(|bytes| self.push(Value::Raw(bytes.to_vec()))),
            b'c' => {
                let (module, name) = (self.line()?, self.line()?);
                self.push(Value::Name(format!("{module}.{name}")))
            }
            b'P' => {
                let name = self.line()?;
                let at = self.tree.add(Value::Text(name));
                self.push(Value::Elsewhere(at, None))
            }
            b'Q' => {
                let at = self.stack.pop()?;
                let bytes = self.storage(at).and_then(|(_, key)| self.storages.get(key).cloned());
                self.push(Value::Elsewhere(at, bytes))
            }
            _ => self.remember(code).or_else(|| self.build(code)),
        }
    }

    fn written_int(&mut self) -> Option<()> {
        let line = self.line()?;
        match line.trim_end_matches('L') {
            "00" => self.push(Value::Bool(false)),
            "01" => self.push(Value::Bool(true)),
            digits => match digits.parse() {
                Ok(value) => self.push(Value::Int(value)),
                Err(_) => self.push(Value::Text(digits.to_owned())),
            },
        }
    }

    /// The stack, marks in it, and values that are used again.
    fn remember(&mut self, code: u8) -> Option<()> {
        let key = match code {
            b'p' | b'g' => self.line()?.parse().ok()?,
            b'q' | b'h' => self.number(1)?,
            b'r' | b'j' => self.number(4)?,
            0x94 => self.memo.len() as u64,
            b'(' => {
                self.marks.push(self.stack.len());
                return Some(());
            }
            b'0' => return self.stack.pop().map(drop),
            b'1' => return self.since_mark().map(drop),
            b'2' => {
                self.stack.push(*self.stack.last()?);
                return Some(());
            }
            _ => return None,
        };
        match code {
            b'g' | b'h' | b'j' => self.stack.push(*self.memo.get(&key)?),
            _ => drop(self.memo.insert(key, *self.stack.last()?)),
        }
        Some(())
    }

    fn build(&mut self, code: u8) -> Option<()> {
        match code {
            b')' => self.push(Value::List(Vec::new())),
            b']' => self.push(Value::List(Vec::new())),
            b'}' => self.push(Value::Map(Vec::new())),
            0x8f => self.push(Value::Set(Vec::new())),
            b't' | b'l' => self.since_mark().and_then(|parts| self.push(Value::List(parts))),
            0x91 => self.since_mark().and_then(|parts| self.push(Value::Set(parts))),
            b'd' => self.since_mark().and_then(|parts| self.push(Value::Map(pairs(&parts)))),
            0x85..=0x87 => self.last(usize::from(code - 0x84)).and_then(|parts| self.push(Value::List(parts))),
            b'a' => self.last(1).and_then(|parts| self.put(&parts, &[])),
            b'e' | 0x90 => self.since_mark().and_then(|parts| self.put(&parts, &[])),
            b's' => self.last(2).and_then(|parts| self.put(&[], &pairs(&parts))),
            b'u' => self.since_mark().and_then(|parts| self.put(&[], &pairs(&parts))),
            b'R' | 0x81 => {
                let [by, of] = self.last(2)?.try_into().ok()?;
                self.make(by, of)
            }
            0x92 => {
                let [by, of, named] = self.last(3)?.try_into().ok()?;
                let of = self.tree.add(Value::List(vec![of, named]));
                self.make(by, of)
            }
            0x93 => {
                let [module, name] = self.last(2)?.try_into().ok()?;
                match (&self.tree.values[module], &self.tree.values[name]) {
                    (Value::Text(module), Value::Text(name)) => {
                        let name = format!("{module}.{name}");
                        self.push(Value::Name(name))
                    }
                    _ => None,
                }
            }
            b'i' | b'o' => {
                let by = match code {
                    b'i' => format!("{}.{}", self.line()?, self.line()?),
                    _ => String::new(),
                };
                let mut parts = self.since_mark()?;
                let by = match code {
                    b'i' => self.tree.add(Value::Name(by)),
                    _ if parts.is_empty() => return None,
                    _ => parts.remove(0),
                };
                let of = self.tree.add(Value::List(parts));
                self.make(by, of)
            }
            b'b' => {
                let state = self.stack.pop()?;
                let at = *self.stack.last()?;
                // The attributes that torch hangs on a dictionary of weights are versions, not state.
                if let Value::Made { state: place, .. } = &mut self.tree.values[at] {
                    *place = Some(state);
                }
                Some(())
            }
            _ => None,
        }
    }

    /// Puts items and entries into the container on top of the stack.
    fn put(&mut self, more: &[At], pairs: &[(At, At)]) -> Option<()> {
        match &mut self.tree.values[*self.stack.last()?] {
            Value::List(parts) | Value::Set(parts) if pairs.is_empty() => parts.extend_from_slice(more),
            Value::Map(known) if more.is_empty() => known.extend_from_slice(pairs),
            Value::Made { items, entries, .. } => {
                items.extend_from_slice(more);
                entries.extend_from_slice(pairs);
            }
            _ => return None,
        }
        Some(())
    }

    fn make(&mut self, by: At, of: At) -> Option<()> {
        let name = match &self.tree.values[by] {
            Value::Name(name) => name.clone(),
            _ => String::new(),
        };
        let parts = match &self.tree.values[of] {
            Value::List(parts) => parts.clone(),
            _ => Vec::new(),
        };
        match name.as_str() {
            "collections.OrderedDict" | "collections.defaultdict" | "builtins.dict" if parts.len() < 2 => {
                return self.push(Value::Map(Vec::new()));
            }
            // Protocol 2 has no bytes: it has text and a call that makes bytes of it.
            "_codecs.encode" => {
                if let Some(Value::Text(text)) = parts.first().map(|at| &self.tree.values[*at]) {
                    let bytes = text.chars().map(|letter| u32::from(letter) as u8).collect();
                    return self.push(Value::Raw(bytes));
                }
            }
            "torch._utils._rebuild_parameter" | "torch._utils._rebuild_parameter_with_state" => {
                self.stack.push(*parts.first()?);
                return Some(());
            }
            "torch._utils._rebuild_tensor_v2" | "torch._utils._rebuild_tensor_v3" | "torch._utils._rebuild_tensor" => {
                if let Some(tensor) = self.tensor(&parts) {
                    return self.push(Value::Tensor(tensor));
                }
            }
            _ => {}
        }
        self.push(Value::Made { by, of, state: None, items: Vec::new(), entries: Vec::new() })
    }

    /// Class and key of a storage, from the tuple that names it.
    fn storage(&self, at: At) -> Option<(&str, &str)> {
        let value = |at: At| self.tree.values.get(at);
        let Value::List(parts) = value(at)? else { return None };
        match (value(*parts.get(1)?)?, value(*parts.get(2)?)?) {
            (Value::Name(class), Value::Text(key)) => Some((class, key)),
            _ => None,
        }
    }

    /// The arguments of a tensor: its storage, where it begins in that, its shape and its strides.
    fn tensor(&self, parts: &[At]) -> Option<Tensor> {
        let value = |at: At| self.tree.values.get(at);
        let Value::Elsewhere(storage, _) = value(*parts.first()?)? else { return None };
        let (class, key) = self.storage(*storage)?;
        let whole = |at: &At| match value(*at) {
            Some(Value::Int(number)) => u64::try_from(*number).ok(),
            _ => None,
        };
        let list = |at: Option<&At>| match value(*at?)? {
            Value::List(parts) => parts.iter().map(whole).collect::<Option<Vec<u64>>>(),
            _ => None,
        };
        // Newer types have storages without a type; the type is an argument of its own.
        let told = parts.iter().skip(4).find_map(|at| match value(*at) {
            Some(Value::Name(name)) => name.strip_prefix("torch."),
            _ => None,
        });
        let (kind, width) = element(told.unwrap_or_else(|| class.rsplit('.').next().unwrap_or_default()));
        let (from, shape, strides) = (whole(parts.get(1)?)?, list(parts.get(2))?, list(parts.get(3)));
        let bytes = self.storages.get(key)?;
        let from = from.checked_mul(width)?;
        Some(Tensor { kind, width, shape, strides, bytes: bytes.part(from, bytes.len().checked_sub(from)?)? })
    }
}

fn pairs(parts: &[At]) -> Vec<(At, At)> {
    parts.chunks_exact(2).map(|pair| (pair[0], pair[1])).collect()
}
