//! The engines of a server, by name. Each has a task of its own that tells the loop when to look; looks and calls run
//! beside the loop, so an engine that hangs delays nobody but who waits for it.

use crate::calls::{Calls, Noted};
use crate::dispatch::{self, Look};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use windfall_core::{DecisionId, LeaseId};
use windfall_exec::{Engine, EngineError, Interrupt, Recording};

/// An engine that says nothing is looked at this often.
const LOOK_EVERY: Duration = Duration::from_secs(5);
/// One that says very much is not listened to more often.
const BETWEEN_STIRS: Duration = Duration::from_millis(10);
/// A look that takes longer has failed.
const LOOK_WITHIN: Duration = Duration::from_secs(30);
/// A call that takes longer may or may not have been done: the same is asked again.
const CALL_WITHIN: Duration = Duration::from_secs(180);

/// Engines by name, and what each was asked.
#[derive(Clone, Default)]
pub(crate) struct Engines(BTreeMap<String, Arc<dyn Engine>>, BTreeMap<String, Arc<Calls>>);

impl Engines {
    pub fn add(&mut self, engine: Arc<dyn Engine>) {
        let (name, calls) = (engine.describe().name, Arc::new(Calls::default()));
        self.1.insert(name.clone(), Arc::clone(&calls));
        self.0.insert(name, Arc::new(Noted { engine, calls }));
    }

    pub fn get(&self, name: &str) -> Option<Arc<dyn Engine>> {
        self.0.get(name).cloned()
    }

    /// What one was asked.
    pub fn calls(&self, name: &str) -> Option<&Calls> {
        self.1.get(name).map(AsRef::as_ref)
    }

    pub fn names(&self) -> Vec<String> {
        self.0.keys().cloned().collect()
    }

    pub fn all(&self) -> impl Iterator<Item = &Arc<dyn Engine>> {
        self.0.values()
    }

    /// Those that replay a recording.
    pub fn recordings(&self) -> impl Iterator<Item = (&str, &dyn Recording)> {
        self.0.iter().filter_map(|(name, engine)| Some((name.as_str(), engine.recording()?)))
    }

    /// Tells whenever an engine may show something else than before.
    pub fn watch(&self, stirred: impl Fn(&str) -> bool + Clone + Send + 'static) {
        for (name, engine) in self.0.clone() {
            let stirred = stirred.clone();
            tokio::spawn(async move {
                loop {
                    // One that hangs says nothing any more: it is looked at all the same.
                    let _ = tokio::time::timeout(LOOK_EVERY, engine.changed()).await;
                    if !stirred(&name) {
                        return;
                    }
                    tokio::time::sleep(BETWEEN_STIRS).await;
                }
            });
        }
    }

    /// Looks at one, for as long as a look may take.
    pub async fn look(engine: Option<Arc<dyn Engine>>, groups: &[DecisionId], sweep: bool) -> Result<Look, String> {
        let engine = engine.ok_or("no engine of this name is configured")?;
        let look = tokio::time::timeout(LOOK_WITHIN, dispatch::look(&*engine, groups, sweep)).await;
        let look = look.map_err(|_| format!("it has not answered for {} s", LOOK_WITHIN.as_secs()))?;
        look.map_err(|error| error.to_string())
    }

    /// Nobody will ever ask for their leases again.
    pub async fn abandon(&self) {
        let ends = self.0.values().map(|engine| in_time(engine.abandon()));
        futures::future::join_all(ends).await;
    }

    /// Takes a lease away as its market would.
    pub async fn interrupt(&self, engine: &str, lease: LeaseId, how: Interrupt) -> Result<(), EngineError> {
        let engine = self.get(engine).ok_or(EngineError::NoLease(lease))?;
        let why = "it has not answered".to_owned();
        in_time(engine.interrupt(lease, how)).await.unwrap_or(Err(EngineError::Unreachable { why }))
    }
}

/// What a call gives that must not last for ever; none when it did.
pub(crate) async fn in_time<T>(call: impl Future<Output = T>) -> Option<T> {
    tokio::time::timeout(CALL_WITHIN, call).await.ok()
}
