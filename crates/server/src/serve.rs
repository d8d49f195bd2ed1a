//! Starts a server on a state directory and serves until it is told to end or nobody needs it.

use crate::api::{ApiState, routes};
use crate::archive::Archive;
use crate::bound::Bound;
use crate::cycle::{Cycle, Habits, Moment};
use crate::engines::Engines;
use crate::folders::Folders;
use crate::home::{
    HereSettings, Home, HomeError, MachineSettings, RemoteSettings, World, WorldSettings, allow_many_descriptors, log,
    private,
};
use crate::keeper::{Asked, Keeper};
use crate::listener::PeerListener;
use crate::node_jobs::NodeJobs;
use crate::notes;
use crate::old_notes;
use crate::principal::Principal;
use crate::probe::Probes;
use crate::reader::{Reader, Standing};
use crate::seal::Seal;
use crate::submitters;
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use windfall_catalog::{Catalog, Site};
use windfall_core::brain::Config;
use windfall_core::{Place, Time, Way, codec};
use windfall_exec::{
    Accounts, AgentLink, ClockFile, Here, Hub, Inventory, Kubernetes, LocalLink, Machines, RemoteEngine, Replay,
    Simulated, SimulatedError, Slurm, WorldClock,
};
use windfall_store::StoreError;

/// How to serve.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The state directory.
    pub home: PathBuf,
    /// The world to make when the directory holds none.
    pub world: Option<WorldSettings>,
    /// Ends after so long without jobs and clients, where somebody said how long.
    pub idle_after: Option<Duration>,
    /// The market policy of jobs that name none.
    pub policy: Option<String>,
    /// The process without which it ends, and its state directory with it.
    pub bound: Option<Bound>,
    /// Whether it is a service: it ends with a signal of the terminal too, and no client puts another in its place.
    pub is_service: bool,
}

/// Why a server did not start.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The state directory.
    #[error(transparent)]
    Home(#[from] HomeError),
    /// The store.
    #[error("the state cannot be opened")]
    Store(#[from] StoreError),
    /// The log.
    #[error("the state cannot be read")]
    Log(#[from] codec::CodecError),
    /// The world that was asked for cannot be: nothing was changed.
    #[error("{0}")]
    World(String),
    /// It served, and had to end.
    #[error("{0}")]
    Ended(String),
    /// The engine.
    #[error(transparent)]
    Engine(#[from] SimulatedError),
    /// The port for nodes.
    #[error("nodes cannot be listened to on {address}")]
    Port {
        address: SocketAddr,
        #[source]
        source: std::io::Error,
    },
    /// The socket.
    #[error("the server cannot listen")]
    Listen(#[source] std::io::Error),
}

impl ServeError {
    /// What was asked for can never work, and nothing was changed.
    pub fn is_bad_input(&self) -> bool {
        matches!(
            self,
            ServeError::Home(HomeError::OtherWorld { .. })
                | ServeError::Engine(SimulatedError::Tape(_))
                | ServeError::Store(StoreError::Address { .. })
                | ServeError::World(_)
                | ServeError::Port { .. }
        )
    }
}

/// What moving a checkpoint between the places of engines costs, by the catalogue; what nobody knows is left out.
fn ways(engines: &Engines) -> Vec<Way> {
    let places: BTreeSet<Place> = engines.all().flat_map(|engine| engine.describe().places).collect();
    let catalog = Catalog::embedded();
    let way = |from: &Place, to: &Place| {
        let [from_site, to_site] = [from, to].map(|place| Site { cloud: &place.cloud, region: &place.region });
        let per_gib = catalog.egress(from_site, to_site, 1 << 30)?;
        Some(Way { from: from.clone(), to: to.clone(), per_gib })
    };
    let pairs = places.iter().flat_map(|from| places.iter().map(move |to| (from, to)));
    pairs.filter(|(from, to)| from != to).filter_map(|(from, to)| way(from, to)).collect()
}

/// How many jobs of a state directory have not ended, where no server can be asked; none where nobody can say.
pub async fn live_jobs(home: &Path) -> Option<u64> {
    let world = WorldSettings::of(home).ok()??;
    windfall_store::live_jobs(&Home { path: home.to_owned() }.store(&world)).await.ok()?
}

/// Whether there is such a recording, with such zones.
pub(crate) fn check_replay(replay: &Replay) -> Result<(), SimulatedError> {
    windfall_sim::embedded(&replay.market)?.with_zones(&replay.zones)?;
    Ok(())
}

/// Whether a world can be, before anything of it is written: its market, its zones, its speed, its database.
pub async fn check_world(world: &WorldSettings) -> Result<(), ServeError> {
    match &world.world {
        World::Replay(replay) => check_replay(replay)?,
        World::Machines(_) if world.speed != 1 || !world.engines.is_empty() => {
            let text = "real machines run at the speed of life, and beside no recording: one world, one clock";
            return Err(ServeError::World(text.to_owned()));
        }
        World::Machines(_) => {}
    }
    if !(1..=60).contains(&world.speed) {
        return Err(ServeError::World(format!("a world runs 1 to 60 times faster than life, not {}", world.speed)));
    }
    let mut names = BTreeSet::from([engine_of(world)]);
    if let Some(engine) = world.engines.iter().find(|engine| engine.name.contains('/') || !names.insert(&engine.name)) {
        return Err(ServeError::World(format!("no name for another engine: {}", engine.name)));
    }
    if world.replay().is_some_and(|replay| replay.from.0 < 0) {
        return Err(ServeError::World("a replay begins at 0 or later".to_owned()));
    }
    if let Some(address) = &world.store {
        windfall_store::open(address).await?.close().await;
    }
    Ok(())
}

/// Serves until the end; `ready` is called once it listens. Returns `Ok` also when another server was faster.
pub async fn serve(settings: Settings, ready: impl FnOnce()) -> Result<(), ServeError> {
    private();
    windfall_agent::stay_when_memory_is_short();
    allow_many_descriptors();
    let known = WorldSettings::standing(&settings.home, settings.world.as_ref())?;
    if known.is_none() {
        check_world(&settings.world.clone().unwrap_or_default()).await?;
    }
    let home = Arc::new(Home::open(&settings.home)?);
    let _lock = match home.lock() {
        Ok(lock) => lock,
        Err(HomeError::Busy { .. }) => return Ok(()),
        Err(error) => return Err(error.into()),
    };
    // Again, now that nobody else can write it.
    let known = WorldSettings::standing(&home.path, settings.world.as_ref())?;
    let world = known.clone().or(settings.world.clone()).unwrap_or_default();
    let store: Arc<dyn windfall_store::Store> = windfall_store::open(&home.store(&world)).await?.into();
    let is_new = WorldSettings::of(&home.path)?.as_ref() != Some(&world);
    let served = serve_from(&store, &home, &settings, &world, is_new, ready).await;
    // A state that was refused is given back as well. A database that does not answer must not keep a server from ending.
    let _ = tokio::time::timeout(CLOSE, store.close()).await;
    if served.is_ok() {
        log("ended");
    }
    // Whoever wants to look at it afterwards leaves a word there.
    if served.is_ok() && settings.bound.is_some_and(|bound| bound.is_gone()) && !home.path.join("keep").exists() {
        let _ = std::fs::remove_dir_all(&home.path);
    }
    served?.map_or(Ok(()), |why| Err(ServeError::Ended(why)))
}

/// Serves what is in the store; gives why it had to end, where nobody asked it to.
async fn serve_from(
    store: &Arc<dyn windfall_store::Store>,
    home: &Arc<Home>,
    settings: &Settings,
    world: &WorldSettings,
    is_new: bool,
    ready: impl FnOnce(),
) -> Result<Option<String>, ServeError> {
    let began = Instant::now();
    let epoch = store.lead().await?;
    let loaded = store.load().await?;
    let now = Moment { world: Time(0), real: began.elapsed() };
    let names: Vec<String> = [engine_of(world).to_owned()]
        .into_iter()
        .chain(world.slurm().map(|_| SLURM.to_owned()))
        .chain(world.kubernetes().map(|_| KUBERNETES.to_owned()))
        .chain(world.engines.iter().map(|engine| engine.name.clone()))
        .collect();
    let mut cycle = Cycle::start(Habits::default(), Config::default(), &names, epoch, loaded, now)?;
    let seal = Seal::of(&home.path).map_err(|source| HomeError::Unusable { path: home.path.clone(), source })?;
    let seal = Arc::new(seal);
    old_notes::move_to_store((home, &seal), store.as_ref(), epoch, cycle.brain()).await?;
    if let Some(live) = old_notes::to_clear(home, cycle.brain()) {
        tokio::spawn(old_notes::clear_folders(Arc::clone(home), Arc::clone(store), live));
    }
    if let Some(warning) = notes::other_key(store.as_ref(), &seal, cycle.brain()).await? {
        log(&format!("{warning} ({})", home.path.display()));
    }
    let nodes = match &world.world {
        World::Machines(machines) => {
            home.stays_in_place()?;
            Some(nodes(machines, home).await?)
        }
        World::Replay(_) => None,
    };
    if is_new {
        home.write_world(world)?;
    }
    let clock_file = home.clock();
    let clock = Arc::new(match &world.world {
        World::Replay(_) => replayed_clock(cycle.brain().now(), &clock_file, world.speed),
        World::Machines(_) => WorldClock::real(cycle.brain().now()),
    });
    let program = PathBuf::from("/proc/self/exe");
    let leases = home.leases();
    let mut engines = Engines::default();
    let mut owned = None;
    match &world.world {
        World::Replay(replay) => {
            let apart = windfall_agent::control_groups_can_be_made();
            let simulated =
                Simulated::open(SIMULATED, leases, replay.clone(), Arc::clone(&clock), program, apart).await?;
            engines.add(Arc::new(simulated));
        }
        World::Machines(settings) => {
            let unusable = |source| HomeError::Unusable { path: home.leases(), source };
            let here = match &settings.here {
                Some(HereSettings { accelerators, rate, .. }) => Some(Here {
                    inventory: Inventory::of_this_computer(accelerators, &program).await,
                    rate: *rate,
                    is_found: accelerators.is_empty(),
                }),
                None => None,
            };
            let (hub, _) = nodes.as_ref().expect("opened above");
            // Root's own jobs are root's here: whoever submitted them is root of this very computer.
            let accounts = Accounts { run_as: None, allow_root: true, machine: "this computer".to_owned() }.of_root();
            let machines =
                Machines::open(MACHINES, leases, here, Arc::clone(hub), Arc::clone(&clock), program.clone(), accounts);
            let machines = machines.map_err(unusable)?;
            owned = Some(Arc::clone(&machines));
            engines.add(Arc::new(machines));
            if let Some(slurm) = settings.slurm.clone() {
                let (root, hub) = (home.leases_of(SLURM), Arc::clone(hub));
                let slurm = Slurm::open(SLURM, root, *slurm, hub, Arc::clone(&clock), program.clone());
                engines.add(Arc::new(slurm.map_err(unusable)?));
            }
            if let Some(cluster) = settings.kubernetes.clone() {
                let (root, hub) = (home.leases_of(KUBERNETES), Arc::clone(hub));
                let cluster = Kubernetes::open(KUBERNETES, root, *cluster, hub, Arc::clone(&clock), program);
                engines.add(Arc::new(cluster.map_err(unusable)?));
            }
        }
    }
    for RemoteSettings { name, socket } in &world.engines {
        engines.add(Arc::new(RemoteEngine::open(name, socket, Arc::clone(&clock)).await));
    }
    let mut config = Config { ways: ways(&engines), ..Config::default() };
    if let Some(policy) = &settings.policy {
        config.policy.clone_from(policy);
    }
    cycle.configure(config);
    let keeping_time = tokio::spawn(clock_file.clone().keep(Arc::clone(&clock)));

    let listener = PeerListener::bind(home).map_err(ServeError::Listen)?;
    let (asks, keeper_asks) = mpsc::channel(4_096);
    let (report_sender, reports) = mpsc::unbounded_channel();
    log(&format!("version {} serves {} as pid {}", env!("CARGO_PKG_VERSION"), home.path.display(), std::process::id()));
    let hub = nodes.as_ref().map(|(hub, _)| Arc::clone(hub));
    let link: Arc<dyn AgentLink> = Arc::new(match &hub {
        Some(hub) => LocalLink::with_nodes(Arc::clone(&clock), Arc::clone(hub)),
        None => LocalLink::new(Arc::clone(&clock)),
    });
    let archive =
        Archive { store: Arc::clone(store), home: Arc::clone(home), engines: engines.clone(), seal: Arc::clone(&seal) };
    let (standing, standing_seen) = watch::channel(Standing::default());
    let reader = Reader {
        durable: Arc::clone(cycle.durable()),
        standing: standing_seen,
        archive,
        clock: Arc::clone(&clock),
        link: Arc::clone(&link),
        is_service: settings.is_service,
        listens: nodes.as_ref().and_then(|(_, listener)| listener.as_ref()?.local_addr().ok()),
    };
    let folders = Folders { home: Arc::clone(home), speed: world.speed, fresh_folder: world.fresh_folder };
    let jobs = Arc::new(NodeJobs { durable: Arc::clone(cycle.durable()), folders: folders.clone() });
    if let Some(hub) = &hub {
        hub.set_jobs(Arc::<NodeJobs>::clone(&jobs));
    }
    let runs_as_submitters = submitters::runs_as_submitters(matches!(world.world, World::Machines(_)));
    let relaying = match runs_as_submitters {
        true => Some(jobs.listen_here().map_err(ServeError::Listen)?),
        false => None,
    };
    let asked = Arc::new(Asked::new(began));
    let keeper = Keeper {
        home: Arc::clone(home),
        folders,
        cycle,
        store: Arc::clone(store),
        seal,
        clock: Arc::clone(&clock),
        engines,
        link,
        taken_away: BTreeSet::new(),
        undecided: Vec::new(),
        tidying: JoinSet::new(),
        asks: keeper_asks,
        reports,
        report_sender,
        standing,
        asked: Arc::clone(&asked),
        cut: began,
        waiting: BTreeMap::new(),
        tickets: 0,
        began,
        idle_after: settings.idle_after.unwrap_or_else(|| idle_after(world)),
        last_used: Instant::now(),
        ending: None,
        bound: settings.bound.clone(),
    };
    let keeper = tokio::spawn(keeper.run());
    let api = ApiState {
        asks,
        reader: Arc::new(reader),
        probes: Probes::default(),
        asked,
        nodes: hub,
        machines: owned,
        runs_as_submitters,
    };
    let listening = nodes.and_then(|(hub, listener)| Some(tokio::spawn(hub.listen(listener?))));
    let mut terminate = signal(SignalKind::terminate()).map_err(ServeError::Listen)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(ServeError::Listen)?;
    let app = axum::serve(listener, routes(api).into_make_service_with_connect_info::<Principal>());
    ready();
    let mut had_to_end = None;
    tokio::select! {
        served = app => served.map_err(ServeError::Listen)?,
        ended = keeper => had_to_end = ended.unwrap_or_else(|error| Some(format!("the loop failed: {error}"))),
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    keeping_time.abort();
    listening.iter().for_each(tokio::task::JoinHandle::abort);
    relaying.iter().for_each(tokio::task::JoinHandle::abort);
    let _ = clock_file.write(clock.now());
    Ok(had_to_end)
}

/// Who knows the machines, and where those that join are listened to.
async fn nodes(settings: &MachineSettings, home: &Home) -> Result<(Arc<Hub>, Option<TcpListener>), ServeError> {
    let listener = match settings.listen {
        Some(address) => Some(TcpListener::bind(address).await.map_err(|source| ServeError::Port { address, source })?),
        None => None,
    };
    let unusable = |source| HomeError::Unusable { path: home.machines(), source };
    let dead_man = Duration::from_secs(settings.dead_man_s);
    let hub = Hub::open(&home.machines(), dead_man, listener.is_some()).map_err(unusable)?;
    Ok((hub, listener))
}

/// The name of the engine that replays a market on this machine.
const SIMULATED: &str = "simulated";
/// The name of the engine of owned machines.
pub(crate) const MACHINES: &str = "machines";
/// The name of the engine of a Slurm cluster.
const SLURM: &str = "slurm";
/// The name of the engine of a Kubernetes cluster.
const KUBERNETES: &str = "kubernetes";

fn engine_of(world: &WorldSettings) -> &'static str {
    match &world.world {
        World::Replay(_) => SIMULATED,
        World::Machines(_) => MACHINES,
    }
}

/// Without jobs and clients for so long, a server ends itself.
const IDLE: Duration = Duration::from_secs(600);

/// How long a server of this world stays without jobs and clients, where nobody said so. One that listens for machines
/// stays: they have joined it, and nobody but its owner could start it again.
fn idle_after(world: &WorldSettings) -> Duration {
    match &world.world {
        World::Machines(MachineSettings { listen: Some(_), .. }) => Duration::MAX,
        _ => IDLE,
    }
}

/// How long giving connections back may take.
const CLOSE: Duration = Duration::from_secs(5);

/// Goes on from the later of what the log and the clock's file say; a new world begins now.
fn replayed_clock(logged: Time, file: &ClockFile, speed: u32) -> WorldClock {
    let left_at = file.read().map_or(logged, |kept| kept.max(logged));
    let base = if left_at == Time(0) { WorldClock::real(left_at).now() } else { left_at };
    WorldClock::replayed(base, speed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_listens_for_machines_does_not_end_for_want_of_work() {
        let machines = |listen| {
            let listen: Option<SocketAddr> = listen;
            let here = Some(HereSettings::default());
            WorldSettings::machines(MachineSettings { here, listen, dead_man_s: 120, slurm: None, kubernetes: None })
        };
        assert_eq!(idle_after(&machines(Some(SocketAddr::from(([127, 0, 0, 1], 7443))))), Duration::MAX);
        assert_eq!(idle_after(&machines(None)), IDLE);
        assert_eq!(idle_after(&WorldSettings::default()), IDLE);
    }
}
