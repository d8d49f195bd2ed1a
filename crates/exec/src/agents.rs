//! Agents on this machine, each by the folder of its socket.

use std::io;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;
use windfall_core::worker::{AgentRequest, AgentView};

/// An agent's socket in its folder.
pub(crate) const SOCKET: &str = "agent.sock";

/// Longer than the agent holds a watch.
const ANSWER: Duration = Duration::from_secs(15);

/// One request, one answer.
pub(crate) async fn ask(folder: &Path, request: &AgentRequest) -> io::Result<AgentView> {
    let exchange = async {
        // A socket's path is limited to 108 bytes; one through an open folder never reaches that.
        let dir = std::fs::File::open(folder)?;
        let stream = UnixStream::connect(format!("/proc/self/fd/{}/{SOCKET}", dir.as_raw_fd())).await?;
        // Very many agents are asked at once, and each for seconds: one descriptor is enough.
        drop(dir);
        let (read, mut write) = stream.into_split();
        let mut line = serde_json::to_vec(request)?;
        line.push(b'\n');
        write.write_all(&line).await?;
        let mut answer = String::new();
        BufReader::new(read).read_line(&mut answer).await?;
        Ok(serde_json::from_str(&answer)?)
    };
    tokio::time::timeout(ANSWER, exchange).await.map_err(io::Error::other)?
}

/// What an agent wrote down of its workers when one of them saved or ended.
pub(crate) fn last_view(folder: &Path) -> Option<AgentView> {
    let text = std::fs::read_to_string(folder.join("view.json")).ok()?;
    serde_json::from_str(&text).ok()
}
