//! One suite for all stores: each case of `suite/cases.rs` runs on every backend, and what only one backend can do is
//! tested beside it. PostgreSQL is used where `WINDFALL_TEST_POSTGRES` names a server.

#![expect(clippy::unwrap_used, reason = "in a test a panic is the report")]

#[path = "suite/cases.rs"]
mod cases;
#[path = "suite/killed.rs"]
mod killed;
#[path = "suite/memory_only.rs"]
mod memory_only;
#[path = "suite/postgres_only.rs"]
mod postgres_only;
#[path = "suite/read_cases.rs"]
mod read_cases;
#[path = "suite/sqlite_only.rs"]
mod sqlite_only;
#[path = "suite/test_store.rs"]
mod test_store;

macro_rules! suite {
    ($($module:ident: $case:ident),* $(,)?) => {
        suite!(@on memory $($module: $case),*);
        suite!(@on sqlite $($module: $case),*);
        suite!(@on postgres $($module: $case),*);
    };
    (@on $backend:ident $($module:ident: $case:ident),*) => {
        mod $backend {
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $case() {
                    if let Some(test_store) = crate::test_store::$backend() {
                        crate::$module::$case(&test_store).await;
                        test_store.remove().await;
                    }
                }
            )*
        }
    };
}

suite! {
    cases: appended_rows_come_back_in_order,
    cases: a_commit_is_all_or_nothing,
    cases: notes_lose_their_secrets_with_the_end_of_the_job,
    cases: a_gap_in_the_log_is_refused,
    cases: a_gap_in_the_ledger_is_refused,
    cases: a_stale_epoch_is_refused,
    cases: who_never_led_cannot_write,
    cases: a_snapshot_and_the_rows_after_it_are_loaded,
    cases: a_snapshot_holds_the_newest_writing_of_every_part,
    cases: a_snapshot_that_broke_off_changes_nothing,
    cases: what_is_gone_stays_gone_when_a_snapshot_is_kept_while_old_parts_are_forgotten,
    cases: who_knows_a_row_is_given_those_after_it,
    cases: the_newest_two_snapshots_are_kept,
    cases: a_snapshot_of_rows_that_are_not_there_is_refused,
    cases: a_cut_spares_live_jobs_young_rows_and_the_tail,
    cases: a_cut_without_a_snapshot_removes_nothing,
    cases: a_long_cut_lets_commits_pass,
    cases: the_ledger_outlives_a_cut,
    cases: numbers_go_on_after_the_whole_log_was_cut,
    cases: a_dropped_commit_leaves_the_store_usable,
    cases: the_installation_is_minted_once,
    read_cases: a_job_is_replaced_by_its_newest_writing,
    read_cases: jobs_come_in_pages_newest_first,
    read_cases: jobs_are_filtered_by_owner_name_and_life,
    read_cases: the_log_of_a_job_holds_only_its_rows,
    read_cases: the_ledger_is_read_in_pages_by_time_and_workload,
    read_cases: the_sum_of_the_ledger_does_not_overflow,
    read_cases: sixteen_readers_see_only_whole_commits,
    read_cases: unicode_and_huge_payloads_come_back_to_the_byte,
}
