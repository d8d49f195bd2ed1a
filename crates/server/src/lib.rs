//! The control plane: the loop that owns the brain, and the API in front of it.

mod admission;
mod answers;
mod api;
pub mod api_types;
mod archive;
mod bill;
mod bound;
mod calls;
pub mod client;
pub mod cycle;
pub mod dispatch;
mod durable;
mod engine_process;
mod engines;
mod flights;
mod folders;
mod history;
pub mod home;
mod journal;
mod keeper;
mod listener;
mod logs;
mod merge;
mod node_jobs;
mod notes;
mod old_notes;
mod principal;
mod probe;
mod reader;
mod refusals;
mod rounds;
mod save_paths;
mod seal;
mod seats;
mod serve;
mod snapshots;
mod submitters;

pub use bound::Bound;
pub use durable::Durable;
pub use engine_process::EngineProcess;
pub use principal::name_of;
pub use serve::{ServeError, Settings, check_world, live_jobs, serve};
pub use snapshots::{SnapshotEnd, SnapshotTask};
pub use submitters::{FoundFiles, Look, Seen, look};

use api_types::Problem;

/// Who is asked for memory by several threads at once, for very many small things, answers sooner than the C library does. It
/// stands here because this crate is optimised, and each use of memory goes through it (decision 28).
#[global_allocator]
static MEMORY: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// The code of a refusal: nothing of a job is left to be changed.
const JOB_IS_OVER: &str = "job-is-over";
/// The same of one whose program has ended: what it saved last is on its way.
const JOB_IS_SAVING: &str = "job-is-saving";

fn problem(status: u16, code: &str, title: &str) -> Problem {
    Problem { code: code.to_owned(), title: title.to_owned(), status, detail: None, hint: None }
}
