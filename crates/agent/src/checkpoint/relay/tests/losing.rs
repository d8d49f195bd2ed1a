//! What happens when connections break, answers are lost and files change.

use super::*;

#[test]
fn a_file_that_changes_while_it_is_sent_leaves_no_blob() {
    run(async |server| {
        let (far, sent) = (Arc::new(server.depot()), Arc::new(AtomicU64::new(0)));
        let path = server.dir.path().join("model");
        std::fs::write(&path, noise(8 << 20)).unwrap();
        let (sender, counter, model) = (Arc::clone(&far), Arc::clone(&sent), source(&path, false));
        let sending = tokio::spawn(async move { sender.send("blobs/model", model, &counter).await });
        while sent.load(Ordering::Relaxed) == 0 {
            tokio::task::yield_now().await;
        }
        File::options().append(true).open(&path).unwrap().write_all(b"more").unwrap();
        let error = sending.await.unwrap().unwrap_err();
        assert!(matches!(&error, CheckpointError::Changed { path: changed } if *changed == path), "{error}");
        server.is_empty_soon().await;
        far.send("blobs/model", source(&path, false), &sent).await.unwrap();
        assert_eq!(server.files(), ["model".to_owned()].into());
    });
}

#[test]
fn a_cut_in_the_middle_of_a_file_leaves_no_blob_and_the_next_try_succeeds() {
    run(async |server| {
        let (far, sent) = (server.depot(), Arc::default());
        let content = noise(4 << 20);
        let path = server.dir.path().join("model");
        std::fs::write(&path, &content).unwrap();
        server.cut_after(2 << 20);
        let (culprit, what, hint) = failure(far.send("blobs/model", source(&path, false), &sent).await);
        assert_eq!(culprit, Culprit::Endpoint);
        assert_eq!(what, "the checkpoint store failed: the server cannot be reached from this machine");
        assert_eq!(hint, "it is tried again; see the agent's connection to the server");
        server.is_empty_soon().await;
        assert_eq!(far.send("blobs/model", source(&path, false), &sent).await.unwrap(), hash(&content));
        assert!(far.get("blobs/model").await.unwrap().unwrap() == content);
    });
}

#[test]
fn a_kept_connection_that_breaks_is_replaced_without_a_word() {
    run(async |server| {
        let (far, sent) = (server.depot(), Arc::new(AtomicU64::new(0)));
        let content = noise(4 << 20);
        let path = server.dir.path().join("model");
        std::fs::write(&path, &content).unwrap();
        far.list("blobs").await.unwrap();
        server.cut_after(2 << 20);
        assert_eq!(far.send("blobs/model", source(&path, false), &sent).await.unwrap(), hash(&content));
        assert_eq!(sent.load(Ordering::Relaxed), content.len() as u64, "what was lost is not counted");
        server.lose_next_answer();
        let back = File::create_new(server.dir.path().join("back")).unwrap();
        assert_eq!(far.fetch("blobs/model", 0, 4 << 20, back).await.unwrap(), Fetched::Whole(hash(&content)));
        assert!(std::fs::read(server.dir.path().join("back")).unwrap() == content);
        server.lose_next_answer();
        far.put("claims/1", "x".into()).await.unwrap();
        server.lose_next_answer();
        far.delete(vec!["claims/1".into()]).await.unwrap();
        server.lose_next_answer();
        assert_eq!(far.list("claims").await.unwrap(), Vec::<String>::new());
        assert_eq!(server.connections(), 6);
    });
}

#[test]
fn a_file_that_grows_is_not_sent_again_once_it_may_be_in_place() {
    run(async |server| {
        let (far, sent) = (server.depot(), Arc::default());
        let path = server.dir.path().join("log");
        std::fs::write(&path, "one line").unwrap();
        far.list("blobs").await.unwrap();
        server.lose_next_answer();
        assert_eq!(failure(far.send("blobs/log", source(&path, true), &sent).await).0, Culprit::Endpoint);
        far.list("blobs").await.unwrap();
        server.lose_next_answer();
        assert_eq!(far.send("blobs/model", source(&path, false), &sent).await.unwrap(), hash(b"one line"));
    });
}

#[test]
fn a_lost_answer_to_a_create_neither_loses_nor_doubles_it() {
    run(async |server| {
        let far = server.depot();
        // On a fresh connection, then on a kept one.
        for key in ["manifests/a", "manifests/b"] {
            server.lose_next_answer();
            assert!(far.create(key, "ours".into()).await.unwrap());
            assert_eq!(far.get(key).await.unwrap(), Some("ours".into()));
            assert!(!far.create(key, "ours".into()).await.unwrap(), "it was created once");
        }
        assert_eq!(server.files(), ["a".to_owned(), "b".to_owned()].into());
    });
}

#[test]
fn a_lost_answer_does_not_make_a_rivals_name_ours() {
    run(async |server| {
        let far = server.depot();
        assert!(server.directory().create("manifests/a", "theirs".into()).await.unwrap());
        server.lose_next_answer();
        assert!(!far.create("manifests/a", "ours".into()).await.unwrap());
        assert_eq!(far.get("manifests/a").await.unwrap(), Some("theirs".into()));
    });
}

#[test]
fn a_create_whose_request_was_cut_is_done_by_the_next_try() {
    run(async |server| {
        let far = server.depot();
        server.cut_after(100 << 10);
        let body = Bytes::from(noise(1 << 20));
        assert!(far.create("manifests/a", body.clone()).await.unwrap());
        assert!(far.get("manifests/a").await.unwrap() == Some(body));
        assert_eq!(server.files(), ["a".to_owned()].into());
    });
}

#[test]
fn an_operation_that_is_given_up_leaves_nothing_and_its_connection_is_not_used_again() {
    run(async |server| {
        let (far, sent) = (server.depot(), Arc::new(AtomicU64::new(0)));
        let path = server.dir.path().join("model");
        std::fs::write(&path, noise(8 << 20)).unwrap();
        far.list("blobs").await.unwrap();
        tokio::select! {
            done = far.send("blobs/model", source(&path, false), &sent) => panic!("too fast: {done:?}"),
            () = async { while sent.load(Ordering::Relaxed) == 0 { tokio::task::yield_now().await } } => {}
        }
        assert!(far.pool().is_empty());
        server.is_empty_soon().await;
        assert_eq!(far.list("blobs").await.unwrap(), Vec::<String>::new());
    });
}

/// A server that says these frames with this pause between them, whatever it is asked, and an agent that waits `quiet`.
fn slow_server(dir: &Path, says: Vec<Outcome>, pause: Duration, quiet: Duration) -> RelayDepot {
    let listener = UnixListener::bind(dir.join("slow")).unwrap();
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        stream.write_all(b"ok\n").await.unwrap();
        for outcome in says {
            tokio::time::sleep(pause).await;
            stream.write_all(&wire::frame(&Answer { seen: true, outcome }).unwrap()).await.unwrap();
        }
        std::future::pending::<()>().await;
    });
    let relay = Relay { socket: dir.join("slow"), opening: OPENING.into() };
    RelayDepot { quiet, ..RelayDepot::new(relay, false) }
}

#[test]
fn a_server_that_says_that_it_works_is_waited_for() {
    run(async |server| {
        let says = [Outcome::Working, Outcome::Working, Outcome::Working, Outcome::Working, Outcome::Done];
        // Wide apart, so that a machine under load passes too.
        let (pause, quiet) = (Duration::from_millis(700), Duration::from_secs(3));
        slow_server(server.dir.path(), says.into(), pause, quiet).flush("blobs").await.unwrap();
    });
}

#[test]
fn a_server_that_says_nothing_is_given_up() {
    run(async |server| {
        let far = slow_server(server.dir.path(), vec![], Duration::ZERO, Duration::from_millis(100));
        assert_eq!(failure(far.flush("blobs").await).0, Culprit::Endpoint);
    });
}
