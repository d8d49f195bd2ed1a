//! What a machine needs to join: whom to trust, and a secret that is good once and for a quarter of an hour.

use super::keys::{Fingerprint, hex, unhex};
use ring::rand::{SecureRandom, SystemRandom};
use std::fmt;
use std::str::FromStr;

const PREFIX: &str = "windfall-join-";

/// A token, as a person carries it from the server to a machine.
#[derive(Clone, PartialEq, Eq)]
pub struct JoinToken {
    /// The server's key.
    pub server: Fingerprint,
    secret: [u8; 16],
}

impl JoinToken {
    pub(crate) fn new(server: Fingerprint) -> JoinToken {
        let mut secret = [0; 16];
        SystemRandom::new().fill(&mut secret).expect("the kernel has randomness");
        JoinToken { server, secret }
    }

    /// What the server keeps of it: who reads that cannot join by it.
    pub(crate) fn digest(&self) -> String {
        hex(ring::digest::digest(&ring::digest::SHA256, &self.secret).as_ref())
    }
}

impl fmt::Display for JoinToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{PREFIX}{}{}", self.server, hex(&self.secret))
    }
}

impl fmt::Debug for JoinToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "JoinToken of {}", self.server)
    }
}

impl FromStr for JoinToken {
    type Err = String;

    fn from_str(text: &str) -> Result<JoinToken, String> {
        let no_token = || "this is no token: one looks like windfall-join- and 96 hexadecimal digits".to_owned();
        let bytes = text.trim().strip_prefix(PREFIX).and_then(unhex).filter(|bytes| bytes.len() == 48);
        let (server, secret) = bytes.as_deref().ok_or_else(no_token)?.split_at(32);
        let server = Fingerprint(server.try_into().map_err(|_| no_token())?);
        Ok(JoinToken { server, secret: secret.try_into().map_err(|_| no_token())? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_read_as_it_was_written_and_no_two_are_the_same() {
        let server = Fingerprint([7; 32]);
        let [one, two] = [(); 2].map(|()| JoinToken::new(server));
        assert_eq!(format!(" {one}\n").parse(), Ok(one.clone()));
        assert!(one != two && one.digest() != two.digest());
        assert!(!format!("{one:?} {}", one.digest()).contains(&hex(&one.secret)));
        let cut = one.to_string();
        for text in ["", "windfall-join-", &cut[1..], &cut[..cut.len() - 1], &format!("{cut}0")] {
            assert!(text.parse::<JoinToken>().is_err(), "{text}");
        }
    }
}
