//! Recorded markets, jobs played on them under any policy, and what one who knew them beforehand would have paid.

mod compare;
mod course;
pub mod crowd;
mod gunzip;
mod learn;
mod omniscient;
mod play;
mod recording;
mod tape;
mod whole;

pub use compare::{PolicyResult, Scenario, compare, mean, optima};
pub use course::{Course, Terms, Zone};
pub use learn::{Lesson, learn, resample};
pub use omniscient::{TapeJob, least_cost, omniscient};
pub use play::{Played, Player, Use, margins, play};
pub use recording::{Reading, Recording, RecordingError, read_recording, read_recordings};
pub use tape::{Quote, STEADY, STEADY_OF_EIGHT, Tape, TapeError, embedded, embedded_names, recorded};
pub use whole::play_whole;
