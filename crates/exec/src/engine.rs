//! The contract between the server's loop and whatever runs leases. Each comment is a promise that the
//! conformance suite checks.

use crate::finding::Finding;
use crate::limit::Limit;
use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::Duration;
use windfall_core::english::counted;
use windfall_core::{
    Address, DecisionId, GroupPhase, LeaseEnd, LeaseId, LeaseTerms, Market, NanoUsd, Node, Offer, OfferId, Place, Pool,
    Refusal, Span, Symptom, Time, Want,
};

/// An engine that does not tell of changes is looked at this often.
const LOOK_EVERY: Duration = Duration::from_secs(5);

/// What an engine can do.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Capabilities {
    /// Its name, as offers give it.
    pub name: String,
    /// The markets it sells on.
    pub markets: Vec<Market>,
    /// Where it sells.
    pub places: Vec<Place>,
    /// The machines that it has from the beginning, in words for people.
    #[serde(default)]
    pub machines: Vec<String>,
}

/// Why an engine did not do what it was asked: a class that can be decided on, never text to parse.
#[derive(Debug, thiserror::Error, Serialize, Deserialize)]
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
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
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
        /// What is wrong with its machine, where that is why it will be taken away.
        #[serde(default)]
        why: Option<Box<Symptom>>,
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
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SeenLease {
    pub lease: LeaseId,
    pub state: LeaseState,
}

/// A group as the engine sees it now. Of a granted group every lease is shown that the engine knows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SeenGroup {
    pub group: DecisionId,
    pub phase: GroupPhase,
    pub leases: Vec<SeenLease>,
}

/// A lease that an engine holds for us.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Owned {
    pub lease: LeaseId,
    /// What was bought.
    pub offer: OfferId,
    /// Since when it is paid for; none when it never came up.
    pub since: Option<Time>,
    /// Until when; none while it is there.
    pub until: Option<Time>,
    /// Where its agent listened, or left its last words.
    pub address: Option<Address>,
}

/// An interruption that somebody asks for: a rehearsal, or a drill.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Interrupt {
    /// Announced this long before, in the world's time.
    WithNotice(Span),
    /// The machine is simply gone.
    Without,
    /// None, but the market says that one may come.
    AtRisk,
}

/// What runs leases.
#[async_trait]
pub trait Engine: Send + Sync {
    /// What it can do. Constant for the life of the engine.
    fn describe(&self) -> Capabilities;

    /// Returns when an observation may differ from the one before.
    async fn changed(&self) {
        tokio::time::sleep(LOOK_EVERY).await;
    }

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

    /// Takes a lease away as its market or its operator would, for rehearsals and drills. Engines whose leases are real do so
    /// with a notice, or refuse.
    async fn interrupt(&self, _lease: LeaseId, _how: Interrupt) -> Result<(), EngineError> {
        Err(EngineError::Refused(Refusal::Invalid))
    }

    /// Nobody will ever ask for its leases again: ends all of them at once.
    async fn abandon(&self) {
        let mut groups: BTreeMap<DecisionId, Vec<u32>> = BTreeMap::new();
        for owned in self.list_owned().await.unwrap_or_default() {
            groups.entry(owned.lease.group).or_default().push(owned.lease.slot);
        }
        for (group, slots) in groups {
            // What cannot be ended now is ended by nobody.
            let _ = self.release(group, &slots).await;
        }
    }

    /// What it needs to be used: credentials, rights, limits. Nothing is changed.
    async fn check(&self) -> Vec<Finding> {
        let name = self.describe().name;
        match self.offers().await {
            Ok(offers) => vec![Finding::ok(&name, format!("it answers: {}", counted(offers.len() as u64, "offer")))],
            Err(error) => vec![Finding::missing(&name, error.to_string(), "see what its operator says of it")],
        }
    }

    /// What may be used of it at most, as far as that was seen. Answered at once.
    fn limits(&self) -> Vec<Limit> {
        Vec::new()
    }

    /// What it knows of its market beyond now. One that replays a recording knows all of it.
    fn recording(&self) -> Option<&dyn Recording> {
        None
    }
}

/// A recorded market, known from its beginning to its end. For forecasts, for bills, and to refuse what can never be:
/// decisions do not see it.
pub trait Recording: Send + Sync {
    fn name(&self) -> &str;

    fn zones(&self) -> Vec<String>;

    /// Nothing lives on it, and work comes: it begins anew, so that every first run sees the same market.
    fn begin_anew(&self);

    /// What is for sale at this moment.
    fn offers(&self) -> Vec<Offer>;

    /// How often it changes.
    fn tick(&self) -> Span;

    /// Whether so many could ever not be had at once.
    fn ever_lacks(&self, units: u32) -> bool;

    /// The most that could ever be had at once.
    fn most(&self) -> Option<u32>;

    /// The lowest spot price there ever is.
    fn cheapest(&self) -> Option<NanoUsd>;

    /// The least that a job could have cost for somebody who knew the whole recording.
    fn least_cost(&self, job: &PastJob) -> Option<NanoUsd>;
}

/// A job that is over, as far as its cost depends on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PastJob {
    pub began: Time,
    /// From there to the deadline.
    pub deadline: Span,
    /// Running time that it needed.
    pub work: Span,
    /// Lost with every start.
    pub restart: Span,
    /// Instances held at once.
    pub gang: u32,
}
