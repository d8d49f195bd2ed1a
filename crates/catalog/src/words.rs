//! The words of the catalogue: how an offer is bought and for how long, who says a price, how often spot capacity
//! is taken back.

use serde::{Deserialize, Serialize};
use std::fmt;
use windfall_core::Market;

/// How an offer is bought, with the length of a commitment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Term {
    /// Taken away at the market's will.
    #[serde(rename = "spot")]
    Spot,
    /// Kept until given back.
    #[serde(rename = "on-demand")]
    OnDemand,
    /// Committed for one year.
    #[serde(rename = "reserved-1y")]
    Reserved1y,
    /// Committed for three years.
    #[serde(rename = "reserved-3y")]
    Reserved3y,
}

impl Term {
    /// Every term, in the order of the stored format.
    pub const ALL: [Term; 4] = [Term::Spot, Term::OnDemand, Term::Reserved1y, Term::Reserved3y];

    /// The market that the term belongs to.
    pub fn market(self) -> Market {
        match self {
            Term::Spot => Market::Spot,
            Term::OnDemand => Market::OnDemand,
            Term::Reserved1y | Term::Reserved3y => Market::Reserved,
        }
    }

    /// The word for programs and people.
    pub fn word(self) -> &'static str {
        match self {
            Term::Spot => "spot",
            Term::OnDemand => "on-demand",
            Term::Reserved1y => "reserved-1y",
            Term::Reserved3y => "reserved-3y",
        }
    }

    /// The terms that a word stands for: `reserved` is any commitment.
    pub fn named(word: &str) -> Option<Vec<Term>> {
        match word {
            "reserved" => Some(vec![Term::Reserved1y, Term::Reserved3y]),
            _ => Term::ALL.into_iter().find(|term| term.word() == word).map(|term| vec![term]),
        }
    }
}

impl fmt::Display for Term {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.word())
    }
}

/// Who says so, and when it was true.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Source {
    /// Short name: `skypilot-catalog/aws`.
    pub name: String,
    /// What it says: `on-demand and spot prices by zone`.
    pub what: String,
    /// Under which terms it may be used.
    pub licence: String,
    /// The day its facts were true: `2026-08-22`; a month where the day is unknown; `undated` where nobody says.
    /// Prices always have a date.
    pub as_of: String,
}

/// Hours of the month that rates and storage are counted by.
pub const HOURS_OF_A_MONTH: f64 = 730.0;

/// How many of a type's spot instances AWS took back in a month, in the five bands of its Spot Advisor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Band(u8);

impl Band {
    /// The band with an advisor's number, 0 to 4.
    pub fn new(number: u8) -> Option<Band> {
        (number <= 4).then_some(Band(number))
    }

    /// The advisor's number.
    pub fn number(self) -> u8 {
        self.0
    }

    /// `<5%`, `5-10%`, `10-15%`, `15-20%`, `>20%` a month.
    pub fn label(self) -> &'static str {
        ["<5%", "5-10%", "10-15%", "15-20%", ">20%"][usize::from(self.0.min(4))]
    }

    /// The share taken back in a month, from the least to the most; the highest band is open, up to nearly all.
    pub fn monthly_range(self) -> (f64, f64) {
        let least = f64::from(self.0.min(4)) * 0.05;
        (least, if self.0 < 4 { least + 0.05 } else { 0.99 })
    }
}

impl fmt::Display for Band {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.label())
    }
}

/// How many accelerators an instance has, in thousandths: clouds also rent an eighth of one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Count(pub u32);

impl Count {
    /// Whole accelerators.
    pub const fn whole(count: u32) -> Count {
        Count(count.saturating_mul(1_000))
    }

    /// Reads `8`, `8.0` or `0.125`.
    pub fn parse(text: &str) -> Option<Count> {
        let value: f64 = text.trim().parse().ok()?;
        (value > 0.0 && value <= 100_000.0).then(|| Count((value * 1_000.0).round() as u32))
    }

    /// As a number.
    pub fn as_f64(self) -> f64 {
        f64::from(self.0) / 1_000.0
    }
}

impl fmt::Display for Count {
    /// `8`, or `1/8` for a share.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            whole if whole % 1_000 == 0 => f.pad(&(whole / 1_000).to_string()),
            share if 1_000 % share == 0 => f.pad(&format!("1/{}", 1_000 / share)),
            other => f.pad(&format!("{:.3}", f64::from(other) / 1_000.0)),
        }
    }
}

/// The date of a day since 1970: `2026-08-22`.
pub fn date_of_day(day: u32) -> String {
    // Civil calendar from days, in eras of 400 years that begin on the first of March.
    let shifted = i64::from(day) + 719_468;
    let (era, day_of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_read_as_people_say_them() {
        assert_eq!(Count::parse("8.0").map(|count| count.to_string()).as_deref(), Some("8"));
        assert_eq!(Count::parse("0.125").map(|count| count.to_string()).as_deref(), Some("1/8"));
        assert_eq!(Count::parse("-1"), None);
        assert_eq!(Count::parse("NaN"), None);
    }

    #[test]
    fn a_higher_band_is_a_higher_hazard() {
        let hazards: Vec<f64> = (0..5).filter_map(Band::new).map(|band| band.monthly_range().0).collect();
        assert!(hazards.windows(2).all(|pair| pair[0] < pair[1]));
        assert_eq!(Band::new(4).map(Band::monthly_range), Some((0.2, 0.99)));
        assert_eq!(Band::new(5), None);
    }

    #[test]
    fn days_have_dates() {
        assert_eq!(date_of_day(0), "1970-01-01");
        assert_eq!(date_of_day(19_782), "2024-02-29");
        assert_eq!(date_of_day(20_687), "2026-08-22");
    }

    #[test]
    fn reserved_means_any_commitment() {
        assert_eq!(Term::named("reserved").map(|terms| terms.len()), Some(2));
        assert_eq!(Term::named("spot"), Some(vec![Term::Spot]));
        assert_eq!(Term::named("auction"), None);
    }
}
