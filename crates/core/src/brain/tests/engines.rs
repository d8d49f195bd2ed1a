//! Engines that are not seen, and engines that are silent.

use super::*;
use std::collections::BTreeSet;

const ELSEWHERE: &str = "elsewhere/a/box/on-demand";

fn unseen(engines: &[&str]) -> BTreeSet<String> {
    engines.iter().map(|engine| (*engine).to_owned()).collect()
}

fn decide_but_for(world: &mut World, engines: &[&str]) -> Vec<Decision> {
    let decided = world.brain.decide_but_for(world.now, &unseen(engines));
    for decided in &decided {
        world.record(Body::Decision(decided.decision.clone(), decided.reason.clone()));
    }
    decided.into_iter().map(|decided| decided.decision).collect()
}

fn taken(world: &World) -> Vec<String> {
    world.brain.leases().map(|lease| lease.offer.to_string()).collect()
}

#[test]
fn nothing_is_asked_of_a_silent_engine_and_people_hear_why() {
    let mut world = world();
    let silent = Event::EngineSilent { engine: "test".into(), since: world.now };
    world.event(silent.clone());
    assert!(!world.brain.is_news(&silent));
    let id = world.submit(job(1, Some(5)));
    world.pass(Span::minutes(5));
    assert_eq!(world.decide(), []);
    let waits_for = world.view(id).waits_for.expect("it waits");
    assert!(waits_for.ends_with("test has not answered for 5m 0s"), "{waits_for}");
    // Another engine serves meanwhile, also where it is dearer.
    world.offer(ELSEWHERE, 9.0, None);
    for _ in 0..1_000 {
        if world.leases().is_empty() {
            world.now = world.brain.next_wakeup().expect("a wake-up");
            world.decide();
        }
    }
    assert_eq!(taken(&world), [ELSEWHERE], "{:?}", world.view(id).waits_for);
    // It answers, and is bought from again.
    world.event(Event::EngineAnswers { engine: "test".into() });
    world.submit(job(1, None));
    world.decide();
    assert_eq!(taken(&world), [ELSEWHERE, SPOT]);
}

#[test]
fn who_has_leases_of_an_unseen_engine_is_left_alone_and_nobody_else() {
    let mut world = world();
    let (held, _) = world.running(job(5, Some(20)));
    world.offer(ELSEWHERE, 9.0, None);
    world.event(Event::EngineSilent { engine: "test".into(), since: world.now });
    let other = world.submit(job(1, Some(2)));
    let cancel = |workload| Event::CancelRequested { workload, by: "ada".into() };
    world.event(cancel(other));
    let decisions = decide_but_for(&mut world, &["test"]);
    assert!(
        matches!(&decisions[..], [Decision::End { workload, .. }] if *workload == other),
        "the job on the engine is left alone: {decisions:?}"
    );
    // It does not make anybody turn in circles, but is known to be due.
    decide_but_for(&mut world, &["test"]);
    assert!(world.brain.next_wakeup().is_none_or(|wake| wake > world.now));
    // Whoever is to stop does so: its agent hears it.
    world.event(cancel(held));
    let decisions = decide_but_for(&mut world, &["test"]);
    assert!(matches!(&decisions[..], [Decision::Stop { .. }]), "{decisions:?}");
}

#[test]
fn a_new_job_waits_for_an_engine_that_may_have_the_best_offer() {
    let mut world = world();
    world.offer(ELSEWHERE, 9.0, None);
    world.submit(job(1, None));
    assert_eq!(decide_but_for(&mut world, &["test"]), []);
    assert_eq!(decide_but_for(&mut world, &["elsewhere"]), []);
    world.event(Event::EngineSilent { engine: "elsewhere".into(), since: world.now });
    decide_but_for(&mut world, &["elsewhere"]);
    assert_eq!(taken(&world), [SPOT]);
}

#[test]
fn a_timer_of_a_job_that_was_left_alone_is_due_until_it_is_not() {
    let mut world = world();
    world.offer(SPOT, 0.9, Some(0));
    world.submit(job(10, Some(20)));
    world.decide();
    let wake = world.brain.due(Time(i64::MAX)).expect("a timer");
    assert_eq!(world.brain.due(wake - Span(1)), None);
    world.now = wake;
    assert_eq!(world.brain.due(world.now), Some(wake));
    decide_but_for(&mut world, &["test"]);
    assert_eq!(world.brain.due(world.now), Some(wake), "it still waits for its engine to be seen");
    world.decide();
    assert!(world.brain.due(world.now).is_none());
}

#[test]
fn who_has_asked_a_silent_engine_in_vain_asks_elsewhere() {
    let mut world = world();
    world.submit(job(1, None));
    world.decide();
    assert_eq!(taken(&world), [SPOT]);
    world.offer("elsewhere/a/box/spot", 1.0, Some(8));
    world.event(Event::EngineSilent { engine: "test".into(), since: world.now });
    for _ in 0..3 {
        decide_but_for(&mut world, &["test"]);
    }
    assert_eq!(taken(&world), [SPOT, "elsewhere/a/box/spot"], "the first is on its way back for whenever it answers");
    assert!(world.brain.leases().any(|lease| lease.is_releasing()));
    let open: Vec<&'static str> = world.brain.outbox().iter().map(|open| open.decision.kind()).collect();
    assert_eq!(open, ["release", "acquire"]);
}

#[test]
fn a_budget_is_kept_while_its_engine_is_not_seen() {
    let mut world = world();
    let (held, _) = world.running(JobSpec { budget: Some(NanoUsd::from_dollars(2.0)), ..job(9, None) });
    world.event(Event::EngineSilent { engine: "test".into(), since: world.now });
    world.pass(Span::hours(1));
    assert_eq!(decide_but_for(&mut world, &["test"]), []);
    world.pass(Span::hours(2));
    let decisions = decide_but_for(&mut world, &["test"]);
    assert!(decisions.contains(&Decision::Pause { workload: held }), "{decisions:?}");
    let decisions = decide_but_for(&mut world, &["test"]);
    assert!(decisions.iter().any(|decision| matches!(decision, Decision::Stop { .. })), "{decisions:?}");
}

#[test]
fn a_program_that_is_done_is_over_whether_its_engine_is_seen_or_not() {
    let mut world = world();
    let (held, stint) = world.running(job(1, None));
    world.event(Event::EngineSilent { engine: "test".into(), since: world.now });
    world.ended(stint, WorkerEnd::Exited { code: 0 });
    let decisions = decide_but_for(&mut world, &["test"]);
    assert!(decisions.contains(&Decision::End { workload: held, outcome: Outcome::Succeeded }), "{decisions:?}");
}
