//! What a machine's agent has written down: whose node it is, and how its clock stood against the server's. Whoever only
//! looks (`windfall doctor`) reads it here.

use super::contact::since_boot;
use crate::net::{Fingerprint, hex, write_private};
use serde::{Deserialize, Serialize};
use std::io;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use windfall_core::worker::Contact;

/// What tells this machine from a copy of its disk, also after it was started anew: the name that it was installed with, and
/// that of its hardware. Only root can read that; for others it is the host name, which a copy may have as well.
pub(super) fn this_machine() -> String {
    let read = |path: &str| std::fs::read(path).ok();
    let installed = read("/etc/machine-id").unwrap_or_default();
    let hardware = read("/sys/class/dmi/id/product_uuid").or_else(|| read("/proc/sys/kernel/hostname"));
    let all = [installed, hardware.unwrap_or_default()].map(|part| hex(&part)).join("/");
    hex(&ring::digest::digest(&ring::digest::SHA256, all.as_bytes()).as_ref()[..16])
}

/// Which server this machine belongs to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Joined {
    pub server: String,
    pub key: Fingerprint,
    pub name: String,
}

/// A machine that has joined a server, as its agent's state directory says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JoinedNode {
    pub server: String,
    pub name: String,
    /// How far the server's clock was ahead of this machine's when they last met, in milliseconds.
    pub server_ahead_ms: Option<i64>,
    /// How long ago the server was last heard.
    pub heard: Option<Duration>,
}

impl JoinedNode {
    /// What an agent's state directory says; none where the machine has not joined. Nothing is changed.
    pub fn of(state: &Path) -> io::Result<Option<JoinedNode>> {
        let bytes = match std::fs::read(state.join("joined.json")) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let Joined { server, name, .. } = windfall_core::codec::from_json(&bytes)?;
        let text = |file: &str| std::fs::read_to_string(state.join(file)).ok();
        let contact: Option<Contact> = text("contact").and_then(|text| text.parse().ok());
        let heard = contact.map(|contact| since_boot().saturating_sub(Duration::from_millis(contact.at_ms)));
        let server_ahead_ms = server_ahead_ms(state);
        Ok(Some(JoinedNode { server, name, server_ahead_ms, heard }))
    }
}

const CLOCK: &str = "server-clock";

/// The wall clock, in milliseconds.
pub(super) fn wall_clock_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}

/// How far the server's clock was ahead, as it was written down.
pub(super) fn server_ahead_ms(state: &Path) -> Option<i64> {
    std::fs::read_to_string(state.join(CLOCK)).ok()?.trim().parse().ok()
}

/// Writes down how far the server's clock is ahead: it answered between `asked_ms` and now.
pub(super) fn note_clock(state: &Path, asked_ms: u64, server_ms: u64) -> io::Result<()> {
    let here = i128::midpoint(asked_ms.into(), wall_clock_ms().into());
    let ahead = i128::from(server_ms) - here;
    write_private(&state.join(CLOCK), ahead.to_string().as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_an_agent_wrote_is_read_again_and_nothing_is_no_node() {
        let state = tempfile::tempdir().expect("a folder");
        assert_eq!(JoinedNode::of(state.path()).expect("readable"), None);
        let key = Fingerprint([7; 32]);
        let joined = Joined { server: "lab:7443".to_owned(), key, name: "gpu-1".to_owned() };
        let bytes = serde_json::to_vec(&joined).expect("a record has string keys");
        std::fs::write(state.path().join("joined.json"), bytes).expect("written");
        note_clock(state.path(), wall_clock_ms(), wall_clock_ms() + 90_000).expect("written");
        let node = JoinedNode::of(state.path()).expect("readable").expect("a node");
        assert_eq!((node.server.as_str(), node.name.as_str(), node.heard), ("lab:7443", "gpu-1", None));
        let ahead = node.server_ahead_ms.expect("known");
        // Two readings of one clock, a busy moment apart.
        assert!((80_000..100_000).contains(&ahead), "{ahead}");
        std::fs::write(state.path().join("joined.json"), "{").expect("written");
        assert!(JoinedNode::of(state.path()).is_err());
    }

    #[test]
    fn a_machine_is_the_same_one_whenever_it_is_asked() {
        assert!(this_machine() == this_machine() && this_machine().len() == 32);
    }
}
