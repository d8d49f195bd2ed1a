//! Checkpoints of a gang whose ranks share no disk. Each place where ranks save has a keeper, the lowest rank there. It
//! uploads what lies at its place as a *shard*, and rank 0 makes one checkpoint of all shards: it is there whole, or not at
//! all. Whoever resumes gets what all of them saved; of a name under which several saved different things, its own.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::Instant;

use super::error::{CheckpointError, Result, blocking};
use super::manifest::{DirEntry, FORMAT, FileEntry, LinkEntry, Manifest, Name, Ref};
use super::names::{now_ms, token};
use super::restore::Begun;
use super::save::{Saved, Uploaded};
use super::tree::Snapshot;
use super::{Checkpoints, Stint, unpack};

/// What the places of a gang have together.
struct Merged {
    files: Vec<FileEntry>,
    own: BTreeMap<u32, Vec<FileEntry>>,
    dirs: Vec<DirEntry>,
    links: Vec<LinkEntry>,
}

impl Checkpoints {
    /// Uploads what lies at the place of a rank, for rank 0 to take up.
    pub async fn save_shard(&self, epoch: u64, rank: u32, number: u64, snapshot: &Snapshot) -> Result<Saved> {
        let _one = self.writing.lock().await;
        self.stop_if_stale(epoch).await?;
        let began = Instant::now();
        let name = Ref::new(epoch, number);
        let uploaded = self.upload(name, &format!("r{rank}x{}", token()), snapshot).await?;
        let stint = self.known().stint.ok_or(CheckpointError::NotBegun { epoch })?;
        let manifest = self.manifest_of(stint, name, &uploaded, snapshot, None);
        let body = serde_json::to_vec(&manifest).map_err(|error| CheckpointError::Task(error.to_string()))?;
        self.depot.put(&shard_key(epoch, rank, number), body.into()).await?;
        self.depot.flush("shards").await?;
        let saved = uploaded.saved(name, began.elapsed(), manifest.content());
        self.known().replace(uploaded.stored);
        Ok(saved)
    }

    /// Uploads what lies at the place of rank 0. It counts once it is composed with the other shards.
    pub(super) async fn save_first(&self, epoch: u64, seq: u64, snapshot: &Snapshot) -> Result<Uploaded> {
        let _one = self.writing.lock().await;
        self.stop_if_stale(epoch).await?;
        self.stint(epoch).await?;
        self.upload(Ref::new(epoch, seq), &token(), snapshot).await
    }

    /// Makes a checkpoint of what rank 0 has and of the shards of others, by their ranks.
    pub(super) async fn compose(
        &self,
        name: Ref,
        (snapshot, uploaded): (&Snapshot, Uploaded),
        shards: BTreeMap<u32, u64>,
        work: Option<u64>,
        began: Instant,
    ) -> Result<Saved> {
        let _one = self.writing.lock().await;
        let stint = self.stint(name.epoch).await?;
        self.stop_if_stale(name.epoch).await?;
        let fence = self.known().fence.clone().filter(|fence| fence.name.epoch == name.epoch);
        let fence = fence.ok_or(CheckpointError::NotBegun { epoch: name.epoch })?;
        let mut manifest = self.manifest_of(stint, name, &uploaded, snapshot, work);
        let mut parts = vec![(0, manifest.clone())];
        for (&rank, &number) in &shards {
            parts.push((rank, self.read_shard(name.epoch, rank, number).await?));
        }
        let merged = merge(&fence, &parts);
        (manifest.files, manifest.own) = (merged.files, merged.own);
        (manifest.dirs, manifest.links, manifest.shards) = (merged.dirs, merged.links, shards);
        manifest.check().map_err(CheckpointError::Task)?;
        self.conclude(manifest, uploaded, began).await
    }

    async fn read_shard(&self, epoch: u64, rank: u32, number: u64) -> Result<Manifest> {
        let body = self.depot.get(&shard_key(epoch, rank, number)).await?;
        let gone = |why: &str| CheckpointError::Task(format!("shard {number} of rank {rank}: {why}"));
        let shard: Manifest = serde_json::from_slice(&body.ok_or_else(|| gone("it is not in the store"))?)
            .map_err(|error| gone(&error.to_string()))?;
        shard.check().map_err(|why| gone(&why))?;
        Ok(shard)
    }

    /// Restores what rank 0 chose for this stint at the place of another rank; none while rank 0 has not chosen.
    pub async fn join(&self, epoch: u64, rank: u32, into: &Path, foreign: &BTreeSet<PathBuf>) -> Result<Option<Begun>> {
        let began = Instant::now();
        let _one = self.writing.lock().await;
        self.stop_if_stale(epoch).await?;
        let fence = match self.read_manifest(Ref::new(epoch, 0)).await? {
            Some(Ok(fence)) => fence,
            Some(Err(why)) => {
                return Err(CheckpointError::Task(format!("what the gang resumes from is damaged: {why}")));
            }
            None => return Ok(None),
        };
        let here = fence.at(rank);
        let into = into.to_owned();
        let draft = self.draft_below(&into);
        let fetched = self.bring_back(&here, &into, draft.path()).await;
        let (chosen, draft) = self.settle(draft, fetched).await?;
        let (manifest, foreign) = (chosen.clone(), foreign.clone());
        let stamps = blocking(move || unpack::move_in(&into, draft.path(), manifest.as_ref(), &foreign)).await?;
        let mut known = self.known();
        known.stint = Some(Stint { epoch, began_from: fence.began_from });
        known.failed.clone_from(&fence.failed);
        known.replace(here.files.iter().map(|entry| {
            let path = entry.path.to_path();
            (path.clone(), stamps.get(&path).copied(), entry.clone())
        }));
        drop(known);
        Ok(Some(Begun {
            restored: fence.copy_of.filter(|_| !fence.fresh),
            origin: fence.copy_of.filter(|_| !fence.fresh),
            work: fence.work.filter(|_| !fence.fresh),
            files: here.files.len(),
            bytes: here.bytes(),
            elapsed: began.elapsed(),
            skipped: Vec::new(),
        }))
    }

    /// Fetches what rank 0 will most likely choose, the newest checkpoint, while rank 0 fetches it too. What comes is kept for `join`,
    /// which fetches what does not.
    pub async fn fetch_ahead(&self, rank: u32, into: &Path) {
        let _one = self.writing.lock().await;
        let Some(newest) = self.names().await.ok().and_then(|names| names.last().copied()) else { return };
        let Ok(Some(Ok(manifest))) = self.read_manifest(newest).await else { return };
        if manifest.fresh {
            return;
        }
        let draft = self.draft_below(into);
        let _ = self.fetch_all(&manifest.at(rank), into, draft.path()).await;
        self.leave_draft(draft);
    }

    /// What the keepers of this stint may point to again: all that their shards have, and what they began with. Nothing where
    /// all ranks are at one place.
    pub(super) async fn blobs_of_shards(&self, epoch: u64) -> Result<BTreeSet<String>> {
        let shards = self.depot.list("shards").await?;
        let shards: Vec<_> = shards.iter().filter_map(|name| shard_of(name)).filter(|(of, ..)| *of == epoch).collect();
        let mut blobs = BTreeSet::new();
        if shards.is_empty() {
            return Ok(blobs);
        }
        for (_, rank, number) in shards {
            blobs.extend(self.read_shard(epoch, rank, number).await?.files.into_iter().map(|file| file.blob));
        }
        let known = self.known();
        blobs.extend(known.fence.iter().flat_map(|fence| fence.all_files()).map(|file| file.blob.clone()));
        blobs.extend(known.files.values().map(|(_, entry)| entry.blob.clone()));
        Ok(blobs)
    }

    /// Shards that no checkpoint needs any more: those of earlier stints, and earlier ones than were composed.
    pub(super) async fn forget_shards(&self, epoch: u64, composed: &BTreeMap<u32, u64>) -> Result<()> {
        let is_old = |name: &String| {
            shard_of(name).is_some_and(|(of, rank, number)| {
                of < epoch || of == epoch && composed.get(&rank).is_some_and(|newest| number < *newest)
            })
        };
        let shards = self.depot.list("shards").await?;
        self.depot.delete(shards.into_iter().filter(is_old).map(|name| format!("shards/{name}")).collect()).await?;
        let words = self.depot.list("gang").await?;
        let of_before =
            |name: &String| name.split('-').next().and_then(|of| of.parse().ok()).is_some_and(|of: u64| of < epoch);
        self.depot.delete(words.into_iter().filter(of_before).map(|name| format!("gang/{name}")).collect()).await
    }
}

fn shard_key(epoch: u64, rank: u32, number: u64) -> String {
    format!("shards/{epoch:020}-{rank:010}-{number:020}.json")
}

fn shard_of(name: &str) -> Option<(u64, u32, u64)> {
    let mut parts = name.strip_suffix(".json")?.split('-');
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

/// The rank and the number of a shard that a blob was sent for; none for a blob of rank 0.
pub(super) fn shard_of_blob(blob: &str) -> Option<(u32, u64)> {
    let mut parts = blob.split('-').skip(1);
    let number = parts.next()?.parse().ok()?;
    let rank = parts.next()?.strip_prefix('r')?.split_once('x')?.0.parse().ok()?;
    Some((rank, number))
}

impl Manifest {
    /// The checkpoint as it lies at the place of a rank.
    pub(super) fn at(&self, rank: u32) -> Manifest {
        let Some(own) = self.own.get(&rank) else { return self.clone() };
        let own: BTreeMap<&Name, &FileEntry> = own.iter().map(|file| (&file.path, file)).collect();
        let files = self.files.iter().map(|file| own.get(&file.path).map_or(file, |own| *own).clone());
        Manifest { files: files.collect(), ..self.clone() }
    }
}

/// What the places have together. What was written at a place since the restore counts; of what lay there since then, what
/// nobody has removed.
fn merge(fence: &Manifest, parts: &[(u32, Manifest)]) -> Merged {
    let mut files: BTreeMap<Name, FileEntry> = BTreeMap::new();
    let mut own: BTreeMap<u32, Vec<FileEntry>> = BTreeMap::new();
    for (rank, part) in parts {
        let before = fence.at(*rank);
        let before: BTreeMap<&Name, &FileEntry> = before.files.iter().map(|file| (&file.path, file)).collect();
        // Of a name of which somebody has a version of their own, everybody's counts.
        let is_shared = |file: &FileEntry| fence.own.values().flatten().any(|own| own.path == file.path);
        let is_old = |file: &FileEntry| {
            !is_shared(file)
                && before
                    .get(&file.path)
                    .is_some_and(|old| (&old.hash, old.mtime_ns, old.mode) == (&file.hash, file.mtime_ns, file.mode))
        };
        for file in part.files.iter().filter(|file| !is_old(file)) {
            match files.get(&file.path) {
                None => _ = files.insert(file.path.clone(), file.clone()),
                Some(known) if known.hash == file.hash => {}
                Some(_) => own.entry(*rank).or_default().push(file.clone()),
            }
        }
    }
    let places = parts.len();
    // By how many places have them.
    let mut there: BTreeMap<(&str, &Name), usize> = BTreeMap::new();
    for (_, part) in parts {
        let names = part.files.iter().map(|file| ("file", &file.path));
        let names = names.chain(part.dirs.iter().map(|dir| ("dir", &dir.path)));
        for name in names.chain(part.links.iter().map(|link| ("link", &link.path))) {
            *there.entry(name).or_default() += 1;
        }
    }
    let everywhere = |kind, path| there.get(&(kind, path)) == Some(&places);
    for file in &fence.files {
        if files.contains_key(&file.path) || !everywhere("file", &file.path) {
            continue;
        }
        files.insert(file.path.clone(), file.clone());
        for (rank, mine) in &fence.own {
            own.entry(*rank).or_default().extend(mine.iter().filter(|mine| mine.path == file.path).cloned());
        }
    }
    own.retain(|_, files| !files.is_empty());
    let old_dirs: BTreeSet<&Name> = fence.dirs.iter().map(|dir| &dir.path).collect();
    let mut dirs: BTreeMap<Name, DirEntry> = BTreeMap::new();
    let mut links: BTreeMap<Name, LinkEntry> = BTreeMap::new();
    for (_, part) in parts {
        let new = part.dirs.iter().filter(|dir| !old_dirs.contains(&dir.path) || everywhere("dir", &dir.path));
        new.for_each(|dir| _ = dirs.entry(dir.path.clone()).or_insert_with(|| dir.clone()));
    }
    // A link that leads elsewhere than it did is new.
    let new = parts.iter().flat_map(|(_, part)| &part.links).filter(|link| !fence.links.contains(link));
    let old = fence.links.iter().filter(|link| everywhere("link", &link.path));
    for link in new.chain(old).filter(|link| !files.contains_key(&link.path)) {
        links.entry(link.path.clone()).or_insert_with(|| link.clone());
    }
    // What one place has as a folder and another as a file cannot both be.
    dirs.retain(|path, _| !files.contains_key(path) && !links.contains_key(path));
    Merged {
        files: files.into_values().collect(),
        own,
        dirs: dirs.into_values().collect(),
        links: links.into_values().collect(),
    }
}

impl Checkpoints {
    /// The manifest of what was uploaded.
    pub(super) fn manifest_of(
        &self,
        stint: Stint,
        name: Ref,
        uploaded: &Uploaded,
        snapshot: &Snapshot,
        work: Option<u64>,
    ) -> Manifest {
        Manifest {
            format: FORMAT,
            name,
            writer: uploaded.writer.clone(),
            at_ms: now_ms(),
            work,
            copy_of: None,
            began_from: stint.began_from,
            fresh: false,
            failed: self.known().failed.clone(),
            files: uploaded.stored.iter().map(|(_, _, entry)| entry.clone()).collect(),
            dirs: snapshot.dirs.iter().map(|(path, mode)| DirEntry { path: Name::of(path), mode: *mode }).collect(),
            links: snapshot
                .links
                .iter()
                .map(|(path, to)| LinkEntry { path: Name::of(path), to: Name::of(to) })
                .collect(),
            own: BTreeMap::new(),
            shards: BTreeMap::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str, hash: &str, mtime_ns: i128) -> FileEntry {
        let (path, blob) = (Name::of(Path::new(path)), format!("1-1-{hash}-0"));
        let (hash, sample) = (hash.to_owned(), String::new());
        FileEntry { path, size: 1, hash, mode: 0o644, mtime_ns, blob, offset: 0, sample, stream: false }
    }

    fn part(files: &[FileEntry]) -> Manifest {
        Manifest {
            format: FORMAT,
            name: Ref::new(2, 0),
            writer: String::new(),
            at_ms: 0,
            work: None,
            copy_of: None,
            began_from: None,
            fresh: false,
            failed: Vec::new(),
            files: files.to_vec(),
            dirs: Vec::new(),
            links: Vec::new(),
            own: BTreeMap::new(),
            shards: BTreeMap::new(),
        }
    }

    fn shown(files: &[FileEntry]) -> Vec<(String, &str)> {
        files.iter().map(|file| (file.path.to_path().display().to_string(), file.hash.as_str())).collect()
    }

    fn named(files: &[(&str, &'static str)]) -> Vec<(String, &'static str)> {
        files.iter().map(|(path, hash)| ((*path).to_owned(), *hash)).collect()
    }

    #[test]
    fn what_each_place_wrote_counts_and_what_was_brought_there_only_while_nobody_removes_it() {
        let restored =
            [file("rank-0", "a0", 1), file("rank-1", "b0", 1), file("step-1", "old", 1), file("config", "c", 1)];
        // Rank 0 has saved its own anew and removed an old one; of rank 1's it has the copy that it was brought.
        let first = part(&[file("rank-0", "a1", 2), file("rank-1", "b0", 1), file("config", "c", 1)]);
        let second = part(&[restored[0].clone(), file("rank-1", "b1", 2), restored[2].clone(), restored[3].clone()]);
        let merged = merge(&part(&restored), &[(0, first), (1, second)]);
        assert_eq!(shown(&merged.files), named(&[("config", "c"), ("rank-0", "a1"), ("rank-1", "b1")]));
        assert!(merged.own.is_empty());
    }

    #[test]
    fn of_one_name_with_different_contents_every_rank_gets_its_own_back() {
        let parts = [
            (0, part(&[file("state", "a", 2)])),
            (1, part(&[file("state", "b", 3)])),
            (2, part(&[file("state", "a", 9)])),
        ];
        let merged = merge(&part(&[]), &parts);
        let whole = Manifest { files: merged.files, own: merged.own, ..part(&[]) };
        assert_eq!(whole.check(), Ok(()));
        for (rank, hash) in [(0, "a"), (1, "b"), (2, "a"), (3, "a")] {
            assert_eq!(shown(&whole.at(rank).files), named(&[("state", hash)]), "rank {rank}");
        }
        // Nobody writes it in the next stint: it stays as it is.
        let again: Vec<(u32, Manifest)> = (0..3).map(|rank| (rank, part(&whole.at(rank).files))).collect();
        let kept = merge(&whole, &again);
        assert_eq!((kept.files, kept.own), (whole.files.clone(), whole.own.clone()));
    }

    #[test]
    fn a_blob_says_of_which_shard_it_is() {
        assert_eq!(shard_of_blob("7-3-r12x00ff-0"), Some((12, 3)));
        assert_eq!(shard_of_blob("7-3-00ff-0"), None);
        assert_eq!(shard_of(shard_key(7, 12, 3).strip_prefix("shards/").expect("its kind")), Some((7, 12, 3)));
    }
}
