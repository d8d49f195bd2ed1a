//! Where a step's time goes: profiler traces in, reports out.
//!
//! A trace is read as a stream into rows of numbers (`read`, `trace`, `spool`), the rows are walked once in the order of
//! time (`analysis`), and the figures of all ranks become a verdict with fixes (`verdict`, `report`). Nothing here keeps a
//! trace in memory, asks a network or knows a clock. Beside it, and apart from it, `nccl` reads NCCL's logs, `ncu` tables of
//! Nsight Compute, `slurm` makes a report of a Slurm cluster's accounting, and `telemetry` says what GPUs do from readings
//! of them; `kind` tells such files apart.

mod across;
pub mod analysis;
pub mod bench;
pub mod diff;
pub mod kind;
pub mod nccl;
pub mod ncu;
pub mod picture;
pub mod profile;
mod rank;
pub mod read;
pub mod report;
pub mod roofline;
pub mod slurm;
mod spool;
pub mod telemetry;
pub mod text;
pub mod timeline;
pub mod trace;
mod verdict;
mod words;

pub use analysis::hta::Rounding;
pub use profile::{Options, Profile, ProfileError, profile};
pub use report::Report;
