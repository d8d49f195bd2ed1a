//! The node's side: joins a server once, then keeps a connection to it, starts and ends the agents of leases as it is told,
//! and passes on what they say. It may end and begin again: the agents go on.

mod asked;
mod error;
mod reach;
mod shown;

pub use error::NodeError;

use super::contact::{ContactFile, since_boot};
use super::health::{self, Health};
use super::hub::{BEAT, SILENT};
use super::joined::{Joined, note_clock, server_ahead_ms, this_machine, wall_clock_ms};
use super::labels::Labels;
use super::orders;
use super::output::Outputs;
use super::protocol::{Beat, Hello, InStore, Joins, MOST_HELLO, PROTOCOL, Purpose, ToNode, ToServer, Welcome};
use super::{relay, tcp};
use crate::accounts::{Accounts, ProgramsRunAs};
use crate::clock::WorldClock;
use crate::local::LocalLeases;
use crate::machines::nvml::{Reading, Readings};
use crate::machines::{Inventory, Stated};
use crate::net::{Fingerprint, Identity, JoinToken, Message, Peer, connector, dial, receive, send, write_private};
use crate::owned;
use reach::Reach;
use rustix::fs::{FlockOperation, flock};
use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::sync::Notify;
use windfall_core::Time;
use windfall_core::worker::WorkerView;

/// How long connecting and introducing itself may take.
const CONNECT: Duration = Duration::from_secs(10);
/// The first pause before the server is dialled again; each is twice as long, up to the last.
const PAUSES: [Duration; 2] = [Duration::from_millis(200), Duration::from_secs(10)];
/// Requests of the server that are worked on at once: one for each lease waits for news, and more come meanwhile.
const AT_ONCE: usize = 100_000;
/// How often it is looked whether something has changed here.
const LOOK: Duration = Duration::from_millis(200);
/// How often what no lease needs any more is looked for.
const TIDY: Duration = Duration::from_secs(60);
/// How long an agent that is about to end has for telling so.
const LAST_BEAT: Duration = Duration::from_secs(3);
/// How long the last words of a program may take to reach the server before its end is told all the same.
const LAST_WORDS: Duration = Duration::from_secs(10);

/// How a machine is a node.
#[derive(Clone, Debug)]
pub struct NodeSettings {
    /// Its state directory.
    pub state: PathBuf,
    /// Host and port of the server; none where it has joined before.
    pub server: Option<String>,
    pub token: Option<JoinToken>,
    pub name: Option<String>,
    /// Accelerators that are not found by themselves.
    pub accelerators: Vec<Stated>,
    /// What is said of this machine.
    pub labels: Labels,
    /// The binary that knows the `agent` subcommands.
    pub program: PathBuf,
    /// Whom programs run as, where this is root; `machine` is filled in.
    pub accounts: Accounts,
    /// An engine has begun this for one lease: everything runs as whoever it runs as.
    pub pilot: bool,
}

struct Daemon {
    /// Host and port of the server, and its key.
    server: (String, Fingerprint),
    identity: Identity,
    instance: String,
    /// What tells this machine from others.
    machine: String,
    inventory: Mutex<Inventory>,
    /// Rung when accelerators were found that were not there before.
    has_found: Notify,
    labels: Labels,
    programs: ProgramsRunAs,
    health: Health,
    state: PathBuf,
    leases: Arc<LocalLeases>,
    contact: Mutex<ContactFile>,
    /// The last beat that was made.
    beats: AtomicU64,
    outputs: Outputs,
    /// Held while folders of jobs are removed, and from when a job's folder is made until it is written down that the job is
    /// here: the folder of a job that is about to begin is not removed.
    jobs_gate: Arc<tokio::sync::Mutex<()>>,
    /// The server, while it is connected.
    peer: Mutex<Option<Peer>>,
    /// The address by which this machine reached the server last, and others reach this machine.
    address: Mutex<Option<IpAddr>>,
}

type ServerStream = tokio_rustls::client::TlsStream<TcpStream>;

/// Joins if it has to, and serves until it is no longer welcome. `joined` is called once it is, with its name.
pub async fn serve_node(settings: NodeSettings, joined: impl FnOnce(&str, &Inventory)) -> Result<(), NodeError> {
    let path = settings.state.clone();
    let state = |source: io::Error| NodeError::State { path: path.clone(), source };
    owned::stays_in_place(&settings.state.join("leases"))
        .map_err(|source| NodeError::Replaceable { path: path.clone(), source })?;
    std::fs::create_dir_all(settings.state.join("leases")).map_err(state)?;
    let lock = std::fs::File::options().create(true).append(true).open(settings.state.join("lock")).map_err(state)?;
    flock(&lock, FlockOperation::NonBlockingLockExclusive)
        .map_err(|_| NodeError::Busy { path: settings.state.clone() })?;
    let file = settings.state.join("joined.json");
    let known: Option<Joined> =
        std::fs::read(&file).ok().and_then(|bytes| windfall_core::codec::from_json(&bytes).ok());
    let (server, key) = match (&known, &settings.server, &settings.token) {
        (Some(known), asked, _) if asked.as_ref().is_none_or(|asked| *asked == known.server) => {
            (known.server.clone(), known.key)
        }
        // It may have moved to another address.
        (Some(known), Some(asked), token) if token.as_ref().is_some_and(|token| token.server == known.key) => {
            (asked.clone(), known.key)
        }
        (Some(known), _, _) => return Err(NodeError::JoinedElsewhere { server: known.server.clone() }),
        (None, Some(server), Some(token)) => (server.clone(), token.server),
        (None, _, _) => return Err(NodeError::NotJoined),
    };
    let contact = ContactFile::new(settings.state.join("contact"));
    let clock = Arc::new(WorldClock::real(Time(0)));
    let leases = settings.state.join("leases");
    let accounts = settings.accounts.of_root().filter(|_| !settings.pilot);
    let for_all = accounts.is_some();
    if let Some(accounts) = &accounts {
        // Agents of other users pass through to their leases and to the relay.
        owned::make_passage(&settings.state).map_err(state)?;
        match reachable(&settings.state) {
            // What is root's runs all the same.
            Err(error) if accounts.allow_root => say(&error.to_string()),
            checked => checked.map_err(state)?,
        }
        owned::make_passage(&orders::jobs(&settings.state)).map_err(state)?;
    }
    let (contact_file, programs) = (contact.path().to_owned(), Accounts::programs(accounts.as_ref()));
    let leases =
        LocalLeases::on_node(leases, clock, settings.program.clone(), contact_file, accounts).map_err(state)?;
    std::fs::create_dir_all(orders::jobs(&settings.state)).map_err(state)?;
    // What its owner states is not watched.
    let mut readings = settings.accelerators.is_empty().then(|| Readings::new(&settings.program));
    let reading = match &mut readings {
        Some(readings) => readings.first().await,
        None => None,
    };
    let daemon = Arc::new(Daemon {
        server: (server, key),
        identity: Identity::open(&settings.state.join("node.key")).map_err(state)?,
        instance: format!("{}-{}", std::process::id(), since_boot().as_nanos()),
        machine: this_machine(),
        inventory: Mutex::new(Inventory::with(&settings.accelerators, reading.as_ref())),
        has_found: Notify::new(),
        labels: settings.labels,
        programs,
        health: Health::default(),
        state: settings.state.clone(),
        leases,
        contact: Mutex::new(contact),
        beats: AtomicU64::new(0),
        outputs: Outputs::default(),
        jobs_gate: Arc::default(),
        peer: Mutex::default(),
        address: Mutex::default(),
    });
    let of_daemon = Arc::clone(&daemon);
    let open = move |what: InStore, uid| {
        let daemon = Arc::clone(&of_daemon);
        async move {
            daemon.may_have(what, uid)?;
            let opened = daemon.open(Purpose::Store(what)).await;
            opened.map(|(stream, ..)| stream).map_err(|error| error.to_string())
        }
    };
    let relaying = relay::listen(&orders::relay_socket(&settings.state), for_all, open).map_err(state)?;
    // A token of the same server is for whoever was removed there, and counts for nothing where it was not.
    let token = settings.token.filter(|token| token.server == daemon.server.1);
    let joins = token.map(|token| Joins { token: token.to_string(), name: settings.name });
    let watching = Arc::clone(&daemon);
    let found = |reading: &Reading| watching.take_found(reading);
    let removed = async {
        let error = watching.until_removed().await;
        // The server is told before it hears that anything has ended: it would begin that here again.
        watching.health.state_removed();
        watching.leases.end_all().await;
        // It hears of that meanwhile: otherwise it would wait for the dead-man time.
        tokio::time::sleep(LAST_BEAT).await;
        Err(error)
    };
    let served = tokio::select! {
        served = daemon.run(joins, joined) => served,
        () = watching.health.watch(&watching.state, reading, readings, found) => Ok(()),
        removed = removed => removed,
    };
    relaying.abort();
    served
}

impl Daemon {
    async fn run(
        self: Arc<Self>,
        mut joins: Option<Joins>,
        joined: impl FnOnce(&str, &Inventory),
    ) -> Result<(), NodeError> {
        let (mut pause, mut joined, mut reach) = (PAUSES[0], Some(joined), Reach::default());
        loop {
            let is_new = joins.is_some();
            let asked_at = since_boot();
            let inventory = self.inventory();
            let (labels, programs) = (self.labels.clone(), Some(self.programs.clone()));
            let purpose = Purpose::Serve { joins: joins.clone(), inventory: inventory.clone(), labels, programs };
            match self.open(purpose).await {
                Ok((stream, name, dead_man)) => {
                    // Whoever could not look meanwhile may have gone on with what others have begun since.
                    if self.is_over() {
                        self.leases.end_all().await;
                    }
                    let (server, key) = self.server.clone();
                    let record = Joined { server, key, name: name.clone() };
                    let bytes = serde_json::to_vec(&record).expect("a record has string keys");
                    let unusable = |source| NodeError::State { path: self.state.clone(), source };
                    let file = self.state.join("joined.json");
                    // A full disk must not end an agent that has nothing new to write.
                    if std::fs::read(&file).ok().as_ref() != Some(&bytes) {
                        write_private(&file, &bytes).map_err(unusable)?;
                    }
                    reach.found(&self.server.0, since_boot()).iter().for_each(|text| say(text));
                    (joins, pause) = (None, PAUSES[0]);
                    self.leases.call_machine(&format!("node {name}"));
                    joined.take().into_iter().for_each(|joined| joined(&name, &inventory));
                    self.attend(stream, dead_man, asked_at).await;
                }
                // The operator has given it up: nothing of it may go on.
                Err(NodeError::NotWelcome(why)) if !why.may_pass() => {
                    if !is_new {
                        // It may join anew, with another token.
                        let _ = std::fs::remove_file(self.state.join("joined.json"));
                        self.leases.end_all().await;
                    }
                    return Err(why.into());
                }
                Err(error) if is_new => return Err(error),
                Err(error) => say(&reach.lost(&error, pause, since_boot())),
            }
            if self.is_over() {
                // Agents see it themselves; this is for those that cannot.
                self.leases.end_all().await;
            }
            tokio::time::sleep(pause.mul_f64(0.5 + jitter())).await;
            pause = (pause * 2).min(PAUSES[1]);
        }
    }

    /// Returns when the state directory was removed under this agent: it could begin nothing any more.
    async fn until_removed(&self) -> NodeError {
        loop {
            tokio::time::sleep(BEAT).await;
            if self.has_state().is_err() {
                return NodeError::Removed { path: self.state.clone() };
            }
        }
    }

    /// Fails when the state directory was removed under this agent, also where something has made a part of it anew.
    fn has_state(&self) -> io::Result<()> {
        match self.state.join("node.key").symlink_metadata() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                Err(io::Error::new(io::ErrorKind::NotFound, "the state directory was removed while this agent ran"))
            }
            _ => Ok(()),
        }
    }

    fn inventory(&self) -> Inventory {
        self.inventory.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Accelerators that were not there when this began, of a driver that came later for example: the server is told anew.
    fn take_found(&self, reading: &Reading) {
        let found = Inventory::with(&[], Some(reading));
        let mut known = self.inventory.lock().unwrap_or_else(PoisonError::into_inner);
        if known.lacks(&found) {
            *known = found;
            self.has_found.notify_one();
        }
    }

    /// Whether the server was not heard for so long that nothing may run here.
    fn is_over(&self) -> bool {
        self.contact.lock().unwrap_or_else(PoisonError::into_inner).is_over()
    }

    /// A connection to the server, with the name that this machine has there, and its dead-man time.
    async fn open(&self, purpose: Purpose) -> Result<(ServerStream, String, Duration), NodeError> {
        let (server, key) = &self.server;
        let unreachable = |source: io::Error| NodeError::Unreachable { server: server.clone(), source };
        let connector = connector(&self.identity, *key).map_err(unreachable)?;
        let connect = async {
            let stream = TcpStream::connect(server).await.map_err(unreachable)?;
            let is_store = matches!(purpose, Purpose::Store(_));
            tcp::ends_after(&stream, if is_store { tcp::STORE } else { tcp::NODE });
            if let Ok(own) = stream.local_addr() {
                *self.address.lock().unwrap_or_else(PoisonError::into_inner) = Some(own.ip());
            }
            let not_ours = |error: io::Error| match error.get_ref().and_then(|error| error.downcast_ref()) {
                Some(rustls::Error::InvalidCertificate(_)) => NodeError::OtherServer { server: server.to_owned() },
                Some(_) => NodeError::NotOurs { server: server.to_owned() },
                None => unreachable(error),
            };
            let mut stream = dial(&connector, stream).await.map_err(not_ours)?;
            let hello = Hello {
                protocol: PROTOCOL,
                build: env!("CARGO_PKG_VERSION").to_owned(),
                instance: self.instance.clone(),
                machine: Some(self.machine.clone()),
                purpose,
            };
            let asked_ms = wall_clock_ms();
            send(&mut stream, &Message::of(&hello)).await.map_err(unreachable)?;
            let welcome = receive(&mut stream, MOST_HELLO).await.map_err(unreachable)?;
            match welcome.read().map_err(|_| NodeError::NotOurs { server: server.to_owned() })? {
                Welcome::Welcome { name, dead_man_ms, now_unix_ms } => {
                    // Only people read it, so it may fail.
                    let _ = now_unix_ms.map(|server_ms| note_clock(&self.state, asked_ms, server_ms));
                    Ok((stream, name, Duration::from_millis(dead_man_ms)))
                }
                Welcome::Refused(why) => Err(why.into()),
            }
        };
        let late = || unreachable(io::ErrorKind::TimedOut.into());
        tokio::time::timeout(CONNECT, connect).await.map_err(|_| late())?
    }

    /// Serves one connection until it ends, or the server says nothing over it.
    async fn attend(self: &Arc<Self>, stream: ServerStream, dead_man: Duration, asked_at: Duration) {
        let daemon = Arc::clone(self);
        let answer = move |message: Message| {
            let daemon = Arc::clone(&daemon);
            async move {
                let request: ToNode = message.read().map_err(|error| error.to_string())?;
                daemon.answer(request).await.map_err(|error| error.to_string())
            }
        };
        self.beats.store(0, Ordering::Relaxed);
        // A welcome answers what was said before it: what the agents go by counts from then.
        if let Err(error) = self.contact.lock().unwrap_or_else(PoisonError::into_inner).heard(asked_at, dead_man) {
            return say(&format!("the time of the last contact cannot be written: {error}"));
        }
        let (peer, working) = Peer::over(stream, AT_ONCE, answer);
        self.outputs.start_over();
        *self.peer.lock().unwrap_or_else(PoisonError::into_inner) = Some(peer.clone());
        tokio::select! {
            error = working => match error.kind() {
                io::ErrorKind::UnexpectedEof => say("the server is gone, or has ended the connection"),
                _ => say(&format!("the connection ended: {error}")),
            },
            () = self.beat(&peer, dead_man) => say("the server does not answer"),
            () = self.send_outputs(&peer) => {}
            () = self.tidy() => {}
            () = self.has_found.notified() => say(&format!("accelerators were found: {}", self.inventory())),
        }
        *self.peer.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// Sends what programs print, for as long as the connection lasts.
    async fn send_outputs(&self, peer: &Peer) {
        loop {
            self.outputs.send_new(peer, &orders::jobs(&self.state), LOOK).await;
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Sends the rest of what workers printed whose end is about to be told: it is there before their end is.
    async fn send_last_words(&self, workers: &[WorkerView]) {
        let Some(peer) = self.peer.lock().unwrap_or_else(PoisonError::into_inner).clone() else { return };
        let jobs = orders::jobs(&self.state);
        let ended = workers.iter().filter(|worker| worker.end.is_some());
        let sending = async {
            for worker in ended {
                self.outputs.send_all_of(&peer, &jobs, |stint| stint == worker.stint).await;
            }
        };
        let _ = tokio::time::timeout(LAST_WORDS, sending).await;
    }

    /// Tells the server how it is here, every few seconds and whenever that changes. Returns when it does not answer.
    async fn beat(&self, peer: &Peer, dead_man: Duration) {
        let (mut told, mut told_at, mut told_health) = (None, since_boot(), None);
        loop {
            let leases = self.shown();
            let health = self.health.report(server_ahead_ms(&self.state));
            let ended = leases
                .iter()
                .filter(|seen| !shown::was_told(told.as_deref(), seen))
                .filter_map(|seen| seen.last.clone());
            let ended: Vec<WorkerView> = ended.flat_map(|last| last.workers).collect();
            self.send_last_words(&ended).await;
            let is_news = told.as_ref() != Some(&leases) || health::is_news(told_health.as_ref(), health.as_ref());
            if is_news || since_boot().saturating_sub(told_at) >= BEAT {
                let number = self.beats.fetch_add(1, Ordering::Relaxed) + 1;
                let beat = ToServer::Beat(Beat { number, leases: leases.clone(), health: health.clone() });
                (told, told_at, told_health) = (Some(leases), since_boot(), health);
                let answer = tokio::time::timeout(SILENT, peer.ask(Message::of(&beat))).await;
                if !matches!(answer, Ok(Ok(Ok(_)))) {
                    return;
                }
                // Counted from when it was said: the server has heard it after that.
                let heard = self.contact.lock().unwrap_or_else(PoisonError::into_inner).heard(told_at, dead_man);
                if let Err(error) = heard {
                    say(&format!("the time of the last contact cannot be written: {error}"));
                }
            }
            tokio::time::sleep(LOOK).await;
        }
    }
}

/// Fails where others cannot pass through to a folder: what runs as them could not be started.
fn reachable(folder: &Path) -> io::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    for above in folder.ancestors().skip(1) {
        let mode = std::fs::metadata(above)?.permissions().mode();
        if mode & 0o001 == 0 {
            let text = format!("programs that run as others cannot pass through {}", above.display());
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, text));
        }
    }
    Ok(())
}

/// A number from 0 to 1: two thousand nodes that were cut off do not all come back at once.
fn jitter() -> f64 {
    let mut bytes = [0; 2];
    let _ = ring::rand::SecureRandom::fill(&ring::rand::SystemRandom::new(), &mut bytes);
    f64::from(u16::from_be_bytes(bytes)) / f64::from(u16::MAX)
}

/// For whoever reads the agent's output: a terminal, or the journal of its service.
fn say(text: &str) {
    eprintln!("{text}");
}
