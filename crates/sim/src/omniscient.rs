//! The least that one who knew the market beforehand would have paid: an exact dynamic program over time,
//! slack and what is held, under the same rules as everyone. Slack is time left minus work left; a wait
//! uses a tick of it, a start a changeover, and nothing gives it back: so a table of slack used is enough.

use crate::course::{Course, Terms, Zone};
use crate::tape::Tape;
use windfall_core::{NanoUsd, Span};

/// A job that is looked at afterwards, on the tape of its market.
#[derive(Clone, Copy, Debug)]
pub struct TapeJob {
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

/// Ticks that a tape's window is cut into: fine enough for a minute in a day, small enough for milliseconds.
const CELLS: i64 = 720;
/// Steps of slack at most, where ticks and changeovers have no useful common measure: a changeover is then
/// rounded down, so that what comes out is still a lower bound.
const MOST_STEPS: i64 = 40_000;
const NEVER: i64 = i64::MAX / 4;

/// The least cost on a tape; none when even on-demand from the start would be late.
pub fn omniscient(tape: &Tape, job: &TapeJob) -> Option<NanoUsd> {
    let cell = Span((job.deadline.0 / CELLS).max(1_000));
    let cells = usize::try_from(job.deadline.0 / cell.0).ok()?;
    let zone = |name: &str| {
        let quotes = (0..cells).filter_map(|t| {
            // Read in the middle of a cell, so that a changeover of the tape near its edge is seen once.
            tape.quote(name, job.from + Span(t as i64 * cell.0 + cell.0 / 2))
        });
        let (up, price) = quotes.map(|quote| (quote.capacity >= job.gang, quote.price)).unzip();
        Zone { up, price, ..Zone::new(name, Vec::new(), NanoUsd(0)) }
    };
    let zones = tape.zones().map(zone).collect();
    let course = Course { tick: cell, zones, on_demand: tape.on_demand, gang: job.gang, egress: Vec::new() };
    // Only whole cells are paid, and the work rarely fills them: half a cell is as often won as lost.
    let round = |span: Span| Span((span.0 + cell.0 / 2).div_euclid(cell.0) * cell.0);
    let work = round(job.work).max(cell);
    least_cost(&course, &Terms { work, deadline: Span(cells as i64 * cell.0), restart: round(job.restart) })
}

/// The least cost of a course; none when even on-demand from the start would be late.
pub fn least_cost(course: &Course, terms: &Terms) -> Option<NanoUsd> {
    let table = Table::of(course, terms)?;
    let mut ahead = vec![vec![NEVER; table.steps + 1]; table.stands.len()];
    for row in &mut ahead {
        table.end(table.ticks, row);
    }
    for tick in (0..table.ticks).rev() {
        ahead = table.before(course, tick, &ahead);
    }
    let least = ahead[0][0];
    (least < NEVER).then_some(NanoUsd(least))
}

/// What is held, and the zone where the checkpoint lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct HeldAt {
    held: HeldMarket,
    home: Option<usize>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum HeldMarket {
    Nothing,
    Firm,
    Spot,
}

struct Table {
    terms: Terms,
    tick: Span,
    ticks: usize,
    /// Slack at the start, and how many steps it is cut into.
    slack: Span,
    unit: i64,
    steps: usize,
    wait: usize,
    start: usize,
    stands: Vec<HeldAt>,
}

impl Table {
    fn of(course: &Course, terms: &Terms) -> Option<Table> {
        let slack = terms.deadline - terms.work;
        if slack < terms.restart || course.tick.0 <= 0 {
            return None;
        }
        let common = gcd(course.tick.0, terms.restart.0.max(0));
        let unit = common.max(slack.0 / MOST_STEPS).max(1);
        let size = |value: i64| usize::try_from(value).ok();
        // Where nothing is paid for moving, it does not matter where the checkpoint lies.
        let homes: Vec<Option<usize>> = match course.egress.is_empty() {
            true => vec![None],
            false => [None].into_iter().chain((0..course.zones.len()).map(Some)).collect(),
        };
        let of = |held| homes.iter().map(move |home| HeldAt { held, home: *home });
        let spot = (0..course.zones.len()).map(|zone| HeldAt { held: HeldMarket::Spot, home: Some(zone) });
        Some(Table {
            terms: *terms,
            tick: course.tick,
            ticks: size((terms.deadline.0 + course.tick.0 - 1) / course.tick.0)?,
            slack,
            unit,
            steps: size(slack.0 / unit)?,
            wait: size(course.tick.0 / unit)?.max(1),
            start: size(terms.restart.0 / unit)?,
            stands: of(HeldMarket::Nothing).chain(of(HeldMarket::Firm)).chain(spot).collect(),
        })
    }

    /// Puts zero where the work is done by the beginning of a tick.
    fn end(&self, tick: usize, row: &mut [i64]) {
        let left = self.terms.deadline - Span(self.tick.0 * tick as i64);
        for (used, cost) in row.iter_mut().enumerate() {
            if left <= self.slack - Span(used as i64 * self.unit) {
                *cost = 0;
            }
        }
    }

    /// The row of a stand that is left from one with its home at `home`.
    fn row_at(&self, held: HeldMarket, home: Option<usize>) -> usize {
        let matches = |stand: &HeldAt| {
            stand.held == held
                && (stand.home == home || (held != HeldMarket::Spot && self.stands[1].held == HeldMarket::Firm))
        };
        self.stands.iter().position(matches).unwrap_or(0)
    }

    fn before(&self, course: &Course, tick: usize, ahead: &[Vec<i64>]) -> Vec<Vec<i64>> {
        let paid = |price: NanoUsd| {
            let whole = i128::from(price.0) * i128::from(course.gang) * i128::from(self.tick.0) / 3_600_000;
            i64::try_from(whole).unwrap_or(NEVER)
        };
        let spot: Vec<Option<i64>> =
            course.zones.iter().map(|zone| zone.is_up(tick).then(|| paid(zone.price_at(tick)))).collect();
        let firm = paid(course.on_demand);
        let homes = ahead.len() - course.zones.len();
        let row_of = |stand: &HeldAt| {
            let idle = &ahead[self.row_at(HeldMarket::Nothing, stand.home)];
            let on_firm = &ahead[self.row_at(HeldMarket::Firm, stand.home)];
            let mut row: Vec<i64> = (0..=self.steps)
                .map(|used| {
                    let wait = idle.get(used + self.wait).copied().unwrap_or(NEVER);
                    let begin = if stand.held == HeldMarket::Firm { used } else { used + self.start };
                    wait.min(on_firm.get(begin).map_or(NEVER, |cost| cost + firm))
                })
                .collect();
            for (zone, price) in spot.iter().enumerate().filter_map(|(zone, price)| Some((zone, (*price)?))) {
                let stays = stand.held == HeldMarket::Spot && stand.home == Some(zone);
                let shift = if stays { 0 } else { self.start };
                let price = price + if stays { 0 } else { course.egress(stand.home, zone).0 };
                let next = &ahead[homes + zone];
                for (least, cost) in row.iter_mut().zip(next.iter().skip(shift)) {
                    *least = (*least).min(cost + price);
                }
            }
            self.end(tick, &mut row);
            row
        };
        self.stands.iter().map(row_of).collect()
    }
}

fn gcd(a: i64, b: i64) -> i64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tape::embedded;

    fn tape() -> Tape {
        let tape = embedded("aws-v100-us-west-2-2023").expect("embedded");
        tape.with_zones(&["us-west-2c".to_owned()]).expect("zone")
    }

    fn job(work: Span, deadline: Span) -> TapeJob {
        TapeJob { from: Span(8461 * 195_000), deadline, work, restart: Span::seconds(60), gang: 1 }
    }

    #[test]
    fn all_spot_when_the_first_spell_is_long_enough() {
        let cost = omniscient(&tape(), &job(Span::minutes(20), Span::hours(1))).expect("feasible");
        let spot = NanoUsd::from_dollars(0.918).for_span(Span::minutes(21));
        assert!((cost.0 - spot.0).abs() < spot.0 / 50, "{cost} against {spot}");
    }

    #[test]
    fn a_tight_deadline_is_all_on_demand_and_an_impossible_one_is_none() {
        let wide = omniscient(&tape(), &job(Span::minutes(80), Span::hours(2))).expect("feasible");
        let all = NanoUsd::from_dollars(3.06).for_span(Span::minutes(81));
        assert!(wide < all);
        assert_eq!(omniscient(&tape(), &job(Span::minutes(80), Span::minutes(70))), None);
    }

    #[test]
    fn more_time_never_costs_more() {
        let costs: Vec<_> = [82, 90, 100, 120, 150]
            .iter()
            .filter_map(|minutes| omniscient(&tape(), &job(Span::minutes(80), Span::minutes(*minutes))))
            .collect();
        assert!(costs.windows(2).all(|pair| pair[1].0 <= pair[0].0 + pair[0].0 / 50), "{costs:?}");
    }
}
