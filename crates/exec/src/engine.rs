//! The contract between the server's loop and whatever runs leases. Each comment is a promise that the
//! conformance suite checks.

use async_trait::async_trait;
use windfall_core::worker::{StartOrder, WorkerView};
use windfall_core::{
    Address, DecisionId, GroupPhase, LeaseEnd, LeaseId, LeaseTerms, Market, Node, Offer, OfferId, Pool, Refusal, Span,
    StintId, Time, Want,
};

/// What an engine can do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Capabilities {
    /// Its name, as offers give it.
    pub name: String,
    /// The markets it sells on.
    pub markets: Vec<Market>,
    /// How many times faster than life its world runs; 1 for a real one.
    pub speed: u32,
}

/// Why an engine did not do what it was asked: a class that can be decided on, never text to parse.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// It answered no.
    #[error("refused: {0:?}")]
    Refused(Refusal),
    /// It did not answer, or its answer was lost: it may or may not have been done.
    #[error("no answer from the engine: {why}")]
    Unreachable { why: String },
    /// It has no such lease.
    #[error("no such lease: {0}")]
    NoLease(LeaseId),
}

/// Where a lease stands at the engine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LeaseState {
    /// Granted or asked for, not there yet.
    Pending,
    /// There and paid for.
    Up {
        /// Since when it is paid for.
        since: Time,
        terms: LeaseTerms,
        /// Where it can be reached, once it is usable.
        ready: Option<Address>,
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
        end: LeaseEnd,
    },
}

/// A lease as the engine sees it now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeenLease {
    pub lease: LeaseId,
    pub state: LeaseState,
}

/// A group as the engine sees it now. Of a granted group every lease is shown that the engine knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeenGroup {
    pub group: DecisionId,
    pub phase: GroupPhase,
    pub leases: Vec<SeenLease>,
}

/// A worker on a lease, as its agent last told of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeenWorker {
    pub lease: LeaseId,
    pub worker: WorkerView,
}

/// A lease that an engine holds for us.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owned {
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

    /// The pools that its offers and nodes belong to, with their habits.
    async fn pools(&self) -> Result<Vec<Pool>, EngineError>;

    /// Machines that it knows beside those of our leases. One that is not in the answer is gone.
    async fn nodes(&self) -> Result<Vec<Node>, EngineError> {
        Ok(Vec::new())
    }

    /// Prices and capacity now. An offer that is not in the answer cannot be had.
    async fn offers(&self) -> Result<Vec<Offer>, EngineError>;

    /// Gets a group of leases: as many as wanted or as there are, but never fewer than `least`, all of one alternative;
    /// else none, and a refusal. Idempotent by id: asked twice, there is one group, and the second answer agrees with
    /// the first whatever it wants. Everything it makes carries the id. Leases that are gone stay gone, also when their
    /// release came first: the answer says so.
    async fn acquire(&self, group: DecisionId, want: &Want) -> Result<SeenGroup, EngineError>;

    /// The state of these groups and their leases. What is missing in the answer was not found.
    async fn observe(&self, groups: &[DecisionId]) -> Result<Vec<SeenGroup>, EngineError>;

    /// Every lease that carries this installation's mark, known to the log or not. One that is gone may be
    /// shown until it is forgotten, for an hour at most.
    async fn list_owned(&self) -> Result<Vec<Owned>, EngineError>;

    /// Ends leases of a group and everything on them. Returns only when nothing of them runs; asked again, it answers
    /// the same. Unknown leases are released at once, and can never be acquired afterwards.
    async fn release(&self, group: DecisionId, slots: &[u32]) -> Result<Vec<SeenLease>, EngineError>;

    /// The engine may forget these: they are gone and the log knows it.
    async fn forget(&self, leases: &[LeaseId]) -> Result<(), EngineError>;
}

/// Orders to the agents on leases, and what agents tell of their workers. The same for leases of every engine.
#[async_trait]
pub trait AgentLink: Send + Sync {
    /// What is known of the workers on these leases, the last word of those whose lease is gone included.
    async fn workers(&self, leases: &[LeaseId]) -> Result<Vec<SeenWorker>, EngineError>;

    /// Starts one worker on a lease. Idempotent by stint and rank; refuses an epoch that is over.
    async fn start(&self, lease: LeaseId, order: &StartOrder) -> Result<(), EngineError>;

    /// Asks the worker to save; programs that do not listen go on. Requests are numbered, and one that is not
    /// newer than the last is nothing new.
    async fn save(&self, lease: LeaseId, stint: StintId, rank: u32, request: u64) -> Result<(), EngineError>;

    /// SIGTERM to the worker, SIGKILL after the grace. A stint that never started is then over, and a
    /// later start of it is refused.
    async fn stop(&self, lease: LeaseId, stint: StintId, rank: u32, grace: Span) -> Result<(), EngineError>;
}
