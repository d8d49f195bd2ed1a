//! Looks at the directory that a program saves in: when it saved, whether it wrote over its only copy, and
//! what was there at the end. It only reads; what counts as a checkpoint is the agent's business.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hasher};
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

/// Changes closer together than this belong to one save.
const ONE_SAVE: Duration = Duration::from_millis(150);
/// A file that is written to all the time, such as a database, is saved again and again.
const LONG_SAVE: Duration = Duration::from_secs(1);
/// A large file on its way grows by more than this between two looks.
const FAST: u64 = 64 << 10;
/// What is compared of a file's beginning and end to tell an append from a rewrite.
const PAGE: u64 = 4 << 10;
const MOST_FILES: usize = 5_000;

/// What lies in a directory: size and hash by path.
pub type Contents = BTreeMap<PathBuf, (u64, u64)>;

/// One save as seen from outside: from the first change of a burst to the last.
#[derive(Clone, Copy, Debug)]
pub struct Save {
    pub began: Instant,
    pub ended: Instant,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Seen {
    size: u64,
    inode: u64,
    born: Option<SystemTime>,
    modified: Option<SystemTime>,
    ends: u64,
}

/// Follows one stint's directory.
#[derive(Clone, Debug, Default)]
pub struct SaveWatch {
    root: PathBuf,
    files: BTreeMap<PathBuf, Seen>,
    bytes: u64,
    pub saves: Vec<Save>,
    /// Files whose finished content was written over, and how often.
    pub rewritten: BTreeMap<PathBuf, u32>,
    /// Files in whose place another one was put.
    replaced: BTreeSet<PathBuf>,
    /// Files that only grew.
    pub appended: BTreeMap<PathBuf, u32>,
    /// A file that was seen shorter than it had been: `model.json: 0 of 5,120 bytes`.
    pub torn: Option<String>,
}

impl SaveWatch {
    /// What is there already was restored, not saved.
    pub fn new(root: PathBuf) -> SaveWatch {
        let mut watch = SaveWatch { root, ..SaveWatch::default() };
        watch.look(Instant::now());
        watch.saves.clear();
        watch
    }

    /// One look; true when something changed since the last.
    pub fn look(&mut self, now: Instant) -> bool {
        let mut changed = false;
        for (path, meta) in files(&self.root) {
            let before = self.files.get(&path);
            let (size, inode, born, modified) = (meta.len(), meta.ino(), meta.created().ok(), meta.modified().ok());
            if before.is_some_and(|b| b.size == size && b.inode == inode && b.modified == modified && b.born == born) {
                continue;
            }
            // A lock is no save.
            changed |= size > 0 && !is_lock(&path);
            if let Some(before) = before.filter(|b| b.inode == inode && b.born == born && b.size > 0) {
                let shrunk = size < before.size;
                if shrunk || ends_hash(&self.root.join(&path), before.size) != Some(before.ends) {
                    *self.rewritten.entry(path.clone()).or_default() += 1;
                } else {
                    *self.appended.entry(path.clone()).or_default() += 1;
                }
                if shrunk {
                    self.torn = Some(format!("{}: {size} of {} bytes", path.display(), before.size));
                }
            }
            if before.is_some_and(|b| b.inode != inode || b.born != born) {
                self.replaced.insert(path.clone());
            }
            let ends = ends_hash(&self.root.join(&path), size).unwrap_or(0);
            self.files.insert(path, Seen { size, inode, born, modified, ends });
        }
        if changed {
            // A large file that grows for long is one save; many small changes are many.
            let grows = self.files.values().map(|seen| seen.size).sum::<u64>() > self.bytes + FAST;
            let one = |save: &&mut Save| now - save.ended < ONE_SAVE && (grows || now - save.began < LONG_SAVE);
            match self.saves.last_mut().filter(one) {
                Some(save) => save.ended = now,
                None => self.saves.push(Save { began: now, ended: now }),
            }
            self.bytes = self.files.values().map(|seen| seen.size).sum();
        }
        changed
    }

    /// How many files there are, locks aside.
    pub fn files(&self) -> usize {
        self.files.iter().filter(|(path, seen)| seen.size > 0 && !is_lock(path)).count()
    }

    /// Files that a kill in the middle of a save would destroy: written over in place, and no log.
    pub fn in_place(&self) -> Vec<&PathBuf> {
        // A log may be begun anew once; what is cut to nothing and filled again is a save, however slowly it is filled.
        let often =
            |path: &PathBuf, times: u32| times >= 2 || times > self.appended.get(path).copied().unwrap_or(0) / 4;
        self.rewritten.iter().filter(|(path, times)| often(path, **times)).map(|(path, _)| path).collect()
    }

    /// Whether most of what it saves is put in the place of a file that was there, and not written to afterwards. A copy under
    /// another name, which it was renamed from, may have been seen as well: then that is half of it.
    pub fn puts_in_place_of_others(&self) -> bool {
        let whole = |path: &&PathBuf| !self.appended.contains_key(*path) && !self.rewritten.contains_key(*path);
        let size = |path: &PathBuf| self.files.get(path).map_or(0, |seen| seen.size);
        self.replaced.iter().filter(whole).map(size).sum::<u64>() * 2 >= self.bytes
    }

    /// Files that only ever grew: logs, which say nothing about the state.
    pub fn logs(&self) -> Vec<PathBuf> {
        let grew = self.appended.iter().filter(|(path, times)| **times >= 2 && !self.rewritten.contains_key(*path));
        grew.map(|(path, _)| path.clone()).collect()
    }
}

/// A file that says who is at work, not how far the work is.
pub fn is_lock(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy().to_lowercase();
    name.ends_with(".lock") || name.ends_with(".pid") || name == "lock" || name == "pid" || name == "lockfile"
}

/// Every file with its hash; links by where they lead.
pub fn contents(root: &Path) -> Contents {
    let mut found = Contents::new();
    for (path, meta) in files(root) {
        let mut hasher = DefaultHasher::new();
        let Ok(mut file) = std::fs::File::open(root.join(&path)) else { continue };
        let mut buffer = vec![0; 1 << 20];
        while let Ok(read) = file.read(&mut buffer) {
            if read == 0 {
                break;
            }
            hasher.write(&buffer[..read]);
        }
        found.insert(path, (meta.len(), hasher.finish()));
    }
    found
}

/// Files that were written in a copy of a folder since a moment, but for those under `skip`.
pub fn changed_files(original: &Path, copy: &Path, skip: &Path, since: SystemTime) -> Vec<PathBuf> {
    let differs = |path: &PathBuf, meta: &std::fs::Metadata| {
        if meta.modified().is_ok_and(|at| at < since) {
            return false;
        }
        let before = std::fs::metadata(original.join(path));
        before.is_err() || before.is_ok_and(|before| before.len() != meta.len() || !same(original, copy, path))
    };
    let noise = |path: &Path| path.components().any(|part| part.as_os_str() == "__pycache__");
    let ours = |path: &Path| copy.join(path).starts_with(skip);
    let found = files(copy).into_iter().filter(|(path, meta)| !noise(path) && !ours(path) && differs(path, meta));
    found.map(|(path, _)| path).collect()
}

fn same(one: &Path, other: &Path, path: &Path) -> bool {
    match (std::fs::read(one.join(path)), std::fs::read(other.join(path))) {
        (Ok(one), Ok(other)) => one == other,
        _ => false,
    }
}

fn files(root: &Path) -> Vec<(PathBuf, std::fs::Metadata)> {
    let mut found = Vec::new();
    let mut open = vec![PathBuf::new()];
    while let Some(below) = open.pop() {
        let Ok(entries) = std::fs::read_dir(root.join(&below)) else { continue };
        for entry in entries.flatten() {
            let name = entry.file_name();
            let path = below.join(&name);
            let Ok(kind) = entry.file_type() else { continue };
            // What the agent unpacks there is not the program's.
            if name.to_string_lossy().starts_with(".windfall-") {
                continue;
            }
            if kind.is_dir() {
                open.push(path);
            } else if kind.is_file()
                && let Ok(meta) = entry.metadata()
            {
                found.push((path, meta));
            }
            if found.len() >= MOST_FILES {
                return found;
            }
        }
    }
    found
}

/// A hash of the first and the last page of a file's first `size` bytes.
fn ends_hash(path: &Path, size: u64) -> Option<u64> {
    let mut file = std::fs::File::open(path).ok()?;
    let mut hasher = DefaultHasher::new();
    for at in [0, size.saturating_sub(PAGE)] {
        let mut page = Vec::new();
        file.seek(SeekFrom::Start(at)).ok()?;
        Read::by_ref(&mut file).take(PAGE.min(size - at)).read_to_end(&mut page).ok()?;
        hasher.write(&page);
    }
    Some(hasher.finish())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn looked(first: &str, write: impl FnOnce(&Path)) -> SaveWatch {
        let dir = tempfile::tempdir().expect("a folder");
        let file = dir.path().join("state");
        std::fs::write(&file, first).expect("written");
        let mut watch = SaveWatch::new(dir.path().to_owned());
        std::thread::sleep(Duration::from_millis(20));
        write(&file);
        watch.look(Instant::now());
        watch
    }

    #[test]
    fn a_file_written_over_is_in_place_and_one_renamed_over_is_not() {
        let over = looked("step 1", |file| std::fs::write(file, "step 2").expect("written"));
        assert_eq!((over.in_place().len(), over.puts_in_place_of_others(), over.saves.len()), (1, false, 1));
        let renamed = looked("step 1", |file| {
            std::fs::write(file.with_extension("tmp"), "step 2").expect("written");
            std::fs::rename(file.with_extension("tmp"), file).expect("renamed");
        });
        assert_eq!((renamed.in_place().len(), renamed.puts_in_place_of_others(), renamed.saves.len()), (0, true, 1));
        let beside = looked("latest", |file| {
            std::fs::write(file.with_extension("tmp"), "newest").expect("written");
            std::fs::rename(file.with_extension("tmp"), file).expect("renamed");
            std::fs::write(file.with_extension("bin"), "a large file under its final name").expect("written");
        });
        assert!(!beside.puts_in_place_of_others(), "only the pointer is renamed");
    }

    #[test]
    fn a_log_that_grows_is_not_written_in_place_and_a_shorter_file_is_torn() {
        let grown = looked("a\n", |file| std::fs::write(file, "a\nb\n").expect("written"));
        assert_eq!((grown.in_place().len(), grown.appended.len()), (0, 1));
        let torn = looked("0123456789", |file| std::fs::write(file, "").expect("written"));
        assert_eq!(torn.torn.as_deref(), Some("state: 0 of 10 bytes"));
    }

    #[test]
    fn a_lock_is_no_save() {
        let dir = tempfile::tempdir().expect("a folder");
        let mut watch = SaveWatch::new(dir.path().to_owned());
        std::fs::write(dir.path().join("train.lock"), "4711").expect("written");
        assert!(!watch.look(Instant::now()));
    }
}
