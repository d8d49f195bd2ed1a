//! A copy of the tree below `target/`, in which changes are built. Files that are as they should be are not written, so
//! that only what changed is built again.

use super::list::Mutant;
use crate::workspace::root;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The copy, and the files that it consists of.
pub struct Scratch {
    tree: PathBuf,
    build: PathBuf,
    /// Paths of the user's tree, tracked or new.
    files: Vec<String>,
}

impl Scratch {
    pub fn new() -> Result<Scratch, String> {
        let listed = Command::new("git")
            .args(["ls-files", "--cached", "--others", "--exclude-standard"])
            .current_dir(root())
            .output()
            .map_err(|error| format!("git cannot be run: {error}"))?;
        let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
        // A file that was deleted but not committed yet is still listed.
        let mut files: Vec<String> =
            listed.lines().filter(|file| root().join(file).is_file()).map(str::to_owned).collect();
        files.sort();
        files.dedup();
        let folder = root().join("target/mutants");
        Ok(Scratch { tree: folder.join("tree"), build: folder.join("build"), files })
    }

    pub fn tree(&self) -> &Path {
        &self.tree
    }

    pub fn build(&self) -> &Path {
        &self.build
    }

    /// Files of the user's tree that are below one of these.
    pub fn files_below<'a>(&'a self, prefixes: &'a [String]) -> impl Iterator<Item = &'a str> {
        self.files.iter().map(String::as_str).filter(|file| prefixes.iter().any(|prefix| file.starts_with(prefix)))
    }

    /// Makes the copy equal to the user's tree, but for one change.
    pub fn put(&self, mutant: Option<&Mutant>) -> Result<(), String> {
        for file in &self.files {
            let mut wanted = read(&root().join(file))?;
            if let Some(mutant) = mutant.filter(|mutant| mutant.file == *file) {
                wanted = mutant.apply(&String::from_utf8_lossy(&wanted))?.into_bytes();
            }
            let to = self.tree.join(file);
            if std::fs::read(&to).is_ok_and(|there| there == wanted) {
                continue;
            }
            let folder = to.parent().unwrap_or(&self.tree);
            std::fs::create_dir_all(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
            std::fs::write(&to, wanted).map_err(|error| format!("{}: {error}", to.display()))?;
        }
        self.remove_strangers()
    }

    /// Files that a failed test left, or that are no longer in the tree, must not change what the next one does.
    fn remove_strangers(&self) -> Result<(), String> {
        let known: BTreeSet<PathBuf> = self.files.iter().map(|file| self.tree.join(file)).collect();
        let mut folders = vec![self.tree.clone()];
        while let Some(folder) = folders.pop() {
            let entries = std::fs::read_dir(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
            for entry in entries.filter_map(Result::ok) {
                let path = entry.path();
                if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                    folders.push(path);
                } else if !known.contains(&path) {
                    std::fs::remove_file(&path).map_err(|error| format!("{}: {error}", path.display()))?;
                }
            }
        }
        Ok(())
    }
}

pub fn read(file: &Path) -> Result<Vec<u8>, String> {
    std::fs::read(file).map_err(|error| format!("{}: {error}", file.display()))
}
