//! Logs that NCCL writes with `NCCL_DEBUG=INFO`: which transport carries what, between which ranks, and whether that is what
//! the machines could do. Logs of single ranks or of a whole job, in any order, read line by line.

mod facts;
mod line;
mod text;
mod verdict;

pub use text::screen;

use crate::read::lines::lines;
use crate::read::source::{Ending, Source};
use facts::Facts;
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

/// What the logs say.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct NcclReport {
    /// `sockets within a node`, `sockets between nodes`, `no peer access within a node`, `RDMA without GPUDirect`,
    /// `fast transports`, `one rank` or `connections unknown`.
    pub verdict: String,
    pub because: String,
    /// What to change, worst first.
    pub fixes: Vec<String>,
    pub version: Option<String>,
    /// The largest communicator's ranks, and the machines that they are on as NCCL counts them.
    pub ranks: Option<u64>,
    pub nodes: Option<u64>,
    /// Host names in the logs.
    pub hosts: Vec<String>,
    /// The network that NCCL chose, such as `Socket` or `IB`.
    pub network: Option<String>,
    /// Interfaces and adapters of that network.
    pub interfaces: Vec<String>,
    pub nvlink: bool,
    pub communicators: Vec<Communicator>,
    pub links: Vec<Link>,
    /// Variables that NCCL took from the environment.
    pub environment: Vec<(String, String)>,
    /// Warnings and how often they came.
    pub warnings: Vec<(String, u64)>,
    pub notes: Vec<String>,
}

/// Ranks that communicate with each other.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Communicator {
    pub ranks: u64,
    pub nodes: Option<u64>,
    /// Channels of collectives.
    pub channels: Option<u64>,
    /// Channels that the switches of NVLink reduce on.
    pub nvls_channels: Option<u64>,
    /// Ranks in the order of the first ring.
    pub ring: Vec<u64>,
    /// Trees were built, beside rings.
    pub trees: bool,
    /// Ranks whose logs say that they were ready.
    pub ready: u64,
}

/// Connections of one transport.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Link {
    /// As NCCL names it, such as `P2P/CUMEM` or `NET/IB/GDRDMA`.
    pub transport: String,
    /// Both ranks are on one machine; null where the logs do not say.
    pub within_node: Option<bool>,
    /// Pairs of ranks.
    pub pairs: u64,
    /// Connections that the logs name, for each channel and direction; both ends name those of a network.
    pub connections: u64,
}

/// Why there is no report.
#[derive(Debug, thiserror::Error)]
pub enum NcclError {
    #[error("{path} cannot be read")]
    Read { path: PathBuf, source: std::io::Error },
    #[error("{path} has no lines of NCCL: log with NCCL_DEBUG=INFO")]
    NoLines { path: PathBuf },
}

/// Reads the logs of a job. Bytes that were read are added to `progress`.
pub fn report(paths: &[PathBuf], progress: &Arc<AtomicU64>) -> Result<NcclReport, NcclError> {
    let mut facts = Facts::default();
    for path in paths {
        read(path, &mut facts, progress)?;
    }
    Ok(verdict::report(&facts))
}

fn read(path: &Path, facts: &mut Facts, progress: &Arc<AtomicU64>) -> Result<(), NcclError> {
    let unreadable = |source| NcclError::Read { path: path.to_owned(), source };
    let source = Source::open(path, progress.clone()).map_err(unreadable)?;
    let before = facts.lines;
    let read = lines(source, |text| facts.line(text));
    if facts.lines == before {
        return Err(NcclError::NoLines { path: path.to_owned() });
    }
    let name = path.display();
    match read.ending {
        Ending::Whole => {}
        Ending::Truncated => facts.notes.push(format!("{name} ends early: what came before is counted")),
        Ending::Corrupt(why) => facts.notes.push(format!("{name} cannot be read to its end: {why}")),
    }
    if read.too_long > 0 {
        facts.notes.push(format!("{name}: {} lines were too long and are left out", read.too_long));
    }
    Ok(())
}
