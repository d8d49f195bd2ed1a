//! On a worker machine: keeps each worker and everything below it together, moves its checkpoints, and
//! tells the server how it goes. An agent decides nothing about jobs.
//!
//! Three kinds of processes stand on a lease. The *guard* is the session's leader and adopts every orphan
//! below it; the *agent* is its child and does the work; the *workers* are the users' programs, of one
//! workload or of several. When any of them is killed, one of the others, or the engine's sweep, ends what
//! is left.

mod account;
mod cgroup;
pub mod checkpoint;
mod folder;
mod guard;
mod limits;
mod output;
mod parcels;
mod patterns;
mod processes;
mod progress;
mod serve;
mod sweep;
mod worker;
mod worker_processes;

pub use account::Account;
pub use cgroup::can_be_made as control_groups_can_be_made;
pub use checkpoint::{Access, serve_relay};
pub use folder::{copy_fresh, foreign_paths};
pub use guard::{UMASK, exec_worker, guard, launch};
pub use limits::{Limits, stay_when_memory_is_short};
pub use parcels::{
    IGNORE, NotSent, Packed, digest_of, discard_folders, fetch_outputs, folder_key, has_parcel, outputs_key,
    send_folder,
};
pub use serve::serve;
pub use sweep::{Whose, sweep};
pub use worker::OF_DEVICES;

/// Why a part of the agent could not do its work; it ends with this.
#[derive(Debug, thiserror::Error)]
#[error("{what}")]
pub struct AgentError {
    what: String,
    #[source]
    source: std::io::Error,
}

impl AgentError {
    fn new(what: impl Into<String>) -> impl FnOnce(std::io::Error) -> AgentError {
        let what = what.into();
        move |source| AgentError { what, source }
    }
}
