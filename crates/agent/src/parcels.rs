//! What of a job travels: its folder to the machines that it runs on, and what it leaves back from there.

use crate::checkpoint::{CheckpointError, Checkpoints, Options, Ref, Snapshot};
use crate::patterns::Patterns;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use windfall_core::CheckpointId;
use windfall_core::spec::Parcel;

/// The file at the top of a folder that says what of it is not sent. Where there is none, files of `.gitignore` say it.
pub const IGNORE: &str = ".windfallignore";
const GIT_IGNORE: &str = ".gitignore";

/// A folder of which a parcel was made.
#[derive(Debug)]
pub struct Packed {
    pub parcel: Parcel,
    pub bytes_sent: u64,
    /// What cannot be sent, and why.
    pub left_out: Vec<(PathBuf, &'static str)>,
}

/// A folder that cannot be sent.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub struct NotSent(#[from] CheckpointError);

impl NotSent {
    /// What a person can do about it.
    pub fn hint(&self) -> Option<&str> {
        self.0.hint()
    }
}

/// The key of a folder in a store: the same for every parcel of it, and nobody else's.
pub fn folder_key(owner: &str, folder: &Path) -> String {
    let mut hasher = blake3::Hasher::new();
    for part in [owner.as_bytes(), b"\0", folder.as_os_str().as_encoded_bytes()] {
        hasher.update(part);
    }
    format!("folders/{}", &hasher.finalize().to_hex()[..32])
}

/// The key of what a job brings back.
pub fn outputs_key(checkpoint_key: &str) -> String {
    format!("{checkpoint_key}.outputs")
}

/// Puts what a folder holds now into a store. `but` are paths in it that stay: checkpoints, and where those are kept.
pub async fn send_folder(
    store: &str,
    key: &str,
    env: &BTreeMap<String, String>,
    folder: &Path,
    but: Vec<PathBuf>,
) -> Result<Packed, NotSent> {
    let folder = folder.to_owned();
    let looked = tokio::task::spawn_blocking(move || snapshot(&folder, &but)).await;
    let snapshot = looked.map_err(|error| CheckpointError::Task(error.to_string()))??;
    let parcels = open(store, key, env)?;
    let saved = parcels.pack(1, &snapshot).await?;
    let parcel = Parcel {
        key: key.to_owned(),
        name: CheckpointId { epoch: saved.name.epoch, seq: saved.name.seq },
        content: saved.content,
        files: saved.files as u64,
        bytes: snapshot.bytes(),
    };
    Ok(Packed { parcel, bytes_sent: saved.bytes_sent, left_out: snapshot.left_out().to_vec() })
}

/// Whether a parcel is in its store.
pub async fn has_parcel(store: &str, parcel: &Parcel, env: &BTreeMap<String, String>) -> Result<bool, NotSent> {
    let name = Ref::new(parcel.name.epoch, parcel.name.seq);
    Ok(open(store, &parcel.key, env)?.list().await?.iter().any(|listed| listed.name == name))
}

/// Deletes parcels of a folder that are old and that no job uses.
pub async fn discard_folders(
    store: &str,
    key: &str,
    env: &BTreeMap<String, String>,
    used: &[CheckpointId],
) -> Result<(), NotSent> {
    let used: BTreeSet<Ref> = used.iter().map(|id| Ref::new(id.epoch, id.seq)).collect();
    open(store, key, env)?.discard(&used).await?;
    Ok(())
}

/// Brings back what a job left, or what of it lies at a path, into a folder; none where it has left nothing. Files that are
/// there already are replaced, and others stay.
pub async fn fetch_outputs(
    store: &str,
    checkpoint_key: &str,
    env: &BTreeMap<String, String>,
    path: Option<&Path>,
    into: &Path,
) -> Result<Option<Vec<PathBuf>>, NotSent> {
    let parcels = open(store, &outputs_key(checkpoint_key), env)?;
    let Some(newest) = parcels.newest_parcel().await? else { return Ok(None) };
    // Beside the files, so that they can be renamed into place.
    let draft = into.join(format!(".windfall-get-{}", std::process::id()));
    let taken = async {
        std::fs::create_dir_all(&draft).map_err(CheckpointError::local("cannot make", &draft))?;
        let wanted = |file: &Path| path.is_none_or(|path| file.starts_with(path) || path.starts_with(file));
        parcels.unpack(newest, &draft, &wanted).await?;
        let (from, to) = (draft.clone(), into.to_owned());
        let moved = tokio::task::spawn_blocking(move || move_over(&from, &to)).await;
        moved.map_err(|error| CheckpointError::Task(error.to_string()))?
    };
    let taken = taken.await;
    let _ = std::fs::remove_dir_all(&draft);
    Ok(Some(taken?))
}

pub(crate) fn open(store: &str, key: &str, env: &BTreeMap<String, String>) -> Result<Checkpoints, CheckpointError> {
    let env = env.iter().map(|(name, value)| (name.clone(), value.clone()));
    Checkpoints::open(store, key, Options::with_env(env))
}

/// Moves every file of one folder over another's, and tells which.
fn move_over(from: &Path, to: &Path) -> Result<Vec<PathBuf>, CheckpointError> {
    let mut moved = Vec::new();
    for path in crate::checkpoint::paths_in(from)? {
        let (source, target) = (from.join(&path), to.join(&path));
        let failed = CheckpointError::local("cannot write", &target);
        if source.is_dir() && !source.is_symlink() {
            std::fs::create_dir_all(&target).map_err(failed)?;
        } else {
            std::fs::rename(&source, &target).map_err(failed)?;
            moved.push(path);
        }
    }
    Ok(moved)
}

/// What a job leaves, as its file names it: lines relative to its folder.
pub(crate) fn outputs_in(folder: &Path, paths: &[String]) -> Result<Snapshot, CheckpointError> {
    let lines: Vec<String> = paths.iter().map(|path| format!("/{}", path.trim_start_matches('/'))).collect();
    let patterns = Patterns::read(&lines.join("\n"));
    // Folders are looked into in any case: what is named may lie below.
    let mut snapshot = Snapshot::without(folder, &mut |path, is_folder| !is_folder && !patterns.name(path, is_folder))?;
    snapshot.dirs.retain(|(path, _)| patterns.name(path, true));
    Ok(snapshot)
}

fn snapshot(folder: &Path, but: &[PathBuf]) -> Result<Snapshot, CheckpointError> {
    let mut ignored = Ignored::of(folder);
    Snapshot::without(folder, &mut |path, is_folder| {
        path == Path::new(".git") || but.iter().any(|stays| stays == path) || ignored.has(path, is_folder)
    })
}

/// What the ignore files of a folder name. Those of folders below are read when they are come to.
struct Ignored {
    root: PathBuf,
    name: &'static str,
    /// By their folder, relative to the root.
    files: BTreeMap<PathBuf, Patterns>,
}

impl Ignored {
    fn of(root: &Path) -> Ignored {
        let name = if root.join(IGNORE).exists() { IGNORE } else { GIT_IGNORE };
        let mut ignored = Ignored { root: root.to_owned(), name, files: BTreeMap::new() };
        ignored.read(Path::new(""));
        if name == GIT_IGNORE
            && let Ok(text) = std::fs::read_to_string(root.join(".git/info/exclude"))
        {
            let own = ignored.files.remove(Path::new(""));
            // What the folder's own file says comes later, and counts more.
            ignored.files.insert(PathBuf::new(), Patterns::read(&text).then(own.unwrap_or_default()));
        }
        ignored
    }

    fn read(&mut self, folder: &Path) {
        if let Ok(text) = std::fs::read_to_string(self.root.join(folder).join(self.name)) {
            self.files.insert(folder.to_owned(), Patterns::read(&text));
        }
    }

    /// Whether a path is not sent. The file nearest to it decides.
    fn has(&mut self, path: &Path, is_folder: bool) -> bool {
        let says = |folder: &Path| self.files.get(folder)?.say(path.strip_prefix(folder).ok()?, is_folder);
        let is_ignored = path.ancestors().skip(1).find_map(says).unwrap_or(false);
        if is_folder && !is_ignored {
            self.read(path);
        }
        is_ignored
    }
}

#[cfg(test)]
mod tests;
