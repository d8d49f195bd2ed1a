//! Programs that fail, are killed, or do not stop.

use super::*;

#[test]
fn a_program_that_fails_with_a_code_fails_its_job_with_that_code() {
    let mut world = world();
    let (_, stint) = world.running(job(1, None));
    world.event(Event::WorkerEnded { stint, rank: 0, end: WorkerEnd::Exited { code: 42 }, settled: true });
    let decisions = world.decide();
    assert!(
        decisions.iter().any(|d| matches!(d, Decision::End { outcome: Outcome::Failed { code: 42, .. }, .. })),
        "{decisions:?}"
    );
}

#[test]
fn a_killed_program_is_started_again_until_patience_ends() {
    let mut world = world();
    let (id, mut stint) = world.running(job(1, None));
    for round in 1..=Config::default().patience {
        world.event(Event::WorkerEnded { stint, rank: 0, end: WorkerEnd::Killed { signal: 9 }, settled: true });
        let mut decisions = world.decide();
        if round == Config::default().patience {
            assert!(
                decisions.iter().any(|d| matches!(d, Decision::End { outcome: Outcome::Failed { code: 137, .. }, .. }))
            );
            return;
        }
        if round > 1 {
            assert_eq!(decisions, []);
            world.pass(Span::minutes(1));
            decisions = world.decide();
        }
        assert!(decisions.iter().any(|d| matches!(d, Decision::Start { .. })), "{decisions:?}");
        stint = world.started(id);
    }
}

#[test]
fn a_program_that_brings_nothing_time_after_time_is_tried_again_later_and_later() {
    let mut world = world();
    let (id, mut stint) = world.running(JobSpec { retries: 1_000, ..job(1, None) });
    let mut rests = Vec::new();
    for _ in 0..10 {
        world.event(Event::WorkerEnded { stint, rank: 0, end: WorkerEnd::Exited { code: 127 }, settled: true });
        let (ended, mut decisions) = (world.now, world.decide());
        if !decisions.iter().any(|d| matches!(d, Decision::Start { .. })) {
            let waits = world.view(id).waits_for.expect("it rests");
            assert!(waits.contains("times in a row: it is tried again in"), "{waits}");
            assert_eq!(decisions, [], "its machine is held");
            world.now = world.brain.next_wakeup().expect("it is tried again");
            decisions = world.decide();
        }
        assert!(decisions.iter().any(|d| matches!(d, Decision::Start { .. })), "{decisions:?}");
        rests.push((world.now - ended).0 / 1_000);
        stint = world.started(id);
    }
    assert_eq!(rests, [0, 1, 2, 4, 8, 10, 10, 10, 10, 10]);
    // What it brings counts: then nothing is wrong with it.
    world.pass(Span::minutes(5));
    let checkpoint = CheckpointId { epoch: stint.epoch, seq: 1 };
    world.event(Event::CheckpointDurable { stint, checkpoint, work: None, ran: Some(Span::minutes(5)) });
    world.event(Event::WorkerEnded { stint, rank: 0, end: WorkerEnd::Exited { code: 1 }, settled: true });
    assert!(world.decide().iter().any(|d| matches!(d, Decision::Start { .. })));
}

#[test]
fn a_gang_of_which_one_was_killed_goes_on_although_the_others_failed_without_it() {
    for (killed, code) in [(0, 1), (1, 1), (1, 134)] {
        let mut world = world();
        let (id, stint) = world.running(JobSpec { gang: 2, ..job(1, None) });
        let failed = WorkerEnd::Exited { code };
        world.event(Event::WorkerEnded { stint, rank: 1 - killed, end: failed, settled: true });
        world.event(Event::WorkerEnded { stint, rank: killed, end: WorkerEnd::Killed { signal: 9 }, settled: true });
        let decisions = world.decide();
        assert!(decisions.iter().any(|d| matches!(d, Decision::Start { .. })), "{killed}: {decisions:?}");
        assert!(world.view(id).outcome.is_none());
    }
}

#[test]
fn a_program_that_fails_on_a_restored_checkpoint_gets_the_one_before_it() {
    let mut world = world();
    let (id, stint) = world.running(job(2, None));
    world.pass(Span::minutes(5));
    let bad = CheckpointId { epoch: 1, seq: 2 };
    world.event(Event::CheckpointDurable { stint, checkpoint: bad, work: None, ran: None });
    world.gone(LeaseEnd::Taken);
    world.decide();
    world.up_all();
    world.decide();
    let stint = world.started(id);
    world.event(Event::WorkerEnded { stint, rank: 0, end: WorkerEnd::Exited { code: 1 }, settled: true });
    let decisions = world.decide();
    assert!(
        decisions.iter().any(|d| matches!(d, Decision::Start { resume: Resume::Before(id), .. } if *id == bad)),
        "{decisions:?}"
    );
}

#[test]
fn a_cancelled_job_may_save_before_it_ends() {
    let mut world = world();
    let (id, stint) = world.running(job(1, None));
    world.event(Event::CancelRequested { workload: id, by: "me".into() });
    assert!(matches!(world.decide().as_slice(), [Decision::Stop { .. }]));
    world.event(Event::WorkerEnded { stint, rank: 0, end: WorkerEnd::Stopped, settled: true });
    let decisions = world.decide();
    assert!(
        decisions.iter().any(|d| matches!(d, Decision::End { outcome: Outcome::Cancelled { .. }, .. })),
        "{decisions:?}"
    );
}

#[test]
fn a_program_that_does_not_stop_loses_its_machine() {
    let mut world = world();
    let (id, _) = world.running(job(1, None));
    world.event(Event::CancelRequested { workload: id, by: "me".into() });
    world.decide();
    world.now = world.brain.next_wakeup().expect("a wake-up");
    assert!(matches!(world.decide().as_slice(), [Decision::Release { .. }]));
}

#[test]
fn a_machine_on_which_a_program_could_not_be_begun_is_not_tried_again() {
    let mut world = world();
    let (id, first) = world.running(job(1, Some(9)));
    let lease = world.leases()[0];
    world.ended(first, WorkerEnd::NeverRan { why: "cannot restore: no space left".to_owned() });
    assert!(matches!(world.decide().as_slice(), [Decision::Release { .. }]), "{:?}", world.decided.last());
    world.gone(LeaseEnd::Released);
    assert!(matches!(world.decide().as_slice(), [Decision::Acquire { .. }]));
    world.up_all();
    assert!(matches!(world.decide().as_slice(), [Decision::Start { .. }]));
    assert!(!world.leases().contains(&lease));
    let second = world.started(id);
    world.ended(second, WorkerEnd::Exited { code: 0 });
    world.decide();
    assert_eq!(
        world.brain.job(id).and_then(|job| job.ended.clone()).map(|(_, outcome)| outcome),
        Some(Outcome::Succeeded)
    );
}

#[test]
fn rather_another_machine_is_asked_for_than_one_on_which_nothing_could_be_begun() {
    let mut world = world();
    let id = world.submit(job(1, Some(9)));
    world.decide();
    let node = NodeId("test/n1".into());
    let terms = Box::new(crate::want::LeaseTerms { node: Some(node.clone()), ..Default::default() });
    let ready = Some(crate::Address::default());
    world.event(Event::LeaseUp { lease: world.leases()[0], at: world.now, terms, ready });
    world.decide();
    world.ended(world.stint(id), WorkerEnd::NeverRan { why: "the setup failed".to_owned() });
    assert!(matches!(world.decide().as_slice(), [Decision::Release { .. }]));
    let why = world.decided.last().map(|decided| decided.reason.text.clone()).expect("decided");
    assert!(why.contains("on n1"), "{why}");
    world.gone(LeaseEnd::Released);
    let decisions = world.decide();
    assert!(
        matches!(decisions.as_slice(), [Decision::Acquire { want }] if want.rather_not_on == [node]),
        "{decisions:?}"
    );
    world.up_all();
    world.decide();
    world.started(id);
    assert_eq!(world.brain.job(id).expect("known").not_begun_at.len(), 1, "it has begun elsewhere, and not there");
}
