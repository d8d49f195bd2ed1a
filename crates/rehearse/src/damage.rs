//! Does to the newest checkpoint of the rehearsal's own store what happens to real ones: cut short on the way,
//! or torn by the program itself and saved like that.

use serde_json::Value;
use std::path::{Path, PathBuf};

/// The newest manifest that holds files.
fn newest(store: &Path) -> Option<(PathBuf, Value)> {
    let mut names: Vec<PathBuf> =
        std::fs::read_dir(store.join("manifests")).ok()?.filter_map(|entry| Some(entry.ok()?.path())).collect();
    names.sort();
    let read = |path: &PathBuf| serde_json::from_slice::<Value>(&std::fs::read(path).ok()?).ok();
    let path = names.pop()?;
    let manifest = read(&path)?;
    manifest["files"].as_array().is_some_and(|files| !files.is_empty()).then_some((path, manifest))
}

/// The largest file of a manifest.
fn largest(manifest: &Value) -> Option<&Value> {
    manifest["files"].as_array()?.iter().max_by_key(|file| file["size"].as_u64())
}

/// Truncates the newest checkpoint, as a full disk or a lost upload would. False when there is none.
pub fn cut_short(store: &Path) -> bool {
    let Some((path, manifest)) = newest(store) else { return false };
    let name = manifest["name"]["seq"].as_u64().zip(manifest["name"]["epoch"].as_u64());
    let own = |blob: &str| name.is_some_and(|(seq, epoch)| blob.starts_with(&format!("{epoch}-{seq}-")));
    let blob = largest(&manifest).and_then(|file| file["blob"].as_str()).filter(|blob| own(blob));
    // A blob that older checkpoints share would take them along; then the manifest is cut.
    let target = blob.map_or(path, |blob| store.join("blobs").join(blob));
    let half = std::fs::metadata(&target).map_or(0, |meta| meta.len() / 2);
    std::fs::File::options().write(true).open(&target).and_then(|file| file.set_len(half)).is_ok()
}

/// Adds a newest checkpoint whose largest file is half of what it was, whole by its hashes: what the agent
/// saves when a program was killed in the middle of writing in place. False when there is none to tear.
pub fn tear(store: &Path) -> bool {
    tear_newest(store).is_some()
}

fn tear_newest(store: &Path) -> Option<()> {
    let (_, mut manifest) = newest(store)?;
    let file = largest(&manifest)?.clone();
    let (size, offset) = (file["size"].as_u64()?, file["offset"].as_u64().unwrap_or(0));
    let bytes = std::fs::read(store.join("blobs").join(file["blob"].as_str()?)).ok()?;
    let half = bytes.get(usize::try_from(offset).ok()?..usize::try_from(offset + size / 2).ok()?)?;
    let (epoch, seq) = (manifest["name"]["epoch"].as_u64()?, 1_000_000_u64);
    let blob = format!("{epoch}-{seq}-torn-0");
    std::fs::write(store.join("blobs").join(&blob), half).ok()?;
    for entry in manifest["files"].as_array_mut()? {
        if entry["path"] == file["path"] {
            entry["size"] = Value::from(size / 2);
            entry["hash"] = Value::from(blake3::hash(half).to_hex().to_string());
            entry["blob"] = Value::from(blob.clone());
            entry["offset"] = Value::from(0);
            entry["sample"] = Value::from("");
        }
    }
    manifest["name"]["seq"] = Value::from(seq);
    manifest["copy_of"] = Value::Null;
    manifest["fresh"] = Value::from(false);
    let path = store.join("manifests").join(format!("{epoch:020}-{seq:020}.json"));
    std::fs::write(path, manifest.to_string()).ok()
}
