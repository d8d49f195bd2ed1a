//! Leases that were given get their agents: here at once, on a node when it is there. One that a node does not begin is given up.

use super::{Held, LocalLeases, Marks};
use crate::engine::{EngineError, LeaseState, SeenGroup};
use crate::nodes::LeaseOrder;
use std::collections::BTreeSet;
use std::sync::Arc;
use windfall_core::{DecisionId, LeaseEnd, LeaseId, Span};

/// How long a node may take to begin a lease. A connection that breaks is back sooner.
const BEGINS_WITHIN: Span = Span::seconds(30);

impl LocalLeases {
    /// Starts the agents of a group that was given, and tells of it.
    pub async fn launch_all(self: &Arc<Self>, group: DecisionId) -> Result<SeenGroup, EngineError> {
        let known = self.group_of(group).map(|seen| seen.leases).unwrap_or_default();
        let pending = known.iter().filter(|seen| seen.state == LeaseState::Pending).map(|seen| seen.lease);
        let launched = futures::future::join_all(pending.map(|lease| self.launch(lease))).await;
        launched.into_iter().collect::<Result<Vec<()>, EngineError>>()?;
        self.group_of(group).ok_or(EngineError::NoLease(LeaseId { group, slot: 0 }))
    }

    /// Starts the agents that groups were given and nobody has started: an earlier server ended before it did, or their
    /// machine was away. Once a part of a group is up, nobody asks for the group again.
    pub fn launch_what_waits(self: &Arc<Self>, groups: &[DecisionId]) {
        let groups: BTreeSet<DecisionId> = groups.iter().copied().collect();
        let waits = |(lease, held): &(&LeaseId, &Held)| {
            !held.is_gone() && held.marks.up_at.is_none() && groups.contains(&lease.group)
        };
        let waiting: Vec<LeaseId> = self.held().iter().filter(waits).map(|(lease, _)| *lease).collect();
        waiting.into_iter().for_each(|lease| self.launch_beside(lease));
    }

    /// Starts the agent of a lease while the caller goes on.
    pub fn launch_beside(self: &Arc<Self>, lease: LeaseId) {
        // Whoever is at it already needs no help.
        if self.gate(lease).try_lock().is_ok() {
            let leases = Arc::clone(self);
            // What fails is tried again with the next look.
            tokio::spawn(async move { leases.launch(lease).await });
        }
    }

    async fn launch(self: &Arc<Self>, lease: LeaseId) -> Result<(), EngineError> {
        let gate = self.gate(lease);
        let _alone = gate.lock().await;
        if self.state_of(lease) != Some(LeaseState::Pending) {
            return Ok(());
        }
        let why = |error: std::io::Error| EngineError::Unreachable { why: error.to_string() };
        let _one = self.one_by_one().await;
        let (_, marks) = self.known(lease).ok_or(EngineError::NoLease(lease))?;
        self.settle_account(lease, &marks).await.map_err(why)?;
        let (folder, marks) = self.known(lease).ok_or(EngineError::NoLease(lease))?;
        if let Err(error) = self.hosts.launch(&folder, &marks).await {
            self.give_up_late(lease, &marks);
            return Err(why(error));
        }
        let now = self.clock.now();
        self.mark(lease, |marks| {
            marks.up_at.get_or_insert(now);
        });
        tokio::spawn(Arc::clone(self).tend(lease));
        Ok(())
    }

    /// Gives a lease up that its node could not begin for long: it is away, or begins nothing. Nobody was told to run anything
    /// on it, so others may have the work at once; what the node began of it all the same is ended when the node shows it.
    fn give_up_late(&self, lease: LeaseId, marks: &Marks) {
        let now = self.clock.now();
        let is_late = marks.sold_at.is_some_and(|sold_at| now - sold_at >= BEGINS_WITHIN);
        if marks.host.is_some() && is_late {
            self.mark(lease, |marks| _ = marks.gone.get_or_insert((now, LeaseEnd::Lost)));
        }
    }

    /// Starts the agent of one lease, which may be a new one. Nothing is started of one that has ended.
    pub async fn launch_one(self: &Arc<Self>, lease: LeaseId, order: LeaseOrder) -> Result<(), EngineError> {
        let LeaseOrder { devices, owner, limits } = order;
        let (devices, sold_at) = (Some(devices), Some(self.clock.now()));
        let marks = Marks { devices, owner, limits, units: lease.slot + 1, sold_at, ..Marks::default() };
        self.hold(lease, marks)?;
        self.launch(lease).await?;
        match self.state_of(lease) {
            Some(LeaseState::Up { .. }) => Ok(()),
            _ => Err(EngineError::NoLease(lease)),
        }
    }
}
