//! Checkpoints, on every kind of store: a directory and a relay to one always, and S3, GCS and Azure where a server's endpoint is
//! in `WINDFALL_TEST_S3`, `WINDFALL_TEST_GCS` and `WINDFALL_TEST_AZURE`.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

#[path = "checkpoints/facts.rs"]
mod facts;
#[path = "checkpoints/moving.rs"]
mod moving;
#[path = "checkpoints/probing.rs"]
mod probing;
#[path = "checkpoints/relaying.rs"]
mod relaying;
#[path = "checkpoints/stores.rs"]
mod stores;
#[path = "checkpoints/trees.rs"]
mod trees;
#[path = "checkpoints/watching.rs"]
mod watching;

/// The same facts on every store.
macro_rules! on_every_store {
    ($($module:ident :: $fact:ident),* $(,)?) => {
        mod on_directory { $( #[test] fn $fact() { crate::stores::run(crate::stores::Kind::Directory, crate::$module::$fact); } )* }
        mod on_relay { $( #[test] fn $fact() { crate::stores::run(crate::stores::Kind::Relay, crate::$module::$fact); } )* }
        mod on_s3 { $( #[test] fn $fact() { crate::stores::run(crate::stores::Kind::S3, crate::$module::$fact); } )* }
        mod on_gcs { $( #[test] fn $fact() { crate::stores::run(crate::stores::Kind::Gcs, crate::$module::$fact); } )* }
        mod on_azure { $( #[test] fn $fact() { crate::stores::run(crate::stores::Kind::Azure, crate::$module::$fact); } )* }
    };
}

on_every_store! {
    facts::a_torn_upload_never_counts,
    facts::a_cancelled_upload_counts_whole_or_not_at_all,
    facts::the_manifest_is_written_last,
    facts::unchanged_files_are_not_sent_twice,
    facts::a_failed_save_is_not_sent_again,
    facts::a_damaged_checkpoint_gives_way_to_the_one_before,
    facts::one_wrong_byte_in_a_large_file_is_noticed,
    facts::a_missing_blob_gives_way_to_the_one_before,
    facts::a_stale_stint_never_wins,
    facts::a_stale_stint_never_wins_even_behind_damage,
    facts::before_skips_the_fence_that_repeats_the_bad_one,
    facts::who_goes_on_from_a_job_that_failed_gets_what_was_saved_last,
    facts::a_fresh_start_stays_fresh,
    facts::a_name_is_used_once,
    facts::of_two_savers_of_one_name_one_wins,
    facts::pruning_keeps_what_it_promises,
    facts::good_checkpoints_outlive_stints_that_fail_on_a_bad_one,
    facts::equal_contents_count_once,
    facts::an_emptied_store_is_not_a_new_one,
    facts::a_begin_that_is_tried_again_finds_its_own_fence,
    facts::a_stale_stint_prunes_nothing,
    facts::pruned_blobs_are_never_pointed_to_again,
    facts::blobs_of_a_failed_save_are_never_pointed_to_after_a_prune,
    facts::a_newer_format_is_refused,
    facts::paths_that_leave_the_directory_are_refused,
    facts::a_file_that_changes_is_not_saved,
    trees::every_kind_of_entry_comes_back,
    trees::ten_thousand_small_files_come_back,
    trees::a_large_file_goes_in_parts_and_comes_back,
    trees::a_dirty_directory_becomes_what_a_new_machine_has,
    moving::each_save_of_a_program_becomes_durable,
    probing::a_good_store_passes_and_is_left_empty,
    probing::a_store_says_where_it_is,
}
