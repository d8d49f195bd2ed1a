//! The fault hooks of the memory store.

use windfall_store::{Commit, MemoryStore, Store, StoreError};

use crate::test_store::rows;

#[tokio::test]
async fn a_refused_commit_writes_nothing_and_the_next_one_passes() {
    let store = MemoryStore::new();
    let epoch = store.lead().await.unwrap();
    store.fail_next_commits(2);
    for _ in 0..2 {
        assert!(matches!(store.commit(epoch, &rows([1])).await, Err(StoreError::Refused)));
    }
    assert_eq!(store.load().await.unwrap().next_seq, 1);
    store.commit(epoch, &rows([1])).await.unwrap();
}

#[tokio::test]
async fn a_crash_before_a_commit_loses_it_and_ends_the_writer() {
    let store = MemoryStore::new();
    let epoch = store.lead().await.unwrap();
    store.crash_before_commit(1);
    store.commit(epoch, &rows([1])).await.unwrap();
    assert!(matches!(store.commit(epoch, &rows([2])).await, Err(StoreError::Crashed)));
    assert!(matches!(store.commit(epoch, &rows([2])).await, Err(StoreError::Crashed)), "a dead process writes no more");

    let restarted = store.clone();
    let epoch = restarted.lead().await.unwrap();
    assert_eq!(restarted.load().await.unwrap().next_seq, 2);
    restarted.commit(epoch, &rows([2])).await.unwrap();
}

#[tokio::test]
async fn a_crash_after_a_commit_keeps_it() {
    let store = MemoryStore::new();
    let epoch = store.lead().await.unwrap();
    store.crash_after_commit(0);
    assert!(matches!(store.commit(epoch, &rows([1, 2])).await, Err(StoreError::Crashed)));
    store.lead().await.unwrap();
    assert_eq!(store.load().await.unwrap().next_seq, 3);
}

#[tokio::test]
async fn a_commit_that_breaks_a_rule_uses_up_no_fault() {
    let store = MemoryStore::new();
    let epoch = store.lead().await.unwrap();
    store.fail_next_commits(1);
    assert!(matches!(store.commit(epoch, &rows([9])).await, Err(StoreError::Gap { .. })));
    assert!(matches!(store.commit(epoch, &rows([1])).await, Err(StoreError::Refused)));
    store.fail_next_commits(1);
    store.clear_faults();
    store.commit(epoch, &Commit::default()).await.unwrap();
}

#[tokio::test]
async fn an_address_opens_the_store_it_names() {
    let memory = windfall_store::open("memory:").await.unwrap();
    assert_ne!(memory.load().await.unwrap().installation, "0000000000000000");
    for wrong in ["", "sqlite:", "mysql://host/db"] {
        let refused = windfall_store::open(wrong).await.err();
        assert!(matches!(refused, Some(StoreError::Address { .. })), "{wrong}: {refused:?}");
    }
}
