//! The store of an agent that shares no disk with the server: a directory on the server's machine, reached over a
//! stream. `RelayDepot` is the agent's end and asks; `serve_relay` is the server's end and answers from the directory,
//! for one job. Neither holds a blob in memory.
//!
//! # What is tried again
//!
//! An operation that breaks on a kept connection is tried once more on a fresh one: the server may have been started
//! anew since. This is sound because each of them may be done twice:
//!
//! - `get`, `fetch`, `list`, `flush` and `sweep` change nothing that counts; `delete` of what is gone is done.
//! - `put` and `send` write a name that nobody else writes, with the same bytes. Only a file that grows could have other
//!   bytes the second time, so it is not sent again once the server may have put it in place.
//! - `create` may find its own first try when the answer to that was lost. Then what is stored is compared with what
//!   was to be written: equal bytes are ours, because a manifest carries its writer's random word. A name that is taken
//!   without a lost answer before is a rival's, as on every store. A lost answer is looked after on a fresh connection
//!   too; only if the server stays away the caller gets an error and does not know.

mod connection;
mod serve;
mod wire;

#[cfg(test)]
mod tests;

use std::fs::File;
use std::io::{self, Seek, SeekFrom, Write};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;

use super::address::Relay;
use super::depot::{Depot, Fetched, Source, count};
use super::error::{Cause, CheckpointError, Culprit, Result, blocking};
use connection::{Connection, NotOpened, Went};
use wire::{Answer, BODY_MAX, Operation, Outcome, PIECE, Request, Sent, garbled, read_body, read_exact};

pub use serve::{Access, serve_relay};

/// How long an operation may go without any progress.
const QUIET: Duration = Duration::from_secs(60);
/// More files are not moved at the same time.
const KEPT: usize = 8;
/// How often `create` is tried on fresh connections, to learn what became of a try whose answer was lost.
const CREATE_TRIES: u32 = 2;
/// Keys of one `delete` request: with their quotes they stay well below a frame's limit.
const KEYS_AT_ONCE: usize = 32 << 10;

#[derive(Debug)]
pub(crate) struct RelayDepot {
    relay: Relay,
    quiet: Duration,
    /// As in a directory's depot: from then on a missing directory is a store that is away. It is remembered here
    /// because it must outlive the connections.
    seen: AtomicBool,
    /// Connections between two operations.
    kept: Mutex<Vec<Connection>>,
}

/// Why a try at an operation failed.
#[derive(Debug)]
enum Fault {
    /// The connection broke, so nobody knows how far it came.
    Broken(io::Error),
    /// The store or the local file failed.
    Failed(CheckpointError),
}

type Tried<T> = std::result::Result<T, Fault>;

impl From<io::Error> for Fault {
    fn from(error: io::Error) -> Self {
        Self::Broken(error)
    }
}

impl From<CheckpointError> for Fault {
    fn from(error: CheckpointError) -> Self {
        Self::Failed(error)
    }
}

impl From<Fault> for CheckpointError {
    fn from(fault: Fault) -> Self {
        match fault {
            Fault::Broken(error) => away("the server cannot be reached from this machine", Box::new(error)),
            Fault::Failed(error) => error,
        }
    }
}

fn away(why: &str, source: Cause) -> CheckpointError {
    let what = format!("the checkpoint store failed: {why}");
    CheckpointError::Store { what, culprit: Culprit::Endpoint, hint: Relay::HINT.into(), source }
}

fn too_large(key: &str, bytes: u64) -> CheckpointError {
    CheckpointError::Store {
        what: format!("the checkpoint store failed: {key} has {bytes} bytes, more than a relay takes in one piece"),
        culprit: Culprit::Feature,
        hint: format!("save fewer files: at most {} MiB travel in one piece", BODY_MAX >> 20),
        source: "too large".into(),
    }
}

fn unexpected<T>(outcome: &Outcome) -> Tried<T> {
    Err(garbled(format!("the server gave the answer of another operation: {outcome:?}")).into())
}

impl RelayDepot {
    /// The store behind this relay; `seen`: the job's directory was there before. Nothing is contacted yet.
    pub fn new(relay: Relay, seen: bool) -> Self {
        Self { relay, quiet: QUIET, seen: AtomicBool::new(seen), kept: Mutex::default() }
    }

    fn pool(&self) -> MutexGuard<'_, Vec<Connection>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A connection of an earlier operation that seems to be alive.
    fn kept(&self) -> Option<Connection> {
        let mut pool = self.pool();
        while let Some(mut connection) = pool.pop() {
            if connection.is_usable() {
                return Some(connection);
            }
        }
        None
    }

    async fn fresh(&self) -> Result<Connection> {
        Connection::open(&self.relay, self.quiet).await.map_err(|why| match why {
            NotOpened::Unreachable(error) => Fault::Broken(error).into(),
            NotOpened::Refused(why) => away(&format!("no connection: {why}"), why.into()),
        })
    }

    fn keep(&self, mut connection: Connection) {
        connection.rest();
        let mut pool = self.pool();
        if pool.len() < KEPT {
            pool.push(connection);
        }
    }

    /// Where one kept connection is dead, the others are too.
    fn drop_kept(&self) {
        self.pool().clear();
    }

    fn request(&self, operation: Operation) -> Request {
        Request { seen: self.seen.load(Ordering::Relaxed), operation }
    }

    fn read_answer(&self, answer: Answer) -> Tried<Outcome> {
        if answer.seen {
            self.seen.store(true, Ordering::Relaxed);
        }
        match answer.outcome {
            Outcome::Failed(failure) => Err(Fault::Failed(failure.into())),
            outcome => Ok(outcome),
        }
    }

    /// What the server says, once or before all that was to be sent is out. Before the end it can only be a failure.
    async fn outcome(&self, connection: &mut Connection, went: Went) -> Tried<Outcome> {
        match went {
            Went::Out => self.read_answer(connection.answer().await?),
            Went::Early(answer) => {
                let outcome = self.read_answer(answer)?;
                unexpected(&outcome)
            }
        }
    }

    /// One try at an operation whose bodies are small. Only a connection that has done its work whole is kept.
    async fn ask_on(&self, mut connection: Connection, request: &Request, body: &[u8]) -> Tried<(Outcome, Bytes)> {
        let mut went = connection.say(request).await?;
        if let Went::Out = went {
            went = connection.write(body).await?;
        }
        let outcome = self.outcome(&mut connection, went).await?;
        let body = match outcome {
            Outcome::Body { size } => {
                let (from, quiet) = connection.body();
                read_body(from, size, quiet).await?
            }
            _ => Bytes::new(),
        };
        self.keep(connection);
        Ok((outcome, body))
    }

    /// An operation that may be done twice.
    async fn ask(&self, operation: Operation, body: &[u8]) -> Result<(Outcome, Bytes)> {
        let request = self.request(operation);
        if let Some(kept) = self.kept() {
            match self.ask_on(kept, &request, body).await {
                Err(Fault::Broken(_)) => self.drop_kept(),
                tried => return Ok(tried?),
            }
        }
        Ok(self.ask_on(self.fresh().await?, &request, body).await?)
    }

    async fn ask_done(&self, operation: Operation, body: &[u8]) -> Result<()> {
        match self.ask(operation, body).await? {
            (Outcome::Done, _) => Ok(()),
            (other, _) => Ok(unexpected(&other)?),
        }
    }

    async fn send_on(&self, mut connection: Connection, sending: &mut Sending<'_>) -> Tried<String> {
        let (key, size) = (sending.key.to_owned(), sending.source()?.size());
        let mut went = connection.say(&self.request(Operation::Send { key, size })).await?;
        let mut piece = Vec::new();
        while let Went::Out = went {
            if sending.source()?.left() == 0 {
                break;
            }
            piece = sending.next(piece).await?;
            went = connection.write(&piece).await?;
            count(sending.sent, piece.len());
            sending.counted += piece.len() as u64;
        }
        let mut hash = String::new();
        if let Went::Out = went {
            // A file that changed ends the connection here, and the server discards what has no hash.
            hash = sending.finish().await?;
            sending.complete = true;
            went = connection.say(&Sent { hash: hash.clone() }).await?;
        }
        match self.outcome(&mut connection, went).await? {
            Outcome::Done => {}
            other => return unexpected(&other),
        }
        self.keep(connection);
        Ok(hash)
    }

    async fn fetch_on(
        &self,
        mut connection: Connection,
        request: &Request,
        size: u64,
        into: &Arc<File>,
    ) -> Tried<Fetched> {
        let went = connection.say(request).await?;
        match self.outcome(&mut connection, went).await? {
            Outcome::Body { size: announced } if announced == size => {}
            missing_or_short @ (Outcome::Missing | Outcome::Short) => {
                self.keep(connection);
                let missing = matches!(missing_or_short, Outcome::Missing);
                return Ok(if missing { Fetched::Missing } else { Fetched::Short });
            }
            other => return unexpected(&other),
        }
        let (mut hasher, mut piece, mut left) = (blake3::Hasher::new(), Vec::new(), size);
        while left > 0 {
            piece.resize(usize::try_from(left).unwrap_or(usize::MAX).min(PIECE), 0);
            let (from, quiet) = connection.body();
            read_exact(from, &mut piece, quiet).await?;
            left -= piece.len() as u64;
            let into = Arc::clone(into);
            (hasher, piece) = blocking(move || {
                hasher.update(&piece);
                (&*into).write_all(&piece).map_err(CheckpointError::not_restored)?;
                Ok((hasher, piece))
            })
            .await?;
        }
        self.keep(connection);
        Ok(Fetched::Whole(hasher.finalize().to_hex().to_string()))
    }
}

/// A file on its way out, over as many connections as it takes.
struct Sending<'a> {
    key: &'a str,
    /// Away only while a piece of it is read.
    source: Option<Source>,
    sent: &'a AtomicU64,
    /// How much of `sent` is of this try.
    counted: u64,
    /// The server may have all it needs to put the file in place.
    complete: bool,
}

impl Sending<'_> {
    fn source(&self) -> Result<&Source> {
        self.source.as_ref().ok_or_else(stopped)
    }

    /// Works with the source off the runtime's thread.
    async fn with_source<T: Send + 'static>(
        &mut self,
        work: impl FnOnce(&mut Source) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let mut source = self.source.take().ok_or_else(stopped)?;
        let (source, done) = blocking(move || {
            let done = work(&mut source);
            Ok((source, done))
        })
        .await?;
        self.source = Some(source);
        done
    }

    async fn next(&mut self, mut piece: Vec<u8>) -> Result<Vec<u8>> {
        self.with_source(move |source| {
            piece.resize(usize::try_from(source.left()).unwrap_or(usize::MAX).min(PIECE), 0);
            source.read(&mut piece)?;
            Ok(piece)
        })
        .await
    }

    async fn finish(&mut self) -> Result<String> {
        self.with_source(|source| source.finish()).await
    }

    /// Whether a second try can only store the same bytes.
    fn may_repeat(&self) -> bool {
        !self.complete || self.source.as_ref().is_some_and(|source| !source.grows())
    }

    async fn begin_again(&mut self) -> Result<()> {
        self.sent.fetch_sub(std::mem::take(&mut self.counted), Ordering::Relaxed);
        self.with_source(Source::rewind).await
    }
}

fn stopped() -> CheckpointError {
    CheckpointError::Task("the reader of a file was stopped".into())
}

#[async_trait]
impl Depot for RelayDepot {
    async fn create(&self, key: &str, body: Bytes) -> Result<bool> {
        let size = body.len() as u64;
        if size > BODY_MAX {
            return Err(too_large(key, size));
        }
        let request = self.request(Operation::Create { key: key.to_owned(), size });
        let (mut kept, mut fresh, mut lost) = (self.kept(), 0, false);
        loop {
            let connection = match kept.take() {
                Some(kept) => kept,
                None => {
                    fresh += 1;
                    self.fresh().await?
                }
            };
            match self.ask_on(connection, &request, &body).await {
                Ok((Outcome::Created(false), _)) if lost => {
                    return Ok(self.get(key).await?.is_some_and(|there| there == body));
                }
                Ok((Outcome::Created(made), _)) => return Ok(made),
                Ok((other, _)) => return Ok(unexpected(&other)?),
                Err(Fault::Broken(_)) if fresh < CREATE_TRIES => {
                    self.drop_kept();
                    lost = true;
                }
                Err(fault) => return Err(fault.into()),
            }
        }
    }

    async fn put(&self, key: &str, body: Bytes) -> Result<()> {
        let size = body.len() as u64;
        if size > BODY_MAX {
            return Err(too_large(key, size));
        }
        self.ask_done(Operation::Put { key: key.to_owned(), size }, &body).await
    }

    async fn send(&self, key: &str, source: Source, sent: &Arc<AtomicU64>) -> Result<String> {
        let mut sending = Sending { key, source: Some(source), sent, counted: 0, complete: false };
        if let Some(kept) = self.kept() {
            match self.send_on(kept, &mut sending).await {
                Err(Fault::Broken(_)) if sending.may_repeat() => {
                    self.drop_kept();
                    sending.begin_again().await?;
                }
                tried => return Ok(tried?),
            }
        }
        Ok(self.send_on(self.fresh().await?, &mut sending).await?)
    }

    async fn flush(&self, prefix: &str) -> Result<()> {
        self.ask_done(Operation::Flush { prefix: prefix.to_owned() }, &[]).await
    }

    async fn get(&self, key: &str) -> Result<Option<Bytes>> {
        match self.ask(Operation::Get { key: key.to_owned() }, &[]).await? {
            (Outcome::Body { .. }, body) => Ok(Some(body)),
            (Outcome::Missing, _) => Ok(None),
            (other, _) => Ok(unexpected(&other)?),
        }
    }

    async fn fetch(&self, key: &str, offset: u64, size: u64, into: File) -> Result<Fetched> {
        let request = self.request(Operation::Fetch { key: key.to_owned(), offset, size });
        let start = (&into).stream_position().map_err(CheckpointError::not_restored)?;
        let into = Arc::new(into);
        if let Some(kept) = self.kept() {
            match self.fetch_on(kept, &request, size, &into).await {
                Err(Fault::Broken(_)) => {
                    self.drop_kept();
                    let begun = (&*into).seek(SeekFrom::Start(start)).and_then(|_| into.set_len(start));
                    begun.map_err(CheckpointError::not_restored)?;
                }
                tried => return Ok(tried?),
            }
        }
        Ok(self.fetch_on(self.fresh().await?, &request, size, &into).await?)
    }

    async fn list(&self, prefix: &str) -> Result<Vec<String>> {
        match self.ask(Operation::List { prefix: prefix.to_owned() }, &[]).await? {
            (Outcome::Body { .. }, names) => {
                Ok(serde_json::from_slice(&names).map_err(|e| Fault::Broken(garbled(e.to_string())))?)
            }
            (other, _) => Ok(unexpected(&other)?),
        }
    }

    async fn delete(&self, keys: Vec<String>) -> Result<()> {
        let mut rest = keys.into_iter().peekable();
        while rest.peek().is_some() {
            let (mut some, mut length) = (Vec::new(), 0);
            while length < KEYS_AT_ONCE
                && let Some(key) = rest.next()
            {
                length += key.len() + 3;
                some.push(key);
            }
            self.ask_done(Operation::Delete { keys: some }, &[]).await?;
        }
        Ok(())
    }

    async fn sweep(&self) -> Result<()> {
        self.ask_done(Operation::Sweep, &[]).await
    }
}
