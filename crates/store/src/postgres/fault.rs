//! What PostgreSQL's error codes (its manual, appendix A) mean to a caller.

use std::path::PathBuf;

use crate::StoreError;

/// Whether the connection is of no more use.
pub(super) fn is_disconnect(error: &sqlx::Error) -> bool {
    match error {
        sqlx::Error::Database(said) => {
            said.code().is_some_and(|code| code.starts_with("57P") || code.starts_with("08"))
        }
        sqlx::Error::Io(_)
        | sqlx::Error::Tls(_)
        | sqlx::Error::Protocol(_)
        | sqlx::Error::PoolTimedOut
        | sqlx::Error::PoolClosed
        | sqlx::Error::WorkerCrashed => true,
        _ => false,
    }
}

/// An operation failed, and nothing of it is written.
pub(super) fn fault(doing: &'static str, error: sqlx::Error) -> StoreError {
    if is_disconnect(&error) {
        return StoreError::Unreachable { doing, source: error };
    }
    let code = error.as_database_error().and_then(|said| said.code()).unwrap_or_default().into_owned();
    let path = || PathBuf::from("the PostgreSQL server");
    match code.as_str() {
        "53100" => StoreError::Full { path: path() },
        // A standby, or a server set to read only.
        "25006" => StoreError::ReadOnly { path: path() },
        "XX001" | "XX002" => StoreError::Corrupt { place: path().display().to_string(), detail: error.to_string() },
        _ => StoreError::Database { doing, source: error },
    }
}
