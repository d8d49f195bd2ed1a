//! One at a time for each group, and everybody else at once.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use windfall_core::DecisionId;

/// A gate for each group of which somebody holds one.
#[derive(Default)]
pub(crate) struct Gates(Mutex<BTreeMap<DecisionId, Arc<tokio::sync::Mutex<()>>>>);

impl Gates {
    /// Held while the job of a group is submitted, or ended.
    pub fn of(&self, group: DecisionId) -> Arc<tokio::sync::Mutex<()>> {
        let mut gates = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // One that nobody holds says nothing.
        gates.retain(|_, gate| Arc::strong_count(gate) > 1);
        Arc::clone(gates.entry(group).or_default())
    }
}
