//! Why a machine is not a node, and what a person can do about it.

use super::super::protocol::NotWelcome;
use crate::owned;
use std::io;
use std::path::PathBuf;

/// Why a machine is not a node.
#[derive(Debug, thiserror::Error)]
pub enum NodeError {
    #[error("the state directory cannot be used: {}", path.display())]
    State {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("the state directory of root's could be replaced: {}", path.display())]
    Replaceable {
        path: PathBuf,
        #[source]
        source: owned::Replaceable,
    },
    #[error("the state directory was removed while this agent ran: {}", path.display())]
    Removed { path: PathBuf },
    #[error("another agent runs on {}", path.display())]
    Busy { path: PathBuf },
    #[error("this machine has not joined a server")]
    NotJoined,
    #[error("this machine has joined another server: {server}")]
    JoinedElsewhere { server: String },
    #[error("{server} cannot be reached")]
    Unreachable {
        server: String,
        #[source]
        source: io::Error,
    },
    #[error("{server} is not the server that the token is of: its key is another one")]
    OtherServer { server: String },
    #[error("{server} answers, but not as a server of nodes")]
    NotOurs { server: String },
    #[error(transparent)]
    NotWelcome(#[from] NotWelcome),
}

impl NodeError {
    /// What a person can do about it.
    pub fn hint(&self) -> &'static str {
        match self {
            NodeError::State { .. } => "choose another directory with --state",
            NodeError::Replaceable { .. } => {
                "choose a directory with --state of which root owns all above it, and to which nobody else may write"
            }
            NodeError::Removed { .. } => {
                "its key was in it: `windfall nodes remove NAME` and `windfall nodes token NAME` on the server, then join anew"
            }
            NodeError::Busy { .. } => "one agent a machine is enough; see `systemctl status windfall-agent`",
            NodeError::NotJoined => "`windfall nodes token NAME` on the server makes a token to join by",
            NodeError::JoinedElsewhere { .. } => {
                "use another --state, or delete that directory to leave the other server"
            }
            NodeError::Unreachable { .. } => "is the server up with --listen, and is its port open?",
            NodeError::OtherServer { .. } => "check the address; a token is of one server",
            NodeError::NotOurs { .. } => "check host and port: those that `windfall up --listen` was told",
            NodeError::NotWelcome(why) => why.hint(),
        }
    }
}
