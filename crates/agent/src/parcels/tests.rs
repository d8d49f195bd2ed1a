//! What travels, from a folder on a disk into a store and back.

use super::*;

struct Stage {
    dir: tempfile::TempDir,
}

impl Stage {
    fn new() -> Stage {
        let dir = tempfile::tempdir().expect("a folder");
        std::fs::create_dir_all(dir.path().join("project")).expect("made");
        Stage { dir }
    }

    fn folder(&self) -> PathBuf {
        self.dir.path().join("project")
    }

    fn store(&self) -> String {
        self.dir.path().join("store").to_string_lossy().into_owned()
    }

    fn write(&self, path: &str, content: &str) {
        let path = self.folder().join(path);
        std::fs::create_dir_all(path.parent().expect("a folder")).expect("made");
        std::fs::write(path, content).expect("written");
    }

    async fn send(&self) -> Packed {
        let (key, env) = (folder_key("ada", &self.folder()), BTreeMap::new());
        send_folder(&self.store(), &key, &env, &self.folder(), vec!["out".into()]).await.expect("sent")
    }

    /// The files of a parcel, with what is in them.
    async fn unpacked(&self, parcel: &Parcel) -> BTreeMap<String, String> {
        let into = tempfile::tempdir().expect("a folder");
        let parcels = open(&self.store(), &parcel.key, &BTreeMap::new()).expect("opened");
        let name = Ref::new(parcel.name.epoch, parcel.name.seq);
        parcels.unpack(name, into.path(), Some(&parcel.content), &|_| true).await.expect("unpacked");
        contents(into.path())
    }
}

fn contents(folder: &Path) -> BTreeMap<String, String> {
    let paths = crate::checkpoint::paths_in(folder).expect("listed");
    let file = |path: PathBuf| {
        let text = std::fs::read_to_string(folder.join(&path)).ok()?;
        Some((path.to_string_lossy().into_owned(), text))
    };
    paths.into_iter().filter_map(file).collect()
}

#[tokio::test]
async fn a_folder_arrives_without_what_its_ignore_files_name() {
    let stage = Stage::new();
    for path in ["train.py", "src/model.py", "data/big.bin", "src/cache/x", "out/model", ".git/config", "a.log"] {
        stage.write(path, path);
    }
    stage.write(".gitignore", "data/\n*.log\n");
    stage.write("src/.gitignore", "/cache\n!keep.log\n");
    stage.write("src/keep.log", "kept");
    let packed = stage.send().await;
    let files = stage.unpacked(&packed.parcel).await;
    let names: Vec<&str> = files.keys().map(String::as_str).collect();
    assert_eq!(names, [".gitignore", "src/.gitignore", "src/keep.log", "src/model.py", "train.py"]);
    assert_eq!((packed.parcel.files, files["train.py"].as_str()), (5, "train.py"));

    stage.write(IGNORE, "*.py\n");
    let files = stage.unpacked(&stage.send().await.parcel).await;
    assert!(files.contains_key("data/big.bin") && !files.contains_key("train.py"), "only its own file counts then");
}

#[tokio::test]
async fn what_did_not_change_is_not_sent_again() {
    let stage = Stage::new();
    stage.write("large", &"x".repeat(1 << 20));
    stage.write("small", "one");
    let first = stage.send().await;
    assert_eq!(first.bytes_sent, (1 << 20) + 3);
    let again = stage.send().await;
    assert_eq!((again.bytes_sent, &again.parcel), (0, &first.parcel), "it is the same parcel");
    stage.write("small", "two!");
    let changed = stage.send().await;
    assert_eq!(changed.bytes_sent, 4);
    assert!(changed.parcel.name > first.parcel.name && changed.parcel.content != first.parcel.content);
    assert_eq!(stage.unpacked(&first.parcel).await["small"], "one", "the one before is as it was");
    assert_eq!(stage.unpacked(&changed.parcel).await["small"], "two!");
}

#[tokio::test]
async fn a_parcel_holds_modes_links_and_empty_folders() {
    use std::os::unix::fs::PermissionsExt;
    let stage = Stage::new();
    stage.write("run.sh", "#!/bin/sh");
    std::fs::set_permissions(stage.folder().join("run.sh"), PermissionsExt::from_mode(0o750)).expect("set");
    std::fs::create_dir(stage.folder().join("empty")).expect("made");
    std::os::unix::fs::symlink("run.sh", stage.folder().join("start")).expect("linked");
    std::os::unix::fs::symlink("/usr", stage.folder().join("system")).expect("linked");
    let packed = stage.send().await;
    let into = tempfile::tempdir().expect("a folder");
    let parcels = open(&stage.store(), &packed.parcel.key, &BTreeMap::new()).expect("opened");
    parcels.unpack(Ref::new(1, 1), into.path(), None, &|_| true).await.expect("unpacked");
    let other = parcels.unpack(Ref::new(1, 1), into.path(), Some("another"), &|_| true).await;
    assert!(other.is_err_and(|error| error.to_string().contains("another one than was packed")));
    let mode = std::fs::metadata(into.path().join("run.sh")).expect("there").permissions().mode();
    assert_eq!(mode & 0o777, 0o750);
    assert!(into.path().join("empty").is_dir());
    assert_eq!(std::fs::read_link(into.path().join("start")).expect("a link"), Path::new("run.sh"));
    assert_eq!(packed.left_out, [(PathBuf::from("system"), "a link to a directory outside")]);
}

#[tokio::test]
async fn two_who_send_one_folder_at_once_both_get_a_whole_parcel() {
    let stage = Stage::new();
    for n in 0..8 {
        stage.write(&format!("file-{n}"), &n.to_string());
    }
    let sent = futures::future::join_all((0..8).map(|_| stage.send())).await;
    for packed in sent {
        assert_eq!(stage.unpacked(&packed.parcel).await.len(), 8);
    }
}

#[tokio::test]
async fn old_parcels_that_nobody_uses_are_discarded_and_the_rest_stay_whole() {
    let stage = Stage::new();
    let mut parcels = Vec::new();
    for n in 0..12 {
        stage.write("small", &n.to_string());
        parcels.push(stage.send().await.parcel);
    }
    let (store, key) = (stage.store(), parcels[0].key.clone());
    let kept = |ids: &[usize]| ids.iter().map(|n| parcels[*n].name).collect::<Vec<_>>();
    discard_folders(&store, &key, &BTreeMap::new(), &kept(&[1])).await.expect("discarded");
    assert_eq!(stage.unpacked(&parcels[0]).await["small"], "0", "a young one stays");
    // As if all of them were of last month.
    let manifests = Path::new(&store).join(&key).join("manifests");
    for entry in std::fs::read_dir(&manifests).expect("listed") {
        let path = entry.expect("an entry").path();
        let mut manifest: serde_json::Value =
            serde_json::from_slice(&std::fs::read(&path).expect("read")).expect("JSON");
        manifest["at_ms"] = 1.into();
        std::fs::remove_file(&path).expect("removed");
        std::fs::write(&path, manifest.to_string()).expect("written");
    }
    discard_folders(&store, &key, &BTreeMap::new(), &kept(&[1])).await.expect("discarded");
    assert_eq!(std::fs::read_dir(&manifests).expect("listed").count(), 9, "the newest eight, and the one in use");
    for n in [1, 4, 11] {
        assert_eq!(stage.unpacked(&parcels[n]).await["small"], n.to_string());
    }
}

#[tokio::test]
async fn outputs_come_back_whole_or_by_path_and_replace_what_is_there() {
    let stage = Stage::new();
    for path in ["results/a.csv", "results/deep/b.csv", "plot.png", "train.py", "x/results/c"] {
        stage.write(path, path);
    }
    let paths = ["results/".to_owned(), "*.png".to_owned()];
    let (store, env) = (stage.store(), BTreeMap::new());
    let outputs = open(&store, &outputs_key("job"), &env).expect("opened");
    outputs.pack(3, &outputs_in(&stage.folder(), &paths).expect("looked").0).await.expect("packed");
    stage.write("plot.png", "stale");
    outputs.pack(2, &outputs_in(&stage.folder(), &paths).expect("looked").0).await.expect("packed");

    let all = paths.to_vec();
    let into = tempfile::tempdir().expect("a folder");
    std::fs::write(into.path().join("plot.png"), "old").expect("written");
    std::fs::write(into.path().join("mine"), "mine").expect("written");
    let got = fetch_outputs(&store, "job", &env, &all, None, into.path()).await.expect("fetched").expect("there");
    let names: Vec<String> = got.iter().map(|path| path.to_string_lossy().into_owned()).collect();
    assert_eq!(names, ["plot.png", "results/a.csv", "results/deep/b.csv"]);
    let files = contents(into.path());
    assert_eq!((files["plot.png"].as_str(), files["mine"].as_str()), ("plot.png", "mine"), "of the newest stint");
    assert_eq!(std::fs::read_dir(into.path()).expect("listed").count(), 3, "nothing else is left there");

    let one = tempfile::tempdir().expect("a folder");
    let got = fetch_outputs(&store, "job", &env, &all, Some(Path::new("results/deep")), one.path()).await;
    assert_eq!(got.expect("fetched").expect("there"), [PathBuf::from("results/deep/b.csv")]);
    let none = fetch_outputs(&store, "other", &env, &all, None, one.path()).await.expect("looked");
    assert_eq!(none, None);
}

#[test]
fn a_folder_that_its_program_has_closed_keeps_no_other_from_being_brought_back() {
    use std::os::unix::fs::MetadataExt;
    let (from, to) = (tempfile::tempdir().expect("a folder"), tempfile::tempdir().expect("a folder"));
    std::fs::create_dir_all(from.path().join("a/closed")).expect("made");
    std::fs::write(from.path().join("a/file"), "here").expect("written");
    for folder in ["a/closed", "a"] {
        std::fs::set_permissions(from.path().join(folder), PermissionsExt::from_mode(0o000)).expect("closed");
    }
    open_folders(from.path()).expect("opened");
    for folder in ["a", "a/closed"] {
        let mode = std::fs::metadata(from.path().join(folder)).expect("there").mode();
        assert_eq!(mode & 0o777, 0o700, "{folder}: also for somebody who is not root");
    }
    let moved = move_over(from.path(), to.path(), 0, BTreeSet::new()).expect("moved");
    assert_eq!(moved, BTreeSet::from([PathBuf::from("a/file")]));
}

#[tokio::test]
async fn ignore_files_count_whatever_their_letters_and_also_above_the_folder() {
    let stage = Stage::new();
    for path in ["deep/.env", "deep/token", "deep/train.py", "deep/nested/.git/config", "deep/kept.log"] {
        stage.write(path, path);
    }
    stage.write(".git/config", "");
    std::fs::write(stage.folder().join(".gitignore"), b"\xef\xbb\xbf.env\n# caf\xe9\n*.log\n").expect("written");
    std::fs::write(stage.folder().join("deep/.gitignore"), b"# caf\xe9\ntoken\n!kept.log\n").expect("written");
    let deep = stage.folder().join("deep");
    let sent = send_folder(&stage.store(), "folders/deep", &BTreeMap::new(), &deep, Vec::new()).await.expect("sent");
    let files = stage.unpacked(&sent.parcel).await;
    let names: Vec<&str> = files.keys().map(String::as_str).collect();
    assert!(names.contains(&"kept.log") && names.contains(&"train.py"), "{names:?}");
    assert!(
        !names.iter().any(|name| name.contains(".env") || name.contains("token") || name.contains(".git/")),
        "{names:?}"
    );
}

#[tokio::test]
async fn all_of_a_folder_can_be_brought_back() {
    let stage = Stage::new();
    stage.write("a/b/c", "deep");
    stage.write("d", "top");
    for all in [".", "./"] {
        let (found, _) = outputs_in(&stage.folder(), &[all.to_owned()]).expect("looked");
        assert_eq!(found.files(), 2, "{all}");
    }
}

#[tokio::test]
async fn a_link_to_a_file_outside_is_followed_and_named() {
    let stage = Stage::new();
    std::fs::write(stage.dir.path().join("outside"), "content").expect("written");
    std::os::unix::fs::symlink("../outside", stage.folder().join("link")).expect("linked");
    let packed = stage.send().await;
    assert_eq!(packed.followed, [PathBuf::from("link")]);
    assert_eq!(stage.unpacked(&packed.parcel).await["link"], "content");
}

#[tokio::test]
async fn very_many_files_of_one_size_are_found_again_under_other_names() {
    let stage = Stage::new();
    for n in 0..2_000 {
        stage.write(&format!("{}/{n:05}", n / 100), &format!("{n:08}"));
    }
    assert_eq!(stage.send().await.bytes_sent, 16_000);
    // Moved, so that no stamp says that they are the same.
    std::fs::rename(stage.folder().join("0"), stage.folder().join("moved")).expect("moved");
    let again = stage.send().await;
    assert_eq!((again.bytes_sent, again.parcel.files), (0, 2_000));
}

/// A machine that sends more than its job names, or paths that lead elsewhere, gets nowhere.
#[tokio::test]
async fn what_comes_back_is_what_is_named_and_stays_in_its_folder() {
    let stage = Stage::new();
    for path in ["results/good", "train.sh", ".git/hooks/post-checkout", "results/deep/out"] {
        stage.write(path, path);
    }
    std::os::unix::fs::symlink(".", stage.folder().join("results/here")).expect("linked");
    std::os::unix::fs::symlink("here/../..", stage.folder().join("results/up")).expect("linked");
    let (store, env) = (stage.store(), BTreeMap::new());
    let outputs = open(&store, &outputs_key("job"), &env).expect("opened");
    outputs.pack(1, &Snapshot::of(&stage.folder()).expect("looked")).await.expect("packed");

    let (into, elsewhere) = (tempfile::tempdir().expect("a folder"), tempfile::tempdir().expect("a folder"));
    std::fs::create_dir(into.path().join("results")).expect("made");
    std::os::unix::fs::symlink(elsewhere.path(), into.path().join("results/deep")).expect("linked");
    let named = ["results/".to_owned()];
    let got = fetch_outputs(&store, "job", &env, &named, None, into.path()).await;
    let why = windfall_core::english::with_causes(&got.expect_err("one leads out of the folder"));
    assert!(why.contains("is a link, which may lead anywhere"), "{why}");
    assert_eq!(std::fs::read_dir(elsewhere.path()).expect("listed").count(), 0);
    std::fs::remove_file(into.path().join("results/deep")).expect("removed");
    fetch_outputs(&store, "job", &env, &named, None, into.path()).await.expect("fetched");
    let files = contents(into.path());
    let names: Vec<&str> = files.keys().map(String::as_str).collect();
    assert_eq!(names, ["results/deep/out", "results/good"]);
    assert!(!into.path().join("results/up").is_symlink());
}

#[tokio::test]
async fn what_every_rank_left_comes_back_and_of_one_name_nothing_is_lost() {
    let (store, env) = (Stage::new(), BTreeMap::new());
    let address = store.store();
    let named = ["o*".to_owned()];
    let leave = async |rank: u32, epoch: u64, files: &[(&str, &str)]| {
        let stage = Stage::new();
        files.iter().for_each(|(name, text)| stage.write(name, text));
        let outputs = open(&address, &outputs_key("job"), &env).expect("opened");
        outputs.pack_of(rank, epoch, &outputs_in(&stage.folder(), &named).expect("looked").0).await.expect("packed");
    };
    leave(3, 1, &[("o-early", "of an earlier stint")]).await;
    let of_one = [("o1", "one"), ("o-same", "from one"), ("o-equal", "x"), ("o-log/x", "one's"), ("o-dir", "one's")];
    leave(1, 2, &of_one).await;
    leave(0, 2, &[("o0", "stale")]).await;
    let of_zero =
        [("o0", "zero"), ("o-same", "from zero"), ("o-equal", "x"), ("o-log", "zero's"), ("o-dir/y", "zero's")];
    leave(0, 2, &of_zero).await;
    // Even a name that is made for what has another's.
    leave(2, 2, &[("o-same", "from two"), ("o-same.rank-2", "two's own")]).await;
    let into = tempfile::tempdir().expect("a folder");
    let got = fetch_outputs(&address, "job", &env, &named, None, into.path()).await.expect("fetched").expect("there");
    assert_eq!(got.len(), 11, "{got:?}");
    let files = contents(into.path());
    let wanted =
        [("o-equal", "x"), ("o-same", "from zero"), ("o-same.rank-1", "from one"), ("o0", "zero"), ("o1", "one")];
    let clashes = [("o-log", "zero's"), ("o-log.rank-1/x", "one's"), ("o-dir/y", "zero's"), ("o-dir.rank-1", "one's")];
    let made = [("o-same.rank-2", "from two"), ("o-same.rank-2.rank-2", "two's own")];
    let wanted = [&wanted[..], &clashes, &made].concat();
    let wanted: BTreeMap<String, String> =
        wanted.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect();
    assert_eq!(files, wanted);
}
