//! Edges that small mistakes would move: each of these was a change of the source that no other test noticed.

use super::promises::steps;
use super::*;
use crate::market::{Margins, Present, Seen, Sight};
use crate::offer::OfferId;
use crate::reason::Number;
use crate::spec::Ask;

#[test]
fn what_a_lost_machine_took_along_is_not_done() {
    let mut world = world();
    let (id, stint) = world.running(steps(100_000, Span::hours(20)));
    world.pass(Span::minutes(10));
    world.event(Event::Progress { stint, done: Work(4_000), total: None });
    let checkpoint = CheckpointId { epoch: 1, seq: 1 };
    world.event(Event::CheckpointDurable { stint, checkpoint, work: Some(Work(2_000)), ran: None });
    assert_eq!(world.view(id).done, Work(4_000));
    world.gone(LeaseEnd::Taken);
    let view = world.view(id);
    assert_eq!((view.done, view.durable), (Work(2_000), Work(2_000)));
    assert_eq!(view.useful(), Span((view.ran - view.lost).0), "{view:?}");
    assert!(view.lost > Span::ZERO && view.lost < view.ran);
}

#[test]
fn a_save_that_says_nothing_is_worth_what_the_stint_began_with() {
    let mut world = world();
    let (id, stint) = world.running(steps(100_000, Span::hours(20)));
    world.event(Event::Progress { stint, done: Work(4_000), total: None });
    let checkpoint = CheckpointId { epoch: 1, seq: 1 };
    world.event(Event::CheckpointDurable { stint, checkpoint, work: None, ran: None });
    assert_eq!(world.view(id).durable, Work(0));
}

#[test]
fn a_job_fails_after_its_last_retry_and_not_before() {
    let mut world = world();
    let (id, mut stint) = world.running(JobSpec { retries: 2, ..job(1, None) });
    for failures in 1..=3 {
        world.ended(stint, WorkerEnd::Exited { code: 7 });
        world.decide();
        assert_eq!(world.view(id).state.is_over(), failures == 3, "after {failures}");
        if failures < 3 {
            // Where it brought nothing again and again it rests a little.
            world.pass(Span::minutes(1));
            world.decide();
            world.up_all();
            world.decide();
            stint = world.started(id);
        }
    }
}

#[test]
fn whoever_holds_nothing_has_a_start_before_it() {
    let offer = |id: &str, market| Seen {
        id: OfferId::new(id),
        market,
        price: NanoUsd(1),
        entry: NanoUsd(0),
        available: true,
        refused_until: None,
        belief: None,
    };
    let offers = vec![offer("a", Market::OnDemand)];
    let idle = Sight::at_the_start(Span::hours(2), Span::hours(5), Span::minutes(6), Margins::default(), offers);
    assert_eq!(idle.slack(), Some(Span::hours(3) - Span::minutes(6)));
    let present = Present { offer: OfferId::new("a"), market: Market::OnDemand, running: true, since: Time(0) };
    assert_eq!(Sight { present: Some(present), ..idle }.slack(), Some(Span::hours(3)));
}

#[test]
fn the_brain_knows_the_time_of_its_last_record() {
    let mut world = world();
    world.pass(Span::hours(3));
    world.submit(job(1, None));
    assert_eq!(world.brain.now(), world.now);
}

#[test]
fn numbers_are_written_as_people_read_them() {
    let numbers = [Number::Span(Span::minutes(3)), Number::Count(7), Number::Work(Work(9)), Number::Time(Time(5))];
    assert_eq!(numbers.map(|number| number.to_string()), ["3m 0s", "7", "9", "@5"]);
    assert_eq!(Number::Money(NanoUsd(1_500_000_000)).to_string(), "$1.50");
}

#[test]
fn a_gang_may_shrink_to_itself_and_no_further_up() {
    let spec = |gang, least| JobSpec { gang, least_gang: Some(least), ..job(1, None) };
    let good = |gang, least| spec(gang, least).check().is_ok();
    assert!(good(2, 1) && good(2, 2) && !good(2, 3) && !good(2, 9) && !good(2, 0));
}

#[test]
fn a_program_that_counts_is_silent_since_its_last_word() {
    let mut world = world();
    let (id, stint) = world.running(steps(100_000, Span::hours(20)));
    world.event(Event::Progress { stint, done: Work(10), total: None });
    world.pass(Span::minutes(4));
    let silent = |world: &World, id| world.brain.job(id).map(|job| world.brain.sight(job, world.now).silent);
    assert_eq!(silent(&world, id), Some(Span::minutes(4)));
    // Where time is the work, silence says nothing.
    let (id, _) = world.running(job(1, None));
    world.pass(Span::minutes(4));
    assert_eq!(silent(&world, id), Some(Span::ZERO));
}

#[test]
fn only_a_share_of_the_whole_or_another_total_is_worth_a_row() {
    let mut world = world();
    let (_, stint) = world.running(steps(100_000, Span::hours(20)));
    let progress = |done, total: Option<u64>| Event::Progress { stint, done: Work(done), total: total.map(Work) };
    assert!(world.brain.is_telling(&progress(1, None)), "a first word");
    world.event(progress(1_000, Some(100_000)));
    assert!(
        !world.brain.is_telling(&progress(1_100, None)) && !world.brain.is_telling(&progress(1_100, Some(100_000)))
    );
    assert!(world.brain.is_telling(&progress(1_200, None)), "a five-hundredth");
    assert!(world.brain.is_telling(&progress(1_001, Some(90_000))), "another total");
}

#[test]
fn what_is_on_offer_can_serve_and_what_is_not_cannot() {
    let world = world();
    let wants = |accelerator: &str| JobSpec { resources: vec![Ask::of(accelerator, 1)], ..job(1, None) };
    assert!(world.brain.can_serve(&wants("V100")) && !world.brain.can_serve(&wants("banana")));
}

#[test]
fn a_notice_is_in_the_view_and_measured_starts_weigh_like_what_was_said() {
    let mut world = world();
    let (id, _) = world.running(job(1, None));
    assert_eq!(world.view(id).lease.and_then(|lease| lease.ends_at), None);
    let (lease, ends_at) = (world.leases()[0], world.now + Span::minutes(2));
    world.event(Event::LeaseNoticed { lease, ends_at, why: None });
    assert_eq!(world.view(id).lease.and_then(|lease| lease.ends_at), Some(ends_at));
    let config = Config { restart_prior: Span::seconds(60), ..Config::default() };
    let mut spec = job(1, None);
    spec.checkpoint.restart = Some(Span::seconds(100));
    let mut job = crate::brain::job::Job::new(WorkloadId(1), spec.into(), Time(0));
    job.restarts = (3, Span::seconds(300 + 300 + 300));
    assert_eq!(job.restart(&config), Span::seconds((2 * 100 + 900) / 5));
}
