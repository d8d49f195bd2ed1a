//! The small files through which the agent speaks to a program and to the other ranks of its gang. What lies on the lease
//! is in a folder for each workload and member: they never meet.

use std::path::{Path, PathBuf};
use windfall_core::StintId;
use windfall_core::worker::StartOrder;

/// The folder of a workload's member in the lease's.
pub(super) fn own_folder(lease_dir: &Path, stint: StintId) -> PathBuf {
    lease_dir.join(format!("worker-{}-{}", stint.workload, stint.member))
}

/// The file in which a program finds the number of the last save that was asked for.
pub(super) fn save_request(own_folder: &Path, stint: StintId) -> PathBuf {
    own_folder.join(format!("save-request-{}", stint.epoch))
}

/// Writes the number of a request to where the program looks for it, unless a newer one is there.
pub(super) fn ask_to_save(lease_dir: &Path, stint: StintId, request: u64) {
    let path = save_request(&own_folder(lease_dir, stint), stint);
    let known = std::fs::read_to_string(&path).ok().and_then(|text| text.trim().parse::<u64>().ok());
    if known.is_none_or(|known| known < request) {
        // A program that is not told goes on, and is asked again.
        let _ = write_whole(&path, request.to_string().as_bytes());
    }
}

/// Writes a file beside and renames it, so that a reader finds the old content or the new one, never a part.
pub(super) fn write_whole(path: &Path, content: &[u8]) -> std::io::Result<()> {
    let fresh = path.with_extension("new");
    std::fs::write(&fresh, content).and_then(|()| std::fs::rename(&fresh, path))
}

/// ` on gpu-1`, for whoever looks for files that stayed on this machine: by the name that people use for it, else by its own.
/// Nothing where it has none.
pub(super) fn on_machine(order: &StartOrder) -> String {
    let own = || std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let name = if order.machine.is_empty() { own() } else { order.machine.clone() };
    let name = name.trim();
    if name.is_empty() { String::new() } else { format!(" on {name}") }
}
