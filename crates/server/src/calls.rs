//! What each engine was last asked, how long it took and what it said: for a drill, and for whoever wonders why an engine is slow.
//! Nothing is decided by it.

use crate::api_types::{EngineCall, EngineCalls};
use async_trait::async_trait;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Instant, SystemTime, UNIX_EPOCH};
use windfall_core::{DecisionId, LeaseId, Node, Offer, Pool, Want};
use windfall_exec::{
    Capabilities, Engine, EngineError, Finding, Interrupt, Limit, Owned, Recording, SeenGroup, SeenLease,
};

/// Calls of an engine that are kept.
const KEPT: usize = 2_000;

/// The calls to one engine, oldest first.
#[derive(Default)]
pub(crate) struct Calls(Mutex<Kept>);

#[derive(Default)]
struct Kept {
    /// How many there were before the first one that is kept.
    before: u64,
    calls: VecDeque<EngineCall>,
}

impl Calls {
    fn note(&self, call: EngineCall) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.calls.push_back(call);
        if kept.calls.len() > KEPT {
            kept.calls.pop_front();
            kept.before += 1;
        }
    }

    /// Those that ended after this many, as far as they are kept.
    pub fn after(&self, number: u64) -> EngineCalls {
        let kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let skipped = number.saturating_sub(kept.before) as usize;
        let calls: Vec<EngineCall> = kept.calls.iter().skip(skipped).cloned().collect();
        EngineCalls { calls, next: kept.before + kept.calls.len() as u64 }
    }
}

/// An engine whose calls are noted.
pub(crate) struct Noted {
    pub engine: Arc<dyn Engine>,
    pub calls: Arc<Calls>,
}

impl Noted {
    /// Makes a call, and notes it once it has ended: one that nobody waits for any more is not noted.
    async fn noting<T>(
        &self,
        (what, groups, workload): (&str, Vec<DecisionId>, Option<u64>),
        call: impl Future<Output = Result<T, EngineError>>,
    ) -> Result<T, EngineError> {
        let (began, began_at) = (Instant::now(), SystemTime::now());
        let answer = call.await;
        let at = began_at.duration_since(UNIX_EPOCH).unwrap_or_default();
        self.calls.note(EngineCall {
            what: what.to_owned(),
            groups: groups.iter().map(ToString::to_string).collect(),
            workload,
            at_unix_ms: at.as_millis() as u64,
            took_us: began.elapsed().as_micros() as u64,
            error: answer.as_ref().err().map(ToString::to_string),
        });
        answer
    }
}

fn groups_of(leases: &[LeaseId]) -> Vec<DecisionId> {
    let mut groups: Vec<DecisionId> = leases.iter().map(|lease| lease.group).collect();
    groups.sort_unstable();
    groups.dedup();
    groups
}

#[async_trait]
impl Engine for Noted {
    fn describe(&self) -> Capabilities {
        self.engine.describe()
    }

    async fn changed(&self) {
        self.engine.changed().await;
    }

    async fn pools(&self) -> Result<Vec<Pool>, EngineError> {
        self.engine.pools().await
    }

    async fn nodes(&self) -> Result<Vec<Node>, EngineError> {
        self.engine.nodes().await
    }

    async fn offers(&self) -> Result<Vec<Offer>, EngineError> {
        self.noting(("offers", Vec::new(), None), self.engine.offers()).await
    }

    async fn acquire(&self, group: DecisionId, want: &Want) -> Result<SeenGroup, EngineError> {
        let call = ("acquire", vec![group], Some(want.workload.0));
        self.noting(call, self.engine.acquire(group, want)).await
    }

    async fn observe(&self, groups: &[DecisionId]) -> Result<Vec<SeenGroup>, EngineError> {
        // Always all that is there: which, says nothing.
        self.noting(("observe", Vec::new(), None), self.engine.observe(groups)).await
    }

    async fn list_owned(&self) -> Result<Vec<Owned>, EngineError> {
        self.noting(("list-owned", Vec::new(), None), self.engine.list_owned()).await
    }

    async fn release(&self, group: DecisionId, slots: &[u32]) -> Result<Vec<SeenLease>, EngineError> {
        self.noting(("release", vec![group], None), self.engine.release(group, slots)).await
    }

    async fn forget(&self, leases: &[LeaseId]) -> Result<(), EngineError> {
        self.noting(("forget", groups_of(leases), None), self.engine.forget(leases)).await
    }

    async fn interrupt(&self, lease: LeaseId, how: Interrupt) -> Result<(), EngineError> {
        self.noting(("interrupt", vec![lease.group], None), self.engine.interrupt(lease, how)).await
    }

    async fn abandon(&self) {
        self.engine.abandon().await;
    }

    async fn check(&self) -> Vec<Finding> {
        self.engine.check().await
    }

    fn limits(&self) -> Vec<Limit> {
        self.engine.limits()
    }

    fn recording(&self) -> Option<&dyn Recording> {
        self.engine.recording()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(number: u64) -> EngineCall {
        EngineCall {
            what: "observe".to_owned(),
            groups: Vec::new(),
            workload: None,
            at_unix_ms: number,
            took_us: 1,
            error: None,
        }
    }

    #[test]
    fn whoever_asks_again_hears_of_every_call_once_as_long_as_it_is_kept() {
        let calls = Calls::default();
        (0..3).for_each(|number| calls.note(call(number)));
        let first = calls.after(0);
        assert_eq!((first.calls.len(), first.next), (3, 3));
        assert_eq!(calls.after(first.next), EngineCalls { calls: Vec::new(), next: 3 });
        (3..KEPT as u64 + 10).for_each(|number| calls.note(call(number)));
        let then = calls.after(first.next);
        let numbers: Vec<u64> = then.calls.iter().map(|call| call.at_unix_ms).collect();
        assert_eq!((numbers[0], numbers.len(), then.next), (10, KEPT, KEPT as u64 + 10));
    }
}
