//! No policy is ever late, however tight the time and however long a changeover; and none beats the optimum.

use proptest::prelude::*;
use windfall_core::{NanoUsd, Span};
use windfall_sim::{Course, Player, Terms, Zone, least_cost, play};

fn course(up: Vec<bool>, tick: Span) -> Course {
    let zone = Zone::new("zone", up, NanoUsd::from_dollars(0.97));
    Course { tick, zones: vec![zone], on_demand: NanoUsd::from_dollars(3.06), gang: 1, egress: Vec::new() }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, ..ProptestConfig::default() })]

    #[test]
    fn tight_times_flaky_markets_and_long_changeovers(
        up in prop::collection::vec(prop::bool::weighted(0.6), 60..90),
        tick in prop::sample::select(vec![195, 600, 1_200]),
        restart in 0_i64..2_000,
        work in 1_i64..30_000,
        slack in 0_i64..20_000,
    ) {
        let (tick, restart) = (Span::seconds(tick), Span::seconds(restart));
        let terms = Terms {
            work: Span::seconds(work),
            deadline: Span::seconds(work + slack) + restart,
            restart,
        };
        let course = course(up, tick);
        let least = least_cost(&course, &terms);
        for name in windfall_core::market::names() {
            let player = Player::named(name).expect("known").prepared([(&course, &terms)].into_iter());
            let played = play(&player, &course, &terms);
            prop_assert!(!played.late, "{name}: {} of {}", played.finished, terms.deadline);
            prop_assert!(least.is_some_and(|least| least.0 <= played.cost.0 + played.uses.len() as i64), "{name}: {} {:?} {:?}", played.cost, least, played);
        }
    }
}
