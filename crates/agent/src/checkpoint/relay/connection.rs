//! The agent's end of one connection to the server's store: how it is opened, and how one operation goes out while the
//! server may already answer that it will not work.

use std::io::{Error, ErrorKind, Result};
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use futures::FutureExt;
use rustix::fs::{Mode, OFlags};
use serde::Serialize;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};

use super::super::address::Relay;
use super::wire::{Answer, Outcome, frame, garbled, read_exact, read_frame, within};

/// The longest line with which the server may refuse a connection.
const REFUSAL_MAX: usize = 1 << 10;
/// A listener whose queue is full is asked again this often.
const ASK_AGAIN: Duration = Duration::from_millis(20);
/// What a peer said before it closed is already here, or almost.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// Why a connection could not be opened.
#[derive(Debug)]
pub(super) enum NotOpened {
    Unreachable(Error),
    /// The server's words.
    Refused(String),
}

/// Whether all bytes went out.
#[derive(Debug)]
pub(super) enum Went {
    Out,
    /// The server answered before it had everything; the connection is of no more use.
    Early(Answer),
}

#[derive(Debug)]
pub(super) struct Connection {
    read: BufReader<OwnedReadHalf>,
    write: OwnedWriteHalf,
    quiet: Duration,
    used: Instant,
}

impl Connection {
    /// Connects to the socket and says the opening; `quiet` is how long the server may be silent.
    pub async fn open(relay: &Relay, quiet: Duration) -> std::result::Result<Self, NotOpened> {
        let stream = within(quiet, connect(relay)).await.map_err(NotOpened::Unreachable)?;
        let (read, write) = stream.into_split();
        let mut connection = Self { read: BufReader::new(read), write, quiet, used: Instant::now() };
        let line = connection.introduce(&relay.opening).await.map_err(NotOpened::Unreachable)?;
        if line == "ok" { Ok(connection) } else { Err(NotOpened::Refused(line)) }
    }

    async fn introduce(&mut self, opening: &str) -> Result<String> {
        within(self.quiet, self.write.write_all(format!("{opening}\n").as_bytes())).await?;
        let mut line = Vec::new();
        loop {
            let mut byte = [0];
            read_exact(&mut self.read, &mut byte, self.quiet).await?;
            match byte {
                [b'\n'] => break,
                _ if line.len() >= REFUSAL_MAX => return Err(garbled("the server's first line is too long")),
                [byte] => line.push(byte),
            }
        }
        let line = String::from_utf8_lossy(&line).replace(char::is_control, " ");
        Ok(line.trim().to_owned())
    }

    /// Whether it was used not long ago and nothing came since: between operations a server only speaks to say that
    /// it is gone.
    pub fn is_usable(&mut self) -> bool {
        self.used.elapsed() < self.quiet && self.read.fill_buf().now_or_never().is_none()
    }

    /// An operation is done: it may be used for the next.
    pub fn rest(&mut self) {
        self.used = Instant::now();
    }

    /// Sends one frame.
    pub async fn say(&mut self, head: &impl Serialize) -> Result<Went> {
        self.write(&frame(head)?).await
    }

    /// Sends bytes, and listens meanwhile: a store that is full says so long before it has read a large body.
    pub async fn write(&mut self, mut rest: &[u8]) -> Result<Went> {
        enum Step {
            Wrote(usize),
            Heard,
        }
        while !rest.is_empty() {
            let step = within(self.quiet, async {
                tokio::select! {
                    biased;
                    heard = self.read.fill_buf() => heard.map(|_| Step::Heard),
                    wrote = self.write.write(rest) => wrote.map(Step::Wrote),
                }
            });
            match step.await {
                Ok(Step::Wrote(0)) => return Err(ErrorKind::WriteZero.into()),
                Ok(Step::Wrote(n)) => rest = &rest[n..],
                Ok(Step::Heard) => match self.hear().await? {
                    Answer { outcome: Outcome::Working, .. } => {}
                    early => return Ok(Went::Early(early)),
                },
                Err(broken) => {
                    // The server may have said why before it closed.
                    return match tokio::time::timeout(LAST_WORDS, self.answer()).await {
                        Ok(Ok(early)) => Ok(Went::Early(early)),
                        _ => Err(broken),
                    };
                }
            }
        }
        Ok(Went::Out)
    }

    /// Waits for the answer, for as long as the server says that it works.
    pub async fn answer(&mut self) -> Result<Answer> {
        loop {
            match self.hear().await? {
                Answer { outcome: Outcome::Working, .. } => {}
                answer => return Ok(answer),
            }
        }
    }

    async fn hear(&mut self) -> Result<Answer> {
        read_frame(&mut self.read, self.quiet).await
    }

    /// Where the bytes of a body come from, and how long each part may take.
    pub fn body(&mut self) -> (&mut BufReader<OwnedReadHalf>, Duration) {
        (&mut self.read, self.quiet)
    }
}

/// A socket's path may be longer than an address of the system: the way over its opened folder is short.
async fn connect(relay: &Relay) -> Result<UnixStream> {
    // Only passed through: it may be another user's, who shows nothing of it.
    let passed = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let (folder, name) = match (relay.socket.parent(), relay.socket.file_name()) {
        (Some(folder), Some(name)) => (rustix::fs::open(folder, passed, Mode::empty())?, name),
        _ => return Err(ErrorKind::InvalidInput.into()),
    };
    let mut short = std::path::PathBuf::from(format!("/proc/self/fd/{}", folder.as_raw_fd()));
    short.push(name);
    loop {
        match UnixStream::connect(&short).await {
            Err(e) if e.kind() == ErrorKind::WouldBlock => tokio::time::sleep(ASK_AGAIN).await,
            other => return other,
        }
    }
}
