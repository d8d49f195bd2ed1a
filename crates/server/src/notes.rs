//! What is kept of a job beside the log, in the store: the submitting terminal's environment (secrets stay out of the log,
//! which is kept, and are sealed in the store, which others may read), the user's own files under the checkpoint path, and
//! what was expected of it. The commit that makes a submission durable holds its notes as well, and the one that ends the job
//! deletes what may be secret.

use crate::api_types::Forecast;
use crate::home::Home;
use crate::seal::Seal;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use windfall_core::{Brain, JobSpec};
use windfall_store::{Commit, Notes, Store, StoreError};

/// What is kept of a job beside the log: in the store, whose commit of the submission holds it as well.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct JobNotes {
    /// The environment of the terminal that submitted it: it may hold secrets, and is gone once the job has ended.
    pub env: BTreeMap<String, String>,
    /// The rest, which its bill needs later.
    pub rest: LastingNotes,
}

/// What is kept of a job for good.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LastingNotes {
    /// Paths under the checkpoint directory that were the user's own.
    pub foreign: Vec<String>,
    /// What was expected then.
    #[serde(default)]
    pub forecast: Option<Forecast>,
}

impl JobNotes {
    /// As the store keeps them. Which job they are of is filled in when it gets its number.
    pub fn to_store(&self, seal: &Seal) -> Notes {
        let text = |value: Result<String, serde_json::Error>| value.expect("notes have string keys");
        let secret = seal.close(&text(serde_json::to_string(&self.env)));
        Notes { workload: 0, secret: Some(secret.into()), text: text(serde_json::to_string(&self.rest)).into() }
    }

    /// As the store kept them; none where they cannot be read, or were sealed with another key.
    pub fn of_store(notes: &Notes, seal: &Seal) -> Option<JobNotes> {
        let env = match notes.secret.as_deref() {
            Some(secret) => serde_json::from_str(&seal.open(secret)?).ok()?,
            None => BTreeMap::new(),
        };
        Some(JobNotes { env, rest: serde_json::from_str(&notes.text).ok()? })
    }

    /// What a new job has under its checkpoint path.
    pub fn foreign(spec: &JobSpec) -> Vec<String> {
        let Some(path) = &spec.checkpoint.path else { return Vec::new() };
        let found = windfall_agent::foreign_paths(Path::new(path)).unwrap_or_default();
        found.into_iter().map(|path| path.to_string_lossy().into_owned()).collect()
    }
}

/// Notes as servers kept them in the job's folder before the store held them.
#[derive(Deserialize)]
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

/// The notes that an earlier server left in the folder of a job.
pub fn left_in_folder(home: &Home, key: &str) -> Option<JobNotes> {
    let text = std::fs::read(old_file(home, key)).ok()?;
    let NotesInFolder { env, foreign, forecast } = serde_json::from_slice(&text).ok()?;
    Some(JobNotes { env, rest: LastingNotes { foreign, forecast } })
}

/// Moves the notes of live jobs that an earlier server left in their folders into the store, the newest first: where the
/// first job has notes in the store, all have.
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
            let notes = Notes { workload: *id, ..left_in_folder(home, key)?.to_store(seal) };
            Some((notes, old_file(home, key)))
        };
        // What cannot be read stays where it is.
        let (notes, moved): (Vec<Notes>, Vec<PathBuf>) = some.iter().filter_map(left).unzip();
        store.commit(epoch, &Commit { notes, ..Commit::default() }).await?;
        moved.iter().for_each(|file| drop(std::fs::remove_file(file)));
    }
    Ok(())
}

/// Notes that are moved in one commit.
const AT_ONCE: usize = 1_000;

#[cfg(test)]
mod tests {
    use super::*;
    use windfall_core::brain::Config;
    use windfall_core::{Body, Event, Installation, Record, Time, Workload, WorkloadId};
    use windfall_store::MemoryStore;

    #[test]
    fn notes_come_back_from_the_store_with_secrets_and_without() {
        let rest = LastingNotes { foreign: vec!["data".to_owned()], forecast: None };
        let notes = JobNotes { env: [("TOKEN".to_owned(), "secret".to_owned())].into(), rest };
        let folder = tempfile::tempdir().expect("a folder");
        let seal = Seal::of(folder.path()).expect("a key");
        let stored = notes.to_store(&seal);
        assert!(!stored.text.contains("secret"));
        assert_eq!(JobNotes::of_store(&stored, &seal), Some(notes.clone()));
        let ended = Notes { secret: None, ..stored };
        assert_eq!(JobNotes::of_store(&ended, &seal), Some(JobNotes { env: BTreeMap::new(), ..notes }));
    }

    #[tokio::test]
    async fn notes_of_an_earlier_server_are_moved_into_the_store() {
        let folder = tempfile::tempdir().expect("a folder");
        let home = Home::open(folder.path()).expect("a state directory");
        let mut brain = Brain::new(Installation(1), Config::default());
        for number in 1..=2 {
            let mut spec = JobSpec::named("old", vec!["train".to_owned()]);
            spec.run.environment = format!("key-{number}");
            let (workload, key) = (Workload::from(spec), format!("key-{number}"));
            let event = Event::Submitted { workload, key, id: Some(WorkloadId(number)) };
            brain.apply(&Record { seq: number, batch: 1, at: Time(1_000), body: Body::Event(event) });
        }
        std::fs::create_dir_all(home.job("key-2")).expect("made");
        let left = r#"{"env":{"TOKEN":"hush"},"foreign":["data"],"forecast":null}"#;
        std::fs::write(old_file(&home, "key-2"), left).expect("written");
        std::fs::create_dir_all(home.job("key-1")).expect("made");
        std::fs::write(old_file(&home, "key-1"), "{").expect("written");
        let store = MemoryStore::new();
        let epoch = store.lead().await.expect("led");
        let seal = Seal::of(folder.path()).expect("a key");
        move_to_store((&home, &seal), &store, epoch, &brain).await.expect("moved");
        let moved = store.notes(2).await.expect("read").expect("there");
        let moved = JobNotes::of_store(&moved, &seal).expect("read");
        assert_eq!((moved.env["TOKEN"].as_str(), moved.rest.foreign), ("hush", vec!["data".to_owned()]));
        assert!(!old_file(&home, "key-2").exists());
        assert!(old_file(&home, "key-1").exists(), "what cannot be read is not deleted");
        assert_eq!(store.notes(1).await.expect("read"), None);
    }
}
