//! A server that relays a directory, in a thread of its own as on a machine of its own; and what a relay must keep.

use std::path::Path;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::oneshot;
use windfall_agent::checkpoint::{Checkpoints, Choose, Options};

use crate::stores::{JOB, Kind, Store, at, begin, run, runtime, save, write};

/// Relays the job's checkpoints in a directory until it is dropped.
pub struct RelayServer {
    pub address: String,
    _socket: tempfile::TempDir,
    _until_dropped: oneshot::Sender<()>,
}

impl RelayServer {
    pub fn start(store: &Path) -> Self {
        let (dir, store) = (tempfile::tempdir().unwrap(), store.to_str().unwrap().to_owned());
        let path = dir.path().join("relay.sock");
        let listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
        listener.set_nonblocking(true).unwrap();
        let (until_dropped, dropped) = oneshot::channel();
        std::thread::spawn(move || {
            runtime().block_on(async {
                let listener = UnixListener::from_std(listener).unwrap();
                let serving = async {
                    while let Ok((stream, _)) = listener.accept().await {
                        tokio::spawn(greet(stream, store.clone()));
                    }
                };
                tokio::select! {
                    () = serving => {}
                    _ = dropped => {}
                }
            });
        });
        Self { address: format!("relay:{}#job {JOB}", path.display()), _socket: dir, _until_dropped: until_dropped }
    }
}

async fn greet(mut stream: UnixStream, store: String) {
    let mut opening = Vec::new();
    while let Ok(byte) = stream.read_u8().await
        && byte != b'\n'
    {
        opening.push(byte);
    }
    assert_eq!(opening, format!("job {JOB}").into_bytes());
    stream.write_all(b"ok\n").await.unwrap();
    windfall_agent::serve_relay(stream, &store, JOB, false, windfall_agent::Access::ReadAndWrite).await.unwrap();
}

#[test]
fn a_checkpoint_saved_over_a_relay_is_one_of_the_directory_and_comes_back_over_the_relay() {
    run(Kind::Relay, async |store: Store| {
        let dir = tempfile::tempdir().unwrap();
        let mut content = vec![0; (5 << 20) + 3];
        blake3::Hasher::new().finalize_xof().fill(&mut content);
        let far = store.checkpoints();
        begin(&far, 1, dir.path(), Choose::Newest).await;
        write(dir.path(), "model.bin", &content);
        write(dir.path(), "steps/small", "s");
        write(dir.path(), "steps/empty", "");
        save(&far, 1, 1, dir.path()).await;

        let near = Checkpoints::open(store.folder().to_str().unwrap(), JOB, Options::with_env([])).unwrap();
        let listed = near.list().await.unwrap();
        assert_eq!(listed.iter().map(|one| one.name).collect::<Vec<_>>(), [at(1, 0), at(1, 1)]);
        assert_eq!((listed[1].files, listed[1].bytes), (3, content.len() as u64 + 1));
        assert_eq!(far.list().await.unwrap(), listed);

        let back = tempfile::tempdir().unwrap();
        let begun = begin(&store.checkpoints(), 2, back.path(), Choose::Newest).await;
        assert_eq!(begun.restored, Some(at(1, 1)));
        assert!(std::fs::read(back.path().join("model.bin")).unwrap() == content);
        assert_eq!(std::fs::read(back.path().join("steps/small")).unwrap(), b"s");
        assert_eq!(std::fs::read(back.path().join("steps/empty")).unwrap(), b"");
    });
}

#[test]
fn a_server_that_is_gone_fails_a_save_as_a_store_that_is_away() {
    run(Kind::Relay, async |store: Store| {
        let server = RelayServer::start(store.folder());
        let checkpoints = Checkpoints::open(&server.address, JOB, Options::with_env([])).unwrap();
        checkpoints.probe().await.unwrap();
        checkpoints.answers().await.unwrap();
        drop(server);
        let error = checkpoints.probe().await.unwrap_err();
        assert!(error.is_store_away(), "{error}");
        assert!(error.to_string().contains("the server cannot be reached"), "{error}");
    });
}
