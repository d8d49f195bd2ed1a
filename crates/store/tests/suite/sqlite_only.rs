//! What only a store in a file can suffer: other programs' files, newer ones, directories that cannot be written, full disks.

use std::{os::unix::fs::PermissionsExt, path::Path, process::Command};

use windfall_store::{Commit, Notes, Row, SqliteStore, Store, StoreError};

use crate::test_store::{Scratch, row, rows};

async fn refusal(path: &Path) -> StoreError {
    SqliteStore::open(path).await.err().expect("a refusal")
}

fn names(directory: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(directory).unwrap();
    let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// A closed store, in which one number of the header is then changed.
async fn with_header(scratch: &Scratch, at: usize, number: u32) -> Vec<u8> {
    SqliteStore::open(scratch.file()).await.unwrap().close().await;
    let mut bytes = std::fs::read(scratch.file()).unwrap();
    bytes[at..at + 4].copy_from_slice(&number.to_be_bytes());
    std::fs::write(scratch.file(), &bytes).unwrap();
    bytes
}

#[tokio::test]
async fn a_newer_store_is_refused_and_not_touched() {
    let scratch = Scratch::new();
    let bytes = with_header(&scratch, 60, 999).await;
    let before = std::fs::metadata(scratch.file()).unwrap().modified().unwrap();
    let refused = refusal(&scratch.file()).await;
    assert!(matches!(refused, StoreError::Newer { found: 999, known: 3 }), "{refused:?}");
    assert_eq!(std::fs::read(scratch.file()).unwrap(), bytes);
    assert_eq!(std::fs::metadata(scratch.file()).unwrap().modified().unwrap(), before);
    assert_eq!(names(scratch.path()), ["windfall.db"]);
}

#[tokio::test]
async fn a_look_from_outside_makes_nothing_and_changes_nothing() {
    let scratch = Scratch::new();
    let url = format!("sqlite:{}", scratch.file().display());
    assert_eq!(windfall_store::live_jobs(&url).await.unwrap(), None);
    assert_eq!(names(scratch.path()), [""; 0]);
    SqliteStore::open(scratch.file()).await.unwrap().close().await;
    let bytes = std::fs::read(scratch.file()).unwrap();
    assert_eq!(windfall_store::live_jobs(&url).await.unwrap(), Some(0));
    assert_eq!(std::fs::read(scratch.file()).unwrap(), bytes);
    assert_eq!(names(scratch.path()), ["windfall.db"]);
}

#[tokio::test]
async fn deleted_secrets_are_in_no_byte_of_the_file() {
    let scratch = Scratch::new();
    let store = SqliteStore::open(scratch.file()).await.unwrap();
    let epoch = store.lead().await.unwrap();
    // Short ones, and long ones that fill pages of their own.
    let secret = |workload: u64| "hush".repeat(if workload.is_multiple_of(2) { 10 } else { 5_000 });
    let noted = |workload| Notes { workload, secret: Some(secret(workload).into_bytes().into()), text: "{}".into() };
    let commit = Commit { notes: (1..=20).map(noted).collect(), ..Commit::default() };
    store.commit(epoch, &commit).await.unwrap();
    store.commit(epoch, &Commit { ended: (1..=20).collect(), ..Commit::default() }).await.unwrap();
    store.close().await;
    let bytes = std::fs::read(scratch.file()).unwrap();
    assert!(!bytes.windows(4).any(|word| word == b"hush"));
    assert_eq!(names(scratch.path()), ["windfall.db"]);
}

#[tokio::test]
async fn the_database_of_another_program_is_refused_and_not_touched() {
    let scratch = Scratch::new();
    let bytes = with_header(&scratch, 68, 0x4d50_4258).await;
    let refused = refusal(&scratch.file()).await;
    assert!(matches!(refused, StoreError::Corrupt { .. }), "{refused:?}");
    assert_eq!(std::fs::read(scratch.file()).unwrap(), bytes);
    assert_eq!(names(scratch.path()), ["windfall.db"]);
}

#[tokio::test]
async fn a_file_that_is_not_sqlite_is_refused_and_not_touched() {
    let scratch = Scratch::new();
    for content in [&b"name: bert-finetune\n"[..], &[0u8; 4096], b"SQLite format 3\0 cut short"] {
        std::fs::write(scratch.file(), content).unwrap();
        let refused = refusal(&scratch.file()).await;
        assert!(matches!(refused, StoreError::Corrupt { .. }), "{refused:?}");
        assert_eq!(std::fs::read(scratch.file()).unwrap(), content);
    }
}

#[tokio::test]
async fn damaged_pages_are_an_error_and_no_panic() {
    let scratch = Scratch::new();
    let store = SqliteStore::open(scratch.file()).await.unwrap();
    let epoch = store.lead().await.unwrap();
    store.commit(epoch, &rows(1..=500)).await.unwrap();
    store.close().await;
    let mut bytes = std::fs::read(scratch.file()).unwrap();
    for byte in &mut bytes[4096..] {
        *byte = 0xa5;
    }
    std::fs::write(scratch.file(), bytes).unwrap();
    let outcome = match SqliteStore::open(scratch.file()).await {
        Ok(store) => store.load().await.map(drop),
        Err(error) => Err(error),
    };
    assert!(matches!(outcome, Err(StoreError::Corrupt { .. })), "{outcome:?}");
}

#[tokio::test]
async fn a_missing_directory_is_said_plainly() {
    let scratch = Scratch::new();
    let refused = refusal(&scratch.path().join("none/windfall.db")).await;
    assert!(matches!(&refused, StoreError::Open { source, .. } if source.kind() == std::io::ErrorKind::NotFound));
}

#[tokio::test]
async fn a_store_is_for_its_owner_only() {
    let scratch = Scratch::new();
    let store = SqliteStore::open(scratch.file()).await.unwrap();
    store.lead().await.unwrap();
    for name in names(scratch.path()) {
        let mode = std::fs::metadata(scratch.path().join(&name)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{name}");
    }
    store.close().await;
}

#[tokio::test]
async fn a_second_server_fences_the_first() {
    let scratch = Scratch::new();
    let first = SqliteStore::open(scratch.file()).await.unwrap();
    let second = SqliteStore::open(scratch.file()).await.unwrap();
    let old = first.lead().await.unwrap();
    first.commit(old, &rows([1])).await.unwrap();
    let new = second.lead().await.unwrap();
    assert!(matches!(first.commit(old, &rows([2])).await, Err(StoreError::Fenced { .. })));
    second.commit(new, &rows([2])).await.unwrap();
    assert_eq!(first.load().await.unwrap().next_seq, 3);
    first.close().await;
    second.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn stores_made_at_the_same_moment_are_one() {
    let scratch = Scratch::new();
    let opening: Vec<_> = (0..6).map(|_| tokio::spawn(SqliteStore::open(scratch.file()))).collect();
    let mut installations = Vec::new();
    for store in opening {
        let store = store.await.unwrap().unwrap();
        installations.push(store.load().await.unwrap().installation);
        store.close().await;
    }
    installations.dedup();
    assert_eq!(installations.len(), 1);
}

/// Fill, fail, and find exactly what was acknowledged; then go on once there is room.
#[tokio::test(flavor = "multi_thread")]
async fn the_write_ahead_log_is_folded_into_the_file_beside_commits() {
    let scratch = Scratch::new();
    let store = SqliteStore::open(scratch.file()).await.unwrap();
    let epoch = store.lead().await.unwrap();
    let payload = "x".repeat(1_000);
    let rows = |first: u64| {
        let long = |seq| Row { payload: payload.as_str().into(), ..row(seq) };
        Commit { rows: (first..first + 1_000).map(long).collect(), ..Commit::default() }
    };
    for commit in 0..10 {
        store.commit(epoch, &rows(1 + commit * 1_000)).await.unwrap();
    }
    // Ten megabytes are too few for SQLite to fold by itself.
    let size = || std::fs::metadata(scratch.file()).unwrap().len();
    for _ in 0..500 {
        if size() > 3_000_000 {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    assert!(size() > 3_000_000, "{}", size());
    store.close().await;
    let wal = scratch.path().join(format!("{}-wal", scratch.file().file_name().unwrap().to_str().unwrap()));
    assert!(!wal.exists(), "no connection outlives the store");
    assert_eq!(SqliteStore::open(scratch.file()).await.unwrap().load().await.unwrap().tail.len(), 10_000);
}

async fn fill(store: &SqliteStore) -> u64 {
    let epoch = store.lead().await.unwrap();
    let mut seq = store.load().await.unwrap().next_seq;
    loop {
        let payload = "y".repeat(3_000);
        let big = (seq..seq + 10).map(|seq| Row { payload: payload.as_str().into(), ..row(seq) }).collect();
        match store.commit(epoch, &Commit { rows: big, ..Commit::default() }).await {
            Ok(()) => seq += 10,
            Err(StoreError::Full { .. }) => break,
            Err(other) => panic!("{other:?}"),
        }
    }
    let loaded = store.load().await.unwrap();
    assert_eq!((loaded.next_seq, loaded.tail.len() as u64 + 1), (seq, seq), "of the failed commit there is nothing");
    seq
}

#[tokio::test]
async fn a_commit_that_does_not_fit_is_not_there_at_all() {
    let scratch = Scratch::new();
    let store = SqliteStore::open_limited(scratch.file(), 100).await.unwrap();
    let seq = fill(&store).await;
    store.close().await;
    let roomy = SqliteStore::open(scratch.file()).await.unwrap();
    let epoch = roomy.lead().await.unwrap();
    roomy.commit(epoch, &rows([seq])).await.unwrap();
    roomy.close().await;
}

#[tokio::test]
async fn a_full_disk_loses_nothing_that_was_acknowledged() {
    let scratch = Scratch::new();
    let Some(disk) = Mount::tmpfs(scratch.path(), "size=1m") else { return };
    let file = disk.0.join("windfall.db");
    let ballast = disk.0.join("ballast");
    std::fs::write(&ballast, vec![0; 200_000]).unwrap();
    let store = SqliteStore::open(&file).await.unwrap();
    let seq = fill(&store).await;
    std::fs::remove_file(ballast).unwrap();
    let epoch = store.lead().await.unwrap();
    store.commit(epoch, &rows([seq])).await.unwrap();
    store.close().await;
    let again = SqliteStore::open(&file).await.unwrap();
    assert_eq!(again.load().await.unwrap().next_seq, seq + 1);
    again.close().await;
}

#[tokio::test]
async fn a_store_cannot_be_made_on_a_full_disk() {
    let scratch = Scratch::new();
    let Some(disk) = Mount::tmpfs(scratch.path(), "size=64k") else { return };
    let _ = std::fs::write(disk.0.join("ballast"), vec![0; 1_000_000]);
    let refused = refusal(&disk.0.join("windfall.db")).await;
    assert!(matches!(refused, StoreError::Full { .. }), "{refused:?}");
}

#[tokio::test]
async fn a_read_only_directory_is_refused() {
    let scratch = Scratch::new();
    let Some(disk) = Mount::tmpfs(scratch.path(), "size=4m") else { return };
    let file = disk.0.join("windfall.db");
    SqliteStore::open(&file).await.unwrap().close().await;
    disk.remount("ro");
    for path in [file, disk.0.join("new.db")] {
        let refused = refusal(&path).await;
        assert!(matches!(refused, StoreError::ReadOnly { .. }), "{refused:?}");
    }
    assert_eq!(names(&disk.0), ["windfall.db"]);
}

/// A small file system of our own; only root may make one.
struct Mount(std::path::PathBuf);

impl Mount {
    fn tmpfs(directory: &Path, options: &str) -> Option<Self> {
        let point = directory.join("disk");
        std::fs::create_dir(&point).unwrap();
        let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", options, "tmpfs"]).arg(&point).output();
        if mounted.is_ok_and(|output| output.status.success()) {
            return Some(Self(point));
        }
        let test = std::thread::current().name().unwrap_or("a test").to_owned();
        println!("skipped: {test} (a file system can be mounted by root only)");
        None
    }

    fn remount(&self, option: &str) {
        let options = format!("remount,{option}");
        assert!(Command::new("mount").args(["-o", &options]).arg(&self.0).status().unwrap().success());
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

/// What is there after the files with these endings were taken away, or others put there, and one more commit was made.
async fn after_taking(take: impl FnOnce(&Path)) -> (Scratch, StoreError) {
    let scratch = Scratch::new();
    let store = SqliteStore::open(scratch.file()).await.unwrap();
    let epoch = store.lead().await.unwrap();
    store.commit(epoch, &rows(1..=3)).await.unwrap();
    take(&scratch.file());
    let said = store.commit(epoch, &rows([4])).await.unwrap_err();
    assert!(store.commit(epoch, &rows([5])).await.is_err(), "nothing more is taken in");
    store.close().await;
    (scratch, said)
}

async fn numbers_in(path: &Path) -> Vec<u64> {
    let store = SqliteStore::open(path).await.unwrap();
    let loaded = store.load().await.unwrap();
    store.close().await;
    loaded.tail.iter().map(|row| row.seq).collect()
}

fn remove(path: &Path, endings: &[&str]) {
    endings.iter().for_each(|ending| std::fs::remove_file(format!("{}{ending}", path.display())).unwrap());
}

#[tokio::test]
async fn a_store_that_is_removed_while_it_is_in_use_is_noticed_and_put_back() {
    for endings in [&["", "-wal", "-shm"][..], &[""], &["-wal"], &["-wal", "-shm"], &["", "-wal"]] {
        let (scratch, said) = after_taking(|path| remove(path, endings)).await;
        let StoreError::Removed { path, rescued } = &said else { panic!("{endings:?}: {said:?}") };
        assert_eq!((path, rescued.as_ref()), (&scratch.file(), Some(&scratch.file())), "{endings:?}");
        let mode = std::fs::metadata(scratch.file()).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{endings:?}");
        assert_eq!(numbers_in(&scratch.file()).await, [1, 2, 3, 4], "{endings:?}");
    }
}

#[tokio::test]
async fn another_file_in_its_place_is_left_alone_and_what_it_held_is_beside_it() {
    let (scratch, said) = after_taking(|path| {
        remove(path, &["", "-wal", "-shm"]);
        std::fs::write(path, "a backup").unwrap();
    })
    .await;
    let StoreError::Removed { rescued: Some(rescued), .. } = &said else { panic!("{said:?}") };
    assert_eq!(std::fs::read(scratch.file()).unwrap(), b"a backup");
    assert_eq!(numbers_in(rescued).await, [1, 2, 3, 4]);
}
