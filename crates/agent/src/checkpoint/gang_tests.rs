//! Two places of a gang with one store, in one process.

use super::gang::{Board, Ended, Fate, Gang, Gone, Restored, Word};
use super::manifest::Ref;
use super::restore::Begun;
use super::tree::Snapshot;
use super::{Checkpoints, Choose, Mover, MoverEvent, MoverOptions, Options, Role};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

struct Place {
    dir: tempfile::TempDir,
    checkpoints: Arc<Checkpoints>,
}

fn place(store: &Path) -> Place {
    let checkpoints = Checkpoints::open(&store.to_string_lossy(), "job", Options::with_env([])).expect("opened");
    Place { dir: tempfile::tempdir().expect("a folder"), checkpoints: Arc::new(checkpoints) }
}

impl Place {
    fn write(&self, name: &str, text: &[u8]) {
        std::fs::write(self.dir.path().join(name), text).expect("written");
    }

    fn read(&self, name: &str) -> Option<Vec<u8>> {
        std::fs::read(self.dir.path().join(name)).ok()
    }

    fn snapshot(&self) -> Snapshot {
        Snapshot::of(self.dir.path()).expect("a folder")
    }

    async fn begin(&self, epoch: u64) -> Begun {
        let begun = self.checkpoints.begin(epoch, self.dir.path(), Choose::Newest, &BTreeSet::new()).await;
        begun.expect("begun")
    }

    async fn join(&self, epoch: u64) -> Begun {
        let joined = self.checkpoints.join(epoch, 1, self.dir.path(), &BTreeSet::new()).await;
        joined.expect("joined").expect("rank 0 has begun")
    }

    async fn shard(&self, epoch: u64, number: u64) {
        self.checkpoints.save_shard(epoch, 1, number, &self.snapshot()).await.expect("saved");
    }

    async fn compose(&self, epoch: u64, seq: u64, number: u64) -> Ref {
        let snapshot = self.snapshot();
        let uploaded = self.checkpoints.save_first(epoch, seq, &snapshot).await.expect("uploaded");
        let (name, shards) = (Ref::new(epoch, seq), BTreeMap::from([(1, number)]));
        let composed = self.checkpoints.compose(name, (&snapshot, uploaded), shards, None, Instant::now()).await;
        composed.expect("composed").name
    }
}

#[tokio::test]
async fn ranks_resume_from_the_same_also_where_a_stint_saved_nothing() {
    let store = tempfile::tempdir().expect("a folder");
    let (first, second) = (place(store.path()), place(store.path()));
    assert_eq!((first.begin(1).await.origin, second.join(1).await.origin), (None, None));
    first.write("rank-0", b"a");
    second.write("rank-1", b"b");
    second.shard(1, 1).await;
    let saved = first.compose(1, 1, 1).await;
    for epoch in 2..5 {
        let (first, second) = (place(store.path()), place(store.path()));
        let origins = (first.begin(epoch).await.origin, second.join(epoch).await.origin);
        assert_eq!(origins, (Some(saved), Some(saved)), "stint {epoch}");
        for place in [&first, &second] {
            assert_eq!((place.read("rank-0"), place.read("rank-1")), (Some(b"a".to_vec()), Some(b"b".to_vec())));
        }
    }
}

#[tokio::test]
async fn what_a_rank_may_point_to_again_is_not_pruned() {
    let store = tempfile::tempdir().expect("a folder");
    let (first, second) = (place(store.path()), place(store.path()));
    first.begin(1).await;
    second.join(1).await;
    // Large enough for a blob of its own; the same at both places, so one of the two is in no checkpoint.
    let weights = vec![7; 1 << 20];
    first.write("weights", &weights);
    second.write("weights", &weights);
    second.shard(1, 1).await;
    first.compose(1, 1, 1).await;
    first.checkpoints.prune(1, 1).await.expect("pruned");
    std::fs::remove_file(first.dir.path().join("weights")).expect("there");
    first.write("step", b"2");
    second.write("step-1", b"2");
    second.shard(1, 2).await;
    let saved = first.compose(1, 2, 2).await;
    first.checkpoints.prune(1, 1).await.expect("pruned");
    let resumed = place(store.path());
    assert_eq!(resumed.begin(2).await.origin, Some(saved));
    assert_eq!(resumed.read("weights"), Some(weights));
}

#[tokio::test]
async fn a_rank_fetches_the_newest_checkpoint_while_rank_0_does() {
    let store = tempfile::tempdir().expect("a folder");
    let (first, weights) = (place(store.path()), vec![7; 2 << 20]);
    first.begin(1).await;
    first.write("weights", &weights);
    first.checkpoints.save(1, 1, &first.snapshot(), None).await.expect("saved");

    // Where rank 0 chooses something else, that is what is brought.
    let (anew, other) = (place(store.path()), place(store.path()));
    other.checkpoints.fetch_ahead(1, other.dir.path()).await;
    let begun = anew.checkpoints.begin(2, anew.dir.path(), Choose::Nothing, &BTreeSet::new()).await;
    assert_eq!(begun.expect("begun").restored, None);
    let joined = other.checkpoints.join(2, 1, other.dir.path(), &BTreeSet::new()).await;
    assert_eq!((joined.expect("joined").expect("rank 0 has begun").restored, other.read("weights")), (None, None));

    first.begin(3).await;
    first.write("weights", &weights);
    first.checkpoints.save(3, 1, &first.snapshot(), None).await.expect("saved");
    let (again, other) = (place(store.path()), place(store.path()));
    other.checkpoints.fetch_ahead(1, other.dir.path()).await;
    again.begin(4).await;
    // Now nobody could fetch them any more.
    std::fs::remove_dir_all(store.path().join("job/blobs")).expect("there");
    let joined = other.checkpoints.join(4, 1, other.dir.path(), &BTreeSet::new()).await;
    assert_eq!(joined.expect("joined").expect("rank 0 has begun").files, 1);
    assert_eq!(other.read("weights"), Some(weights));
}

async fn moving(gang: &Arc<Gang>, place: &Place) -> (Mover, tokio::sync::mpsc::UnboundedReceiver<MoverEvent>) {
    let mut options = MoverOptions::new(1, place.dir.path());
    options.watch.settle = Duration::from_millis(100);
    options.role = Role::in_gang(gang, place.dir.path()).await.expect("a role");
    let (sender, events) = tokio::sync::mpsc::unbounded_channel();
    let mover = Mover::start(Arc::clone(&place.checkpoints), options, Arc::new(|_| None), sender).await;
    (mover.expect("started"), events)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_one_rank_alone_saves_or_removes_becomes_a_checkpoint() {
    let store = tempfile::tempdir().expect("a folder");
    let (first, second) = (place(store.path()), place(store.path()));
    let restored = Some(Restored { from: None });
    let word = |place: &str| Word { place: place.to_owned(), restored, tells_fate: true, ..Word::default() };
    let gangs: Vec<Arc<Gang>> = [(&first, 0, "a"), (&second, 1, "b")]
        .into_iter()
        .map(|(at, rank, name)| {
            Arc::new(Gang::join(Arc::clone(&at.checkpoints), 1, (rank, 2), word(name), &Gone::default()))
        })
        .collect();
    for gang in &gangs {
        gang.met().await;
    }
    first.begin(1).await;
    second.join(1).await;
    let (mut mover, mut events) = moving(&gangs[0], &first).await;
    let (mut other, _others) = moving(&gangs[1], &second).await;
    let durable = async |events: &mut tokio::sync::mpsc::UnboundedReceiver<MoverEvent>| loop {
        let event = tokio::time::timeout(Duration::from_secs(60), events.recv()).await.expect("in time").expect("more");
        if let MoverEvent::Durable { seq, .. } = event {
            return Ref::new(1, seq);
        }
    };
    second.write("kept", b"1");
    second.write("old", b"1");
    durable(&mut events).await;
    // Nobody writes anything: something is only taken away, and then all end.
    std::fs::remove_file(second.dir.path().join("old")).expect("there");
    for mover in [&mover, &other] {
        mover.on_clean_end().await;
        mover.finish(std::time::Instant::now() + Duration::from_secs(60));
    }
    assert!(other.finished().await.complete);
    let saved = gangs[1].own_word().saved;
    assert!(mover.finished().await.complete);
    let kept = gangs[1].until(|board| board.fate_of(1, saved) == Fate::Kept);
    let board = tokio::time::timeout(Duration::from_secs(60), kept).await.expect("rank 0 says so");
    assert_eq!(board.words[&0].composed.get(&1), Some(&saved));
    let resumed = place(store.path());
    resumed.begin(2).await;
    assert_eq!((resumed.read("kept"), resumed.read("old")), (Some(b"1".to_vec()), None));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_torn_at_rank_0_is_no_checkpoint_of_what_the_others_sent() {
    let store = tempfile::tempdir().expect("a folder");
    let (first, second) = (place(store.path()), place(store.path()));
    let restored = Some(Restored { from: None });
    let word = |place: &str| Word { place: place.to_owned(), restored, tells_fate: true, ..Word::default() };
    let join = |at: &Place, rank, name| {
        Arc::new(Gang::join(Arc::clone(&at.checkpoints), 1, (rank, 2), word(name), &Gone::default()))
    };
    let gangs = [join(&first, 0, "a"), join(&second, 1, "b")];
    for gang in &gangs {
        gang.met().await;
    }
    first.begin(1).await;
    second.join(1).await;
    let (mut mover, _events) = moving(&gangs[0], &first).await;
    let (mut other, _others) = moving(&gangs[1], &second).await;
    let soon = || std::time::Instant::now() + Duration::from_secs(20);
    second.write("part-1", b"1");
    other.on_clean_end().await;
    other.finish(soon());
    assert!(other.finished().await.complete);
    // It was writing when it was killed.
    first.write("part-0", b"1");
    mover.on_death(std::time::Instant::now()).await;
    mover.finish(soon());
    let finished = mover.finished().await;
    assert!(finished.complete && !finished.is_sent && finished.durable.is_none(), "{finished:?}");
    let saved = gangs[1].own_word().saved;
    let lost = gangs[1].until(|board| board.fate_of(1, saved) == Fate::Lost);
    tokio::time::timeout(Duration::from_secs(60), lost).await.expect("rank 0 says so");
}

#[test]
fn the_last_word_of_a_rank_whose_machine_is_gone_is_said_in_its_place() {
    let word = |place: &str| Word { place: place.to_owned(), folder: "here".to_owned(), ..Word::default() };
    let all_sent = Word { is_over: true, ended: Some(Ended::Well), ..word("b") };
    let mut board = Board { words: [(0, word("a")), (1, all_sent.clone())].into_iter().collect(), round: 3 };
    board.bury(&BTreeSet::from([1, 2]));
    assert_eq!(board.words[&0], word("a"));
    assert_eq!(board.words[&1], Word { is_gone: true, ..all_sent }, "nothing of it is lost");
    let unheard = &board.words[&2];
    assert!(unheard.gave_up && unheard.is_over && unheard.ended == Some(Ended::Died), "{unheard:?}");
    assert_eq!(board.in_folder_of(0).map(|(rank, _)| rank).collect::<Vec<_>>(), [0]);
}

#[test]
fn what_becomes_of_what_a_place_has_sent_is_rank_0_s_to_say() {
    let fate = |first: Word, saved| Board { words: BTreeMap::from([(0, first)]), round: 0 }.fate_of(1, saved);
    let runs = Word { composed: BTreeMap::from([(1, 4), (2, 9)]), tells_fate: true, ..Word::default() };
    assert_eq!([4, 5, 0].map(|saved| fate(runs.clone(), saved)), [Fate::Kept, Fate::Open, Fate::Kept]);
    let over = Word { is_over: true, ..runs.clone() };
    assert_eq!(fate(over, 5), Fate::Kept, "it has made checkpoints of all that there was");
    let lost = Word { gave_up: true, ..runs };
    assert_eq!([4, 5].map(|saved| fate(lost.clone(), saved)), [Fate::Kept, Fate::Lost]);
    assert_eq!(fate(Word::default(), 5), Fate::Kept, "an earlier version says nothing");
    assert_eq!(Board::default().fate_of(1, 1), Fate::Open, "nothing is heard of it");
}

#[tokio::test]
async fn rank_0_asks_nobody_whose_machine_is_gone() {
    let store = tempfile::tempdir().expect("a folder");
    let gone = Gone::default();
    let here = place(store.path());
    let word = |name: &str| Word { place: name.to_owned(), ..Word::default() };
    let first = Gang::join(Arc::clone(&here.checkpoints), 1, (0, 2), word("a"), &gone);
    let second = Gang::join(Arc::clone(&here.checkpoints), 1, (1, 2), word("b"), &Gone::default());
    first.met().await;
    second.met().await;
    let asked = first.ask();
    tokio::pin!(asked);
    assert!(tokio::time::timeout(Duration::from_millis(700), &mut asked).await.is_err(), "it waits");
    drop(second);
    gone.send_modify(|gone| _ = gone.insert(1));
    let answer = tokio::time::timeout(Duration::from_secs(30), asked).await.expect("it does not wait any more");
    assert!(answer.is_err(), "what the other saved is lost");
}
