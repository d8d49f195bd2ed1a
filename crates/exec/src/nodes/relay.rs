//! The socket on which agents of this node reach checkpoints that only the server can: each connection is piped to one of
//! its own to the server, which knows whose checkpoints a node may have.

use super::protocol::InStore;
use std::future::Future;
use std::io;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::Semaphore;

/// How long an agent may take to say what it wants.
const OPENING: Duration = Duration::from_secs(10);
/// Streams at once; descriptors are needed for leases too.
const MOST_STREAMS: usize = 1_024;
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
    let streams = Arc::new(Semaphore::new(MOST_STREAMS));
    Ok(tokio::spawn(async move {
        loop {
            let Ok((stream, _)) = listener.accept().await else {
                // No descriptor is left, for example.
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            };
            // Where there are too many, whoever comes is turned away: agents try again.
            let (open, permit) = (open.clone(), Arc::clone(&streams).try_acquire_owned());
            let Ok(permit) = permit else { continue };
            tokio::spawn(async move {
                // Whoever asked is told, or is gone.
                let _ = pipe(stream, open).await;
                drop(permit);
            });
        }
    }))
}

async fn pipe<O, F, S>(stream: UnixStream, open: O) -> io::Result<()>
where
    O: Fn(InStore, u32) -> F,
    F: Future<Output = Result<S, String>>,
    S: AsyncRead + AsyncWrite + Unpin,
{
    let uid = stream.peer_cred()?.uid();
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
