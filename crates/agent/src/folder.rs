//! The folder that a program runs in: the user's own, or a fresh copy of it, as a new machine would have.

use std::io;
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
    std::fs::create_dir_all(to)?;
    for entry in std::fs::read_dir(from)? {
        let entry = entry?;
        let (source, target) = (entry.path(), to.join(entry.file_name()));
        // The copy may lie inside what is copied: a job that runs in the temporary directory itself.
        if source == skip || entry.file_name() == ".git" || to.starts_with(&source) {
            continue;
        }
        let kind = entry.file_type()?;
        if kind.is_symlink() {
            std::os::unix::fs::symlink(std::fs::read_link(&source)?, &target)?;
        } else if kind.is_dir() && (skip.starts_with(&source) || fits(&source, &mut { LARGE })?) {
            copy_fresh(&source, &target, skip)?;
        } else if kind.is_file() && entry.metadata()?.len() <= LARGE.bytes {
            std::fs::copy(&source, &target)?;
        } else if kind.is_dir() || kind.is_file() {
            std::os::unix::fs::symlink(&source, &target)?;
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
    }
}
