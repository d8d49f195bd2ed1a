//! The socket on which agents of this node reach checkpoints that only the server can: each connection is piped to one of
//! its own to the server, which knows whose checkpoints a node may have.

use super::protocol::InStore;
use std::future::Future;
use std::io;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::net::{UnixListener, UnixStream};

/// How long an agent may take to say what it wants.
const OPENING: Duration = Duration::from_secs(10);
/// The longest way to say it.
const MOST_OPENING: u64 = 1 << 10;

/// Takes agents on this socket for ever. Each says what it wants; `open` gives a stream to that, or says why not.
pub(super) fn listen<O, F, S>(socket: &Path, open: O) -> io::Result<tokio::task::JoinHandle<()>>
where
    O: Fn(InStore) -> F + Clone + Send + 'static,
    F: Future<Output = Result<S, String>> + Send,
    S: AsyncRead + AsyncWrite + Unpin + Send,
{
    let _ = std::fs::remove_file(socket);
    let dir = std::fs::File::open(socket.parent().unwrap_or(socket))?;
    // A socket's path is limited to 108 bytes; one through an open folder never reaches that.
    let name = socket.file_name().unwrap_or_default().to_string_lossy();
    let listener = UnixListener::bind(format!("/proc/self/fd/{}/{name}", dir.as_raw_fd()))?;
    Ok(tokio::spawn(async move {
        loop {
            let Ok((stream, _)) = listener.accept().await else {
                // No descriptor is left, for example.
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            };
            let open = open.clone();
            tokio::spawn(async move {
                // Whoever asked is told, or is gone.
                let _ = pipe(stream, open).await;
            });
        }
    }))
}

async fn pipe<O, F, S>(stream: UnixStream, open: O) -> io::Result<()>
where
    O: Fn(InStore) -> F,
    F: Future<Output = Result<S, String>>,
    S: AsyncRead + AsyncWrite + Unpin,
{
    let mut stream = BufReader::new(stream);
    let mut line = String::new();
    let mut opening = (&mut stream).take(MOST_OPENING);
    tokio::time::timeout(OPENING, opening.read_line(&mut line)).await.map_err(io::Error::other)??;
    let opened = match line.trim().parse() {
        Ok(what) => open(what).await,
        Err(why) => Err(why),
    };
    let mut far = match opened {
        Ok(far) => far,
        Err(why) => return stream.write_all(format!("{}\n", why.replace('\n', " ")).as_bytes()).await,
    };
    stream.write_all(b"ok\n").await?;
    tokio::io::copy_bidirectional(&mut stream, &mut far).await.map(|_| ())
}
