//! Parcels: what a folder held at one moment, whole on the store and never changed. A job's folder goes to its machines as
//! one, and what the job leaves comes back as one. Parcels under one key share the files that did not change between them;
//! they are manifests like those of checkpoints, without stints and fences.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use super::error::{CheckpointError, Result, blocking};
use super::manifest::{Manifest, Ref};
use super::names::{blob_key, manifest_key, now_ms};
use super::save::Saved;
use super::tree::Snapshot;
use super::{Checkpoints, Pruned, Stint, unpack};

/// How often another name is tried when somebody packs the same folder at the same time.
const TRIES: u32 = 20;
/// The newest parcels always stay: whoever packed one may not have said yet that it is used.
const NEWEST: usize = 8;
/// Nothing younger is discarded, for the same reason.
const YOUNG_MS: u64 = 24 * 3_600_000;

impl Checkpoints {
    /// Stores a snapshot as the newest parcel of an epoch. One that the newest parcel equals is not stored again.
    pub async fn pack(&self, epoch: u64, snapshot: &Snapshot) -> Result<Saved> {
        self.pack_as(epoch, snapshot, |seqs| seqs.iter().max().map_or(1, |last| last + 1)).await
    }

    /// The same as the newest one of a rank: the number of a parcel says whose it is.
    pub async fn pack_of(&self, rank: u32, epoch: u64, snapshot: &Snapshot) -> Result<Saved> {
        let next = |seqs: &[u64]| {
            let own = seqs.iter().filter(|seq| rank_of(**seq) == rank).max();
            own.map_or(u64::from(rank) + 1, |last| last + MOST_RANKS)
        };
        self.pack_as(epoch, snapshot, next).await
    }

    async fn pack_as(&self, epoch: u64, snapshot: &Snapshot, next: impl Fn(&[u64]) -> u64) -> Result<Saved> {
        let _one = self.writing.lock().await;
        let mut tries = TRIES;
        loop {
            let names = self.names().await?;
            self.begin_from(epoch, &names).await?;
            let seqs: Vec<u64> = names.iter().filter(|name| name.epoch == epoch).map(|name| name.seq).collect();
            let stint = Stint { epoch, began_from: None };
            match self.save_as(stint, Ref::new(epoch, next(&seqs)), snapshot, None).await {
                Err(CheckpointError::Taken { .. }) if tries > 1 => tries -= 1,
                saved => return saved,
            }
        }
    }

    /// What the newest parcel has need not be sent; another epoch's counts as another content.
    async fn begin_from(&self, epoch: u64, names: &[Ref]) -> Result<()> {
        let mut newest: Option<Manifest> = None;
        for &name in names.iter().rev() {
            if let Some(Ok(manifest)) = self.read_manifest(name).await? {
                newest = Some(manifest);
                break;
            }
        }
        let mut known = self.known();
        known.content = newest.as_ref().filter(|it| it.name.epoch == epoch).map(|it| (it.name, it.content()));
        let files = newest.map(|manifest| manifest.files).unwrap_or_default();
        known.replace(files.into_iter().map(|entry| (entry.path.to_path(), None, entry)));
        Ok(())
    }

    /// The newest parcel of each rank of the newest stint that left any, in the order of ranks.
    pub async fn newest_parcels(&self) -> Result<BTreeMap<u32, Ref>> {
        let mut newest: BTreeMap<u32, Ref> = BTreeMap::new();
        for name in self.names().await?.into_iter().rev() {
            let is_older = newest.values().next().is_some_and(|known| name.epoch < known.epoch);
            if is_older {
                break;
            }
            if !newest.contains_key(&rank_of(name.seq))
                && let Some(Ok(_)) = self.read_manifest(name).await?
            {
                newest.insert(rank_of(name.seq), name);
            }
        }
        Ok(newest)
    }

    /// Brings a parcel into a folder that holds nothing else, or what of it `wanted` takes, and tells how many files that
    /// were. Its content must be what it was when it was packed, where that is known: others may write to the store too.
    pub async fn unpack(
        &self,
        name: Ref,
        into: &Path,
        content: Option<&str>,
        wanted: &(dyn Fn(&Path) -> bool + Sync),
    ) -> Result<usize> {
        let gone =
            |why: String| CheckpointError::Task(format!("parcel {name} of {} cannot be used: {why}", self.job_key));
        let mut manifest = match self.read_manifest(name).await? {
            Some(Ok(manifest)) => manifest,
            Some(Err(why)) => return Err(gone(why)),
            None => return Err(gone("it is not in the store".to_owned())),
        };
        if content.is_some_and(|content| content != manifest.content()) {
            return Err(gone("it is another one than was packed".to_owned()));
        }
        // Who runs a file, and with whose rights, is for its machine to say.
        manifest.files.iter_mut().for_each(|file| file.mode &= 0o777);
        manifest.dirs.iter_mut().for_each(|dir| dir.mode &= 0o777);
        manifest.files.retain(|file| wanted(&file.path.to_path()));
        manifest.links.retain(|link| wanted(&link.path.to_path()));
        manifest.dirs.retain(|dir| wanted(&dir.path.to_path()));
        let (files, into) = (manifest.files.len() + manifest.links.len(), into.to_owned());
        let draft = self.draft_below(&into);
        let fetched = self.fetch_all(&manifest, &into, draft.path()).await;
        let ((), draft) = self.settle(draft, fetched.and_then(|fetched| fetched.map_err(gone))).await?;
        blocking(move || unpack::move_in(&into, draft.path(), Some(&manifest), &BTreeSet::new())).await?;
        Ok(files)
    }

    /// Deletes parcels that nobody uses any more, but for young ones and the newest few.
    pub async fn discard(&self, used: &BTreeSet<Ref>) -> Result<Pruned> {
        let _one = self.writing.lock().await;
        let names = self.names().await?;
        // Blobs are listed before the manifests are read: one that appears later is nobody's left-over.
        let blobs = self.depot.list("blobs").await?;
        let newest = names.len().saturating_sub(NEWEST);
        let (mut kept, mut dropped) = (Vec::new(), Vec::new());
        for (n, &name) in names.iter().enumerate() {
            match self.read_manifest(name).await? {
                Some(Ok(manifest)) => {
                    let is_young = now_ms().saturating_sub(manifest.at_ms) < YOUNG_MS;
                    let stays = n >= newest || is_young || used.contains(&name);
                    if stays { kept.push(manifest) } else { dropped.push(name) }
                }
                // What it needs is not known, so its blobs are not either.
                Some(Err(_)) => return Ok(Pruned::default()),
                None => {}
            }
        }
        self.depot.sweep().await?;
        if dropped.is_empty() {
            return Ok(Pruned::default());
        }
        self.depot.delete(dropped.iter().map(|&name| manifest_key(name)).collect()).await?;
        self.depot.flush("manifests").await?;
        let needed: BTreeSet<&str> =
            kept.iter().flat_map(|it| it.files.iter().map(|file| file.blob.as_str())).collect();
        // A blob of a parcel that is being packed now has no manifest yet, and a higher number than all that are kept.
        let last = kept.iter().map(|manifest| manifest.name).max().unwrap_or(Ref::new(0, 0));
        let is_spare = |blob: &String| !needed.contains(blob.as_str()) && name_in(blob).is_some_and(|of| of <= last);
        let spare: Vec<String> = blobs.into_iter().filter(is_spare).collect();
        self.known().forget(|blob| spare.iter().any(|gone| gone == blob));
        self.depot.delete(spare.iter().map(|blob| blob_key(blob)).collect()).await?;
        Ok(Pruned { checkpoints: dropped.len(), blobs: spare.len() })
    }
}

/// More ranks than a gang has.
const MOST_RANKS: u64 = 4_096;

/// The rank that packed a parcel of outputs.
fn rank_of(seq: u64) -> u32 {
    (seq.saturating_sub(1) % MOST_RANKS) as u32
}

/// The parcel that a blob was sent for.
fn name_in(blob: &str) -> Option<Ref> {
    let mut parts = blob.split('-');
    Some(Ref::new(parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}
