//! How old a fact is, and from when on it is marked: an old price may head a ranking, but never without saying so.

use jiff::civil::Date;
use windfall_catalog::Source;

/// Prices and interruption bands older than this are marked in every table.
pub const OLD_DAYS: i32 = 180;
/// What marks them, after the figure.
pub const MARK: char = '!';

/// The day from which ages are counted.
#[derive(Clone, Copy, Debug)]
pub struct Today(Date);

impl Today {
    /// The day of the clock, or the one that WINDFALL_TODAY names.
    pub fn now() -> Today {
        let named = std::env::var("WINDFALL_TODAY").ok().and_then(|day| day.parse().ok());
        Today(named.unwrap_or_else(|| jiff::Zoned::now().date()))
    }

    /// Days since a date; of a month without a day, since its first.
    pub fn age_days(self, as_of: &str) -> Option<i32> {
        let full = if as_of.len() == 7 { format!("{as_of}-01") } else { as_of.to_owned() };
        let date: Date = full.parse().ok()?;
        Some((self.0 - date).get_days())
    }

    /// Whether what a source says is old. What has no date is a fact that hardly changes.
    pub fn is_old(self, source: &Source) -> bool {
        self.age_days(&source.as_of).is_some_and(|days| days > OLD_DAYS)
    }

    /// A figure with the mark where its source is old.
    pub fn marked(self, figure: String, source: &Source) -> String {
        if self.is_old(source) { format!("{figure}{MARK}") } else { figure }
    }
}

/// What the mark means, and which of the sources it stands for.
pub fn note<'s>(today: Today, sources: impl IntoIterator<Item = &'s Source>) -> Option<String> {
    let mut old: Vec<String> = sources
        .into_iter()
        .filter(|source| today.is_old(source))
        .map(|source| format!("{} of {}", source.name, source.as_of))
        .collect();
    old.sort();
    old.dedup();
    (!old.is_empty()).then(|| format!("`{MARK}` marks what is more than {OLD_DAYS} days old: {}.", old.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_price_is_old_from_the_day_after_the_stated_age() {
        let today = Today("2026-11-15".parse().expect("a day"));
        let of = |as_of: &str| Source { name: "list".into(), as_of: as_of.into(), ..Source::default() };
        assert!(!today.is_old(&of("2026-05-19")), "180 days");
        assert!(today.is_old(&of("2026-05-18")), "181 days");
        assert!(today.is_old(&of("2026-05")), "a month counts from its first day");
        assert!(!today.is_old(&of("undated")));
        let told = note(today, [&of("2026-11-01"), &of("2025-09")]);
        assert_eq!(told.as_deref(), Some("`!` marks what is more than 180 days old: list of 2025-09."));
    }
}
