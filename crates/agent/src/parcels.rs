//! What of a job travels: its folder to the machines that it runs on, and what it leaves back from there.

use crate::checkpoint::{CheckpointError, Checkpoints, Options, Ref, SnapFile, Snapshot};
use crate::folder::remove_tree;
use crate::patterns::Patterns;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::os::unix::fs::PermissionsExt;
use std::path::{Component, Path, PathBuf};
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

    /// Whether a file or folder of this machine is the matter, and not the store.
    pub fn is_local(&self) -> bool {
        matches!(self.0, CheckpointError::Local { .. })
    }
}

/// The key of a folder in a store: the same for every parcel of it that one server knows of, and nobody else's.
pub fn folder_key(installation: &str, folder: &Path) -> String {
    let mut hasher = blake3::Hasher::new();
    for part in [installation.as_bytes(), b"\0", folder.as_os_str().as_encoded_bytes()] {
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
/// there already are replaced, and others stay. Of one name under which ranks left different things, the lowest rank's has
/// it, and each other one's has its rank behind. A machine that sends more than its job names is not heeded.
pub async fn fetch_outputs(
    store: &str,
    checkpoint_key: &str,
    env: &BTreeMap<String, String>,
    named: &[String],
    path: Option<&Path>,
    into: &Path,
) -> Result<Option<Vec<PathBuf>>, NotSent> {
    let parcels = open(store, &outputs_key(checkpoint_key), env)?;
    let newest = parcels.newest_parcels().await?;
    if newest.is_empty() {
        return Ok(None);
    }
    // Beside the files, so that they can be renamed into place.
    let draft = into.join(format!(".windfall-get-{}", std::process::id()));
    let taken = async {
        std::fs::create_dir_all(&draft).map_err(CheckpointError::local("cannot write into the folder", into))?;
        let named = lines_of(named);
        let is_at = |file: &Path| path.is_none_or(|path| file.starts_with(path) || path.starts_with(file));
        let wanted = |file: &Path| is_at(file) && (named.name(file, false) || named.name(file, true));
        let mut all = BTreeSet::new();
        for (rank, parcel) in newest {
            let (from, to) = (draft.join(rank.to_string()), into.to_owned());
            std::fs::create_dir_all(&from).map_err(CheckpointError::local("cannot make", &from))?;
            parcels.unpack(parcel, &from, None, &wanted).await?;
            let moved = tokio::task::spawn_blocking(move || move_over(&from, &to, rank, all)).await;
            all = moved.map_err(|error| CheckpointError::Task(error.to_string()))??;
        }
        Ok::<Vec<PathBuf>, CheckpointError>(all.into_iter().collect())
    };
    let taken = taken.await;
    let _ = remove_tree(&draft);
    Ok(Some(taken?))
}

pub(crate) fn open(store: &str, key: &str, env: &BTreeMap<String, String>) -> Result<Checkpoints, CheckpointError> {
    let env = env.iter().map(|(name, value)| (name.clone(), value.clone()));
    Checkpoints::open(store, key, Options::with_env(env))
}

/// Moves every file of one folder over another's, but for those that lower ranks left. Tells which are there now.
fn move_over(
    from: &Path,
    to: &Path,
    rank: u32,
    mut moved: BTreeSet<PathBuf>,
) -> Result<BTreeSet<PathBuf>, CheckpointError> {
    open_folders(from)?;
    // Folders of this rank that are called as a file of a lower one, and what they are called instead.
    let mut renamed: Vec<(PathBuf, PathBuf)> = Vec::new();
    let is_first = moved.is_empty();
    for path in crate::checkpoint::paths_in(from)? {
        let source = from.join(&path);
        let path = match renamed.iter().find_map(|(old, new)| Some(new.join(path.strip_prefix(old).ok()?))) {
            Some(below) => below,
            None if source.is_dir() && !source.is_symlink() && moved.contains(&path) => {
                let new = free_name(&path, rank, &moved);
                renamed.push((path, new.clone()));
                new
            }
            None => path,
        };
        let target = to.join(&path);
        let failed = CheckpointError::local("cannot write", &target);
        let folders = path.ancestors().skip(1).filter(|folder| !folder.as_os_str().is_empty());
        if let Some(link) = folders.map(|folder| to.join(folder)).find(|folder| folder.is_symlink()) {
            let out = std::io::Error::other(format!("{} is a link, which may lead anywhere", link.display()));
            return Err(failed(out));
        }
        if source.is_symlink() && !std::fs::read_link(&source).is_ok_and(|to| stays_below(&to)) {
            continue;
        }
        if source.is_dir() && !source.is_symlink() {
            if target.is_symlink() {
                return Err(failed(std::io::Error::other("it is a link, which may lead anywhere")));
            }
            std::fs::create_dir_all(&target).map_err(failed)?;
        } else {
            if moved.contains(&path) && is_same(&source, &target) {
                continue;
            }
            // A lower rank may have left a folder of this name.
            let is_taken = moved.contains(&path) || (!is_first && target.is_dir() && !target.is_symlink());
            let path = if is_taken { free_name(&path, rank, &moved) } else { path };
            let target = to.join(&path);
            std::fs::rename(&source, &target).map_err(CheckpointError::local("cannot write", &target))?;
            moved.insert(path);
        }
    }
    Ok(moved)
}

/// A name for what a rank left where a lower one left something else. Nobody has left anything under it.
fn free_name(path: &Path, rank: u32, moved: &BTreeSet<PathBuf>) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    loop {
        name.push(format!(".rank-{rank}"));
        if !moved.contains(Path::new(&name)) {
            return PathBuf::from(name);
        }
    }
}

/// Whether two files, or links, have the same in them.
fn is_same(one: &Path, other: &Path) -> bool {
    match (std::fs::read_link(one), std::fs::read_link(other)) {
        (Ok(one), Ok(other)) => return one == other,
        (Err(_), Err(_)) => {}
        _ => return false,
    }
    let hash = |path: &Path| {
        let mut hasher = blake3::Hasher::new();
        std::io::copy(&mut File::open(path)?, &mut hasher)?;
        std::io::Result::Ok(hasher.finalize())
    };
    hash(one).ok().zip(hash(other).ok()).is_some_and(|(one, other)| one == other)
}

/// Opens all folders below one to whoever runs this. A program may have closed one of them to itself: that one came empty,
/// and what is in the others is about to be moved out.
fn open_folders(folder: &Path) -> Result<(), CheckpointError> {
    let failed = || CheckpointError::local("cannot open", folder);
    std::fs::set_permissions(folder, PermissionsExt::from_mode(0o700)).map_err(failed())?;
    for entry in std::fs::read_dir(folder).map_err(failed())?.flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            open_folders(&entry.path())?;
        }
    }
    Ok(())
}

/// Whether a link leads to what is beside it or below.
fn stays_below(to: &Path) -> bool {
    to.components().all(|part| matches!(part, Component::Normal(_) | Component::CurDir))
}

/// What a job file names as outputs, as patterns.
fn lines_of(paths: &[String]) -> Patterns {
    let line = |path: &String| match path.trim_matches('/') {
        "" | "." => "/*".to_owned(),
        _ => format!("/{}", path.trim_start_matches('/')),
    };
    let lines: Vec<String> = paths.iter().map(line).collect();
    Patterns::read(&lines.join("\n"))
}

/// A path that is not brought back, and why.
pub(crate) type LeftOut = (PathBuf, &'static str);

/// What a job leaves, as its file names it: paths relative to its folder. What is named and cannot be had comes beside it.
pub(crate) fn outputs_in(folder: &Path, paths: &[String]) -> Result<(Snapshot, Vec<LeftOut>), CheckpointError> {
    let patterns = lines_of(paths);
    // Folders are looked into in any case: what is named may lie below.
    let mut snapshot =
        Snapshot::of_what_opens(folder, &mut |path, is_folder| !is_folder && !patterns.name(path, is_folder))?;
    snapshot.dirs.retain(|(path, _)| patterns.name(path, true));
    // One file that its own program has closed to everybody keeps the others from nobody.
    let (readable, closed) = snapshot.files.into_iter().partition(|file| File::open(folder.join(&file.path)).is_ok());
    snapshot.files = readable;
    snapshot.left_out.extend(Vec::<SnapFile>::into_iter(closed).map(|file| (file.path, "it cannot be read")));
    let left_out = snapshot.left_out.iter().filter(|(path, _)| patterns.name(path, true)).cloned().collect();
    Ok((snapshot, left_out))
}

fn snapshot(folder: &Path, but: &[PathBuf]) -> Result<Snapshot, CheckpointError> {
    let mut ignored = Ignored::of(folder)?;
    let mut unread = None;
    let snapshot = Snapshot::without(folder, &mut |path, is_folder| {
        let stays = path.file_name() == Some(".git".as_ref()) || but.iter().any(|stays| stays == path);
        stays
            || ignored.has(path, is_folder).unwrap_or_else(|error| {
                unread.get_or_insert(error);
                true
            })
    })?;
    unread.map_or(Ok(snapshot), Err)
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
    fn of(root: &Path) -> Result<Ignored, CheckpointError> {
        let name = if root.join(IGNORE).exists() { IGNORE } else { GIT_IGNORE };
        // The folder may lie deep in a repository: what is said above it counts as well.
        let top = (name == GIT_IGNORE).then(|| root.ancestors().find(|folder| folder.join(".git").exists())).flatten();
        let top = top.unwrap_or(root).to_owned();
        let below = root.strip_prefix(&top).unwrap_or(Path::new("")).to_owned();
        let mut ignored = Ignored { top, below: below.clone(), name, files: BTreeMap::new() };
        for folder in below.ancestors() {
            ignored.read(folder)?;
        }
        if name == GIT_IGNORE
            && let Some(exclude) = read_lines(&ignored.top.join(".git/info/exclude"))?
        {
            let own = ignored.files.remove(Path::new(""));
            // What the folder's own file says comes later, and counts more.
            ignored.files.insert(PathBuf::new(), exclude.then(own.unwrap_or_default()));
        }
        Ok(ignored)
    }

    fn read(&mut self, folder: &Path) -> Result<(), CheckpointError> {
        if let Some(lines) = read_lines(&self.top.join(folder).join(self.name))? {
            self.files.insert(folder.to_owned(), lines);
        }
        Ok(())
    }

    /// Whether a path is not sent. The file nearest to it decides.
    fn has(&mut self, path: &Path, is_folder: bool) -> Result<bool, CheckpointError> {
        let path = &self.below.join(path);
        let says = |folder: &Path| self.files.get(folder)?.say(path.strip_prefix(folder).ok()?, is_folder);
        let is_ignored = path.ancestors().skip(1).find_map(says).unwrap_or(false);
        if is_folder && !is_ignored {
            self.read(&path.clone())?;
        }
        Ok(is_ignored)
    }
}

/// The lines of an ignore file, whatever its letters are: one that cannot be read must not let secrets through.
fn read_lines(file: &Path) -> Result<Option<Patterns>, CheckpointError> {
    let bytes = match std::fs::read(file) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(CheckpointError::local("cannot read the ignore file", file)(error)),
    };
    let text = String::from_utf8_lossy(&bytes);
    Ok(Some(Patterns::read(text.strip_prefix('\u{feff}').unwrap_or(&text))))
}

#[cfg(test)]
mod tests;
