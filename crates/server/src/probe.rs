//! Looks at the stores of jobs' checkpoints: at submission, and while one that was away is waited for.

use crate::dispatch::{StoreAccess, StoreProbe};
use async_trait::async_trait;
use windfall_agent::checkpoint::{CheckpointError, Checkpoints, Culprit, Options};
use windfall_core::english::with_causes;
use windfall_core::{Trouble, TroubleKind};

/// Probes real stores.
pub struct Probe;

/// Whether a store can hold a job's checkpoints.
pub async fn check(access: &StoreAccess) -> Result<(), CheckpointError> {
    let options = Options::with_env(access.env.clone());
    Checkpoints::open(&access.address, &access.key, options)?.probe().await
}

/// The last stint that wrote to a store, whoever's it was. Nothing is written.
pub async fn last_epoch(access: &StoreAccess) -> Result<Option<u64>, CheckpointError> {
    let options = Options { saved_before: access.saved_before, ..Options::with_env(access.env.clone()) };
    let checkpoints = Checkpoints::open(&access.address, &access.key, options)?;
    // One that does not answer is given up soon: a person waits.
    checkpoints.answers().await?;
    checkpoints.last_epoch().await
}

/// What is wrong with a store that a job waits for. One that was removed must not be made anew by looking at it.
async fn trouble_with(access: &StoreAccess) -> Option<Trouble> {
    let told = |error: CheckpointError| {
        let text = match error.hint() {
            Some(hint) => format!("{}; {hint}", with_causes(&error)),
            None => with_causes(&error),
        };
        Trouble { kind: kind(&error), text }
    };
    if access.saved_before {
        match last_epoch(access).await {
            Ok(Some(_)) => {}
            Ok(None) => {
                let text = format!("this job's checkpoints are not in the store: {}", access.address);
                return Some(Trouble { kind: TroubleKind::StoreAway, text });
            }
            Err(error) => return Some(told(error)),
        }
    }
    check(access).await.err().map(told)
}

#[async_trait]
impl StoreProbe for Probe {
    async fn probe(&self, access: &StoreAccess) -> Option<Trouble> {
        trouble_with(access).await
    }
}

fn kind(error: &CheckpointError) -> TroubleKind {
    match error {
        error if is_full(error) => TroubleKind::StoreFull,
        CheckpointError::Store { culprit: Culprit::Credentials | Culprit::Permission, .. } => TroubleKind::StoreDenied,
        _ => TroubleKind::StoreAway,
    }
}

/// Whether what failed at the bottom is that there is no room.
pub fn is_full(error: &(dyn std::error::Error + 'static)) -> bool {
    let causes = std::iter::successors(Some(error), |error| error.source());
    let mut kinds = causes.filter_map(|cause| cause.downcast_ref::<std::io::Error>()).map(std::io::Error::kind);
    kinds.any(|kind| kind == std::io::ErrorKind::StorageFull)
}
