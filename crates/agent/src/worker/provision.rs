//! What is to be on the machine before the program starts: its folder, unpacked and set up once for all workers of the same
//! content, and what goes back from there when the program has ended.

use super::state::{WorkerRun, cannot_run, never_ran};
use crate::checkpoint::{CheckpointError, Ref};
use crate::parcels;
use futures::FutureExt;
use rustix::fs::{FlockOperation, flock};
use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};
use windfall_core::worker::Provision;
use windfall_core::{Trouble, TroubleKind, WorkerEnd};

/// How often it is looked whether another worker has done the same.
const LOOK: Duration = Duration::from_millis(100);
/// What nobody has used for this long is removed.
const UNUSED: Duration = Duration::from_secs(14 * 24 * 3_600);
/// Kept at most: contents that nobody uses now, the last used first.
const KEPT: usize = 8;
/// How much of a failed setup's output is shown as the reason.
const LAST_LINE: usize = 200;

/// A folder that this machine has, unpacked and set up. It stays for as long as this is held.
pub(super) struct Provided {
    pub folder: PathBuf,
    _used: File,
}

impl WorkerRun {
    /// Unpacks and sets up what the order names, or waits until another worker on this machine has. None where the
    /// program runs in the folder of its user.
    pub(super) async fn provide(&mut self) -> Result<Option<Provided>, WorkerEnd> {
        let Some(provision) = self.order.provision.clone() else { return Ok(None) };
        let place = PathBuf::from(&provision.place);
        let cannot = |error: std::io::Error| never_ran(format!("{} cannot be used: {error}", provision.place));
        std::fs::create_dir_all(&place).map_err(cannot)?;
        let name = name_of(&provision);
        let (here, ready) = (place.join(&name), place.join(format!("{name}.ready")));
        let lock =
            File::options().create(true).append(true).open(place.join(format!("{name}.lock"))).map_err(cannot)?;
        loop {
            let (is_ready, wanted) = match ready.exists() {
                true => (true, FlockOperation::NonBlockingLockShared),
                false => (false, FlockOperation::NonBlockingLockExclusive),
            };
            if flock(&lock, wanted).is_ok() {
                // It may have been removed, or become ready, in between.
                if ready.exists() == is_ready {
                    if !is_ready {
                        self.prepare(&provision, &here).await?;
                        std::fs::write(&ready, &name).map_err(cannot)?;
                        flock(&lock, FlockOperation::LockShared).map_err(|error| cannot(error.into()))?;
                    }
                    break;
                }
                let _ = flock(&lock, FlockOperation::Unlock);
            }
            tokio::select! {
                () = tokio::time::sleep(LOOK) => {}
                Some(_) = self.told.recv() => return Err(WorkerEnd::Stopped),
            }
        }
        // When it was last used.
        let _ = File::options().append(true).open(&ready).and_then(|file| file.set_modified(SystemTime::now()));
        let sweep = place.clone();
        let _ = tokio::task::spawn_blocking(move || remove_unused(&sweep)).await;
        Ok(Some(Provided { folder: here, _used: lock }))
    }

    /// Fetches the parcel and runs the setup in its folder.
    async fn prepare(&mut self, provision: &Provision, here: &Path) -> Result<(), WorkerEnd> {
        let cannot = |error: std::io::Error| never_ran(format!("{} cannot be made: {error}", here.display()));
        // An earlier try that was cut off.
        if here.exists() {
            std::fs::remove_dir_all(here).map_err(cannot)?;
        }
        std::fs::create_dir_all(here).map_err(cannot)?;
        let parcel = &provision.parcel;
        let parcels = parcels::open(&parcel.store, &parcel.key, &self.order.env).map_err(cannot_run)?;
        let name = Ref::new(parcel.name.epoch, parcel.name.seq);
        let parcels = &parcels;
        self.patiently(move || async move { parcels.unpack(name, here, &|_| true).await }.boxed()).await?;
        match &provision.setup {
            Some(line) => self.set_up(here, line).await,
            None => Ok(()),
        }
    }

    async fn set_up(&mut self, folder: &Path, line: &str) -> Result<(), WorkerEnd> {
        let mut output = File::options().create(true).append(true).read(true).open(&self.order.output);
        if let Ok(output) = &mut output {
            // Whoever reads the program's output sees where the setup's begins.
            let _ = writeln!(output, "[setup] {}", line.lines().next().unwrap_or_default());
        }
        let words = ["/bin/sh", "-ec", line].map(str::to_owned);
        let mut program = self.spawn_in(folder, &words, Vec::new())?;
        let how = match self.finish(&mut program).await? {
            Some(0) => return Ok(()),
            Some(code) => format!("exit code {code}"),
            None => "a signal".to_owned(),
        };
        let last = output.ok().and_then(last_line).map(|line| format!(": {line}")).unwrap_or_default();
        Err(never_ran(format!("its setup ended with {how}{last}")))
    }

    /// Sends what the job brings back, and tells whether that, if there is anything, is in the store. Rank 0 does it for
    /// those that share its folder.
    pub(super) async fn bring_back(&mut self, folder: &Path, asked: Option<Instant>) -> bool {
        let Some(outputs) = self.order.outputs.clone().filter(|_| self.order.rank == 0) else { return true };
        let usual = Instant::now() + Duration::from_millis(self.order.last_upload_ms);
        let until = asked.unwrap_or(usual);
        let mut wait = LOOK;
        let failed = loop {
            let sending = async {
                let (from, paths) = (folder.to_owned(), outputs.paths.clone());
                let looked = tokio::task::spawn_blocking(move || parcels::outputs_in(&from, &paths)).await;
                let snapshot = looked.map_err(|error| CheckpointError::Task(error.to_string()))??;
                if snapshot.files() == 0 {
                    return Ok(());
                }
                let parcels = parcels::open(&outputs.store, &outputs.key, &self.order.env)?;
                parcels.pack(self.order.stint.epoch, &snapshot).await.map(|_| ())
            };
            let failed = match tokio::time::timeout_at(until.into(), sending).await {
                Ok(Ok(())) => return true,
                Ok(Err(error)) => error.trouble().text,
                Err(_) => break "the time was too short".to_owned(),
            };
            if Instant::now() + wait >= until {
                break failed;
            }
            tokio::time::sleep(wait).await;
            wait = (wait * 2).min(Duration::from_secs(5));
        };
        let text = format!("its outputs could not be brought back: {failed}; they lie in: {}", folder.display());
        self.change(|worker| worker.trouble = Some(Trouble { kind: TroubleKind::NotSaved, text }));
        false
    }
}

/// What is unpacked and set up alike has one name on a machine.
fn name_of(provision: &Provision) -> String {
    let mut hasher = blake3::Hasher::new();
    for part in [provision.parcel.content.as_str(), provision.setup.as_deref().unwrap_or_default()] {
        hasher.update(&(part.len() as u64).to_le_bytes());
        hasher.update(part.as_bytes());
    }
    hasher.finalize().to_hex()[..32].to_owned()
}

/// The last line that is not empty, cut to what a sentence can hold.
fn last_line(mut output: File) -> Option<String> {
    let length = output.metadata().ok()?.len();
    output.seek(SeekFrom::Start(length.saturating_sub(4 << 10))).ok()?;
    let mut bytes = Vec::new();
    output.read_to_end(&mut bytes).ok()?;
    let text = String::from_utf8_lossy(&bytes);
    let line = text.lines().rev().find(|line| !line.trim().is_empty())?.trim();
    Some(line.replace(char::is_control, " ").chars().take(LAST_LINE).collect())
}

/// Removes what was not used for long, and all but the last used of what nobody uses now.
fn remove_unused(place: &Path) {
    let entries = std::fs::read_dir(place).into_iter().flatten().flatten();
    let used_at = |path: &Path| std::fs::metadata(path).and_then(|meta| meta.modified()).ok();
    let names = entries.filter_map(|entry| Some(entry.file_name().to_str()?.strip_suffix(".lock")?.to_owned()));
    let mut known: Vec<(Option<SystemTime>, String)> =
        names.map(|name| (used_at(&place.join(format!("{name}.ready"))), name)).collect();
    known.sort_by(|a, b| b.cmp(a));
    for (n, (used_at, name)) in known.iter().enumerate() {
        let is_old = used_at.is_some_and(|at| at.elapsed().is_ok_and(|since| since > UNUSED));
        if n < KEPT && !is_old {
            continue;
        }
        let lock = place.join(format!("{name}.lock"));
        let Ok(file) = File::options().append(true).open(&lock) else { continue };
        // The lock stays: a worker that waits for it holds that very file.
        if flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok() {
            let _ = std::fs::remove_file(place.join(format!("{name}.ready")));
            let _ = std::fs::remove_dir_all(place.join(name));
        }
    }
}
