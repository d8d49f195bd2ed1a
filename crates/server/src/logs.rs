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

fn epochs(folder: &Path, rank: u32) -> Vec<u64> {
    let suffix = format!("-{rank}.log");
    let Ok(entries) = std::fs::read_dir(folder) else { return Vec::new() };
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let mut found: Vec<u64> =
        names.filter_map(|name| name.strip_prefix("stint-")?.strip_suffix(&suffix)?.parse().ok()).collect();
    found.sort_unstable();
    found
}
