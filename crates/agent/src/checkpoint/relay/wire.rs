//! What travels between an agent and the server's store, the same for both ends: frames, bodies and limits. A frame is
//! a length of four bytes, the highest first, and that much JSON; a body is as many plain bytes as the frame before it
//! announces. One operation runs at a time on a connection:
//!
//! ```text
//! agent                                                      server
//! {"seen":true,"operation":{"get":{"key":"claims/1"}}}  →
//!                                                         ←  {"seen":true,"outcome":{"body":{"size":16}}} and 16 bytes
//! {"seen":true,"operation":{"send":{"key":"blobs/a","size":5}}}, 5 bytes, {"hash":"…"}  →
//!                                                         ←  {"seen":true,"outcome":"done"}
//! ```
//!
//! A server that works for long says so in between (`"working"`), so that only a lost peer is quiet.

use std::io::{Error, ErrorKind, Result};
use std::time::Duration;

use bytes::Bytes;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use super::super::error::StoreFailure;

/// The most JSON in a frame.
pub(super) const HEAD_MAX: usize = 64 << 10;
/// The most bytes of a body that is in memory as a whole. A blob's body is not, and has no limit.
pub(super) const BODY_MAX: u64 = 64 << 20;
/// Blobs travel in pieces of this size.
pub(super) const PIECE: usize = 1 << 20;

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Request {
    /// The agent has seen this job's directory: the server does not make it anew.
    pub seen: bool,
    pub operation: Operation,
}

/// The operations of a `Depot`. A size announces a body after the frame.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Operation {
    Create {
        key: String,
        size: u64,
    },
    Put {
        key: String,
        size: u64,
    },
    /// After the body comes a frame with its hash.
    Send {
        key: String,
        size: u64,
    },
    Flush {
        prefix: String,
    },
    Get {
        key: String,
    },
    Fetch {
        key: String,
        offset: u64,
        size: u64,
    },
    List {
        prefix: String,
    },
    Delete {
        keys: Vec<String>,
    },
    Sweep,
}

/// Ends a `send`: without it, or with another hash than that of the bytes that came, nothing is stored.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Sent {
    pub hash: String,
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Answer {
    /// The job's directory is there, or was.
    pub seen: bool,
    pub outcome: Outcome,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Outcome {
    /// Not an answer yet: the server is at it.
    Working,
    Done,
    Created(bool),
    /// This many bytes follow: an object, a part of it, or names as a JSON list.
    Body {
        size: u64,
    },
    Missing,
    Short,
    Failed(StoreFailure),
}

/// What the peer sent is not of this protocol.
pub(super) fn garbled(what: impl Into<String>) -> Error {
    Error::new(ErrorKind::InvalidData, what.into())
}

/// Fails when a step takes longer than a living peer needs.
pub(super) async fn within<T>(quiet: Duration, step: impl Future<Output = Result<T>>) -> Result<T> {
    tokio::time::timeout(quiet, step).await.unwrap_or_else(|_| Err(ErrorKind::TimedOut.into()))
}

/// Fills the buffer; each part of it may take `quiet` to come.
pub(super) async fn read_exact(from: &mut (impl AsyncRead + Unpin), buffer: &mut [u8], quiet: Duration) -> Result<()> {
    let mut have = 0;
    while have < buffer.len() {
        match within(quiet, from.read(&mut buffer[have..])).await? {
            0 => return Err(ErrorKind::UnexpectedEof.into()),
            n => have += n,
        }
    }
    Ok(())
}

/// Reads a body into memory. Room is made as bytes come, because the announced size is only a claim.
pub(super) async fn read_body(from: &mut (impl AsyncRead + Unpin), size: u64, quiet: Duration) -> Result<Bytes> {
    let size = usize::try_from(size).ok().filter(|_| size <= BODY_MAX);
    let size = size.ok_or_else(|| garbled(format!("a body of more than {} MiB was announced", BODY_MAX >> 20)))?;
    let mut body = Vec::new();
    while body.len() < size {
        let have = body.len();
        body.resize(size.min(have + PIECE), 0);
        read_exact(from, &mut body[have..], quiet).await?;
    }
    Ok(body.into())
}

/// Reads one frame, which has begun or is about to.
pub(super) async fn read_frame<T: DeserializeOwned>(from: &mut (impl AsyncRead + Unpin), quiet: Duration) -> Result<T> {
    let mut length = [0; 4];
    read_exact(from, &mut length, quiet).await?;
    let length = u32::from_be_bytes(length) as usize;
    if length > HEAD_MAX {
        return Err(garbled(format!("a frame of {length} bytes was announced")));
    }
    let mut head = vec![0; length];
    read_exact(from, &mut head, quiet).await?;
    serde_json::from_slice(&head).map_err(|e| garbled(format!("a frame cannot be read: {e}")))
}

/// A frame as bytes.
pub(super) fn frame(head: &impl Serialize) -> Result<Vec<u8>> {
    let json = serde_json::to_vec(head)?;
    let length = u32::try_from(json.len()).ok().filter(|_| json.len() <= HEAD_MAX);
    let length = length.ok_or_else(|| garbled(format!("a frame of {} bytes is too long", json.len())))?;
    Ok([&length.to_be_bytes(), json.as_slice()].concat())
}

/// Writes all of it and hands it on; each part may take `quiet`.
pub(super) async fn write_all(to: &mut (impl AsyncWrite + Unpin), mut rest: &[u8], quiet: Duration) -> Result<()> {
    while !rest.is_empty() {
        match within(quiet, to.write(rest)).await? {
            0 => return Err(ErrorKind::WriteZero.into()),
            n => rest = &rest[n..],
        }
    }
    within(quiet, to.flush()).await
}
