//! Batch scripts of Slurm's as they are: shell scripts whose `#SBATCH` lines say what the job needs. A script's lines (`script`)
//! are read by the one table of the options of `sbatch` (`options`, `given`), their values as Slurm writes them (`values`);
//! a job is made of those that have a meaning here (`job`, `program`), and the rest is named (`notes`).
//!
//! What the choices are, and why, is in docs/decisions/0039-sbatch-scripts.md.

mod given;
mod job;
mod notes;
mod options;
mod program;
mod script;
mod values;

pub use given::Given;
pub use options::{SlurmOption, Takes};
pub use script::{Script, is_script};

pub(crate) use job::job;
