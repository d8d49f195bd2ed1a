//! The least that one who knew the market beforehand would have paid: an exact dynamic program over
//! (time, work left, what is held) on a grid, under the same rules as everyone: a changeover is paid for
//! and brings no progress, and spot can be held only while the market has it.

use crate::tape::Tape;
use std::collections::VecDeque;
use windfall_core::{NanoUsd, Span};

/// What was to be done.
#[derive(Clone, Copy, Debug)]
pub struct Errand {
    /// Where on the tape it began.
    pub from: Span,
    /// Time from there to the deadline.
    pub deadline: Span,
    /// Running time it needs.
    pub work: Span,
    /// Changeover on every start.
    pub restart: Span,
    /// Instances held at once.
    pub gang: u32,
}

/// Cells of the grid in one dimension: fine enough for a minute in a day, small enough for milliseconds.
const CELLS: i64 = 720;
const NEVER: i64 = i64::MAX / 4;

/// The least cost; none when even on-demand from the start would be late.
pub fn omniscient(tape: &Tape, errand: &Errand) -> Option<NanoUsd> {
    let cell = Span((errand.deadline.0 / CELLS).max(1_000));
    let cells = usize::try_from(errand.deadline.0 / cell.0).ok()?;
    let up = |span: Span| usize::try_from((span.0 + cell.0 / 2).div_euclid(cell.0)).unwrap_or(0);
    let (work, restart) = (up(errand.work).max(1), up(errand.restart));
    let zones: Vec<&str> = tape.zones().collect();
    let modes = zones.len() + 1;
    // prices[t][m]: cost of one cell in mode m, or none where it cannot be had.
    let prices: Vec<Vec<Option<i64>>> = (0..cells)
        .map(|t| {
            let at = errand.from + Span(t as i64 * cell.0 + cell.0 / 2);
            let spot = zones.iter().map(|zone| {
                let quote = tape.quote(zone, at)?;
                (quote.capacity >= errand.gang).then_some(quote.price.for_span(cell).0)
            });
            spot.chain([Some(tape.on_demand.for_span(cell).0)]).collect()
        })
        .collect();
    // One layer per cell of time: the least cost from there on, by work left and by what is held (the last
    // mode is "nothing"). A changeover looks `restart + 1` cells ahead, so that many layers are kept.
    let width = modes + 1;
    let mut layers: VecDeque<Vec<i64>> = VecDeque::new();
    for t in (0..cells).rev() {
        let spans: Vec<[Option<i64>; 2]> =
            (0..modes).map(|mode| [stretch(&prices, t, 1, mode), stretch(&prices, t, restart + 1, mode)]).collect();
        // What is left after `ahead` cells, with `left` work to do in `mode`.
        let after = |ahead: usize, left: usize, mode: usize| match layers.get(ahead - 1) {
            _ if left == 0 => 0,
            Some(layer) => layer[left * width + mode],
            None => NEVER,
        };
        let mut here = vec![0; (work + 1) * width];
        for (place, least) in here.iter_mut().enumerate().skip(width) {
            let (left, holding) = (place / width, place % width);
            *least = after(1, left, modes);
            for (mode, [one, start]) in spans.iter().enumerate() {
                let (cost, ahead) = if mode == holding { (one, 1) } else { (start, restart + 1) };
                if let Some(cost) = cost {
                    *least = (*least).min(cost.saturating_add(after(ahead, left - 1, mode)));
                }
            }
        }
        layers.push_front(here);
        layers.truncate(restart + 1);
    }
    let least = layers.front()?[work * width + modes];
    (least < NEVER).then(|| NanoUsd(least.saturating_mul(i64::from(errand.gang))))
}

/// The price of `cells` cells in one mode; none when it cannot be had all the while, or time is over.
fn stretch(prices: &[Vec<Option<i64>>], from: usize, cells: usize, mode: usize) -> Option<i64> {
    prices.get(from..from + cells)?.iter().map(|row| row[mode]).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tape::embedded;

    fn tape() -> Tape {
        let tape = embedded("aws-v100-us-west-2-2023").expect("embedded");
        tape.with_zones(&["us-west-2c".to_owned()]).expect("zone")
    }

    fn errand(work: Span, deadline: Span) -> Errand {
        Errand { from: Span(8461 * 195_000), deadline, work, restart: Span::seconds(60), gang: 1 }
    }

    #[test]
    fn all_spot_when_the_first_spell_is_long_enough() {
        let cost = omniscient(&tape(), &errand(Span::minutes(20), Span::hours(1))).expect("feasible");
        let spot = NanoUsd::from_dollars(0.918).for_span(Span::minutes(21));
        assert!((cost.0 - spot.0).abs() < spot.0 / 50, "{cost} against {spot}");
    }

    #[test]
    fn a_tight_deadline_is_all_on_demand_and_an_impossible_one_is_none() {
        let wide = omniscient(&tape(), &errand(Span::minutes(80), Span::hours(2))).expect("feasible");
        let all = NanoUsd::from_dollars(3.06).for_span(Span::minutes(81));
        assert!(wide < all);
        assert_eq!(omniscient(&tape(), &errand(Span::minutes(80), Span::minutes(70))), None);
    }

    #[test]
    fn more_time_never_costs_more() {
        let costs: Vec<_> = [82, 90, 100, 120, 150]
            .iter()
            .filter_map(|minutes| omniscient(&tape(), &errand(Span::minutes(80), Span::minutes(*minutes))))
            .collect();
        assert!(costs.windows(2).all(|pair| pair[1].0 <= pair[0].0 + pair[0].0 / 50), "{costs:?}");
    }
}
