//! By what servers and nodes know each other: each has a pair of keys of its own, and is named by the fingerprint of the
//! public one. There are no certificates: nobody else vouches for either.

use ring::rand::SystemRandom;
use ring::signature::{Ed25519KeyPair, KeyPair};
use rustls::pki_types::PrivatePkcs8KeyDer;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::io::{self, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::str::FromStr;

/// What stands before an Ed25519 key in a SubjectPublicKeyInfo (RFC 8410).
const SPKI_OF_ED25519: [u8; 12] = [0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0x00];

/// A public key by its SHA-256, as 64 hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Fingerprint(pub [u8; 32]);

impl Fingerprint {
    /// Of a public key as TLS shows it.
    pub(super) fn of(spki: &[u8]) -> Fingerprint {
        let digest = ring::digest::digest(&ring::digest::SHA256, spki);
        Fingerprint(digest.as_ref().try_into().expect("a SHA-256 has 32 bytes"))
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex(&self.0))
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Fingerprint({self})")
    }
}

impl FromStr for Fingerprint {
    type Err = String;

    fn from_str(text: &str) -> Result<Fingerprint, String> {
        let bytes = unhex(text).and_then(|bytes| bytes.try_into().ok());
        bytes.map(Fingerprint).ok_or_else(|| format!("no fingerprint of 64 hexadecimal digits: {text}"))
    }
}

impl TryFrom<String> for Fingerprint {
    type Error = String;

    fn try_from(text: String) -> Result<Fingerprint, String> {
        text.parse()
    }
}

impl From<Fingerprint> for String {
    fn from(fingerprint: Fingerprint) -> String {
        fingerprint.to_string()
    }
}

/// Bytes in hexadecimal digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Hexadecimal digits in bytes.
pub(crate) fn unhex(text: &str) -> Option<Vec<u8>> {
    let is_whole = text.len().is_multiple_of(2) && text.bytes().all(|letter| letter.is_ascii_hexdigit());
    let byte = |at: usize| u8::from_str_radix(&text[at..at + 2], 16).ok();
    is_whole.then(|| (0..text.len()).step_by(2).filter_map(byte).collect())
}

/// A pair of keys. The private one never leaves the file that it is kept in.
pub struct Identity {
    pkcs8: Vec<u8>,
    spki: Vec<u8>,
}

impl Identity {
    /// The pair in a file, made at the first time. Only its owner can read the file.
    pub fn open(file: &Path) -> io::Result<Identity> {
        match std::fs::read(file) {
            Ok(pkcs8) => {
                let mode = std::fs::metadata(file)?.permissions().mode();
                if mode & 0o077 != 0 {
                    let text = format!("others may read the key in {}", file.display());
                    return Err(io::Error::new(io::ErrorKind::PermissionDenied, text));
                }
                Identity::of(pkcs8)
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let unusable = |_| io::Error::other("no randomness for a key");
                let pkcs8 = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new()).map_err(unusable)?;
                write_private(file, pkcs8.as_ref())?;
                Identity::of(pkcs8.as_ref().to_vec())
            }
            Err(error) => Err(error),
        }
    }

    fn of(pkcs8: Vec<u8>) -> io::Result<Identity> {
        let damaged =
            |why: ring::error::KeyRejected| io::Error::new(io::ErrorKind::InvalidData, format!("no key: {why}"));
        let pair = Ed25519KeyPair::from_pkcs8(&pkcs8).map_err(damaged)?;
        let spki = [&SPKI_OF_ED25519[..], pair.public_key().as_ref()].concat();
        Ok(Identity { pkcs8, spki })
    }

    /// What others know it by.
    pub fn fingerprint(&self) -> Fingerprint {
        Fingerprint::of(&self.spki)
    }

    pub(super) fn spki(&self) -> &[u8] {
        &self.spki
    }

    pub(super) fn private(&self) -> PrivatePkcs8KeyDer<'_> {
        PrivatePkcs8KeyDer::from(self.pkcs8.as_slice())
    }
}

/// Writes a file that only its owner can read, whole or not at all.
pub(crate) fn write_private(file: &Path, content: &[u8]) -> io::Result<()> {
    let new = file.with_extension("new");
    let mut written = std::fs::File::options().create(true).write(true).truncate(true).mode(0o600).open(&new)?;
    written.write_all(content)?;
    written.sync_all()?;
    std::fs::rename(&new, file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_made_once_and_refused_where_others_can_read_it() {
        let dir = tempfile::tempdir().expect("a folder");
        let file = dir.path().join("key");
        let made = Identity::open(&file).expect("made").fingerprint();
        assert_eq!(Identity::open(&file).expect("read").fingerprint(), made);
        assert_eq!(made.to_string().parse(), Ok(made));
        assert_ne!(Identity::open(&dir.path().join("other")).expect("made").fingerprint(), made);
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o644)).expect("changed");
        let refused = Identity::open(&file).err().map(|error| error.kind());
        assert_eq!(refused, Some(io::ErrorKind::PermissionDenied));
        std::fs::write(dir.path().join("other"), "no key").expect("written");
        let refused = Identity::open(&dir.path().join("other")).err().map(|error| error.kind());
        assert_eq!(refused, Some(io::ErrorKind::InvalidData));
    }

    #[test]
    fn what_is_no_fingerprint_is_refused() {
        for text in ["", "12", &"é".repeat(32), &"g".repeat(64), &"0".repeat(66)] {
            assert!(text.parse::<Fingerprint>().is_err(), "{text}");
        }
    }
}
