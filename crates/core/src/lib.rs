//! The words of Windfall as types, and the brain that decides with them.
//!
//! Everything here is a pure function of its inputs: no clock, no I/O, no threads, no randomness, no
//! iteration order that depends on a hash. The server drives it with the real world, the simulator and
//! the explorer with invented ones.

pub mod brain;
pub mod codec;
mod config;
mod decision;
pub mod english;
mod event;
pub mod health;
pub mod ids;
pub mod kubernetes;
pub mod laws;
pub mod ledger;
pub mod market;
pub mod nearest;
pub mod offer;
pub mod pool;
pub mod reason;
pub mod record;
pub mod spec;
mod subject;
pub mod told;
mod trouble;
pub mod units;
pub mod view;
pub mod want;
pub mod worker;

pub use brain::Brain;
pub use health::{Symptom, SymptomKind};
pub use ids::{CheckpointId, DecisionId, Installation, LeaseId, NodeId, PoolId, StintId, WorkloadId};
pub use ledger::LedgerRow;
pub use offer::{Market, Offer, OfferId, Place, Way};
pub use pool::{Allocation, Node, Pool};
pub use reason::{Number, Reason};
pub use record::{Body, Decision, Event, LeaseEnd, Outcome, Record, Refusal, Trouble, TroubleKind, WorkerEnd};
pub use spec::{JobSpec, Workload};
pub use told::Told;
pub use units::{NanoUsd, Rate, Span, Time, Work};
pub use want::{Address, GroupPhase, LeaseTerms, Want};
