//! The probe's answers: what is wrong, and what to change.

use std::time::Duration;

use windfall_agent::checkpoint::{CheckpointError, Checkpoints, Culprit, Located, Options, located};

use crate::stores::{JOB, Kind, Store, endpoint, runtime, s3_env};

pub async fn a_good_store_passes_and_is_left_empty(store: Store) {
    store.checkpoints().probe().await.unwrap();
    assert!(store.raw_list("probe").await.is_empty());
}

#[test]
fn a_job_that_was_only_tried_leaves_nothing_in_a_directory() {
    let dir = tempfile::tempdir().unwrap();
    let address = dir.path().to_str().unwrap();
    for _ in 0..2 {
        let checkpoints = Checkpoints::open(address, JOB, Options::with_env(vec![])).unwrap();
        runtime().block_on(checkpoints.probe()).unwrap();
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }
}

/// The culprit, the message and the hint of a failed probe.
fn fault(address: &str, env: Vec<(String, String)>) -> (Culprit, String, String) {
    runtime().block_on(async {
        let checkpoints = Checkpoints::open(address, JOB, Options::with_env(env)).unwrap();
        // The bound is part of the contract; a hang would otherwise be a test that never ends.
        let tried =
            tokio::time::timeout(Duration::from_secs(15), checkpoints.probe()).await.expect("the probe is bounded");
        match tried.unwrap_err() {
            CheckpointError::Store { what, culprit, hint, source } => {
                eprintln!("{what}\nhint: {hint}\n{source}");
                (culprit, what, hint)
            }
            other => panic!("{other}"),
        }
    })
}

#[test]
fn a_wrong_endpoint_is_named() {
    let (culprit, what, hint) = fault("s3://bucket/x", s3_env("http://127.0.0.1:9"));
    assert_eq!(culprit, Culprit::Endpoint);
    assert!(what.contains("http://127.0.0.1:9"), "{what}");
    assert!(hint.contains("AWS_ENDPOINT_URL"), "{hint}");
}

#[test]
fn an_endpoint_that_never_answers_is_given_up() {
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let (culprit, what, _) = fault("s3://bucket/x", s3_env(&format!("http://{}", silent.local_addr().unwrap())));
    assert_eq!(culprit, Culprit::Endpoint, "{what}");
}

#[test]
fn a_wrong_key_is_told_from_a_missing_bucket() {
    let Some(endpoint) = endpoint(Kind::S3) else { return };
    let store = Store::open(Kind::S3).unwrap();
    let mut env = s3_env(&endpoint);
    env[1].1 = "NOBODY".into();
    let (culprit, _, hint) = fault(&store.address, env);
    assert_eq!(culprit, Culprit::Credentials);
    assert!(hint.contains("AWS_ACCESS_KEY_ID"), "{hint}");
    let mut env = s3_env(&endpoint);
    env[2].1 = "wrong".into();
    assert_eq!(fault(&store.address, env).0, Culprit::Credentials);
    let (culprit, what, hint) = fault("s3://no-such-bucket/x", s3_env(&endpoint));
    assert_eq!(culprit, Culprit::Bucket);
    assert!(what.contains("no-such-bucket") && hint.contains("create the bucket"), "{what} {hint}");
}

#[test]
fn a_missing_gcs_bucket_is_named() {
    let Some(endpoint) = endpoint(Kind::Gcs) else { return };
    let (culprit, what, _) = fault("gs://no-such-bucket/x", vec![("STORAGE_EMULATOR_HOST".into(), endpoint)]);
    assert_eq!(culprit, Culprit::Bucket, "{what}");
}

#[test]
fn a_wrong_azure_key_is_told_from_a_missing_container() {
    let Some(store) = Store::open(Kind::Azure) else { return };
    let (culprit, what, _) = fault("az://no-such-container/x", store.env.clone());
    assert_eq!(culprit, Culprit::Bucket, "{what}");
    let mut env = store.env.clone();
    env[1].1 = "AAAA".into();
    let (culprit, what, hint) = fault(&store.address, env);
    assert_eq!(culprit, Culprit::Credentials, "{what}");
    assert!(hint.contains("AZURE_STORAGE_ACCOUNT_KEY"), "{hint}");
}

#[test]
fn a_directory_that_cannot_be_written_is_named() {
    // Not even root creates anything there.
    let (culprit, what, hint) = fault("/sys/windfall", vec![]);
    assert_eq!(culprit, Culprit::Permission);
    assert!(what.contains("/sys/windfall"), "{what}");
    assert!(!hint.is_empty());
}

#[test]
fn addresses_that_cannot_be_are_refused_before_anything_is_tried() {
    for (address, job) in [("ftp://x/y", JOB), ("s3://", JOB), ("", JOB), ("/tmp", "../escape"), ("/tmp", "")] {
        let refused = Checkpoints::open(address, job, Options::with_env([]));
        assert!(matches!(refused, Err(CheckpointError::Address { .. })), "{address} {job}");
    }
}

/// Where a store is decides what moving checkpoints costs.
pub async fn a_store_says_where_it_is(store: Store) {
    let found = located(&store.address, store.env.clone()).await;
    let wanted = match store.kind {
        Kind::Directory | Kind::Relay => Located::Folder,
        // It speaks S3, and is not AWS.
        Kind::S3 | Kind::Gcs | Kind::Azure => Located::Elsewhere,
    };
    assert_eq!(found, Some(wanted));
}

#[test]
fn a_store_that_does_not_answer_is_where_the_user_says() {
    crate::stores::runtime().block_on(async {
        let closed = ("AWS_ENDPOINT_URL".to_owned(), "http://127.0.0.1:9".to_owned());
        assert_eq!(located("s3://bucket/folder", [closed]).await, Some(Located::Elsewhere));
        let none: [(String, String); 0] = [];
        assert_eq!(located("gs://bucket", none.clone()).await, Some(Located::Within { cloud: "gcp" }));
        assert_eq!(located("az://container", none.clone()).await, Some(Located::Within { cloud: "azure" }));
        assert_eq!(located("s4://bucket", none).await, None);
    });
}
