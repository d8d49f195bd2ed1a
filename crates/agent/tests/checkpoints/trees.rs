//! What comes back is what was there: every kind of entry, many files, large files, any tree.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use proptest::prelude::*;
use windfall_agent::checkpoint::{Choose, paths_in};

use crate::stores::{JOB, Kind, Store, at, begin, read, resume, runtime, save, write};

/// A tree as a program sees it.
fn picture(dir: &Path) -> BTreeMap<PathBuf, String> {
    let mut seen = BTreeMap::new();
    for path in paths_in(dir).unwrap() {
        let full = dir.join(&path);
        let meta = fs::symlink_metadata(&full).unwrap();
        let mode = meta.mode() & 0o7777;
        let what = if meta.is_dir() {
            format!("directory {mode:o}")
        } else if meta.is_symlink() {
            format!("link {}", fs::read_link(&full).unwrap().display())
        } else {
            format!("file {mode:o} {}.{:09} {:?}", meta.mtime(), meta.mtime_nsec(), blake(&fs::read(&full).unwrap()))
        };
        seen.insert(path, what);
    }
    seen
}

fn blake(content: &[u8]) -> String {
    format!(
        "{} bytes {:x}",
        content.len(),
        content
            .iter()
            .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3))
    )
}

pub async fn every_kind_of_entry_comes_back(store: Store) {
    let elsewhere = tempfile::tempdir().unwrap();
    fs::write(elsewhere.path().join("outside"), "from outside").unwrap();
    let dir = tempfile::tempdir().unwrap();
    let checkpoints = store.checkpoints();
    begin(&checkpoints, 1, dir.path(), Choose::Newest).await;
    let here = dir.path();
    write(here, "größe/模型 🤖.pt", "unicode");
    write(here, "empty", "");
    write(here, "100%.txt", "percent");
    fs::write(here.join(std::ffi::OsStr::from_bytes(b"not-utf8-\xff")), "bytes").unwrap();
    write(here, "run.sh", "#!/bin/sh");
    fs::set_permissions(here.join("run.sh"), fs::Permissions::from_mode(0o751)).unwrap();
    fs::create_dir_all(here.join("hollow/inner")).unwrap();
    fs::set_permissions(here.join("hollow/inner"), fs::Permissions::from_mode(0o700)).unwrap();
    symlink("größe", here.join("to-directory")).unwrap();
    symlink("../run.sh", here.join("hollow/to-file")).unwrap();
    symlink("nowhere", here.join("dangling")).unwrap();
    symlink(here.join("run.sh"), here.join("absolute")).unwrap();
    symlink(elsewhere.path().join("outside"), here.join("leaves")).unwrap();
    save(&checkpoints, 1, 1, here).await;

    let (begun, back) = resume(&store, 2, Choose::Newest).await;
    assert_eq!((begun.restored, begun.skipped.len()), (Some(at(1, 1)), 0));
    let (mut before, mut after) = (picture(here), picture(back.path()));
    // Inside, an absolute link became relative; outside, a link became its file.
    assert_eq!(after.remove(Path::new("absolute")).unwrap(), "link run.sh");
    assert!(after.remove(Path::new("leaves")).unwrap().starts_with("file"));
    assert_eq!(read(back.path(), "leaves"), "from outside");
    before.remove(Path::new("absolute"));
    before.remove(Path::new("leaves"));
    assert_eq!(after, before);
}

pub async fn ten_thousand_small_files_come_back(store: Store) {
    let dir = tempfile::tempdir().unwrap();
    let checkpoints = store.checkpoints();
    begin(&checkpoints, 1, dir.path(), Choose::Newest).await;
    for n in 0..10_000 {
        let folder = dir.path().join(format!("shard-{}", n % 20));
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join(n.to_string()), format!("content of {n}").repeat(n % 50)).unwrap();
    }
    let saved = save(&checkpoints, 1, 1, dir.path()).await;
    assert_eq!(saved.files, 10_000);
    assert!(store.raw_list("blobs").await.len() < 20, "small files share blobs");
    let (begun, back) = resume(&store, 2, Choose::Newest).await;
    assert_eq!((begun.files, begun.skipped.len()), (10_000, 0));
    assert!(picture(dir.path()) == picture(back.path()));
}

pub async fn a_large_file_goes_in_parts_and_comes_back(store: Store) {
    let dir = tempfile::tempdir().unwrap();
    let checkpoints = store.checkpoints();
    begin(&checkpoints, 1, dir.path(), Choose::Newest).await;
    let content: Vec<u8> = (0..(25_u32 << 20) + 17).map(|n| (n ^ (n >> 7)) as u8).collect();
    write(dir.path(), "model", &content);
    write(dir.path(), "exact", vec![3; 16 << 20]);
    let saved = save(&checkpoints, 1, 1, dir.path()).await;
    assert_eq!(saved.bytes_sent, content.len() as u64 + (16 << 20));
    let (_, back) = resume(&store, 2, Choose::Newest).await;
    assert!(fs::read(back.path().join("model")).unwrap() == content);
    assert!(picture(dir.path()) == picture(back.path()));
}

pub async fn a_dirty_directory_becomes_what_a_new_machine_has(store: Store) {
    let dir = tempfile::tempdir().unwrap();
    let here = dir.path();
    write(here, "mine/notes.txt", "from before the job");
    write(here, "config", "before");
    let foreign = paths_in(here).unwrap();
    let checkpoints = store.checkpoints();
    checkpoints.begin(1, here, Choose::Newest, &foreign).await.unwrap();
    assert_eq!(read(here, "config"), "before");
    write(here, "model", "one");
    write(here, "large", vec![5; 2 << 20]);
    save(&checkpoints, 1, 1, here).await;
    let large = fs::metadata(here.join("large")).unwrap().ino();
    // The stint goes on, is lost, and the next one starts on the same machine.
    write(here, "model", "half-wr");
    write(here, "left/over.tmp", "x");
    fs::create_dir(here.join(".windfall-restore-dead")).unwrap();
    fs::remove_file(here.join("config")).unwrap();
    write(here, "config/is/a/directory/now", "x");
    symlink("model", here.join("link")).unwrap();
    let next = store.checkpoints();
    let begun = next.begin(2, here, Choose::Newest, &foreign).await.unwrap();
    assert_eq!((begun.restored, begun.files), (Some(at(1, 1)), 4));
    assert_eq!(read(here, "model"), "one");
    assert_eq!(read(here, "mine/notes.txt"), "from before the job");
    assert_eq!(read(here, "config"), "before");
    assert_eq!(fs::metadata(here.join("large")).unwrap().ino(), large, "what is there already is not fetched");
    let (_, clean) = resume(&store, 3, Choose::Newest).await;
    assert_eq!(picture(here), picture(clean.path()));
    // And a fresh start leaves what is foreign, and nothing else.
    store.checkpoints().begin(4, here, Choose::Nothing, &foreign).await.unwrap();
    assert_eq!(paths_in(here).unwrap(), foreign);
}

/// A store that goes away in the middle of a restore costs what was on its way, not what had come.
#[test]
fn what_came_before_the_store_went_away_is_not_fetched_again() {
    runtime().block_on(async {
        let store = Store::open(Kind::Directory).unwrap();
        let (dir, checkpoints) = (tempfile::tempdir().unwrap(), store.checkpoints());
        begin(&checkpoints, 1, dir.path(), Choose::Newest).await;
        for (name, byte) in [("a", 1), ("b", 2), ("c", 3)] {
            write(dir.path(), name, vec![byte; (4 - usize::from(byte)) << 20]);
        }
        write(dir.path(), "small", "few bytes");
        save(&checkpoints, 1, 1, dir.path()).await;
        let blobs = Path::new(&store.address).join(JOB).join("blobs");
        let blobs_of = |size: u64| {
            let mut all = fs::read_dir(&blobs).unwrap().map(|entry| entry.unwrap().path());
            all.find(|path| fs::metadata(path).unwrap().len() == size).unwrap()
        };
        let blob = blobs_of(1 << 20);
        let aside = blob.with_extension("aside");
        // As a file system that is not mounted answers.
        fs::rename(&blob, &aside).unwrap();
        symlink(aside.join("not-there"), &blob).unwrap();

        let (fresh, next) = (tempfile::tempdir().unwrap(), store.checkpoints());
        let draft = || fs::read_dir(fresh.path()).unwrap().next().map(|entry| entry.unwrap().path());
        let away = next.begin(2, fresh.path(), Choose::Newest, &BTreeSet::new()).await.unwrap_err();
        assert!(away.is_store_away(), "{away}");
        let came = fs::metadata(draft().unwrap().join("a")).unwrap().ino();
        fs::remove_file(&blob).unwrap();
        fs::rename(&aside, &blob).unwrap();
        let begun = next.begin(2, fresh.path(), Choose::Newest, &BTreeSet::new()).await.unwrap();
        assert_eq!((begun.restored, begun.files), (Some(at(1, 1)), 4));
        assert_eq!(fs::metadata(fresh.path().join("a")).unwrap().ino(), came);
        assert_eq!(picture(fresh.path()), picture(dir.path()));

        // A file that had come in part goes on from there: what had come is not read again, and whatever is not of this
        // checkpoint is fetched anew.
        let (fresh, part) = (tempfile::tempdir().unwrap(), store.checkpoints());
        let draft = || fs::read_dir(fresh.path()).unwrap().next().map(|entry| entry.unwrap().path()).unwrap();
        fs::rename(&blob, &aside).unwrap();
        symlink(aside.join("not-there"), &blob).unwrap();
        part.begin(3, fresh.path(), Choose::Newest, &BTreeSet::new()).await.unwrap_err();
        let came = draft().join("a");
        fs::File::options().write(true).open(&came).unwrap().set_len(1 << 20).unwrap();
        fs::write(draft().join("b"), vec![9; 1 << 20]).unwrap();
        fs::remove_file(&blob).unwrap();
        fs::rename(&aside, &blob).unwrap();
        let of_a = blobs_of(3 << 20);
        let mut worn = fs::read(&of_a).unwrap();
        worn[..1 << 20].fill(7);
        fs::write(&of_a, &worn).unwrap();
        let begun = part.begin(3, fresh.path(), Choose::Newest, &BTreeSet::new()).await.unwrap();
        assert_eq!((begun.restored.is_some(), begun.skipped), (true, vec![]));
        assert_eq!(picture(fresh.path()), picture(dir.path()));
        worn[..1 << 20].fill(1);
        fs::write(&of_a, &worn).unwrap();

        // Who gives up takes it along.
        fs::rename(&blob, &aside).unwrap();
        symlink(aside.join("not-there"), &blob).unwrap();
        let (fresh, last) = (tempfile::tempdir().unwrap(), store.checkpoints());
        last.begin(4, fresh.path(), Choose::Newest, &BTreeSet::new()).await.unwrap_err();
        assert!(fs::read_dir(fresh.path()).unwrap().next().is_some());
        drop(last);
        assert!(fs::read_dir(fresh.path()).unwrap().next().is_none());
    });
}

#[derive(Debug, Clone)]
enum Entry {
    File(usize, u8, u32),
    Directory,
    Link(u8),
}

fn entry() -> impl Strategy<Value = Entry> {
    prop_oneof![
        6 => (prop_oneof![0_usize..100, 200_000_usize..600_000], any::<u8>(), prop_oneof![Just(0o644), Just(0o600), Just(0o755), Just(0o444)])
            .prop_map(|(size, fill, mode)| Entry::File(size, fill, mode)),
        1 => Just(Entry::Directory),
        1 => any::<u8>().prop_map(Entry::Link),
    ]
}

fn plant(root: &Path, entries: &[(Vec<String>, Entry)]) {
    for (parts, entry) in entries {
        let path = root.join(parts.iter().collect::<PathBuf>());
        // Names may collide with a file planted before: then there is one entry less.
        if path.symlink_metadata().is_ok() || fs::create_dir_all(path.parent().unwrap()).is_err() {
            continue;
        }
        match entry {
            Entry::File(size, fill, mode) => {
                fs::write(&path, vec![*fill; *size]).unwrap();
                fs::set_permissions(&path, fs::Permissions::from_mode(*mode)).unwrap();
            }
            Entry::Directory => fs::create_dir(&path).unwrap(),
            Entry::Link(to) => symlink(format!("target-{to}"), &path).unwrap(),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn any_tree_comes_back_as_it_was(
        first in prop::collection::vec((prop::collection::vec("[a-cé%]{1,2}", 1..4), entry()), 0..12),
        second in prop::collection::vec((prop::collection::vec("[a-cé%]{1,2}", 1..4), entry()), 0..6),
    ) {
        let store = Store::open(Kind::Directory).unwrap();
        let dir = tempfile::tempdir().unwrap();
        runtime().block_on(async {
            let checkpoints = store.checkpoints();
            begin(&checkpoints, 1, dir.path(), Choose::Newest).await;
            plant(dir.path(), &first);
            save(&checkpoints, 1, 1, dir.path()).await;
            plant(dir.path(), &second);
            let saved = save(&checkpoints, 1, 2, dir.path()).await;
            let (begun, back) = resume(&store, 2, Choose::Newest).await;
            assert_eq!(begun.restored.unwrap_or(at(1, 0)), saved.name);
            assert_eq!(picture(dir.path()), picture(back.path()));
        });
    }
}
