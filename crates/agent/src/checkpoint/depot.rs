//! The few operations that checkpoints need of a store. Three stores implement them: a directory, written
//! here so that its writes are durable and its copies cheap; anything `object_store` speaks to; and a
//! directory on the server's machine, through a relay.

use std::fs::File;
use std::io::{Read, Seek};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use bytes::Bytes;

use super::error::{CheckpointError, Result};
use super::tree::Stamp;

/// What came of fetching a blob into a file.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Fetched {
    /// All bytes came; this is their hash.
    Whole(String),
    Missing,
    Short,
}

#[async_trait]
pub(crate) trait Depot: Send + Sync + std::fmt::Debug {
    /// Creates an object, whole and durable when this returns; false if one of that name exists.
    async fn create(&self, key: &str, body: Bytes) -> Result<bool>;
    /// Writes an object that nobody else writes; durable after `flush`.
    async fn put(&self, key: &str, body: Bytes) -> Result<()>;
    /// Sends a file in one pass and returns its hash; durable after `flush`.
    async fn send(&self, key: &str, source: Source, sent: &Arc<AtomicU64>) -> Result<String>;
    /// Makes all that `put` and `send` wrote below a prefix durable.
    async fn flush(&self, prefix: &str) -> Result<()>;
    /// The object, or none.
    async fn get(&self, key: &str) -> Result<Option<Bytes>>;
    /// Copies `size` bytes at `offset` of an object into a file.
    async fn fetch(&self, key: &str, offset: u64, size: u64, into: File) -> Result<Fetched>;
    /// The names directly below a prefix.
    async fn list(&self, prefix: &str) -> Result<Vec<String>>;
    /// Deletes what is there of these keys.
    async fn delete(&self, keys: Vec<String>) -> Result<()>;
    /// Removes what crashed writers left behind, where the store itself does not.
    async fn sweep(&self) -> Result<()>;
}

/// A file on its way out: read once, hashed as it is read, and compared with its stamp at the end.
pub(crate) struct Source {
    file: File,
    path: PathBuf,
    stamp: Stamp,
    /// More may come after the end of what is read.
    grows: bool,
    left: u64,
    hasher: blake3::Hasher,
}

impl Source {
    /// Refuses a file that is no longer the one in the snapshot.
    pub fn new(file: File, path: PathBuf, stamp: Stamp, grows: bool) -> Result<Self> {
        let source = Self { file, path, stamp, grows, left: stamp.size, hasher: blake3::Hasher::new() };
        source.check()?;
        Ok(source)
    }

    pub fn size(&self) -> u64 {
        self.stamp.size
    }

    /// A clone of the whole file could be longer than what is read.
    pub fn grows(&self) -> bool {
        self.grows
    }

    pub fn left(&self) -> u64 {
        self.left
    }

    pub fn file(&self) -> &File {
        &self.file
    }

    /// Fills the buffer as far as the file reaches.
    pub fn read(&mut self, buffer: &mut [u8]) -> Result<usize> {
        let want = usize::try_from(self.left).unwrap_or(usize::MAX).min(buffer.len());
        let mut have = 0;
        while have < want {
            match self.file.read(&mut buffer[have..want]) {
                Ok(0) => return Err(self.changed()),
                Ok(n) => have += n,
                Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
                Err(e) => return Err(CheckpointError::local("cannot read", &self.path)(e)),
            }
        }
        self.hasher.update(&buffer[..have]);
        self.left -= have as u64;
        Ok(have)
    }

    /// Begins again with the first byte.
    pub fn rewind(&mut self) -> Result<()> {
        self.file.rewind().map_err(CheckpointError::local("cannot read", &self.path))?;
        self.left = self.stamp.size;
        self.hasher.reset();
        Ok(())
    }

    /// The hash, if the file is still what it was.
    pub fn finish(&self) -> Result<String> {
        self.check()?;
        Ok(self.hasher.finalize().to_hex().to_string())
    }

    fn check(&self) -> Result<()> {
        let meta = self.file.metadata().map_err(CheckpointError::local("cannot look at", &self.path))?;
        let now = Stamp::of(&meta);
        let longer = self.grows && now.inode == self.stamp.inode && now.size >= self.stamp.size;
        if longer || self.stamp.same_content(&now) { Ok(()) } else { Err(self.changed()) }
    }

    fn changed(&self) -> CheckpointError {
        CheckpointError::Changed { path: self.path.clone() }
    }
}

pub(crate) fn count(sent: &AtomicU64, bytes: usize) {
    sent.fetch_add(bytes as u64, Ordering::Relaxed);
}
