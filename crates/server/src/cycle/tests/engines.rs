//! Engines that fail, hang and come back: who waits for them, and for how long.

use super::*;

#[test]
fn nothing_is_decided_on_an_engine_that_cannot_be_seen_and_a_silent_one_is_asked_for_nothing() {
    let mut stage = Stage::new();
    stage.turn(true);
    stage.cycle.ask(stage.now, Ticket(1), submission("a", None));
    stage.wait(2.0);
    stage.turn(false);
    assert_eq!(stage.answers, [(Ticket(1), Ok(Some(1)))], "people are heard all the same");
    assert_eq!(stage.calls.len(), 0, "and nothing is decided");
    for _ in 0..10 {
        stage.wait(10.0);
        stage.turn(false);
    }
    assert_eq!(stage.calls.len(), 0, "what it showed last is not for sale");
    assert!(stage.cycle.brain().silent_since(ENGINE).is_some());
    stage.turn(true);
    stage.wait(10.0);
    stage.turn(true);
    assert_eq!((stage.calls.as_slice(), stage.cycle.brain().silent_since(ENGINE)), (&["acquire"][..], None));
    let told = |word: &str| stage.said.iter().filter(|text| text.contains(word)).count();
    assert_eq!((told("cannot be observed"), told("can be observed again")), (1, 1), "{:?}", stage.said);
}

#[test]
fn who_has_leases_of_an_engine_waits_for_it_but_not_for_ever() {
    let (mut stage, _) = Stage::with_a_lease(Some(Address::default()));
    let job = WorkloadId(1);
    stage.hanging.push(ENGINE.to_owned());
    stage.wait(2.0);
    let mut is_left_alone = |ticket: u64, seconds: f64| {
        stage.wait(seconds);
        let budget = Some(windfall_core::NanoUsd::from_dollars(1_000.0 + ticket as f64));
        stage.cycle.ask(stage.now, Ticket(ticket), Event::BudgetSet { workload: job, budget, by: "ada".to_owned() });
        stage.turn(true);
        stage.cycle.brain().left_alone().any(|left| left == job)
    };
    assert!(is_left_alone(2, 0.0) && is_left_alone(3, 30.0) && is_left_alone(4, 20.0));
    assert!(!is_left_alone(5, 20.0), "what was seen a minute ago must do");
}

#[test]
fn a_cancel_waits_for_no_engine() {
    let (mut stage, _) = Stage::with_a_lease(Some(Address::default()));
    stage.calls.clear();
    stage.hanging.push(ENGINE.to_owned());
    stage.wait(2.0);
    stage.cycle.ask(stage.now, Ticket(2), Event::CancelRequested { workload: WorkloadId(1), by: "ada".to_owned() });
    stage.turn(true);
    assert_eq!(stage.calls, ["stop"]);
}

#[test]
fn an_engine_that_hangs_delays_nobody_else() {
    let mut stage = Stage::with(MemoryStore::new(), Config::default(), &[ENGINE, OTHER]);
    stage.turn(true);
    stage.hanging.push(OTHER.to_owned());
    stage.cycle.stirred(stage.now, OTHER);
    stage.wait(2.0);
    stage.turn(true);
    // A new job waits a moment for what the other one sells, and takes what there is then.
    stage.cycle.ask(stage.now, Ticket(1), submission("a", None));
    stage.turn(true);
    assert_eq!(stage.calls.len(), 0);
    stage.wait(11.0);
    stage.turn(true);
    let taken: Vec<String> = stage.cycle.brain().leases().map(|lease| lease.offer.engine().to_owned()).collect();
    assert_eq!(taken, [ENGINE]);
    // From then on it is known to be silent, and nobody waits for it any more.
    for (ticket, key) in [(2, "b"), (3, "c")] {
        stage.calls.clear();
        stage.wait(120.0);
        stage.cycle.ask(stage.now, Ticket(ticket), submission(key, None));
        stage.turn(true);
        assert_eq!(stage.calls, ["acquire"]);
    }
    // It comes back, and sells again.
    stage.cycle.saw(stage.now, OTHER, stage.looks[OTHER], Ok(stage.look(OTHER, &[], true)));
    stage.turn(true);
    assert_eq!(stage.cycle.brain().silent_since(OTHER), None);
}

#[test]
fn a_loop_that_waits_for_an_engine_rests() {
    let mut stage = Stage::with(MemoryStore::new(), Config::default(), &[ENGINE, OTHER]);
    stage.hanging.push(OTHER.to_owned());
    stage.turn(true);
    stage.cycle.ask(stage.now, Ticket(1), submission("a", None));
    stage.turn(true);
    let Step::Rest { world, real } = stage.cycle.next(stage.now) else { panic!("it works on") };
    assert!(world.is_none_or(|at| at > stage.now.world), "{world:?}");
    assert!(real.is_some_and(|at| at > stage.now.real && at <= stage.now.real + Duration::from_secs(10)), "{real:?}");
}

#[test]
fn leases_of_an_engine_that_is_no_longer_configured_are_not_forgotten() {
    let mut first = Stage::with(MemoryStore::new(), Config::default(), &[ENGINE]);
    first.cycle.ask(first.now, Ticket(1), submission("a", None));
    first.turn(true);
    assert_eq!(first.cycle.brain().leases().count(), 1);
    let mut second = Stage::with(first.store.clone(), Config::default(), &[OTHER]);
    second.hanging.push(ENGINE.to_owned());
    second.turn(true);
    second.wait(11.0);
    second.turn(true);
    assert!(second.cycle.brain().silent_since(ENGINE).is_some(), "it counts as one that does not answer");
    assert_eq!(second.cycle.brain().leases().count(), 1);
}

#[test]
fn what_was_sold_before_a_recording_began_anew_is_not_bought() {
    let mut stage = Stage::new();
    stage.turn(true);
    stage.hanging.push(ENGINE.to_owned());
    stage.cycle.began_anew(stage.now, ENGINE);
    stage.cycle.ask(stage.now, Ticket(1), submission("a", None));
    stage.turn(true);
    assert_eq!(stage.calls.len(), 0, "it waits to see what is sold now");
    let before = stage.looks[ENGINE] - 1;
    stage.cycle.saw(stage.now, ENGINE, before, Ok(stage.look(ENGINE, &[], true)));
    stage.turn(true);
    assert_eq!(stage.calls.len(), 0, "a look that began before does not show it");
    stage.cycle.saw(stage.now, ENGINE, stage.looks[ENGINE], Ok(stage.look(ENGINE, &[], true)));
    stage.turn(true);
    assert_eq!(stage.calls, ["acquire"]);
}

#[test]
fn a_slow_sweep_does_not_bring_back_what_ended_meanwhile() {
    let (mut stage, lease) = Stage::with_a_lease(None);
    let at = stage.now.world;
    // A look that sweeps hangs, and the lease is given back meanwhile.
    stage.hanging.push(ENGINE.to_owned());
    stage.wait(61.0);
    stage.turn(true);
    let now = stage.now.world;
    stage.cycle.happened([Event::LeaseGone { lease, at: now, end: windfall_core::LeaseEnd::Released }]);
    stage.turn(true);
    let offer = offer_of(ENGINE).id;
    let owned = |lease| Owned { lease, offer: offer.clone(), since: Some(at), until: None, address: None };
    let strange = LeaseId { group: DecisionId { seq: 9_999, ..lease.group }, slot: 0 };
    let look = Look { owned: Some(Ok(vec![owned(lease), owned(strange)])), ..stage.look(ENGINE, &[], false) };
    stage.cycle.saw(stage.now, ENGINE, stage.looks[ENGINE], Ok(look));
    stage.turn(true);
    let known: Vec<LeaseId> = stage.cycle.brain().leases().map(|lease| lease.id).collect();
    assert!(!known.contains(&lease) && known.contains(&strange), "{known:?}");
}

#[test]
fn an_engine_that_takes_long_to_answer_is_not_looked_at_for_ever() {
    let mut stage = Stage::new();
    stage.cycle.ask(stage.now, Ticket(1), submission("a", None));
    stage.turn(true);
    stage.hanging.push(ENGINE.to_owned());
    // Each look takes three seconds, and there is always something to be done about.
    let mut thought_about = 0;
    for _ in 0..20 {
        stage.wait(3.0);
        stage.cycle.saw(stage.now, ENGINE, stage.looks[ENGINE], Ok(stage.look(ENGINE, &[], false)));
        stage.turn(true);
        thought_about += u32::from(stage.cycle.brain().left_alone().next().is_none());
    }
    assert!(thought_about >= 19, "{thought_about}");
    assert_eq!(stage.cycle.brain().silent_since(ENGINE), None);
}

#[test]
fn when_a_lease_that_is_not_found_may_count_as_gone_its_engine_is_looked_at() {
    let (mut stage, lease) = Stage::with_a_lease(None);
    stage.not_found = vec![lease];
    stage.turn(true);
    stage.wait(windfall_core::pool::Habits::USUAL.settle.0 as f64 / 1_000.0 + 1.0);
    // Nothing stirs the engine but that.
    stage.cycle.turn();
    let mut looked = false;
    for _ in 0..20 {
        match stage.cycle.next(stage.now) {
            Step::Rest { world, .. } => {
                assert!(world.is_none_or(|at| at > stage.now.world), "it does not turn in circles");
                break;
            }
            Step::Look { .. } => looked = true,
            Step::Hear { .. } => stage.cycle.heard(stage.now, Vec::new()),
            Step::Commit(_) => stage.cycle.committed(stage.now, Ok(())),
            _ => {}
        }
    }
    assert!(looked);
}
