//! The server's side of its nodes: takes their connections, knows which of them are there and what they hold, and asks
//! them to do things. Nodes dial; nobody dials them.

use super::health::Own;
use super::joined::wall_clock_ms;
use super::labels::{MOST as MOST_LABELS, is_label_word};
use super::protocol::{
    Beat, HealthReport, Heard, Hello, InStore, LeaseOrder, MOST_HELLO, NotKept, NotWelcome, OLDEST_PROTOCOL, OnNode,
    PROTOCOL, Purpose, ToNode, ToServer, Welcome,
};
use super::record::NodeRecord;
use super::registry::{NODE_NAME, Registry, is_node_name};
use super::relay::MOST_OF_ONE;
use super::{output, tcp};
use crate::accounts::ProgramsRunAs;
use crate::net::{Fingerprint, Identity, JoinToken, Message, Peer, acceptor, node_key, receive, send};
use async_trait::async_trait;
use serde::de::DeserializeOwned;
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, Semaphore};
use tokio_rustls::{TlsAcceptor, server};
use windfall_core::worker::{AgentRequest, AgentView};
use windfall_core::{LeaseId, NanoUsd, StintId, WorkloadId};

/// How often a node says that it is there.
pub(super) const BEAT: Duration = Duration::from_secs(5);
/// A connection over which nothing was said for this long is given up.
pub(super) const SILENT: Duration = Duration::from_secs(20);
/// How long a stranger may take to say who it is.
const INTRODUCTION: Duration = Duration::from_secs(10);
/// Strangers that are listened to at once.
const STRANGERS: usize = 256;
/// What a node says that is worked on at once.
const AT_ONCE: usize = 16;
/// Streams to checkpoints that a node may have open at once. One of its users has far fewer.
const STORES_OF_NODE: usize = 256;
const _: () = assert!(MOST_OF_ONE * 4 <= STORES_OF_NODE);
/// How long a node may take to do what it is asked.
const ANSWER: Duration = Duration::from_secs(90);
/// The server's side of its nodes.
pub struct Hub {
    pub(super) root: PathBuf,
    identity: Identity,
    pub(super) registry: Registry,
    /// Told to nodes with their welcome.
    dead_man: Duration,
    pub(super) began: Instant,
    live: Mutex<BTreeMap<String, Live>>,
    stores: Mutex<BTreeMap<String, Arc<Semaphore>>>,
    connections: AtomicU64,
    jobs: OnceLock<Arc<dyn JobsOfNodes>>,
    /// Whether machines may join, or have.
    takes_nodes: bool,
    /// The computer that it runs on, where that is for jobs too.
    pub(super) own: OnceLock<Own>,
    /// Rung when something of a node may have changed.
    pub(crate) changed: Notify,
}

/// A stream to a node.
pub type NodeStream = server::TlsStream<TcpStream>;

/// What the server knows of the jobs that run on nodes. A node gets at what is of its own jobs, and at nothing else.
#[async_trait]
pub trait JobsOfNodes: Send + Sync {
    /// The file that takes what a worker prints, or has printed; none where it is not one of this node's. It may look at
    /// the disk.
    fn output_of(&self, node: &str, stint: StintId, rank: u32) -> Option<PathBuf>;

    /// Whether a job runs on a node.
    fn has_store_of(&self, node: &str, job: WorkloadId) -> bool;

    /// Serves what the store has of that job until the stream ends, or the job runs there no longer.
    async fn serve_store(&self, node: &str, what: InStore, stream: NodeStream);
}

/// A node that was there since this server began.
pub(super) struct Live {
    peer: Peer,
    pub(super) connection: u64,
    pub(super) instance: String,
    /// Which machine it is, where it says so.
    pub(super) machine: Option<String>,
    /// It is written down that it is this one.
    pub(super) is_settled: bool,
    build: String,
    pub(super) heard: Instant,
    /// The number of the last beat of this connection.
    pub(super) beat: u64,
    pub(super) leases: BTreeMap<LeaseId, OnNode>,
    /// How the machine is, where it has said so.
    health: Option<HealthReport>,
    /// Leases that were launched over this connection, with the last beat in which they were not.
    pub(super) launched: BTreeMap<LeaseId, u64>,
    /// Until then another machine that had this key may run what was begun before this connection.
    pub(super) doubted_until: Option<Instant>,
}

/// A node as people see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeStanding {
    pub record: NodeRecord,
    /// How long ago it was heard, where it was since the server began.
    pub heard: Option<Duration>,
    pub is_connected: bool,
    /// The version of its program.
    pub build: Option<String>,
    /// How it is, as it last said.
    pub health: Option<HealthReport>,
}

impl Hub {
    /// Keeps what it knows in `root`: its key, its nodes, its tokens. `listens` says that machines may join.
    pub fn open(root: &Path, dead_man: Duration, listens: bool) -> io::Result<Arc<Hub>> {
        std::fs::create_dir_all(root)?;
        let registry = Registry::open(root)?;
        Ok(Arc::new(Hub {
            root: root.to_owned(),
            identity: Identity::open(&root.join("server.key"))?,
            // What nodes hold is theirs also while nobody listens to them.
            takes_nodes: listens || !registry.nodes().is_empty(),
            registry,
            dead_man,
            began: Instant::now(),
            live: Mutex::default(),
            stores: Mutex::default(),
            connections: AtomicU64::new(0),
            jobs: OnceLock::new(),
            own: OnceLock::new(),
            changed: Notify::new(),
        }))
    }

    /// Says who knows the jobs of nodes. Until then nothing is known of any.
    pub fn set_jobs(&self, jobs: Arc<dyn JobsOfNodes>) {
        // It is said once, when the server begins.
        let _ = self.jobs.set(jobs);
    }

    pub(super) fn live(&self) -> MutexGuard<'_, BTreeMap<String, Live>> {
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A token by which one machine can join under this name; why not, in words, where it cannot be.
    pub fn new_token(&self, node: &str, rate: NanoUsd) -> Result<JoinToken, String> {
        if !is_node_name(node) {
            return Err(format!("`{node}` cannot be a node's name: {NODE_NAME}"));
        }
        match self.registry.node(node) {
            Some(own) if own.is_server && self.own_name() == Some(node) => {
                return Err(format!("this server's own computer is called {node}"));
            }
            Some(own) if own.is_server => {
                let text = "this server's own computer was called";
                return Err(format!("{text} {node}: `windfall nodes remove {node}` frees the name"));
            }
            Some(_) => return Err(NotWelcome::NameTaken { name: node.to_owned() }.to_string()),
            None => {}
        }
        self.registry.new_token(self.fingerprint(), node, rate).map_err(|error| error.to_string())
    }

    /// A token by which the pilot of one lease joins, however long it waits in a queue.
    pub(crate) fn pilot_token(&self, node: &str) -> Result<JoinToken, String> {
        self.registry.pilot_token(self.fingerprint(), node).map_err(|error| error.to_string())
    }

    pub(super) fn fingerprint(&self) -> Fingerprint {
        self.identity.fingerprint()
    }

    /// Whether machines may join, or have.
    pub fn takes_nodes(&self) -> bool {
        self.takes_nodes
    }

    /// Every node that has joined.
    pub fn nodes(&self) -> Vec<NodeStanding> {
        let live = self.live();
        let standing = |record: NodeRecord| {
            let node = live.get(&record.name);
            let heard = node.map(|node| node.heard.elapsed());
            // What it holds is not known before it has said so.
            let is_connected = node.is_some_and(|node| node.is_there() && node.beat > 0);
            let health = node.and_then(|node| node.health.clone());
            NodeStanding { heard, is_connected, build: node.map(|node| node.build.clone()), health, record }
        };
        self.registry.nodes().into_iter().map(standing).collect()
    }

    /// How long its nodes go on without it.
    pub(crate) fn dead_man(&self) -> Duration {
        self.dead_man
    }

    /// Forgets a node and ends its connection: what it still runs it ends by itself.
    pub fn remove(&self, name: &str) -> io::Result<bool> {
        let known = self.registry.remove(name)?;
        self.live().remove(name);
        self.changed.notify_one();
        Ok(known)
    }

    /// Takes connections for ever.
    pub async fn listen(self: Arc<Self>, listener: TcpListener) -> io::Result<()> {
        let (acceptor, strangers) = (acceptor(&self.identity)?, Arc::new(Semaphore::new(STRANGERS)));
        loop {
            let Ok(permit) = Arc::clone(&strangers).acquire_owned().await else { return Ok(()) };
            let stream = match listener.accept().await {
                Ok((stream, _)) => stream,
                Err(_) => {
                    // No descriptor is left, for example.
                    tokio::time::sleep(Duration::from_millis(100)).await;
                    continue;
                }
            };
            let (hub, acceptor) = (Arc::clone(&self), acceptor.clone());
            tokio::spawn(async move {
                let introduced = tokio::time::timeout(INTRODUCTION, hub.introduce(stream, &acceptor)).await;
                drop(permit);
                if let Ok(Ok(Some((name, connection, working)))) = introduced {
                    hub.attend(&name, connection, working).await;
                }
            });
        }
    }

    /// Hears who it is, and welcomes a node. What is not TLS, or not one of ours, gets no further.
    async fn introduce(
        self: &Arc<Self>,
        stream: TcpStream,
        acceptor: &TlsAcceptor,
    ) -> io::Result<Option<(String, u64, impl Future<Output = io::Error> + Send + 'static)>> {
        tcp::ends_after(&stream, tcp::SERVER);
        let mut stream = acceptor.accept(stream).await?;
        let key = node_key(&stream).ok_or(io::ErrorKind::PermissionDenied)?;
        let hello: Hello = receive(&mut stream, MOST_HELLO).await?.read()?;
        let name = match self.welcome(&hello, key) {
            Ok(name) => name,
            Err(refused) => {
                send(&mut stream, &Message::of(&Welcome::Refused(refused))).await?;
                return Ok(None);
            }
        };
        let dead_man_ms = self.dead_man.as_millis() as u64;
        let now_unix_ms = Some(wall_clock_ms());
        let welcome = Welcome::Welcome { name: name.clone(), dead_man_ms, now_unix_ms };
        send(&mut stream, &Message::of(&welcome)).await?;
        if let (Purpose::Store(what), Some(jobs)) = (&hello.purpose, self.jobs.get().cloned()) {
            let (what, open) = (*what, self.stores_of(&name));
            tcp::ends_after(stream.get_ref().0, tcp::STORE);
            let Ok(permit) = open.try_acquire_owned() else { return Ok(None) };
            tokio::spawn(async move {
                jobs.serve_store(&name, what, stream).await;
                drop(permit);
            });
            return Ok(None);
        }
        let connection = self.connections.fetch_add(1, Ordering::Relaxed);
        let (hub, of) = (Arc::clone(self), name.clone());
        let answer = move |message: Message| {
            let (hub, of) = (Arc::clone(&hub), of.clone());
            async move { hub.answer(&of, connection, message).await }
        };
        let (peer, working) = Peer::over(stream, AT_ONCE, answer);
        let live = Live {
            peer,
            connection,
            instance: hello.instance,
            machine: hello.machine,
            is_settled: false,
            build: hello.build,
            heard: Instant::now(),
            beat: 0,
            leases: BTreeMap::new(),
            health: None,
            launched: BTreeMap::new(),
            doubted_until: None,
        };
        // The connection that it had before, if any, ends when nobody holds it any more.
        self.take_over(&name, live);
        Ok(Some((name, connection, working)))
    }

    /// How many more streams to checkpoints a node may open.
    fn stores_of(&self, node: &str) -> Arc<Semaphore> {
        let mut stores = self.stores.lock().unwrap_or_else(PoisonError::into_inner);
        let of_node = stores.entry(node.to_owned()).or_insert_with(|| Arc::new(Semaphore::new(STORES_OF_NODE)));
        Arc::clone(of_node)
    }

    fn welcome(&self, hello: &Hello, key: Fingerprint) -> Result<String, NotWelcome> {
        if !(OLDEST_PROTOCOL..=PROTOCOL).contains(&hello.protocol) {
            return Err(NotWelcome::Protocol { ours: PROTOCOL, theirs: hello.protocol });
        }
        let known = self.registry.by_key(key);
        let (joins, inventory, labels, programs) = match &hello.purpose {
            Purpose::Serve { joins, inventory, labels, programs } => (joins, inventory, labels, programs),
            Purpose::Store(InStore { workload, .. }) => {
                let node = known.ok_or(NotWelcome::Unknown)?.name;
                let is_its = self.jobs.get().is_some_and(|jobs| jobs.has_store_of(&node, *workload));
                return if is_its { Ok(node) } else { Err(NotWelcome::NotItsJob { job: workload.0 }) };
            }
        };
        let record = match (known, joins) {
            (Some(record), None) => record,
            (None, None) => return Err(NotWelcome::Unknown),
            (_, Some(joins)) => {
                let token: JoinToken = joins.token.parse().map_err(|_| NotWelcome::Token)?;
                self.registry.join(&token, joins.name.as_deref(), key, inventory)?
            }
        };
        let live = self.live();
        let other = live.get(&record.name).filter(|live| live.is_there() && live.instance != hello.instance);
        if other.is_some_and(|other| other.heard.elapsed() < BEAT * 2) {
            return Err(NotWelcome::Twice);
        }
        drop(live);
        let trouble = |error: io::Error| NotWelcome::Trouble { why: error.to_string() };
        // Written before the node hears of it: a later server counts with what was said.
        let dead_man_ms = self.dead_man.as_millis() as u64;
        let change = |node: &mut NodeRecord| {
            node.show(inventory, wall_clock_ms());
            // Whoever joins may be anybody's program: what is no label is left out.
            let good = labels.iter().filter(|(key, value)| is_label_word(key) && is_label_word(value));
            node.own_labels = good.take(MOST_LABELS).map(|(key, value)| (key.clone(), value.clone())).collect();
            node.programs = programs.as_ref().and_then(ProgramsRunAs::checked);
            node.dead_man_ms = node.dead_man_ms.max(dead_man_ms);
        };
        self.registry.change(&record.name, change).map_err(trouble)?;
        Ok(record.name)
    }

    /// Looks after a connection until it ends, or nothing is said over it.
    async fn attend(&self, name: &str, connection: u64, working: impl Future<Output = io::Error> + Send) {
        self.changed.notify_one();
        let watch = async {
            loop {
                tokio::time::sleep(BEAT).await;
                let live = self.live();
                let is_heard = live.get(name).is_some_and(|live| live.connection == connection && !live.is_silent());
                if !is_heard {
                    return;
                }
            }
        };
        tokio::select! { _ = working => {}, () = watch => {} }
        self.changed.notify_one();
    }

    /// What a node hears to what it says.
    async fn answer(&self, name: &str, connection: u64, message: Message) -> Result<Message, String> {
        match message.read().map_err(|error| error.to_string())? {
            ToServer::Beat(beat) => self.beat(name, connection, beat).map(|()| Message::default()),
            ToServer::Output { stint, rank, offset } => {
                let (jobs, node) = (self.jobs.get().cloned(), name.to_owned());
                let keep = move || {
                    let Some(file) = jobs.and_then(|jobs| jobs.output_of(&node, stint, rank)) else { return Ok(None) };
                    output::keep(&file, offset, &message.body).map(Some)
                };
                let kept = tokio::task::spawn_blocking(keep).await.map_err(io::Error::other).flatten();
                match kept {
                    Ok(Some(length)) => Ok(Message::of(&length)),
                    Ok(None) => Err(format!("{stint} does not run on this node")),
                    // No other try would help.
                    Err(error) if error.kind() == io::ErrorKind::InvalidInput => Err(error.to_string()),
                    Err(error) => Ok(Message::of(&NotKept { not_kept: error.to_string() })),
                }
            }
        }
    }

    /// A node said how it is.
    fn beat(&self, name: &str, connection: u64, beat: Beat) -> Result<(), String> {
        let mut live = self.live();
        let Some(node) = live.get_mut(name).filter(|node| node.connection == connection) else {
            return Err("another connection of this node has begun".to_owned());
        };
        node.heard = Instant::now();
        if beat.number <= node.beat {
            return Ok(());
        }
        let is_first = std::mem::replace(&mut node.beat, beat.number) == 0;
        let mut leases: BTreeMap<LeaseId, OnNode> = beat.leases.into_iter().map(|seen| (seen.lease, seen)).collect();
        for (lease, seen) in leases.iter_mut().filter(|(_, seen)| !seen.is_alive && seen.last.is_none()) {
            // A beat leaves out what would make it too long: what was told before still holds.
            seen.last = node.leases.get(lease).and_then(|known| known.last.clone());
        }
        if leases != node.leases || is_first {
            node.leases = leases;
            self.changed.notify_one();
        }
        node.health.clone_from(&beat.health);
        let machine = node.settled();
        drop(live);
        beat.health.iter().for_each(|health| self.take_symptoms(name, &health.symptoms));
        if is_first {
            // It has heard its welcome, so what it was told with it holds.
            let dead_man_ms = self.dead_man.as_millis() as u64;
            let _ = self.registry.change(name, |node| node.dead_man_ms = dead_man_ms);
        }
        if let Some(machine) = machine {
            let _ = self.registry.change(name, |node| node.machine = Some(machine));
        }
        Ok(())
    }

    pub(super) async fn call<T: DeserializeOwned>(&self, node: &str, request: &ToNode) -> io::Result<T> {
        let peer = self.live().get(node).filter(|live| live.is_there()).map(|live| live.peer.clone());
        let Some(peer) = peer else {
            return Err(io::Error::new(io::ErrorKind::NotConnected, format!("node {node} cannot be reached")));
        };
        let answer = tokio::time::timeout(ANSWER, peer.ask(Message::of(request))).await.map_err(io::Error::other)??;
        answer.map_err(io::Error::other)?.read()
    }

    /// The connection that a node has now.
    pub(super) fn connection_of(&self, node: &str) -> Option<u64> {
        self.live().get(node).map(|live| live.connection)
    }

    /// Starts the agent of a lease on a node.
    pub(crate) async fn launch(&self, node: &str, lease: LeaseId, order: LeaseOrder) -> io::Result<()> {
        let LeaseOrder { devices, owner, limits } = order;
        let asked = self.connection_of(node);
        let not_in: u64 = self.call(node, &ToNode::Launch { lease, devices, owner, limits }).await?;
        // Another connection may be another machine's.
        if let Some(live) = self.live().get_mut(node).filter(|live| asked == Some(live.connection)) {
            live.launched.insert(lease, not_in);
        }
        Ok(())
    }

    /// A request to the agent of a lease on a node.
    pub(crate) async fn ask(&self, node: &str, lease: LeaseId, request: &AgentRequest) -> io::Result<AgentView> {
        match self.call(node, &ToNode::Ask { lease, request: request.clone() }).await? {
            Heard::Said(view) => Ok(view),
            Heard::Nobody(last) => {
                let mut live = self.live();
                let seen = live.get_mut(node).and_then(|live| live.leases.get_mut(&lease));
                if let Some((seen, last)) = seen.zip(last) {
                    seen.last = Some(last);
                }
                Err(io::ErrorKind::ConnectionRefused.into())
            }
        }
    }

    /// What the agent of a lease wrote down, as far as its node has told.
    pub(crate) fn last_view(&self, node: &str, lease: LeaseId) -> Option<AgentView> {
        self.live().get(node)?.leases.get(&lease)?.last.clone()
    }

    /// These are gone and nobody will ask for them again. A node that is not there hears of it when it is asked again.
    pub(crate) fn forget(self: &Arc<Self>, node: &str, lease: LeaseId) {
        if let Some(live) = self.live().get_mut(node) {
            live.launched.remove(&lease);
        }
        let (hub, node) = (Arc::clone(self), node.to_owned());
        tokio::spawn(async move { hub.call::<()>(&node, &ToNode::Forget { leases: vec![lease] }).await });
    }

    /// Whether a node can be asked.
    pub(crate) fn is_there(&self, node: &str) -> bool {
        self.live().get(node).is_some_and(Live::is_there)
    }

    /// What every node that can be asked shows.
    pub(crate) fn shown(&self) -> Vec<(String, OnNode)> {
        let live = self.live();
        let is_pilot = |name: &str| self.registry.node(name).is_some_and(|record| record.pilot);
        let there = live.iter().filter(|(name, live)| live.is_there() && !is_pilot(name));
        there.flat_map(|(name, live)| live.leases.values().map(|seen| (name.clone(), seen.clone()))).collect()
    }
}

impl Live {
    fn is_silent(&self) -> bool {
        self.heard.elapsed() > SILENT
    }

    pub(super) fn is_there(&self) -> bool {
        !self.peer.is_gone() && !self.is_silent()
    }
}
