//! The mover, from a program's saves to durable checkpoints.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::mpsc;
use windfall_agent::checkpoint::{Checkpoints, Choose, Mover, MoverEvent, MoverOptions, WatchOptions};

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
    tokio::time::timeout(Duration::from_secs(60), events.recv()).await.expect("something happens").unwrap()
}

fn soon() -> Instant {
    Instant::now() + Duration::from_secs(60)
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
    let finished = mover.finish(soon()).await;
    assert!(finished.complete && finished.error.is_none(), "{finished:?}");
    let contents = checkpoints.list().await.unwrap();
    assert_eq!(contents.len(), 2, "pruned to two: {contents:?}");
    let (begun, back) = resume(&store, 2, Choose::Newest).await;
    assert_eq!(begun.restored, finished.durable);
    assert_eq!(read(back.path(), "model"), "content 4");
    assert_eq!(read(back.path(), "last"), "written at the end");
}

#[test]
fn finishing_with_nothing_new_saves_all_the_same() {
    run(Kind::Directory, async |store: Store| {
        let dir = tempfile::tempdir().unwrap();
        let checkpoints = Arc::new(store.checkpoints());
        begin(&checkpoints, 1, dir.path(), Choose::Newest).await;
        let (mover, _events) = start(&checkpoints, 1, dir.path()).await;
        let finished = mover.finish(soon()).await;
        assert_eq!((finished.durable, finished.complete), (Some(at(1, 1)), true));
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
        let finished = mover.finish(Instant::now()).await;
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
        let finished = mover.finish(soon()).await;
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
        let event = next(&mut events).await;
        assert!(matches!(&event, MoverEvent::Failed { why, .. } if why.contains("hint")), "{event:?}");
        fs::remove_file(&blobs).unwrap();
        loop {
            match next(&mut events).await {
                MoverEvent::Failed { .. } => {}
                MoverEvent::Durable { .. } => break,
                other => panic!("{other:?}"),
            }
        }
        assert!(mover.finish(soon()).await.complete);
    });
}
