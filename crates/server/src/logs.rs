//! A job's output, stint after stint, as one stream.

use axum::body::Bytes;
use futures::Stream;
use futures::stream;
use std::fs::File;
use std::future::Future;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::time::Duration;
use windfall_exec::{folder_of_submitter, open_owned};

const CHUNK: usize = 64 << 10;
const LAST_BYTES: u64 = 16 << 10;
const LAST_LINES: usize = 12;
/// More than the outputs of any job.
const MOST_NAMES: usize = 50_000;
const LOOK: Duration = Duration::from_millis(200);

struct OutputReader {
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
    let start = OutputReader { folder, rank, epoch: 0, offset: 0, finishing: !follow };
    stream::unfold((start, over), |(mut reader, over)| async move {
        loop {
            if let Some(bytes) = reader.read() {
                return Some((Ok(bytes), (reader, over)));
            }
            if let Some(next) = epochs(&reader.folder, reader.rank).into_iter().find(|epoch| *epoch > reader.epoch) {
                (reader.epoch, reader.offset) = (next, 0);
                continue;
            }
            if reader.finishing {
                return None;
            }
            // One more look after the end, so that last words are not missed.
            reader.finishing = over().await;
            if !reader.finishing {
                tokio::time::sleep(LOOK).await;
            }
        }
    })
}

impl OutputReader {
    fn read(&mut self) -> Option<Bytes> {
        let mut file = open(&crate::folders::output_file(&self.folder, self.epoch, self.rank)).ok()?;
        let length = file.metadata().ok()?.len();
        // Shorter than before where the agent could cut its newest part only.
        self.offset = self.offset.min(length);
        let (start, end) = stretch(&file, self.offset).unwrap_or((self.offset, length));
        self.offset = start;
        file.seek(SeekFrom::Start(start)).ok()?;
        let mut bytes = vec![0; CHUNK.min(usize::try_from(end - start).unwrap_or(CHUNK))];
        let read = file.read(&mut bytes).ok().filter(|read| *read > 0)?;
        bytes.truncate(read);
        self.offset += read as u64;
        Some(bytes.into())
    }
}

/// The folders in which a job's outputs are: its own, and the one in it of whoever it runs as.
fn places(folder: &Path) -> [PathBuf; 2] {
    [folder.to_owned(), folder_of_submitter(folder)]
}

/// What is in one of them, as far as it is looked at: a program may put any number of files into its own.
fn entries(place: PathBuf) -> impl Iterator<Item = io::Result<std::fs::DirEntry>> {
    std::fs::read_dir(place).into_iter().flatten().take(MOST_NAMES)
}

/// Opens an output wherever it is. What a program puts in its place is not followed.
fn open(file: &Path) -> io::Result<File> {
    let (folder, name) = file.parent().zip(file.file_name()).ok_or(io::ErrorKind::InvalidInput)?;
    let name = name.to_string_lossy();
    let [ours, theirs] = places(folder);
    open_owned(&ours, &name).or_else(|_| open_owned(&theirs, &name))
}

/// Where the next bytes after an offset are: an output that grew too long has a hole in the middle, before which a
/// line says so. None where the file system does not tell, or nothing follows.
fn stretch(file: &File, offset: u64) -> Option<(u64, u64)> {
    let start = rustix::fs::seek(file, rustix::fs::SeekFrom::Data(offset)).ok()?;
    let end = rustix::fs::seek(file, rustix::fs::SeekFrom::Hole(start)).ok()?;
    Some((start, end.max(start)))
}

/// The last lines of the last stint, of the worker that printed last.
pub fn last_words(folder: &Path) -> Vec<String> {
    let entries = places(folder).into_iter().flat_map(entries);
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
    let place = path.parent().zip(path.file_name());
    let opened =
        place.map_or(Err(io::ErrorKind::NotFound.into()), |(place, name)| open_owned(place, &name.to_string_lossy()));
    let read = opened.and_then(|mut file| {
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
    whole[whole.len().saturating_sub(LAST_LINES)..].iter().map(|line| plain(line)).collect()
}

/// A line without what a terminal would obey: escape sequences and other control characters.
pub(crate) fn plain(line: &str) -> String {
    let mut text = String::new();
    let mut letters = line.chars().peekable();
    while let Some(letter) = letters.next() {
        match letter {
            '\x1b' => skip_escape(&mut letters),
            '\t' | '\n' | '\r' => text.push(' '),
            letter if letter.is_control() => {}
            letter => text.push(letter),
        }
    }
    text
}

/// Skips the rest of an escape sequence: a parameter string up to its letter, or a title up to its end.
fn skip_escape(letters: &mut std::iter::Peekable<std::str::Chars<'_>>) {
    match letters.next() {
        Some('[') => while letters.next().is_some_and(|letter| !('@'..='~').contains(&letter)) {},
        Some(']') => while letters.next().is_some_and(|letter| letter != '\x07' && letter != '\x1b') {},
        _ => {}
    }
}

fn epochs(folder: &Path, rank: u32) -> Vec<u64> {
    let suffix = format!("-{rank}.log");
    let entries = places(folder).into_iter().flat_map(entries);
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let mut found: Vec<u64> =
        names.filter_map(|name| name.strip_prefix("stint-")?.strip_suffix(&suffix)?.parse().ok()).collect();
    found.sort_unstable();
    found.dedup();
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::FileExt;

    #[test]
    fn outputs_are_looked_for_among_so_many_names_and_no_more() {
        let dir = tempfile::tempdir().expect("a folder");
        (0..MOST_NAMES + 100).for_each(|n| {
            std::fs::File::create(dir.path().join(format!("stint-{n}-0.log"))).expect("made");
        });
        assert_eq!(epochs(dir.path(), 0).len(), MOST_NAMES);
    }

    #[test]
    fn last_words_hold_nothing_that_a_terminal_obeys() {
        let nasty = "\x1b[31mred\x1b[0m \x1b]0;title\x07and\x08 \x1b[2Jgone\x1bc";
        assert_eq!(plain(nasty), "red and gone");
    }

    #[test]
    fn a_hole_in_an_output_is_passed_over() {
        let dir = tempfile::tempdir().expect("a folder");
        let file = File::create(crate::folders::output_file(dir.path(), 1, 0)).expect("made");
        file.write_all_at(b"head\n", 0).expect("written");
        file.write_all_at(b"tail\n", 1 << 30).expect("written");
        let mut reader = OutputReader { folder: dir.path().to_owned(), rank: 0, epoch: 1, offset: 0, finishing: true };
        let mut text = Vec::new();
        while let Some(bytes) = reader.read() {
            text.extend_from_slice(&bytes);
            assert!(text.len() < 1 << 20, "the hole is read");
        }
        let words: Vec<&[u8]> = text.split(|byte| *byte == 0).filter(|word| !word.is_empty()).collect();
        assert_eq!(words, [b"head\n", b"tail\n"]);
    }
}
