//! What every store promises to its writer.

use std::time::Duration;

use windfall_store::{Commit, LedgerQuery, Notes, Part, Row, Snapshot, Store, StoreError};

use crate::test_store::{TestStore, charge, ended, job, row, row_of, rows, seqs};

fn snapshot(seq: u64) -> Snapshot {
    Snapshot { seq, at_ms: 5, version: 3, payload: format!("{{\"covers\":{seq}}}").into() }
}

/// An opened store that leads and has this many rows.
async fn led(test_store: &TestStore, count: u64) -> (Box<dyn Store>, u64) {
    let store = test_store.open().await;
    let epoch = store.lead().await.unwrap();
    store.commit(epoch, &rows(1..=count)).await.unwrap();
    (store, epoch)
}

pub async fn appended_rows_come_back_in_order(test_store: &TestStore) {
    let (store, epoch) = led(test_store, 0).await;
    let mut expected = Vec::new();
    for (first, count) in [(1, 1), (2, 7), (9, 300), (309, 64)] {
        let commit = rows(first..first + count);
        store.commit(epoch, &commit).await.unwrap();
        expected.extend(commit.rows);
    }
    let loaded = store.load().await.unwrap();
    assert_eq!(loaded.tail, expected);
    assert_eq!((loaded.next_seq, loaded.next_batch, loaded.next_ledger_seq), (373, 373, 1));
    assert_eq!(loaded.snapshot, None);
    assert_eq!(seqs(&store.rows_after(370, 2).await.unwrap()), [371, 372]);
    store.close().await;

    let again = test_store.open().await;
    assert_eq!(again.load().await.unwrap().tail, expected);
    again.close().await;
}

pub async fn a_commit_is_all_or_nothing(test_store: &TestStore) {
    let (store, epoch) = led(test_store, 2).await;
    let bad_ledger =
        Commit { rows: vec![row(3)], jobs: vec![job(1)], ledger: vec![charge(7, None, 1)], ..Commit::default() };
    assert!(matches!(store.commit(epoch, &bad_ledger).await, Err(StoreError::Gap { .. })));
    let bad_job = Commit {
        rows: vec![row(3)],
        jobs: vec![job(1), job(u64::MAX)],
        ledger: vec![charge(1, None, 1)],
        ..Commit::default()
    };
    assert!(matches!(store.commit(epoch, &bad_job).await, Err(StoreError::TooLarge { .. })));

    let loaded = store.load().await.unwrap();
    assert_eq!((loaded.next_seq, loaded.next_ledger_seq, loaded.tail.len()), (3, 1, 2));
    assert_eq!(store.job(1).await.unwrap(), None);
    assert_eq!(store.ledger_total().await.unwrap().rows, 0);

    let good = Commit { rows: vec![row(3)], jobs: vec![job(1)], ledger: vec![charge(1, None, 1)], ..Commit::default() };
    store.commit(epoch, &good).await.unwrap();
    assert_eq!(store.job(1).await.unwrap(), Some(job(1)));
    assert_eq!(store.ledger(&LedgerQuery::default()).await.unwrap(), good.ledger);
    store.close().await;
}

pub async fn notes_lose_their_secrets_with_the_end_of_the_job(test_store: &TestStore) {
    let (store, epoch) = led(test_store, 0).await;
    let noted = |workload: u64| Notes { workload, secret: Some([b'h', 0, 255].into()), text: "{}".into() };
    let without = |workload: u64| Notes { secret: None, ..noted(workload) };
    // The third ends in the very commit that it comes with.
    let commit = Commit { notes: (1..=300).map(noted).collect(), ended: vec![3], ..rows([1]) };
    store.commit(epoch, &commit).await.unwrap();
    assert_eq!(store.notes(1).await.unwrap(), Some(noted(1)));
    assert_eq!(store.notes(300).await.unwrap(), Some(noted(300)));
    assert_eq!(store.notes(3).await.unwrap(), Some(without(3)));
    let refused = Commit { notes: vec![noted(301)], ended: vec![1], ..rows([7]) };
    assert!(store.commit(epoch, &refused).await.is_err());
    assert_eq!((store.notes(1).await.unwrap(), store.notes(301).await.unwrap()), (Some(noted(1)), None));
    store.commit(epoch, &Commit { ended: vec![2, 1, 999], ..rows([2]) }).await.unwrap();
    for (workload, kept) in [(1, without(1)), (2, without(2)), (4, noted(4))] {
        assert_eq!(store.notes(workload).await.unwrap(), Some(kept));
    }
    store.close().await;
}

pub async fn a_gap_in_the_log_is_refused(test_store: &TestStore) {
    let (store, epoch) = led(test_store, 3).await;
    for (wrong, bad) in [(rows([5]), 5), (rows([3]), 3), (rows([4, 6]), 6), (rows([4, 4]), 4), (rows([0]), 0)] {
        match store.commit(epoch, &wrong).await {
            Err(StoreError::Gap { sequence: "log", found, .. }) => assert_eq!(found, bad),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(store.load().await.unwrap().next_seq, 4);
    store.close().await;
}

pub async fn a_gap_in_the_ledger_is_refused(test_store: &TestStore) {
    let (store, epoch) = led(test_store, 0).await;
    let charges =
        |seqs: &[u64]| Commit { ledger: seqs.iter().map(|seq| charge(*seq, None, 1)).collect(), ..Commit::default() };
    store.commit(epoch, &charges(&[1, 2])).await.unwrap();
    for wrong in [&[4][..], &[2], &[3, 5]] {
        let refused = store.commit(epoch, &charges(wrong)).await;
        assert!(matches!(refused, Err(StoreError::Gap { sequence: "ledger", .. })), "{refused:?}");
    }
    store.commit(epoch, &charges(&[3])).await.unwrap();
    assert_eq!(store.load().await.unwrap().next_ledger_seq, 4);
    store.close().await;
}

pub async fn a_stale_epoch_is_refused(test_store: &TestStore) {
    let (store, old) = led(test_store, 3).await;
    let new = store.lead().await.unwrap();
    assert!(new > old);
    let fenced =
        |outcome| matches!(outcome, Err(StoreError::Fenced { held, current }) if (held, current) == (old, new));
    assert!(fenced(store.commit(old, &rows([4])).await));
    assert!(fenced(store.commit(old, &Commit::default()).await));
    assert!(fenced(store.snapshot(old, &snapshot(2)).await));
    assert!(fenced(store.cut(old, 3, i64::MAX).await.map(drop)));
    store.commit(new, &rows([4])).await.unwrap();
    store.close().await;

    let later = test_store.open().await;
    assert!(later.lead().await.unwrap() > new);
    later.close().await;
}

pub async fn who_never_led_cannot_write(test_store: &TestStore) {
    let store = test_store.open().await;
    for epoch in [1, 99] {
        let refused = store.commit(epoch, &rows([1])).await;
        assert!(matches!(refused, Err(StoreError::Fenced { current: 0, .. })), "{refused:?}");
    }
    assert_eq!(store.load().await.unwrap().next_seq, 1);
    store.close().await;
}

pub async fn a_snapshot_and_the_rows_after_it_are_loaded(test_store: &TestStore) {
    let (store, epoch) = led(test_store, 10).await;
    store.snapshot(epoch, &snapshot(7)).await.unwrap();
    let loaded = store.load().await.unwrap();
    assert_eq!(loaded.snapshot, Some(snapshot(7)));
    assert_eq!(loaded.tail, (8..=10).map(row).collect::<Vec<_>>());
    assert_eq!(loaded.next_seq, 11);

    store.snapshot(epoch, &snapshot(10)).await.unwrap();
    let loaded = store.load().await.unwrap();
    assert_eq!((loaded.tail, loaded.next_seq, loaded.next_batch), (vec![], 11, 11));
    store.close().await;
}

fn part(name: &str, text: &str) -> Part {
    Part { name: name.into(), text: Some(text.into()) }
}

fn gone(name: &str) -> Part {
    Part { name: name.into(), text: None }
}

/// The parts that are loaded from the newest snapshot before a row, by name.
async fn parts_before(store: &dyn Store, seq: u64) -> Vec<(String, String)> {
    let mut parts: Vec<(String, String)> = Vec::new();
    for part in store.load_before(seq).await.unwrap().parts {
        parts.push((part.name, part.text.unwrap().to_string()));
    }
    parts.sort();
    parts
}

fn named(parts: &[(&str, &str)]) -> Vec<(String, String)> {
    parts.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect()
}

pub async fn a_snapshot_holds_the_newest_writing_of_every_part(test_store: &TestStore) {
    let (store, epoch) = led(test_store, 10).await;
    store.snapshot_parts(epoch, 3, &[part("a", "1"), part("b", "1"), part("c", "1")]).await.unwrap();
    assert_eq!(parts_before(&*store, u64::MAX).await, [], "without its last word it is no snapshot");
    store.snapshot(epoch, &snapshot(3)).await.unwrap();
    store.snapshot_parts(epoch, 6, &[part("a", "2")]).await.unwrap();
    store.snapshot_parts(epoch, 6, &[gone("b"), part("d", "1")]).await.unwrap();
    assert_eq!(parts_before(&*store, u64::MAX).await, named(&[("a", "1"), ("b", "1"), ("c", "1")]));
    store.snapshot(epoch, &snapshot(6)).await.unwrap();
    let newest = named(&[("a", "2"), ("c", "1"), ("d", "1")]);
    assert_eq!(parts_before(&*store, u64::MAX).await, newest);
    assert_eq!(parts_before(&*store, 6).await, named(&[("a", "1"), ("b", "1"), ("c", "1")]), "and the one before");
    store.forget_parts(epoch).await.unwrap();
    assert_eq!(parts_before(&*store, u64::MAX).await, newest);
    // A third makes the first needless, and what only that one had.
    store.snapshot_parts(epoch, 9, &[part("a", "3")]).await.unwrap();
    store.snapshot(epoch, &snapshot(9)).await.unwrap();
    assert_eq!(store.forget_parts(epoch).await.unwrap(), 3, "two old writings, and the word that one is gone");
    assert_eq!(store.forget_parts(epoch).await.unwrap(), 0);
    assert_eq!(parts_before(&*store, u64::MAX).await, named(&[("a", "3"), ("c", "1"), ("d", "1")]));
    assert_eq!(parts_before(&*store, 9).await, newest);
    store.close().await;
}

pub async fn what_is_gone_stays_gone_when_a_snapshot_is_kept_while_old_parts_are_forgotten(test_store: &TestStore) {
    const ROUNDS: u64 = 24;
    const JOBS: u64 = 600;
    let (store, epoch) = led(test_store, 4 * ROUNDS + 1).await;
    let keep = async |seq: u64, parts: Vec<Part>| {
        store.snapshot_parts(epoch, seq, &parts).await.unwrap();
        store.snapshot(epoch, &snapshot(seq)).await.unwrap();
    };
    keep(1, vec![part("rest", "1")]).await;
    for round in 0..ROUNDS {
        let name = |job: u64| format!("{round}-{job}");
        keep(4 * round + 2, (0..JOBS).map(|job| part(&name(job), "1")).collect()).await;
        keep(4 * round + 3, (0..JOBS / 2).map(|job| gone(&name(job))).collect()).await;
        keep(4 * round + 4, (JOBS / 2..JOBS).map(|job| gone(&name(job))).collect()).await;
        // The next one is kept while what the others made needless is deleted, in each round a little later.
        let next = async {
            for _ in 0..round {
                store.ledger_total().await.unwrap();
            }
            keep(4 * round + 5, Vec::new()).await;
        };
        let (forgotten, ()) = tokio::join!(store.forget_parts(epoch), next);
        forgotten.unwrap();
        assert_eq!(parts_before(&*store, u64::MAX).await, named(&[("rest", "1")]), "in round {round}");
    }
    store.close().await;
}

pub async fn a_snapshot_that_broke_off_changes_nothing(test_store: &TestStore) {
    let (store, epoch) = led(test_store, 10).await;
    store.snapshot_parts(epoch, 3, &[part("a", "1"), part("b", "1")]).await.unwrap();
    store.snapshot(epoch, &snapshot(3)).await.unwrap();
    store.snapshot_parts(epoch, 5, &[part("a", "torn"), gone("b")]).await.unwrap();
    store.close().await;
    let store = test_store.open().await;
    let epoch = store.lead().await.unwrap();
    assert_eq!(parts_before(&*store, u64::MAX).await, named(&[("a", "1"), ("b", "1")]));
    store.snapshot_parts(epoch, 8, &[part("c", "1")]).await.unwrap();
    store.snapshot(epoch, &snapshot(8)).await.unwrap();
    let whole = named(&[("a", "1"), ("b", "1"), ("c", "1")]);
    assert_eq!(parts_before(&*store, u64::MAX).await, whole);
    store.forget_parts(epoch).await.unwrap();
    assert_eq!(parts_before(&*store, u64::MAX).await, whole);
    assert!(matches!(store.snapshot_parts(epoch - 1, 9, &[]).await, Err(StoreError::Fenced { .. })));
    assert!(matches!(store.snapshot_parts(epoch, 11, &[]).await, Err(StoreError::Ahead { .. })));
    store.close().await;
}

pub async fn who_knows_a_row_is_given_those_after_it(test_store: &TestStore) {
    let (store, epoch) = led(test_store, 10).await;
    store.snapshot(epoch, &snapshot(9)).await.unwrap();
    let missed = store.load_after(6).await.unwrap();
    assert_eq!((missed.snapshot, seqs(&missed.tail), missed.next_seq), (None, (7..=10).collect(), 11));
    assert_eq!(store.load_after(10).await.unwrap().tail, []);
    store.close().await;
}

pub async fn the_newest_two_snapshots_are_kept(test_store: &TestStore) {
    let (store, epoch) = led(test_store, 10).await;
    for seq in [2, 5, 9] {
        store.snapshot(epoch, &snapshot(seq)).await.unwrap();
    }
    assert_eq!(store.load().await.unwrap().snapshot, Some(snapshot(9)));
    // A cut keeps what the older of the two needs.
    assert_eq!(store.cut(epoch, 10, i64::MAX).await.unwrap(), 5);
    let older = store.load_before(9).await.unwrap();
    assert_eq!((older.snapshot, seqs(&older.tail)), (Some(snapshot(5)), (6..=10).collect()));
    // The third is gone, and the log before it was cut: that must not look like a whole log.
    assert!(matches!(store.load_before(5).await, Err(StoreError::Corrupt { .. })));

    let again = Snapshot { at_ms: 77, ..snapshot(9) };
    store.snapshot(epoch, &again).await.unwrap();
    assert_eq!(store.load().await.unwrap().snapshot, Some(again));
    store.close().await;
}

pub async fn a_snapshot_of_rows_that_are_not_there_is_refused(test_store: &TestStore) {
    let (store, epoch) = led(test_store, 3).await;
    let refused = store.snapshot(epoch, &snapshot(4)).await;
    assert!(matches!(refused, Err(StoreError::Ahead { seq: 4, next_seq: 4 })), "{refused:?}");
    assert_eq!(store.load().await.unwrap().snapshot, None);
    store.close().await;
}

pub async fn a_cut_spares_live_jobs_young_rows_and_the_tail(test_store: &TestStore) {
    let (store, epoch) = led(test_store, 0).await;
    // Rows 1 to 12 at 1 s to 12 s; job 1 lives, job 2 has ended, job 3 is not in the list of jobs.
    let owner = |seq: u64| [None, Some(1), Some(2), Some(3)][(seq % 4) as usize];
    let log = (1..=12).map(|seq| Row { workload: owner(seq), ..row(seq) }).collect();
    store.commit(epoch, &Commit { rows: log, jobs: vec![job(1), ended(2)], ..Commit::default() }).await.unwrap();
    store.snapshot(epoch, &snapshot(10)).await.unwrap();

    assert_eq!(store.cut(epoch, 5, i64::MAX).await.unwrap(), 3);
    assert_eq!(seqs(&store.rows_after(0, 99).await.unwrap()), [1, 5, 6, 7, 8, 9, 10, 11, 12]);
    assert_eq!(store.cut(epoch, u64::MAX, 7_000).await.unwrap(), 1);
    assert_eq!(seqs(&store.rows_after(0, 99).await.unwrap()), [1, 5, 7, 8, 9, 10, 11, 12]);
    assert_eq!(store.cut(epoch, u64::MAX, i64::MAX).await.unwrap(), 3);
    assert_eq!(seqs(&store.rows_after(0, 99).await.unwrap()), [1, 5, 9, 11, 12]);
    assert_eq!(seqs(&store.load().await.unwrap().tail), [11, 12]);

    store.commit(epoch, &Commit { jobs: vec![ended(1)], ..Commit::default() }).await.unwrap();
    assert_eq!(store.cut(epoch, u64::MAX, i64::MAX).await.unwrap(), 3);
    assert_eq!(store.jobs(&Default::default()).await.unwrap(), [ended(2), ended(1)]);
    store.close().await;
}

pub async fn a_cut_without_a_snapshot_removes_nothing(test_store: &TestStore) {
    let (store, epoch) = led(test_store, 5).await;
    assert_eq!(store.cut(epoch, u64::MAX, i64::MAX).await.unwrap(), 0);
    assert_eq!(store.load().await.unwrap().tail.len(), 5);
    store.close().await;
}

pub async fn a_long_cut_lets_commits_pass(test_store: &TestStore) {
    let (store, epoch) = led(test_store, 9_000).await;
    store.snapshot(epoch, &snapshot(9_000)).await.unwrap();
    let commits = async {
        for seq in 9_001..=9_005 {
            store.commit(epoch, &rows([seq])).await.unwrap();
        }
    };
    let (cut, ()) = tokio::join!(store.cut(epoch, u64::MAX, i64::MAX), commits);
    assert_eq!(cut.unwrap(), 9_000);
    assert_eq!(seqs(&store.load().await.unwrap().tail), (9_001..=9_005).collect::<Vec<_>>());
    store.close().await;
}

pub async fn the_ledger_outlives_a_cut(test_store: &TestStore) {
    let (store, epoch) = led(test_store, 0).await;
    let ledger = vec![charge(1, Some(4), 700), charge(2, None, 50), charge(3, Some(4), -200)];
    let commit = Commit { rows: vec![row_of(1, 4)], jobs: vec![ended(4)], ledger: ledger.clone(), ..Commit::default() };
    store.commit(epoch, &commit).await.unwrap();
    store.snapshot(epoch, &snapshot(1)).await.unwrap();
    assert_eq!(store.cut(epoch, u64::MAX, i64::MAX).await.unwrap(), 1);
    assert_eq!(
        store.ledger(&LedgerQuery { workload: Some(4), ..LedgerQuery::default() }).await.unwrap(),
        [ledger[0].clone(), ledger[2].clone()]
    );
    assert_eq!(
        store.ledger(&LedgerQuery { after: 1, limit: 1, ..LedgerQuery::default() }).await.unwrap(),
        [ledger[1].clone()]
    );
    let total = store.ledger_total().await.unwrap();
    assert_eq!((total.rows, total.nanousd), (3, 550));
    store.close().await;
}

pub async fn numbers_go_on_after_the_whole_log_was_cut(test_store: &TestStore) {
    let (store, epoch) = led(test_store, 4).await;
    store.snapshot(epoch, &snapshot(4)).await.unwrap();
    assert_eq!(store.cut(epoch, u64::MAX, i64::MAX).await.unwrap(), 4);
    store.close().await;

    let again = test_store.open().await;
    let epoch = again.lead().await.unwrap();
    assert_eq!(again.load().await.unwrap().next_seq, 5);
    assert!(matches!(again.commit(epoch, &rows([1])).await, Err(StoreError::Gap { expected: 5, .. })));
    again.commit(epoch, &rows([5])).await.unwrap();
    again.close().await;
}

pub async fn a_dropped_commit_leaves_the_store_usable(test_store: &TestStore) {
    let (store, epoch) = led(test_store, 0).await;
    for micros in (0..1_500).step_by(50) {
        let next = store.load().await.unwrap().next_seq;
        let commit = rows(next..next + 20);
        let _ = tokio::time::timeout(Duration::from_micros(micros), store.commit(epoch, &commit)).await;
        let after = store.load().await.unwrap().next_seq;
        assert!(after == next || after == next + 20, "{next} {after}");
    }
    // The last one may still have been under way when it was dropped: the writer settles it first.
    let epoch = store.lead().await.unwrap();
    let next = store.load().await.unwrap().next_seq;
    store.commit(epoch, &rows([next])).await.unwrap();
    assert_eq!(store.load().await.unwrap().next_seq, next + 1);
    store.close().await;
}

pub async fn the_installation_is_minted_once(test_store: &TestStore) {
    let store = test_store.open().await;
    let installation = store.load().await.unwrap().installation;
    assert_eq!(installation.len(), 16);
    store.lead().await.unwrap();
    store.close().await;
    let again = test_store.open().await;
    assert_eq!(again.load().await.unwrap().installation, installation);
    again.close().await;
}
