//! Connections to the server: the kernel names who is at the other end, guests cannot crowd out whom it serves, and a socket
//! that somebody removes is made again.

use crate::home::{Home, log};
use crate::principal::Principal;
use axum::serve::Listener;
use std::fs::{File, Permissions};
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{UnixListener, UnixStream, unix::SocketAddr};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Connections of guests at the same time; descriptors are needed for agents and files.
const GUESTS: usize = 64;

/// How often it is looked whether the socket is still there.
const LOOK: Duration = Duration::from_secs(1);

/// Takes connections in.
pub struct PeerListener {
    socket: Socket,
    seats: Arc<Semaphore>,
}

/// The server's socket in the state directory.
struct Socket {
    path: PathBuf,
    /// The state directory, however it is called by now.
    folder: File,
    listener: UnixListener,
    /// Which file it is: device and number.
    identity: (u64, u64),
}

impl Socket {
    /// Whoever binds holds the lock of the directory: what is there belongs to a server that is gone.
    fn bind(path: PathBuf, folder: File) -> io::Result<Socket> {
        let _ = std::fs::remove_file(&path);
        let listener = UnixListener::bind(Home::socket(&folder))?;
        // Everybody on this machine may ask; who may do what is judged by who asks.
        std::fs::set_permissions(&path, Permissions::from_mode(0o666))?;
        let identity = identity(&path)?;
        Ok(Socket { path, folder, listener, identity })
    }

    /// Nobody would find the server any more, and no other could be started.
    fn mend(&mut self) {
        if identity(&self.path).is_ok_and(|found| found == self.identity) {
            return;
        }
        let bound = self.folder.try_clone().and_then(|folder| Socket::bind(self.path.clone(), folder));
        if let Ok(bound) = bound {
            log("its socket was removed: it listens on a new one");
            *self = bound;
        }
    }
}

fn identity(path: &std::path::Path) -> io::Result<(u64, u64)> {
    std::fs::symlink_metadata(path).map(|meta| (meta.dev(), meta.ino()))
}

/// A connection, and who is at the other end.
pub struct PeerStream {
    pub who: Principal,
    stream: UnixStream,
    _seat: Option<OwnedSemaphorePermit>,
}

impl PeerListener {
    /// Listens in the state directory, whose lock the caller holds.
    pub fn bind(home: &Home) -> io::Result<PeerListener> {
        let socket = Socket::bind(home.path.join("server.sock"), File::open(&home.path)?)?;
        Ok(PeerListener { socket, seats: Arc::new(Semaphore::new(GUESTS)) })
    }
}

impl Listener for PeerListener {
    type Io = PeerStream;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (PeerStream, SocketAddr) {
        loop {
            let accept = Listener::accept(&mut self.socket.listener);
            let Ok((stream, address)) = tokio::time::timeout(LOOK, accept).await else {
                self.socket.mend();
                continue;
            };
            let who = Principal::at(&stream);
            let seat = match who.is_operator() {
                true => None,
                // Where every seat is taken a guest is turned away.
                false => match Arc::clone(&self.seats).try_acquire_owned() {
                    Ok(seat) => Some(seat),
                    Err(_) => continue,
                },
            };
            return (PeerStream { who, stream, _seat: seat }, address);
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.socket.listener.local_addr()
    }
}

impl AsyncRead for PeerStream {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl AsyncWrite for PeerStream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
