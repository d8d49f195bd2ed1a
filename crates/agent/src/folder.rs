//! The folder that a program runs in: the user's own, or a fresh copy of it, as a new machine would have.

use std::collections::BTreeSet;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// A directory larger than this, in bytes or in files, is linked instead of copied: data sets, virtual
/// environments and build outputs are only read.
const LARGE: Room = Room { bytes: 64 << 20, files: 5_000 };

#[derive(Clone, Copy)]
struct Room {
    bytes: u64,
    files: u64,
}

impl Room {
    /// Takes a file of that size out of the room; false when it does not fit any more.
    fn take(&mut self, size: u64) -> bool {
        let left = self.bytes.checked_sub(size).zip(self.files.checked_sub(1));
        (self.bytes, self.files) = left.unwrap_or((0, 0));
        left.is_some()
    }
}

/// Copies a folder, links as links, what is large as a link to it. Version control and `skip` (the
/// checkpoint directory) are left out.
pub fn copy_fresh(from: &Path, to: &Path, skip: &Path) -> io::Result<()> {
    Copying { from, to, skip, own: &BTreeSet::new() }.copy(Path::new(""))
}

/// The same, but that what is in `own` is copied however large it is: paths of the folder that its program may write to.
pub(crate) fn copy_with_own(from: &Path, to: &Path, skip: &Path, own: &BTreeSet<PathBuf>) -> io::Result<()> {
    Copying { from, to, skip, own }.copy(Path::new(""))
}

struct Copying<'a> {
    from: &'a Path,
    to: &'a Path,
    skip: &'a Path,
    own: &'a BTreeSet<PathBuf>,
}

impl Copying<'_> {
    fn copy(&self, below: &Path) -> io::Result<()> {
        let folder = self.from.join(below);
        std::fs::create_dir_all(self.to.join(below))?;
        for entry in std::fs::read_dir(&folder)? {
            let entry = entry?;
            let path = below.join(entry.file_name());
            let (source, target) = (entry.path(), self.to.join(&path));
            // The copy may lie inside what is copied: a job that runs in the temporary directory itself.
            if source == self.skip || entry.file_name() == ".git" || self.to.starts_with(&source) {
                continue;
            }
            let (kind, is_own) = (entry.file_type()?, self.own.contains(&path));
            if kind.is_symlink() {
                std::os::unix::fs::symlink(std::fs::read_link(&source)?, &target)?;
            } else if kind.is_dir() && (is_own || self.skip.starts_with(&source) || fits(&source, &mut { LARGE })?) {
                self.copy(&path)?;
            } else if kind.is_file() && (is_own || entry.metadata()?.len() <= LARGE.bytes) {
                copy_file(&source, &target)?;
            } else if kind.is_dir() || kind.is_file() {
                std::os::unix::fs::symlink(&source, &target)?;
            }
        }
        // Last: one that may not be written to is filled before.
        let mode = std::fs::metadata(&folder)?.permissions().mode() & 0o777;
        std::fs::set_permissions(self.to.join(below), PermissionsExt::from_mode(mode))
    }
}

/// A copy that is as old as what it was copied from: `make` must not think that all of it is new.
fn copy_file(source: &Path, target: &Path) -> io::Result<()> {
    std::fs::copy(source, target)?;
    let modified = std::fs::metadata(source)?.modified()?;
    // One that may not be written to keeps the time of its copy.
    let _ = std::fs::File::options().append(true).open(target).and_then(|file| file.set_modified(modified));
    Ok(())
}

/// Holds a lock for as long as what is given lives. Blocks.
pub(crate) fn lock(path: &Path) -> io::Result<std::fs::File> {
    let file = std::fs::File::options().create(true).append(true).open(path)?;
    rustix::fs::flock(&file, rustix::fs::FlockOperation::LockExclusive)?;
    Ok(file)
}

/// Removes a folder with all that is in it, also where its owner has closed parts of it to writing.
pub(crate) fn remove_tree(folder: &Path) -> io::Result<()> {
    match std::fs::remove_dir_all(folder) {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            open_up(folder)?;
            std::fs::remove_dir_all(folder)
        }
        done => done,
    }
}

fn open_up(folder: &Path) -> io::Result<()> {
    std::fs::set_permissions(folder, PermissionsExt::from_mode(0o700))?;
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            open_up(&entry.path())?;
        }
    }
    Ok(())
}

/// Whether a directory fits into the room; looks no further once it does not.
fn fits(dir: &Path, room: &mut Room) -> io::Result<bool> {
    for entry in std::fs::read_dir(dir)? {
        let entry = entry?;
        let kind = entry.file_type()?;
        if kind.is_dir() && !fits(&entry.path(), room)? || kind.is_file() && !room.take(entry.metadata()?.len()) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// What is under a checkpoint directory before a job's first stint: paths that are the user's own.
pub fn foreign_paths(dir: &Path) -> io::Result<Vec<PathBuf>> {
    match crate::checkpoint::paths_in(dir) {
        Ok(paths) => Ok(paths.into_iter().collect()),
        Err(error) => Err(io::Error::other(error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fresh_copy_links_what_is_large_and_leaves_the_checkpoints_out() {
        let dir = tempfile::tempdir().expect("a folder");
        let (from, to) = (dir.path().join("from"), dir.path().join("to"));
        std::fs::create_dir_all(from.join("data")).expect("made");
        std::fs::create_dir_all(from.join("src/ckpt")).expect("made");
        std::fs::write(from.join("src/train.py"), "print()").expect("written");
        std::fs::write(from.join("src/ckpt/model"), "old").expect("written");
        let big = std::fs::File::create(from.join("data/big")).expect("made");
        big.set_len(LARGE.bytes + 1).expect("grown");
        copy_fresh(&from, &to, &from.join("src/ckpt")).expect("copied");
        assert!(to.join("data").is_symlink() && to.join("data/big").exists());
        assert!(!to.join("src").is_symlink() && to.join("src/train.py").exists());
        assert!(!to.join("src/ckpt").exists());

        // What the program may write to is its own, whatever its size; what its setup made is shared.
        let own = ["data", "data/big"].map(PathBuf::from).into();
        std::fs::create_dir(from.join("venv")).expect("made");
        std::fs::File::create(from.join("venv/lib")).and_then(|lib| lib.set_len(LARGE.bytes + 1)).expect("grown");
        let long_ago = std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_000_000);
        let train = std::fs::File::options().append(true).open(from.join("src/train.py")).expect("opened");
        train.set_modified(long_ago).expect("set");
        let copy = dir.path().join("copy");
        copy_with_own(&from, &copy, &from.join("src/ckpt"), &own).expect("copied");
        assert!(!copy.join("data").is_symlink() && !copy.join("data/big").is_symlink());
        assert!(copy.join("venv").is_symlink());
        let age = std::fs::metadata(copy.join("src/train.py")).and_then(|meta| meta.modified());
        assert_eq!(age.expect("there"), long_ago);
    }
}
