//! What is to be on the machine before the program starts: its folder, unpacked and set up once for all workers of the same
//! content, and what goes back from there when the program has ended.

use super::files::write_whole;
use super::last_save::ends;
use super::state::{Asked, WorkerRun, cannot_run, could_not, never_ran};
use crate::checkpoint::{CheckpointError, Ref, paths_in};
use crate::folder::remove_tree;
use crate::parcels::{self, LeftOut};
use futures::FutureExt;
use rustix::fs::{FlockOperation, flock};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};
use windfall_core::worker::{OutputsOrder, Provision};
use windfall_core::{Trouble, TroubleKind, WorkerEnd};

/// How often it is looked whether another worker has done the same.
const LOOK: Duration = Duration::from_millis(100);
/// What nobody has used for this long is removed.
const UNUSED: Duration = Duration::from_secs(14 * 24 * 3_600);
/// How a folder with outputs that could not be sent is called; the epoch follows.
pub(super) const KEPT_OUTPUTS: &str = "unsaved-outputs-";
/// How the mark beside it ends while they are on their way.
pub(super) const PENDING: &str = ".pending";
/// So many of what could not be sent are named.
const NAMED: usize = 3;
/// Kept at most: contents that nobody uses now, the last used first.
const KEPT: usize = 8;

/// A folder that this machine has, unpacked and set up. It stays for as long as this is held.
pub(super) struct Provided {
    pub folder: PathBuf,
    /// What of it came with the parcel, by path: its program may write to that, so each stint has its own.
    pub own: Arc<BTreeSet<PathBuf>>,
    _used: File,
}

impl WorkerRun {
    /// Unpacks and sets up what the order names, or waits until another worker on this machine has. None where the
    /// program runs in the folder of its user.
    pub(super) async fn provide(&mut self) -> Result<Option<Provided>, WorkerEnd> {
        let Some(provision) = self.order.provision.clone() else { return Ok(None) };
        let place = PathBuf::from(&provision.place);
        let cannot = |error: io::Error| could_not(format!("{} cannot be used", provision.place), &error);
        std::fs::create_dir_all(&place).map_err(cannot)?;
        let name = name_of(&provision);
        let (here, ready) = (place.join(&name), place.join(format!("{name}.ready")));
        let lock_path = place.join(format!("{name}.lock"));
        let lock = loop {
            let lock = File::options().create(true).append(true).open(&lock_path).map_err(cannot)?;
            let (is_ready, wanted) = match ready.exists() {
                true => (true, FlockOperation::NonBlockingLockShared),
                false => (false, FlockOperation::NonBlockingLockExclusive),
            };
            let is_held = flock(&lock, wanted).is_ok();
            // A sweeper removes a lock with what it is of: it counts only where others find it too. And what it is of may
            // have been removed, or become ready, in between.
            if is_held && is_at(&lock, &lock_path) && ready.exists() == is_ready {
                if is_ready {
                    break lock;
                }
                // First: what is left of others may be what there is no room for.
                self.sweep(&place).await;
                if let Err(end) = self.prepare(&provision, &here, &ready).await {
                    // What it left would take the room of the next.
                    let _ = self.discard(&here).await;
                    return Err(end);
                }
                continue;
            }
            if !is_held && !is_ready {
                self.remark(Some("it waits for another worker here, which unpacks and sets up the same folder"));
            }
            drop(lock);
            tokio::select! {
                () = tokio::time::sleep(LOOK) => {}
                Some(_) = self.told.recv() => return Err(WorkerEnd::Stopped),
            }
        };
        self.remark(None);
        // When it was last used.
        let _ = File::options().append(true).open(&ready).and_then(|file| file.set_modified(SystemTime::now()));
        self.sweep(&place).await;
        let own = std::fs::read(&ready).map_err(cannot)?;
        let own = own.split(|byte| *byte == 0).filter(|path| !path.is_empty());
        let own = own.map(|path| PathBuf::from(OsStr::from_bytes(path))).collect();
        Ok(Some(Provided { folder: here, own: Arc::new(own), _used: lock }))
    }

    /// Says what takes long, for people.
    fn remark(&self, text: Option<&str>) {
        let remark = text.map(|text| Trouble { kind: TroubleKind::Remark, text: text.to_owned() });
        self.change(|worker| worker.trouble = remark);
    }

    async fn sweep(&self, place: &Path) {
        let place = place.to_owned();
        let _ = tokio::task::spawn_blocking(move || remove_unused(&place, KEPT)).await;
    }

    /// This worker has found no room: removes what it had copied, and whatever nobody here uses now.
    pub(super) async fn leave_room(&self) {
        // Other ranks of a gang may still be in the copy.
        if self.order.world_size == 1 {
            let copy = self.job_folder().join(format!("folder-{}", self.order.stint.epoch));
            let _ = std::fs::remove_file(copy.with_extension("done"));
            let _ = self.discard(&copy).await;
        }
        if let Some(provision) = &self.order.provision {
            let place = PathBuf::from(&provision.place);
            let _ = tokio::task::spawn_blocking(move || remove_unused(&place, 0)).await;
        }
    }

    async fn discard(&self, folder: &Path) -> io::Result<()> {
        let folder = folder.to_owned();
        tokio::task::spawn_blocking(move || remove_tree(&folder)).await.map_err(io::Error::other)?
    }

    /// Fetches the parcel and runs the setup in its folder. Once `ready` is there, all of it is; it names what came.
    async fn prepare(&mut self, provision: &Provision, here: &Path, ready: &Path) -> Result<(), WorkerEnd> {
        let cannot = |error: io::Error| could_not(format!("{} cannot be made", here.display()), &error);
        // An earlier try that was cut off.
        if here.exists() {
            self.discard(here).await.map_err(cannot)?;
        }
        std::fs::create_dir_all(here).map_err(cannot)?;
        let parcel = &provision.parcel;
        let parcels = parcels::open(&parcel.store, &parcel.key, &self.order.env).map_err(cannot_run)?;
        let name = Ref::new(parcel.name.epoch, parcel.name.seq);
        let parcels = &parcels;
        let content = parcel.content.as_str();
        let unpack = move || async move { parcels.unpack(name, here, Some(content), &|_| true).await }.boxed();
        self.patiently(unpack).await?;
        let folder = here.to_owned();
        let own = tokio::task::spawn_blocking(move || paths_in(&folder)).await;
        let own = own.map_err(|error| CheckpointError::Task(error.to_string())).flatten().map_err(cannot_run)?;
        if let Some(line) = &provision.setup {
            self.set_up(here, line).await?;
        }
        let own: Vec<&[u8]> = own.iter().map(|path| path.as_os_str().as_bytes()).collect();
        write_whole(ready, &own.join(&0)).map_err(cannot)
    }

    async fn set_up(&mut self, folder: &Path, line: &str) -> Result<(), WorkerEnd> {
        if let Ok(mut output) = File::options().create(true).append(true).open(&self.order.output) {
            // Whoever reads the program's output sees where the setup's begins.
            let _ = writeln!(output, "[setup] {}", line.lines().next().unwrap_or_default());
        }
        let words = ["/bin/sh", "-ec", line].map(str::to_owned);
        let mut program = self.spawn_in(folder, &words, Vec::new())?;
        self.remark(Some("its setup runs"));
        // What it printed may hold a secret, and a reason is kept for good: the reason is in the output.
        let end = self.finish(&mut program, folder).await?;
        let how = match end.code {
            Some(0) => return Ok(()),
            Some(code) => format!("its setup ended with exit code {code}"),
            None => "its setup died of a signal".to_owned(),
        };
        Err(match end.found_no_room {
            true => WorkerEnd::NoRoom { why: format!("{how}, and the disk was full meanwhile: see its output") },
            false => never_ran(how + ": see its output"),
        })
    }

    /// Sends what the job brings back, and tells whether that, if there is anything, is in the store. The lowest rank does it
    /// for those that share its folder.
    pub(super) async fn bring_back(&mut self, folder: &Path, asked: Option<Asked>) -> bool {
        if !self.is_first_in_folder() {
            return true;
        }
        self.try_to_bring_back(folder, asked).await
    }

    /// While this is there, what a job leaves is only here, or its last save: whoever clears up leaves it alone, also where
    /// this agent is killed before it is sent.
    pub(super) fn owes(&self) -> PathBuf {
        self.job_folder().join(format!("{KEPT_OUTPUTS}{}{PENDING}", self.order.stint.epoch))
    }

    /// What earlier stints kept here because it could not be sent counts no longer: this one has sent its own.
    fn forget_earlier_outputs(&self) {
        for entry in std::fs::read_dir(self.job_folder()).into_iter().flatten().flatten() {
            let name = entry.file_name();
            let epoch = name.to_str().and_then(|name| name.strip_prefix(KEPT_OUTPUTS)?.parse::<u64>().ok());
            if epoch.is_some_and(|epoch| epoch < self.order.stint.epoch) {
                let _ = remove_tree(&entry.path());
            }
        }
    }

    async fn try_to_bring_back(&mut self, folder: &Path, asked: Option<Asked>) -> bool {
        let Some(outputs) = self.order.outputs.clone() else { return true };
        let usual = Instant::now() + Duration::from_millis(self.order.last_upload_ms);
        let mut until = asked.map_or(usual, Asked::until_sent);
        let mut wait = LOOK;
        // What is lost already stays said.
        let unsaved = self.shown().and_then(|worker| worker.trouble);
        let unsaved = unsaved.filter(|known| matches!(known.kind, TroubleKind::NotSaved | TroubleKind::NotReturned));
        let (epoch, rank) = (self.order.stint.epoch, self.order.rank);
        let failed = loop {
            let env = self.order.env.clone();
            let (from, outputs) = (folder.to_owned(), outputs.clone());
            let mut sending = std::pin::pin!(send_outputs(from, outputs, env, (rank, epoch)));
            let sent = loop {
                tokio::select! {
                    sent = &mut sending => break Some(sent),
                    () = tokio::time::sleep_until(until.into()) => break None,
                    Some(tell) = self.told.recv() => until = ends(tell).map_or(until, |ends| until.min(ends)),
                }
            };
            let failed = match sent {
                Some(Ok(left_out)) if left_out.is_empty() => {
                    self.forget_earlier_outputs();
                    self.change(|worker| {
                        if worker.trouble.as_ref().is_some_and(|trouble| trouble.kind.is_of_the_store()) {
                            worker.trouble = unsaved;
                        }
                    });
                    return true;
                }
                Some(Ok(left_out)) => {
                    break missing(&left_out);
                }
                // What lies here will not be otherwise the next time.
                Some(Err(error)) if !error.is_store_away() => break none_of_them(&error.trouble().text),
                Some(Err(error)) => error.trouble(),
                None => break none_of_them("the time was too short"),
            };
            if Instant::now() + wait >= until {
                break none_of_them(&failed.text);
            }
            self.change(|worker| worker.trouble = Some(failed));
            tokio::time::sleep(wait).await;
            wait = (wait * 2).min(Duration::from_secs(5));
        };
        // Folders of this name are kept when all else of a job is removed.
        let kept = self.job_folder().join(format!("{KEPT_OUTPUTS}{epoch}"));
        let is_copy = folder.starts_with(self.job_folder()) && self.is_quiet_in_folder();
        let place = if is_copy && std::fs::rename(folder, &kept).is_ok() { kept } else { folder.to_owned() };
        let text = format!("{failed}; they lie{} in: {}", super::files::on_machine(&self.order), place.display());
        let lost = Trouble { kind: TroubleKind::NotReturned, text };
        // Of saves rank 0 speaks for all: what another rank says of its own is heard with its outputs.
        let all = unsaved.map_or(lost.clone(), |unsaved| unsaved.and(&lost));
        let kind = if self.order.rank == 0 { all.kind } else { lost.kind };
        self.change(|worker| worker.trouble = Some(Trouble { kind, ..all }));
        false
    }
}

fn none_of_them(why: &str) -> String {
    format!("its outputs could not be brought back: {why}")
}

/// Names what is missing of outputs, where the rest came back.
fn missing(left_out: &[LeftOut]) -> String {
    let named = left_out.iter().take(NAMED).map(|(path, why)| format!("{} ({why})", path.display()));
    let more = left_out.len().saturating_sub(NAMED);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    format!("not all of its outputs were brought back: {}{more} missing", named.collect::<Vec<_>>().join(", "))
}

/// Sends what is there of outputs, and tells what of it is named and cannot be sent.
async fn send_outputs(
    folder: PathBuf,
    outputs: OutputsOrder,
    env: BTreeMap<String, String>,
    (rank, epoch): (u32, u64),
) -> Result<Vec<LeftOut>, CheckpointError> {
    if !folder.is_dir() {
        // Its program has removed it: there is nothing that could be lost.
        return Ok(Vec::new());
    }
    let looked = tokio::task::spawn_blocking(move || parcels::outputs_in(&folder, &outputs.paths)).await;
    let (snapshot, left_out) = looked.map_err(|error| CheckpointError::Task(error.to_string()))??;
    if snapshot.files() > 0 {
        parcels::open(&outputs.store, &outputs.key, &env)?.pack_of(rank, epoch, &snapshot).await?;
    }
    Ok(left_out)
}

/// What is unpacked and set up alike has one name on a machine.
fn name_of(provision: &Provision) -> String {
    let mut hasher = blake3::Hasher::new();
    // What the job's own variables are counts only where a setup may have looked at them.
    let variant = provision.setup.as_ref().map_or("", |_| &provision.variant);
    for part in [provision.parcel.content.as_str(), provision.setup.as_deref().unwrap_or_default(), variant] {
        hasher.update(&(part.len() as u64).to_le_bytes());
        hasher.update(part.as_bytes());
    }
    hasher.finalize().to_hex()[..32].to_owned()
}

/// Whether a file is the one that has this path.
fn is_at(file: &File, path: &Path) -> bool {
    let inode = |meta: io::Result<std::fs::Metadata>| meta.map(|meta| (meta.dev(), meta.ino())).ok();
    inode(file.metadata()).is_some_and(|own| inode(std::fs::metadata(path)) == Some(own))
}

/// Removes what was not used for long, and all but the last used of what nobody uses now: `keep` of them stay.
fn remove_unused(place: &Path, keep: usize) {
    let entries = std::fs::read_dir(place).into_iter().flatten().flatten();
    let modified = |path: &Path| std::fs::metadata(path).and_then(|meta| meta.modified()).ok();
    let names = entries.filter_map(|entry| Some(entry.file_name().to_str()?.strip_suffix(".lock")?.to_owned()));
    let mut known: Vec<(Option<SystemTime>, String)> =
        names.map(|name| (modified(&place.join(format!("{name}.ready"))), name)).collect();
    known.sort_by(|a, b| b.cmp(a));
    for (n, (used_at, name)) in known.iter().enumerate() {
        // One that never got ready is of somebody who was killed, or who is at it now and has the lock.
        let is_old = used_at.is_none_or(|at| at.elapsed().is_ok_and(|since| since > UNUSED));
        if n < keep && !is_old {
            continue;
        }
        let lock = place.join(format!("{name}.lock"));
        let Ok(file) = File::options().append(true).open(&lock) else { continue };
        let is_as_seen = || modified(&place.join(format!("{name}.ready"))) == *used_at;
        if flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok() && is_as_seen() {
            let _ = std::fs::remove_file(place.join(format!("{name}.ready")));
            let _ = remove_tree(&place.join(name));
            if !place.join(name).exists() {
                let _ = std::fs::remove_file(&lock);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_of_outputs_is_named_and_the_rest_is_counted() {
        let left_out: Vec<LeftOut> = (0..5).map(|n| (PathBuf::from(format!("r/{n}")), "it cannot be read")).collect();
        assert_eq!(
            missing(&left_out[..1]),
            "not all of its outputs were brought back: r/0 (it cannot be read) missing"
        );
        assert!(missing(&left_out).ends_with("r/2 (it cannot be read) and 2 more missing"), "{}", missing(&left_out));
    }
    /// A content that was last used so long ago, or never got ready.
    fn content(place: &Path, name: &str, age: Option<Duration>) -> File {
        std::fs::create_dir_all(place.join(name).join("closed")).expect("made");
        if let Some(age) = age {
            let ready = File::create(place.join(format!("{name}.ready"))).expect("made");
            ready.set_modified(SystemTime::now() - age).expect("set");
        }
        File::create(place.join(format!("{name}.lock"))).expect("made")
    }

    #[test]
    fn a_machine_keeps_what_is_used_and_the_last_used_of_the_rest() {
        let dir = tempfile::tempdir().expect("a folder");
        let place = dir.path();
        let minutes = |n: u64| Some(Duration::from_secs(60 * n));
        for n in 0..KEPT as u64 + 2 {
            content(place, &format!("content-{n}"), minutes(n));
        }
        content(place, "cut-off", None);
        let at_work = content(place, "at-work", None);
        flock(&at_work, FlockOperation::NonBlockingLockExclusive).expect("locked");
        let in_use = content(place, "in-use", minutes(60 * 24 * 30));
        flock(&in_use, FlockOperation::NonBlockingLockShared).expect("locked");
        content(place, "old", minutes(60 * 24 * 30));
        remove_unused(place, KEPT);
        let left = |ending: &str| {
            let names = std::fs::read_dir(place).expect("listed").flatten().map(|entry| entry.file_name());
            let names = names.filter_map(|name| Some(name.to_str()?.strip_suffix(ending)?.to_owned()));
            names.filter(|name| !name.contains('.')).collect::<BTreeSet<String>>()
        };
        let kept: BTreeSet<String> = (0..KEPT).map(|n| format!("content-{n}")).collect();
        let of_others = ["at-work", "in-use"].map(str::to_owned);
        assert_eq!(left(""), kept.iter().cloned().chain(of_others.clone()).collect());
        assert_eq!(left(".lock"), left(""), "locks go with what they are of");
        assert!(!place.join("old.ready").exists() && place.join("in-use.ready").exists());

        let gone = File::open(place.join("in-use.lock")).expect("there");
        assert!(is_at(&gone, &place.join("in-use.lock")));
        std::fs::remove_file(place.join("in-use.lock")).expect("removed");
        File::create(place.join("in-use.lock")).expect("made");
        assert!(!is_at(&gone, &place.join("in-use.lock")), "another one has its name");
    }

    #[test]
    fn what_is_set_up_alike_has_one_name() {
        let provision = |content: &str, setup: Option<&str>, variant: &str| Provision {
            place: String::new(),
            parcel: windfall_core::worker::ParcelOrder {
                store: String::new(),
                key: String::new(),
                name: windfall_core::CheckpointId { epoch: 1, seq: 1 },
                content: content.to_owned(),
            },
            setup: setup.map(str::to_owned),
            variant: variant.to_owned(),
        };
        let name = |content, setup, variant| name_of(&provision(content, setup, variant));
        assert_eq!(name("a", None, "x"), name("a", None, "y"), "without a setup nobody looks at variables");
        let all = [
            name("a", Some("make"), "x"),
            name("a", Some("make"), "y"),
            name("a", Some("mak"), "ex"),
            name("b", Some("make"), "x"),
        ];
        assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), all.len());
    }
}
