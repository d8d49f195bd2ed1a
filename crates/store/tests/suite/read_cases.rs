//! What every store promises to its readers.

use std::sync::Arc;

use windfall_store::{Commit, JobQuery, JobRow, LedgerQuery, LedgerRow, Row, Snapshot};

use crate::test_store::{TestStore, charge, ended, job, row, row_of, seqs};

pub async fn a_job_is_replaced_by_its_newest_writing(test_store: &TestStore) {
    let store = test_store.open().await;
    let epoch = store.lead().await.unwrap();
    let write = |jobs: Vec<JobRow>| Commit { jobs, ..Commit::default() };
    store.commit(epoch, &write(vec![job(1), job(2)])).await.unwrap();
    let renamed = JobRow { name: "other".into(), ..job(1) };
    store.commit(epoch, &write(vec![renamed, ended(1)])).await.unwrap();
    assert_eq!(store.job(1).await.unwrap(), Some(ended(1)));
    assert_eq!(store.job(2).await.unwrap(), Some(job(2)));
    assert_eq!(store.job(3).await.unwrap(), None);
    store.close().await;
}

pub async fn jobs_come_in_pages_newest_first(test_store: &TestStore) {
    let store = test_store.open().await;
    let epoch = store.lead().await.unwrap();
    store.commit(epoch, &Commit { jobs: (1..=25).map(job).collect(), ..Commit::default() }).await.unwrap();
    let (mut seen, mut before) = (Vec::new(), None);
    loop {
        let page = store.jobs(&JobQuery { before, limit: 10, ..JobQuery::default() }).await.unwrap();
        let Some(last) = page.last() else { break };
        before = Some(last.workload);
        seen.extend(page.iter().map(|job| job.workload));
    }
    assert_eq!(seen, (1..=25).rev().collect::<Vec<_>>());
    store.close().await;
}

pub async fn jobs_are_filtered_by_owner_name_and_life(test_store: &TestStore) {
    let store = test_store.open().await;
    let epoch = store.lead().await.unwrap();
    let jobs = (1..=12).map(|id| if id <= 6 { ended(id) } else { job(id) }).collect();
    store.commit(epoch, &Commit { jobs, ..Commit::default() }).await.unwrap();
    if let Some(url) = test_store.address() {
        assert_eq!(windfall_store::live_jobs(&url).await.unwrap(), Some(6), "counted from outside");
    }
    let ids = async |query: JobQuery| -> Vec<u64> {
        store.jobs(&query).await.unwrap().iter().map(|job| job.workload).collect()
    };
    let all = JobQuery::default();
    let (ada, name) = (Some("ada".to_owned()), Some("job-0".to_owned()));
    assert_eq!(ids(JobQuery { live_only: true, ..all.clone() }).await, [12, 11, 10, 9, 8, 7]);
    assert_eq!(ids(JobQuery { owner: ada.clone(), ..all.clone() }).await, [12, 10, 8, 6, 4, 2]);
    assert_eq!(ids(JobQuery { name: name.clone(), ..all.clone() }).await, [12, 9, 6, 3]);
    let every = JobQuery { live_only: true, owner: ada, name, before: Some(12), limit: 5 };
    assert_eq!(ids(every).await, [0; 0]);
    assert_eq!(ids(JobQuery { owner: Some("' OR 1=1 --".into()), ..all }).await, [0; 0]);
    store.close().await;
}

pub async fn the_log_of_a_job_holds_only_its_rows(test_store: &TestStore) {
    let store = test_store.open().await;
    let epoch = store.lead().await.unwrap();
    let log: Vec<Row> = (1..=20).map(|seq| if seq % 2 == 0 { row_of(seq, 7) } else { row(seq) }).collect();
    store.commit(epoch, &Commit { rows: log, ..Commit::default() }).await.unwrap();
    assert_eq!(seqs(&store.rows_of(7, 4, 3).await.unwrap()), [6, 8, 10]);
    assert_eq!(store.rows_of(7, 19, 3).await.unwrap(), [row_of(20, 7)]);
    assert_eq!(store.rows_of(8, 0, 3).await.unwrap(), []);
    store.close().await;
}

pub async fn the_ledger_is_read_in_pages_by_time_and_workload(test_store: &TestStore) {
    let store = test_store.open().await;
    let epoch = store.lead().await.unwrap();
    let stretch = |seq: u64, workload, from_ms, to_ms| LedgerRow { from_ms, to_ms, ..charge(seq, workload, 1) };
    let ledger = vec![
        stretch(1, Some(4), 0, 100),
        stretch(2, None, 100, 200),
        stretch(3, Some(4), 100, 300),
        // A correction begins where it ends.
        stretch(4, Some(4), 300, 150),
        stretch(5, Some(5), -50, 0),
    ];
    store.commit(epoch, &Commit { ledger, ..Commit::default() }).await.unwrap();
    let read = async |query: LedgerQuery| {
        let rows = store.ledger(&query).await.unwrap();
        rows.iter().map(|row| row.seq).collect::<Vec<_>>()
    };
    let all = LedgerQuery::default();
    assert_eq!(read(all).await, [1, 2, 3, 4, 5]);
    assert_eq!(read(LedgerQuery { after: 1, limit: 2, ..all }).await, [2, 3]);
    assert_eq!(read(LedgerQuery { after: 3, limit: 2, ..all }).await, [4, 5]);
    assert_eq!(read(LedgerQuery { after: 1, upto: 4, ..all }).await, [2, 3, 4]);
    assert_eq!(read(LedgerQuery { from_ms: Some(100), ..all }).await, [2, 3, 4]);
    assert_eq!(read(LedgerQuery { from_ms: Some(0), before_ms: Some(150), ..all }).await, [1, 2, 3]);
    assert_eq!(read(LedgerQuery { from_ms: Some(101), ..all }).await, [4]);
    assert_eq!(read(LedgerQuery { before_ms: Some(0), ..all }).await, [5]);
    assert_eq!(read(LedgerQuery { workload: Some(4), after: 1, ..all }).await, [3, 4]);
    assert_eq!(read(LedgerQuery { after: u64::MAX, ..all }).await, Vec::<u64>::new());
    store.close().await;
}

pub async fn the_sum_of_the_ledger_does_not_overflow(test_store: &TestStore) {
    let store = test_store.open().await;
    let epoch = store.lead().await.unwrap();
    let amounts = [i64::MAX, i64::MAX, i64::MAX, -3, i64::MIN, i64::MAX];
    let ledger = amounts.iter().zip(1..).map(|(amount, seq)| charge(seq, None, *amount)).collect();
    store.commit(epoch, &Commit { ledger, ..Commit::default() }).await.unwrap();
    let sum: i128 = amounts.iter().map(|amount| i128::from(*amount)).sum();
    assert_eq!(store.ledger_total().await.unwrap().nanousd, sum);
    store.close().await;
}

/// Each commit has three rows of one batch and moves one job: a reader sees all of that, or none.
pub async fn sixteen_readers_see_only_whole_commits(test_store: &TestStore) {
    let store: Arc<dyn windfall_store::Store> = Arc::from(test_store.open().await);
    let epoch = store.lead().await.unwrap();
    let commit = |batch: u64| Commit {
        rows: (0..3).map(|at| Row { batch, workload: Some(1), ..row(3 * batch - 2 + at) }).collect(),
        jobs: vec![JobRow { state: batch.to_string(), ..job(1) }],
        ledger: vec![charge(batch, Some(1), 1)],
        ..Commit::default()
    };
    store.commit(epoch, &commit(1)).await.unwrap();
    let readers: Vec<_> = (0..16)
        .map(|_| {
            let store = store.clone();
            tokio::spawn(async move {
                let mut seen = 0;
                loop {
                    let loaded = store.load().await.unwrap();
                    assert_eq!(loaded.tail.len() % 3, 0);
                    let now = loaded.tail.len() as u64 / 3;
                    assert!(now >= seen && loaded.next_ledger_seq == now + 1, "{seen} {now}");
                    let state: u64 = store.job(1).await.unwrap().unwrap().state.parse().unwrap();
                    assert!(state >= now);
                    assert!(store.rows_of(1, 0, 5_000).await.unwrap().len() as u64 >= 3 * state);
                    seen = state;
                    if seen == 200 {
                        break;
                    }
                }
            })
        })
        .collect();
    for batch in 2..=200 {
        store.commit(epoch, &commit(batch)).await.unwrap();
    }
    for reader in readers {
        reader.await.unwrap();
    }
    store.close().await;
}

pub async fn unicode_and_huge_payloads_come_back_to_the_byte(test_store: &TestStore) {
    let store = test_store.open().await;
    let epoch = store.lead().await.unwrap();
    let text = "{ \"näme\" : \"学習 🚀 \\u0000 'quoted' \\\"\",\"e\":\"e\u{301}\u{202e}\"}";
    let huge: Arc<str> = format!("{{\"x\":\"{}\"}}", "ü0123456789ab-".repeat(350_000)).into();
    assert!(huge.len() > 5_000_000);
    let commit = Commit {
        rows: vec![Row { payload: text.into(), ..row(1) }, Row { payload: huge.clone(), ..row(2) }],
        jobs: vec![JobRow { name: "学習 🚀".into(), summary: text.into(), ..job(1) }],
        ledger: vec![charge(1, None, i64::MIN)],
        ..Commit::default()
    };
    store.commit(epoch, &commit).await.unwrap();
    let snapshot = Snapshot { seq: 1, at_ms: -1, version: u16::MAX, payload: huge };
    store.snapshot(epoch, &snapshot).await.unwrap();
    store.close().await;

    let again = test_store.open().await;
    assert_eq!(again.rows_after(0, 9).await.unwrap(), commit.rows);
    assert_eq!(again.job(1).await.unwrap().as_ref(), commit.jobs.first());
    assert_eq!(again.ledger(&LedgerQuery::default()).await.unwrap(), commit.ledger);
    assert_eq!(again.load().await.unwrap().snapshot, Some(snapshot));
    again.close().await;
}
