//! Promises to programs that do not do as they should: what is safe, what is held, and when a job has ended.

use super::*;
use crate::market::foresight::Model;
use crate::record::{Trouble, TroubleKind};
use crate::spec::{Ask, Continued};
use crate::units::Rate;

pub(super) fn steps(total: u64, deadline: Span) -> JobSpec {
    let rate = Rate::of(Work(4), Span::seconds(1)).expect("a speed");
    JobSpec {
        work: WorkSpec { total: Some(Work(total)), unit: WorkUnit::Steps, rates: [("V100".to_owned(), rate)].into() },
        deadline: Some(Time(1_000_000) + deadline),
        ..job(1, None)
    }
}

fn away() -> Trouble {
    Trouble { kind: TroubleKind::StoreAway, text: "s3://bucket does not answer".to_owned() }
}

#[test]
fn a_save_is_worth_what_was_in_the_files_and_nothing_more() {
    let mut world = world();
    let (id, stint) = world.running(job(2, None));
    world.pass(Span::minutes(30));
    let checkpoint = CheckpointId { epoch: 1, seq: 1 };
    world.event(Event::CheckpointDurable { stint, checkpoint, work: None, ran: None });
    assert_eq!(world.view(id).durable, Work(0), "nobody knows what is in it");
    world.saved(stint, 2, Span::minutes(10));
    assert_eq!(world.view(id).durable, Work(10 * 60_000), "written twenty minutes before it was stored");
    world.pass(Span::minutes(5));
    world.gone(LeaseEnd::Taken);
    let view = world.view(id);
    assert_eq!((view.done, view.lost), (Work(10 * 60_000), Span::minutes(25)));
}

#[test]
fn a_first_report_below_what_was_taken_for_safe_lowers_it() {
    let mut world = world();
    let (id, stint) = world.running(steps(10_000, Span::hours(9)));
    world.event(Event::Progress { stint, done: Work(4_000), total: None });
    let checkpoint = CheckpointId { epoch: 1, seq: 1 };
    world.event(Event::CheckpointDurable { stint, checkpoint, work: Some(Work(4_000)), ran: None });
    world.pass(Span::minutes(30));
    world.gone(LeaseEnd::Taken);
    world.decide();
    world.up_all();
    world.decide();
    let stint = world.started(id);
    assert_eq!(world.view(id).durable, Work(4_000));
    world.event(Event::Progress { stint, done: Work(1), total: None });
    let view = world.view(id);
    assert_eq!((view.durable, view.done), (Work(1), Work(1)), "the program began from nothing");
}

#[test]
fn a_stop_that_saved_nothing_is_not_tried_again_on_that_lease() {
    let mut world = world();
    let (id, stint) = world.running(steps(14_400, Span::minutes(85)));
    assert_eq!(world.market(), Market::Spot);
    let lease = world.leases()[0];
    // It reports and saves nothing; at some point the slack no longer bears what would be lost.
    let mut stopped = false;
    for minute in 1..60 {
        world.pass(Span::minutes(1));
        world.event(Event::Progress { stint, done: Work(minute * 240), total: None });
        stopped = world.decide().iter().any(|decision| matches!(decision, Decision::Stop { .. }));
        if stopped {
            break;
        }
    }
    assert!(stopped, "the net acts before it is too late");
    world.pass(Span::seconds(30));
    world.ended(stint, WorkerEnd::Stopped);
    assert_eq!(world.brain.job(id).and_then(|job| job.saves_when_told), Some(false));
    let decisions = world.decide();
    assert_eq!(
        decisions,
        [Decision::Release { group: lease.group, slots: vec![lease.slot] }],
        "not started again here"
    );
    world.gone(LeaseEnd::Released);
    world.decide();
    assert_eq!(world.market(), Market::OnDemand);
    let slack = world.view(id).slack.expect("a deadline");
    assert!(slack.0 >= 0, "on-demand still makes it: {slack:?}");
}

#[test]
fn a_program_that_still_runs_at_100_percent_is_never_stopped() {
    let mut world = world();
    world.brain.foresee(Model::embedded(), Vec::new());
    let (_, _) = world.running(JobSpec { deadline: Some(Time(1_000_000) + Span::hours(3)), ..job(1, None) });
    for _ in 0..90 {
        world.pass(Span::minutes(1));
        let decisions = world.decide();
        let harmless = |decision: &Decision| matches!(decision, Decision::Checkpoint { .. });
        assert!(decisions.iter().all(harmless), "{decisions:?}");
    }
}

#[test]
fn a_gang_is_stopped_as_soon_as_one_of_it_failed_also_while_that_one_still_saves() {
    let mut world = world();
    let (_, stint) = world.running(JobSpec { gang: 3, ..job(1, None) });
    world.event(Event::WorkerEnded { stint, rank: 0, end: WorkerEnd::Exited { code: 1 }, settled: false });
    assert!(matches!(world.decide().as_slice(), [Decision::Stop { .. }]));
}

#[test]
fn a_store_that_is_away_costs_five_minutes_and_no_failure() {
    let mut world = world();
    let (id, stint) = world.running(job(2, Some(9)));
    world.pass(Span::minutes(30));
    world.saved(stint, 1, Span::minutes(30));
    world.gone(LeaseEnd::Taken);
    world.decide();
    world.up_all();
    world.decide();
    let stint = world.stint(id);
    world.event(Event::Troubled { stint, trouble: Some(away()) });
    assert!(world.decide().is_empty(), "it may be back in a moment");
    assert_eq!(world.view(id).trouble, Some(away()), "said at once");
    world.pass(Span::minutes(5));
    assert!(matches!(world.decide().as_slice(), [Decision::Stop { .. }]));
    world.ended(stint, WorkerEnd::StoreAway { why: "no answer".to_owned() });
    assert!(matches!(world.decide().as_slice(), [Decision::Release { .. }]));
    world.gone(LeaseEnd::Released);
    // It waits unpaid, looks now and then, and never gives up.
    let mut looks = 0;
    for _ in 0..40 {
        world.pass(Span::minutes(5));
        for decision in world.decide() {
            assert!(matches!(decision, Decision::CheckStore { .. }), "{decision:?}");
            looks += 1;
            world.event(Event::StoreChecked { workload: id, trouble: Some(away()) });
        }
        assert!(world.brain.leases().next().is_none());
    }
    assert!(looks > 10, "{looks}");
    world.pass(Span::minutes(5));
    world.decide();
    world.event(Event::StoreChecked { workload: id, trouble: None });
    world.decide();
    world.up_all();
    world.decide();
    let job = world.brain.job(id).expect("it lives");
    assert_eq!((job.stint.is_some(), job.progress.durable, job.fruitless), (true, Work(30 * 60_000), 0));
}

#[test]
fn jobs_that_see_capacity_for_one_do_not_all_ask_for_it() {
    let mut world = world();
    world.offer(SPOT, 0.9, Some(1));
    for _ in 0..3 {
        world.submit(job(1, None));
    }
    let decisions = world.decide();
    assert_eq!(decisions.len(), 1, "{decisions:?}");
    world.pass(Span::seconds(1));
    assert!(world.decide().is_empty(), "what was asked for is gone");
    world.up_all();
    let asks = |decisions: &[Decision]| decisions.iter().any(|decision| matches!(decision, Decision::Acquire { .. }));
    assert!(!asks(&world.decide()), "what one of them holds cannot be had by the others");
}

#[test]
fn what_is_no_longer_shown_is_not_for_sale() {
    let mut world = world();
    world.event(Event::OfferGone { offer: OfferId::new(SPOT) });
    world.submit(job(1, None));
    world.decide();
    assert_eq!(world.market(), Market::OnDemand);
}

#[test]
fn a_market_in_use_is_not_forgotten_for_others() {
    let mut world = world();
    let ask = |n: u32| vec![Ask::of("V100", n)];
    let first = world.submit(JobSpec { resources: ask(1), ..job(1, Some(9)) });
    for n in 2..40 {
        world.submit(JobSpec { gang: n, ..job(1, None) });
    }
    let job = world.brain.job(first).expect("it lives");
    assert!(world.brain.sight(job, world.now).offers.iter().any(|seen| seen.belief.is_some()));
}

#[test]
fn what_a_program_counts_without_a_total_says_nothing_about_hours() {
    let mut world = world();
    let (_, stint) = world.running(job(1, None));
    assert!(!world.brain.is_news(&Event::Progress { stint, done: Work(7), total: None }));
}

#[test]
fn progress_is_worth_a_record_when_it_is_a_share_of_the_whole() {
    let mut world = world();
    let (_, stint) = world.running(steps(10_000, Span::hours(9)));
    let report = |done: u64| Event::Progress { stint, done: Work(done), total: None };
    assert!(world.brain.is_telling(&report(1)), "the first word");
    world.event(report(1));
    assert!(world.brain.is_news(&report(2)) && !world.brain.is_telling(&report(2)));
    assert!(world.brain.is_telling(&report(21)));
}

#[test]
fn the_time_that_a_program_takes_to_stop_says_nothing_about_its_speed() {
    let mut world = world();
    let (id, stint) = world.running(steps(100_000, Span::hours(20)));
    for minute in 1..=10 {
        world.pass(Span::minutes(1));
        world.event(Event::Progress { stint, done: Work(minute * 240), total: None });
    }
    let speed = |world: &World| world.brain.job(id).and_then(|job| job.rate("V100"));
    let before = speed(&world);
    world.record(Body::Decision(Decision::Stop { stint, grace: Span::minutes(9) }, Reason::new("test", "test")));
    world.pass(Span::minutes(9));
    world.event(Event::Progress { stint, done: Work(2_401), total: None });
    assert_eq!(speed(&world), before);
}

#[test]
fn a_job_that_goes_on_from_another_counts_from_there() {
    let mut world = world();
    let continues = Some(Continued { job: WorkloadId(1), key: "old".to_owned(), epoch: 7, durable: Work(3_000) });
    let id = world.submit(JobSpec { continues, ..steps(10_000, Span::hours(9)) });
    assert_eq!(world.view(id).done, Work(3_000));
    world.decide();
    world.up_all();
    world.decide();
    assert_eq!(world.stint(id).epoch, 8);
}

#[test]
fn a_start_says_what_the_program_goes_on_from() {
    let said = |world: &World| {
        let mut starts = world.decided.iter().filter(|decided| matches!(decided.decision, Decision::Start { .. }));
        starts.next_back().map(|decided| decided.reason.text.clone()).expect("it starts")
    };
    for (is_saved, words) in [(true, "goes on from what is saved"), (false, "begins again, because nothing is saved")] {
        let mut world = super::world();
        let (_, stint) = world.running(job(4, None));
        assert_eq!(said(&world), "the machine is up");
        world.pass(Span::minutes(50));
        if is_saved {
            world.saved(stint, 1, Span::minutes(40));
        }
        world.gone(LeaseEnd::Lost);
        world.decide();
        world.up_all();
        world.decide();
        assert!(said(&world).contains(words), "{}", said(&world));
    }
    for (durable, words) in [(3_000, "goes on from what job 1 saved"), (0, "nothing is known to be saved of job 1")] {
        let mut world = super::world();
        let continues = Some(Continued { job: WorkloadId(1), key: "old".to_owned(), epoch: 7, durable: Work(durable) });
        world.running(JobSpec { continues, ..steps(10_000, Span::hours(9)) });
        assert!(said(&world).contains(words), "{}", said(&world));
    }
}

#[test]
fn a_job_that_nothing_can_serve_says_what_is_sold() {
    let mut world = world();
    let spec = JobSpec { resources: vec![Ask::of("banana", 1)], ..job(1, None) };
    assert!(!world.brain.can_serve(&spec));
    let id = world.submit(spec);
    assert!(world.decide().is_empty());
    let why = world.view(id).waits_for.expect("it waits");
    assert!(why.contains("banana:1") && why.contains("V100:1"), "{why}");
}

#[test]
fn a_deadline_is_not_called_lost_in_the_moment_of_success() {
    let mut world = world();
    let (id, stint) = world.running(job(1, Some(2)));
    world.pass(Span::hours(2) - Span::seconds(1));
    world.brain.take_final_views();
    let before = world.decided.len();
    world.event(Event::WorkerEnded { stint, rank: 0, end: WorkerEnd::Exited { code: 0 }, settled: false });
    world.decide();
    let said: Vec<&Decision> = world.decided[before..].iter().map(|decided| &decided.decision).collect();
    assert!(!said.iter().any(|decision| matches!(decision, Decision::Notify { .. })), "{said:?}");
    assert_eq!(world.view(id).deadline_met(), Some(true));
}

#[test]
fn a_program_that_exits_with_a_code_while_its_lease_is_taken_was_interrupted_and_did_not_fail() {
    let mut world = world();
    let (id, stint) = world.running(job(4, None));
    world.pass(Span::minutes(5));
    let lease = world.leases()[0];
    world.event(Event::LeaseNoticed { lease, ends_at: world.now + Span::minutes(2), why: None });
    world.ended(stint, WorkerEnd::Exited { code: 1 });
    world.gone(LeaseEnd::Taken);
    world.decide();
    let job = world.brain.job(id).expect("it lives");
    assert_eq!((job.failures, job.interruptions, job.verdict.clone()), (0, 1, None));
}

#[test]
fn the_fence_of_a_stint_is_not_something_that_its_program_saved() {
    let mut world = world();
    let (id, stint) = world.running(JobSpec { retries: 3, ..job(4, None) });
    world.pass(Span::minutes(10));
    world.saved(stint, 1, Span::minutes(10));
    world.gone(LeaseEnd::Taken);
    world.decide();
    world.up_all();
    world.decide();
    let stint = world.started(id);
    world.ended(stint, WorkerEnd::Exited { code: 1 });
    let avoid = world.brain.job(id).and_then(|job| job.avoid);
    assert!(avoid.is_some(), "it failed on what it was given");
    world.decide();
    let stint = world.started(id);
    world.saved(stint, 0, Span::ZERO);
    assert_eq!(world.brain.job(id).and_then(|job| job.avoid), avoid);
}

#[test]
fn a_store_that_is_full_or_refuses_at_a_restart_costs_five_minutes_as_well() {
    for kind in [TroubleKind::StoreFull, TroubleKind::StoreDenied] {
        let mut world = world();
        let id = world.submit(job(2, Some(9)));
        world.decide();
        world.up_all();
        world.decide();
        let stint = world.stint(id);
        world.event(Event::Troubled { stint, trouble: Some(Trouble { kind, text: "no".to_owned() }) });
        world.pass(Span::minutes(6));
        assert!(matches!(world.decide().as_slice(), [Decision::Stop { .. }]), "{kind:?}");
    }
}

#[test]
fn a_gang_whose_last_machine_is_lost_while_another_saves_comes_to_an_end() {
    let mut world = world();
    let (_, stint) = world.running(JobSpec { gang: 2, ..job(1, None) });
    let end = WorkerEnd::Exited { code: 0 };
    world.event(Event::WorkerEnded { stint, rank: 0, end, settled: false });
    let lost = world.leases()[1];
    world.event(Event::LeaseGone { lease: lost, at: world.now, end: LeaseEnd::Lost });
    world.decide();
    world.pass(Span::minutes(12));
    world.decide();
    assert!(world.brain.leases().all(|lease| lease.is_releasing()), "nothing is held for ever");
}

#[test]
fn a_person_can_end_the_last_save_of_a_job_that_has_succeeded() {
    let mut world = world();
    let (id, stint) = world.running(job(1, None));
    world.event(Event::WorkerEnded { stint, rank: 0, end: WorkerEnd::Exited { code: 0 }, settled: false });
    world.decide();
    world.event(Event::GiveUpRequested { workload: id, by: "somebody".to_owned() });
    assert!(matches!(world.decide().as_slice(), [Decision::Release { .. }]));
    world.gone(LeaseEnd::Released);
    let last = world.brain.take_final_views().pop().expect("a last view");
    assert_eq!(last.state, crate::view::State::Succeeded);
}

/// A job of 100,000 steps that was interrupted with 4,000 of them durable, and has begun again.
fn resumed_at_4000() -> (World, WorkloadId, StintId) {
    let mut world = world();
    let (id, stint) = world.running(steps(100_000, Span::hours(20)));
    world.event(Event::Progress { stint, done: Work(4_000), total: None });
    let checkpoint = CheckpointId { epoch: 1, seq: 1 };
    world.event(Event::CheckpointDurable { stint, checkpoint, work: Some(Work(4_000)), ran: None });
    world.gone(LeaseEnd::Taken);
    world.decide();
    world.up_all();
    world.decide();
    let stint = world.started(id);
    (world, id, stint)
}

#[test]
fn first_words_before_a_checkpoint_was_loaded_say_nothing_about_speed() {
    let (mut world, id, stint) = resumed_at_4000();
    let before = world.brain.job(id).and_then(|job| job.rate("V100"));
    world.event(Event::Progress { stint, done: Work(0), total: None });
    for minute in 1..=5 {
        world.pass(Span::minutes(1));
        world.event(Event::Progress { stint, done: Work(4_000 + minute * 240), total: None });
    }
    assert_eq!(world.brain.job(id).and_then(|job| job.rate("V100")), before, "four steps a second, as before");
    assert_eq!(world.view(id).durable, Work(4_000), "the checkpoint was there after all");
}

#[test]
fn a_bar_that_skips_what_was_done_says_nothing_about_speed() {
    let (mut world, id, stint) = resumed_at_4000();
    let before = world.brain.job(id).and_then(|job| job.rate("V100"));
    for done in [0, 1_200, 2_600, 4_000] {
        world.event(Event::Progress { stint, done: Work(done), total: None });
        world.pass(Span::seconds(1));
    }
    world.pass(Span::seconds(59));
    world.event(Event::Progress { stint, done: Work(4_240), total: None });
    assert_eq!(world.brain.job(id).and_then(|job| job.rate("V100")), before, "four steps a second, as before");
}

#[test]
fn an_upload_that_was_on_its_way_is_no_answer_to_a_stop() {
    let mut world = world();
    let (id, stint) = world.running(steps(100_000, Span::hours(20)));
    world.pass(Span::minutes(10));
    world.event(Event::Progress { stint, done: Work(2_400), total: None });
    world.record(Body::Decision(Decision::Stop { stint, grace: Span::seconds(30) }, Reason::new("test", "test")));
    let checkpoint = CheckpointId { epoch: 1, seq: 1 };
    world.event(Event::CheckpointDurable { stint, checkpoint, work: Some(Work(2_000)), ran: None });
    world.pass(Span::seconds(30));
    world.ended(stint, WorkerEnd::Stopped);
    assert_eq!(world.brain.job(id).and_then(|job| job.saves_when_told), Some(false));
}

#[test]
fn who_holds_a_machine_that_does_not_come_hears_when_the_deadline_is_lost() {
    let mut world = world();
    let asked_at = world.now;
    // A policy that weighs nothing does not look again by itself.
    let policy = Some("on-demand".to_owned());
    let id = world.submit(JobSpec { deadline: Some(asked_at + Span::minutes(64)), policy, ..job(1, None) });
    world.decide();
    let lease = world.leases()[0];
    world.event(Event::LeaseUp { lease, at: world.now, terms: Box::default(), ready: None });
    world.decide();
    let told = |decided: &[Decision]| decided.iter().any(|decision| matches!(decision, Decision::Notify { .. }));
    let heard = (0..100).any(|_| {
        world.now = world.brain.next_wakeup().expect("a wake-up").max(world.now);
        told(&world.decide())
    });
    assert!(heard && world.brain.job(id).is_some_and(|job| job.told_infeasible));
    // Two minutes for the changeover, two of slack, and what estimates may be off by; a boot may take fifteen.
    let after = world.now - asked_at;
    assert!(after > Span::minutes(4) && after < Span::minutes(7), "told after {after}");
}
