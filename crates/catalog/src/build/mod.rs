//! Making a catalogue from files: in the providers' own formats, in SkyPilot's, and from the project's collection.
//!
//! Every reader takes a stream and holds no more of a file than it needs at the moment; what it cannot believe is an
//! error with file and place, and then nothing is written.

pub mod advisor;
pub mod aws_bulk;
pub mod aws_spot;
pub mod azure_retail;
pub mod check;
pub mod chips;
pub mod collection;
pub mod cyclenerd;
pub mod doubt;
pub mod folder;
mod gcp;
pub mod gcp_skus;
pub mod history;
pub mod lambda;
pub mod perf;
pub mod read;
pub mod rows;
pub mod skypilot;
mod skypilot_row;
mod stream;
pub mod transfer;

pub use crate::format::{VERSION as FORMAT, write_file as write};
