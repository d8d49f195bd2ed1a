//! Trace files in: events one by one, never the file as a whole. Memory is one buffer, whatever the file's size.

pub mod event;
pub mod json;
pub mod lines;
pub mod nsight;
pub mod source;
pub mod sqlite;

use event::Event;
use json::{Cursor, Stop};
use source::{Ending, Source};

/// A value that is longer than this is not part of any trace.
const LONGEST_VALUE: usize = 64 << 20;

/// Who is told what is in a trace.
pub trait Visitor {
    /// A field beside the events, such as `distributedInfo`, with its value as written.
    fn field(&mut self, name: &[u8], value: &[u8]);
    /// An event.
    fn event(&mut self, event: &Event<'_>);
}

/// What was read and what was wrong with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Walk {
    /// The text is JSON with a list of events.
    pub is_trace: bool,
    pub events: u64,
    /// Pieces between events that could not be read.
    pub broken: u64,
    /// The text ended within a value.
    pub cut: bool,
    pub ending: Ending,
}

/// Where in a trace the reader is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    Start,
    /// Among the fields beside the events.
    Fields,
    /// Among the events; true where the file is nothing but a list of them.
    Events {
        alone: bool,
    },
    End,
}

/// Reads a trace and tells the visitor all that is in it.
pub fn walk(mut source: Source, visitor: &mut impl Visitor) -> Walk {
    let mut buffer: Vec<u8> = Vec::with_capacity(1 << 20);
    let mut at = 0;
    let mut place = Place::Start;
    let mut walk = Walk { is_trace: false, events: 0, broken: 0, cut: false, ending: Ending::Whole };
    while place != Place::End {
        let mut cursor = Cursor { bytes: &buffer, at };
        let outcome = piece(&mut cursor, &mut place, &mut walk, visitor);
        match outcome {
            Ok(()) => at = cursor.at,
            Err(Stop::Broken) => match skip(&buffer, at, place) {
                Some(next) => {
                    walk.broken += 1;
                    at = next;
                }
                None if !more(&mut buffer, &mut at, &mut source, true) => {
                    walk.broken += 1;
                    place = Place::End;
                }
                None => {}
            },
            Err(Stop::Incomplete) => {
                if !more(&mut buffer, &mut at, &mut source, false) {
                    walk.cut = place != Place::Start || buffer[at..].iter().any(|byte| !byte.is_ascii_whitespace());
                    place = Place::End;
                }
            }
        }
    }
    // Bytes after the end are not part of the trace, but a broken end of the file is worth a word.
    let mut rest = Vec::new();
    while source.ending().is_none() && source.fill(&mut rest) {
        rest.clear();
    }
    walk.ending = source.ending().cloned().unwrap_or(Ending::Whole);
    walk
}

/// Makes room and appends the next block; false when there is none.
fn more(buffer: &mut Vec<u8>, at: &mut usize, source: &mut Source, drop_all: bool) -> bool {
    // What may be the beginning of an event stays when broken text is thrown away.
    let done = if drop_all { buffer.len().saturating_sub(64).max(*at) } else { *at };
    buffer.drain(..done);
    *at = 0;
    buffer.len() < LONGEST_VALUE && source.fill(buffer)
}

/// Takes the next piece.
fn piece(cursor: &mut Cursor<'_>, place: &mut Place, walk: &mut Walk, visitor: &mut impl Visitor) -> Result<(), Stop> {
    match *place {
        Place::Start => {
            if cursor.bytes.starts_with(b"\xef\xbb\xbf") && cursor.at == 0 {
                cursor.at = 3;
            }
            match cursor.peek()? {
                b'{' => *place = Place::Fields,
                b'[' => *place = Place::Events { alone: true },
                _ => {
                    *place = Place::End;
                    return Ok(());
                }
            }
            cursor.at += 1;
        }
        Place::Fields => match cursor.peek()? {
            b',' => cursor.at += 1,
            b'}' => *place = Place::End,
            _ => field(cursor, place, walk, visitor)?,
        },
        Place::Events { alone } => match cursor.peek()? {
            b',' => cursor.at += 1,
            b']' => {
                walk.is_trace = true;
                cursor.at += 1;
                *place = if alone { Place::End } else { Place::Fields };
            }
            _ => {
                let event = event::event(cursor)?;
                walk.is_trace = true;
                walk.events += 1;
                visitor.event(&event);
            }
        },
        Place::End => {}
    }
    Ok(())
}

fn field(cursor: &mut Cursor<'_>, place: &mut Place, walk: &mut Walk, visitor: &mut impl Visitor) -> Result<(), Stop> {
    let key = cursor.string()?;
    cursor.take(b':')?;
    if key == b"traceEvents" && cursor.peek()? == b'[' {
        cursor.at += 1;
        *place = Place::Events { alone: false };
        walk.is_trace = true;
        return Ok(());
    }
    visitor.field(key, cursor.value()?);
    Ok(())
}

/// Where the next event may begin after text that is not JSON.
fn skip(buffer: &[u8], at: usize, place: Place) -> Option<usize> {
    if !matches!(place, Place::Events { .. }) {
        // Between fields nothing marks the next one, but the events do.
        let events = memchr::memmem::find(buffer.get(at + 1..)?, b"\"traceEvents\"")?;
        return Some(at + 1 + events);
    }
    let broken = at + buffer.get(at..)?.iter().position(|byte| !byte.is_ascii_whitespace())?;
    let mut from = broken + 1;
    loop {
        let brace = from + memchr::memchr(b'{', buffer.get(from..)?)?;
        let rest = &buffer[brace + 1..];
        let key = rest.iter().position(|byte| !byte.is_ascii_whitespace())?;
        if [&b"\"ph\""[..], b"\"name\"", b"\"cat\""].iter().any(|start| rest[key..].starts_with(start)) {
            return Some(brace);
        }
        from = brace + 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Default)]
    struct Seen {
        names: Vec<String>,
        fields: Vec<String>,
    }

    impl Visitor for Seen {
        fn field(&mut self, name: &[u8], _: &[u8]) {
            self.fields.push(json::text(name));
        }

        fn event(&mut self, event: &Event<'_>) {
            self.names.push(json::text(event.name));
        }
    }

    fn read(text: &[u8]) -> (Seen, Walk) {
        let mut seen = Seen::default();
        let walked = walk(Source::of(std::io::Cursor::new(text.to_vec())), &mut seen);
        (seen, walked)
    }

    #[test]
    fn events_and_fields_are_found_in_either_order() {
        let (seen, walked) = read(br#"{"a": 1, "traceEvents": [{"ph":"X","name":"one"},{"name":"two"}], "b": {}}"#);
        assert_eq!((seen.names.join(" "), seen.fields.join(" ")), ("one two".into(), "a b".into()));
        assert!(walked.is_trace && walked.broken == 0 && !walked.cut);
        assert_eq!(read(br#"[{"name":"one"}]"#).0.names, ["one"]);
    }

    #[test]
    fn what_is_broken_is_skipped_and_counted() {
        let (seen, walked) =
            read(br#"{"traceEvents": [{"ph":"X","name":"one"}, {"ph":"X" oops }, {"ph":"X","name":"two"}]}"#);
        assert_eq!(seen.names, ["one", "two"]);
        assert_eq!(walked.broken, 1);
    }

    #[test]
    fn text_that_is_no_trace_is_said_to_be_none() {
        assert!(!read(b"GIF89a").1.is_trace);
        assert!(!read(b"[package]\nname = \"x\"\n").1.is_trace);
        assert!(!read(br#"{"a": [1, 2]}"#).1.is_trace);
        assert!(!read(b"").1.is_trace);
    }

    #[test]
    fn a_cut_file_gives_what_it_has() {
        let (seen, walked) = read(br#"{"traceEvents": [{"ph":"X","name":"one"}, {"ph":"X","na"#);
        assert_eq!(seen.names, ["one"]);
        assert!(walked.cut);
    }
}
