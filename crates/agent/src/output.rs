//! Bounds a program's output file: its head and its newest part stay, what lies between is given back to the disk.
//! The file keeps its length (a hole takes no space), so that the program, who appends to it, and everybody who reads
//! it at an offset go on as before. A line before the hole says what was cut.

use rustix::fs::FallocateFlags;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use windfall_core::english::{CUT_LINE, cut_line};

/// The first part that is kept, and the newest.
const HEAD: u64 = 16 << 20;
const TAIL: u64 = 48 << 20;
/// The output is cut once it is this much longer than both parts. Holes are aligned to it too.
const STEP: u64 = 1 << 20;

pub(crate) struct Output {
    path: PathBuf,
    head: u64,
    tail: u64,
    /// The hole reaches to here.
    cut: u64,
    /// What was cut off where no hole could be made.
    cut_off: u64,
    can_have_holes: bool,
}

impl Output {
    pub fn new(path: &Path) -> Self {
        Self::bounded(path, HEAD, TAIL)
    }

    fn bounded(path: &Path, head: u64, tail: u64) -> Self {
        Self { path: path.to_owned(), head, tail, cut: 0, cut_off: 0, can_have_holes: true }
    }

    /// Cuts the output if it is too long. If that fails, the next call tries again.
    pub fn trim(&mut self) {
        let length = std::fs::metadata(&self.path).map_or(0, |meta| meta.len());
        let end = length.saturating_sub(self.tail) / STEP * STEP;
        if end <= self.cut.max(self.head) {
            return;
        }
        let Ok(file) = File::options().write(true).open(&self.path) else { return };
        self.can_have_holes &= punch(&file, self.head, end).is_ok();
        if self.can_have_holes {
            self.cut = end;
        } else {
            // The newest part goes too, because the disk must not fill.
            let length = file.metadata().map_or(length, |meta| meta.len());
            if file.set_len(self.head).is_ok() {
                self.cut_off += length.saturating_sub(self.head);
            }
            self.cut = 0;
        }
        let cut = self.cut.saturating_sub(self.head) + self.cut_off;
        let _ = file.write_all_at(cut_line(cut).as_bytes(), self.head - CUT_LINE as u64);
    }
}

/// Gives a part of a file back to the disk.
fn punch(file: &File, from: u64, to: u64) -> rustix::io::Result<()> {
    rustix::fs::fallocate(file, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, from, to - from)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::os::unix::fs::MetadataExt;

    #[test]
    fn a_large_output_keeps_its_head_and_its_newest_part_on_disk_and_nothing_else() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("out");
        let mut program = File::options().create(true).append(true).open(&path).expect("opened");
        let mut output = Output::bounded(&path, 2 << 20, 4 << 20);
        for n in 0..40 {
            let line = format!("{n:0>7}\n").repeat(1 << 17);
            program.write_all(line.as_bytes()).expect("written");
            output.trim();
        }
        program.write_all(b"the last line\n").expect("written");
        let meta = std::fs::metadata(&path).expect("there");
        assert!(meta.blocks() * 512 <= 8 << 20, "{} bytes on disk", meta.blocks() * 512);
        let text = String::from_utf8(std::fs::read(&path).expect("read")).expect("text");
        assert!(text.starts_with("0000000\n") && text.ends_with("0000039\nthe last line\n"));
        assert!(text.contains("[windfall: 35.7 MB of output were cut here"));
    }

    #[test]
    fn where_no_holes_can_be_made_each_cut_adds_to_what_was_cut() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("out");
        let mut program = File::options().create(true).append(true).open(&path).expect("opened");
        let mut output = Output { can_have_holes: false, ..Output::bounded(&path, 2 << 20, 4 << 20) };
        let printed = 40_u64 << 20;
        for _ in 0..40 {
            program.write_all(&vec![b'x'; 1 << 20]).expect("written");
            output.trim();
        }
        let cut = printed - std::fs::metadata(&path).expect("there").len();
        let text = String::from_utf8(std::fs::read(&path).expect("read")).expect("text");
        assert!(text.contains(&cut_line(cut)), "{}", windfall_core::english::size(cut));
    }
}
