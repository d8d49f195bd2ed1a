//! The operations, when nothing is lost.

use super::*;

#[test]
fn a_relay_does_what_a_directory_does() {
    run(async |server| {
        let (far, near) = (server.depot(), server.directory());
        assert_eq!(far.list("blobs").await.unwrap(), Vec::<String>::new());
        assert_eq!(far.get("manifests/a").await.unwrap(), None);

        assert!(far.create("manifests/a", "one".into()).await.unwrap());
        assert!(!far.create("manifests/a", "one".into()).await.unwrap());
        assert!(!far.create("manifests/a", "two".into()).await.unwrap());
        assert_eq!(near.get("manifests/a").await.unwrap(), Some("one".into()));

        far.put("claims/1", "first".into()).await.unwrap();
        far.put("claims/1", "second".into()).await.unwrap();
        assert_eq!(far.get("claims/1").await.unwrap(), Some("second".into()));
        far.put("claims/2", Bytes::new()).await.unwrap();
        assert_eq!(far.get("claims/2").await.unwrap(), Some(Bytes::new()));

        let mut listed = far.list("claims").await.unwrap();
        listed.sort();
        assert_eq!(listed, ["1", "2"]);
        far.flush("claims").await.unwrap();
        far.delete(vec!["claims/1".into(), "claims/none".into()]).await.unwrap();
        assert_eq!(near.list("claims").await.unwrap(), ["2"]);
        far.sweep().await.unwrap();
        assert_eq!(server.connections(), 1, "one connection is used again and again");
    });
}

#[test]
fn a_large_file_goes_in_pieces_and_comes_back() {
    run(async |server| {
        let (far, sent) = (server.depot(), Arc::new(AtomicU64::new(0)));
        let content = noise((3 << 20) + 17);
        let path = server.dir.path().join("model");
        std::fs::write(&path, &content).unwrap();
        assert_eq!(far.send("blobs/model", source(&path, false), &sent).await.unwrap(), hash(&content));
        assert_eq!(sent.load(Ordering::Relaxed), content.len() as u64);
        far.flush("blobs").await.unwrap();
        assert_eq!(server.files(), ["model".to_owned()].into());
        assert!(std::fs::read(server.folder().join("blobs/model")).unwrap() == content);

        let back = |name: &str| File::create_new(server.dir.path().join(name)).unwrap();
        let size = content.len() as u64;
        let whole = far.fetch("blobs/model", 0, size, back("whole")).await.unwrap();
        assert_eq!(whole, Fetched::Whole(hash(&content)));
        assert!(std::fs::read(server.dir.path().join("whole")).unwrap() == content);
        let part = far.fetch("blobs/model", 5, 2 << 20, back("part")).await.unwrap();
        assert_eq!(part, Fetched::Whole(hash(&content[5..5 + (2 << 20)])));
        assert_eq!(far.fetch("blobs/model", size, 0, back("end")).await.unwrap(), Fetched::Whole(hash(&[])));
        assert_eq!(far.fetch("blobs/model", 1, size, back("short")).await.unwrap(), Fetched::Short);
        assert_eq!(far.fetch("blobs/model", u64::MAX, 2, back("beyond")).await.unwrap(), Fetched::Short);
        assert_eq!(far.fetch("blobs/none", 0, 1, back("missing")).await.unwrap(), Fetched::Missing);
    });
}

#[test]
fn an_empty_file_and_one_that_grew_meanwhile_are_sent() {
    run(async |server| {
        let (far, sent) = (server.depot(), Arc::default());
        let path = server.dir.path().join("log");
        std::fs::write(&path, "").unwrap();
        assert_eq!(far.send("blobs/empty", source(&path, false), &sent).await.unwrap(), hash(b""));
        std::fs::write(&path, "one line").unwrap();
        let log = source(&path, true);
        std::fs::write(&path, "one line and more").unwrap();
        assert_eq!(far.send("blobs/log", log, &sent).await.unwrap(), hash(b"one line"));
        assert_eq!(far.get("blobs/log").await.unwrap(), Some("one line".into()));
    });
}

#[test]
fn any_number_of_names_is_listed_and_deleted() {
    run(async |server| {
        let far = server.depot();
        std::fs::create_dir_all(server.folder().join("blobs")).unwrap();
        let names: Vec<String> = (0..3_000).map(|n| format!("{n:060}")).collect();
        for name in &names {
            File::create_new(server.folder().join("blobs").join(name)).unwrap();
        }
        let mut listed = far.list("blobs").await.unwrap();
        listed.sort();
        assert_eq!(listed, names);
        far.delete(names.iter().map(|name| format!("blobs/{name}")).collect()).await.unwrap();
        assert!(server.files().is_empty());
    });
}

#[test]
fn only_left_drafts_are_swept() {
    run(async |server| {
        let far = server.depot();
        far.put("blobs/kept", "x".into()).await.unwrap();
        let long_ago = std::time::SystemTime::now() - Duration::from_secs(7 * 3600);
        for (name, at) in [(".old.1", long_ago), (".new.1", std::time::SystemTime::now())] {
            let draft = File::create_new(server.folder().join("blobs").join(name)).unwrap();
            draft.set_modified(at).unwrap();
        }
        far.sweep().await.unwrap();
        assert_eq!(server.files(), ["kept".to_owned(), ".new.1".to_owned()].into());
    });
}

#[test]
fn several_operations_run_at_once_and_few_connections_are_kept() {
    run(async |server| {
        let far = server.depot();
        let keys: Vec<String> = (0..20).map(|n| format!("claims/{n}")).collect();
        let all = keys.iter().map(|key| far.put(key, key.clone().into()));
        assert!(futures::future::join_all(all).await.iter().all(Result::is_ok));
        assert_eq!(far.list("claims").await.unwrap().len(), 20);
        assert_eq!(far.pool().len(), KEPT);
    });
}

#[test]
fn a_directory_that_vanished_is_not_made_anew() {
    run(async |server| {
        let far = server.depot();
        far.put("claims/1", "x".into()).await.unwrap();
        std::fs::remove_dir_all(server.folder()).unwrap();
        // The server is another one meanwhile, and has seen nothing.
        far.drop_kept();
        let (culprit, what, _) = failure(far.put("claims/2", "x".into()).await);
        assert_eq!(culprit, Culprit::Endpoint);
        assert!(what.contains("the directory is not there"), "{what}");
        assert!(!server.folder().exists());
        server.depot().put("claims/2", "x".into()).await.unwrap();
    });
}
