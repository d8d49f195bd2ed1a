//! Who asks, and what that principal may do. The kernel says who is at the other end of the socket; what a request says
//! about itself counts for nothing.

use crate::api_types::Problem;
use crate::listener::PeerListener;
use crate::problem;
use axum::extract::connect_info::{ConnectInfo, Connected};
use axum::extract::{FromRequestParts, Request};
use axum::http::request::Parts;
use axum::middleware::Next;
use axum::response::Response;
use axum::serve::IncomingStream;
use tokio::net::UnixStream;
pub use windfall_exec::name_of_account as name_of;
use windfall_exec::{Directory, unnamed_account};

/// A principal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Principal {
    /// The name of its account, once it was asked for; its number before that.
    pub user: String,
    uid: u32,
    /// Whether nobody has said yet what its account is called.
    is_nameless: bool,
    role: Role,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    /// Who runs the server, and root.
    Operator,
    /// Everybody else on this machine: sees the queue.
    Guest,
}

impl Principal {
    /// Who has this number, to a server that runs as `own`.
    pub(crate) fn of(uid: u32, own: u32) -> Principal {
        let role = if uid == own || uid == 0 { Role::Operator } else { Role::Guest };
        Principal { user: unnamed_account(uid), uid, is_nameless: true, role }
    }

    /// The same with its name. Where the directory service does not say it, it has none for now.
    pub(crate) async fn named(self, directory: &Directory) -> Principal {
        match directory.name(self.uid).await {
            Ok(name) => Principal { user: name.unwrap_or(self.user), is_nameless: false, ..self },
            Err(_) => self,
        }
    }

    /// Nothing, or why nothing that depends on its name can be answered now.
    pub fn must_be_named(&self) -> Result<(), Problem> {
        if !self.is_nameless {
            return Ok(());
        }
        let text = format!("what account {} is called cannot be said: its directory service does not answer", self.uid);
        Err(Problem { hint: Some("try again in a minute".to_owned()), ..problem(503, "directory-silent", &text) })
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
        self.must_be_named()?;
        Err(self.refused(&format!("job {id} belongs to {owner}"), "ask its owner, or who runs the server"))
    }

    fn refused(&self, what: &str, hint: &str) -> Problem {
        let text = format!("not allowed to `{}`: {what}", self.user);
        Problem { hint: Some(hint.to_owned()), ..problem(403, "not-allowed", &text) }
    }
}

/// Says who asks by name. Done for each request and not where connections are taken in: there all of them would wait for one
/// whose name is not known.
pub(crate) async fn name_asker(mut request: Request, next: Next) -> Response {
    if let Some(ConnectInfo(asker)) = request.extensions_mut().remove::<ConnectInfo<Principal>>() {
        let asker = asker.named(Directory::of_this_machine()).await;
        request.extensions_mut().insert(ConnectInfo(asker));
    }
    next.run(request).await
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
        asker.must_operate("this")?;
        Ok(Operator)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[tokio::test]
    async fn an_asker_whose_name_nobody_says_is_asked_to_wait_and_who_runs_the_server_is_served() {
        let silent = Directory::stand_in(std::path::Path::new("/bin/cat"), Duration::ZERO);
        let dir = tempfile::tempdir().expect("a folder");
        let answers = Directory::stand_in(&dir.path().join("nobody-to-ask"), Duration::from_secs(30));
        let (own, other) = (Principal::of(4_242, 4_242), Principal::of(4_243, 4_242));
        let [own, other] = [own.named(&silent).await, other.named(&silent).await];
        assert!(own.must_operate("end it").is_ok() && own.must_own(1, "ada").is_ok());
        assert_eq!(own.must_be_named().map_err(|why| why.status), Err(503), "nothing is written down as uid-4242's");
        assert_eq!(other.must_own(1, "ada").map_err(|why| why.status), Err(503));
        let known = Principal::of(4_243, 4_242).named(&answers).await;
        assert_eq!((known.user.as_str(), known.must_be_named().is_ok()), ("uid-4243", true), "it has no name");
        assert_eq!(known.must_own(1, "ada").map_err(|why| why.status), Err(403));
        let root = Principal::of(0, 4_242).named(&silent).await;
        assert_eq!(root.user, "root");
    }

    #[tokio::test]
    async fn whoever_connects_is_named_before_the_request_is_answered() {
        use tokio::io::{AsyncReadExt, AsyncWriteExt};
        let dir = tempfile::tempdir().expect("a folder");
        let home = crate::home::Home::open(dir.path()).expect("a state directory");
        let listener = PeerListener::bind(&home).expect("listens");
        let says = |ConnectInfo(asker): ConnectInfo<Principal>| async move {
            asker.must_be_named().map(|()| format!("I am {}.", asker.user))
        };
        let app = axum::Router::new().route("/", axum::routing::get(says)).layer(axum::middleware::from_fn(name_asker));
        tokio::spawn(
            async move { axum::serve(listener, app.into_make_service_with_connect_info::<Principal>()).await },
        );
        let mut stream = UnixStream::connect(dir.path().join("server.sock")).await.expect("connected");
        let request = b"GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n";
        stream.write_all(request).await.expect("asked");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.expect("answered");
        let own = name_of(rustix::process::geteuid().as_raw());
        assert!(answer.ends_with(&format!("I am {own}.")), "{answer}");
    }

    #[test]
    fn who_runs_the_server_operates_it_and_others_touch_only_their_own() {
        let (own, root, other) = (Principal::of(1_000, 1_000), Principal::of(0, 1_000), Principal::of(4_242, 1_000));
        for operator in [&own, &root] {
            assert!(operator.must_operate("end it").is_ok() && operator.must_own(1, "ada").is_ok());
        }
        let other = Principal { is_nameless: false, ..other };
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
