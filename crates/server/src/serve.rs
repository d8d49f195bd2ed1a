//! Starts a server on a state directory and serves until it is told to end or nobody needs it.

use crate::api::{Desk, routes};
use crate::bound::Bound;
use crate::cycle::{Cycle, CycleError};
use crate::home::{Home, HomeError, World, private};
use crate::keeper::{Keeper, log};
use crate::outfit::Wardrobe;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::net::UnixListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{Notify, mpsc};
use windfall_catalog::{Catalog, Site};
use windfall_core::brain::Config;
use windfall_core::{Place, Time, Way};
use windfall_exec::{Replay, Simulated, SimulatedError, WorldClock};
use windfall_store::StoreError;

/// How to serve.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The state directory.
    pub home: PathBuf,
    /// The world to make when the directory holds none.
    pub world: Option<World>,
    /// Ends after so long without jobs and clients.
    pub idle_after: Duration,
    /// The market policy of jobs that name none.
    pub policy: Option<String>,
    /// The process without which it ends, and its state directory with it.
    pub bound: Option<Bound>,
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
    #[error(transparent)]
    Cycle(#[from] CycleError),
    /// The engine.
    #[error(transparent)]
    Engine(#[from] SimulatedError),
    /// The socket.
    #[error("the server cannot listen")]
    Listen(#[source] std::io::Error),
}

/// What moving a checkpoint between the places of a market costs, by the catalogue; what nobody knows is left out.
fn ways(replay: &Replay) -> Result<Vec<Way>, SimulatedError> {
    let tape = windfall_sim::embedded(&replay.market)?.with_zones(&replay.zones)?;
    let places: BTreeSet<Place> = tape.zones().map(|zone| tape.place(zone)).collect();
    let catalog = Catalog::embedded();
    let way = |from: &Place, to: &Place| {
        let [from_site, to_site] = [from, to].map(|place| Site { cloud: &place.cloud, region: &place.region });
        let per_gib = catalog.egress(from_site, to_site, 1 << 30)?;
        Some(Way { from: from.clone(), to: to.clone(), per_gib })
    };
    let pairs = places.iter().flat_map(|from| places.iter().map(move |to| (from, to)));
    Ok(pairs.filter(|(from, to)| from != to).filter_map(|(from, to)| way(from, to)).collect())
}

/// Serves until the end; `ready` is called once it listens. Returns `Ok` also when another server was faster.
pub async fn serve(settings: Settings, ready: impl FnOnce()) -> Result<(), ServeError> {
    private();
    let home = Arc::new(Home::open(&settings.home)?);
    let _lock = match home.lock() {
        Ok(lock) => lock,
        Err(HomeError::Busy { .. }) => return Ok(()),
        Err(error) => return Err(error.into()),
    };
    let world = home.world(settings.world)?;
    let store: Arc<dyn windfall_store::Store> = windfall_store::open(&home.store(&world)).await?.into();
    let mut config = Config { ways: ways(&world.replay)?, ..Config::default() };
    if let Some(policy) = settings.policy {
        config.policy = policy;
    }
    let cycle = Cycle::open(Arc::clone(&store), config).await?;
    let base = cycle.brain().now();
    let base = if base == Time(0) { WorldClock::real(base).now() } else { base };
    let clock = Arc::new(WorldClock::replayed(base, world.speed));
    let engine =
        Simulated::open(home.leases(), world.replay.clone(), Arc::clone(&clock), PathBuf::from("/proc/self/exe"))
            .await?;

    let folder = File::open(&home.path).map_err(ServeError::Listen)?;
    // The lock is ours, so a socket that is there belongs to a server that is gone.
    let _ = std::fs::remove_file(home.path.join("server.sock"));
    let listener = UnixListener::bind(Home::socket(&folder)).map_err(ServeError::Listen)?;
    let (asks, keeper_asks) = mpsc::channel(4_096);
    let (performed_sender, performed) = mpsc::unbounded_channel();
    let over = Arc::new(Notify::new());
    log(&format!("version {} serves {} as pid {}", env!("CARGO_PKG_VERSION"), home.path.display(), std::process::id()));
    let keeper = Keeper {
        home: Arc::clone(&home),
        wardrobe: Wardrobe { home: Arc::clone(&home), fresh_folder: world.fresh_folder, needed: Mutex::default() },
        world,
        cycle,
        clock,
        engine,
        asks: keeper_asks,
        performed,
        performed_sender,
        in_flight: BTreeMap::new(),
        progress_logged: BTreeMap::new(),
        idle_after: settings.idle_after,
        last_used: Instant::now(),
        swept: None,
        over: Arc::clone(&over),
        bound: settings.bound.clone(),
    };
    let keeper = tokio::spawn(keeper.run());
    let path = home.path.clone();
    let desk = Desk { asks, store: Arc::clone(&store), home };
    let mut terminate = signal(SignalKind::terminate()).map_err(ServeError::Listen)?;
    let app = axum::serve(listener, routes(desk));
    ready();
    tokio::select! {
        served = app => served.map_err(ServeError::Listen)?,
        _ = keeper => {}
        _ = terminate.recv() => {}
    }
    store.close().await;
    log("ended");
    if settings.bound.is_some_and(|bound| bound.is_gone()) {
        let _ = std::fs::remove_dir_all(path);
    }
    Ok(())
}
