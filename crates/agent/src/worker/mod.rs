//! The workers on the lease: which orders each gets (`supervisor`), the steps of a run (`run`), and each step in a file of its
//! own. `use` points one way: supervisor → run → restore → provision → last_save, program → report → state → view, owed → files;
//! `interface` and
//! `ports` use none of them.

mod files;
mod gang;
mod interface;
mod last_save;
mod owed;
mod ports;
mod program;
mod provision;
mod report;
mod restore;
mod run;
mod state;
mod supervisor;
mod view;

pub(crate) use owed::{Kept, memory};
pub use program::OF_DEVICES;
pub(crate) use supervisor::{Order, Supervisor};
