//! Whether a server goes on or ends after its commits or its lead were refused, or their answers lost.

use super::*;

#[test]
fn all_agents_are_heard_at_first_after_a_lost_commit_and_once_in_a_while_and_else_only_those_with_news() {
    let mut stage = Stage::new();
    (0..3).for_each(|_| stage.turn(true));
    assert_eq!(std::mem::take(&mut stage.heard_all), [true, false, false]);
    stage.cycle.ask(stage.now, Ticket(1), submission("a", None));
    stage.turn_with(true, &mut |_, _, _| Err(StoreError::Refused), true);
    stage.wait(1.0);
    (0..2).for_each(|_| stage.turn(true));
    assert_eq!(std::mem::take(&mut stage.heard_all), [false, true, false], "what was heard may not have been written");
    stage.wait(9.9);
    stage.turn(true);
    stage.wait(0.1);
    stage.turn(true);
    assert_eq!(stage.heard_all, [false, true]);
}

#[test]
fn a_server_that_was_fenced_off_ends_and_says_why() {
    let mut stage = Stage::new();
    stage.turn(true);
    stage.cycle.ask(stage.now, Ticket(1), submission("a", None));
    at_once(stage.store.lead()).expect("another server leads");
    stage.turn(true);
    let why = stage.ended.expect("it ends");
    assert!(why.contains("another server leads"), "{why}");
    assert_eq!(stage.calls.len(), 0);
    assert_eq!(stage.answers.len(), 1);
}

#[test]
fn a_server_that_was_away_while_another_led_ends_also_where_nobody_leads_now() {
    let mut stage = Stage::new();
    stage.turn(true);
    stage.cycle.ask(stage.now, Ticket(1), submission("a", None));
    // It was suspended, and its connection is gone. Meanwhile another server led, and ended.
    at_once(stage.store.lead()).expect("another server leads");
    stage.turn_with(true, &mut |_, _, _| Err(StoreError::Unsure { source: None }), true);
    stage.wait(1.0);
    stage.turn(true);
    let why = stage.ended.expect("it ends");
    assert!(why.contains("another server leads"), "{why}");
}

#[test]
fn a_server_that_may_have_raised_the_epoch_itself_goes_on() {
    let mut stage = Stage::new();
    stage.turn(true);
    stage.cycle.ask(stage.now, Ticket(1), submission("a", None));
    stage.turn_with(true, &mut |_, _, _| Err(StoreError::Unsure { source: None }), true);
    stage.wait(1.0);
    stage.cycle.turn();
    assert!(matches!(stage.cycle.next(stage.now), Step::Lead { .. }));
    at_once(stage.store.lead()).expect("led, and the answer is lost");
    stage.cycle.led(stage.now, Err(StoreError::Unsure { source: None }));
    stage.wait(1.0);
    stage.turn(true);
    assert!(stage.ended.is_none() && stage.cycle.leads(), "{:?}", stage.ended);
}

#[test]
fn a_lost_connection_alone_is_not_the_end() {
    let mut stage = Stage::new();
    stage.turn(true);
    stage.cycle.ask(stage.now, Ticket(1), submission("a", None));
    // As PostgreSQL answers when this server's connection is gone and nobody else leads.
    stage.turn_with(true, &mut |_, _, epoch| Err(StoreError::Fenced { held: epoch, current: epoch }), true);
    stage.wait(1.0);
    stage.turn(true);
    assert!(stage.ended.is_none() && stage.cycle.leads());
}
