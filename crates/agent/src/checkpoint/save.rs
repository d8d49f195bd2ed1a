//! Saving: sends what the store does not have yet, then creates the manifest. One pass over each file.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use futures::{StreamExt, TryStreamExt, stream};

use super::depot::{Depot, Source};
use super::error::{CheckpointError, Result, blocking};
use super::manifest::{FileEntry, Manifest, Name, Ref};
use super::names::{blob_key, token};
use super::tree::{SnapFile, Snapshot, Stamp, Standing};
use super::{Alike, Checkpoints, Stint};

/// Smaller files share blobs: ten thousand of them would be as many requests, or as many disk syncs.
pub(super) const SMALL: u64 = 256 << 10;
/// With four in flight beside the parts' budget this stays within 64 MB.
const PACK: u64 = 4 << 20;
/// From here on, samples are compared before a whole file is hashed to see whether it changed.
const SAMPLED: u64 = 1 << 20;
/// Files held open from the start, so that one replaced or rotated away during the upload is still ours.
/// Well below the usual limit of 1,024 descriptors.
const HELD: usize = 256;

/// What a save did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Saved {
    pub name: Ref,
    pub bytes_sent: u64,
    /// Bytes that were there already.
    pub bytes_reused: u64,
    pub files: usize,
    pub elapsed: Duration,
    /// The store had exactly this content as the newest already: nothing was added, and that one is named.
    pub repeated: bool,
    /// A digest of all that a program can see of it.
    pub content: String,
}

/// A file to send, open already if it is one of the largest.
struct Item {
    file: SnapFile,
    held: Option<File>,
    /// Stored files of the same size: perhaps the same content.
    alike: Arc<Alike>,
}

enum Part {
    Large(Item),
    Pack(Vec<Item>),
}

type Stored = (PathBuf, Option<Stamp>, FileEntry);

/// Files that are on the store, and on no checkpoint yet.
pub(super) struct Uploaded {
    pub writer: String,
    pub stored: Vec<Stored>,
    bytes_sent: u64,
    bytes_reused: u64,
}

impl Uploaded {
    /// What came of it once it counts.
    pub fn saved(&self, name: Ref, elapsed: Duration, content: String) -> Saved {
        let (bytes_sent, bytes_reused) = (self.bytes_sent, self.bytes_reused);
        Saved { name, bytes_sent, bytes_reused, files: self.stored.len(), elapsed, repeated: false, content }
    }
}

impl Checkpoints {
    /// Saves a snapshot as checkpoint (epoch, seq). The stint must have begun. `Changed` means that a file
    /// was written meanwhile: nothing counts, take a new snapshot when it is quiet.
    pub async fn save(&self, epoch: u64, seq: u64, snapshot: &Snapshot, work: Option<u64>) -> Result<Saved> {
        let _one = self.writing.lock().await;
        let stint = self.stint(epoch).await?;
        // Only a courtesy: the fence holds without it, but a stale stint need not send gigabytes.
        if let Some(by) = self.successor(epoch).await? {
            return Err(CheckpointError::Fenced { epoch, by });
        }
        self.save_as(stint, Ref::new(epoch, seq), snapshot, work).await
    }

    /// Saves a snapshot under a name. What is known to be stored is not sent.
    pub(super) async fn save_as(
        &self,
        stint: Stint,
        name: Ref,
        snapshot: &Snapshot,
        work: Option<u64>,
    ) -> Result<Saved> {
        let began = Instant::now();
        let uploaded = self.upload(name, &token(), snapshot).await?;
        let manifest = self.manifest_of(stint, name, &uploaded, snapshot, work);
        self.conclude(manifest, uploaded, began).await
    }

    /// Makes a checkpoint of what was uploaded, by its manifest.
    pub(super) async fn conclude(&self, manifest: Manifest, uploaded: Uploaded, began: Instant) -> Result<Saved> {
        let name = manifest.name;
        // What a stint only repeats is no new checkpoint: a copy of a bad one must not look newer than a good one.
        let content = manifest.content();
        let same = self.known().content.as_ref().filter(|(_, known)| *known == content).map(|(name, _)| *name);
        if same.is_none() {
            self.create_manifest(&manifest).await?;
        }
        let mut saved = uploaded.saved(same.unwrap_or(name), began.elapsed(), content.clone());
        saved.repeated = same.is_some();
        let mut known = self.known();
        known.replace(uploaded.stored);
        if same.is_none() {
            known.content = Some((name, content));
        }
        drop(known);
        Ok(saved)
    }

    /// Sends what of a snapshot is not known to be stored.
    pub(super) async fn upload(&self, name: Ref, writer: &str, snapshot: &Snapshot) -> Result<Uploaded> {
        let Ref { epoch, seq } = name;
        let (mut stored, items) = self.sort_out(snapshot);
        let mut bytes_reused: u64 = stored.iter().map(|(_, _, entry)| entry.size).sum();
        let root = snapshot.root.clone();
        let parts = blocking(move || divide(&root, items)).await?;

        let before: Arc<AtomicU64> = Arc::default();
        let sending = stream::iter(parts.into_iter().enumerate()).map(|(n, part)| {
            let blob = format!("{epoch}-{seq}-{writer}-{n}");
            send(self.depot.as_ref(), &snapshot.root, blob, part, &self.sent)
        });
        let mut done = sending.buffer_unordered(self.files_at_once);
        while let Some((entries, sent)) = done.try_next().await? {
            before.fetch_add(sent, Ordering::Relaxed);
            bytes_reused += entries.iter().map(|(_, _, entry)| entry.size).sum::<u64>() - sent;
            // Known at once, not only when all is saved: a save that fails near its end is not sent again.
            self.known().learn(&entries);
            stored.extend(entries);
        }
        drop(done);
        self.depot.flush("blobs").await?;

        stored.sort_by(|a, b| a.0.cmp(&b.0));
        let streams = snapshot.streams();
        stored.iter_mut().for_each(|(path, _, entry)| entry.stream = streams.contains(path.as_path()));
        let bytes_sent = before.load(Ordering::Relaxed);
        Ok(Uploaded { writer: writer.to_owned(), stored, bytes_sent, bytes_reused })
    }

    /// Goes on with a stint that another process has begun: the number of its last checkpoint.
    pub async fn rejoin(&self, epoch: u64) -> Result<u64> {
        self.stint(epoch).await?;
        let last = self.names().await?.into_iter().rfind(|name| name.epoch == epoch);
        Ok(last.map_or(0, |last| last.seq))
    }

    /// What the stint began from. After a restart of the agent its fence tells.
    pub(super) async fn stint(&self, epoch: u64) -> Result<Stint> {
        if let Some(stint) = self.known().stint.filter(|stint| stint.epoch == epoch) {
            return Ok(stint);
        }
        let newest = self.names().await?.into_iter().rfind(|name| name.epoch == epoch);
        let Some(Ok(manifest)) = (match newest {
            Some(name) => self.read_manifest(name).await?,
            None => None,
        }) else {
            return Err(CheckpointError::NotBegun { epoch });
        };
        let stint = Stint { epoch, began_from: manifest.began_from };
        let mut known = self.known();
        known.stint = Some(stint);
        known.content = Some((manifest.name, manifest.content()));
        known.failed.clone_from(&manifest.failed);
        known.replace(manifest.files.into_iter().map(|entry| (entry.path.to_path(), None, entry)));
        Ok(stint)
    }

    /// Tells what is stored already, by its stamp, from what has to be looked at.
    fn sort_out(&self, snapshot: &Snapshot) -> (Vec<Stored>, Vec<Item>) {
        let known = self.known();
        let (mut stored, mut items) = (Vec::new(), Vec::new());
        for file in &snapshot.files {
            let before = known.files.get(&file.path);
            match (file.standing, before) {
                (Standing::Stream, Some((stamp, entry))) => stored.push((file.path.clone(), *stamp, entry.clone())),
                (Standing::Stream | Standing::Foreign, None) => {}
                (_, Some((Some(stamp), entry))) if *stamp == file.stamp => {
                    let entry = FileEntry { mode: file.mode, ..entry.clone() };
                    stored.push((file.path.clone(), Some(file.stamp), entry));
                }
                _ => {
                    let alike = known.by_size.get(&file.stamp.size).cloned().unwrap_or_default();
                    items.push(Item { file: file.clone(), held: None, alike });
                }
            }
        }
        (stored, items)
    }
}

/// Opens the largest files and groups the small ones. The large ones go first: the last file to finish
/// should not be the longest.
fn divide(root: &Path, mut items: Vec<Item>) -> Result<Vec<Part>> {
    items.sort_by(|a, b| b.file.stamp.size.cmp(&a.file.stamp.size).then_with(|| a.file.path.cmp(&b.file.path)));
    for item in items.iter_mut().take(HELD) {
        item.held = Some(open(root, &item.file.path)?);
    }
    let mut parts = Vec::new();
    let (mut pack, mut bytes) = (Vec::new(), 0);
    for item in items {
        if item.file.stamp.size >= SMALL {
            parts.push(Part::Large(item));
            continue;
        }
        if bytes + item.file.stamp.size > PACK || pack.len() >= 4096 {
            parts.push(Part::Pack(std::mem::take(&mut pack)));
            bytes = 0;
        }
        bytes += item.file.stamp.size;
        pack.push(item);
    }
    if !pack.is_empty() {
        parts.push(Part::Pack(pack));
    }
    Ok(parts)
}

fn open(root: &Path, path: &Path) -> Result<File> {
    File::open(root.join(path)).map_err(|source| match source.kind() {
        std::io::ErrorKind::NotFound => CheckpointError::Changed { path: path.to_owned() },
        _ => CheckpointError::Local { what: "cannot open", path: path.to_owned(), source },
    })
}

/// Stores a part; returns its entries and how many bytes were sent for them.
async fn send(
    depot: &dyn Depot,
    root: &Path,
    blob: String,
    part: Part,
    sent: &Arc<AtomicU64>,
) -> Result<(Vec<Stored>, u64)> {
    match part {
        Part::Large(item) => send_large(depot, root, blob, item, sent).await,
        Part::Pack(items) => {
            let (root, name) = (root.to_owned(), blob.clone());
            let (entries, body) = blocking(move || fill_pack(&root, &name, items)).await?;
            let bytes = body.len() as u64;
            if bytes > 0 {
                depot.put(&blob_key(&blob), body.into()).await?;
                sent.fetch_add(bytes, Ordering::Relaxed);
            }
            Ok((entries, bytes))
        }
    }
}

async fn send_large(
    depot: &dyn Depot,
    root: &Path,
    blob: String,
    item: Item,
    sent: &Arc<AtomicU64>,
) -> Result<(Vec<Stored>, u64)> {
    let Item { file, held, alike } = item;
    let root = root.to_owned();
    let (file, source, sample, same) = blocking(move || {
        let opened = match held {
            Some(opened) => opened,
            None => open(&root, &file.path)?,
        };
        let sample = sample(&opened, file.stamp.size, &file.path)?;
        let mut same = None;
        if alike.samples.contains(&sample) {
            let again = opened.try_clone().map_err(CheckpointError::local("cannot open", &file.path))?;
            let hash = hash(Source::new(again, file.path.clone(), file.stamp, file.grows())?)?;
            same = alike.by_hash.get(&hash).cloned();
            // The clone shares its position with ours.
            std::io::Seek::rewind(&mut &opened).map_err(CheckpointError::local("cannot read", &file.path))?;
        }
        let source = Source::new(opened, file.path.clone(), file.stamp, file.grows())?;
        Ok((file, source, sample, same))
    })
    .await?;
    if let Some(same) = same {
        return Ok((vec![stored(&file, same.hash, same.blob, same.offset, sample)], 0));
    }
    let hash = depot.send(&blob_key(&blob), source, sent).await?;
    let bytes = file.stamp.size;
    Ok((vec![stored(&file, hash, blob, 0, sample)], bytes))
}

fn fill_pack(root: &Path, blob: &str, items: Vec<Item>) -> Result<(Vec<Stored>, Vec<u8>)> {
    let (mut entries, mut body) = (Vec::new(), Vec::new());
    for Item { file, held, alike } in items {
        let opened = match held {
            Some(opened) => opened,
            None => open(root, &file.path)?,
        };
        let mut source = Source::new(opened, file.path.clone(), file.stamp, file.grows())?;
        let offset = body.len();
        body.resize(offset + usize::try_from(source.size()).unwrap_or(0), 0);
        source.read(&mut body[offset..])?;
        let hash = source.finish()?;
        let same = alike.by_hash.get(&hash).cloned();
        let (at, offset) = match same {
            Some(same) => {
                body.truncate(offset);
                (same.blob, same.offset)
            }
            None if file.stamp.size == 0 => (String::new(), 0),
            None => (blob.to_owned(), offset as u64),
        };
        entries.push(stored(&file, hash, at, offset, String::new()));
    }
    Ok((entries, body))
}

fn stored(file: &SnapFile, hash: String, blob: String, offset: u64, sample: String) -> Stored {
    let entry = FileEntry {
        path: Name::of(&file.path),
        size: file.stamp.size,
        hash,
        mode: file.mode,
        mtime_ns: file.stamp.mtime_ns,
        blob,
        offset,
        sample,
        stream: false,
    };
    (file.path.clone(), Some(file.stamp), entry)
}

fn hash(mut source: Source) -> Result<String> {
    let mut buffer = vec![0; 1 << 20];
    while source.left() > 0 {
        source.read(&mut buffer)?;
    }
    source.finish()
}

/// Checkpoints of one program tend to have one size and differ everywhere: a few pages tell.
fn sample(file: &File, size: u64, path: &Path) -> Result<String> {
    if size < SAMPLED {
        return Ok(String::new());
    }
    let mut hasher = blake3::Hasher::new();
    let mut page = [0; 4096];
    for n in 0..16 {
        let at = (size - page.len() as u64) / 15 * n;
        let got = file.read_at(&mut page, at).map_err(CheckpointError::local("cannot read", path))?;
        hasher.update(&page[..got]);
    }
    Ok(hasher.finalize().to_hex()[..16].to_owned())
}
