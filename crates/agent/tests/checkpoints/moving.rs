//! The mover, from a program's saves to durable checkpoints.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::mpsc;
use windfall_agent::checkpoint::{Checkpoints, Choose, Finished, Mover, MoverEvent, MoverOptions, WatchOptions};
use windfall_core::TroubleKind;

use crate::stores::{Kind, Store, at, begin, read, resume, run, write};

fn options(epoch: u64, dir: &Path) -> MoverOptions {
    let watch = WatchOptions { settle: Duration::from_millis(200), ..WatchOptions::default() };
    MoverOptions { keep: 2, watch, retry_after: Duration::from_millis(50), ..MoverOptions::new(epoch, dir) }
}

async fn start(checkpoints: &Arc<Checkpoints>, epoch: u64, dir: &Path) -> (Mover, mpsc::UnboundedReceiver<MoverEvent>) {
    let (events, received) = mpsc::unbounded_channel();
    let mover = Mover::start(checkpoints.clone(), options(epoch, dir), Arc::new(|ms| Some(ms / ms.max(1))), events)
        .await
        .unwrap();
    (mover, received)
}

async fn next(events: &mut mpsc::UnboundedReceiver<MoverEvent>) -> MoverEvent {
    tokio::time::timeout(Duration::from_secs(600), events.recv()).await.expect("something happens").unwrap()
}

fn soon() -> Instant {
    Instant::now() + Duration::from_secs(600)
}

async fn finish(mut mover: Mover, deadline: Instant) -> Finished {
    mover.finish(deadline);
    mover.finished().await
}

pub async fn each_save_of_a_program_becomes_durable(store: Store) {
    let dir = tempfile::tempdir().unwrap();
    let checkpoints = Arc::new(store.checkpoints());
    begin(&checkpoints, 1, dir.path(), Choose::Newest).await;
    let (mover, mut events) = start(&checkpoints, 1, dir.path()).await;
    for n in 1..=4 {
        write(dir.path(), "model", format!("content {n}"));
        let event = next(&mut events).await;
        assert!(matches!(event, MoverEvent::Durable { epoch: 1, work: Some(1), .. }), "{event:?}");
    }
    // The program is stopped in the middle of a save; what it had is taken along.
    fs::write(dir.path().join("last"), "written at the end").unwrap();
    let finished = finish(mover, soon()).await;
    assert!(finished.complete && finished.error.is_none(), "{finished:?}");
    let contents = checkpoints.list().await.unwrap();
    assert_eq!(contents.len(), 2, "pruned to two: {contents:?}");
    let (begun, back) = resume(&store, 2, Choose::Newest).await;
    assert_eq!(begun.restored, finished.durable);
    assert_eq!(read(back.path(), "model"), "content 4");
    assert_eq!(read(back.path(), "last"), "written at the end");
}

#[test]
fn a_stint_that_wrote_nothing_publishes_nothing() {
    run(Kind::Directory, async |store: Store| {
        let dir = tempfile::tempdir().unwrap();
        let checkpoints = Arc::new(store.checkpoints());
        begin(&checkpoints, 1, dir.path(), Choose::Newest).await;
        let (mover, mut events) = start(&checkpoints, 1, dir.path()).await;
        write(dir.path(), "model", "x");
        next(&mut events).await;
        assert_eq!(finish(mover, soon()).await.durable, Some(at(1, 1)));
        // The next stint has the same files, touches one, and ends; then one writes the same bytes again.
        for (epoch, again) in [(2, false), (3, true)] {
            let dir = tempfile::tempdir().unwrap();
            let checkpoints = Arc::new(store.checkpoints());
            begin(&checkpoints, epoch, dir.path(), Choose::Newest).await;
            let (mover, mut events) = start(&checkpoints, epoch, dir.path()).await;
            if again {
                write(dir.path(), "model", "x");
            }
            let finished = finish(mover, soon()).await;
            assert_eq!((finished.durable, finished.complete), (None, true));
            while let Some(event) = events.recv().await {
                assert!(again && event == MoverEvent::Unchanged, "{event:?}");
            }
            let newest = checkpoints.list().await.unwrap().pop().unwrap();
            assert_eq!((newest.name, newest.copy_of), (at(epoch, 0), Some(at(1, 1))));
        }
    });
}

#[test]
fn a_checkpoint_holds_the_work_that_was_done_when_its_files_were_written() {
    run(Kind::Directory, async |store: Store| {
        let dir = tempfile::tempdir().unwrap();
        let checkpoints = Arc::new(store.checkpoints());
        begin(&checkpoints, 1, dir.path(), Choose::Newest).await;
        let (sender, mut events) = mpsc::unbounded_channel();
        let options = options(1, dir.path());
        let mover = Mover::start(checkpoints.clone(), options, Arc::new(Some), sender).await.unwrap();
        fs::write(dir.path().join("model"), "content").unwrap();
        let file_ms = fs::metadata(dir.path().join("model")).unwrap().modified().unwrap();
        let file_ms = file_ms.duration_since(std::time::UNIX_EPOCH).unwrap().as_millis();
        let MoverEvent::Durable { work, written_ms, .. } = next(&mut events).await else { panic!("it is durable") };
        assert_eq!((u128::from(written_ms), work), (file_ms, Some(written_ms)));
        finish(mover, soon()).await;
        assert_eq!(resume(&store, 2, Choose::Newest).await.0.work, work);
    });
}

/// How much work a checkpoint holds is told by the files that are replaced, not by a log that goes on.
#[test]
fn a_log_that_goes_on_after_a_save_does_not_date_it() {
    run(Kind::Directory, async |store: Store| {
        let dir = tempfile::tempdir().unwrap();
        let append = || {
            let mut log = fs::OpenOptions::new().append(true).create(true).open(dir.path().join("log")).unwrap();
            std::io::Write::write_all(&mut log, b"a line\n").unwrap();
        };
        let checkpoints = Arc::new(store.checkpoints());
        begin(&checkpoints, 1, dir.path(), Choose::Newest).await;
        let (mover, mut events) = start(&checkpoints, 1, dir.path()).await;
        let durable = async |events: &mut mpsc::UnboundedReceiver<MoverEvent>| match next(events).await {
            MoverEvent::Durable { written_ms, .. } => written_ms,
            other => panic!("{other:?}"),
        };
        let mut saved = 0;
        for n in 1..=4 {
            append();
            write(dir.path(), "model", format!("content {n}"));
            saved = durable(&mut events).await;
        }
        tokio::time::sleep(Duration::from_millis(300)).await;
        append();
        assert!(durable(&mut events).await <= saved, "a longer log is no more work");
        let newest = checkpoints.list().await.unwrap().pop().unwrap();
        assert_eq!(finish(mover, soon()).await.durable, Some(newest.name));
        let (_, back) = resume(&store, 2, Choose::Newest).await;
        assert_eq!(read(back.path(), "log").lines().count(), 5);
    });
}

/// A log that never pauses is in the checkpoints too, as far as it was, and a kill loses no more of it than of the rest.
#[test]
fn a_log_that_never_pauses_is_saved_as_far_as_it_is() {
    run(Kind::Directory, async |store: Store| {
        let dir = tempfile::tempdir().unwrap();
        let checkpoints = Arc::new(store.checkpoints());
        begin(&checkpoints, 1, dir.path(), Choose::Newest).await;
        let mut options = options(1, dir.path());
        options.watch.stream_after = Duration::from_millis(300);
        let (sender, mut events) = mpsc::unbounded_channel();
        let mover = Mover::start(checkpoints.clone(), options, Arc::new(Some), sender).await.unwrap();
        let log = dir.path().join("log");
        let goes_on = Arc::new(std::sync::atomic::AtomicBool::new(true));
        let writer = std::thread::spawn({
            let goes_on = goes_on.clone();
            move || {
                let mut log = fs::File::create(log).unwrap();
                while goes_on.load(std::sync::atomic::Ordering::Relaxed) {
                    std::io::Write::write_all(&mut log, b"a line\n").unwrap();
                    std::thread::sleep(Duration::from_millis(20));
                }
            }
        });
        tokio::time::sleep(Duration::from_secs(2)).await;
        write(dir.path(), "model", "content");
        let event = next(&mut events).await;
        assert!(matches!(event, MoverEvent::Durable { .. }), "{event:?}");
        goes_on.store(false, std::sync::atomic::Ordering::Relaxed);
        writer.join().unwrap();
        mover.on_death(Instant::now()).await;
        finish(mover, soon()).await;
        let again = store.checkpoints();
        let back = tempfile::tempdir().unwrap();
        begin(&again, 2, back.path(), Choose::Newest).await;
        assert_eq!(read(back.path(), "model"), "content");
        let lines = read(back.path(), "log").lines().count();
        assert!(lines > 20, "{lines} lines");
        assert_eq!(again.streams(), ["log".into()].into());
    });
}

#[test]
fn of_a_program_that_died_only_a_whole_state_is_saved() {
    run(Kind::Directory, async |store: Store| {
        let dir = tempfile::tempdir().unwrap();
        let checkpoints = Arc::new(store.checkpoints());
        begin(&checkpoints, 1, dir.path(), Choose::Newest).await;
        let (mover, mut events) = start(&checkpoints, 1, dir.path()).await;
        write(dir.path(), "model", "whole");
        next(&mut events).await;
        fs::write(dir.path().join("model"), "to").unwrap();
        mover.on_death(Instant::now()).await;
        let finished = finish(mover, soon()).await;
        assert_eq!((finished.durable, finished.complete), (Some(at(1, 1)), true));
        let (_, back) = resume(&store, 2, Choose::Newest).await;
        assert_eq!(read(back.path(), "model"), "whole");
    });
}

#[test]
fn files_that_change_during_the_last_upload_are_taken_again() {
    run(Kind::Directory, async |store: Store| {
        let dir = tempfile::tempdir().unwrap();
        let checkpoints = Arc::new(store.checkpoints());
        begin(&checkpoints, 1, dir.path(), Choose::Newest).await;
        fs::write(dir.path().join("model"), vec![0; 4 << 20]).unwrap();
        let (mut mover, mut events) = start(&checkpoints, 1, dir.path()).await;
        let (stop, stopped) = std::sync::mpsc::channel::<()>();
        let shared = dir.path().to_owned();
        let other = std::thread::spawn(move || {
            use std::os::unix::fs::FileExt;
            let model = fs::File::options().write(true).open(shared.join("model")).unwrap();
            while stopped.try_recv().is_err() {
                for at in 0..1024 {
                    model.write_all_at(b"x", at << 12).unwrap();
                }
            }
        });
        while !mover.habits().await.open_now {
            tokio::task::yield_now().await;
        }
        mover.finish(soon());
        while next(&mut events).await != MoverEvent::Abandoned {}
        stop.send(()).unwrap();
        other.join().unwrap();
        let finished = mover.finished().await;
        assert!(finished.complete && finished.durable.is_some(), "{finished:?}");
        let (_, back) = resume(&store, 2, Choose::Newest).await;
        assert!(fs::read(back.path().join("model")).unwrap() == fs::read(dir.path().join("model")).unwrap());
    });
}

#[test]
fn a_deadline_that_has_passed_is_kept() {
    run(Kind::Directory, async |store: Store| {
        let dir = tempfile::tempdir().unwrap();
        let checkpoints = Arc::new(store.checkpoints());
        begin(&checkpoints, 1, dir.path(), Choose::Newest).await;
        let (mover, _events) = start(&checkpoints, 1, dir.path()).await;
        write(dir.path(), "model", "x");
        let finished = finish(mover, Instant::now()).await;
        assert_eq!((finished.durable, finished.complete), (None, false));
    });
}

#[test]
fn a_later_call_shortens_the_time_of_the_last_upload_and_never_lengthens_it() {
    run(Kind::Directory, async |store: Store| {
        let dir = tempfile::tempdir().unwrap();
        let checkpoints = Arc::new(store.checkpoints());
        begin(&checkpoints, 1, dir.path(), Choose::Newest).await;
        let (mut mover, _events) = start(&checkpoints, 1, dir.path()).await;
        // Nothing can be saved while a file is where the blobs should be.
        fs::write(Path::new(&store.address).join("job-1/blobs"), "in the way").unwrap();
        write(dir.path(), "model", "x");
        mover.finish(Instant::now() + Duration::from_secs(86_400));
        mover.finish(Instant::now() + Duration::from_millis(300));
        mover.finish(Instant::now() + Duration::from_secs(86_400));
        let finished = tokio::time::timeout(Duration::from_secs(600), mover.finished()).await.expect("it ends");
        assert_eq!((finished.durable, finished.complete), (None, false));
    });
}

#[test]
fn a_fenced_mover_says_so_and_stops() {
    run(Kind::Directory, async |store: Store| {
        let dir = tempfile::tempdir().unwrap();
        let checkpoints = Arc::new(store.checkpoints());
        begin(&checkpoints, 1, dir.path(), Choose::Newest).await;
        let (mover, mut events) = start(&checkpoints, 1, dir.path()).await;
        resume(&store, 2, Choose::Newest).await;
        write(dir.path(), "model", "x");
        assert_eq!(next(&mut events).await, MoverEvent::Fenced { by: 2 });
        write(dir.path(), "model", "y");
        let finished = finish(mover, soon()).await;
        assert_eq!((finished.durable, finished.complete), (None, false));
        assert!(events.recv().await.is_none(), "it says it once");
    });
}

#[test]
fn a_store_that_fails_is_tried_again_until_it_works() {
    run(Kind::Directory, async |store: Store| {
        let dir = tempfile::tempdir().unwrap();
        let checkpoints = Arc::new(store.checkpoints());
        begin(&checkpoints, 1, dir.path(), Choose::Newest).await;
        let (mover, mut events) = start(&checkpoints, 1, dir.path()).await;
        // A file where the blobs' directory should be.
        let blobs = Path::new(&store.address).join("job-1/blobs");
        fs::write(&blobs, "in the way").unwrap();
        write(dir.path(), "model", "x");
        let MoverEvent::Failed { trouble } = next(&mut events).await else { panic!("it failed") };
        assert_eq!(trouble.kind, TroubleKind::StoreAway);
        assert!(trouble.text.contains("hint"), "{trouble:?}");
        assert_eq!(next(&mut events).await, MoverEvent::Failed { trouble }, "the same words each time");
        fs::remove_file(&blobs).unwrap();
        loop {
            match next(&mut events).await {
                MoverEvent::Failed { .. } => {}
                MoverEvent::Durable { .. } => break,
                other => panic!("{other:?}"),
            }
        }
        assert!(finish(mover, soon()).await.complete);
    });
}
