//! Recorded markets, and what one who knew them beforehand would have paid.

mod omniscient;
mod tape;

pub use omniscient::{Errand, omniscient};
pub use tape::{Quote, STEADY, Tape, TapeError, embedded};
