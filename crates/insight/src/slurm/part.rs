//! The figures of a stretch of time, in every way that they are split.

use super::fields::date;
use super::figures::{Figures, Group, Prices, Window, groups, total};
use super::jobs::{Job, Jobs};
use super::shares::{Fairness, Shares, fairness};
use serde::Serialize;

/// The figures of a stretch of time.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Part {
    /// None where no line has a time.
    pub from: Option<String>,
    pub to: Option<String>,
    pub days: f64,
    pub total: Figures,
    pub user: Vec<Group>,
    pub account: Vec<Group>,
    pub partition: Vec<Group>,
    /// By the names of jobs, without the numbers at their ends.
    pub r#type: Vec<Group>,
    pub fairness: Fairness,
}

/// The figures of a window, which began and ended at these times.
pub fn part(jobs: &Jobs, window: &Window, prices: &Prices, shares: Option<&Shares>, (from, to): (u32, u32)) -> Part {
    let total = total(jobs, window, prices);
    let by = |name: fn(&Job) -> u32| groups(jobs, window, prices, &total, name);
    let (user, account) = (by(|job| job.user), by(|job| job.account));
    let (partition, kind) = (by(|job| job.partition), by(|job| job.kind));
    let fairness = fairness(&account, shares);
    let days = f64::from(to.saturating_sub(from)) / 86_400.0;
    let shown = |at: u32| (at > 0).then(|| date(at));
    Part { from: shown(from), to: shown(to), days, total, user, account, partition, r#type: kind, fairness }
}
