//! The configuration file: TOML that says what the flags of `windfall up` and `windfall agent join` say, and more, checked whole
//! before anything happens. `keys` is the table that everything here comes from.

mod clusters;
mod keys;
mod read;
mod schema;
mod settings;
pub(crate) mod values;

pub(crate) use clusters::whole;
pub(crate) use read::{ConfigFile, read};
pub(crate) use schema::{example, schema};
pub(crate) use settings::{
    CONFIG_VARIABLE, Setting, Wrong, file_in_use, join_with_file, of_agent, of_kubernetes, of_server, of_slurm,
};
