//! The folder that a program runs in: the user's own, or a fresh copy of it, as a new machine would have.

use std::io;
use std::path::{Path, PathBuf};

/// A copy larger than this is refused: the rehearsal says so, and that a checkpoint path inside it is the likely reason.
const COPY_LIMIT: u64 = 4 << 30;

/// Copies a folder, links as links. Version control and `skip` (the checkpoint directory) are left out.
pub fn copy_fresh(from: &Path, to: &Path, skip: &Path) -> io::Result<()> {
    let mut left = COPY_LIMIT;
    copy(from, to, skip, &mut left)
}

fn copy(from: &Path, to: &Path, skip: &Path, left: &mut u64) -> io::Result<()> {
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
        } else if kind.is_dir() {
            copy(&source, &target, skip, left)?;
        } else if kind.is_file() {
            let size = entry.metadata()?.len();
            *left = left.checked_sub(size).ok_or_else(|| io::Error::other("the folder is larger than 4 GiB"))?;
            std::fs::copy(&source, &target)?;
        }
    }
    Ok(())
}

/// What is under a checkpoint directory before a job's first stint: paths that are the user's own.
pub fn foreign_paths(dir: &Path) -> io::Result<Vec<PathBuf>> {
    match crate::checkpoint::paths_in(dir) {
        Ok(paths) => Ok(paths.into_iter().collect()),
        Err(error) => Err(io::Error::other(error)),
    }
}
