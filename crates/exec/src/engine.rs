//! The contract between the server's loop and whatever runs leases. Each comment is a promise that the
//! conformance suite checks.

use async_trait::async_trait;
use windfall_core::worker::{StartOrder, WorkerView};
use windfall_core::{LeaseEnd, LeaseId, Market, NanoUsd, Offer, OfferId, Refusal, Span, StintId, Time};

/// What an engine can do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Capabilities {
    /// Its name, as offers give it.
    pub name: String,
    /// The markets it sells on.
    pub markets: Vec<Market>,
    /// The warning before a spot lease is taken away.
    pub notice: Span,
    /// How many times faster than life its world runs; 1 for a real one.
    pub speed: u32,
}

/// What to acquire.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Want {
    /// The offer.
    pub offer: OfferId,
    /// Most that it may cost an hour.
    pub max_price: Option<NanoUsd>,
}

/// Why an engine did not do what it was asked: a class that can be decided on, never text to parse.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// It answered no.
    #[error("refused: {0:?}")]
    Refused(Refusal),
    /// It did not answer, or its answer was lost: it may or may not have been done.
    #[error("no answer from the engine: {why}")]
    Unreachable {
        /// For people.
        why: String,
    },
    /// It has no such lease.
    #[error("no such lease: {0}")]
    NoLease(LeaseId),
}

/// Where a lease stands at the engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeaseState {
    /// Asked for, not there yet.
    Pending,
    /// There.
    Up {
        /// Since when it is paid for.
        since: Time,
        /// When it will be taken away, once that is announced.
        ends_at: Option<Time>,
        /// The market says that it may soon be taken away.
        at_risk: bool,
    },
    /// Gone, with everything that ran on it.
    Gone {
        /// Since when it was paid for; none when it never came up. A lease may come and go between two looks.
        since: Option<Time>,
        /// Since when it is no longer paid for.
        at: Time,
        /// How it ended.
        end: LeaseEnd,
    },
}

/// A lease and its worker as the engine sees them now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Observed {
    /// Which.
    pub lease: LeaseId,
    /// Where it stands.
    pub state: LeaseState,
    /// What runs or ran on it.
    pub worker: Option<WorkerView>,
}

/// A lease that an engine holds for us.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owned {
    /// Which.
    pub lease: LeaseId,
    /// What was bought.
    pub offer: OfferId,
    /// Since when it is paid for; none when it never came up.
    pub since: Option<Time>,
    /// Until when; none while it is there.
    pub until: Option<Time>,
}

/// What runs leases.
#[async_trait]
pub trait Engine: Send + Sync {
    /// What it can do. Constant for the life of the engine.
    fn describe(&self) -> Capabilities;

    /// Prices and capacity now. An offer that is not in the answer cannot be had.
    async fn offers(&self) -> Result<Vec<Offer>, EngineError>;

    /// Gets a lease. Idempotent by id: asked twice, there is one lease. Everything it makes carries the id.
    /// One that is gone stays gone, also when its release came first: the answer says so.
    async fn acquire(&self, lease: LeaseId, want: &Want) -> Result<LeaseState, EngineError>;

    /// The state of these leases. One that is missing in the answer is unknown to the engine.
    async fn observe(&self, leases: &[LeaseId]) -> Result<Vec<Observed>, EngineError>;

    /// Every lease that carries this installation's mark, known to the log or not. One that is gone may be
    /// shown until it is forgotten, for an hour at most.
    async fn list_owned(&self) -> Result<Vec<Owned>, EngineError>;

    /// Starts one worker on a lease. Idempotent by stint and rank; refuses an epoch that is over.
    async fn start(&self, lease: LeaseId, order: &StartOrder) -> Result<(), EngineError>;

    /// Asks the worker to save; programs that do not listen go on. Requests are numbered, and one that is not
    /// newer than the last is nothing new.
    async fn save(&self, lease: LeaseId, stint: StintId, rank: u32, request: u64) -> Result<(), EngineError>;

    /// SIGTERM to the worker, SIGKILL after the grace. A stint that never started is then over, and a
    /// later start of it is refused.
    async fn stop(&self, lease: LeaseId, stint: StintId, rank: u32, grace: Span) -> Result<(), EngineError>;

    /// Ends the lease and everything on it. Returns only when nothing of it runs; asked again, it answers
    /// the same. Unknown leases are released at once, and can never be acquired afterwards.
    async fn release(&self, lease: LeaseId) -> Result<LeaseState, EngineError>;

    /// The engine may forget these: they are gone and the log knows it.
    async fn forget(&self, leases: &[LeaseId]) -> Result<(), EngineError>;
}
