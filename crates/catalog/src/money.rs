//! Prices as the providers write them, read exactly: decimal digits to nano-dollars without a detour over
//! binary fractions. What is empty or zero is unknown; what is negative, not a number or absurd is an error.

use windfall_core::NanoUsd;

/// No single offer costs more than this an hour; the dearest real one is a TPU pod at some $30,000.
const ABSURD_USD: u64 = 1_000_000;

/// Why a text is not a price.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadPrice {
    /// Not a decimal number.
    #[error("`{0}` is not a price")]
    NotANumber(String),
    /// Below zero.
    #[error("`{0}` is a negative price")]
    Negative(String),
    /// More than anything costs.
    #[error("`{0}` is an absurd price: more than a million dollars")]
    Absurd(String),
    /// Not dollars.
    #[error("the currency is {0}; only USD is understood")]
    Currency(String),
}

/// Reads a price; none when the text is empty or zero, which the sources write for "unknown".
pub fn price(text: &str) -> Result<Option<NanoUsd>, BadPrice> {
    let text = text.trim();
    if text.is_empty() {
        return Ok(None);
    }
    let nano = decimal(text)?;
    Ok((nano > 0).then_some(NanoUsd(nano)))
}

/// Reads a sum of money that is paid over a whole term: up to a billion dollars.
pub fn sum(text: &str) -> Result<Option<NanoUsd>, BadPrice> {
    let text = text.trim();
    let nano = bounded(text, ABSURD_USD * 1_000)?;
    Ok((nano > 0).then_some(NanoUsd(nano)))
}

/// Fails for another currency than dollars.
pub fn dollars(currency: &str) -> Result<(), BadPrice> {
    if currency == "USD" { Ok(()) } else { Err(BadPrice::Currency(currency.to_owned())) }
}

fn decimal(text: &str) -> Result<i64, BadPrice> {
    bounded(text, ABSURD_USD)
}

fn bounded(text: &str, most_usd: u64) -> Result<i64, BadPrice> {
    let not_a_number = || BadPrice::NotANumber(text.to_owned());
    let (mantissa, exponent) = match text.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, exponent.parse::<i32>().map_err(|_| not_a_number())?),
        None => (text, 0),
    };
    let (negative, digits) = match mantissa.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, mantissa.strip_prefix('+').unwrap_or(mantissa)),
    };
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let all_digits = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
    if (whole.is_empty() && fraction.is_empty()) || !all_digits(whole) || !all_digits(fraction) {
        return Err(not_a_number());
    }
    let nano = scaled(whole, fraction, exponent).ok_or_else(|| BadPrice::Absurd(text.to_owned()))?;
    match i64::try_from(nano) {
        _ if negative && nano > 0 => Err(BadPrice::Negative(text.to_owned())),
        Ok(nano) if nano as u64 <= most_usd * 1_000_000_000 => Ok(nano),
        _ => Err(BadPrice::Absurd(text.to_owned())),
    }
}

/// `whole.fraction × 10^exponent` dollars in nano-dollars, rounded half up; none when it is beyond all bounds.
fn scaled(whole: &str, fraction: &str, exponent: i32) -> Option<u128> {
    // Thirty digits hold any price; what follows cannot be seen.
    let digits: String = whole.chars().chain(fraction.chars()).take(30).collect();
    let taken = digits.len() as i32;
    let value: u128 = digits.parse().ok()?;
    if value == 0 {
        return Some(0);
    }
    let shift = whole.len() as i32 - taken + exponent + 9;
    if shift >= 0 {
        value.checked_mul(10u128.checked_pow(shift as u32)?)
    } else {
        let divisor = 10u128.checked_pow(shift.unsigned_abs());
        Some(divisor.map_or(0, |divisor| (value + divisor / 2) / divisor))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decimals_are_read_to_the_nano_dollar() {
        assert_eq!(price("0.70683"), Ok(Some(NanoUsd(706_830_000))));
        assert_eq!(price("88.4899999025753"), Ok(Some(NanoUsd(88_489_999_903))));
        assert_eq!(price(" 98.32 "), Ok(Some(NanoUsd(98_320_000_000))));
        assert_eq!(price("1e-05"), Ok(Some(NanoUsd(10_000))));
        assert_eq!(price("29362.176"), Ok(Some(NanoUsd(29_362_176_000_000))));
    }

    #[test]
    fn nothing_and_zero_are_unknown() {
        assert_eq!(price(""), Ok(None));
        assert_eq!(price("0.00"), Ok(None));
        assert_eq!(price("0"), Ok(None));
    }

    #[test]
    fn what_cannot_be_a_price_is_an_error() {
        assert!(matches!(price("-1.5"), Err(BadPrice::Negative(_))));
        assert!(matches!(price("NaN"), Err(BadPrice::NotANumber(_))));
        assert!(matches!(price("inf"), Err(BadPrice::NotANumber(_))));
        assert!(matches!(price("1.2.3"), Err(BadPrice::NotANumber(_))));
        assert!(matches!(price("1e300"), Err(BadPrice::Absurd(_))));
        assert!(matches!(price("1000000.01"), Err(BadPrice::Absurd(_))));
        assert!(matches!(dollars("EUR"), Err(BadPrice::Currency(_))));
    }
}
