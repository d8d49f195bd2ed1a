//! A bound on what may be used of an engine, whoever asks: more than that it does not give.

use serde::{Deserialize, Serialize};

/// One bound, in the engine's own words.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limit {
    /// Whose it is: `partition gpu`, `account nlp`.
    pub of: String,
    /// What is bounded: `nodes of a job`.
    pub what: String,
    pub most: String,
}

impl Limit {
    /// A bound on something.
    pub fn new(of: &str, what: &str, most: &str) -> Limit {
        Limit { of: of.to_owned(), what: what.to_owned(), most: most.to_owned() }
    }
}
