//! A directory as the store. `object_store` has one, and it can fsync; this one is our own because ours
//! hashes and copies in one pass through one small buffer instead of handing 8 MiB bodies around, shares
//! blocks where the file system can (reflink), starts the disk while it still copies, and syncs a
//! directory once for a whole checkpoint instead of once for every blob. Measured by `bench_checkpoint`.

use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use rustix::fs::{Advice, CWD, RenameFlags};

use super::depot::{Depot, Fetched, Source, count};
use super::error::{CheckpointError, Culprit, Result, blocking};

/// What lies in a job's directory.
pub(super) const KINDS: [&str; 6] = ["blobs", "manifests", "claims", "probe", "shards", "gang"];
const BUFFER: usize = 1 << 20;
/// How much is copied before the disk is told to begin: small enough that the final sync finds little left.
const PUSH_EVERY: u64 = 16 << 20;

/// A draft that nobody has written to for this long has no writer any more.
const ABANDONED_AFTER: Duration = Duration::from_secs(6 * 3600);

#[derive(Debug)]
pub(crate) struct DirectoryDepot {
    base: PathBuf,
    /// Something was there: from then on a missing directory is a store that is away, not an empty one.
    seen: Arc<AtomicBool>,
}

impl DirectoryDepot {
    pub fn new(base: PathBuf, seen: bool) -> Self {
        Self { base, seen: Arc::new(AtomicBool::new(seen)) }
    }

    fn path(&self, key: &str) -> PathBuf {
        self.base.join(key)
    }

    /// Whether the job's directory is known to have been there.
    pub fn seen(&self) -> bool {
        self.seen.load(Ordering::Relaxed)
    }

    /// Begins an object whose bytes come one piece after the other.
    pub async fn receive(&self, key: &str) -> Result<Incoming> {
        let target = self.path(key);
        self.on_disk(move || Ok(Incoming { draft: Draft::beside(&target)?, target, hasher: blake3::Hasher::new() }))
            .await
    }

    /// An object to read piece by piece, and its length; none if it is not there.
    pub async fn open(&self, key: &str) -> Result<Option<(File, u64)>> {
        let path = self.path(key);
        self.on_disk(move || match File::open(&path).and_then(|file| Ok((file.metadata()?.len(), file))) {
            Ok((length, file)) => Ok(Some((file, length))),
            Err(e) if e.kind() == ErrorKind::NotFound => Ok(None),
            Err(e) => Err(failed("cannot read", &path)(e)),
        })
        .await
    }

    /// Does file work off the runtime's thread, unless the directory is gone: to make it anew would hide that
    /// the checkpoints in it are missing.
    async fn on_disk<T: Send + 'static>(&self, work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
        let (base, seen) = (self.base.clone(), Arc::clone(&self.seen));
        blocking(move || {
            if seen.load(Ordering::Relaxed) && !base.is_dir() {
                return Err(failed("cannot open", &base)(ErrorKind::NotFound.into()));
            }
            let done = work()?;
            if base.is_dir() {
                seen.store(true, Ordering::Relaxed);
            }
            Ok(done)
        })
        .await
    }
}

/// The directory of the job that a path in the store belongs to.
fn job_directory(path: &Path) -> &Path {
    let kind = |above: &&Path| above.file_name().is_some_and(|name| KINDS.iter().any(|kind| name == *kind));
    path.ancestors().find(kind).and_then(Path::parent).unwrap_or(path)
}

/// The words name the job's directory and not the file: they stay the same from one try to the next.
fn failed(what: &str, path: &Path) -> impl FnOnce(std::io::Error) -> CheckpointError + use<> {
    let (what, at) = (what.to_owned(), job_directory(path).display().to_string());
    move |source| {
        let (culprit, why, hint) = match source.kind() {
            ErrorKind::StorageFull | ErrorKind::QuotaExceeded => {
                (Culprit::Full, "no space is left", "free some space there, or keep fewer checkpoints")
            }
            ErrorKind::PermissionDenied => {
                (Culprit::Permission, "permission denied", "let the job's user write there, or name another directory")
            }
            ErrorKind::ReadOnlyFilesystem => {
                (Culprit::Permission, "it is mounted read-only", "mount it writable, or name another directory")
            }
            ErrorKind::NotFound | ErrorKind::NotADirectory => {
                (Culprit::Endpoint, "the directory is not there", "check that the file system is mounted")
            }
            ErrorKind::TimedOut
            | ErrorKind::StaleNetworkFileHandle
            | ErrorKind::NotConnected
            | ErrorKind::HostUnreachable
            | ErrorKind::NetworkUnreachable
            | ErrorKind::NetworkDown => {
                (Culprit::Endpoint, "the file system does not answer", "check that it is mounted and reachable")
            }
            // A disk or a mount that fails every access says so in no better way.
            _ if source.raw_os_error() == Some(rustix::io::Errno::IO.raw_os_error()) => {
                (Culprit::Endpoint, "the file system does not answer", "check that it is mounted and healthy")
            }
            _ => (Culprit::Disk, "the file system refused", "see the agent's log, and check the directory"),
        };
        let what = format!("the checkpoint store failed: {what}: {why}: {at}");
        CheckpointError::Store { what, culprit, hint: hint.into(), source: Box::new(source) }
    }
}

/// A file under a temporary name; removed again unless it is put in place.
struct Draft {
    path: PathBuf,
    file: File,
    length: u64,
    /// How much of it the disk was told to write.
    pushed: u64,
    placed: bool,
}

impl Draft {
    fn beside(target: &Path) -> Result<Self> {
        let name = target.file_name().unwrap_or_default().to_string_lossy();
        let path = target.with_file_name(format!(".{name}.{}", super::names::token()));
        let open = || OpenOptions::new().read(true).write(true).create_new(true).open(&path);
        let file = match open() {
            Err(e) if e.kind() == ErrorKind::NotFound => {
                let parent = target.parent().unwrap_or(target);
                make_directories(parent)?;
                open()
            }
            other => other,
        };
        let file = file.map_err(failed("cannot write", &path))?;
        Ok(Self { path, file, length: 0, pushed: 0, placed: false })
    }

    fn append(&mut self, bytes: &[u8]) -> Result<()> {
        self.file.write_all(bytes).map_err(failed("cannot write", &self.path))?;
        self.length += bytes.len() as u64;
        if self.length - self.pushed >= PUSH_EVERY {
            // Linux starts to write dirty pages out when told that they are not needed.
            let length = std::num::NonZeroU64::new(self.length - self.pushed);
            let _ = rustix::fs::fadvise(&self.file, self.pushed, length, Advice::DontNeed);
            self.pushed = self.length;
        }
        Ok(())
    }

    fn sync(&self) -> Result<()> {
        self.file.sync_all().map_err(failed("cannot sync", &self.path))
    }

    fn rename_to(mut self, target: &Path) -> Result<()> {
        fs::rename(&self.path, target).map_err(failed("cannot rename", target))?;
        self.placed = true;
        Ok(())
    }

    /// False if the target exists.
    fn create_as(mut self, target: &Path) -> Result<bool> {
        match rustix::fs::renameat_with(CWD, &self.path, CWD, target, RenameFlags::NOREPLACE) {
            Ok(()) => {
                self.placed = true;
                return Ok(true);
            }
            Err(rustix::io::Errno::EXIST) => return Ok(false),
            // NFS and some FUSE file systems know no NOREPLACE; a hard link is as exclusive.
            Err(_) => {}
        }
        match fs::hard_link(&self.path, target) {
            Ok(()) => Ok(true),
            Err(e) if e.kind() == ErrorKind::AlreadyExists => Ok(false),
            Err(e) => Err(failed("cannot create", target)(e)),
        }
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        if !self.placed {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// An object on its way in from another machine. Nothing of it is in the store until it is put in place.
pub(crate) struct Incoming {
    draft: Draft,
    target: PathBuf,
    hasher: blake3::Hasher,
}

impl Incoming {
    /// Writes the next piece. Blocks on the disk.
    pub fn append(&mut self, piece: &[u8]) -> Result<()> {
        self.hasher.update(piece);
        self.draft.append(piece)
    }

    /// Puts it in place, durable after `flush`; false, and nothing is there, if the bytes have another hash.
    pub fn place(self, hash: &str) -> Result<bool> {
        if self.hasher.finalize().to_hex().as_str() != hash {
            return Ok(false);
        }
        self.draft.sync()?;
        self.draft.rename_to(&self.target)?;
        Ok(true)
    }
}

/// New directories must be on disk before what is in them counts.
fn make_directories(path: &Path) -> Result<()> {
    let missing: Vec<&Path> = path.ancestors().take_while(|above| !above.exists()).collect();
    fs::create_dir_all(path).map_err(failed("cannot make a directory", path))?;
    for made in missing {
        sync_directory(made.parent().unwrap_or(made))?;
    }
    Ok(())
}

fn sync_directory(path: &Path) -> Result<()> {
    File::open(path).and_then(|dir| dir.sync_all()).map_err(failed("cannot sync", path))
}

fn copy(mut source: Source, draft: &mut Draft, sent: &AtomicU64) -> Result<String> {
    // A clone shares the blocks, so only the hash has to be computed. Not copy_file_range: where it cannot
    // share, it copies in the kernel and the hash would read everything a second time.
    let cloned = source.size() > 0 && !source.grows() && rustix::fs::ioctl_ficlone(&draft.file, source.file()).is_ok();
    let mut buffer = vec![0; BUFFER];
    while source.left() > 0 {
        let n = source.read(&mut buffer)?;
        count(sent, n);
        if !cloned {
            draft.append(&buffer[..n])?;
        }
    }
    source.finish()
}

#[async_trait]
impl Depot for DirectoryDepot {
    async fn create(&self, key: &str, body: Bytes) -> Result<bool> {
        let target = self.path(key);
        self.on_disk(move || {
            let mut draft = Draft::beside(&target)?;
            draft.file.write_all(&body).map_err(failed("cannot write", &target))?;
            draft.sync()?;
            let created = draft.create_as(&target)?;
            sync_directory(target.parent().unwrap_or(&target))?;
            Ok(created)
        })
        .await
    }

    async fn put(&self, key: &str, body: Bytes) -> Result<()> {
        let target = self.path(key);
        self.on_disk(move || {
            let mut draft = Draft::beside(&target)?;
            draft.file.write_all(&body).map_err(failed("cannot write", &target))?;
            draft.sync()?;
            draft.rename_to(&target)
        })
        .await
    }

    async fn send(&self, key: &str, source: Source, sent: &Arc<AtomicU64>) -> Result<String> {
        let target = self.path(key);
        let sent = Arc::clone(sent);
        self.on_disk(move || {
            let mut draft = Draft::beside(&target)?;
            let hash = copy(source, &mut draft, &sent)?;
            draft.sync()?;
            draft.rename_to(&target)?;
            Ok(hash)
        })
        .await
    }

    async fn flush(&self, prefix: &str) -> Result<()> {
        let path = self.path(prefix);
        self.on_disk(move || if path.exists() { sync_directory(&path) } else { Ok(()) }).await
    }

    async fn get(&self, key: &str) -> Result<Option<Bytes>> {
        let path = self.path(key);
        self.on_disk(move || match fs::read(&path) {
            Ok(body) => Ok(Some(body.into())),
            Err(e) if e.kind() == ErrorKind::NotFound => Ok(None),
            Err(e) => Err(failed("cannot read", &path)(e)),
        })
        .await
    }

    async fn fetch(&self, key: &str, offset: u64, size: u64, mut into: File) -> Result<Fetched> {
        let path = self.path(key);
        self.on_disk(move || {
            let mut blob = match File::open(&path) {
                Ok(blob) => blob,
                Err(e) if e.kind() == ErrorKind::NotFound => return Ok(Fetched::Missing),
                Err(e) => return Err(failed("cannot read", &path)(e)),
            };
            let whole = offset == 0 && blob.metadata().is_ok_and(|meta| meta.len() == size);
            let cloned = whole && rustix::fs::ioctl_ficlone(&into, &blob).is_ok();
            blob.seek(SeekFrom::Start(offset)).map_err(failed("cannot read", &path))?;
            let mut hasher = blake3::Hasher::new();
            let mut buffer = vec![0; BUFFER];
            let mut left = size;
            while left > 0 {
                let want = buffer.len().min(usize::try_from(left).unwrap_or(usize::MAX));
                let n = blob.read(&mut buffer[..want]).map_err(failed("cannot read", &path))?;
                if n == 0 {
                    return Ok(Fetched::Short);
                }
                hasher.update(&buffer[..n]);
                if !cloned {
                    into.write_all(&buffer[..n]).map_err(CheckpointError::not_restored)?;
                }
                left -= n as u64;
            }
            Ok(Fetched::Whole(hasher.finalize().to_hex().to_string()))
        })
        .await
    }

    async fn list(&self, prefix: &str) -> Result<Vec<String>> {
        let path = self.path(prefix);
        self.on_disk(move || {
            let entries = match fs::read_dir(&path) {
                Ok(entries) => entries,
                Err(e) if e.kind() == ErrorKind::NotFound => return Ok(vec![]),
                Err(e) => return Err(failed("cannot list", &path)(e)),
            };
            let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
            Ok(names.filter(|name| !name.starts_with('.')).collect())
        })
        .await
    }

    async fn delete(&self, keys: Vec<String>) -> Result<()> {
        let paths: Vec<_> = keys.iter().map(|key| self.path(key)).collect();
        let tried = keys.iter().any(|key| key.starts_with("probe/")).then(|| (self.path("probe"), self.base.clone()));
        self.on_disk(move || {
            for path in paths {
                match fs::remove_file(&path) {
                    Err(e) if e.kind() != ErrorKind::NotFound => return Err(failed("cannot delete", &path)(e)),
                    _ => {}
                }
            }
            // A job that was only tried leaves nothing; directories that hold something stay.
            if let Some((probe, base)) = tried {
                let _ = fs::remove_dir(probe).and_then(|()| fs::remove_dir(base));
            }
            Ok(())
        })
        .await
    }

    async fn sweep(&self) -> Result<()> {
        let dirs = KINDS.map(|dir| self.path(dir));
        self.on_disk(move || {
            for entry in dirs.iter().filter_map(|dir| fs::read_dir(dir).ok()).flatten().flatten() {
                let is_draft = entry.file_name().to_string_lossy().starts_with('.');
                let age = entry.metadata().and_then(|meta| meta.modified()).ok().and_then(|at| at.elapsed().ok());
                if is_draft && age.is_some_and(|age| age > ABANDONED_AFTER) {
                    let _ = fs::remove_file(entry.path());
                }
            }
            Ok(())
        })
        .await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::io::Errno;
    use windfall_core::TroubleKind;

    #[test]
    fn what_the_system_says_is_told_apart_by_its_type_and_has_the_same_words_each_time() {
        let cases = [
            (Errno::NOSPC, TroubleKind::StoreFull),
            (Errno::DQUOT, TroubleKind::StoreFull),
            (Errno::ACCESS, TroubleKind::StoreDenied),
            (Errno::ROFS, TroubleKind::StoreDenied),
            (Errno::NOENT, TroubleKind::StoreAway),
            (Errno::NOTDIR, TroubleKind::StoreAway),
            (Errno::STALE, TroubleKind::StoreAway),
            (Errno::IO, TroubleKind::StoreAway),
            (Errno::NAMETOOLONG, TroubleKind::NotSaved),
        ];
        for (errno, kind) in cases {
            let said = |blob: &str| {
                let path = Path::new("/store/job-1/blobs").join(blob);
                failed("cannot write", &path)(errno.into()).trouble()
            };
            assert_eq!(said("1-1-a-0").kind, kind, "{errno:?}");
            assert_eq!(said("1-1-a-0"), said(".1-2-b-0.draft"));
            assert!(said("x").text.contains("/store/job-1"), "{}", said("x").text);
        }
    }
}
