//! An engine in a process of its own, spoken to over a socket: whatever becomes of that process, the server goes on.
//! One request and one answer a connection, each a line of JSON.

use crate::clock::WorldClock;
use crate::engine::{Capabilities, Engine, EngineError, Interrupt, Owned, SeenGroup, SeenLease};
use async_trait::async_trait;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::unix::OwnedWriteHalf;
use tokio::net::{UnixListener, UnixStream};
use windfall_core::{DecisionId, LeaseId, Node, Offer, Pool, Time, Want};

/// How long a request for changes is held, at most.
const HOLD: Duration = Duration::from_secs(1);
/// The pause after a request for changes that failed.
const PAUSE: Duration = Duration::from_secs(1);

/// A request, with the time by the clock of the world that asks: a world has one clock.
#[derive(Debug, Serialize, Deserialize)]
struct Asked {
    now: Time,
    /// The engine that is meant: another one may listen there by now.
    to: String,
    request: Request,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Request {
    Describe,
    Changed,
    Pools,
    Nodes,
    Offers,
    Acquire(DecisionId, Want),
    Observe(Vec<DecisionId>),
    ListOwned,
    Release(DecisionId, Vec<u32>),
    Forget(Vec<LeaseId>),
    Interrupt(LeaseId, Interrupt),
    Abandon,
}

/// The server's side of an engine in another process.
pub struct RemoteEngine {
    name: String,
    socket: PathBuf,
    clock: Arc<WorldClock>,
    /// What it can do, once it has said so.
    known: OnceLock<Capabilities>,
}

impl RemoteEngine {
    /// The engine that listens on `socket`, whether it is there yet or not. Its offers must carry this name.
    pub async fn open(name: &str, socket: &Path, clock: Arc<WorldClock>) -> RemoteEngine {
        let (name, socket) = (name.to_owned(), socket.to_owned());
        let engine = RemoteEngine { name, socket, clock, known: OnceLock::new() };
        // What it can do is constant, so that once is enough; one that hangs is asked again with the first look.
        let _ = tokio::time::timeout(HOLD, engine.introduce()).await;
        engine
    }

    async fn introduce(&self) -> Result<(), EngineError> {
        if self.known.get().is_none() {
            let capabilities: Capabilities = self.exchange(Request::Describe).await?;
            let _ = self.known.set(capabilities);
        }
        Ok(())
    }

    async fn ask<T: DeserializeOwned>(&self, request: Request) -> Result<T, EngineError> {
        self.introduce().await?;
        self.exchange(request).await
    }

    async fn exchange<T: DeserializeOwned>(&self, request: Request) -> Result<T, EngineError> {
        let asked = Asked { now: self.clock.now(), to: self.name.clone(), request };
        let lost = |error: io::Error| EngineError::Unreachable { why: error.to_string() };
        let answer = talk(&self.socket, &asked).await.map_err(lost)?;
        let answer: Result<Value, EngineError> = serde_json::from_str(&answer).map_err(|error| lost(error.into()))?;
        serde_json::from_str(&answer?.to_string()).map_err(|error| lost(error.into()))
    }
}

async fn talk(socket: &Path, asked: &Asked) -> io::Result<String> {
    let (read, mut write) = UnixStream::connect(socket).await?.into_split();
    let mut line = serde_json::to_vec(asked)?;
    line.push(b'\n');
    write.write_all(&line).await?;
    let mut answer = String::new();
    match BufReader::new(read).read_line(&mut answer).await? {
        0 => Err(io::ErrorKind::UnexpectedEof.into()),
        _ => Ok(answer),
    }
}

#[async_trait]
impl Engine for RemoteEngine {
    fn describe(&self) -> Capabilities {
        let unknown = || Capabilities { name: self.name.clone(), ..Capabilities::default() };
        self.known.get().cloned().unwrap_or_else(unknown)
    }

    async fn changed(&self) {
        if !self.ask(Request::Changed).await.unwrap_or(false) {
            tokio::time::sleep(PAUSE).await;
        }
    }

    async fn pools(&self) -> Result<Vec<Pool>, EngineError> {
        self.ask(Request::Pools).await
    }

    async fn nodes(&self) -> Result<Vec<Node>, EngineError> {
        self.ask(Request::Nodes).await
    }

    async fn offers(&self) -> Result<Vec<Offer>, EngineError> {
        self.ask(Request::Offers).await
    }

    async fn acquire(&self, group: DecisionId, want: &Want) -> Result<SeenGroup, EngineError> {
        self.ask(Request::Acquire(group, want.clone())).await
    }

    async fn observe(&self, groups: &[DecisionId]) -> Result<Vec<SeenGroup>, EngineError> {
        self.ask(Request::Observe(groups.to_vec())).await
    }

    async fn list_owned(&self) -> Result<Vec<Owned>, EngineError> {
        self.ask(Request::ListOwned).await
    }

    async fn release(&self, group: DecisionId, slots: &[u32]) -> Result<Vec<SeenLease>, EngineError> {
        self.ask(Request::Release(group, slots.to_vec())).await
    }

    async fn forget(&self, leases: &[LeaseId]) -> Result<(), EngineError> {
        self.ask(Request::Forget(leases.to_vec())).await
    }

    async fn interrupt(&self, lease: LeaseId, how: Interrupt) -> Result<(), EngineError> {
        self.ask(Request::Interrupt(lease, how)).await
    }

    async fn abandon(&self) {
        let _: Result<(), EngineError> = self.ask(Request::Abandon).await;
    }
}

/// The pause after a connection that could not be taken.
const ACCEPT_AGAIN: Duration = Duration::from_millis(100);

/// The side of the process that an engine is in.
pub struct EngineServer {
    listener: UnixListener,
    clock: Arc<WorldClock>,
    first: Asking,
}

/// A request that waits for its answer.
struct Asking {
    to: String,
    request: Request,
    reply: OwnedWriteHalf,
}

impl EngineServer {
    /// Waits until somebody asks. An engine is opened after that: what happened while nobody asked is judged by the
    /// clock of who asks, and there is no other.
    pub async fn first_asked(listener: UnixListener, clock: Arc<WorldClock>) -> EngineServer {
        loop {
            if let Ok((stream, _)) = listener.accept().await
                && let Ok(first) = Asking::read(stream, &clock).await
            {
                return EngineServer { listener, clock, first };
            }
            tokio::time::sleep(ACCEPT_AGAIN).await;
        }
    }

    /// Serves the engine for ever. Its clock follows the one of whoever asks.
    pub async fn serve(self, engine: Arc<dyn Engine>) {
        let EngineServer { listener, clock, first } = self;
        let of_first = Arc::clone(&engine);
        tokio::spawn(async move { first.answer(&*of_first).await });
        loop {
            let Ok((stream, _)) = listener.accept().await else {
                tokio::time::sleep(ACCEPT_AGAIN).await;
                continue;
            };
            let (engine, clock) = (Arc::clone(&engine), Arc::clone(&clock));
            tokio::spawn(async move {
                // Whoever asked and has gone away does not need an answer.
                Asking::read(stream, &clock).await?.answer(&*engine).await
            });
        }
    }
}

impl Asking {
    async fn read(stream: UnixStream, clock: &WorldClock) -> io::Result<Asking> {
        let (read, reply) = stream.into_split();
        let mut line = String::new();
        BufReader::new(read).read_line(&mut line).await?;
        let Asked { now, to, request } = serde_json::from_str(&line)?;
        clock.follow(now);
        Ok(Asking { to, request, reply })
    }

    async fn answer(mut self, engine: &dyn Engine) -> io::Result<()> {
        let name = engine.describe().name;
        let carried_out = match name == self.to {
            true => carry_out(engine, self.request).await,
            false => Err(EngineError::Unreachable { why: format!("the engine there is {name}, not {}", self.to) }),
        };
        let mut answer = serde_json::to_vec(&carried_out)?;
        answer.push(b'\n');
        self.reply.write_all(&answer).await
    }
}

async fn carry_out(engine: &dyn Engine, request: Request) -> Result<Value, EngineError> {
    match request {
        Request::Describe => value(Ok(engine.describe())),
        Request::Changed => value(Ok(tokio::time::timeout(HOLD, engine.changed()).await.is_ok())),
        Request::Pools => value(engine.pools().await),
        Request::Nodes => value(engine.nodes().await),
        Request::Offers => value(engine.offers().await),
        Request::Acquire(group, want) => value(engine.acquire(group, &want).await),
        Request::Observe(groups) => value(engine.observe(&groups).await),
        Request::ListOwned => value(engine.list_owned().await),
        Request::Release(group, slots) => value(engine.release(group, &slots).await),
        Request::Forget(leases) => value(engine.forget(&leases).await),
        Request::Interrupt(lease, how) => value(engine.interrupt(lease, how).await),
        Request::Abandon => {
            engine.abandon().await;
            value(Ok(()))
        }
    }
}

fn value<T: Serialize>(result: Result<T, EngineError>) -> Result<Value, EngineError> {
    result.and_then(|value| {
        serde_json::to_value(value).map_err(|error| EngineError::Unreachable { why: error.to_string() })
    })
}
