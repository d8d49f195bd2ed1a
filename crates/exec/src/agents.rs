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

/// The longest view of an agent, as it says it and as it is passed on: room for more than a thousand workers. The program of a
/// job can speak in its agent's place, so a longer one is none; whatever says several views at once must bound them together.
pub(crate) const MOST_VIEW: usize = 1 << 20;

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

/// The node of an agent that is on another machine, by its address.
pub fn node_of(address: &Address) -> Option<&str> {
    address.0.strip_prefix(NODE)
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
        BufReader::new(read.take(MOST_VIEW as u64 + 1)).read_line(&mut answer).await?;
        view_in(&answer)
    };
    tokio::time::timeout(ANSWER, exchange).await.map_err(io::Error::other)?
}

/// What the agent of a folder wrote down of its workers when one of them saved or ended.
pub(crate) fn last_view(folder: &Path) -> Option<AgentView> {
    view_in(&owned::read(folder, "view.json", MOST_VIEW as u64).ok()?).ok()
}

/// The view that a text is, where it is short enough to be passed on.
fn view_in(text: &str) -> io::Result<AgentView> {
    let too_long = || io::Error::new(io::ErrorKind::InvalidData, format!("a view is longer than {MOST_VIEW} bytes"));
    if text.len() > MOST_VIEW {
        return Err(too_long());
    }
    let view = serde_json::from_str(text)?;
    // A text that leaves out what may be left out is far shorter than the view that is made of it.
    if length_of(&view) > MOST_VIEW { Err(too_long()) } else { Ok(view) }
}

/// How many bytes a view takes where it is passed on.
pub(crate) fn length_of(view: &AgentView) -> usize {
    serde_json::to_vec(view).map_or(usize::MAX, |text| text.len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use windfall_core::worker::WorkerView;
    use windfall_core::{StintId, WorkloadId};

    fn written(count: u64) -> String {
        let workers = (0..count).map(|id| WorkerView::new(StintId::of_job(WorkloadId(id), 1), 0)).collect();
        serde_json::to_string(&AgentView { version: 1, pid: 7, workers }).expect("a view is JSON")
    }

    #[test]
    fn a_view_that_is_too_long_is_none() {
        let dir = tempfile::tempdir().expect("a folder");
        let last = |text: &str| {
            std::fs::write(dir.path().join("view.json"), text).expect("written");
            last_view(dir.path())
        };
        assert_eq!(last(&written(1_000)).expect("as long as one may be").workers.len(), 1_000);
        assert_eq!(last(&written(10_000)), None);
        // Spaces make it long where it is read, and what is left out where it is passed on.
        assert_eq!(last(&format!("{}{}", " ".repeat(MOST_VIEW), written(1))), None);
        let evidence = serde_json::to_value(WorkerView::new(StintId::of_job(WorkloadId(1), 1), 0).evidence);
        let mut short = serde_json::json!({ "stint": { "workload": 1, "member": 0, "epoch": 1 }, "rank": 0 });
        short["evidence"] = evidence.expect("JSON");
        let nulls = |(_, value): &(&String, &mut serde_json::Value)| value.is_null();
        let names = short["evidence"].as_object_mut().expect("an object").iter_mut().filter(nulls);
        let names: Vec<String> = names.map(|(name, _)| name.clone()).collect();
        names.iter().for_each(|name| _ = short["evidence"].as_object_mut().expect("an object").remove(name));
        let count = MOST_VIEW / (short.to_string().len() + 1) - 1;
        let text = serde_json::json!({ "version": 1, "pid": 7, "workers": vec![short; count] }).to_string();
        assert!(text.len() <= MOST_VIEW && serde_json::from_str::<AgentView>(&text).is_ok());
        assert_eq!(last(&text), None);
    }

    #[tokio::test]
    async fn an_answer_that_is_too_long_is_an_error() {
        let dir = tempfile::tempdir().expect("a folder");
        let listener = tokio::net::UnixListener::bind(dir.path().join(SOCKET)).expect("bound");
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                tokio::spawn(async move {
                    let _ = stream.write_all(format!("{}\n", written(10_000)).as_bytes()).await;
                });
            }
        });
        let error = ask(dir.path(), &AgentRequest::Watch { above: 0 }).await.expect_err("too long");
        assert!(error.to_string().contains("longer than"), "{error}");
    }
}
