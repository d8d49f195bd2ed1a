//! Looks at the stores of jobs' checkpoints: at submission, and while one that was away is waited for.

use crate::dispatch::StoreAccess;
use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use windfall_agent::checkpoint::{CheckpointError, Checkpoints, Culprit, Options};
use windfall_core::english::with_causes;
use windfall_core::{Trouble, TroubleKind};

/// So long a store that was found fit is not looked at again for the next submission.
const FIT_FOR: Duration = Duration::from_secs(5);

/// Whether a store can hold a job's checkpoints.
pub async fn check(access: &StoreAccess) -> Result<(), CheckpointError> {
    let options = Options::with_env(access.env.clone());
    Checkpoints::open(&access.address, &access.key, options)?.probe().await
}

/// Stores that were found fit a moment ago: of many submissions to one store, one looks at it.
#[derive(Clone, Default)]
pub struct Probes(Arc<Mutex<Places>>);

/// Stores by what was looked at.
#[derive(Default)]
struct Places {
    known: BTreeMap<u64, FitSince>,
    /// With more than this those that were looked at long ago are dropped: one walk for as many as are known.
    room: usize,
}

/// Places that are kept without a thought for those that were looked at long ago.
const FEW: usize = 64;

/// Since when a store is known to be fit; held by who looks at it.
type FitSince = Arc<tokio::sync::Mutex<Option<Instant>>>;

impl Probes {
    /// Whether the store at an address can hold a job's checkpoints, with credentials from these environments. Those who ask
    /// at the same time wait for the first of them; that a store is unfit is not remembered. How to reach it is asked for
    /// only where it is looked at.
    pub async fn check(
        &self,
        address: &str,
        environments: [&BTreeMap<String, String>; 2],
        access: impl FnOnce() -> StoreAccess,
    ) -> Result<(), CheckpointError> {
        let place = self.0.lock().unwrap_or_else(PoisonError::into_inner).at(place(address, environments));
        let mut fit_since = place.lock().await;
        if fit_since.is_none_or(|at| at.elapsed() >= FIT_FOR) {
            *fit_since = None;
            check(&access()).await?;
            *fit_since = Some(Instant::now());
        }
        Ok(())
    }
}

impl Places {
    fn at(&mut self, place: u64) -> FitSince {
        let found = Arc::clone(self.known.entry(place).or_default());
        if self.known.len() > self.room.max(FEW) {
            let is_fit = |place: &Option<Instant>| place.is_some_and(|at| at.elapsed() < FIT_FOR);
            self.known.retain(|known, fit| *known == place || fit.try_lock().map_or(true, |fit| is_fit(&fit)));
            self.room = self.known.len() * 2;
        }
        found
    }
}

/// How the variables begin that a store's client reads, its credentials among them.
const READ_BY_STORES: [&str; 4] = ["AWS_", "GOOGLE_", "AZURE_", "STORAGE_EMULATOR_HOST"];

/// A store and all that its client reads from the environment: a hash keeps no secrets. What else differs from terminal to
/// terminal does not make it another store.
fn place(address: &str, environments: [&BTreeMap<String, String>; 2]) -> u64 {
    let is_read = |name: &str| READ_BY_STORES.iter().any(|begin| name.starts_with(begin));
    let mut hasher = DefaultHasher::new();
    address.hash(&mut hasher);
    for environment in environments {
        let read: Vec<(&String, &String)> = environment.iter().filter(|(name, _)| is_read(name)).collect();
        read.hash(&mut hasher);
    }
    hasher.finish()
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
pub async fn trouble_with(access: &StoreAccess) -> Option<Trouble> {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_store_that_was_fit_a_moment_ago_is_not_looked_at_again() {
        let folder = tempfile::tempdir().expect("a folder");
        let store = folder.path().join("store");
        let access = |env: &str| StoreAccess {
            address: store.to_string_lossy().into_owned(),
            key: "job".to_owned(),
            env: [("AWS_SECRET_ACCESS_KEY".to_owned(), env.to_owned())].into(),
            saved_before: false,
            ..StoreAccess::default()
        };
        let (probes, none) = (Probes::default(), BTreeMap::new());
        let check = async |env: &str| {
            let access = access(env);
            probes.check(&access.address, [&access.env, &none], || access.clone()).await
        };
        check("a").await.expect("fit");
        std::fs::remove_dir_all(&store).expect("removed");
        std::fs::write(&store, "no folder any more").expect("written");
        check("a").await.expect("it was fit a moment ago");
        assert!(check("b").await.is_err(), "other credentials may not do");
        assert!(check("b").await.is_err(), "what is unfit is looked at again");
        let mut other_terminal = access("a");
        other_terminal.env.insert("SHLVL".to_owned(), "3".to_owned());
        let looked = probes.check(&other_terminal.address, [&other_terminal.env, &none], || other_terminal.clone());
        looked.await.expect("what no store's client reads does not matter");
    }

    #[test]
    fn places_that_were_looked_at_long_ago_do_not_pile_up() {
        let mut places = Places::default();
        (0..10_000).for_each(|place| drop(places.at(place)));
        assert!(places.known.len() <= FEW + 1, "{}", places.known.len());
    }
}
