//! Bytes of a trace file, plain or gzip, unpacked on a thread of their own while the reader works on the block before.
//! What is left of a file that ends early or is corrupt is handed out before the complaint.

use flate2::bufread::MultiGzDecoder;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};

/// Bytes that are handed over at once.
const BLOCK: usize = 256 << 10;

/// Blocks that wait for the reader.
const AHEAD: usize = 4;

/// Why the bytes of a file ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ending {
    Whole,
    /// The gzip stream stops before its end.
    Truncated,
    /// The bytes cannot be unpacked or read from here on.
    Corrupt(String),
}

enum Block {
    Bytes(Vec<u8>),
    End(Ending),
}

/// The unpacked bytes of one file, block by block.
pub struct Source {
    blocks: Receiver<Block>,
    empty: Sender<Vec<u8>>,
    ending: Option<Ending>,
}

impl Source {
    /// Opens a file. Stored bytes that were read are added to `progress`.
    pub fn open(path: &Path, progress: Arc<AtomicU64>) -> std::io::Result<Source> {
        let file = File::open(path)?;
        if file.metadata()?.is_dir() {
            return Err(std::io::Error::new(std::io::ErrorKind::IsADirectory, "is a folder"));
        }
        Ok(Source::of(Counted { inner: file, progress }))
    }

    /// Reads from anything, such as bytes in memory.
    pub fn of(reader: impl Read + Send + 'static) -> Source {
        let (full, blocks) = sync_channel(AHEAD);
        let (empty, emptied) = channel();
        // The thread ends by itself when the reader of the blocks goes away.
        std::thread::spawn(move || unpack(reader, &full, &emptied));
        Source { blocks, empty, ending: None }
    }

    /// Appends the next block to `buffer`; false when there is none.
    pub fn fill(&mut self, buffer: &mut Vec<u8>) -> bool {
        if self.ending.is_some() {
            return false;
        }
        match self.blocks.recv() {
            Ok(Block::Bytes(bytes)) => {
                buffer.extend_from_slice(&bytes);
                let _ = self.empty.send(bytes);
                true
            }
            Ok(Block::End(ending)) => {
                self.ending = Some(ending);
                false
            }
            Err(_) => {
                self.ending = Some(Ending::Corrupt("the reader ended".to_owned()));
                false
            }
        }
    }

    /// Why there are no more bytes, once there are none.
    pub fn ending(&self) -> Option<&Ending> {
        self.ending.as_ref()
    }
}

struct Counted<R> {
    inner: R,
    progress: Arc<AtomicU64>,
}

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        let read = self.inner.read(into)?;
        self.progress.fetch_add(read as u64, Ordering::Relaxed);
        Ok(read)
    }
}

fn unpack(reader: impl Read, full: &SyncSender<Block>, emptied: &Receiver<Vec<u8>>) {
    let mut stored = BufReader::with_capacity(BLOCK, reader);
    let ending = match stored.fill_buf() {
        Ok([0x1f, 0x8b, ..]) => hand_over(&mut MultiGzDecoder::new(stored), full, emptied),
        Ok(_) => hand_over(&mut stored, full, emptied),
        Err(error) => Ending::Corrupt(error.to_string()),
    };
    let _ = full.send(Block::End(ending));
}

fn hand_over(reader: &mut impl Read, full: &SyncSender<Block>, emptied: &Receiver<Vec<u8>>) -> Ending {
    loop {
        let mut block = emptied.try_recv().unwrap_or_default();
        block.resize(BLOCK, 0);
        let mut filled = 0;
        let mut ending = None;
        while filled < BLOCK && ending.is_none() {
            match reader.read(&mut block[filled..]) {
                Ok(0) => ending = Some(Ending::Whole),
                Ok(read) => filled += read,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => ending = Some(Ending::Truncated),
                Err(error) => ending = Some(Ending::Corrupt(error.to_string())),
            }
        }
        block.truncate(filled);
        if filled > 0 && full.send(Block::Bytes(block)).is_err() {
            return Ending::Whole;
        }
        if let Some(ending) = ending {
            return ending;
        }
    }
}
