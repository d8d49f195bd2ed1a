//! Agents, each by its door: the folder of its socket on this computer, or the node that it runs on.

use crate::nodes::Hub;
use crate::owned;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;
use windfall_core::worker::{AgentRequest, AgentView};
use windfall_core::{Address, LeaseId};

/// An agent's socket in its folder.
pub(crate) const SOCKET: &str = "agent.sock";

/// Longer than the agent holds a watch.
const ANSWER: Duration = Duration::from_secs(15);

/// Longer than any agent's answer.
const MOST_ANSWER: u64 = 8 << 20;

/// What stands before the name of a node in an address.
const NODE: &str = "node:";

/// Where the agent of a lease is reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Door {
    /// The folder of its socket.
    Folder(PathBuf),
    /// A node that has joined.
    Node(String),
}

impl Door {
    pub fn of(address: &Address) -> Door {
        match address.0.strip_prefix(NODE) {
            Some(name) => Door::Node(name.to_owned()),
            None => Door::Folder(Path::new(&address.0).parent().map_or_else(PathBuf::new, Path::to_owned)),
        }
    }

    pub fn address(&self) -> Address {
        Address(match self {
            Door::Folder(folder) => folder.join(SOCKET).display().to_string(),
            Door::Node(name) => format!("{NODE}{name}"),
        })
    }
}

/// Whether an address is that of an agent on another machine.
pub fn is_on_node(address: &Address) -> bool {
    matches!(Door::of(address), Door::Node(_))
}

/// Who speaks to agents: those on this computer, and those on nodes where there are any.
#[derive(Clone, Default)]
pub(crate) struct Doors {
    pub nodes: Option<Arc<Hub>>,
}

impl Doors {
    fn nodes(&self) -> io::Result<&Arc<Hub>> {
        self.nodes.as_ref().ok_or_else(|| io::Error::other("this server has no nodes"))
    }

    /// One request, one answer.
    pub async fn ask(&self, lease: LeaseId, door: &Door, request: &AgentRequest) -> io::Result<AgentView> {
        match door {
            Door::Folder(folder) => ask(folder, request).await,
            Door::Node(name) => self.nodes()?.ask(name, lease, request).await,
        }
    }

    /// What an agent wrote down of its workers when one of them saved or ended.
    pub fn last_view(&self, lease: LeaseId, door: &Door) -> Option<AgentView> {
        match door {
            Door::Folder(folder) => last_view(folder),
            Door::Node(name) => self.nodes().ok()?.last_view(name, lease),
        }
    }
}

/// One request to the agent of a folder, one answer. Whoever answers must be who the folder is of: a program can put a link
/// to another's socket in its agent's place.
pub(crate) async fn ask(folder: &Path, request: &AgentRequest) -> io::Result<AgentView> {
    let exchange = async {
        // A socket's path is limited to 108 bytes; one through an open folder never reaches that.
        let dir = std::fs::File::open(folder)?;
        let stream = UnixStream::connect(format!("/proc/self/fd/{}/{SOCKET}", dir.as_raw_fd())).await?;
        if stream.peer_cred()?.uid() != dir.metadata()?.uid() {
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, "another one than its agent answers"));
        }
        // Very many agents are asked at once, and each for seconds: one descriptor is enough.
        drop(dir);
        let (read, mut write) = stream.into_split();
        let mut line = serde_json::to_vec(request)?;
        line.push(b'\n');
        write.write_all(&line).await?;
        let mut answer = String::new();
        BufReader::new(read.take(MOST_ANSWER)).read_line(&mut answer).await?;
        Ok(serde_json::from_str(&answer)?)
    };
    tokio::time::timeout(ANSWER, exchange).await.map_err(io::Error::other)?
}

/// What the agent of a folder wrote down of its workers when one of them saved or ended.
pub(crate) fn last_view(folder: &Path) -> Option<AgentView> {
    serde_json::from_str(&owned::read(folder, "view.json").ok()?).ok()
}
