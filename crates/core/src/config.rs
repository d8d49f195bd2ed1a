//! The configuration of a brain: facts reach it as a record, never by asking.

use crate::market::Margins;
use crate::offer::Way;
use crate::units::Span;
use serde::{Deserialize, Serialize};

/// Limits and habits of a brain.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Config {
    /// The market policy of jobs that name none.
    pub policy: String,
    /// From asking for a lease to progress, until it has been measured.
    pub restart_prior: Span,
    /// What this world keeps before a deadline.
    #[serde(default)]
    pub margins: Margins,
    /// Silence about a market counts as news once in so long.
    #[serde(default = "look_every")]
    pub look_every: Span,
    /// What moving bytes between the places of this world costs.
    #[serde(default)]
    pub ways: Vec<Way>,
    /// Deaths without progress (kills, checkpoints that fail) before a job has failed.
    pub patience: u32,
}

fn look_every() -> Span {
    Span::minutes(10)
}

impl Default for Config {
    fn default() -> Config {
        Config {
            policy: crate::market::DEFAULT.to_owned(),
            restart_prior: Span::minutes(3),
            margins: Margins::default(),
            look_every: look_every(),
            ways: Vec::new(),
            patience: 5,
        }
    }
}
