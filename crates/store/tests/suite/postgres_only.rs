//! What only a store with several servers can do: one leads, the others wait for it and read.

use std::time::Duration;

use windfall_store::{PostgresStore, Store, StoreError};

use crate::test_store::{self, rows};

#[tokio::test]
async fn a_second_leader_waits_until_the_first_is_gone() {
    let Some(test_store) = test_store::postgres() else { return };
    let (first, second) = (test_store.open().await, test_store.open().await);
    let old = first.lead().await.unwrap();
    assert!(matches!(second.lead().await, Err(StoreError::Led { .. })));
    first.commit(old, &rows([1, 2])).await.unwrap();
    assert_eq!(second.load().await.unwrap().next_seq, 3, "who does not lead can read");
    assert!(matches!(second.commit(old, &rows([3])).await, Err(StoreError::Fenced { .. })));

    first.close().await;
    let new = second.lead().await.unwrap();
    assert!(new > old);
    second.commit(new, &rows([3])).await.unwrap();
    second.close().await;
    test_store.remove().await;
}

const END_THE_LEADER: &str = "SELECT pg_terminate_backend(pid) FROM pg_locks \
     WHERE locktype = 'advisory' AND pid <> pg_backend_pid() AND pid IN \
     (SELECT pid FROM pg_stat_activity WHERE application_name = 'windfall') \
     AND ((classid::bigint << 32) | objid::bigint) = hashtextextended('windfall leader ' || current_schema(), 0)";

#[tokio::test]
async fn a_leader_that_lost_its_connection_cannot_write_after_another_took_over() {
    let Some(test_store) = test_store::postgres() else { return };
    let (first, second) = (test_store.open().await, test_store.open().await);
    let old = first.lead().await.unwrap();
    first.commit(old, &rows([1])).await.unwrap();
    test_store.sql(END_THE_LEADER).await;
    let new = loop {
        match second.lead().await {
            Ok(epoch) => break epoch,
            Err(StoreError::Led { .. }) => tokio::time::sleep(std::time::Duration::from_millis(20)).await,
            Err(other) => panic!("{other:?}"),
        }
    };
    second.commit(new, &rows([2])).await.unwrap();

    let lost = first.commit(old, &rows([3])).await;
    assert!(matches!(lost, Err(StoreError::Unsure { .. })), "{lost:?}");
    let fenced = first.commit(old, &rows([3])).await;
    assert!(matches!(fenced, Err(StoreError::Fenced { current, .. }) if current == new), "{fenced:?}");
    assert!(matches!(first.lead().await, Err(StoreError::Led { .. })));
    assert_eq!(first.load().await.unwrap().next_seq, 3);
    first.close().await;
    second.close().await;
    test_store.remove().await;
}

#[tokio::test]
async fn a_leader_that_lost_its_connection_can_lead_again() {
    let Some(test_store) = test_store::postgres() else { return };
    let store = test_store.open().await;
    let old = store.lead().await.unwrap();
    test_store.sql(END_THE_LEADER).await;
    let new = store.lead().await.unwrap();
    assert!(new > old);
    store.commit(new, &rows([1])).await.unwrap();
    store.close().await;
    test_store.remove().await;
}

#[tokio::test]
async fn a_newer_schema_is_refused() {
    let Some(test_store) = test_store::postgres() else { return };
    test_store.open().await.close().await;
    test_store.sql("UPDATE format SET number = 999").await;
    let refused = PostgresStore::open(&test_store.url()).await.err();
    assert!(matches!(refused, Some(StoreError::Newer { found: 999, known: 3 })), "{refused:?}");
    test_store.remove().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn servers_that_start_at_the_same_moment_share_one_store() {
    let Some(test_store) = test_store::postgres() else { return };
    let opening: Vec<_> = (0..6)
        .map(|_| {
            let url = test_store.url();
            tokio::spawn(async move { PostgresStore::open(&url).await })
        })
        .collect();
    let mut installations = Vec::new();
    for store in opening {
        let store = store.await.unwrap().unwrap();
        installations.push(store.load().await.unwrap().installation);
        store.close().await;
    }
    installations.dedup();
    assert_eq!(installations.len(), 1);
    test_store.remove().await;
}

#[tokio::test]
async fn what_the_server_refuses_is_rolled_back_whole() {
    let Some(test_store) = test_store::postgres() else { return };
    let store = test_store.open().await;
    let epoch = store.lead().await.unwrap();
    let mut commit = rows([1, 2]);
    // PostgreSQL has no text with a zero byte; JSON never has one, it writes \u0000.
    commit.rows[1].payload = "\0".into();
    assert!(matches!(store.commit(epoch, &commit).await, Err(StoreError::Database { .. })));
    assert_eq!(store.load().await.unwrap().next_seq, 1);
    store.commit(epoch, &rows([1])).await.unwrap();
    store.close().await;
    test_store.remove().await;
}

#[tokio::test]
async fn a_server_that_is_not_there_is_unreachable() {
    let refused = PostgresStore::open("postgres://nobody@127.0.0.1:1/none").await.err();
    assert!(matches!(refused, Some(StoreError::Unreachable { .. })), "{refused:?}");
}

/// Passes connections on to a server, and forgets those that it has when it is told to: neither end hears of that.
async fn between(server: String, frozen: tokio::sync::watch::Receiver<bool>) -> std::net::SocketAddr {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        let mut kept = Vec::new();
        while let Ok((mut client, _)) = listener.accept().await {
            let mut server = tokio::net::TcpStream::connect(&server).await.unwrap();
            let (mut frozen, is_late) = (frozen.clone(), *frozen.borrow());
            kept.push(tokio::spawn(async move {
                let passing = tokio::io::copy_bidirectional(&mut client, &mut server);
                let end = async { frozen.wait_for(|frozen| *frozen && !is_late).await.is_ok() };
                let ended = tokio::select! {
                    _ = passing => true,
                    _ = end => false,
                };
                if !ended {
                    std::future::pending::<()>().await;
                }
            }));
        }
    });
    address
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_whose_network_went_away_takes_the_lead_from_its_own_old_session() {
    let Some(test_store) = test_store::postgres() else { return };
    let address = test_store.address().unwrap();
    let host = address.split_once('@').unwrap().1.split('/').next().unwrap().to_owned();
    let (freeze, frozen) = tokio::sync::watch::channel(false);
    let through = between(host.clone(), frozen).await;
    let url = address.replace(&host, &through.to_string());
    let store = PostgresStore::open_patient(&url, Duration::from_millis(500)).await.unwrap();
    let old = store.lead().await.unwrap();
    store.commit(old, &rows([1])).await.unwrap();
    freeze.send(true).unwrap();
    let lost = store.commit(old, &rows([2])).await.unwrap_err();
    assert!(matches!(lost, StoreError::Unsure { .. }), "{lost:?}");
    let new = store.lead().await.unwrap();
    assert!(new > old);
    let next = store.load().await.unwrap().next_seq;
    store.commit(new, &rows([next])).await.unwrap();
    store.close().await;
    test_store.remove().await;
}
