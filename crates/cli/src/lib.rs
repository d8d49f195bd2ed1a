//! The one binary: arguments in, words and exit codes out. Everything about jobs is a question to a
//! server; everything about files is answered here.

mod age;
pub mod args;
mod bill;
mod commands;
mod config;
mod findings;
mod fitted;
mod glossary;
mod here;
mod live;
mod show;
mod sparkline;

pub use commands::run;
