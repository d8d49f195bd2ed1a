//! Making a catalogue from files: in the providers' own formats, in SkyPilot's, and from the project's collection.

pub mod chips;
mod gcp;
pub mod read;
pub mod skypilot;
