//! Who asks, and what that principal may do. The kernel says who is at the other end of the socket; what a request says
//! about itself counts for nothing.

use crate::api_types::Problem;
use crate::problem;
use axum::extract::connect_info::Connected;
use axum::serve::IncomingStream;
use tokio::net::UnixListener;

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

/// The name of an account, or its number where it has none.
pub fn name_of(uid: u32) -> String {
    let number = uid.to_string();
    let accounts = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    let mut lines = accounts.lines().map(|line| line.split(':').collect::<Vec<_>>());
    let account = lines.find(|fields| fields.get(2) == Some(&number.as_str()));
    account.and_then(|fields| fields.first().map(ToString::to_string)).unwrap_or_else(|| format!("uid-{number}"))
}

impl Principal {
    /// Who has this number, to a server that runs as `own`.
    fn of(uid: u32, own: u32) -> Principal {
        let role = if uid == own || uid == 0 { Role::Operator } else { Role::Guest };
        Principal { user: name_of(uid), role }
    }

    /// Whether it may see and change what belongs to `owner`.
    pub fn may_touch(&self, owner: &str) -> bool {
        self.role == Role::Operator || self.user == owner
    }

    /// Nothing, or why it may not do what is for operators.
    pub fn must_operate(&self, what: &str) -> Result<(), Problem> {
        if self.role == Role::Operator {
            return Ok(());
        }
        Err(self.refused(&format!("may not {what}"), "ask who runs this server"))
    }

    /// Nothing, or why it may not touch a job of `owner`.
    pub fn must_own(&self, id: u64, owner: &str) -> Result<(), Problem> {
        if self.may_touch(owner) {
            return Ok(());
        }
        Err(self
            .refused(&format!("may not do that: job {id} belongs to {owner}"), "ask its owner, or who runs the server"))
    }

    fn refused(&self, what: &str, hint: &str) -> Problem {
        Problem { hint: Some(hint.to_owned()), ..problem(403, "not-allowed", &format!("{} {what}", self.user)) }
    }
}

impl Connected<IncomingStream<'_, UnixListener>> for Principal {
    fn connect_info(stream: IncomingStream<'_, UnixListener>) -> Principal {
        let own = rustix::process::geteuid().as_raw();
        // Whoever the kernel does not name is nobody.
        let uid = stream.io().peer_cred().map_or(u32::MAX, |peer| peer.uid());
        Principal::of(uid, own)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
