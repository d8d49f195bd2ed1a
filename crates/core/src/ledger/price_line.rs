//! What something costs an hour from moment to moment, shared by all who have it: a price that moves is one point more,
//! however many leases it is the price of. What a lease costs is the line's sum at its end less that at its beginning.

use crate::units::{Accrued, NanoUsd, Span, Time};
use serde::{Deserialize, Serialize};

/// Prices that are kept at least; twice as many are kept at most, and midnights. News that is older than these cannot be
/// charged by the prices of its time.
const REMEMBERED: usize = 128;

/// Days of one stretch that get a row each, and midnights that are kept for them: more than a year. News that comes later
/// than that (a clock that jumped) must not make rows without end, so the days before them share one row.
pub const MOST_DAYS: usize = 400;

pub(super) const DAY_MS: i64 = 86_400_000;

/// A price since a moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Point(Time, NanoUsd, Accrued);

/// Prices of one thing, the oldest first. The first one holds for all time before it, too. An empty line costs nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PriceLine {
    points: Vec<Point>,
    /// Before this, sums are known at midnights only.
    since: Option<Time>,
}

/// What costs nothing.
pub static FREE: PriceLine = PriceLine { points: Vec::new(), since: None };

impl PriceLine {
    /// One price from a moment on.
    pub fn starting(at: Time, rate: NanoUsd) -> PriceLine {
        let mut line = PriceLine::default();
        line.push(at, rate);
        line
    }

    /// The latest price an hour.
    pub fn rate(&self) -> NanoUsd {
        self.points.last().map_or(NanoUsd(0), |last| last.1)
    }

    /// Another price from `at` on, which is not before the last one.
    pub fn push(&mut self, at: Time, rate: NanoUsd) {
        let Some(Point(last, before, _)) = self.points.last().copied() else {
            self.points.push(Point(at, rate, Accrued::default()));
            return;
        };
        if rate == before {
            return;
        }
        let at = at.max(last);
        let (oldest, newest) = (last.0.div_euclid(DAY_MS) + 1, at.0.div_euclid(DAY_MS));
        for day in oldest.max(newest.saturating_sub(MOST_DAYS as i64))..=newest {
            let midnight = Time(day.saturating_mul(DAY_MS));
            self.points.push(Point(midnight, before, self.sum(midnight)));
        }
        let sum = self.sum(at);
        self.points.pop_if(|point| point.0 == at);
        self.points.push(Point(at, rate, sum));
        if self.points.len() >= 2 * REMEMBERED + MOST_DAYS {
            self.forget(REMEMBERED);
        }
    }

    /// Forgets all but so many of the latest prices; sums stay what they are.
    fn forget(&mut self, most: usize) {
        let surplus = self.points.len().saturating_sub(most.max(1));
        if surplus == 0 {
            return;
        }
        self.since = self.points.get(surplus).map(|first| first.0);
        let mut place = 0..self.points.len();
        let is_midnight = |point: &Point| point.0.0.rem_euclid(DAY_MS) == 0;
        self.points.retain(|point| place.next().is_some_and(|place| place >= surplus) || is_midnight(point));
        let midnights = self.points.len().saturating_sub(most.max(1) + MOST_DAYS);
        self.points.drain(..midnights);
    }

    /// Nobody has anything of it that was not charged for days.
    pub fn forget_days(&mut self) {
        let exact = self.since;
        self.points.retain(|point| exact.is_none_or(|exact| point.0 >= exact));
    }

    /// The first moment of which sums are exact; none where all are.
    pub fn since(&self) -> Option<Time> {
        self.since
    }

    /// What it has cost until `at`, counted from any moment: two sums are compared.
    pub fn sum(&self, at: Time) -> Accrued {
        let after = self.points.partition_point(|point| point.0 <= at);
        let Some(Point(from, rate, sum)) = self.points.get(after.saturating_sub(1)) else { return Accrued::default() };
        let mut sum = *sum;
        sum.add(*rate, at - *from);
        sum
    }

    /// The price an hour between two moments: what it was all the time, or else the mean.
    pub fn rate_between(&self, from: Time, to: Time, cost: Accrued) -> NanoUsd {
        let (first, last) = (from.min(to), from.max(to));
        let begin = self.points.partition_point(|point| point.0 <= first).saturating_sub(1);
        let end = self.points.partition_point(|point| point.0 < last);
        let mut within = self.points.get(begin..end.max(begin)).into_iter().flatten().map(|point| point.1);
        match within.next() {
            Some(rate) if within.all(|other| other == rate) => rate,
            None => NanoUsd(0),
            Some(_) => cost.hourly(Span((to - from).0)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: i64 = 3_600_000;

    fn cost(line: &PriceLine, from: i64, to: i64) -> i64 {
        let mut cost = Accrued::default();
        cost.add_between(line.sum(Time(from)), line.sum(Time(to)));
        cost.total().0
    }

    #[test]
    fn each_price_counts_for_its_own_time_and_the_first_for_all_before_it() {
        let mut line = PriceLine::starting(Time(HOUR), NanoUsd(10));
        line.push(Time(2 * HOUR), NanoUsd(30));
        line.push(Time(2 * HOUR), NanoUsd(20));
        line.push(Time(3 * HOUR), NanoUsd(20));
        assert_eq!((cost(&line, 0, HOUR), cost(&line, 0, 2 * HOUR), cost(&line, 0, 5 * HOUR)), (10, 20, 80));
        assert_eq!(cost(&line, 5 * HOUR, HOUR), -70, "backwards it is the same");
        let rate = |from: i64, to: i64| {
            let mut cost = Accrued::default();
            cost.add_between(line.sum(Time(from)), line.sum(Time(to)));
            line.rate_between(Time(from), Time(to), cost).0
        };
        assert_eq!((rate(0, 2 * HOUR), rate(2 * HOUR, 9 * HOUR), rate(HOUR, 3 * HOUR)), (10, 20, 15));
        assert_eq!((rate(9 * HOUR, 2 * HOUR), rate(3 * HOUR, HOUR)), (20, 15));
        assert_eq!((FREE.rate(), cost(&FREE, 0, HOUR)), (NanoUsd(0), 0));
    }

    #[test]
    fn prices_of_years_take_little_room_and_sums_at_midnights_stay_exact() {
        let (mut line, mut whole) = (PriceLine::starting(Time(0), NanoUsd(1)), Vec::new());
        let mut exact = Accrued::default();
        for tick in 1..100_000_i64 {
            exact.add(NanoUsd(tick), Span(600_000));
            line.push(Time(tick * 600_000), NanoUsd(tick + 1));
            if (tick * 600_000) % DAY_MS == 0 {
                whole.push((tick * 600_000, exact));
            }
        }
        assert!(line.points.len() < 2 * REMEMBERED + MOST_DAYS, "{} points", line.points.len());
        let kept = &whole[whole.len() - MOST_DAYS / 2..];
        assert!(kept.iter().all(|(at, exact)| line.sum(Time(*at)) == *exact));
        let since = line.since().expect("something is forgotten").0;
        assert!(since > 0 && since < 99_999 * 600_000 - (REMEMBERED as i64 - 2) * 600_000);
        line.forget_days();
        assert!(line.points.len() < 2 * REMEMBERED + MOST_DAYS && line.points[0].0.0 == since);
        line.forget(1);
        assert_eq!(line.sum(Time(99_999 * 600_000)), exact, "what is to come goes on from there");
    }

    #[test]
    fn a_price_that_stood_for_years_has_its_midnights() {
        let mut line = PriceLine::starting(Time(5), NanoUsd(HOUR));
        line.push(Time(1_000 * DAY_MS), NanoUsd(0));
        let at = |day: i64| line.sum(Time(day * DAY_MS)).total().0;
        assert_eq!((at(999), at(1_000), at(1_001)), (999 * DAY_MS - 5, 1_000 * DAY_MS - 5, 1_000 * DAY_MS - 5));
        assert!(line.points.len() <= MOST_DAYS + 3, "{}", line.points.len());
    }
}
