//! Lines of a text file, plain or gzip, one by one; a line that is too long is left out, so memory stays bounded.

use super::source::{Ending, Source};

/// A line that is longer than this is none.
const LONGEST: usize = 1 << 20;

/// What was read and what was wrong with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Read {
    pub lines: u64,
    pub too_long: u64,
    pub ending: Ending,
}

/// Tells `line` every line without its end, as far as it is UTF-8; other bytes are replaced.
pub fn lines(mut source: Source, mut line: impl FnMut(&str)) -> Read {
    let mut read = Read { lines: 0, too_long: 0, ending: Ending::Whole };
    let mut buffer: Vec<u8> = Vec::new();
    // Within a line that is too long.
    let mut dropping = false;
    loop {
        let known = buffer.len();
        let more = source.fill(&mut buffer);
        let mut from = 0;
        let mut search = known;
        while let Some(found) = memchr::memchr(b'\n', &buffer[search..]) {
            let end = search + found;
            if !std::mem::take(&mut dropping) {
                told(&buffer[from..end], &mut line, &mut read);
            }
            (from, search) = (end + 1, end + 1);
        }
        buffer.drain(..from);
        if buffer.len() > LONGEST {
            read.too_long += u64::from(!dropping);
            dropping = true;
            buffer.clear();
        }
        if !more {
            break;
        }
    }
    if !buffer.is_empty() && !dropping {
        told(&buffer, &mut line, &mut read);
    }
    read.ending = source.ending().cloned().unwrap_or(Ending::Whole);
    read
}

fn told(bytes: &[u8], line: &mut impl FnMut(&str), read: &mut Read) {
    read.lines += 1;
    let text = String::from_utf8_lossy(bytes);
    line(text.trim_end_matches('\r'));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(bytes: Vec<u8>) -> (Vec<String>, Read) {
        let mut all = Vec::new();
        let read = lines(Source::of(std::io::Cursor::new(bytes)), |line| all.push(line.to_owned()));
        (all, read)
    }

    #[test]
    fn lines_come_whole_whatever_ends_them() {
        let (all, read) = of(b"one\r\ntwo\n\nlast".to_vec());
        assert_eq!((all.join("|"), read.lines), ("one|two||last".to_owned(), 4));
        assert_eq!(of(Vec::new()).1.lines, 0);
    }

    #[test]
    fn a_line_without_end_is_left_out() {
        let mut bytes = b"before\n".to_vec();
        bytes.extend(std::iter::repeat_n(b'x', 3 << 20));
        bytes.extend(b"\nafter\n");
        let (all, read) = of(bytes);
        assert_eq!((all.join("|"), read.too_long), ("before|after".to_owned(), 1));
    }
}
