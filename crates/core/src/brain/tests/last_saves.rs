//! What a program saved last, and how long that is waited for.

use super::*;
use crate::record::{Trouble, TroubleKind};

#[test]
fn a_program_that_exited_with_0_has_succeeded_whatever_becomes_of_its_last_save() {
    let mut world = world();
    let (id, stint) = world.running(job(1, Some(4)));
    world.pass(Span::minutes(50));
    let end = WorkerEnd::Exited { code: 0 };
    world.event(Event::WorkerEnded { stint, rank: 0, end: end.clone(), settled: false });
    let trouble =
        Trouble { kind: TroubleKind::StoreFull, text: "the store is full; its files lie in /data".to_owned() };
    world.event(Event::Troubled { stint, trouble: Some(trouble.clone()) });
    let decisions = world.decide();
    assert!(matches!(decisions.as_slice(), [Decision::End { outcome: Outcome::Succeeded, .. }]), "{decisions:?}");
    assert_eq!(world.view(id).trouble, Some(trouble));
    world.pass(Span::minutes(10));
    assert!(world.decide().is_empty(), "the lease is held while the last save is tried");
    world.pass(Span::minutes(2));
    let decisions = world.decide();
    let told =
        |decision: &Decision| matches!(decision, Decision::Notify { told, .. } if told.to_string().contains("/data"));
    assert!(decisions.iter().any(told), "{decisions:?}");
    assert!(matches!(decisions.last(), Some(Decision::Release { .. })), "{decisions:?}");
    world.gone(LeaseEnd::Released);
    assert!(world.brain.job(id).is_none());
}

#[test]
fn a_last_save_that_was_given_up_is_said_with_the_bill() {
    let mut world = world();
    let (_, stint) = world.running(job(1, Some(4)));
    let end = WorkerEnd::Exited { code: 0 };
    world.event(Event::WorkerEnded { stint, rank: 0, end: end.clone(), settled: false });
    let trouble = Trouble { kind: TroubleKind::StoreFull, text: "full; its files lie in /data".to_owned() };
    world.event(Event::Troubled { stint, trouble: Some(trouble) });
    world.decide();
    world.event(Event::WorkerEnded { stint, rank: 0, end, settled: true });
    world.decide();
    world.gone(LeaseEnd::Released);
    let last = world.brain.take_final_views().pop().expect("a last view");
    assert!(last.told.is_some_and(|told| told.to_string().contains("/data")));
}

#[test]
fn a_machine_that_is_lost_before_its_last_save_has_arrived_is_said_with_the_bill() {
    for (is_settled, end, is_told) in
        [(false, LeaseEnd::Lost, true), (false, LeaseEnd::Released, false), (true, LeaseEnd::Lost, false)]
    {
        let mut world = world();
        let (_, stint) = world.running(job(1, Some(4)));
        let exited = WorkerEnd::Exited { code: 0 };
        world.event(Event::WorkerEnded { stint, rank: 0, end: exited, settled: is_settled });
        world.decide();
        world.gone(end);
        let last = world.brain.take_final_views().pop().expect("a last view");
        assert_eq!(last.state, crate::view::State::Succeeded, "it is never run again");
        let told = last.told.map(|told| told.to_string()).unwrap_or_default();
        assert_eq!(told.contains("lost before all that its program left was sent"), is_told, "{end:?}: {told}");
    }
}

#[test]
fn a_rank_that_is_lost_before_it_has_sent_all_holds_up_nobody() {
    for others_run in [true, false] {
        let mut world = world();
        let (id, stint) = world.running(JobSpec { gang: 2, ..job(1, None) });
        world.pass(Span::minutes(5));
        let checkpoint = CheckpointId { epoch: stint.epoch, seq: 1 };
        world.event(Event::CheckpointDurable { stint, checkpoint, work: None, ran: Some(Span::minutes(4)) });
        let (exited, leases) = (WorkerEnd::Exited { code: 0 }, world.leases());
        world.event(Event::WorkerEnded { stint, rank: 1, end: exited.clone(), settled: false });
        if !others_run {
            world.event(Event::WorkerEnded { stint, rank: 0, end: exited, settled: false });
            assert!(matches!(world.decide().as_slice(), [Decision::End { outcome: Outcome::Succeeded, .. }]));
        }
        assert_eq!(world.decide(), [], "what it saved last is on its way");
        world.event(Event::LeaseGone { lease: leases[1], at: world.now, end: LeaseEnd::Lost });
        // Whoever is left is told, once, and what they send by themselves has as long as before.
        let decisions = world.decide();
        let [Decision::Stop { grace, .. }] = decisions.as_slice() else { panic!("{others_run}: {decisions:?}") };
        assert!(others_run || *grace > Span::minutes(10), "{grace}");
        assert_eq!(world.decide(), []);
        if others_run {
            world.event(Event::WorkerEnded { stint, rank: 0, end: WorkerEnd::Stopped, settled: true });
            world.decide();
            let view = world.view(id);
            assert!(!view.state.is_over() && view.interruptions == 1, "it goes on from what is saved: {view:?}");
        }
    }
}

#[test]
fn those_that_are_left_are_told_whoever_ends_first_and_a_cancel_does_not_wait_for_them() {
    for is_lost_first in [true, false] {
        let mut world = world();
        let (id, stint) = world.running(JobSpec { gang: 2, ..job(1, None) });
        let (exited, lease) = (WorkerEnd::Exited { code: 0 }, world.leases()[1]);
        let gone = Event::LeaseGone { lease, at: world.now, end: LeaseEnd::Lost };
        let ended = |rank: u32| Event::WorkerEnded { stint, rank, end: exited.clone(), settled: false };
        let (then, last) = if is_lost_first { (gone, ended(0)) } else { (ended(0), gone) };
        [ended(1), then].into_iter().for_each(|event| _ = world.event(event));
        let decisions = world.decide();
        assert!(!decisions.iter().any(|decision| matches!(decision, Decision::Stop { .. })), "{decisions:?}");
        world.event(last);
        world.decide();
        let stops = |world: &mut World| world.decide().iter().any(|decision| matches!(decision, Decision::Stop { .. }));
        let is_stopping = |world: &World| world.brain.job(id).and_then(|job| job.stint.as_ref()?.stopping).is_some();
        assert!(is_stopping(&world) || stops(&mut world), "lost first: {is_lost_first}");
        world.event(Event::CancelRequested { workload: id, by: "ada".to_owned() });
        world.event(Event::GiveUpRequested { workload: id, by: "ada".to_owned() });
        world.decide();
        world.pass(job(1, None).run.grace + Span::minutes(3));
        world.decide();
        assert!(world.brain.leases_of(id).all(|lease| lease.is_releasing()), "lost first: {is_lost_first}");
    }
}

#[test]
fn a_cancel_takes_nothing_from_a_program_that_has_ended_and_only_whoever_gives_up_does() {
    let mut world = world();
    let (id, stint) = world.running(job(1, Some(4)));
    let gives_up = || Event::GiveUpRequested { workload: id, by: "ada".to_owned() };
    world.event(gives_up());
    assert_eq!(world.decide(), [], "a job that goes on is not ended by this alone");
    world.event(Event::WorkerEnded { stint, rank: 0, end: WorkerEnd::Exited { code: 0 }, settled: false });
    world.event(Event::CancelRequested { workload: id, by: "ada".to_owned() });
    assert!(matches!(world.decide().as_slice(), [Decision::End { outcome: Outcome::Succeeded, .. }]));
    world.pass(Span::minutes(5));
    assert_eq!(world.decide(), [], "its last save has its time");
    world.event(gives_up());
    assert!(matches!(world.decide().as_slice(), [Decision::Release { .. }]));
}

#[test]
fn a_cancel_takes_nothing_from_a_program_that_failed_either_and_it_is_not_tried_again() {
    let mut world = world();
    let (id, stint) = world.running(JobSpec { retries: 3, ..job(1, Some(4)) });
    let failed = |settled| Event::WorkerEnded { stint, rank: 0, end: WorkerEnd::Exited { code: 1 }, settled };
    world.event(failed(false));
    world.event(Event::CancelRequested { workload: id, by: "ada".to_owned() });
    world.pass(Span::minutes(5));
    assert_eq!(world.decide(), [], "its last save has its time");
    world.event(failed(true));
    assert!(matches!(world.decide().as_slice(), [Decision::End { outcome: Outcome::Cancelled { .. }, .. }, ..]));
}

#[test]
fn whoever_gives_up_a_job_that_is_stopping_has_it_killed() {
    let mut world = world();
    let (id, stint) = world.running(job(1, Some(4)));
    world.event(Event::CancelRequested { workload: id, by: "ada".to_owned() });
    let grace = |decisions: Vec<Decision>| match decisions.as_slice() {
        [Decision::Stop { grace, .. }] => Some(*grace),
        _ => None,
    };
    assert_eq!(grace(world.decide()), Some(job(1, None).run.grace));
    world.event(Event::GiveUpRequested { workload: id, by: "ada".to_owned() });
    assert_eq!(grace(world.decide()), Some(Span::ZERO));
    assert_eq!(world.decide(), [], "it is said once");
    world.event(Event::WorkerEnded { stint, rank: 0, end: WorkerEnd::Stopped, settled: true });
    world.decide();
    assert!(matches!(world.view(id).outcome, Some(Outcome::Cancelled { .. })));
}

#[test]
fn what_several_ranks_lost_is_all_said_whatever_is_heard_later() {
    let mut world = world();
    let (_, stint) = world.running(JobSpec { gang: 3, ..job(1, None) });
    let leases = world.leases();
    for rank in 0..3 {
        world.event(Event::WorkerEnded { stint, rank, end: WorkerEnd::Exited { code: 0 }, settled: false });
    }
    world.decide();
    let lost = Trouble { kind: TroubleKind::NotReturned, text: "outputs lie on n2".to_owned() };
    world.event(Event::Troubled { stint, trouble: Some(lost) });
    world.event(Event::LeaseGone { lease: leases[1], at: world.now, end: LeaseEnd::Lost });
    world.event(Event::Troubled { stint, trouble: None });
    world.decide();
    for lease in [leases[0], leases[2]] {
        world.event(Event::LeaseGone { lease, at: world.now, end: LeaseEnd::Lost });
    }
    let last = world.brain.take_final_views().pop().expect("a last view");
    let told = last.told.map(|told| told.to_string()).unwrap_or_default();
    assert!(told.contains("outputs lie on n2") && told.contains("its machine was lost before"), "{told}");
}

#[test]
fn a_gang_of_which_a_rank_failed_has_failed_also_where_its_machine_is_lost_then() {
    let mut world = world();
    let (id, stint) = world.running(JobSpec { gang: 2, ..job(1, None) });
    let checkpoint = CheckpointId { epoch: stint.epoch, seq: 1 };
    world.event(Event::CheckpointDurable { stint, checkpoint, work: None, ran: Some(Span::seconds(1)) });
    let leases = world.leases();
    world.event(Event::WorkerEnded { stint, rank: 1, end: WorkerEnd::Exited { code: 7 }, settled: false });
    assert!(matches!(world.decide().as_slice(), [Decision::Stop { .. }]));
    world.event(Event::LeaseGone { lease: leases[1], at: world.now, end: LeaseEnd::Lost });
    world.event(Event::WorkerEnded { stint, rank: 0, end: WorkerEnd::Stopped, settled: true });
    world.decide();
    assert!(matches!(world.view(id).outcome, Some(Outcome::Failed { code: 7, .. })));
}

#[test]
fn a_rank_that_has_sent_all_may_be_lost_and_so_may_one_of_a_gang_that_saves_nothing() {
    for (settled, saves) in [(true, true), (false, false)] {
        let mut world = world();
        let (id, stint) = world.running(JobSpec { gang: 2, ..job(1, None) });
        if saves {
            let checkpoint = CheckpointId { epoch: stint.epoch, seq: 1 };
            world.event(Event::CheckpointDurable { stint, checkpoint, work: None, ran: Some(Span::seconds(1)) });
        }
        let lease = world.leases()[1];
        world.event(Event::WorkerEnded { stint, rank: 1, end: WorkerEnd::Exited { code: 0 }, settled });
        world.event(Event::LeaseGone { lease, at: world.now, end: LeaseEnd::Lost });
        assert_eq!((world.decide(), world.view(id).interruptions), (Vec::new(), 0), "saves: {saves}");
    }
}

#[test]
fn a_job_that_failed_or_was_cancelled_says_it_too() {
    for is_cancelled in [false, true] {
        let mut world = world();
        let (id, stint) = world.running(job(1, Some(4)));
        if is_cancelled {
            world.event(Event::CancelRequested { workload: id, by: "ada".to_owned() });
            world.decide();
        }
        let end = if is_cancelled { WorkerEnd::Stopped } else { WorkerEnd::Exited { code: 3 } };
        world.event(Event::WorkerEnded { stint, rank: 0, end, settled: false });
        world.decide();
        world.gone(LeaseEnd::Lost);
        world.decide();
        let last = world.brain.take_final_views().pop().expect("a last view");
        assert_ne!(last.state, crate::view::State::Succeeded);
        let told = last.told.map(|told| told.to_string()).unwrap_or_default();
        assert!(told.contains("lost before all that its program left was sent"), "{is_cancelled}: {told}");
    }
}

#[test]
fn a_cancel_that_gives_up_what_is_still_being_sent_is_said_with_the_bill() {
    for (outputs, words) in [(vec![], "its last save"), (vec!["out".to_owned()], "its last save and its outputs")] {
        let mut world = world();
        let mut spec = job(1, Some(4));
        spec.run.luggage = Some(Box::new(crate::spec::Luggage { outputs, ..crate::spec::Luggage::default() }));
        let (id, stint) = world.running(spec);
        world.event(Event::CancelRequested { workload: id, by: "ada".to_owned() });
        world.decide();
        world.event(Event::WorkerEnded { stint, rank: 0, end: WorkerEnd::Stopped, settled: false });
        world.decide();
        world.gone(LeaseEnd::Released);
        world.decide();
        let told = world.brain.take_final_views().pop().and_then(|view| view.told).expect("it is told");
        assert!(told.to_string().contains(&format!("it was cancelled before {words}")), "{told}");
    }
}

#[test]
fn outputs_that_did_not_come_back_are_not_called_a_save() {
    let mut world = world();
    let (_, stint) = world.running(job(1, Some(4)));
    let text = "its outputs could not be brought back: full; they lie on gpu-1 in: /data".to_owned();
    let trouble = Trouble { kind: TroubleKind::NotReturned, text: text.clone() };
    world.event(Event::Troubled { stint, trouble: Some(trouble) });
    world.ended(stint, WorkerEnd::Exited { code: 0 });
    world.decide();
    world.gone(LeaseEnd::Released);
    let told = world.brain.take_final_views().pop().and_then(|view| view.told).expect("it is told");
    assert_eq!(told.to_string(), text);
}

#[test]
fn a_remark_about_old_checkpoints_is_no_word_about_the_last_save() {
    let mut world = world();
    let (_, stint) = world.running(job(1, Some(4)));
    let trouble = Trouble { kind: TroubleKind::Remark, text: "old checkpoints stay".to_owned() };
    world.event(Event::Troubled { stint, trouble: Some(trouble) });
    world.ended(stint, WorkerEnd::Exited { code: 0 });
    world.decide();
    world.gone(LeaseEnd::Released);
    assert_eq!(world.brain.take_final_views().pop().and_then(|view| view.told), None);
}

#[test]
fn a_last_save_that_arrives_gives_the_lease_back_at_once() {
    let mut world = world();
    let (_, stint) = world.running(job(1, Some(4)));
    world.pass(Span::minutes(50));
    let end = WorkerEnd::Exited { code: 0 };
    world.event(Event::WorkerEnded { stint, rank: 0, end: end.clone(), settled: false });
    world.decide();
    world.pass(Span::seconds(40));
    world.event(Event::WorkerEnded { stint, rank: 0, end, settled: true });
    assert!(matches!(world.decide().as_slice(), [Decision::Release { .. }]));
}

/// A gang of two that was told to stop, and whose programs have ended while the last save is on its way.
fn stopped_gang(spec: JobSpec) -> (World, StintId) {
    let mut world = world();
    let (_, stint) = world.running(JobSpec { gang: 2, ..spec });
    world.event(Event::WorkerEnded { stint, rank: 1, end: WorkerEnd::Exited { code: 1 }, settled: true });
    assert!(matches!(world.decide().as_slice(), [Decision::Stop { .. }]));
    world.event(Event::WorkerEnded { stint, rank: 0, end: WorkerEnd::Stopped, settled: false });
    assert!(world.decide().is_empty());
    (world, stint)
}

#[test]
fn what_a_stopped_program_saved_last_is_waited_for_as_after_any_other_end() {
    let (mut world, stint) = stopped_gang(job(1, None));
    world.pass(Span::minutes(10));
    assert!(world.decide().is_empty(), "the machines are held while the last save is tried");
    world.event(Event::WorkerEnded { stint, rank: 0, end: WorkerEnd::Stopped, settled: true });
    assert!(!world.decide().is_empty(), "it goes on");
    let (mut world, _) = stopped_gang(job(1, None));
    world.pass(Span::minutes(12));
    assert!(world.decide().iter().any(|decision| matches!(decision, Decision::Release { .. })), "but not for ever");
}

#[test]
fn whoever_gives_up_or_has_no_money_does_not_wait_for_a_last_save_and_whoever_cancels_does() {
    let releases =
        |world: &mut World| world.decide().iter().any(|decision| matches!(decision, Decision::Release { .. }));
    let (mut world, stint) = stopped_gang(job(1, None));
    world.event(Event::CancelRequested { workload: stint.workload, by: "ada".to_owned() });
    world.pass(Span::minutes(9));
    assert!(!releases(&mut world), "it has as long as after any other end");
    world.event(Event::GiveUpRequested { workload: stint.workload, by: "ada".to_owned() });
    assert!(releases(&mut world));
    let (mut world, stint) = stopped_gang(job(1, None));
    world.record(Body::Decision(Decision::Pause { workload: stint.workload }, Reason::new("budget", "a test")));
    world.pass(Span::seconds(80));
    assert!(world.decide().iter().any(|decision| matches!(decision, Decision::Release { .. })));
}
