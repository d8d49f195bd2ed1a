//! What of a job travels: its folder to the machines that it runs on, and what it leaves back from there.

use crate::checkpoint::{CheckpointError, Checkpoints, Options, Ref, SnapFile, Snapshot};
use crate::patterns::Patterns;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
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
    /// Links to files outside the folder: the files were sent in their place.
    pub followed: Vec<PathBuf>,
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

/// A digest of variables: equal ones give an equal one, and nothing of them can be read from it.
pub fn digest_of(env: &BTreeMap<String, String>) -> String {
    let text = serde_json::to_string(env).expect("variables have string keys");
    blake3::hash(text.as_bytes()).to_hex().to_string()
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
    let (left_out, followed) = (snapshot.left_out, snapshot.followed);
    Ok(Packed { parcel, bytes_sent: saved.bytes_sent, left_out, followed })
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
    let line = |path: &String| match path.trim_matches('/') {
        "" | "." => "/*".to_owned(),
        _ => format!("/{}", path.trim_start_matches('/')),
    };
    let lines: Vec<String> = paths.iter().map(line).collect();
    let patterns = Patterns::read(&lines.join("\n"));
    // Folders are looked into in any case: what is named may lie below.
    let mut snapshot = Snapshot::without(folder, &mut |path, is_folder| !is_folder && !patterns.name(path, is_folder))?;
    snapshot.dirs.retain(|(path, _)| patterns.name(path, true));
    // One file that its own program has closed to everybody keeps the others from nobody.
    let (readable, closed) = snapshot.files.into_iter().partition(|file| File::open(folder.join(&file.path)).is_ok());
    snapshot.files = readable;
    snapshot.left_out.extend(Vec::<SnapFile>::into_iter(closed).map(|file| (file.path, "it cannot be read")));
    Ok(snapshot)
}

fn snapshot(folder: &Path, but: &[PathBuf]) -> Result<Snapshot, CheckpointError> {
    let mut ignored = Ignored::of(folder);
    Snapshot::without(folder, &mut |path, is_folder| {
        path.file_name() == Some(".git".as_ref())
            || but.iter().any(|stays| stays == path)
            || ignored.has(path, is_folder)
    })
}

/// What the ignore files of a folder name. Those of folders below are read when they are come to.
struct Ignored {
    /// The top of its repository, or the folder itself.
    top: PathBuf,
    /// Where the folder lies below that.
    below: PathBuf,
    name: &'static str,
    /// By their folder, relative to the top.
    files: BTreeMap<PathBuf, Patterns>,
}

impl Ignored {
    fn of(root: &Path) -> Ignored {
        let name = if root.join(IGNORE).exists() { IGNORE } else { GIT_IGNORE };
        // The folder may lie deep in a repository: what is said above it counts as well.
        let top = (name == GIT_IGNORE).then(|| root.ancestors().find(|folder| folder.join(".git").exists())).flatten();
        let top = top.unwrap_or(root).to_owned();
        let below = root.strip_prefix(&top).unwrap_or(Path::new("")).to_owned();
        let mut ignored = Ignored { top, below: below.clone(), name, files: BTreeMap::new() };
        for folder in below.ancestors() {
            ignored.read(folder);
        }
        if name == GIT_IGNORE
            && let Some(exclude) = read_lines(&ignored.top.join(".git/info/exclude"))
        {
            let own = ignored.files.remove(Path::new(""));
            // What the folder's own file says comes later, and counts more.
            ignored.files.insert(PathBuf::new(), exclude.then(own.unwrap_or_default()));
        }
        ignored
    }

    fn read(&mut self, folder: &Path) {
        if let Some(lines) = read_lines(&self.top.join(folder).join(self.name)) {
            self.files.insert(folder.to_owned(), lines);
        }
    }

    /// Whether a path is not sent. The file nearest to it decides.
    fn has(&mut self, path: &Path, is_folder: bool) -> bool {
        let path = &self.below.join(path);
        let says = |folder: &Path| self.files.get(folder)?.say(path.strip_prefix(folder).ok()?, is_folder);
        let is_ignored = path.ancestors().skip(1).find_map(says).unwrap_or(false);
        if is_folder && !is_ignored {
            self.read(path);
        }
        is_ignored
    }
}

/// The lines of an ignore file, whatever its letters are: one that cannot be read must not let secrets through.
fn read_lines(file: &Path) -> Option<Patterns> {
    let bytes = std::fs::read(file).ok()?;
    let text = String::from_utf8_lossy(&bytes);
    Some(Patterns::read(text.strip_prefix('\u{feff}').unwrap_or(&text)))
}

#[cfg(test)]
mod tests;
