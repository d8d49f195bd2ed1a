//! Connections to the server: the kernel names who is at the other end, and guests cannot crowd out whom it serves.

use crate::principal::Principal;
use axum::serve::Listener;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{UnixListener, UnixStream, unix::SocketAddr};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Connections of guests at the same time; descriptors are needed for agents and files.
const GUESTS: usize = 64;

/// Takes connections in.
pub struct PeerListener {
    listener: UnixListener,
    seats: Arc<Semaphore>,
}

/// A connection, and who is at the other end.
pub struct PeerStream {
    pub who: Principal,
    stream: UnixStream,
    _seat: Option<OwnedSemaphorePermit>,
}

impl PeerListener {
    pub fn new(listener: UnixListener) -> PeerListener {
        PeerListener { listener, seats: Arc::new(Semaphore::new(GUESTS)) }
    }
}

impl Listener for PeerListener {
    type Io = PeerStream;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (PeerStream, SocketAddr) {
        loop {
            let (stream, address) = Listener::accept(&mut self.listener).await;
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
        self.listener.local_addr()
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
