//! A price over time in a few characters.

use windfall_catalog::History;

const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// Days that a sparkline covers.
const DAYS: u32 = 364;

/// The last year of a history in `points` bars, from its lowest to its highest price; a gap where it was not sold.
pub fn sparkline(history: &History, until_day: u32, points: u32) -> Option<String> {
    let from = until_day.saturating_sub(DAYS);
    let at = |day: u32| {
        let last = history.iter().take_while(|(from, _)| *from <= day).last();
        last.and_then(|(_, price)| *price).map(|price| price.0)
    };
    let prices: Vec<Option<i64>> = (1..=points).map(|point| at(from + DAYS * point / points)).collect();
    let known = prices.iter().flatten();
    let (least, most) = (*known.clone().min()?, *known.max()?);
    let bar = |price: &Option<i64>| match price {
        None => ' ',
        Some(_) if most == least => BARS[3],
        Some(price) => BARS[((price - least) * 7 / (most - least)).clamp(0, 7) as usize],
    };
    Some(prices.iter().map(bar).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use windfall_core::NanoUsd;

    #[test]
    fn the_line_shows_the_rise_and_the_gap() {
        let history = vec![(0, Some(NanoUsd(10))), (91, Some(NanoUsd(20))), (182, None), (273, Some(NanoUsd(80)))];
        assert_eq!(sparkline(&history, 364, 4).as_deref(), Some("▁ ██"));
        assert_eq!(sparkline(&vec![(0, Some(NanoUsd(10)))], 364, 3).as_deref(), Some("▄▄▄"));
        assert_eq!(sparkline(&vec![], 364, 3), None);
    }
}
