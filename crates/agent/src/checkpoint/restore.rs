//! Beginning a stint: picks the checkpoint to resume from, brings it back verified, and sets the fence.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use futures::{StreamExt, TryStreamExt, stream};

use super::depot::Fetched;
use super::error::{CheckpointError, Result, blocking};
use super::manifest::{FORMAT, FileEntry, Manifest, Ref};
use super::names::{blob_key, now_ms, token};
use super::save::SMALL;
use super::tree::Stamp;
use super::unpack::Draft;
use super::{Checkpoints, Stint, unpack};

/// Contents that programs failed on are remembered up to this many.
const FAILED_KNOWN: usize = 64;

/// Which checkpoint a stint resumes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Choose {
    /// The newest that is whole.
    Newest,
    /// The newest whose content is older than this one's: the program failed on it.
    Before(Ref),
    /// None: the program starts from the beginning.
    Nothing,
}

/// How a stint began.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Begun {
    /// The checkpoint that was restored; none for a fresh start.
    pub restored: Option<Ref>,
    /// The progress it holds, where it was told.
    pub work: Option<u64>,
    /// Which content that is: a fence that repeats another is the same.
    pub origin: Option<Ref>,
    pub files: usize,
    pub bytes: u64,
    pub elapsed: Duration,
    /// Newer checkpoints that were not used, and why.
    pub skipped: Vec<(Ref, String)>,
}

/// What a stint begins with, and what it does not.
struct Fetch {
    chosen: Option<Manifest>,
    /// Contents that programs failed on.
    failed: Vec<String>,
    skipped: Vec<(Ref, String)>,
}

impl Checkpoints {
    /// Restores into `into` and sets the fence of stint `epoch`. `foreign` are paths below `into` that
    /// were there before the job's first stint: they stay, and all else that is not in the checkpoint goes.
    pub async fn begin(&self, epoch: u64, into: &Path, choose: Choose, foreign: &BTreeSet<PathBuf>) -> Result<Begun> {
        let began = Instant::now();
        let _one = self.writing.lock().await;
        if let Some(by) = self.successor(epoch).await? {
            return Err(CheckpointError::Fenced { epoch, by });
        }
        // From here on older stints delete nothing, so what is chosen below stays.
        self.depot.put(&format!("claims/{epoch:020}"), token().into()).await?;
        let names = self.names().await?;
        if names.is_empty() && self.saved_before {
            return Err(self.emptied());
        }
        let ours = match names.iter().find(|name| name.epoch == epoch) {
            Some(&name) => Some(self.own_fence(name).await?),
            None => None,
        };
        let names = that_count(names, self.continues_after);

        let into = into.to_owned();
        let draft = self.draft_below(&into);
        let fetched = self.fetch(ours.as_ref(), choose, &names, (&into, draft.path())).await;
        let (Fetch { chosen, failed, skipped }, draft) = self.settle(draft, fetched).await?;

        let stamps = {
            let (manifest, foreign) = (chosen.clone(), foreign.clone());
            blocking(move || unpack::move_in(&into, draft.path(), manifest.as_ref(), &foreign)).await?
        };
        let fence = match ours {
            Some(fence) => fence,
            None => {
                let fence = fence(epoch, chosen.as_ref(), self.writer.clone(), failed);
                self.create_manifest(&fence).await?;
                fence
            }
        };

        let mut known = self.known();
        known.stint = Some(Stint { epoch, began_from: fence.began_from });
        known.content = Some((fence.name, fence.content()));
        known.failed.clone_from(&fence.failed);
        known.fence = Some(Arc::new(fence.clone()));
        known.replace(fence.files.into_iter().map(|entry| {
            let path = entry.path.to_path();
            let stamp: Option<Stamp> = stamps.get(&path).copied();
            (path, stamp, entry)
        }));
        Ok(Begun {
            restored: chosen.as_ref().filter(|manifest| !manifest.fresh).map(|manifest| manifest.name),
            origin: chosen.as_ref().filter(|manifest| !manifest.fresh).map(Manifest::origin),
            work: chosen.as_ref().and_then(|manifest| manifest.work),
            files: chosen.as_ref().map_or(0, |manifest| manifest.files.len()),
            bytes: chosen.as_ref().map_or(0, Manifest::bytes),
            elapsed: began.elapsed(),
            skipped,
        })
    }

    /// Chooses a checkpoint and fetches it to a draft.
    async fn fetch(
        &self,
        ours: Option<&Manifest>,
        choose: Choose,
        names: &[Ref],
        (into, draft): (&Path, &Path),
    ) -> Result<Fetch> {
        let mut skipped = Vec::new();
        let (chosen, failed) = match (ours, choose) {
            // An earlier try got as far as the fence: what that repeats is chosen.
            (Some(fence), _) => (self.bring_back(fence, into, draft).await?, fence.failed.clone()),
            (None, Choose::Nothing) => (None, Vec::new()),
            (None, Choose::Newest) => {
                (self.pick(names, None, into, draft, &mut skipped).await?, self.known_failed(names, None).await?)
            }
            (None, Choose::Before(bad)) => {
                let (origin, content) = match self.read_manifest(bad).await? {
                    Some(Ok(manifest)) => (manifest.origin(), Some(manifest.content())),
                    _ => (bad, None),
                };
                let chosen = self.pick(names, Some(origin), into, draft, &mut skipped).await?;
                (chosen, self.known_failed(names, content).await?)
            }
        };
        Ok(Fetch { chosen, failed, skipped })
    }

    /// The fence of this very stint, written by an earlier try of this process whose answer was lost.
    async fn own_fence(&self, name: Ref) -> Result<Manifest> {
        match self.read_manifest(name).await? {
            Some(Ok(fence)) if name.seq == 0 && fence.writer == self.writer => Ok(fence),
            _ => Err(CheckpointError::Taken { name }),
        }
    }

    /// Fetches what a fence repeats; none for a fresh one.
    pub(super) async fn bring_back(&self, fence: &Manifest, into: &Path, draft: &Path) -> Result<Option<Manifest>> {
        if fence.fresh {
            return Ok(None);
        }
        match self.fetch_all(fence, into, draft).await? {
            Ok(()) => Ok(Some(fence.clone())),
            Err(why) => Err(CheckpointError::Task(format!("checkpoint {} was damaged meanwhile: {why}", fence.name))),
        }
    }

    /// The contents that programs failed on: those that the newest manifest names, and one more.
    async fn known_failed(&self, names: &[Ref], more: Option<String>) -> Result<Vec<String>> {
        let mut failed = Vec::new();
        for &name in names.iter().rev() {
            if let Some(Ok(newest)) = self.read_manifest(name).await? {
                failed = newest.failed;
                break;
            }
        }
        if let Some(more) = more.filter(|more| !failed.contains(more)) {
            failed.push(more);
        }
        // Older ones are pruned long since.
        let from = failed.len().saturating_sub(FAILED_KNOWN);
        Ok(failed.split_off(from))
    }

    /// The newest usable checkpoint, its files already in the draft directory. Only what is damaged is
    /// skipped; a store that fails is an error, because to go on would lose progress that is there.
    async fn pick(
        &self,
        names: &[Ref],
        before: Option<Ref>,
        into: &Path,
        draft: &Path,
        skipped: &mut Vec<(Ref, String)>,
    ) -> Result<Option<Manifest>> {
        let mut fences: BTreeMap<u64, Option<Ref>> = BTreeMap::new();
        for &name in names.iter().rev() {
            let manifest = match self.read_manifest(name).await? {
                None => {
                    skipped.push((name, "it was deleted meanwhile".into()));
                    continue;
                }
                Some(Err(why)) => {
                    skipped.push((name, why));
                    continue;
                }
                Some(Ok(manifest)) => manifest,
            };
            if let Some((epoch, _)) = fences.iter().find(|(epoch, base)| manifest.is_fenced_by(**epoch, **base)) {
                skipped.push((name, format!("fenced off by stint {epoch}, which did not begin from it")));
                continue;
            }
            fences.insert(name.epoch, manifest.began_from);
            if before.is_some_and(|bad| manifest.origin() >= bad) {
                skipped.push((name, "the program failed on it, or it is newer than the one it failed on".into()));
                continue;
            }
            if manifest.fresh {
                return Ok(None);
            }
            match self.fetch_all(&manifest, into, draft).await? {
                Ok(()) => return Ok(Some(manifest)),
                Err(why) => skipped.push((name, why)),
            }
        }
        Ok(None)
    }

    /// A draft for what belongs into a folder: that of the try before, if the store went away meanwhile.
    pub(super) fn draft_below(&self, into: &Path) -> Draft {
        let left = self.draft.lock().unwrap_or_else(PoisonError::into_inner).take();
        left.filter(|draft| draft.is_below(into)).unwrap_or_else(|| Draft::below(into))
    }

    /// Keeps a draft for the next try.
    pub(super) fn leave_draft(&self, draft: Draft) {
        *self.draft.lock().unwrap_or_else(PoisonError::into_inner) = Some(draft);
    }

    /// Passes on what became of fetching into a draft. What was fetched stays for the next try where the store went away;
    /// otherwise a failure takes it along, off the runtime's thread.
    pub(super) async fn settle<T>(&self, draft: Draft, tried: Result<T>) -> Result<(T, Draft)> {
        match tried {
            Ok(done) => Ok((done, draft)),
            Err(error) if error.is_store_away() => {
                self.leave_draft(draft);
                Err(error)
            }
            Err(error) => {
                let remove = move || {
                    drop(draft);
                    Ok(())
                };
                blocking(remove).await.and(Err(error))
            }
        }
    }

    pub(super) async fn fetch_all(
        &self,
        manifest: &Manifest,
        into: &Path,
        draft: &Path,
    ) -> Result<std::result::Result<(), String>> {
        let (target, layout) = (draft.to_owned(), manifest.clone());
        blocking(move || unpack::lay_out(&target, &layout)).await?;
        let mut packs: BTreeMap<String, Vec<FileEntry>> = BTreeMap::new();
        let mut large = Vec::new();
        for file in &manifest.files {
            if file.size < SMALL {
                packs.entry(file.blob.clone()).or_default().push(file.clone());
            } else {
                large.push(file.clone());
            }
        }
        large.sort_by_key(|file| std::cmp::Reverse(file.size));
        let large =
            stream::iter(large).map(|file| self.fetch_large(file, into, draft)).buffer_unordered(self.files_at_once);
        if let Some(why) = first_fault(large).await? {
            return Ok(Err(why));
        }
        let packs = stream::iter(packs)
            .map(|(blob, files)| self.fetch_pack(blob, files, draft))
            .buffer_unordered(self.files_at_once);
        Ok(first_fault(packs).await?.map_or(Ok(()), Err))
    }

    async fn fetch_large(&self, entry: FileEntry, into: &Path, draft: &Path) -> Result<Option<String>> {
        let path = entry.path.to_path();
        let (here, target) = (into.join(&path), draft.join(&path));
        loop {
            let (here, there, wanted) = (here.clone(), target.clone(), entry.clone());
            // A stint that starts again on the same machine has most of it on disk.
            let taken = blocking(move || unpack::take_local(&here, &there, &wanted)).await?;
            let Some((file, have)) = taken else { return Ok(None) };
            let (from, left) = (entry.offset + have, entry.size - have);
            let fetched = self.depot.fetch(&blob_key(&entry.blob), from, left, file).await;
            return Ok(match fetched.map_err(|error| error.of_file(&path))? {
                // What an earlier try brought may be of another checkpoint: it is looked at with the rest, and fetched anew.
                Fetched::Whole(_) if have > 0 => {
                    let (there, wanted) = (target.clone(), entry.clone());
                    match blocking(move || unpack::keep_if_wanted(&there, &wanted)).await? {
                        true => None,
                        false => continue,
                    }
                }
                Fetched::Whole(hash) if hash == entry.hash => None,
                Fetched::Whole(_) => Some(format!("damaged: {}", path.display())),
                Fetched::Missing => Some(format!("its blob is missing: {}", path.display())),
                Fetched::Short => Some(format!("its blob is cut short: {}", path.display())),
            });
        }
    }

    async fn fetch_pack(&self, blob: String, files: Vec<FileEntry>, draft: &Path) -> Result<Option<String>> {
        let body = match blob.is_empty() {
            true => Some(bytes::Bytes::new()),
            false => self.depot.get(&blob_key(&blob)).await?,
        };
        let Some(body) = body else {
            let path = files.first().map(|file| file.path.to_path()).unwrap_or_default();
            return Ok(Some(format!("its blob is missing: {}", path.display())));
        };
        let draft = draft.to_owned();
        blocking(move || unpack::write_pack(&draft, &files, &body)).await
    }
}

async fn first_fault(
    mut results: impl stream::Stream<Item = Result<Option<String>>> + Unpin,
) -> Result<Option<String>> {
    while let Some(fault) = results.try_next().await? {
        if fault.is_some() {
            return Ok(fault);
        }
    }
    Ok(None)
}

/// Manifests without those of stints up to this one that saved nothing, and did not begin from what was saved last: their program
/// had failed on that. The first stint after a save began from it, and where it is gone since, has its content.
fn that_count(mut names: Vec<Ref>, upto: u64) -> Vec<Ref> {
    let last_save = names.iter().filter(|name| name.seq > 0 && name.epoch <= upto).max().map_or(0, |name| name.epoch);
    let mut first = None;
    names.retain(|name| {
        let is_idle = name.seq == 0 && name.epoch > last_save && name.epoch <= upto;
        !is_idle || *first.get_or_insert(*name) == *name
    });
    names
}

fn fence(epoch: u64, of: Option<&Manifest>, writer: String, failed: Vec<String>) -> Manifest {
    Manifest {
        format: FORMAT,
        name: Ref::new(epoch, 0),
        writer,
        at_ms: now_ms(),
        work: of.and_then(|manifest| manifest.work),
        copy_of: of.map(Manifest::origin),
        began_from: of.map(Manifest::origin),
        fresh: of.is_none(),
        failed,
        files: of.map(|manifest| manifest.files.clone()).unwrap_or_default(),
        dirs: of.map(|manifest| manifest.dirs.clone()).unwrap_or_default(),
        links: of.map(|manifest| manifest.links.clone()).unwrap_or_default(),
        own: of.map(|manifest| manifest.own.clone()).unwrap_or_default(),
        shards: BTreeMap::new(),
    }
}
