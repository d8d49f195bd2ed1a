//! Dumps in, jobs out: what a file is, is seen from its first bytes. A line that cannot be read is counted and named, and
//! the rest is read all the same; a file that is none of sacct's is refused whole.

use super::jobs::Jobs;
use super::table::Columns;
use super::{jobs, json};
use flate2::bufread::MultiGzDecoder;
use serde::Serialize;
use std::borrow::Cow;
use std::io::{BufRead, BufReader, Read};

/// So many lines that cannot be read are named.
const NAMED: usize = 5;

/// No line of sacct is longer.
const LONGEST: u64 = 4 << 20;

/// Why a file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// It cannot be read.
    #[error("{name} cannot be read")]
    Io {
        name: String,
        #[source]
        source: std::io::Error,
    },
    /// It has no line that names the fields.
    #[error("{name} is no table of sacct's: its first line does not name the field JobID")]
    NotATable { name: String },
    /// It is JSON, but not sacct's, or it ends early.
    #[error("{name} is not what `sacct --json` prints: {source}")]
    NotJson {
        name: String,
        #[source]
        source: serde_json::Error,
    },
}

/// A line that was left out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Refused {
    pub file: String,
    /// Its number in the file; for JSON, the number of the job.
    pub line: u64,
    pub why: String,
}

/// All that was read so far.
#[derive(Default)]
pub struct Reading {
    pub jobs: Jobs,
    pub lines: u64,
    pub refused: u64,
    /// The first few lines that were left out.
    pub examples: Vec<Refused>,
    /// Fields that a report needs and some dump does not have.
    pub missing: Vec<&'static str>,
    dumps: u32,
}

impl Reading {
    /// Nothing yet.
    pub fn new() -> Reading {
        Reading { jobs: jobs::Jobs::new(), ..Reading::default() }
    }

    /// Reads a dump of either kind, plain or gzip.
    pub fn take(&mut self, name: &str, mut from: impl BufRead) -> Result<(), ReadError> {
        let io = |source| ReadError::Io { name: name.to_owned(), source };
        if from.fill_buf().map_err(io)?.starts_with(&[0x1f, 0x8b]) {
            return self.plain(name, BufReader::with_capacity(1 << 18, MultiGzDecoder::new(from)));
        }
        self.plain(name, from)
    }

    fn plain(&mut self, name: &str, mut from: impl BufRead) -> Result<(), ReadError> {
        let io = |source| ReadError::Io { name: name.to_owned(), source };
        if self.dumps > 0 {
            self.jobs.next_dump();
        }
        self.dumps += 1;
        let begins = from.fill_buf().map_err(io)?.iter().find(|byte| !byte.is_ascii_whitespace()).copied();
        if begins == Some(b'{') {
            let (refused, examples) = (&mut self.refused, &mut self.examples);
            let mut tell = |line, why: &str| {
                *refused += 1;
                note(examples, name, line, why);
            };
            let read = json::read(from, &mut self.jobs, &mut tell);
            self.lines += read.map_err(|source| ReadError::NotJson { name: name.to_owned(), source })?;
            return Ok(());
        }
        self.table(name, from)
    }

    fn table(&mut self, name: &str, mut from: impl BufRead) -> Result<(), ReadError> {
        let (mut line, mut head) = (Vec::new(), Vec::new());
        let mut columns: Option<Columns> = None;
        let mut number = 0;
        loop {
            line.clear();
            let read = from.by_ref().take(LONGEST).read_until(b'\n', &mut line);
            let read = read.map_err(|source| ReadError::Io { name: name.to_owned(), source })?;
            if read == 0 {
                break;
            }
            number += 1;
            while line.last().is_some_and(|byte| matches!(byte, b'\n' | b'\r')) {
                line.pop();
            }
            if line.is_empty() {
                continue;
            }
            // Names may be in any encoding.
            let text = std::str::from_utf8(&line).map_or_else(|_| String::from_utf8_lossy(&line), Cow::Borrowed);
            let Some(known) = &columns else {
                let read = Columns::read(&text).ok_or_else(|| ReadError::NotATable { name: name.to_owned() })?;
                self.columns(&mut columns, read);
                head.clone_from(&line);
                continue;
            };
            // Dumps that were written into one file one after the other.
            if (line == head || text.starts_with("JobID"))
                && let Some(again) = Columns::read(&text)
            {
                self.jobs.next_dump();
                self.columns(&mut columns, again);
                continue;
            }
            self.lines += 1;
            if let Err(why) = known.take(&text, &mut self.jobs) {
                self.refused += 1;
                note(&mut self.examples, name, number, why);
            }
        }
        match columns {
            Some(_) => Ok(()),
            None => Err(ReadError::NotATable { name: name.to_owned() }),
        }
    }

    fn columns(&mut self, columns: &mut Option<Columns>, read: Columns) {
        for missing in read.missing() {
            if !self.missing.contains(&missing) {
                self.missing.push(missing);
            }
        }
        *columns = Some(read);
    }

    /// All is read.
    pub fn finish(&mut self) {
        self.jobs.finish();
    }
}

fn note(examples: &mut Vec<Refused>, file: &str, line: u64, why: &str) {
    if examples.len() < NAMED {
        examples.push(Refused { file: file.to_owned(), line, why: why.to_owned() });
    }
}
