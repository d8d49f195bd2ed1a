//! Notes that earlier servers left in the folders of jobs.

use super::*;
use crate::archive::Archive;
use crate::engines::Engines;
use windfall_core::brain::Config;
use windfall_core::{Body, Event, Installation, JobSpec, Record, Time, Workload, WorkloadId};
use windfall_store::MemoryStore;

/// A state directory of an earlier server, and a store that this one begins with.
struct Left {
    folder: tempfile::TempDir,
    home: Arc<Home>,
    seal: Arc<Seal>,
    store: MemoryStore,
    brain: Brain,
}

impl Left {
    /// So many live jobs, each with notes in its folder.
    fn behind(jobs: u64) -> Left {
        let folder = tempfile::tempdir().expect("a folder");
        let home = Arc::new(Home::open(folder.path()).expect("a state directory"));
        let mut brain = Brain::new(Installation(1), Config::default());
        for number in 1..=jobs {
            let key = format!("key-{number}");
            let mut spec = JobSpec::named("old", vec!["train".to_owned()]);
            spec.run.environment.clone_from(&key);
            let event = Event::Submitted { workload: Workload::from(spec), key, id: Some(WorkloadId(number)) };
            brain.apply(&Record { seq: number, batch: 1, at: Time(1_000), body: Body::Event(event) });
        }
        let seal = Arc::new(Seal::of(folder.path()).expect("a key"));
        let left = Left { home, seal, store: MemoryStore::new(), brain, folder };
        (1..=jobs).for_each(|number| left.write(&format!("key-{number}"), NOTES));
        left
    }

    fn write(&self, key: &str, text: &str) {
        std::fs::create_dir_all(self.home.job(key)).expect("made");
        std::fs::write(self.file(key), text).expect("written");
    }

    fn file(&self, key: &str) -> PathBuf {
        old_file(&self.home, key)
    }

    async fn moved(&self) -> Result<(), StoreError> {
        let epoch = self.store.lead().await.expect("led");
        move_to_store((&self.home, &self.seal), &self.store, epoch, &self.brain).await
    }

    async fn cleared(&self) {
        let live = to_clear(&self.home, &self.brain).expect("not cleared before");
        clear_folders(Arc::clone(&self.home), Arc::new(self.store.clone()), live).await;
    }

    /// The numbers of jobs whose notes are in the store, and of those whose file is still there.
    async fn places(&self) -> (Vec<u64>, Vec<u64>) {
        let (mut stored, mut files) = (Vec::new(), Vec::new());
        for job in self.brain.jobs() {
            stored.extend(self.store.notes(job.id.0).await.expect("read").map(|notes| notes.workload));
            files.extend(self.file(&job.spec.run.environment).exists().then_some(job.id.0));
        }
        (stored, files)
    }
}

const NOTES: &str = r#"{"env":{"TOKEN":"hush"},"foreign":["data"],"forecast":null}"#;

#[tokio::test]
async fn notes_of_an_earlier_server_are_moved_into_the_store() {
    let left = Left::behind(2);
    left.write("key-1", "{");
    left.moved().await.expect("moved");
    let moved = left.store.notes(2).await.expect("read").expect("there");
    let moved = JobNotes::of_store(&moved, &left.seal, "key-2").expect("read");
    assert_eq!((moved.env["TOKEN"].as_str(), moved.rest.foreign), ("hush", vec!["data".to_owned()]));
    assert_eq!(left.places().await, (vec![2], vec![1]), "what cannot be read is not deleted");
}

#[tokio::test]
async fn a_move_that_was_interrupted_goes_on_with_the_next_start() {
    let left = Left::behind(1_500);
    left.store.crash_before_commit(1);
    left.moved().await.expect_err("interrupted");
    let (newest, rest) = ((501..=1_500).collect::<Vec<u64>>(), (1..=500).collect::<Vec<u64>>());
    assert_eq!(left.places().await, (newest, rest), "the oldest comes last: by it the next start sees what is missing");
    left.moved().await.expect("moved");
    assert_eq!(left.places().await, ((1..=1_500).collect(), Vec::new()));
}

#[tokio::test]
async fn no_environment_stays_in_a_folder() {
    let left = Left::behind(2);
    left.moved().await.expect("moved");
    // The server ended between the commit and the removal of the file.
    left.write("key-2", NOTES);
    left.write("ended", NOTES);
    std::fs::write(half_written(&left.file("ended")), NOTES).expect("written");
    left.write("damaged", "{\"env\":{\"TOKEN\":\"hush\"");
    left.cleared().await;
    let is_there = |key: &str| left.file(key).exists();
    assert_eq!([is_there("key-2"), is_there("damaged"), is_there("ended")], [false, false, true]);
    assert!(!half_written(&left.file("ended")).exists());
    assert!(!std::fs::read_to_string(left.file("ended")).expect("read").contains("hush"));
    let rest = left_in_folder(&left.home, "ended").expect("still there").rest;
    assert_eq!(rest.foreign, ["data"], "what a resumption needs stays");
    assert_eq!(to_clear(&left.home, &left.brain), None, "once");
}

#[tokio::test]
async fn what_a_live_job_still_needs_is_not_cleared_and_is_looked_at_again() {
    let left = Left::behind(1);
    left.cleared().await;
    assert_eq!(left.places().await, (Vec::new(), vec![1]));
    assert!(to_clear(&left.home, &left.brain).is_some());
}

#[tokio::test]
async fn lasting_notes_come_from_the_folder_where_the_store_has_none() {
    let left = Left::behind(2);
    let (store, home, seal) = (Arc::new(left.store.clone()), Arc::clone(&left.home), Arc::clone(&left.seal));
    let archive = Archive { store, home, engines: Engines::default(), seal };
    let of = async |number: u64| archive.lasting_notes(WorkloadId(number), &format!("key-{number}")).await;
    assert_eq!(of(1).await.expect("in its folder").foreign, ["data"]);
    assert_eq!(of(3).await.expect_err("nowhere").status, 404);
    left.moved().await.expect("moved");
    assert_eq!(of(1).await.expect("in the store").foreign, ["data"]);
    // Another key opens no environment, and what lasts is not sealed.
    std::fs::remove_file(left.folder.path().join("secrets.key")).expect("removed");
    let seal = Arc::new(Seal::of(left.folder.path()).expect("another key"));
    let archive = Archive { seal, ..archive.clone() };
    assert!(archive.notes(WorkloadId(1), "key-1").await.is_err());
    assert_eq!(archive.lasting_notes(WorkloadId(1), "key-1").await.expect("in the store").foreign, ["data"]);
}

#[tokio::test]
async fn a_server_that_starts_with_another_key_than_live_jobs_were_sealed_with_says_so() {
    let left = Left::behind(2);
    left.moved().await.expect("moved");
    let warning = async |seal: &Seal| crate::notes::other_key(&left.store, seal, &left.brain).await.expect("read");
    assert_eq!(warning(&left.seal).await, None);
    std::fs::remove_file(left.folder.path().join("secrets.key")).expect("removed");
    let minted = Seal::of(left.folder.path()).expect("another key");
    assert!(warning(&minted).await.is_some_and(|text| text.contains("secrets.key")));
}
