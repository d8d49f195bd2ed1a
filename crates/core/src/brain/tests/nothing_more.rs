//! Whatever happened: once the brain has decided and has nothing more to say, one that looks at everything again has nothing
//! more to say either. So a step may look only at what changed and at what is due.

mod steps;
mod wishes;

use super::*;
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use std::collections::BTreeSet;
use steps::{Step, any_history};
use wishes::Wish;

/// Steps until a brain must have come to rest, and slices of plans that are waited for.
const MOST_STEPS: usize = 60;

/// Decides until nothing more is decided; false where plans are still being solved by then.
fn come_to_rest(world: &mut World, unseen: &BTreeSet<String>) -> bool {
    let before = world.decided.len();
    for _ in 0..MOST_STEPS {
        let decided = world.brain.decide_but_for(world.now, unseen);
        if decided.is_empty() && world.brain.think_at.is_none() {
            return true;
        }
        // Slices of a plan come one after the other.
        world.pass(Span(if decided.is_empty() { 40 } else { 0 }));
        for decided in decided {
            world.record(Body::Decision(decided.decision.clone(), decided.reason.clone()));
            world.decided.push(decided);
        }
    }
    let decided = &world.decided[before..];
    assert!(decided.len() < MOST_STEPS, "the brain does not come to rest: {decided:?}");
    false
}

/// What a history led to: a test of histories in which nothing happens would prove nothing.
#[derive(Default)]
struct Reached {
    decisions: BTreeSet<&'static str>,
    waits: BTreeSet<String>,
}

fn play(steps: Vec<(i64, Step)>, reached: &mut Reached) -> Result<(), TestCaseError> {
    let mut world = steps::market();
    let mut unseen = BTreeSet::new();
    let mut steps = steps.into_iter().enumerate().peekable();
    while let Some((number, (after, step))) = steps.next() {
        world.pass(Span(after));
        let said = format!("{step:?}");
        steps::act(&mut world, step, &mut unseen);
        // Of several things at one moment, the brain is asked after one, two or three.
        if number % 3 != 0 && steps.peek().is_some_and(|(_, (after, _))| *after == 0) {
            continue;
        }
        let at_rest = come_to_rest(&mut world, &unseen);
        let more = world.brain.overlooked(world.now, &unseen);
        prop_assert!(!at_rest || more.is_empty(), "after {said} at {:?}: {more:#?}", world.now);
        let waits = world.brain.jobs().filter_map(|job| world.brain.view(job.id, world.now)?.waits_for);
        reached.waits.extend(waits);
    }
    reached.decisions.extend(world.decided.iter().map(|decided| decided.decision.kind()));
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_naive_scan_decides_nothing_more(steps in any_history(1..50)) {
        play(steps, &mut Reached::default())?;
    }
}

#[test]
fn random_histories_get_somewhere() {
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let mut reached = Reached::default();
    for _ in 0..250 {
        let steps = any_history(40..50).new_tree(&mut runner).expect("steps").current();
        play(steps, &mut reached).expect("nothing more is decided");
    }
    assert_eq!(reached.decisions, Decision::KINDS.into_iter().collect(), "what is ever decided");
    assert!(reached.waits.len() > 20, "few reasons to wait: {:?}", reached.waits);
}

#[test]
fn a_naive_scan_sees_what_was_not_looked_at() {
    let mut world = steps::market();
    let none = BTreeSet::new();
    world.submit(JobSpec { max_price: Some(NanoUsd::from_dollars(0.2)), ..job(4, None) });
    assert!(come_to_rest(&mut world, &none));
    assert!(world.brain.overlooked(world.now, &none).is_empty(), "nothing is cheap enough");
    world.offer(SPOT, 0.1, Some(8));
    let more = world.brain.overlooked(world.now, &none);
    assert!(matches!(more[0].decision, Decision::Acquire { .. }), "{more:?}");
}

/// One accelerator for an hour, by `greedy` and without a deadline.
fn wish(owner: bool) -> Step {
    Step::Submit(Wish {
        hours: 1,
        deadline_hours: None,
        late: 0,
        count: 1,
        half: false,
        either: false,
        gang: 1,
        least: None,
        max_cents: None,
        budget_cents: None,
        policy: 1,
        owner,
        steps: false,
    })
}

fn offer(offer: usize, cents: u32, capacity: u32) -> Step {
    Step::Offer { offer, cents, capacity }
}

/// Plays steps that happen at one moment, each asked about.
fn nothing_more_after(steps: Vec<Step>) {
    let at_once = steps.into_iter().flat_map(|step| [(0, step), (1, Step::Answers { engine: 0 })]).collect();
    play(at_once, &mut Reached::default()).expect("nothing more is decided");
}

/// Somebody has something firm, and sees room on a machine that is cheaper and firm as well: a spot price that falls below
/// the latter is news to them.
#[test]
fn a_price_that_passes_a_machine_with_room_is_news_to_who_has_something_dearer() {
    let mut steps: Vec<Step> = (0..7).map(|number| offer(number, 100, 1)).collect();
    steps.extend((0..7).map(|_| wish(true)));
    steps.extend([Step::Serve, offer(5, 101, 0), offer(0, 5, 0)]);
    nothing_more_after(steps);
}

/// Somebody has a cheap firm machine with room, which is nothing to others: whether spot costs more than what these could
/// have is still news to them.
#[test]
fn room_on_a_machine_of_somebody_else_hides_no_firm_offer() {
    let mut steps: Vec<Step> = (0..7).map(|number| offer(number, 300, 0)).collect();
    steps.extend([offer(3, 50, 1), wish(true), Step::Serve]);
    steps.extend([offer(1, 80, 3), offer(0, 70, 0), wish(false), offer(0, 90, 0)]);
    nothing_more_after(steps);
}

/// A job that `late: stop` stops is over its budget, and what its engine shows is not known: it stops all the same.
#[test]
fn whoever_stops_already_is_not_told_to_pause() {
    let Step::Submit(wish) = wish(false) else { unreachable!("it is one") };
    let late = Wish { hours: 3, deadline_hours: Some(3), late: 2, count: 0, policy: 0, ..wish };
    let steps = vec![
        (0, Step::Submit(late)),
        (0, Step::Serve),
        (0, offer(0, 5, 0)),
        (0, Step::Serve),
        (9_473_019, Step::Serve),
        (1_326_981, Step::Budget { which: 0, cents: 1 }),
        (1, Step::Unseen { first: true, second: false }),
    ];
    let mut reached = Reached::default();
    play(steps, &mut reached).expect("nothing more is decided");
    assert!(reached.decisions.contains("stop"), "{:?}", reached.decisions);
}
