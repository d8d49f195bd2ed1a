//! A process is killed while it commits, again and again: what it had acknowledged is there, and nothing is torn.

use std::{
    io::{BufRead, BufReader, Write},
    process::{Command, Stdio},
    time::Duration,
};

use windfall_store::{Commit, Row, SqliteStore, Store};

use crate::test_store::{Scratch, charge, job, row};

const CHILD: &str = "WINDFALL_STORE_KILLED_CHILD";
const ROUNDS: u32 = 24;

/// Not a test of its own: what the killed process does, in this same binary.
#[tokio::test]
async fn child_appends_until_it_is_killed() {
    let Some(path) = std::env::var_os(CHILD) else { return };
    let store = SqliteStore::open(path).await.unwrap();
    let epoch = store.lead().await.unwrap();
    let loaded = store.load().await.unwrap();
    let (mut seq, mut batch) = (loaded.next_seq, loaded.next_batch);
    let mut out = std::io::stdout();
    loop {
        let count = 1 + batch % 40;
        let padding = "x".repeat((batch % 7 * 900) as usize);
        let commit = Commit {
            rows: (seq..seq + count).map(|seq| Row { batch, payload: padding.as_str().into(), ..row(seq) }).collect(),
            jobs: vec![job(batch)],
            ledger: vec![charge(batch, Some(batch), 1)],
            ..Commit::default()
        };
        store.commit(epoch, &commit).await.unwrap();
        seq += count;
        batch += 1;
        writeln!(out, "acknowledged {}", seq - 1).unwrap();
        out.flush().unwrap();
    }
}

#[tokio::test]
async fn a_process_killed_while_it_commits_leaves_a_prefix_with_all_it_acknowledged() {
    let scratch = Scratch::new();
    let mut acknowledged = 0;
    for round in 0..ROUNDS {
        // Spread over the opening, the first commits and well into the stream.
        acknowledged =
            kill_after(&scratch, Duration::from_micros(2_000 + u64::from(round * 7_919 % 83_000)), acknowledged);
        let store = SqliteStore::open(scratch.file()).await.unwrap();
        let loaded = store.load().await.unwrap();
        // `load` has checked that there is no hole; the last commit may be there without its acknowledgement.
        assert!(loaded.next_seq > acknowledged, "round {round}: {} {acknowledged}", loaded.next_seq);
        assert_eq!(loaded.tail.len() as u64 + 1, loaded.next_seq);
        let commits = loaded.next_batch - 1;
        assert_eq!(loaded.next_ledger_seq, loaded.next_batch, "rows and ledger are of the same commits");
        assert_eq!(store.ledger_total().await.unwrap().rows, commits);
        assert_eq!(store.job(commits).await.unwrap().is_some(), commits > 0);
        assert_eq!(store.job(commits + 1).await.unwrap(), None);
        let last = loaded.tail.iter().filter(|row| row.batch == commits).count() as u64;
        assert_eq!(last, if commits > 0 { 1 + commits % 40 } else { 0 }, "the last commit is whole");
        store.close().await;
    }
    assert!(acknowledged > 0, "no round was long enough to commit anything");
}

/// The last row that a child acknowledged before it was killed.
fn kill_after(scratch: &Scratch, life: Duration, mut acknowledged: u64) -> u64 {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "killed::child_appends_until_it_is_killed", "--nocapture", "--test-threads=1"])
        .env(CHILD, scratch.file())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
    // The life is counted from the first sign of the test, not from the start of the process.
    let _ = lines.find(|line| line.contains("running 1 test"));
    std::thread::sleep(life);
    child.kill().unwrap();
    for line in lines {
        // libtest writes the name of the test before the first line.
        if let Some((_, number)) = line.split_once("acknowledged ") {
            acknowledged = number.parse().unwrap();
        }
    }
    child.wait().unwrap();
    acknowledged
}
