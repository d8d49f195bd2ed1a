//! The manifest: what a checkpoint consists of. It is written last, created once and never changed, so
//! whoever can read one has a complete checkpoint before it, or damage that the hashes show.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Component, Path, PathBuf};

use serde::{Deserialize, Serialize};

/// The newest manifest format this code writes and reads.
pub const FORMAT: u32 = 1;

/// The name of a checkpoint; the highest wins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Ref {
    /// The stint that saved it.
    pub epoch: u64,
    /// Which of the stint's checkpoints; 0 is its fence.
    pub seq: u64,
}

impl Ref {
    /// The checkpoint `seq` of stint `epoch`.
    pub const fn new(epoch: u64, seq: u64) -> Self {
        Self { epoch, seq }
    }

    /// Padded so that a plain listing is in order; u64::MAX has 20 digits.
    pub(crate) fn file_name(self) -> String {
        format!("{:020}-{:020}.json", self.epoch, self.seq)
    }

    pub(crate) fn from_file_name(name: &str) -> Option<Self> {
        let (epoch, seq) = name.strip_suffix(".json")?.split_once('-')?;
        Some(Self { epoch: epoch.parse().ok()?, seq: seq.parse().ok()? })
    }
}

impl fmt::Display for Ref {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.epoch, self.seq)
    }
}

/// One stored file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct FileEntry {
    pub path: Name,
    pub size: u64,
    pub hash: String,
    pub mode: u32,
    /// Programs that resume from "the newest file" look at it, so it is brought back.
    pub mtime_ns: i128,
    /// The blob's name below `blobs/`; empty for an empty file.
    pub blob: String,
    /// Where in the blob it starts: small files share one.
    #[serde(default)]
    pub offset: u64,
    /// A hash of a few samples, to tell most changed files of equal size without reading them twice.
    #[serde(default)]
    pub sample: String,
    /// The program wrote to it without a pause, as to a log.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub stream: bool,
}

/// One stored directory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct DirEntry {
    pub path: Name,
    pub mode: u32,
}

/// One stored symbolic link, relative and inside the tree.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LinkEntry {
    pub path: Name,
    pub to: Name,
}

/// What one checkpoint consists of; on the store as JSON.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Manifest {
    pub format: u32,
    pub name: Ref,
    /// A random word of the writer: tells our own retried write from a rival's.
    pub writer: String,
    pub at_ms: u64,
    pub work: Option<u64>,
    /// The checkpoint whose content a fence repeats; never itself a copy.
    pub copy_of: Option<Ref>,
    /// The content that the stint restored. What an older stint saved after that is fenced off for good.
    pub began_from: Option<Ref>,
    /// A fence of a stint that started from nothing.
    #[serde(default)]
    pub fresh: bool,
    /// Contents that a program failed on, by this stint or an earlier one: not worth keeping.
    #[serde(default)]
    pub failed: Vec<String>,
    pub files: Vec<FileEntry>,
    pub dirs: Vec<DirEntry>,
    pub links: Vec<LinkEntry>,
    /// Of names under which ranks of a gang saved different things: what a rank has in place of what is in `files`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub own: BTreeMap<u32, Vec<FileEntry>>,
    /// The shards of other ranks that it was made of, by rank.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub shards: BTreeMap<u32, u64>,
}

impl Manifest {
    /// The identity of the content: a copy counts as what it copies.
    pub fn origin(&self) -> Ref {
        self.copy_of.unwrap_or(self.name)
    }

    /// Whether a later stint, which began from `base`, does not have this in its past.
    pub fn is_fenced_by(&self, epoch: u64, base: Option<Ref>) -> bool {
        epoch > self.name.epoch && base.is_none_or(|base| self.origin() > base)
    }

    /// A hash of all that a program could read in it: two checkpoints with the same one are the same.
    pub fn content(&self) -> String {
        let mut hasher = blake3::Hasher::new();
        let mut add = |kind: &str, path: &Name, what: &str| {
            for part in [kind, &path.0, what] {
                hasher.update(&(part.len() as u64).to_le_bytes());
                hasher.update(part.as_bytes());
            }
        };
        self.files.iter().for_each(|file| add("file", &file.path, &format!("{} {:o}", file.hash, file.mode)));
        self.dirs.iter().for_each(|dir| add("directory", &dir.path, &format!("{:o}", dir.mode)));
        self.links.iter().for_each(|link| add("link", &link.path, &link.to.0));
        for (rank, files) in &self.own {
            files
                .iter()
                .for_each(|file| add(&format!("rank {rank}"), &file.path, &format!("{} {:o}", file.hash, file.mode)));
        }
        hasher.finalize().to_hex().to_string()
    }

    /// The files of all ranks.
    pub fn all_files(&self) -> impl Iterator<Item = &FileEntry> {
        self.files.iter().chain(self.own.values().flatten())
    }

    pub fn bytes(&self) -> u64 {
        self.files.iter().map(|file| file.size).sum()
    }

    /// Refuses what would write outside the target: the store may be writable by others.
    pub fn check(&self) -> Result<(), String> {
        let links: BTreeSet<PathBuf> = self.links.iter().map(|link| link.path.to_path()).collect();
        let mut seen = BTreeSet::new();
        let paths = (self.files.iter().map(|f| &f.path))
            .chain(self.dirs.iter().map(|d| &d.path))
            .chain(self.links.iter().map(|l| &l.path));
        for name in paths {
            let path = name.to_path();
            if !is_inside(&path) {
                return Err(format!("refused: a path leaves the directory: {}", path.display()));
            }
            if path.ancestors().skip(1).any(|above| links.contains(above)) {
                return Err(format!("refused: a path goes through a link: {}", path.display()));
            }
            if !seen.insert(path) {
                return Err(format!("refused: a path is there twice: {}", name.to_path().display()));
            }
        }
        for link in &self.links {
            if !link_stays_inside(&link.path.to_path(), &link.to.to_path()) {
                return Err(format!("refused: a link leaves the directory: {}", link.path.to_path().display()));
            }
        }
        // A rank has its own in place of a file that is there; of no other path.
        let files: BTreeSet<&Name> = self.files.iter().map(|file| &file.path).collect();
        if let Some(stray) = self.own.values().flatten().find(|file| !files.contains(&file.path)) {
            return Err(format!("refused: a rank has what the gang has not: {}", stray.path.to_path().display()));
        }
        for file in self.all_files() {
            let plain = file.blob.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-');
            if !plain || (file.blob.is_empty() && file.size > 0) {
                return Err(format!("refused: not a blob's name: {}", file.blob));
            }
        }
        Ok(())
    }
}

/// A non-empty relative path of plain components.
pub(crate) fn is_inside(path: &Path) -> bool {
    path.components().next().is_some() && path.components().all(|part| matches!(part, Component::Normal(_)))
}

/// Whether a relative link at `at`, read without touching the disk, ends inside the tree.
pub(crate) fn link_stays_inside(at: &Path, to: &Path) -> bool {
    let mut depth = at.components().count().saturating_sub(1);
    for part in to.components() {
        match part {
            Component::Normal(_) => depth += 1,
            Component::CurDir => {}
            Component::ParentDir if depth > 0 => depth -= 1,
            _ => return false,
        }
    }
    to.components().next().is_some()
}

/// A path as text. Linux names are bytes and JSON is not, so what is not UTF-8, and `%`, is written `%xx`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct Name(String);

impl Name {
    pub fn of(path: &Path) -> Self {
        let mut text = String::new();
        for chunk in path.as_os_str().as_bytes().utf8_chunks() {
            text.push_str(&chunk.valid().replace('%', "%25"));
            for byte in chunk.invalid() {
                text.push_str(&format!("%{byte:02x}"));
            }
        }
        Self(text)
    }

    pub fn to_path(&self) -> PathBuf {
        let text = self.0.as_bytes();
        let mut bytes = Vec::with_capacity(text.len());
        let mut at = 0;
        while at < text.len() {
            let escaped = (text[at] == b'%')
                .then(|| self.0.get(at + 1..at + 3).and_then(|hex| u8::from_str_radix(hex, 16).ok()))
                .flatten();
            bytes.push(escaped.unwrap_or(text[at]));
            at += if escaped.is_some() { 3 } else { 1 };
        }
        PathBuf::from(std::ffi::OsString::from_vec(bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::OsStr;

    #[test]
    fn any_name_survives_the_way_through_text() {
        for bytes in [&b"plain"[..], b"100%.txt", "größe/模型".as_bytes(), b"\xff\xfe/%25", b"%"] {
            let path = Path::new(OsStr::from_bytes(bytes));
            assert_eq!(Name::of(path).to_path(), path);
        }
    }

    #[test]
    fn a_link_that_climbs_out_is_seen() {
        assert!(link_stays_inside(Path::new("a/b"), Path::new("../c")));
        assert!(!link_stays_inside(Path::new("a/b"), Path::new("../../c")));
        assert!(!link_stays_inside(Path::new("a"), Path::new("/etc")));
    }

    #[test]
    fn names_sort_as_numbers() {
        assert!(Ref::new(2, 0).file_name() < Ref::new(10, 0).file_name());
        assert_eq!(Ref::from_file_name(&Ref::new(7, 9).file_name()), Some(Ref::new(7, 9)));
    }

    #[test]
    fn what_a_program_can_read_is_what_a_checkpoint_is() {
        let manifest = |path: &str, hash: &str, mode: u32| Manifest {
            format: FORMAT,
            name: Ref::new(1, 1),
            writer: String::new(),
            at_ms: 0,
            work: None,
            copy_of: None,
            began_from: None,
            fresh: false,
            failed: Vec::new(),
            files: vec![FileEntry {
                path: Name::of(Path::new(path)),
                size: 1,
                hash: hash.to_owned(),
                mode,
                mtime_ns: 0,
                blob: String::new(),
                offset: 0,
                sample: String::new(),
                stream: false,
            }],
            dirs: vec![DirEntry { path: Name::of(Path::new("d")), mode: 0o755 }],
            links: vec![LinkEntry { path: Name::of(Path::new("l")), to: Name::of(Path::new("t")) }],
            own: BTreeMap::new(),
            shards: BTreeMap::new(),
        };
        let usual = manifest("a", "1", 0o644);
        let later = Manifest { name: Ref::new(9, 9), at_ms: 5, work: Some(3), ..usual.clone() };
        assert_eq!(usual.content(), later.content());
        let mut others =
            vec![manifest("b", "1", 0o644), manifest("a", "2", 0o644), manifest("a", "1", 0o600), usual.clone()];
        others.push(Manifest { dirs: Vec::new(), ..usual.clone() });
        others.push(Manifest { links: Vec::new(), ..usual.clone() });
        let contents: BTreeSet<String> = others.iter().map(Manifest::content).collect();
        assert_eq!(contents.len(), others.len());
    }
}
