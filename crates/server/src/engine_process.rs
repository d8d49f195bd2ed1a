//! A recorded market in a process of its own, for a server on this machine to lease from.

use crate::ServeError;
use std::path::PathBuf;
use std::sync::Arc;
use tokio::net::UnixListener;
use windfall_exec::{Replay, Simulated, WorldClock, serve_engine};

/// Which market, under which name, and where it listens.
#[derive(Clone, Debug)]
pub struct EngineProcess {
    pub name: String,
    pub socket: PathBuf,
    /// The folder of its leases.
    pub leases: PathBuf,
    pub replay: Replay,
    /// How many times faster than life, as the server's world.
    pub speed: u32,
}

impl EngineProcess {
    /// Serves for ever; `ready` is called once it listens.
    pub async fn serve(self, ready: impl FnOnce()) -> Result<(), ServeError> {
        let clock = Arc::new(WorldClock::following(self.speed));
        let program = PathBuf::from("/proc/self/exe");
        let engine = Simulated::open(&self.name, self.leases, self.replay, Arc::clone(&clock), program).await?;
        // Nobody else serves this name: a socket that is there belongs to a process that is gone.
        let _ = std::fs::remove_file(&self.socket);
        let listener = UnixListener::bind(&self.socket).map_err(ServeError::Listen)?;
        engine.begin();
        ready();
        serve_engine(Arc::new(engine), listener, clock).await.map_err(ServeError::Listen)
    }
}
