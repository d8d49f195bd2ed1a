//! What a Slurm cluster's accounting says: use, waits, fairness, starvation, and what was asked for and not used.
//!
//! A dump is read line by line (`read`, `table`, `json`) into about a hundred bytes a job (`jobs`); figures are summed over
//! those (`figures`), compared (`shares`, `starved`) and turned into sentences (`advice`). Nothing here runs a command.

mod advice;
mod compare;
pub mod fields;
mod figures;
mod jobs;
mod json;
mod page;
mod part;
mod read;
mod report;
mod runtimes;
mod shares;
mod starved;
mod table;

pub use advice::{Advice, figure, lasting};
pub use compare::{Compared, GroupCompared, by, rows};
pub use figures::{Asked, Figures, Group, Prices, Spread};
pub use jobs::{Job, Jobs};
pub use page::page;
pub use part::Part;
pub use read::{ReadError, Reading, Refused};
pub use report::{Options, Read, Report, SCHEMA, Split, report};
pub use runtimes::{Runtimes, runtimes};
pub use shares::{AccountShare, Fairness, Shares, jain};
pub use starved::{Holder, Starved};
