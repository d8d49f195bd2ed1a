//! Pruning: keeps the newest contents, and deletes older manifests before the blobs that only they need,
//! so that at no moment a manifest is there whose blobs are not.

use std::collections::BTreeSet;

use super::Checkpoints;
use super::error::{CheckpointError, Result};
use super::manifest::{Manifest, Ref};
use super::names::{blob_key, manifest_key};
use super::shards::shard_of_blob;

/// What a prune removed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Pruned {
    pub checkpoints: usize,
    pub blobs: usize,
}

impl Checkpoints {
    /// Keeps the newest `keep` distinct contents, and for a while those that a stint may have to fall back on; a
    /// fence counts with what it repeats. `epoch` is the
    /// caller's stint: nothing of a later one is touched, and if one has begun nothing is deleted at all,
    /// because it may be restoring what this one thinks is old.
    pub async fn prune(&self, epoch: u64, keep: usize) -> Result<Pruned> {
        let _one = self.writing.lock().await;
        self.stop_if_stale(epoch).await?;
        let names = self.names().await?;
        // Blobs are listed before the manifests are read: one that appears later is nobody's left-over.
        let blobs = self.depot.list("blobs").await?;
        let (mut manifests, mut broken) = (Vec::new(), Vec::new());
        for &name in &names {
            match self.read_manifest(name).await? {
                Some(Ok(manifest)) => manifests.push(manifest),
                Some(Err(_)) => broken.push(name),
                None => {}
            }
        }
        manifests.sort_by_key(|manifest: &Manifest| manifest.name);
        let (kept, mut dropped) = divide(&manifests, keep.max(1));
        // Nobody knows which blobs a broken one needs, so it can never be restored.
        dropped.extend(broken);

        self.stop_if_stale(epoch).await?;
        self.depot.delete(dropped.iter().map(|&name| manifest_key(name)).collect()).await?;
        self.depot.flush("manifests").await?;

        let needed: BTreeSet<&str> = (manifests.iter().filter(|manifest| kept.contains(&manifest.name)))
            .flat_map(|manifest| manifest.all_files().map(|file| file.blob.as_str()))
            .collect();
        // What another rank of this stint sent may be of a shard that is not composed yet.
        let composed = manifests.last().filter(|newest| newest.name.epoch == epoch).map(|newest| newest.shards.clone());
        let composed = composed.unwrap_or_default();
        let is_open = |blob: &str| {
            let of_other = shard_of_blob(blob).filter(|_| epoch_of(blob) == Some(epoch));
            of_other.is_some_and(|(rank, number)| composed.get(&rank).is_none_or(|newest| number > *newest))
        };
        let of_shards = self.blobs_of_shards(epoch).await?;
        let is_spare = |blob: &String| {
            !needed.contains(blob.as_str())
                && !of_shards.contains(blob)
                && epoch_of(blob).is_some_and(|of| of <= epoch)
                && !is_open(blob)
        };
        let spare: BTreeSet<String> = blobs.into_iter().filter(is_spare).collect();
        self.stop_if_stale(epoch).await?;
        self.known().forget(|blob| spare.contains(blob));
        self.depot.delete(spare.iter().map(|blob| blob_key(blob)).collect()).await?;
        let claims = self.depot.list("claims").await?;
        let old = claims.into_iter().filter(|claim| claim.parse::<u64>().is_ok_and(|of| of < epoch));
        self.depot.delete(old.map(|claim| format!("claims/{claim}")).collect()).await?;
        self.forget_shards(epoch, &composed).await?;
        self.depot.sweep().await?;
        Ok(Pruned { checkpoints: dropped.len(), blobs: spare.len() })
    }

    pub(super) async fn stop_if_stale(&self, epoch: u64) -> Result<()> {
        match self.successor(epoch).await? {
            Some(by) => Err(CheckpointError::Fenced { epoch, by }),
            None => Ok(()),
        }
    }
}

/// The manifests to keep and those to drop. The highest is always kept: it is the fence, or newer. What is fenced
/// off can never be restored, and what a program failed on should not be: neither takes a place. Equal contents
/// count once. What the stint resumed from and the content before it stay until the stint has saved `keep` contents
/// of its own: until then nobody knows whether its program can read the newest.
fn divide(manifests: &[Manifest], keep: usize) -> (BTreeSet<Ref>, Vec<Ref>) {
    let failed: BTreeSet<&str> = manifests.iter().flat_map(|manifest| &manifest.failed).map(String::as_str).collect();
    let newest = manifests.last().map_or(0, |manifest| manifest.name.epoch);
    let (mut own, mut earlier): (BTreeSet<String>, BTreeSet<String>) = Default::default();
    let (mut kept, mut dropped) = (BTreeSet::new(), Vec::new());
    let mut fences: Vec<(u64, Option<Ref>)> = Vec::new();
    for (n, manifest) in manifests.iter().rev().enumerate() {
        let name = manifest.name;
        if fences.iter().any(|(epoch, base)| manifest.is_fenced_by(*epoch, *base)) {
            dropped.push(name);
            continue;
        }
        if fences.last().is_none_or(|(epoch, _)| *epoch != name.epoch) {
            fences.push((name.epoch, manifest.began_from));
        }
        let content = manifest.content();
        let counted = own.contains(&content) || earlier.contains(&content);
        // A fresh start's fence holds nothing to go back to, so it does not count as a content.
        let worth = !manifest.fresh && !failed.contains(content.as_str());
        let is_own = name.epoch == newest && name.seq > 0;
        let spare = !is_own && own.len() < keep && earlier.len() < FALLBACKS.min(keep);
        let room = own.len() + earlier.len() < keep || spare;
        if n == 0 || (worth && (counted || room)) {
            kept.insert(name);
            if worth && !counted {
                if is_own { &mut own } else { &mut earlier }.insert(content);
            }
        } else {
            dropped.push(name);
        }
    }
    (kept, dropped)
}

/// What a stint resumed from, and the one before it.
const FALLBACKS: usize = 2;

fn epoch_of(blob: &str) -> Option<u64> {
    blob.split('-').next()?.parse().ok()
}
