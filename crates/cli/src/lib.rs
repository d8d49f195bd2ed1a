//! The one binary: arguments in, words and exit codes out. Everything about jobs is a question to a
//! server; everything about files is answered here.

pub mod args;
mod bill;
mod client;
mod commands;
mod exit;
pub mod jobfile;
mod live;
mod show;

pub use commands::run;
