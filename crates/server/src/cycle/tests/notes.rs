//! What is kept of a job beside the log: durable with its submission, and without secrets once it has ended.

use super::*;
use windfall_store::Notes;

fn notes(secret: &str) -> Option<Notes> {
    let secret = Some(secret.as_bytes().into());
    Some(Notes { workload: 0, secret, text: "the rest".into() })
}

fn kept(stage: &Stage) -> Option<(Option<String>, String)> {
    let notes = at_once(stage.store.notes(1)).expect("read")?;
    let secret = notes.secret.map(|secret| String::from_utf8_lossy(&secret).into_owned());
    Some((secret, notes.text.to_string()))
}

#[test]
fn notes_are_durable_with_the_submission_and_their_secret_goes_with_the_end() {
    let mut stage = Stage::new();
    stage.cycle.ask_with_notes(stage.now, Ticket(1), submission("a", None), notes("hush"));
    stage.turn(false);
    assert_eq!(kept(&stage), Some((Some("hush".to_owned()), "the rest".to_owned())));
    // Sent again, it is the same job: what came first counts.
    stage.cycle.ask_with_notes(stage.now, Ticket(2), submission("a", None), notes("other"));
    stage.turn(false);
    assert_eq!(stage.answers.last(), Some(&(Ticket(2), Ok(Some(1)))));
    assert_eq!(kept(&stage), Some((Some("hush".to_owned()), "the rest".to_owned())));
    let cancel = Event::CancelRequested { workload: WorkloadId(1), by: "ada".to_owned() };
    stage.cycle.ask(stage.now, Ticket(3), cancel);
    for _ in 0..3 {
        stage.wait(1.0);
        stage.turn(false);
    }
    assert!(stage.cycle.brain().jobs().all(|job| job.ended.is_some()));
    assert_eq!(
        kept(&stage),
        Some((None, "the rest".to_owned())),
        "the commit that ended it deleted what may be secret"
    );
}

#[test]
fn notes_of_a_submission_whose_commit_failed_come_with_the_next_try() {
    let mut stage = Stage::new();
    stage.turn(true);
    stage.cycle.ask_with_notes(stage.now, Ticket(1), submission("a", None), notes("hush"));
    stage.turn_with(true, &mut |_, _, _| Err(StoreError::Unsure { source: None }), true);
    assert_eq!(kept(&stage), None);
    stage.wait(1.0);
    stage.turn(true);
    assert_eq!(stage.answers, [(Ticket(1), Ok(Some(1)))]);
    assert_eq!(kept(&stage).and_then(|(secret, _)| secret).as_deref(), Some("hush"));
}
