//! Integers with their unit in the type: time, money, work, speed. Products are taken in `i128` and
//! rounded once, so that every machine agrees to the last digit.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::ops::{Add, AddAssign, Sub};

/// A moment of a world's clock, in milliseconds since the Unix epoch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Time(pub i64);

/// A length of time in milliseconds; may be negative (slack can be).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Span(pub i64);

/// Money in nano-dollars; also a price when it is said to be per hour.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct NanoUsd(pub i64);

/// Work done or to do, in the job's own unit: steps, or milliseconds on its reference accelerator.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Work(pub u64);

/// Speed: work in 1,000,000,000 seconds, so that a step in an hour is exact to a millionth.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Rate(pub u64);

const HOUR_MS: i128 = 3_600_000;
/// Milliseconds of what a rate is counted in.
const PER_MS: u128 = 1_000_000_000_000;

impl Span {
    /// No time at all.
    pub const ZERO: Span = Span(0);
    /// Longer than any job; stands for "never".
    pub const FOREVER: Span = Span(i64::MAX / 8);

    /// Whole seconds.
    pub const fn seconds(n: i64) -> Span {
        Span(n * 1_000)
    }
    /// Whole minutes.
    pub const fn minutes(n: i64) -> Span {
        Span(n * 60_000)
    }
    /// Whole hours.
    pub const fn hours(n: i64) -> Span {
        Span(n * 3_600_000)
    }
    /// This length scaled by `numerator / denominator`, rounded towards zero.
    pub fn scaled(self, numerator: i64, denominator: i64) -> Span {
        Span(clamp(i128::from(self.0) * i128::from(numerator) / i128::from(denominator.max(1))))
    }
}

impl Rate {
    /// The speed of work that is itself counted in milliseconds.
    pub const REAL_TIME: Rate = Rate(PER_MS as u64);

    /// Time that `work` takes at this speed, rounded up; forever at speed zero.
    pub fn time_for(self, work: Work) -> Span {
        if self.0 == 0 {
            return if work.0 == 0 { Span::ZERO } else { Span::FOREVER };
        }
        let ms = (u128::from(work.0) * PER_MS).div_ceil(u128::from(self.0));
        Span(i64::try_from(ms).unwrap_or(i64::MAX).min(Span::FOREVER.0))
    }

    /// Work done in `span` at this speed, rounded down.
    pub fn work_in(self, span: Span) -> Work {
        let ms = u128::try_from(span.0.max(0)).unwrap_or(0);
        Work(u64::try_from(u128::from(self.0) * ms / PER_MS).unwrap_or(u64::MAX))
    }

    /// The speed at which `work` was done in `span`; none for an empty span.
    pub fn of(work: Work, span: Span) -> Option<Rate> {
        let ms = u128::try_from(span.0).ok().filter(|ms| *ms > 0)?;
        Some(Rate(u64::try_from(u128::from(work.0) * PER_MS / ms).unwrap_or(u64::MAX)))
    }
}

impl NanoUsd {
    /// From whole dollars and cents as a decimal number; only for input, never for sums.
    pub fn from_dollars(dollars: f64) -> NanoUsd {
        NanoUsd((dollars * 1e9).round() as i64)
    }
    /// As a decimal number of dollars; only for output, never for sums.
    pub fn dollars(self) -> f64 {
        self.0 as f64 / 1e9
    }
    /// What `span` costs at this price an hour, rounded down.
    pub fn for_span(self, span: Span) -> NanoUsd {
        NanoUsd(clamp(i128::from(self.0) * i128::from(span.0) / HOUR_MS))
    }
}

/// A running product of price and time, exact to the nano-dollar-millisecond.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Accrued {
    whole_nanousd: i64,
    rest: i64,
}

impl Accrued {
    /// Adds `span` at `price` an hour; a negative span takes back.
    pub fn add(&mut self, price: NanoUsd, span: Span) {
        let total = i128::from(self.rest) + i128::from(price.0) * i128::from(span.0);
        self.whole_nanousd = self.whole_nanousd.saturating_add(clamp(total.div_euclid(HOUR_MS)));
        self.rest = clamp(total.rem_euclid(HOUR_MS));
    }
    /// Adds what lies between two other sums.
    pub fn add_between(&mut self, before: Accrued, after: Accrued) {
        let whole = i128::from(after.whole_nanousd) - i128::from(before.whole_nanousd);
        let rest = i128::from(self.rest) + i128::from(after.rest) - i128::from(before.rest);
        self.whole_nanousd = clamp(i128::from(self.whole_nanousd) + whole + rest.div_euclid(HOUR_MS));
        self.rest = clamp(rest.rem_euclid(HOUR_MS));
    }
    /// What that was an hour, if it was for so long.
    pub fn hourly(self, span: Span) -> NanoUsd {
        let product = i128::from(self.whole_nanousd) * HOUR_MS + i128::from(self.rest);
        NanoUsd(product.checked_div(i128::from(span.0)).map_or(0, clamp))
    }
    /// The sum so far, rounded down once.
    pub fn total(self) -> NanoUsd {
        NanoUsd(self.whole_nanousd)
    }
}

fn clamp(value: i128) -> i64 {
    i64::try_from(value).unwrap_or(if value < 0 { i64::MIN } else { i64::MAX })
}

impl Add<Span> for Time {
    type Output = Time;
    fn add(self, span: Span) -> Time {
        Time(self.0.saturating_add(span.0))
    }
}
impl Sub<Span> for Time {
    type Output = Time;
    fn sub(self, span: Span) -> Time {
        Time(self.0.saturating_sub(span.0))
    }
}
impl Sub for Time {
    type Output = Span;
    fn sub(self, other: Time) -> Span {
        Span(self.0.saturating_sub(other.0))
    }
}
impl Add for Span {
    type Output = Span;
    fn add(self, other: Span) -> Span {
        Span(self.0.saturating_add(other.0))
    }
}
impl AddAssign for Span {
    fn add_assign(&mut self, other: Span) {
        *self = *self + other;
    }
}
impl Sub for Span {
    type Output = Span;
    fn sub(self, other: Span) -> Span {
        Span(self.0.saturating_sub(other.0))
    }
}
impl Add for NanoUsd {
    type Output = NanoUsd;
    fn add(self, other: NanoUsd) -> NanoUsd {
        NanoUsd(self.0.saturating_add(other.0))
    }
}
impl AddAssign for NanoUsd {
    fn add_assign(&mut self, other: NanoUsd) {
        *self = *self + other;
    }
}
impl Sub for NanoUsd {
    type Output = NanoUsd;
    fn sub(self, other: NanoUsd) -> NanoUsd {
        NanoUsd(self.0.saturating_sub(other.0))
    }
}
impl Work {
    /// This much times a ratio, rounded down.
    pub fn times(self, numerator: u32, denominator: u32) -> Work {
        let scaled = u128::from(self.0) * u128::from(numerator) / u128::from(denominator.max(1));
        Work(u64::try_from(scaled).unwrap_or(u64::MAX))
    }

    /// What is left of `self` once `done` is done.
    pub fn minus(self, done: Work) -> Work {
        Work(self.0.saturating_sub(done.0))
    }
}

impl fmt::Display for Span {
    /// `3h 20m`, `12m 5s`, `45s`, `0.3s`: the two largest units.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 >= Span::FOREVER.0 {
            return f.pad("forever");
        }
        let sign = if self.0 < 0 { "-" } else { "" };
        let ms = self.0.unsigned_abs();
        let seconds = ms / 1_000;
        let (days, hours, minutes) = (seconds / 86_400, seconds / 3_600 % 24, seconds / 60 % 60);
        let text = if days > 0 {
            format!("{sign}{days}d {hours}h")
        } else if hours > 0 {
            format!("{sign}{hours}h {minutes}m")
        } else if minutes > 0 {
            format!("{sign}{minutes}m {}s", seconds % 60)
        } else if seconds >= 10 || ms == 0 {
            format!("{sign}{seconds}s")
        } else {
            format!("{sign}{}.{}s", seconds, ms % 1_000 / 100)
        };
        f.pad(&text)
    }
}

impl fmt::Display for NanoUsd {
    /// `$1,234.56`; four decimals below ten cents so that small bills do not read as zero.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = if self.0 < 0 { "-" } else { "" };
        let nano = self.0.unsigned_abs();
        let text = if nano < 100_000_000 && nano > 0 {
            format!("{sign}$0.{:04}", (nano + 50_000) / 100_000)
        } else {
            let cents = (nano + 5_000_000) / 10_000_000;
            format!("{sign}${}.{:02}", crate::english::grouped((cents / 100).into()), cents % 100)
        };
        f.pad(&text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_and_money_are_printed_for_people() {
        assert_eq!(Span::minutes(200).to_string(), "3h 20m");
        assert_eq!(Span(300).to_string(), "0.3s");
        assert_eq!(Span::seconds(-75).to_string(), "-1m 15s");
        assert_eq!(NanoUsd::from_dollars(1234.56).to_string(), "$1,234.56");
        assert_eq!(NanoUsd::from_dollars(0.0123).to_string(), "$0.0123");
        assert_eq!(NanoUsd(0).to_string(), "$0.00");
    }

    #[test]
    fn accrued_sums_do_not_depend_on_how_time_is_cut() {
        let price = NanoUsd(918_000_001);
        let mut whole = Accrued::default();
        whole.add(price, Span(7_200_001));
        let mut cut = Accrued::default();
        for _ in 0..7_200_001 / 7 {
            cut.add(price, Span(7));
        }
        cut.add(price, Span(7_200_001 % 7));
        assert_eq!(whole, cut);
    }

    #[test]
    fn time_for_work_rounds_up_and_never_overflows() {
        assert_eq!(Rate(3_100_000_000).time_for(Work(31)), Span::seconds(10));
        assert_eq!(Rate(0).time_for(Work(1)), Span::FOREVER);
        assert_eq!(Rate(1).time_for(Work(u64::MAX)), Span::FOREVER);
        assert_eq!(Rate::of(Work(31), Span::seconds(10)), Some(Rate(3_100_000_000)));
    }
}
