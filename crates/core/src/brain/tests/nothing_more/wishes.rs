//! Jobs that people submit in a random history.

use super::*;
use crate::pool::DevicePart;
use crate::spec::Ask;

const POLICIES: [Option<&str>; 7] =
    [None, Some("greedy"), Some("on-demand"), Some("levi-safe"), Some("uniform-progress"), Some("skynomad"), None];

/// A job to be submitted.
#[derive(Clone, Debug)]
pub struct Wish {
    pub hours: i64,
    pub deadline_hours: Option<i64>,
    pub late: usize,
    pub count: u32,
    /// A part of one accelerator, such as half of it, where one is wanted.
    pub half: bool,
    /// Another accelerator will do as well.
    pub either: bool,
    pub gang: u32,
    pub least: Option<u32>,
    pub max_cents: Option<u32>,
    pub budget_cents: Option<u32>,
    pub policy: usize,
    pub owner: bool,
    pub steps: bool,
}

pub fn any_wish() -> impl Strategy<Value = Wish> {
    let of_time = (1..30_i64, proptest::option::weighted(0.4, 1..60_i64), 0..3_usize, any::<bool>());
    let count = prop_oneof![1 => Just(0_u32), 4 => Just(1_u32), 2 => Just(2_u32), 1 => Just(3_u32)];
    let gang = prop_oneof![3 => Just(1_u32), 1 => 2..4_u32];
    let of_shape = (
        count,
        proptest::bool::weighted(0.7),
        gang,
        proptest::option::weighted(0.3, 1..3_u32),
        proptest::bool::weighted(0.3),
    );
    let of_money = (proptest::option::of(10..300_u32), proptest::option::weighted(0.3, 50..900_u32));
    (of_time, of_shape, of_money, 0..POLICIES.len(), proptest::bool::weighted(0.8)).prop_map(
        |(
            (hours, deadline_hours, late, steps),
            (count, half, gang, least, either),
            (max_cents, budget_cents),
            policy,
            owner,
        )| {
            let least = least.map(|least| least.min(gang));
            Wish {
                hours,
                deadline_hours,
                late,
                count,
                half,
                either,
                gang,
                least,
                max_cents,
                budget_cents,
                policy,
                owner,
                steps,
            }
        },
    )
}

/// The job that a wish asks for in this world.
pub fn spec(world: &World, wish: &Wish) -> JobSpec {
    let cents = |cents: u32| NanoUsd(i64::from(cents) * 10_000_000);
    let base = job(wish.hours, None);
    let part = match wish.half && wish.count == 1 {
        true => {
            let (part, of) = [(1, 2), (1, 4), (3, 4), (1, 3), (2, 3), (1, 2)][wish.hours as usize % 6];
            DevicePart::Share { part, of }
        }
        false => DevicePart::Whole,
    };
    let ask = |accelerator: &str| Ask { part: part.clone(), ..Ask::of(accelerator, wish.count) };
    let either = wish.either.then(|| ask("A100"));
    JobSpec {
        deadline: wish.deadline_hours.map(|hours| world.now + Span::hours(hours)),
        late: [Late::Cheapest, Late::Soonest, Late::Stop][wish.late],
        resources: if wish.count == 0 { Vec::new() } else { [ask("V100")].into_iter().chain(either).collect() },
        gang: wish.gang,
        least_gang: wish.least,
        max_price: wish.max_cents.map(cents),
        budget: wish.budget_cents.map(cents),
        policy: POLICIES[wish.policy].map(str::to_owned),
        owner: if wish.owner { "ada" } else { "eve" }.to_owned(),
        work: WorkSpec { unit: if wish.steps { WorkUnit::Steps } else { WorkUnit::Time }, ..base.work.clone() },
        ..base
    }
}
