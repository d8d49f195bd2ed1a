//! What can go wrong, as the caller must tell it apart: who else writes, what the disk says, what is unknown.

use std::path::{Path, PathBuf};

/// Why the store did not do it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// The writer is no longer (or never was) the leader; nothing was written.
    #[error("this server no longer leads: its epoch is {held}, the store's is {current}")]
    Fenced {
        /// The epoch the writer showed.
        held: u64,
        /// The epoch of the store.
        current: u64,
    },
    /// Another server leads and is connected.
    #[error("another server leads this store (epoch {current})")]
    Led {
        /// The epoch of the store.
        current: u64,
    },
    /// Rows do not continue the log or the ledger; nothing was written.
    #[error("the {sequence} continues with {expected}, not with {found}")]
    Gap {
        /// `log` or `ledger`.
        sequence: &'static str,
        /// The number that comes next.
        expected: u64,
        /// The number that came.
        found: u64,
    },
    /// A snapshot of rows that are not in the log.
    #[error("a snapshot covers row {seq}, and the log ends before {next_seq}")]
    Ahead {
        /// The last row the snapshot says it covers.
        seq: u64,
        /// The next row of the log.
        next_seq: u64,
    },
    /// The store was written by a newer program; nothing was changed.
    #[error("the store has format {found}, this program knows up to {known}")]
    Newer {
        /// The format of the store.
        found: u32,
        /// The newest format this program knows.
        known: u32,
    },
    /// SQLite cannot lock files there.
    #[error("a store cannot be on a network file system ({kind}): {}", path.display())]
    NetworkFilesystem {
        path: PathBuf,
        /// Which one.
        kind: &'static str,
    },
    /// The directory or the file cannot be written.
    #[error("the store cannot be written: {}", path.display())]
    ReadOnly { path: PathBuf },
    /// Its file was removed or replaced while it was in use. What it held, the last commit too, was written to `rescued`.
    #[error("the store was removed while it was in use: {}{}", path.display(), where_it_is(path, rescued.as_deref()))]
    Removed {
        path: PathBuf,
        /// Where it is now; none where that failed.
        rescued: Option<PathBuf>,
    },
    /// No space is left; what was being written is not there at all.
    #[error("no space is left for the store: {}", path.display())]
    Full { path: PathBuf },
    /// It is damaged, or it is not a store.
    #[error("not a readable store: {place}: {detail}")]
    Corrupt {
        /// A file, or a schema of a database.
        place: String,
        detail: String,
    },
    /// Another process kept the store locked too long; nothing was written.
    #[error("another process keeps the store locked: {}", path.display())]
    Busy { path: PathBuf },
    /// The file cannot be opened.
    #[error("the store cannot be opened: {}", path.display())]
    Open {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    /// The address is none.
    #[error("not the address of a store ({detail}): use a path, sqlite:PATH, postgres://… or memory:")]
    Address {
        /// What is wrong with it; never the address itself, which may hold a password.
        detail: String,
    },
    /// The database server does not answer; nothing was written.
    #[error("the database server cannot be reached while {doing}")]
    Unreachable {
        doing: &'static str,
        #[source]
        source: sqlx::Error,
    },
    /// The answer to a commit was lost: it is there, or it is not. Lead again and load to know.
    #[error("it is not known whether the last commit was written")]
    Unsure {
        /// Why, where there was an answer.
        #[source]
        source: Option<sqlx::Error>,
    },
    /// A number that no backend can hold.
    #[error("too large for the store: {field}: {value}")]
    TooLarge {
        /// What.
        field: &'static str,
        value: u64,
    },
    /// An injected refusal of [`crate::MemoryStore`]; nothing was written.
    #[error("the store refused the commit (an injected fault)")]
    Refused,
    /// An injected crash of [`crate::MemoryStore`]; the commit may be there or not.
    #[error("the process crashed at the commit (an injected fault)")]
    Crashed,
    /// Anything else a database said.
    #[error("the database failed while {doing}")]
    Database {
        doing: &'static str,
        #[source]
        source: sqlx::Error,
    },
}

fn where_it_is(path: &Path, rescued: Option<&Path>) -> String {
    match rescued {
        Some(rescued) if rescued == path => "; what it held was put back".to_owned(),
        Some(rescued) => format!("; another file is there now, and what it held is in {}", rescued.display()),
        None => "; what it held could not be put back".to_owned(),
    }
}

/// Why a transaction is not to be committed: a rule of the store, or what the database said.
pub(crate) enum Problem {
    Store(StoreError),
    Sql(sqlx::Error),
}

impl From<StoreError> for Problem {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

impl From<sqlx::Error> for Problem {
    fn from(error: sqlx::Error) -> Self {
        Self::Sql(error)
    }
}
