//! How soon a connection between a node and its server is known to be cut: what was sent and is not answered for in time ends
//! it, and where nothing is sent the other side is asked now and then.

use rustix::net::sockopt;
use std::time::Duration;
use tokio::net::TcpStream;

/// A server is patient: a node that is only slow keeps what it was sending.
pub(super) const SERVER: Duration = Duration::from_secs(60);
/// A node tries another connection sooner.
pub(super) const NODE: Duration = Duration::from_secs(30);

/// What is being stored may wait for a slow disk: both sides say meanwhile that they are at it.
pub(super) const STORE: Duration = Duration::from_secs(300);

/// The other side is asked after so long, and again.
const ASKED: (Duration, Duration) = (Duration::from_secs(10), Duration::from_secs(5));

/// Ends a connection that carries nothing for so long. Where the kernel knows none of this it ends as late as it did before.
pub(super) fn ends_after(stream: &TcpStream, silence: Duration) {
    let _ = stream.set_nodelay(true);
    let questions = silence.saturating_sub(ASKED.0).as_secs() / ASKED.1.as_secs();
    let _ = sockopt::set_tcp_user_timeout(stream, silence.as_millis() as u32);
    let _ = sockopt::set_tcp_keepidle(stream, ASKED.0);
    let _ = sockopt::set_tcp_keepintvl(stream, ASKED.1);
    let _ = sockopt::set_tcp_keepcnt(stream, questions.max(1) as u32);
    let _ = sockopt::set_socket_keepalive(stream, true);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_connection_is_asked_after_and_ends_in_time() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let stream = TcpStream::connect(listener.local_addr().expect("bound")).await.expect("connected");
        ends_after(&stream, NODE);
        assert_eq!(sockopt::tcp_user_timeout(&stream).expect("read"), 30_000);
        assert!(sockopt::socket_keepalive(&stream).expect("read"));
        let asked = sockopt::tcp_keepintvl(&stream).expect("read") * sockopt::tcp_keepcnt(&stream).expect("read");
        assert_eq!(sockopt::tcp_keepidle(&stream).expect("read") + asked, NODE);
    }
}
