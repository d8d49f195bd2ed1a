//! Making a catalogue from files: in the providers' own formats, in SkyPilot's, and from the project's collection.

pub mod advisor;
pub mod chips;
pub mod collection;
pub mod cyclenerd;
mod gcp;
pub mod history;
pub mod perf;
pub mod read;
pub mod skypilot;
pub mod transfer;
