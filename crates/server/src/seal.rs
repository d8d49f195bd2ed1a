//! Seals what may hold secrets before it goes to a store, which others may read and copy: with a key that lies in the state
//! directory, for its owner alone. Whoever has the store and not the key has nothing.

use ring::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::rand::{SecureRandom, SystemRandom};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Bytes of a key.
const KEY_LEN: usize = 32;

/// Seals with one key.
pub struct Seal {
    key: LessSafeKey,
    random: SystemRandom,
}

impl Seal {
    /// The key of a state directory; made where there is none. Only the server that holds the directory's lock does so.
    pub fn of(folder: &Path) -> io::Result<Seal> {
        let path = folder.join("secrets.key");
        let mut bytes = Vec::new();
        match File::open(&path) {
            Ok(mut file) => drop(file.read_to_end(&mut bytes)?),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                bytes = vec![0; KEY_LEN];
                SystemRandom::new()
                    .fill(&mut bytes)
                    .map_err(|_| io::Error::other("the kernel gives no random bytes"))?;
                write_durably(folder, &path, &bytes)?;
            }
            Err(error) => return Err(error),
        }
        let key = UnboundKey::new(&AES_256_GCM, &bytes);
        let key = key.map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "secrets.key is no key"))?;
        Ok(Seal { key: LessSafeKey::new(key), random: SystemRandom::new() })
    }

    /// A text, sealed for one owner: nobody can pass it off as another's. A number that is never used twice with one key
    /// stands before it: of 96 random bits, as good as never.
    pub fn close(&self, owner: &str, text: &str) -> Vec<u8> {
        let mut number = [0; NONCE_LEN];
        self.random.fill(&mut number).expect("the kernel gave random bytes before");
        let mut sealed = text.as_bytes().to_vec();
        let nonce = Nonce::assume_unique_for_key(number);
        self.key.seal_in_place_append_tag(nonce, Aad::from(owner), &mut sealed).expect("a text is shorter than 64 GiB");
        [number.as_slice(), &sealed].concat()
    }

    /// What was sealed for an owner; none where that was done with another key or for another owner, or was changed since.
    /// Earlier servers sealed for nobody in particular.
    pub fn open(&self, owner: &str, sealed: &[u8]) -> Option<String> {
        self.open_as(Aad::from(owner.as_bytes()), sealed).or_else(|| self.open_as(Aad::from(&[]), sealed))
    }

    fn open_as(&self, owner: Aad<&[u8]>, sealed: &[u8]) -> Option<String> {
        let (number, sealed) = sealed.split_at_checked(NONCE_LEN)?;
        let nonce = Nonce::try_assume_unique_for_key(number).ok()?;
        let mut text = sealed.to_vec();
        let text = self.key.open_in_place(nonce, owner, &mut text).ok()?;
        String::from_utf8(text.to_vec()).ok()
    }
}

/// A key that is lost takes what it has sealed with it: it is on the disk before it is used, whole or not at all.
fn write_durably(folder: &Path, path: &Path, bytes: &[u8]) -> io::Result<()> {
    let new = path.with_extension("new");
    let _ = std::fs::remove_file(&new);
    let mut file = File::options().write(true).create_new(true).mode(0o600).open(&new)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    std::fs::rename(&new, path)?;
    File::open(folder)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_key_of_the_state_directory_opens_what_it_has_sealed() {
        let [home, other] = [(); 2].map(|()| tempfile::tempdir().expect("a folder"));
        let sealed = Seal::of(home.path()).expect("a key is made").close("job", "TOKEN=hush");
        assert!(!sealed.windows(4).any(|word| word == b"hush"));
        let again = Seal::of(home.path()).expect("the same key");
        assert_eq!(again.open("job", &sealed).as_deref(), Some("TOKEN=hush"));
        assert_ne!(again.close("job", "TOKEN=hush"), sealed, "equal texts do not look alike");
        assert_eq!(Seal::of(other.path()).expect("another key").open("job", &sealed), None);
        let changed: Vec<u8> = sealed.iter().map(|byte| byte ^ 1).collect();
        assert_eq!((again.open("job", &changed), again.open("job", &[])), (None, None));
    }

    #[test]
    fn what_was_sealed_for_one_job_is_not_opened_for_another() {
        let home = tempfile::tempdir().expect("a folder");
        let seal = Seal::of(home.path()).expect("a key is made");
        assert_eq!(seal.open("other", &seal.close("job", "TOKEN=hush")), None);
        let of_an_earlier_server = seal.close("", "TOKEN=hush");
        assert_eq!(seal.open("job", &of_an_earlier_server).as_deref(), Some("TOKEN=hush"));
    }
}
