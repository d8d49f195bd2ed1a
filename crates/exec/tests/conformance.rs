//! The promises of `Engine`, checked on every engine: each fact is written once, and a macro runs all of
//! them on a stage, which knows how one engine is opened and how its world is hurt.
#![expect(clippy::unwrap_used, reason = "a test may stop where it stands")]

#[path = "conformance/facts.rs"]
mod facts;
#[path = "conformance/groups.rs"]
mod groups;
#[path = "conformance/local.rs"]
mod local;
#[path = "conformance/saves.rs"]
mod saves;
#[path = "conformance/shared.rs"]
mod shared;
#[path = "conformance/stage.rs"]
mod stage;

/// Runs facts on a stage.
macro_rules! conforms {
    ($name:ident, $stage:ty: $($module:ident::$fact:ident),+ $(,)?) => {
        mod $name {
            $(#[test]
            fn $fact() {
                crate::$module::$fact(&mut <$stage as crate::stage::Stage>::open());
            })+
        }
    };
}

/// Runs every fact that is true of all engines on a stage.
macro_rules! every_fact {
    ($name:ident, $stage:ty) => {
        conforms! { $name, $stage:
            facts::an_engine_says_what_it_can_do_and_what_it_sells,
            facts::acquired_twice_there_is_one_lease,
            facts::what_is_not_sold_is_refused,
            facts::released_before_it_was_acquired_it_never_will_be,
            facts::release_returns_only_when_nothing_runs,
            facts::a_release_that_races_an_acquire_leaves_nothing,
            facts::an_unknown_lease_is_missing_in_the_answer,
            facts::a_new_engine_on_the_same_ground_adopts_what_runs,
            facts::an_acquire_that_was_cut_off_is_taken_up_again,
            facts::a_machine_that_died_is_observed_as_gone,
            facts::a_machine_that_died_unseen_is_observed_as_gone,
            facts::started_twice_there_is_one_worker,
            facts::stopped_before_it_started_it_never_starts,
            facts::an_old_epoch_is_refused,
            facts::a_stop_asks_first_and_kills_after_the_grace,
            facts::a_daemon_that_nobody_alive_knows_of_ends_with_its_lease,
            facts::only_what_is_gone_can_be_forgotten,
            groups::a_group_comes_whole_and_asked_twice_it_is_one,
            groups::a_group_is_granted_in_part_down_to_the_least_and_never_below,
            groups::an_alternative_is_taken_when_the_first_cannot_be_had_and_the_lease_says_which,
            groups::one_of_a_group_can_go_and_the_others_stay,
            saves::an_end_is_told_before_the_last_save_and_a_save_that_is_given_up_is_kept,
            saves::a_release_during_the_last_save_keeps_the_files,
            saves::a_last_save_succeeds_soon_after_the_store_is_back,
            saves::what_a_stopped_program_saved_last_has_longer_than_its_grace,
            saves::a_store_that_is_away_is_waited_for_and_never_taken_for_an_empty_one,
            saves::a_stint_that_saves_nothing_has_no_checkpoint,
            saves::a_program_killed_in_the_middle_of_a_write_leaves_its_last_whole_save,
            saves::a_program_that_never_settles_is_told_so,
            saves::a_mark_makes_a_save_whole_at_once,
            saves::work_is_what_was_said_when_the_files_were_written,
            shared::two_workloads_run_at_once_and_are_both_seen,
            shared::the_end_of_one_leaves_the_other_running_with_all_that_is_below_it,
            shared::each_is_told_how_it_ended_though_all_end_at_once,
            shared::a_stop_of_one_does_not_reach_the_other,
            shared::each_sees_only_its_devices,
            shared::a_request_to_save_reaches_the_one_that_it_names,
            shared::what_two_workloads_save_never_meets,
            shared::release_ends_both_and_leaves_no_process,
            shared::a_release_during_two_last_saves_keeps_the_files_of_both,
            shared::a_second_start_of_one_changes_nothing_while_the_other_runs,
            shared::an_agent_that_is_killed_ends_both_and_both_are_told,
        }
    };
}

/// Runs the facts of engines whose market takes leases away.
macro_rules! market_facts {
    ($name:ident, $stage:ty) => {
        conforms! { $name, $stage:
            facts::a_notice_is_heard_and_kept,
            facts::what_is_taken_away_takes_everything_with_it,
            shared::a_notice_reaches_both_and_both_save,
        }
    };
}

every_fact! { the_simulated_engine, crate::local::LocalStage<{ crate::local::SIMULATED }> }
every_fact! { the_simulated_engine_behind_a_socket, crate::local::LocalStage<{ crate::local::APART }> }
every_fact! { owned_machines, crate::local::LocalStage<{ crate::local::MACHINES }> }
every_fact! { a_node_that_has_joined, crate::local::LocalStage<{ crate::local::JOINED }> }
market_facts! { the_simulated_market, crate::local::LocalStage<{ crate::local::SIMULATED }> }
market_facts! { the_simulated_market_behind_a_socket, crate::local::LocalStage<{ crate::local::APART }> }
