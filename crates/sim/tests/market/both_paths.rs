//! The fast path and the whole brain take the same decisions, tick by tick, and pay the same.

use proptest::prelude::*;
use windfall_core::{NanoUsd, Span};
use windfall_sim::{Course, Player, Terms, Zone, play, play_whole};

/// A market in spells of random lengths.
fn spells(ticks: usize) -> impl Strategy<Value = Vec<bool>> {
    (any::<bool>(), prop::collection::vec(1_usize..40, 1..40)).prop_map(move |(first, lengths)| {
        let mut up = Vec::new();
        let mut state = first;
        for length in lengths.iter().cycle() {
            up.extend(std::iter::repeat_n(state, *length));
            state = !state;
            if up.len() >= ticks {
                break;
            }
        }
        up.truncate(ticks);
        up
    })
}

fn course(zones: Vec<Vec<bool>>, tick: Span, prices: &[i64]) -> Course {
    let zone = |(number, up): (usize, Vec<bool>)| {
        let price = |tick: usize| NanoUsd(prices[(tick / 30 + number) % prices.len()] * 1_000_000);
        let prices = (0..up.len()).map(price).collect();
        // Not in the order of the alphabet, in which the brain sees them.
        Zone { price: prices, ..Zone::new(&format!("zone-{}", 9 - number), up, NanoUsd(0)) }
    };
    let zones = zones.into_iter().enumerate().map(zone).collect();
    Course { tick, zones, on_demand: NanoUsd::from_dollars(3.06), gang: 1, egress: Vec::new() }
}

fn agree(course: &Course, terms: &Terms) -> Result<(), TestCaseError> {
    for name in windfall_core::market::names() {
        let player = Player::named(name).expect("known").prepared([(course, terms)].into_iter());
        let (fast, whole) = (play(&player, course, terms), play_whole(&player, course, terms));
        prop_assert_eq!(&fast.uses, &whole.uses, "{}", name);
        prop_assert!(
            (fast.cost.0 - whole.cost.0).abs() <= fast.uses.len() as i64,
            "{}: {} {}",
            name,
            fast.cost,
            whole.cost
        );
        prop_assert_eq!(
            (fast.finished, fast.late, fast.interruptions),
            (whole.finished, whole.late, whole.interruptions)
        );
        prop_assert!(!fast.late, "{name} was late");
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, ..ProptestConfig::default() })]

    #[test]
    fn one_zone(
        up in spells(80),
        tick in prop::sample::select(vec![195, 300, 600, 1_200]),
        restart in prop::sample::select(vec![0, 60, 180, 600, 900]),
        slack in 0_i64..40,
    ) {
        let tick = Span::seconds(tick);
        let restart = Span::seconds(restart);
        let work = Span(tick.0 * 40);
        let deadline = Span(tick.0 * (40 + slack) + restart.0);
        agree(&course(vec![up], tick, &[970]), &Terms { work, deadline, restart })?;
    }

    #[test]
    fn several_zones_with_moving_prices(
        zones in prop::collection::vec(spells(80), 2..4),
        slack in 1_i64..40,
        way in prop::sample::select(vec![0_i64, 20_000_000, 400_000_000]),
    ) {
        let tick = Span::seconds(600);
        let row = |from: usize| (0..zones.len()).map(|to| NanoUsd(if from == to { 0 } else { way })).collect();
        let egress = (0..zones.len()).map(row).collect();
        let terms = Terms { work: Span(tick.0 * 40), deadline: Span(tick.0 * (41 + slack)), restart: Span::seconds(180) };
        agree(&Course { egress, ..course(zones, tick, &[970, 1_100, 2_900]) }, &terms)?;
    }
}
