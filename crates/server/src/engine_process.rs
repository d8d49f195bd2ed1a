//! A recorded market in a process of its own, for a server on this machine to lease from.

use crate::ServeError;
use crate::home::private;
use crate::serve::check_replay;
use rustix::fs::{FlockOperation, flock};
use std::fs::File;
use std::os::unix::fs::FileTypeExt;
use std::path::PathBuf;
use std::sync::Arc;
use tokio::net::{UnixListener, UnixStream};
use windfall_agent::control_groups_can_be_made;
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
        private();
        check_replay(&self.replay)?;
        let bad = |what: String| Err(ServeError::World(what));
        if self.name.is_empty() || self.name.contains('/') {
            return bad(format!("no name for an engine: {:?}", self.name));
        }
        if !(1..=60).contains(&self.speed) {
            return bad(format!("a world runs 1 to 60 times faster than life, not {}", self.speed));
        }
        std::fs::create_dir_all(&self.leases).map_err(ServeError::Listen)?;
        let lock = File::create(self.leases.join("lock")).map_err(ServeError::Listen)?;
        if flock(&lock, FlockOperation::NonBlockingLockExclusive).is_err() {
            return Err(ServeError::World(format!("another engine leases from {}", self.leases.display())));
        }
        match std::fs::symlink_metadata(&self.socket) {
            Ok(there) if !there.file_type().is_socket() => {
                return bad(format!("{} is there, and is no socket", self.socket.display()));
            }
            Ok(_) if UnixStream::connect(&self.socket).await.is_ok() => {
                return bad(format!("somebody listens on {}", self.socket.display()));
            }
            // It belongs to a process that is gone.
            Ok(_) => std::fs::remove_file(&self.socket).map_err(ServeError::Listen)?,
            Err(_) => {}
        }
        let listener = UnixListener::bind(&self.socket).map_err(ServeError::Listen)?;
        ready();
        let clock = Arc::new(WorldClock::following(self.speed));
        let server = EngineServer::first_asked(listener, Arc::clone(&clock)).await;
        let program = PathBuf::from("/proc/self/exe");
        let engine =
            Simulated::open(&self.name, self.leases, self.replay, clock, program, control_groups_can_be_made()).await?;
        engine.begin();
        server.serve(Arc::new(engine)).await;
        Ok(())
    }
}
