//! Every lease-second, its price, and who it is charged to. Rows are appended, corrections too; rounding
//! is cumulative, so that the rows of a lease always add up to what the lease cost.

use crate::ids::{LeaseId, WorkloadId};
use crate::units::{Accrued, NanoUsd, Span, Time};
use serde::{Deserialize, Serialize};

/// Who a stretch of a lease is charged to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Beneficiary {
    /// A job or a fleet.
    Workload(WorkloadId),
    /// Nobody used it.
    Idle,
    /// Kept for the system's own sake.
    Overhead,
}

/// One stretch of a lease at one price.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LedgerRow {
    /// The record that closed the stretch.
    pub seq: u64,
    /// What was paid for.
    pub lease: LeaseId,
    /// From.
    pub from: Time,
    /// Until; before `from` in a correction.
    pub to: Time,
    /// Price an hour.
    pub rate: NanoUsd,
    /// Who it is charged to.
    pub beneficiary: Beneficiary,
    /// Thousandths of the lease that this beneficiary has.
    pub share_permille: u32,
    /// The charge.
    pub amount: NanoUsd,
    /// Our own count, until the provider's bill is there.
    pub estimated: bool,
}

/// Counts what one lease costs, from up until gone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Meter {
    /// Price an hour since `upto`.
    pub rate: NanoUsd,
    /// Counted until here.
    pub upto: Time,
    accrued: Accrued,
    /// What rows were written for.
    written: NanoUsd,
    /// Earlier stretches: from when, at which price. News of the end may come after news of a price, and
    /// what is then taken back was counted at the price of its own time.
    #[serde(default)]
    earlier: Vec<(Time, NanoUsd)>,
}

impl Meter {
    /// A meter that starts at `at`.
    pub fn start(at: Time, rate: NanoUsd) -> Meter {
        Meter { rate, upto: at, accrued: Accrued::default(), written: NanoUsd(0), earlier: Vec::new() }
    }

    /// What the lease has cost up to `now`, without writing anything.
    pub fn cost_at(&self, now: Time) -> NanoUsd {
        let mut accrued = self.accrued;
        accrued.add(self.rate, Span((now - self.upto).0.max(0)));
        accrued.total()
    }

    /// Closes the stretch at `at` (which may lie before `upto`: a correction) and returns its row.
    pub fn close(&mut self, at: Time, seq: u64, lease: LeaseId, beneficiary: Beneficiary) -> Option<LedgerRow> {
        let from = self.upto;
        self.take_back(at);
        if at > self.upto {
            self.earlier.push((self.upto, self.rate));
        }
        self.accrued.add(self.rate, at - self.upto);
        self.upto = at;
        let amount = self.accrued.total() - self.written;
        self.written = self.accrued.total();
        (at != from).then_some(LedgerRow {
            seq,
            lease,
            from,
            to: at,
            rate: self.rate,
            beneficiary,
            share_permille: 1_000,
            amount,
            estimated: true,
        })
    }

    /// Takes stretches after `at` back, each at its own price.
    fn take_back(&mut self, at: Time) {
        while at < self.upto
            && let Some((from, rate)) = self.earlier.pop()
        {
            let to = at.max(from);
            self.accrued.add(rate, to - self.upto);
            self.upto = to;
            if to > from {
                self.earlier.push((from, rate));
                return;
            }
        }
    }
}
