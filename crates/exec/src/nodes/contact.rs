//! When the server was last heard on this machine, in a file: the agents of leases read it, and end by themselves when that
//! was too long ago, also when nobody is left who could tell them.

use std::io;
use std::os::unix::fs::FileExt;
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
        let written = std::fs::write(&new, contact.to_string()).and_then(|()| std::fs::rename(&new, &self.path));
        // A full disk must not end what runs here: there is always room for the same few bytes in their place.
        written.or_else(|_| self.write_over(&contact))?;
        self.last = Some(contact);
        Ok(())
    }

    /// Writes over what is in the file, which needs no new room on the disk.
    fn write_over(&self, contact: &Contact) -> io::Result<()> {
        let file = std::fs::File::options().write(true).open(&self.path)?;
        let length = file.metadata()?.len() as usize;
        file.write_all_at(format!("{:<length$}", contact.to_string()).as_bytes(), 0)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_over_the_file_is_read_as_if_it_were_new() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("contact");
        let mut file = ContactFile::new(path.clone());
        file.heard(Duration::from_millis(123_456_789), Duration::from_secs(4)).expect("written");
        file.write_over(&Contact { at_ms: 7, dead_man_ms: 5 }).expect("written over");
        let read: Contact = std::fs::read_to_string(&path).expect("text").parse().expect("a contact");
        assert_eq!((read.at_ms, read.dead_man_ms), (7, 5));
        // A folder in the way of the new file, as a full disk is.
        std::fs::create_dir(path.with_extension("new")).expect("made");
        file.heard(Duration::from_millis(9), Duration::from_millis(8)).expect("written all the same");
        let read: Contact = std::fs::read_to_string(&path).expect("text").parse().expect("a contact");
        assert_eq!((read.at_ms, read.dead_man_ms), (9, 8));
    }
}
