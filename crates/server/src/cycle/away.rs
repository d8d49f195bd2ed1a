//! The store did not take a commit: when to try again, and which errors are the end.

use super::Step;
use std::time::Duration;
use windfall_core::english::with_causes;
use windfall_store::StoreError;

/// The pause before the first try; it doubles with each.
const FIRST_PAUSE: Duration = Duration::from_millis(200);
/// The longest pause between two tries.
const LONGEST_PAUSE: Duration = Duration::from_secs(3);

/// The store is away.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Away {
    since: Duration,
    why: String,
    tries: u32,
    next_try: Duration,
    /// A try is on its way.
    trying: bool,
    /// Tries to lead whose answer was lost: each may have raised the store's epoch.
    unsure_leads: u64,
}

impl Away {
    pub(super) fn new(now: Duration, error: &StoreError) -> Away {
        let next_try = now + FIRST_PAUSE;
        Away { since: now, why: with_causes(error), tries: 0, next_try, trying: false, unsure_leads: 0 }
    }

    /// Since when, in real time since the server began.
    pub fn since(&self) -> Duration {
        self.since
    }

    /// What the store said last.
    pub fn why(&self) -> &str {
        &self.why
    }

    pub(super) fn unsure_leads(&self) -> u64 {
        self.unsure_leads
    }

    pub(super) fn forget_unsure_leads(&mut self) {
        self.unsure_leads = 0;
    }

    pub(super) fn next(&mut self, now: Duration, known: impl FnOnce() -> u64) -> Step {
        if self.trying {
            return Step::Rest { world: None, real: None };
        }
        if now < self.next_try {
            return Step::Rest { world: None, real: Some(self.next_try) };
        }
        self.trying = true;
        Step::Lead { known: known() }
    }

    pub(super) fn try_later(&mut self, now: Duration, error: &StoreError) {
        self.unsure_leads += u64::from(matches!(error, StoreError::Unsure { .. }));
        self.tries += 1;
        self.trying = false;
        self.why = with_causes(error);
        self.next_try = now + (FIRST_PAUSE * (1 << self.tries.min(8))).min(LONGEST_PAUSE);
    }
}

/// Why no further try can help, if so: another server leads with a higher epoch, the state is not for this binary, or it was taken
/// away.
pub(super) fn final_word(error: &StoreError, own_epoch: u64) -> Option<String> {
    match error {
        StoreError::Fenced { current, .. } | StoreError::Led { current } if *current > own_epoch => {
            Some(other_leads(*current, own_epoch))
        }
        StoreError::Newer { .. } | StoreError::Corrupt { .. } | StoreError::Removed { .. } => Some(with_causes(error)),
        _ => None,
    }
}

/// Why a server ends that got the lead with an epoch which leaves room for others' since its own. `own_epoch` counts what it
/// may have raised itself. What it holds of the store beside the log (parts of snapshots, answers of engines) is of before
/// the other led.
pub(super) fn led_meanwhile(epoch: u64, own_epoch: u64) -> Option<String> {
    (epoch > own_epoch + 1).then(|| other_leads(epoch - 1, own_epoch))
}

fn other_leads(current: u64, own_epoch: u64) -> String {
    format!("another server leads this store since epoch {current} (this one had epoch {own_epoch}): this one ends")
}
