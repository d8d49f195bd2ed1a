//! A relay between two real ends: a depot, a unix socket, and a server that can lose what passes.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

mod asking;
mod losing;
mod refusing;

use std::collections::BTreeSet;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::sync::atomic::AtomicU32;

use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};

use super::super::directory::DirectoryDepot;
use super::super::tree::Stamp;
use super::*;

const JOB: &str = "job-1";
const OPENING: &str = "store 7";

/// The server's machine: a store behind a socket, and what is lost on the way.
struct Server {
    dir: TempDir,
    faults: Arc<Faults>,
}

struct Faults {
    /// The next answer is lost with its connection.
    lose_answer: AtomicBool,
    /// The connection ends when this much of what an agent says was passed on.
    cut_after: AtomicU64,
    connections: AtomicU32,
}

impl Server {
    /// Listens in the runtime that runs the test.
    fn start() -> Self {
        let dir = tempfile::tempdir().unwrap();
        // Longer than an address of a socket may be.
        let deep = dir.path().join("d".repeat(120));
        std::fs::create_dir(&deep).unwrap();
        let folder = File::open(&deep).unwrap();
        let listener = UnixListener::bind(format!("/proc/self/fd/{}/s", folder.as_raw_fd())).unwrap();
        let faults = Arc::new(Faults {
            lose_answer: AtomicBool::new(false),
            cut_after: AtomicU64::new(u64::MAX),
            connections: AtomicU32::new(0),
        });
        let (store, shared) = (dir.path().join("store").to_str().unwrap().to_owned(), Arc::clone(&faults));
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(relay(stream, store.clone(), Arc::clone(&shared)));
            }
        });
        Self { dir, faults }
    }

    fn depot(&self) -> RelayDepot {
        self.depot_that_says(OPENING)
    }

    fn depot_that_says(&self, opening: &str) -> RelayDepot {
        let socket = self.dir.path().join("d".repeat(120)).join("s");
        RelayDepot::new(Relay { socket, opening: opening.to_owned() }, false)
    }

    fn folder(&self) -> std::path::PathBuf {
        self.dir.path().join("store").join(JOB)
    }

    /// The same store without a relay.
    fn directory(&self) -> DirectoryDepot {
        DirectoryDepot::new(self.folder(), false)
    }

    fn connections(&self) -> u32 {
        self.faults.connections.load(Ordering::Relaxed)
    }

    fn lose_next_answer(&self) {
        self.faults.lose_answer.store(true, Ordering::Relaxed);
    }

    fn cut_after(&self, bytes: u64) {
        self.faults.cut_after.store(bytes, Ordering::Relaxed);
    }

    /// Every file of the store, drafts too.
    fn files(&self) -> BTreeSet<String> {
        let folders = std::fs::read_dir(self.folder()).into_iter().flatten().flatten();
        folders
            .flat_map(|folder| std::fs::read_dir(folder.path()).unwrap().flatten())
            .map(|file| file.file_name().into_string().unwrap())
            .collect()
    }

    /// A cut connection is noticed soon, and then its draft goes.
    async fn is_empty_soon(&self) {
        for _ in 0..500 {
            if self.files().is_empty() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("left: {:?}", self.files());
    }
}

/// Greets an agent, and passes on what it and the server say until something is to be lost.
async fn relay(mut agent: UnixStream, store: String, faults: Arc<Faults>) {
    faults.connections.fetch_add(1, Ordering::Relaxed);
    let mut opening = Vec::new();
    while let Ok(byte) = agent.read_u8().await
        && byte != b'\n'
    {
        opening.push(byte);
    }
    if opening != OPENING.as_bytes() {
        agent.write_all(b"this lease has ended\n").await.unwrap();
        return;
    }
    agent.write_all(b"ok\n").await.unwrap();
    let (ours, theirs) = tokio::io::duplex(64 << 10);
    // Spawned, which also shows that it may move between threads.
    tokio::spawn(async move { serve_relay(theirs, &store, JOB, false, Access::ReadAndWrite).await });
    let (mut from_server, mut to_server) = tokio::io::split(ours);
    let (mut up, mut down) = (vec![0; 8 << 10], vec![0; 8 << 10]);
    loop {
        tokio::select! {
            said = agent.read(&mut up) => {
                let n = said.unwrap_or(0);
                let left = faults.cut_after.load(Ordering::Relaxed);
                if n == 0 {
                    return;
                }
                if n as u64 > left {
                    faults.cut_after.store(u64::MAX, Ordering::Relaxed);
                    let _ = to_server.write_all(&up[..usize::try_from(left).unwrap()]).await;
                    return;
                }
                if left < u64::MAX {
                    faults.cut_after.store(left - n as u64, Ordering::Relaxed);
                }
                if to_server.write_all(&up[..n]).await.is_err() {
                    return;
                }
            }
            answered = from_server.read(&mut down) => {
                let n = answered.unwrap_or(0);
                if n == 0 || faults.lose_answer.swap(false, Ordering::Relaxed) {
                    return;
                }
                if agent.write_all(&down[..n]).await.is_err() {
                    return;
                }
            }
        }
    }
}

fn run<F: Future<Output = ()>>(test: impl FnOnce(Server) -> F) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let server = Server::start();
        tokio::time::timeout(Duration::from_secs(60), test(server)).await.unwrap();
    });
}

/// Bytes that repeat nowhere soon.
fn noise(bytes: usize) -> Vec<u8> {
    let mut all = vec![0; bytes];
    blake3::Hasher::new().finalize_xof().fill(&mut all);
    all
}

fn hash(content: &[u8]) -> String {
    blake3::hash(content).to_hex().to_string()
}

fn source(path: &Path, grows: bool) -> Source {
    let file = File::open(path).unwrap();
    let stamp = Stamp::of(&file.metadata().unwrap());
    Source::new(file, path.to_owned(), stamp, grows).unwrap()
}

/// The class, the words and the hint of a store's failure.
fn failure<T: std::fmt::Debug>(tried: Result<T>) -> (Culprit, String, String) {
    match tried.unwrap_err() {
        CheckpointError::Store { what, culprit, hint, .. } => (culprit, what, hint),
        other => panic!("{other:?}"),
    }
}
