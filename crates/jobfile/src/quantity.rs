//! Numbers with units as people write them: `36h`, `4.2GB`, `$20`, `3.1/s`, `A100:8`. Read exactly, as
//! decimals, never through floats; what is not understood says how to write it.

use super::error::{Class, Problem, Quoted};
use windfall_catalog::plan::LONGEST_HOURS;
use windfall_core::nearest::nearest;
use windfall_core::pool::DevicePart;
use windfall_core::spec::Ask;
use windfall_core::{NanoUsd, Rate, Span};

const NANO: i128 = 1_000_000_000;
/// Longer than any plan for a job; beyond it a number is a mistake.
pub(super) const LONGEST: Span = Span::hours(24 * 3_650);
const MOST_DOLLARS: i128 = 1_000_000_000;

fn bad(text: &str, why: &str) -> Problem {
    Problem::new(Class::BadValue, format!("{} {why}", Quoted(text)))
}

/// A decimal number, `40`, `2.5`, `7e9`, in billionths; digits beyond that are dropped.
pub(super) fn decimal(text: &str) -> Result<i128, Problem> {
    let number = text.trim();
    let lower = number.to_ascii_lowercase();
    if matches!(lower.trim_start_matches(['+', '-']).trim_start_matches('.'), "nan" | "inf" | "infinity") {
        return Err(bad(text, "is not a number that can be counted with"));
    }
    let (mantissa, exponent) = match lower.split_once('e') {
        Some((mantissa, exponent)) => (mantissa, Some(exponent)),
        None => (lower.as_str(), None),
    };
    let (negative, digits) = match mantissa.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, mantissa.strip_prefix('+').unwrap_or(mantissa)),
    };
    let (whole, part) = digits.split_once('.').unwrap_or((digits, ""));
    let all_digits = |s: &str| s.bytes().all(|b| b.is_ascii_digit());
    let exponent_digits = exponent.map(|e| e.strip_prefix(['+', '-']).unwrap_or(e));
    if whole.is_empty() && part.is_empty()
        || !all_digits(whole)
        || !all_digits(part)
        || exponent_digits.is_some_and(|e| e.is_empty() || !all_digits(e))
    {
        let squeezed: String = number.chars().filter(|c| !matches!(c, ',' | '_' | ' ' | '\'')).collect();
        let plain = !squeezed.is_empty() && squeezed != number && all_digits(&squeezed);
        return Err(bad(text, "is not a number").maybe_hint(plain.then(|| format!("write {squeezed}"))));
    }
    if negative {
        return Err(bad(text, "is negative").hint("remove the minus sign"));
    }
    let mut value: i128 = 0;
    let too_large = || bad(text, "is too large").hint("check the number of zeros, and the exponent");
    for digit in whole.bytes().chain(part.bytes().take(24)) {
        let digit = i128::from(digit - b'0');
        value = value.checked_mul(10).and_then(|v| v.checked_add(digit)).ok_or_else(too_large)?;
    }
    let shift = match exponent.map(str::parse::<i64>) {
        None => 0,
        Some(Ok(exponent)) if exponent.abs() <= 1_000 => exponent,
        Some(_) if exponent.is_some_and(|e| e.starts_with('-')) => -1_000,
        Some(_) => 1_000,
    } + 9
        - part.len().min(24) as i64;
    for _ in 0..shift.unsigned_abs() {
        if value == 0 {
            break;
        }
        value = if shift < 0 { value / 10 } else { value.checked_mul(10).ok_or_else(too_large)? };
    }
    Ok(value)
}

const THOUSANDS: &[(&str, i128)] = &[("K", 1_000), ("M", 1_000_000), ("B", 1_000_000_000), ("T", 1_000_000_000_000)];

/// A whole number within bounds: `40000`, `7e9`; where large ones are usual also `7B`.
pub(super) fn count(text: &str, least: u64, most: u64) -> Result<u64, Problem> {
    let range = || format!("a whole number from {least} to {most}");
    // Of models and tokens people say 7B and 30T.
    let (number, times) = match text.trim().split_at_checked(text.trim().len().saturating_sub(1)) {
        Some((number, letter)) if most > 1_000_000 && !number.ends_with(|c: char| c.is_ascii_alphabetic()) => THOUSANDS
            .iter()
            .find(|(name, _)| name.eq_ignore_ascii_case(letter))
            .map_or((text, 1), |(_, times)| (number, *times)),
        _ => (text, 1),
    };
    let nano = decimal(number).map_err(|p| p.expected(range()))?.saturating_mul(times);
    if nano % NANO != 0 {
        return Err(bad(text, "is not a whole number").expected(range()));
    }
    match u64::try_from(nano / NANO) {
        Ok(value) if value < least => Err(bad(text, "is too small").expected(range())),
        Ok(value) if value <= most => Ok(value),
        _ => Err(bad(text, "is too large").expected(range())),
    }
}

/// 1 for true, 0 for false.
pub(super) fn flag(text: &str) -> Result<u64, Problem> {
    match text {
        "true" | "yes" => Ok(1),
        "false" | "no" => Ok(0),
        _ => Err(Problem::new(Class::BadValue, format!("{} is neither true nor false", Quoted(text)))
            .expected("true or false")),
    }
}

/// Cloud and region.
pub(super) fn site(text: &str) -> Result<String, Problem> {
    match text.split_once('/') {
        Some((cloud, region)) if !cloud.is_empty() && !region.trim().is_empty() => Ok(text.to_owned()),
        _ => Err(Problem::new(Class::BadValue, format!("{} is not a place", Quoted(text)))
            .expected("cloud/region, such as aws/us-east-1")),
    }
}

/// Two whole numbers, the smaller one first.
pub(super) fn from_to(text: &str, least: u64, most: u64) -> Result<(u64, u64), Problem> {
    let expected = || format!("two numbers from {least} to {most}, such as 2..4");
    let Some((from, to)) = text.split_once("..") else {
        return Err(bad(text, "is not two numbers with .. between them").expected(expected()));
    };
    let number = |text: &str| count(text, least, most).map_err(|problem| problem.expected(expected()));
    let (from, to) = (number(from)?, number(to)?);
    if from > to {
        let hint = format!("did you mean {to}..{from}?");
        return Err(bad(text, "begins with the larger number").expected(expected()).hint(hint));
    }
    Ok((from, to))
}

/// A share in percent, as thousandths.
pub(super) fn permille(text: &str) -> Result<u64, Problem> {
    let expected = "a share from 0% to 100%, such as 5%";
    let Some(number) = text.trim().strip_suffix('%') else {
        return Err(bad(text, "has no %").expected(expected));
    };
    // `decimal` counts in thousand-millionths.
    let permille = decimal(number.trim()).map_err(|p| p.expected(expected))? / 100_000_000;
    u64::try_from(permille)
        .ok()
        .filter(|permille| *permille <= 1_000)
        .ok_or_else(|| bad(text, "is no share").expected(expected))
}

/// Hours as a number.
pub(super) fn hours(text: &str) -> Result<Span, Problem> {
    let expected = "a number of hours above 0, such as 40 or 2.5";
    if let Some(number) = text.trim().strip_suffix('h')
        && decimal(number).is_ok()
    {
        return Err(bad(text, "has a unit, and hours need none").expected(expected).hint(format!("write {number}")));
    }
    let ms = decimal(text).map_err(|p| p.expected(expected))?.saturating_mul(3_600) / 1_000_000;
    match i64::try_from(ms) {
        Ok(ms) if ms < 1 => Err(bad(text, "is too short").expected(expected)),
        Ok(ms) if ms as f64 <= LONGEST_HOURS * 3.6e6 => Ok(Span(ms)),
        _ => {
            Err(bad(text, "is too long").expected(expected).hint(format!("at most {LONGEST_HOURS} hours are accepted")))
        }
    }
}

fn span(text: &str, ms: i128, least: Span) -> Result<Span, Problem> {
    match i64::try_from(ms) {
        Ok(ms) if ms < least.0 => Err(bad(text, "is too short")),
        Ok(ms) if ms <= LONGEST.0 => Ok(Span(ms)),
        _ => Err(bad(text, "is too long").hint("at most 10 years (3650d) are accepted")),
    }
}

const TIME_UNITS: &[(&str, i128)] =
    &[("ms", 1), ("s", 1_000), ("m", 60_000), ("h", 3_600_000), ("d", 86_400_000), ("w", 604_800_000)];

/// What people write instead of the units, so that a hint can say it right.
const TIME_WORDS: &[(&str, &str)] = &[
    ("milliseconds", "ms"),
    ("msecs", "ms"),
    ("seconds", "s"),
    ("secs", "s"),
    ("sec", "s"),
    ("minutes", "m"),
    ("mins", "m"),
    ("min", "m"),
    ("hours", "h"),
    ("hrs", "h"),
    ("hr", "h"),
    ("days", "d"),
    ("day", "d"),
    ("weeks", "w"),
    ("week", "w"),
];

/// A length of time: `36h`, `90m`, `2d12h`, `1.5h`, `2d 12h`.
pub(super) fn duration(text: &str, least: Span) -> Result<Span, Problem> {
    const EXPECTED: &str = "a length of time, such as 90s, 10m, 36h or 2d12h";
    let problem = |why: &str| bad(text, why).expected(EXPECTED);
    let pieces = pieces(text).ok_or_else(|| problem("is not a length of time"))?;
    let mut total: i128 = 0;
    let mut right = String::new();
    let mut wrong = None;
    let mut seen: Vec<i128> = Vec::new();
    for (number, unit) in pieces {
        let known = TIME_UNITS.iter().find(|(name, _)| *name == unit);
        let Some((name, ms)) = known.or_else(|| meant(unit)) else {
            let hint = if unit.is_empty() {
                format!("say the unit: {number}s, {number}m, {number}h or {number}d")
            } else {
                "the units are ms, s, m, h, d and w".to_owned()
            };
            let why = if unit.is_empty() {
                "has no unit".to_owned()
            } else {
                format!("has an unknown unit: {}", Quoted(unit))
            };
            return Err(problem(&why).hint(hint));
        };
        if known.is_none() {
            wrong = Some(unit);
        }
        if seen.iter().any(|larger| larger <= ms) {
            return Err(problem("does not go from larger to smaller units").hint("write the days first: 2d12h"));
        }
        seen.push(*ms);
        right.push_str(&format!("{number}{name}"));
        let nano = decimal(number).map_err(|p| p.expected(EXPECTED))?;
        total = total.saturating_add(nano.saturating_mul(*ms) / NANO);
    }
    if let Some(unit) = wrong {
        let why = format!("has an unknown unit: {}", Quoted(unit));
        return Err(problem(&why).hint(format!("write {right}")));
    }
    span(text, total, least).map_err(|p| p.expected(EXPECTED))
}

fn meant(unit: &str) -> Option<&'static (&'static str, i128)> {
    let word = nearest(unit, TIME_WORDS.iter().map(|(word, _)| *word))?;
    let (_, right) = TIME_WORDS.iter().find(|(known, _)| *known == word)?;
    TIME_UNITS.iter().find(|(name, _)| name == right)
}

/// Numbers with what follows each of them; none when the text does not begin with a digit.
fn pieces(text: &str) -> Option<Vec<(&str, &str)>> {
    let mut rest = text.trim();
    let mut found = Vec::new();
    while !rest.is_empty() {
        let number_end = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        let (number, after) = rest.split_at(number_end);
        if number.is_empty() || found.len() == TIME_UNITS.len() {
            return None;
        }
        let unit_end = after.find(|c: char| c.is_ascii_digit()).unwrap_or(after.len());
        let (unit, next) = after.split_at(unit_end);
        found.push((number, unit.trim()));
        rest = next;
    }
    (!found.is_empty()).then_some(found)
}

const SIZE_UNITS: &[(&str, i128)] = &[
    ("B", 1),
    ("KB", 1_000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
    ("TB", 1_000_000_000_000),
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
    ("TiB", 1 << 40),
];

/// An amount of data: `4.2GB`, `512MiB`.
pub(super) fn size(text: &str) -> Result<u64, Problem> {
    const EXPECTED: &str = "an amount of data, such as 4.2GB or 512MiB";
    const MOST: i128 = 1_000_000_000_000_000_000;
    let problem = |why: &str| bad(text, why).expected(EXPECTED);
    let text_end = text.trim_end();
    let split = text_end.rfind(|c: char| !c.is_ascii_alphabetic()).map_or(0, |at| at + char_len(text_end, at));
    let (number, unit) = text_end.split_at(split);
    let nano = decimal(number).map_err(|p| p.expected(EXPECTED))?;
    let Some((_, bytes)) = SIZE_UNITS.iter().find(|(name, _)| *name == unit) else {
        let number = number.trim();
        if unit.is_empty() {
            return Err(problem("has no unit").hint(format!("say the unit: {number}GB or {number}MB")));
        }
        let meant = SIZE_UNITS.iter().find(|(name, _)| {
            name.eq_ignore_ascii_case(unit)
                || name.strip_suffix('B').is_some_and(|short| short.eq_ignore_ascii_case(unit))
        });
        let hint = meant.map(|(name, _)| format!("write {number}{name}"));
        let hint = hint.unwrap_or_else(|| "the units are B, KB, MB, GB, TB and KiB, MiB, GiB, TiB".to_owned());
        return Err(problem(&format!("has an unknown unit: {}", Quoted(unit))).hint(hint));
    };
    match nano.checked_mul(*bytes).map(|b| b / NANO) {
        Some(bytes) if bytes < 1 => Err(problem("is too small")),
        Some(bytes) if bytes <= MOST => Ok(bytes as u64),
        _ => Err(problem("is too large").hint("at most 1,000,000TB are accepted")),
    }
}

fn char_len(text: &str, at: usize) -> usize {
    text[at..].chars().next().map_or(1, char::len_utf8)
}

/// Dollars: `900`, `20.0`, `$20`, `20 USD`.
pub(super) fn dollars(text: &str) -> Result<NanoUsd, Problem> {
    const EXPECTED: &str = "an amount in dollars above 0, such as 20 or 3.50";
    let trimmed = text.trim();
    let number = trimmed.strip_prefix('$').unwrap_or(trimmed);
    let number = number.strip_suffix("USD").map_or(number, str::trim_end);
    let nano = decimal(number).map_err(|problem| {
        let digits: String = trimmed.chars().filter(|c| c.is_ascii_digit() || *c == '.').collect();
        let hint = (decimal(&digits).is_ok() && problem.hint.is_none())
            .then(|| format!("only dollars are understood; write the amount in dollars, without a unit: {digits}"));
        let currency = trimmed.contains(['€', '£', '¥', '₹'])
            || ["EUR", "GBP", "CHF", "JPY", "CNY", "INR"].iter().any(|code| trimmed.to_uppercase().contains(code));
        if currency {
            let why = "is in another currency: only dollars are understood";
            return bad(text, why).expected(EXPECTED).hint("convert it to dollars and write the number alone");
        }
        bad(text, "is not an amount in dollars").expected(EXPECTED).maybe_hint(problem.hint).maybe_hint(hint)
    })?;
    match nano {
        0 => Err(bad(text, "is not above 0").expected(EXPECTED)),
        nano if nano <= MOST_DOLLARS * NANO => Ok(NanoUsd(nano as i64)),
        _ => Err(bad(text, "is too large").expected("at most 1,000,000,000 dollars")),
    }
}

/// A speed: `3.1/s`, `120/min`, `4000/h`.
pub(super) fn rate(text: &str) -> Result<Rate, Problem> {
    const EXPECTED: &str = "steps in a second, minute or hour, such as 3.1/s, 90/min or 4000/h";
    let problem = |why: &str| bad(text, why).expected(EXPECTED);
    let Some((number, unit)) = text.trim().split_once('/') else {
        let hint = decimal(text).is_ok().then(|| format!("say per what: {}/s", text.trim()));
        return Err(problem("is not a speed").maybe_hint(hint));
    };
    let per_ms: i128 = match unit.trim() {
        "s" => 1_000,
        "min" | "m" => 60_000,
        "h" => 3_600_000,
        other => {
            let known = nearest(other, ["s", "second", "sec", "min", "minute", "h", "hour"]);
            let hint = match known.and_then(|word| word.chars().next()) {
                Some('s') => format!("write {number}/s"),
                Some('m') => format!("write {number}/min"),
                Some(_) => format!("write {number}/h"),
                None => "the units are /s, /min and /h".to_owned(),
            };
            return Err(problem(&format!("has an unknown unit: {}", Quoted(other))).hint(hint));
        }
    };
    let nano = decimal(number).map_err(|p| p.expected(EXPECTED))?;
    // Work in a thousand million seconds: a million million milliseconds.
    let rate = nano.checked_mul(1_000_000_000_000).map(|n| n / per_ms / NANO);
    match rate {
        Some(rate) if rate < 1 => Err(problem("is too slow").hint("at least one step in 30 years is needed")),
        Some(rate) if rate <= 10_000_000_000_000_000_000 => Ok(Rate(rate as u64)),
        _ => Err(problem("is too fast").hint("at most 1e10/s are accepted")),
    }
}

/// Accelerators of one worker: `A100:8`, `A100:1/2` or `A100:0.5`; one when no number is given.
pub(super) fn accelerators(text: &str) -> Result<Ask, Problem> {
    const EXPECTED: &str = "an accelerator and how many, such as A100:8";
    let problem = |why: &str| bad(text, why).expected(EXPECTED);
    if text.contains(',') {
        return Err(problem("has a comma").hint(format!("write alternatives as a list: [{}]", text.trim())));
    }
    let (name, number) = text.split_once(':').unwrap_or((text, "1"));
    let (name, number) = (name.trim(), number.trim());
    let word = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    if name.is_empty() || name.len() > 64 || !name.chars().all(word) {
        return Err(problem("is not an accelerator"));
    }
    if name.bytes().all(|b| b.is_ascii_digit()) {
        return Err(problem("does not name an accelerator").hint("name first, number second: A100:8"));
    }
    if let Some(part) = share(number) {
        let part = part.ok_or_else(|| {
            let most = DevicePart::MOST_PARTS;
            problem("is not a share of one accelerator")
                .hint(format!("more than nothing, less than one, in at most {most} parts: A100:1/3"))
        })?;
        return Ok(Ask { part, ..Ask::of(name, 1) });
    }
    let count = count(number, 1, 1_024).map_err(|p| p.maybe_hint(Some("write it as A100:8".to_owned())))?;
    Ok(Ask::of(name, count as u32))
}

/// A share of one accelerator, written as `1/2` or `0.5`; none for anything else, and nothing for a share that cannot be
/// given.
fn share(text: &str) -> Option<Option<DevicePart>> {
    let (part, of): (i128, i128) = match text.split_once('/') {
        Some((part, of)) => (part.trim().parse::<u32>().ok()?.into(), of.trim().parse::<u32>().ok()?.into()),
        None => (decimal(text).ok().filter(|nano| (1..NANO).contains(nano))?, NANO),
    };
    // In its lowest terms.
    let given = (2..=i128::from(DevicePart::MOST_PARTS)).find(|parts| of > 0 && part * parts % of == 0);
    let share = given.map(|parts| DevicePart::Share { part: (part * parts / of) as u32, of: parts as u32 });
    Some(share.filter(|_| 0 < part && part < of))
}

/// `200`, `200+`, `200GB+`: at least so much.
pub(super) fn at_least(text: &str, unit: &str) -> Result<f64, Problem> {
    let number = text.trim();
    let number = number.strip_suffix('+').unwrap_or(number);
    let number = if unit.is_empty() { number } else { number.strip_suffix(unit).unwrap_or(number) };
    let expected = format!("a number above 0, such as 16{unit} or 16{unit}+");
    match decimal(number) {
        Ok(nano) if nano > 0 => Ok(nano as f64 / NANO as f64),
        Ok(_) => Err(bad(text, "is not above 0").expected(expected)),
        Err(problem) => Err(problem.expected(expected)),
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_exactly() {
        assert_eq!(decimal("7e9").unwrap(), 7_000_000_000 * NANO);
        assert_eq!(decimal("0.1").unwrap(), 100_000_000);
        assert_eq!(decimal("1e-9").unwrap(), 1);
        assert_eq!(decimal("0e999999999999999999999").unwrap(), 0);
        assert_eq!(count("7B", 1, u64::MAX / 2).unwrap(), 7_000_000_000);
        assert_eq!(count("7b", 1, u64::MAX / 2).unwrap(), 7_000_000_000);
        assert_eq!(count("1.5K", 1, u64::MAX / 2).unwrap(), 1_500);
        for wrong in ["7KB", "B", "7x", "1e308", "20000000000T"] {
            assert!(count(wrong, 1, u64::MAX / 2).is_err(), "{wrong}");
        }
        assert!(count("2K", 1, 4_096).is_err(), "nobody has 2K nodes");
        for wrong in ["1e400", ".nan", "-1", "", ".", "1e", "0x10", "1e99999999999999999999", "१", "٣"] {
            assert!(decimal(wrong).is_err(), "{wrong}");
        }
        assert_eq!(decimal("40,000").unwrap_err().hint.unwrap(), "write 40000");
    }

    #[test]
    fn lengths_of_time_are_read_and_wrong_units_are_put_right() {
        assert_eq!(duration("2d12h", Span(1)).unwrap(), Span::hours(60));
        assert_eq!(duration("1.5h", Span(1)).unwrap(), Span::minutes(90));
        assert_eq!(duration("500ms", Span(1)).unwrap(), Span(500));
        let hint = |text| duration(text, Span(1)).unwrap_err().hint.unwrap_or_default();
        assert_eq!(hint("36hours"), "write 36h");
        assert_eq!(hint("2 dyas"), "write 2d");
        assert_eq!(hint("36"), "say the unit: 36s, 36m, 36h or 36d");
        for wrong in ["", "h", "0h", "12h2d", "1h1h", "999999999999d", "1..5h", "-3h", "3h-"] {
            assert!(duration(wrong, Span(1)).is_err(), "{wrong}");
        }
    }

    #[test]
    fn sizes_prices_and_speeds_are_read() {
        assert_eq!(size("4.2GB").unwrap(), 4_200_000_000);
        assert_eq!(size("1 MiB").unwrap(), 1 << 20);
        assert_eq!(size("4g").unwrap_err().hint.unwrap(), "write 4GB");
        assert_eq!(dollars("$0.10").unwrap(), NanoUsd(100_000_000));
        assert_eq!(dollars("20 USD").unwrap(), NanoUsd(20_000_000_000));
        assert!(dollars("€20").unwrap_err().message.contains("only dollars"));
        assert_eq!(rate("3.1/s").unwrap(), Rate(3_100_000_000));
        assert_eq!(rate("90/min").unwrap(), Rate(1_500_000_000));
        for (text, hours) in [("7/h", 1_000.0 / 7.0), ("1/h", 1_000.0), ("3/h", 1_000.0 / 3.0), ("0.0019/s", 146.2)] {
            let takes = rate(text).unwrap().time_for(windfall_core::Work(1_000)).0 as f64 / 3.6e6;
            assert!((takes / hours - 1.0).abs() < 1e-3, "{text}: {takes}");
        }
        assert!(rate("0/s").is_err() && rate("2e10/s").is_err());
        assert_eq!(accelerators("A100:8").unwrap(), Ask::of("A100", 8));
        for (text, part, of) in [("A100:0.5", 1, 2), ("A100:1/2", 1, 2), ("V100: 6/8", 3, 4), ("T4:0.35", 7, 20)] {
            let ask = accelerators(text).unwrap();
            assert_eq!((ask.count, ask.part), (1, DevicePart::Share { part, of }), "{text}");
        }
        for wrong in ["A100:1/21", "A100:0.33", "A100:0", "A100:0.0", "A100:3/2", "A100:1/0", "A100:2/2", "A100:-1/2"] {
            assert!(accelerators(wrong).is_err(), "{wrong}");
        }
        assert_eq!(accelerators("H100").unwrap().count, 1);
        assert!(accelerators("8:A100").is_err());
    }
}
