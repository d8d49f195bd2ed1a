//! A lease as the brain knows it: from asked for until the engine says that it is gone.

use super::Open;
use crate::ids::{DecisionId, LeaseId, WorkloadId};
use crate::ledger::{Goods, Meter};
use crate::offer::{Market, OfferId};
use crate::record::Decision;
use crate::units::{NanoUsd, Span, Time};
use serde::{Deserialize, Serialize};

/// Where a lease stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LeasePhase {
    /// The engine was asked for it.
    Asked,
    /// It is there and paid for.
    Up,
    /// It will be taken away.
    Noticed {
        /// When.
        ends_at: Time,
    },
    /// It is being given back.
    Releasing {
        /// The decision that said so.
        by: DecisionId,
    },
}

/// One instance held.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lease {
    /// Its name at the engine.
    pub id: LeaseId,
    /// Who it is for; nobody when the log did not know it.
    pub workload: Option<WorkloadId>,
    /// What was bought.
    pub offer: OfferId,
    /// What that is: the ledger needs it also when the offer is gone.
    pub goods: Option<Goods>,
    /// How.
    pub market: Market,
    /// Most it may cost an hour.
    pub max_price: Option<NanoUsd>,
    /// Since when it is wanted.
    pub asked_at: Time,
    /// Where it stands.
    pub phase: LeasePhase,
    /// Runs from up until gone.
    pub meter: Option<Meter>,
    /// When it came up.
    pub up_at: Option<Time>,
    /// Since when the market says that it may soon be taken.
    #[serde(default)]
    pub at_risk_since: Option<Time>,
}

impl Lease {
    /// Held for work: neither asked for nor on its way back.
    pub fn is_usable(&self) -> bool {
        self.phase == LeasePhase::Up
    }
    /// On its way back.
    pub fn is_releasing(&self) -> bool {
        matches!(self.phase, LeasePhase::Releasing { .. })
    }
    /// What it has cost up to `now`.
    pub fn cost_at(&self, now: Time) -> NanoUsd {
        self.meter.as_ref().map_or(NanoUsd(0), |meter| meter.cost_at(now))
    }
    /// How long it has been up by `now`.
    pub fn held_at(&self, now: Time) -> Span {
        self.up_at.map_or(Span::ZERO, |up| now - up)
    }

    pub(super) fn open(&self) -> Option<Open> {
        match self.phase {
            LeasePhase::Asked => self.workload.map(|workload| Open {
                id: self.id.0,
                decision: Decision::Acquire {
                    lease: self.id,
                    workload,
                    offer: self.offer.clone(),
                    market: self.market,
                    max_price: self.max_price,
                },
            }),
            LeasePhase::Releasing { by } => Some(Open { id: by, decision: Decision::Release { lease: self.id } }),
            LeasePhase::Up | LeasePhase::Noticed { .. } => None,
        }
    }
}
