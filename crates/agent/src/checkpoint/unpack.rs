//! The local half of a restore: files are written to a draft directory, and moved in when all are verified.
//! The draft lies inside the target, because a target that is a mount of its own has no sibling on the same
//! file system to rename from. Blocks on the disk.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File, Permissions};
use std::io::{ErrorKind, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use super::error::{CheckpointError, Result};
use super::manifest::{FileEntry, Manifest};
use super::names::token;
use super::tree::Stamp;

/// How a draft's name starts; one that a crash left behind is removed like anything else not in the checkpoint.
const DRAFT: &str = ".windfall-restore-";
/// Above this many files one sync of the file system is cheaper than one for each file.
const SYNC_EACH: usize = 64;

/// The draft of a restore. What is left of it goes with this: what is not moved in would only take room.
#[derive(Debug)]
pub(super) struct Draft(PathBuf);

impl Draft {
    pub fn below(into: &Path) -> Draft {
        Draft(into.join(format!("{DRAFT}{}", token())))
    }

    pub fn path(&self) -> &Path {
        &self.0
    }

    pub fn is_below(&self, into: &Path) -> bool {
        self.0.parent() == Some(into)
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn failed(path: &Path) -> impl FnOnce(std::io::Error) -> CheckpointError + use<> {
    CheckpointError::local("cannot restore", path)
}

/// The directories of a manifest, in a draft that holds nothing else but files of it that an earlier try fetched.
pub(super) fn lay_out(draft: &Path, manifest: &Manifest) -> Result<()> {
    fs::create_dir_all(draft).map_err(failed(draft))?;
    let files: Vec<PathBuf> = manifest.files.iter().map(|file| file.path.to_path()).collect();
    let above = files.iter().flat_map(|path| path.ancestors().skip(1)).map(Path::to_owned);
    let dirs: BTreeSet<PathBuf> = above.chain(manifest.dirs.iter().map(|dir| dir.path.to_path())).collect();
    let files: BTreeSet<&Path> = files.iter().map(PathBuf::as_path).collect();
    clear(draft, Path::new(""), draft, &AllowedPaths { files: &files, dirs: &dirs, foreign: &BTreeSet::new() })?;
    for dir in &dirs {
        fs::create_dir_all(draft.join(dir)).map_err(failed(dir))?;
    }
    Ok(())
}

/// Moves a local file into the draft when it is what is wanted; otherwise a file to fetch into, and how much of it an earlier try
/// has brought. None where all of it is there.
pub(super) fn take_local(here: &Path, target: &Path, wanted: &FileEntry) -> Result<Option<(File, u64)>> {
    match fs::symlink_metadata(target) {
        Ok(meta) if meta.len() < wanted.size => return part_of(target).map(Some).map_err(failed(target)),
        Ok(meta) if meta.len() == wanted.size && is_content(target, wanted) => return Ok(None),
        Ok(_) => fs::remove_file(target).map_err(failed(target))?,
        Err(_) => {}
    }
    let alike = fs::symlink_metadata(here)
        .is_ok_and(|meta| meta.is_file() && meta.len() == wanted.size && Stamp::of(&meta).mtime_ns == wanted.mtime_ns);
    if alike && is_content(here, wanted) && fs::rename(here, target).is_ok() {
        return Ok(None);
    }
    let open = fs::OpenOptions::new().read(true).write(true).create_new(true).open(target);
    open.map(|file| Some((file, 0))).map_err(failed(target))
}

/// A file that was brought in part, ready for what follows.
fn part_of(target: &Path) -> std::io::Result<(File, u64)> {
    let mut file = fs::OpenOptions::new().read(true).write(true).open(target)?;
    let have = file.seek(SeekFrom::End(0))?;
    Ok((file, have))
}

/// Whether a file of the draft is what is wanted; it is removed where it is not.
pub(super) fn keep_if_wanted(target: &Path, wanted: &FileEntry) -> Result<bool> {
    let is_wanted = is_content(target, wanted);
    if !is_wanted {
        fs::remove_file(target).map_err(failed(target))?;
    }
    Ok(is_wanted)
}

/// Whether a file holds what a checkpoint has of it.
fn is_content(path: &Path, wanted: &FileEntry) -> bool {
    hash_of(path).is_ok_and(|hash| hash == wanted.hash)
}

fn hash_of(path: &Path) -> std::io::Result<String> {
    let mut file = File::open(path)?;
    let mut hasher = blake3::Hasher::new();
    let mut buffer = vec![0; 1 << 20];
    loop {
        match file.read(&mut buffer)? {
            0 => return Ok(hasher.finalize().to_hex().to_string()),
            n => hasher.update(&buffer[..n]),
        };
    }
}

/// Writes the small files of one blob; the reason if one of them is damaged.
pub(super) fn write_pack(draft: &Path, files: &[FileEntry], body: &[u8]) -> Result<Option<String>> {
    for file in files {
        let path = file.path.to_path();
        let range = usize::try_from(file.offset).ok().zip(usize::try_from(file.offset.saturating_add(file.size)).ok());
        let Some(content) = range.and_then(|(from, to)| body.get(from..to)) else {
            return Ok(Some(format!("its blob is cut short: {}", path.display())));
        };
        if blake3::hash(content).to_hex().as_str() != file.hash {
            return Ok(Some(format!("damaged: {}", path.display())));
        }
        let target = draft.join(&path);
        // Of an earlier try.
        let _ = fs::remove_file(&target);
        File::create_new(&target).and_then(|mut out| out.write_all(content)).map_err(failed(&target))?;
    }
    Ok(None)
}

/// Puts a verified draft in place of what the target holds, and tells the stamps of the files there.
pub(super) fn move_in(
    into: &Path,
    draft: &Path,
    manifest: Option<&Manifest>,
    foreign: &BTreeSet<PathBuf>,
) -> Result<BTreeMap<PathBuf, Stamp>> {
    fs::create_dir_all(into).map_err(failed(into))?;
    let files: Vec<(PathBuf, &FileEntry)> =
        manifest.iter().flat_map(|m| &m.files).map(|file| (file.path.to_path(), file)).collect();
    let dirs: BTreeMap<PathBuf, u32> =
        manifest.iter().flat_map(|m| &m.dirs).map(|dir| (dir.path.to_path(), dir.mode)).collect();
    let mut made: BTreeSet<PathBuf> = dirs.keys().cloned().collect();
    for (path, _) in &files {
        made.extend(path.ancestors().skip(1).filter(|above| *above != Path::new("")).map(Path::to_owned));
    }
    finish_files(draft, &files)?;

    let wanted: BTreeSet<&Path> = files.iter().map(|(path, _)| path.as_path()).collect();
    clear(into, Path::new(""), draft, &AllowedPaths { files: &wanted, dirs: &made, foreign })?;
    for dir in &made {
        fs::create_dir_all(into.join(dir)).map_err(failed(dir))?;
    }
    for (path, _) in &files {
        fs::rename(draft.join(path), into.join(path)).map_err(failed(path))?;
    }
    for link in manifest.iter().flat_map(|m| &m.links) {
        let at = into.join(link.path.to_path());
        if let Some(parent) = at.parent() {
            fs::create_dir_all(parent).map_err(failed(parent))?;
        }
        std::os::unix::fs::symlink(link.to.to_path(), &at).map_err(failed(&at))?;
    }
    if draft.exists() {
        fs::remove_dir_all(draft).map_err(failed(draft))?;
    }
    // Deepest first: a directory may lose its write permission here.
    for dir in made.iter().rev() {
        let full = into.join(dir);
        if let Some(mode) = dirs.get(dir) {
            fs::set_permissions(&full, Permissions::from_mode(*mode)).map_err(failed(dir))?;
        }
        sync(&full)?;
    }
    sync(into)?;
    let stamp = |path: PathBuf| Some((path.clone(), Stamp::of(&fs::symlink_metadata(into.join(path)).ok()?)));
    Ok(files.into_iter().filter_map(|(path, _)| stamp(path)).collect())
}

/// Modes, times, and the bytes on disk.
fn finish_files(draft: &Path, files: &[(PathBuf, &FileEntry)]) -> Result<()> {
    for (path, entry) in files {
        let full = draft.join(path);
        let file = File::open(&full).map_err(failed(path))?;
        let since = Duration::from_nanos(u64::try_from(entry.mtime_ns).unwrap_or(0));
        file.set_modified(SystemTime::UNIX_EPOCH + since).map_err(failed(path))?;
        file.set_permissions(Permissions::from_mode(entry.mode)).map_err(failed(path))?;
        if files.len() <= SYNC_EACH {
            file.sync_all().map_err(failed(path))?;
        }
    }
    if files.len() > SYNC_EACH {
        let dir = File::open(draft).map_err(failed(draft))?;
        rustix::fs::syncfs(dir).map_err(|e| failed(draft)(e.into()))?;
    }
    Ok(())
}

fn sync(dir: &Path) -> Result<()> {
    match File::open(dir).and_then(|dir| dir.sync_all()) {
        // A directory that its owner may not read was just given that mode.
        Err(e) if e.kind() != ErrorKind::PermissionDenied => Err(failed(dir)(e)),
        _ => Ok(()),
    }
}

/// What may be in the directory after a restore.
struct AllowedPaths<'a> {
    files: &'a BTreeSet<&'a Path>,
    dirs: &'a BTreeSet<PathBuf>,
    foreign: &'a BTreeSet<PathBuf>,
}

/// Removes everything that is neither in the checkpoint nor was there before the job.
fn clear(into: &Path, below: &Path, draft: &Path, allowed: &AllowedPaths<'_>) -> Result<()> {
    let here = into.join(below);
    for entry in fs::read_dir(&here).map_err(failed(&here))? {
        let entry = entry.map_err(failed(&here))?;
        let (full, path) = (entry.path(), below.join(entry.file_name()));
        if full == draft {
            continue;
        }
        let is_dir = entry.file_type().map_err(failed(&full))?.is_dir();
        let wanted_file = allowed.files.contains(path.as_path());
        if is_dir && wanted_file {
            fs::remove_dir_all(&full).map_err(failed(&full))?;
        } else if is_dir {
            clear(into, &path, draft, allowed)?;
            if !allowed.dirs.contains(&path) && !allowed.foreign.contains(&path) {
                // Not empty means that something foreign is inside.
                let _ = fs::remove_dir(&full);
            }
        } else if allowed.dirs.contains(&path) || !(wanted_file || allowed.foreign.contains(&path)) {
            fs::remove_file(&full).map_err(failed(&full))?;
        }
    }
    Ok(())
}
