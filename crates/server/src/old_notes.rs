//! Notes of jobs as earlier servers kept them: in the folder of each job, with the environment of the submitting terminal
//! in plain text. What live jobs need of them moves into the store when a server starts; then no environment is left in
//! any folder.

use crate::api_types::Forecast;
use crate::home::{Home, log};
use crate::notes::{JobNotes, LastingNotes};
use crate::seal::Seal;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use windfall_core::Brain;
use windfall_core::english::with_causes;
use windfall_store::{Commit, Notes, Store, StoreError};

/// Notes as servers kept them in the job's folder before the store held them.
#[derive(Serialize, Deserialize)]
struct NotesInFolder {
    env: BTreeMap<String, String>,
    foreign: Vec<String>,
    #[serde(default)]
    forecast: Option<Forecast>,
}

/// The file that held them.
fn old_file(home: &Home, key: &str) -> PathBuf {
    home.job(key).join("kept.json")
}

/// What may be beside it: a write that was interrupted.
fn half_written(file: &Path) -> PathBuf {
    file.with_extension("json.new")
}

/// Says that no folder holds notes with an environment any more, so that no later start looks through all of them.
fn all_cleared(home: &Home) -> PathBuf {
    home.path.join("old-notes-cleared")
}

/// The notes that an earlier server left in the folder of a job.
pub fn left_in_folder(home: &Home, key: &str) -> Option<JobNotes> {
    let text = std::fs::read(old_file(home, key)).ok()?;
    let NotesInFolder { env, foreign, forecast } = windfall_core::codec::from_json(&text).ok()?;
    Some(JobNotes { env, rest: LastingNotes { foreign, forecast, outputs: None } })
}

/// Moves the notes of live jobs that an earlier server left in their folders into the store, the newest first: where the
/// first job has notes in the store, all have. A file that stays behind when this is interrupted goes with
/// [`clear_folders`].
pub async fn move_to_store(
    (home, seal): (&Home, &Seal),
    store: &dyn Store,
    epoch: u64,
    brain: &Brain,
) -> Result<(), StoreError> {
    let mut live = brain.jobs().filter(|job| job.ended.is_none()).peekable();
    match live.peek() {
        Some(first) if store.notes(first.id.0).await?.is_none() => {}
        _ => return Ok(()),
    }
    let keys: Vec<(u64, &str)> = live.map(|job| (job.id.0, job.spec.run.environment.as_str())).collect();
    for some in keys.rchunks(AT_ONCE) {
        let left = |(id, key): &(u64, &str)| {
            let notes = Notes { workload: *id, ..left_in_folder(home, key)?.to_store(seal, key) };
            Some((notes, old_file(home, key)))
        };
        // What cannot be read stays where it is.
        let (notes, moved): (Vec<Notes>, Vec<PathBuf>) = some.iter().filter_map(left).unzip();
        store.commit(epoch, &Commit { notes, ..Commit::default() }).await?;
        moved.iter().for_each(|file| said(file, std::fs::remove_file(file)));
    }
    Ok(())
}

/// Notes that are moved in one commit.
const AT_ONCE: usize = 1_000;

/// The live jobs of a brain, for [`clear_folders`]; none where every folder was cleared already.
pub fn to_clear(home: &Home, brain: &Brain) -> Option<BTreeMap<String, u64>> {
    let live = brain.jobs().filter(|job| job.ended.is_none());
    (!all_cleared(home).exists()).then(|| live.map(|job| (job.spec.run.environment.clone(), job.id.0)).collect())
}

/// Takes the environments out of what [`move_to_store`] has left in folders, beside the loop: of jobs that have ended, and of
/// those whose notes were moved and whose file was not removed any more.
pub async fn clear_folders(home: Arc<Home>, store: Arc<dyn Store>, live: BTreeMap<String, u64>) {
    let looked_in = Arc::clone(&home);
    let keys = tokio::task::spawn_blocking(move || folders(&looked_in)).await;
    let keys = match keys.unwrap_or_else(|error| Err(io::Error::other(error))) {
        Ok(keys) => keys,
        Err(error) => return log(&format!("old notes of jobs stay in their folders: {error}")),
    };
    let mut cleared = true;
    for key in keys {
        let file = old_file(&home, &key);
        cleared &= match clear(&file, live.get(&key).copied(), &*store).await {
            Ok(()) => true,
            Err(why) => {
                log(&format!("an environment stays in {}: {why}", file.display()));
                false
            }
        };
        tokio::task::yield_now().await;
    }
    if cleared {
        let mark = all_cleared(&home);
        said(&mark, std::fs::write(&mark, ""));
    }
}

/// The names of the folders that hold notes, or hold them half written.
fn folders(home: &Home) -> io::Result<Vec<String>> {
    let all = match std::fs::read_dir(home.path.join("jobs")) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        all => all?,
    };
    let names = all.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()));
    let names: Vec<String> = names.collect::<io::Result<_>>()?;
    let holds_notes = |key: &String| {
        let file = old_file(home, key);
        file.exists() || half_written(&file).exists()
    };
    Ok(names.into_iter().filter(holds_notes).collect())
}

/// Takes the environment out of one file, or the file away where nobody needs the rest of it; gives why not.
async fn clear(file: &Path, live: Option<u64>, store: &dyn Store) -> Result<(), String> {
    // Nobody ever reads it: a job was submitted only once its notes were whole.
    gone(std::fs::remove_file(half_written(file))).map_err(|error| error.to_string())?;
    let stored = match live {
        Some(id) => store.notes(id).await.map_err(|error| with_causes(&error))?.is_some(),
        None => false,
    };
    let cleared = match live {
        Some(_) if stored => gone(std::fs::remove_file(file)),
        Some(id) => return Err(format!("job {id} lives, and the store could not take its notes")),
        None => without_environment(file),
    };
    cleared.map_err(|error| error.to_string())
}

/// What its bill and a resumption need stays in the folder of a job that has ended. What cannot be read serves nobody.
fn without_environment(file: &Path) -> io::Result<()> {
    let text = match std::fs::read(file) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        text => text?,
    };
    let Ok(notes) = windfall_core::codec::from_json::<NotesInFolder>(&text) else { return std::fs::remove_file(file) };
    if notes.env.is_empty() {
        return Ok(());
    }
    let text = serde_json::to_string(&NotesInFolder { env: BTreeMap::new(), ..notes })?;
    std::fs::write(half_written(file), text)?;
    std::fs::rename(half_written(file), file)
}

/// A file that is not there is as good as one that was removed.
fn gone(removed: io::Result<()>) -> io::Result<()> {
    removed.or_else(|error| if error.kind() == io::ErrorKind::NotFound { Ok(()) } else { Err(error) })
}

/// Nothing depends on it, and somebody should know.
fn said(file: &Path, result: io::Result<()>) {
    if let Err(error) = result {
        log(&format!("{}: {error}", file.display()));
    }
}

#[cfg(test)]
mod tests;
