//! Connections to the server: the kernel names who is at the other end, guests cannot crowd out whom it serves, and a socket
//! that somebody removes is made again.

use crate::home::{Home, log};
use crate::principal::Principal;
use crate::seats::{Seat, Seats};
use axum::serve::Listener;
use std::fs::{File, Permissions};
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::PathBuf;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{UnixListener, UnixStream, unix::SocketAddr};
use tokio::time::Sleep;

/// How often it is looked whether the socket is still there.
const LOOK: Duration = Duration::from_secs(1);

/// Who has not sent the head of a request by then is not listened to any longer.
const HEAD_WITHIN: Duration = Duration::from_secs(10);

/// Takes connections in.
pub struct PeerListener {
    socket: Socket,
    seats: Seats,
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
    head: Head,
    _seat: Option<Seat>,
}

/// The head of a connection's first request, while it is on its way.
struct Head {
    /// When it must have come; none once it has.
    until: Option<Pin<Box<Sleep>>>,
    /// How much of the empty line that ends it was read last.
    ends: usize,
}

impl Head {
    fn within(time: Duration) -> Head {
        Head { until: Some(Box::pin(tokio::time::sleep(time))), ends: 0 }
    }

    /// Whether it is too late for it.
    fn is_late(&mut self, cx: &mut Context<'_>) -> bool {
        self.until.as_mut().is_some_and(|until| until.as_mut().poll(cx).is_ready())
    }

    fn read(&mut self, bytes: &[u8]) {
        const END: &[u8; 4] = b"\r\n\r\n";
        if self.until.is_none() {
            return;
        }
        for byte in bytes {
            self.ends = match *byte {
                byte if byte == END[self.ends] => self.ends + 1,
                b'\r' => 1,
                _ => 0,
            };
            if self.ends == END.len() {
                self.until = None;
                return;
            }
        }
    }
}

impl PeerListener {
    /// Listens in the state directory, whose lock the caller holds.
    pub fn bind(home: &Home) -> io::Result<PeerListener> {
        let socket = Socket::bind(home.path.join("server.sock"), File::open(&home.path)?)?;
        Ok(PeerListener { socket, seats: Seats::default() })
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
                // Where its seats are taken a guest is turned away.
                false => match self.seats.take(stream.peer_cred().map_or(u32::MAX, |peer| peer.uid())) {
                    Some(seat) => Some(seat),
                    None => continue,
                },
            };
            return (PeerStream { who, stream, head: Head::within(HEAD_WITHIN), _seat: seat }, address);
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.socket.listener.local_addr()
    }
}

impl AsyncRead for PeerStream {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if self.head.is_late(cx) {
            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
        }
        let before = buf.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(cx, buf);
        self.head.read(&buf.filled()[before..]);
        read
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

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    /// A connection as the server has it, and the other end of it.
    fn connection(within_ms: u64) -> (PeerStream, UnixStream) {
        let (stream, other) = UnixStream::pair().expect("it works");
        let (who, head) = (Principal::of(4_242, 1_000), Head::within(Duration::from_millis(within_ms)));
        (PeerStream { who, stream, head, _seat: None }, other)
    }

    #[tokio::test]
    async fn who_asks_nothing_is_not_listened_to_for_ever() {
        let (mut silent, mut other) = connection(20);
        other.write_all(b"GET / HTTP/1.1\r\nhost: a\r\n").await.expect("it works");
        let mut read = Vec::new();
        let ended = tokio::time::timeout(HEAD_WITHIN, silent.read_to_end(&mut read)).await.expect("it ends");
        assert_eq!(ended.expect_err("too late").kind(), io::ErrorKind::TimedOut);
    }

    #[tokio::test]
    async fn who_has_asked_is_listened_to_as_long_as_it_likes() {
        let (mut asks, mut other) = connection(1_000);
        other.write_all(b"GET / HTTP/1.1\r\nhost: a\r").await.expect("it works");
        let mut read = [0; 64];
        assert_ne!(asks.read(&mut read).await.expect("it works"), 0);
        other.write_all(b"\n\r\n").await.expect("it works");
        assert_eq!(asks.read(&mut read).await.expect("it works"), 3);
        tokio::time::sleep(Duration::from_millis(1_100)).await;
        other.write_all(b"more").await.expect("it works");
        assert_eq!(asks.read(&mut read).await.expect("it works"), 4);
    }
}
