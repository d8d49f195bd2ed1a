//! A client of a state directory's server: finds it, starts it where none answers, asks it.

mod elsewhere;
mod failure;
mod ledger;
mod submitter;

pub use failure::{Code, Failure};
/// What `windfall status` asks for beside the greeting: the newest live jobs, as many as it shows.
pub const STATUS_JOBS: &str = "/v1/jobs?limit=50";
pub use ledger::LedgerEnd;
pub use submitter::{environment, key};

use crate::api_types::{Accepted, Hello, Problem, Submission};
use crate::home::Home;
use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use rustix::fs::{Mode, OFlags};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tokio::net::UnixStream;

/// How long a server may take until it answers, a long log to replay included.
const START: Duration = Duration::from_secs(60);
/// A server whose socket was removed makes another within this.
const MENDS_WITHIN: Duration = Duration::from_secs(3);
/// A server that runs answers at once; a busy one takes longer.
const SAID_AFTER: Duration = Duration::from_secs(5);
const GREETS_WITHIN: Duration = Duration::from_secs(20);
/// A server says every few seconds that it is there.
const BEATS_WITHIN: Duration = Duration::from_secs(20);
/// Longer than a checkpoint store may take to be looked at.
const ANSWERS_WITHIN: Duration = Duration::from_secs(60);

/// Tells a server that is started where it keeps its state.
pub const STORE_VARIABLE: &str = "WINDFALL_SERVE_STORE";

/// Whether a server may be started on a state directory.
pub type Check = fn(&Path) -> Result<(), Failure>;

/// A client.
#[derive(Clone, Debug)]
pub struct Client {
    home: PathBuf,
    serve_args: Vec<String>,
    /// Where that server keeps its state: everybody on the machine sees a program's arguments, and this may hold a password.
    serve_store: Option<String>,
    /// What must hold before a server is started, or anything is written for it.
    before_start: Option<Check>,
    /// It was said that an answer is long in coming.
    said_silent: Arc<AtomicBool>,
}

/// The body of an answer, read as it comes.
pub struct Lines {
    body: Incoming,
    rest: Vec<u8>,
}

impl Client {
    /// A client for a state directory; `serve_args` go to a server that it has to start.
    pub fn new(home: &Path, serve_args: Vec<String>) -> Client {
        Client { home: home.to_owned(), serve_args, serve_store: None, before_start: None, said_silent: Arc::default() }
    }

    /// A server that it has to start keeps its state there.
    pub fn with_store(self, serve_store: Option<String>) -> Client {
        Client { serve_store, ..self }
    }

    /// Asked with the state directory before a server is started; where it fails none is, and nothing is written.
    pub fn checking(self, before_start: Check) -> Client {
        Client { before_start: Some(before_start), ..self }
    }

    /// The server's greeting; starts one where none answers, and replaces one that is older than this client.
    pub async fn ensure(&self) -> Result<Hello, Failure> {
        for _ in 0..3 {
            let hello = match self.hello().await? {
                Some(hello) => hello,
                None => self.start().await?,
            };
            match version(&hello.version).cmp(&version(env!("CARGO_PKG_VERSION"))) {
                std::cmp::Ordering::Equal => return Ok(hello),
                std::cmp::Ordering::Greater => {
                    let text = format!(
                        "the server is newer ({}) than this command ({})",
                        hello.version,
                        env!("CARGO_PKG_VERSION")
                    );
                    return Err(Failure::new(Code::Unreachable, text)
                        .hint("use the newer windfall, or end the server with it: windfall down"));
                }
                std::cmp::Ordering::Less if hello.is_service => {
                    let text = format!(
                        "the server is older ({}) than this command ({}), and it is a service",
                        hello.version,
                        env!("CARGO_PKG_VERSION")
                    );
                    return Err(Failure::new(Code::Unreachable, text).hint(
                        "restart it with the new program: systemctl restart windfall-server; what runs goes on",
                    ));
                }
                std::cmp::Ordering::Less => {
                    // One of another user goes on as it is.
                    match self.post::<_, ()>("/v1/shutdown", &()).await {
                        Err(failure) if failure.code == Code::BadInput => return Ok(hello),
                        other => other?,
                    }
                    self.wait_until_ended(hello.pid).await;
                }
            }
        }
        Err(Failure::new(Code::Unreachable, "the server does not stay up").hint(self.look_at_log()))
    }

    /// The server's greeting, if there is one. One that is there and says nothing is an error.
    pub async fn hello(&self) -> Result<Option<Hello>, Failure> {
        match tokio::time::timeout(GREETS_WITHIN, self.get("/v1/hello")).await {
            Ok(Ok(hello)) => Ok(Some(hello)),
            // A server of one's own that closes is ending, and another is started.
            Ok(Err(failure)) => match self.owner_elsewhere().filter(|_| failure.code == Code::Unreachable) {
                Some(owner) if self.connect().await.is_ok() => Err(self.turned_away(&owner)),
                _ => Ok(None),
            },
            Err(_) => Err(self.silent()),
        }
    }

    fn silent(&self) -> Failure {
        Failure::new(Code::Unreachable, format!("a server holds {} and does not answer", self.home.display()))
            .hint(format!("perhaps it is stopped or the machine is overloaded; {}", self.look_at_log()))
    }

    /// Waits for an answer. One that is long in coming is said once, and given up at last.
    async fn patient<T>(&self, answer: impl Future<Output = T>) -> Result<T, Failure> {
        let mut answer = std::pin::pin!(answer);
        if let Ok(answer) = tokio::time::timeout(SAID_AFTER, answer.as_mut()).await {
            return Ok(answer);
        }
        if !self.said_silent.swap(true, Ordering::Relaxed) {
            eprintln!("the server has not answered for {} s; waiting for it", SAID_AFTER.as_secs());
        }
        tokio::time::timeout(ANSWERS_WITHIN, answer).await.map_err(|_| self.silent())
    }

    /// The server's greeting if one answers; a directory that this user may not use is an error, not silence.
    pub async fn greet(&self) -> Result<Option<Hello>, Failure> {
        match self.connect().await {
            Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => Err(self.forbidden()),
            Err(_) => Ok(None),
            Ok(_) => self.hello().await,
        }
    }

    fn forbidden(&self) -> Failure {
        Failure::new(Code::Unreachable, format!("no permission to use {}", self.home.display()))
            .hint("it belongs to another user: choose another with --home or WINDFALL_HOME")
    }

    /// Like `ensure`, for questions about jobs that exist: where there never was a server there are none, and
    /// nothing is started to find that out.
    pub async fn ensure_known(&self) -> Result<Option<Hello>, Failure> {
        if self.greet().await?.is_none() && !self.home.join("world.json").exists() {
            return Ok(None);
        }
        self.ensure().await.map(Some)
    }

    /// Waits until that server has ended: it answers no more and its process is gone.
    pub async fn wait_until_ended(&self, pid: u32) {
        self.wait_until_gone().await;
        let until = Instant::now() + Duration::from_secs(20);
        while Instant::now() < until && is_running(pid) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// Waits until no server answers.
    pub async fn wait_until_gone(&self) {
        let until = Instant::now() + Duration::from_secs(20);
        while Instant::now() < until && self.connect().await.is_ok() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Starts a server and waits until one answers. The one that answers may be another: of several that
    /// start at once, one stays.
    async fn start(&self) -> Result<Hello, Failure> {
        self.cannot_start().map_or(Ok(()), Err)?;
        self.before_start.map_or(Ok(()), |check| check(&self.home))?;
        let until = Instant::now() + START;
        while Instant::now() < until {
            self.spawn_server(until).await?;
            // A server that is just ending holds the directory for a moment and answers no more: then nobody
            // answers here either, and a new one is started.
            let patience = Instant::now() + Duration::from_secs(1);
            while Instant::now() < patience {
                if let Some(hello) = self.hello().await? {
                    return Ok(hello);
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        }
        Err(Failure::new(Code::Unreachable, "the server does not answer").hint(self.look_at_log()))
    }

    /// Starts a server and returns when it listens or has left the directory to another.
    async fn spawn_server(&self, until: Instant) -> Result<(), Failure> {
        let home = Home::open(&self.home).map_err(home_failure)?;
        let unusable = |error: std::io::Error| {
            Failure::new(
                Code::Unreachable,
                format!("the state directory cannot be written: {}: {error}", self.home.display()),
            )
            .hint("choose another with --home or WINDFALL_HOME")
        };
        let log = File::options()
            .create(true)
            .append(true)
            .mode(0o600)
            .open(home.path.join("server.log"))
            .map_err(unusable)?;
        let mut child = std::process::Command::new("/proc/self/exe")
            .arg0("windfall")
            .arg("serve")
            .args(&self.serve_args)
            .arg("--home")
            .arg(&home.path)
            .envs(self.serve_store.iter().map(|store| (STORE_VARIABLE, store)))
            .current_dir("/")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(log)
            .spawn()
            .map_err(|error| Failure::new(Code::Unreachable, format!("the server cannot be started: {error}")))?;
        // The server says on its first line whether it could start.
        let said = child.stdout.take();
        let said = tokio::task::spawn_blocking(move || {
            let mut line = String::new();
            said.map(|out| BufReader::new(out).read_line(&mut line));
            line
        });
        let said = tokio::time::timeout(until.saturating_duration_since(Instant::now()), said).await;
        let line = said.ok().and_then(Result::ok).unwrap_or_default();
        let died = line.is_empty() && child.wait().is_ok_and(|status| !status.success());
        if died {
            return Err(Failure::new(Code::Unreachable, "the server ended at once").hint(self.look_at_log()));
        }
        // Reaps the child when it ends before this command does.
        std::thread::spawn(move || child.wait());
        if let Ok(problem) = serde_json::from_str::<Problem>(&line) {
            return Err(startup_failure(problem));
        }
        Ok(())
    }

    /// Where to look when a server ends.
    pub fn look_at_log(&self) -> String {
        format!("its log is {}", self.home.join("server.log").display())
    }

    async fn connect(&self) -> std::io::Result<UnixStream> {
        // A directory of somebody else can be passed through, not read.
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let folder = File::from(rustix::fs::open(&self.home, flags, Mode::empty())?);
        let until = Instant::now() + MENDS_WITHIN;
        loop {
            match UnixStream::connect(Home::socket(&folder)).await {
                // Somebody removed the socket of a server that runs: it makes a new one soon.
                Err(error)
                    if error.kind() == std::io::ErrorKind::NotFound
                        && Instant::now() < until
                        && Home::is_held(&self.home) =>
                {
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
                connected => return connected,
            }
        }
    }

    async fn send(&self, method: Method, path: &str, body: Vec<u8>) -> Result<Response<Incoming>, Failure> {
        let unreachable = |what: String| {
            Failure::new(Code::Unreachable, format!("the server cannot be reached: {what}"))
                .hint("start one with `windfall up`, or look at its log in the state directory")
        };
        let stream = self.connect().await.map_err(|error| match error.kind() {
            std::io::ErrorKind::PermissionDenied => self.forbidden(),
            _ => unreachable(error.to_string()),
        })?;
        let (mut sender, connection) =
            http1::handshake(TokioIo::new(stream)).await.map_err(|error| unreachable(error.to_string()))?;
        tokio::spawn(connection);
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header("host", "windfall")
            .header("content-type", "application/json")
            .body(Full::new(Bytes::from(body)))
            .map_err(|error| Failure::new(Code::Bug, error.to_string()))?;
        let answer = self.patient(sender.send_request(request)).await?;
        let response = answer.map_err(|error| unreachable(error.to_string()))?;
        if response.status().is_success() {
            return Ok(response);
        }
        let status = response.status();
        let bytes = response.into_body().collect().await.map(|body| body.to_bytes()).unwrap_or_default();
        Err(refusal(status, &bytes))
    }

    /// Reads an answer.
    pub async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, Failure> {
        decode(self.send(Method::GET, path, Vec::new()).await?).await
    }

    /// Nothing, or why this user hands nothing to that server: its environment would be in another user's hands. Root's
    /// hands are everywhere anyway, and a server of root's says itself whom it runs programs for.
    async fn is_ours(&self) -> Result<(), Failure> {
        let own = rustix::process::geteuid().as_raw();
        match self.connect().await.and_then(|stream| stream.peer_cred()) {
            Ok(peer) if peer.uid() != own && peer.uid() != 0 => Err(Failure::new(
                Code::BadInput,
                format!(
                    "not allowed: the server of {} runs programs as `{}`",
                    self.home.display(),
                    crate::name_of(peer.uid())
                ),
            )
            .hint("choose another directory with --home or WINDFALL_HOME")),
            _ => Ok(()),
        }
    }

    /// Hands a job over, to a server of one's own.
    pub async fn submit(&self, submission: &Submission) -> Result<Accepted, Failure> {
        self.is_ours().await?;
        self.insist("/v1/jobs", submission).await
    }

    /// Asks for something to be done.
    pub async fn post<B: Serialize, T: DeserializeOwned>(&self, path: &str, body: &B) -> Result<T, Failure> {
        let body = serde_json::to_vec(body).map_err(|error| Failure::new(Code::Bug, error.to_string()))?;
        decode(self.send(Method::POST, path, body).await?).await
    }

    /// The same, also when the server dies under the question: its successor is asked again. Only for what
    /// may be asked twice.
    pub async fn insist<B: Serialize, T: DeserializeOwned>(&self, path: &str, body: &B) -> Result<T, Failure> {
        match self.post(path, body).await {
            Err(failure) if failure.code == Code::Unreachable => {
                self.ensure().await?;
                self.post(path, body).await
            }
            other => other,
        }
    }

    /// Follows an answer that comes in parts.
    pub async fn stream(&self, path: &str) -> Result<Lines, Failure> {
        Ok(Lines { body: self.send(Method::GET, path, Vec::new()).await?.into_body(), rest: Vec::new() })
    }
}

impl Lines {
    /// The next part as it came; none at the end.
    pub async fn part(&mut self) -> Option<Result<Bytes, Failure>> {
        loop {
            match self.body.frame().await? {
                Ok(frame) => {
                    if let Ok(bytes) = frame.into_data() {
                        return Some(Ok(bytes));
                    }
                }
                Err(error) => {
                    return Some(Err(Failure::new(Code::Unreachable, format!("the server went away: {error}"))));
                }
            }
        }
    }

    /// The next line as JSON; none at the end, or when the server went away or is silent.
    pub async fn next<T: DeserializeOwned>(&mut self) -> Option<T> {
        let mut silent = false;
        loop {
            if let Some(end) = self.rest.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.rest.drain(..=end).collect();
                // An empty one only says that somebody is there.
                if line.len() > 1 {
                    return windfall_core::codec::from_json(&line).ok();
                }
            } else {
                match tokio::time::timeout(BEATS_WITHIN, self.part()).await {
                    Ok(part) => self.rest.extend_from_slice(&part?.ok()?),
                    Err(_) if silent => return None,
                    Err(_) => {
                        silent = true;
                        eprintln!("the server has been silent for {} s; waiting for it", BEATS_WITHIN.as_secs());
                    }
                }
            }
        }
    }
}

async fn decode<T: DeserializeOwned>(response: Response<Incoming>) -> Result<T, Failure> {
    let bytes = response.into_body().collect().await;
    let bytes =
        bytes.map_err(|error| Failure::new(Code::Unreachable, format!("the server went away: {error}")))?.to_bytes();
    let text: &[u8] = if bytes.is_empty() { b"null" } else { &bytes };
    windfall_core::codec::from_json(text)
        .map_err(|error| Failure::new(Code::Bug, format!("an answer cannot be read: {error}")))
}

fn refusal(status: StatusCode, body: &[u8]) -> Failure {
    let code = match status.as_u16() {
        400..=499 => Code::BadInput,
        _ => Code::Unreachable,
    };
    match windfall_core::codec::from_json::<Problem>(body) {
        Ok(problem) => Failure { code, message: problem.title, hint: problem.hint, shown: false },
        Err(_) => Failure::new(code, format!("the server answered {status}: {}", String::from_utf8_lossy(body))),
    }
}

/// What a state directory that cannot be used means for a user.
pub fn home_failure(error: crate::home::HomeError) -> Failure {
    let mut text = error.to_string();
    if let Some(cause) = std::error::Error::source(&error) {
        text = format!("{text}: {cause}");
    }
    Failure::new(Code::Unreachable, text).hint(error.hint())
}

/// Whether a process is there. A zombie is not: who should have taken its status may never do so.
fn is_running(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat.rfind(')').and_then(|at| stat[at + 1..].split_whitespace().next());
    !matches!(state, None | Some("Z" | "X"))
}

fn version(text: &str) -> Vec<u64> {
    text.split(['.', '-']).map_while(|part| part.parse().ok()).collect()
}

/// What a server that did not start, or had to end, means for whoever started it.
pub fn startup_failure(problem: Problem) -> Failure {
    let code = if (400..500).contains(&problem.status) { Code::BadInput } else { Code::Unreachable };
    let mut failure = Failure::new(code, problem.title);
    failure.hint = problem.hint;
    failure
}
