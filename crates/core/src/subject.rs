//! What a record is about.

use crate::ids::{LeaseId, WorkloadId};

/// What a record is about: a workload, or a lease that belongs to one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subject {
    /// The workload that this very record creates.
    New,
    /// A workload.
    Workload(WorkloadId),
    /// A lease.
    Lease(LeaseId),
    /// The market at large.
    World,
}
