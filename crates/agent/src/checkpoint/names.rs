//! What things are called on the store.

use super::manifest::Ref;
use std::hash::{BuildHasher, Hasher, RandomState};

pub(super) fn manifest_key(name: Ref) -> String {
    format!("manifests/{}", name.file_name())
}

pub(super) fn blob_key(blob: &str) -> String {
    format!("blobs/{blob}")
}

/// Letters, digits, '-', '_' and '.', without a dot in front: such a part of a path leads nowhere else.
pub(super) fn is_plain(part: &str) -> bool {
    !part.is_empty()
        && !part.starts_with('.')
        && part.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
}

/// Whether this is the key of a job: plain parts with '/' between them.
pub(super) fn is_job_key(key: &str) -> bool {
    key.split('/').all(is_plain)
}

/// A random word. The standard library's hasher seed is random enough to tell writers apart.
pub(crate) fn token() -> String {
    static NEXT: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);
    let mut hasher = RandomState::new().build_hasher();
    hasher.write_u32(std::process::id());
    hasher.write_u64(NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed));
    hasher.write_u64(now_ms());
    format!("{:016x}", hasher.finish())
}

pub(super) fn now_ms() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
