//! A snapshot: the files of a directory as they stood at one moment, by their stamps. Nothing is read
//! but names and metadata; `save` compares the stamps again when it reads the content.

use std::collections::BTreeSet;
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};

use super::error::{CheckpointError, Result};
use super::manifest::link_stays_inside;

/// What changes when a file's content does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stamp {
    pub size: u64,
    pub mtime_ns: i128,
    pub ctime_ns: i128,
    pub inode: u64,
}

impl Stamp {
    pub fn of(meta: &Metadata) -> Self {
        let nanos = |seconds: i64, rest: i64| i128::from(seconds) * 1_000_000_000 + i128::from(rest);
        Self {
            size: meta.size(),
            mtime_ns: nanos(meta.mtime(), meta.mtime_nsec()),
            ctime_ns: nanos(meta.ctime(), meta.ctime_nsec()),
            inode: meta.ino(),
        }
    }

    /// The same content of the same inode. A file replaced by a rename while it is held open only has
    /// another change time (its link count fell), and what we hold is still whole.
    pub fn same_content(&self, later: &Self) -> bool {
        (self.size, self.mtime_ns, self.inode) == (later.size, later.mtime_ns, later.inode)
    }
}

/// Why a file is in a snapshot with less than its present content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Standing {
    /// Saved as it is.
    Present,
    /// Never pauses: the version saved last is kept, if there is one.
    Stream,
    /// Never pauses and only grows, as logs do: what is there now is saved, whatever comes after it.
    Growing,
    /// Was there before the job and was never touched: saved only if an earlier checkpoint has it.
    Foreign,
}

#[derive(Debug, Clone)]
pub(crate) struct SnapFile {
    pub path: PathBuf,
    pub stamp: Stamp,
    pub mode: u32,
    pub standing: Standing,
}

impl SnapFile {
    pub fn grows(&self) -> bool {
        self.standing == Standing::Growing
    }
}

/// A directory tree at one moment.
#[derive(Debug, Clone)]
pub struct Snapshot {
    pub(crate) root: PathBuf,
    pub(crate) files: Vec<SnapFile>,
    /// Files that only grow, beside what the program saves.
    pub(crate) logs: BTreeSet<PathBuf>,
    pub(crate) dirs: Vec<(PathBuf, u32)>,
    pub(crate) links: Vec<(PathBuf, PathBuf)>,
    pub(crate) left_out: Vec<(PathBuf, &'static str)>,
    /// Links to files outside, in whose place the files are.
    pub(crate) followed: Vec<PathBuf>,
}

impl Snapshot {
    /// The tree as it is now. Blocks on the disk.
    pub fn of(root: &Path) -> Result<Self> {
        Self::without(root, &mut |_, _| false)
    }

    /// The tree as it is now, but for what is to be skipped: paths relative to its root, and whether each is a folder. A
    /// folder is asked about before what is in it; of one that is skipped nothing is looked at. Blocks on the disk.
    pub fn without(root: &Path, skip: &mut dyn FnMut(&Path, bool) -> bool) -> Result<Self> {
        Self::look(root, skip, true)
    }

    /// The same, but that a folder which may not be looked into is left out.
    pub fn of_what_opens(root: &Path, skip: &mut dyn FnMut(&Path, bool) -> bool) -> Result<Self> {
        Self::look(root, skip, false)
    }

    fn look(root: &Path, skip: &mut dyn FnMut(&Path, bool) -> bool, all: bool) -> Result<Self> {
        let root = std::fs::canonicalize(root).map_err(CheckpointError::local("cannot open the folder", root))?;
        let mut snapshot = Self {
            root,
            files: vec![],
            logs: BTreeSet::new(),
            dirs: vec![],
            links: vec![],
            left_out: vec![],
            followed: vec![],
        };
        snapshot.walk(Path::new(""), skip, all)?;
        Ok(snapshot)
    }

    /// When its newest file was last written, in milliseconds since 1970. A log goes on after a save, so it tells
    /// something only where there is nothing else.
    pub fn newest_mtime_ms(&self) -> u64 {
        let newest = |counts: &dyn Fn(&SnapFile) -> bool| {
            self.files.iter().filter(|file| counts(file)).map(|file| file.stamp.mtime_ns).max()
        };
        let saved = newest(&|file| file.standing == Standing::Present && !self.logs.contains(&file.path));
        let newest = saved.or_else(|| newest(&|file| file.standing == Standing::Growing)).unwrap_or(0);
        u64::try_from(newest / 1_000_000).unwrap_or(0)
    }

    /// The files that never pause.
    pub(crate) fn streams(&self) -> BTreeSet<&Path> {
        let streams = self.files.iter().filter(|file| matches!(file.standing, Standing::Stream | Standing::Growing));
        streams.map(|file| file.path.as_path()).collect()
    }

    /// The bytes of its files.
    pub fn bytes(&self) -> u64 {
        self.files.iter().map(|file| file.stamp.size).sum()
    }

    /// How many files it has.
    pub fn files(&self) -> usize {
        self.files.len()
    }

    /// What cannot be saved, and why: sockets, links to directories elsewhere.
    pub fn left_out(&self) -> &[(PathBuf, &'static str)] {
        &self.left_out
    }

    fn walk(&mut self, below: &Path, skip: &mut dyn FnMut(&Path, bool) -> bool, all: bool) -> Result<()> {
        let dir = self.root.join(below);
        let entries = match std::fs::read_dir(&dir) {
            Ok(entries) => entries,
            // Rotation deletes old checkpoints while we look.
            Err(e) if e.kind() == std::io::ErrorKind::NotFound && below != Path::new("") => return Ok(()),
            Err(e) if e.kind() == std::io::ErrorKind::PermissionDenied && !all => {
                self.left_out.push((below.to_owned(), "it cannot be read"));
                return Ok(());
            }
            Err(e) => return Err(CheckpointError::local("cannot list", &dir)(e)),
        };
        let mut names: Vec<_> = entries.filter_map(|entry| Some(entry.ok()?.file_name())).collect();
        names.sort();
        for name in names {
            let path = below.join(&name);
            let full = self.root.join(&path);
            let meta = match std::fs::symlink_metadata(&full) {
                Ok(meta) => meta,
                Err(e) if e.kind() == std::io::ErrorKind::NotFound => continue,
                Err(e) => return Err(CheckpointError::local("cannot look at", &full)(e)),
            };
            let kind = meta.file_type();
            if skip(&path, kind.is_dir()) {
                continue;
            }
            if kind.is_dir() {
                self.dirs.push((path.clone(), meta.mode() & 0o7777));
                self.walk(&path, skip, all)?;
            } else if kind.is_file() {
                self.add_file(path, &meta);
            } else if kind.is_symlink() {
                self.add_link(path, &full);
            } else {
                self.left_out.push((path, "neither file, directory nor link"));
            }
        }
        Ok(())
    }

    fn add_file(&mut self, path: PathBuf, meta: &Metadata) {
        self.files.push(SnapFile {
            path,
            stamp: Stamp::of(meta),
            mode: meta.mode() & 0o7777,
            standing: Standing::Present,
        });
    }

    /// A link inside the tree stays a link, so that nothing is stored twice; one that leaves it would
    /// dangle on the next machine, so the file itself is taken.
    fn add_link(&mut self, path: PathBuf, full: &Path) {
        let Ok(to) = std::fs::read_link(full) else { return };
        if to.is_relative() && link_stays_inside(&path, &to) {
            self.links.push((path, to));
        } else if let Some(inside) = to.strip_prefix(&self.root).ok().filter(|to| super::manifest::is_inside(to)) {
            let up: PathBuf = path.components().skip(1).map(|_| Component::ParentDir).collect();
            let to = up.join(inside);
            self.links.push((path, to));
        } else {
            match std::fs::metadata(full) {
                Ok(meta) if meta.is_file() => {
                    self.followed.push(path.clone());
                    self.add_file(path, &meta);
                }
                // Following it could take a whole data set along.
                Ok(_) => self.left_out.push((path, "a link to a directory outside")),
                Err(_) => self.left_out.push((path, "a link to nothing outside")),
            }
        }
    }
}

/// Every path below a directory, relative to it: what is foreign to a job when taken before its first stint.
pub fn paths_in(dir: &Path) -> Result<BTreeSet<PathBuf>> {
    let snapshot = Snapshot::of(dir)?;
    let files = snapshot.files.into_iter().map(|file| file.path);
    let dirs = snapshot.dirs.into_iter().map(|(path, _)| path);
    let links = snapshot.links.into_iter().map(|(path, _)| path);
    Ok(files.chain(dirs).chain(links).chain(snapshot.left_out.into_iter().map(|(path, _)| path)).collect())
}
