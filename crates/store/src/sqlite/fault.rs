//! What SQLite's result codes (sqlite.org/rescode.html) mean to a caller.

use std::path::Path;

use crate::{StoreError, filesystem};

const BUSY: i32 = 5;
const LOCKED: i32 = 6;
const READONLY: i32 = 8;
const IOERR: i32 = 10;
const CORRUPT: i32 = 11;
const FULL: i32 = 13;
const CANTOPEN: i32 = 14;
const NOTADB: i32 = 26;

/// The primary result code: extended ones carry it in their low byte.
fn code(error: &sqlx::Error) -> Option<i32> {
    let code: i32 = error.as_database_error()?.code()?.parse().ok()?;
    Some(code & 0xff)
}

/// An operation failed before its COMMIT: nothing of it is written.
pub(super) fn fault(path: &Path, doing: &'static str, error: sqlx::Error) -> StoreError {
    let path = path.to_owned();
    match code(&error) {
        Some(BUSY | LOCKED) => StoreError::Busy { path },
        Some(READONLY) => StoreError::ReadOnly { path },
        Some(FULL) => StoreError::Full { path },
        // The shared-memory file cannot grow on a full disk either, and says so with another code.
        Some(IOERR | CANTOPEN) if filesystem::is_full(&path) => StoreError::Full { path },
        Some(CANTOPEN) => StoreError::Open { path, source: std::io::Error::other(error) },
        Some(CORRUPT | NOTADB) => StoreError::Corrupt { place: path.display().to_string(), detail: error.to_string() },
        _ => StoreError::Database { doing, source: error },
    }
}

/// The COMMIT itself failed. When a write or a sync fails, the frames may be in the file all the same, and be found
/// whole by the next process: only these codes are certain.
pub(super) fn commit_fault(path: &Path, doing: &'static str, error: sqlx::Error) -> StoreError {
    match code(&error) {
        Some(BUSY | LOCKED | READONLY | FULL) => fault(path, doing, error),
        _ => StoreError::Unsure { source: Some(error) },
    }
}

/// A file could not be opened or read by ourselves.
pub(super) fn open(path: &Path, source: std::io::Error) -> StoreError {
    use std::io::ErrorKind;
    let path = path.to_owned();
    match source.kind() {
        ErrorKind::ReadOnlyFilesystem | ErrorKind::PermissionDenied => StoreError::ReadOnly { path },
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => StoreError::Full { path },
        _ => StoreError::Open { path, source },
    }
}
