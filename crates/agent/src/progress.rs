//! How far the program is: from the file that the helper writes, or from a pattern over its output. Keeps
//! a short history, so that a checkpoint can be given the progress of the moment it was written.

use regex::Regex;
use std::collections::VecDeque;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

/// Output read at once; a program that prints faster is sampled.
const CHUNK: u64 = 1 << 20;
const HISTORY: usize = 4_096;

/// What the program has said: work done, and the total.
pub(crate) type Said = (u64, Option<u64>);

#[derive(Clone, Default)]
pub(crate) struct History(Arc<Mutex<VecDeque<(u64, u64)>>>);

impl History {
    fn note(&self, done: u64, at_ms: u64) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if known.back().is_none_or(|(_, last)| *last != done) {
            known.push_back((at_ms, done));
            if known.len() > HISTORY {
                known.pop_front();
            }
        }
    }

    /// The last progress known at that moment; none when nothing was said by then.
    pub fn at(&self, ms: u64) -> Option<u64> {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.iter().rev().find(|(at, _)| *at <= ms).map(|(_, done)| *done)
    }
}

pub(crate) struct Reader {
    helper: PathBuf,
    output: PathBuf,
    pattern: Option<Regex>,
    offset: u64,
    partial: Vec<u8>,
    last: Option<Said>,
    pub history: History,
}

impl Reader {
    /// Reads from the helper's file and, when there is a pattern, from the output as of now.
    pub fn new(helper: PathBuf, output: PathBuf, pattern: Option<&str>) -> Reader {
        let offset = std::fs::metadata(&output).map_or(0, |meta| meta.len());
        // The job file's pattern was compiled when it was read; one that does not compile here says nothing.
        let pattern = pattern.and_then(|pattern| Regex::new(pattern).ok());
        Reader { helper, output, pattern, offset, partial: Vec::new(), last: None, history: History::default() }
    }

    /// What is known now.
    pub fn poll(&mut self) -> Option<Said> {
        let said = self.helper_says().or_else(|| self.output_says());
        if let Some((said, at_ms)) = said {
            self.history.note(said.0, at_ms);
            self.last = Some(said);
        }
        self.last
    }

    /// What the helper wrote, and when.
    fn helper_says(&self) -> Option<(Said, u64)> {
        let text = std::fs::read_to_string(&self.helper).ok()?;
        let mut words = text.split_whitespace();
        let said = (words.next()?.parse().ok()?, words.next().and_then(|word| word.parse().ok()));
        Some((said, written_ms(&self.helper)))
    }

    /// What the newest lines say, and a time at which they were all printed.
    fn output_says(&mut self) -> Option<(Said, u64)> {
        let pattern = self.pattern.as_ref()?;
        let mut file = File::open(&self.output).ok()?;
        let length = file.metadata().ok()?.len();
        // Shorter than before when it had to be cut.
        if length > self.offset + CHUNK || length < self.offset {
            self.offset = length.saturating_sub(CHUNK);
            self.partial.clear();
        }
        file.seek(SeekFrom::Start(self.offset)).ok()?;
        let read = file.take(CHUNK).read_to_end(&mut self.partial).ok()?;
        self.offset += read as u64;
        // Progress bars end their lines with a carriage return.
        let end = self.partial.iter().rposition(|byte| *byte == b'\n' || *byte == b'\r')? + 1;
        let lines: Vec<u8> = self.partial.drain(..end).collect();
        let text = String::from_utf8_lossy(&lines);
        let found = pattern.captures_iter(&text).last()?;
        let number = |group| found.get(group).and_then(|found| found.as_str().replace([',', '_'], "").parse().ok());
        // Taken after they were read: none of them was printed later.
        Some(((number(1)?, number(2)), written_ms(&self.output)))
    }
}

/// When a file was last written, as its file system says it, so that it compares with the times of saved files.
pub(crate) fn written_ms(path: &Path) -> u64 {
    let written = std::fs::metadata(path).and_then(|meta| meta.modified()).ok();
    let since = written.and_then(|written| written.duration_since(UNIX_EPOCH).ok());
    since.map_or_else(now_ms, |since| since.as_millis() as u64)
}

pub(crate) fn now_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_match_of_the_output_counts_and_the_helper_outranks_it() {
        let dir = tempfile::tempdir().expect("a folder");
        let (helper, output) = (dir.path().join("progress"), dir.path().join("out"));
        std::fs::write(&output, "step 99/100 of another run\n").expect("written");
        let mut reader = Reader::new(helper.clone(), output.clone(), Some(r"step (\d+)/(\d+)"));
        assert_eq!(reader.poll(), None);
        std::fs::write(&output, "step 99/100 of another run\nstep 1/10\nstep 2/10\rstep 3").expect("written");
        assert_eq!(reader.poll(), Some((2, Some(10))));
        std::fs::write(&helper, "7 10\n").expect("written");
        assert_eq!(reader.poll(), Some((7, Some(10))));
        assert_eq!(reader.history.at(now_ms()), Some(7));
        assert_eq!(reader.history.at(0), None);
        let written = std::fs::metadata(&helper).and_then(|meta| meta.modified()).expect("a time");
        let written = written.duration_since(UNIX_EPOCH).expect("after 1970").as_millis() as u64;
        assert_eq!(reader.history.at(written), Some(7), "as of when it was said, not of when it was read");
    }
}
