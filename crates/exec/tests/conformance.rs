//! The promises of `Engine`, checked on every engine: each fact is written once, and a macro runs all of
//! them on a stage, which knows how one engine is opened and how its world is hurt.
#![expect(clippy::unwrap_used, reason = "a test may stop where it stands")]

#[path = "conformance/facts.rs"]
mod facts;
#[path = "conformance/simulated.rs"]
mod simulated;
#[path = "conformance/stage.rs"]
mod stage;

/// Runs every fact on a stage.
macro_rules! conforms {
    ($name:ident, $stage:ty: $($fact:ident),+ $(,)?) => {
        mod $name {
            $(#[test]
            fn $fact() {
                crate::facts::$fact(&mut <$stage as crate::stage::Stage>::open());
            })+
        }
    };
}

conforms! { the_simulated_engine, crate::simulated::SimulatedStage:
    an_engine_says_what_it_can_do_and_what_it_sells,
    acquired_twice_there_is_one_lease,
    what_is_not_sold_is_refused,
    released_before_it_was_acquired_it_never_will_be,
    release_returns_only_when_nothing_runs,
    a_release_that_races_an_acquire_leaves_nothing,
    an_unknown_lease_is_missing_in_the_answer,
    a_new_engine_on_the_same_ground_adopts_what_runs,
    an_acquire_that_was_cut_off_is_taken_up_again,
    a_machine_that_died_is_observed_as_gone,
    a_machine_that_died_unseen_is_observed_as_gone,
    started_twice_there_is_one_worker,
    stopped_before_it_started_it_never_starts,
    an_old_epoch_is_refused,
    a_stop_asks_first_and_kills_after_the_grace,
    a_notice_is_heard_and_kept,
    what_is_taken_away_takes_everything_with_it,
    only_what_is_gone_can_be_forgotten,
}
