//! Which format a file has, told by its content, and its values as a tree. A file that cannot be read here is no
//! error: it is compared by its bytes.

use super::tensor::{Bytes, Tensor, element};
use super::tree::{At, Tree, Value, from_json};
use super::{pickle, zip};
use std::collections::BTreeMap;
use std::fs::File;
use std::path::Path;
use std::sync::Arc;

/// Structure is held in memory; tensors are not.
const MOST_STRUCTURE: u64 = 256 << 20;

/// Larger documents are compared as text: their values take many times the room.
const MOST_JSON: u64 = 16 << 20;

/// A format whose content can be compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    Torch,
    Pickle,
    SafeTensors,
    NumPy,
    Json,
}

/// What was read of a file.
pub enum Content {
    Tree(Format, Tree),
    Text(String),
}

/// Reads a file by its content; none when no format fits.
pub fn read(path: &Path) -> Option<Content> {
    let file = Arc::new(File::open(path).ok()?);
    let whole = Bytes::in_file(&file, 0, file.metadata().ok()?.len());
    let start = whole.read(0, usize::try_from(whole.len().min(16)).ok()?)?;
    if start.starts_with(b"PK\x03\x04") {
        let members = zip::members(&file)?;
        return torch(&members).map(|tree| Content::Tree(Format::Torch, tree)).or_else(|| {
            let tree = arrays(&members)?;
            Some(Content::Tree(Format::NumPy, tree))
        });
    }
    if start.starts_with(b"\x93NUMPY") {
        let mut tree = Tree::default();
        tree.root = array(&mut tree, &whole)?;
        return Some(Content::Tree(Format::NumPy, tree));
    }
    if let Some(tree) = safe_tensors(&whole, &start) {
        return Some(Content::Tree(Format::SafeTensors, tree));
    }
    let bytes = whole.all(MOST_STRUCTURE)?;
    if start.first() == Some(&0x80)
        && let Some(tree) = pickle::read(&bytes, &BTreeMap::new())
    {
        return Some(Content::Tree(Format::Pickle, tree));
    }
    let text = String::from_utf8(bytes).ok().filter(|text| !text.contains('\0'))?;
    match (text.len() as u64 <= MOST_JSON).then(|| json(&text)).flatten() {
        Some(document) => Some(Content::Tree(Format::Json, from_json(&document))),
        None => Some(Content::Text(text)),
    }
}

/// JSON as Python writes it, which knows NaN and the infinities.
fn json(text: &str) -> Option<serde_json::Value> {
    if !text.trim_start().starts_with(['{', '[']) {
        return None;
    }
    serde_json::from_str(text).ok().or_else(|| {
        let word = regex::Regex::new(r"(?m)([:\[,]\s*)(NaN|-?Infinity)\b").ok()?;
        serde_json::from_str(&word.replace_all(text, "$1\"$2\"")).ok()
    })
}

/// A torch file: a pickle, and beside it the bytes of its tensors, all in one folder of any name.
fn torch(members: &BTreeMap<String, Bytes>) -> Option<Tree> {
    let (folder, pickled) = members.iter().find_map(|(name, bytes)| Some((name.strip_suffix("data.pkl")?, bytes)))?;
    let data = format!("{folder}data/");
    let storages =
        members.iter().filter_map(|(name, bytes)| Some((name.strip_prefix(&data)?.to_owned(), bytes.clone())));
    pickle::read(&pickled.all(MOST_STRUCTURE)?, &storages.collect())
}

/// The arrays of an npz file.
fn arrays(members: &BTreeMap<String, Bytes>) -> Option<Tree> {
    let mut tree = Tree::default();
    let mut entries: Vec<(At, At)> = Vec::new();
    for (name, bytes) in members {
        let key = tree.add(Value::Text(name.strip_suffix(".npy")?.to_owned()));
        entries.push((key, array(&mut tree, bytes)?));
    }
    tree.root = tree.add(Value::Map(entries));
    Some(tree)
}

/// One npy file: a line of Python that tells type, order and shape, then the elements.
fn array(tree: &mut Tree, bytes: &Bytes) -> Option<At> {
    let start = bytes.read(0, 10)?;
    if !start.starts_with(b"\x93NUMPY") {
        return None;
    }
    let wide = start[6] > 1;
    let length = if wide { zip::number(&bytes.read(8, 4)?, 0, 4)? } else { zip::number(&start, 8, 2)? };
    let from = if wide { 12 } else { 10 };
    let header = String::from_utf8_lossy(&bytes.read(from, usize::try_from(length).ok()?)?).into_owned();
    let after = |key: &str| header.split_once(key).map(|(_, rest)| rest.trim_start_matches([' ', ':', '\'']));
    let named = after("'descr'")?.split('\'').next()?;
    let shape = after("'shape'")?.strip_prefix('(')?.split(')').next()?;
    let shape: Option<Vec<u64>> =
        shape.split(',').map(str::trim).filter(|size| !size.is_empty()).map(|size| size.parse().ok()).collect();
    let data = bytes.part(from + length, bytes.len().checked_sub(from + length)?)?;
    // Python objects are in it as a pickle.
    if named.ends_with('O') {
        return Some(tree.graft(pickle::read(&data.all(MOST_STRUCTURE)?, &BTreeMap::new())?));
    }
    let (kind, width) = element(named);
    let shape = shape?;
    let plain = kind != super::tensor::Kind::Other && !named.starts_with('>');
    // Of types that are not known here the bytes are compared.
    let (kind, width, shape) =
        if plain { (kind, width, shape) } else { (super::tensor::Kind::Other, 1, vec![data.len()]) };
    Some(tree.add(Value::Tensor(Tensor { kind, width, shape, strides: None, bytes: data })))
}

/// A safetensors file: the length of a JSON header, the header, then the tensors where it says.
fn safe_tensors(whole: &Bytes, start: &[u8]) -> Option<Tree> {
    let length = zip::number(start, 0, 8).filter(|length| *length <= MOST_STRUCTURE.min(whole.len()))?;
    if start.get(8) != Some(&b'{') {
        return None;
    }
    let header: serde_json::Map<String, serde_json::Value> =
        serde_json::from_slice(&whole.read(8, usize::try_from(length).ok()?)?).ok()?;
    let mut tree = Tree::default();
    let mut entries = Vec::new();
    for (name, said) in header.iter().filter(|(name, _)| name.as_str() != "__metadata__") {
        let (kind, width) = element(said["dtype"].as_str()?);
        let numbers = |list: &serde_json::Value| list.as_array()?.iter().map(serde_json::Value::as_u64).collect();
        let (shape, places): (Option<Vec<u64>>, Option<Vec<u64>>) =
            (numbers(&said["shape"]), numbers(&said["data_offsets"]));
        let (from, to) = places.as_ref().and_then(|places| Some((*places.first()?, *places.get(1)?)))?;
        let bytes = whole.part((8 + length).checked_add(from)?, to.checked_sub(from)?)?;
        let known = kind != super::tensor::Kind::Other;
        let shape = if known { shape? } else { vec![bytes.len()] };
        let tensor = Tensor { kind, width, shape, strides: None, bytes };
        entries.push((tree.add(Value::Text(name.clone())), tree.add(Value::Tensor(tensor))));
    }
    tree.root = tree.add(Value::Map(entries));
    Some(tree)
}
