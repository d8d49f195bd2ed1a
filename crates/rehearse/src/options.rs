//! What is asked of a rehearsal.

use std::time::Duration;
use windfall_core::JobSpec;

/// What to rehearse, and how.
pub struct Options<'o> {
    pub spec: JobSpec,
    /// Time between the warning and the end.
    pub notice: Duration,
    /// The longest that one act may take.
    pub limit: Duration,
    /// Leave everything where it is, for a look.
    pub keep: bool,
    /// Acts at the same time, where the user says so.
    pub at_once: Option<usize>,
    /// Told what is being played, line by line.
    pub say: &'o dyn Fn(&str),
}
