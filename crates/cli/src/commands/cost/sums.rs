//! Rows of the ledger added up, by whatever was asked for. Every row is counted once.

use super::by::{By, Cell};
use std::collections::BTreeMap;
use windfall_core::LedgerRow;

/// What rows come to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sum {
    pub cost: i128,
    pub gpu: i128,
    pub cpu: i128,
    pub memory: i128,
    /// Of machines that are not known.
    pub unsplit: i128,
    /// Of leases and nodes that still run.
    pub running: i128,
    pub lease: Time,
    pub accelerator: Time,
}

/// Time in nanoseconds: sevenths of milliseconds would be lost by the row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Time {
    pub ns: i128,
}

impl Time {
    pub fn ms(self) -> i128 {
        (self.ns + 500_000).div_euclid(1_000_000)
    }
}

impl Sum {
    fn add(&mut self, row: &LedgerRow, open: bool) {
        let amount = i128::from(row.amount.0);
        self.cost += amount;
        match row.parts {
            Some(parts) => {
                self.gpu += i128::from(parts.gpu.0);
                self.cpu += i128::from(parts.cpu.0);
                self.memory += i128::from(parts.memory.0);
            }
            None => self.unsplit += amount,
        }
        if open {
            self.running += amount;
        }
        let whole = i128::from((row.to - row.from).0) * 1_000_000;
        let ns = whole * i128::from(row.share.part) / i128::from(row.share.of.max(1));
        self.lease.ns += ns;
        self.accelerator.ns += ns * i128::from(row.goods.as_ref().map_or(0, |goods| goods.count));
    }
}

/// The report.
#[derive(Debug)]
pub struct Sums {
    pub by: Vec<By>,
    pub total: Sum,
    groups: BTreeMap<Vec<Cell>, Sum>,
    /// Whether nodes are paid for that still run.
    pub running_nodes: bool,
    /// The first and the last day that something was paid for.
    pub days: Option<(windfall_core::Time, windfall_core::Time)>,
}

impl Sums {
    pub fn new(by: Vec<By>) -> Sums {
        Sums { by, total: Sum::default(), groups: BTreeMap::new(), running_nodes: false, days: None }
    }

    pub fn add(&mut self, row: &LedgerRow, open: bool) {
        self.total.add(row, open);
        self.running_nodes |= open && row.node.is_some();
        let key = self.by.iter().map(|by| by.of(row)).collect();
        self.groups.entry(key).or_default().add(row, open);
        let at = row.begins();
        let (first, last) = self.days.unwrap_or((at, at));
        self.days = Some((first.min(at), last.max(at)));
    }

    /// Lines, days in order, and within a day the dearest first.
    pub fn lines(&self) -> Vec<(&[Cell], &Sum)> {
        let day = self.by.iter().position(|by| *by == By::Day);
        let mut lines: Vec<(&[Cell], &Sum)> = self.groups.iter().map(|(key, sum)| (key.as_slice(), sum)).collect();
        lines.sort_by_key(|(key, sum)| (day.map(|day| key[day].clone()), std::cmp::Reverse(sum.cost)));
        lines
    }
}
