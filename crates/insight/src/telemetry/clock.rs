//! Dates and times of logs, which name no zone: seconds that may be subtracted from each other.

/// `2026/11/15 00:07:57.942`, `2026-11-15T00:07:57`, `20261115 00:07:57`.
pub fn date_time(text: &str) -> Option<f64> {
    let (date, time) = text.trim().split_once([' ', 'T'])?;
    Some(day(date)? * 86_400.0 + time_of_day(time)?)
}

/// `00:07:57.942`.
pub fn time_of_day(text: &str) -> Option<f64> {
    let mut parts = text.trim().trim_end_matches('Z').splitn(3, ':');
    let (hour, minute, second) = (number(parts.next()?)?, number(parts.next()?)?, parts.next()?);
    let second: f64 = second.parse().ok().filter(|second| (0.0..61.0).contains(second))?;
    (hour < 24 && minute < 60).then(|| f64::from(hour) * 3_600.0 + f64::from(minute) * 60.0 + second)
}

fn day(text: &str) -> Option<f64> {
    let parts: Vec<&str> = text.split(['/', '-']).collect();
    let (year, month, day) = match parts.as_slice() {
        [year, month, day] => (*year, *month, *day),
        [all] if all.len() == 8 && all.is_ascii() => (&all[..4], &all[4..6], &all[6..]),
        _ => return None,
    };
    let (year, month, day) = (number(year)?, number(month)?, number(day)?);
    if !(1970..10_000).contains(&year) || !(1..=12).contains(&month) || !(1..=31).contains(&day) {
        return None;
    }
    // Days of the proleptic Gregorian calendar, counted from a March so that leap days come last.
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    Some(f64::from(365 * year + year / 4 - year / 100 + year / 400 + (153 * month + 2) / 5 + day - 1))
}

fn number(text: &str) -> Option<u32> {
    (text.len() <= 4 && text.bytes().all(|byte| byte.is_ascii_digit())).then(|| text.parse().ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_in_all_spellings_are_one_clock() {
        let at = |text: &str| date_time(text).unwrap_or_else(|| panic!("{text}"));
        assert_eq!(at("2026/11/15 00:07:57.5") - at("2026-11-14T23:59:57"), 480.5);
        assert_eq!(at("20261115 00:00:01"), at("2026/11/15 00:00:01"));
        assert_eq!(at("2024/03/01 00:00:00") - at("2024/02/28 00:00:00"), 2.0 * 86_400.0);
        for bad in ["", "2026/11/15", "2026/13/15 00:00:00", "x/y/z 1:2:3", "2026/11/15 25:00:00", "2026/11/15 1:2"] {
            assert_eq!(date_time(bad), None, "{bad}");
        }
    }
}
