//! Who asks, and what that principal may do. The kernel says who is at the other end of the socket; what a request says
//! about itself counts for nothing.

use crate::api_types::Problem;
use crate::listener::PeerListener;
use crate::problem;
use axum::extract::FromRequestParts;
use axum::extract::connect_info::{ConnectInfo, Connected};
use axum::http::request::Parts;
use axum::serve::IncomingStream;
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::net::UnixStream;
use windfall_exec::name_of_account;

/// A principal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Principal {
    /// The name of its account.
    pub user: String,
    role: Role,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    /// Who runs the server, and root.
    Operator,
    /// Everybody else on this machine: sees the queue.
    Guest,
}

/// How long the name of an account is known: asking a directory service takes a while, and accounts change.
const NAMES_LIVE: Duration = Duration::from_secs(60);

/// The name of an account, or its number where it has none. Asked for once a minute.
pub fn name_of(uid: u32) -> String {
    static KNOWN: Mutex<Names> = Mutex::new(Names(BTreeMap::new()));
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    known.of(uid, Instant::now(), name_of_account)
}

/// Names of accounts, and when they were asked for.
struct Names(BTreeMap<u32, (Instant, String)>);

impl Names {
    fn of(&mut self, uid: u32, now: Instant, look_up: impl FnOnce(u32) -> String) -> String {
        self.0.retain(|_, (asked, _)| now.saturating_duration_since(*asked) < NAMES_LIVE);
        self.0.entry(uid).or_insert_with(|| (now, look_up(uid))).1.clone()
    }
}

impl Principal {
    /// Who has this number, to a server that runs as `own`.
    pub(crate) fn of(uid: u32, own: u32) -> Principal {
        let role = if uid == own || uid == 0 { Role::Operator } else { Role::Guest };
        Principal { user: name_of(uid), role }
    }

    /// Who is at the other end of a connection.
    pub fn at(stream: &UnixStream) -> Principal {
        // Whoever the kernel does not name is nobody.
        let uid = stream.peer_cred().map_or(u32::MAX, |peer| peer.uid());
        Principal::of(uid, rustix::process::geteuid().as_raw())
    }

    /// Whether it runs the server.
    pub fn is_operator(&self) -> bool {
        self.role == Role::Operator
    }

    /// Whether it may see and change what belongs to `owner`.
    pub fn may_touch(&self, owner: &str) -> bool {
        self.role == Role::Operator || self.user == owner
    }

    /// Nothing, or why it may not do what is for operators.
    pub fn must_operate(&self, what: &str) -> Result<(), Problem> {
        if self.is_operator() {
            return Ok(());
        }
        Err(self.refused(&format!("{what} is for who runs this server"), "ask who runs it"))
    }

    /// Nothing, or why it may not touch a job of `owner`.
    pub fn must_own(&self, id: u64, owner: &str) -> Result<(), Problem> {
        if self.may_touch(owner) {
            return Ok(());
        }
        Err(self.refused(&format!("job {id} belongs to {owner}"), "ask its owner, or who runs the server"))
    }

    fn refused(&self, what: &str, hint: &str) -> Problem {
        let text = format!("not allowed to `{}`: {what}", self.user);
        Problem { hint: Some(hint.to_owned()), ..problem(403, "not-allowed", &text) }
    }
}

impl Connected<IncomingStream<'_, PeerListener>> for Principal {
    fn connect_info(stream: IncomingStream<'_, PeerListener>) -> Principal {
        stream.io().who.clone()
    }
}

/// Who runs the server. Judged before the body of a request is read.
pub struct Operator;

impl<S: Sync> FromRequestParts<S> for Operator {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Operator, Problem> {
        let asker = parts.extensions.get::<ConnectInfo<Principal>>();
        let asker = asker.map(|asker| asker.0.clone()).ok_or_else(|| problem(403, "not-allowed", "nobody asks"))?;
        asker.must_operate(&format!("{} {}", parts.method, parts.uri.path()))?;
        Ok(Operator)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_known_for_a_minute_and_then_asked_for_again() {
        let (mut names, now) = (Names(BTreeMap::new()), Instant::now());
        let mut ask =
            |after_s: u64, said: &str| names.of(4_242, now + Duration::from_secs(after_s), |_| said.to_owned());
        assert_eq!(ask(0, "uid-4242"), "uid-4242");
        assert_eq!(ask(59, "ada"), "uid-4242");
        assert_eq!(ask(61, "ada"), "ada", "an account that was made since");
        assert_eq!(ask(62, "bob"), "ada");
    }

    #[test]
    fn who_runs_the_server_operates_it_and_others_touch_only_their_own() {
        let (own, root, other) = (Principal::of(1_000, 1_000), Principal::of(0, 1_000), Principal::of(4_242, 1_000));
        for operator in [&own, &root] {
            assert!(operator.must_operate("end it").is_ok() && operator.must_own(1, "ada").is_ok());
        }
        assert_eq!(other.user, "uid-4242");
        assert!(other.must_own(1, "uid-4242").is_ok());
        let refused = other.must_own(1, "ada").expect_err("not its own");
        assert_eq!((refused.status, refused.code.as_str()), (403, "not-allowed"));
        assert!(refused.title.contains("uid-4242") && refused.title.contains("ada"), "{}", refused.title);
        assert!(other.must_operate("end it").is_err());
        // A server of root is operated by root alone.
        assert!(Principal::of(1_000, 0).must_operate("end it").is_err());
    }
}
