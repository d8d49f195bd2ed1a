//! What can go wrong between a directory and a durable store, said so that a person knows what to change.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use windfall_core::{Trouble, TroubleKind};

use super::manifest::Ref;

/// What of the outside world is to blame for a failed store operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Culprit {
    /// Nothing answers at that address.
    Endpoint,
    /// No space is left there.
    Full,
    /// The bucket is in another region than the one asked.
    Region,
    /// No credentials, or credentials that the store does not know.
    Credentials,
    /// Known credentials that may not do this.
    Permission,
    /// The bucket or container does not exist.
    Bucket,
    /// The local disk or directory.
    Disk,
    /// The store lacks something that is needed (create-only writes).
    Feature,
    /// Anything else; the source says what.
    #[serde(other)]
    Other,
}

/// The cause below a store failure.
pub type Cause = Box<dyn std::error::Error + Send + Sync>;

/// An error of saving, restoring, listing or watching checkpoints.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CheckpointError {
    /// The store's address or its settings cannot be read.
    #[error("the checkpoint store cannot be used: {what}")]
    Address {
        what: String,
        /// What to write instead.
        hint: String,
    },
    /// The store refused or failed.
    #[error("{what}")]
    Store {
        /// What was tried, where, and what came back.
        what: String,
        /// Which part of the set-up is to blame.
        culprit: Culprit,
        hint: String,
        #[source]
        source: Cause,
    },
    /// A local file or directory could not be read or written.
    #[error("{what}: {}", path.display())]
    Local {
        what: &'static str,
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    /// A file changed while it was read: the save was given up, nothing counts, try again when it is quiet.
    #[error("changed while it was being saved: {}", path.display())]
    Changed {
        /// The file, relative to the checkpoint directory.
        path: PathBuf,
    },
    /// What lies at the places of a gang is of different moments, and stays so.
    #[error("a rank, or its agent, was killed before it had saved as the others did")]
    Torn,
    /// A later stint has begun: nothing this stint saves will count.
    #[error("stint {epoch} is fenced off: stint {by} has begun")]
    Fenced {
        /// The stint that asked.
        epoch: u64,
        /// The stint that took over.
        by: u64,
    },
    /// A checkpoint of that name exists already.
    #[error("checkpoint {name} exists already")]
    Taken { name: Ref },
    /// `save` was called for a stint that never began.
    #[error("stint {epoch} has not begun, so it has no fence to save behind")]
    NotBegun {
        /// The stint.
        epoch: u64,
    },
    /// A manifest of a newer Windfall: an older one must not lose its progress by ignoring it.
    #[error("checkpoint {name} has format {format}, this agent reads up to {ours}")]
    TooNew {
        name: Ref,
        format: u32,
        /// The newest format known here.
        ours: u32,
    },
    /// A task of the agent itself ended abnormally.
    #[error("a checkpoint task ended abnormally: {0}")]
    Task(String),
}

impl CheckpointError {
    /// What a person can do about it, where that is known.
    pub fn hint(&self) -> Option<&str> {
        match self {
            Self::Address { hint, .. } | Self::Store { hint, .. } => Some(hint),
            Self::TooNew { .. } => Some("update the agent, or start the job afresh"),
            _ => None,
        }
    }

    /// What this is to the people who wait for the job. The same failure has the same words each time.
    pub fn trouble(&self) -> Trouble {
        let kind = match self {
            Self::Store { culprit: Culprit::Endpoint, .. } => TroubleKind::StoreAway,
            Self::Store { culprit: Culprit::Full, .. } => TroubleKind::StoreFull,
            Self::Store { culprit: Culprit::Credentials | Culprit::Permission, .. } => TroubleKind::StoreDenied,
            _ => TroubleKind::NotSaved,
        };
        let hint = self.hint().map(|hint| format!(" (hint: {hint})")).unwrap_or_default();
        let why = match self {
            Self::Local { source, .. } => format!(": {source}"),
            _ => String::new(),
        };
        Trouble { kind, text: format!("{self}{why}{hint}") }
    }

    /// Whether this machine's own disk has no room left.
    pub fn is_full_here(&self) -> bool {
        let is_full = |kind| matches!(kind, ErrorKind::StorageFull | ErrorKind::QuotaExceeded);
        matches!(self, Self::Local { source, .. } if is_full(source.kind()))
    }

    /// Whether the store itself cannot be used now: a stint that needs it waits for it.
    pub fn is_store_away(&self) -> bool {
        !matches!(self.trouble().kind, TroubleKind::NotSaved)
    }

    /// Whether a file stands in the way that nobody here may read: it will not be otherwise the next time.
    pub fn is_forbidden(&self) -> bool {
        matches!(self, Self::Local { source, .. } if source.kind() == ErrorKind::PermissionDenied)
    }

    /// Whether trying the same thing again may help.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Store { culprit, .. } => !matches!(culprit, Culprit::Region | Culprit::Bucket | Culprit::Feature),
            Self::Local { .. } | Self::Changed { .. } | Self::Task(_) => true,
            _ => false,
        }
    }

    pub(crate) fn local(what: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> Self + use<> {
        let path = path.to_owned();
        move |source| Self::Local { what, path, source }
    }

    /// A file that is open cannot be written. Which it is, whoever opened it says: see [`CheckpointError::of_file`].
    pub(super) fn not_restored(source: std::io::Error) -> Self {
        Self::Local { what: "cannot restore", path: PathBuf::new(), source }
    }

    pub(super) fn of_file(self, of: &Path) -> Self {
        match self {
            Self::Local { what, path, source } if path == Path::new("") => {
                Self::Local { what, path: of.to_owned(), source }
            }
            other => other,
        }
    }
}

/// A store's failure on its way from the server to an agent, which then fails in the same words.
///
/// ```json
/// {"what": "the checkpoint store failed: cannot write: no space is left: /srv/checkpoints/job-1",
///  "culprit": "full", "hint": "free some space there, or keep fewer checkpoints", "cause": "No space left on device"}
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct StoreFailure {
    pub what: String,
    pub culprit: Culprit,
    pub hint: String,
    pub cause: String,
}

impl From<CheckpointError> for StoreFailure {
    fn from(error: CheckpointError) -> Self {
        match error {
            CheckpointError::Store { what, culprit, hint, source } => {
                Self { what, culprit, hint, cause: windfall_core::english::with_causes(&*source) }
            }
            other => Self {
                what: format!("the checkpoint store failed: {other}"),
                culprit: Culprit::Other,
                hint: other.hint().unwrap_or("see the server's log").to_owned(),
                cause: windfall_core::english::with_causes(&other),
            },
        }
    }
}

impl From<StoreFailure> for CheckpointError {
    fn from(failure: StoreFailure) -> Self {
        let StoreFailure { what, culprit, hint, cause } = failure;
        Self::Store { what, culprit, hint, source: cause.into() }
    }
}

impl From<tokio::task::JoinError> for CheckpointError {
    fn from(error: tokio::task::JoinError) -> Self {
        Self::Task(error.to_string())
    }
}

pub(crate) type Result<T, E = CheckpointError> = std::result::Result<T, E>;

/// Runs file work off the runtime's thread, which may be the only one.
pub(crate) async fn blocking<T: Send + 'static>(work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    tokio::task::spawn_blocking(work).await?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_that_travels_is_the_same_failure_at_the_other_end() {
        let full = |source: Cause| CheckpointError::Store {
            what: "no space is left".into(),
            culprit: Culprit::Full,
            hint: "free some".into(),
            source,
        };
        let sent = serde_json::to_string(&StoreFailure::from(full("ENOSPC".into()))).expect("JSON");
        let came: StoreFailure = serde_json::from_str(&sent).expect("the same");
        let error = CheckpointError::from(came);
        assert_eq!(error.trouble(), full("ENOSPC".into()).trouble());
        assert_eq!(windfall_core::english::with_causes(&error), "no space is left: ENOSPC");
        // A newer server may know more culprits.
        assert_eq!(serde_json::from_str::<Culprit>(r#""weather""#).expect("known"), Culprit::Other);
    }
}
