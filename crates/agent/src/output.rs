//! Bounds a program's output file: its head and its newest part stay, what lies between is given back to the disk.
//! The file keeps its length (a hole takes no space), so that the program, who appends to it, and everybody who reads
//! it at an offset go on as before. A line before the hole says what was cut.

use rustix::fs::FallocateFlags;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// The first part that is kept, and the newest.
const HEAD: u64 = 16 << 20;
const TAIL: u64 = 48 << 20;
/// The output is cut once it is this much longer than both parts. Holes are aligned to it too.
const STEP: u64 = 1 << 20;
/// The line that says what was cut is padded to this, so that it can be written again in place.
const LINE: usize = 128;

pub(crate) struct Output {
    path: PathBuf,
    head: u64,
    tail: u64,
    /// The hole reaches to here.
    cut: u64,
}

impl Output {
    pub fn new(path: &Path) -> Self {
        Self::bounded(path, HEAD, TAIL)
    }

    fn bounded(path: &Path, head: u64, tail: u64) -> Self {
        Self { path: path.to_owned(), head, tail, cut: 0 }
    }

    /// Cuts the output if it is too long. If that fails, the next call tries again.
    pub fn trim(&mut self) {
        let length = std::fs::metadata(&self.path).map_or(0, |meta| meta.len());
        let end = length.saturating_sub(self.tail) / STEP * STEP;
        if end <= self.cut.max(self.head) {
            return;
        }
        let Ok(file) = File::options().write(true).open(&self.path) else { return };
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        match rustix::fs::fallocate(&file, flags, self.head, end - self.head) {
            Ok(()) => self.cut = end,
            // A file system without holes: the newest part goes too, because the disk must not fill.
            Err(_) => {
                let _ = file.set_len(self.head);
                self.cut = 0;
            }
        }
        let cut = end - self.head;
        let text = format!("\n[windfall: {} MB of output were cut here: it prints more than is kept]", cut >> 20);
        let _ = file.write_all_at(format!("{text:<width$}\n", width = LINE - 1).as_bytes(), self.head - LINE as u64);
    }
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
        assert!(text.contains("[windfall: 34 MB of output were cut here"));
    }
}
