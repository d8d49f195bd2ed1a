//! Rows that come in any order and are read in order, with a bound on memory: what is too much goes to a temporary file
//! in sorted runs, which are merged when the rows are read. This is why a profile of 50 GB needs no more memory than one
//! of 5 GB.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fs::File;
use std::io::{Result, Write};
use std::os::unix::fs::FileExt;

/// A row: numbers that are compared from the first on.
pub type Row<const W: usize> = [u64; W];

/// Bytes of a run that are read at once.
const READ: usize = 64 << 10;

/// Puts signed times in order as unsigned ones.
pub fn ordered(time: i64) -> u64 {
    (time as u64) ^ (1 << 63)
}

/// The time that `ordered` was given.
pub fn unordered(time: u64) -> i64 {
    (time ^ (1 << 63)) as i64
}

/// Rows while they come in.
pub struct Spool<const W: usize> {
    rows: Vec<Row<W>>,
    most: usize,
    spilled: Option<File>,
    /// How many rows each run on disk has.
    runs: Vec<u64>,
    /// The first failure to write; rows after it are lost.
    failure: Option<std::io::Error>,
}

impl<const W: usize> Spool<W> {
    /// Keeps at most so many bytes of rows in memory.
    pub fn new(most_bytes: usize) -> Spool<W> {
        Spool { rows: Vec::new(), most: (most_bytes / (8 * W)).max(16), spilled: None, runs: Vec::new(), failure: None }
    }

    /// Adds a row.
    #[inline]
    pub fn push(&mut self, row: Row<W>) {
        if self.rows.len() == self.most {
            self.spill();
        }
        self.rows.push(row);
    }

    fn spill(&mut self) {
        if self.failure.is_none()
            && let Err(error) = self.write_run()
        {
            self.failure = Some(error);
        }
        self.rows.clear();
    }

    fn write_run(&mut self) -> Result<()> {
        self.rows.sort_unstable();
        let file = match &mut self.spilled {
            Some(file) => file,
            none => none.insert(tempfile::tempfile()?),
        };
        let mut writer = std::io::BufWriter::with_capacity(1 << 20, file);
        for word in self.rows.iter().flatten() {
            writer.write_all(&word.to_le_bytes())?;
        }
        writer.flush()?;
        self.runs.push(self.rows.len() as u64);
        Ok(())
    }

    /// All rows, to be read in order as often as is wanted.
    pub fn sorted(mut self) -> Result<Sorted<W>> {
        if let Some(error) = self.failure {
            return Err(error);
        }
        self.rows.sort_unstable();
        Ok(Sorted { rows: self.rows, file: self.spilled, runs: self.runs })
    }
}

/// Rows in order.
pub struct Sorted<const W: usize> {
    rows: Vec<Row<W>>,
    file: Option<File>,
    runs: Vec<u64>,
}

impl<const W: usize> Sorted<W> {
    /// Rows in order.
    pub fn iter(&self) -> Rows<'_, W> {
        let mut rows = Rows { memory: self.rows.iter(), runs: Vec::new(), heads: BinaryHeap::new() };
        let mut at = 0;
        for length in &self.runs {
            let end = at + length * 8 * W as u64;
            rows.runs.push(Run { file: self.file.as_ref(), at, end, buffer: Vec::new(), read: 0 });
            at = end;
        }
        for number in 0..rows.runs.len() {
            rows.advance(number);
        }
        if !rows.runs.is_empty() {
            rows.advance(usize::MAX);
        }
        rows
    }
}

struct Run<'s> {
    file: Option<&'s File>,
    at: u64,
    end: u64,
    buffer: Vec<u8>,
    read: usize,
}

impl Run<'_> {
    fn next<const W: usize>(&mut self) -> Option<Row<W>> {
        if self.read == self.buffer.len() {
            let length = (self.end - self.at).min((READ / (8 * W) * 8 * W) as u64) as usize;
            if length == 0 {
                return None;
            }
            self.buffer.resize(length, 0);
            self.file?.read_exact_at(&mut self.buffer, self.at).ok()?;
            self.at += length as u64;
            self.read = 0;
        }
        let bytes = self.buffer.get(self.read..self.read + 8 * W)?;
        self.read += 8 * W;
        let mut row = [0; W];
        for (word, bytes) in row.iter_mut().zip(bytes.chunks_exact(8)) {
            *word = u64::from_le_bytes(bytes.try_into().ok()?);
        }
        Some(row)
    }
}

/// Reads rows in order out of memory and all runs.
pub struct Rows<'s, const W: usize> {
    memory: std::slice::Iter<'s, Row<W>>,
    runs: Vec<Run<'s>>,
    /// The next row of each run, and of memory as the last one.
    heads: BinaryHeap<Reverse<(Row<W>, usize)>>,
}

impl<const W: usize> Rows<'_, W> {
    fn advance(&mut self, run: usize) {
        let next = match self.runs.get_mut(run) {
            Some(run) => run.next(),
            None => self.memory.next().copied(),
        };
        self.heads.extend(next.map(|row| Reverse((row, run))));
    }
}

impl<const W: usize> Iterator for Rows<'_, W> {
    type Item = Row<W>;

    fn next(&mut self) -> Option<Row<W>> {
        if self.runs.is_empty() {
            return self.memory.next().copied();
        }
        let Reverse((row, run)) = self.heads.pop()?;
        self.advance(run);
        Some(row)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_come_back_in_order_from_memory_and_from_disk() {
        for most in [16 * 16, 1 << 20] {
            let mut spool: Spool<2> = Spool::new(most);
            let mut number: u64 = 1;
            let mut wanted = Vec::new();
            for _ in 0..1_000 {
                number = number.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                spool.push([number >> 40, number]);
                wanted.push([number >> 40, number]);
            }
            wanted.sort_unstable();
            let sorted = spool.sorted().expect("it is there");
            assert_eq!(sorted.file.is_some(), most < 1_000);
            assert_eq!(sorted.iter().collect::<Vec<_>>(), wanted);
            assert_eq!(sorted.iter().count(), 1_000);
        }
    }

    #[test]
    fn times_before_zero_come_first() {
        assert!(ordered(-5) < ordered(0) && ordered(0) < ordered(7));
        assert_eq!(unordered(ordered(-5)), -5);
    }
}
