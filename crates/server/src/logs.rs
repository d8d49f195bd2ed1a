//! A job's output, stint after stint, as one stream.

use axum::body::Bytes;
use futures::Stream;
use futures::stream;
use std::fs::File;
use std::future::Future;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::time::Duration;

const CHUNK: usize = 64 << 10;
const LAST_BYTES: u64 = 16 << 10;
const LAST_LINES: usize = 12;
const LOOK: Duration = Duration::from_millis(200);

struct Place {
    folder: PathBuf,
    rank: u32,
    epoch: u64,
    offset: u64,
    finishing: bool,
}

/// Streams the output of one rank. With `follow`, goes on until `over` answers yes.
pub fn follow<F, O>(folder: PathBuf, rank: u32, follow: bool, over: O) -> impl Stream<Item = io::Result<Bytes>> + Send
where
    F: Future<Output = bool> + Send,
    O: Fn() -> F + Send,
{
    let start = Place { folder, rank, epoch: 0, offset: 0, finishing: !follow };
    stream::unfold((start, over), |(mut place, over)| async move {
        loop {
            if let Some(bytes) = place.read() {
                return Some((Ok(bytes), (place, over)));
            }
            if let Some(next) = epochs(&place.folder, place.rank).into_iter().find(|epoch| *epoch > place.epoch) {
                (place.epoch, place.offset) = (next, 0);
                continue;
            }
            if place.finishing {
                return None;
            }
            // One more look after the end, so that last words are not missed.
            place.finishing = over().await;
            if !place.finishing {
                tokio::time::sleep(LOOK).await;
            }
        }
    })
}

impl Place {
    fn read(&mut self) -> Option<Bytes> {
        let mut file = File::open(crate::outfit::output_file(&self.folder, self.epoch, self.rank)).ok()?;
        file.seek(SeekFrom::Start(self.offset)).ok()?;
        let mut bytes = vec![0; CHUNK];
        let read = file.read(&mut bytes).ok().filter(|read| *read > 0)?;
        bytes.truncate(read);
        self.offset += read as u64;
        Some(bytes.into())
    }
}

/// The last lines of the last stint, of the worker that printed last.
pub fn last_words(folder: &Path) -> Vec<String> {
    let Ok(entries) = std::fs::read_dir(folder) else { return Vec::new() };
    let files = entries.filter_map(|entry| {
        let entry = entry.ok()?;
        let name = entry.file_name().into_string().ok()?;
        let epoch: u64 = name.strip_prefix("stint-")?.strip_suffix(".log")?.split_once('-')?.0.parse().ok()?;
        let meta = entry.metadata().ok().filter(|meta| meta.len() > 0)?;
        Some((epoch, meta.modified().ok()?, entry.path(), meta.len()))
    });
    let Some((_, _, path, length)) = files.max() else { return Vec::new() };
    let mut text = Vec::new();
    let start = length.saturating_sub(LAST_BYTES);
    let read = File::open(path).and_then(|mut file| {
        file.seek(SeekFrom::Start(start))?;
        file.take(LAST_BYTES).read_to_end(&mut text)
    });
    if read.is_err() {
        return Vec::new();
    }
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<&str> = text.split(['\n', '\r']).filter(|line| !line.trim().is_empty()).collect();
    // A line that was cut in two says less than none.
    let whole = if start > 0 && lines.len() > 1 { &lines[1..] } else { &lines[..] };
    whole[whole.len().saturating_sub(LAST_LINES)..].iter().map(|line| (*line).to_owned()).collect()
}

fn epochs(folder: &Path, rank: u32) -> Vec<u64> {
    let suffix = format!("-{rank}.log");
    let Ok(entries) = std::fs::read_dir(folder) else { return Vec::new() };
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let mut found: Vec<u64> =
        names.filter_map(|name| name.strip_prefix("stint-")?.strip_suffix(&suffix)?.parse().ok()).collect();
    found.sort_unstable();
    found
}
