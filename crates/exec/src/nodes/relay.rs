//! The socket on which agents of this node reach checkpoints that only the server can: each connection is piped to one of
//! its own to the server, which knows whose checkpoints a node may have.

use super::protocol::InStore;
use std::collections::BTreeMap;
use std::future::Future;
use std::io;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::net::{UnixListener, UnixStream};

/// How long an agent may take to say what it wants.
const OPENING: Duration = Duration::from_secs(10);
/// Streams at once; descriptors are needed for leases too.
const MOST_STREAMS: usize = 1_024;
/// Of these, the streams of one user, where several have any.
pub(super) const MOST_OF_ONE: usize = 64;
/// The longest way to say it.
const MOST_OPENING: u64 = 1 << 10;

/// Takes agents on this socket for ever. Each says what it wants; `open` is told that and the number of the user who asks,
/// and gives a stream to it, or says why not. With `is_for_all` agents of other users may ask as well.
pub fn listen<O, F, S>(socket: &Path, is_for_all: bool, open: O) -> io::Result<tokio::task::JoinHandle<()>>
where
    O: Fn(InStore, u32) -> F + Clone + Send + 'static,
    F: Future<Output = Result<S, String>> + Send,
    S: AsyncRead + AsyncWrite + Unpin + Send,
{
    let _ = std::fs::remove_file(socket);
    let dir = std::fs::File::open(socket.parent().unwrap_or(socket))?;
    // A socket's path is limited to 108 bytes; one through an open folder never reaches that.
    let name = socket.file_name().unwrap_or_default().to_string_lossy();
    let listener = UnixListener::bind(format!("/proc/self/fd/{}/{name}", dir.as_raw_fd()))?;
    if is_for_all {
        std::fs::set_permissions(socket, std::os::unix::fs::PermissionsExt::from_mode(0o666))?;
    }
    let seats = Seats::new(MOST_STREAMS, if is_for_all { MOST_OF_ONE } else { MOST_STREAMS });
    Ok(tokio::spawn(async move {
        loop {
            let Ok((stream, _)) = listener.accept().await else {
                // No descriptor is left, for example.
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            };
            // Where there are too many, whoever comes is turned away: agents try again.
            let Ok(uid) = stream.peer_cred().map(|peer| peer.uid()) else { continue };
            let (open, seat) = (open.clone(), seats.take(uid));
            let Some(seat) = seat else { continue };
            tokio::spawn(async move {
                // Whoever asked is told, or is gone.
                let _ = pipe(stream, uid, open).await;
                drop(seat);
            });
        }
    }))
}

/// So many streams at once, and so many of each user: nobody's job keeps another's from its checkpoints.
#[derive(Clone)]
struct Seats {
    taken: Arc<Mutex<BTreeMap<u32, usize>>>,
    most: usize,
    most_of_one: usize,
}

impl Seats {
    fn new(most: usize, most_of_one: usize) -> Seats {
        Seats { taken: Arc::default(), most, most_of_one }
    }

    /// A seat for this user, which is free again when it is dropped; none where too many are taken.
    fn take(&self, uid: u32) -> Option<Seat> {
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let all: usize = taken.values().sum();
        let own = taken.get(&uid).copied().unwrap_or(0);
        (all < self.most && own < self.most_of_one).then(|| {
            taken.insert(uid, own + 1);
            Seat { taken: Arc::clone(&self.taken), uid }
        })
    }
}

struct Seat {
    taken: Arc<Mutex<BTreeMap<u32, usize>>>,
    uid: u32,
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        match taken.get_mut(&self.uid) {
            Some(own) if *own > 1 => *own -= 1,
            _ => _ = taken.remove(&self.uid),
        }
    }
}

async fn pipe<O, F, S>(stream: UnixStream, uid: u32, open: O) -> io::Result<()>
where
    O: Fn(InStore, u32) -> F,
    F: Future<Output = Result<S, String>>,
    S: AsyncRead + AsyncWrite + Unpin,
{
    let mut stream = BufReader::new(stream);
    let mut line = String::new();
    let mut opening = (&mut stream).take(MOST_OPENING);
    tokio::time::timeout(OPENING, opening.read_line(&mut line)).await.map_err(io::Error::other)??;
    let opened = match line.trim().parse() {
        Ok(what) => open(what, uid).await,
        Err(why) => Err(why),
    };
    let mut far = match opened {
        Ok(far) => far,
        Err(why) => return stream.write_all(format!("{}\n", why.replace('\n', " ")).as_bytes()).await,
    };
    stream.write_all(b"ok\n").await?;
    tokio::io::copy_bidirectional(&mut stream, &mut far).await.map(|_| ())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_user_takes_so_many_seats_and_leaves_the_others_theirs() {
        let seats = Seats::new(5, 2);
        let of_ada: Vec<Seat> = (0..9).filter_map(|_| seats.take(1)).collect();
        assert_eq!(of_ada.len(), 2);
        let others: Vec<Seat> = (2..9).filter_map(|uid| seats.take(uid)).collect();
        assert_eq!(others.len(), 3, "and all together have no more than there are");
        drop(of_ada);
        assert!(seats.take(1).is_some(), "free again");
        drop(others);
        assert!(seats.taken.lock().expect("free").is_empty());
    }

    #[tokio::test]
    async fn whoever_has_too_many_streams_is_turned_away() {
        let dir = tempfile::tempdir().expect("a folder");
        let socket = dir.path().join("relay.sock");
        // Nothing is ever opened, so that all of them stay.
        let open = |_: InStore, _: u32| std::future::pending::<Result<tokio::io::DuplexStream, String>>();
        let listening = listen(&socket, true, open).expect("listens");
        let mut streams = Vec::new();
        for _ in 0..=MOST_OF_ONE {
            let mut stream = UnixStream::connect(&socket).await.expect("taken");
            // Whoever was turned away already is seen below.
            let _ = stream.write_all(b"7\n").await;
            streams.push(stream);
        }
        let mut last = streams.pop().expect("one too many");
        let said = tokio::time::timeout(OPENING, last.read(&mut [0; 1])).await.expect("at once");
        assert!(matches!(said, Ok(0) | Err(_)), "{said:?}");
        let mut first = streams.swap_remove(0);
        let waits = tokio::time::timeout(Duration::from_millis(200), first.read(&mut [0; 1])).await;
        assert!(waits.is_err(), "the others wait for the store");
        listening.abort();
    }
}
