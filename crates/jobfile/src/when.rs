//! When a deadline is: from a length of time or a date in the terminal's time zone to the time left.

use super::error::{Class, Problem, Quoted};
use super::quantity;
use jiff::civil::{Date, DateTime};
use jiff::tz::{AmbiguousOffset, TimeZone};
use jiff::{Timestamp, ToSpan};
use windfall_core::Span;

const EXPECTED: &str = "a length of time (36h, 2d12h) or a date (2026-11-20, \"2026-11-20 18:00\")";

/// The time left until the deadline, and something to say about it.
pub(super) fn deadline(text: &str, now_ms: i64, zone: &TimeZone) -> Result<(Span, Option<String>), Problem> {
    let text = text.trim();
    let (at, note) = match moment(text, zone)? {
        Some(found) => found,
        None => {
            let left =
                quantity::duration(text, Span(1)).map_err(|p| Problem { expected: Some(EXPECTED.to_owned()), ..p })?;
            return Ok((left, None));
        }
    };
    let left = at.as_millisecond().saturating_sub(now_ms);
    let shown = at.to_zoned(zone.clone()).strftime("%Y-%m-%d %H:%M %Z").to_string();
    if left <= 0 {
        let now = Timestamp::from_millisecond(now_ms).unwrap_or(Timestamp::UNIX_EPOCH).to_zoned(zone.clone());
        return Err(Problem::new(Class::BadValue, format!("{} is in the past", Quoted(text)))
            .expected("a deadline that is still to come")
            .hint(format!(
                "it is {} now; give a later date, or a length of time such as 36h",
                now.strftime("%Y-%m-%d %H:%M %Z")
            )));
    }
    if left > quantity::LONGEST.0 {
        return Err(Problem::new(Class::BadValue, format!("{} is more than 10 years from now", Quoted(text)))
            .expected(EXPECTED)
            .hint("check the year"));
    }
    let note = note.then(|| format!("deadline: {} comes twice that night; the first is meant: {shown}", Quoted(text)));
    Ok((Span(left), note))
}

/// The moment a date names and whether it was ambiguous; none when it is not a date at all.
fn moment(text: &str, zone: &TimeZone) -> Result<Option<(Timestamp, bool)>, Problem> {
    let begins_as_date = text.len() >= 8
        && text.as_bytes().iter().take(4).all(u8::is_ascii_digit)
        && text[4..].starts_with(['-', '/', '.']);
    if !begins_as_date {
        return Ok(None);
    }
    if let Ok(at) = text.parse::<Timestamp>() {
        return Ok(Some((at, false)));
    }
    let not_a_date = || {
        Problem::new(Class::BadValue, format!("{} is not a date", Quoted(text)))
            .expected(EXPECTED)
            .hint("write year-month-day, then the time if it matters: \"2026-11-20 18:00\"")
    };
    if text.contains('[') {
        // A zone in brackets would be read and then silently dropped by the civil parser.
        return Err(not_a_date());
    }
    if text.len() <= 10 {
        let date: Date = text.parse().map_err(|_| not_a_date())?;
        // The end of that day is the first moment of the next one, which a change of clocks may move.
        let next = date.checked_add(1.day()).map_err(|_| not_a_date())?;
        let at = next.to_zoned(zone.clone()).map_err(|_| not_a_date())?;
        return Ok(Some((at.timestamp(), false)));
    }
    let civil: DateTime = text.parse().map_err(|_| not_a_date())?;
    let ambiguous = zone.to_ambiguous_timestamp(civil);
    let offset = ambiguous.offset();
    if let AmbiguousOffset::Gap { .. } = offset {
        let name = zone.iana_name().unwrap_or("the local time zone");
        let after = zone.to_zoned(civil).map(|z| z.strftime("%Y-%m-%d %H:%M").to_string());
        return Err(Problem::new(
            Class::BadValue,
            format!("{} does not exist in {name}: the clocks go forward then", Quoted(text)),
        )
        .expected("a time that the clock shows")
        .maybe_hint(after.ok().map(|after| format!("write \"{after}\""))));
    }
    let fold = matches!(offset, AmbiguousOffset::Fold { .. });
    // Of two moments the earlier one is the safe promise.
    Ok(Some((ambiguous.earlier().map_err(|_| not_a_date())?, fold)))
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use super::*;

    /// 2026-11-15 04:00 UTC.
    const NOW: i64 = 1_794_715_200_000;

    fn zone() -> TimeZone {
        // Berlin's rules written out, so that the test needs no time zone files.
        TimeZone::posix("CET-1CEST,M3.5.0,M10.5.0/3").unwrap()
    }

    fn left(text: &str) -> Span {
        deadline(text, NOW, &zone()).unwrap().0
    }

    #[test]
    fn dates_are_local_and_a_bare_date_means_the_end_of_its_day() {
        assert_eq!(left("36h"), Span::hours(36));
        assert_eq!(left("2026-11-15 06:00"), Span::hours(1));
        assert_eq!(left("2026-11-15T06:00"), Span::hours(1));
        assert_eq!(left("2026-11-15"), Span::hours(19));
        assert_eq!(left("2026-11-15T06:00:00Z"), Span::hours(2));
        assert_eq!(left("2026-11-15T06:00:00-05:00"), Span::hours(7));
    }

    #[test]
    fn a_time_that_the_clocks_skip_is_an_error_and_one_they_repeat_is_the_first() {
        let skipped = deadline("2027-03-28 02:30", NOW, &zone()).unwrap_err();
        assert_eq!(skipped.hint.unwrap(), "write \"2027-03-28 03:30\"");
        let (_, note) = deadline("2027-10-31 02:30", NOW, &zone()).unwrap();
        assert!(note.unwrap().contains("comes twice"));
    }

    #[test]
    fn the_past_the_far_future_and_nonsense_are_errors() {
        for wrong in [
            "2026-11-14",
            "2050-01-01",
            "2026-13-01",
            "2026-02-30",
            "2026/11/20",
            "20.11.2026",
            "tomorrow",
            "9999-12-31",
            "2026-11-20 25:00",
            "2026-11-20[Europe/Berlin]",
            "2026-\u{e9}\u{e9}\u{e9}",
        ] {
            assert!(deadline(wrong, NOW, &zone()).is_err(), "{wrong}");
        }
    }
}
