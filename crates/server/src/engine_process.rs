//! A recorded market in a process of its own, for a server on this machine to lease from.

use crate::ServeError;
use crate::serve::check_replay;
use rustix::fs::{FlockOperation, flock};
use std::fs::File;
use std::path::PathBuf;
use std::sync::Arc;
use tokio::net::UnixListener;
use windfall_exec::{EngineServer, Replay, Simulated, WorldClock};

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
        check_replay(&self.replay)?;
        std::fs::create_dir_all(&self.leases).map_err(ServeError::Listen)?;
        let lock = File::create(self.leases.join("lock")).map_err(ServeError::Listen)?;
        if flock(&lock, FlockOperation::NonBlockingLockExclusive).is_err() {
            return Err(ServeError::World(format!("another engine leases from {}", self.leases.display())));
        }
        // The lock is ours, so a socket that is there belongs to a process that is gone.
        let _ = std::fs::remove_file(&self.socket);
        let listener = UnixListener::bind(&self.socket).map_err(ServeError::Listen)?;
        ready();
        let clock = Arc::new(WorldClock::following(self.speed));
        let server = EngineServer::first_asked(listener, Arc::clone(&clock)).await;
        let program = PathBuf::from("/proc/self/exe");
        let engine = Simulated::open(&self.name, self.leases, self.replay, clock, program).await?;
        engine.begin();
        server.serve(Arc::new(engine)).await;
        Ok(())
    }
}
