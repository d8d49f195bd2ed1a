//! The server's end of a relay: answers an agent's operations from a directory, for one job. It trusts nothing that
//! comes: a key names one of the job's own objects, a body has an announced and limited size, and a blob is put in
//! place only when all of it came with the right hash.

use std::fs::File;
use std::io::{ErrorKind, Read, Result, Seek, SeekFrom};
use std::path::PathBuf;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncWrite, AsyncWriteExt, BufReader};

use super::super::address::StoreAddress;
use super::super::depot::Depot;
use super::super::directory::{DirectoryDepot, KINDS};
use super::super::error::{CheckpointError, Culprit, StoreFailure, blocking};
use super::super::names::{is_job_key, is_plain};
use super::wire::{
    Answer, BODY_MAX, Operation, Outcome, PIECE, Request, Sent, frame, garbled, read_body, read_exact, read_frame,
    write_all,
};

/// An agent that is this quiet within an operation is gone. Longer than the agent's own patience, because the agent also
/// waits for its disk.
const QUIET: Duration = Duration::from_secs(300);
/// How often the agent hears that its operation still runs: several times within its patience.
const WORKING_EVERY: Duration = Duration::from_secs(10);
/// How long an agent has to notice an answer that came before its body was out.
const LINGER: Duration = Duration::from_secs(5);
/// The longest name of an object.
const NAME_MAX: usize = 255;
/// A file system's words, cut to what surely fits in a frame.
const WORDS_MAX: usize = 4 << 10;

/// What an agent may do with what it is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    ReadAndWrite,
    /// Others have it too.
    ReadOnly,
}

/// Answers the operations of an agent on what is kept under a key in the directory `store`, until the stream ends.
/// `saved_before`: something was kept there, so a missing directory is a store that is away, not a new one.
pub async fn serve_relay<S: AsyncRead + AsyncWrite + Unpin + Send>(
    stream: S,
    store: &str,
    job_key: &str,
    saved_before: bool,
    access: Access,
) -> Result<()> {
    let invalid = |why: String| std::io::Error::new(ErrorKind::InvalidInput, why);
    let path = match StoreAddress::read(store, []) {
        Ok(StoreAddress::Directory(path)) => path,
        Ok(_) => return Err(invalid("only a directory can be relayed".into())),
        Err(error) => return Err(invalid(error.to_string())),
    };
    if !is_job_key(job_key) {
        return Err(invalid(format!("not a job's key: {job_key}")));
    }
    let stream = BufReader::new(stream);
    Session { stream, base: path.join(job_key), saved_before, seen: saved_before, access }.run().await
}

impl Access {
    fn allows(self, operation: &Operation) -> std::result::Result<(), String> {
        let reads = matches!(operation, Operation::Fetch { .. } | Operation::Get { .. } | Operation::List { .. });
        if reads || self == Access::ReadAndWrite { Ok(()) } else { Err("it may only be read".to_owned()) }
    }
}

/// One agent's stream.
struct Session<S> {
    stream: BufReader<S>,
    base: PathBuf,
    saved_before: bool,
    access: Access,
    /// What the answer to the operation at hand says.
    seen: bool,
}

/// What comes after an answer.
enum Next {
    /// The stream stands at the next request.
    Request,
    /// The agent is still sending what nobody wants: the stream is of no more use.
    End,
}

impl<S: AsyncRead + AsyncWrite + Unpin + Send> Session<S> {
    async fn run(mut self) -> Result<()> {
        // Between two operations an agent may be quiet for as long as it likes.
        while !self.stream.fill_buf().await?.is_empty() {
            let Request { seen, operation } = read_frame(&mut self.stream, QUIET).await?;
            self.seen = self.saved_before || seen;
            let allowed = check(&operation).and_then(|()| self.access.allows(&operation));
            if let Err(why) = allowed {
                self.tell(failed(refused(&why))).await?;
                self.linger().await;
                return Err(garbled(why));
            }
            let depot = DirectoryDepot::new(self.base.clone(), self.seen);
            if let Next::End = self.answer(&depot, operation).await? {
                self.linger().await;
                return Ok(());
            }
        }
        Ok(())
    }

    async fn answer(&mut self, depot: &DirectoryDepot, operation: Operation) -> Result<Next> {
        let done = match operation {
            Operation::Send { key, size } => return self.receive(depot, &key, size).await,
            Operation::Fetch { key, offset, size } => return self.give(depot, &key, Some((offset, size))).await,
            Operation::Get { key } => return self.give(depot, &key, None).await,
            Operation::List { prefix } => return self.list(depot, &prefix).await,
            Operation::Create { key, size } => {
                let body = read_body(&mut self.stream, size, QUIET).await?;
                self.busy(depot.create(&key, body)).await?.map(Outcome::Created)
            }
            Operation::Put { key, size } => {
                let body = read_body(&mut self.stream, size, QUIET).await?;
                self.busy(depot.put(&key, body)).await?.map(|()| Outcome::Done)
            }
            Operation::Flush { prefix } => self.busy(depot.flush(&prefix)).await?.map(|()| Outcome::Done),
            Operation::Delete { keys } => self.busy(depot.delete(keys)).await?.map(|()| Outcome::Done),
            Operation::Sweep => self.busy(depot.sweep()).await?.map(|()| Outcome::Done),
        };
        self.seen |= depot.seen();
        self.tell(done.unwrap_or_else(failed)).await?;
        Ok(Next::Request)
    }

    /// Takes in a blob. The draft goes with any error, and with the stream.
    async fn receive(&mut self, depot: &DirectoryDepot, key: &str, size: u64) -> Result<Next> {
        let begun = self.busy(depot.receive(key)).await?;
        self.seen |= depot.seen();
        let mut incoming = match begun {
            Ok(incoming) => incoming,
            Err(error) => return self.stop(error).await,
        };
        let (mut piece, mut left) = (Vec::new(), size);
        while left > 0 {
            piece.resize(usize::try_from(left).unwrap_or(usize::MAX).min(PIECE), 0);
            read_exact(&mut self.stream, &mut piece, QUIET).await?;
            left -= piece.len() as u64;
            let written = self.busy(blocking(move || {
                incoming.append(&piece)?;
                Ok((incoming, piece))
            }));
            (incoming, piece) = match written.await? {
                Ok(back) => back,
                Err(error) => return self.stop(error).await,
            };
        }
        let Sent { hash } = read_frame(&mut self.stream, QUIET).await?;
        let outcome = match self.busy(blocking(move || incoming.place(&hash))).await? {
            Ok(true) => Outcome::Done,
            Ok(false) => failed(refused("the bytes that came are not those that were sent")),
            Err(error) => failed(error),
        };
        self.tell(outcome).await?;
        Ok(Next::Request)
    }

    /// Sends an object, or a part of it. A file that fails midway ends the stream: its size is announced already.
    async fn give(&mut self, depot: &DirectoryDepot, key: &str, part: Option<(u64, u64)>) -> Result<Next> {
        let opened = self.busy(depot.open(key)).await?;
        self.seen |= depot.seen();
        let outcome = match (opened, part) {
            (Err(error), _) => failed(error),
            (Ok(None), _) => Outcome::Missing,
            (Ok(Some((_, length))), None) if length > BODY_MAX => {
                failed(refused(&format!("{key} is larger than {} MiB", BODY_MAX >> 20)))
            }
            (Ok(Some((_, length))), Some((offset, size)))
                if offset.checked_add(size).is_none_or(|end| end > length) =>
            {
                Outcome::Short
            }
            (Ok(Some((file, length))), part) => {
                let (offset, size) = part.unwrap_or((0, length));
                self.tell(Outcome::Body { size }).await?;
                self.pour(file, offset, size).await?;
                return Ok(Next::Request);
            }
        };
        self.tell(outcome).await?;
        Ok(Next::Request)
    }

    async fn pour(&mut self, mut file: File, offset: u64, size: u64) -> Result<()> {
        file.seek(SeekFrom::Start(offset))?;
        let (mut piece, mut left) = (Vec::new(), size);
        while left > 0 {
            piece.resize(usize::try_from(left).unwrap_or(usize::MAX).min(PIECE), 0);
            left -= piece.len() as u64;
            (file, piece) = tokio::task::spawn_blocking(move || {
                file.read_exact(&mut piece)?;
                Result::Ok((file, piece))
            })
            .await??;
            write_all(&mut self.stream, &piece, QUIET).await?;
        }
        Ok(())
    }

    async fn list(&mut self, depot: &DirectoryDepot, prefix: &str) -> Result<Next> {
        let listed = self.busy(depot.list(prefix)).await?;
        self.seen |= depot.seen();
        match listed.map(|names| serde_json::to_vec(&names)) {
            Ok(names) => {
                let names = names?;
                if names.len() as u64 > BODY_MAX {
                    self.tell(failed(refused(&format!("there are too many objects below {prefix}")))).await?;
                } else {
                    self.tell(Outcome::Body { size: names.len() as u64 }).await?;
                    write_all(&mut self.stream, &names, QUIET).await?;
                }
            }
            Err(error) => self.tell(failed(error)).await?,
        }
        Ok(Next::Request)
    }

    /// Waits for the store, and tells the agent now and then that it still does.
    async fn busy<T>(&mut self, work: impl Future<Output = T>) -> Result<T> {
        let mut work = std::pin::pin!(work);
        loop {
            match tokio::time::timeout(WORKING_EVERY, &mut work).await {
                Ok(done) => return Ok(done),
                Err(_) => self.tell(Outcome::Working).await?,
            }
        }
    }

    async fn tell(&mut self, outcome: Outcome) -> Result<()> {
        let answer = Answer { seen: self.seen, outcome };
        write_all(&mut self.stream, &frame(&answer)?, QUIET).await
    }

    /// Answers before the body is read.
    async fn stop(&mut self, error: CheckpointError) -> Result<Next> {
        self.tell(failed(error)).await?;
        Ok(Next::End)
    }

    /// Reads on without use until the agent has heard the answer and ends the stream: to close while it still sends
    /// could destroy the answer on its way.
    async fn linger(&mut self) {
        let ended = async {
            self.stream.shutdown().await?;
            tokio::io::copy(&mut self.stream, &mut tokio::io::sink()).await
        };
        let _ = tokio::time::timeout(LINGER, ended).await;
    }
}

fn failed(error: CheckpointError) -> Outcome {
    let cut = |mut words: String| {
        words.truncate(words.floor_char_boundary(WORDS_MAX));
        words
    };
    let StoreFailure { what, culprit, hint, cause } = error.into();
    Outcome::Failed(StoreFailure { what: cut(what), culprit, hint: cut(hint), cause: cut(cause) })
}

fn refused(why: &str) -> CheckpointError {
    CheckpointError::Store {
        what: format!("the checkpoint store failed: {why}"),
        culprit: Culprit::Other,
        hint: "see the agent's log, and whether agent and server are of one version".into(),
        source: "refused by the server".into(),
    }
}

/// Why an operation is not one on the job's own objects, within the limits.
fn check(operation: &Operation) -> std::result::Result<(), String> {
    match operation {
        Operation::Create { key, size } | Operation::Put { key, size } => {
            check_key(key)?;
            if *size > BODY_MAX {
                return Err(format!("at most {} MiB are written in one piece: {size} bytes", BODY_MAX >> 20));
            }
            Ok(())
        }
        Operation::Send { key, .. } | Operation::Get { key } | Operation::Fetch { key, .. } => check_key(key),
        Operation::Flush { prefix } | Operation::List { prefix } if KINDS.contains(&prefix.as_str()) => Ok(()),
        Operation::Flush { prefix } | Operation::List { prefix } => check_key(prefix),
        Operation::Delete { keys } => keys.iter().try_for_each(|key| check_key(key)),
        Operation::Sweep => Ok(()),
    }
}

fn check_key(key: &str) -> std::result::Result<(), String> {
    let known = |(kind, name): (&str, &str)| KINDS.contains(&kind) && name.len() <= NAME_MAX && is_plain(name);
    if key.split_once('/').is_some_and(known) { Ok(()) } else { Err(format!("not the name of an object: {key:?}")) }
}
