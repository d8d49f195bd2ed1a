//! A job's folder, for what its programs print, and what agents are told of a job's files and stores.

use crate::dispatch::{JobFolders, StoreAccess};
use crate::home::Home;
use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use windfall_core::worker::{OutputsOrder, ParcelOrder, Provision, StartOrder};
use windfall_core::{Brain, JobSpec, Span, StintId, WorkloadId};

/// Makes the folder for what a job's programs print, and for how they end.
pub fn make(folder: &Path) -> io::Result<()> {
    std::fs::create_dir_all(folder)
}

/// Files that are removed of one job at one look.
const MOST_REMOVED: u64 = 10_000_000;

/// Removes the folders of jobs, by their keys, in which nothing was written for so long. Those of live jobs stay.
pub fn drop_old(folders: &Path, live: &BTreeSet<String>, unused: Duration) {
    let Ok(entries) = std::fs::read_dir(folders) else { return };
    for entry in entries.flatten() {
        let is_live = entry.file_name().to_str().is_none_or(|key| live.contains(key));
        if !is_live && is_unused(&entry.path(), unused) {
            // What programs left in there may be of any size; what is left of it goes when it is old again.
            let _ = windfall_exec::remove_tree(&entry.path(), MOST_REMOVED);
        }
    }
}

/// Whether neither a folder nor a file right in it was written for so long.
fn is_unused(folder: &Path, long: Duration) -> bool {
    let files = std::fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    let old = |path: PathBuf| {
        let written = std::fs::symlink_metadata(path).and_then(|meta| meta.modified()).ok();
        written.and_then(|at| at.elapsed().ok()).is_some_and(|age| age > long)
    };
    std::iter::once(folder.to_owned()).chain(files).all(old)
}

/// The job folders of a state directory.
#[derive(Clone)]
pub struct Folders {
    /// Where the folders are.
    pub home: Arc<Home>,
    /// How many times faster than life the world runs.
    pub speed: u32,
    /// See [`crate::home::WorldSettings::fresh_folder`].
    pub fresh_folder: bool,
}

/// The file that takes the output of one worker.
pub fn output_file(folder: &Path, epoch: u64, rank: u32) -> PathBuf {
    folder.join(format!("stint-{epoch:05}-{rank}.log"))
}

impl Folders {
    fn checkpoint_store(&self, spec: &JobSpec) -> String {
        let named = &spec.checkpoint.store;
        if named.is_empty() { self.home.checkpoints().to_string_lossy().into_owned() } else { named.clone() }
    }
}

/// How long the last upload of an ended program is tried, in the world's time.
const LAST_UPLOAD: Span = Span::minutes(10);
/// The least real time for it: stores and networks do not run faster because a world does.
const LAST_UPLOAD_LEAST_MS: u64 = 10_000;

impl JobFolders for Folders {
    fn store_access(&self, brain: &Brain, workload: WorkloadId) -> Option<StoreAccess> {
        let job = brain.job(workload)?;
        let spec = &job.spec;
        Some(StoreAccess {
            address: self.checkpoint_store(spec),
            key: spec.checkpoint_key().to_owned(),
            env: spec.run.env.clone(),
            secrets: spec.run.luggage().secrets.clone(),
            owner: spec.owner.clone(),
            saved_before: job.progress.checkpoint.is_some()
                || spec.continues.as_ref().is_some_and(|from| from.durable.0 > 0),
        })
    }

    fn start_order(&self, brain: &Brain, stint: StintId, rank: u32) -> Option<StartOrder> {
        let job = brain.job(stint.workload)?;
        let known = job.stint.as_ref().filter(|known| known.id == stint)?;
        let folder = self.home.job(&job.spec.run.environment);
        let mut env = job.spec.run.env.clone();
        let offer = known.leases().next().and_then(|lease| brain.offer(&brain.lease(lease)?.offer));
        let smaller = offer.and_then(|offer| job.smaller(offer)).map(|smaller| &smaller.precision);
        if let Some(precision) = smaller.or(job.spec.precision.as_ref()) {
            env.insert("WINDFALL_PRECISION".to_owned(), precision.clone());
        }
        let (checkpoint, luggage) = (&job.spec.checkpoint, job.spec.run.luggage());
        let store = self.checkpoint_store(&job.spec);
        let key = job.spec.checkpoint_key().to_owned();
        let provision = luggage.parcel.as_ref().map(|parcel| Provision {
            place: self.home.folders().to_string_lossy().into_owned(),
            parcel: ParcelOrder {
                store: store.clone(),
                key: parcel.key.clone(),
                name: parcel.name,
                content: parcel.content.clone(),
            },
            setup: luggage.setup.clone(),
            variant: String::new(),
        });
        let outputs = (!luggage.outputs.is_empty()).then(|| OutputsOrder {
            store: store.clone(),
            // Its own also where it goes on from another's checkpoints: each job has what it left itself.
            key: windfall_agent::outputs_key(&job.spec.run.environment),
            paths: luggage.outputs.clone(),
        });
        Some(StartOrder {
            stint,
            rank,
            owner: job.spec.owner.clone(),
            refused: None,
            machine: String::new(),
            world_size: known.size(),
            // Who has the first rank chooses the port. An agent of an earlier version takes this one.
            master: ("127.0.0.1".to_owned(), 20_000 + (stint.workload.0 % 10_000) as u16),
            command: job.spec.run.command.clone(),
            folder: job.spec.run.folder.clone(),
            fresh_folder: self.fresh_folder,
            provision,
            outputs,
            secrets: luggage.secrets.clone(),
            env,
            devices: None,
            share: None,
            output: output_file(&folder, stint.epoch, rank).to_string_lossy().into_owned(),
            progress: job.spec.run.progress.clone(),
            checkpoint_dir: checkpoint.path.clone().or_else(|| shared_saves(&folder, stint, known.size() as usize)),
            checkpoint_inside: checkpoint.inside.clone(),
            checkpoint_store: store,
            checkpoint_key: key,
            keep: checkpoint.keep,
            settle_ms: checkpoint.settle_ms,
            complete: checkpoint.complete.clone(),
            last_upload_ms: (LAST_UPLOAD.0.unsigned_abs() / u64::from(self.speed.max(1))).max(LAST_UPLOAD_LEAST_MS),
            resume: known.resume,
            continues_after: job.spec.continues.as_ref().map_or(0, |from| from.epoch),
            foreign: Vec::new(),
        })
    }
}

/// The ranks of a gang on one machine save into one directory, which rank 0 moves.
fn shared_saves(folder: &Path, stint: StintId, gang: usize) -> Option<String> {
    (gang > 1).then(|| folder.join(format!("saves-{}", stint.epoch)).to_string_lossy().into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_old_jobs_printed_goes_and_what_is_live_or_new_stays() {
        let folder = tempfile::tempdir().expect("a file");
        let long_ago = std::time::SystemTime::now() - Duration::from_secs(100);
        let set = |path: &Path| std::fs::File::open(path).expect("a file").set_modified(long_ago).expect("a file");
        for name in ["old", "live", "written"] {
            make(&folder.path().join(name)).expect("a file");
            std::fs::write(folder.path().join(name).join("stint-00001-0.log"), "done").expect("a file");
            set(&folder.path().join(name));
        }
        ["old", "live"].iter().for_each(|name| set(&folder.path().join(name).join("stint-00001-0.log")));
        drop_old(folder.path(), &BTreeSet::from(["live".to_owned()]), Duration::from_secs(50));
        let left = std::fs::read_dir(folder.path()).expect("a file").map(|entry| entry.expect("a file").file_name());
        assert_eq!(left.collect::<BTreeSet<_>>(), BTreeSet::from(["live".into(), "written".into()]));
    }

    #[test]
    fn only_the_ranks_of_a_gang_share_a_directory() {
        let stint = StintId::of_job(windfall_core::WorkloadId(1), 3);
        assert_eq!(shared_saves(Path::new("/job"), stint, 1), None);
        assert_eq!(shared_saves(Path::new("/job"), stint, 2).as_deref(), Some("/job/saves-3"));
    }
}
