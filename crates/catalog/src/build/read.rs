//! Opening files: plain, gzip or Zstandard by their first bytes, with the bytes that were read counted for whoever
//! watches. Nothing here holds more than a buffer.

use crate::error::BuildError;
use std::fs::File;
use std::io::{BufReader, Cursor, Read};
use std::path::Path;

/// Called with a file's name, how much of it was read, and how long it is.
pub type Watcher<'w> = &'w mut dyn FnMut(&str, u64, u64);

/// A watcher that ignores what it is told.
pub fn nobody() -> impl FnMut(&str, u64, u64) {
    |_, _, _| {}
}

struct Counted<'w, 'f> {
    inner: File,
    name: &'w str,
    read: u64,
    said: u64,
    total: u64,
    watcher: &'w mut (dyn FnMut(&str, u64, u64) + 'f),
}

/// Bytes between two calls of the watcher.
const STRIDE: u64 = 4 << 20;

impl Read for Counted<'_, '_> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let count = self.inner.read(buffer)?;
        self.read += count as u64;
        if self.read - self.said >= STRIDE || (count == 0 && self.said < self.read) {
            self.said = self.read;
            (self.watcher)(self.name, self.read, self.total);
        }
        Ok(count)
    }
}

/// A file's contents, unpacked as they are read.
pub fn open<'w, 'f: 'w>(
    path: &Path,
    name: &'w str,
    watcher: &'w mut (dyn FnMut(&str, u64, u64) + 'f),
) -> Result<Box<dyn Read + 'w>, BuildError> {
    let failed = |source| BuildError::Read { path: path.to_owned(), source };
    let mut inner = File::open(path).map_err(failed)?;
    let total = inner.metadata().map_err(failed)?.len();
    let mut first = [0u8; 4];
    let known = fill(&mut inner, &mut first).map_err(failed)?;
    watcher(name, 0, total);
    let rest = Counted { inner, name, read: known as u64, said: 0, total, watcher };
    let whole = BufReader::with_capacity(1 << 16, Cursor::new(first[..known].to_vec()).chain(rest));
    if first.starts_with(&[0x1f, 0x8b]) {
        return Ok(Box::new(flate2::read::MultiGzDecoder::new(whole)));
    }
    if first == [0x28, 0xb5, 0x2f, 0xfd] {
        let decoder = ruzstd::decoding::StreamingDecoder::new(whole)
            .map_err(|error| BuildError::bad(name, "start", format!("not a Zstandard file: {error}")))?;
        return Ok(Box::new(decoder));
    }
    Ok(Box::new(whole))
}

fn fill(file: &mut File, buffer: &mut [u8]) -> std::io::Result<usize> {
    let mut at = 0;
    while at < buffer.len() {
        match file.read(&mut buffer[at..])? {
            0 => break,
            count => at += count,
        }
    }
    Ok(at)
}
