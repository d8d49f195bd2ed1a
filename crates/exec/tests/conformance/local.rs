//! Engines whose machines are processes here, on a stage: the simulated one, the same behind a socket, owned machines, and
//! a node that has joined over TLS.

use crate::stage::Stage;
use rustix::process::{Pid, Signal, kill_process};
use std::collections::BTreeSet;
use std::future::Future;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::net::UnixListener;
use tokio::runtime::Runtime;
use windfall_core::pool::Health;
use windfall_core::{LeaseId, Market, NanoUsd, Offer, OfferId, Span, StintId, Time, Want, WorkloadId};
use windfall_exec::{
    Accelerator, Accounts, AgentLink, Engine, EngineServer, Here, Hub, InStore, Interrupt, Inventory, JobsOfNodes,
    LocalLink, Machines, NodeSettings, NodeStream, RemoteEngine, Replay, Simulated, Stated, WorldClock, serve_node,
};

/// The engine is in this process.
pub const SIMULATED: u8 = 0;
/// It is behind a socket, as one in a process of its own.
pub const APART: u8 = 1;
/// Owned machines.
pub const MACHINES: u8 = 2;
/// A node that has joined.
pub const JOINED: u8 = 3;

/// Where an engine's machines come from.
#[derive(Clone)]
enum Ground {
    Replay(Replay),
    /// One machine with so many accelerators.
    Owned(u32),
}

impl Ground {
    fn count(&self) -> u32 {
        match self {
            Ground::Replay(_) => 0,
            Ground::Owned(count) => *count,
        }
    }
}

pub struct LocalStage<const KIND: u8> {
    dir: tempfile::TempDir,
    work: PathBuf,
    ground: Ground,
    /// None only while it is opened anew.
    runtime: Option<Runtime>,
    engine: Option<(Arc<dyn Engine>, Arc<LocalLink>)>,
    /// The node's side, which goes on when the server's begins anew.
    node: Option<Runtime>,
    port: u16,
}

/// The binary that knows the `agent` subcommands: `WINDFALL_BIN`, else the one of this build.
fn program() -> PathBuf {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    let build = || {
        if let Some(given) = std::env::var_os("WINDFALL_BIN") {
            return PathBuf::from(given);
        }
        let here = std::env::current_exe().unwrap();
        let target = here.parent().and_then(Path::parent).unwrap();
        let mut build = Command::new(env!("CARGO"));
        build.args(["build", "--quiet", "--package", "windfall-cli"]);
        build.args(target.ends_with("release").then_some("--release"));
        // What cargo says of this test's own package would make build scripts run again, and all that depends on them.
        let of_package = |name: &str| name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_");
        let names = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
        names.filter(|name| of_package(name)).for_each(|name| _ = build.env_remove(name));
        assert!(build.status().unwrap().success(), "the agent's binary cannot be built");
        target.join("windfall")
    };
    BUILT.get_or_init(build).clone()
}

impl<const KIND: u8> LocalStage<KIND> {
    fn engine_on(runtime: &Runtime, root: PathBuf, ground: Ground, port: u16) -> (Arc<dyn Engine>, Arc<LocalLink>) {
        let clock = Arc::new(WorldClock::replayed(Time(1_000_000), 60));
        let hub = (KIND == JOINED).then(|| {
            let hub = Hub::open(&root.with_extension("machines"), Duration::from_secs(30), true).unwrap();
            let listener = runtime.block_on(bound(port));
            runtime.spawn(Arc::clone(&hub).listen(listener));
            hub.set_jobs(Arc::new(StageJobs { work: root.with_file_name("work") }));
            hub
        });
        let link = match &hub {
            Some(hub) => LocalLink::with_nodes(Arc::clone(&clock), Arc::clone(hub)),
            None => LocalLink::new(Arc::clone(&clock)),
        };
        let engine: Arc<dyn Engine> = runtime.block_on(async {
            match ground {
                Ground::Replay(replay) if KIND == APART => {
                    let socket = root.with_extension("sock");
                    let _ = std::fs::remove_file(&socket);
                    let listener = UnixListener::bind(&socket).unwrap();
                    tokio::spawn(serve(listener, root, replay));
                    Arc::new(RemoteEngine::open(NAME, &socket, clock).await) as Arc<dyn Engine>
                }
                Ground::Replay(replay) => {
                    Arc::new(Simulated::open(NAME, root, replay, clock, program(), true).await.unwrap())
                }
                Ground::Owned(count) => {
                    let named = |number: u32| Accelerator {
                        model: "H200".to_owned(),
                        device: number.to_string(),
                        ..Accelerator::default()
                    };
                    let accelerators = (0..count).map(named).collect();
                    let inventory = Inventory { name: "lab".to_owned(), accelerators, cpus: 2, memory_bytes: 1 << 30 };
                    let here = Here { inventory, rate: NanoUsd(64_000_000_000), is_found: false };
                    let here = (KIND == MACHINES).then_some(here);
                    let alone = || Hub::open(&root.with_extension("machines"), Duration::from_secs(30), false).unwrap();
                    let hub = hub.unwrap_or_else(alone);
                    Arc::new(Machines::open("machines", root, here, hub, clock, program(), None).unwrap())
                }
            }
        });
        (engine, link)
    }

    /// The folder of the agents' folders.
    fn root(&self) -> PathBuf {
        self.dir.path().join(if KIND == JOINED { "node/leases" } else { "leases" })
    }

    /// Lets a node join that has so many accelerators, and waits until it has.
    fn join(&mut self, count: u32) {
        let hub = Hub::open(&self.dir.path().join("leases.machines"), Duration::from_secs(30), true).unwrap();
        let settings = NodeSettings {
            state: self.dir.path().join("node"),
            server: Some(format!("127.0.0.1:{}", self.port)),
            token: Some(hub.new_token("lab", NanoUsd(64_000_000_000)).unwrap()),
            name: None,
            accelerators: vec![Stated { model: "H200".to_owned(), count }],
            labels: Default::default(),
            program: program(),
            accounts: Accounts { allow_root: true, ..Accounts::default() },
            pilot: false,
        };
        // Whoever is root keeps agents where others could pass through to theirs.
        std::fs::set_permissions(self.dir.path(), PermissionsExt::from_mode(0o711)).unwrap();
        let runtime = Runtime::new().unwrap();
        runtime.spawn(async {
            let ended = serve_node(settings, |_, _| ()).await;
            panic!("the node ended: {ended:?}");
        });
        self.node = Some(runtime);
        self.wait_for_node();
    }

    fn wait_for_node(&self) {
        for _ in 0..1_000 {
            let nodes = self.wait_for(self.engine().nodes()).unwrap();
            if nodes.iter().any(|node| node.health == Health::Ready) {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        panic!("the node does not come");
    }

    fn open_on(ground: Ground) -> Self {
        let dir = tempfile::Builder::new().prefix("windfall-conformance-").tempdir().unwrap();
        let work = dir.path().join("work");
        std::fs::create_dir(&work).unwrap();
        let runtime = Runtime::new().unwrap();
        let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = free.local_addr().unwrap().port();
        drop(free);
        let engine = Self::engine_on(&runtime, dir.path().join("leases"), ground.clone(), port);
        let (count, runtime, engine) = (ground.count(), Some(runtime), Some(engine));
        let mut stage = Self { dir, work, ground, runtime, engine, node: None, port };
        if KIND == JOINED {
            stage.join(count);
        }
        stage
    }
}

const NAME: &str = "simulated";

/// What a server knows of the jobs of a stage.
struct StageJobs {
    work: PathBuf,
}

#[async_trait::async_trait]
impl JobsOfNodes for StageJobs {
    fn output_of(&self, _node: &str, stint: StintId, _rank: u32) -> Option<PathBuf> {
        let own = self.work.join(format!("job-{}", stint.workload.0));
        let folder = if own.exists() { own } else { self.work.clone() };
        Some(folder.join(format!("output-{}", stint.epoch)))
    }

    fn has_store_of(&self, _node: &str, _job: WorkloadId) -> bool {
        true
    }

    async fn serve_store(&self, _node: &str, what: InStore, stream: NodeStream) {
        let job = what.workload;
        // Jobs that share a lease have folders of their own, and some of them a store.
        let shares = self.work.join(format!("job-{}", job.0)).exists();
        let key = if shares { format!("job-{}", job.0) } else { "job".to_owned() };
        let own = self.work.join(format!("store-{}", job.0));
        let store = if own.exists() { own } else { self.work.join("store") };
        let _ = windfall_agent::serve_relay(
            stream,
            &store.display().to_string(),
            &key,
            false,
            windfall_agent::Access::ReadAndWrite,
        )
        .await;
    }
}

/// The port, once the server before has let go of it.
async fn bound(port: u16) -> tokio::net::TcpListener {
    for _ in 0..500 {
        if let Ok(listener) = tokio::net::TcpListener::bind(("127.0.0.1", port)).await {
            return listener;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("port {port} stays taken");
}

/// The other side of the socket.
async fn serve(listener: UnixListener, root: PathBuf, replay: Replay) {
    let clock = Arc::new(WorldClock::following(60));
    let server = EngineServer::first_asked(listener, Arc::clone(&clock)).await;
    let engine = Simulated::open(NAME, root, replay, clock, program(), true).await.unwrap();
    engine.begin();
    server.serve(Arc::new(engine)).await;
}

/// A place of a recording at which a zone has three or four machines for hours.
fn scarce() -> Replay {
    let tape = windfall_sim::embedded(FOUR_NODES).unwrap();
    let stays = |zone: &str, from: Span| {
        let has = tape.quote(zone, from).map_or(0, |quote| quote.capacity);
        has >= 3 && tape.falls_below(zone, has, from, Span::hours(3)).is_none()
    };
    let places = (0..5_000).map(|tick| Span(tape.tick.0 * tick));
    let from = places.into_iter().find(|from| tape.zones().any(|zone| stays(zone, *from)));
    Replay { market: FOUR_NODES.to_owned(), zones: Vec::new(), from: from.expect("the recording has such a place") }
}

/// A recording with up to four machines a zone.
const FOUR_NODES: &str = "aws-v100-4-nodes-2023";

impl<const KIND: u8> Stage for LocalStage<KIND> {
    fn open() -> Self {
        let replay = Replay { market: windfall_sim::STEADY.to_owned(), zones: Vec::new(), from: Span::ZERO };
        Self::open_on(if KIND >= MACHINES { Ground::Owned(64) } else { Ground::Replay(replay) })
    }

    fn scarce() -> Self {
        let stage = Self::open_on(if KIND >= MACHINES { Ground::Owned(4) } else { Ground::Replay(scarce()) });
        // Behind a socket it begins by itself.
        stage.engine().recording().into_iter().for_each(|recording| recording.begin_anew());
        stage
    }

    fn reopen(&mut self) {
        drop(self.engine.take());
        if let Some(runtime) = self.runtime.take() {
            // A server that has ended holds no connection open.
            runtime.shutdown_timeout(Duration::from_secs(2));
        }
        let runtime = Runtime::new().unwrap();
        let leases = self.dir.path().join("leases");
        self.engine = Some(Self::engine_on(&runtime, leases, self.ground.clone(), self.port));
        self.runtime = Some(runtime);
        if KIND == JOINED {
            self.wait_for_node();
        }
    }

    fn engine(&self) -> &dyn Engine {
        &*self.engine.as_ref().unwrap().0
    }

    fn link(&self) -> &dyn AgentLink {
        &self.engine.as_ref().unwrap().1
    }

    fn wait_for<T>(&self, work: impl Future<Output = T>) -> T {
        self.runtime.as_ref().unwrap().block_on(work)
    }

    fn want(&self) -> Want {
        let offers = self.wait_for(self.engine().offers()).unwrap();
        // Of a machine, enough accelerators to tell them apart.
        let usual = |offer: &Offer| offer.market == Market::Spot || offer.accelerators == 3;
        let want = Want::of(WorkloadId(1), offers.into_iter().find(usual).unwrap().id, 1);
        // As root a node runs what root has submitted; others do not look at it.
        Want { owner: "root".to_owned(), ..want }
    }

    fn other(&self) -> (OfferId, u32) {
        let offers = self.wait_for(self.engine().offers()).unwrap();
        let other = offers.into_iter().filter(|offer| offer.market != Market::OnDemand);
        let other = other.max_by_key(|offer| offer.capacity).unwrap();
        (other.id, other.capacity.unwrap())
    }

    fn folder(&self) -> &Path {
        &self.work
    }

    fn kept(&self, workload: u64, folder: &Path) -> PathBuf {
        if KIND == JOINED { self.dir.path().join(format!("node/jobs/{workload}")) } else { folder.to_owned() }
    }

    fn running(&self, lease: LeaseId) -> Vec<i32> {
        let mark = format!("WINDFALL_LEASE={lease}");
        // Leases of different stages have the same names: the folder tells them apart.
        let (root, work) = (self.root().display().to_string(), self.work.display().to_string());
        let ours = |pid: &i32| {
            let (environ, line) = (read(*pid, "environ"), read(*pid, "cmdline"));
            let marked = environ.contains(&mark);
            let here = |words: &[String]| words.iter().any(|word| word.contains(&root) || word.contains(&work));
            (marked && (here(&line) || here(&environ)))
                || (here(&environ) && line.first().is_some_and(|word| word == "sh"))
        };
        processes().into_iter().filter(ours).collect()
    }

    fn break_machine(&self, lease: LeaseId) {
        let agent = self.root().join(lease.to_string()).join("agent.pid");
        let pid = std::fs::read_to_string(agent).unwrap().trim().parse().unwrap();
        kill_process(Pid::from_raw(pid).unwrap(), Signal::KILL).unwrap();
    }

    fn kill_keepers(&self, lease: LeaseId) {
        let mark = format!("WINDFALL_LEASE={lease}");
        let keepers: Vec<Pid> = processes()
            .into_iter()
            .filter(|pid| read(*pid, "environ").contains(&mark))
            .filter_map(Pid::from_raw)
            .collect();
        // Stopped first, so that nobody sees another one end.
        for signal in [Signal::STOP, Signal::KILL] {
            for pid in &keepers {
                let _ = kill_process(*pid, signal);
            }
        }
    }

    fn is_grouped(&self, lease: LeaseId) -> bool {
        let agent = std::fs::read_to_string(self.root().join(lease.to_string()).join("agent.pid")).unwrap();
        let groups = std::fs::read_to_string(format!("/proc/{}/cgroup", agent.trim())).unwrap_or_default();
        groups.contains(&format!("windfall-{lease}"))
    }

    fn all_devices(&self) -> &str {
        if KIND >= MACHINES { "0,1,2" } else { "all of them" }
    }

    fn take(&self, lease: LeaseId, notice: Option<Span>) {
        let how = notice.map_or(Interrupt::Without, Interrupt::WithNotice);
        self.wait_for(self.engine().interrupt(lease, how)).unwrap();
    }
}

impl<const KIND: u8> Drop for LocalStage<KIND> {
    fn drop(&mut self) {
        drop(self.engine.take());
        for runtime in [self.runtime.take(), self.node.take()].into_iter().flatten() {
            runtime.shutdown_background();
        }
        let here = self.dir.path().display().to_string();
        for _ in 0..200 {
            let names = |pid: &i32| {
                let words: BTreeSet<String> = read(*pid, "environ").into_iter().chain(read(*pid, "cmdline")).collect();
                words.iter().any(|word| word.contains(&here))
            };
            let left: Vec<i32> = processes().into_iter().filter(names).collect();
            if left.is_empty() {
                return;
            }
            for pid in left.into_iter().filter_map(Pid::from_raw) {
                let _ = kill_process(pid, Signal::KILL);
            }
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
    }
}

/// Every process that is not a zombie, but for this one.
fn processes() -> Vec<i32> {
    let entries = std::fs::read_dir("/proc").unwrap();
    let pids = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    pids.filter(|pid| *pid != std::process::id() as i32).filter(|pid| is_running(*pid)).collect()
}

fn is_running(pid: i32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat.rfind(')').and_then(|at| stat[at + 1..].split_whitespace().next());
    !matches!(state, None | Some("Z" | "X"))
}

fn read(pid: i32, file: &str) -> Vec<String> {
    let bytes = std::fs::read(format!("/proc/{pid}/{file}")).unwrap_or_default();
    bytes.split(|byte| *byte == 0).map(|word| String::from_utf8_lossy(word).into_owned()).collect()
}
