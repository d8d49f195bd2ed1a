//! Pruning: keeps the newest contents, and deletes older manifests before the blobs that only they need,
//! so that at no moment a manifest is there whose blobs are not.

use std::collections::BTreeSet;

use super::error::{CheckpointError, Result};
use super::manifest::{Manifest, Ref};
use super::{Checkpoints, blob_key, manifest_key};

/// What a prune removed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Pruned {
    /// Checkpoints (manifests).
    pub checkpoints: usize,
    /// Blobs.
    pub blobs: usize,
}

impl Checkpoints {
    /// Keeps the newest `keep` distinct contents; a fence counts with what it repeats. `epoch` is the
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
        let (kept, mut dropped) = divide(&manifests, keep.max(1));
        // Nobody knows which blobs a broken one needs, so it can never be restored.
        dropped.extend(broken);

        self.stop_if_stale(epoch).await?;
        self.depot.delete(dropped.iter().map(|&name| manifest_key(name)).collect()).await?;
        self.depot.flush("manifests").await?;

        let needed: BTreeSet<&str> = (manifests.iter().filter(|manifest| kept.contains(&manifest.name)))
            .flat_map(|manifest| manifest.files.iter().map(|file| file.blob.as_str()))
            .collect();
        let spare: BTreeSet<String> = blobs
            .into_iter()
            .filter(|blob| !needed.contains(blob.as_str()) && epoch_of(blob).is_some_and(|of| of <= epoch))
            .collect();
        self.stop_if_stale(epoch).await?;
        self.known().forget(|blob| spare.contains(blob));
        self.depot.delete(spare.iter().map(|blob| blob_key(blob)).collect()).await?;
        let claims = self.depot.list("claims").await?;
        let old = claims.into_iter().filter(|claim| claim.parse::<u64>().is_ok_and(|of| of < epoch));
        self.depot.delete(old.map(|claim| format!("claims/{claim}")).collect()).await?;
        self.depot.sweep().await?;
        Ok(Pruned { checkpoints: dropped.len(), blobs: spare.len() })
    }

    async fn stop_if_stale(&self, epoch: u64) -> Result<()> {
        match self.successor(epoch).await? {
            Some(by) => Err(CheckpointError::Fenced { epoch, by }),
            None => Ok(()),
        }
    }
}

/// The manifests to keep and those to drop. The highest is always kept: it is the fence. What is fenced off
/// can never be restored, so it does not take a place.
fn divide(manifests: &[Manifest], keep: usize) -> (BTreeSet<Ref>, Vec<Ref>) {
    let mut contents: BTreeSet<Ref> = BTreeSet::new();
    let (mut kept, mut dropped) = (BTreeSet::new(), Vec::new());
    let mut fences: Vec<(u64, Option<Ref>)> = Vec::new();
    for (n, manifest) in manifests.iter().rev().enumerate() {
        let origin = manifest.origin();
        let name = manifest.name;
        if fences.iter().any(|(epoch, base)| manifest.is_fenced_by(*epoch, *base)) {
            dropped.push(name);
            continue;
        }
        if fences.last().is_none_or(|(epoch, _)| *epoch != name.epoch) {
            fences.push((name.epoch, manifest.began_from));
        }
        // A fresh start's fence holds nothing to go back to, so it does not count as a content.
        let room = contents.contains(&origin) || contents.len() < keep;
        if n == 0 || (room && !manifest.fresh) {
            kept.insert(manifest.name);
            if !manifest.fresh {
                contents.insert(origin);
            }
        } else {
            dropped.push(manifest.name);
        }
    }
    (kept, dropped)
}

fn epoch_of(blob: &str) -> Option<u64> {
    blob.split('-').next()?.parse().ok()
}
