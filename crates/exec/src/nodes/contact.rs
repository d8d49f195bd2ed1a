//! When the server was last heard on this machine, in a file: the agents of leases read it, and end by themselves when that
//! was too long ago, also when nobody is left who could tell them.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;
use windfall_core::worker::Contact;

/// The file, and what was last written into it.
pub(super) struct ContactFile {
    path: PathBuf,
    last: Option<Contact>,
}

impl ContactFile {
    pub fn new(path: PathBuf) -> ContactFile {
        let last = std::fs::read_to_string(&path).ok().and_then(|text| text.parse().ok());
        ContactFile { path, last }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The server answered something that was said at this moment since the machine began.
    pub fn heard(&mut self, at: Duration, dead_man: Duration) -> io::Result<()> {
        let contact = Contact { at_ms: at.as_millis() as u64, dead_man_ms: dead_man.as_millis() as u64 };
        let new = self.path.with_extension("new");
        std::fs::write(&new, contact.to_string())?;
        // Agents read it that run as somebody else. It says nothing that is secret.
        std::fs::set_permissions(&new, std::os::unix::fs::PermissionsExt::from_mode(0o644))?;
        std::fs::rename(&new, &self.path)?;
        self.last = Some(contact);
        Ok(())
    }

    /// Whether the server was not heard for so long that nothing may run here.
    pub fn is_over(&self) -> bool {
        self.last.is_some_and(|last| last.is_over(since_boot()))
    }
}

/// How long the machine has been running, sleep included.
pub(super) fn since_boot() -> Duration {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    Duration::new(now.tv_sec.unsigned_abs(), now.tv_nsec as u32)
}
