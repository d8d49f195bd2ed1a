//! What either end refuses, and in which words.

use proptest::prelude::*;
use tokio::io::DuplexStream;

use super::wire::{frame, read_frame};
use super::*;

#[test]
fn a_socket_that_is_not_there_is_an_endpoint_that_does_not_answer() {
    run(async |server| {
        for socket in [server.dir.path().join("none"), server.dir.path().join("no/folder")] {
            let far = RelayDepot::new(Relay { socket, opening: OPENING.into() }, false);
            let tried = far.list("blobs").await;
            assert!(tried.as_ref().is_err_and(CheckpointError::is_store_away));
            let (culprit, what, hint) = failure(tried);
            assert_eq!(culprit, Culprit::Endpoint);
            assert_eq!(what, "the checkpoint store failed: the server cannot be reached from this machine");
            assert_eq!(hint, "it is tried again; see the agent's connection to the server");
        }
    });
}

#[test]
fn a_server_that_refuses_the_opening_is_quoted() {
    run(async |server| {
        let (culprit, what, _) = failure(server.depot_that_says("who").list("blobs").await);
        assert_eq!(culprit, Culprit::Endpoint);
        assert_eq!(what, "the checkpoint store failed: no connection: this lease has ended");
    });
}

#[test]
fn what_the_servers_store_says_comes_back_before_all_is_sent() {
    run(async |server| {
        std::fs::write(server.dir.path().join("store"), "not a directory").unwrap();
        let near = failure(server.directory().put("blobs/a", "x".into()).await);
        assert_eq!(failure(server.depot().put("blobs/a", "x".into()).await), near);
        let path = server.dir.path().join("model");
        std::fs::write(&path, noise(16 << 20)).unwrap();
        let sent = Arc::new(AtomicU64::new(0));
        assert_eq!(failure(server.depot().send("blobs/a", source(&path, false), &sent).await), near);
        assert!(sent.load(Ordering::Relaxed) < 16 << 20);
    });
}

#[test]
fn bodies_that_are_too_large_for_memory_are_refused() {
    run(async |server| {
        let far = server.depot();
        let body = Bytes::from(vec![0; (64 << 20) + 1]);
        for tried in [far.create("manifests/a", body.clone()).await.map(|_| ()), far.put("blobs/a", body).await] {
            let (_, what, hint) = failure(tried);
            assert!(what.contains("67108865 bytes") && hint.contains("64 MiB"), "{what} {hint}");
        }
        std::fs::create_dir_all(server.folder().join("blobs")).unwrap();
        File::create_new(server.folder().join("blobs/a")).unwrap().set_len((64 << 20) + 1).unwrap();
        let (_, what, _) = failure(far.get("blobs/a").await);
        assert!(what.contains("64 MiB"), "{what}");
    });
}

/// A stream to a server of the job, and how the server ends.
fn served(store: &Path) -> (DuplexStream, tokio::task::JoinHandle<io::Result<()>>) {
    let (ours, theirs) = tokio::io::duplex(1 << 20);
    let store = store.to_str().unwrap().to_owned();
    (ours, tokio::spawn(async move { serve_relay(theirs, &store, JOB, false, Access::ReadAndWrite).await }))
}

/// What the server answers to these bytes, and how it ends when no more come.
async fn answered(store: &Path, bytes: &[u8]) -> (io::Result<Answer>, io::Result<()>) {
    let (mut stream, ended) = served(store);
    let _ = stream.write_all(bytes).await;
    stream.shutdown().await.unwrap();
    let answer = read_frame(&mut stream, QUIET).await;
    drop(stream);
    (answer, ended.await.unwrap())
}

fn operations(key: &str) -> Vec<Operation> {
    let key = || key.to_owned();
    vec![
        Operation::Create { key: key(), size: 1 },
        Operation::Put { key: key(), size: 1 },
        Operation::Send { key: key(), size: 1 },
        Operation::Flush { prefix: key() },
        Operation::Get { key: key() },
        Operation::Fetch { key: key(), offset: 0, size: 1 },
        Operation::List { prefix: key() },
        Operation::Delete { keys: vec!["blobs/a".into(), key()] },
    ]
}

/// Every path below a directory.
fn tree(dir: &Path) -> BTreeSet<std::path::PathBuf> {
    super::super::super::tree::paths_in(dir).unwrap()
}

#[test]
fn keys_that_are_not_the_jobs_own_are_refused_and_touch_nothing() {
    run(async |server| {
        let store = server.dir.path().join("store");
        server.depot().put("blobs/a", "x".into()).await.unwrap();
        std::fs::write(server.dir.path().join("store/x"), "another job's").unwrap();
        let before = tree(server.dir.path());
        let long = format!("blobs/{}", "a".repeat(300));
        let bad = ["../x", "blobs/../x", "blobs/.x", "/etc/passwd", "other/x", "", &long, "blobs/", "blobs/a/b", "/"];
        for key in bad.into_iter().chain(["blobs//a", "blobs/a\0", "blobs/ä", "blobs/..", "./blobs/a", "x"]) {
            for operation in operations(key) {
                let words = format!("{operation:?}");
                let request = frame(&Request { seen: false, operation }).unwrap();
                let (answer, ended) = answered(&store, &[&request, b"x".as_slice()].concat()).await;
                assert!(matches!(answer.unwrap().outcome, Outcome::Failed(_)), "{words}");
                assert_eq!(ended.unwrap_err().kind(), io::ErrorKind::InvalidData, "{words}");
            }
            let (_, what, _) = failure(server.depot().get(key).await);
            assert!(what.contains("not the name of an object"), "{what}");
        }
        assert_eq!(tree(server.dir.path()), before);
        let names = format!("blobs/{}", "a".repeat(255));
        assert_eq!(server.depot().get(&names).await.unwrap(), None);
    });
}

#[test]
fn what_others_have_too_is_read_and_not_changed() {
    run(async |server| {
        let store = server.dir.path().join("store");
        server.depot().put("blobs/a", "x".into()).await.unwrap();
        let before = tree(server.dir.path());
        let reads = |operation: &Operation| {
            matches!(operation, Operation::Get { .. } | Operation::Fetch { .. } | Operation::List { .. })
        };
        for operation in operations("blobs/a").into_iter().chain([Operation::Sweep]) {
            let (words, is_read) = (format!("{operation:?}"), reads(&operation));
            let (mut ours, theirs) = tokio::io::duplex(1 << 20);
            let place = store.to_str().unwrap().to_owned();
            let served = tokio::spawn(async move { serve_relay(theirs, &place, JOB, true, Access::ReadOnly).await });
            ours.write_all(&frame(&Request { seen: true, operation }).unwrap()).await.unwrap();
            let _: Answer = read_frame(&mut ours, QUIET).await.unwrap();
            drop(ours);
            // One that is read may end with us gone in the middle of its answer.
            let refused = served.await.unwrap().is_err_and(|error| error.kind() == io::ErrorKind::InvalidData);
            assert_eq!(refused, !is_read, "{words}");
        }
        assert_eq!(tree(server.dir.path()), before);
    });
}

#[test]
fn a_blob_with_another_hash_or_too_few_bytes_is_not_stored() {
    run(async |server| {
        let store = server.dir.path().join("store");
        let begin = |size| {
            let operation = Operation::Send { key: "blobs/a".into(), size };
            frame(&Request { seen: false, operation }).unwrap()
        };
        let end = |content: &[u8]| frame(&Sent { hash: hash(content) }).unwrap();
        let (answer, ended) = answered(&store, &[begin(3), b"abc".into(), end(b"abd")].concat()).await;
        assert!(matches!(answer.unwrap().outcome, Outcome::Failed(_)) && ended.is_ok());
        let (answer, ended) = answered(&store, &[begin(1_000), b"abc".into(), end(b"abc")].concat()).await;
        assert!(answer.is_err() && ended.is_err());
        let (answer, ended) = answered(&store, &[begin(3), b"abc".to_vec()].concat()).await;
        assert!(answer.is_err() && ended.is_err());
        assert!(server.files().is_empty(), "{:?}", server.files());
        let (answer, ended) = answered(&store, &[begin(3), b"abc".into(), end(b"abc")].concat()).await;
        assert!(matches!(answer.unwrap().outcome, Outcome::Done) && ended.is_ok());
    });
}

#[test]
fn only_a_directory_is_relayed() {
    run(async |server| {
        let dir = server.dir.path().to_str().unwrap();
        for (store, job) in [("s3://bucket/x", JOB), ("relay:/s#x", JOB), ("", JOB), (dir, "../x"), (dir, "")] {
            let (_ours, theirs) = tokio::io::duplex(64);
            let error = serve_relay(theirs, store, job, false, Access::ReadAndWrite).await.unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput, "{store} {job}");
        }
    });
}

fn ended(bytes: &[u8]) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let dir = tempfile::tempdir().unwrap();
    let (_, ended) = runtime.block_on(answered(dir.path(), bytes));
    ended
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn garbage_ends_the_stream_with_an_error(bytes in prop::collection::vec(any::<u8>(), 1..400)) {
        prop_assert!(ended(&bytes).is_err());
        // With a length that promises a frame, as garbage rarely has.
        let length = u32::try_from(bytes.len()).unwrap().to_be_bytes();
        prop_assert!(ended(&[&length, bytes.as_slice()].concat()).is_err());
    }

    #[test]
    fn a_damaged_request_never_stops_the_server_abnormally(
        which in 0..8_usize,
        at in any::<prop::sample::Index>(),
        byte in any::<u8>(),
    ) {
        let operation = operations("blobs/a").swap_remove(which);
        let mut bytes = frame(&Request { seen: false, operation }).unwrap();
        bytes.extend_from_slice(b"x and more");
        let at = at.index(bytes.len());
        bytes[at] = byte;
        // Joining the server's task would fail if it had panicked.
        let _ = ended(&bytes);
    }
}
