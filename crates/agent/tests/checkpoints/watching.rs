//! The watcher on real files. Nothing here measures time; a snapshot is awaited, and must show a whole state.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::time::Duration;

use windfall_agent::checkpoint::{Snapshot, WatchOptions, Watcher};

use crate::stores::runtime;

fn quick(poll: bool) -> WatchOptions {
    WatchOptions {
        settle: Duration::from_millis(300),
        stream_after: Duration::from_millis(1500),
        poll_every: Duration::from_millis(50),
        poll,
        ..WatchOptions::default()
    }
}

async fn next(watcher: &mut Watcher) -> Snapshot {
    tokio::time::timeout(Duration::from_secs(600), watcher.next()).await.expect("a snapshot comes").unwrap()
}

/// Runs a test with inotify and with polling.
fn both(test: impl AsyncFn(&Path, &mut Watcher)) {
    for poll in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        runtime().block_on(async {
            let mut watcher = Watcher::start(dir.path(), quick(poll)).await.unwrap();
            test(dir.path(), &mut watcher).await;
        });
    }
}

/// Lets the watcher see the present state before the test goes on.
async fn seen(watcher: &mut Watcher) {
    let _ = tokio::time::timeout(Duration::from_millis(150), watcher.next())
        .await
        .map(|_| panic!("nothing is complete yet"));
}

#[test]
fn a_renamed_file_is_taken_with_its_content() {
    both(async |dir, watcher| {
        fs::write(dir.join("m.tmp"), "whole").unwrap();
        fs::rename(dir.join("m.tmp"), dir.join("m")).unwrap();
        let snapshot = next(watcher).await;
        assert_eq!((snapshot.files(), snapshot.bytes()), (1, 5));
        assert!(snapshot.newest_mtime_ms() > 0);
        assert_eq!(watcher.habits().await.saves, 1);
    });
}

#[test]
fn a_rename_is_noted_as_a_habit() {
    let dir = tempfile::tempdir().unwrap();
    runtime().block_on(async {
        let mut watcher = Watcher::start(dir.path(), quick(false)).await.unwrap();
        for n in 0..3 {
            fs::write(dir.path().join("m.tmp"), format!("{n}")).unwrap();
            fs::rename(dir.path().join("m.tmp"), dir.path().join("m")).unwrap();
            next(&mut watcher).await;
        }
        let habits = watcher.habits().await;
        assert_eq!((habits.renames, habits.in_place_rewrites, habits.saves), (3, 0, 3));
        assert!(habits.first_save_after_ms.is_some() && !habits.mid_write_now);
        fs::write(dir.path().join("m"), "in place").unwrap();
        next(&mut watcher).await;
        assert_eq!(watcher.habits().await.in_place_rewrites, 1);
    });
}

#[test]
fn a_file_written_in_place_is_taken_whole() {
    let dir = tempfile::tempdir().unwrap();
    runtime().block_on(async {
        let mut watcher =
            Watcher::start(dir.path(), WatchOptions { stream_after: Duration::from_secs(600), ..quick(false) })
                .await
                .unwrap();
        let mut file = File::create(dir.path().join("m")).unwrap();
        file.write_all(b"first half, ").unwrap();
        // Longer than it takes to settle, but it is still open.
        tokio::time::timeout(Duration::from_secs(1), watcher.next()).await.expect_err("it is mid-write");
        assert!(watcher.habits().await.mid_write_now);
        file.write_all(b"second half").unwrap();
        drop(file);
        assert_eq!(next(&mut watcher).await.bytes(), 23);
    });
}

#[test]
fn a_slow_directory_of_many_files_is_taken_whole() {
    both(async |dir, watcher| {
        fs::create_dir(dir.join("step-1")).unwrap();
        let mut last = None;
        for n in 0..5 {
            let mut file = File::create(dir.join(format!("step-1/shard-{n}"))).unwrap();
            file.write_all(&[n; 100]).unwrap();
            last = Some(file);
            seen(watcher).await;
        }
        drop(last);
        let snapshot = next(watcher).await;
        assert_eq!((snapshot.files(), snapshot.bytes()), (5, 500));
    });
}

#[test]
fn a_directory_renamed_into_place_is_taken_whole() {
    let dir = tempfile::tempdir().unwrap();
    runtime().block_on(async {
        let mut watcher = Watcher::start(dir.path(), quick(false)).await.unwrap();
        fs::create_dir_all(dir.path().join("tmp-1/deep")).unwrap();
        for n in 0..20 {
            fs::write(dir.path().join(format!("tmp-1/deep/{n}")), "x").unwrap();
        }
        fs::rename(dir.path().join("tmp-1"), dir.path().join("checkpoint-1")).unwrap();
        assert_eq!(next(&mut watcher).await.files(), 20);
        assert_eq!(watcher.habits().await.renames, 1);
        // The watches went along: what is written there later is seen under its new name.
        fs::write(dir.path().join("checkpoint-1/deep/late"), "x").unwrap();
        assert_eq!(next(&mut watcher).await.files(), 21);
    });
}

#[test]
fn a_directory_made_outside_and_moved_in_is_taken_whole() {
    both(async |dir, watcher| {
        let outside = tempfile::tempdir_in(dir.parent().unwrap()).unwrap();
        fs::create_dir(outside.path().join("c")).unwrap();
        fs::write(outside.path().join("c/model"), "x").unwrap();
        fs::rename(outside.path().join("c"), dir.join("c")).unwrap();
        assert_eq!(next(watcher).await.files(), 1);
    });
}

#[test]
fn what_is_written_before_a_new_directory_is_watched_is_found() {
    both(async |dir, watcher| {
        for n in 0..20 {
            let deep = dir.join(format!("{n}/a/b/c"));
            fs::create_dir_all(&deep).unwrap();
            fs::write(deep.join("model"), "x").unwrap();
        }
        let mut snapshot = next(watcher).await;
        while snapshot.files() < 20 {
            snapshot = next(watcher).await;
        }
    });
}

#[test]
fn an_endless_log_neither_holds_up_nor_is_taken() {
    let dir = tempfile::tempdir().unwrap();
    runtime().block_on(async {
        let mut watcher = Watcher::start(dir.path(), quick(false)).await.unwrap();
        let path = dir.path().join("log");
        let (stop, stopped) = std::sync::mpsc::channel::<()>();
        let log = std::thread::spawn(move || {
            let mut file = OpenOptions::new().create(true).append(true).open(path).unwrap();
            while stopped.try_recv().is_err() {
                writeln!(file, "line").unwrap();
                std::thread::sleep(Duration::from_millis(20));
            }
        });
        while fs::metadata(dir.path().join("log")).map_or(0, |meta| meta.len()) == 0 {
            tokio::task::yield_now().await;
        }
        fs::write(dir.path().join("m.tmp"), "whole").unwrap();
        fs::rename(dir.path().join("m.tmp"), dir.path().join("m")).unwrap();
        next(&mut watcher).await;
        stop.send(()).unwrap();
        log.join().unwrap();
        let last = watcher.last_snapshot().await.unwrap().expect("the log is new");
        assert_eq!(last.files(), 2);
        assert!(last.bytes() > 5, "the log is in the last one");
    });
}

#[test]
fn a_link_into_place_is_taken() {
    let dir = tempfile::tempdir().unwrap();
    runtime().block_on(async {
        let outside = tempfile::tempdir_in(dir.path().parent().unwrap()).unwrap();
        fs::write(outside.path().join("m"), "whole").unwrap();
        let mut watcher = Watcher::start(dir.path(), quick(false)).await.unwrap();
        fs::hard_link(outside.path().join("m"), dir.path().join("m")).unwrap();
        assert_eq!(next(&mut watcher).await.bytes(), 5);
    });
}

#[test]
fn a_directory_that_is_removed_and_made_again_is_followed() {
    let top = tempfile::tempdir().unwrap();
    runtime().block_on(async {
        let dir = top.path().join("out");
        let mut watcher = Watcher::start(&dir, quick(false)).await.unwrap();
        fs::remove_dir_all(&dir).unwrap();
        fs::create_dir(&dir).unwrap();
        assert!(!watcher.habits().await.mid_write_now);
        fs::write(dir.join("m"), "x").unwrap();
        assert_eq!(next(&mut watcher).await.files(), 1);
    });
}

#[test]
fn a_wait_that_is_cancelled_loses_nothing() {
    let dir = tempfile::tempdir().unwrap();
    runtime().block_on(async {
        let mut watcher = Watcher::start(dir.path(), quick(false)).await.unwrap();
        fs::write(dir.path().join("m.tmp"), "x").unwrap();
        fs::rename(dir.path().join("m.tmp"), dir.path().join("m")).unwrap();
        let mut got = None;
        for _ in 0..100_000 {
            got = tokio::time::timeout(Duration::ZERO, watcher.next()).await.ok();
            if got.is_some() {
                break;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        assert_eq!(got.unwrap().unwrap().files(), 1);
    });
}
