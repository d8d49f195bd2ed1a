//! Checkpoints: moves what a user's program saves in a directory to a durable store, and back before the
//! next stint. It decides what counts as saved and what a stint may resume from; it never decides whether
//! a stint runs, and it never looks inside the program's files.
//!
//! # What lies on the store
//!
//! ```text
//! <job>/claims/<epoch>                      a stint is about to begin: older stints stop deleting
//! <job>/blobs/<epoch>-<seq>-<writer>-<n>    content: one large file, or many small ones end to end
//! <job>/manifests/<epoch>-<seq>.json        what one checkpoint consists of (numbers padded to 20 digits)
//! <job>/shards/<epoch>-<rank>-<n>.json      what a rank of a gang has at its place, for rank 0 to make a checkpoint of
//! <job>/gang/<epoch>-…                      what the ranks of a stint tell each other
//! <folder>/…, <job>.outputs/…               parcels: blobs and manifests of the same form
//! ```
//!
//! A manifest is written last and created, never updated: a checkpoint is there whole or not at all.
//! Files that did not change point to blobs of earlier checkpoints. The writer's random word keeps two
//! savers of one name from overwriting each other's blobs before the manifest picks the winner.
//!
//! # Fencing
//!
//! A checkpoint is named (epoch, seq), and the highest wins. A stint `E` restores the newest checkpoint of
//! an epoch below `E` and repeats it as (E, 0), its *fence*, before the program starts. Whatever an older
//! stint still uploads is below the fence and never wins, whatever the store's clock or the network do.
//! Every manifest of `E` also says what `E` began from, so that even when all of `E`'s own checkpoints are
//! damaged, what a stale stint saved behind its back is not taken for its past.

mod address;
mod depot;
mod directory;
mod error;
mod gang;
#[cfg(test)]
mod gang_tests;
mod located;
mod manifest;
mod mover;
mod names;
mod parcel;
mod probe;
mod prune;
mod relay;
mod remote;
mod restore;
mod save;
mod shards;
mod together;
mod tree;
mod unpack;
mod watch;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

pub use error::{CheckpointError, Culprit};
pub use gang::{Board, Ended, Fate, Gang, Gone, Restored, Word};
pub use located::{Located, located};
pub use manifest::{FORMAT, Ref};
pub use mover::{Finished, Mover, MoverEvent, MoverOptions, WorkAt};
pub use prune::Pruned;
pub use relay::{Access, serve_relay};
pub use restore::{Begun, Choose};
pub use save::Saved;
pub use together::Role;
pub use tree::{Snapshot, paths_in};
use unpack::Draft;
pub use watch::{Habits, WatchOptions, Watcher};

pub(crate) use address::store_identity;
use address::{Patience, StoreAddress};
use depot::Depot;
use error::Result;
use manifest::{FileEntry, Manifest};
pub(crate) use names::token;
use names::{is_job_key, manifest_key};
pub(crate) use tree::SnapFile;
use tree::Stamp;

/// How checkpoints are moved.
#[derive(Debug, Clone)]
pub struct Options {
    /// The job's environment: credentials and endpoints of the store.
    pub env: Vec<(String, String)>,
    /// How many files are sent or fetched at the same time.
    pub files_at_once: usize,
    /// Checkpoints of this job were saved before: a store without any is not the one they lie in.
    pub saved_before: bool,
    /// The last stint of the job that this one goes on from, by a person's order. What that saved last is what counts: that its
    /// program failed on it, and began from older ones or from nothing, does not.
    pub continues_after: u64,
}

impl Options {
    /// The usual settings, with a job's environment.
    pub fn with_env(env: impl IntoIterator<Item = (String, String)>) -> Self {
        Self { env: env.into_iter().collect(), files_at_once: 4, saved_before: false, continues_after: 0 }
    }
}

/// One checkpoint on the store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    pub name: Ref,
    /// When it was saved, in milliseconds since 1970.
    pub at_ms: u64,
    /// The progress it holds, where the job told.
    pub work: Option<u64>,
    pub files: usize,
    pub bytes: u64,
    /// The checkpoint it repeats, if it is a fence.
    pub copy_of: Option<Ref>,
    /// A fence of a stint that started from nothing.
    pub fresh: bool,
}

/// The checkpoints of one job in one store.
#[derive(Debug)]
pub struct Checkpoints {
    address: StoreAddress,
    job_key: String,
    depot: Box<dyn Depot>,
    files_at_once: usize,
    saved_before: bool,
    continues_after: u64,
    /// Writes the fences of this process: a fence that is there already may be our own of an earlier try.
    writer: String,
    /// What of the local files is on the store already.
    known: Mutex<Known>,
    /// What was fetched when the store went away in the middle of it.
    draft: Mutex<Option<Draft>>,
    /// One save or prune at a time: a prune would take a running save's blobs for left-overs.
    writing: tokio::sync::Mutex<()>,
    sent: Arc<std::sync::atomic::AtomicU64>,
}

/// What this process knows to be stored, so that it is not sent again.
#[derive(Debug, Default)]
struct Known {
    stint: Option<Stint>,
    /// What the stint began with; the store may have forgotten it since.
    fence: Option<Arc<Manifest>>,
    /// The content of the newest manifest of this stint.
    content: Option<(Ref, String)>,
    /// Contents that programs failed on.
    failed: Vec<String>,
    /// The newest saved or restored version of each path, and the local file it was.
    files: BTreeMap<PathBuf, (Option<Stamp>, FileEntry)>,
    by_size: HashMap<u64, Arc<Alike>>,
}

/// Stored files of one size. Very many files may have one, so each look takes one step.
#[derive(Debug, Clone, Default)]
struct Alike {
    by_hash: HashMap<String, FileEntry>,
    samples: BTreeSet<String>,
}

impl Alike {
    fn learn(&mut self, entry: &FileEntry) {
        self.samples.insert(entry.sample.clone());
        self.by_hash.insert(entry.hash.clone(), entry.clone());
    }
}

#[derive(Debug, Clone, Copy)]
struct Stint {
    epoch: u64,
    began_from: Option<Ref>,
}

impl Known {
    /// Only what the newest manifest refers to may be pointed to again: older blobs may be pruned.
    fn replace(&mut self, files: impl IntoIterator<Item = (PathBuf, Option<Stamp>, FileEntry)>) {
        self.files.clear();
        self.by_size.clear();
        for (path, stamp, entry) in files {
            Arc::make_mut(self.by_size.entry(entry.size).or_default()).learn(&entry);
            self.files.insert(path, (stamp, entry));
        }
    }

    fn learn(&mut self, stored: &[(PathBuf, Option<Stamp>, FileEntry)]) {
        for (path, stamp, entry) in stored {
            Arc::make_mut(self.by_size.entry(entry.size).or_default()).learn(entry);
            self.files.insert(path.clone(), (*stamp, entry.clone()));
        }
    }

    /// Blobs that are gone must not be pointed to again.
    fn forget(&mut self, gone: impl Fn(&str) -> bool) {
        self.files.retain(|_, (_, entry)| !gone(&entry.blob));
        for alike in self.by_size.values_mut() {
            Arc::make_mut(alike).by_hash.retain(|_, entry| !gone(&entry.blob));
        }
    }
}

impl Checkpoints {
    /// The checkpoints of job `job_key` in the store at `address` (a path, `file://`, `s3://bucket/prefix`,
    /// `gs://…`, `az://…`, or `relay:<socket>#<opening>` for a directory on the server's machine, where the
    /// server decides which job's it is). Nothing is contacted yet.
    pub fn open(address: &str, job_key: &str, options: Options) -> Result<Self> {
        if !is_job_key(job_key) {
            return Err(CheckpointError::Address {
                what: format!("not a job's key: {job_key}"),
                hint: "use letters, digits, '-', '_' and '.'".into(),
            });
        }
        let address = StoreAddress::read(address, options.env)?;
        let depot = connect(&address, job_key, Patience::Work, options.saved_before)?;
        Ok(Self {
            address,
            job_key: job_key.to_owned(),
            depot,
            files_at_once: options.files_at_once.max(1),
            saved_before: options.saved_before,
            continues_after: options.continues_after,
            writer: token(),
            known: Mutex::default(),
            draft: Mutex::default(),
            writing: tokio::sync::Mutex::default(),
            sent: Arc::default(),
        })
    }

    /// Every checkpoint on the store, oldest first. Unreadable manifests are left out.
    pub async fn list(&self) -> Result<Vec<Listed>> {
        let mut listed = Vec::new();
        for name in self.names().await? {
            if let Some(Ok(manifest)) = self.read_manifest(name).await? {
                listed.push(Listed {
                    name,
                    at_ms: manifest.at_ms,
                    work: manifest.work,
                    files: manifest.files.len(),
                    bytes: manifest.bytes(),
                    copy_of: manifest.copy_of,
                    fresh: manifest.fresh,
                });
            }
        }
        Ok(listed)
    }

    /// Whether there is anything to begin again from.
    pub async fn has_any(&self) -> Result<bool> {
        Ok(self.list().await?.iter().any(|listed| !listed.fresh))
    }

    /// The last stint that has begun, or was about to; none where nothing was ever saved.
    pub async fn last_epoch(&self) -> Result<Option<u64>> {
        self.successor(0).await
    }

    /// Bytes handed to the store since this was opened; moves while a save runs.
    pub fn bytes_sent(&self) -> u64 {
        self.sent.load(std::sync::atomic::Ordering::Relaxed)
    }

    /// Files of the newest checkpoint that its program wrote to without a pause.
    pub fn streams(&self) -> BTreeSet<PathBuf> {
        let known = self.known();
        known.files.iter().filter(|(_, (_, entry))| entry.stream).map(|(path, _)| path.clone()).collect()
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The names of all manifests, oldest first.
    async fn names(&self) -> Result<Vec<Ref>> {
        let mut names: Vec<Ref> =
            self.depot.list("manifests").await?.iter().filter_map(|name| Ref::from_file_name(name)).collect();
        names.sort();
        Ok(names)
    }

    /// None: it is gone. Some(Err): it is there and cannot be used, for this reason.
    async fn read_manifest(&self, name: Ref) -> Result<Option<std::result::Result<Manifest, String>>> {
        let Some(body) = self.depot.get(&manifest_key(name)).await? else { return Ok(None) };
        #[derive(serde::Deserialize)]
        struct Version {
            format: u32,
        }
        if let Ok(Version { format }) = serde_json::from_slice(&body)
            && format > FORMAT
        {
            return Err(CheckpointError::TooNew { name, format, ours: FORMAT });
        }
        let read = serde_json::from_slice::<Manifest>(&body).map_err(|e| format!("its manifest cannot be read: {e}"));
        Ok(Some(read.and_then(|manifest| {
            if manifest.name != name {
                return Err(format!("its manifest names another: {}", manifest.name));
            }
            manifest.check().map(|()| manifest)
        })))
    }

    async fn create_manifest(&self, manifest: &Manifest) -> Result<()> {
        let body = serde_json::to_vec(manifest).map_err(|e| CheckpointError::Task(e.to_string()))?;
        if self.depot.create(&manifest_key(manifest.name), body.into()).await? {
            Ok(())
        } else {
            Err(CheckpointError::Taken { name: manifest.name })
        }
    }

    /// The highest stint above `epoch` that has begun or is about to.
    async fn successor(&self, epoch: u64) -> Result<Option<u64>> {
        let claims = self.depot.list("claims").await?;
        let claimed = claims.iter().filter_map(|name| name.parse::<u64>().ok()).max();
        let begun = self.names().await?.last().map(|name| name.epoch);
        Ok(claimed.max(begun).filter(|&highest| highest > epoch))
    }
}

/// `seen`: the job's directory was there before, so it is not made anew.
fn connect(address: &StoreAddress, job_key: &str, patience: Patience, seen: bool) -> Result<Box<dyn Depot>> {
    Ok(match address {
        StoreAddress::Directory(path) => Box::new(directory::DirectoryDepot::new(path.join(job_key), seen)),
        StoreAddress::Relay(relay) => Box::new(relay::RelayDepot::new(relay.clone(), seen)),
        StoreAddress::Remote(remote) => {
            let base = format!("{}/{job_key}", remote.prefix).trim_start_matches('/').to_owned();
            Box::new(remote::RemoteDepot::connect(remote.clone(), base, patience)?)
        }
    })
}
