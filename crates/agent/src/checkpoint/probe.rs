//! The probe: before money is spent on a lease, a small object is written, read, guarded and deleted.

use std::panic::AssertUnwindSafe;
use std::time::Duration;

use bytes::Bytes;
use futures::FutureExt;

use super::address::{Patience, Relay, StoreAddress};
use super::error::{CheckpointError, Culprit, Result};
use super::names::token;
use super::{Checkpoints, connect};

/// Above the client's own time limits, below what a person waits for.
const WITHIN: Duration = Duration::from_secs(12);

/// A store's client that panics on a setting nobody thought of must not take the asker with it.
async fn caught<T>(asked: impl Future<Output = Result<T>>) -> Result<T> {
    match AssertUnwindSafe(asked).catch_unwind().await {
        Ok(answer) => answer,
        Err(_) => Err(CheckpointError::Address {
            what: "its client cannot work with these settings".into(),
            hint: "check the store's address and the variables that it reads (AWS_…, GOOGLE_…, AZURE_…)".into(),
        }),
    }
}

impl Checkpoints {
    /// Whether this store can hold checkpoints: write, read, create-only write, list and delete.
    pub async fn probe(&self) -> Result<()> {
        let depot = connect(&self.address, &self.job_key, Patience::Probe, self.saved_before)?;
        let key = format!("probe/{}", token());
        let tried = tokio::time::timeout(
            WITHIN,
            caught(async {
                // First, because some stores make a missing bucket when something is written to it.
                depot.list("probe").await?;
                let body = Bytes::from(token());
                if !depot.create(&key, body.clone()).await? {
                    return Err(self.unfit("a new name was said to exist"));
                }
                if depot.get(&key).await?.as_ref() != Some(&body) {
                    return Err(self.unfit("what was written did not come back"));
                }
                // Fencing rests on this: a store that overwrites would let a stale stint win.
                if depot.create(&key, Bytes::from(token())).await? {
                    return Err(self.unfit("it overwrites where only creating was allowed"));
                }
                depot.delete(vec![key]).await
            }),
        );
        match tried.await {
            Ok(done) => done,
            Err(late) => Err(self.silent(WITHIN, late)),
        }
    }

    /// Whether the store answers at all. Sooner sure than a save, which tries for a minute.
    pub async fn answers(&self) -> Result<()> {
        let depot = connect(&self.address, &self.job_key, Patience::Probe, self.saved_before)?;
        match tokio::time::timeout(WITHIN, caught(depot.list("claims"))).await {
            Ok(listed) => listed.map(|_| ()),
            Err(late) => Err(self.silent(WITHIN, late)),
        }
    }

    fn silent(&self, within: Duration, late: tokio::time::error::Elapsed) -> CheckpointError {
        let hint = match &self.address {
            StoreAddress::Directory(_) => "check that the file system is mounted and answers".to_owned(),
            StoreAddress::Relay(_) => Relay::HINT.to_owned(),
            StoreAddress::Remote(remote) => format!("check {} and the network", remote.kind.endpoint_word()),
        };
        let at = self.store_name();
        let what = format!("the store did not answer within {} s: {at}", within.as_secs());
        CheckpointError::Store { what, culprit: Culprit::Endpoint, hint, source: Box::new(late) }
    }

    /// Where the store is, for people.
    fn store_name(&self) -> String {
        match &self.address {
            StoreAddress::Directory(path) => path.display().to_string(),
            StoreAddress::Relay(_) => "the server's store".to_owned(),
            StoreAddress::Remote(remote) => remote.label(),
        }
    }

    /// The store answers, and what was saved there is not in it.
    pub(super) fn emptied(&self) -> CheckpointError {
        let at = self.store_name();
        CheckpointError::Store {
            what: format!("this job's checkpoints are not in the store: {at}"),
            culprit: Culprit::Endpoint,
            hint: "mount or restore what was there; to begin anew, submit the job again".into(),
            source: "no manifest was found".into(),
        }
    }

    fn unfit(&self, why: &str) -> CheckpointError {
        let at = self.store_name();
        CheckpointError::Store {
            what: format!("this store cannot hold checkpoints: {at}"),
            culprit: Culprit::Feature,
            hint: "use a store with conditional writes (If-None-Match), or a directory".into(),
            source: why.into(),
        }
    }
}
