//! Batch scripts of Slurm's as they are: shell scripts whose `#SBATCH` lines say what the job needs. A script's lines (`script`)
//! are read by the one table of the options of `sbatch` (`options`, `given`), their values as Slurm writes them (`values`);
//! a job is made of those that have a meaning here (`job`, `program`), and the rest is named (`notes`). What users of a cluster get wrong in one is put right in `amend`.
//!
//! What the choices are, and why, is in docs/decisions/0039-sbatch-scripts.md.

mod amend;
mod given;
mod job;
mod notes;
mod options;
mod program;
mod script;
mod values;

pub use amend::{BatchJob, Change, CommandLine, Facts, Partition, Past, Trial, command_line, of_environment};
pub use given::Given;
pub use options::{SlurmOption, Takes};
pub use script::{Script, is_script};

pub(crate) use job::{is_variable, job, known_accelerator};
